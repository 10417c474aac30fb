//! The operations of threads on a file, and their recording.
//!
//! Owns: the cells of a file, the operations of one thread on them, and their stamps. The code runs
//! on any threads, those of the system or of a scheduler: it starts no thread and never waits. May
//! import `history`.
//!
//! The recorder takes a stamp right before the call and right after the return, so the operation
//! happens between them. Taking a stamp is a locked instruction. So a test here cannot see a store
//! of a thread that is still on its way when the thread's next operation begins.
//! `tests/it/regressions.rs` has a loop without stamps for that.

use super::history::{Cell, Moment, Operation, TORN, Value};
use atomic_mmap::{AtomicMappedFile, Error, Transaction, View, testing};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
const REGION: u64 = 262_144;

/// The offsets and lengths of the cells, in order. There are two in one slice, one across half a
/// slice boundary, one across two pages, and one of a whole page. Two have two whole pages each,
/// with words that are bits of one region word. One crosses two regions. A range from one cell to
/// another covers the cells in between. So ranges overlap in all ways, and long ones take the locks
/// of regions.
const CELLS: [(u64, usize); 11] = [
    (8, 8),
    (16, 8),
    (96, 64),
    (PAGE - 24, 48),
    (PAGE + 512, 8),
    (2 * PAGE, 4096),
    (12 * PAGE + 64, 64),
    (20 * PAGE, 8192),
    (24 * PAGE, 8192),
    (REGION - 32, 64),
    (REGION + 3 * PAGE, 8),
];

/// Minimum length of a file.
pub const FILE_LEN: u64 = 2 * REGION;

/// Number of cells.
pub const CELL_COUNT: usize = CELLS.len();

/// The byte between the cells.
const FILLER: u8 = 0xEE;

/// The choice of operations of a thread.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// The first and the last used cell. With fewer cells, threads meet more often.
    pub cells: (Cell, Cell),
    /// Only reads, writes and deployments. A reader of a slot then meets a thread that deploys the
    /// slot, and another one that overwrites it.
    pub mostly_deploys: bool,
    /// Number of operations of a thread.
    pub operations: usize,
}

/// A recorder of the operations on one file.
#[derive(Debug)]
pub struct Recorder {
    file: AtomicMappedFile,
    clock: AtomicU64,
}

fn range_of(from: Cell, to: Cell) -> Range<u64> {
    CELLS[from].0..CELLS[to].0 + CELLS[to].1 as u64
}

/// Fills the bytes of a cell with repetitions of its value.
fn fill(bytes: &mut [u8], value: Value) {
    bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
}

fn value_of(bytes: &[u8]) -> Value {
    let mut words = bytes.chunks(8).map(|word| word.try_into().map_or(TORN, u64::from_le_bytes));
    let first = words.next().unwrap_or(TORN);
    if words.all(|word| word == first) { first } else { TORN }
}

/// Returns the values of the cells from `from` to `to` in the bytes of their range.
fn values(bytes: &[u8], from: Cell, to: Cell) -> Vec<(Cell, Value)> {
    let base = CELLS[from].0;
    let at = |cell: Cell| (CELLS[cell].0 - base) as usize;
    (from..=to).map(|c| (c, value_of(&bytes[at(c)..at(c) + CELLS[c].1]))).collect()
}

/// Returns bytes in which the cells from the first to the last of `written` have these values.
fn bytes_of(written: &[(Cell, Value)]) -> Vec<u8> {
    let (from, to) = (written[0].0, written[written.len() - 1].0);
    let range = range_of(from, to);
    let mut bytes = vec![FILLER; (range.end - range.start) as usize];
    for &(cell, value) in written {
        let at = (CELLS[cell].0 - range.start) as usize;
        fill(&mut bytes[at..at + CELLS[cell].1], value);
    }
    bytes
}

/// The result of an attempt at a transaction.
enum Attempt {
    Committed,
    /// Rolled back, with the moment after the last read.
    TakenBack(Moment),
}

