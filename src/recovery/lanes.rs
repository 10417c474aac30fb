//! Scans the lanes of a pair, and decides what recovery does with their records.
//!
//! Recovery reads the lanes and the overflow of their records. So its time depends on the
//! operations in flight at the crash, and not on the size of the file.
//!
//! Recovery is idempotent. Until the superblock of the new session is durable, the records stay as
//! they are, and a second recovery does the same again. After that every record is void, since its
//! checksum covers the session number.
//!
//! Rules and order are those of `docs/model/engine_commit.py`:
//! 1. Undo records take back changes of words. They do so by masks, which commute.
//! 2. Slices move to the side that a flip record names. The flip records of a lane apply in their
//!    order. The newest one applies only if the slots match its checksum. An invalidated record
//!    voids older ones of its page (`docs/model/logged_flips.py`).
//! 3. Redo records: slices are stored into their valid slots, and slice bits are set
//!    (`docs/model/durable_points.py`).
//!
//! Before all of them, a length that a redo record holds becomes the file's length. Its operation
//! is committed, and the steps leave out what lies past the length.
//!
//! `apply_log` has the last step. May import `format`, `platform` and below.

use crate::error::{Error, Result};
use crate::format::entry::{
    EntrySeed, OldBits, RECORD, REDO_PAGE_MAX, Redo, RedoPage, Seed, Sequence, Spill, SpillSum,
    Undo, UndoBody,
};
use crate::format::flip_record::{DecodedFlip, FlipRecord};
use crate::format::layout;
use crate::mutant::planted;
use crate::platform::{File, FileId, Platform};
use crate::units::LaneIndex;
use std::path::Path;

/// The undo record of one lane, with its overflow, as recovery found it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum UndoFound {
    Empty,
    /// Not written whole: no word was changed yet.
    Torn,
    /// Words may have changed, and are taken back.
    Words(Vec<OldBits>),
    /// Committed: these slices belong in their valid slots, these slice bits flip, and this is the
    /// length.
    Redo(Redo),
}

/// The records that were found in one lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Findings {
    pub ring: Vec<DecodedFlip>,
    pub undo: UndoFound,
}

/// A flip record that recovery has to apply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FlippedSlices {
    pub record: FlipRecord,
    /// `true` for the lane's newest record, which may have arrived without the slices. Any other
    /// record was acknowledged before the next one was written, and its slots may have been
    /// overwritten since.
    pub is_newest: bool,
}

/// The work of recovery on one lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Actions {
    /// The length that a redo record holds.
    pub len: Option<u64>,
    /// Step 1.
    pub take_back: Vec<OldBits>,
    /// Step 2, in this order.
    pub logged_flips: Vec<FlippedSlices>,
    /// Step 3.
    pub redo: Vec<RedoPage>,
}

/// The lanes and the log area of a reflection file, read by system calls.
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

    /// Returns the lanes that hold anything. A lane that was never used is a hole of the file, and
    /// is not read.
    fn in_use(&self) -> impl Iterator<Item = Result<LaneIndex>> {
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
            // The data may lie anywhere behind the lanes.
            let n = data.saturating_sub(layout::LANES) as usize / layout::LANE;
            let n = n.min(layout::LANE_COUNT);
            next = n.saturating_add(1);
            (n < layout::LANE_COUNT).then_some(Ok(LaneIndex(n as u16)))
        })
    }
}

