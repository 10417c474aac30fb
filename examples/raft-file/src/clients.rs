//! Clients that write, read and exchange cells of the replicated file, and the history of what they
//! were told.
//!
//! A cell is 8 bytes at a multiple of 64. Each round has cells of its own. A request with
//! an unknown outcome may still happen much later. So it disturbs no other round.

use crate::wire::{Request, Response, ask};
use lab::histories::history::{Cell, History, Operation, Value};
use openraft_atomic_mmap::file::{Command, Part};
use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Number of cells of a round.
pub const CELLS: usize = 4;
/// Distance between two cells, in bytes.
const CELL: u64 = 64;
/// Time for a response.
const PATIENCE: Duration = Duration::from_secs(2);
/// Time in which a leader must be found.
const ELECTION: Duration = Duration::from_secs(60);

/// The kind of an exchange.
pub const EXCHANGE: &str = "exchange";

/// One client: its connections, and the node that led last.
pub struct Client<'a> {
    addresses: &'a BTreeMap<u64, String>,
    connections: BTreeMap<u64, TcpStream>,
    leader: u64,
}

/// The outcome of a request, as the client was told it.
pub enum Told {
    Done,
    Value(Vec<u8>),
    /// The request may have been done, and may still be.
    Unknown,
}

impl<'a> Client<'a> {
    pub fn new(addresses: &'a BTreeMap<u64, String>) -> Client<'a> {
        Client { addresses, connections: BTreeMap::new(), leader: 1 }
    }

    /// Asks one node. An error closes the connection.
    pub fn ask_node(&mut self, id: u64, request: &Request) -> io::Result<Response> {
        let mut stream = match self.connections.remove(&id) {
            Some(stream) => stream,
            None => {
                let address: SocketAddr = self.addresses[&id].parse().map_err(io::Error::other)?;
                let stream = TcpStream::connect_timeout(&address, PATIENCE / 4)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(PATIENCE))?;
                stream
            }
        };
        let response = ask(&mut stream, request)?;
        self.connections.insert(id, stream);
        Ok(response)
    }

    fn another(&self, id: u64) -> u64 {
        id % self.addresses.len() as u64 + 1
    }

