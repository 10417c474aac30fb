//! What did the lanes say at the crash, and what is done about it? Scan, decide, apply.
//!
//! Recovery looks at the lanes and at what they spilled, so its time depends on the operations that
//! were in flight and not on the file's size. It is
//! idempotent: until the superblock of the new session is durable the entries stay as they are and
//! a second recovery does the same again; with it, every entry is void, because the session number
//! is in their checksums. Rules and order are those of `docs/model/engine_commit.py`:
//! 1. words are taken back by undo entries (several may share a region word: masks commute);
//! 2. redo entries are stored in place, each lane's older one first, only into slots that are
//!    valid now; a cleared entry voids its lane's older one;
//! 3. logged data is stored into the reflection slots, and their words are set.

use crate::bitmap::{Slices, Validity};
use crate::error::{Error, Result};
use crate::format::entry::{
    EntrySeed, OldBits, RECORD, Redo, RedoFound, SPILLED_PAGE_MAX, Seed, Sequence, Spill, SpillSum,
    SpilledPage, Undo, UndoBody, WordId,
};
use crate::format::layout;
use crate::mutant::{planted, unless};
use crate::platform::{Copying, File, FileId, Platform};
use crate::store::MappedFile;
use crate::units::{LaneIndex, PAGE, PageIndex, SLICE};
use std::path::Path;

/// What one lane's undo entry turned out to be, spilled parts included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum UndoFound {
    Empty,
    /// Not written whole: no word was applied.
    Torn,
    /// Words may have been applied, and are taken back.
    Words(Vec<OldBits>),
    /// Committed: these slices belong into the reflection slots.
    Data(Vec<SpilledPage>),
}

/// What was found in one lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Findings {
    pub redo: [RedoFound; 2],
    pub undo: UndoFound,
}

/// What is done about one lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Actions {
    /// Step 1.
    pub take_back: Vec<OldBits>,
    /// Step 2, in this order.
    pub store_in_place: Vec<Redo>,
    /// Step 3.
    pub store_logged: Vec<SpilledPage>,
}

/// The lanes of a reflection file, as a program that reads it finds them.
struct Log<'a> {
    platform: &'a Platform,
    file: &'a File,
    path: &'a Path,
}

impl Log<'_> {
    fn read(&self, to: &mut [u8], at: u64) -> Result<()> {
        self.platform
            .read_at(self.file, FileId::Reflection, to, at)
            .map_err(|e| Error::io_at("read the log", self.path, at, e))
    }

    /// The lanes in which something is: their number and their bytes. A lane that was never used is a
    /// hole of the file, and is not read.
    fn in_use(&self) -> impl Iterator<Item = Result<(LaneIndex, [u8; layout::LANE])>> {
        let mut next = 0;
        std::iter::from_fn(move || {
            if next >= layout::LANE_COUNT {
                return None;
            }
            let from = layout::lane(LaneIndex(next as u16));
            let data = match self.platform.next_data(self.file, from) {
                Ok(data) => data?.max(from),
                Err(e) => {
                    next = layout::LANE_COUNT;
                    return Some(Err(Error::io_at("look for data", self.path, from, e)));
                }
            };
            let n = ((data - layout::LANES) / layout::LANE as u64) as usize;
            next = n + 1;
            if n >= layout::LANE_COUNT {
                return None;
            }
            let index = LaneIndex(n as u16);
            let mut bytes = [0; layout::LANE];
            Some(self.read(&mut bytes, layout::lane(index)).map(|()| (index, bytes)))
        })
    }
}

/// Reads every lane that is in use. `None`: the entries say what cannot have been written.
pub(crate) fn scan(
    platform: &Platform,
    reflection: &File,
    path: &Path,
    seed: Seed,
) -> Result<Option<Vec<Findings>>> {
    let log = Log { platform, file: reflection, path };
    let mut found = Vec::new();
    let mut spilled_bytes = 0;
    for lane in log.in_use() {
        let (index, bytes) = lane?;
        // Where they lie: copying them out byte by byte took more time than all else of an open.
        let (redo_entries, _) = bytes.as_chunks::<{ layout::REDO_ENTRY }>();
        let redo = std::array::from_fn(|position| {
            Redo::decode(seed.redo(index, position), &redo_entries[position])
        });
        const { assert!(layout::UNDO_ENTRY.is_multiple_of(layout::UNDO_ENTRY_LEN)) };
        let (parts, _) = bytes.as_chunks::<{ layout::UNDO_ENTRY_LEN }>();
        let entry = &parts[layout::UNDO_ENTRY / layout::UNDO_ENTRY_LEN];
        let entry_seed = seed.undo(index);
        let undo = match Undo::decode(entry_seed, entry) {
            crate::format::entry::Found::Empty => UndoFound::Empty,
            crate::format::entry::Found::Torn => UndoFound::Torn,
            crate::format::entry::Found::Valid(Undo { sequence, body }) => match body {
                UndoBody::Inline(words) => UndoFound::Words(words),
                UndoBody::SpilledUndo(spill) | UndoBody::SpilledRedo(spill) => {
                    // Entries do not share extents: more than there is cannot have been written.
                    spilled_bytes += spill.len;
                    if spilled_bytes > layout::LOG_AREA_LEN {
                        return Ok(None);
                    }
                    let spilled = Spilled { log: &log, entry_seed, sequence, spill };
                    match body {
                        UndoBody::SpilledUndo(_) => spilled.words()?.map(UndoFound::Words),
                        _ => spilled.pages()?.map(UndoFound::Data),
                    }
                    .unwrap_or(UndoFound::Torn)
                }
            },
        };
        found.push(Findings { redo, undo });
    }
    Ok(Some(found))
}

