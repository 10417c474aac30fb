//! Where may the companions of a home file lie, and which are its own?
//!
//! Names are looked up, and a folder is listed only where a plain file may have lost its
//! companions: then at most [`MOST_LISTED`] names are read and [`MOST_LOOKED_AT`] files opened, so
//! that opening takes as long in a folder of a million files.
//!
//! | name | of |
//! |---|---|
//! | `.atomic-mmap.<inode>` | the home file of that inode number |
//! | `.atomic-mmap.<inode>-<birth>` | that home file, where the first name was taken |
//! | `.atomic-mmap.<inode>-<birth>-<index>` | that home file, where both were taken; its mark tells the index |
//! | those of the inode that the mark names | a home file that was copied with its mark |
//!
//! A pair is known by its uuid, which the mark on the home file repeats. [`Opening::claim`] says
//! what a whole superblock proves about this home file. May import `look`'s findings, `format`, and
//! `platform`.

use super::Opening;
use super::look::Look;
use super::pair::Found;
use super::trust::Named;
use crate::engine::session::{Companions, identity_of, moment};
use crate::error::Result;
use crate::format::marker::{self, Key, Marker};
use crate::format::superblock::{DurablePoints, Identity, Judged, Moment, State, Superblock};
use crate::mutant::planted;
use crate::platform::{File, FileStat, NO_TIME, Name};
use std::ffi::{OsStr, OsString};

/// Names of companions begin with this; the inode number of the home file follows, in hex.
pub(super) const NAME_PREFIX: &str = ".atomic-mmap.";
/// Names of a folder that are read at most.
const MOST_LISTED: usize = 1024;
/// Reflection files of a folder that are looked into at most.
const MOST_LOOKED_AT: usize = 64;

/// Names that a home file may have for its reflection file.
const NAMES: u32 = 16;

/// What a whole superblock proves about the home file that is being opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Claim {
    /// It is this home file's.
    Ours,
    /// It is this home file's by inode and birth, and was written when the home file had a mark.
    /// That mark is gone.
    Unmarked,
    /// It is this home file's, or that of the original of which this one's volume is a snapshot.
    PerhapsOriginals,
    /// It is this home file's, and one of the two is of another time.
    RolledBack,
    /// It is this home file's, and every file of the pair was copied or restored: no page cache
    /// holds stores of it.
    Restored,
    /// It says that it is this home file's, and the mark says another one's.
    Contested,
    /// It is another home file's.
    Others,
}

