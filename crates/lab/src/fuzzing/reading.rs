//! The expected result of an open: a second reading of `docs/format.md` and `docs/recovery.md`.
//!
//! Shares no code with `src/recovery/` nor with the decoders of `src/format/`. Both must come to
//! the same conclusion about every image, or one of them is wrong. [`super::points`] reads the
//! durable point that a restart goes back to. The documents leave one order open: that of lanes
//! with contradicting records, which no crash leaves. There the order is that of the code.

use super::ground::{Around, Cache, Stat};
use super::image::{Contents, Image};
use super::points::{self, Points};
use super::sums::{self, Part, RECORD, SUPERBLOCK_LEN, UNDO_HEADER, small, word};
use atomic_mmap::testing::superblock::{Identity, Moment};
use atomic_mmap::testing::{PAGE, PageIndex, REGION, RegionIndex, SLICE, layout};
use atomic_mmap::{Durability, Medium, Mismatch, OnMismatch};

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

/// A decoded superblock.
pub(super) struct Superblock {
    state: u32,
    pub uuid: [u8; 16],
    pub session: u64,
    identity: Identity,
    own: Identity,
    closed_len: u64,
    mtime: Moment,
    /// The checksum of the home file at the close.
    closed_sum: Option<u32>,
    /// The home file had a mark before the superblock was written.
    is_marked: bool,
    cache: Cache,
    name: Vec<u8>,
    durable: u32,
    durable_len: u64,
}

impl Superblock {
    /// Returns `true` if the session kept durable points.
    fn has_points(&self) -> bool {
        self.state == 1 && (1..=2).contains(&self.durable)
    }

    /// Returns `true` if the session ended so that only the last durable point counts.
    fn is_undone(&self, is_believed: bool) -> bool {
        self.has_points() && (self.durable == 2 || !is_believed)
    }

    /// Returns `true` if the pair was being created, or if a spatial close did not end.
    fn is_unfinished(&self) -> bool {
        self.state == 3 || self.durable == 3
    }
}

/// The state of one copy of the superblock.
#[allow(clippy::large_enum_variant, reason = "few are made, and none is kept")]
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
    let born =
        |known, seconds, nanos| (small(bytes, known) != 0).then(|| moment(bytes, seconds, nanos));
    let name_len = usize::from(u16::from_le_bytes([bytes[168], bytes[169]]));
    Copy::Valid(Superblock {
        state,
        uuid: std::array::from_fn(|n| bytes[32 + n]),
        session: word(bytes, 16),
        identity: Identity {
            device: word(bytes, 88),
            inode: word(bytes, 96),
            born: born(116, 104, 112),
        },
        own: Identity { device: 0, inode: word(bytes, 440), born: born(460, 448, 456) },
        closed_len: word(bytes, 120),
        mtime: moment(bytes, 128, 136),
        closed_sum: (small(bytes, 500) != 0).then(|| small(bytes, 496)),
        is_marked: small(bytes, 28) & 1 == 1,
        cache: Cache {
            boot: std::array::from_fn(|n| bytes[152 + n]),
            volume: word(bytes, 464),
            uptime: word(bytes, 472),
            started: word(bytes, 480) as i64,
            devices_born: word(bytes, 488),
        },
        name: bytes[170..170 + name_len].to_vec(),
        durable: small(bytes, 428),
        durable_len: word(bytes, 432),
    })
}

fn same_birth(a: Option<Moment>, b: Option<Moment>) -> bool {
    let is_time = |born: Moment| born.nanos != u32::MAX;
    match (a, b) {
        // A generation number and a time cannot be compared.
        (Some(a), Some(b)) if is_time(a) == is_time(b) => a == b,
        _ => true,
    }
}

fn same_file(a: &Identity, b: &Identity) -> bool {
    a.inode == b.inode && same_birth(a.born, b.born)
}

/// Maximum change of the clock in nanoseconds that does not indicate a restart.
const CLOCK_SLACK: u64 = 2_000_000_000;

