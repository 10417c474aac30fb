//! The replicated file: exactly once, refused commands, snapshots by name and by changes.

use super::common::{self, Ground, Scratch};
use super::files::{Entry, Machine, Payload, Snapshot, Types, apply};
use super::openraft::BasicNode;
use super::openraft::storage::{RaftLogStorage, RaftSnapshotBuilder, RaftStateMachine};
use super::{log_id, open_as, open_file};
use openraft_atomic_mmap::Error;
use openraft_atomic_mmap::file::{Command, Contents, FileSnapshot, Functions, Part, Stop};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncSeek, AsyncSeekExt, AsyncWriteExt};

/// Length of the contents in these tests.
pub const LEN: u64 = 300_000;
/// The contents begin here in the file.
const HEADER: u64 = 16 << 10;

/// Moves an amount between two accounts of 8 bytes. It writes before it knows whether it may.
fn transfer(contents: &mut Contents<'_, '_>, argument: &[u8]) -> Result<Vec<u8>, Stop> {
    let [from, to, amount] = argument else { return Err(Stop::Refused("3 bytes".into())) };
    let (from, to, amount) = (u64::from(*from) * 8, u64::from(*to) * 8, u64::from(*amount));
    let sum = contents.load::<u64>(to)? + amount;
    contents.store(to, &sum)?;
    let left = contents.load::<u64>(from)?.checked_sub(amount);
    contents.store(from, &left.ok_or(Stop::Refused("the account is empty".into()))?)?;
    Ok(sum.to_le_bytes().to_vec())
}

pub fn machine(ground: &Ground, path: &Path) -> Machine {
    let functions = Functions::new()
        .with("transfer", transfer)
        .with("is it", |contents, _| Ok(vec![contents.load::<bool>(0)?.into()]))
        .with("panic", |contents, _| {
            contents.store(0, &1_u8)?;
            panic!("on purpose")
        });
    Machine::open(open_file(ground, path), functions).expect("a machine")
}

pub fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}

/// A node's machine, and the index of the entry that it applies next.
pub struct Node {
    pub machine: Machine,
    pub next: u64,
    scratch: Scratch,
    ground: Ground,
}

/// A folder and the ground that it is on.
type Folder = (Scratch, Ground);

impl Node {
    pub fn new() -> Node {
        let ground = common::page_cache().unwrap_or_else(common::ram);
        Node::start((ground.scratch(), ground), 1)
    }

    /// Starts a node with the file that lies in a folder. `next` is its next entry.
    pub fn start((scratch, ground): Folder, next: u64) -> Node {
        let machine = machine(&ground, &scratch.file("state.dat"));
        Node { machine, next, scratch, ground }
    }

    /// Ends the node. Returns the folder with its file.
    pub fn end(self) -> Folder {
        (self.scratch, self.ground)
    }

    pub fn entry(&mut self, payload: Payload) -> Entry {
        self.next += 1;
        Entry { log_id: log_id(1, self.next - 1), payload }
    }

    pub async fn apply(&mut self, payload: Payload) {
        let entry = self.entry(payload);
        apply(&mut self.machine, [entry]).await.expect("applied");
    }

    pub async fn run(&mut self, command: Command) {
        self.apply(Payload::Normal(command)).await;
    }

    pub async fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.run(Command::Write(vec![Part { offset, bytes: bytes.to_vec() }])).await;
    }

    pub async fn members(&mut self, ids: &[u64]) {
        let nodes = ids.iter().map(|id| (*id, BasicNode::new(format!("node {id}"))));
        self.apply(Payload::Membership(nodes.collect::<BTreeMap<_, _>>().into())).await;
    }

    async fn transfer(&mut self, argument: [u8; 3]) {
        self.run(call("transfer", argument)).await;
    }

    pub async fn snapshot(&mut self) -> Snapshot {
        self.machine.get_snapshot_builder().await.build_snapshot().await.expect("a snapshot")
    }

    /// Makes a snapshot. Returns its name.
    pub async fn seal(&mut self) -> String {
        name(&self.snapshot().await)
    }

    /// Returns a snapshot with a received stream.
    pub async fn receive(&self, stream: &[u8]) -> FileSnapshot {
        let mut received = self.machine.begin_receiving().expect("an empty one");
        received.write_all(stream).await.expect("write");
        received.shutdown().await.expect("flush");
        received
    }

    /// Returns the index of the applied log id.
    pub async fn applied(&mut self) -> Option<u64> {
        let (applied, _) = self.machine.applied_state().await.expect("the state");
        applied.map(|id| id.index)
    }

    /// Returns all bytes of the file, with the header.
    pub fn bytes(&self) -> Vec<u8> {
        self.machine.file().read_vec().expect("read")
    }

    pub fn contents(&self) -> Vec<u8> {
        self.bytes().split_off(HEADER as usize)
    }

    fn reopened(self) -> Node {
        let next = self.next;
        Node::start(self.end(), next)
    }
}

