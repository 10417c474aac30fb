//! A Raft node without another node.

use super::openraft::error::{InstallSnapshotError, RPCError, RaftError, Unreachable};
use super::openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use super::openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    VoteRequest, VoteResponse,
};
use super::openraft::{BasicNode, RaftTypeConfig};
use std::io;

/// A network without another node.
pub struct Alone;

pub fn alone() -> Alone {
    Alone
}

type Answer<T, E = openraft::error::Infallible> =
    Result<T, RPCError<u64, BasicNode, RaftError<u64, E>>>;

fn unreachable<T, E: std::error::Error>() -> Answer<T, E> {
    Err(RPCError::Unreachable(Unreachable::new(&io::Error::other("alone"))))
}

impl<C: RaftTypeConfig<NodeId = u64, Node = BasicNode>> RaftNetwork<C> for Alone {
    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<C>,
        _: RPCOption,
    ) -> Answer<AppendEntriesResponse<u64>> {
        unreachable()
    }

    async fn install_snapshot(
        &mut self,
        _: InstallSnapshotRequest<C>,
        _: RPCOption,
    ) -> Answer<InstallSnapshotResponse<u64>, InstallSnapshotError> {
        unreachable()
    }

    async fn vote(&mut self, _: VoteRequest<u64>, _: RPCOption) -> Answer<VoteResponse<u64>> {
        unreachable()
    }
}

impl<C: RaftTypeConfig<NodeId = u64, Node = BasicNode>> RaftNetworkFactory<C> for Alone {
    type Network = Alone;

    async fn new_client(&mut self, _: u64, _: &BasicNode) -> Alone {
        Alone
    }
}
