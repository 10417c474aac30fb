//! A Raft node of openraft on the store, alone in its cluster.

use super::common;
use super::machine::Machine;
use super::{Types, open};
use openraft::error::{InstallSnapshotError, RPCError, RaftError, Unreachable};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use openraft::{BasicNode, Config, Raft, SnapshotPolicy};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A network without another node.
struct Alone;

type Answer<T, E = openraft::error::Infallible> =
    Result<T, RPCError<u64, BasicNode, RaftError<u64, E>>>;

fn unreachable<T, E: std::error::Error>() -> Answer<T, E> {
    Err(RPCError::Unreachable(Unreachable::new(&io::Error::other("alone"))))
}

impl RaftNetwork<Types> for Alone {
    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Answer<AppendEntriesResponse<u64>> {
        unreachable()
    }

    async fn install_snapshot(
        &mut self,
        _: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Answer<InstallSnapshotResponse<u64>, InstallSnapshotError> {
        unreachable()
    }

    async fn vote(&mut self, _: VoteRequest<u64>, _: RPCOption) -> Answer<VoteResponse<u64>> {
        unreachable()
    }
}

impl RaftNetworkFactory<Types> for Alone {
    type Network = Alone;

    async fn new_client(&mut self, _: u64, _: &BasicNode) -> Alone {
        Alone
    }
}

async fn start(ground: &common::Ground, path: &Path) -> (Raft<Types>, Machine) {
    let config = Config { snapshot_policy: SnapshotPolicy::Never, ..Config::default() };
    let config = Arc::new(config.validate().expect("a configuration"));
    let machine = Machine::default();
    let store = open(ground, path);
    let raft = Raft::new(1, config, Alone, store, machine.clone()).await.expect("a node");
    (raft, machine)
}

async fn leads(raft: &Raft<Types>) {
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
        raft.initialize(BTreeSet::from([1])).await.expect("a cluster of one");
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
