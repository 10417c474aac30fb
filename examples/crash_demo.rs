//! Kills a writing process repeatedly, and checks its file after each kill.
//!
//! ```sh
//! cargo run --release --example crash_demo -- --kills 200
//! cargo run --release --example crash_demo -- --medium dax --path /dev/shm/demo --seed 7
//! ```
//!
//! | option | meaning (default) |
//! |---|---|
//! | `--kills N` | number of kills (200) |
//! | `--path FILE` | a new file, removed at the end (one in the temporary folder) |
//! | `--medium dax\|page-cache\|ram` | emulates this medium (the detected one) |
//! | `--seed N` | seed of all random choices, except for thread timing (from the clock) |
//!
//! The child, which is this program again, has five threads. Two move money from one account to up
//! to 40 others. Two write blobs of up to 300 KiB at unaligned offsets. One counts. The child
//! acknowledges each returned operation to the parent through a pipe, with one `write(2)`. So no
//! acknowledgement can die with the child. Sometimes the child closes the file and opens it again.
//! The parent kills it with SIGKILL a few milliseconds after its first message, or during its
//! start. Then the parent opens the file, which recovers it, and checks:
//!
//! - No operation is torn: no money was made or lost, and each move is in both accounts and in its
//!   thread's counter. Each blob is whole, and the counter's two fields agree.
//! - No operation is lost: the file holds every acknowledged operation of each thread, and at most
//!   one operation more, which was in flight.
//!
//! Sometimes the parent skips the check. The next child then recovers the file, and may be killed
//! meanwhile. After a spatial close the parent also checks the plain bytes.
//!
//! The last line is the only one on stdout. The exit code is 1 if an operation was torn or lost,
//! and the files are then kept. SIGKILL shows what a process crash leaves, not a loss of power.
//!
//! Most kills hit no half-done commit. With the recovery of log records removed from the crate, 200
//! kills found the bug in 5 runs of 8. For a stronger test, use `--kills 2000`.

mod scratch;

use atomic_mmap::zerocopy::{FromBytes, IntoBytes};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, MEDIUM_VARIABLE, Medium, record};
use std::error::Error as StdError;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

type Anything<T> = Result<T, Box<dyn StdError>>;

/// Environment variable of the child, with its seed.
const CHILD_VARIABLE: &str = "CRASH_DEMO_CHILD";

const THREADS: usize = 5;
const MOVERS: Range<usize> = 0..2;
const BLOBBERS: Range<usize> = 2..4;
const COUNTER: usize = 4;

// The file, from start to end. Most of it is unaligned, as in real files.

/// The counter lies on two pages, one field on each.
const TALLY_AT: u64 = 4096 - 8;
/// The counts of each mover, on separate pages, since transactions compete for pages.
const MOVES_AT: [u64; MOVERS.end] = [9_000, 13_000];
/// Most accounts that one payment pays. More pages take longer, and more kills hit the payment.
const PAYEES: u64 = 40;
/// Every 256th account lies on two pages.
const ACCOUNTS_AT: u64 = 16_384 - 8;
const ACCOUNTS: u64 = 20_000;
const BALANCE: u64 = 1000;
const BLOBS_AT: u64 = 340_011;
/// Each writer of blobs uses its places in turn: the older blobs must still exist when the newest
/// one does.
const PLACES: u64 = 3;
const PLACE_LEN: u64 = 300 * 1024 + 77;
const FILE_LEN: u64 = BLOBS_AT + 2 * PLACES * PLACE_LEN;

record! {
    #[derive(Clone, Copy, Debug)]
    struct Account {
        balance: u64,
        /// Number of payments that it made or received.
        entries: u64,
    }
}

record! {
    #[derive(Clone, Copy, Debug)]
    struct Moves {
        /// The number of the mover's last payment.
        sequence: u64,
        /// Number of entries that its payments have made in the accounts.
        entries: u64,
    }
}

record! {
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Tally {
        count: u64,
        sum: u64,
    }
}

impl Tally {
    fn after(count: u64) -> Tally {
        Tally { count, sum: count * (count + 1) / 2 }
    }
}

