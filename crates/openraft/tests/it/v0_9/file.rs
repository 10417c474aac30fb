//! The replicated file: exactly once, refused commands, snapshots by name and by changes.

use super::common::{self, Ground, Scratch};
use super::open_file;
use openraft::storage::{RaftSnapshotBuilder, RaftStateMachine, Snapshot};
use openraft::testing::{StoreBuilder, Suite, log_id};
use openraft::{Entry, EntryPayload, Membership, StorageError};
use openraft_atomic_mmap::file::{
    Answer, Command, Contents, FileMachine, FileSnapshot, Functions, Part, Stop,
};
use openraft_atomic_mmap::{Error, LogStore};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use tokio::io::{AsyncReadExt, AsyncSeekExt, AsyncWriteExt};

openraft::declare_raft_types!(
    /// Commands on a replicated file.
    pub Types: D = Command, R = Answer, SnapshotData = FileSnapshot
);

type Machine = FileMachine<Types>;

/// Length of the contents in these tests.
const LEN: u64 = 300_000;
/// The contents begin here in the file.
const HEADER: u64 = 16 << 10;

struct Builder(Ground);

impl StoreBuilder<Types, LogStore<Types>, Machine, Scratch> for Builder {
    async fn build(&self) -> Result<(Scratch, LogStore<Types>, Machine), StorageError<u64>> {
        let scratch = self.0.scratch();
        let store = LogStore::open(open_file(&self.0, &scratch.file("raft.dat"))).expect("a store");
        let machine = machine(&self.0, &scratch.file("state.dat"));
        Ok((scratch, store, machine))
    }
}

#[test]
fn openrafts_suite_passes_with_the_file_as_state_machine() {
    let ground = common::page_cache().unwrap_or_else(common::ram);
    Suite::test_all(Builder(ground)).expect("openraft's suite passes");
}

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
    FileMachine::open(open_file(ground, path), functions).expect("a machine")
}

pub fn on_runtime<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(future)
}

/// A node's machine, and the number of entries that it has applied.
struct Node {
    machine: Machine,
    next: u64,
    scratch: Scratch,
    ground: Ground,
}

impl Node {
    fn new() -> Node {
        let ground = common::page_cache().unwrap_or_else(common::ram);
        let scratch = ground.scratch();
        let machine = machine(&ground, &scratch.file("state.dat"));
        Node { machine, next: 1, scratch, ground }
    }

    async fn apply(&mut self, payload: EntryPayload<Types>) -> Answer {
        let entry = Entry { log_id: log_id(1, 1, self.next), payload };
        self.next += 1;
        let mut answers = self.machine.apply([entry]).await.expect("applied");
        answers.pop().expect("an answer")
    }

    async fn run(&mut self, command: Command) -> Answer {
        self.apply(EntryPayload::Normal(command)).await
    }

    async fn write(&mut self, offset: u64, bytes: &[u8]) -> Answer {
        self.run(Command::Write(vec![Part { offset, bytes: bytes.to_vec() }])).await
    }

    async fn transfer(&mut self, argument: [u8; 3]) -> Answer {
        let (function, argument) = ("transfer".to_owned(), argument.to_vec());
        self.run(Command::Call { function, argument }).await
    }

    async fn call(&mut self, function: &str) -> Answer {
        let function = function.to_owned();
        self.run(Command::Call { function, argument: Vec::new() }).await
    }

    async fn snapshot(&mut self) -> Snapshot<Types> {
        self.machine.get_snapshot_builder().await.build_snapshot().await.expect("a snapshot")
    }

    fn contents(&self) -> Vec<u8> {
        self.machine.file().read_vec().expect("read").split_off(HEADER as usize)
    }

    fn reopened(self) -> Node {
        let Node { machine: old, next, scratch, ground } = self;
        drop(old);
        let machine = machine(&ground, &scratch.file("state.dat"));
        Node { machine, next, scratch, ground }
    }
}

#[track_caller]
fn assert_refused(answer: &Answer, why: &str) {
    let Answer::Refused(found) = answer else { panic!("{answer:?}") };
    assert!(found.contains(why), "{found}");
}

