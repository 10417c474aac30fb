//! The messages of a node to another one: openraft's network, over TCP.
//!
//! A snapshot goes as the changes since the receiver's newest one, if this node has that as well.

use crate::wire::{Node, Request, Response, Types, receive, send};
use openraft::error::{
    Fatal, InstallSnapshotError, NetworkError, RPCError, RaftError, RemoteError, ReplicationClosed,
    StreamingError, Unreachable,
};
use openraft::network::{RPCOption, RaftNetwork, RaftNetworkFactory};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, InstallSnapshotRequest, InstallSnapshotResponse,
    SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{Snapshot, Vote};
use std::fs::File;
use std::future::Future;
use std::io::{self, Seek};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Makes connections to the other nodes.
pub struct Peers;

/// The connection to one node.
pub struct Peer {
    id: u64,
    address: String,
    stream: Option<TcpStream>,
}

/// The first words of the line that a node logs for a snapshot that it sends.
pub const CHANGES: &str = "snapshot as changes";
pub const WHOLE: &str = "snapshot as a whole";

/// Time for a snapshot to arrive and to be installed.
const SNAPSHOT_TIME: Duration = Duration::from_secs(20);

impl RaftNetworkFactory<Types> for Peers {
    type Network = Peer;

    async fn new_client(&mut self, id: u64, node: &Node) -> Peer {
        Peer { id, address: node.addr.clone(), stream: None }
    }
}

type Told<T, E = openraft::error::Infallible> = Result<T, RPCError<u64, Node, RaftError<u64, E>>>;

impl Peer {
    /// Sends a request and returns the response. An error closes the connection.
    async fn ask(&mut self, request: Request, time: Duration) -> io::Result<Response> {
        let asked = timeout(time, async {
            let mut stream = match self.stream.take() {
                Some(stream) => stream,
                None => TcpStream::connect(&self.address).await?,
            };
            send(&mut stream, &request).await?;
            let response = receive(&mut stream).await?;
            self.stream = Some(stream);
            Ok(response)
        });
        asked.await?
    }

    /// Sends a snapshot: of its stream what the receiver lacks.
    async fn send_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types>,
    ) -> io::Result<Response> {
        let base = match self.ask(Request::Newest, Duration::from_secs(1)).await? {
            Response::Newest(base) => base,
            _ => None,
        };
        let Snapshot { meta, snapshot } = snapshot;
        let spool = tokio::task::spawn_blocking(move || -> io::Result<(File, bool)> {
            let mut spool = tempfile::tempfile()?;
            let written = snapshot.write_to(base.as_deref(), &mut spool);
            spool.rewind()?;
            Ok((spool, written.map_err(io::Error::other)?))
        });
        let (spool, is_changes) = spool.await??;
        let len = spool.metadata()?.len();
        eprintln!("{}: {len} bytes to node {}", if is_changes { CHANGES } else { WHOLE }, self.id);
        let mut stream = TcpStream::connect(&self.address).await?;
        send(&mut stream, &Request::Snapshot { vote, meta, stream: len }).await?;
        tokio::io::copy(&mut tokio::fs::File::from_std(spool), &mut stream).await?;
        receive(&mut stream).await
    }
}

fn lost(error: &io::Error) -> NetworkError {
    NetworkError::new(error)
}

fn unexpected() -> NetworkError {
    NetworkError::new(&io::Error::other("another response was expected"))
}

impl RaftNetwork<Types> for Peer {
    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Types>,
        option: RPCOption,
    ) -> Told<AppendEntriesResponse<u64>> {
        match self.ask(Request::Append(request), option.hard_ttl()).await {
            Ok(Response::Append(result)) => result.map_err(|e| RemoteError::new(self.id, e).into()),
            Ok(_) => Err(unexpected().into()),
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {
                Err(RPCError::Unreachable(Unreachable::new(&e)))
            }
            Err(e) => Err(lost(&e).into()),
        }
    }

    async fn install_snapshot(
        &mut self,
        _: InstallSnapshotRequest<Types>,
        _: RPCOption,
    ) -> Told<InstallSnapshotResponse<u64>, InstallSnapshotError> {
        Err(unexpected().into()) // `full_snapshot` sends all of it
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote<u64>,
        snapshot: Snapshot<Types>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _: RPCOption,
    ) -> Result<SnapshotResponse<u64>, StreamingError<Types, Fatal<u64>>> {
        let sent = timeout(SNAPSHOT_TIME, self.send_snapshot(vote, snapshot));
        let sent = tokio::select! {
            closed = cancel => return Err(StreamingError::Closed(closed)),
            sent = sent => sent.unwrap_or_else(|late| Err(late.into())),
        };
        match sent {
            Ok(Response::Snapshot(result)) => {
                result.map_err(|e| StreamingError::RemoteError(RemoteError::new(self.id, e)))
            }
            Ok(_) => Err(StreamingError::Network(unexpected())),
            Err(e) => Err(StreamingError::Network(lost(&e))),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<u64>,
        option: RPCOption,
    ) -> Told<VoteResponse<u64>> {
        match self.ask(Request::Vote(request), option.hard_ttl()).await {
            Ok(Response::Vote(result)) => result.map_err(|e| RemoteError::new(self.id, e).into()),
            Ok(_) => Err(unexpected().into()),
            Err(e) => Err(RPCError::Unreachable(Unreachable::new(&e))),
        }
    }
}
