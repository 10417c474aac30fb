//! What should opening make of an image? `docs/format.md` and `docs/recovery.md`, read a second time.
//!
//! Shares no code with `src/recovery/` nor with the decoders of `src/format/`: the two must come to the
//! same conclusion about every image, or one of them is wrong. What is gone back to after a restart of the
//! machine is [`super::points`]' part. Where the documents leave an order open
//! (the lanes of entries that contradict each other, which no crash leaves) it is that of the code.

use super::ground::Stat;
use super::image::{Contents, Image};
use super::points::Points;
use super::sums::{self, Part, RECORD, SUPERBLOCK_LEN, UNDO_HEADER, small, word};
use atomic_mmap::testing::superblock::{Identity, Moment};
use atomic_mmap::testing::{PAGE, PageIndex, REGION, RegionIndex, SLICE, layout};
use atomic_mmap::{Durability, Medium, Mismatch, OnMismatch};

const P: u64 = PAGE as u64;
/// Least session number that is not believed: `docs/format.md`.
const NO_SESSION: u64 = 1 << 63;

/// How the file is opened.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// What the caller wishes.
    pub wish: OnMismatch,
    /// The medium that is forced.
    pub medium: Option<Medium>,
    /// The reservation that is asked for.
    pub max_len: Option<u64>,
    /// When what has returned is durable, from this opening on.
    pub durability: Durability,
}

/// What should come of it.
#[derive(Clone)]
pub enum Outcome {
    /// Refused.
    Refused(Mismatch),
    /// Longer than the reservation, or than any file.
    TooLong,
    /// Opened; these are the bytes.
    Opened(Contents),
}

/// What a superblock says.
pub(super) struct Superblock {
    state: u32,
    pub uuid: [u8; 16],
    pub session: u64,
    identity: Identity,
    closed_len: u64,
    mtime: Moment,
    ctime: Moment,
    boot: [u8; 16],
    durable: u32,
    durable_len: u64,
}

impl Superblock {
    /// Whether the session kept durable points.
    fn has_points(&self) -> bool {
        self.state == 1 && (1..=2).contains(&self.durable)
    }

    /// Whether the session ended so that only the last durable point counts.
    fn is_undone(&self, same_boot: bool) -> bool {
        self.has_points() && (self.durable == 2 || !same_boot)
    }
}

/// What one copy of it is.
pub(super) enum Copy {
    Valid(Superblock),
    Newer(u32),
    Corrupt,
    Foreign,
}

fn moment(bytes: &[u8], seconds: usize, nanos: usize) -> Moment {
    Moment { seconds: word(bytes, seconds) as i64, nanos: small(bytes, nanos) }
}

pub(super) fn copy(bytes: &[u8]) -> Copy {
    if !bytes.starts_with(b"AtomMmap") {
        return Copy::Foreign;
    }
    let version = small(bytes, 8);
    if version > 1 {
        return Copy::Newer(version);
    }
    let geometry = [(48, 64), (52, 4096), (56, 64), (60, 80), (64, 4096), (12, 512), (8, 1)];
    let state = small(bytes, 24);
    let is_right = sums::in_superblock(bytes) == sums::of_superblock(bytes)
        && geometry.iter().all(|(at, value)| small(bytes, *at) == *value)
        && word(bytes, 72) == 1 << 30
        && word(bytes, 80) == 1 << 28
        && (1..=3).contains(&state)
        && small(bytes, 428) <= 3
        && u16::from_le_bytes([bytes[168], bytes[169]]) <= 255;
    if !is_right {
        return Copy::Corrupt;
    }
    Copy::Valid(Superblock {
        state,
        uuid: std::array::from_fn(|n| bytes[32 + n]),
        session: word(bytes, 16),
        identity: Identity {
            device: word(bytes, 88),
            inode: word(bytes, 96),
            born: (small(bytes, 116) != 0).then(|| moment(bytes, 104, 112)),
        },
        closed_len: word(bytes, 120),
        mtime: moment(bytes, 128, 136),
        ctime: moment(bytes, 144, 140),
        boot: std::array::from_fn(|n| bytes[152 + n]),
        durable: small(bytes, 428),
        durable_len: word(bytes, 432),
    })
}

