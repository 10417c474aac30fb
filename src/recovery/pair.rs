//! Decides what opening does with a home file and a reflection file: a pure decision table.
//!
//! Every combination of findings has exactly one row. A test goes through all of them.

use crate::config::OnMismatch;
use crate::error::Mismatch;

/// What the home file's attribute says.
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
}

/// What was found in the reflection file's place.
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

/// What became of the home file since the last session.
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
    /// As `Died` or `Undone`, but the journal that durable points need is gone.
    JournalGone,
    /// As `Died` or `Undone`, but another journal lies in the journal's place.
    JournalSwapped,
}

/// What opening does with the pair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
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
mod tests {
    use super::*;

    fn marks() -> [Mark; 6] {
        use Mark::{Closing, Gone, None, OfAnotherFile, OfSnapshot, OfThisFile};
        [None, OfThisFile, OfAnotherFile, Gone, OfSnapshot, Closing]
    }

    fn findings() -> Vec<Found> {
        let mut all = vec![
            Found::Nothing,
            Found::Foreign,
            Found::Newer(2),
            Found::Corrupt,
            Found::Truncated,
            Found::Emptied,
            Found::OfAnotherFile,
            Found::Contested,
            Found::RolledBack,
            Found::OfEarlierFile,
        ];
        for home in [Home::AsItWas, Home::Changed, Home::TooShort] {
            for state in [
                Use::Closed,
                Use::Unsettled,
                Use::Died,
                Use::Undone,
                Use::JournalGone,
                Use::JournalSwapped,
                Use::Restarted,
            ] {
                all.push(Found::OfThisFile { home, state });
            }
        }
        all
    }

