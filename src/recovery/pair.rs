//! Decides what opening does with a home file and a reflection file: a pure decision table.
//!
//! Every combination of findings has exactly one row. A test goes through all of them.

use crate::config::OnMismatch;
use crate::error::Mismatch;

/// The state of the home file's attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// No attribute: the file is a plain one, or its file system has no attributes.
    None,
    /// A reflection file belongs to this very file.
    OfThisFile,
    /// The attribute was made for another file, and this file is a copy of it.
    OfAnotherFile,
    /// No attribute, although the reflection file of this very file says that there was one.
    Gone,
    /// As `OfThisFile`, but this file may be a snapshot, and the companions may belong to the
    /// original. The pair was last opened on another device and by another path, while its
    /// companions lie on a third device.
    OfSnapshot,
    /// As `OfThisFile`, and a spatial close was about to remove the companions. Without them the
    /// home file is complete.
    Closing,
    /// No attribute, and the bytes of the home file say that it was in use.
    InBytes,
}

/// The file in the reflection file's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Nothing,
    Foreign,
    Newer(u32),
    Corrupt,
    Truncated,
    /// A reflection file of this home file that a spatial close has emptied and not removed yet.
    Emptied,
    /// A file that belongs to another home file, or that lies at a companion's name of a home file
    /// without a pair.
    OfAnotherFile,
    /// A whole reflection file that names this home file, while the mark or its own identity
    /// contradicts that.
    Contested,
    /// A whole reflection file of this home file, of another time than the mark.
    RolledBack,
    /// No reflection file in its place, but one that names a home file of this name.
    OfEarlierFile,
    /// A whole reflection file of this home file.
    OfThisFile {
        home: Home,
        state: Use,
    },
}

/// The fate of the home file since the last session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    AsItWas,
    Changed,
    TooShort,
}

/// The state in which the last session left the reflection file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Closed by `CloseMode::Fast`.
    Closed,
    /// As `Closed`, but the reflection file may not be whole: the machine was restarted, and the
    /// sync of that close may not have ended. The journal completes it.
    Unsettled,
    /// In use by a process that crashed, on a medium and machine that kept its stores.
    Died,
    /// In use when the machine was restarted, on a medium that loses stores then.
    Restarted,
    /// In use, and the session ended so that only the last durable point counts.
    Undone,
    /// As `Undone` or `Unsettled`, but the journal that these need is gone.
    JournalGone,
    /// As `Undone` or `Unsettled`, but another journal lies in the journal's place.
    JournalSwapped,
}

/// The decision of an opening about the pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Decision {
    /// Make a reflection file. The home file's bytes stay as they are.
    Fresh,
    /// Remove the companions and make a reflection file. The home file's bytes stay as they are.
    Discard,
    /// Go on with the reflection file. There is nothing to recover.
    Reuse,
    /// Recover by the lanes, and go on.
    Recover,
    /// Go back to the last durable point.
    GoBack,
    /// As `GoBack`, for a closed pair: the home file is complete, and nothing is stored to it.
    Settle,
    /// Touch nothing.
    Refuse(Mismatch),
}