fn same_birth(a: Option<Moment>, b: Option<Moment>) -> bool {
    a.is_none() || b.is_none() || a == b
}

/// What should come of opening `image`, whose home file is `stat`. `is_elsewhere`: a whole reflection
/// file that names a home file of this name lies in the folder under another one's number.
pub fn outcome(
    image: &Image,
    stat: &Stat,
    boot: [u8; 16],
    is_elsewhere: bool,
    how: &How,
) -> Outcome {
    let plain = || match fits(stat.len, how) {
        true => Outcome::Opened(image.home.clone()),
        false => Outcome::TooLong,
    };
    match judge(image, stat, boot, is_elsewhere, how) {
        Judged::Refused(why) => Outcome::Refused(why),
        Judged::Plain => plain(),
        Judged::GoBack(points) => match fits(points.file_len().max(stat.len), how) {
            true => Outcome::Opened(points.bytes(image)),
            false => Outcome::TooLong,
        },
        Judged::Kept { recover, len, high_water, uuid, session } => {
            let mut pair = Pair { image: image.clone(), len };
            // Before the length is looked at: whose log cannot have been written has none.
            let lanes = match recover {
                true => match entries(pair.reflection(), &uuid, session) {
                    None if how.wish == OnMismatch::Discard => return plain(),
                    None => return Outcome::Refused(Mismatch::Corrupt),
                    lanes => lanes,
                },
                false => None,
            };
            if !fits(len.max(high_water), how) {
                return Outcome::TooLong;
            }
            lanes.iter().for_each(|lanes| pair.recover(lanes));
            Outcome::Opened(pair.bytes())
        }
    }
}

/// How many pages of a home file of this length the journal's records name, whoever's they are: what it
/// costs to believe them.
pub fn cost(image: &Image, home_len: u64) -> u64 {
    let (Some(reflection), Some(journal)) = (&image.reflection, &image.journal) else { return 0 };
    let Some((uuid, session)) = sums::session_of(reflection) else { return 0 };
    let points = Points::read(journal, &uuid, session, 0);
    points.pages(points.file_len().max(home_len).min(layout::MAX_LEN))
}

/// The bytes of an image that a crash has just left, whoever its home file is. `None`: refused.
pub fn of_this_boot(image: &Image) -> Option<Contents> {
    after(image, true)
}

/// The same after a restart of the machine.
pub fn of_another_boot(image: &Image) -> Option<Contents> {
    after(image, false)
}

/// Whether the session had not ended, and only its last durable point counts after a restart.
pub fn goes_back_after_restart(image: &Image) -> bool {
    let Some(reflection) = &image.reflection else { return false };
    let Some((_, session)) = sums::session_of(reflection) else { return false };
    layout::SUPERBLOCKS.map(|at| reflection.bytes(at, SUPERBLOCK_LEN)).iter().any(|bytes| {
        word(bytes, 16) == session
            && matches!(copy(bytes), Copy::Valid(superblock) if superblock.is_undone(false))
    })
}

fn after(image: &Image, same_boot: bool) -> Option<Contents> {
    let Some(reflection) = &image.reflection else { return Some(image.home.clone()) };
    let (uuid, session) = sums::session_of(reflection)?;
    let newest = layout::SUPERBLOCKS
        .map(|at| reflection.bytes(at, SUPERBLOCK_LEN))
        .into_iter()
        .find(|bytes| word(bytes, 16) == session)?;
    let Copy::Valid(superblock) = copy(&newest) else { return None };
    if superblock.state == 3 || superblock.durable == 3 {
        return Some(image.home.clone());
    }
    if superblock.is_undone(same_boot) {
        let journal = image.journal.as_ref()?;
        let points = Points::read(journal, &uuid, session, superblock.durable_len);
        return Some(points.bytes(image));
    }
    if superblock.state == 1 && !same_boot {
        return None;
    }
    let mut pair = Pair { image: image.clone(), len: reflection.word(layout::LENGTH_WORD) };
    if superblock.state == 1 {
        pair.recover(&entries(pair.reflection(), &uuid, session)?);
    }
    Some(pair.bytes())
}

