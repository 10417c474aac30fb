//! Do the two files go together, and what is to be done? A pure decision table.
//!
//! Every combination of findings has exactly one row (a test goes through all of them).

use crate::error::Mismatch;
use crate::terms::OnMismatch;

/// What the home file's attribute says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mark {
    /// No attribute: a plain file, or a file system without attributes.
    None,
    /// A reflection file belongs to this very file.
    OfThisFile,
    /// The attribute was made for another file, of which this is a copy.
    OfAnotherFile,
    /// No attribute, and the reflection file of this very file says that there was one.
    Gone,
    /// As `OfThisFile`, and the pair was last opened on another device and by another path, while
    /// its companions lie on a third one: this may be a snapshot, and the companions the
    /// original's.
    OfSnapshot,
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
    /// What is there is another home file's, or lies in the way of one that has no bytes yet.
    OfAnotherFile,
    /// A whole reflection file that says that it is this home file's, and the mark or its own
    /// identity says that it is not.
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

/// What became of the home file since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Home {
    AsItWas,
    Changed,
    TooShort,
}

/// In which state the reflection file was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Closed by `CloseMode::Fast`.
    Closed,
    /// In use by a process that died, on a medium and machine that kept its stores.
    Died,
    /// In use when the machine was restarted, on a medium that does not survive that.
    Restarted,
    /// In use, and it ended so that only the last durable point counts.
    Undone,
    /// The same or the death of the process, and the journal is gone that durable points need.
    JournalGone,
    /// The same, and another journal is in its place.
    JournalSwapped,
}

/// What is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Decision {
    /// Make a reflection file; the home file's bytes are as they are.
    Fresh,
    /// Remove what is there and make a reflection file; the home file's bytes are as they are.
    Discard,
    /// Go on with the reflection file; there is nothing to recover.
    Reuse,
    /// Recover by the lanes, and go on.
    Recover,
    /// Go back to the last durable point.
    GoBack,
    /// Touch nothing.
    Refuse(Mismatch),
}

/// The table. Rows are tried by pattern, and no two patterns overlap.
pub(crate) fn decide(mark: Mark, found: Found, wish: OnMismatch) -> Decision {
    use Decision::{Fresh, GoBack, Recover, Reuse};
    let with_mark = |wish| decide(Mark::OfThisFile, found, wish);
    match (mark, found) {
        // Another mismatch is told first: the caller who trusts has read of both.
        (Mark::Gone, Found::OfThisFile { .. }) => match with_mark(OnMismatch::Refuse) {
            Decision::Refuse(why) if wish == OnMismatch::Refuse => Decision::Refuse(why),
            _ => mismatch(Mismatch::MarkGone, wish, Some(with_mark(OnMismatch::Trust))),
        },
        (Mark::OfSnapshot, Found::OfThisFile { .. } | Found::Emptied) => {
            match with_mark(OnMismatch::Refuse) {
                Decision::Refuse(why) if wish == OnMismatch::Refuse => Decision::Refuse(why),
                _ => mismatch(Mismatch::MayBeSnapshot, wish, Some(with_mark(OnMismatch::Trust))),
            }
        }
        (Mark::Gone | Mark::OfSnapshot, _) => with_mark(wish),
        // What is another's stays where it is: the new reflection file gets another name.
        (Mark::None, Found::Nothing | Found::OfAnotherFile | Found::Foreign) => Fresh,
        (Mark::OfThisFile, Found::Nothing | Found::OfEarlierFile) => {
            mismatch(Mismatch::ReflectionGone, wish, None)
        }
        (Mark::OfThisFile, Found::OfAnotherFile) => mismatch(Mismatch::Swapped, wish, None),
        (Mark::OfAnotherFile, Found::Nothing | Found::OfEarlierFile | Found::OfAnotherFile) => {
            mismatch(Mismatch::HomeIsCopy, wish, None)
        }
        (Mark::None, Found::OfEarlierFile) => mismatch(Mismatch::HomeReplaced, wish, None),
        // What is not ours, or of a format that we do not know, is not ours to remove.
        (_, Found::Foreign) => Decision::Refuse(Mismatch::Foreign),
        (_, Found::Newer(version)) => Decision::Refuse(Mismatch::Newer { version }),
        // Nothing is in it, so nothing can be wrong with it.
        (_, Found::Emptied) => Decision::Discard,
        (_, Found::Corrupt) => mismatch(Mismatch::Corrupt, wish, None),
        (_, Found::Truncated) => mismatch(Mismatch::ReflectionTruncated, wish, None),
        (_, Found::Contested) => mismatch(Mismatch::Swapped, wish, None),
        (_, Found::RolledBack) => mismatch(Mismatch::RolledBack, wish, None),
        // Whose it is was found out before: by uuid and mark, wherever both were moved to.
        (_, Found::OfThisFile { home, state }) => {
            match (home, state) {
                // What the files' lengths and times say is older than the durable point, or newer.
                (_, Use::Undone) => GoBack,
                (_, Use::JournalGone) => mismatch(Mismatch::JournalGone, wish, None),
                (_, Use::JournalSwapped) => mismatch(Mismatch::JournalSwapped, wish, None),
                (Home::TooShort, _) => mismatch(Mismatch::HomeTruncated, wish, None),
                (Home::AsItWas, Use::Closed) => Reuse,
                (Home::AsItWas, Use::Died) => Recover,
                (Home::AsItWas, Use::Restarted) => {
                    mismatch(Mismatch::Restarted, wish, Some(Recover))
                }
                (Home::Changed, Use::Closed) => mismatch(Mismatch::HomeChanged, wish, Some(Reuse)),
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

    fn marks() -> [Mark; 5] {
        [Mark::None, Mark::OfThisFile, Mark::OfAnotherFile, Mark::Gone, Mark::OfSnapshot]
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

    /// The table once more, as rows of predicates: each combination must fall into exactly one
    /// row, and the function must do what that row says. (The compiler checks that `decide` has a
    /// row for everything, but not that its rows do not hide one another.)
    #[test]
    fn every_combination_has_exactly_one_row() {
        type Row = (&'static str, fn(Mark, Found) -> bool, Decision);
        use Mismatch as M;
        const NO: fn(M) -> Decision = Decision::Refuse;
        let rows: Vec<Row> = vec![
            ("plain file", |m, f| m == Mark::None && is_anothers(f), Decision::Fresh),
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
            (
                "goes back",
                |_, f| matches!(f, Found::OfThisFile { state: Use::Undone, .. }),
                Decision::GoBack,
            ),
            (
                "journal gone",
                |_, f| matches!(f, Found::OfThisFile { state: Use::JournalGone, .. }),
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
                "died",
                |_, f| f == Found::OfThisFile { home: Home::AsItWas, state: Use::Died },
                Decision::Recover,
            ),
            (
                "restarted",
                |_, f| f == Found::OfThisFile { home: Home::AsItWas, state: Use::Restarted },
                NO(M::Restarted),
            ),
        ];
        fn is_anothers(f: Found) -> bool {
            matches!(f, Found::Nothing | Found::OfAnotherFile | Found::Foreign)
        }
        fn is_undone(f: Found) -> bool {
            matches!(
                f,
                Found::OfThisFile {
                    state: Use::Undone | Use::JournalGone | Use::JournalSwapped,
                    ..
                }
            )
        }
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
