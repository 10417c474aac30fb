//! The child: its work until the kill.
//!
//! Owns: the child's side. The child opens and recovers the file, compares it with the ledger, and
//! closes it. In between, several threads write while the length changes and pages are deployed. It
//! also owns the messages to the parent: small records in a pipe, each sent with one write. So no
//! record is torn, and none can be taken back.
//!
//! May import: `ledger`, `process`, `work`.

use super::ledger::{Found, Ledger};
use super::process::{self, Deadline};
use super::slices::SLICE;
use super::work::{
    self, BASE_LEN, BLIND, BLIND_SLICES, FIRST, Op, RESIZER, Resize, TICKETED, TICKETS, WRITERS,
};
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Error, Medium, Options};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// The moment at which the kill timer starts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Phase {
    /// Before the open: the kill hits the open, the creation or the recovery.
    Opening,
    /// When writers, resizer and deployer begin.
    Writing,
    /// Right before the close.
    Closing,
}

/// A bug that is planted into the writers, which the parent must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Acknowledges an operation before it writes.
    AcknowledgesFirst,
    /// Writes an operation of several slices as two operations.
    WritesInTwo,
    /// Leaves out the last slice of an operation, so that an older slice stays.
    LeavesOneOut,
    /// Writes a ticketed operation as two operations.
    TicketInTwo,
    /// Writes a blind operation as two operations.
    BlindInTwo,
    /// Acknowledges a blind operation that it never does.
    BlindNotAtAll,
    /// Acknowledges a change of the length before it happens.
    AcknowledgesLengthFirst,
    /// Changes a byte in the home file behind the engine's back.
    StraysInto,
}

/// All planted bugs.
pub const FAULTS: [Fault; 8] = [
    Fault::AcknowledgesFirst,
    Fault::WritesInTwo,
    Fault::LeavesOneOut,
    Fault::TicketInTwo,
    Fault::BlindInTwo,
    Fault::BlindNotAtAll,
    Fault::AcknowledgesLengthFirst,
    Fault::StraysInto,
];

/// The orders for a child.
#[derive(Clone, Debug)]
pub struct Orders {
    /// The home file.
    pub path: PathBuf,
    /// The forced medium.
    pub medium: Medium,
    /// The durability of the file.
    pub durability: Durability,
    /// Each thread syncs before it acknowledges an operation.
    pub syncs: bool,
    /// The moment at which the kill timer starts, and its time.
    pub kill: (Phase, Duration),
    /// One thread changes the length.
    pub resizes: bool,
    /// One thread deploys pages, which punches holes.
    pub deploys: bool,
    /// Closes in this mode after this number of operations of each thread, and ends.
    pub close: Option<(u64, CloseMode)>,
    /// A planted bug.
    pub fault: Option<Fault>,
}

/// Time after which a process counts as hung, on a machine with any load.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Returns the options that all children use to open the file.
pub fn options(medium: Medium) -> Options {
    // A small reservation, because a process with more address space takes longer to die.
    let options = AtomicMappedFile::options().create(true).len(BASE_LEN).max_len(1 << 30);
    // The shortest journal, which soon wraps around.
    options.medium(medium).journal_len(64 << 10)
}

/// Returns all bytes of the file.
pub fn contents(file: &AtomicMappedFile) -> Result<Vec<u8>, Error> {
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

// Kinds of pipe records. A record is three words: thread, kind and number.
const FOUND: u64 = 1 << 32;
const TEXT: u64 = 1 << 33;
const PHASE: u64 = 1 << 34;

/// A message of a child.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Said {
    /// Thread `by` acknowledges operation `n` of this writer number.
    Returned {
        /// The thread.
        by: usize,
        /// A writer number of `work`.
        who: usize,
        /// Number of the operation.
        n: u64,
    },
    /// The content of the file, which passed the check.
    Found(Found),
    /// The child reached this phase.
    Reached(Phase),
    /// The child found a violation.
    Wrong(String),
}

struct Pipe<'a>(&'a PipeWriter);