fn fits(len: u64, how: &How) -> bool {
    len <= layout::MAX_LEN && how.max_len.is_none_or(|most| len <= most && most <= layout::MAX_LEN)
}

enum Judged {
    Refused(Mismatch),
    /// The home file's bytes are as they are.
    Plain,
    /// Only the last durable point counts.
    GoBack(Points),
    Kept {
        recover: bool,
        len: u64,
        high_water: u64,
        uuid: [u8; 16],
        session: u64,
    },
}

fn judge(image: &Image, stat: &Stat, boot: [u8; 16], is_elsewhere: bool, how: &How) -> Judged {
    let is = stat.identity;
    let refused = |why| Judged::Refused(why);
    let unless_discarded = |why| match how.wish {
        OnMismatch::Discard => Judged::Plain,
        _ => Judged::Refused(why),
    };
    // The mark: whose uuid, and of which file.
    let mark = image.mark.as_ref().filter(|mark| mark.len() == 40).map(|mark| {
        let born = (small(mark, 36) != 0).then(|| moment(mark, 24, 32));
        (&mark[..16], word(mark, 16) == is.inode && same_birth(born, is.born))
    });
    let Some(reflection) = &image.reflection else {
        return match mark {
            Some((_, true)) => unless_discarded(Mismatch::ReflectionGone),
            Some((_, false)) => unless_discarded(Mismatch::HomeIsCopy),
            None if is_elsewhere && stat.len > 0 => unless_discarded(Mismatch::HomeReplaced),
            None => Judged::Plain,
        };
    };
    let superblock = |n: usize| {
        let at = layout::SUPERBLOCKS[n];
        let there = reflection.len.saturating_sub(at).min(SUPERBLOCK_LEN as u64) as usize;
        let mut bytes = reflection.bytes(at, SUPERBLOCK_LEN);
        bytes[there..].fill(0);
        copy(&bytes)
    };
    let found = match (superblock(0), superblock(1)) {
        (Copy::Newer(version), _) | (_, Copy::Newer(version)) => {
            return refused(Mismatch::Newer { version });
        }
        (Copy::Foreign, Copy::Foreign) => {
            let start = reflection.bytes(0, reflection.len.min(8) as usize);
            if reflection.len >= 512 || !b"AtomMmap".starts_with(&start[..]) {
                return refused(Mismatch::Foreign);
            }
            return unless_discarded(Mismatch::ReflectionTruncated);
        }
        (Copy::Valid(a), Copy::Valid(b)) => {
            if a.session >= b.session {
                a
            } else {
                b
            }
        }
        (Copy::Valid(one), _) | (_, Copy::Valid(one)) => one,
        _ if reflection.len < layout::SUPERCHUNKS => {
            return unless_discarded(Mismatch::ReflectionTruncated);
        }
        _ => return unless_discarded(Mismatch::Corrupt),
    };
    // Emptied, or being made.
    if found.state == 3 || found.durable == 3 {
        return Judged::Plain;
    }
    let same_boot = found.boot == boot && boot != [0; 16];
    let was = found.identity;
    if was.inode != is.inode
        || !same_birth(was.born, is.born)
        || (same_boot && was.device != is.device)
    {
        return unless_discarded(Mismatch::Swapped);
    }
    if reflection.len < layout::SUPERCHUNKS {
        return unless_discarded(Mismatch::ReflectionTruncated);
    }
    if found.session >= NO_SESSION || found.durable_len > layout::MAX_LEN && found.durable != 0 {
        return unless_discarded(Mismatch::Corrupt);
    }
    let len = reflection.word(layout::LENGTH_WORD);
    let high_water = reflection.word(layout::HIGH_WATER_WORD);
    let points = image
        .journal
        .as_ref()
        .filter(|_| found.has_points())
        .map(|journal| Points::read(journal, &found.uuid, found.session, found.durable_len));
    let is_undone = found.is_undone(same_boot);
    // What only the working state needs is not looked at where it does not count.
    if !is_undone {
        if len > layout::MAX_LEN || high_water > layout::MAX_LEN {
            return unless_discarded(Mismatch::Corrupt);
        }
        if reflection.len < layout::reflection_len(len) {
            return unless_discarded(Mismatch::ReflectionTruncated);
        }
        if let Some(points) = &points {
            if points.file_len() > len.max(high_water) {
                return unless_discarded(Mismatch::Corrupt);
            }
            if reflection.len < layout::reflection_len(points.file_len()) {
                return unless_discarded(Mismatch::ReflectionTruncated);
            }
        }
    }
    // Damage comes before the question whose mark it is.
    if mark.is_some_and(|(uuid, is_of)| !is_of || uuid != found.uuid) {
        return unless_discarded(Mismatch::Swapped);
    }
    if found.has_points() {
        match points {
            None => return unless_discarded(Mismatch::JournalGone),
            Some(points) if is_undone => return Judged::GoBack(points),
            Some(_) => {}
        }
    }
    if stat.len < len {
        return unless_discarded(Mismatch::HomeTruncated);
    }
    let is_closed = found.state == 2;
    let is_changed = match is_closed {
        true => {
            stat.len != found.closed_len || stat.mtime != found.mtime || stat.ctime != found.ctime
        }
        false => stat.len > len.max(high_water),
    };
    let keeps_stores = how.medium == Some(Medium::Dax);
    let why = match () {
        () if is_changed => Some(Mismatch::HomeChanged),
        () if !is_closed && !same_boot && !keeps_stores => Some(Mismatch::Restarted),
        () => None,
    };
    let kept = Judged::Kept {
        recover: !is_closed,
        len,
        high_water,
        uuid: found.uuid,
        session: found.session,
    };
    match (why, how.wish) {
        (None, _) | (Some(_), OnMismatch::Trust) => kept,
        (Some(_), OnMismatch::Discard) => Judged::Plain,
        (Some(why), OnMismatch::Refuse) => refused(why),
    }
}