impl Opening<'_> {
    /// The names under which a companion of this home file may lie.
    pub(super) fn candidates(&self, home: &FileStat, mark: Option<&Marker>) -> Result<Vec<Name>> {
        let own = key_of(&identity_of(home));
        let mut names = vec![self.name_of(own, 0), self.name_of(own, 1)];
        // A further name is taken only while those before it are.
        for index in 2..NAMES {
            let before = self.name_of(own, index - 1);
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

    /// The names that a new reflection file of the home file may have, the usual one first.
    pub(super) fn new_names(&self, home: &FileStat) -> impl Iterator<Item = Name> {
        let own = key_of(&identity_of(home));
        (0..NAMES).map(move |index| self.name_of(own, index))
    }

    fn name_of(&self, key: Key, index: u32) -> Name {
        let Moment { seconds, nanos } = key.born.unwrap_or_default();
        let name = match index {
            0 => format!("{NAME_PREFIX}{:x}", key.inode),
            1 => format!("{NAME_PREFIX}{:x}-{seconds:x}.{nanos:x}", key.inode),
            _ => format!("{NAME_PREFIX}{:x}-{seconds:x}.{nanos:x}-{index:x}", key.inode),
        };
        Name::new(&self.dir, name)
    }

    /// What a reflection file is named after, unless it has one of the first two names of the home
    /// file: the mark tells the next opening where to look.
    pub(super) fn named(&self, name: &Name, home: &FileStat) -> Option<Key> {
        let own = key_of(&identity_of(home));
        if [0, 1].iter().any(|index| self.name_of(own, *index).name() == name.name()) {
            return None;
        }
        parse(&name.name().to_string_lossy())
    }

    /// What the superblock of a candidate proves. `file` is the candidate.
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
        match mark {
            Some(mark) if mark.uuid == superblock.uuid => match (mark.is_of(&is), is_home) {
                // A copy of the companion alone may be of any time.
                (_, true) if was_copied && is_used => Claim::Contested,
                (true, true) if self.is_of_another_time(superblock, mark) => Claim::RolledBack,
                (true, true) if self.may_be_anothers(superblock, file, home) => {
                    Claim::PerhapsOriginals
                }
                (_, true) => Claim::Ours,
                (false, false) if was_copied && mark.is_of(&superblock.identity) => Claim::Restored,
                // The home file is the copy, and the companion the original's.
                (_, false) => Claim::Others,
            },
            Some(_) if is_home => Claim::Contested,
            Some(_) => Claim::Others,
            None if is_home && is_unfinished(superblock) => {
                let is_certain = !self.lacks_its_mark(superblock, home)
                    && !self.may_be_anothers(superblock, file, home);
                if is_certain { Claim::Ours } else { Claim::Others }
            }
            // The mark was durable before the pair was in use: a file without one has no pair.
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

    /// Whether the mark and the superblock are of different openings: the volume of one of them was
    /// rolled back. Marks tell so where the two lie on different volumes.
    fn is_of_another_time(&self, superblock: &Superblock, mark: &Marker) -> bool {
        let fits = mark.sessions.is_none_or(|sessions| {
            sessions.fit(superblock.session, superblock.state == State::InUse)
        });
        !fits && !planted!(RollBackTaken)
    }

    /// As `claim`, where names of the folder may have to be looked at: a copy of a companion is
    /// that of the home file that it names, as long as that one lies beside.
    pub(super) fn claim_beside_others(
        &self,
        superblock: &Superblock,
        file: &FileStat,
        home: &FileStat,
        mark: Option<&Marker>,
    ) -> Result<Claim> {
        let claim = self.claim(superblock, file, home, mark);
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

    /// Whether the superblock names a home file of this name.
    fn is_named(&self, superblock: &Superblock) -> bool {
        let name = self.path.file_name().unwrap_or_default().as_encoded_bytes();
        let name = &name[name.len().saturating_sub(255)..];
        superblock.name == name
            || superblock.name.ends_with(name)
                && superblock.name[..superblock.name.len() - name.len()].ends_with(b"/")
    }

    /// In a folder for several volumes: whether the superblock may be about a file of another
    /// volume, with an inode and a birth like this one's. A snapshot of a volume has those.
    fn may_be_anothers(&self, superblock: &Superblock, file: &FileStat, home: &FileStat) -> bool {
        // On one volume with its companion it has been copied or mounted together with that.
        self.options.reflection_dir.is_some()
            && file.dev != home.dev
            && superblock.identity.device != home.dev
            && superblock.name != self.home_name()
    }

    /// Whether an inode number alone connects the two, of a file system that keeps marks: the
    /// number may have been given to another file since.
    fn lacks_its_mark(&self, superblock: &Superblock, home: &FileStat) -> bool {
        !is_born(superblock, home) && self.home_keeps_marks.get() && !planted!(InodeAloneBelieved)
    }

    /// Looks for companions of a file that has bytes, and neither a mark nor a companion in its
    /// place. They may have been restored under another number, without attributes. Or the file
    /// took the place of one whose companion is still there.
    pub(super) fn search(&self, file: &File, home: &FileStat, look: &mut Look) -> Result<()> {
        let listed = match self.platform.list_dir(&self.dir, MOST_LISTED) {
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return Ok(()),
            other => other.map_err(self.io("list", self.dir.path()))?,
        };
        let companions = listed.iter().filter(|name| is_companion(name)).take(MOST_LOOKED_AT);
        let known = self.candidates(home, None)?;
        let discarded = self.discarded(file)?;
        let mut restored: Vec<(usize, Look)> = Vec::new();
        for name in companions.filter(|name| known.iter().all(|known| known.name() != *name)) {
            let name = Name::new(&self.dir, name.clone());
            let Named::Trusted(there, stat) = self.open_trusted_if_open_to_us(&name, home)? else {
                continue;
            };
            let Judged::Valid(superblock) = self.judge(&there, name.path())? else { continue };
            if !self.is_named(&superblock) || is_unfinished(&superblock) {
                continue;
            }
            match self.claim_beside_others(&superblock, &stat, home, None)? {
                claim @ (Claim::Ours | Claim::Unmarked) => {
                    let candidate = (name, there, stat, superblock);
                    return self.look_at(candidate, claim, (file, home), look);
                }
                claim @ Claim::Restored => {
                    let rank = self.rank(&superblock);
                    let mut one = Look::nothing(look.mark, name.clone());
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
        // Of several that may have been restored with this file, the one whose path is most like this
        // file's, and whose home file held the same bytes. Two that are as good are not told apart.
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

    /// How many components of the path that a superblock names are those of this home file, counted from
    /// the end.
    fn rank(&self, superblock: &Superblock) -> usize {
        let is = self.path.as_os_str().as_encoded_bytes().rsplit(|byte| *byte == b'/');
        let was = superblock.name.rsplit(|byte| *byte == b'/');
        is.zip(was).take_while(|(is, was)| is == was).count()
    }

    /// Whether a superblock names a home file of this path. Where companions lie beside their home files,
    /// the name says it.
    fn is_named_here(&self, superblock: &Superblock) -> bool {
        self.options.reflection_dir.is_none() || superblock.name == self.home_name()
    }

    /// The pairs that the user has discarded for this file, and whose reflection files stayed.
    pub(super) fn discarded(&self, home: &File) -> Result<Vec<[u8; 16]>> {
        let value = self.platform.get_xattr(home, marker::DISCARDED);
        let value = value.map_err(self.io("read the attribute", self.path))?.unwrap_or_default();
        Ok(value.as_chunks().0.to_vec())
    }

    /// As `open_trusted`, for a file that need not be ours: what may not be opened is another
    /// user's.
    fn open_trusted_if_open_to_us(&self, name: &Name, home: &FileStat) -> Result<Named> {
        match self.open_trusted(name, home) {
            Err(e) if is_denied(&e) => Ok(Named::Irregular),
            other => other,
        }
    }

    /// Whether the home file of a reflection file lies in the folder under another name: it was
    /// renamed, and is no business of ours. `listed`: names of the folder, as far as they were
    /// read.
    fn lies_here(&self, superblock: &Superblock, listed: &[OsString]) -> Result<bool> {
        if listed.len() == MOST_LISTED || self.options.reflection_dir.is_some() {
            let folder = self.home.folder();
            let listed = self.platform.list_dir(folder, MOST_LISTED);
            let listed = listed.map_err(self.io("list", folder.path()))?;
            // Of a longer folder not all is known: then nothing is said of this file.
            return Ok(listed.len() == MOST_LISTED || self.is_among(superblock, &listed)?);
        }
        self.is_among(superblock, listed)
    }

    fn is_among(&self, superblock: &Superblock, names: &[OsString]) -> Result<bool> {
        for name in names {
            let name = Name::new(self.home.folder(), name.clone());
            let stat = self.platform.stat_name(&name).map_err(self.io("look up", name.path()))?;
            // A birth that is no time is asked of open files only.
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

/// Whether nothing that the file holds counts: the pair was being made, or its spatial close did
/// not end.
pub(super) fn is_unfinished(superblock: &Superblock) -> bool {
    superblock.state == State::Emptied || superblock.durable == DurablePoints::NotYet
}

/// Whether the companion is a copy of the one that its superblock was written for.
pub(super) fn was_copied(superblock: &Superblock, file: &FileStat) -> bool {
    superblock.own.inode != 0 && !is_same_file(&superblock.own, &identity_of(file))
}

/// Whether the births of both are known: else the inode number alone connects them.
fn is_born(superblock: &Superblock, home: &FileStat) -> bool {
    superblock.identity.born.is_some() && home.btime.is_some()
}

fn key_of(identity: &Identity) -> Key {
    let Identity { inode, born, .. } = *identity;
    Key { inode, born, index: 0 }
}

/// What a name of a reflection file says.
fn parse(name: &str) -> Option<Key> {
    let mut parts = name.strip_prefix(NAME_PREFIX)?.split('-');
    let inode = u64::from_str_radix(parts.next()?, 16).ok()?;
    let Some(born) = parts.next() else { return Some(Key { inode, born: None, index: 0 }) };
    let (seconds, nanos) = born.split_once('.')?;
    // Of a moment before 1970 the bits of the negative number.
    let seconds = u64::from_str_radix(seconds, 16).ok()?.cast_signed();
    let born = Some(Moment { seconds, nanos: u32::from_str_radix(nanos, 16).ok()? });
    let index = parts.next().map_or(Some(1), |index| u32::from_str_radix(index, 16).ok())?;
    Some(Key { inode, born, index })
}

/// By inode and birth. Devices have other numbers after each mount.
fn is_same_file(was: &Identity, is: &Identity) -> bool {
    was.inode == is.inode && marker::same_birth(was.born, is.born) || planted!(AnotherFileTaken)
}

/// Whether the name is one of a reflection file.
fn is_companion(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    name.strip_prefix(NAME_PREFIX).is_some_and(|rest| {
        let is_part = |c: u8| c.is_ascii_hexdigit() || c == b'-' || c == b'.';
        !rest.is_empty()
            && rest.bytes().all(is_part)
            && rest.bytes().next().is_some_and(|c| c.is_ascii_hexdigit())
    })
}

/// Whether the system did not let us look.
pub(super) fn is_denied(error: &crate::Error) -> bool {
    matches!(error, crate::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied)
}
