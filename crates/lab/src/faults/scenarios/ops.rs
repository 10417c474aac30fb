//! The calls: their execution, and the content of the file after each of them.

use super::space::SpaceOp;
use super::start::{Sealed, bytes};
use super::streams::Stream;
use super::{Ground, streams};
use crate::faults::files::Place;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Durability, Error, Mismatch, OnMismatch,
};
use std::fs::File;
use std::ops::Range;
use std::time::{Duration, Instant};

/// The result of an open if nothing fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    /// The file, with all bytes of both files.
    Whole,
    /// The last durable point.
    Point,
    /// The home file's bytes as they are.
    HomeBytes,
    /// A new file of this number of zeroes.
    New(u64),
    /// A refusal.
    Refused(Mismatch),
}

/// The parameters and the expected result of an open.
#[derive(Clone, Debug)]
pub struct Opening {
    /// Creates the file with this length.
    pub create: Option<u64>,
    /// The reaction to a mismatch.
    pub wish: OnMismatch,
    /// The policy for deployment.
    pub policy: DeployPolicy,
    /// The mode in which a drop closes.
    pub on_drop: CloseMode,
    /// The durability of the file.
    pub durability: Durability,
    /// The interval of automatic durable points.
    pub sync_every: Option<Duration>,
    /// Forces the medium, even if the system could detect it.
    pub forces_medium: bool,
    /// The offset of the byte mark.
    pub mark_at: Option<u64>,
    /// The companions have the least budget.
    pub has_budget: bool,
    /// The expected result.
    pub expected: Opened,
}