/// A word's place, the bits that an operation flips, and what they were.
pub(super) type Flipped = (u64, u64, u64);
/// A page, the slices that follow, and where they lie in the reflection file.
pub(super) type Logged = (u64, u64, u64);

/// A page in place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Placed {
    pub page: u64,
    pub stays: u64,
    pub flips: u64,
    pub flipped: u64,
    pub slices: Vec<u8>,
}

/// What an entry of a ring says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Vouch {
    pub number: u64,
    pub page: u64,
    pub is_void: bool,
    pub slices: u64,
    pub sides: u64,
    pub sum: u32,
}

struct Lane {
    /// In the order of their places.
    ring: Vec<Vouch>,
    words: Vec<Flipped>,
    logged: Vec<Logged>,
    placed: Vec<Placed>,
}

/// What the lanes say. `None`: more was spilled than fits the log area.
fn entries(reflection: &Contents, uuid: &[u8; 16], session: u64) -> Option<Vec<Lane>> {
    let mut spilled = 0u64;
    let lane = |n: usize| {
        let seed = |part| sums::seed(uuid, session, n, part);
        let ring = (0..layout::RING).filter_map(|place| {
            let part = Part::Ring(place);
            vouch(&part.bytes(reflection, n), place, seed(part), session)
        });
        let ring = ring.collect();
        let mut lane = Lane { ring, words: Vec::new(), logged: Vec::new(), placed: Vec::new() };
        let seed = seed(Part::Undo);
        let (sequence, what, offset, len, sum) = match undo(&Part::Undo.bytes(reflection, n), seed)
        {
            None => return Some(lane),
            Some(Undo::Words { words, .. }) => {
                lane.words = words;
                return Some(lane);
            }
            Some(Undo::InPlace { pages, .. }) => {
                lane.placed = pages;
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
            Spilled::Logged => {
                lane.logged = spilled_pages(reflection, start, end).unwrap_or_default();
            }
            Spilled::InPlace => {
                lane.placed = placed_pages(reflection, start, end).unwrap_or_default();
            }
        }
        Some(lane)
    };
    (0..layout::LANE_COUNT).map(lane).collect()
}

/// What an undo entry says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Undo {
    Words { sequence: u64, words: Vec<Flipped> },
    InPlace { sequence: u64, pages: Vec<Placed> },
    Spilled { sequence: u64, what: Spilled, offset: u64, len: u64, sum: u32 },
}

