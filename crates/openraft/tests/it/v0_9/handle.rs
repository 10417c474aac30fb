//! The handle of a replicated file: writes, reads and refusals, and a node that is started again.

use super::common::{self, Ground};
use super::file::{Types, machine, on_runtime};
use super::network::Alone;
use super::open_as;
use super::openraft::{BasicNode, Config, Raft};
use openraft_atomic_mmap::file::{ClientError, ReplicatedFile};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

async fn start(ground: &Ground, folder: &Path) -> (Raft<Types>, ReplicatedFile<Types>) {
    let machine = machine(ground, &folder.join("state.dat"));
    let log = open_as(ground, &folder.join("log.dat")).behind(machine.progress());
    let config = Arc::new(Config::default().validate().expect("a configuration"));
    let raft = Raft::new(1, config, Alone, log, machine.clone()).await.expect("a node");
    let file = ReplicatedFile::new(raft.clone(), &machine);
    (raft, file)
}

async fn leads(raft: &Raft<Types>) {
    raft.wait(Some(common::HANGS)).current_leader(1, "leads").await.expect("a leader");
}

#[track_caller]
fn assert_refused<T: std::fmt::Debug>(result: Result<T, ClientError<Types>>, why: &str) {
    match result {
        Err(ClientError::Refused(found)) => assert!(found.contains(why), "{found}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_writes_reads_and_is_refused() {
    let ground = common::page_cache().unwrap_or_else(common::ram);
    let scratch = ground.scratch();
    let folder = scratch.file("state.dat").parent().expect("a folder").to_owned();
    on_runtime(async {
        let (raft, file) = start(&ground, &folder).await;
        let error = file.write_at(b"x", 0).await.expect_err("no leader yet");
        assert!(matches!(error, ClientError::Write(_)), "{error}");
        let nodes = BTreeMap::from([(1, BasicNode::default())]);
        raft.initialize(nodes).await.expect("a cluster of one");
        leads(&raft).await;
        file.set_len(1000).await.expect("grow");
        assert_eq!(file.len_stale(), 1000);
        file.write_many(&[(0, b"one"), (500, b"operation")]).await.expect("write");
        let mut found = [0; 9];
        file.read_at(&mut found, 500).await.expect("read");
        assert_eq!(&found, b"operation");
        assert_refused(file.write_at(b"long", 998).await, "past the end at 1000");
        assert_refused(file.read_at(&mut found, 998).await, "past the end at 1000");
        // Committed, these would stop every node again and again.
        assert_refused(file.call("unknown", b"").await, "no function");
        assert_refused(file.set_len(u64::MAX / 2).await, "at most");
        file.write_at(&5_u64.to_le_bytes(), 8).await.expect("write");
        let sum = file.call("transfer", &[1, 3, 2]).await.expect("transferred");
        assert_eq!(sum, 2_u64.to_le_bytes());
        raft.shutdown().await.expect("the end");
        drop((raft, file));

        let (raft, file) = start(&ground, &folder).await;
        leads(&raft).await;
        let mut found = [0; 32];
        file.read_at(&mut found, 0).await.expect("read");
        assert_eq!((&found[..3], found[8], found[24]), (&b"one"[..], 3, 2));
        raft.shutdown().await.expect("the end");
    });
}
