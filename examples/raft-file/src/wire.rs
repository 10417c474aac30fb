//! Requests and answers between nodes, and of clients: frames of a length and postcard's bytes.

use openraft::error::{Fatal, RaftError};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse,
};
use openraft::{SnapshotMeta, Vote};
use openraft_atomic_mmap::file::{Answer, Command, FileSnapshot};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

openraft::declare_raft_types!(
    /// Commands on the replicated file.
    pub Types: D = Command, R = Answer, SnapshotData = FileSnapshot
);

pub type Node = openraft::BasicNode;

/// The longest frame, in bytes. openraft sends at most 300 entries at once.
pub const LONGEST: u32 = 64 << 20;

#[derive(Serialize, Deserialize)]
pub enum Request {
    // ---- of nodes ----
    Append(AppendEntriesRequest<Types>),
    Vote(VoteRequest<u64>),
    /// Asks for the name of the newest snapshot.
    Newest,
    /// Sends a snapshot. So many bytes of its stream follow the frame.
    Snapshot {
        vote: Vote<u64>,
        meta: SnapshotMeta<u64, Node>,
        stream: u64,
    },
    // ---- of clients ----
    /// Makes a cluster of these nodes.
    Begin(BTreeMap<u64, Node>),
    Run(Command),
    /// Reads, linearizably.
    Read {
        offset: u64,
        len: u64,
    },
    /// Asks for the index of the last applied entry.
    Applied,
}

#[derive(Serialize, Deserialize)]
pub enum Response {
    Append(Result<AppendEntriesResponse<u64>, RaftError<u64>>),
    Vote(Result<VoteResponse<u64>, RaftError<u64>>),
    Newest(Option<String>),
    Snapshot(Result<SnapshotResponse<u64>, Fatal<u64>>),
    Done,
    Value(Vec<u8>),
    Refused(String),
    /// Another node leads, or none is known. Nothing was done.
    NotLeader(Option<u64>),
    Applied(u64),
    /// The request may have been done.
    Failed(String),
}

fn encode<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    let bytes = postcard::to_stdvec(value).map_err(io::Error::other)?;
    let mut frame = (bytes.len() as u32).to_le_bytes().to_vec();
    frame.extend_from_slice(&bytes);
    Ok(frame)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> io::Result<T> {
    postcard::from_bytes(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

fn checked(len: [u8; 4]) -> io::Result<usize> {
    match u32::from_le_bytes(len) {
        len @ ..=LONGEST => Ok(len as usize),
        len => Err(io::Error::other(format!("a frame of {len} bytes"))),
    }
}

pub async fn send<T: Serialize>(to: &mut (impl AsyncWrite + Unpin), value: &T) -> io::Result<()> {
    to.write_all(&encode(value)?).await
}

pub async fn receive<T: DeserializeOwned>(from: &mut (impl AsyncRead + Unpin)) -> io::Result<T> {
    let mut len = [0; 4];
    from.read_exact(&mut len).await?;
    let mut bytes = vec![0; checked(len)?];
    from.read_exact(&mut bytes).await?;
    decode(&bytes)
}

/// Sends a request and returns the response, in a thread of a client.
pub fn ask(stream: &mut (impl Read + Write), request: &Request) -> io::Result<Response> {
    stream.write_all(&encode(request)?)?;
    let mut len = [0; 4];
    stream.read_exact(&mut len)?;
    let mut bytes = vec![0; checked(len)?];
    stream.read_exact(&mut bytes)?;
    decode(&bytes)
}