    type Row = (&'static str, fn(Mark, Found) -> bool, Decision);

    fn is_anothers(f: Found) -> bool {
        matches!(f, Found::Nothing | Found::OfAnotherFile | Found::Foreign)
    }
    fn is_without_journal(f: Found) -> bool {
        matches!(f, Found::OfThisFile { state: Use::JournalGone, .. })
    }
    fn is_undone(f: Found) -> bool {
        matches!(
            f,
            Found::OfThisFile { state: Use::Undone | Use::JournalGone | Use::JournalSwapped, .. }
        )
    }

    /// The rows of the table: a name, the findings that a row is about, and its decision.
    fn rows() -> Vec<Row> {
        use Mismatch as M;
        const NO: fn(M) -> Decision = Decision::Refuse;
        vec![
            ("plain file", |m, f| m == Mark::None && is_anothers(f), Decision::Fresh),
            (
                "closed, and a companion is gone",
                |m, f| {
                    m == Mark::Closing
                        && f != Found::Foreign
                        && (is_anothers(f) || f == Found::OfEarlierFile || is_without_journal(f))
                },
                Decision::Discard,
            ),
            (
                "gone",
                |m, f| m == Mark::OfThisFile && matches!(f, Found::Nothing | Found::OfEarlierFile),
                NO(M::ReflectionGone),
            ),
            (
                "copy",
                |m, f| {
                    m == Mark::OfAnotherFile
                        && f != Found::Foreign
                        && (is_anothers(f) || f == Found::OfEarlierFile)
                },
                NO(M::HomeIsCopy),
            ),
            ("replaced", |m, f| m == Mark::None && f == Found::OfEarlierFile, NO(M::HomeReplaced)),
            ("foreign", |m, f| m != Mark::None && f == Found::Foreign, NO(M::Foreign)),
            ("newer", |_, f| f == Found::Newer(2), NO(M::Newer { version: 2 })),
            ("corrupt", |_, f| f == Found::Corrupt, NO(M::Corrupt)),
            ("truncated", |_, f| f == Found::Truncated, NO(M::ReflectionTruncated)),
            ("emptied", |_, f| f == Found::Emptied, Decision::Discard),
            ("contested", |_, f| f == Found::Contested, NO(M::Swapped)),
            ("of another time", |_, f| f == Found::RolledBack, NO(M::RolledBack)),
            (
                "marked, and another's in its place",
                |m, f| m == Mark::OfThisFile && f == Found::OfAnotherFile,
                NO(M::Swapped),
            ),
        ]
    }

    /// The rows of the table about a whole pair.
    fn rows_of_pairs() -> Vec<Row> {
        use Mismatch as M;
        const NO: fn(M) -> Decision = Decision::Refuse;
        vec![
            (
                "goes back",
                |_, f| matches!(f, Found::OfThisFile { state: Use::Undone, .. }),
                Decision::GoBack,
            ),
            (
                "journal gone",
                |m, f| m != Mark::Closing && is_without_journal(f),
                NO(M::JournalGone),
            ),
            (
                "journal swapped",
                |_, f| matches!(f, Found::OfThisFile { state: Use::JournalSwapped, .. }),
                NO(M::JournalSwapped),
            ),
            (
                "short",
                |_, f| !is_undone(f) && matches!(f, Found::OfThisFile { home: Home::TooShort, .. }),
                NO(M::HomeTruncated),
            ),
            (
                "changed",
                |_, f| !is_undone(f) && matches!(f, Found::OfThisFile { home: Home::Changed, .. }),
                NO(M::HomeChanged),
            ),
            (
                "closed",
                |_, f| f == Found::OfThisFile { home: Home::AsItWas, state: Use::Closed },
                Decision::Reuse,
            ),
            (
                "closed, and not settled",
                |_, f| f == Found::OfThisFile { home: Home::AsItWas, state: Use::Unsettled },
                Decision::Settle,
            ),
            (
                "died",
                |_, f| f == Found::OfThisFile { home: Home::AsItWas, state: Use::Died },
                Decision::Recover,
            ),
            (
                "restarted",
                |_, f| f == Found::OfThisFile { home: Home::AsItWas, state: Use::Restarted },
                NO(M::Restarted),
            ),
        ]
    }

    /// States the table a second time, as rows of predicates. Each combination must match exactly
    /// one row, and `decide` must do what that row says. The compiler checks that `decide` covers
    /// every combination, but not that no row hides another.
    #[test]
    fn every_combination_has_exactly_one_row() {
        use Mismatch as M;
        let rows: Vec<Row> = rows().into_iter().chain(rows_of_pairs()).collect();
        for mark in marks() {
            for found in findings() {
                let in_doubt = match mark {
                    Mark::Gone => Some(M::MarkGone),
                    Mark::OfSnapshot => Some(M::MayBeSnapshot),
                    _ => None,
                };
                let is_in_doubt = matches!(found, Found::OfThisFile { .. })
                    || found == Found::Emptied && mark == Mark::OfSnapshot;
                if let (Some(why), true) = (&in_doubt, is_in_doubt) {
                    let expected = match decide(Mark::OfThisFile, found, OnMismatch::Refuse) {
                        Decision::Refuse(why) => why,
                        _ => *why,
                    };
                    let decision = decide(mark, found, OnMismatch::Refuse);
                    assert_eq!(decision, Decision::Refuse(expected), "{mark:?} {found:?}");
                    continue;
                }
                let row_of = if in_doubt.is_some() { Mark::OfThisFile } else { mark };
                let matching: Vec<&Row> = rows.iter().filter(|row| row.1(row_of, found)).collect();
                assert_eq!(matching.len(), 1, "{mark:?} {found:?}");
                assert_eq!(
                    decide(mark, found, OnMismatch::Refuse),
                    matching[0].2,
                    "{mark:?} {found:?}: {}",
                    matching[0].0
                );
            }
        }
    }

    #[test]
    fn a_wish_changes_refusals_only_and_never_removes_what_is_not_ours() {
        for mark in marks() {
            for found in findings() {
                let plain = decide(mark, found, OnMismatch::Refuse);
                let discard = decide(mark, found, OnMismatch::Discard);
                let trust = decide(mark, found, OnMismatch::Trust);
                match plain {
                    Decision::Refuse(Mismatch::Foreign | Mismatch::Newer { .. }) => {
                        assert_eq!((discard, trust), (plain, plain));
                    }
                    Decision::Refuse(why) => {
                        assert_eq!(discard, Decision::Discard);
                        if matches!(why, Mismatch::MarkGone | Mismatch::MayBeSnapshot) {
                            assert_eq!(trust, decide(Mark::OfThisFile, found, OnMismatch::Trust));
                            continue;
                        }
                        let can_trust = matches!(why, Mismatch::HomeChanged | Mismatch::Restarted);
                        assert_eq!(matches!(trust, Decision::Refuse(_)), !can_trust);
                    }
                    _ => assert_eq!((discard, trust), (plain, plain)),
                }
            }
        }
    }
}