/// A view that is read some time after it was taken.
struct Taken<'a> {
    view: View<'a>,
    operation: Operation,
    cells: (Cell, Cell),
    left: usize,
}

impl Recorder {
    /// Creates the recorder of a file. The file has at least [`FILE_LEN`] bytes, all of them zero.
    pub fn new(file: AtomicMappedFile) -> Recorder {
        Recorder { file, clock: AtomicU64::new(1) }
    }

    /// Returns the file.
    pub fn file(&self) -> &AtomicMappedFile {
        &self.file
    }

    /// Returns the file and ends the recording.
    pub fn into_file(self) -> AtomicMappedFile {
        self.file
    }

    fn stamp(&self) -> Moment {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Runs the operations of one thread. The thread writes the values from `first_value` on, one
    /// for each cell. No other thread may use them.
    ///
    /// # Errors
    /// All errors of the file, except for conflicts, which are part of the test.
    pub fn work(
        &self,
        thread: usize,
        mix: Mix,
        first_value: Value,
        rng: &mut fastrand::Rng,
    ) -> Result<Vec<Operation>, Error> {
        let mut worker =
            Worker { recorder: self, thread, mix, next_value: first_value, done: Vec::new() };
        let mut taken: Option<Taken<'_>> = None;
        for _ in 0..mix.operations {
            worker.one(rng, &mut taken)?;
            if let Some(view) = taken.take_if(|view| view.left == 0) {
                worker.read_view(view)?;
            }
            if let Some(view) = &mut taken {
                view.left -= 1;
            }
        }
        if let Some(view) = taken {
            worker.read_view(view)?;
        }
        Ok(worker.done)
    }

    /// Writes all cells before any other thread begins: the first operation of a history.
    ///
    /// # Errors
    /// All errors of the file.
    pub fn write_all(&self, thread: usize, first_value: Value) -> Result<Operation, Error> {
        let mut worker = Worker::on_all_cells(self, thread, first_value);
        worker.write(0, CELL_COUNT - 1)?;
        Ok(worker.done.remove(0))
    }

    /// Reads all cells after all threads have ended: the last operation of a history.
    ///
    /// # Errors
    /// All errors of the file.
    pub fn read_all(&self, thread: usize) -> Result<Operation, Error> {
        let mut worker = Worker::on_all_cells(self, thread, 0);
        worker.read(0, CELL_COUNT - 1)?;
        Ok(worker.done.remove(0))
    }
}

struct Worker<'a> {
    recorder: &'a Recorder,
    thread: usize,
    mix: Mix,
    next_value: Value,
    done: Vec<Operation>,
}

impl<'a> Worker<'a> {
    fn on_all_cells(recorder: &'a Recorder, thread: usize, next_value: Value) -> Self {
        let mix = Mix { cells: (0, CELL_COUNT - 1), mostly_deploys: false, operations: 1 };
        Worker { recorder, thread, mix, next_value, done: Vec::new() }
    }

    /// Returns some adjacent cells, mostly few.
    fn cells(&self, rng: &mut fastrand::Rng) -> (Cell, Cell) {
        let (first, last) = self.mix.cells;
        let from = rng.usize(first..=last);
        let more = if rng.u32(0..4) == 0 { rng.usize(0..=last - from) } else { rng.usize(0..=1) };
        (from, (from + more).min(last))
    }

    /// Returns a cell that is a `u64`.
    fn word(&self, rng: &mut fastrand::Rng) -> Option<Cell> {
        let (first, last) = self.mix.cells;
        let words: Vec<Cell> = (first..=last).filter(|&c| CELLS[c].1 == 8).collect();
        (!words.is_empty()).then(|| words[rng.usize(0..words.len())])
    }

    fn new_values(&mut self, from: Cell, to: Cell) -> Vec<(Cell, Value)> {
        (from..=to)
            .map(|cell| {
                self.next_value += 1;
                (cell, self.next_value - 1)
            })
            .collect()
    }