record! {
    #[derive(Clone, Copy, Debug)]
    struct BlobHeader {
        magic: u64,
        sequence: u64,
        thread: u32,
        /// Bytes after the header.
        len: u32,
        /// CRC-32C of this header, with zero here, and of its blob.
        checksum: u32,
        reserved: u32,
    }
}

const BLOB_MAGIC: u64 = u64::from_le_bytes(*b"one blob");
const MOST_CONTENT: usize = PLACE_LEN as usize - size_of::<BlobHeader>();
/// Number of different pieces that a blob's content can be, cut from the child's noise.
const NOISE_SHIFTS: u64 = 4096;

record! {
    /// A message of the child. It is shorter than `PIPE_BUF`, so that a pipe takes it whole or not
    /// at all.
    #[derive(Clone, Copy, Debug)]
    struct Message {
        /// The thread with a returned operation, or one of the two constants below.
        what: u64,
        /// The number of the operation.
        sequence: u64,
    }
}

/// The file is open and the threads are starting.
const RUNNING: u64 = 1 << 32;
/// A thread has read torn bytes. It prints them on stderr.
const TORN: u64 = 1 << 33;

fn main() -> Anything<ExitCode> {
    let arguments = Arguments::parse()?;
    match std::env::var(CHILD_VARIABLE) {
        Ok(seed) => child(&arguments, seed.parse()?),
        Err(_) => parent(&arguments),
    }
}

#[derive(Default)]
struct Arguments {
    path: Option<PathBuf>,
    kills: Option<u64>,
    seed: Option<u64>,
    medium: Option<Medium>,
}

impl Arguments {
    fn parse() -> Anything<Arguments> {
        let mut arguments = Arguments::default();
        let mut words = std::env::args().skip(1);
        while let Some(option) = words.next() {
            let value = words.next().ok_or_else(|| format!("{option} needs a value"))?;
            match option.as_str() {
                "--path" => arguments.path = Some(value.into()),
                "--kills" => arguments.kills = Some(value.parse()?),
                "--seed" => arguments.seed = Some(value.parse()?),
                "--medium" => arguments.medium = Some(value.parse()?),
                _ => return Err(format!("{option}? --path, --kills, --seed, --medium").into()),
            }
        }
        Ok(arguments)
    }
}

fn open(path: &Path, medium: Option<Medium>) -> Result<AtomicMappedFile, Error> {
    let mut options = AtomicMappedFile::options().create(true).len(FILE_LEN);
    if let Some(medium) = medium {
        options = options.medium(medium);
    }
    let began = Instant::now();
    loop {
        match options.clone().open(path) {
            // A process that reads the child's memory map keeps its locks for a moment.
            Err(Error::Busy { .. }) if began.elapsed() < Duration::from_secs(5) => {
                thread::sleep(Duration::from_millis(1));
            }
            opened => return opened,
        }
    }
}

// The child process.

fn child(arguments: &Arguments, seed: u64) -> Anything<ExitCode> {
    let path = arguments.path.as_deref().ok_or("the child needs a path")?;
    // The parent never writes. The pipe ends when the parent does, and then the child exits too.
    thread::spawn(|| {
        let _end = io::stdin().read(&mut [0]);
        std::process::exit(1);
    });
    // A `File` has no buffer. The buffer of `Stdout` would be lost in a kill.
    let pipe = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    let mut random = Random(seed);
    let noise: Vec<u8> = (0..(MOST_CONTENT + NOISE_SHIFTS as usize).div_ceil(8))
        .flat_map(|_| random.next().to_ne_bytes())
        .collect();
    loop {
        let file = open(path, arguments.medium)?;
        let ends = AtomicBool::new(false);
        say(&pipe, RUNNING, 0)?;
        thread::scope(|scope| -> Anything<()> {
            for number in 0..THREADS {
                let worker =
                    Worker { file: &file, pipe: &pipe, noise: &noise, ends: &ends, number };
                let mut random = random.fork();
                scope.spawn(move || {
                    if let Err(error) = worker.run(&mut random) {
                        // Reported here, so that the parent can tell this exit from its own kill.
                        eprintln!("crash_demo: thread {number}: {error}");
                        std::process::exit(1);
                    }
                });
            }
            thread::sleep(Duration::from_micros(random.between(1_000..50_000)));
            ends.store(true, Ordering::Relaxed);
            Ok(())
        })?;
        file.close(random.close_mode())?;
    }
}

