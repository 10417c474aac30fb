//! The rest of the table of killers: the bugs in space that is given back, in its budget and in
//! background deployment.
//!
//! Invariant: each bug in the crate's `src/mutant/space_bugs.rs` has a row here.

use super::killers::{Killer, test};
use atomic_mmap::testing::mutants::Mutant;

/// Returns the test that notices a bug in space, or `None` if the bug is none of those.
pub(super) fn killer(mutant: Mutant) -> Option<Killer> {
    use Mutant::*;
    Some(match mutant {
        BudgetNotHeeded | NotAdmitted | AheadOfBudget => {
            test("background", "the_companions_stay_below")
        }
        SweepMakesPoint => test("background", "with_atomic_sync_the_worker"),
        LeftRecordNotDurable | LeftWordsNotPublished | LeftPointNotSynced | LongerPointLeft => {
            test("snapshots", "full::a_point_that")
        }
        RecoveredNotChanged => test("snapshots", "full::an_opening_without_space"),
        PunchWordsInUse => test("atomic_mmap", "words_in_use_are_not_given_back"),
        MarkWordNotDrained => test("undrained", "every_call_returns"),
        FailureToldLate => test("atomic_mmap", "a_failed_point_at_an_interval"),
        AheadOutlivesGrowth => test("atomic_mmap", "is_not_whole_after_a_growth"),
        PunchedStaysAhead => test("atomic_mmap", "is_not_whole_after_a_punch"),
        PopulatedWithoutWords | GrowthNotPopulated => {
            test("allocation", "a_file_that_is_allocated_in_full")
        }
        PunchWordsOfNextPoint => test("atomic_mmap", "words_that_the_next_point_stores"),
        PunchNotValidated => test("atomic_mmap", "a_page_that_is_written_while_a_punch_waits"),
        PunchWordsNoWait => test("atomic_mmap", "words_are_given_back_after_all_threads"),
        WordsAheadNotAllocated => test("atomic_mmap", "words_are_allocated_for_as_many"),
        NamedWordsPunched => test("allocation", "nothing_is_stored_to_a_hole"),
        ZeroedByTwoStores => test("background", "both_words_of_a_deployed_page"),
        ZeroedNotClosed => test("atomic_mmap", "a_region_word_deploys"),
        _ => return None,
    })
}