    /// Returns an operation that begins now.
    fn begin(&self, what: &'static str) -> Operation {
        Operation {
            thread: self.thread,
            what,
            call: self.recorder.stamp(),
            ret: None,
            reads: Vec::new(),
            writes: Vec::new(),
        }
    }

    /// Ends an operation that has just returned.
    fn end(&mut self, mut operation: Operation) {
        operation.ret = Some(self.recorder.stamp());
        self.done.push(operation);
    }

    fn one(&mut self, rng: &mut fastrand::Rng, taken: &mut Option<Taken<'a>>) -> Result<(), Error> {
        let (from, to) = self.cells(rng);
        let choice = rng.u32(0..100);
        if self.mix.mostly_deploys {
            return match choice {
                0..35 => self.read(from, to),
                35..58 => self.write(from, to),
                58..65 => self.stage(from, to, rng),
                65..75 => {
                    testing::deploy_idle(&self.recorder.file);
                    Ok(())
                }
                _ => self.deploy(from, to),
            };
        }
        match choice {
            0..30 => self.read(from, to),
            30..48 => self.write(from, to),
            48..55 => self.stage(from, to, rng),
            55..65 => match self.word(rng) {
                Some(cell) => self.swap(cell),
                None => self.write(from, to),
            },
            65..73 => match self.word(rng) {
                Some(cell) => self.exchange(cell, rng),
                None => self.read(from, to),
            },
            73..88 => self.transaction(rng),
            88..93 if taken.is_none() => {
                *taken = Some(self.view(from, to, rng.usize(0..4))?);
                Ok(())
            }
            88..93 => self.read(from, to),
            _ => self.deploy(from, to),
        }
    }

    fn deploy(&self, from: Cell, to: Cell) -> Result<(), Error> {
        self.recorder.file.deploy(range_of(from, to)).map(|_| ())
    }

    fn read(&mut self, from: Cell, to: Cell) -> Result<(), Error> {
        let range = range_of(from, to);
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let mut operation = self.begin("read");
        self.recorder.file.read_at(&mut bytes, range.start)?;
        operation.reads = values(&bytes, from, to);
        self.end(operation);
        Ok(())
    }

    fn write(&mut self, from: Cell, to: Cell) -> Result<(), Error> {
        let writes = self.new_values(from, to);
        let bytes = bytes_of(&writes);
        let mut operation = self.begin("write");
        operation.writes = writes;
        self.recorder.file.write_at(&bytes, CELLS[from].0)?;
        self.end(operation);
        Ok(())
    }

    /// Fills a stage, and commits it or drops it. Its first cell may come from a write in the same
    /// operation.
    fn stage(&mut self, from: Cell, to: Cell, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let writes = self.new_values(from, to);
        let bytes = bytes_of(&writes);
        let file = &self.recorder.file;
        let mut stage = file.stage(range_of(from, to))?;
        let cut = if rng.bool() { CELLS[from].1 } else { 0 };
        stage.write_at(&bytes[cut..], cut as u64)?;
        if rng.u32(0..8) == 0 {
            return Ok(());
        }
        let mut operation = self.begin("stage and commit");
        operation.writes = writes;
        file.transact_with(&mut [stage], |tx| tx.write_at(&bytes[..cut], CELLS[from].0))?;
        self.end(operation);
        Ok(())
    }

    fn swap(&mut self, cell: Cell) -> Result<(), Error> {
        let writes = self.new_values(cell, cell);
        let slot = self.recorder.file.slot::<u64>(CELLS[cell].0)?;
        let mut operation = self.begin("swap");
        let old = slot.swap(&writes[0].1)?;
        operation.reads = vec![(cell, old)];
        operation.writes = writes;
        self.end(operation);
        Ok(())
    }

    fn exchange(&mut self, cell: Cell, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let slot = self.recorder.file.slot::<u64>(CELLS[cell].0)?;
        let mut look = self.begin("load");
        let seen = slot.load()?;
        look.reads = vec![(cell, seen)];
        self.end(look);
        let expected = if rng.u32(0..4) == 0 { Value::MAX / 2 } else { seen };
        let writes = self.new_values(cell, cell);
        let mut operation = self.begin("compare and exchange");
        match slot.compare_exchange(&expected, &writes[0].1)? {
            Ok(()) => {
                operation.reads = vec![(cell, expected)];
                operation.writes = writes;
            }
            Err(found) => operation.reads = vec![(cell, found)],
        }
        self.end(operation);
        Ok(())
    }