/// Returns the decision for a combination of findings. The first row that matches counts.
pub(crate) fn decide(mark: Mark, found: Found, wish: OnMismatch) -> Decision {
    use Decision::{Fresh, GoBack, Recover, Reuse, Settle};
    let with_mark = |wish| decide(Mark::OfThisFile, found, wish);
    let doubt = match (mark, found) {
        (Mark::Gone, Found::OfThisFile { .. }) => Some(Mismatch::MarkGone),
        (Mark::OfSnapshot, Found::OfThisFile { .. } | Found::Emptied) => {
            Some(Mismatch::MayBeSnapshot)
        }
        _ => None,
    };
    if let Some(doubt) = doubt {
        // Another mismatch is reported first, so that a caller that trusts has read of it.
        return match with_mark(OnMismatch::Refuse) {
            Decision::Refuse(why) if wish == OnMismatch::Refuse => Decision::Refuse(why),
            _ => mismatch(doubt, wish, Some(with_mark(OnMismatch::Trust))),
        };
    }
    match (mark, found) {
        // The home file was durable before the first companion went.
        (
            Mark::Closing,
            Found::Nothing
            | Found::OfAnotherFile
            | Found::OfEarlierFile
            | Found::OfThisFile { state: Use::JournalGone, .. },
        ) => Decision::Discard,
        (
            Mark::InBytes,
            Found::Nothing | Found::OfAnotherFile | Found::Foreign | Found::OfEarlierFile,
        ) => mismatch(Mismatch::LoneCopy, wish, None),
        (Mark::InBytes, _) => decide(Mark::None, found, wish),
        (Mark::Gone | Mark::OfSnapshot | Mark::Closing, _) => with_mark(wish),
        // Another home file's companion stays where it is. The new reflection file gets another
        // name.
        (Mark::None, Found::Nothing | Found::OfAnotherFile | Found::Foreign) => Fresh,
        (Mark::OfThisFile, Found::Nothing | Found::OfEarlierFile) => {
            mismatch(Mismatch::ReflectionGone, wish, None)
        }
        (Mark::OfThisFile, Found::OfAnotherFile) => mismatch(Mismatch::Swapped, wish, None),
        (Mark::OfAnotherFile, Found::Nothing | Found::OfEarlierFile | Found::OfAnotherFile) => {
            mismatch(Mismatch::HomeIsCopy, wish, None)
        }
        (Mark::None, Found::OfEarlierFile) => mismatch(Mismatch::HomeReplaced, wish, None),
        // Opening removes no file of another program, and no file in an unknown format.
        (_, Found::Foreign) => Decision::Refuse(Mismatch::Foreign),
        (_, Found::Newer(version)) => Decision::Refuse(Mismatch::Newer { version }),
        // An emptied reflection file holds nothing, so nothing in it can be wrong.
        (_, Found::Emptied) => Decision::Discard,
        (_, Found::Corrupt) => mismatch(Mismatch::Corrupt, wish, None),
        (_, Found::Truncated) => mismatch(Mismatch::ReflectionTruncated, wish, None),
        (_, Found::Contested) => mismatch(Mismatch::Swapped, wish, None),
        (_, Found::RolledBack) => mismatch(Mismatch::RolledBack, wish, None),
        // Uuid and mark have proved before that the companion is this home file's, wherever both
        // were moved.
        (_, Found::OfThisFile { home, state }) => {
            match (home, state) {
                // The lengths and times of the files may be older or newer than the durable point.
                (_, Use::Undone) => GoBack,
                (_, Use::JournalGone) => mismatch(Mismatch::JournalGone, wish, None),
                (_, Use::JournalSwapped) => mismatch(Mismatch::JournalSwapped, wish, None),
                (Home::TooShort, _) => mismatch(Mismatch::HomeTruncated, wish, None),
                (Home::AsItWas, Use::Closed) => Reuse,
                (Home::AsItWas, Use::Unsettled) => Settle,
                (Home::AsItWas, Use::Died) => Recover,
                (Home::AsItWas, Use::Restarted) => {
                    mismatch(Mismatch::Restarted, wish, Some(Recover))
                }
                (Home::Changed, Use::Closed) => mismatch(Mismatch::HomeChanged, wish, Some(Reuse)),
                (Home::Changed, Use::Unsettled) => {
                    mismatch(Mismatch::HomeChanged, wish, Some(Settle))
                }
                (Home::Changed, Use::Died | Use::Restarted) => {
                    mismatch(Mismatch::HomeChanged, wish, Some(Recover))
                }
            }
        }
    }
}

fn mismatch(why: Mismatch, wish: OnMismatch, trusted: Option<Decision>) -> Decision {
    match (wish, trusted) {
        (OnMismatch::Discard, _) => Decision::Discard,
        (OnMismatch::Trust, Some(decision)) => decision,
        (OnMismatch::Trust, None) | (OnMismatch::Refuse, _) => Decision::Refuse(why),
    }
}

#[cfg(test)]
mod tests;
