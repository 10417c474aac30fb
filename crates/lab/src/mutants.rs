//! The part `mutants`: every planted bug, and the test that notices it first.
//!
//! The bugs are in `atomic-mmap` itself (`src/mutant/bugs.rs`, feature `mutants`), one line each.
//! For each bug, this file names its killers: tests of the crate or parts of the lab. A killer is a
//! process of its own, and the environment tells it which bug to plant. If a killer fails, panics,
//! hangs or dies by a signal, it has noticed the bug. Each killer first runs without a bug, and
//! must pass.
//!
//! A bug without any observable effect is no bug. This file lists these with a proof.
//!
//! | variable | meaning |
//! |---|---|
//! | `LAB_MUTANTS` | plants only the bugs with this text in their names |
//!
//! `--tenth K` plants the bugs of one tenth, and those that are cheap to plant (`is_cheap`).

use crate::part::{Outcome, Settings};
use crate::progress::Progress;
use atomic_mmap::testing::mutants::{self, Mutant};
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Environment variable that selects some of the bugs.
const SOME: &str = "LAB_MUTANTS";
/// Number of times that all killers run before a bug counts as surviving.
const ATTEMPTS: usize = 4;
/// A killer hangs if it takes this number of times longer than without a bug.
const PATIENCE: u32 = 6;
/// Minimum time before a killer counts as hung.
const AT_LEAST: Duration = Duration::from_secs(12);
/// Maximum time of a killer without a bug.
const LONGEST: Duration = Duration::from_secs(120);

/// A test that notices a bug.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Killer {
    /// Tests with the second text in their names. The first field names their test binary, or their
    /// module of the binary [`INTEGRATION`]. The third field has environment variables as
    /// `NAME=value`, or nothing.
    Test(&'static str, &'static str, &'static [&'static str]),
    /// A model of the crate under loom, by its name.
    Loom(&'static str),
    /// A part of the lab itself, with further arguments.
    Lab(&'static [&'static str]),
    /// Schedules of one cast of threads, by its number in the part `schedules`.
    Schedules(&'static str),
}

impl fmt::Display for Killer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Killer::Test(place, filter, environment) => {
                write!(f, "{place}: {filter}")?;
                environment.iter().try_for_each(|setting| write!(f, ", {setting}"))
            }
            Killer::Loom(model) => write!(f, "loom: {model}"),
            Killer::Lab(words) => write!(f, "lab {}", words.join(" ")),
            Killer::Schedules(cast) => write!(f, "schedules of cast {cast}"),
        }
    }
}

/// The expected fate of a bug.
enum Fate {
    /// Killed by one of these, in this order.
    KilledBy(Vec<Killer>),
    /// Without any observable effect, for this reason.
    Equivalent(&'static str),
}

const fn test(place: &'static str, filter: &'static str) -> Killer {
    Killer::Test(place, filter, &[])
}

/// Crash images of random operations. Those of one thread come first, because they are cheaper.
const IMAGES: [Killer; 3] = [
    test("power", "one_thread"),
    test("power", "two_threads_by_turns"),
    test("power", "threads_at_the_same_time"),
];
/// Every image of short sequences, for some seconds.
const EVERY_IMAGE: Killer = Killer::Lab(&["images", "--seconds", "8"]);
/// Every image of short sequences behind a page cache, for some seconds.
const EVERY_IMAGE_ON_DISK: Killer = Killer::Lab(&["disk", "--seconds", "40"]);
/// Files on disks of every block size, with and without space.
const EVERY_BLOCK: Killer = Killer::Lab(&["blocks", "--seconds", "10"]);
/// All cases of changes to the files of a pair.
const EVERY_CASE: Killer = Killer::Lab(&["identity", "--seconds", "20"]);
const BY_TURNS: [Killer; 3] = [IMAGES[1], IMAGES[0], IMAGES[2]];

/// Crash images of operations that need one rule.
const fn script(settings: &'static [&'static str]) -> Killer {
    Killer::Test("power", "what_needs_each_rule", settings)
}

