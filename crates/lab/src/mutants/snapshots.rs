//! The rest of the table of killers: the bugs in snapshots.
//!
//! Invariant: each bug in the crate's `src/mutant/snapshot_bugs.rs` has a row here.

use super::killers::{Killer, test};
use atomic_mmap::testing::mutants::Mutant;

/// Returns the test that notices a bug in snapshots.
pub(super) fn killer(mutant: Mutant) -> Killer {
    use Mutant::*;
    match mutant {
        TableUnchecked | OlderTableCounts | HighestForgotten => {
            test("atomic_mmap", "format::snapshots::table::tests")
        }
        SegmentSeedOld | RecordUnchecked | KeptBytesUnchecked => {
            test("atomic_mmap", "format::snapshots::segment::tests")
        }
        TableOverNewest
        | FoundUnchecked
        | FoundRecordsNotFlushed
        | OpeningNumberKept
        | LaterByOldSet
        | CollectForgetsNeeded
        | FreedBeforeSettled
        | FreedBeforeReadersLeft => test("atomic_mmap", "pair::snapshots::tests"),
        FreedWithEnd => test("atomic_mmap", "pair::snapshots::model_tests"),
        DoubtIgnored | LostHeaderIgnored | EndNotCompared | EndsNotCounted | CloseMarksNoEnds
        | CloseCountsNoEnds => test("snapshots", "damage::damage_to_what_is_kept"),
        TableNotRepeated => test("snapshots", "damage::damage_to_one_copy_of_the_table"),
        SessionNotConfirmed => test("snapshots", "damage::a_store_of_a_later_time"),
        AnnouncedStoreRefused => test("snapshots", "life::a_death_at_each_step_of_an_opening"),
        ConfirmedStoreNotDurable => test("snapshots", "steps::a_found_store_is_durable"),
        RepeatedTableNotSynced => {
            test("snapshots", "steps::a_store_is_durable_before_it_has_its_name")
        }
        CloseEndsUnsettled | CloseEndsNotDurable | ClosedStoreNotDurable => {
            test("snapshots", "steps::a_close_marks_ends")
        }
        OldStoreTaken => test("snapshots", "life::a_store_of_another_time"),
        StoreInLargeFolios => test("space", "a_store_of_snapshots_beside_holes"),
        UnfinishedStoreStays => {
            test("snapshots", "life::a_death_at_each_step_of_the_first_snapshot")
        }
        DeadSessionKeepsNothing => test("snapshots", "life::a_crashed_session_takes_nothing"),
        SpatialDropsSnapshots | EmptyStoreStays => {
            test("snapshots", "life::snapshots_survive_both_closes")
        }
        StoreNotSynced | StoreFolderNotSynced => {
            test("snapshots", "steps::a_store_is_durable_before_it_has_its_name")
        }
        FoundStoreNotDurable | BegunStoreNotDurable => {
            test("snapshots", "steps::a_found_store_is_durable")
        }
        DeadKeepsNotDurable => test("snapshots", "steps::what_recovery_keeps_is_durable"),
        EmptyStoreRemovalNotSynced => {
            test("snapshots", "steps::the_removal_of_an_empty_store_is_durable")
        }
        NothingKept | ShrinkKeepsNothing => {
            test("snapshots", "power::snapshots_survive_beside_views")
        }
        KeepsNotSynced => test("snapshots", "steps::what_a_point_keeps_is_durable"),
        LoggedFlipKeeps => test("snapshots", "power::snapshots_survive_beside_writes"),
        DirectStoreKeepsNothing | SealWithoutPoint => {
            test("snapshots", "life::a_crashed_session_takes_nothing")
        }
        RedoNoDrainAfterKeeps => test("snapshots", "power::snapshots_survive_beside_views"),
        RestoreNoDrainBeforeWords
        | RestoreNoDrainAfterWords
        | RollbackNotSaid
        | RollbackNotFinished
        | TableNotDurable => test("snapshots", "power::a_rollback_is_whole_or_absent"),
        DropUnderReader => test("snapshots", "model::a_snapshot_that_is_read_is_not_dropped"),
        SnapshotReadsPresent => test("snapshots", "model::snapshots_hold_what_was_sealed"),
        KeptNotLookedUp | KeptOverSeal | KeptOverDrop | FastPathKeepsNothing | DirectStoreOwes => {
            test("snapshots", "model::what_is_kept_for_one_snapshot_is_not_taken_for_all")
        }
        ShownInSnapshot | RestoresPastTheEnd => {
            test("snapshots", "model::what_a_follower_of_the_home_file")
        }
        SealGateOpen | SwitchNoWait | SwitchNotSeenUnderLock | SnapshotReadUnlocked => {
            test("atomic_mmap", "engine::tests::snapshots")
        }
        FrameUnchecked => test("snapshots", "export::each_flipped_byte"),
        FrameOrderUnchecked => test("snapshots", "export::frames_that_lack"),
        SpoolOfAnyOwner => test("snapshots", "export::what_another_user"),
        SpoolStays => test("snapshots", "export::a_broken_transfer"),
        SpoolNameTooLong => test("snapshots", "receive::a_file_with_a_long_name"),
        SpoolOfAnyFile => test("atomic_mmap", "api::spool"),
        BytesPastTheEnd => test("snapshots", "receive::a_stream_has_no_bytes"),
        ImportChecksLate => test("snapshots", "receive::options_that_do_not_fit"),
        ImportTakesLength => test("snapshots", "receive::a_new_file_has_the_length"),
        DamagedRecordRolledBack => test("snapshots", "damage::a_rollback_that_needs"),
        CutOffRollbackGoesOn => test("atomic_mmap", "a_write_that_waited_for_a_rollback"),
        RollbackNotCounted => test("snapshots", "automatic::each_kind_of_change"),
        SeenTakenForPresent => test("atomic_mmap", "engine::snapshots::seen"),
        ShrinkKeepsLater | ShrinkWritesUnkept => {
            test("snapshots", "full::a_shrink_finds_a_full_disk")
        }
        ShrinkRecordUnreserved => test("snapshots", "full::a_shrink_of_many_changed_pages"),
        FreedPastCache => test("undrained", "every_call_returns"),
        FailedKeepNotDrained | FailedCutNotDrained => test("undrained", "every_call_that_fails"),
        ShrinkGateOpen => {
            test("atomic_mmap", "engine::tests::length::no_write_comes_between_a_shrink")
        }
        RollbackNotReserved => test("snapshots", "full::a_full_disk_is_found"),
        ImportCutsUnkept => test("snapshots", "receive::a_full_store_is_found"),
        ExportForgetsNewest | ImportAnyBase => test("snapshots", "export::an_increment_is_taken"),
        ImportAnyResult => test("snapshots", "export::a_stream_that_does_not_lead"),
        ImportNumberNotGiven | ImportNotSaid => {
            test("snapshots", "power::an_import_is_whole_or_absent")
        }
        ImportKeepsNothing => test("snapshots", "export::a_whole_file_replaces"),
        ImportKeepsNoZeros => test("snapshots", "export::a_longer_import_keeps_zeros"),
        ImportKeepsNotDurable | ImportRecordsNotDurable | ImportNotRemembered => {
            test("snapshots", "steps::an_import_is_durable")
        }
        other => panic!("{} has no killer", other.name()),
    }
}