/// Returns `true` if the page cache `was` is still the current one.
fn is_same_cache(was: &Cache, now: &Cache) -> bool {
    let is_known = was.boot != [0; 16] && was.volume != 0;
    let is_said = was.boot == now.boot && was.volume == now.volume;
    let clock_was_set = was.started.abs_diff(now.started) > CLOCK_SLACK;
    let started_anew = clock_was_set && was.devices_born != now.devices_born;
    is_known && is_said && was.uptime <= now.uptime && !started_anew
}

/// Returns the expected result of opening the home file of `image`. `stat` describes the home file,
/// and `around` its surroundings.
pub fn outcome(image: &Image, stat: &Stat, around: &Around, how: &How) -> Outcome {
    let (chosen, judged) = Folder { image, stat, around, how }.judge();
    // The companions of this home file, which the open may write to or remove.
    let mut gone = Vec::new();
    let mut pair = Image { home: image.home.clone(), ..Image::default() };
    let mut uuid = None;
    if let Some(Chosen { name, superblock }) = &chosen {
        pair.reflection = around.companions.get(name).cloned();
        pair.journal = around.companions.get(&journal_of(name)).cloned();
        gone.push(name.clone());
        uuid = Some(superblock.uuid);
    }
    let owner = uuid.map_or(Whose::Nobodys, |uuid| journal_owner(pair.journal.as_ref(), &uuid));
    let keeps = how.keeps(around);
    let plain = || {
        if !fits(stat.len, how) {
            return Outcome::TooLong;
        }
        let mut gone = gone.clone();
        match &chosen {
            Some(Chosen { name, .. }) => {
                if owner != Whose::Anothers {
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
            if matches!(owner, Whose::Anothers | Whose::Unknown) {
                return Outcome::JournalOfAnother;
            }
            gone.push(journal_of(name));
        } else if (1..=2).contains(&superblock.durable) && owner != Whose::Anothers {
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
            if !fits(len.max(high_water), how) {
                return Outcome::TooLong;
            }
            lanes.iter().for_each(|lanes| pair.recover(lanes));
            goes_on(pair.bytes())
        }
    }
}

/// The owner of a journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Whose {
    /// There is no journal, or an unfinished one.
    Nobodys,
    Ours,
    /// A pair with another uuid, by an intact header.
    Anothers,
    /// The file has bytes, but no intact header.
    Unknown,
}

fn journal_owner(journal: Option<&Contents>, uuid: &[u8; 16]) -> Whose {
    let Some(journal) = journal else { return Whose::Nobodys };
    match points::header(journal) {
        Some(header) if header.uuid == *uuid => Whose::Ours,
        Some(_) => Whose::Anothers,
        None => {
            let len = journal.len.min(2 * sums::BLOCK) as usize;
            match journal.bytes(0, len).iter().all(|byte| *byte == 0) {
                true => Whose::Nobodys,
                false => Whose::Unknown,
            }
        }
    }
}

impl How {
    /// Returns `true` if the session that begins keeps durable points.
    fn keeps(&self, around: &Around) -> bool {
        let is_page_cache = match self.medium {
            Some(medium) => medium == Medium::PageCache,
            None => !around.is_in_memory,
        };
        is_page_cache || self.durability == Durability::AllOrNothing
    }
}

/// Returns the name of the journal of a reflection file.
pub fn journal_of(name: &str) -> String {
    format!("{name}.journal")
}

/// Returns the first two possible names of a home file's companion. Further names end with a
/// number.
pub fn names_of(home: &Identity) -> [String; 2] {
    let usual = format!(".atomic-mmap.{:x}", home.inode);
    let Moment { seconds, nanos } = home.born.unwrap_or_default();
    let other = format!("{usual}-{seconds:x}.{nanos:x}");
    [usual, other]
}

impl Around {
    fn has_free_name(&self, home: &Identity) -> bool {
        let [usual, other] = names_of(home);
        let further = (2..16).map(|n| format!("{other}-{n:x}"));
        [usual, other.clone()].into_iter().chain(further).any(|name| {
            !self.companions.contains_key(&name)
                && !self.companions.contains_key(&journal_of(&name))
        })
    }
}

/// Returns the number of pages that the journal's records name, for a home file of this length.
/// This is the cost of a replay, whatever pair the records belong to.
pub fn cost(image: &Image, home_len: u64) -> u64 {
    let (Some(reflection), Some(journal)) = (&image.reflection, &image.journal) else { return 0 };
    let Some((uuid, session)) = sums::session_of(reflection) else { return 0 };
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

/// Returns `true` if the session did not end, and a restart leaves only its last durable point.
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
    if superblock.is_unfinished() {
        return Some(image.home.clone());
    }
    if superblock.is_undone(same_boot) {
        let journal = image.journal.as_ref()?;
        if !points::vouches(journal, &uuid, session) {
            return None;
        }
        let points = Points::read(journal, &uuid, session, superblock.durable_len);
        let is_older = points.end_before(points::floor(reflection, &uuid, session));
        return (!is_older).then(|| points.bytes(image));
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
    /// The home file's bytes count as they are.
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

/// The reflection file that belongs to this home file.
struct Chosen {
    name: String,
    superblock: Superblock,
}

/// The relation of a candidate reflection file to this home file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Is {
    Ours,
    /// The pair comes from a backup, so no page cache has stores to it.
    Restored,
    /// The file belongs to this home file, but the mark that it names is gone.
    Unmarked {
        is_copy: bool,
    },
    OfAnotherTime,
    Contested,
    Anothers,
}

/// The best finding if no reflection file belongs to this home file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Found {
    Nothing,
    Anothers,
    Foreign,
    Earlier,
    Bad(Mismatch),
}

/// The inputs of the judgement.
struct Folder<'a> {
    image: &'a Image,
    stat: &'a Stat,
    around: &'a Around,
    how: &'a How,
}