fn say(mut pipe: &File, what: u64, sequence: u64) -> io::Result<()> {
    pipe.write_all(Message { what, sequence }.as_bytes())
}

struct Worker<'a> {
    file: &'a AtomicMappedFile,
    pipe: &'a File,
    noise: &'a [u8],
    ends: &'a AtomicBool,
    number: usize,
}

impl Worker<'_> {
    fn run(&self, random: &mut Random) -> Anything<()> {
        // Continues after the numbers in the file, not after the numbers in this process. If the
        // file loses one, the parent receives a number twice.
        let found = sequences(&mut |to, at| self.file.read_at(to, at), &mut Vec::new())?;
        let mut sequence = found[self.number];
        while !self.ends.load(Ordering::Relaxed) {
            sequence += 1;
            if MOVERS.contains(&self.number) {
                self.move_money(sequence, random)?;
            } else if BLOBBERS.contains(&self.number) {
                self.write_blob(sequence, random)?;
            } else {
                self.count(sequence)?;
            }
            say(self.pipe, self.number as u64, sequence)?;
            if sequence.is_multiple_of(64) {
                self.look_around(random)?;
            }
        }
        Ok(())
    }

    fn move_money(&self, sequence: u64, random: &mut Random) -> Result<(), Error> {
        let accounts = self.file.array::<Account>(ACCOUNTS_AT, ACCOUNTS)?;
        // Usually in the mover's own part, so that movers rarely wait for each other.
        let part = match random.below(8) {
            0 => 0..ACCOUNTS,
            _ => {
                let len = ACCOUNTS / MOVERS.len() as u64;
                len * self.number as u64..len * (self.number as u64 + 1)
            }
        };
        let mut any_account = || accounts.offset_of(random.between(part.clone()));
        let payer = any_account()?;
        // Chosen outside the transaction, which may run more than once. A payee may occur twice or
        // be the payer, since a transaction reads its own writes.
        let mut payees = [0; PAYEES as usize];
        for payee in &mut payees {
            *payee = any_account()?;
        }
        let payees = &payees[..random.between(1..PAYEES + 1) as usize];
        let percent = random.below(100);
        self.file.transact(|tx| {
            let each = tx.update(payer, |account: &mut Account| {
                let each = account.balance * percent / 100 / payees.len() as u64;
                account.balance -= each * payees.len() as u64;
                account.entries += 1;
                each
            })?;
            for payee in payees {
                tx.update(*payee, |account: &mut Account| {
                    account.balance += each;
                    account.entries += 1;
                })?;
            }
            tx.update(MOVES_AT[self.number], |moves: &mut Moves| {
                moves.sequence = sequence;
                moves.entries += 1 + payees.len() as u64;
            })
        })
    }

    fn write_blob(&self, sequence: u64, random: &mut Random) -> Result<(), Error> {
        let most = match random.below(8) {
            0..2 => 300,
            2..5 => 8_000,
            5..7 => 40_000,
            _ => MOST_CONTENT,
        };
        let len = random.below(most as u64 + 1) as usize;
        // Cut from the noise at a random offset. New content for each blob would take longer than
        // its write, and the kills are meant to hit writes.
        let content = &self.noise[random.below(NOISE_SHIFTS) as usize..][..len];
        let mut header = BlobHeader {
            magic: BLOB_MAGIC,
            sequence,
            thread: self.number as u32,
            len: len as u32,
            checksum: 0,
            reserved: 0,
        };
        header.checksum = checksum_of_blob(&header, content);
        let blob = [header.as_bytes(), content].concat();
        self.file.write_at(&blob, place_of_blob(self.number, sequence % PLACES))
    }

    fn count(&self, sequence: u64) -> Anything<()> {
        let tally = self.file.slot::<Tally>(TALLY_AT)?;
        let count = tally.update(|tally| {
            tally.count += 1;
            tally.sum += tally.count;
            tally.count
        })?;
        if count != sequence {
            return Err(format!("counted to {count}, not to {sequence}").into());
        }
        Ok(())
    }

    /// Checks that readers never see a part of an operation, and runs some other operations.
    fn look_around(&self, random: &mut Random) -> Anything<()> {
        let mut torn = Vec::new();
        let place = place_of_blob(BLOBBERS.start, 0) + random.below(2 * PLACES) * PLACE_LEN;
        let place = place..place + PLACE_LEN;
        match random.below(if self.number == COUNTER { 8 } else { 3 }) {
            0 => check_accounts(&mut |to, at| self.file.read_at(to, at), false, &mut torn)?,
            1 => {
                let mut bytes = vec![0; PLACE_LEN as usize];
                self.file.read_at(&mut bytes, place.start)?;
                torn.extend(check_blob(&bytes).err());
            }
            2 => {
                let bytes = self.file.view(place)?.to_vec()?;
                torn.extend(check_blob(&bytes).err().map(|what| format!("a view: {what}")));
            }
            3 => self.file.sync().map(drop)?,
            _ => {
                self.file.deploy(place)?;
            }
        }
        for what in torn {
            eprintln!("crash_demo: read while others wrote: {what}");
            say(self.pipe, TORN, 0)?;
        }
        Ok(())
    }
}