/// What lies in the log area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spilled {
    Words,
    Logged,
    InPlace,
}

/// The bytes at an undo entry's place. `None`: no entry, or a torn one.
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
        sums::KIND_IN_PLACE => {
            let mut inline = Contents::of_len(records.len() as u64);
            inline.write(records, 0);
            let pages = placed_pages(&inline, 0, records.len() as u64)?;
            return Some(Undo::InPlace { sequence, pages });
        }
        sums::KIND_SPILLED_UNDO => Spilled::Words,
        sums::KIND_SPILLED_REDO => Spilled::Logged,
        sums::KIND_SPILLED_IN_PLACE => Spilled::InPlace,
        _ => return None,
    };
    let (offset, len) = (word(records, 0), word(records, 8));
    let fits = offset.checked_add(len).is_some_and(|end| end <= layout::LOG_AREA_LEN);
    let sum = u32::try_from(word(records, 16)).ok()?;
    let is_one = records.len() == RECORD && fits;
    is_one.then_some(Undo::Spilled { sequence, what, offset, len, sum })
}

/// The bytes at a place of a ring. `None`: no entry, or a torn one.
pub(super) fn vouch(bytes: &[u8], place: usize, seed: u32, session: u64) -> Option<Vouch> {
    let (header, page) = (word(bytes, 0), u64::from(small(bytes, 12)));
    let (number, kind) = (header >> 24, header >> 16 & 0xFF);
    let (slices, sides) = (word(bytes, 16), word(bytes, 24));
    let is_right = [sums::KIND_VOUCHES, sums::KIND_VOID].contains(&kind)
        && header & 0xFFFF == u64::from(sums::tag(session))
        && small(bytes, 8) == sums::of_vouch(seed, bytes)
        && bytes[36..].iter().all(|byte| *byte == 0)
        && number % layout::RING as u64 == place as u64
        && page < layout::MAX_LEN / P
        && slices != 0
        && sides & slices == sides;
    let is_void = kind == sums::KIND_VOID;
    is_right.then_some(Vouch { number, page, is_void, slices, sides, sum: small(bytes, 32) })
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

pub(super) fn spilled_pages(log: &Contents, mut at: u64, end: u64) -> Option<Vec<Logged>> {
    let mut pages = Vec::new();
    while at < end {
        if end - at < 16 {
            return None;
        }
        let (page, mask) = (log.word(at), log.word(at + 8));
        let len = u64::from(mask.count_ones()) * SLICE as u64;
        if mask == 0 || page >= layout::MAX_LEN / P || end - at - 16 < len {
            return None;
        }
        pages.push((page, mask, at + 16));
        at += 16 + len;
    }
    Some(pages)
}

pub(super) fn placed_pages(log: &Contents, mut at: u64, end: u64) -> Option<Vec<Placed>> {
    let mut pages = Vec::new();
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
        let slices = log.bytes(at + 32, len as usize);
        pages.push(Placed { page, stays, flips, flipped, slices });
        at += 32 + len;
    }
    Some(pages)
}

/// Whether the sequence number `a` came before `b`: 40 bits, modulo.
fn is_before(a: u64, b: u64) -> bool {
    let ahead = b.wrapping_sub(a) & ((1 << 40) - 1);
    ahead != 0 && ahead < 1 << 39
}