/// What an undo entry says that it has spilled. It may say so of 256 MiB that nobody wrote, in a file
/// that has holes there: what is read costs DRAM only as far as it turned out to be what was spilled.
struct Spilled<'a> {
    log: &'a Log<'a>,
    entry_seed: EntrySeed,
    sequence: Sequence,
    spill: Spill,
}

impl Spilled<'_> {
    /// Whole records, and so large a part that reading it costs less than what is in it.
    const PIECE: usize = (1 << 20) / RECORD * RECORD;

    /// Hands over what was spilled, in pieces that all but the last have the same length, until it is
    /// not wanted any more. Whether it was wanted to the end.
    fn each_piece(&self, mut take: impl FnMut(&[u8]) -> bool) -> Result<bool> {
        let mut bytes = vec![0; Self::PIECE.min(self.spill.len as usize)];
        let (mut at, mut left) = (layout::LOG_AREA + self.spill.offset, self.spill.len as usize);
        while left > 0 {
            let piece = &mut bytes[..Self::PIECE.min(left)];
            self.log.read(piece, at)?;
            if !take(piece) {
                return Ok(false);
            }
            at += piece.len() as u64;
            left -= piece.len();
        }
        Ok(true)
    }

    /// Whether it was written whole.
    fn is_whole(&self) -> Result<bool> {
        let mut sum = SpillSum::new(self.entry_seed, self.sequence);
        self.each_piece(|piece| {
            sum.add(piece);
            true
        })?;
        Ok(self.spill.matches(sum))
    }

    /// The old bits of words. `None`: torn.
    fn words(&self) -> Result<Option<Vec<OldBits>>> {
        let mut words = Vec::new();
        let all = self.is_whole()?
            && self.each_piece(|piece| {
                OldBits::decode_all(piece).map(|more| words.extend(more)).is_some()
            })?;
        Ok(all.then_some(words))
    }

    /// Pages of logged data. `None`: torn.
    fn pages(&self) -> Result<Option<Vec<SpilledPage>>> {
        let mut pages = Vec::new();
        // The beginning of a page whose end is in the next piece.
        let mut begun: Vec<u8> = Vec::new();
        let all = self.is_whole()?
            && self.each_piece(|piece| {
                begun.extend_from_slice(piece);
                let mut rest = &begun[..];
                while let Some(page) = SpilledPage::decode_first(&mut rest) {
                    pages.push(page);
                }
                let left = rest.len();
                begun.drain(..begun.len() - left);
                // More than any page has: not the beginning of one.
                left < SPILLED_PAGE_MAX
            })?;
        Ok((all && begun.is_empty()).then_some(pages))
    }
}

/// The decision table of one lane: the row of the undo entry, and the row of the two redo entries.
pub(crate) fn decide(found: Findings) -> Actions {
    let (take_back, store_logged) = match found.undo {
        UndoFound::Empty | UndoFound::Torn => (Vec::new(), Vec::new()),
        UndoFound::Words(words) => (words, Vec::new()),
        UndoFound::Data(pages) => (Vec::new(), pages),
    };
    use RedoFound::{Cleared, Empty, Torn, Valid};
    let [a, b] = found.redo;
    let newer = |one: Sequence, other: Sequence| other.is_before(one) ^ planted!(RecoverNewerFirst);
    let store_in_place = match (a, b) {
        (Empty | Torn | Cleared(_), Empty | Torn | Cleared(_)) => vec![],
        (Valid(one), Empty | Torn) | (Empty | Torn, Valid(one)) => vec![one],
        // What was stored before the cleared entry is durable; replaying it would be a step back.
        (Valid(one), Cleared(gone)) | (Cleared(gone), Valid(one)) => {
            let counts = newer(one.sequence, gone) || planted!(RecoverTombstoneIgnored);
            if counts { vec![one] } else { vec![] }
        }
        (Valid(a), Valid(b)) => {
            if newer(a.sequence, b.sequence) {
                vec![b, a]
            } else {
                vec![a, b]
            }
        }
    };
    Actions { take_back, store_in_place, store_logged }
}