// The invariants of the file.

fn place_of_blob(thread: usize, place: u64) -> u64 {
    BLOBS_AT + ((thread - BLOBBERS.start) as u64 * PLACES + place) * PLACE_LEN
}

fn checksum_of_blob(header: &BlobHeader, content: &[u8]) -> u32 {
    let header = BlobHeader { checksum: 0, ..*header };
    crc32c::crc32c_append(crc32c::crc32c(header.as_bytes()), content)
}

/// Returns the header of the blob at the start of `bytes`, or `None` if it was never written.
fn check_blob(bytes: &[u8]) -> Result<Option<BlobHeader>, String> {
    let (header, rest) = BlobHeader::read_from_prefix(bytes).map_err(|_| "a blob cut short")?;
    if header.as_bytes().iter().all(|&byte| byte == 0) {
        return match rest.iter().position(|&byte| byte != 0) {
            None => Ok(None),
            Some(at) => Err(format!("a blob without a header, but with byte {at}")),
        };
    }
    let content = rest.get(..header.len as usize);
    match content {
        Some(content) if checksum_of_blob(&header, content) == header.checksum => Ok(Some(header)),
        _ => Err(format!("a blob that is not whole: {header:?}")),
    }
}

/// Fills a buffer from an offset, in the open file or in its plain bytes.
type ReadAt<'a, E> = &'a mut dyn FnMut(&mut [u8], u64) -> Result<(), E>;

/// Checks that no money was made or lost. If no thread is moving any, also checks the accounts
/// against the movers.
fn check_accounts<E>(
    read_at: ReadAt<'_, E>,
    is_quiet: bool,
    torn: &mut Vec<String>,
) -> Result<(), E> {
    // One read returns one state, even while other threads move money.
    let mut accounts = vec![Account { balance: 0, entries: 0 }; ACCOUNTS as usize];
    read_at(accounts.as_mut_bytes(), ACCOUNTS_AT)?;
    let total = accounts.iter().fold(0_u64, |sum, account| sum.wrapping_add(account.balance));
    if total != ACCOUNTS * BALANCE {
        torn.push(format!("{total} in all accounts, not {}", ACCOUNTS * BALANCE));
    }
    if is_quiet {
        let mut made = 0_u64;
        for at in MOVES_AT {
            let mut moves = Moves { sequence: 0, entries: 0 };
            read_at(moves.as_mut_bytes(), at)?;
            made = made.wrapping_add(moves.entries);
        }
        let found = accounts.iter().fold(0_u64, |sum, account| sum.wrapping_add(account.entries));
        if made != found {
            torn.push(format!("{found} entries in all accounts, but {made} were made"));
        }
    }
    Ok(())
}

