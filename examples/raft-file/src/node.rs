//! One node: a log, a replicated file, openraft, and a server in front of them.

use crate::network::Peers;
use crate::wire::{LONGEST, Request, Response, Types, receive, send};
use atomic_mmap::{AtomicMappedFile, DeployPolicy};
use openraft::error::{CheckIsLeaderError, ClientWriteError, RaftError};
use openraft::{Config, Raft, Snapshot, SnapshotPolicy};
use openraft_atomic_mmap::LogStore;
use openraft_atomic_mmap::file::{
    ClientError, Command, FileMachine, Functions, ReplicatedFile, Stop,
};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};

/// A snapshot after so many entries, so that a node that was down often needs one.
const BETWEEN_SNAPSHOTS: u64 = 60;

#[derive(Clone)]
struct Server {
    raft: Raft<Types>,
    file: ReplicatedFile<Raft<Types>>,
}

/// The functions of this file. `exchange` stores bytes at an offset, and returns those that were
/// there. It counts its calls in the first 8 bytes.
fn functions() -> Functions {
    Functions::new().with("exchange", |contents, argument| {
        let (offset, new) =
            argument.split_first_chunk::<8>().ok_or(Stop::Refused("too short".into()))?;
        let offset = u64::from_le_bytes(*offset);
        let mut old = vec![0; new.len()];
        contents.read_at(&mut old, offset)?;
        contents.write_at(new, offset)?;
        let calls = contents.load::<u64>(0)?;
        contents.store(0, &calls.wrapping_add(1))?;
        Ok(old)
    })
}

/// Runs a node until the process ends.
pub async fn run(id: u64, folder: &Path, address: &str) -> Result<(), Box<dyn Error>> {
    let open = |name: &str| {
        let options = AtomicMappedFile::options().create(true).deploy(DeployPolicy::Adaptive);
        options.open(folder.join(name))
    };
    let machine = FileMachine::<Types>::open(open("state.dat")?, functions())?;
    let log = LogStore::<Types>::open(open("log.dat")?)?.behind(machine.progress());
    let config = Config {
        heartbeat_interval: 50,
        election_timeout_min: 150,
        election_timeout_max: 300,
        snapshot_policy: SnapshotPolicy::LogsSinceLast(BETWEEN_SNAPSHOTS),
        max_in_snapshot_log_to_keep: 10,
        ..Config::default()
    };
    let raft = Raft::new(id, Arc::new(config.validate()?), Peers, log, machine.clone()).await?;
    let server = Server { file: ReplicatedFile::new(raft.clone(), &machine), raft };
    let listener = TcpListener::bind(address).await?;
    tokio::spawn(end_with(server.raft.clone()));
    std::thread::spawn(end_with_the_cluster);
    loop {
        let (stream, _) = listener.accept().await?;
        let server = server.clone();
        // A connection that breaks is the other side's.
        tokio::spawn(async move { server.serve(stream).await.ok() });
    }
}

/// Ends the process once that of the cluster has ended, which holds this one's standard input.
fn end_with_the_cluster() {
    let _ended_or_broken = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(0);
}

/// Ends the process once openraft has stopped. The cluster counts that as a failure.
async fn end_with(raft: Raft<Types>) {
    let mut metrics = raft.metrics();
    loop {
        if let Err(why) = &metrics.borrow().running_state {
            eprintln!("openraft has stopped: {why}");
            std::process::exit(1);
        }
        if metrics.changed().await.is_err() {
            return;
        }
    }
}

impl Server {
    async fn serve(&self, mut stream: TcpStream) -> Result<(), Box<dyn Error + Send + Sync>> {
        stream.set_nodelay(true)?;
        loop {
            let request = receive(&mut stream).await?;
            let response = self.answer(request, &mut stream).await?;
            send(&mut stream, &response).await?;
        }
    }

    async fn answer(
        &self,
        request: Request,
        stream: &mut TcpStream,
    ) -> Result<Response, Box<dyn Error + Send + Sync>> {
        Ok(match request {
            Request::Append(request) => Response::Append(self.raft.append_entries(request).await),
            Request::Vote(request) => Response::Vote(self.raft.vote(request).await),
            Request::Newest => Response::Newest(self.file.newest_snapshot()?),
            Request::Snapshot { vote, meta, stream: len } => {
                let mut snapshot = self.raft.begin_receiving_snapshot().await?;
                let mut part = stream.take(len);
                if tokio::io::copy(&mut part, &mut *snapshot).await? != len {
                    return Err("a part of the stream".into());
                }
                let snapshot = Snapshot { meta, snapshot };
                Response::Snapshot(self.raft.install_full_snapshot(vote, snapshot).await)
            }
            Request::Begin(nodes) => match self.raft.initialize(nodes).await {
                Ok(()) => Response::Done,
                Err(e) => Response::Failed(e.to_string()),
            },
            Request::Run(command) => self.run(command).await,
            Request::Read { len, .. } if len > u64::from(LONGEST) / 2 => {
                Response::Refused(format!("{len} bytes are too many for a response"))
            }
            Request::Read { offset, len } => {
                let mut bytes = vec![0; len as usize];
                match self.file.read_at(&mut bytes, offset).await {
                    Ok(()) => Response::Value(bytes),
                    Err(e) => refused(e),
                }
            }
            Request::Applied => {
                let applied = self.raft.metrics().borrow().last_applied;
                Response::Applied(applied.map_or(0, |id| id.index))
            }
        })
    }

    async fn run(&self, command: Command) -> Response {
        let done = match command {
            Command::Write(parts) => {
                let parts: Vec<_> =
                    parts.iter().map(|part| (part.offset, &part.bytes[..])).collect();
                self.file.write_many(&parts).await.map(|()| Response::Done)
            }
            Command::SetLen(len) => self.file.set_len(len).await.map(|()| Response::Done),
            Command::Call { function, argument } => {
                self.file.call(&function, &argument).await.map(Response::Value)
            }
        };
        done.unwrap_or_else(refused)
    }
}

fn refused(error: ClientError<Raft<Types>>) -> Response {
    match &error {
        ClientError::Refused(why) => Response::Refused(why.clone()),
        ClientError::Write(write) => match &**write {
            RaftError::APIError(ClientWriteError::ForwardToLeader(to)) => {
                Response::NotLeader(to.leader_id)
            }
            _ => Response::Failed(error.to_string()),
        },
        ClientError::Read(read) => match &**read {
            RaftError::APIError(CheckIsLeaderError::ForwardToLeader(to)) => {
                Response::NotLeader(to.leader_id)
            }
            _ => Response::Failed(error.to_string()),
        },
        _ => Response::Failed(error.to_string()),
    }
}