fn fate(mutant: Mutant) -> Fate {
    use Fate::Equivalent;
    use Mutant::*;
    let by = |killer: Killer| Fate::KilledBy(vec![killer]);
    let by_any = |killers: &[Killer]| Fate::KilledBy(killers.to_vec());
    match mutant {
        // ---- steps of the commit ways -------------------------------------------------
        VouchNotDrained | VouchedWordBeforeDrain | VouchedWordNotStored => {
            by(test("drains", "a_small_write_takes_one_drain"))
        }
        VouchSumOfNothing => by(EVERY_IMAGE),
        VouchedWordsNotFlushed | VouchNotNoted | BatchOnceARing => {
            by(test("drains", "words_are_flushed_with_the_drain"))
        }
        LaneNotDrainedAtEnd => by(test("drains", "a_thread_that_ends")),
        FailedCopyNotDrained => by(test("drains", "an_operation_that_fails_half_way")),
        FlipNoDrainBeforeWord
        | FlipNoDrainAfterWord
        | FlipWordBeforeData
        | UndoNoDrainBeforeWords
        | UndoNoDrainBeforeEnd
        | UndoNoDrainAfterEnd => by(test("drains", "a_transaction_over_pages_takes_three_drains")),
        LoggedNoDrainAfterClear => by(EVERY_IMAGE),
        LoggedNoDrainAfterEntry | LoggedNoDrainBeforeEnd => {
            by_any(&[EVERY_IMAGE, test("drains", "a_write_to_a_page_that_a_view_pins")])
        }
        LoggedNoDrainAfterEnd => by(test("drains", "a_write_to_a_page_that_a_view_pins")),
        DeployNoDrainBeforeWords => {
            by_any(&[EVERY_IMAGE, test("drains", "a_deployment_takes_two_drains")])
        }
        DeployNoDrainAfterWords => by(test("drains", "a_deployment_takes_two_drains")),
        SequenceStands | VouchOnePlace | VouchLaneNotNoted | UndoNotWritten | UndoNotEnded
        | UndoEndsBeforeWords | LoggedNotEnded | NoClear | FlipNoClear | DeployNoClear
        | CloseSettlesNothing => by_any(&IMAGES),
        UndoSpillNotWritten | WordsNotCounted => {
            by(test("drains", "a_transaction_with_more_words"))
        }
        DraftNotLookedAtAgain => by(test("held", "a_plan_computed_before_the_lock")),
        VoidStaysNoted | CutNoClear => by(test("held", "words_of_pages_that_were_cut_off")),
        NamedPageNotNoted | VouchOverOtherLane | LoggedNoClear | PagesNoClear | CopyOverEntries
        | SettleNoFlush | ClearNotFlushed => by_any(&BY_TURNS),
        WholeNoClear => by(test("drains", "whole_pages_of_a_region")),
        RegionForgetsNamed => by(test("drains", "a_write_over_a_region_forgets_no_entry")),
        OneSequenceForBoth => by(test("drains", "undo_entries_take_no_place_of_the_ring")),
        ClearToZero => by(script(&["POWER_SCRIPT=8", "POWER_IMAGES=200"])),
        SettleNoDrain => by(script(&["POWER_SCRIPT=5", "POWER_IMAGES=200"])),
        LaneTakenTwice => by(test("atomic_mmap", "more_threads_than_lanes")),
        VouchInSharedLane => by(test("threads", "no_increment_of_more_threads")),
        ClearFlushedIfDone => Equivalent(
            "The flush after a compare-and-swap that fails is left out. It fails only if the header that \
             the lane's owner stores over the old one was seen. Entries are streamed where lines have to \
             be flushed (`Persistence::Flush`; their lengths are whole lines): what another processor sees \
             of a streamed store has left for the memory controller, which is in the persistence domain, so \
             the old header is gone for good without the flush. The flush stays for the day on which an \
             entry is stored through the cache.",
        ),

        // ---- what is written, and where -----------------------------------------------
        PartTakenForWhole => by(test("atomic_mmap", "an_unaligned_block")),
        SecondPartNotMoved => by(test("atomic_mmap", "parts_that_share_a_page")),
        FlipNotPublished | VouchNotPublished | SecondPartFromValidSlot => {
            by(test("boundaries", "pieces_of_one_slice"))
        }
        CompletedFromFreeSlot
        | CopyJoinsSuperchunks
        | ReadJoinsChunks
        | LinesToOneSide
        | PiecesReadAtHome
        | RegionBitIgnored
        | WordsNotLoaded => by(test("boundaries", "a_write_over_the_boundary_of_two_superchunks")),
        AwayReadAtHome | AwayTakenForHome => by(test("atomic_mmap", "engine::tests::read_page")),
        HomeWordNotLookedAtAgain | HomeWordGoesBack => {
            by(Killer::Loom("a_stamped_read_sees_one_state"))
        }
        KnownNotLookedAtAgain => by(Killer::Loom("a_stamped_read_of_several_pages")),
        KnownByTheFirst => by(test("atomic_mmap", "consecutive_pages_are_read_by_their_stamps")),
        HomeNotLeft => by(test("atomic_mmap", "deployment_sets_stamps")),
        KnownAway => by(test("atomic_mmap", "repeated_reads_of_a_deployed_page")),
        HoleKnown => by(test("atomic_mmap", "a_page_in_a_hole_gets_no_stamp")),
        KnownWhileCutting | CutStaysKnown => by(test("atomic_mmap", "truncate_clears_stamps")),
        SeveralReadAtHome => by(test("atomic_mmap", "pages_on_one_side_are_read_at_once")),
        SeveralNotLookedAtAgain => by(Killer::Loom("a_read_of_pages_on_one_side")),
        HoleOfSeveralRead => by(test("atomic_mmap", "pages_in_a_hole_are_not_loaded")),
        HoleReadAtOnce => by(test("atomic_mmap", "holes_are_not_loaded_at_once")),
        RunsJoined => by(test("atomic_mmap", "runs_cover_the_set_exactly")),
        LastPageOfRegionMissed => by(test("atomic_mmap", "page_spans_cover_the_range")),
        LogNotMeasured => by(test("errors", "a_write_that_no_log_could_hold")),

        StoreToFreeSlot => by(test("atomic_mmap", "a_direct_store_goes_to_the_valid_slot")),
        StoreOverView | PinNotSeen => {
            by(test("atomic_mmap", "no_direct_store_goes_to_a_pinned_page"))
        }
        KnownNotSeen => by(test("atomic_mmap", "a_direct_store_goes_to_the_valid_slot")),
        StoreToHole => by(test("allocation", "nothing_is_stored_to_a_hole")),
        WholeNotPublished | SmallNotPublished => by(test("boundaries", "every_awkward_place")),
        WholeNotLookedAtAgain => by(test("atomic_mmap", "a_page_that_flips_before_it_is_locked")),

        // ---- space --------------------------------------------------------------------
        VouchLaneNotAllocated
        | RegionWordsNotAllocated
        | UndoSpillNotAllocated
        | FlipReflectionNotAllocated
        | FlipHomeNotAllocated
        | DeployHomeNotAllocated
        | PunchedStaysAllocated
        | GrowChunkNotExtended
        | CutStaysAllocated
        | PiecesNotAllocated
        | WholeNotAllocated
        | CopyToHoles
        | SliceWordsNotAllocated => by(test("allocation", "nothing_is_stored_to_a_hole")),
        UnreservedBtrfsTaken => by_any(&[
            test("space", "a_btrfs_with_mixed_block_groups"),
            test("space", "a_btrfs_subvolume_under_a_quota"),
        ]),
        BlocksNotLookedAt => by(EVERY_BLOCK),
        GrowthReservesLater => {
            by_any(&[EVERY_BLOCK, test("space", "a_full_disk_is_an_error_whatever_its_block_size")])
        }
        BytesAllocated | GrowthFromNextPage => {
            by_any(&[EVERY_BLOCK, test("allocation", "nothing_is_stored_to_a_hole")])
        }
        ChunkForEachTouch => by(test("space", "scattered_writes_take_the_pages")),
        JournalLongerBeforeAllocated => {
            by_any(&[EVERY_BLOCK, test("space", "a_journal_that_could_not_grow")])
        }
        JournalHoleCountsAsRoom => by(test("space", "a_hole_in_a_journal_is_no_room")),
        NoSpaceOfAllocationOnly => by(test("space", "want_of_space_is_told_of_every_call")),
        WholeWordGivenBack => {
            by_any(&[test("atomic_mmap", "deployment_sets_stamps"), Killer::Schedules("6")])
        }
        PagesWordGivenBack => by_any(&[
            test("atomic_mmap", "a_writer_without_space_for_an_undo"),
            Killer::Schedules("6"),
        ]),
        DeployWordGivenBack => {
            by_any(&[test("atomic_mmap", "a_region_word_deploys"), Killer::Schedules("6")])
        }
        // ---- durable points -----------------------------------------------------------
        DeployChangedByRegionBit => by(test("atomic_mmap", "a_region_bit_does_not_move")),
        CutGateOpen | DeployDurableSlots => by(Killer::Schedules("10")),
        PointNotLocked => {
            by_any(&[test("atomic_mmap", "a_region_bit_does_not_move"), Killer::Schedules("10")])
        }
        InPlaceNoEntry | InPlaceNotEnded => {
            by_any(&[Killer::Schedules("7"), test("death", "numbered_events_in_place")])
        }
        InPlaceNotClosed => by_any(&[
            Killer::Schedules("7"),
            test("durable", "a_reader_of_bytes_that_are_stored_in_place"),
        ]),
        CutNotFlushed
        | GrownRestNotFlushed
        | OpenedRestKnown
        | WordsBeforeRecord
        | RecordOfOldLength
        | FlushNotBase
        | DurableWordNotStored
        | CheckpointNotSynced
        | FlushHomeNotSynced
        | FlushReflectionNotSynced
        | RecordNotDurable
        | RecordOverNewest
        | NewestForgotten
        | InPlaceFlips
        | ChangeNotNoted
        | PageFlipsDurableSlots
        | PagesFlipDurableSlots
        | ShrinkNoPoint
        | CloseNoPoint
        | OpeningIsNoPoint
        | DeadSessionNotSynced
        | EmptiedNotSynced
        | FoundSessionNotSynced
        | BegunWordsNotSynced
        | NotReplayed
        | ReplayNotSynced
        | WorkingWordsKept
        | RegionWordsKept
        | BackAfterDeath => by(EVERY_IMAGE_ON_DISK),
        RegionsNotBegun => by(test("durable", "a_long_pair_gets_its_durable_points")),
        PunchDurableSlots => by(test("atomic_mmap", "slots_of_the_durable_point")),
        PastPointKept => by(test("durable", "what_lies_past_the_last_point")),
        LongPointTaken => by(test("durable", "a_point_that_is_too_long")),
        DamagedWordsNotNoted | TrustedWordsKept => {
            by(test("durable", "durable_words_that_were_damaged"))
        }
        OverdueForgotten => by(test("unheard", "writes_fail_while_the_points")),
        OverdueForGood => by(test("unheard", "writes_fail_while_the_points")),
        NoThreadNoMatter => by(test("unheard", "opening_fails_if_no_thread")),
        FollowersKeepLanes => {
            by(test("atomic_mmap", "a_thread_that_waits_for_a_point_keeps_no_lane"))
        }
        LaneHandedToNobody => by(test("atomic_mmap", "a_thread_that_waits_for_a_shared_lane")),
        FloorTooEarly | FloorNotDurable | FloorAfterSync => {
            by(test("steps", "the_floor_of_the_journal"))
        }
        FirstFloorMissing | FloorNotChecked => {
            by(test("durable", "a_journal_from_before_the_first_point"))
        }
        FloorNotRaised | FloorInOnePlace | FloorOfAnySession => {
            by(test("durable", "a_journal_from_before_the_last_checkpoint"))
        }
        NewestNotMadeDurable => by(test("durable", "the_newest_record_is_durable")),
        DropMakesPoint => by(test("durable", "half_a_save_is_taken_back")),
        EarlierCloseNoPoint => by(test("durable", "a_handle_that_is_closed_beside_others")),
        CutOffPointGoesOn => by(test("atomic_mmap", "a_panic_in_the_middle_of_a_point")),
        CutOffLeadStays => by(test("atomic_mmap", "no_thread_waits_for_a_leader")),
        FailedTurnCounts => by(test("durable", "a_thread_that_waits_for_a_failed_point")),
        InPlaceAfterFailure => by(test("durable", "nothing_is_stored_in_place_once")),
        FailedSyncForgotten => by(test("durable", "a_failed_record_poisons")),
        RetryAfterFailedSync => by(test("faults", "failing_syncs_of_both_files")),
        FailedCheckpointForgotten => by(test("faults", "failures_in_the_background")),
        JournalNotSynced | JournalFolderNotSynced => by(test("steps", "a_pair_is_whole_and_named")),
        PiecesBesideHoles => by(test("space", "a_full_disk_and_large_folios")),
        RecoverNotAllocated => by(test("allocation", "what_is_recovered_is_not_stored")),
        HolesUpToOldLength => by(test("regressions", "a_chunk_is_not_taken_for_allocated")),
        HolesLoaded => by(test("space", "a_full_disk_is_an_error_on_persistent_memory")),
        PunchValidSlots => by(test("boundaries", "deploying_gives_no_space_back")),
        PunchNoWait => by(test("windows", "a_punch_waits_for_readers")),

        // ---- locks, versions, transactions --------------------------------------------
        ClosedIsOpen | ClosedIsStill => by(test("atomic_mmap", "a_release_changes_the_version")),
        // The test of the wait sees a locked region by chance only, or hangs.
        PagesNotAwaited => {
            by(Killer::Loom("writers_of_a_page_and_of_its_region_exclude_each_other"))
        }
        PagesKeptWhileWaiting => by(test("atomic_mmap", "a_thread_that_waits_for_a_page_releases")),
        RegionNotLookedAtAfterPage => {
            by(Killer::Loom("writers_of_a_page_and_of_its_region_exclude_each_other"))
        }
        NoFenceBeforeMarks => {
            by(Killer::Loom("a_reader_of_a_write_sees_the_transaction_that_came_before_it"))
        }
        NothingLocked | PageHeldTwice => by(test("threads", "money_is_neither_made_nor_lost")),
        PagesNotLookedAtAgain => by(test("windows", "a_read_over_pages_that_are_written")),
        RegionNotSummed => by(test("windows", "a_read_over_pages_of_a_region")),
        VouchNotClosed | SmallNotClosed | FlipNotClosed | PagesNotClosed | WholeNotClosed
        | LoggedNotClosed | StoreNotClosed | TakenOpen | NoNewVersion | MarksNotChecked => {
            by(test("errors", "a_write_by_any_protocol"))
        }
        ReservationNotAdapted => by_any(&[
            test("messages", "a_limit_of_address_space"),
            test("messages", "more_than_a_thousand_files"),
        ]),
        FilterNotExpected | RefusedFenceNotReplaced => {
            by(test("messages", "calls_that_a_filter_refuses"))
        }
        CutPieceForgotten => by(test("atomic_mmap", "a_piece_over_others_cuts")),
        ReadLengthFirst => by(test("atomic_mmap", "a_read_over_regions_beside_a_cut")),
        MarkedLengthFirst => by(test("atomic_mmap", "a_transactions_read_beside_a_cut")),
        InPageLengthFirst => by(test("atomic_mmap", "a_read_of_one_page_beside_a_cut")),
        SeveralLengthFirst => by(test("atomic_mmap", "a_read_of_several_pages_beside_a_cut")),
        ToldLengthHolds => by(test("transactions", "a_length_that_was_told")),
        WatchedNotCounted => by(test("transactions", "a_change_of_one_of_many_pages")),
        HeldPageWatched => by(test("atomic_mmap", "a_page_that_a_writer_holds_is_not_watched")),
        ReadsAloneNotChecked => by(test("transactions", "a_transaction_beside_its_own")),
        OwnConflictRepeated | OwnChangesNotNoted => {
            by(test("transactions", "an_update_that_changes_its_own_value"))
        }
        AnyConflictIsOwn => by(test("transactions", "a_conflict_with_another_thread")),
        EarlierMarksNotChecked => by(test("errors", "a_transaction_that_has_read_what")),
        MarkedNotLookedAtAgain => by(test("windows", "a_transaction_that_reads_what_is_written")),
        NotClosedBeforeMarks => by_any(&[
            test("windows", "a_reader_of_a_commit_sees"),
            test("regressions", "a_read_never_sees_a_commit_before"),
            test("regressions", "a_transaction_that_only_reads_never_sees"),
        ]),
        DeployNotClosed => by(test("windows", "a_read_of_a_page_that_comes_home")),
        RegionNotLookedAtAgain => {
            by(Killer::Loom("a_reader_of_a_page_sees_no_half_of_a_write_to_its_region"))
        }
        PageNotLookedAtAgain => by(Killer::Loom("a_reader_of_a_page_sees_no_half_of_a_write")),
        WordTakenTwice => by(Killer::Loom("flips_of_one_region_word")),
        CutMarksHold => by(test("windows", "what_was_read_and_is_cut_off_by_now")),
        HeldMarksHold => Equivalent(
            "Let A be a commit that passes its validation of page x although B holds x. A has made its locks \
             exclusive before, so B has not made x exclusive at that moment, and publishes after it. If B \
             has read anything that A writes and B does not, B makes its locks exclusive before its own \
             validation as well. Each has a full fence between the two, so one of them sees the other, and \
             not both pass. If B has not, A comes before B: a reader that sees B and then looks at A's \
             words finds them exclusive until A is published, and a transaction that has read them before \
             fails its validation.",
        ),
        // ---- views --------------------------------------------------------------------
        FlipOverView => by(test("drains", "a_write_to_a_page_that_a_view_pins")),
        WholeOverView | CopyOverView => by(test("boundaries", "while_a_view_pins_everything")),
        DeployOverView | PinAway => by(test("boundaries", "a_second_view_of_a_page")),
        PinNotCounted | PinNotGivenBack | ShrinkUnderView => {
            by(test("errors", "a_view_keeps_its_bytes"))
        }
        PinHeldPage => by(Killer::Loom("pinned_bytes_do_not_change")),
        CuttingNotSaid => by(test("windows", "a_view_that_takes_no_lock")),
        PinWhileResizing | ResizingNotLocked => by(test("windows", "a_view_that_is_being_made")),

        // ---- the length ---------------------------------------------------------------
        LengthNotCheckedAgain => by_any(&[
            test("threads", "the_length_changes"),
            test("regressions", "a_write_over_a_view_that_races_with_set_len"),
        ]),
        PartsWhileResizing | LengthGateOpen => {
            by(test("windows", "a_write_in_pieces_on_both_sides"))
        }
        CopyNotNoted => by(test("durable", "a_write_over_pages_of_an_allocated_chunk")),
        HeaderNotMadeDurable => {
            by(test("regressions", "a_header_that_a_dead_process_has_left_is_made_durable"))
        }
        ShrinkBoundaryNotClosed => Equivalent(
            "The length is part of what a transaction reads: from the moment at which the new one is \
             seen, a transaction that has read past it cannot commit. A growth comes after the \
             clean-up, which closes the boundary's region and so gives its pages new versions.",
        ),
        ShrinkBoundaryNotLocked => by(test("windows", "a_write_in_one_piece_over_the_new_end")),
        NoWaitForPinned | ReadUnpinned => by_any(&[
            test("windows", "a_truncate_waits_for_readers"),
            test("windows", "a_region_that_is_being_touched"),
        ]),
        CutNotLocked => by(test("windows", "a_truncate_waits_for_writers")),
        CutNoWaitForTouches => by(test("windows", "a_region_that_is_being_touched")),
        FlushWordsUnpinned => by(test("held", "a_truncate_waits_for_a_flush")),
        CutNoWaitForReaders => by(test("held", "a_truncate_waits_for_a_thread_that_has_read")),
        GrowHighWaterNotRaised
        | GrowHighWaterNotDrained
        | GrowLengthBeforeFiles
        | GrowFilesNotSynced
        | GrowLengthNotDrained => by(test("steps", "a_growth_raises_the_mark")),
        ShrinkLengthNotDrained
        | CutNoDrainAfterClear
        | CutZeroesNotDrained
        | CutFilesNotSynced
        | CutHighWaterNotDrained
        | CutHighWaterFirst => by(test("steps", "a_shrink_counts_first")),
        CutRegionMirrorStays | CutSliceMirrorsStay | SliceWordsNotZeroed | RegionWordNotCut
        | RegionWordsNotZeroed => by(test("boundaries", "what_is_written_after_a_cut")),
        HomeNotCut | RestOfPageNotZeroed => by(test("boundaries", "bytes_that_a_shrink_cuts_off")),
        NoCatchingUp => by(test("regressions", "a_close_that_catches_up")),

        // ---- closing ------------------------------------------------------------------
        FastHomeNotSynced | FastReflectionNotSynced | CloseNotDrained | SessionStands => {
            by(test("steps", "a_pair_that_is_closed_fast"))
        }
        SpatialHomeNotSynced
        | SpatialNotEmptied
        | SpatialMarkRemovedLast
        | SpatialMarkNotSynced
        | SpatialFolderNotSynced
        | EndNotSynced
        | SuperblockOverNewer => by(test("steps", "a_spatial_close_completes")),
        SpatialLeavesPinned => by(test("regressions", "a_leaked_view")),
        RegionWordsNotVisited | SliceWordsNotVisited => {
            by(test("boundaries", "what_a_session_has_not_touched"))
        }

        // ---- opening ------------------------------------------------------------------
        MadeNotSynced | MadeFolderNotSynced | OpenNotMarked => {
            by(test("steps", "a_pair_is_whole_and_named"))
        }
        DiscardMarkLast | DiscardedNotEmptied | ChangedHomeTaken => {
            by(test("steps", "what_is_discarded"))
        }
        MarkLast | MarkNotSynced => by(test("steps", "a_pair_is_whole_and_named")),
        OpenNotCleanedUp
        | OpenHighWaterFirst
        | OpenZeroesNotDrained
        | OpenHighWaterNotDrained
        | RecoverNotDrained
        | SessionNotSynced => by(test("steps", "opening_cleans_up")),
        RestartNotNoticed => by(test("errors", "a_crash_before_the_machine_was_restarted")),
        AnotherFileTaken => by(EVERY_CASE),
        CopyNotLocked => by(test("copy", "a_copy_is_one_state")),
        CopyMissesRegions => by(test("copy", "a_copy_has_what_came_first")),
        SessionsUsedAgain => by(test("world", "sessions_after_a_restore")),
        CloseNotNoted => by(test("world", "companions_that_were_set_back_by_one")),
        OtherLengthTaken => by(test("world", "restored_beside_leftovers_of_another_length")),
        SumNotCompared => by(test("world", "a_home_file_that_was_copied_at_another")),
        UnmarkedMayHavePair => by(test("world", "a_plain_file_opens_beside")),
        UnmarkedTaken => by(test("world", "a_mark_that_is_gone")),
        RollBackTaken => by(test("world", "a_volume_that_was_set_back")),
        InodeAloneBelieved => by(test("world", "an_inode_number_alone")),
        DiscardedAnyones => by(test("world", "a_volume_that_is_mounted_elsewhere")),
        OwnerNotCompared | BootIdAloneBelieved => by(EVERY_CASE),
        RemovedByName => by(test("world", "closing_removes_no_file_that_took")),
        LinkFollowed => by(test("world", "a_link_in_the_place_of_a_companion")),
        HardLinkTaken => by(EVERY_CASE),
        CompanionNotOwned => by(test("world", "companions_belong_to_the_owner")),
        AccessListNotCopied => by(test("world", "companions_have_the_access_list")),
        UncopiedListForgotten => {
            by(test("world", "companions_are_the_owners_alone_where_the_access_list"))
        }
        DefaultListStays => by(test("world", "a_default_list_of_the_folder")),
        ForeignGroupBitsKept => by(test("world", "a_companion_of_another_group")),
        CompanionsInMemory => by(test("world", "companions_in_memory_of_a_file_on_a_disk")),
        MountedAloneTaken => by(test("world", "a_file_that_is_mounted_by_itself")),
        AnyJournalTaken | JournalHeaderNotRenewed => {
            by(test("world", "a_journal_of_another_pair_or_time"))
        }
        JournalHeaderNotWritten => by(EVERY_IMAGE_ON_DISK),
        ShortReflectionTaken => by(test("errors", "a_reflection_file_that_was_cut_off")),
        ShortHomeTaken => by(test("errors", "a_home_file_that_was_cut_off")),
        NotRecovered
        | RecoverNotVouched
        | RecoverNotVerified
        | RecoverVerifiesAll
        | RecoverNothingTakenBack
        | RecoverTakesBackAll
        | RecoverRegionIgnored
        | RecoverNewerFirst => by_any(&IMAGES),
        RightWordNotStored => by(EVERY_IMAGE),
        RecoverNotSynced => Equivalent(
            "Opening syncs the reflection file before it writes the superblock of the new session, and \
             until that one is durable recovery can be repeated: no flip record is invalidated before the \
             words are durable.",
        ),
        RecoverLoggedNotValid => by_any(&BY_TURNS),
        RecoverVoidIgnored | RecoverVoidsLane | RecoverLeavesOutLast => {
            by(test("atomic_mmap", "every_combination_of_entries"))
        }
        RecoverLoggedFirst => Equivalent(
            "Flip records that name a slice are durably invalidated before redo data of that slice is \
             stored. So the active records of the rings are about other slices: neither changes a bit of a \
             word, or a slot, that the other uses. (Before that rule was kept by a drain, the order made a difference, and \
             `images` saw it.)",
        ),
        RecoverPastLength => Equivalent(
            "A record over bytes past the length exists only as long as the files still reach over them: \
             a shrink truncates the files after it has invalidated such flip records and drained, and, \
             by its locks, after operations in flight have ended their records. So the stores are \
             possible, and their bytes are zeroed before the pair is open: the high-water mark is not \
             lowered yet.",
        ),

        // ---- the format ---------------------------------------------------------------
        SequenceDoesNotWrap => by(test("atomic_mmap", "sequences_wrap")),
        SeedWithoutSession | SeedWithoutPlace => by(test("atomic_mmap", "an_entry_comes_back")),
        PlaceNotChecked => by(test("atomic_mmap", "an_entry_comes_back")),
        VoidIsTorn => by(test("atomic_mmap", "a_void_entry_still_says")),
        HeaderWithoutSession => by(test("atomic_mmap", "the_header_of_another_session")),
        VouchSumNotChecked => by(test("atomic_mmap", "flip_record::tests::every_flipped_bit")),
        UndoSumNotChecked => by(test("atomic_mmap", "every_flipped_bit_of_an_undo_entry")),
        SpillSumNotChecked => by(test("atomic_mmap", "undo_entries_come_back")),
        SuperblockSumNotChecked => by(test("atomic_mmap", "superblock::tests::every_flipped_bit")),
        OlderSuperblockCounts => by(test("atomic_mmap", "the_newer_whole_copy_counts")),
    }
}

