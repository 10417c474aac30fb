//! A Raft node of openraft on the store, alone in its cluster.

use super::machine::Machine;
use super::network::alone;
use super::openraft::{BasicNode, Config, SnapshotPolicy};
use super::{Raft, common, open_as};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

async fn start(ground: &common::Ground, path: &Path) -> (Raft, Machine) {
    let config = Config { snapshot_policy: SnapshotPolicy::Never, ..Config::default() };
    let config = Arc::new(config.validate().expect("a configuration"));
    let machine = Machine::default();
    let store = open_as(ground, path);
    let raft = Raft::new(1, config, alone(), store, machine.clone()).await.expect("a node");
    (raft, machine)
}

async fn leads(raft: &Raft) {
    raft.wait(Some(common::HANGS)).current_leader(1, "leads").await.expect("a leader");
}

#[test]
fn a_node_goes_on_where_it_ended() {
    let ground = common::page_cache().unwrap_or_else(common::ram);
    let scratch = ground.scratch();
    let path = scratch.file("raft.dat");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime").block_on(async {
        let (raft, machine) = start(&ground, &path).await;
        raft.initialize(BTreeMap::from([(1, BasicNode::default())]))
            .await
            .expect("a cluster of one");
        leads(&raft).await;
        let commands: Vec<String> = (0..20).map(|n| format!("command {n}")).collect();
        for command in &commands {
            let answer = raft.client_write(command.clone()).await.expect("written");
            assert_eq!(answer.data, format!("did {command}"));
        }
        raft.shutdown().await.expect("the end");
        drop(raft);
        assert_eq!(machine.commands(), commands);

        // The machine was in memory. What was committed is applied again before the node runs.
        let (raft, machine) = start(&ground, &path).await;
        assert_eq!(machine.commands(), commands);
        leads(&raft).await;
        raft.client_write("one more".to_owned()).await.expect("written");
        assert_eq!(machine.commands().len(), 21);
        raft.shutdown().await.expect("the end");
    });
}
