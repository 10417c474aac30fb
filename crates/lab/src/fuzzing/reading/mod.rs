//! The expected result of an open: a second reading of `docs/format.md` and `docs/recovery.md`.
//!
//! Shares no code with `src/recovery/` nor with the decoders of `src/format/`. Both must come to
//! the same conclusion about every image, or one of them is wrong. [`super::points`] reads the
//! durable point that a restart goes back to. The documents leave one order open: that of lanes
//! with contradicting records, which no crash leaves. There the order is that of the code.

mod folder;
mod journal;
mod superblock;

use super::ground::{Around, Stat};
use super::image::{Contents, Image};
use super::points::Points;
use super::sums::{self, Part, RECORD, SUPERBLOCK_LEN, UNDO_HEADER, small, word};
use atomic_mmap::testing::{PAGE, PageIndex, REGION, RegionIndex, SLICE, layout};
use atomic_mmap::{Durability, Integrity, Medium, Mismatch, OnMismatch};
pub use folder::names_of;
use folder::{Chosen, Folder, Judged};
pub use journal::journal_of;
use journal::{Needs, Whose, journal_owner, read_points};
pub(super) use superblock::{Copy, copy};

const P: u64 = PAGE as u64;
/// Lowest session number that is invalid: `docs/format.md`.
const NO_SESSION: u64 = 1 << 63;

/// The parameters of an open.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// The wish of the caller.
    pub wish: OnMismatch,
    /// The forced medium.
    pub medium: Option<Medium>,
    /// The requested reservation.
    pub max_len: Option<u64>,
    /// The durability from this open on.
    pub durability: Durability,
    /// The use of page sums from this open on.
    pub integrity: Integrity,
}

/// The expected result of an open.
#[derive(Clone)]
pub enum Outcome {
    /// The open is refused.
    Refused(Mismatch),
    /// The journal to write to belongs to another pair, or is no journal.
    JournalOfAnother,
    /// The file is longer than the reservation, or than any file.
    TooLong,
    /// The file opens with these bytes. The open may write to and remove the companions with these
    /// names. All others stay unchanged.
    Opened(Contents, Vec<String>),
}

/// Returns the expected result of opening the home file of `image`. `stat` describes the home file,
/// and `around` its surroundings.
pub fn outcome(image: &Image, stat: &Stat, around: &Around, how: &How) -> Outcome {
    let (chosen, judged) = Folder { image, stat, around, how }.judge();
    // The companions of this home file, which the open may write to or remove.
    let mut gone = Vec::new();
    let mut pair = Image { home: image.home.clone(), ..Image::default() };
    let uuid = chosen.as_ref().map(|chosen| chosen.superblock.uuid);
    if let Some(Chosen { name, .. }) = &chosen {
        pair.reflection = around.companions.get(name).cloned();
        pair.journal = around.companions.get(&journal_of(name)).cloned();
        gone.push(name.clone());
    }
    let owner = uuid.map_or(Whose::Nobodys, |uuid| journal_owner(pair.journal.as_ref(), &uuid));
    // A file that is no journal may be another program's.
    let may_be_anothers = matches!(owner, Whose::Anothers | Whose::Unknown);
    let keeps = how.keeps(around);
    let plain = || {
        if !fits(stat.len, how) {
            return Outcome::TooLong;
        }
        let mut gone = gone.clone();
        match &chosen {
            Some(Chosen { name, .. }) => {
                if !may_be_anothers {
                    gone.push(journal_of(name));
                } else if !around.has_free_name(&stat.identity) {
                    return Outcome::Refused(Mismatch::Foreign);
                }
            }
            None if !around.has_free_name(&stat.identity) => {
                return Outcome::Refused(Mismatch::Foreign);
            }
            // The journal that the pair of the mark has left.
            None => gone.extend(Folder { image, stat, around, how }.lone_journals()),
        }
        Outcome::Opened(image.home.clone(), gone)
    };
    let goes_on = |bytes: Contents| {
        let Some(Chosen { name, superblock }) = &chosen else { return plain() };
        let mut gone = gone.clone();
        if keeps {
            if may_be_anothers {
                return Outcome::JournalOfAnother;
            }
            gone.push(journal_of(name));
        } else if (1..=2).contains(&superblock.durable) && !may_be_anothers {
            gone.push(journal_of(name));
        }
        Outcome::Opened(bytes, gone)
    };
    match judged {
        Judged::Refused(why) => Outcome::Refused(why),
        Judged::Plain => plain(),
        Judged::GoBack(points) => match fits(points.file_len().max(stat.len), how) {
            true => goes_on(points.bytes(&pair)),
            false => Outcome::TooLong,
        },
        Judged::Kept { recover, len, high_water, uuid, session } => {
            let mut pair = Pair { image: pair, len };
            // Checked before the length: a log that cannot have been written makes the pair
            // corrupt.
            let lanes = match recover {
                true => match entries(pair.reflection(), &uuid, session) {
                    None if how.wish == OnMismatch::Discard => return plain(),
                    None => return Outcome::Refused(Mismatch::Corrupt),
                    lanes => lanes,
                },
                false => None,
            };
            if let Some(lanes) = &lanes
                && let Err(why) = pair.take_length(lanes, high_water, stat.len)
            {
                return if how.wish == OnMismatch::Discard {
                    plain()
                } else {
                    Outcome::Refused(why)
                };
            }
            if !fits(pair.len.max(high_water), how) {
                return Outcome::TooLong;
            }
            lanes.iter().for_each(|lanes| pair.recover(lanes));
            goes_on(pair.bytes())
        }
    }
}