/// The mark: the uuid of the pair, and the file that it was written for.
struct Mark {
    uuid: [u8; 16],
    file: Identity,
    /// The file that the companions are named after, and the number of the name.
    named_after: (Identity, u32),
    /// The session numbers that the superblock next to it may have.
    sessions: Option<[u64; 3]>,
}

impl Folder<'_> {
    fn mark(&self) -> Option<Mark> {
        let mark = self.image.mark.as_ref().filter(|mark| [40, 88].contains(&mark.len()))?;
        let file = |at: usize| {
            let born = (small(mark, at + 20) != 0).then(|| moment(mark, at + 8, at + 16));
            Identity { device: 0, inode: word(mark, at), born }
        };
        let mut named_after = (file(16), 0);
        let mut sessions = None;
        if mark.len() == 88 {
            if word(mark, 40) != 0 {
                named_after = (file(40), small(mark, 64));
            }
            let (before, begun) = (word(mark, 72), word(mark, 80));
            if before >= NO_SESSION || begun >= NO_SESSION {
                return None;
            }
            sessions = (small(mark, 68) != 0).then(|| [before, begun, begun + 1]);
        }
        let uuid = std::array::from_fn(|n| mark[n]);
        Some(Mark { uuid, file: file(16), named_after, sessions })
    }

    fn identity(&self, name: &str) -> Identity {
        let found = self.around.files.iter().find(|(known, _)| known == name);
        found.expect("a file of the folder").1
    }

    /// Returns the newest intact superblock of a file. The error says what the file is instead.
    fn superblock(reflection: &Contents) -> Result<Superblock, Found> {
        let superblock = |n: usize| {
            let at = layout::SUPERBLOCKS[n];
            let there = reflection.len.saturating_sub(at).min(SUPERBLOCK_LEN as u64) as usize;
            let mut bytes = reflection.bytes(at, SUPERBLOCK_LEN);
            bytes[there..].fill(0);
            copy(&bytes)
        };
        match (superblock(0), superblock(1)) {
            (Copy::Newer(version), _) | (_, Copy::Newer(version)) => {
                Err(Found::Bad(Mismatch::Newer { version }))
            }
            (Copy::Foreign, Copy::Foreign) => {
                let start = reflection.bytes(0, reflection.len.min(8) as usize);
                match reflection.len >= 512 || !b"AtomMmap".starts_with(&start[..]) {
                    true => Err(Found::Foreign),
                    false => Err(Found::Bad(Mismatch::ReflectionTruncated)),
                }
            }
            (Copy::Valid(a), Copy::Valid(b)) if a.session >= b.session => Ok(a),
            (_, Copy::Valid(one)) | (Copy::Valid(one), _) => Ok(one),
            _ if reflection.len < layout::SUPERCHUNKS => {
                Err(Found::Bad(Mismatch::ReflectionTruncated))
            }
            _ => Err(Found::Bad(Mismatch::Corrupt)),
        }
    }

    /// Returns the relation of the reflection file with this name to the home file.
    fn owner(&self, name: &str, superblock: &Superblock, mark: Option<&Mark>) -> Is {
        let is = &self.stat.identity;
        let names_home = same_file(&superblock.identity, is);
        let own = &superblock.own;
        let is_copy = own.inode != 0 && !same_file(own, &self.identity(name));
        let is_open_copy = is_copy && superblock.state == 1;
        let Some(mark) = mark else {
            // An inode number alone proves little if files have marks and this one has none.
            let is_by_number = superblock.identity.born.is_none() || is.born.is_none();
            let lacks_mark = is_by_number && self.around.has_marks;
            return match names_home {
                true if superblock.is_unfinished() && lacks_mark => Is::Anothers,
                true if superblock.is_unfinished() => Is::Ours,
                // The mark is older than the superblock, so a file without a mark has no pair.
                true if superblock.is_marked && is_by_number => Is::Anothers,
                true if superblock.is_marked => Is::Unmarked { is_copy },
                true if lacks_mark || is_open_copy => Is::Contested,
                true => Is::Ours,
                false if is_copy && self.is_of_name(superblock) => self.unless_beside(superblock),
                false => Is::Anothers,
            };
        };
        let says_the_same = same_file(&mark.file, &superblock.identity);
        match (mark.uuid == superblock.uuid, same_file(&mark.file, is), names_home) {
            (true, _, true) if is_open_copy => Is::Contested,
            (true, true, true)
                if mark.sessions.is_some_and(|fit| !fit.contains(&superblock.session)) =>
            {
                Is::OfAnotherTime
            }
            (true, _, true) => Is::Ours,
            (true, false, false) if is_copy && says_the_same => self.unless_beside(superblock),
            (false, _, true) => Is::Contested,
            _ => Is::Anothers,
        }
    }

    /// Returns the relation of a copied companion: its own home file may lie in the same folder.
    fn unless_beside(&self, superblock: &Superblock) -> Is {
        match self.lies_here(superblock) {
            true => Is::Anothers,
            false => Is::Restored,
        }
    }

    /// Returns `true` if the home file that a superblock names lies in the folder, under any name.
    fn lies_here(&self, superblock: &Superblock) -> bool {
        let home = &superblock.identity;
        let no_time = home.born.is_some_and(|born| born.nanos == u32::MAX);
        let mut files = self.around.files.iter();
        files.any(|(_, is)| is.inode == home.inode && (no_time || same_birth(is.born, home.born)))
    }

    /// Returns `true` if the superblock is that of a finished pair and names a home file of this
    /// name.
    fn is_of_name(&self, superblock: &Superblock) -> bool {
        let name = self.around.home_name.as_bytes();
        let is_named = match superblock.name.strip_suffix(name) {
            Some(folder) => folder.is_empty() || folder.ends_with(b"/"),
            None => false,
        };
        is_named && !superblock.is_unfinished()
    }

    fn judge(&self) -> (Option<Chosen>, Judged) {
        let mark = self.mark();
        // Also with a mark that this version cannot read.
        let is_marked = self.image.mark.is_some();
        let has_bytes = self.stat.len > 0 || is_marked;
        // If files have marks, a file without one has no pair.
        let may_have_pair = is_marked || has_bytes && !self.around.has_marks;
        let mut names = names_of(&self.stat.identity).to_vec();
        while names.len() < 16 && self.around.companions.contains_key(&names[names.len() - 1]) {
            names.push(format!("{}-{:x}", names[1], names.len()));
        }
        if let Some(Mark { named_after: (file, index), .. }) = &mark {
            let [usual, other] = names_of(file);
            let further = (*index > 1).then(|| format!("{other}-{index:x}"));
            names.extend([usual, other].into_iter().chain(further));
        }
        let mut found = Found::Nothing;
        for name in &names {
            let Some(reflection) = self.around.companions.get(name) else { continue };
            let what = match Self::superblock(reflection) {
                Err(what) => what,
                Ok(superblock) => match self.owner(name, &superblock, mark.as_ref()) {
                    Is::Contested => Found::Bad(Mismatch::Swapped),
                    Is::OfAnotherTime => Found::Bad(Mismatch::RolledBack),
                    Is::Anothers => Found::Anothers,
                    is => return self.judge_pair(name, superblock, is),
                },
            };
            let is_certain =
                matches!(what, Found::Bad(Mismatch::Swapped | Mismatch::RolledBack)) && has_bytes;
            let counts = is_certain || may_have_pair;
            let matters = counts && matches!(what, Found::Bad(_));
            if found == Found::Nothing || matters {
                found = if counts { what } else { Found::Anothers };
            }
        }
        let may_be_lost = mark.is_none() && self.stat.len > 0;
        if may_be_lost && !matches!(found, Found::Bad(_)) {
            match self.search(&names) {
                Some(Searched::Found(name, superblock, is)) => {
                    return self.judge_pair(&name, superblock, is);
                }
                Some(Searched::Several) => found = Found::Bad(Mismatch::Swapped),
                Some(Searched::Earlier) => found = Found::Earlier,
                None => {}
            }
        }
        let discardable = |why| match self.how.wish {
            OnMismatch::Discard => Judged::Plain,
            _ => Judged::Refused(why),
        };
        let is_marked = mark.as_ref().map(|mark| same_file(&mark.file, &self.stat.identity));
        let judged = match (is_marked, found) {
            (_, Found::Bad(why @ Mismatch::Newer { .. })) => Judged::Refused(why),
            (_, Found::Bad(why)) => discardable(why),
            (None, Found::Earlier) => discardable(Mismatch::HomeReplaced),
            (None, _) => Judged::Plain,
            (Some(_), Found::Foreign) => Judged::Refused(Mismatch::Foreign),
            (Some(true), Found::Anothers) => discardable(Mismatch::Swapped),
            (Some(true), _) => discardable(Mismatch::ReflectionGone),
            (Some(false), _) => discardable(Mismatch::HomeIsCopy),
        };
        (None, judged)
    }

    /// Returns the names of journals without a reflection file that may be of the pair that the
    /// mark names.
    fn lone_journals(&self) -> Vec<String> {
        let Some(mark) = self.mark().filter(|mark| same_file(&mark.file, &self.stat.identity))
        else {
            return Vec::new();
        };
        let names = names_of(&self.stat.identity);
        let further = (2..16).map(|n| format!("{}-{n:x}", names[1]));
        let all = names.iter().cloned().chain(further);
        all.filter(|name| !self.around.companions.contains_key(name))
            .map(|name| journal_of(&name))
            .filter(|name| {
                journal_owner(self.around.companions.get(name), &mark.uuid) != Whose::Anothers
            })
            .collect()
    }

    /// Returns how many components of the path that a superblock names are the home file's, from
    /// the end.
    fn rank(&self, superblock: &Superblock) -> usize {
        let is = self.around.home_path.as_bytes().rsplit(|byte| *byte == b'/');
        let was = superblock.name.rsplit(|byte| *byte == b'/');
        is.zip(was).take_while(|(is, was)| is == was).count()
    }

    /// Looks for a reflection file under another number that names a home file of this name.
    fn search(&self, known: &[String]) -> Option<Searched> {
        let is_companion = |name: &str| {
            let rest = name.strip_prefix(".atomic-mmap.").unwrap_or_default();
            let is_part = |c: char| c.is_ascii_hexdigit() || c == '-' || c == '.';
            rest.starts_with(|c: char| c.is_ascii_hexdigit()) && rest.chars().all(is_part)
        };
        let mut restored: Vec<(usize, bool, String, Superblock)> = Vec::new();
        let mut is_earlier = false;
        for (name, _) in &self.around.files {
            if !is_companion(name) || known.contains(name) {
                continue;
            }
            let reflection = &self.around.companions[name];
            let Ok(superblock) = Self::superblock(reflection) else { continue };
            if !self.is_of_name(&superblock) {
                continue;
            }
            match self.owner(name, &superblock, None) {
                is @ (Is::Ours | Is::Unmarked { .. }) => {
                    return Some(Searched::Found(name.clone(), superblock, is));
                }
                Is::Restored => {
                    if let (Some(Chosen { superblock, .. }), _) =
                        self.judge_pair(name, superblock, Is::Restored)
                    {
                        let wish = OnMismatch::Refuse;
                        let judged = self.judge_state(name, &superblock, true, wish);
                        let is_right =
                            superblock.state == 2 && matches!(judged, Judged::Kept { .. });
                        let like = self.rank(&superblock);
                        restored.push((like, is_right, name.clone(), superblock));
                    }
                }
                // A renamed file in the folder does not concern this one.
                Is::Anothers if !self.lies_here(&superblock) => is_earlier = true,
                _ => {}
            }
        }
        let best = restored.iter().map(|(like, is_right, ..)| (*like, *is_right)).max();
        restored.retain(|(like, is_right, ..)| Some((*like, *is_right)) == best);
        match restored.len() {
            0 => is_earlier.then_some(Searched::Earlier),
            1 => {
                let (_, _, name, superblock) = restored.pop()?;
                Some(Searched::Found(name, superblock, Is::Restored))
            }
            _ => Some(Searched::Several),
        }
    }

    /// Judges the pair.
    fn judge_pair(&self, name: &str, found: Superblock, is: Is) -> (Option<Chosen>, Judged) {
        let is_bare = is == Is::Restored && self.mark().is_none();
        let is_restored = matches!(is, Is::Restored | Is::Unmarked { is_copy: true });
        let mut judged = self.judge_state(name, &found, is_restored, self.how.wish);
        if is_bare {
            // Only the name connects the two files, and the length says that the companion belongs
            // to another file.
            let refused = self.judge_state(name, &found, is_restored, OnMismatch::Refuse);
            let is_by_length = match refused {
                Judged::Refused(Mismatch::HomeTruncated) => true,
                Judged::Refused(Mismatch::HomeChanged) => {
                    found.state != 2 || self.stat.len != found.closed_len
                }
                Judged::GoBack(points) => {
                    let reflection = &self.around.companions[name];
                    let words = [layout::LENGTH_WORD, layout::HIGH_WATER_WORD];
                    let [len, high_water] = words.map(|at| reflection.word(at));
                    ![points.file_len(), len, high_water].contains(&self.stat.len)
                }
                _ => false,
            };
            if is_by_length {
                return (None, Judged::Plain);
            }
        }
        if matches!(is, Is::Unmarked { .. }) {
            judged = match (self.how.wish, judged) {
                // Another mismatch is told first.
                (_, Judged::Refused(why)) => Judged::Refused(why),
                (OnMismatch::Refuse, _) => Judged::Refused(Mismatch::MarkGone),
                (OnMismatch::Discard, _) => Judged::Plain,
                (OnMismatch::Trust, judged) => judged,
            };
        }
        (Some(Chosen { name: name.to_owned(), superblock: found }), judged)
    }

    /// Returns the checksum of the home file, or of some of its pages.
    fn sum_of_home(&self) -> u32 {
        let (home, len) = (&self.image.home, self.stat.len);
        let sum = crc32c::crc32c(&len.to_le_bytes());
        if len <= 1 << 20 {
            return crc32c::crc32c_append(sum, &home.bytes(0, len as usize));
        }
        let last = (len - 1) / P;
        let pages = (0..32).map(|n| {
            let at = last * n / 31 * P;
            home.bytes(at, (len - at).min(P) as usize)
        });
        pages.fold(sum, |sum, page| crc32c::crc32c_append(sum, &page))
    }

    fn judge_state(
        &self,
        name: &str,
        found: &Superblock,
        is_restored: bool,
        wish: OnMismatch,
    ) -> Judged {
        let Folder { stat, around, how, .. } = self;
        let reflection = &around.companions[name];
        let unless_discarded = |why| match wish {
            OnMismatch::Discard => Judged::Plain,
            _ => Judged::Refused(why),
        };
        // Empty, or unfinished.
        if found.is_unfinished() {
            return Judged::Plain;
        }
        if reflection.len < layout::SUPERCHUNKS {
            return unless_discarded(Mismatch::ReflectionTruncated);
        }
        let has_base = (1..=2).contains(&found.durable);
        if found.session >= NO_SESSION || has_base && found.durable_len > layout::MAX_LEN {
            return unless_discarded(Mismatch::Corrupt);
        }
        let is_believed = !is_restored && is_same_cache(&found.cache, &around.now);
        let journal = around.companions.get(&journal_of(name));
        let len = reflection.word(layout::LENGTH_WORD);
        let high_water = reflection.word(layout::HIGH_WATER_WORD);
        let is_undone = found.is_undone(is_believed);
        // Data that only the working state needs is not checked if the working state does not
        // count.
        if !is_undone {
            if len > layout::MAX_LEN || high_water > layout::MAX_LEN {
                return unless_discarded(Mismatch::Corrupt);
            }
            if reflection.len < layout::reflection_len(len) {
                return unless_discarded(Mismatch::ReflectionTruncated);
            }
        }
        if found.has_points() {
            let Some(journal) = journal else { return unless_discarded(Mismatch::JournalGone) };
            if !points::vouches(journal, &found.uuid, found.session) {
                return unless_discarded(Mismatch::JournalSwapped);
            }
            let points = Points::read(journal, &found.uuid, found.session, found.durable_len);
            if points.end_before(points::floor(reflection, &found.uuid, found.session)) {
                return unless_discarded(Mismatch::JournalSwapped);
            }
            if is_undone {
                return Judged::GoBack(points);
            }
            if points.file_len() > len.max(high_water) {
                return unless_discarded(Mismatch::Corrupt);
            }
            if reflection.len < layout::reflection_len(points.file_len()) {
                return unless_discarded(Mismatch::ReflectionTruncated);
            }
        }
        if stat.len < len {
            return unless_discarded(Mismatch::HomeTruncated);
        }
        let is_closed = found.state == 2;
        // A file that was restored without attributes has a new modification time.
        let has_time = !is_restored || self.mark().is_some();
        let is_changed = match is_closed {
            true => {
                let has_other_time = stat.mtime != found.mtime;
                let has_other_sum = || found.closed_sum.map(|sum| sum != self.sum_of_home());
                let is_other = match (is_restored, has_time) {
                    (false, _) => has_other_time,
                    (true, true) => has_other_time && has_other_sum().unwrap_or(true),
                    (true, false) => has_other_sum().unwrap_or(false),
                };
                stat.len != found.closed_len || is_other
            }
            false => stat.len > len.max(high_water),
        };
        let keeps_stores = match how.medium {
            Some(medium) => medium == Medium::Dax,
            None => around.is_in_memory,
        };
        let why = match () {
            () if is_changed => Some(Mismatch::HomeChanged),
            () if !is_closed && !is_believed && (is_restored || !keeps_stores) => {
                Some(Mismatch::Restarted)
            }
            () => None,
        };
        let kept = Judged::Kept {
            recover: !is_closed,
            len,
            high_water,
            uuid: found.uuid,
            session: found.session,
        };
        match (why, wish) {
            (None, _) | (Some(_), OnMismatch::Trust) => kept,
            (Some(_), OnMismatch::Discard) => Judged::Plain,
            (Some(why), OnMismatch::Refuse) => Judged::Refused(why),
        }
    }
}

