//! A network of a Raft node without another node.

use super::openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use super::openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use super::openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use super::openraft::type_config::alias::{SnapshotOf, VoteOf};
use super::openraft::{OptionalSend, RaftTypeConfig};
use std::io;
use std::marker::PhantomData;

/// A network without another node, for snapshots of type `D`.
pub struct Alone<D>(PhantomData<fn() -> D>);

pub fn alone<D>() -> Alone<D> {
    Alone(PhantomData)
}

fn unreachable<C: RaftTypeConfig>() -> Unreachable<C> {
    Unreachable::new(&io::Error::other("alone"))
}

impl<C: RaftTypeConfig, D: Send + 'static> RaftNetworkV2<C> for Alone<D> {
    type SnapshotData = D;

    async fn append_entries(
        &mut self,
        _: AppendEntriesRequest<C>,
        _: RPCOption,
    ) -> Result<AppendEntriesResponse<C>, RPCError<C>> {
        Err(unreachable().into())
    }

    async fn vote(
        &mut self,
        _: VoteRequest<C>,
        _: RPCOption,
    ) -> Result<VoteResponse<C>, RPCError<C>> {
        Err(unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _: VoteOf<C>,
        _: SnapshotOf<C, D>,
        _: impl Future<Output = ReplicationClosed> + OptionalSend + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<C>, StreamingError<C>> {
        Err(unreachable().into())
    }
}

impl<C: RaftTypeConfig, D: Send + 'static> RaftNetworkFactory<C> for Alone<D> {
    type Network = Alone<D>;

    async fn new_client(&mut self, _: C::NodeId, _: &C::Node) -> Alone<D> {
        alone()
    }
}