/// Returns the number of pages that the journal's records name, for a home file of this length.
/// This is the cost of a replay, whatever pair the records belong to.
pub fn cost(image: &Image, home_len: u64) -> u64 {
    let (Some(reflection), Some(journal)) = (&image.reflection, &image.journal) else { return 0 };
    let Some((uuid, session)) = sums::session_of_records(reflection) else { return 0 };
    let points = Points::read(journal, &uuid, session, 0);
    points.pages(points.file_len().max(home_len).min(layout::MAX_LEN))
}

/// Returns the bytes of an image right after a process crash, for any home file. Returns `None` if
/// the open is refused.
pub fn of_this_boot(image: &Image) -> Option<Contents> {
    after(image, true)
}

/// Returns the bytes of an image after a restart of the machine, or `None` if the open is refused.
pub fn of_another_boot(image: &Image) -> Option<Contents> {
    after(image, false)
}

/// Returns `true` if a restart leaves only the last durable point: the session did not end, or the
/// sync of its close may not have ended.
pub fn goes_back_after_restart(image: &Image) -> bool {
    let Some(reflection) = &image.reflection else { return false };
    let Some((_, session)) = sums::session_of(reflection) else { return false };
    layout::SUPERBLOCKS.map(|at| reflection.bytes(at, SUPERBLOCK_LEN)).iter().any(|bytes| {
        let Copy::Valid(mut superblock) = copy(bytes) else { return false };
        superblock.look_for_settlement(reflection);
        let goes_back = superblock.is_undone(false) || superblock.is_incomplete(false);
        word(bytes, 16) == session && goes_back
    })
}

fn after(image: &Image, same_boot: bool) -> Option<Contents> {
    let Some(reflection) = &image.reflection else { return Some(image.home.clone()) };
    let (uuid, session) = sums::session_of(reflection)?;
    let newest = layout::SUPERBLOCKS
        .map(|at| reflection.bytes(at, SUPERBLOCK_LEN))
        .into_iter()
        .find(|bytes| word(bytes, 16) == session)?;
    let Copy::Valid(mut superblock) = copy(&newest) else { return None };
    superblock.look_for_settlement(reflection);
    if superblock.is_plain(image.mark.is_some()) {
        return Some(image.home.clone());
    }
    let is_incomplete = superblock.is_incomplete(same_boot);
    if superblock.is_undone(same_boot) || is_incomplete {
        if image.is_closing() && image.journal.is_none() {
            return Some(image.home.clone());
        }
        let needs = if same_boot { Needs::Newest } else { Needs::All };
        let points = read_points(&superblock, reflection, image.journal.as_ref(), needs).ok()?;
        let points = if is_incomplete { points.with_whole_home() } else { points };
        return Some(points.bytes(image));
    }
    if superblock.state == 1 && !same_boot {
        return None;
    }
    let [len, high_water] = sums::whole_lengths(reflection)?;
    let mut pair = Pair { image: image.clone(), len };
    if superblock.state == 1 {
        let lanes = entries(pair.reflection(), &uuid, session)?;
        pair.take_length(&lanes, high_water, image.home.len).ok()?;
        pair.recover(&lanes);
    }
    Some(pair.bytes())
}

fn fits(len: u64, how: &How) -> bool {
    len <= layout::MAX_LEN && how.max_len.is_none_or(|most| len <= most && most <= layout::MAX_LEN)
}

/// The place of a word, the bits that an operation flips, and their old values.
pub(super) type Flipped = (u64, u64, u64);

/// The items of a redo record.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Redo {
    /// The new length of the file, if it changes.
    pub len: Option<u64>,
    pub pages: Vec<RedoPage>,
}