/// Returns the number of each thread's last operation in the file.
fn sequences<E>(read_at: ReadAt<'_, E>, torn: &mut Vec<String>) -> Result<[u64; THREADS], E> {
    let mut found = [0; THREADS];
    for mover in MOVERS {
        // The first field of the record.
        read_at(found[mover].as_mut_bytes(), MOVES_AT[mover])?;
    }
    for thread in BLOBBERS {
        let mut present = [0; PLACES as usize];
        let mut bytes = vec![0; PLACE_LEN as usize];
        for place in 0..PLACES {
            read_at(&mut bytes, place_of_blob(thread, place))?;
            match check_blob(&bytes) {
                Ok(None) => {}
                Ok(Some(blob)) => {
                    present[place as usize] = blob.sequence;
                    if blob.thread as usize != thread || blob.sequence % PLACES != place {
                        torn.push(format!("thread {thread}, place {place}: has {blob:?}"));
                    }
                }
                Err(what) => torn.push(format!("thread {thread}, place {place}: {what}")),
            }
        }
        let newest = present.into_iter().max().unwrap_or(0);
        found[thread] = newest;
        // The other places must hold the numbers right before it, if there were any.
        let mut expected: Vec<u64> = (0..PLACES).map(|back| newest.saturating_sub(back)).collect();
        expected.sort_unstable();
        present.sort_unstable();
        if present[..] != expected {
            torn.push(format!("thread {thread}: blobs {present:?}, not {expected:?}"));
        }
    }
    let mut tally = Tally { count: 0, sum: 0 };
    read_at(tally.as_mut_bytes(), TALLY_AT)?;
    if tally != Tally::after(tally.count) {
        torn.push(format!("the counter: {tally:?}"));
    }
    found[COUNTER] = tally.count;
    Ok(found)
}

// The parent process.

/// The parent's knowledge about a thread.
#[derive(Clone, Copy, Default)]
struct Known {
    /// The last operation that has certainly returned.
    acknowledged: u64,
    /// The last operation that can have started.
    started: u64,
}

#[derive(Default)]
struct Findings {
    torn: Vec<String>,
    lost: Vec<String>,
}

impl Findings {
    fn report(&self, from: (usize, usize), kill: u64) {
        let torn = self.torn[from.0..].iter().map(|what| ("torn", what));
        let lost = self.lost[from.1..].iter().map(|what| ("lost", what));
        for (how, what) in torn.chain(lost) {
            eprintln!("\ncrash_demo: kill {kill}: {how}: {what}");
        }
    }

    fn counts(&self) -> (usize, usize) {
        (self.torn.len(), self.lost.len())
    }
}

fn parent(arguments: &Arguments) -> Anything<ExitCode> {
    let kills = arguments.kills.unwrap_or(200);
    let from_clock =
        || Ok::<_, Box<dyn StdError>>(std::time::UNIX_EPOCH.elapsed()?.as_micros() as u64);
    let seed = arguments.seed.map_or_else(from_clock, Ok)?;
    let (path, scratch) = match &arguments.path {
        Some(path) if path.exists() => {
            let path = path.display();
            return Err(format!("{path} exists; this needs a file of its own").into());
        }
        Some(path) => (path.clone(), None),
        None => {
            let scratch = scratch::Scratch::new()?;
            (scratch.path("crash_demo"), Some(scratch))
        }
    };

    let file = open(&path, arguments.medium)?;
    eprintln!(
        "crash_demo: {}: medium {}, what has returned survives {:?} (seed {seed})",
        path.display(),
        file.medium(),
        file.survives()
    );
    let account = Account { balance: BALANCE, entries: 0 };
    file.array(ACCOUNTS_AT, ACCOUNTS)?.set_many(0, &vec![account; ACCOUNTS as usize])?;
    let reflection = file.reflection_path().to_owned();
    file.close(CloseMode::Fast)?;

    let mut demo = Demo {
        path: path.clone(),
        medium: arguments.medium,
        random: Random(seed),
        known: [Known::default(); THREADS],
        findings: Findings::default(),
        operations: 0,
        kills: 0,
    };
    let result = demo.run(kills);
    let (torn, lost) = demo.findings.counts();
    let failed = result.is_err() || torn + lost > 0;
    if failed {
        eprintln!("crash_demo: {} and {} are kept", path.display(), reflection.display());
        // Skips the drop, which would remove the folder.
        std::mem::forget(scratch);
    } else if scratch.is_none() {
        // The last close leaves a plain file and no others.
        open(&path, arguments.medium)?.close(CloseMode::Spatial)?;
        std::fs::remove_file(&path)?;
    }
    result?;
    let Demo { kills, operations, .. } = demo;
    println!("crash_demo: {kills} kills, {operations} operations, {torn} torn, {lost} lost");
    Ok(ExitCode::from(u8::from(failed)))
}