/// The result of the search for companions under other numbers.
#[allow(clippy::large_enum_variant, reason = "one is made, and none is kept")]
enum Searched {
    Found(String, Superblock, Is),
    /// The companion of an earlier file, which this file has repage.
    Earlier,
    /// Several that may have been restored, and no reason to choose one.
    Several,
}

/// The place of a word, the bits that an operation flips, and their old values.
pub(super) type Flipped = (u64, u64, u64);

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
pub(super) struct Vouch {
    pub number: u64,
    pub page: u64,
    pub is_void: bool,
    pub slices: u64,
    pub sides: u64,
    pub sum: u32,
}

struct Lane {
    /// The flip records, in the order of their places.
    ring: Vec<Vouch>,
    words: Vec<Flipped>,
    redo: Vec<RedoPage>,
}

/// Decodes all lanes. Returns `None` if they spilled more than the log area can hold.
fn entries(reflection: &Contents, uuid: &[u8; 16], session: u64) -> Option<Vec<Lane>> {
    let mut spilled = 0u64;
    let lane = |n: usize| {
        let seed = |part| sums::seed(uuid, session, n, part);
        let ring = (0..layout::RING).filter_map(|place| {
            let part = Part::Ring(place);
            vouch(&part.bytes(reflection, n), place, seed(part), session)
        });
        let ring = ring.collect();
        let mut lane = Lane { ring, words: Vec::new(), redo: Vec::new() };
        let seed = seed(Part::Undo);
        let (sequence, what, offset, len, sum) = match undo(&Part::Undo.bytes(reflection, n), seed)
        {
            None => return Some(lane),
            Some(Undo::Words { words, .. }) => {
                lane.words = words;
                return Some(lane);
            }
            Some(Undo::Redo { pages, .. }) => {
                lane.redo = pages;
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
                lane.redo = redo_pages(reflection, start, end).unwrap_or_default();
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
    Redo { sequence: u64, pages: Vec<RedoPage> },
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
            let pages = redo_pages(&inline, 0, records.len() as u64)?;
            return Some(Undo::Redo { sequence, pages });
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

pub(super) fn redo_pages(log: &Contents, mut at: u64, end: u64) -> Option<Vec<RedoPage>> {
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
        let bytes = log.bytes(at + 32, len as usize);
        pages.push(RedoPage { page, stays, flips, flipped, bytes });
        at += 32 + len;
    }
    Some(pages)
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
        for page in lanes.iter().flat_map(|lane| &lane.redo) {
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
    fn go_by_ring(&mut self, ring: &[Vouch]) {
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
            // Insert the record by its number. Contradictory numbers, which no engine wrote, end in
            // the order that this gives.
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

    /// Returns the bytes that both files together define.
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
                // A page of slice words, for 512 pages.
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
        // Bytes of a slot past the end are not part of the file.
        bytes.zero(self.len, self.len.next_multiple_of(P));
        bytes
    }
}

fn word_of(page: &[u8; PAGE], n: u64) -> u64 {
    word(page, n as usize * 8)
}
