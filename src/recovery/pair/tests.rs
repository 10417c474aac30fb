//! Checks the pair table against a second statement of it.

use super::*;

fn marks() -> [Mark; 7] {
    use Mark::{Closing, Gone, InBytes, None, OfAnotherFile, OfSnapshot, OfThisFile};
    [None, OfThisFile, OfAnotherFile, Gone, OfSnapshot, Closing, InBytes]
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
        (
            "a lone copy",
            |m, f| m == Mark::InBytes && (is_anothers(f) || f == Found::OfEarlierFile),
            NO(M::LoneCopy),
        ),
        (
            "foreign",
            |m, f| !matches!(m, Mark::None | Mark::InBytes) && f == Found::Foreign,
            NO(M::Foreign),
        ),
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
        ("journal gone", |m, f| m != Mark::Closing && is_without_journal(f), NO(M::JournalGone)),
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
