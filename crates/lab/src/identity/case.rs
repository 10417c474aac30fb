//! The cases: one fate for each file of a pair, and one for the machine.

use super::{ANOTHER, Ended, OURS, THEIRS};
use crate::machine::world::{Loss, World};
use atomic_mmap::OnMismatch;
use atomic_mmap::testing::marker;
use std::fmt;
use std::path::{Path, PathBuf};

/// The home file that is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// The pair's home file.
    Same,
    /// The pair's home file, under another name.
    Renamed,
    /// A copy of it in its place, as after a restore.
    Copied,
    /// A copy of it in the same folder.
    Beside,
    /// Another file with its name and its inode number.
    Reused,
    /// The pair's home file as a mount point: files in the same folder are on another file system.
    MountedAlone,
}

/// The content of the attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mark {
    /// The old content, copied along with the file.
    Kept,
    None,
    /// The mark names this pair, but another file.
    OfAnotherFile,
    OfAnotherPair,
}

/// The file in the reflection file's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Companion {
    Same,
    /// A copy of the reflection file, as after a restore.
    Copied,
    /// A copy of another pair's reflection file.
    Theirs,
    OfAnotherUser,
    /// A symbolic link to another pair's reflection file.
    Link,
    /// The reflection file, with a second name.
    HardLink,
    MountedAlone,
    Gone,
}

/// The file in the journal's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Journal {
    Same,
    /// The journal at the close of the previous session.
    Older,
    /// A copy of another pair's journal.
    Theirs,
    OfAnotherUser,
    Gone,
}

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    /// The pair was closed, instead of a process crash.
    pub is_closed: bool,
    /// The file system keeps birth times.
    pub keeps_births: bool,
    /// The way in which unsynced data is lost, if it is.
    pub loss: Option<Loss>,
    pub home: Home,
    pub mark: Mark,
    pub companion: Companion,
    pub journal: Journal,
    pub wish: OnMismatch,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}, births {}, loss {:?}, home {:?}, mark {:?}, companion {:?}, journal {:?}, {:?}",
            if self.is_closed { "closed" } else { "died" },
            if self.keeps_births { "known" } else { "unknown" },
            self.loss,
            self.home,
            self.mark,
            self.companion,
            self.journal,
            self.wish
        )
    }
}

impl Case {
    /// Returns `true` if only a name connects the two files. The crate promises to connect files by
    /// name, for restores without attributes. A new file with this name looks the same.
    fn is_by_name_alone(&self) -> bool {
        let is_unmarked = matches!(self.mark, Mark::Kept | Mark::None);
        self.home == Home::Reused && is_unmarked && self.companion == Companion::Copied
    }
}

/// Returns all distinguishable cases.
pub fn all() -> Vec<Case> {
    let losses = [
        None,
        Some(Loss::Restart),
        Some(Loss::RestartWithItsId),
        Some(Loss::RestartLongAgo),
        Some(Loss::Remount),
    ];
    let homes =
        [Home::Same, Home::Renamed, Home::Copied, Home::Beside, Home::Reused, Home::MountedAlone];
    let marks = [Mark::Kept, Mark::None, Mark::OfAnotherFile, Mark::OfAnotherPair];
    let companions = [
        Companion::Same,
        Companion::Copied,
        Companion::Theirs,
        Companion::OfAnotherUser,
        Companion::Link,
        Companion::HardLink,
        Companion::MountedAlone,
        Companion::Gone,
    ];
    let journals =
        [Journal::Same, Journal::Older, Journal::Theirs, Journal::OfAnotherUser, Journal::Gone];
    let wishes = [OnMismatch::Refuse, OnMismatch::Trust, OnMismatch::Discard];
    let mut cases = Vec::new();
    for (is_closed, keeps_births) in [(false, true), (true, true), (false, false), (true, false)] {
        for loss in losses {
            for home in homes {
                for mark in marks {
                    for companion in companions {
                        for journal in journals {
                            cases.extend(wishes.map(|wish| Case {
                                is_closed,
                                keeps_births,
                                loss,
                                home,
                                mark,
                                companion,
                                journal,
                                wish,
                            }));
                        }
                    }
                }
            }
        }
    }
    cases.retain(|case| !case.is_by_name_alone());
    cases
}

impl Case {
    /// Applies the case to the machine. Returns the name of the home file that is opened.
    pub(super) fn apply(&self, world: &mut World, ended: &Ended) -> PathBuf {
        self.apply_to_companion(world, ended);
        self.apply_to_journal(world, ended);
        let home = self.apply_to_home(world);
        self.apply_to_mark(world, &home);
        home
    }

    fn apply_to_companion(&self, world: &mut World, ended: &Ended) {
        let name = &ended.reflection;
        match self.companion {
            Companion::Same => {}
            Companion::Copied => replace_by_copy(world, name),
            Companion::Theirs => world.copy(&ended.their_reflection, name, true),
            Companion::OfAnotherUser => world.give_to(name, ANOTHER),
            Companion::Link => {
                world.move_to(name, Path::new("/d/elsewhere"));
                world.link_symbolically(&ended.their_reflection, name);
            }
            Companion::HardLink => world.link(name, Path::new("/d/elsewhere")),
            Companion::MountedAlone => world.mount_alone(name),
            Companion::Gone => world.take_away(name),
        }
    }

    fn apply_to_journal(&self, world: &mut World, ended: &Ended) {
        let name = &ended.journal;
        match self.journal {
            Journal::Same => {}
            Journal::Older => {
                world.take_away(name);
                world.put(name, &ended.older);
            }
            Journal::Theirs => world.copy(&ended.their_journal, name, true),
            Journal::OfAnotherUser => world.give_to(name, ANOTHER),
            Journal::Gone => world.take_away(name),
        }
    }

    fn apply_to_home(&self, world: &mut World) -> PathBuf {
        let name = Path::new(OURS);
        match self.home {
            Home::Same => name.to_owned(),
            Home::MountedAlone => {
                world.mount_alone(name);
                name.to_owned()
            }
            Home::Renamed => {
                let to = Path::new("/d/renamed.dat");
                world.move_to(name, to);
                to.to_owned()
            }
            Home::Copied => {
                replace_by_copy(world, name);
                name.to_owned()
            }
            Home::Beside => {
                let to = Path::new("/d/copy.dat");
                world.copy(name, to, true);
                to.to_owned()
            }
            Home::Reused => {
                let number = world.inode_of(name);
                world.take_away(name);
                world.make(name, 50_000, &[(0, vec![0x77; 50_000])]);
                world.give_number(name, number);
                name.to_owned()
            }
        }
    }

    fn apply_to_mark(&self, world: &mut World, home: &Path) {
        let theirs = world.attribute(Path::new(THEIRS), marker::NAME).expect("a mark");
        let kept = world.attribute(home, marker::NAME);
        let said = match self.mark {
            Mark::Kept => kept,
            Mark::None => None,
            Mark::OfAnotherFile => {
                let mut mark = kept.unwrap_or(theirs);
                mark[16..24].copy_from_slice(&0xABCD_u64.to_le_bytes());
                Some(mark)
            }
            Mark::OfAnotherPair => {
                let mut mark = kept.unwrap_or_else(|| theirs.clone());
                mark[..16].copy_from_slice(&theirs[..16]);
                Some(mark)
            }
        };
        world.set_attribute(home, marker::NAME, said.as_deref());
    }
}

/// Replaces a file by another file with the same bytes and attributes.
fn replace_by_copy(world: &mut World, name: &Path) {
    let aside = Path::new("/d/aside");
    world.copy(name, aside, true);
    world.move_to(aside, name);
}
