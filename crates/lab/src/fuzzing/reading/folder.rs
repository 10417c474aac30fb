//! The second reading of a folder: the companions that belong to a home file.

use super::journal::{Needs, Whose, journal_of, journal_owner, read_points};
use super::superblock::{Copy, Superblock, copy, is_same_cache, moment, same_birth, same_file};
use super::{How, NO_SESSION, P};
use crate::fuzzing::ground::{Around, Stat};
use crate::fuzzing::image::{Contents, Image};
use crate::fuzzing::points::Points;
use crate::fuzzing::sums::{self, SUPERBLOCK_LEN, small, word};
use atomic_mmap::testing::layout;
use atomic_mmap::testing::superblock::{Identity, Moment};
use atomic_mmap::{Durability, Medium, Mismatch, OnMismatch};

impl How {
    /// Returns `true` if the session that begins keeps durable points.
    pub(super) fn keeps(&self, around: &Around) -> bool {
        let is_page_cache = match self.medium {
            Some(medium) => medium == Medium::PageCache,
            None => !around.is_in_memory,
        };
        is_page_cache || self.durability == Durability::AtomicSync
    }
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
    pub(super) fn has_free_name(&self, home: &Identity) -> bool {
        let [usual, other] = names_of(home);
        let further = (2..16).map(|n| format!("{other}-{n:x}"));
        [usual, other.clone()].into_iter().chain(further).any(|name| {
            !self.companions.contains_key(&name)
                && !self.companions.contains_key(&journal_of(&name))
        })
    }
}