/// Reads every lane that is in use. Returns `None` if no writer can have written what the records
/// say.
pub(crate) fn scan(
    platform: &Platform,
    reflection: &File,
    path: &Path,
    seed: Seed,
) -> Result<Option<Vec<Findings>>> {
    let log = Log { platform, file: reflection, path };
    let mut found = Vec::new();
    let mut spilled_bytes = 0_u64;
    // One buffer for all lanes: the first use of each page costs a page fault.
    let mut bytes = [0; layout::LANE];
    for index in log.in_use() {
        let index = index?;
        log.read(&mut bytes, layout::lane(index))?;
        // Records are decoded where they lie. To copy them out byte by byte would take longer than
        // the rest of opening.
        let (lines, _) = bytes.as_chunks::<{ layout::FLIP_RECORD }>();
        let ring_seed = seed.ring(index);
        let ring = lines[..layout::RING]
            .iter()
            .enumerate()
            .map(|(place, line)| FlipRecord::decode(ring_seed, place, line))
            .collect();
        const { assert!(layout::UNDO_ENTRY.is_multiple_of(layout::UNDO_ENTRY_LEN)) };
        let (parts, _) = bytes.as_chunks::<{ layout::UNDO_ENTRY_LEN }>();
        let entry = &parts[layout::UNDO_ENTRY / layout::UNDO_ENTRY_LEN];
        let entry_seed = seed.undo(index);
        let undo = match Undo::decode(entry_seed, entry) {
            crate::format::entry::Found::Empty => UndoFound::Empty,
            crate::format::entry::Found::Torn => UndoFound::Torn,
            crate::format::entry::Found::Valid(Undo { sequence, body }) => match body {
                UndoBody::Inline(words) => UndoFound::Words(words),
                UndoBody::Redo(redo) => UndoFound::Redo(redo),
                UndoBody::SpilledUndo(spill) | UndoBody::SpilledRedo(spill) => {
                    // Records share no extents. So their overflow cannot exceed the log area.
                    spilled_bytes = spilled_bytes.saturating_add(spill.len);
                    if spilled_bytes > layout::LOG_AREA_LEN {
                        return Ok(None);
                    }
                    let spilled = Spilled { log: &log, entry_seed, sequence, spill };
                    match body {
                        UndoBody::SpilledUndo(_) => spilled.words()?.map(UndoFound::Words),
                        _ => spilled.redo()?.map(UndoFound::Redo),
                    }
                    .unwrap_or(UndoFound::Torn)
                }
            },
        };
        found.push(Findings { ring, undo });
    }
    Ok(Some(found))
}

/// The overflow that an undo record refers to. A record may claim 256 MiB that no writer wrote,
/// where the file has holes. So recovery keeps only those bytes in DRAM that the checksum has
/// confirmed.
struct Spilled<'a> {
    log: &'a Log<'a>,
    entry_seed: EntrySeed,
    sequence: Sequence,
    spill: Spill,
}