struct Demo {
    path: PathBuf,
    medium: Option<Medium>,
    random: Random,
    known: [Known; THREADS],
    findings: Findings,
    /// Acknowledged operations.
    operations: u64,
    kills: u64,
}

/// The messages of one child.
#[derive(Default)]
struct Heard {
    /// The first and the last acknowledgement of each thread.
    acknowledged: [Option<(u64, u64)>; THREADS],
    operations: u64,
    /// Acknowledgements with a number that does not follow the one before.
    out_of_order: Vec<String>,
    torn: u64,
}

impl Demo {
    fn run(&mut self, kills: u64) -> Anything<()> {
        let progress = Progress::new(kills);
        while self.kills < kills {
            let before = self.findings.counts();
            let can_open = self.run_and_kill()?;
            self.kills += 1;
            // Sometimes skipped: then the next child recovers the file.
            let looks = self.kills == kills || self.random.below(4) != 0;
            let mode =
                if self.kills.is_multiple_of(2) { CloseMode::Spatial } else { CloseMode::Fast };
            let goes_on = can_open && (!looks || self.check(mode)?);
            self.findings.report(before, self.kills);
            progress.show(self.kills, self.operations, self.findings.counts());
            if !goes_on {
                break;
            }
        }
        progress.end();
        Ok(())
    }

    /// Runs a child and kills it. Returns `false` if the child ended because the file could not be
    /// opened.
    fn run_and_kill(&mut self) -> Anything<bool> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("--path").arg(&self.path);
        // Set in place of `--medium`, so that the child also gets a medium from the environment.
        if let Some(medium) = self.medium {
            command.env(MEDIUM_VARIABLE, medium.to_string());
        }
        command.env(CHILD_VARIABLE, self.random.next().to_string());
        let mut child = Killed(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?);
        let pipe = child.0.stdout.take().ok_or("the child has no stdout")?;
        let (running, runs) = mpsc::channel();
        let listener = thread::spawn(move || listen(pipe, &running));

        if self.random.below(6) == 0 {
            // During its start, its opening or its recovery.
            thread::sleep(Duration::from_micros(self.random.below(6_000)));
        } else {
            // If the child ends without this message, its exit status shows it.
            let _word = runs.recv_timeout(Duration::from_secs(60));
            thread::sleep(Duration::from_micros(self.random.between(1_000..60_000)));
        }
        child.0.kill()?;
        let status = child.0.wait()?;
        let heard = listener.join().map_err(|_| "the listener panicked")??;
        self.learn(heard);
        if status.signal() == Some(libc::SIGKILL) {
            return Ok(true);
        }
        // If the child could not open the file, the parent cannot either, and reports why.
        if self.check(CloseMode::Fast)? {
            return Err(format!("the child has ended by itself: {status}").into());
        }
        Ok(false)
    }

    fn learn(&mut self, heard: Heard) {
        self.operations += heard.operations;
        self.findings.torn.extend((0..heard.torn).map(|_| "read while others wrote".to_owned()));
        self.findings.lost.extend(heard.out_of_order);
        for (thread, (known, heard)) in self.known.iter_mut().zip(heard.acknowledged).enumerate() {
            let Some((first, last)) = heard else {
                // The child may have run one operation without a message.
                known.started += 1;
                continue;
            };
            if first <= known.acknowledged {
                let what = format!(
                    "thread {thread}: {} was acknowledged, the next child found {}",
                    known.acknowledged,
                    first - 1
                );
                self.findings.lost.push(what);
            }
            if first > known.started + 1 {
                let what = format!("thread {thread}: {first} was never started");
                self.findings.torn.push(what);
            }
            *known = Known { acknowledged: last, started: last + 1 };
        }
    }

    /// Recovers and checks the file. Returns `true` if it could be opened.
    fn check(&mut self, mode: CloseMode) -> Anything<bool> {
        let file = match open(&self.path, self.medium) {
            // All acknowledged operations are lost.
            Err(error @ Error::Mismatch { .. }) => {
                self.findings.lost.push(error.to_string());
                return Ok(false);
            }
            opened => opened?,
        };
        self.check_bytes(&mut |to, at| file.read_at(to, at))?;
        file.close(mode)?;
        if mode == CloseMode::Spatial {
            let bytes = std::fs::read(&self.path)?;
            if bytes.len() as u64 != FILE_LEN {
                self.findings.torn.push(format!("plain file: {} bytes long", bytes.len()));
            }
            self.check_bytes(&mut |to, at| {
                let from = at as usize;
                let bytes =
                    bytes.get(from..from + to.len()).ok_or("the plain file is too short")?;
                to.copy_from_slice(bytes);
                Ok::<_, &str>(())
            })?;
        }
        Ok(true)
    }

    fn check_bytes<E>(&mut self, read_at: ReadAt<'_, E>) -> Result<(), E> {
        let found = sequences(read_at, &mut self.findings.torn)?;
        check_accounts(read_at, true, &mut self.findings.torn)?;
        for (thread, (known, found)) in self.known.iter_mut().zip(found).enumerate() {
            let Known { acknowledged, started } = *known;
            if found < acknowledged {
                let what =
                    format!("thread {thread}: {acknowledged} was acknowledged, {found} found");
                self.findings.lost.push(what);
            } else if found > started {
                let what = format!("thread {thread}: {found} found, but it was never started");
                self.findings.torn.push(what);
            }
            // Operations found once must stay.
            *known = Known { acknowledged: found, started: found };
        }
        Ok(())
    }
}