pub fn call(function: &str, argument: impl Into<Vec<u8>>) -> Command {
    Command::Call { function: function.to_owned(), argument: argument.into() }
}

pub fn name(snapshot: &Snapshot) -> String {
    snapshot.snapshot.name().expect("a snapshot of this node").to_owned()
}

/// The tests of `handle` look at the answers.
#[test]
fn a_refused_command_counts_as_applied_and_changes_nothing() {
    on_runtime(async {
        let mut node = Node::new();
        node.run(Command::SetLen(LEN)).await;
        node.write(8, &100_u64.to_le_bytes()).await;
        node.write(0, &[7]).await;
        let before = node.contents();
        // One part fits, and the other one does not.
        let parts = [(0, 8), (LEN - 3, 4)];
        let part = |(offset, len)| Part { offset, bytes: vec![9; len] };
        node.run(Command::Write(parts.map(part).to_vec())).await;
        node.write(u64::MAX - 3, b"x").await;
        node.transfer([1, 2, 101]).await;
        node.run(call("is it", [])).await;
        assert_eq!(node.contents(), before);
        assert_eq!(node.applied().await, Some(7));
    });
}

#[test]
fn the_applied_log_id_and_the_membership_are_those_of_the_contents() {
    on_runtime(async {
        let mut node = Node::new();
        node.run(Command::SetLen(LEN)).await;
        node.write(8, &100_u64.to_le_bytes()).await;
        node.members(&[1, 2, 3]).await;
        node.transfer([1, 0, 30]).await;
        let contents = node.contents();
        assert_eq!((contents[0], contents[8]), (30, 70));
        let mut node = node.reopened();
        assert_eq!(node.contents(), contents);
        let (applied, stored) = node.machine.applied_state().await.expect("the state");
        assert_eq!(applied, Some(log_id(1, 4)));
        assert_eq!(stored.membership().voter_ids().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(*stored.log_id(), Some(log_id(1, 3)));
    });
}

#[test]
fn a_function_that_is_not_registered_stops_the_node() {
    on_runtime(async {
        let mut node = Node::new();
        let entry = node.entry(Payload::Normal(call("unknown", [])));
        let error = apply(&mut node.machine, [entry]).await.expect_err("no such function");
        assert!(error.contains("\"unknown\""), "{error}");
        assert_eq!(node.applied().await, None);
    });
}

#[test]
fn a_function_that_panics_is_an_error_and_changes_nothing() {
    on_runtime(async {
        let mut node = Node::new();
        node.run(Command::SetLen(LEN)).await;
        let before = node.bytes();
        let entry = node.entry(Payload::Normal(call("panic", [])));
        let error = apply(&mut node.machine, [entry]).await.expect_err("a panic");
        assert!(error.contains("\"panic\" of a committed command"), "{error}");
        assert_eq!(node.bytes(), before);
    });
}

#[test]
fn a_batch_with_an_entry_that_fails_is_applied_up_to_it() {
    on_runtime(async {
        let mut node = Node::new();
        let commands = [Command::SetLen(LEN), call("panic", []), Command::SetLen(1)];
        let entries = commands.map(|command| node.entry(Payload::Normal(command)));
        apply(&mut node.machine, entries).await.expect_err("a panic");
        assert_eq!((node.applied().await, node.contents().len() as u64), (Some(1), LEN));
        let mut node = node.reopened();
        assert_eq!((node.applied().await, node.contents().len() as u64), (Some(1), LEN));
    });
}

/// The base of received changes may be older than the purged log. So a crash between the return to
/// the base and the changes left a node that could not start.
#[test]
fn an_installation_that_a_crash_cuts_off_leaves_the_state_before_it() {
    on_runtime(async {
        let mut node = Node::new();
        node.run(Command::SetLen(LEN)).await;
        let base = node.seal().await;
        node.write(1000, &[5; 70_000]).await;
        let (contents, applied) = (node.contents(), node.machine.applied_state().await);
        let file = node.machine.file();
        file.roll_back(&base, Some("before-installation")).expect("to the base");
        assert_ne!(node.contents(), contents);
        let mut node = node.reopened();
        assert_eq!(node.contents(), contents);
        let found = node.machine.applied_state().await.expect("the state");
        assert_eq!(found, applied.expect("the state"));
        let names = node.machine.file().snapshots().into_iter().map(|info| info.name);
        assert_eq!(names.collect::<Vec<_>>(), [base]);
    });
}

#[test]
fn a_stream_of_another_snapshot_than_announced_is_an_error() {
    on_runtime(async {
        let (mut leader, mut follower) = (Node::new(), Node::new());
        leader.run(Command::SetLen(LEN)).await;
        let other = leader.snapshot().await;
        let first = name(&other);
        leader.write(0, b"more").await;
        let second = leader.snapshot().await;
        let installed = follower.machine.install_snapshot(&second.meta, other.snapshot).await;
        let error = installed.expect_err("another one").to_string();
        assert!(error.contains(&name(&second)) && error.contains(&first), "{error}");
    });
}

#[test]
fn another_file_is_refused_and_stays() {
    let ground = common::page_cache().unwrap_or_else(common::ram);
    let scratch = ground.scratch();
    for bytes in [&b"short"[..], &[3; 40_000]] {
        let path = scratch.file(&format!("{}.dat", bytes.len()));
        fs::write(&path, bytes).expect("write");
        let file = open_file(&ground, &path);
        let error = Machine::open(file, Functions::new()).expect_err("not ours");
        assert!(matches!(error, Error::NotReplicated { .. }), "{error}");
        assert_eq!(fs::read(&path).expect("read"), bytes);
    }
}

/// Sends a stream in chunks, as openraft's own transport of 0.9 does.
async fn send_in_chunks(mut from: impl AsyncRead + AsyncSeek + Unpin, to: &Node) -> FileSnapshot {
    let mut received = to.machine.begin_receiving().expect("an empty one");
    let mut offset = 0;
    loop {
        from.seek(std::io::SeekFrom::Start(offset)).await.expect("seek");
        let mut chunk = vec![0; 30_000];
        let len = from.read(&mut chunk).await.expect("read");
        if len == 0 {
            break;
        }
        received.seek(std::io::SeekFrom::Start(offset)).await.expect("seek");
        received.write_all(&chunk[..len]).await.expect("write");
        offset += len as u64;
    }
    received.shutdown().await.expect("flush");
    received
}

#[test]
fn a_snapshot_makes_a_replica_that_is_equal_byte_for_byte() {
    on_runtime(async {
        let (mut leader, mut follower) = (Node::new(), Node::new());
        leader.run(Command::SetLen(LEN)).await;
        leader.write(1000, &[5; 70_000]).await;
        let Snapshot { meta, snapshot } = leader.snapshot().await;
        let received = send_in_chunks(snapshot, &follower).await;
        follower.machine.install_snapshot(&meta, received.into()).await.expect("installed");
        assert_eq!(follower.bytes(), leader.bytes());
        let state = follower.machine.applied_state().await.expect("the state");
        assert_eq!(state.0, meta.last_log_id);
        let current = follower.machine.get_current_snapshot().await.expect("read");
        assert_eq!(current.expect("one").meta, meta);
    });
}

#[test]
fn a_node_with_a_snapshot_of_the_leader_gets_the_changes_alone() {
    on_runtime(async {
        let (mut leader, mut follower) = (Node::new(), Node::new());
        for node in [&mut leader, &mut follower] {
            node.run(Command::SetLen(LEN)).await;
            node.write(1000, &[5; 70_000]).await;
        }
        // Equal logs make equal snapshots, with equal names.
        let base = follower.seal().await;
        assert_eq!(leader.seal().await, base);
        // Both go on, and the follower less far. Its file is not as in the base any more.
        follower.next = leader.next;
        for node in [&mut leader, &mut follower] {
            node.write(200_000, &[6; 100]).await;
        }
        leader.write(250_000, &[7; 100]).await;
        let Snapshot { meta, snapshot } = leader.snapshot().await;
        let (mut changes, mut whole) = (Vec::new(), Vec::new());
        assert!(snapshot.write_to(Some(&base), &mut changes).expect("changes"));
        assert!(!snapshot.write_to(Some("unknown here"), &mut whole).expect("the whole"));
        let lens = (changes.len(), whole.len());
        assert!(lens.0 < 20_000 && lens.1 > 70_000, "{lens:?}");
        let received = follower.receive(&changes).await;
        follower.machine.install_snapshot(&meta, received.into()).await.expect("installed");
        assert_eq!(follower.bytes(), leader.bytes());
        assert_eq!(follower.machine.applied_state().await.expect("state").0, meta.last_log_id);
    });
}

/// Entries of one index may differ. Their terms differ then.
#[test]
fn snapshots_of_other_histories_have_other_names() {
    on_runtime(async {
        let mut names = Vec::new();
        for term in [1, 2] {
            let mut node = Node::new();
            let entry = Entry { log_id: log_id(term, 1), payload: Payload::Blank };
            apply(&mut node.machine, [entry]).await.expect("applied");
            names.push(node.seal().await);
        }
        assert_ne!(names[0], names[1]);
    });
}

#[test]
fn a_log_is_purged_up_to_a_snapshot_that_was_built() {
    on_runtime(async {
        let mut node = Node::new();
        let (ground, progress) = (common::ram(), node.machine.progress());
        let scratch = ground.scratch();
        let mut log = open_as::<Types>(&ground, &scratch.file("raft.dat")).behind(progress);
        node.run(Command::SetLen(LEN)).await;
        let last = node.snapshot().await.meta.last_log_id.expect("an entry");
        let purge = tokio::time::timeout(common::HANGS, log.purge(last));
        purge.await.expect("an end").expect("purged");
    });
}

#[test]
fn a_damaged_stream_leaves_the_file_as_it_was() {
    on_runtime(async {
        let (mut leader, mut follower) = (Node::new(), Node::new());
        leader.run(Command::SetLen(LEN)).await;
        leader.write(1000, &[5; 70_000]).await;
        follower.run(Command::SetLen(10)).await;
        follower.write(0, b"as it was").await;
        let before = follower.bytes();
        let Snapshot { meta, snapshot } = leader.snapshot().await;
        let mut stream = Vec::new();
        snapshot.write_to(None, &mut stream).expect("the whole");
        for at in [0, 40, stream.len() / 2, stream.len() - 1] {
            let mut damaged = stream.clone();
            damaged[at] ^= 0x20;
            let received = follower.receive(&damaged).await;
            follower.machine.install_snapshot(&meta, received.into()).await.expect_err("damaged");
            assert_eq!(follower.bytes(), before, "byte {at}");
        }
    });
}

#[test]
fn old_snapshots_are_dropped_unless_they_are_being_sent() {
    on_runtime(async {
        let mut node = Node::new();
        node.run(Command::SetLen(LEN)).await;
        let names = |node: &Node| {
            let all = node.machine.file().snapshots();
            all.into_iter().map(|info| info.name).collect::<Vec<_>>()
        };
        let first = node.snapshot().await;
        for n in 0..4 {
            node.write(n * 5000, &[1; 300]).await;
            node.snapshot().await;
        }
        assert_eq!(names(&node).len(), 3, "{:?}", names(&node));
        assert_eq!(names(&node)[0], name(&first));
        // A second snapshot of one state is that state's.
        let again = node.snapshot().await;
        drop((first, again));
        node.write(0, &[1; 300]).await;
        node.snapshot().await;
        assert_eq!(names(&node).len(), 2);
    });
}
