//! Finds the names that companions may have, and proves to which home file a companion belongs.
//!
//! Opening looks names up. It lists a folder only where a plain file may have lost its companions.
//! Then it reads at most [`MOST_LISTED`] names and opens at most [`MOST_LOOKED_AT`] files. So
//! opening takes no longer in a folder of a million files.
//!
//! | name | belongs to |
//! |---|---|
//! | `.atomic-mmap.<inode>` | the home file with that inode number |
//! | `.atomic-mmap.<inode>-<birth>` | that home file, if the first name was taken |
//! | `.atomic-mmap.<inode>-<birth>-<index>` | that home file, if both were taken. At last random |
//! | a name made from the inode that the mark names | a home file that was copied with its mark |
//!
//! The mark holds the index of a name of the third form. A pair is known by its uuid, which the
//! mark on the home file repeats. [`Opening::claim`] returns what a whole superblock proves about
//! this home file. May import `probe`'s findings, `format`, and `platform`.

use super::Opening;
use super::pair::Found;
use super::probe::Probe;
use super::trust::Named;
use crate::engine::superblock::{Companions, identity_of, moment};
use crate::error::Result;
use crate::format::marker::{self, Key, Marker};
use crate::format::superblock::{Identity, Judged, Moment, State, Superblock};
use crate::mutant::planted;
use crate::platform::{File, FileStat, NO_TIME, Name};
use std::ffi::{OsStr, OsString};

/// Prefix of every companion's name. The inode number of the home file follows, in hex.
pub(super) const NAME_PREFIX: &str = ".atomic-mmap.";
/// Largest number of names that are read from a folder.
const MOST_LISTED: usize = 1024;
/// Largest number of reflection files that are opened in a folder.
const MOST_LOOKED_AT: usize = 64;

/// Number of names that a home file may have for its reflection file, besides random ones.
const NAMES: u32 = 16;
/// Number of random names that are tried.
const RANDOM_NAMES: u32 = 4;

/// The proof that a whole superblock gives about the home file that is being opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// The companion belongs to this home file.
    Ours,
    /// The companion belongs to this home file by inode and birth. Its superblock was written when
    /// the home file had a mark, and that mark is gone.
    Unmarked,
    /// The companion belongs to this home file or to its original: this volume may be a snapshot of
    /// the original's volume.
    PerhapsOriginals,
    /// The companion belongs to this home file, but one of the two is of another time.
    RolledBack,
    /// The companion belongs to this home file, and every file of the pair was copied or restored.
    /// No page cache holds stores of the pair.
    Restored,
    /// The companion names this home file. But the mark, the companion's own identity or an unknown
    /// birth casts doubt on that.
    Contested,
    /// The companion belongs to another home file.
    Others,
}