/// One call.
#[derive(Clone, Debug)]
pub enum Op {
    /// Opens the file.
    Open(Opening),
    /// Writes this number of bytes at an offset.
    Write(u64, usize),
    /// Writes ranges in one transaction.
    Tx(Vec<(u64, usize)>),
    /// Reads one place and writes another, in one transaction.
    Update(u64, u64),
    /// Reads this number of bytes at an offset.
    Read(u64, usize),
    /// Takes a view of a range, and writes a range meanwhile.
    View(Range<u64>, Option<(u64, usize)>),
    /// Deploys a range, and punches holes.
    Deploy(Range<u64>),
    /// Changes the length.
    SetLen(u64),
    /// Makes this number of bytes the whole contents.
    Replace(usize),
    /// Syncs.
    Sync,
    /// Syncs, and waits for the background checkpoint that the sync requests.
    SyncAndCheckpoint,
    /// Writes, and waits for the automatic durable point.
    WriteAndWait(u64, usize),
    /// Makes another handle, reads with it and drops it.
    TryClone,
    /// Seals a snapshot of this name.
    Seal(&'static str),
    /// Drops the snapshot of this name.
    DropSnapshot(&'static str),
    /// Goes back to a snapshot, and seals the present under the second name first.
    RollBack(&'static str, Option<&'static str>),
    /// Exports a snapshot, or what has changed since another one.
    Export(Option<&'static str>, &'static str),
    /// Takes a stream.
    Import(Stream),
    /// Takes a stream that breaks behind this number of frames.
    BreakImport(Stream, usize),
    /// Takes the rest of a stream that broke behind this number of frames.
    Resume(Stream, usize),
    /// Makes a file beside this one of a stream.
    ImportNew(Stream),
    /// Closes.
    Close(CloseMode),
    /// Drops the last handle.
    Drop,
    /// Stages, background deployment.
    Space(SpaceOp),
}

/// The reason why a call failed the test.
#[derive(Debug)]
pub enum Failure {
    /// The call returned this error.
    Error(Error),
    /// The call returned a wrong value.
    Wrong(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

/// Describes the first difference between two byte strings.
pub fn difference(found: &[u8], expected: &[u8]) -> Option<String> {
    if found == expected {
        return None;
    }
    if found.len() != expected.len() {
        return Some(format!("{} bytes instead of {}", found.len(), expected.len()));
    }
    let differ = || found.iter().zip(expected).enumerate().filter(|(_, (a, b))| a != b);
    let (first, (is, was)) = differ().next()?;
    Some(format!("{} bytes differ, the first at {first}: {is:#x} for {was:#x}", differ().count()))
}

fn same(found: &[u8], expected: &[u8], what: &str) -> Result<(), Failure> {
    match difference(found, expected) {
        None => Ok(()),
        Some(difference) => Err(Failure::Wrong(format!("{what}: {difference}"))),
    }
}

/// The state that the calls work on.
pub struct Bench {
    /// The place of the files.
    pub place: Place,
    /// The ground of the scenario.
    pub ground: Ground,
    /// Sees every system call, and makes some of them fail.
    pub recorder: Recorder,
    /// The file while it is open.
    pub file: Option<AtomicMappedFile>,
    /// Files that a planted fault keeps open.
    pub held: Vec<File>,
    /// The content of the file, also before it is opened.
    pub model: Vec<u8>,
    /// The snapshots of the file, also before it is opened.
    pub sealed: Sealed,
    /// The states that a power loss may go back to, if the file keeps durable points.
    pub points: Vec<Vec<u8>>,
    /// A failed import may have removed the bytes that it had received.
    pub may_spool_be_gone: bool,
}

/// Waits for background work. A failure there poisons the handle, which ends the wait as well.
fn wait_for(file: &AtomicMappedFile, done: impl Fn() -> bool) -> Result<(), Failure> {
    let begin = Instant::now();
    let is_poisoned = || matches!(file.health(), Err(Error::Poisoned { .. }));
    while !done() && !is_poisoned() {
        if begin.elapsed() > crate::faults::HANGS / 2 {
            return Err(Failure::Wrong("nothing happens in the background".into()));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

impl Op {
    /// Returns a word for messages and tables.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Open(Opening { expected: Opened::New(_), .. }) => "create",
            Op::Open(_) => "open",
            Op::Write(..) => "write",
            Op::Tx(_) | Op::Update(..) => "transaction",
            Op::Read(..) => "read",
            Op::View(..) => "view",
            Op::Deploy(_) => "deploy",
            Op::SetLen(_) => "set_len",
            Op::Replace(_) => "replace",
            Op::Sync => "sync",
            Op::SyncAndCheckpoint => "sync, and checkpoint in the background",
            Op::WriteAndWait(..) => "write, and sync in the background",
            Op::TryClone => "try_clone",
            Op::Seal(_) => "snapshot",
            Op::DropSnapshot(_) => "drop_snapshot",
            Op::RollBack(..) => "roll_back",
            Op::Export(..) => "export",
            Op::Import(Stream { is_whole: false, .. }) => "import",
            Op::Import(_) => "import_over",
            Op::BreakImport(..) => "import that breaks",
            Op::Resume(..) => "import of the rest",
            Op::ImportNew(_) => "import of a new file",
            Op::Close(CloseMode::Fast) => "fast close",
            Op::Close(CloseMode::Spatial) => "spatial close",
            Op::Close(CloseMode::Unsynced) => "close without a point",
            Op::Drop => "drop",
            Op::Space(op) => op.name(),
        }
    }

    /// Returns the bytes that call number `n` writes to a range.
    fn data(n: usize, at: u64, len: usize) -> Vec<u8> {
        bytes(1000 * (n as u64 + 1) + at, len)
    }

    /// Returns `true` if the call waits for background work.
    pub fn needs_background(&self) -> bool {
        matches!(self, Op::SyncAndCheckpoint | Op::WriteAndWait(..))
    }

    /// Returns `true` if the call stores bytes of the caller.
    pub fn stores(&self) -> bool {
        match self {
            Op::Write(..) | Op::Tx(_) | Op::Update(..) | Op::WriteAndWait(..) => true,
            Op::Replace(_) => true,
            Op::Space(op) => !op.writes().is_empty(),
            _ => false,
        }
    }

    /// Returns `true` if the call imports to the open file.
    pub fn imports(&self) -> bool {
        matches!(self, Op::Import(_) | Op::Resume(..))
    }

    /// Returns `true` if the call receives a stream, and removes what it has received.
    pub fn receives(&self) -> bool {
        self.imports() || matches!(self, Op::ImportNew(_))
    }

    /// Does the call. `n` is its number in the scenario.
    pub fn perform(&self, n: usize, bench: &mut Bench) -> Result<(), Failure> {
        if let Op::Open(how) = self {
            let mut options = bench.ground.options().deploy(how.policy);
            options = options.on_mismatch(how.wish).close_on_drop(how.on_drop);
            options = options.durability(how.durability);
            if how.forces_medium {
                options = options.medium(bench.ground.medium());
            }
            if let Some(interval) = how.sync_every {
                options = options.sync_every(interval);
            }
            if how.has_budget {
                options = options.reflection_budget(0);
            }
            if let Some(offset) = how.mark_at {
                options = options.mark_at(offset);
            }
            if let Some(len) = how.create {
                options = options.create(true).len(len);
            }
            if let Some(dir) = &bench.place.elsewhere {
                options = options.reflection_dir(dir);
            }
            let file = options.open_recorded(&bench.recorder, bench.place.home())?;
            bench.file = Some(file);
            return Ok(());
        }
        if let Op::Close(mode) = self {
            return Ok(bench.file.take().expect("it is open").close(*mode).map(drop)?);
        }
        if let Op::Drop = self {
            drop(bench.file.take());
            return Ok(());
        }
        if let Op::Resume(stream, frames) = self {
            return streams::resume(bench, n, (stream, *frames));
        }
        let (file, model) = (bench.file.as_ref().expect("it is open"), &bench.model);
        match self {
            Op::Export(from, to) => streams::export(bench, *from, to)?,
            Op::Import(stream) => streams::import(bench, n, stream)?,
            Op::BreakImport(stream, frames) => streams::break_off(bench, n, (stream, *frames))?,
            Op::ImportNew(stream) => streams::make(bench, n, stream)?,
            Op::Resume(..) => unreachable!("done above"),
            Op::Open(_) | Op::Close(_) | Op::Drop => unreachable!("done above"),
            Op::Write(at, len) => file.write_at(&Op::data(n, *at, *len), *at)?,
            Op::Tx(parts) => {
                let mut tx = file.begin();
                for (at, len) in parts {
                    tx.write_at(&Op::data(n, *at, *len), *at)?;
                }
                tx.commit()?;
            }
            Op::Update(from, to) => file.transact(|tx| {
                let read: u64 = tx.load(*from)?;
                tx.store(*to, &read)
            })?,
            Op::Read(at, len) => {
                let mut found = vec![0; *len];
                file.read_at(&mut found, *at)?;
                same(&found, &model[*at as usize..*at as usize + len], "read")?;
            }
            Op::View(range, write) => {
                let then = &model[range.start as usize..range.end as usize];
                let view = file.view(range.clone())?;
                same(&view.to_vec()?, then, "view")?;
                if let Some((at, len)) = write {
                    let result = file.write_at(&Op::data(n, *at, *len), *at);
                    same(&view.to_vec()?, then, "view, after a write")?;
                    result?;
                }
            }
            Op::Deploy(range) => {
                file.deploy(range.clone())?;
            }
            Op::SetLen(len) => file.set_len(*len)?,
            Op::Replace(len) => file.replace(&Op::data(n, 0, *len))?,
            Op::Sync => file.sync().map(drop)?,
            Op::Space(op) => op.perform(file, |at, len| Op::data(n, at, len))?,
            Op::Seal(name) => file.snapshot(name).map(drop)?,
            Op::DropSnapshot(name) => file.drop_snapshot(name)?,
            Op::RollBack(name, undo) => file.roll_back(name, *undo)?,
            Op::SyncAndCheckpoint => {
                let before = file.stats().checkpoints;
                file.sync()?;
                wait_for(file, || file.stats().checkpoints > before)?;
            }
            Op::WriteAndWait(at, len) => {
                let points = || file.stats().journal_points + file.stats().flush_points;
                let before = points();
                file.write_at(&Op::data(n, *at, *len), *at)?;
                wait_for(file, || points() > before)?;
            }
            Op::TryClone => {
                let other = file.try_clone()?;
                let mut found = vec![0; 100];
                other.read_at(&mut found, 50)?;
                same(&found, &model[50..150], "read by another handle")?;
            }
        }
        Ok(())
    }

    /// Returns `true` if the call makes a file of `len` bytes shorter.
    pub fn shrinks(&self, len: u64) -> bool {
        match self {
            Op::SetLen(new) => *new < len,
            Op::Replace(new) => (*new as u64) < len,
            Op::Import(stream) | Op::Resume(stream, _) => stream.len < len,
            _ => false,
        }
    }

    /// Applies the call to the model of the content and of the snapshots. `home` returns the home
    /// file's bytes.
    pub fn apply(
        &self,
        n: usize,
        (model, sealed): (&mut Vec<u8>, &mut Sealed),
        home: impl FnOnce() -> Vec<u8>,
    ) {
        let mut write = |at: u64, len: usize| {
            model[at as usize..at as usize + len].copy_from_slice(&Op::data(n, at, len));
        };
        match self {
            Op::Write(at, len) | Op::View(_, Some((at, len))) | Op::WriteAndWait(at, len) => {
                write(*at, *len);
            }
            Op::Tx(parts) => parts.iter().for_each(|(at, len)| write(*at, *len)),
            Op::Update(from, to) => {
                let word = model[*from as usize..*from as usize + 8].to_vec();
                model[*to as usize..*to as usize + 8].copy_from_slice(&word);
            }
            Op::SetLen(len) => model.resize(*len as usize, 0),
            Op::Replace(len) => *model = Op::data(n, 0, *len),
            Op::Open(how) => match how.expected {
                Opened::New(len) => *model = vec![0; len as usize],
                Opened::HomeBytes => *model = home(),
                Opened::Whole | Opened::Point | Opened::Refused(_) => {}
            },
            Op::Read(..) | Op::View(_, None) | Op::Deploy(_) | Op::TryClone => {}
            Op::Sync | Op::SyncAndCheckpoint => {}
            Op::Space(op) => op.writes().iter().for_each(|(at, len)| write(*at, *len)),
            Op::Close(_) | Op::Drop => {}
            Op::Export(..) | Op::BreakImport(..) | Op::ImportNew(_) => {}
            Op::Import(stream) | Op::Resume(stream, _) => {
                // The call before has begun the stream that this one ends.
                let n = if matches!(self, Op::Resume(..)) { n - 1 } else { n };
                *model = stream.content(n, model);
                sealed.insert(stream.name.to_owned(), model.clone());
            }
            Op::Seal(name) => drop(sealed.insert((*name).to_owned(), model.clone())),
            Op::DropSnapshot(name) => drop(sealed.remove(*name)),
            Op::RollBack(name, undo) => {
                let back = sealed[*name].clone();
                let present = std::mem::replace(model, back);
                undo.map(|undo| sealed.insert(undo.to_owned(), present));
            }
        }
    }
}
