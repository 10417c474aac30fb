//! What do threads do to a file, and how is it written down?
//!
//! Owns: the cells of a file, the operations that one thread does to them, and their stamps. It
//! runs on any threads, those of the system or of a scheduler: nothing here starts one or waits.
//! May import `history`.
//!
//! A stamp is taken right before the call and right after the return, so that an operation's moment
//! lies between them. Taking one is a locked instruction: what a thread's own stores do that have not
//! arrived when its next operation begins is not seen here (`tests/regressions.rs` has a loop without
//! stamps for that).

use super::history::{Cell, Moment, Operation, TORN, Value};
use atomic_mmap::{AtomicMappedFile, Error, Transaction, View};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
const REGION: u64 = 262_144;

/// Where the cells are, in order, and how many bytes each has: two in one slice, one over half a
/// slice boundary, one over two pages, one of a whole page, two of two whole pages each (their words
/// are bits of one region word), one over two regions. A range from one cell to another covers those
/// in between, so that ranges overlap in all ways, and the long ones take the locks of regions.
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

/// How long a file has to be.
pub const FILE_LEN: u64 = 2 * REGION;

/// Number of cells.
pub const CELL_COUNT: usize = CELLS.len();

/// Between the cells is this.
const FILLER: u8 = 0xEE;

/// What a thread chooses among.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// The first and the last cell that are used: the fewer, the more threads meet.
    pub cells: (Cell, Cell),
    /// Only reads, writes, and bringing pages home: a reader of a slot meets who brings it home and
    /// then who writes over it.
    pub mostly_deploys: bool,
    /// Operations a thread does.
    pub operations: usize,
}

/// Writes down what happens to one file.
#[derive(Debug)]
pub struct Recorder {
    file: AtomicMappedFile,
    clock: AtomicU64,
}

fn range_of(from: Cell, to: Cell) -> Range<u64> {
    CELLS[from].0..CELLS[to].0 + CELLS[to].1 as u64
}

/// A cell's bytes hold its value again and again.
fn fill(bytes: &mut [u8], value: Value) {
    bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&value.to_le_bytes()));
}

fn value_of(bytes: &[u8]) -> Value {
    let mut words = bytes.chunks(8).map(|word| word.try_into().map_or(TORN, u64::from_le_bytes));
    let first = words.next().unwrap_or(TORN);
    if words.all(|word| word == first) { first } else { TORN }
}

/// What the cells from `from` to `to` hold, in the bytes of their range.
fn values(bytes: &[u8], from: Cell, to: Cell) -> Vec<(Cell, Value)> {
    let base = CELLS[from].0;
    let at = |cell: Cell| (CELLS[cell].0 - base) as usize;
    (from..=to).map(|c| (c, value_of(&bytes[at(c)..at(c) + CELLS[c].1]))).collect()
}

/// Bytes in which the cells from the first to the last of `written` hold these values.
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

/// What became of an attempt at a transaction.
enum Attempt {
    Committed,
    /// And when it had read for the last time.
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
    /// Of a file of at least [`FILE_LEN`] bytes, all of them zero.
    pub fn new(file: AtomicMappedFile) -> Recorder {
        Recorder { file, clock: AtomicU64::new(1) }
    }

    /// The file.
    pub fn file(&self) -> &AtomicMappedFile {
        &self.file
    }

    /// Gives the file back.
    pub fn into_file(self) -> AtomicMappedFile {
        self.file
    }

    fn stamp(&self) -> Moment {
        self.clock.fetch_add(1, Ordering::SeqCst)
    }

    /// Does what one thread does. Its values are `first_value` and those after it, one for each cell
    /// that is written: no other thread may use them.
    ///
    /// # Errors
    /// Whatever the file says, but for conflicts, which are part of it.
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

    /// Writes all cells, before anybody begins: the first operation of a history.
    ///
    /// # Errors
    /// Whatever the file says.
    pub fn write_all(&self, thread: usize, first_value: Value) -> Result<Operation, Error> {
        let mut worker = Worker::on_all_cells(self, thread, first_value);
        worker.write(0, CELL_COUNT - 1)?;
        Ok(worker.done.remove(0))
    }

    /// Reads all cells, when everybody is done: the last operation of a history.
    ///
    /// # Errors
    /// Whatever the file says.
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

    /// Some cells next to each other: mostly few.
    fn cells(&self, rng: &mut fastrand::Rng) -> (Cell, Cell) {
        let (first, last) = self.mix.cells;
        let from = rng.usize(first..=last);
        let more = if rng.u32(0..4) == 0 { rng.usize(0..=last - from) } else { rng.usize(0..=1) };
        (from, (from + more).min(last))
    }

    /// One of those that are a `u64`.
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

    /// An operation that begins now.
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

    /// It has returned just now.
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
                35..65 => self.write(from, to),
                _ => self.deploy(from, to),
            };
        }
        match choice {
            0..30 => self.read(from, to),
            30..55 => self.write(from, to),
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

    /// Reads some ranges and writes some, and commits, or does not.
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
            // What it has read is still one state, of a moment before it heard of the conflict.
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

    /// Takes a view: one state, of a moment of this call, whenever it is read.
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

/// What a transaction leaves in each cell that it wrote.
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