/// A page of a redo record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RedoPage {
    pub page: u64,
    pub stays: u64,
    pub flips: u64,
    pub flipped: u64,
    pub bytes: Vec<u8>,
}

/// A decoded flip record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RingRecord {
    pub number: u64,
    pub page: u64,
    pub is_invalidated: bool,
    pub slices: u64,
    pub sides: u64,
    pub sum: u32,
    pub page_sum: u64,
}

struct Lane {
    /// The flip records, in the order of their places.
    ring: Vec<RingRecord>,
    words: Vec<Flipped>,
    redo: Redo,
}

/// Decodes all lanes. Returns `None` if they spilled more than the log area can hold.
fn entries(reflection: &Contents, uuid: &[u8; 16], session: u64) -> Option<Vec<Lane>> {
    let mut spilled = 0u64;
    let lane = |n: usize| {
        let seed = |part| sums::seed(uuid, session, n, part);
        let ring = (0..layout::RING).filter_map(|place| {
            let part = Part::Ring(place);
            flip_record(&part.bytes(reflection, n), place, seed(part), session)
        });
        let ring = ring.collect();
        let mut lane = Lane { ring, words: Vec::new(), redo: Redo::default() };
        let seed = seed(Part::Undo);
        let (sequence, what, offset, len, sum) = match undo(&Part::Undo.bytes(reflection, n), seed)
        {
            None => return Some(lane),
            Some(Undo::Words { words, .. }) => {
                lane.words = words;
                return Some(lane);
            }
            Some(Undo::Redo { redo, .. }) => {
                lane.redo = redo;
                return Some(lane);
            }
            Some(Undo::Spilled { sequence, what, offset, len, sum }) => {
                (sequence, what, offset, len, sum)
            }
        };
        spilled += len;
        if spilled > layout::LOG_AREA_LEN {
            return None;
        }
        if sums::of_spill(seed, sequence, reflection, offset, len) != sum {
            return Some(lane);
        }
        let (start, end) = (layout::LOG_AREA + offset, layout::LOG_AREA + offset + len);
        match what {
            Spilled::Words => {
                lane.words = spilled_words(reflection, start, end).unwrap_or_default();
            }
            Spilled::Redo => {
                lane.redo = redo(reflection, start, end).unwrap_or_default();
            }
        }
        Some(lane)
    };
    (0..layout::LANE_COUNT).map(lane).collect()
}

/// A decoded undo record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Undo {
    Words { sequence: u64, words: Vec<Flipped> },
    Redo { sequence: u64, redo: Redo },
    Spilled { sequence: u64, what: Spilled, offset: u64, len: u64, sum: u32 },
}

/// The kind of data in the log area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spilled {
    Words,
    Redo,
}

/// Decodes an undo record. Returns `None` if there is none or a torn one.
pub(super) fn undo(bytes: &[u8], seed: u32) -> Option<Undo> {
    let len = sums::undo_len(bytes)?;
    if small(bytes, 8) != sums::of_entry(seed, &bytes[..len]) {
        return None;
    }
    let (sequence, kind) = (word(bytes, 0) >> 24, word(bytes, 0) >> 16 & 0xFF);
    let records = &bytes[UNDO_HEADER..len];
    let what = match kind {
        sums::KIND_UNDO => {
            let words = records.chunks_exact(RECORD).map(flipped).collect::<Option<_>>()?;
            return Some(Undo::Words { sequence, words });
        }
        sums::KIND_REDO => {
            let mut inline = Contents::of_len(records.len() as u64);
            inline.write(records, 0);
            let redo = redo(&inline, 0, records.len() as u64)?;
            return Some(Undo::Redo { sequence, redo });
        }
        sums::KIND_SPILLED_UNDO => Spilled::Words,
        sums::KIND_SPILLED_REDO => Spilled::Redo,
        _ => return None,
    };
    let (offset, len) = (word(records, 0), word(records, 8));
    let fits = offset.checked_add(len).is_some_and(|end| end <= layout::LOG_AREA_LEN);
    let sum = u32::try_from(word(records, 16)).ok()?;
    let is_one = records.len() == RECORD && fits;
    is_one.then_some(Undo::Spilled { sequence, what, offset, len, sum })
}