/// Does what was decided for all lanes. `len` is the logical length: what lies past it is not
/// looked at. The caller drains.
pub(crate) fn apply(
    platform: &Platform,
    home: &MappedFile,
    reflection: &MappedFile,
    len: u64,
    actions: &[Actions],
) -> Result<()> {
    let files = Files { home, reflection, len };
    if planted!(RecoverLoggedFirst) {
        actions
            .iter()
            .flat_map(|lane| &lane.store_logged)
            .try_for_each(|p| files.store_logged(p))?;
    }
    for record in actions.iter().flat_map(|lane| &lane.take_back) {
        unless!(RecoverNothingTakenBack, files.take_back(record)?);
    }
    for redo in actions.iter().flat_map(|lane| &lane.store_in_place) {
        unless!(RecoverNoRedo, files.store_in_place(redo)?);
    }
    // Orders what the redo entries stored before the words of logged data, which may make other
    // slots of the same pages valid: a second recovery then skips those entries.
    unless!(RecoverNoDrainBeforeLogged, platform.drain());
    for page in actions.iter().flat_map(|lane| &lane.store_logged) {
        unless!(RecoverLoggedFirst, files.store_logged(page)?);
    }
    Ok(())
}

/// Ends every entry of earlier sessions, cleared ones included: those have no checksum that would
/// void them, and would void entries of the new session. The caller drains.
pub(crate) fn wipe(platform: &Platform, reflection: &MappedFile) -> Result<()> {
    let log = Log { platform, file: reflection.file(), path: reflection.path() };
    for lane in log.in_use() {
        let (index, lane) = lane?;
        let headers = [
            (0, layout::redo_entry(index, 0)),
            (layout::REDO_ENTRY, layout::redo_entry(index, 1)),
            (layout::UNDO_ENTRY, layout::undo_entry(index)),
        ];
        for (at, header) in headers {
            let is_there = lane[at..at + 8].iter().any(|byte| *byte != 0);
            let is_left =
                planted!(WipeNothing) || lane[at..at + 3] == [0; 3] && planted!(WipeNoTombstones);
            if is_there && !is_left {
                reflection.store_word_through(header, 0);
            }
        }
    }
    Ok(())
}

struct Files<'a> {
    home: &'a MappedFile,
    reflection: &'a MappedFile,
    len: u64,
}

impl Files<'_> {
    /// Where a word is, if it describes bytes of the file. What lies past the length is cleaned up
    /// and not recovered.
    fn word_at(&self, word: WordId) -> Option<u64> {
        let (start, at) = match word {
            WordId::Slice(page) => (page.start(), layout::slice_word(page)),
            WordId::Region(region) => (region.start(), layout::region_word(region)),
        };
        (start < self.len || planted!(RecoverPastLength)).then_some(at)
    }

    fn take_back(&self, record: &OldBits) -> Result<()> {
        let Some(at) = self.word_at(record.word) else { return Ok(()) };
        allocate(self.reflection, at, 8)?;
        let word = self.reflection.load_word(at);
        let kept = if planted!(RecoverTakesBackAll) { 0 } else { word & !record.mask };
        self.reflection.store_word_through(at, kept | record.old);
        Ok(())
    }

    fn validity(&self, page: PageIndex) -> Result<Validity> {
        let word = |at: u64| {
            let mut bytes = [0; 8];
            self.reflection
                .read_file(&mut bytes, at)
                .map_err(|e| Error::io_at("read words", self.reflection.path(), at, e))?;
            Ok::<_, Error>(u64::from_le_bytes(bytes))
        };
        let region_word = word(layout::region_word(page.region()))?;
        let region_bit =
            region_word >> page.in_region() & 1 == 1 && !planted!(RecoverRegionIgnored);
        Ok(Validity::new(word(layout::slice_word(page))?, region_bit))
    }

    fn store_in_place(&self, redo: &Redo) -> Result<()> {
        let end = redo.page.start() + (redo.offset + redo.payload.len()) as u64;
        if end > self.len.next_multiple_of(PAGE as u64) && !planted!(RecoverPastLength) {
            return Ok(());
        }
        let touched = Slices::of_bytes(redo.offset, redo.offset + redo.payload.len());
        let valid = self.validity(redo.page)?;
        let valid = if planted!(RecoverIntoFreeSlots) { Validity(redo.sides) } else { valid };
        // Only where the slot that the entry names is valid: elsewhere a later commit has moved the
        // slice away, and the slot may be another operation's by now.
        let still = Slices(touched.0 & !(redo.sides ^ valid.0));
        let still = if planted!(RecoverIntoMovedSlots) { touched } else { still };
        for (file, side) in [(self.home, false), (self.reflection, true)] {
            let here = if side { valid.in_reflection(still) } else { valid.at_home(still) };
            for run in here.runs() {
                let start = (run.start * SLICE).max(redo.offset);
                let end = (run.end * SLICE).min(redo.offset + redo.payload.len());
                let offset = redo.page.start() + start as u64;
                let at = if side { layout::reflection(offset) } else { offset };
                let bytes = &redo.payload[start - redo.offset..end - redo.offset];
                allocate(file, at, bytes.len() as u64)?;
                file.copy_in(at, bytes, Copying::BySize);
            }
        }
        Ok(())
    }

    fn store_logged(&self, logged: &SpilledPage) -> Result<()> {
        let Some(word_at) = self.word_at(WordId::Slice(logged.page)) else { return Ok(()) };
        let mut slices = logged.slices.as_slice();
        for run in Slices(logged.mask).runs() {
            let (now, rest) = slices.split_at(run.len() * SLICE);
            let at = layout::reflection(logged.page.start() + (run.start * SLICE) as u64);
            allocate(self.reflection, at, now.len() as u64)?;
            self.reflection.copy_in(at, now, Copying::BySize);
            slices = rest;
        }
        let valid = self.validity(logged.page)?;
        // The region bit as it is: XOR with the slice word gives the validity, twice gives it back.
        allocate(self.reflection, word_at, 8)?;
        let word = self.reflection.load_word(word_at);
        let missing = logged.mask & !valid.0;
        unless!(RecoverLoggedNotValid, self.reflection.store_word_through(word_at, word ^ missing));
        Ok(())
    }
}

