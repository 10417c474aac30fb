//! The handle of a replicated file: writes, reads and refusals, and a node that is started again.

use super::Vote;
use super::common::{self, Ground};
use super::file::{machine, on_runtime};
use super::files::{Machine, Raft};
use super::network::alone;
use super::open_as;
use super::openraft::storage::{RaftSnapshotBuilder, RaftStateMachine, Snapshot};
use super::openraft::{BasicNode, Config};
use openraft_atomic_mmap::file::{ClientError, ReplicatedFile};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

async fn start(id: u64, ground: &Ground, folder: &Path) -> (Raft, ReplicatedFile<Raft>, Machine) {
    let machine = machine(ground, &folder.join("state.dat"));
    let log = open_as(ground, &folder.join("log.dat")).behind(machine.progress());
    let config = Arc::new(Config::default().validate().expect("a configuration"));
    let raft = Raft::new(id, config, alone(), log, machine.clone()).await.expect("a node");
    let file = ReplicatedFile::new(raft.clone(), &machine);
    (raft, file, machine)
}

async fn begin_and_lead(raft: &Raft) {
    let nodes = BTreeMap::from([(1, BasicNode::default())]);
    raft.initialize(nodes).await.expect("a cluster of one");
    leads(raft).await;
}

async fn leads(raft: &Raft) {
    raft.wait(Some(common::HANGS)).current_leader(1, "leads").await.expect("a leader");
}

/// A server spawns such calls.
fn on_any_thread<F: Future + Send>(call: F) -> F {
    call
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, ClientError<Raft>>, why: &str) {
    match result {
        Err(ClientError::Refused(found)) => assert!(found.contains(why), "{found}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_writes_reads_and_is_refused() {
    let ground = common::page_cache().unwrap_or_else(common::ram);
    let scratch = ground.scratch();
    let folder = scratch.path();
    on_runtime(async {
        let (raft, file, _) = start(1, &ground, folder).await;
        let error = file.write_at(b"x", 0).await.expect_err("no leader yet");
        assert!(matches!(error, ClientError::Write(_)), "{error}");
        let nodes = BTreeMap::from([(1, BasicNode::default())]);
        raft.initialize(nodes).await.expect("a cluster of one");
        leads(&raft).await;
        assert_refused(file.write_at(b"x", 0).await, "past the end at 0");
        file.set_len(1000).await.expect("grow");
        assert_eq!(file.len_stale(), 1000);
        let parts = [(0, &b"one"[..]), (500, b"operation")];
        on_any_thread(file.write_many(&parts)).await.expect("write");
        let mut found = [0; 9];
        on_any_thread(file.read_at(&mut found, 500)).await.expect("read");
        assert_eq!(&found, b"operation");
        let long = file.write_many(&[(0, b"fits"), (998, b"long")]).await;
        assert_refused(long, "4 bytes at offset 998 are past the end at 1000");
        assert_refused(file.write_at(b"x", u64::MAX - 3).await, "no file reaches");
        assert_refused(file.read_at(&mut found, 998).await, "past the end at 1000");
        // Committed, these would stop every node again and again.
        assert_refused(file.call("unknown", b"").await, "no function");
        assert_refused(file.set_len(u64::MAX / 2).await, "at most");
        file.write_at(&5_u64.to_le_bytes(), 8).await.expect("write");
        let sum = file.call("transfer", &[1, 3, 2]).await.expect("transferred");
        assert_eq!(sum, 2_u64.to_le_bytes());
        assert_refused(file.call("transfer", &[1, 3, 4]).await, "the account is empty");
        // Bytes that are no value are so on all nodes.
        assert_refused(file.call("is it", b"").await, "the bytes at offset 0 are no bool");
        raft.shutdown().await.expect("the end");
        drop((raft, file));

        let (raft, file, _) = start(1, &ground, folder).await;
        leads(&raft).await;
        let mut found = [0; 32];
        file.read_at(&mut found, 0).await.expect("read");
        assert_eq!((&found[..3], found[8], found[24]), (&b"one"[..], 3, 2));
        raft.shutdown().await.expect("the end");
    });
}

/// openraft 0.9 purges the log of the receiver beside the installation, and 0.10 behind it.
#[test]
fn a_node_takes_snapshots_of_another_one_and_starts_again() {
    let ground = common::page_cache().unwrap_or_else(common::ram);
    let (first, second) = (ground.scratch(), ground.scratch());
    on_runtime(async {
        let (leader, file, mut sealer) = start(1, &ground, first.path()).await;
        let (raft, replica, mut machine) = start(2, &ground, second.path()).await;
        begin_and_lead(&leader).await;
        file.set_len(300_000).await.expect("grow");
        file.write_at(&[5; 70_000], 1000).await.expect("write");
        let mut lens = Vec::new();
        for offset in [200_000, 250_000] {
            file.write_at(&[6; 100], offset).await.expect("write");
            let Snapshot { meta, snapshot } = sealer.build_snapshot().await.expect("a snapshot");
            let mut stream = Vec::new();
            let base = replica.newest_snapshot().expect("a name");
            snapshot.write_to(base.as_deref(), &mut stream).expect("written");
            lens.push(stream.len());
            let snapshot = replica.receive(&stream[..]).expect("received").into();
            let last = meta.last_log_id;
            let received = Snapshot { meta, snapshot };
            let vote = Vote::new_committed(99, 1); // later than that of each entry
            let installed = async {
                raft.install_full_snapshot(vote, received).await.expect("accepted");
                while machine.applied_state().await.expect("the state").0 != last {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            tokio::time::timeout(common::HANGS, installed).await.expect("installed");
            let bytes = |machine: &Machine| machine.file().read_vec().expect("read");
            assert_eq!(bytes(&machine), bytes(&sealer));
        }
        assert!(lens[0] > 70_000 && lens[1] < 20_000, "{lens:?}");
        raft.shutdown().await.expect("the end");
        drop((raft, replica, machine));
        let (raft, replica, _) = start(2, &ground, second.path()).await;
        let mut found = [0; 100];
        replica.read_stale(&mut found, 250_000).expect("read");
        assert_eq!(found, [6; 100]);
        raft.shutdown().await.expect("the end");
        leader.shutdown().await.expect("the end");
    });
}