/// Reads all messages of the child, even after its end, until the pipe is empty.
fn listen(mut pipe: impl Read, running: &mpsc::Sender<()>) -> io::Result<Heard> {
    const LEN: usize = size_of::<Message>();
    let mut heard = Heard::default();
    let mut buffer = vec![0; 1 << 16];
    let mut filled = 0;
    loop {
        // Polls, because every write would wake a blocked reader, which would take the processor
        // from the child.
        thread::sleep(Duration::from_millis(1));
        let got = pipe.read(&mut buffer[filled..])?;
        if got == 0 {
            return Ok(heard);
        }
        filled += got;
        let whole = filled / LEN * LEN;
        for bytes in buffer[..whole].chunks_exact(LEN) {
            let message =
                Message::read_from_bytes(bytes).map_err(|_| io::ErrorKind::UnexpectedEof)?;
            match message.what {
                // After the first `RUNNING` the receiver is gone.
                RUNNING => drop(running.send(())),
                TORN => heard.torn += 1,
                thread => heard.acknowledge(thread as usize, message.sequence),
            }
        }
        buffer.copy_within(whole..filled, 0);
        filled -= whole;
    }
}

impl Heard {
    fn acknowledge(&mut self, thread: usize, sequence: u64) {
        self.operations += 1;
        let first = match self.acknowledged[thread] {
            None => sequence,
            Some((first, last)) => {
                if sequence != last + 1 {
                    let what = format!("thread {thread}: {sequence} acknowledged after {last}");
                    self.out_of_order.push(what);
                }
                first
            }
        };
        self.acknowledged[thread] = Some((first, sequence));
    }
}

/// A child that is killed when the parent returns early with an error.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _ended_already = self.0.wait();
    }
}

/// A progress line: rewritten on a terminal, printed at intervals elsewhere.
struct Progress {
    kills: u64,
    on_terminal: bool,
    began: Instant,
}

impl Progress {
    fn new(kills: u64) -> Progress {
        Progress { kills, on_terminal: io::stderr().is_terminal(), began: Instant::now() }
    }

    fn show(&self, kill: u64, operations: u64, (torn, lost): (usize, usize)) {
        let kills = self.kills;
        let seconds = self.began.elapsed().as_secs_f64();
        let line = format!(
            "{kill} of {kills} kills, {operations} operations, {torn} torn, {lost} lost, {seconds:.1} s"
        );
        if self.on_terminal {
            eprint!("\r{line} ");
        } else if kill.is_multiple_of(20) {
            eprintln!("{line}");
        }
    }

    fn end(&self) {
        if self.on_terminal {
            eprintln!();
        }
    }
}

/// splitmix64: good enough, and needs no dependency.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    fn between(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end - range.start)
    }

    fn fork(&mut self) -> Random {
        Random(self.next())
    }

    fn close_mode(&mut self) -> CloseMode {
        if self.below(2) == 0 { CloseMode::Fast } else { CloseMode::Spatial }
    }
}
