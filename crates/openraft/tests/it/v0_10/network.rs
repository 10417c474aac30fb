//! A network of a Raft node without another node.

use super::machine::Data;
use super::openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use super::openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use super::openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use super::openraft::type_config::alias::SnapshotOf;
use super::openraft::{BasicNode, OptionalSend};
use super::{Types, Vote};
use std::io;

/// A network without another node.
pub struct Alone;

fn unreachable() -> Unreachable<Types> {
    Unreachable::new(&io::Error::other("alone"))
}

impl RaftNetworkV2<Types> for Alone {
    type SnapshotData = Data;

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<Types>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<Types>, RPCError<Types>> {
        Err(unreachable().into())
    }

    async fn vote(
        &mut self,
        _: VoteRequest<Types>,
        _: RPCOption,
    ) -> Result<VoteResponse<Types>, RPCError<Types>> {
        Err(unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _: Vote,
        _: SnapshotOf<Types, Data>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<Types>, StreamingError<Types>> {
        Err(unreachable().into())
    }
}

impl RaftNetworkFactory<Types> for Alone {
    type Network = Alone;

    async fn new_client(&mut self, _: u64, _: &BasicNode) -> Alone {
        Alone
    }
}
