//! The rest of the table of killers: the bugs in stages.
//!
//! Invariant: each bug in the crate's `src/mutant/stage_bugs.rs` has a row here.

use super::killers::{Killer, test};
use atomic_mmap::testing::mutants::Mutant;

/// Returns the test that notices a bug in stages, or `None` if the bug is none of those.
pub(super) fn killer(mutant: Mutant) -> Option<Killer> {
    use Mutant::*;
    Some(match mutant {
        FlipOverStage | StageNotClaimed => test("staging", "basics::a_write_to_a_staged_slice"),
        StageUnderView | StagedFlipsClaimed | RedoForgetsPlaced => {
            test("staging", "basics::a_commit_beside_claims_of_a_view")
        }
        StageOverStage | EarlierStageWins => test("staging", "basics::of_stages_that_overlap"),
        StageNotGivenBack => test("staging", "basics::of_stages_that_overlap"),
        StageNotAllocated => test("allocation", "nothing_is_stored_to_a_hole"),
        StageFillNotDrained | StageNotFlushed => test("staging", "power::each_fill_ends"),
        StagedSumOfOldBytes => test("staging", "basics::sums_follow"),
        DeployOverStage | PunchStagedSlots => {
            test("staging", "basics::deployments_and_punches_leave")
        }
        ViewOverStage | FastViewOverStage => test("staging", "basics::a_view_over_staged_slots"),
        ShrinkUnderStage => test("staging", "basics::a_shrink_below_lent_slots"),
        StageKeepsOldFill => test("staging", "basics::a_reader_that_fails"),
        StageEndNotChecked => test("staging", "basics::errors_change_nothing"),
        PartTakenForSlice => test("staging", "basics::what_was_not_filled"),
        _ => return None,
    })
}