/// Decodes a flip record. Returns `None` if there is none or a torn one.
pub(super) fn flip_record(
    bytes: &[u8],
    place: usize,
    seed: u32,
    session: u64,
) -> Option<RingRecord> {
    let (header, page) = (word(bytes, 0), u64::from(small(bytes, 12)));
    let (number, kind) = (header >> 24, header >> 16 & 0xFF);
    let (slices, sides) = (word(bytes, 16), word(bytes, 24));
    let is_right = [sums::KIND_COVERS, sums::KIND_INVALIDATED].contains(&kind)
        && header & 0xFFFF == u64::from(sums::tag(session))
        && small(bytes, 8) == sums::of_flip_record(seed, bytes)
        && bytes[36..40].iter().chain(&bytes[48..]).all(|byte| *byte == 0)
        && number % layout::RING as u64 == place as u64
        && page < layout::MAX_LEN / P
        && slices != 0
        && sides & slices == sides;
    let is_invalidated = kind == sums::KIND_INVALIDATED;
    is_right.then_some(RingRecord {
        number,
        page,
        is_invalidated,
        slices,
        sides,
        sum: small(bytes, 32),
        page_sum: word(bytes, 40),
    })
}

pub(super) fn flipped(record: &[u8]) -> Option<Flipped> {
    let (kind, index) = (word(record, 0) >> 56, word(record, 0) << 8 >> 8);
    let (mask, old) = (word(record, 8), word(record, 16));
    let is_right = match kind {
        1 => index < layout::MAX_LEN / P,
        2 => index < layout::MAX_LEN / REGION as u64,
        _ => false,
    };
    (is_right && old & !mask == 0).then_some((word(record, 0), mask, old))
}

pub(super) fn spilled_words(log: &Contents, start: u64, end: u64) -> Option<Vec<Flipped>> {
    let len = end - start;
    if !len.is_multiple_of(RECORD as u64) {
        return None;
    }
    (0..len / RECORD as u64)
        .map(|n| flipped(&log.bytes(start + n * RECORD as u64, RECORD)))
        .collect()
}

pub(super) fn redo(log: &Contents, mut at: u64, end: u64) -> Option<Redo> {
    let (mut len, mut pages) = (None, Vec::new());
    // Sixteen bytes with a length may come first; their first word is the index of no page.
    if end - at >= 16 && log.word(at) == !0 {
        len = Some(log.word(at + 8)).filter(|len| *len <= layout::MAX_LEN);
        len?;
        at += 16;
    }
    while at < end {
        if end - at < 32 {
            return None;
        }
        let [page, stays, flips, flipped] = [0, 8, 16, 24].map(|n| log.word(at + n));
        let len = u64::from(stays.count_ones()) * SLICE as u64;
        let is_right = page < layout::MAX_LEN / P
            && (stays != 0 || flips != 0)
            && stays & flips == 0
            && flipped & flips == flipped
            && len <= end - at - 32;
        if !is_right {
            return None;
        }
        let bytes = log.bytes(at + 32, len as usize);
        pages.push(RedoPage { page, stays, flips, flipped, bytes });
        at += 32 + len;
    }
    Some(Redo { len, pages })
}

/// Returns `true` if the sequence number `a` came before `b`: 40 bits, modulo.
fn is_before(a: u64, b: u64) -> bool {
    let ahead = b.wrapping_sub(a) & ((1 << 40) - 1);
    ahead != 0 && ahead < 1 << 39
}

struct Pair {
    image: Image,
    len: u64,
}

impl Pair {
    fn reflection(&self) -> &Contents {
        self.image.reflection.as_ref().expect("a pair has one")
    }

    fn reflection_mut(&mut self) -> &mut Contents {
        self.image.reflection.as_mut().expect("a pair has one")
    }

    fn valid(&self, page: u64) -> u64 {
        let word = self.reflection().word(layout::slice_word(PageIndex(page)));
        let region = self.reflection().word(layout::region_word(RegionIndex(page / 64)));
        if region >> (page % 64) & 1 == 1 { !word } else { word }
    }

    /// Goes by the length that a redo record holds. The files had it before the record was written,
    /// and one operation at a time has such a record.
    fn take_length(
        &mut self,
        lanes: &[Lane],
        high_water: u64,
        home_len: u64,
    ) -> Result<(), Mismatch> {
        let lengths: Vec<u64> = lanes.iter().filter_map(|lane| lane.redo.len).collect();
        let [len] = lengths[..] else {
            return if lengths.is_empty() { Ok(()) } else { Err(Mismatch::Corrupt) };
        };
        if len > self.len.max(high_water) {
            return Err(Mismatch::Corrupt);
        }
        if self.reflection().len < layout::reflection_len(len) {
            return Err(Mismatch::ReflectionTruncated);
        }
        if home_len < len {
            return Err(Mismatch::HomeTruncated);
        }
        self.len = len;
        Ok(())
    }