impl Spilled<'_> {
    /// Bytes of one read. They are whole records, and enough of them that the read costs less than
    /// their processing.
    const PIECE: usize = (1 << 20) / RECORD * RECORD;

    /// Passes the overflow to `take` in pieces until `take` returns `false`. All pieces but the
    /// last have the same length. Returns `true` if `take` accepted every piece.
    fn each_piece(&self, mut take: impl FnMut(&[u8]) -> bool) -> Result<bool> {
        let Spill { offset, len, .. } = self.spill;
        let mut bytes = vec![0; Self::PIECE.min(len as usize)];
        for done in (0..len).step_by(Self::PIECE) {
            let here = len.saturating_sub(done).min(bytes.len() as u64) as usize;
            let piece = &mut bytes[..here];
            // Within the log area: that was checked when the description was decoded.
            let at = layout::LOG_AREA.saturating_add(offset).saturating_add(done);
            self.log.read(piece, at)?;
            if !take(piece) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Returns `true` if the overflow was written whole.
    fn is_whole(&self) -> Result<bool> {
        let mut sum = SpillSum::new(self.entry_seed, self.sequence);
        self.each_piece(|piece| {
            sum.add(piece);
            true
        })?;
        Ok(self.spill.matches(sum))
    }

    /// Returns the old bits of words, or `None` if the overflow is torn.
    fn words(&self) -> Result<Option<Vec<OldBits>>> {
        let mut words = Vec::new();
        let all = self.is_whole()?
            && self.each_piece(|piece| {
                OldBits::decode_all(piece).map(|more| words.extend(more)).is_some()
            })?;
        Ok(all.then_some(words))
    }

    /// Returns the redo items of the overflow, or `None` if the overflow is torn.
    fn redo(&self) -> Result<Option<Redo>> {
        let (mut len, mut pages) = (None, Vec::new());
        let mut is_first = true;
        // The beginning of a page that ends in the next piece.
        let mut begun: Vec<u8> = Vec::new();
        let all = self.is_whole()?
            && self.each_piece(|piece| {
                begun.extend_from_slice(piece);
                let mut rest = &begun[..];
                if std::mem::take(&mut is_first) {
                    len = Redo::decode_len(&mut rest);
                }
                while let Some(page) = RedoPage::decode_first(&mut rest) {
                    pages.push(page);
                }
                let left = rest.len();
                begun.drain(..begun.len().saturating_sub(left));
                // More bytes than any page has are not the beginning of a page.
                left < REDO_PAGE_MAX
            })?;
        Ok((all && begun.is_empty()).then_some(Redo { len, pages }))
    }
}

/// Returns the lengths that the redo records hold. A writer stores a record with a length only
/// while it is the only one that changes the length.
pub(crate) fn lengths(found: &[Findings]) -> impl Iterator<Item = u64> {
    found.iter().filter_map(|lane| match &lane.undo {
        UndoFound::Redo(redo) => redo.len,
        _ => None,
    })
}

/// Returns the decisions about one lane, by its undo record and its ring.
pub(crate) fn decide(found: Findings) -> Actions {
    let (take_back, Redo { len, pages: redo }) = match found.undo {
        UndoFound::Empty | UndoFound::Torn => (Vec::new(), Redo::default()),
        UndoFound::Words(words) => (words, Redo::default()),
        UndoFound::Redo(redo) => (Vec::new(), redo),
    };
    Actions { len, take_back, logged_flips: in_order(&found.ring), redo }
}

/// Returns the flip records that recovery has to apply, oldest first. Leaves out records with a
/// word that was durable before the lane's newest record was begun. Leaves out records that a newer
/// invalidated record of the lane voids, because it names the same page.
fn in_order(ring: &[DecodedFlip]) -> Vec<FlippedSlices> {
    let is_before = |one: Sequence, other: Sequence| {
        one.is_before(other) ^ (planted!(RecoverNewerFirst) && one != other)
    };
    let numbers = ring.iter().filter_map(|found| match found {
        DecodedFlip::Empty | DecodedFlip::Torn => None,
        DecodedFlip::Invalidated(sequence, _) => Some(*sequence),
        DecodedFlip::Valid(record) => Some(record.sequence),
    });
    let newest = numbers.reduce(|one, other| if is_before(one, other) { other } else { one });
    let invalidates = |record: &FlipRecord, found: &DecodedFlip| {
        matches!(found, DecodedFlip::Invalidated(gone, page)
            if (*page == record.page || planted!(RecoverInvalidatesLane))
                && is_before(record.sequence, *gone)
                && !planted!(RecoverInvalidatedIgnored))
    };
    let needed_from = match newest {
        Some(newest) if planted!(RecoverLeavesOutLast) => newest.needed_from().next(),
        Some(newest) => newest.needed_from(),
        None => return Vec::new(),
    };
    let mut ordered: Vec<FlippedSlices> = Vec::new();
    for found in ring {
        let DecodedFlip::Valid(record) = found else { continue };
        if is_before(record.sequence, needed_from) {
            // The word was durable before the newest record was begun.
            continue;
        }
        if ring.iter().any(|other| invalidates(record, other)) {
            continue;
        }
        // Insertion copes with any input. Records of one session have one order, while damaged
        // records may have none.
        let at = ordered
            .iter()
            .rposition(|earlier| !is_before(record.sequence, earlier.record.sequence))
            .map_or(0, |n| n.saturating_add(1));
        let is_newest = newest == Some(record.sequence);
        ordered.insert(at, FlippedSlices { record: *record, is_newest });
    }
    ordered
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::entry::WordId;
    use crate::units::PageIndex;

    fn record(sequence: u64, page: u64) -> FlipRecord {
        let sequence = Sequence::from_bits(sequence);
        FlipRecord { sequence, page: PageIndex(page), slices: 1, sides: 0, sum: 0, page_sum: 0 }
    }

    /// Checks all combinations of what three places of a ring can hold about two pages, also where
    /// the numbers wrap around.
    #[test]
    fn every_combination_of_entries_has_one_outcome() {
        let kinds = |sequence: u64| {
            let number = Sequence::from_bits(sequence);
            [
                DecodedFlip::Empty,
                DecodedFlip::Torn,
                DecodedFlip::Invalidated(number, PageIndex(1)),
                DecodedFlip::Invalidated(number, PageIndex(2)),
                DecodedFlip::Valid(record(sequence, 1)),
                DecodedFlip::Valid(record(sequence, 2)),
            ]
        };
        let last = (1 << 40) - 1;
        for numbers in [
            [4, 5, 6],
            [6, 4, 5],
            [last - 1, last, 0],
            [0, last - 1, last],
            [1, 0, last],
            // Around the end of a batch: record 31 was drained together with the words of the
            // records before it.
            [30, 31, 32],
            [33, 31, 30],
            [14, 15, 23],
        ] {
            // The rule is stated a second time here, over the set of records by their age.
            let age = |n: Sequence| if n.bits() < 9 { n.bits() + (1 << 40) } else { n.bits() };
            for a in kinds(numbers[0]) {
                for b in kinds(numbers[1]) {
                    for c in kinds(numbers[2]) {
                        let ring = [a, b, c];
                        let newest = ring
                            .iter()
                            .filter_map(|found| match found {
                                DecodedFlip::Valid(record) => Some(record.sequence),
                                DecodedFlip::Invalidated(gone, _) => Some(*gone),
                                DecodedFlip::Empty | DecodedFlip::Torn => None,
                            })
                            .max_by_key(|n| age(*n));
                        let mut expected: Vec<FlipRecord> = ring
                            .iter()
                            .filter_map(|found| match found {
                                DecodedFlip::Valid(record) => Some(*record),
                                _ => None,
                            })
                            .filter(|record| {
                                let last = age(newest.expect("there is one"));
                                age(record.sequence) + 1 >= last / 8 * 8
                            })
                            .filter(|record| {
                                !ring.iter().any(|found| {
                                    matches!(found, DecodedFlip::Invalidated(gone, page)
                                    if *page == record.page && age(*gone) > age(record.sequence))
                                })
                            })
                            .collect();
                        expected.sort_by_key(|record| age(record.sequence));
                        let expected: Vec<FlippedSlices> = expected
                            .into_iter()
                            .map(|record| FlippedSlices {
                                record,
                                is_newest: newest == Some(record.sequence),
                            })
                            .collect();
                        let found = Findings { ring: ring.to_vec(), undo: UndoFound::Empty };
                        assert_eq!(decide(found).logged_flips, expected, "{ring:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_undo_finding_has_one_outcome() {
        let words = vec![OldBits { word: WordId::Slice(PageIndex(1)), mask: 1, old: 0 }];
        let page = PageIndex(1);
        let pages = vec![RedoPage { page, stays: 1, flips: 2, flipped: 2, bytes: vec![0; 64] }];
        let outcome = |undo| {
            let actions = decide(Findings { ring: vec![], undo });
            (actions.len, actions.take_back, actions.redo)
        };
        assert_eq!(outcome(UndoFound::Empty), (None, vec![], vec![]));
        assert_eq!(outcome(UndoFound::Torn), (None, vec![], vec![]));
        assert_eq!(outcome(UndoFound::Words(words.clone())), (None, words, vec![]));
        for len in [None, Some(0), Some(77)] {
            let redo = Redo { len, pages: pages.clone() };
            assert_eq!(outcome(UndoFound::Redo(redo)), (len, vec![], pages.clone()));
        }
    }
}