    /// Asks the leader. Follows a node that names another one, and goes on to the next node if one
    /// is not there: such a node has not got the request.
    pub fn ask_leader(&mut self, request: &Request) -> Result<Told, String> {
        let begun = Instant::now();
        while begun.elapsed() < ELECTION {
            let id = self.leader;
            let is_connected = self.connections.contains_key(&id);
            match self.ask_node(id, request) {
                Ok(Response::Done) => return Ok(Told::Done),
                Ok(Response::Value(bytes)) => return Ok(Told::Value(bytes)),
                Ok(Response::Refused(why)) => return Err(format!("refused: {why}")),
                Ok(Response::NotLeader(leader)) => {
                    let next = self.another(id);
                    self.leader = leader.filter(|it| *it != id).unwrap_or(next);
                    std::thread::sleep(Duration::from_millis(10));
                }
                Ok(Response::Failed(_)) => {
                    self.leader = self.another(id);
                    return Ok(Told::Unknown);
                }
                Ok(_) => return Err("an unexpected response".into()),
                Err(e) => {
                    self.leader = self.another(id);
                    let is_unsent = e.kind() == io::ErrorKind::ConnectionRefused && !is_connected;
                    if !is_unsent {
                        return Ok(Told::Unknown);
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            }
        }
        Err("no node leads".into())
    }

    /// Asks the leader until the outcome is known: for requests that may be done twice.
    pub fn insist(&mut self, request: &Request) -> Result<Vec<u8>, String> {
        let begun = Instant::now();
        while begun.elapsed() < ELECTION {
            match self.ask_leader(request)? {
                Told::Done => return Ok(Vec::new()),
                Told::Value(bytes) => return Ok(bytes),
                Told::Unknown => {}
            }
        }
        Err("no answer".into())
    }
}

/// The history of one round.
pub struct Round {
    first: u64,
    clock: AtomicU64,
    values: AtomicU64,
    operations: Mutex<Vec<Operation>>,
}

fn offset_of(round: &Round, cell: Cell) -> u64 {
    round.first + cell as u64 * CELL
}

/// Returns the length that the file needs for so many rounds, in bytes. The counter of exchanges
/// comes first.
pub fn len_for(rounds: u64) -> u64 {
    CELL + rounds * CELLS as u64 * CELL
}

/// Returns the number of exchanges that have taken effect.
pub fn count_exchanges(client: &mut Client<'_>) -> Result<u64, String> {
    let bytes = client.insist(&Request::Read { offset: 0, len: 8 })?;
    bytes.try_into().map(u64::from_le_bytes).map_err(|_| "8 bytes were expected".into())
}

impl Round {
    pub fn new(number: u64) -> Round {
        Round {
            first: len_for(number),
            clock: AtomicU64::new(1),
            values: AtomicU64::new(1),
            operations: Mutex::new(Vec::new()),
        }
    }

    fn moment(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    fn read_request(&self, cells: std::ops::Range<Cell>) -> Request {
        let (offset, count) = (offset_of(self, cells.start), cells.len() as u64);
        Request::Read { offset, len: (count - 1) * CELL + 8 }
    }

    fn values_of(cells: std::ops::Range<Cell>, bytes: &[u8]) -> Vec<(Cell, Value)> {
        let value = |n: usize| {
            let at = n * CELL as usize;
            let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
            word.map_or(lab::histories::history::TORN, u64::from_le_bytes)
        };
        cells.enumerate().map(|(n, cell)| (cell, value(n))).collect()
    }

    /// Runs one operation of a client, and records it.
    pub fn operate(
        &self,
        thread: usize,
        client: &mut Client<'_>,
        random: &mut fastrand::Rng,
    ) -> Result<(), String> {
        let first = random.usize(..CELLS);
        let cells = first..random.usize(first + 1..=CELLS);
        let new = |cell: Cell| (cell, self.values.fetch_add(1, Ordering::Relaxed));
        let call = self.moment();
        let (what, writes, told) = match random.u8(..4) {
            0 => {
                let told = client.ask_leader(&self.read_request(cells.clone()))?;
                ("read", Vec::new(), told)
            }
            1 => {
                let (cell, value) = new(first);
                let mut argument = offset_of(self, cell).to_le_bytes().to_vec();
                argument.extend_from_slice(&value.to_le_bytes());
                let function = "exchange".to_owned();
                let command = Command::Call { function, argument };
                let told = client.ask_leader(&Request::Run(command))?;
                (EXCHANGE, vec![(cell, value)], told)
            }
            _ => {
                let writes: Vec<_> = cells.clone().map(new).collect();
                let part = |&(cell, value): &(Cell, Value)| Part {
                    offset: offset_of(self, cell),
                    bytes: value.to_le_bytes().to_vec(),
                };
                let command = Command::Write(writes.iter().map(part).collect());
                ("write", writes, client.ask_leader(&Request::Run(command))?)
            }
        };
        let (reads, ret) = match (told, what) {
            (Told::Value(bytes), "read") => (Round::values_of(cells, &bytes), Some(self.moment())),
            (Told::Value(bytes), _) => {
                (Round::values_of(first..first + 1, &bytes), Some(self.moment()))
            }
            (Told::Done, _) => (Vec::new(), Some(self.moment())),
            (Told::Unknown, "read") => return Ok(()), // it says nothing
            (Told::Unknown, _) => (Vec::new(), None),
        };
        self.record(Operation { thread, what, call, ret, reads, writes });
        Ok(())
    }

    /// Reads all cells once more. Each acknowledged write must be explained by what is there.
    pub fn read_all(&self, thread: usize, client: &mut Client<'_>) -> Result<(), String> {
        let call = self.moment();
        let bytes = client.insist(&self.read_request(0..CELLS))?;
        let (reads, ret) = (Round::values_of(0..CELLS, &bytes), Some(self.moment()));
        self.record(Operation { thread, what: "last", call, ret, reads, writes: Vec::new() });
        Ok(())
    }

    fn record(&self, operation: Operation) {
        let mut all = self.operations.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.push(operation);
    }

    /// Returns the history.
    pub fn history(self) -> History {
        let mut history = History::of_zeroes(CELLS);
        let all = self.operations.into_inner();
        history.operations = all.unwrap_or_else(std::sync::PoisonError::into_inner);
        history
    }
}