impl Pipe<'_> {
    fn put(&self, words: &[u64], bytes: &[u8]) {
        let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        record.extend_from_slice(bytes);
        // A pipe takes up to 4096 bytes atomically.
        assert!(record.len() <= libc::PIPE_BUF);
        let mut pipe = self.0;
        pipe.write_all(&record).expect("the parent listens");
    }

    fn returned(&self, by: usize, who: usize, n: u64) {
        self.put(&[(by as u64) << 16 | who as u64, n], &[]);
    }

    fn wrong(&self, text: &str) {
        let text = &text.as_bytes()[..text.len().min(3000)];
        self.put(&[TEXT, text.len() as u64], text);
    }

    fn found(&self, found: &Found) {
        let mut words = vec![FOUND, u64::from(found.written)];
        words.extend(found.own);
        words.extend([found.ticket, found.resized]);
        words.extend(&found.blind);
        self.put(&words, &[]);
    }
}

/// Reads all messages that have arrived. The pipe does not block.
pub fn hear(mut pipe: &PipeReader) -> io::Result<Vec<Said>> {
    let mut bytes = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => break,
            Ok(got) => bytes.extend_from_slice(&buffer[..got]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    let mut rest = &bytes[..];
    let mut word = || {
        let (word, more) = rest.split_first_chunk::<8>()?;
        rest = more;
        Some(u64::from_le_bytes(*word))
    };
    let mut said = Vec::new();
    while let Some(what) = word() {
        let n = word().expect("a whole record");
        match what {
            FOUND => {
                let mut next = || word().expect("a whole record");
                let own = std::array::from_fn(|_| next());
                let (ticket, resized) = (next(), next());
                let blind = (0..BLIND_SLICES).map(|_| next()).collect();
                said.push(Said::Found(Found { written: n == 1, own, ticket, resized, blind }));
            }
            TEXT => {
                let text = (0..n.div_ceil(8)).flat_map(|_| word().unwrap_or(0).to_le_bytes());
                let text: Vec<u8> = text.take(n as usize).collect();
                said.push(Said::Wrong(String::from_utf8_lossy(&text).into_owned()));
            }
            PHASE => said.push(Said::Reached(match n {
                0 => Phase::Opening,
                1 => Phase::Writing,
                _ => Phase::Closing,
            })),
            who => {
                let (by, who) = ((who >> 16) as usize, (who & 0xffff) as usize);
                said.push(Said::Returned { by, who, n });
            }
        }
    }
    Ok(said)
}

/// Runs the child. Returns its exit code if it is not killed before.
pub fn write_until_killed(mut ledger: Ledger, orders: &Orders, pipe: &PipeWriter) -> i32 {
    let deadline = Deadline::new().expect("a timer");
    let pipe = Pipe(pipe);
    let reach = |phase: Phase| {
        pipe.put(&[PHASE, phase as u64], &[]);
        if orders.kill.0 == phase {
            deadline.set(orders.kill.1);
        }
    };
    deadline.set(PATIENCE);
    reach(Phase::Opening);
    let work = std::panic::AssertUnwindSafe(|| run(&mut ledger, orders, &pipe, &reach));
    // The panic of a thread arrives here as well, because its scope passes it on. The text of the
    // panic is lost.
    std::panic::set_hook(Box::new(|_| {}));
    match std::panic::catch_unwind(work) {
        Ok(Ok(())) => 0,
        Ok(Err(error)) => {
            pipe.wrong(&padded(format!("a call fails: {error}")));
            1
        }
        Err(panic) => {
            pipe.wrong(&padded(process::panic_text(&*panic)));
            process::PANICKED
        }
    }
}

/// Pads a text to whole words, because the parent reads words.
fn padded(mut text: String) -> String {
    while !text.len().is_multiple_of(8) {
        text.push(' ');
    }
    text
}

fn run(
    ledger: &mut Ledger,
    orders: &Orders,
    pipe: &Pipe<'_>,
    reach: &(impl Fn(Phase) + Sync),
) -> Result<(), Error> {
    let file = options(orders.medium).durability(orders.durability).open(&orders.path)?;
    let keeps = orders.syncs || orders.durability == Durability::EveryWrite;
    let sync = || if keeps { file.sync().map(drop) } else { Ok(()) };
    let found = match ledger.check(&contents(&file)?) {
        Ok(found) => found,
        Err(wrong) => {
            pipe.wrong(&padded(wrong.join("; ")));
            return Ok(());
        }
    };
    // The next kill must not take back what this child has found.
    sync()?;
    pipe.found(&found);
    ledger.adopt(&found);
    if !ledger.written {
        for (at, bytes) in work::first().bytes(ledger.file) {
            file.write_at(&bytes, at)?;
        }
        sync()?;
        pipe.returned(0, FIRST, 0);
    }
    reach(Phase::Writing);
    let over = AtomicBool::new(false);
    let left = AtomicU64::new(WRITERS as u64);
    let job = Job { file: &file, ledger, orders, pipe, over: &over };
    let result = std::thread::scope(|scope| {
        let mut threads: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (job, left) = (&job, &left);
                scope.spawn(move || {
                    let result = job.write(writer);
                    if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        job.over.store(true, Ordering::Release);
                    }
                    result
                })
            })
            .collect();
        if orders.resizes {
            threads.push(scope.spawn(|| job.resize()));
        }
        if orders.deploys {
            threads.push(scope.spawn(|| job.deploy()));
        }
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<(), Error>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<()>, Error>>()
    });
    result?;
    reach(Phase::Closing);
    if let Some((_, mode)) = orders.close {
        file.close(mode)?;
    }
    Ok(())
}