impl Opening<'_> {
    /// The names under which a companion of this home file may lie.
    pub(super) fn candidates(&self, home: &FileStat, mark: Option<&Marker>) -> Result<Vec<Name>> {
        let own = key_of(&identity_of(home));
        let mut names = vec![self.name_of(own, 0), self.name_of(own, 1)];
        // A further name is taken only while those before it are.
        for (before, index) in (1..).zip(2..NAMES) {
            let before = self.name_of(own, before);
            let there = self.platform.stat_name(&before);
            if there.map_err(self.io("look up", before.path()))?.is_none() {
                break;
            }
            names.push(self.name_of(own, index));
        }
        if let Some(key) = mark.map(Marker::key) {
            for name in [0, 1, key.index].map(|index| self.name_of(key, index)) {
                if !names.iter().any(|known| known.name() == name.name()) {
                    names.push(name);
                }
            }
        }
        Ok(names)
    }

    /// Returns the names that a new reflection file of the home file may have, the usual one first.
    /// Another user may have taken those that can be foreseen. The last ones are random, where the
    /// home file has a mark that leads the next opening to them.
    pub(super) fn new_names(&self, home: &FileStat) -> impl Iterator<Item = Name> {
        let own = key_of(&identity_of(home));
        let randoms = if self.home_keeps_marks.get() { RANDOM_NAMES } else { 0 };
        let random = move |_| {
            let [a, b, c, d, ..] = self.platform.new_uuid();
            u32::from_le_bytes([a, b, c, d]) | NAMES
        };
        let indices = (0..NAMES).chain((0..randoms).map(random));
        indices.map(move |index| self.name_of(own, index))
    }

    pub(super) fn name_of(&self, key: Key, index: u32) -> Name {
        let Moment { seconds, nanos } = key.born.unwrap_or_default();
        let name = match index {
            0 => format!("{NAME_PREFIX}{:x}", key.inode),
            1 => format!("{NAME_PREFIX}{:x}-{seconds:x}.{nanos:x}", key.inode),
            _ => format!("{NAME_PREFIX}{:x}-{seconds:x}.{nanos:x}-{index:x}", key.inode),
        };
        Name::new(&self.dir, name)
    }

    /// Returns the key of a reflection file's name, by which the next opening finds it through the
    /// mark. Returns `None` for the first two names of the home file.
    pub(super) fn named(&self, name: &Name, home: &FileStat) -> Option<Key> {
        let own = key_of(&identity_of(home));
        if [0, 1].iter().any(|index| self.name_of(own, *index).name() == name.name()) {
            return None;
        }
        parse(&name.name().to_string_lossy())
    }

    /// Returns what the superblock of a candidate proves. `file` is the candidate.
    pub(super) fn claim(
        &self,
        superblock: &Superblock,
        file: &FileStat,
        home: &FileStat,
        mark: Option<&Marker>,
    ) -> Claim {
        let is = identity_of(home);
        let is_home = is_same_file(&superblock.identity, &is);
        let was_copied = was_copied(superblock, file);
        let is_used = superblock.state == State::InUse;
        match mark.filter(|mark| !self.is_of_earlier(mark, superblock, home)) {
            Some(mark) if mark.uuid == superblock.uuid => match (mark.is_of(&is), is_home) {
                // A copy of the companion alone may be of any time.
                (_, true) if was_copied && is_used => Claim::Contested,
                (true, true) if self.is_of_another_time(superblock, mark) => Claim::RolledBack,
                (true, true) if self.may_be_anothers(superblock, file, home) => {
                    Claim::PerhapsOriginals
                }
                (_, true) => Claim::Ours,
                (false, false) if was_copied && mark.is_of(&superblock.identity) => Claim::Restored,
                // The home file is a copy, and the companion belongs to the original.
                (_, false) => Claim::Others,
            },
            Some(_) if is_home => Claim::Contested,
            Some(_) => Claim::Others,
            None if is_home && is_unfinished(superblock) => {
                let is_certain = !self.lacks_its_mark(superblock, home)
                    && !self.may_be_anothers(superblock, file, home);
                if is_certain { Claim::Ours } else { Claim::Others }
            }
            // The mark was durable before the pair was in use. So a file without a mark has no
            // pair.
            None if is_home && superblock.is_marked && !planted!(UnmarkedTaken) => {
                if is_born(superblock, home) { Claim::Unmarked } else { Claim::Others }
            }
            None if is_home && self.lacks_its_mark(superblock, home) => Claim::Contested,
            None if is_home && was_copied && is_used => Claim::Contested,
            None if is_home && self.may_be_anothers(superblock, file, home) => {
                Claim::PerhapsOriginals
            }
            None if is_home => Claim::Ours,
            None if was_copied && self.is_named(superblock) && !is_unfinished(superblock) => {
                Claim::Restored
            }
            None => Claim::Others,
        }
    }

    /// Returns `true` if the mark is that of an earlier pair of this home file, which a spatial
    /// close has ended. Nothing waits for the removal of that mark, so a power loss may bring it
    /// back beside the next pair. To that pair it is none.
    fn is_of_earlier(&self, mark: &Marker, superblock: &Superblock, home: &FileStat) -> bool {
        let is = identity_of(home);
        mark.is_closing
            && mark.uuid != superblock.uuid
            && mark.is_of(&is)
            && is_same_file(&superblock.identity, &is)
            && !planted!(EarlierMarkCounts)
    }

    /// Returns `true` if the mark and the superblock come from different openings, since one of
    /// their volumes was rolled back. Only a mark on another volume than the companions can show
    /// that.
    fn is_of_another_time(&self, superblock: &Superblock, mark: &Marker) -> bool {
        let fits = mark.sessions.is_none_or(|sessions| {
            sessions.fit(superblock.session, superblock.state == State::InUse)
        });
        !fits && !planted!(RollBackTaken)
    }

    /// Returns the claim of a candidate, and looks at the folder and at what the home file
    /// remembers where the claim depends on them. A copied companion belongs to the home file that
    /// it names, as long as that file is in the folder. A pair without its mark is this home
    /// file's, unless the user has discarded it.
    pub(super) fn claim_beside_others(
        &self,
        superblock: &Superblock,
        file: &FileStat,
        (home_file, home): (&File, &FileStat),
        mark: Option<&Marker>,
    ) -> Result<Claim> {
        let claim = self.claim(superblock, file, home, mark);
        if claim == Claim::Unmarked && self.discarded(home_file)?.contains(&superblock.uuid) {
            return Ok(Claim::Others);
        }
        if claim != Claim::Restored {
            return Ok(claim);
        }
        let folder = self.home.folder();
        let listed = match self.platform.list_dir(folder, MOST_LISTED) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return Ok(claim),
            other => other.map_err(self.io("list", folder.path()))?,
        };
        Ok(if self.is_among(superblock, &listed)? { Claim::Others } else { claim })
    }

    /// Returns `true` if the superblock names a home file of this name.
    fn is_named(&self, superblock: &Superblock) -> bool {
        let name = self.path.file_name().unwrap_or_default().as_encoded_bytes();
        let name = &name[name.len().saturating_sub(255)..];
        let before = superblock.name.strip_suffix(name);
        before.is_some_and(|before| before.is_empty() || before.ends_with(b"/"))
    }

    /// Returns `true` if the superblock may be about a file on another volume with the same inode
    /// and birth. A snapshot of a volume has such files. The case arises only in a folder with the
    /// companions of several volumes.
    fn may_be_anothers(&self, superblock: &Superblock, file: &FileStat, home: &FileStat) -> bool {
        // A companion on the home file's volume was copied or mounted together with it.
        self.options.reflection_dir.is_some()
            && file.dev != home.dev
            && superblock.identity.device != home.dev
            && superblock.name != self.home_name()
    }

    /// Returns `true` if only an inode number connects the two, although the file system keeps
    /// marks. Another file may have received that number since.
    fn lacks_its_mark(&self, superblock: &Superblock, home: &FileStat) -> bool {
        !is_born(superblock, home) && self.home_keeps_marks.get() && !planted!(InodeAloneBelieved)
    }

    /// Searches for companions of a file that has bytes, but neither a mark nor a companion in its
    /// place. The companions may have been restored under another number, without attributes. Or
    /// the file took the place of a home file that still has its companion here.
    pub(super) fn search(&self, file: &File, home: &FileStat, look: &mut Probe) -> Result<()> {
        let listed = match self.platform.list_dir(&self.dir, MOST_LISTED) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return Ok(()),
            other => other.map_err(self.io("list", self.dir.path()))?,
        };
        let companions = listed.iter().filter(|name| is_companion(name)).take(MOST_LOOKED_AT);
        let known = self.candidates(home, None)?;
        let discarded = self.discarded(file)?;
        let mut restored: Vec<(usize, Probe)> = Vec::new();
        for name in companions.filter(|name| known.iter().all(|known| known.name() != *name)) {
            let name = Name::new(&self.dir, name.clone());
            let Named::Trusted(there, stat) = self.open_trusted_if_open_to_us(&name, home)? else {
                continue;
            };
            let Judged::Valid(superblock) = self.judge(&there, name.path())? else { continue };
            if !self.is_named(&superblock) || is_unfinished(&superblock) {
                continue;
            }
            match self.claim_beside_others(&superblock, &stat, (file, home), None)? {
                claim @ (Claim::Ours | Claim::Unmarked) => {
                    let candidate = (name, there, stat, superblock);
                    return self.look_at(candidate, claim, (file, home), look);
                }
                claim @ Claim::Restored => {
                    let rank = self.rank(&superblock);
                    let mut one = Probe::nothing(look.mark, name.clone());
                    self.look_at((name, there, stat, superblock), claim, (file, home), &mut one)?;
                    if one.is_ours {
                        restored.push((rank, one));
                    }
                }
                Claim::Others
                    if look.stays.is_none()
                        && self.is_named_here(&superblock)
                        && !discarded.contains(&superblock.uuid)
                        && !self.lies_here(&superblock, &listed)? =>
                {
                    look.found = Found::OfEarlierFile;
                    look.stays = Some(superblock.uuid);
                    look.companions = Companions::new(name);
                }
                _ => {}
            }
        }
        // Among several that may have been restored with this file, the best has a path most like
        // this file's, and a sum that fits. Two that are as good are not told apart.
        let best = restored.iter().map(|(rank, one)| (*rank, one.has_sum())).max();
        restored.retain(|(rank, one)| Some((*rank, one.has_sum())) == best);
        if restored.len() > 1 {
            look.found = Found::Contested;
            look.stays = None;
            look.companions = restored[0].1.companions.clone();
        } else if let Some((_, one)) = restored.pop() {
            *look = one;
        }
        Ok(())
    }

    /// Returns how many components of the path that a superblock names are this home file's,
    /// counted from the end.
    fn rank(&self, superblock: &Superblock) -> usize {
        let is = self.path.as_os_str().as_encoded_bytes().rsplit(|byte| *byte == b'/');
        let was = superblock.name.rsplit(|byte| *byte == b'/');
        is.zip(was).take_while(|(is, was)| is == was).count()
    }

    /// Returns `true` if a superblock names a home file of this path. Where companions lie beside
    /// their home files, the name says it.
    fn is_named_here(&self, superblock: &Superblock) -> bool {
        self.options.reflection_dir.is_none() || superblock.name == self.home_name()
    }

    /// Returns the pairs that the user has discarded for this file while their reflection files
    /// stayed.
    pub(super) fn discarded(&self, home: &File) -> Result<Vec<[u8; 16]>> {
        let value = self.platform.get_xattr(home, marker::DISCARDED);
        let value = value.map_err(self.io("read the attribute", self.path))?.unwrap_or_default();
        Ok(value.as_chunks().0.to_vec())
    }

    /// Opens a file with `open_trusted`, for a file that may be another home file's. A file that
    /// this process may not open counts as another user's.
    fn open_trusted_if_open_to_us(&self, name: &Name, home: &FileStat) -> Result<Named> {
        match self.open_trusted(name, home) {
            Err(e) if is_denied(&e) => Ok(Named::Irregular),
            other => other,
        }
    }

    /// Returns `true` if the home file that the superblock names lies in the folder under another
    /// name. That file was renamed, and its companion does not concern this opening. `listed` holds
    /// the names of the folder, as far as they were read.
    fn lies_here(&self, superblock: &Superblock, listed: &[OsString]) -> Result<bool> {
        if listed.len() == MOST_LISTED || self.options.reflection_dir.is_some() {
            let folder = self.home.folder();
            let listed = self.platform.list_dir(folder, MOST_LISTED);
            let listed = listed.map_err(self.io("list", folder.path()))?;
            // Only a part of a longer folder is known, so opening concludes nothing about this
            // file.
            return Ok(listed.len() == MOST_LISTED || self.is_among(superblock, &listed)?);
        }
        self.is_among(superblock, listed)
    }

    fn is_among(&self, superblock: &Superblock, names: &[OsString]) -> Result<bool> {
        for name in names {
            let name = Name::new(self.home.folder(), name.clone());
            let stat = self.platform.stat_name(&name).map_err(self.io("look up", name.path()))?;
            // A birth that is no time can be read from an open file only.
            let is_it = |stat: FileStat| {
                let born = superblock.identity.born.filter(|born| born.nanos != NO_TIME);
                stat.ino == superblock.identity.inode
                    && marker::same_birth(stat.btime.map(moment), born)
            };
            if stat.is_some_and(is_it) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Returns `true` if nothing in the file counts: the pair was being made, or a spatial close of it
/// did not end.
pub(super) fn is_unfinished(superblock: &Superblock) -> bool {
    superblock.state == State::Emptied || superblock.is_being_made()
}

/// Returns `true` if the companion is a copy of the file for which its superblock was written.
pub(super) fn was_copied(superblock: &Superblock, file: &FileStat) -> bool {
    superblock.own.inode != 0 && !is_same_file(&superblock.own, &identity_of(file))
}

/// Returns `true` if the births of both files are known. Otherwise only the inode number connects
/// them.
fn is_born(superblock: &Superblock, home: &FileStat) -> bool {
    superblock.identity.born.is_some() && home.btime.is_some()
}

fn key_of(identity: &Identity) -> Key {
    let Identity { inode, born, .. } = *identity;
    Key { inode, born, index: 0 }
}

/// Returns the key that the name of a reflection file contains.
fn parse(name: &str) -> Option<Key> {
    let mut parts = name.strip_prefix(NAME_PREFIX)?.split('-');
    let inode = u64::from_str_radix(parts.next()?, 16).ok()?;
    let Some(born) = parts.next() else { return Some(Key { inode, born: None, index: 0 }) };
    let (seconds, nanos) = born.split_once('.')?;
    // A moment before 1970 is written as the bits of the negative number.
    let seconds = u64::from_str_radix(seconds, 16).ok()?.cast_signed();
    let born = Some(Moment { seconds, nanos: u32::from_str_radix(nanos, 16).ok()? });
    let index = parts.next().map_or(Some(1), |index| u32::from_str_radix(index, 16).ok())?;
    Some(Key { inode, born, index })
}

/// Returns the key that a companion's name was made from.
pub(super) fn key_of_name(name: &Name) -> Key {
    let key = parse(&name.name().to_string_lossy());
    key.unwrap_or(Key { inode: 0, born: None, index: 0 })
}

/// Returns `true` if both identities agree in inode and birth. Device numbers may change with each
/// mount.
fn is_same_file(was: &Identity, is: &Identity) -> bool {
    was.inode == is.inode && marker::same_birth(was.born, is.born) || planted!(AnotherFileTaken)
}

/// Returns `true` if the name has the form of a reflection file's name.
fn is_companion(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.strip_prefix(NAME_PREFIX).is_some_and(|rest| {
        let is_part = |c: u8| c.is_ascii_hexdigit() || c == b'-' || c == b'.';
        !rest.is_empty()
            && rest.bytes().all(is_part)
            && rest.bytes().next().is_some_and(|c| c.is_ascii_hexdigit())
    })
}

/// Returns `true` if the system denied access.
pub(super) fn is_denied(error: &crate::Error) -> bool {
    matches!(error, crate::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::superblock::Kind;

    /// A search of the folder opens what has the form of a reflection file's name.
    #[test]
    fn no_companion_beside_a_reflection_file_is_taken_for_one() {
        for name in [".atomic-mmap.1a", ".atomic-mmap.1a-5.6", ".atomic-mmap.1a-5.6-2"] {
            assert!(is_companion(OsStr::new(name)), "{name}");
            for suffix in Kind::ALL
                .map(Kind::suffix)
                .into_iter()
                .chain([crate::engine::superblock::UNFINISHED])
            {
                let beside = format!("{name}.{suffix}");
                assert!(!is_companion(OsStr::new(&beside)), "{beside}");
            }
        }
    }
}
