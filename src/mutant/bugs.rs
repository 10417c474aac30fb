//! The list of deliberate bugs: the file of each, its name, and what it breaks.
//!
//! A line adds a bug to [`Mutant`]. May import nothing from the crate.

use super::list::mutants;
use super::snapshot_bugs::with_those_of_snapshots;

with_those_of_snapshots! { mutants;
    "engine/write/page.rs" {
        PageFlipsClaimed "page-flips-claimed": "a write in one page flips into claimed slots",
        DraftNotValidated "draft-not-validated": "a plan computed without the lock is used under the lock without a check",
        LoggedFlipLaneNotAllocated "logged-flip-lane-not-allocated": "the lane of a flip record is not allocated",
        FlipNoClear "flip-no-clear": "a flip in one page does not invalidate the flip records over its slots",
        FlipWordBeforeData "flip-word-before-data": "a flip stores its word before its data",
        FlipNotClosed "flip-not-closed": "a flip is published without a new version",
        FlipNotPublished "flip-not-published": "a flip is not published in DRAM",
        StoreNotClosed "store-not-closed": "a direct store gives its page no new version",
    }
    "engine/write/length.rs" {
        CatchUpNotNoted "catch-up-not-noted": "a growth without space that first undoes an earlier one is no change of its closure's own",
        ResizingNotLocked "resizing-not-locked": "the length changes while views are pinned, and in two threads at a time",
        ShrinkBoundaryNotLocked "shrink-boundary-not-locked": "a shrink does not lock the region of the new end",
        ResizeTakesAnyLength "resize-takes-any-length": "a transaction that changes the length does not check the length that it was told",
        ShorterIsNoConflict "shorter-is-no-conflict": "a replacement fails if another thread has made the file shorter since it looked",
        GrowthBeforeValidation "growth-before-validation": "a growth is prepared before the transaction's reads are validated",
        GrownPagesNotLocked "grown-pages-not-locked": "an operation that grows the file does not lock what it writes past the old end",
        ResizeLocksNoReads "resize-locks-no-reads": "a transaction that changes the length does not lock what it has read",
    }
    "engine/write/range.rs" {
        PagesFlipClaimed "pages-flip-claimed": "a write over several pages flips into claimed slots",
        LengthNotCheckedAgain "length-not-checked-again": "a write does not check the length again under its locks",
        CopyToHoles "copy-to-holes": "a write that copies without preparation does not check that its slots are allocated",
        CopyNotNoted "copy-not-noted": "a write that copies without preparation notes no change for the next durable point",
        WordsNotCounted "words-not-counted": "a write that copies without preparation does not check that its words fit the undo record",
        FailedCopyNotDrained "failed-copy-not-drained": "after a failed copy, a write releases its locks without a drain",
        RegionWordsNotAllocated "region-words-not-allocated": "region words are not allocated",
        UndoSpillNotAllocated "undo-spill-not-allocated": "the log area of a spilled undo record is not allocated",
        PagesNoClear "pages-no-clear": "a write over several pages does not invalidate the flip records over its slots",
        RegionForgetsNamed "region-forgets-named": "a region forgets pages that still have active flip records",
        PagesWordGivenBack "pages-word-given-back": "a writer of several pages releases the region word before it has stored to it",
        PagesNotClosed "pages-not-closed": "a write over several pages is published without a new version",
        PagesNotPublished "pages-not-published": "a write over several pages is not published in DRAM",
    }
    "engine/write/general.rs" {
        PartsWhileResizing "parts-while-resizing": "a writer of several segments does not enter the gate that a shrink closes",
        OwnChangesNotNoted "own-changes-not-noted": "a thread does not note the changes that it makes inside its own closure",
    }
    "engine/commit/redo.rs" {
        LogNotMeasured "log-not-measured": "an operation that is too long for any log is not refused",
        RedoFlipsClaimed "redo-flips-claimed": "slices with a claimed other slot flip by a redo record",
        RedoNoClear "redo-no-clear": "redo data is stored over slots that active flip records name",
        RedoNoDrainAfterClear "redo-no-drain-after-clear": "no drain between the invalidation of flip records and the redo record",
        RedoNoDrainAfterCopies "redo-no-drain-after-copies": "no drain between the copies of slices that flip and the redo record",
        RedoNoRecord "redo-no-record": "redo data is stored without a log record",
        RedoNoDrainAfterRecord "redo-no-drain-after-record": "no drain at the commit point of redo data",
        RedoNotClosed "redo-not-closed": "readers do not wait while redo data is stored",
        RedoNoDrainBeforeEnd "redo-no-drain-before-end": "no drain between redo data and the end of its log record",
        RedoNotEnded "redo-not-ended": "the log record of redo data is not retired",
        RedoWithoutLength "redo-without-length": "the redo record of an operation that changes the length does not hold it",
        RedoLengthNotStored "redo-length-not-stored": "a redo record with a new length ends, and the length word was not stored",
        LengthPublishedEarly "length-published-early": "a new length is published before the record that commits it",
        LengthPublishedAfterLocks "length-published-after-locks": "a new length is published after the locks of the bytes that belong to it have opened",
        RedoNoDrainAfterEnd "redo-no-drain-after-end": "no drain after the end of a redo record",
    }
    "engine/write/checks.rs" {
        ReadSetNotValidated "read-set-not-validated": "a commit does not validate its read set",
        NotClosedBeforeReadSet "not-closed-before-read-set": "a commit validates its read set before its locks are exclusive",
        ReadsAloneNotChecked "reads-alone-not-checked": "a read-only transaction is not validated when it commits",
        LockedEntriesHold "locked-entries-hold": "a page that another writer holds passes validation",
    }
    "engine/write/direct.rs" {
        StoreOverView "store-over-view": "a direct store goes to a page that a view pins",
        StoreToFreeSlot "store-to-free-slot": "a direct store goes to the free slot",
        StoreToHole "store-to-hole": "a direct store goes to a possible hole",
    }
    "engine/durable/checkpoint.rs" {
        RetryAfterFailedSync "retry-after-failed-sync": "a failed sync is retried, and counts if the retry succeeds",
        FailedCheckpointForgotten "failed-checkpoint-forgotten": "a failed checkpoint does not poison the handle",
        FloorNotRaised "floor-not-raised": "a checkpoint does not raise the floor of the journal",
        FloorAfterSync "floor-after-sync": "a checkpoint raises the floor after its syncs",
        CheckpointNotSynced "checkpoint-not-synced": "a checkpoint syncs nothing",
        FlushHomeNotSynced "flush-home-not-synced": "the home file is not synced for a base or checkpoint",
        FlushReflectionNotSynced "flush-reflection-not-synced": "the reflection file is not synced for a base or checkpoint",
    }
    "engine/durable/point.rs" {
        CutGateOpen "cut-gate-open": "a cut is taken while operations are in progress",
        PointNotLocked "point-not-locked": "the pages of a durable point are not locked",
        EmptyPointFlushed "empty-point-flushed": "a durable point with nothing to record writes a record",
        FloorTooEarly "floor-too-early": "the floor of the journal is raised before its first record is durable",
        FirstFloorMissing "first-floor-missing": "no floor follows the first record of a session",
        WordsBeforeRecord "words-before-record": "durable words are stored before their record is durable",
        FailedSyncForgotten "failed-sync-forgotten": "a failed sync does not poison the handle",
        RecordOfOldLength "record-of-old-length": "a record has the length of the previous durable point",
        FlushNotBase "flush-not-base": "a record after a flush of both files is not marked as a base",
        DurableWordNotStored "durable-word-not-stored": "durable words are not stored",
    }
    "engine/durable/mod.rs" {
        CutNotFlushed "cut-not-flushed": "the first growth after a shrink goes to the journal and not to the files",
        GrownRestNotFlushed "grown-rest-not-flushed": "the first growth over a truncated page goes to the journal and not to the files",
        OpenedRestKnown "opened-rest-known": "the bytes past the end of an opened file count as zero on disk",
        OverdueForGood "overdue-for-good": "writes fail for good after one durable point at an interval has failed",
    }
    "engine/durable/floor.rs" {
        FloorNotDurable "floor-not-durable": "the first floor of a session is not made durable",
        FloorInOnePlace "floor-in-one-place": "a floor overwrites the previous floor",
    }
    "engine/durable/group.rs" {
        CutOffLeadStays "cut-off-lead-stays": "a thread that panics while it makes a durable point stays the leader for ever",
        FollowersKeepLanes "followers-keep-lanes": "a thread that waits for another thread's durable point keeps its lane",
        FailedTurnCounts "failed-turn-counts": "a failed durable point counts as made for the threads that waited for it",
        NumberTooEarly "number-too-early": "the number to wait for is that of a durable point that is already being made",
    }
    "engine/durable/flush.rs" {
        FlushResolvedEarly "flush-resolved-early": "a future of flush_async is resolved before its durable point is made",
        PanicUnheardByWaiters "panic-unheard-by-waiters": "a panic of the worker thread leaves futures waiting for ever",
    }
    "recovery/read_only.rs" {
        ReaderNotLocked "reader-not-locked": "a reader takes no lock against writers",
        PrivateChangesMissed "private-changes-missed": "a reader takes holes of a file for holes of what recovery has made of it",
    }
    "engine/read/all.rs" {
        CopyNotLocked "copy-not-locked": "writers are not locked out while a consistent copy is made",
        CopyMissesRegions "copy-misses-regions": "a copy lacks a concurrent write to a region that was not loaded before",
    }
    "engine/durable/sync.rs" {
        OverdueForgotten "overdue-forgotten": "a failed durable point at an interval that does not poison is not reported",
    }
    "engine/durable/journal.rs" {
        FoundLengthNotSynced "found-length-not-synced": "the first record of a session does not wait for the length of a journal that had grown",
        JournalHeaderNotRenewed "journal-header-not-renewed": "the records that an older superblock needs are overwritten under the old journal header",
        RecordNotDurable "record-not-durable": "a record is written without a barrier",
        RecordOverNewest "record-over-newest": "a record overwrites the previous record",
        JournalLongerBeforeAllocated "journal-longer-before-allocated": "a journal that cannot grow keeps its new length, with a hole",
        JournalLongerBeforeFilled "journal-longer-before-filled": "a growing journal counts as longer before its zeroes are durable",
        JournalNotGrown "journal-not-grown": "a journal that is full is not made longer",
        JournalGrownPastLimit "journal-grown-past-limit": "a journal grows by use past the length that the caller chose",
        NewestForgotten "newest-forgotten": "after a checkpoint the newest record's space counts as free",
    }
    "pair/mod.rs" {
        ReaderWrites "reader-writes": "a handle that was opened for reading alone takes writes",
        ChangeNotNoted "change-not-noted": "a page that changes is not noted for the next durable point",
        WaitForgetsFailure "wait-forgets-failure": "an operation that has waited for a gate or a lock goes on in a poisoned handle",
        RunFailureIgnored "run-failure-ignored": "an operation commits although the call for a long run has failed",
        FailedRunForgotten "failed-run-forgotten": "a handle goes on after the call for a long run has failed",
        LimitFailsRun "limit-fails-run": "a limit of the process on the length of files fails a long run",
    }
    "engine/plan.rs" {
        NothingLocked "nothing-locked": "a write over several pages takes no locks",
        PartTakenForWhole "part-taken-for-whole": "a page that a write covers in part counts as covered whole",
        SecondPartNotMoved "second-part-not-moved": "the second segment in a page is not made valid",
    }
    "engine/commit/logged_flip.rs" {
        LoggedFlipInSharedLane "logged-flip-in-shared-lane": "a shared lane carries flip records",
        FlipRecordOnePlace "flip-record-one-place": "all flip records of a ring go to one place",
        CoveredWordsNotFlushed "covered-words-not-flushed": "the words that a ring of flip records covers are not flushed",
        CoveredWordBeforeDrain "covered-word-before-drain": "a logged flip stores its word before the drain of its record",
        FlipRecordSumOfNothing "flip-record-sum-of-nothing": "a flip record of long data lacks the data's checksum",
        FlipRecordNotDrained "flip-record-not-drained": "no drain at the commit point of a logged flip",
        FlipRecordNotNoted "flip-record-not-noted": "DRAM does not note the slices that a flip record names",
        FlipRecordLaneNotNoted "flip-record-lane-not-noted": "a page does not note the lanes with flip records over it",
        LoggedFlipNotClosed "logged-flip-not-closed": "a logged flip is published without a new version",
        CoveredWordNotStored "covered-word-not-stored": "a logged flip does not store its word",
        LoggedFlipNotPublished "logged-flip-not-published": "a logged flip is not published in DRAM",
    }
    "engine/commit/flip.rs" {
        FlipNoDrainBeforeWord "flip-no-drain-before-word": "no drain between a flip's data and its word",
        FlipNoDrainAfterWord "flip-no-drain-after-word": "no drain after a flip's word",
    }
    "engine/commit/undo.rs" {
        UndoSpillNotWritten "undo-spill-not-written": "the words of a spilled undo record are not written",
        UndoNotWritten "undo-not-written": "an undo record is not written",
        UndoNoDrainBeforeWords "undo-no-drain-before-words": "no drain between an undo record and the words",
        UndoEndsBeforeWords "undo-ends-before-words": "an undo record ends before its words are stored",
        UndoNoDrainBeforeEnd "undo-no-drain-before-end": "no drain between the words and the end of an undo record",
        UndoNotEnded "undo-not-ended": "an undo record is not retired",
        UndoNoDrainAfterEnd "undo-no-drain-after-end": "no drain after the end of an undo record",
    }
    "pair/log/records.rs" {
        LoggedFlipOverOtherLane "logged-flip-over-other-lane": "a flip record covers slices that another lane's flip record names",
        WriteBackNoDrain "write-back-no-drain": "no drain between the write-back of words and the invalidation of their flip records",
        NoClear "no-clear": "active flip records are not invalidated",
        WriteBackNoFlush "write-back-no-flush": "a write-back flushes no words",
        ClearToZero "clear-to-zero": "an invalidated flip record does not keep its number and page",
        FlushWordsUnpinned "flush-words-unpinned": "a write-back of words that flip records cover opens no read section in its lane",
    }
    "error/constructors.rs" {
        NoSpaceOfAllocationOnly "no-space-of-allocation-only": "a full disk is reported for allocations only, not for names, attributes and lengths",
    }
    "mmap/mod.rs" {
        BytesAllocated "bytes-allocated": "only the bytes of a range are allocated, and not all blocks of their pages",
        ClearFlushedIfDone "clear-flushed-if-done": "the line of a flip record that another thread has replaced is not flushed",
        ClearNotFlushed "clear-not-flushed": "the header of an invalidated flip record is not flushed",
    }
    "pair/log/lane.rs" {
        SequenceStands "sequence-stands": "all records of a lane have the same number",
        OneSequenceForBoth "one-sequence-for-both": "undo records are numbered together with the flip records of the ring",
        InvalidatedStaysNoted "invalidated-stays-noted": "DRAM still names an invalidated flip record",
        LaneHandedToNobody "lane-handed-to-nobody": "a thread that releases a shared lane wakes no waiting thread",
    }
    "pair/log/lanes.rs" {
        LaneNotDrainedAtEnd "lane-not-drained-at-end": "a thread ends without draining its lane",
        NoWaitForPinned "no-wait-for-pinned": "a shrink does not wait for read sections",
        LaneTakenTwice "lane-taken-twice": "a lane that another thread has is given to a second thread",
    }
    "engine/mod.rs" {
        NoThreadNoMatter "no-thread-no-matter": "opening succeeds although the thread for durable points at an interval cannot start",
    }
    "pair/load.rs" {
        WordsNotLoaded "words-not-loaded": "the words of a region are not read when it is loaded",
        RegionWordsNotVisited "region-words-not-visited": "deployment does not visit all region words",
        SliceWordsNotVisited "slice-words-not-visited": "deployment does not visit all slice words",
    }
    "engine/read/mod.rs" {
        ReadUnpinned "read-unpinned": "a read opens no read section",
        WholeMayBePart "whole-may-be-part": "a read of the whole file returns a part of it",
        PagesNotValidated "pages-not-validated": "a read over pages does not validate the pages' versions after its copy",
        RegionNotSummed "region-not-summed": "a read over pages does not validate the regions' versions",
        ReadLengthFirst "read-length-first": "a read checks the length before the versions and not after them",
    }
    "engine/read/read_set.rs" {
        EarlierReadsNotValidated "earlier-reads-not-validated": "a transaction's read does not validate its earlier read set",
        TrackedNotValidated "tracked-not-validated": "a transaction's read does not validate the versions after its copy",
        TrackedLengthFirst "tracked-length-first": "a transaction's read checks the length before the versions and not after them",
        ToldLengthHolds "told-length-holds": "a transaction that has read the length continues after the length has changed",
        HeldPageWatched "held-page-watched": "a transaction counts a page as watched although a writer holds it",
    }
    "pair/read_set.rs" {
        TruncatedEntriesHold "truncated-entries-hold": "a page in a read set still passes validation after it was truncated",
        WatchedNotCounted "watched-not-counted": "a writer does not count its change of a page that transactions watch",
    }
    "api/transaction.rs" {
        OwnConflictRepeated "own-conflict-repeated": "a closure that changes its own transaction's read set is run again",
        RegrownBytesComeBack "regrown-bytes-come-back": "a transaction that shrinks and grows the file shows the bytes between",
        AnyConflictIsOwn "any-conflict-is-own": "a closure's conflict with another thread counts as a conflict with itself",
    }
    "engine/read/page.rs" {
        AwayReadAtHome "away-read-at-home": "a read within a page copies undeployed slices from the home file",
        InPageLengthFirst "in-page-length-first": "a read within a page checks the length before the versions",
        HoleReadAtOnce "hole-read-at-once": "a read within a page loads from a possible hole",
    }
    "pair/stamps.rs" {
        HomeWordNotValidated "home-word-not-validated": "a stamped read of one page does not check the stamp after its copy",
        KnownNotValidated "known-not-validated": "a stamped read of several pages does not check the stamps after its copy",
        KnownByTheFirst "known-by-the-first": "a stamped read of several pages checks only the first page's stamp",
        HomeWordGoesBack "home-word-goes-back": "a stamp decreases when it is cleared",
        KnownAway "known-away": "an undeployed page gets a stamp",
        HoleKnown "hole-known": "a page that may be a hole gets a stamp",
        KnownWhileCutting "known-while-cutting": "a page gets a stamp while it is being truncated",
        HomeNotLeft "home-not-left": "a writer does not clear the stamps of its pages",
    }
    "engine/io/scatter.rs" {
        LinesToOneSide "lines-to-one-side": "slices of both sides are all copied to the home file",
        SecondPartFromValidSlot "second-part-from-valid-slot": "a segment that shares a slice with the previous segment drops that segment's bytes",
        CompletedFromFreeSlot "completed-from-free-slot": "a partly written slice is completed from the free slot",
        CopyJoinsSuperchunks "copy-joins-superchunks": "a copy runs over the end of a superchunk",
    }
    "engine/io/gather.rs" {
        ReadJoinsChunks "read-joins-chunks": "a read runs over the end of a chunk",
        SeveralReadAtHome "several-read-at-home": "a read of several pages copies undeployed pages from the home file",
        PiecesReadAtHome "pieces-read-at-home": "a read of a mixed page copies all slices from the home file",
    }
    "engine/deploy/region.rs" {
        DeployChangedByRegionBit "deploy-changed-by-region-bit": "a page with slices that stay undeployed is deployed by its region bit",
        DeployDurableSlots "deploy-durable-slots": "deployment copies over durable slots",
        DeployOverView "deploy-over-view": "deployment copies over a view's bytes",
        DeployHomeNotAllocated "deploy-home-not-allocated": "deployment copies to home slots that are not allocated",
        DeployNoClear "deploy-no-clear": "deployment does not invalidate the flip records over its slots",
        DeployNoDrainBeforeWords "deploy-no-drain-before-words": "no drain between deployed slots and the words",
        DeployNoDrainAfterWords "deploy-no-drain-after-words": "no drain after the words of a deployment",
        DeployWordGivenBack "deploy-word-given-back": "deployment releases the region word before it has stored to it",
        DeployNotClosed "deploy-not-closed": "a deployment is published without a new version",
    }
    "engine/deploy/punch.rs" {
        PunchDurableSlots "punch-durable-slots": "the storage of durable slots is punched",
        PunchValidSlots "punch-valid-slots": "a chunk with valid slots is punched",
        PunchNoWait "punch-no-wait": "a punch does not wait for readers",
    }
    "engine/deploy/pin.rs" {
        PinWhileResizing "pin-while-resizing": "a view is pinned while the length changes",
        PinAway "pin-away": "a view pins undeployed slots",
        PinNotCounted "pin-not-counted": "a view's pin is not counted",
        PinNotGivenBack "pin-not-given-back": "a view's pin is not released",
    }
    "engine/resize/mod.rs" {
        GrowthReservesLater "growth-reserves-later": "a growth extends the file before it has allocated the rest of the old last page",
        ShrinkNoPoint "shrink-no-point": "a shrink truncates bytes of the last durable point",
        NoCatchingUp "no-catching-up": "a failed clean-up of a truncation is not completed by the next resize or close",
        GrowHighWaterNotRaised "grow-high-water-not-raised": "growing does not raise the high-water mark",
        GrowHighWaterNotDrained "grow-high-water-not-drained": "no drain between the high-water mark and the files' lengths",
        GrowLengthBeforeFiles "grow-length-before-files": "the length word is stored before the files' lengths are set",
        GrowChunkNotExtended "grow-chunk-not-extended": "the chunk of the old end is not allocated up to the new end",
        GrowFilesNotSynced "grow-files-not-synced": "the files' lengths are not synced before the length word",
        GrowLengthNotDrained "grow-length-not-drained": "no drain after the length word of a growth",
        CuttingNotSaid "cutting-not-said": "a shrink does not announce itself to views that pin without a lock",
        CutStaysKnown "cut-stays-known": "truncated pages keep their stamps",
        ShrinkUnderView "shrink-under-view": "a shrink truncates a view's bytes",
        LengthGateOpen "length-gate-open": "a shrink does not wait for writes of several segments",
        ShrinkBoundaryNotClosed "shrink-boundary-not-closed": "a shrink gives the region of the new end no new version",
        ShrinkLengthNotDrained "shrink-length-not-drained": "no drain after the length word of a shrink",
        CutNoWaitForLoads "cut-no-wait-for-loads": "a shrink does not wait for threads that have read the old length",
        CutNotLocked "cut-not-locked": "truncated regions are not locked",
        CutNoClear "cut-no-clear": "flip records over truncated pages are not invalidated",
        CutNoDrainAfterClear "cut-no-drain-after-clear": "no drain between the invalidation of flip records and the zeroing of their slots",
        CutRegionMirrorStays "cut-region-mirror-stays": "the DRAM mirror of a truncated region word is kept",
        CutSliceMirrorsStay "cut-slice-mirrors-stay": "the DRAM mirrors of truncated slice words are kept",
        CutNoWaitForReaders "cut-no-wait-for-readers": "a shrink does not wait for readers of truncated pages",
        CutHighWaterFirst "cut-high-water-first": "the high-water mark is lowered before the clean-up",
        CutZeroesNotDrained "cut-zeroes-not-drained": "no drain between the zeroes and the high-water mark",
        CutStaysAllocated "cut-stays-allocated": "truncated chunks count as allocated",
        CutFilesNotSynced "cut-files-not-synced": "the files' lengths are not synced before the high-water mark",
        CutHighWaterNotDrained "cut-high-water-not-drained": "no drain after the high-water mark is lowered",
    }
    "engine/resize/truncate.rs" {
        HomeNotCut "home-not-cut": "the home file is not truncated",
        RestOfPageNotZeroed "rest-of-page-not-zeroed": "the rest of the last page's reflection slots is not zeroed",
        SliceWordsNotZeroed "slice-words-not-zeroed": "slice words past the end are not zeroed",
        RegionWordNotCut "region-word-not-cut": "the bits past the end in the last region word are not zeroed",
        RegionWordsNotZeroed "region-words-not-zeroed": "region words past the end are not zeroed",
    }
    "pair/readiness.rs" {
        CopyOverView "copy-over-view": "a write does not check for views before it copies",
        CopyOverEntries "copy-over-entries": "a write does not check for active flip records before it copies",
    }
    "pair/allocated.rs" {
        PunchedStaysAllocated "punched-stays-allocated": "a punched chunk counts as allocated",
    }
    "pair/space.rs" {
        FlipHomeNotAllocated "flip-home-not-allocated": "a flip's home slots are not allocated",
        FlipReflectionNotAllocated "flip-reflection-not-allocated": "reflection slots are not allocated",
        PiecesBesideHoles "pieces-beside-holes": "large folios of the page cache beside a new allocation are not dropped",
        ChunkForEachTouch "chunk-for-each-touch": "on page cache, a whole chunk is allocated for each page written",
        GrowthFromNextPage "growth-from-next-page": "a growth does not allocate the rest of the old last page",
        PiecesNotAllocated "pieces-not-allocated": "nothing is allocated if no whole chunk is free",
        SliceWordsNotAllocated "slice-words-not-allocated": "slice words are not allocated",
        HolesLoaded "holes-loaded": "holes of the home file are loaded through the mapping",
        HolesUpToOldLength "holes-up-to-old-length": "only holes below the logical length are found",
    }
    "engine/close.rs" {
        CloseNotNoted "close-not-noted": "a mark with session numbers still fits the previous session after its own session is closed",
        DamagedWordsNotNoted "damaged-words-not-noted": "a spatial close trusts damaged durable words of a closed pair",
        DropMakesPoint "drop-makes-point": "dropping a handle makes an incomplete save durable",
        CloseNoPoint "close-no-point": "a close begins without a durable point",
        CloseWritesBackNothing "close-writes-back-nothing": "a close does not write back the words that flip records cover",
        CloseNotDrained "close-not-drained": "a close does not drain before the session ends",
        SpatialHomeNotSynced "spatial-home-not-synced": "the home file is not synced before a companion is removed",
        SpatialNotEmptied "spatial-not-emptied": "a spatial close of a file without a mark does not record that the pair is emptied",
        SpatialMarkRemovedFirst "spatial-mark-removed-first": "the mark is removed before the companions",
        SpatialNotClosing "spatial-not-closing": "the mark does not say that the companions are about to go",
        ClosedAsSettled "closed-as-settled": "the superblock of a fast close claims what its own sync makes durable",
        SettledBeforeSync "settled-before-sync": "a fast close counts as settled before its sync",
        CloseNotSettled "close-not-settled": "a fast close never counts as settled, and needs its journal for good",
        SpatialFolderNotSynced "spatial-folder-not-synced": "the folder is not synced after the reflection file was removed",
        FastHomeNotSynced "fast-home-not-synced": "a fast close does not sync the home file",
        FastReflectionNotSynced "fast-reflection-not-synced": "a fast close does not sync the reflection file before it counts as closed",
        EndNotSynced "end-not-synced": "the last superblock of a session is not synced",
        SpatialLeavesPinned "spatial-leaves-pinned": "a spatial close leaves pages that a leaked view pins",
    }
    "engine/superblock.rs" {
        SuperblockNotDrained "superblock-not-drained": "a superblock that is written through the mapping is not drained",
        RemovedByName "removed-by-name": "a file is removed by name although another file has that name by now",
        SuperblockOverNewer "superblock-over-newer": "a superblock overwrites the newer copy",
    }
    "pair/claims.rs" {
        FlipOverView "flip-over-view": "a flip copies over a view's bytes",
    }
    "pair/region.rs" {
        WordTakenTwice "word-taken-twice": "two threads hold a region word at the same time",
        NamedPageNotNoted "named-page-not-noted": "a region does not note its pages with active flip records",
        RegionBitIgnored "region-bit-ignored": "the valid slot does not depend on the region bit",
        PinNotSeen "pin-not-seen": "a direct store does not check for pins",
        KnownNotSeen "known-not-seen": "a direct store does not check for stamped pages",
        PinHeldPage "pin-held-page": "a view pins, without a lock, a page that a writer holds",
    }
    "lock/acquire.rs" {
        TakenOpen "taken-open": "the page lock for a direct store is not exclusive",
        RegionNotValidatedAfterPage "region-not-validated-after-page": "a thread that locks a page does not check the region's lock again",
        PagesKeptWhileWaiting "pages-kept-while-waiting": "a thread that waits for a region lock keeps its page locks",
        PagesNotAwaited "pages-not-awaited": "a thread that locks a region does not wait for the pages' lock holders",
        PageHeldTwice "page-held-twice": "a thread takes a page lock that another thread holds",
    }
    "lock/fences.rs" {
        NoFenceBeforeReadSet "no-fence-before-read-set": "no fence between making the locks exclusive and validating the read set",
    }
    "lock/word.rs" {
        ClosedIsOpen "closed-is-open": "readers begin while a word is locked exclusively",
        ClosedIsStill "closed-is-still": "readers pass validation while a word is locked exclusively",
        RegionNotValidated "region-not-validated": "a read of a page does not validate the region's version",
        PageNotValidated "page-not-validated": "a read of a page does not validate the page's version",
        NoNewVersion "no-new-version": "an exclusive lock is released with the old version",
    }
    "pair/unfinished.rs" {
        CutOffPointGoesOn "cut-off-point-goes-on": "the handle stays usable after a panic in the middle of an operation",
    }
    "platform/os/at.rs" {
        ForeignLinkFollowed "foreign-link-followed": "another user's link in a folder of all users is followed",
    }
    "recovery/journal.rs" {
        UnsettledMarkTaken "unsettled-mark-taken": "a mark that an opening has left without a sync counts as durable",
        AnyJournalTaken "any-journal-taken": "a journal of another pair or of another time is accepted and written to",
        HeaderNeverNeeded "header-never-needed": "a journal of the first session needs no header even after a point",
        LastRecordsForgotten "last-records-forgotten": "the next journal header does not cover the records of a close that was not settled",
        FloorNotChecked "floor-not-checked": "a journal that was copied earlier in the session is accepted",
        HeaderNotMadeDurable "header-not-made-durable": "the journal header that opening finds is not made durable before the other copy is overwritten",
        JournalHeaderNotWritten "journal-header-not-written": "a journal's header does not name its pair",
        JournalNotSynced "journal-not-synced": "a new journal is not synced before a superblock refers to it",
        JournalHoleCountsAsRoom "journal-hole-counts-as-room": "holes within a journal's length count as allocated space",
        JournalBornLong "journal-born-long": "a new journal has its full length",
        JournalFolderNotSynced "journal-folder-not-synced": "the name of a new journal is not synced",
        OpeningIsNoPoint "opening-is-no-point": "opening after a process crash makes no durable point of the recovered state",
        DeadSessionNotSynced "dead-session-not-synced": "the session of a crashed process is closed before its data is durable",
    }
    "recovery/replay_journal.rs" {
        NewestNotMadeDurable "newest-not-made-durable": "a record that opening finds after a process crash is not made durable before it is replayed",
        FoundSessionNotSynced "found-session-not-synced": "a superblock is written while the other copy is in the page cache only",
        BegunWordsNotSynced "begun-words-not-synced": "a session begins before its durable words are durable",
        NotReplayed "not-replayed": "records are not replayed",
        ReplayNotSynced "replay-not-synced": "the journal is emptied before the replayed data is durable",
        WorkingWordsKept "working-words-kept": "working words are trusted after a restart",
        RegionWordsKept "region-words-kept": "region words are trusted after a restart",
        RegionsNotBegun "regions-not-begun": "only pages with slice words get durable words",
        PastPointKept "past-point-kept": "bytes past the length are kept when a file goes back to a durable point",
    }
    "api/close.rs" {
        EarlierCloseNoPoint "earlier-close-no-point": "closing one of several handles makes no durable point, and a later drop takes its save back",
    }
    "recovery/context.rs" {
        LookNotWaitedFor "look-not-waited-for": "an opening is refused beside a look at the file",
        RecoverLengthIgnored "recover-length-ignored": "recovery goes by the length word while a redo record holds another length",
        RunByAnyCall "run-by-any-call": "calls write long runs where they may bypass the mapped cache",
        MountedAloneTaken "mounted-alone-taken": "a file that is itself a mount point is opened",
        CompanionNotOwned "companion-not-owned": "companions stay owned by the process that made them, which may be the administrator's",
    }
    "recovery/begin.rs" {
        OpenNotCleanedUp "open-not-cleaned-up": "bytes past the length are kept when a pair is opened",
        OpenHighWaterFirst "open-high-water-first": "opening lowers the high-water mark before it cleans up",
        OpenZeroesNotDrained "open-zeroes-not-drained": "opening does not drain its clean-up before the high-water mark",
        OpenHighWaterNotDrained "open-high-water-not-drained": "opening does not drain the high-water mark",
        MadeNotSettled "made-not-settled": "a new pair never counts as settled, so its mark is not missed",
        OpenNotMarked "open-not-marked": "the home file is not marked",
        MarkLast "mark-last": "a new pair is in use before its home file has the mark",
    }
    "recovery/mod.rs" {
        SettledToHome "settled-to-home": "completing a closed pair stores to its home file, which has another time from then on",
        UnsettledNamesTaken "unsettled-names-taken": "names that an opening has left without a sync count as durable",
        DiscardedLogApplied "discarded-log-applied": "the log of a discarded pair is applied to the file that was kept",
        TrustedWordsKept "trusted-words-kept": "the durable words of a trusted pair are not checked",
        NotRecovered "not-recovered": "a pair that was in use is not recovered",
        RecoverNotDrained "recover-not-drained": "no drain between recovery and the new session",
    }
    "recovery/probe.rs" {
        SettledNotCompared "settled-not-compared": "every superblock counts as settled",
        ClosingNotTold "closing-not-told": "a mark that says that the companions were about to go counts as any mark",
        BootIdAloneBelieved "boot-id-alone-believed": "a pair is trusted by its boot ID although its page cache is gone",
        BackAfterDeath "back-after-death": "unsynced writes are taken back after a process crash",
        LongPointTaken "long-point-taken": "a durable point that is too long for any file is accepted",
        RestartNotNoticed "restart-not-noticed": "a restart of the machine is not detected",
        ShortReflectionTaken "short-reflection-taken": "a truncated reflection file is accepted",
        OtherLengthTaken "other-length-taken": "a home file of another length accepts companions that were restored without attributes",
        SumNotCompared "sum-not-compared": "a home file that was restored without attributes is accepted without a check of its contents",
        UnmarkedMayHavePair "unmarked-may-have-pair": "a plain file is refused if any file has its companion's name",
        ShortHomeTaken "short-home-taken": "a truncated home file is accepted",
        ChangedHomeTaken "changed-home-taken": "a changed home file is accepted",
    }
    "recovery/make.rs" {
        DiscardedAnyones "discarded-anyones": "discard removes a companion that may be another home file's",
        MadeAsSettled "made-as-settled": "the first superblock claims the mark that comes later",
        MadeNotSynced "made-not-synced": "a new reflection file is not synced before it gets its name",
        MadeFolderNotSynced "made-folder-not-synced": "the name of a new reflection file is not synced",
        SessionStands "session-stands": "a new session keeps the number of the previous one",
        EmptiedNotSynced "emptied-not-synced": "the journal of an emptied reflection file is removed before the emptied state is durable",
        SessionNotSynced "session-not-synced": "the new session is not synced before its first operation",
        DiscardMarkLast "discard-mark-last": "discard removes the companions before the mark",
        DiscardedNotEmptied "discarded-not-emptied": "discard removes the mark while the reflection file still counts as in use",
        MarkNotSynced "mark-not-synced": "the mark is not synced before the superblock that relies on it",
    }
    "recovery/candidates.rs" {
        EarlierMarkCounts "earlier-mark-counts": "the closing mark of an earlier pair refuses the pair that is being made",
        AnotherFileTaken "another-file-taken": "the reflection file of another home file is accepted",
        UnmarkedTaken "unmarked-taken": "the reflection file of a marked home file is accepted for a home file without a mark",
        RollBackTaken "roll-back-taken": "a mark and a superblock of different times are accepted as one pair",
        InodeAloneBelieved "inode-alone-believed": "a new file that reuses an inode number gets the slices of the old file",
    }
    "recovery/medium.rs" {
        CompanionsInMemory "companions-in-memory": "companions are made in memory for a home file on a disk",
    }
    "recovery/trust.rs" {
        LinkFollowed "link-followed": "a link in place of a companion is not refused",
        HardLinkTaken "hard-link-taken": "a companion with further names is accepted",
        OwnerNotCompared "owner-not-compared": "a companion of another user is accepted",
    }
    "recovery/lanes.rs" {
        RecoverNewerFirst "recover-newer-first": "recovery compares sequence numbers in reverse",
        RecoverLeavesOutLast "recover-leaves-out-last": "recovery skips the record that was drained together with the last batch of words",
        RecoverInvalidatedIgnored "recover-invalidated-ignored": "an invalidated flip record does not cancel older records about its page",
        RecoverInvalidatesLane "recover-invalidates-lane": "an invalidated flip record cancels older records about other pages",
    }
    "recovery/apply_log.rs" {
        RecoverLengthNotStored "recover-length-not-stored": "recovery does not store the length of a redo record",
        RecoverRedoFirst "recover-redo-first": "recovery stores redo data before it applies flip records",
        RecoverNothingTakenBack "recover-nothing-taken-back": "recovery does not undo words",
        RecoverNotSynced "recover-not-synced": "words that recovery writes are not synced before the new session",
        RecoverNoFlipRecords "recover-no-flip-records": "recovery does not apply flip records",
        RecoverNotVerified "recover-not-verified": "recovery applies the newest flip record although its slots do not match its checksum",
        RightWordNotStored "right-word-not-stored": "recovery does not make a word durable that is correct already",
        RecoverVerifiesAll "recover-verifies-all": "recovery skips older flip records with overwritten slots",
        RecoverPastLength "recover-past-length": "recovery applies records past the length",
        RecoverTakesBackAll "recover-takes-back-all": "recovery undoes all bits of a word, and not only those under the mask",
        RecoverRegionIgnored "recover-region-ignored": "recovery ignores region bits",
        RecoverRedoNotFlipped "recover-redo-not-flipped": "recovery does not flip the bits of a redo record",
        RecoverRedoNotStored "recover-redo-not-stored": "recovery does not store redo data",
        RecoverNotAllocated "recover-not-allocated": "recovery stores to slots that are not allocated",
    }
    "format/flip_record.rs" {
        InvalidatedIsTorn "invalidated-is-torn": "an invalidated flip record counts as torn",
        PlaceNotChecked "place-not-checked": "a flip record counts in any place of its ring",
        FlipRecordSumNotChecked "flip-record-sum-not-checked": "the checksum of a flip record is not verified",
    }
    "format/entry/sequence.rs" {
        BatchOnceARing "batch-once-a-ring": "words are made durable once a ring, and not once a batch",
        SequenceDoesNotWrap "sequence-does-not-wrap": "sequence numbers are compared without regard to wrapping",
    }
    "format/entry/seed.rs" {
        HeaderWithoutSession "header-without-session": "the header of a flip record does not depend on the session",
        SeedWithoutSession "seed-without-session": "checksums do not depend on the session",
        SeedWithoutPlace "seed-without-place": "checksums do not depend on the lane",
    }
    "format/entry/spill.rs" {
        SpillSumNotChecked "spill-sum-not-checked": "the checksum of spilled data is not verified",
    }
    "format/entry/undo_record.rs" {
        UndoSumNotChecked "undo-sum-not-checked": "the checksum of an undo record is not verified",
    }
    "format/floor.rs" {
        FloorOfAnySession "floor-of-any-session": "the floor of an earlier session counts for this session",
    }
    "format/superblock.rs" {
        SessionsUsedAgain "sessions-used-again": "a restored pair reuses session numbers that its journal knows",
        SuperblockSumNotChecked "superblock-sum-not-checked": "the checksum of a superblock is not verified",
        OlderSuperblockCounts "older-superblock-counts": "the older superblock counts",
    }
    "bitmap/mod.rs" {
        RunsJoined "runs-joined": "a run of slices goes on to the end of the page",
    }
    "recovery/reservation.rs" {
        ReservationNotAdapted "reservation-not-adapted": "the default reservation ignores how much address space is left",
    }
    "platform/os/membarrier.rs" {
        RefusedFenceNotReplaced "refused-fence-not-replaced": "a membarrier that is refused later is not replaced by another fence",
    }
    "platform/os/allocate.rs" {
        BlocksNotLookedAt "blocks-not-looked-at": "when storage is reserved by writes, a page with some data counts as fully allocated",
    }
    "platform/os/rights.rs" {
        ForeignGroupBitsKept "foreign-group-bits-kept": "a companion of another group grants it the rights that the home file grants its own group",
    }
    "platform/os/linux.rs" {
        AccessListNotCopied "access-list-not-copied": "a companion lacks the home file's access control list, and its group gets the rights of the list's mask",
        UncopiedListForgotten "uncopied-list-forgotten": "a companion without the home file's list grants its group the rights of the mask",
        DefaultListStays "default-list-stays": "a companion keeps the access control list of its folder",
    }
    "platform/os/calls/identity.rs" {
        UnreservedBtrfsTaken "unreserved-btrfs-taken": "a file is opened on a btrfs on which a store to a full disk ends in SIGBUS",
    }
    "platform/os/calls/gate.rs" {
        FilterNotExpected "filter-not-expected": "a system call that a filter refuses is not replaced by another",
    }
    "api/write_set.rs" {
        CutPieceForgotten "cut-piece-forgotten": "the rest of a piece is lost when a transaction overwrites part of it",
    }
    "structures/mod.rs" {
        AnyTransactionTaken "any-transaction-taken": "a structure accepts the transaction of another file",
    }
    "structures/directory.rs" {
        EntrySumNotChecked "entry-sum-not-checked": "the checksum of a name's entry is not verified",
    }
    "structures/space.rs" {
        FileNotGrown "file-not-grown": "an extent past the end of the file does not make the file longer",
        SegmentsNotInUse "segments-not-in-use": "the allocator hands out the segments of logs",
        LongestGapTaken "longest-gap-taken": "an extent is taken from the longest gap",
        ReusedBytesNotZeroed "reused-bytes-not-zeroed": "a new value shows the bytes of a removed one",
        HighWaterNotRaised "high-water-not-raised": "the high-water mark of a directory stays below its extents",
    }
    "structures/roots.rs" {
        AnyTypeTaken "any-type-taken": "a name is returned as any type",
        RemovedLogLives "removed-log-lives": "a handle to a removed log still changes it",
        LogNumberReused "log-number-reused": "a new log has the number of a removed one",
    }
    "structures/log/mod.rs" {
        LimitNotChecked "limit-not-checked": "a log grows past its limit",
        SegmentsKept "segments-kept": "a truncated log keeps all its segments",
        GenerationKept "generation-kept": "readers do not notice a truncation",
    }
    "structures/log/blocks.rs" {
        RecordSumNotChecked "record-sum-not-checked": "the checksum of a record is not verified",
        BlockNamesEarlierRecord "block-names-earlier-record": "a block names the record that it goes on with as its first one",
    }
    "bitmap/span.rs" {
        LastPageOfRegionMissed "last-page-of-region-missed": "a range over a region's end misses its last page",
    }
}