/// Whether a reflection file is whole, and names a home file of this name: what opening looks for when
/// there is no home file, or no reflection file where it should be.
pub fn is_of_name(reflection: &Contents, name: &[u8]) -> bool {
    let copies = layout::SUPERBLOCKS.map(|at| reflection.bytes(at, SUPERBLOCK_LEN));
    if copies.iter().any(|bytes| matches!(copy(bytes), Copy::Newer(_))) {
        return false;
    }
    let whole = copies.iter().filter(|bytes| matches!(copy(bytes), Copy::Valid(_)));
    // The first of two that are equal.
    let Some(bytes) = whole.rev().max_by_key(|bytes| word(bytes, 16)) else { return false };
    let len = usize::from(u16::from_le_bytes([bytes[168], bytes[169]]));
    small(bytes, 24) != 3 && &bytes[170..170 + len] == name
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
        for (page, mask, from) in lanes.iter().flat_map(|lane| &lane.logged) {
            if page * P >= self.len {
                continue;
            }
            let mut from = *from;
            for slice in (0..64).filter(|slice| mask >> slice & 1 == 1) {
                let bytes = self.reflection().bytes(from, SLICE);
                let to = layout::reflection(page * P + slice * SLICE as u64);
                self.reflection_mut().write(&bytes, to);
                from += SLICE as u64;
            }
            let missing = mask & !self.valid(*page);
            let at = layout::slice_word(PageIndex(*page));
            let word = self.reflection().word(at);
            self.reflection_mut().set_word(at, word ^ missing);
        }
        for placed in lanes.iter().flat_map(|lane| &lane.placed) {
            if placed.page * P >= self.len {
                continue;
            }
            let at = layout::slice_word(PageIndex(placed.page));
            let word = self.reflection().word(at);
            self.reflection_mut().set_word(at, word & !placed.flips | placed.flipped);
            let valid = self.valid(placed.page);
            let stays = (0..64).filter(|slice| placed.stays >> slice & 1 == 1);
            for (slice, bytes) in stays.zip(placed.slices.chunks_exact(SLICE)) {
                let at = placed.page * P + slice * SLICE as u64;
                match valid >> slice & 1 {
                    0 => self.image.home.write(bytes, at),
                    _ => self.reflection_mut().write(bytes, layout::reflection(at)),
                }
            }
        }
    }

    /// Moves the slices that a ring vouches for.
    fn go_by_ring(&mut self, ring: &[Vouch]) {
        let mut newest = None;
        for entry in ring {
            newest = match newest {
                Some(known) if !is_before(known, entry.number) => Some(known),
                _ => Some(entry.number),
            };
        }
        let Some(last) = newest else { return };
        // The words before this one were durable when the newest entry was begun.
        let needed_from = last.wrapping_sub(last % 8 + 1) & ((1 << 40) - 1);
        let mut counting: Vec<&Vouch> = Vec::new();
        for entry in ring.iter().filter(|entry| !entry.is_void) {
            if is_before(entry.number, needed_from) {
                continue;
            }
            let is_voided = ring.iter().any(|other| {
                other.is_void && other.page == entry.page && is_before(entry.number, other.number)
            });
            if is_voided {
                continue;
            }
            // Down to where it is not before the one below it: numbers that nobody wrote, and that contradict
            // each other, end in the order that this gives.
            counting.push(entry);
            let mut n = counting.len() - 1;
            while n > 0 && is_before(counting[n].number, counting[n - 1].number) {
                counting.swap(n, n - 1);
                n -= 1;
            }
        }
        for Vouch { number, page, slices, sides, sum, .. } in counting.into_iter().copied() {
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

    /// What the two say together.
    fn bytes(&self) -> Contents {
        let mut bytes = self.image.home.clone();
        bytes.set_len(self.len);
        let mut pages: Vec<u64> = Vec::new();
        for (&n, page) in &self.reflection().pages {
            let Some(at) = (n * P).checked_sub(layout::SUPERCHUNKS) else { continue };
            let (superchunk, at) = (at / layout::SUPERCHUNK_LEN, at % layout::SUPERCHUNK_LEN);
            let first = superchunk << 18;
            let words = (0..512u64).filter(|word| word_of(page, *word) != 0);
            match at {
                // A page of slice words: those of 512 pages.
                ..0x20_0000 => pages.extend(words.map(|word| first + at / 8 + word)),
                0x60_0000..0x60_8000 => {
                    let regions = words.map(|word| first / 64 + (at - 0x60_0000) / 8 + word);
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
        // What a slot holds past the end is not in the file.
        bytes.zero(self.len, self.len.next_multiple_of(P));
        bytes
    }
}

fn word_of(page: &[u8; PAGE], n: u64) -> u64 {
    word(page, n as usize * 8)
}