    fn recover(&mut self, lanes: &[Lane]) {
        for (word, mask, old) in lanes.iter().flat_map(|lane| &lane.words) {
            let index = word << 8 >> 8;
            let (start, at) = match word >> 56 {
                1 => (index * P, layout::slice_word(PageIndex(index))),
                _ => (index * REGION as u64, layout::region_word(RegionIndex(index))),
            };
            if start < self.len {
                let now = self.reflection().word(at);
                self.reflection_mut().set_word(at, now & !mask | old);
            }
        }
        lanes.iter().for_each(|lane| self.go_by_ring(&lane.ring));
        for page in lanes.iter().flat_map(|lane| &lane.redo.pages) {
            if page.page * P >= self.len {
                continue;
            }
            let at = layout::slice_word(PageIndex(page.page));
            let word = self.reflection().word(at);
            self.reflection_mut().set_word(at, word & !page.flips | page.flipped);
            let valid = self.valid(page.page);
            let stays = (0..64).filter(|slice| page.stays >> slice & 1 == 1);
            for (slice, bytes) in stays.zip(page.bytes.chunks_exact(SLICE)) {
                let at = page.page * P + slice * SLICE as u64;
                match valid >> slice & 1 {
                    0 => self.image.home.write(bytes, at),
                    _ => self.reflection_mut().write(bytes, layout::reflection(at)),
                }
            }
        }
    }

    /// Moves the slices that the flip records of a ring cover.
    fn go_by_ring(&mut self, ring: &[RingRecord]) {
        let mut newest = None;
        for entry in ring {
            newest = match newest {
                Some(known) if !is_before(known, entry.number) => Some(known),
                _ => Some(entry.number),
            };
        }
        let Some(last) = newest else { return };
        // The words before this number were durable before the newest record was written.
        let needed_from = last.wrapping_sub(last % 8 + 1) & ((1 << 40) - 1);
        let mut counting: Vec<&RingRecord> = Vec::new();
        for entry in ring.iter().filter(|entry| !entry.is_invalidated) {
            if is_before(entry.number, needed_from) {
                continue;
            }
            let is_voided = ring.iter().any(|other| {
                other.is_invalidated
                    && other.page == entry.page
                    && is_before(entry.number, other.number)
            });
            if is_voided {
                continue;
            }
            // Insert the record by its number. Contradictory numbers, which no engine wrote, end in
            // the order that this gives.
            counting.push(entry);
            let mut n = counting.len() - 1;
            while n > 0 && is_before(counting[n].number, counting[n - 1].number) {
                counting.swap(n, n - 1);
                n -= 1;
            }
        }
        for RingRecord { number, page, slices, sides, sum, .. } in counting.into_iter().copied() {
            if page * P >= self.len {
                continue;
            }
            let (home, reflection) = (&self.image.home, self.reflection());
            let has_arrived = || sums::of_slices(home, reflection, page, slices, sides) == sum;
            if newest == Some(number) && !has_arrived() {
                continue;
            }
            let moved = slices & (sides ^ self.valid(page));
            let at = layout::slice_word(PageIndex(page));
            let word = self.reflection().word(at);
            self.reflection_mut().set_word(at, word ^ moved);
        }
    }

    /// Returns the bytes that both files together define.
    fn bytes(&self) -> Contents {
        let mut bytes = self.image.home.clone();
        bytes.set_len(self.len);
        let mut pages: Vec<u64> = Vec::new();
        for (&n, page) in &self.reflection().pages {
            let Some(at) = (n * P).checked_sub(layout::SUPERCHUNKS) else { continue };
            let (superchunk, at) = (at / layout::SUPERCHUNK_LEN, at % layout::SUPERCHUNK_LEN);
            let first = superchunk << 18;
            let words = (0..512u64).filter(|word| sums::word_of(page, *word) != 0);
            match at {
                // A page of slice words, for 512 pages.
                ..0x20_0000 => pages.extend(words.map(|word| first + at / 8 + word)),
                0xC0_0000..0xC0_8000 => {
                    let regions = words.map(|word| first / 64 + (at - 0xC0_0000) / 8 + word);
                    pages.extend(regions.flat_map(|region| region * 64..region * 64 + 64));
                }
                _ => {}
            }
        }
        pages.sort_unstable();
        pages.dedup();
        for page in pages.into_iter().filter(|page| page * P < self.len) {
            let valid = self.valid(page);
            for slice in (0..64).filter(|slice| valid >> slice & 1 == 1) {
                let at = page * P + slice * SLICE as u64;
                let slot = self.reflection().bytes(layout::reflection(at), SLICE);
                bytes.write(&slot, at);
            }
        }
        // Bytes of a slot past the end are not part of the file.
        bytes.zero(self.len, self.len.next_multiple_of(P));
        bytes
    }
}