struct Job<'a> {
    file: &'a AtomicMappedFile,
    ledger: &'a Ledger,
    orders: &'a Orders,
    pipe: &'a Pipe<'a>,
    over: &'a AtomicBool,
}

impl Job<'_> {
    fn has(&self, fault: Fault) -> bool {
        self.orders.fault == Some(fault)
    }

    /// Acknowledges an operation, after a sync if the orders ask for it.
    fn returned(&self, by: usize, who: usize, n: u64) -> Result<(), Error> {
        if self.orders.syncs && n.is_multiple_of(2) {
            self.file.sync()?;
        } else if self.orders.syncs {
            pollster::block_on(self.file.flush_async())?;
        }
        self.pipe.returned(by, who, n);
        Ok(())
    }

    /// Does one operation, with the planted bug if there is one.
    fn put(&self, op: &Op, in_two: bool) -> Result<(), Error> {
        let parts = op.bytes(self.ledger.file);
        if let [(at, bytes)] = &parts[..] {
            let (first, second) = bytes.split_at(bytes.len() / 2 / SLICE * SLICE);
            if in_two && !first.is_empty() {
                self.file.write_at(first, *at)?;
                return self.file.write_at(second, *at + first.len() as u64);
            }
            return self.file.write_at(bytes, *at);
        }
        let (first, second) = parts.split_at(if in_two { 1 } else { parts.len() });
        for parts in [first, second] {
            let mut tx = self.file.begin();
            parts.iter().try_for_each(|(at, bytes)| tx.write_at(bytes, *at))?;
            tx.commit()?;
        }
        Ok(())
    }

    fn write(&self, writer: usize) -> Result<(), Error> {
        let (seed, file) = (self.ledger.seed, self.file);
        let mut views = VecDeque::new();
        let (mut own, mut blind) = (self.ledger.own[writer], self.ledger.blind_next[writer]);
        let most = self.orders.close.map_or(u64::MAX, |(ops, _)| ops);
        for round in 0..most {
            own += 1;
            let op = work::own(seed, writer, own);
            if op.views {
                let start = u64::from(op.ranges[0].0) * SLICE as u64 / 4096 * 4096;
                views.push_back((round, file.view(start..start + 4096)?));
            }
            if self.has(Fault::AcknowledgesFirst) {
                self.returned(writer, writer, own)?;
            }
            let mut done = op;
            if self.has(Fault::LeavesOneOut) && done.ranges[0].1 > 1 {
                // The other slices name one slice more.
                let mut bytes = done.bytes(self.ledger.file);
                let (at, bytes) = bytes.swap_remove(0);
                file.write_at(&bytes[..bytes.len() - SLICE], at)?;
                done.ranges.remove(0);
            }
            if !done.ranges.is_empty() {
                self.put(&done, self.has(Fault::WritesInTwo))?;
            }
            if self.has(Fault::StraysInto) && own.is_multiple_of(50) {
                stray_into(&self.orders.path, done.ranges.first().map_or(0, |range| range.0));
            }
            if !self.has(Fault::AcknowledgesFirst) {
                self.returned(writer, writer, own)?;
            }
            if round % 3 == writer as u64 {
                self.by_ticket(writer)?;
            }
            if round % 3 == 2 {
                let op = work::blind(seed, writer, blind);
                if !self.has(Fault::BlindNotAtAll) {
                    self.put(&op, self.has(Fault::BlindInTwo))?;
                }
                self.returned(writer, BLIND + writer, blind)?;
                blind += 1;
            }
            while views.front().is_some_and(|(taken, _)| taken + 6 < round) {
                views.pop_front();
            }
        }
        Ok(())
    }

    /// Reads the last ticket, and does the operation of the next one.
    fn by_ticket(&self, writer: usize) -> Result<(), Error> {
        let ledger = self.ledger;
        let ticket = self.file.transact(|tx| {
            let mut first = [0; SLICE];
            tx.read_at(&mut first, u64::from(TICKETED) * SLICE as u64)?;
            // A transaction never sees a mixture of two states.
            let ticket = ledger.ticket_of(&first).unwrap_or_else(|what| panic!("read {what}")) + 1;
            let parts = work::ticketed(ledger.seed, ticket).bytes(ledger.file);
            let in_two = self.has(Fault::TicketInTwo) && parts.len() > 1;
            for (at, bytes) in &parts[..if in_two { 1 } else { parts.len() }] {
                tx.write_at(bytes, *at)?;
            }
            Ok::<_, Error>(ticket)
        })?;
        if self.has(Fault::TicketInTwo) {
            for (at, bytes) in &work::ticketed(ledger.seed, ticket).bytes(ledger.file)[1..] {
                self.file.write_at(bytes, *at)?;
            }
        }
        self.returned(writer, TICKETS, ticket)
    }

    fn resize(&self) -> Result<(), Error> {
        let mut n = self.ledger.resized;
        while !self.over.load(Ordering::Acquire) {
            n += 1;
            let first = self.has(Fault::AcknowledgesLengthFirst);
            if first {
                self.returned(RESIZER, RESIZER, n)?;
            }
            match work::resize(self.ledger.seed, n) {
                Resize::To(len) => self.file.set_len(len)?,
                Resize::Write(op) => self.put(&op, false)?,
            }
            if !first {
                self.returned(RESIZER, RESIZER, n)?;
            }
            // Gives the writers time between two changes of the length.
            std::thread::sleep(Duration::from_micros(n * 37 % 150));
        }
        Ok(())
    }

    fn deploy(&self) -> Result<(), Error> {
        let mut n = 0;
        while !self.over.load(Ordering::Acquire) {
            n += 1;
            // Deploys up to the end of the file, which gives chunks back, or only some pages.
            let end = if n % 3 == 0 { BASE_LEN / 4096 * 4096 / 2 } else { self.file.len() };
            match self.file.deploy(0..end) {
                // The length has changed meanwhile.
                Err(Error::PastEnd { .. }) => {}
                other => {
                    other?;
                }
            }
            std::thread::sleep(Duration::from_micros(n * 53 % 300));
        }
        Ok(())
    }
}

/// Does the planted stray write: changes a byte of the home file behind the engine's back.
fn stray_into(path: &Path, slice: u32) {
    let file = File::options().write(true).open(path).expect("the home file");
    file.write_all_at(&[0xee], u64::from(slice) * SLICE as u64 + 30).expect("a byte");
}