/// Makes sure that a store to the range cannot fail.
fn allocate(file: &MappedFile, at: u64, len: u64) -> Result<()> {
    if planted!(RecoverNotAllocated) {
        return Ok(());
    }
    let start = at / PAGE as u64 * PAGE as u64;
    let end = (at + len).next_multiple_of(PAGE as u64);
    file.allocate(start, end - start)
        .map_err(|e| crate::engine::space::allocation_error(file, start, end - start, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redo(sequence: u64) -> Redo {
        let sequence = Sequence::from_bits(sequence);
        Redo { sequence, page: PageIndex(0), offset: 0, sides: 0, payload: vec![1] }
    }

    /// All combinations of what a lane can hold, and what is stored in place for each.
    #[test]
    fn every_combination_of_redo_entries_has_one_outcome() {
        let kinds = |sequence: u64| {
            [
                RedoFound::Empty,
                RedoFound::Torn,
                RedoFound::Cleared(Sequence::from_bits(sequence)),
                RedoFound::Valid(redo(sequence)),
            ]
        };
        let valid = |found: &RedoFound| match found {
            RedoFound::Valid(redo) => Some(redo.sequence.bits()),
            _ => None,
        };
        let gone = |found: &RedoFound| match found {
            RedoFound::Cleared(sequence) => Some(sequence.bits()),
            _ => None,
        };
        for (even, odd) in [(4, 5), (6, 5), ((1 << 40) - 2, (1 << 40) - 1)] {
            for a in kinds(even) {
                for b in kinds(odd) {
                    let found = Findings { redo: [a.clone(), b.clone()], undo: UndoFound::Empty };
                    let done: Vec<u64> = decide(found)
                        .store_in_place
                        .iter()
                        .map(|redo| redo.sequence.bits())
                        .collect();
                    // Said once more, as a rule over the set of entries: the valid ones that no
                    // cleared one is newer than, oldest first.
                    let mut expected: Vec<u64> = [&a, &b].into_iter().filter_map(valid).collect();
                    expected.retain(|one| {
                        [&a, &b].into_iter().filter_map(gone).all(|gone| gone < *one)
                    });
                    expected.sort();
                    assert_eq!(done, expected, "{a:?} {b:?}");
                }
            }
        }
    }

    #[test]
    fn every_undo_finding_has_one_outcome() {
        let words = vec![OldBits { word: WordId::Slice(PageIndex(1)), mask: 1, old: 0 }];
        let pages = vec![SpilledPage { page: PageIndex(1), mask: 1, slices: vec![0; 64] }];
        let redo = || [RedoFound::Empty, RedoFound::Empty];
        let outcome = |undo| {
            let actions = decide(Findings { redo: redo(), undo });
            (actions.take_back, actions.store_logged)
        };
        assert_eq!(outcome(UndoFound::Empty), (vec![], vec![]));
        assert_eq!(outcome(UndoFound::Torn), (vec![], vec![]));
        assert_eq!(outcome(UndoFound::Words(words.clone())), (words, vec![]));
        assert_eq!(outcome(UndoFound::Data(pages.clone())), (vec![], pages));
    }
}