/// Places of tests that notice a bug within about a second.
const CHEAP: [&str; 6] = ["atomic_mmap", "boundaries", "drains", "errors", "steps", "transactions"];

/// Returns `true` if the killers of the bug cost so little that each run plants it, in any tenth.
fn is_cheap(mutant: Mutant) -> bool {
    let is_cheap = |killer: &Killer| match killer {
        Killer::Test(place, _, environment) => CHEAP.contains(place) && environment.is_empty(),
        Killer::Loom(_) | Killer::Lab(_) | Killer::Schedules(_) => false,
    };
    match fate(mutant) {
        Fate::KilledBy(by) => by.iter().all(is_cheap),
        Fate::Equivalent(_) => false,
    }
}

/// The end of a killer, and its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Passed,
    Failed,
    Hung,
}

/// The killers, and the time of each without a bug.
struct Killers {
    binaries: HashMap<String, PathBuf>,
    /// Names of the tests of each binary that was asked for them.
    names: Mutex<HashMap<String, Vec<String>>>,
    /// Folder for all files of the killers, because a killed process cannot clean up.
    scratch: tempfile::TempDir,
    /// Folder of the crate, in which tests find their data.
    folder: PathBuf,
    normal: Mutex<HashMap<Killer, Duration>>,
}

/// Name of the binary with the integration tests of the crate, one module a topic.
const INTEGRATION: &str = "it";
/// Name of loom's models among the test binaries.
const LOOM: &str = "--cfg loom";
/// Name of the lab that was built for schedules.
const SHUTTLE: &str = "--cfg shuttle";
/// Number of schedules of one cast for one bug: some seconds.
const SCHEDULES: &str = "6000";

fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// Builds test binaries, and returns their paths by their names.
fn test_binaries(command: &mut Command, folder: &Path) -> io::Result<HashMap<String, PathBuf>> {
    let output = command.current_dir(folder).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other("the tests cannot be built"));
    }
    // One line for each artifact. That of a test has the path of an executable.
    let text = String::from_utf8_lossy(&output.stdout);
    let executables = text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("\"executable\":\"")?;
        Some(PathBuf::from(rest.split_once('"')?.0))
    });
    let named = executables.filter_map(|path| {
        let name = path.file_stem()?.to_str()?.rsplit_once('-')?.0.to_owned();
        Some((name, path))
    });
    Ok(named.collect())
}

/// Asks a test binary for the names of its tests.
fn names_of(binary: &Path) -> io::Result<Vec<String>> {
    let mut command = Command::new(binary);
    let output = command.args(["--list", "--format", "terse"]).stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Err(io::Error::other(format!("{} lists no tests", binary.display())));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.lines().filter_map(|line| Some(line.strip_suffix(": test")?.to_owned())).collect())
}

impl Killers {
    /// Builds the tests of the crate with all planted bugs, unless they exist.
    fn build() -> io::Result<Killers> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
        let workspace = ["test", "--workspace", "--no-run", "--quiet", "--message-format=json"];
        let mut binaries = test_binaries(Command::new(cargo()).args(workspace), &folder)?;
        // With the flags and the folder of the part `loom`, so that cargo builds nothing twice.
        let mut loom = Command::new(cargo());
        loom.args([
            "test",
            "--release",
            "--package",
            "atomic-mmap",
            "--lib",
            "--features",
            "mutants",
        ])
        .args(["--no-run", "--quiet", "--message-format=json"])
        .env("RUSTFLAGS", "--cfg loom")
        .env("CARGO_TARGET_DIR", crate::checker::target(&folder, "loom"));
        let models = test_binaries(&mut loom, &folder)?;
        binaries.extend(models.into_values().map(|path| (LOOM.to_owned(), path)));
        let lab = crate::schedules::build()?;
        let lab = lab.ok_or_else(|| io::Error::other("no lab with --cfg shuttle"))?;
        binaries.insert(SHUTTLE.to_owned(), lab);
        let shm = Path::new("/dev/shm");
        let scratch = if shm.is_dir() { tempfile::tempdir_in(shm)? } else { tempfile::tempdir()? };
        let (names, normal) = (Mutex::default(), Mutex::default());
        Ok(Killers { binaries, names, scratch, folder, normal })
    }

    fn binary(&self, name: &str) -> io::Result<&Path> {
        let path = self.binaries.get(name).map(PathBuf::as_path);
        path.ok_or_else(|| io::Error::other(format!("no tests {name}")))
    }

    /// Returns the names of the tests of a binary.
    fn names(&self, binary: &str) -> io::Result<Vec<String>> {
        let mut known = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(names) = known.get(binary) {
            return Ok(names.clone());
        }
        let names = names_of(self.binary(binary)?)?;
        known.insert(binary.to_owned(), names.clone());
        Ok(names)
    }

    /// Returns a command that runs the tests of a place with `filter` in their names, and no other.
    fn tests(&self, place: &str, filter: &str) -> io::Result<Command> {
        // A module comes first. The lab has a program `power`, and its unit tests are a binary too.
        let module = format!("{place}::");
        let is_module = self.names(INTEGRATION)?.iter().any(|name| name.starts_with(&module));
        let (binary, prefix) = if is_module { (INTEGRATION, &*module) } else { (place, "") };
        let mut asked = self.names(binary)?;
        asked.retain(|name| name.strip_prefix(prefix).is_some_and(|rest| rest.contains(filter)));
        if asked.is_empty() {
            return Err(io::Error::other(format!("no test {filter} in {place}")));
        }
        let mut command = Command::new(self.binary(binary)?);
        command.args(["--exact", "--test-threads=2"]).args(asked);
        Ok(command)
    }

    fn command(&self, killer: Killer, attempt: usize) -> io::Result<Command> {
        let command = match killer {
            Killer::Test(place, filter, environment) => {
                let mut command = self.tests(place, filter)?;
                command.envs(environment.iter().filter_map(|setting| setting.split_once('=')));
                command
            }
            Killer::Loom(model) => {
                let path = self.binaries.get(LOOM).ok_or_else(|| io::Error::other("no models"))?;
                let mut command = Command::new(path);
                command.arg(model);
                command
            }
            Killer::Lab(words) => {
                let mut command = Command::new(std::env::current_exe()?);
                command.args(words);
                command
            }
            Killer::Schedules(cast) => {
                let path = self.binaries.get(SHUTTLE).ok_or_else(|| io::Error::other("no lab"))?;
                let mut command = Command::new(path);
                // Each attempt uses another seed.
                let seed = (21 + attempt).to_string();
                command.args([crate::schedules::INNER, "--seed", &seed, "--count", SCHEDULES]);
                command.args(["--cast", cast]);
                command
            }
        };
        Ok(command)
    }

    fn run(
        &self,
        killer: Killer,
        mutant: Option<Mutant>,
        attempt: usize,
    ) -> io::Result<(End, Duration)> {
        let mut command = self.command(killer, attempt)?;
        match mutant {
            Some(mutant) => command.env(mutants::VARIABLE, mutant.name()),
            None => command.env_remove(mutants::VARIABLE),
        };
        command.current_dir(&self.folder).env_remove(SOME);
        // All files in memory, except those of tests about the file systems of a disk.
        command.env("ATOMIC_MMAP_TEST_RAM_DIR", self.scratch.path());
        if !matches!(killer, Killer::Test("world", ..)) {
            command.env("ATOMIC_MMAP_TEST_DIR", self.scratch.path());
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A process group of its own, because its children must die with it.
        command.process_group(0);
        let start = Instant::now();
        let normal =
            self.normal.lock().unwrap_or_else(PoisonError::into_inner).get(&killer).copied();
        let limit = match (mutant, normal) {
            (Some(_), Some(normal)) => (normal * PATIENCE).max(AT_LEAST),
            _ => LONGEST,
        };
        let end = match wait(&mut command.spawn()?, limit)? {
            None => End::Hung,
            Some(status) if status.success() => End::Passed,
            Some(_) => End::Failed,
        };
        let took = start.elapsed();
        if mutant.is_none() {
            let mut normal = self.normal.lock().unwrap_or_else(PoisonError::into_inner);
            normal.insert(killer, took);
        }
        Ok((end, took))
    }
}