pub(super) enum Judged {
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
pub(super) struct Chosen {
    pub(super) name: String,
    pub(super) superblock: Superblock,
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
pub(super) struct Folder<'a> {
    pub(super) image: &'a Image,
    pub(super) stat: &'a Stat,
    pub(super) around: &'a Around,
    pub(super) how: &'a How,
}

/// The mark: the uuid of the pair, and the file that it was written for.
struct Mark {
    pub(super) uuid: [u8; 16],
    pub(super) file: Identity,
    /// The file that the companions are named after, and the number of the name.
    named_after: (Identity, u32),
    /// The session numbers that the superblock next to it may have.
    sessions: Option<[u64; 3]>,
    /// The companions were about to be removed.
    is_closing: bool,
}

impl Folder<'_> {
    fn mark(&self) -> Option<Mark> {
        let mark = self.image.mark.as_ref().filter(|mark| [40, 88].contains(&mark.len()))?;
        let file = |at: usize| {
            let is_known = small(mark, at + 20) & 1 == 1;
            let born = is_known.then(|| moment(mark, at + 8, at + 16));
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
        let is_closing = small(mark, 36) & 2 == 2;
        Some(Mark { uuid, file: file(16), named_after, sessions, is_closing })
    }

    pub(super) fn identity(&self, name: &str) -> Identity {
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
        let newest = match (superblock(0), superblock(1)) {
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
        };
        newest.map(|mut newest| {
            newest.look_for_settlement(reflection);
            newest
        })
    }

    /// Returns `true` if a spatial close of this file was about to remove the companions of the
    /// pair that `mark` names.
    fn is_closing(&self, mark: Option<&Mark>) -> bool {
        mark.is_some_and(|mark| mark.is_closing && same_file(&mark.file, &self.stat.identity))
    }

    /// Returns the mark as far as it concerns a pair of this superblock. The mark of a pair that
    /// was closed spatially does not concern a later pair of the file.
    fn mark_for(&self, superblock: &Superblock) -> Option<Mark> {
        let mark = self.mark()?;
        let is_over = self.is_closing(Some(&mark))
            && mark.uuid != superblock.uuid
            && same_file(&superblock.identity, &self.stat.identity);
        (!is_over).then_some(mark)
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

    pub(super) fn judge(&self) -> (Option<Chosen>, Judged) {
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
                Ok(superblock) => {
                    match self.owner(name, &superblock, self.mark_for(&superblock).as_ref()) {
                        Is::Contested => Found::Bad(Mismatch::Swapped),
                        Is::OfAnotherTime => Found::Bad(Mismatch::RolledBack),
                        Is::Anothers => Found::Anothers,
                        is => return self.judge_pair(name, superblock, is),
                    }
                }
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
            // The file was complete before the first of its companions was removed.
            (Some(true), _) if self.is_closing(mark.as_ref()) => Judged::Plain,
            (Some(true), Found::Anothers) => discardable(Mismatch::Swapped),
            (Some(true), _) => discardable(Mismatch::ReflectionGone),
            (Some(false), _) => discardable(Mismatch::HomeIsCopy),
        };
        (None, judged)
    }

    /// Returns the names of journals without a reflection file that may be of the pair that the
    /// mark names.
    pub(super) fn lone_journals(&self) -> Vec<String> {
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
                            superblock.state == 2 && !matches!(judged, Judged::Refused(_));
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
        let without_wish = self.judge_state(name, &found, is_restored, OnMismatch::Refuse);
        let is_closing = self.is_closing(self.mark_for(&found).as_ref());
        if is_closing && matches!(without_wish, Judged::Refused(Mismatch::JournalGone)) {
            judged = Judged::Plain;
        }
        if is_bare {
            // Only the name connects the two files, and the length says that the companion belongs
            // to another file.
            let is_by_length = match without_wish {
                Judged::Refused(Mismatch::JournalGone | Mismatch::JournalSwapped)
                    if found.state == 2 =>
                {
                    self.stat.len != found.closed_len
                }
                Judged::Refused(Mismatch::HomeTruncated) => true,
                Judged::Refused(Mismatch::HomeChanged) => {
                    found.state != 2 || self.stat.len != found.closed_len
                }
                Judged::GoBack(points) => {
                    let reflection = &self.around.companions[name];
                    let words = sums::LENGTH_WORDS.map(|at| sums::whole_length_at(reflection, at));
                    let of_home = self.stat.len;
                    points.file_len() != of_home && !words.contains(&Some(of_home))
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
        if sums::begun(reflection).is_some_and(|begun| begun > found.session) {
            return unless_discarded(Mismatch::Corrupt);
        }
        // Empty, or unfinished.
        if found.is_plain(self.mark_for(found).is_some()) {
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
        let is_incomplete = found.is_incomplete(is_believed);
        let words = sums::LENGTH_WORDS.map(|at| sums::whole_length_at(reflection, at));
        let is_undone = found.is_undone(is_believed);
        let [len, high_water] = match words {
            _ if is_incomplete => [found.closed_len, 0],
            [Some(len), Some(high_water)] => [len, high_water],
            // The working state does not count.
            _ if is_undone => [0, 0],
            _ => return unless_discarded(Mismatch::Corrupt),
        };
        // Data that only the working state needs is not checked if the working state does not
        // count.
        if !is_undone {
            if len > layout::MAX_LEN || high_water > layout::MAX_LEN {
                return unless_discarded(Mismatch::Corrupt);
            }
            if reflection.len < layout::reflection_len(len) && !is_incomplete {
                return unless_discarded(Mismatch::ReflectionTruncated);
            }
        }
        let mut complete = None;
        if found.has_points() || is_incomplete {
            let needs = match is_believed {
                _ if !is_undone && !is_incomplete => Needs::None,
                true => Needs::Newest,
                false => Needs::All,
            };
            let points = match read_points(found, reflection, journal, needs) {
                Ok(points) => points,
                // After the death of a process the working words count, without a record.
                Err(_) if needs == Needs::None => Points::none(0),
                Err(why) => return unless_discarded(why),
            };
            if is_undone {
                return Judged::GoBack(points);
            }
            if is_incomplete {
                complete = Some(points.with_whole_home());
            } else if points.file_len() > len.max(high_water) {
                return unless_discarded(Mismatch::Corrupt);
            } else if reflection.len < layout::reflection_len(points.file_len()) {
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
        let kept = match complete {
            Some(points) => Judged::GoBack(points),
            None => Judged::Kept {
                recover: !is_closed,
                len,
                high_water,
                uuid: found.uuid,
                session: found.session,
            },
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
    /// The companion of an earlier file, which this file has replaced.
    Earlier,
    /// Several that may have been restored, and no reason to choose one.
    Several,
}
