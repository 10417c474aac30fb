//! The table of killers: for each planted bug, the tests that notice it.
//!
//! Owns: [`Killer`], [`Fate`] and [`fate`]. A bug without any observable effect is no bug: the
//! table has a proof for each of these.

use atomic_mmap::testing::mutants::Mutant;
use std::fmt;

/// A test that notices a bug.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Killer {
    /// Tests with the second text in their names. The first field names their test binary, or their
    /// module of the binary [`INTEGRATION`](super::INTEGRATION). The third field has environment
    /// variables as `NAME=value`, or nothing.
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
pub(super) enum Fate {
    /// Killed by one of these, in this order.
    KilledBy(Vec<Killer>),
    /// Without any observable effect, for this reason.
    Equivalent(&'static str),
}

pub(super) const fn test(place: &'static str, filter: &'static str) -> Killer {
    Killer::Test(place, filter, &[])
}

/// Every image of short sequences, for some seconds.
const EVERY_IMAGE: Killer = Killer::Lab(&["images", "--seconds", "8"]);
/// Every image of short sequences behind a page cache, for some seconds.
const EVERY_IMAGE_ON_DISK: Killer = Killer::Lab(&["disk", "--seconds", "40"]);
/// Files on disks of every block size, with and without space.
const EVERY_BLOCK: Killer = Killer::Lab(&["blocks", "--seconds", "10"]);
/// All cases of changes to the files of a pair.
const EVERY_CASE: Killer = Killer::Lab(&["identity", "--seconds", "20"]);

pub(super) fn fate(mutant: Mutant) -> Fate {
    use Fate::Equivalent;
    use Mutant::*;
    let by = |killer: Killer| Fate::KilledBy(vec![killer]);
    let by_any = |killers: &[Killer]| Fate::KilledBy(killers.to_vec());
    match mutant {
        // ---- structures ---------------------------------------------------------------
        AnyTransactionTaken => by(test("structures", "a_transaction_of_another_file_is_refused")),
        EntrySumNotChecked => by(test("structures", "a_damaged_entry_is_an_error")),
        FileNotGrown => by(test("structures", "a_transaction_makes_the_file_longer")),
        SegmentsNotInUse | HighWaterNotRaised | BlockNamesEarlierRecord => {
            by(test("structures", "records_may_go_over_blocks_and_segments"))
        }
        LongestGapTaken => by(test("structures", "the_shortest_gap_that_fits")),
        ReusedBytesNotZeroed => by(test("structures", "a_new_value_is_zero")),
        AnyTypeTaken => by(test("structures", "another_type_is_an_error")),
        RemovedLogLives | LogNumberReused => {
            by(test("structures", "a_handle_to_a_removed_log_gets_an_error"))
        }
        LimitNotChecked => by(test("structures", "a_limit_is_kept")),
        SegmentsKept => by(test("structures", "truncated_at_the_front_does_not_grow")),
        GenerationKept => by(test("structures", "an_iterator_goes_on_after_a_truncation")),
        RecordSumNotChecked => by(test("structures", "a_damaged_record_is_an_error")),
        // ---- steps of the commit ways -------------------------------------------------
        FlipRecordNotDrained | CoveredWordBeforeDrain | CoveredWordNotStored => {
            by(test("drains", "a_small_write_takes_one_drain"))
        }
        FlipRecordSumOfNothing => by(EVERY_IMAGE),
        CoveredWordsNotFlushed | FlipRecordNotNoted | BatchOnceARing => {
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
        RedoNoDrainAfterClear | RedoNotEnded => by(EVERY_IMAGE),
        RedoNoDrainAfterRecord | RedoNoDrainBeforeEnd => {
            by_any(&[EVERY_IMAGE, test("drains", "a_write_to_a_page_that_a_view_pins")])
        }
        RedoNoDrainAfterEnd | RedoNoDrainAfterCopies => {
            by(test("drains", "a_write_to_a_page_that_a_view_pins"))
        }
        RedoWithoutLength | RedoLengthNotStored | RecoverLengthNotStored | RecoverLengthIgnored => {
            by(test("power", "new_lengths_with_their_bytes"))
        }
        ResizeTakesAnyLength => by(test("lengths", "a_change_of_the_length_commits_only")),
        ShorterIsNoConflict => by(test("atomic_mmap", "a_replacement_that_finds_a_shorter_file")),
        GrowthBeforeValidation => by(test("lengths", "conflicts_of_a_growing_transaction")),
        GrownPagesNotLocked => by(test("atomic_mmap", "a_growth_holds_all_its_pages")),
        RegrownBytesComeBack => by(test("lengths", "a_transaction_sees_the_length")),
        WholeMayBePart => by(test("atomic_mmap", "a_read_of_the_whole_file")),
        LengthPublishedEarly | ResizeLocksNoReads => {
            by(test("windows", "what_a_change_of_the_length_has_read"))
        }
        LengthPublishedAfterLocks => {
            by(test("atomic_mmap", "a_document_is_visible_with_its_length"))
        }
        DeployNoDrainBeforeWords => {
            by_any(&[EVERY_IMAGE, test("drains", "a_deployment_takes_two_drains")])
        }
        DeployNoDrainAfterWords => by(test("drains", "a_deployment_takes_two_drains")),
        SequenceStands
        | FlipRecordOnePlace
        | FlipRecordLaneNotNoted
        | UndoNotWritten
        | UndoNotEnded
        | UndoEndsBeforeWords
        | NoClear
        | FlipNoClear
        | DeployNoClear
        | CloseWritesBackNothing => by(EVERY_IMAGE),
        UndoSpillNotWritten | WordsNotCounted => {
            by(test("drains", "a_transaction_with_more_words"))
        }
        DraftNotValidated => by(test("held", "a_plan_computed_before_the_lock")),
        InvalidatedStaysNoted | CutNoClear => by(test("held", "words_of_pages_that_were_cut_off")),
        NamedPageNotNoted
        | LoggedFlipOverOtherLane
        | RedoNoClear
        | PagesNoClear
        | CopyOverEntries
        | WriteBackNoFlush
        | ClearNotFlushed => by(EVERY_IMAGE),
        RegionForgetsNamed => by(test("drains", "a_write_over_a_region_forgets_no_entry")),
        OneSequenceForBoth => by(test("drains", "undo_entries_take_no_place_of_the_ring")),
        ClearToZero | WriteBackNoDrain => by(EVERY_IMAGE),
        LaneTakenTwice => by(test("atomic_mmap", "more_threads_than_lanes")),
        LoggedFlipInSharedLane => by(test("threads", "no_increment_of_more_threads")),
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
        FlipNotPublished | LoggedFlipNotPublished | SecondPartFromValidSlot => {
            by(test("boundaries", "pieces_of_one_slice"))
        }
        CompletedFromFreeSlot
        | CopyJoinsSuperchunks
        | ReadJoinsChunks
        | LinesToOneSide
        | PiecesReadAtHome
        | RegionBitIgnored
        | WordsNotLoaded => by(test("boundaries", "a_write_over_the_boundary_of_two_superchunks")),
        AwayReadAtHome => by(test("atomic_mmap", "engine::tests::read_page")),
        HomeWordNotValidated | HomeWordGoesBack => {
            by(Killer::Loom("a_stamped_read_sees_one_state"))
        }
        KnownNotValidated => by(Killer::Loom("a_stamped_read_of_several_pages")),
        KnownByTheFirst => by(test("atomic_mmap", "consecutive_pages_are_read_by_their_stamps")),
        HomeNotLeft => by(test("atomic_mmap", "deployment_sets_stamps")),
        KnownAway => by(test("atomic_mmap", "repeated_reads_of_a_deployed_page")),
        HoleKnown => by(test("atomic_mmap", "a_page_in_a_hole_gets_no_stamp")),
        KnownWhileCutting | CutStaysKnown => by(test("atomic_mmap", "truncate_clears_stamps")),
        SeveralReadAtHome => by(test("atomic_mmap", "pages_on_one_side_are_read_in_one_piece")),
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
        PagesNotPublished => by(test("boundaries", "every_awkward_place")),

        // ---- space --------------------------------------------------------------------
        LoggedFlipLaneNotAllocated
        | RegionWordsNotAllocated
        | UndoSpillNotAllocated
        | FlipReflectionNotAllocated
        | FlipHomeNotAllocated
        | DeployHomeNotAllocated
        | PunchedStaysAllocated
        | GrowChunkNotExtended
        | CutStaysAllocated
        | PiecesNotAllocated
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
        JournalLongerBeforeFilled => by(test("durable", "a_journal_that_cannot_grow")),
        JournalNotGrown | JournalGrownPastLimit | JournalBornLong => {
            by(test("durable", "a_journal_doubles"))
        }
        ForeignLinkFollowed => by(test("world", "a_link_of_another_user")),
        JournalHoleCountsAsRoom => by(test("space", "a_hole_in_a_journal_is_no_room")),
        NoSpaceOfAllocationOnly => by(test("space", "want_of_space_is_told_of_every_call")),
        PagesWordGivenBack => by_any(&[
            test("atomic_mmap", "a_writer_without_space_for_an_undo"),
            Killer::Schedules("6"),
        ]),
        DeployWordGivenBack => {
            by_any(&[test("atomic_mmap", "a_region_word_deploys"), Killer::Schedules("6")])
        }
        // ---- durable points -----------------------------------------------------------
        DeployChangedByRegionBit => by(test("atomic_mmap", "a_region_bit_does_not_move")),
        CutGateOpen | DeployDurableSlots => by(Killer::Schedules("11")),
        PointNotLocked => {
            by_any(&[test("atomic_mmap", "a_region_bit_does_not_move"), Killer::Schedules("11")])
        }
        RedoNoRecord => by_any(&[
            EVERY_IMAGE,
            Killer::Schedules("8"),
            test("death", "numbered_events_in_place"),
        ]),
        GrownRestNotFlushed
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
        | RedoFlipsClaimed
        | ChangeNotNoted
        | PageFlipsClaimed
        | PagesFlipClaimed
        | ShrinkNoPoint
        | CloseNoPoint
        | OpeningIsNoPoint
        | DeadSessionNotSynced
        | FoundSessionNotSynced
        | BegunWordsNotSynced
        | NotReplayed
        | WorkingWordsKept
        | RegionWordsKept
        | BackAfterDeath => by(EVERY_IMAGE_ON_DISK),
        ReplayNotSynced => by(test("steps", "what_is_replayed_is_durable")),
        RegionsNotBegun => by(test("durable", "a_long_pair_gets_its_durable_points")),
        PunchDurableSlots => by(test("atomic_mmap", "slots_of_the_durable_point")),
        PastPointKept => by(test("durable", "what_lies_past_the_last_point")),
        LongPointTaken => by(test("durable", "a_point_that_is_too_long")),
        EarlierMarkCounts => by(test("cut_off", "a_closing_mark_of_an_earlier_pair")),
        DiscardedLogApplied => by(test("power", "the_log_of_a_discarded_pair")),
        DamagedWordsNotNoted | TrustedWordsKept => {
            by(test("durable", "durable_words_that_were_damaged"))
        }
        EmptyPointFlushed | CutNotFlushed => by(test("small", "a_shrink_that_is_durable")),
        OverdueForgotten => by(test("unheard", "writes_fail_while_the_points")),
        OverdueForGood => by(test("unheard", "writes_fail_while_the_points")),
        NoThreadNoMatter => by(test("unheard", "opening_fails_if_no_thread")),
        FollowersKeepLanes => {
            by(test("atomic_mmap", "a_thread_that_waits_for_a_point_keeps_no_lane"))
        }
        LaneHandedToNobody => by(test("atomic_mmap", "a_thread_that_waits_for_a_shared_lane")),
        FloorTooEarly | FloorNotDurable | FloorAfterSync | JournalHeaderNotRenewed => {
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
        WaitForgetsFailure => by(test("atomic_mmap", "no_call_that_has_waited_goes_on")),
        CutOffLeadStays => by(test("atomic_mmap", "no_thread_waits_for_a_leader")),
        ReaderWrites => by(test("read_only", "a_reader_changes_nothing")),
        ReaderNotLocked => by(test("read_only", "readers_share_a_file")),
        PrivateChangesMissed => by(test("read_only", "a_reader_goes_back")),
        NumberTooEarly => by(test("atomic_mmap", "the_next_number_is_not_that")),
        FlushResolvedEarly => by(test("atomic_mmap", "a_future_is_resolved_by_a_point")),
        PanicUnheardByWaiters => by(test("atomic_mmap", "a_panic_of_the_worker_is_an_error")),
        FailedTurnCounts => by(test("durable", "a_thread_that_waits_for_a_failed_point")),
        FailedSyncForgotten => by(test("durable", "a_failed_record_poisons")),
        RetryAfterFailedSync => by(test("faults", "failing_syncs_of_both_files")),
        FailedCheckpointForgotten => by(test("faults", "failures_in_the_background")),
        JournalNotSynced => by(test("steps", "the_floor_of_the_journal")),
        JournalFolderNotSynced => by(test("steps", "a_pair_that_gets_a_journal_later")),
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
        RegionNotValidatedAfterPage => {
            by(Killer::Loom("writers_of_a_page_and_of_its_region_exclude_each_other"))
        }
        NoFenceBeforeReadSet => {
            by(Killer::Loom("a_reader_of_a_write_sees_the_transaction_that_came_before_it"))
        }
        NothingLocked | PageHeldTwice => by(test("threads", "money_is_neither_made_nor_lost")),
        PagesNotValidated => by(test("windows", "a_read_over_pages_that_are_written")),
        RegionNotSummed => by(test("windows", "a_read_over_pages_of_a_region")),
        LoggedFlipNotClosed | FlipNotClosed | PagesNotClosed | RedoNotClosed | StoreNotClosed
        | TakenOpen | NoNewVersion | ReadSetNotValidated => {
            by(test("errors", "a_write_by_any_protocol"))
        }
        ReservationNotAdapted => by_any(&[
            test("messages", "a_limit_of_address_space"),
            test("messages", "more_than_a_thousand_files"),
        ]),
        FilterNotExpected | RefusedFenceNotReplaced => {
            by(test("messages", "calls_that_a_filter_refuses"))
        }
        RunFailureIgnored | FailedRunForgotten => {
            by(test("atomic_mmap", "a_failed_call_changes_nothing"))
        }
        LimitFailsRun => by(test("atomic_mmap", "a_limit_of_the_process_does_not_fail")),
        RunByAnyCall => by(test("atomic_mmap", "a_long_run_is_no_call_in_ram")),
        CutPieceForgotten => by(test("atomic_mmap", "a_piece_over_others_cuts")),
        ReadLengthFirst => by(test("atomic_mmap", "a_read_over_regions_beside_a_cut")),
        TrackedLengthFirst => by(test("atomic_mmap", "a_transactions_read_beside_a_cut")),
        InPageLengthFirst => by(test("atomic_mmap", "a_read_of_one_page_beside_a_cut")),
        ToldLengthHolds => by(test("transactions", "a_length_that_was_told")),
        WatchedNotCounted => by(test("transactions", "a_change_of_one_of_many_pages")),
        HeldPageWatched => by(test("atomic_mmap", "a_page_that_a_writer_holds_is_not_watched")),
        ReadsAloneNotChecked => by(test("transactions", "a_transaction_beside_its_own")),
        OwnConflictRepeated | OwnChangesNotNoted => {
            by(test("transactions", "an_update_that_changes_its_own_value"))
        }
        CatchUpNotNoted => by(test("regressions", "a_closure_that_grows_a_full_disk")),
        AnyConflictIsOwn => by(test("transactions", "a_conflict_with_another_thread")),
        EarlierReadsNotValidated => by(test("errors", "a_transaction_that_has_read_what")),
        TrackedNotValidated => by(test("windows", "a_transaction_that_reads_what_is_written")),
        NotClosedBeforeReadSet => by_any(&[
            test("windows", "a_reader_of_a_commit_sees"),
            test("regressions", "a_read_never_sees_a_commit_before"),
            test("regressions", "a_transaction_that_only_reads_never_sees"),
        ]),
        DeployNotClosed => by(test("windows", "a_read_of_a_page_that_comes_home")),
        RegionNotValidated => {
            by(Killer::Loom("a_reader_of_a_page_sees_no_half_of_a_write_to_its_region"))
        }
        PageNotValidated => by(Killer::Loom("a_reader_of_a_page_sees_no_half_of_a_write")),
        WordTakenTwice => by(Killer::Loom("flips_of_one_region_word")),
        TruncatedEntriesHold => by(test("windows", "what_was_read_and_is_cut_off_by_now")),
        LockedEntriesHold => Equivalent(
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
        CopyOverView => by(test("boundaries", "while_a_view_pins_everything")),
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
        CutNoWaitForLoads => by(test("windows", "a_region_that_is_being_touched")),
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
        FastHomeNotSynced
        | FastReflectionNotSynced
        | CloseNotDrained
        | SessionStands
        | CloseNotSettled
        | SettledBeforeSync
        | SuperblockNotDrained => by(test("steps", "a_pair_that_is_closed_fast")),
        ClosedAsSettled | SettledNotCompared | SettledToHome | LastRecordsForgotten => {
            by(test("cut_off", "a_close_with_an_unfinished_sync"))
        }
        SpatialHomeNotSynced
        | SpatialNotEmptied
        | SpatialNotClosing
        | SpatialMarkRemovedFirst
        | SpatialFolderNotSynced
        | EndNotSynced
        | SuperblockOverNewer => by(test("steps", "a_spatial_close_completes")),
        ClosingNotTold => by(test("cut_off", "a_file_needs_no_companion")),
        SpatialLeavesPinned => by(test("regressions", "a_leaked_view")),
        RegionWordsNotVisited | SliceWordsNotVisited => {
            by(test("boundaries", "what_a_session_has_not_touched"))
        }

        // ---- opening ------------------------------------------------------------------
        MadeNotSynced | MadeFolderNotSynced | OpenNotMarked | MadeNotSettled => {
            by(test("steps", "a_pair_is_whole_and_named"))
        }
        DiscardMarkLast | DiscardedNotEmptied | ChangedHomeTaken => {
            by(test("steps", "what_is_discarded"))
        }
        EmptiedNotSynced => by(test("cut_off", "what_was_emptied_is_so_durably")),
        UnsettledMarkTaken | UnsettledNamesTaken => {
            by(test("cut_off", "the_next_opening_makes_durable"))
        }
        MadeAsSettled => by(test("cut_off", "a_new_pair_counts_as_far")),
        HeaderNeverNeeded => by(test("cut_off", "a_journal_of_a_new_pair_that_lost_its_header")),
        ByteMarkNotPut | ByteMarkNotRead | ByteMarkWordMissing | LostByteMarkTaken
        | ByteMarkWithoutPoint | MarkWordOutlivesMark => by(test("lone_copies", "a_")),
        MarkLast | MarkNotSynced => by(test("steps", "a_pair_is_whole_and_named")),
        OpenNotCleanedUp
        | OpenHighWaterFirst
        | OpenZeroesNotDrained
        | OpenHighWaterNotDrained
        | RecoverNotDrained
        | SessionNotSynced => by(test("steps", "opening_cleans_up")),
        RestartNotNoticed => by(test("errors", "a_crash_before_the_machine_was_restarted")),
        CopyNotLocked => by(test("copy", "a_copy_is_one_state")),
        CopyMissesRegions => by(test("atomic_mmap", "a_copy_has_a_region_that_is_loaded")),
        SessionsUsedAgain => by(test("world", "sessions_after_a_restore")),
        CloseNotNoted => by(test("world", "companions_that_were_set_back_by_one")),
        OtherLengthTaken => by(test("world", "restored_beside_leftovers_of_another_length")),
        SumNotCompared => by(test("world", "a_home_file_that_was_copied_at_another")),
        UnmarkedMayHavePair => by(test("world", "a_plain_file_opens_beside")),
        UnmarkedTaken => by(test("world", "a_mark_that_is_gone")),
        RollBackTaken => by(test("world", "a_volume_that_was_set_back")),
        InodeAloneBelieved => by(test("world", "an_inode_number_alone")),
        DiscardedAnyones => by(test("world", "a_volume_that_is_mounted_elsewhere")),
        AnotherFileTaken | HardLinkTaken | OwnerNotCompared | BootIdAloneBelieved => by(EVERY_CASE),
        RemovedByName => by(test("world", "closing_removes_no_file_that_took")),
        LinkFollowed => by(test("world", "a_link_in_the_place_of_a_companion")),
        CompanionNotOwned => by(test("world", "companions_belong_to_the_owner")),
        AccessListNotCopied => by(test("world", "companions_have_the_access_list")),
        UncopiedListForgotten => {
            by(test("world", "companions_are_the_owners_alone_where_the_access_list"))
        }
        DefaultListStays => by(test("world", "a_default_list_of_the_folder")),
        ForeignGroupBitsKept => by(test("world", "a_companion_of_another_group")),
        CompanionsInMemory => by(test("world", "companions_in_memory_of_a_file_on_a_disk")),
        LookNotWaitedFor => by(test("patience", "an_open_waits_for_a_look")),
        MountedAloneTaken => by(test("world", "a_file_that_is_mounted_by_itself")),
        FoundLengthNotSynced => by(test("steps", "a_journal_that_was_found_longer")),
        AnyJournalTaken => by(test("world", "a_journal_of_another_pair_or_time")),
        HeaderNotCopied => by(test("journal", "a_flipped_bit_in_either_header")),
        TurnNotHeeded => by(test("starvation", "a_transaction_ends_beside")),
        LoadConflictNotCounted => by(test("starvation", "a_conflict_that_a_load")),
        BudgetWithoutQueue => by(test("starvation", "a_large_write_gets_its_room")),
        GapKeepsAnothers => by(test("snapshots", "a_transfer_that_is_resumed_with_another")),
        HomeNotTouched => by(test("closing", "a_close_moves_the_time")),
        RefusedNotEmptied => by(test("closing", "a_close_that_may_remove_nothing")),
        DropErrorForgotten => by(test("closing", "the_error_of_a_drop")),
        DeadNeedsJournal => by(test("journal", "after_a_process_crash_no_journal_is_needed")),
        JournalHeaderNotWritten => by(EVERY_IMAGE_ON_DISK),
        ShortReflectionTaken => by(test("errors", "a_reflection_file_that_was_cut_off")),
        ShortHomeTaken => by(test("errors", "a_home_file_that_was_cut_off")),
        NotRecovered
        | RecoverNoFlipRecords
        | RecoverNotVerified
        | RecoverNothingTakenBack
        | RecoverTakesBackAll
        | RecoverRegionIgnored
        | RecoverNewerFirst => by(EVERY_IMAGE),
        RecoverVerifiesAll => by_any(&[test("power", "small_writes_survive"), EVERY_IMAGE]),
        RightWordNotStored => by(EVERY_IMAGE),
        RecoverNotSynced => Equivalent(
            "Opening syncs the reflection file before it writes the superblock of the new session, and \
             until that one is durable recovery can be repeated: no flip record is invalidated before the \
             words are durable.",
        ),
        RecoverRedoNotFlipped | RecoverRedoNotStored => by(EVERY_IMAGE),
        RecoverInvalidatedIgnored | RecoverInvalidatesLane | RecoverLeavesOutLast => {
            by(test("atomic_mmap", "every_combination_of_entries"))
        }
        RecoverRedoFirst => Equivalent(
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
        InvalidatedIsTorn => by(test("atomic_mmap", "a_void_entry_still_says")),
        HeaderWithoutSession => by(test("atomic_mmap", "the_header_of_another_session")),
        FlipRecordSumNotChecked => by(test("atomic_mmap", "flip_record::tests::every_flipped_bit")),
        UndoSumNotChecked => by(test("atomic_mmap", "every_flipped_bit_of_an_undo_entry")),
        SpillSumNotChecked => by(test("atomic_mmap", "undo_entries_come_back")),
        SuperblockSumNotChecked => by(test("atomic_mmap", "superblock::tests::every_flipped_bit")),
        OlderSuperblockCounts => by(test("atomic_mmap", "the_newer_whole_copy_counts")),
        // The bugs in space, in page sums, in stages and in snapshots.
        other => by(super::space::killer(other)
            .or_else(|| super::sums::killer(other))
            .or_else(|| super::stages::killer(other))
            .unwrap_or_else(|| super::snapshots::killer(other))),
    }
}

/// Places of tests that notice a bug within about a second.
const CHEAP: [&str; 6] = ["atomic_mmap", "boundaries", "drains", "errors", "steps", "transactions"];

/// Returns `true` if the killers of the bug cost so little that each run plants it, in any tenth.
pub(super) fn is_cheap(mutant: Mutant) -> bool {
    let is_cheap = |killer: &Killer| match killer {
        Killer::Test(place, _, environment) => CHEAP.contains(place) && environment.is_empty(),
        Killer::Loom(_) | Killer::Lab(_) | Killer::Schedules(_) => false,
    };
    match fate(mutant) {
        Fate::KilledBy(by) => by.iter().all(is_cheap),
        Fate::Equivalent(_) => false,
    }
}