/// Waits for the child. After the time limit, kills it with its children.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() > limit {
            // SAFETY: no precondition; the group is this child's, which was not waited for yet.
            unsafe { libc::kill(-(child.id() as libc::pid_t), libc::SIGKILL) };
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Does `work` for all of `items`, on all processors.
fn for_all<T: Sync>(items: &[T], work: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    work(item);
                }
            });
        }
    });
}

/// Plants every bug, and prints the list of the killers that noticed them.
pub fn run(settings: &Settings, progress: &Progress) -> Outcome {
    let mut outcome = Outcome::of("mutants");
    let some = std::env::var(SOME).unwrap_or_default();
    let is_chosen = |mutant: &Mutant| {
        mutant.name().contains(&some) && (settings.has_name(mutant.name()) || is_cheap(*mutant))
    };
    let chosen: Vec<Mutant> = mutants::ALL.iter().copied().filter(is_chosen).collect();
    let killers = match Killers::build() {
        Ok(killers) => killers,
        Err(error) => {
            outcome.skipped = Some(error.to_string());
            return outcome;
        }
    };
    let violations = Mutex::new(Vec::new());
    let violation = |text: String| {
        violations.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    };
    // Without a bug, everything passes.
    let mut all: Vec<Killer> = Vec::new();
    for mutant in &chosen {
        if let Fate::KilledBy(by) = fate(*mutant) {
            let new: Vec<Killer> = by.into_iter().filter(|killer| !all.contains(killer)).collect();
            all.extend(new);
        }
    }
    for_all(&all, |killer| {
        progress.tick(format_args!("without a bug: {killer}"));
        match killers.run(*killer, None, 0) {
            Ok((End::Passed, _)) => {}
            Ok((end, _)) => violation(format!("{killer}: {end:?} without a bug")),
            Err(error) => violation(format!("{killer}: {error}")),
        }
    });
    let (done, killed) = (AtomicU64::new(0), AtomicU64::new(0));
    let lines = Mutex::new(Vec::new());
    for_all(&chosen, |mutant| {
        let what = match fate(*mutant) {
            Fate::KilledBy(by) => match noticed_at_last(&killers, *mutant, &by) {
                Ok(Some(what)) => {
                    killed.fetch_add(1, Ordering::Relaxed);
                    what
                }
                Ok(None) => "SURVIVES".into(),
                Err(error) => {
                    violation(format!("{}: {error}", mutant.name()));
                    "not run".into()
                }
            },
            Fate::Equivalent(proof) => format!("equivalent: {proof}"),
        };
        let line = format!("{:32} {:22} {what}", mutant.name(), mutant.file());
        lines.lock().unwrap_or_else(PoisonError::into_inner).push((*mutant as u16, line));
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        progress.tick(format_args!("{done} of {} bugs", chosen.len()));
    });
    let mut lines = lines.into_inner().unwrap_or_else(PoisonError::into_inner);
    lines.sort();
    if let Some(tenth) = settings.tenth {
        println!("tenth {tenth} of the planted bugs (0 to 9, by their names), and all cheap ones:");
    }
    println!("{:32} {:22} noticed by", "planted bug", "in");
    lines.iter().for_each(|(_, line)| println!("{line}"));
    let is_equivalent = |mutant: &&Mutant| matches!(fate(**mutant), Fate::Equivalent(_));
    let equivalent = chosen.iter().filter(is_equivalent).count();
    outcome.planted = (chosen.len() - equivalent) as u64;
    outcome.killed = killed.into_inner();
    outcome.runs = format!(
        "{}{} of {} planted one at a time, {equivalent} of them proven to change nothing; {} killers",
        settings.tenth_in_words(),
        chosen.len(),
        mutants::ALL.len(),
        all.len()
    );
    outcome.violations = violations.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcome
}

/// Calls [`first_to_notice`] several times. A test that holds a window open for other threads sees
/// nothing on a busy machine. And a few random schedules may miss the right one.
fn noticed_at_last(killers: &Killers, mutant: Mutant, by: &[Killer]) -> io::Result<Option<String>> {
    for attempt in 0..ATTEMPTS {
        let noticed = first_to_notice(killers, mutant, by, attempt)?;
        if noticed.is_some() {
            return Ok(noticed);
        }
    }
    Ok(None)
}

fn first_to_notice(
    killers: &Killers,
    mutant: Mutant,
    by: &[Killer],
    attempt: usize,
) -> io::Result<Option<String>> {
    for killer in by {
        let (end, took) = killers.run(*killer, Some(mutant), attempt)?;
        if end != End::Passed {
            let hangs = if end == End::Hung { " (hangs)" } else { "" };
            return Ok(Some(format!("{killer}{hangs}, {:.1} s", took.as_secs_f64())));
        }
    }
    Ok(None)
}