#[test]
fn a_refused_command_counts_as_applied_and_changes_nothing() {
    on_runtime(async {
        let mut node = Node::new();
        assert_refused(&node.write(0, b"x").await, "past the end at 0");
        assert_eq!(node.run(Command::SetLen(LEN)).await, Answer::Done);
        assert_eq!(node.write(8, &100_u64.to_le_bytes()).await, Answer::Done);
        let before = node.contents();
        // One part fits, and the other one does not.
        let parts = [(0, 8), (LEN - 3, 4)];
        let part = |(offset, len)| Part { offset, bytes: vec![7; len] };
        let answer = node.run(Command::Write(parts.map(part).to_vec())).await;
        assert_refused(&answer, "4 bytes at offset 299997 are past the end at 300000");
        assert_refused(&node.write(u64::MAX - 3, b"x").await, "no file reaches");
        assert_refused(&node.transfer([1, 0, 101]).await, "the account is empty");
        assert_eq!(node.contents(), before);
        // Bytes that are no value are so on all nodes.
        assert_eq!(node.write(0, &[7]).await, Answer::Done);
        assert_refused(&node.call("is it").await, "the bytes at offset 0 are no bool");
        assert_eq!(node.write(0, &[1]).await, Answer::Done);
        assert_eq!(node.call("is it").await, Answer::Value(vec![1]));
        let (applied, _) = node.machine.applied_state().await.expect("the state");
        assert_eq!(applied, Some(log_id(1, 1, node.next - 1)));
    });
}

#[test]
fn the_applied_log_id_and_the_membership_are_those_of_the_contents() {
    on_runtime(async {
        let mut node = Node::new();
        node.run(Command::SetLen(LEN)).await;
        node.write(8, &100_u64.to_le_bytes()).await;
        let members = Membership::new(vec![BTreeSet::from([1, 2, 3])], None);
        node.apply(EntryPayload::Membership(members.clone())).await;
        assert_eq!(node.transfer([1, 0, 30]).await, Answer::Value(30_u64.to_le_bytes().to_vec()));
        let contents = node.contents();
        let mut node = node.reopened();
        assert_eq!(node.contents(), contents);
        let (applied, stored) = node.machine.applied_state().await.expect("the state");
        assert_eq!(applied, Some(log_id(1, 1, 4)));
        assert_eq!(stored.membership(), &members);
        assert_eq!(*stored.log_id(), Some(log_id(1, 1, 3)));
    });
}

#[test]
fn a_function_that_is_not_registered_stops_the_node() {
    on_runtime(async {
        let mut node = Node::new();
        let command = Command::Call { function: "unknown".into(), argument: Vec::new() };
        let entry = Entry { log_id: log_id(1, 1, 1), payload: EntryPayload::Normal(command) };
        let error = node.machine.apply([entry]).await.expect_err("no such function");
        assert!(error.to_string().contains("\"unknown\""), "{error}");
        let (applied, _) = node.machine.applied_state().await.expect("the state");
        assert_eq!(applied, None);
    });
}

#[test]
fn a_function_that_panics_is_an_error_and_changes_nothing() {
    on_runtime(async {
        let mut node = Node::new();
        node.run(Command::SetLen(LEN)).await;
        let before = node.machine.file().read_vec().expect("read");
        let command = Command::Call { function: "panic".into(), argument: Vec::new() };
        let entry = Entry { log_id: log_id(1, 1, 2), payload: EntryPayload::Normal(command) };
        let error = node.machine.apply([entry]).await.expect_err("a panic");
        assert!(error.to_string().contains("\"panic\" of a committed command"), "{error}");
        assert_eq!(node.machine.file().read_vec().expect("read"), before);
    });
}