    /// Reads some ranges and writes some, and commits or rolls back.
    fn transaction(&mut self, rng: &mut fastrand::Rng) -> Result<(), Error> {
        let looks: Vec<(Cell, Cell)> = (0..rng.usize(0..3)).map(|_| self.cells(rng)).collect();
        let stores: Vec<(Cell, Cell)> = (0..rng.usize(0..3)).map(|_| self.cells(rng)).collect();
        let gives_up = rng.u32(0..5) == 0;
        let writes: Vec<Vec<(Cell, Value)>> =
            stores.iter().map(|&(from, to)| self.new_values(from, to)).collect();
        let mut operation = self.begin("transaction");
        let mut reads = Vec::new();
        match self.attempt(&looks, &writes, gives_up, operation.call, &mut reads)? {
            Attempt::Committed => {
                operation.reads = reads;
                operation.writes = last_of_each_cell(&writes);
                self.end(operation);
            }
            // The values read are still one state, from a moment before the conflict was reported.
            Attempt::TakenBack(last_read) if !reads.is_empty() => {
                operation.what = "transaction, taken back";
                operation.reads = reads;
                operation.ret = Some(last_read);
                self.done.push(operation);
            }
            Attempt::TakenBack(_) => {}
        }
        Ok(())
    }

    fn attempt(
        &self,
        looks: &[(Cell, Cell)],
        writes: &[Vec<(Cell, Value)>],
        gives_up: bool,
        call: Moment,
        reads: &mut Vec<(Cell, Value)>,
    ) -> Result<Attempt, Error> {
        let mut transaction: Transaction<'_> = self.recorder.file.begin();
        let mut last_read = call;
        for &(from, to) in looks {
            let range = range_of(from, to);
            let mut bytes = vec![0; (range.end - range.start) as usize];
            match transaction.read_at(&mut bytes, range.start) {
                Err(Error::Conflict { .. }) => return Ok(Attempt::TakenBack(last_read)),
                other => other?,
            }
            last_read = self.recorder.stamp();
            reads.extend(values(&bytes, from, to));
        }
        for written in writes {
            transaction.write_at(&bytes_of(written), CELLS[written[0].0].0)?;
        }
        if gives_up {
            transaction.rollback();
            return Ok(Attempt::TakenBack(last_read));
        }
        match transaction.commit() {
            Ok(()) => Ok(Attempt::Committed),
            Err(Error::Conflict { .. }) => Ok(Attempt::TakenBack(last_read)),
            Err(error) => Err(error),
        }
    }

    /// Takes a view: one state from a moment of this call, at any time of the read.
    fn view(&self, from: Cell, to: Cell, left: usize) -> Result<Taken<'a>, Error> {
        let mut operation = self.begin("view");
        let view = self.recorder.file.view(range_of(from, to))?;
        operation.ret = Some(self.recorder.stamp());
        Ok(Taken { view, operation, cells: (from, to), left })
    }

    fn read_view(&mut self, taken: Taken<'a>) -> Result<(), Error> {
        let Taken { view, mut operation, cells: (from, to), .. } = taken;
        operation.reads = values(&view.to_vec()?, from, to);
        self.done.push(operation);
        Ok(())
    }
}

/// Returns the last value that a transaction wrote to each cell.
fn last_of_each_cell(writes: &[Vec<(Cell, Value)>]) -> Vec<(Cell, Value)> {
    let mut last: Vec<(Cell, Value)> = Vec::new();
    for &(cell, value) in writes.iter().flatten() {
        match last.iter_mut().find(|(other, _)| *other == cell) {
            Some((_, held)) => *held = value,
            None => last.push((cell, value)),
        }
    }
    last
}
