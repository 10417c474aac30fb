//! Compares what operations do, step by step, with what they did before.
//!
//! Each file beside this one has a group of cases. A line is one trace: its case, and each store,
//! copy, flush, drain and call, by the kind of place that it goes to. `+` stands for a store past
//! the cache. A case is warmed up first, unless its name says otherwise, and traced twice, because
//! its slots lie on two sides by turns.
//!
//! A change of the engine that means to change no step changes none here. After one that does,
//! `SNAPSHOTS=overwrite cargo test -p atomic-mmap-instrumented --test it -- golden::` writes the
//! files anew, and their difference is read as that of a source.

mod dax;
mod other;

use crate::common::{Ground, Rng, Scratch};
use atomic_mmap::testing::recorder::{Recorder, What};
use atomic_mmap::testing::{FileId, LaneIndex, PageIndex, RegionIndex, layout};
use atomic_mmap::{AtomicMappedFile, CloseMode, Options, Result};
use std::fmt::Write;

const PAGE: u64 = 4096;
const REGION: u64 = 64 * PAGE;
const CHUNK: u64 = 2 << 20;

/// Returns the kind of the place at this offset of a file.
fn place(file: FileId, offset: u64) -> &'static str {
    let [slices, durable, sums, regions, slots] = [
        layout::slice_word(PageIndex(0)),
        layout::durable_word(PageIndex(0)),
        layout::page_sums(PageIndex(0)),
        layout::region_word(RegionIndex(0)),
        layout::reflection(0),
    ];
    // Cases lie in the first two superchunks.
    let next = layout::superchunk(1);
    let of_first = if offset >= next { offset - next + layout::superchunk(0) } else { offset };
    let lanes = layout::LANES..layout::lane(LaneIndex(layout::LANE_COUNT as u16));
    match file {
        FileId::Home => "home",
        FileId::Reflection if of_first >= slots => "refl",
        FileId::Reflection if of_first >= regions => "region-word",
        FileId::Reflection if of_first >= sums => "sum",
        FileId::Reflection if of_first >= durable => "durable-word",
        FileId::Reflection if of_first >= slices => "slice-word",
        FileId::Reflection if offset >= layout::LOG_AREA => "log",
        FileId::Reflection if lanes.contains(&offset) => {
            match (offset - layout::LANES) as usize % layout::LANE < layout::UNDO_ENTRY {
                true => "flip-record",
                false => "undo-record",
            }
        }
        FileId::Reflection => "state",
        FileId::Journal => "journal",
        _ => "store",
    }
}

/// Returns one step of a trace as a word or two.
fn step(what: &What) -> String {
    let past = |through: &bool| if *through { "+" } else { "" };
    match what {
        What::Store { file, offset, through, .. } => {
            format!("{}{}", place(*file, *offset), past(through))
        }
        What::CompareExchange { file, offset, .. } => format!("swap {}", place(*file, *offset)),
        What::Copy { file, offset, bytes, through } => {
            format!("{}{} {}", bytes.len(), past(through), place(*file, *offset))
        }
        What::Flush { file, offset, .. } => format!("flush {}", place(*file, *offset)),
        What::Drain => "drain".to_owned(),
        What::Sync { file, all } => format!("sync {file:?}{}", if *all { " all" } else { "" }),
        What::SyncDir { .. } => "sync-folder".to_owned(),
        What::Allocate { file, offset, len } => format!("allocate {len} {}", place(*file, *offset)),
        What::Punch { file, offset, len } => format!("punch {len} {}", place(*file, *offset)),
        What::SetLen { file, .. } => format!("set-len {file:?}"),
        What::Write { file, offset, bytes } => {
            format!("write {} {}", bytes.len(), place(*file, *offset))
        }
        What::WriteDurably { file, offset, bytes } => {
            format!("write-durably {} {}", bytes.len(), place(*file, *offset))
        }
        What::Read { file, offset, len } => format!("read {len} {}", place(*file, *offset)),
        What::Rename { .. } => "rename".to_owned(),
        What::Remove { .. } => "remove".to_owned(),
        What::Os(call) => (*call).to_owned(),
        What::Failed(call) => format!("failed {call}"),
    }
}

/// A file, and the traces of operations on it.
struct Traced {
    file: AtomicMappedFile,
    recorder: Recorder,
    traces: String,
    scratch: Scratch,
}

impl Traced {
    /// Opens a new file of `len` bytes with bytes in its first chunk.
    fn new(ground: &Ground, len: u64, options: fn(Options) -> Options) -> Traced {
        let (scratch, recorder) = (ground.scratch(), Recorder::new());
        recorder.hold_background();
        let options = options(ground.options()).create(true).len(len);
        let file = options.open_recorded(&recorder, scratch.file("state")).expect("open");
        let first = len.min(CHUNK) as usize;
        for n in 0..2 {
            file.write_at(&Rng(n).bytes(first), 0).expect("write");
        }
        Traced { file, recorder, traces: String::new(), scratch }
    }

    /// Closes the file so, and opens it again.
    fn reopen(self, ground: &Ground, options: fn(Options) -> Options, how: CloseMode) -> Traced {
        let Traced { file, recorder, traces, scratch } = self;
        file.close(how).map(drop).expect("close");
        let options = options(ground.options());
        let file = options.open_recorded(&recorder, scratch.file("state")).expect("open");
        Traced { file, recorder, traces, scratch }
    }

    /// Adds the trace of `call`.
    fn trace<T>(&mut self, name: &str, call: impl FnOnce(&AtomicMappedFile) -> Result<T>) {
        self.recorder.take();
        call(&self.file).map(drop).unwrap_or_else(|e| panic!("{name}: {e}"));
        let steps: Vec<String> = self.recorder.take().iter().map(|e| step(&e.what)).collect();
        let _never_fails = write!(self.traces, "{name}:");
        for same in steps.chunk_by(|a, b| a == b) {
            let _never_fails = match same.len() {
                1 => write!(self.traces, " {},", same[0]),
                n => write!(self.traces, " {n}x {},", same[0]),
            };
        }
        self.traces.pop();
        self.traces.push('\n');
    }

    /// Adds two traces of `call`, which was made three times before.
    fn warm(&mut self, name: &str, call: impl Fn(&AtomicMappedFile) -> Result<()>) {
        for _ in 0..3 {
            call(&self.file).unwrap_or_else(|e| panic!("{name}: {e}"));
        }
        self.trace(name, &call);
        self.trace(name, &call);
    }

    /// Adds two traces of a write.
    fn write(&mut self, kind: &str, len: u64, offset: u64) {
        let bytes = Rng(len).bytes(len as usize);
        self.warm(&format!("{kind}{len} at {offset}"), |file| file.write_at(&bytes, offset));
    }
}