/// The base of received changes may be older than the purged log. So a crash between the return to
/// the base and the changes left a node that could not start.
#[test]
fn an_installation_that_a_crash_cuts_off_leaves_the_state_before_it() {
    on_runtime(async {
        let mut node = Node::new();
        node.run(Command::SetLen(LEN)).await;
        let base = node.snapshot().await.meta;
        node.write(1000, &[5; 70_000]).await;
        let (contents, applied) = (node.contents(), node.machine.applied_state().await);
        let file = node.machine.file();
        file.roll_back(&base.snapshot_id, Some("before-installation")).expect("to the base");
        assert_ne!(node.contents(), contents);
        let mut node = node.reopened();
        assert_eq!(node.contents(), contents);
        let found = node.machine.applied_state().await.expect("the state");
        assert_eq!(found, applied.expect("the state"));
        let names = node.machine.file().snapshots().into_iter().map(|info| info.name);
        assert_eq!(names.collect::<Vec<_>>(), [base.snapshot_id]);
    });
}

#[test]
fn a_stream_of_another_snapshot_than_announced_is_an_error() {
    on_runtime(async {
        let (mut leader, mut follower) = (Node::new(), Node::new());
        leader.run(Command::SetLen(LEN)).await;
        let first = leader.snapshot().await;
        leader.write(0, b"more").await;
        let second = leader.snapshot().await;
        let installed = follower.machine.install_snapshot(&second.meta, first.snapshot).await;
        let error = installed.expect_err("another one").to_string();
        assert!(error.contains(&second.meta.snapshot_id), "{error}");
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

/// Sends a snapshot in chunks, as openraft's own transport does.
async fn send_in_chunks(mut from: Box<FileSnapshot>, to: &mut Node) -> Box<FileSnapshot> {
    let mut received = to.machine.begin_receiving_snapshot().await.expect("an empty one");
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
        let received = send_in_chunks(snapshot, &mut follower).await;
        follower.machine.install_snapshot(&meta, received).await.expect("installed");
        let bytes = |node: &Node| node.machine.file().read_vec().expect("read");
        assert_eq!(bytes(&follower), bytes(&leader));
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
        let base = follower.snapshot().await.meta;
        assert_eq!(leader.snapshot().await.meta, base);
        // Both go on, and the follower less far. Its file is not as in the base any more.
        follower.next = leader.next;
        for node in [&mut leader, &mut follower] {
            node.write(200_000, &[6; 100]).await;
        }
        leader.write(250_000, &[7; 100]).await;
        let Snapshot { meta, snapshot } = leader.snapshot().await;
        let (mut changes, mut whole) = (Vec::new(), Vec::new());
        assert!(snapshot.write_to(Some(&base.snapshot_id), &mut changes).expect("changes"));
        assert!(!snapshot.write_to(Some("unknown here"), &mut whole).expect("the whole"));
        assert!(
            changes.len() < 20_000 && whole.len() > 70_000,
            "{} {}",
            changes.len(),
            whole.len()
        );
        let mut received = follower.machine.begin_receiving_snapshot().await.expect("empty");
        received.write_all(&changes).await.expect("write");
        received.shutdown().await.expect("flush");
        follower.machine.install_snapshot(&meta, received).await.expect("installed");
        let bytes = |node: &Node| node.machine.file().read_vec().expect("read");
        assert_eq!(bytes(&follower), bytes(&leader));
        assert_eq!(follower.machine.applied_state().await.expect("state").0, meta.last_log_id);
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
        let before = follower.machine.file().read_vec().expect("read");
        let Snapshot { meta, snapshot } = leader.snapshot().await;
        let mut stream = Vec::new();
        snapshot.write_to(None, &mut stream).expect("the whole");
        for at in [0, 40, stream.len() / 2, stream.len() - 1] {
            let mut damaged = stream.clone();
            damaged[at] ^= 0x20;
            let mut received = follower.machine.begin_receiving_snapshot().await.expect("empty");
            received.write_all(&damaged).await.expect("write");
            received.shutdown().await.expect("flush");
            follower.machine.install_snapshot(&meta, received).await.expect_err("damaged");
            assert_eq!(follower.machine.file().read_vec().expect("read"), before, "byte {at}");
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
        assert_eq!(names(&node)[0], first.meta.snapshot_id);
        // A second snapshot of one state is that state's.
        let again = node.snapshot().await;
        drop((first, again));
        node.write(0, &[1; 300]).await;
        node.snapshot().await;
        assert_eq!(names(&node).len(), 2);
    });
}
