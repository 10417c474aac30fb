//! The rest of the table of killers: the bugs in page sums.
//!
//! Invariant: each bug in the crate's `src/mutant/sum_bugs.rs` has a row here.

use super::killers::{Killer, test};
use atomic_mmap::testing::mutants::Mutant;

/// Gives the files of a test sums, which each read verifies.
const ON_READ: &[&str] = &["ATOMIC_MMAP_INTEGRITY=on-read"];

/// Returns the test that notices a bug in page sums, or `None` if the bug is none of those.
pub(super) fn killer(mutant: Mutant) -> Option<Killer> {
    use Mutant::*;
    Some(match mutant {
        NotVerifiedBeforeWrite | DamageTakenForWhole => {
            test("sums", "damage::damage_that_happened")
        }
        SumNotPublished | ReadVerifiesOnce => test("sums", "damage::a_lost_bit"),
        SnapshotUnproven | KeptDamageRolledBack => test("sums", "kept::damage_that_was_kept"),
        KeptUnverified => test("sums", "kept::a_durable_point_keeps"),
        CutKeptUnverified => test("sums", "kept::a_shrink_keeps"),
        AcceptedNotStored => test("sums", "kept::an_opening_that_finishes"),
        CutNotNoted => test("sums", "kept::a_page_that_a_transaction_cuts"),
        ImportOverDamage => test("sums", "kept::an_import_over_damage"),
        ImportCutsDamage => test("sums", "kept::a_shorter_state"),
        DamageRolledBack => test("sums", "damage::a_rollback_over_damage"),
        CopiedSumLost => test("atomic_mmap", "pair::snapshots::tests"),
        KeptWithoutSum | RepairKeepsNothing => {
            test("sums", "repair::a_page_that_a_snapshot_shares")
        }
        PresentSumKept => test("sums", "repair::a_page_that_a_snapshot_shares"),
        LaterSumKept => test("sums", "repair::a_sum_that_fits_the_damage"),
        AnySumTaken => test("sums", "repair::a_sum_that_fits_the_damage"),
        ReceivedWithoutSum => test("sums", "repair::a_page_that_came_by_an_import"),
        RepairedUnproven => test("sums", "repair::a_page_that_no_snapshot_has"),
        RepairedFromOldest => test("sums", "repair::the_newest_snapshot_that_has"),
        RepairedUnderReader => test("sums", "repair::a_page_that_a_newer_snapshot"),
        RepairedWhole => test("sums", "repair::a_page_that_was_replaced"),
        StaleSumsLeft | StaleSumsLeftByPoint => test("sums", "metadata::a_lost_block"),
        StaleSumStreamed => test("undrained", "every_call_returns"),
        SumsStoredFirst => test("undrained", "every_call_that_fails"),
        StaleSumsLeftByCrash => test("sums", "metadata::a_block_that_is_lost"),
        DurablePlaceTaken => test("sums", "metadata::a_page_goes_back_to_zeroes"),
        NewestNotNoted | NewestNotCompared => test("sums", "metadata::a_damaged_newest_record"),
        GapInRecordsTaken => test("sums", "metadata::a_damaged_older_record"),
        KeptUncompared => test("sums", "kept::an_opening_that_keeps"),
        BegunNotStored | LaterSessionIgnored => test("sums", "metadata::a_damaged_superblock"),
        StateWordNotChecked => test("sums", "metadata::a_damaged_length_is_noticed"),
        CutSumStays | SumsNotZeroed => test("sums", "life::each_length"),
        OldSumsStay => test("sums", "life::sums_that_were_switched_off"),
        FirstSumsMissing => test("sums", "life::a_file_with_bytes"),
        SumOverDurable | DurableSumNotPublished => test("sums", "crash::pages_of_a_durable_point"),
        RecordWithoutSums | ReplayedSumsMissing => test("sums", "crash::a_record_brings"),
        FirstSumsNotSynced => test("sums", "crash::the_first_sums_are_durable"),
        SumsNotAllocated => Killer::Test("allocation", "nothing_is_stored_to_a_hole", ON_READ),
        SumNotInRecord | RecordSumNotRestored | CoveredSumNotStored | CoveredSumNotFlushed => {
            Killer::Test("power", "small_writes_survive", ON_READ)
        }
        OlderSumsInRecords | RecordsConflictBySlice => {
            test("sums", "crash::recovery_brings_back_no_older_sum")
        }
        SumNotStored | RedoNoDrainAfterSums | ShrinkSumNotDrained => {
            Killer::Test("power", "writes_under_a_view", ON_READ)
        }
        _ => return None,
    })
}
