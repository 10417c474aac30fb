//! The list of deliberate bugs: the file of each, its name, and what it breaks.
//!
//! A line adds a bug to [`Mutant`]. May import nothing from the crate.

macro_rules! mutants {
    ($($file:literal { $($mutant:ident $name:literal: $breaks:literal,)* })*) => {
        /// A deliberate bug.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[cfg_attr(
            not(all(target_os = "linux", not(atomic_mmap_portable))),
            allow(dead_code, reason = "some are planted in calls of Linux")
        )]
        #[repr(u16)]
        pub enum Mutant {
            $($(#[doc = $breaks] $mutant,)*)*
        }

        /// All bugs, in the order of their numbers.
        #[cfg(feature = "mutants")]
        pub const ALL: &[Mutant] = &[$($(Mutant::$mutant,)*)*];

        #[cfg(feature = "mutants")]
        impl Mutant {
            /// Returns the bug's name.
            pub fn name(self) -> &'static str {
                match self { $($(Mutant::$mutant => $name,)*)* }
            }

            /// Returns the file with the bug, relative to `src`.
            pub fn file(self) -> &'static str {
                match self { $($(Mutant::$mutant => $file,)*)* }
            }

            /// Returns a description of what the bug breaks.
            pub fn breaks(self) -> &'static str {
                match self { $($(Mutant::$mutant => $breaks,)*)* }
            }
        }
    };
}

mutants! {
    "engine/write/page.rs" {
        PageFlipsDurableSlots "page-flips-durable-slots": "a write in a page flips into durable slots",
        VouchLaneNotAllocated "vouch-lane-not-allocated": "the lane of an entry that vouches is not allocated",
        FlipNoClear "flip-no-clear": "a flip in a page does not clear the entries that name its slots",
        FlipWordBeforeData "flip-word-before-data": "a flip's word before its data",
        FlipNotClosed "flip-not-closed": "a flip is published without a new version",
        FlipNotPublished "flip-not-published": "a flip is not published in DRAM",
        StoreNotClosed "store-not-closed": "what one instruction stores has no new version",
    }
    "engine/write/range.rs" {
        TogetherBeforeCommit "together-before-commit": "pages are put together before the write of them counts",
        TogetherWhileOpen "together-while-open": "who puts pages together closes no words before it publishes them",
        PagesFlipDurableSlots "pages-flip-durable-slots": "a write over pages flips into durable slots",
        LengthNotCheckedAgain "length-not-checked-again": "the length is not looked at again under the locks",
        FlipOverView "flip-over-view": "a flip copies over a view's bytes",
        CopyOverView "copy-over-view": "who copies at once does not look for views",
        CopyOverEntries "copy-over-entries": "who copies at once does not look for live entries",
        CopyToHoles "copy-to-holes": "who copies at once does not look whether there is space",
        CopyNotNoted "copy-not-noted": "who copies at once notes no change for the next durable point",
        WordsNotCounted "words-not-counted": "who copies at once does not count what the entry has to hold",
        FailedCopyNotDrained "failed-copy-not-drained": "a copy that fails is not drained before the locks open",
        RegionWordsNotAllocated "region-words-not-allocated": "region words are not allocated",
        UndoSpillNotAllocated "undo-spill-not-allocated": "the log area is not allocated",
        PagesNoClear "pages-no-clear": "a write over pages does not clear the entries that name its slots",
        RegionForgetsNamed "region-forgets-named": "a region forgets pages that entries still name",
        PagesWordGivenBack "pages-word-given-back": "who writes over pages gives the region's word back before it has stored to it",
        PagesNotClosed "pages-not-closed": "a write over pages is published without a new version",
    }
    "engine/write/general.rs" {
        PartsWhileResizing "parts-while-resizing": "who writes several pieces does not pass the gate that a shrink shuts",
        OwnChangesNotNoted "own-changes-not-noted": "a thread does not note what it changes inside a closure",
    }
    "engine/commit/redo.rs" {
        LogNotMeasured "log-not-measured": "an operation that no log holds is not refused",
        InPlaceNoEntry "in-place-no-entry": "slices are stored in place without an entry",
        InPlaceNotClosed "in-place-not-closed": "readers do not wait while slices are stored in place",
        InPlaceAfterFailure "in-place-after-failure": "who waited for a durable point that failed stores in place",
        InPlaceNotEnded "in-place-not-ended": "the entry of slices in place is not retired",
        InPlaceFlips "in-place-flips": "slices whose other slot is durable flip",
        LoggedNoClear "logged-no-clear": "logged data goes over slots that live entries name",
        LoggedNoDrainAfterClear "logged-no-drain-after-clear": "no drain between void entries and logged data",
        LoggedNoDrainAfterEntry "logged-no-drain-after-entry": "no drain at the commit point of logged data",
        LoggedNotClosed "logged-not-closed": "readers do not wait while logged data is stored",
        LoggedNoDrainBeforeEnd "logged-no-drain-before-end": "no drain between logged data and the end of its entry",
        LoggedNotEnded "logged-not-ended": "the entry of logged data is not retired",
        LoggedNoDrainAfterEnd "logged-no-drain-after-end": "no drain after the end of logged data",
    }
    "engine/write/checks.rs" {
        MarksNotChecked "marks-not-checked": "a commit does not look at what it has read",
        NotClosedBeforeMarks "not-closed-before-marks": "a commit looks at what it has read before its words are closed",
        ReadsAloneNotChecked "reads-alone-not-checked": "a transaction that writes nothing is not checked when it commits",
        HeldMarksHold "held-marks-hold": "what was read and is held by another writer still counts",
    }
    "engine/write/small.rs" {
        DraftNotLookedAtAgain "draft-not-looked-at-again": "what was computed before the lock is taken for right under it",
        SmallNotClosed "small-not-closed": "a small flip is published without a new version",
        SmallNotPublished "small-not-published": "a small flip is not published in DRAM",
    }
    "engine/write/direct.rs" {
        StoreOverView "store-over-view": "what one instruction stores goes to a page that a view pins",
        StoreToFreeSlot "store-to-free-slot": "what one instruction stores goes to the slot that is not valid",
        StoreToHole "store-to-hole": "what one instruction stores goes to what may be a hole",
    }
    "engine/write/aligned.rs" {
        WholeNotLookedAtAgain "whole-not-looked-at-again": "whole pages go to the side that was free before they were locked",
        WholeNoClear "whole-no-clear": "whole pages go over slots that live entries name",
        WholeOverView "whole-over-view": "whole pages go over a view's bytes",
        WholeNotAllocated "whole-not-allocated": "whole pages go to slots that are not allocated",
        WholeNotClosed "whole-not-closed": "whole pages are published without a new version",
        WholeWordGivenBack "whole-word-given-back": "who writes whole pages gives the region's word back before it has stored to it",
        WholeNotPublished "whole-not-published": "whole pages are not published in DRAM",
    }
    "engine/durable/checkpoint.rs" {
        RetryAfterFailedSync "retry-after-failed-sync": "a sync that fails is tried once more, and counts if it succeeds then",
        FailedCheckpointForgotten "failed-checkpoint-forgotten": "a failed checkpoint does not poison",
        FloorNotRaised "floor-not-raised": "a checkpoint does not raise the floor of the journal",
        FloorAfterSync "floor-after-sync": "a checkpoint raises the floor after its syncs",
        CheckpointNotSynced "checkpoint-not-synced": "a checkpoint syncs nothing",
        FlushHomeNotSynced "flush-home-not-synced": "the home file is not synced for a base or checkpoint",
        FlushReflectionNotSynced "flush-reflection-not-synced": "nor the reflection file",
    }
    "engine/durable/point.rs" {
        CutGateOpen "cut-gate-open": "a cut is taken while operations are under way",
        PointNotLocked "point-not-locked": "the pages of a durable point are not locked",
        CutNotFlushed "cut-not-flushed": "after a shrink the next point is made by the journal all the same",
        FloorTooEarly "floor-too-early": "the floor of the journal is raised before its first record is durable",
        FirstFloorMissing "first-floor-missing": "the first record of a session is followed by no floor",
        WordsBeforeRecord "words-before-record": "durable words before their record",
        FailedSyncForgotten "failed-sync-forgotten": "a failed sync does not poison",
        CutOffPointGoesOn "cut-off-point-goes-on": "after a panic in the middle of a durable point the handle goes on",
        RecordOfOldLength "record-of-old-length": "a record has the length of the point before",
        FlushNotBase "flush-not-base": "a record after a flush does not say that it is a base",
        DurableWordNotStored "durable-word-not-stored": "durable words are not stored",
    }
    "engine/durable/mod.rs" {
        GrownRestNotFlushed "grown-rest-not-flushed": "a growth over what was cut off within a page is told by the journal alone",
        OpenedRestKnown "opened-rest-known": "a file that is opened holds zeroes past its end, on the disk",
        OverdueForGood "overdue-for-good": "writes fail for good once a point at an interval has failed",
    }
    "engine/durable/floor.rs" {
        FloorNotDurable "floor-not-durable": "the first floor of a session is not waited for",
        FloorInOnePlace "floor-in-one-place": "the floor is written over the one before",
    }
    "engine/durable/group.rs" {
        CutOffLeadStays "cut-off-lead-stays": "who was to make a durable point leads for ever after a panic",
        FollowersKeepLanes "followers-keep-lanes": "who waits for another thread's durable point keeps its lane",
        FailedTurnCounts "failed-turn-counts": "a durable point that failed counts for who waited for it",
    }
    "engine/read/all.rs" {
        CopyNotLocked "copy-not-locked": "writers go on while a consistent copy is made",
        CopyMissesRegions "copy-misses-regions": "a copy lacks what was written to a region that held nothing",
    }
    "engine/durable/sync.rs" {
        OverdueForgotten "overdue-forgotten": "a point at an interval that fails and does not poison is not heard of",
    }
    "engine/durable/journal.rs" {
        JournalHeaderNotRenewed "journal-header-not-renewed": "an older superblock finds a journal whose records of its session are written over",
        RecordNotDurable "record-not-durable": "a record is written without a barrier",
        RecordOverNewest "record-over-newest": "a record goes over the one before it",
        JournalLongerBeforeAllocated "journal-longer-before-allocated": "a journal that cannot grow keeps its new length, with a hole",
        NewestForgotten "newest-forgotten": "after a checkpoint the newest record's place is free",
    }
    "pair/mod.rs" {
        ChangeNotNoted "change-not-noted": "a page that changes is not noted for the next durable point",
    }
    "engine/plan.rs" {
        NothingLocked "nothing-locked": "no locks for a write over pages",
        PartTakenForWhole "part-taken-for-whole": "a page that is written in part counts as whole",
        SecondPartNotMoved "second-part-not-moved": "the second part in a page is not made valid",
    }
    "engine/commit/logged_flip.rs" {
        VouchInSharedLane "vouch-in-shared-lane": "a lane that is only lent carries entries that vouch",
        VouchOnePlace "vouch-one-place": "all entries of a ring go to one place",
        VouchedWordsNotFlushed "vouched-words-not-flushed": "the words that a ring vouches for are not flushed",
        VouchedWordBeforeDrain "vouched-word-before-drain": "a word is stored before the drain of the entry that vouches for it",
        VouchSumOfNothing "vouch-sum-of-nothing": "an entry of long data has not their sum",
        VouchNotDrained "vouch-not-drained": "no drain at the commit point of a vouched flip",
        VouchNotNoted "vouch-not-noted": "DRAM does not note what an entry names",
        VouchLaneNotNoted "vouch-lane-not-noted": "a page does not know which lanes' entries name it",
        VouchNotClosed "vouch-not-closed": "a vouched flip is published without a new version",
        VouchedWordNotStored "vouched-word-not-stored": "a vouched flip does not store its word",
        VouchNotPublished "vouch-not-published": "a vouched flip is not published in DRAM",
    }
    "engine/commit/flip.rs" {
        FlipNoDrainBeforeWord "flip-no-drain-before-word": "no drain between a flip's data and its word",
        FlipNoDrainAfterWord "flip-no-drain-after-word": "no drain after a flip's word",
    }
    "engine/commit/undo.rs" {
        UndoSpillNotWritten "undo-spill-not-written": "the words of a spilled undo entry are not written",
        UndoNotWritten "undo-not-written": "an undo entry is not written",
        UndoNoDrainBeforeWords "undo-no-drain-before-words": "no drain between an undo entry and the words",
        UndoEndsBeforeWords "undo-ends-before-words": "an undo entry ends before its words are stored",
        UndoNoDrainBeforeEnd "undo-no-drain-before-end": "no drain between the words and the end of an undo entry",
        UndoNotEnded "undo-not-ended": "an undo entry is not retired",
        UndoNoDrainAfterEnd "undo-no-drain-after-end": "no drain after the end of an undo entry",
    }
    "pair/log/records.rs" {
        VouchOverOtherLane "vouch-over-other-lane": "an entry vouches for slices that another lane's entry names",
        SettleNoDrain "settle-no-drain": "no drain between the words of entries and making them void",
        NoClear "no-clear": "live entries are not made void",
        SettleNoFlush "settle-no-flush": "settling flushes nothing",
        ClearToZero "clear-to-zero": "a void entry does not keep its number and page",
        FlushWordsUnpinned "flush-words-unpinned": "the flush of words that entries vouch for does not pin its lane",
    }
    "error/constructors.rs" {
        NoSpaceOfAllocationOnly "no-space-of-allocation-only": "want of space is told of ranges only, not of names, attributes and lengths",
    }
    "mmap/mod.rs" {
        BytesAllocated "bytes-allocated": "the bytes of a range are allocated, and not all blocks of their pages",
        ClearFlushedIfDone "clear-flushed-if-done": "the line of an entry that somebody has replaced is not flushed",
        ClearNotFlushed "clear-not-flushed": "a cleared header is not flushed",
    }
    "pair/gates.rs" {
        AloneUnseen "alone-unseen": "who takes a lock by plain stores does not say so",
        AloneNotAwaited "alone-not-awaited": "who takes a lane beside another's does not wait for its plain stores",
    }
    "pair/log/lane.rs" {
        SequenceStands "sequence-stands": "all entries of a lane have one number",
        OneSequenceForBoth "one-sequence-for-both": "undo entries count with those of the ring",
        VoidStaysNoted "void-stays-noted": "DRAM still names an entry that is void",
        LaneHandedToNobody "lane-handed-to-nobody": "who gives a shared lane back wakes no thread that waits for one",
    }
    "pair/log/lanes.rs" {
        LaneNotDrainedAtEnd "lane-not-drained-at-end": "a thread ends without draining its lane",
        NoWaitForPinned "no-wait-for-pinned": "nobody waits for pinned lanes",
        AloneAmongOthers "alone-among-others": "who takes a lane beside another's leaves that one to its plain stores",
        LaneTakenTwice "lane-taken-twice": "a lane is given to a thread although another has it",
    }
    "engine/mod.rs" {
        NoThreadNoMatter "no-thread-no-matter": "no thread can be started that makes points at an interval, and opening says nothing",
    }
    "pair/load.rs" {
        WordsNotLoaded "words-not-loaded": "a region's words are not read when it is first touched",
        RegionWordsNotVisited "region-words-not-visited": "deployment does not look for region words",
        SliceWordsNotVisited "slice-words-not-visited": "deployment does not look for slice words",
    }
    "engine/read/mod.rs" {
        ReadUnpinned "read-unpinned": "a read does not pin its lane",
        PagesNotLookedAtAgain "pages-not-looked-at-again": "a read over pages does not look at the versions again",
        RegionNotSummed "region-not-summed": "a read over pages does not look at the regions' versions",
        ReadLengthFirst "read-length-first": "a read looks at the length before the versions and not after them",
    }
    "engine/read/read_set.rs" {
        EarlierMarksNotChecked "earlier-marks-not-checked": "a transaction's read does not look at what it has read before",
        MarkedNotLookedAtAgain "marked-not-looked-at-again": "a transaction's read does not look at the versions again",
        MarkedLengthFirst "marked-length-first": "a transaction's read looks at the length before the versions and not after them",
        ToldLengthHolds "told-length-holds": "a transaction that was told the length goes on with another one",
        HeldPageWatched "held-page-watched": "a transaction takes a page for watched although a writer holds it",
    }
    "pair/read_set.rs" {
        CutMarksHold "cut-marks-hold": "what was read and cut off since still counts",
        WatchedNotCounted "watched-not-counted": "a writer does not count that it changes a page that transactions watch",
    }
    "api/transaction.rs" {
        OwnConflictRepeated "own-conflict-repeated": "a closure that changes what its own transaction has read is run again",
        AnyConflictIsOwn "any-conflict-is-own": "a closure's conflict with another thread is taken for its own",
    }
    "engine/read/page.rs" {
        AwayReadAtHome "away-read-at-home": "a read within a page copies from the home file what is not valid there",
        AwayTakenForHome "away-taken-for-home": "a read within a page copies from the home file although not all of the page is valid there",
        InPageLengthFirst "in-page-length-first": "a read within a page looks at the length before the versions",
        HoleReadAtOnce "hole-read-at-once": "a read within a page loads from what may be a hole",
    }
    "engine/read/range.rs" {
        SeveralReadAtHome "several-read-at-home": "pages of the reflection file are read at home",
        SeveralNotLookedAtAgain "several-not-looked-at-again": "a read of pages on one side does not look at the versions again",
        SeveralLengthFirst "several-length-first": "a read of pages on one side looks at the length before the versions",
        HoleOfSeveralRead "hole-of-several-read": "a read of several pages loads from what may be a hole",
    }
    "pair/stamps.rs" {
        HomeWordNotLookedAtAgain "home-word-not-looked-at-again": "a read of a page that is known to be at home does not look at its word again",
        KnownNotLookedAtAgain "known-not-looked-at-again": "a read of several pages that are known to be at home does not look at their words again",
        KnownByTheFirst "known-by-the-first": "a read of several pages takes all for known to be at home if the first one is",
        HomeWordGoesBack "home-word-goes-back": "the word of a page that is known to be at home counts down again",
        KnownAway "known-away": "a page becomes known to be at home although it is not",
        HoleKnown "hole-known": "a page becomes known to be at home although it may be a hole",
        KnownWhileCutting "known-while-cutting": "a page becomes known to be at home while it is cut off",
        HomeNotLeft "home-not-left": "who writes does not say that the pages are not known to be at home any more",
    }
    "engine/io/scatter.rs" {
        LinesToOneSide "lines-to-one-side": "slices of both sides are all copied to the home file",
        SecondPartFromValidSlot "second-part-from-valid-slot": "a part that shares a slice with the one before forgets that one",
        CompletedFromFreeSlot "completed-from-free-slot": "a slice in part is completed from the slot that is not valid",
        CopyJoinsSuperchunks "copy-joins-superchunks": "a copy runs over the end of a superchunk",
    }
    "engine/io/gather.rs" {
        ReadJoinsChunks "read-joins-chunks": "a read runs over the end of a chunk",
        PiecesReadAtHome "pieces-read-at-home": "all slices of a page in pieces are read at home",
    }
    "engine/deploy/region.rs" {
        DeployChangedByRegionBit "deploy-changed-by-region-bit": "a page of which some slices stay behind comes home by its region bit",
        DeployDurableSlots "deploy-durable-slots": "deployment goes over durable slots",
        DeployOverView "deploy-over-view": "deployment copies over a view's bytes",
        DeployHomeNotAllocated "deploy-home-not-allocated": "deployment copies to home slots that are not allocated",
        DeployNoClear "deploy-no-clear": "deployment does not clear the entries that name its slots",
        DeployNoDrainBeforeWords "deploy-no-drain-before-words": "no drain between deployed slots and the words",
        DeployNoDrainAfterWords "deploy-no-drain-after-words": "no drain after the words of a deployment",
        DeployWordGivenBack "deploy-word-given-back": "deployment gives the region's word back before it has stored to it",
        DeployNotClosed "deploy-not-closed": "a deployment is published without a new version",
    }
    "engine/deploy/punch.rs" {
        PunchDurableSlots "punch-durable-slots": "durable slots are given back",
        PunchValidSlots "punch-valid-slots": "a chunk with valid slots is punched",
        PunchNoWait "punch-no-wait": "nobody waits for readers before punching",
        PunchedStaysAllocated "punched-stays-allocated": "a punched chunk counts as allocated",
    }
    "engine/deploy/pin.rs" {
        PinWhileResizing "pin-while-resizing": "a view is pinned while the length changes",
        PinAway "pin-away": "a view pins slots that are not at home",
        PinNotCounted "pin-not-counted": "a view's pin is not counted",
        PinNotGivenBack "pin-not-given-back": "a view's pin is not given back",
    }
    "engine/deploy/on_write.rs" {
        TogetherForNothing "together-for-nothing": "pages are put together although nobody has read them",
    }
    "engine/resize/mod.rs" {
        GrowthReservesLater "growth-reserves-later": "a growth makes the file longer before it has the rest of the page that the old end cuts in two",
        ShrinkNoPoint "shrink-no-point": "a shrink cuts off what the last durable point has",
        ResizingNotLocked "resizing-not-locked": "the length changes while views are pinned, and in two threads at a time",
        NoCatchingUp "no-catching-up": "a clean-up that failed is not caught up with",
        GrowHighWaterNotRaised "grow-high-water-not-raised": "growing does not raise the high-water mark",
        GrowHighWaterNotDrained "grow-high-water-not-drained": "no drain between the high-water mark and the files' lengths",
        GrowLengthBeforeFiles "grow-length-before-files": "the length word before the files' lengths",
        GrowChunkNotExtended "grow-chunk-not-extended": "the chunk of the old end is not allocated to its new one",
        GrowFilesNotSynced "grow-files-not-synced": "the files' lengths are not synced before the length word",
        GrowLengthNotDrained "grow-length-not-drained": "no drain after the length word of a growth",
        CuttingNotSaid "cutting-not-said": "who pins without a lock does not hear of a shrink",
        CutStaysKnown "cut-stays-known": "what is cut off is still known to be at home",
        ShrinkUnderView "shrink-under-view": "a view's bytes are cut off",
        LengthGateOpen "length-gate-open": "the length becomes shorter while several pieces are written",
        ShrinkBoundaryNotLocked "shrink-boundary-not-locked": "the region that the new end cuts is not locked",
        ShrinkBoundaryNotClosed "shrink-boundary-not-closed": "the region that the new end cuts keeps its version",
        ShrinkLengthNotDrained "shrink-length-not-drained": "no drain after the length word of a shrink",
        CutNoWaitForTouches "cut-no-wait-for-touches": "a shrink does not wait for who looked at the old length",
        CutNotLocked "cut-not-locked": "the regions that are cut off are not locked",
        CutNoClear "cut-no-clear": "entries over what is cut off are not cleared",
        CutNoDrainAfterClear "cut-no-drain-after-clear": "no drain between clearing entries and zeroing what they name",
        CutRegionMirrorStays "cut-region-mirror-stays": "the mirror of a cut region word is left",
        CutSliceMirrorsStay "cut-slice-mirrors-stay": "the mirrors of cut slice words are left",
        CutNoWaitForReaders "cut-no-wait-for-readers": "a shrink does not wait for readers of what is cut off",
        CutHighWaterFirst "cut-high-water-first": "the high-water mark is lowered before the clean-up",
        CutZeroesNotDrained "cut-zeroes-not-drained": "no drain between the zeroes and the high-water mark",
        CutStaysAllocated "cut-stays-allocated": "what was cut off counts as allocated",
        CutFilesNotSynced "cut-files-not-synced": "the files' lengths are not synced before the high-water mark",
        CutHighWaterNotDrained "cut-high-water-not-drained": "no drain after the high-water mark is lowered",
    }
    "engine/resize/truncate.rs" {
        HomeNotCut "home-not-cut": "the home file is not cut off",
        RestOfPageNotZeroed "rest-of-page-not-zeroed": "the rest of the last page's reflection slots is not zeroed",
        SliceWordsNotZeroed "slice-words-not-zeroed": "slice words past the end are not zeroed",
        RegionWordNotCut "region-word-not-cut": "the bits past the end of the last region word are not zeroed",
        RegionWordsNotZeroed "region-words-not-zeroed": "region words past the end are not zeroed",
    }
    "pair/space.rs" {
        FlipHomeNotAllocated "flip-home-not-allocated": "a flip's home slots are not allocated",
        FlipReflectionNotAllocated "flip-reflection-not-allocated": "reflection slots are not allocated",
        PiecesBesideHoles "pieces-beside-holes": "what the page cache holds in large folios beside a new piece stays there",
        ChunkForEachTouch "chunk-for-each-touch": "on page cache, too, a whole chunk is allocated for each page that is touched",
        GrowthFromNextPage "growth-from-next-page": "a growth does not allocate the rest of the page that the old end cuts in two",
        PiecesNotAllocated "pieces-not-allocated": "without a free chunk nothing is allocated",
        SliceWordsNotAllocated "slice-words-not-allocated": "slice words are not allocated",
        HolesLoaded "holes-loaded": "holes of the home file are loaded through the mapping",
        HolesUpToOldLength "holes-up-to-old-length": "holes are looked for up to the logical length only",
    }
    "engine/close.rs" {
        CloseNotNoted "close-not-noted": "a mark with sessions still fits the session before, once its own one is closed",
        DamagedWordsNotNoted "damaged-words-not-noted": "a spatial close takes the durable words of a closed pair for right",
        DropMakesPoint "drop-makes-point": "dropping a handle makes half a save durable",
        CloseNoPoint "close-no-point": "a close begins without a durable point",
        CloseSettlesNothing "close-settles-nothing": "closing does not flush what entries vouch for",
        CloseNotDrained "close-not-drained": "closing does not drain before the session ends",
        SpatialHomeNotSynced "spatial-home-not-synced": "the home file is not synced before the pair counts as emptied",
        SpatialNotEmptied "spatial-not-emptied": "a spatial close does not say that the pair is emptied",
        SpatialMarkRemovedLast "spatial-mark-removed-last": "the reflection file is removed before the mark",
        SpatialMarkNotSynced "spatial-mark-not-synced": "the mark's removal is not synced before the reflection file goes",
        SpatialFolderNotSynced "spatial-folder-not-synced": "the folder is not synced after the reflection file was removed",
        FastHomeNotSynced "fast-home-not-synced": "a fast close does not sync the home file",
        FastReflectionNotSynced "fast-reflection-not-synced": "a fast close does not sync the reflection file before it counts as closed",
        EndNotSynced "end-not-synced": "the superblock of the end is not synced",
        SpatialLeavesPinned "spatial-leaves-pinned": "a spatial close leaves pages that a leaked view pins",
    }
    "engine/superblock.rs" {
        RemovedByName "removed-by-name": "a name is removed that another file has by now",
        SuperblockOverNewer "superblock-over-newer": "a superblock goes over the newer copy",
    }
    "pair/region.rs" {
        WordTakenTwice "word-taken-twice": "a region's word is taken by two at the same time",
        NamedPageNotNoted "named-page-not-noted": "a region does not know which of its pages entries name",
        RegionBitIgnored "region-bit-ignored": "which slot is valid does not depend on the region bit",
        AlikeNotForgotten "alike-not-forgotten": "a region takes its slice words for the same after one has changed",
        AlikeUnderAnyRegionWord "alike-under-any-region-word": "a region whose pages are on one side takes their slice words for the same",
        PinNotSeen "pin-not-seen": "who stores at once sees no pins",
        KnownNotSeen "known-not-seen": "who stores at once does not see that readers know the page",
        PinHeldPage "pin-held-page": "a page that somebody holds is pinned without a lock",
    }
    "lock/acquire.rs" {
        TakenOpen "taken-open": "who takes a page to store at once leaves it open",
        RegionNotLookedAtAfterPage "region-not-looked-at-after-page": "who locks a page does not look at the region again",
        PagesKeptWhileWaiting "pages-kept-while-waiting": "who waits for the region keeps the pages it has",
        PagesNotAwaited "pages-not-awaited": "who locks a region does not wait for the pages' holders",
        PageHeldTwice "page-held-twice": "a page's lock is taken from who holds it",
    }
    "lock/fences.rs" {
        NoFenceBeforeMarks "no-fence-before-marks": "no fence between closing and looking at what was read",
    }
    "lock/word.rs" {
        ClosedIsOpen "closed-is-open": "readers begin while a word is closed",
        ClosedIsStill "closed-is-still": "readers end while a word is closed",
        RegionNotLookedAtAgain "region-not-looked-at-again": "a read of a page does not look at the region's version again",
        PageNotLookedAtAgain "page-not-looked-at-again": "a read of a page does not look at the page's version again",
        NoNewVersion "no-new-version": "a word that was closed opens with its old version",
    }
    "recovery/journal.rs" {
        AnyJournalTaken "any-journal-taken": "a journal of another pair, or of another time, is believed and written to",
        FloorNotChecked "floor-not-checked": "a journal that was copied earlier in the session is believed",
        HeaderNotMadeDurable "header-not-made-durable": "a torn header leaves one that was in the page cache only",
        JournalHeaderNotWritten "journal-header-not-written": "a journal does not say whose it is",
        JournalNotSynced "journal-not-synced": "a new journal is not synced before a superblock tells of it",
        JournalHoleCountsAsRoom "journal-hole-counts-as-room": "a journal's length is taken for its room, whatever is behind it",
        JournalFolderNotSynced "journal-folder-not-synced": "nor is its name",
        OpeningIsNoPoint "opening-is-no-point": "what the death of the process has left is no durable point when opening returns",
        DeadSessionNotSynced "dead-session-not-synced": "the session of a dead process is closed before its data is durable",
    }
    "recovery/replay_journal.rs" {
        NewestNotMadeDurable "newest-not-made-durable": "a record that was found after a death counts as it is",
        FoundSessionNotSynced "found-session-not-synced": "a superblock is written while the other copy is in the page cache only",
        BegunWordsNotSynced "begun-words-not-synced": "a session begins before its durable words are durable",
        NotReplayed "not-replayed": "records are not replayed",
        ReplayNotSynced "replay-not-synced": "the journal is voided before what was replayed is durable",
        WorkingWordsKept "working-words-kept": "working words are believed after a restart",
        RegionWordsKept "region-words-kept": "region words are believed after a restart",
        RegionsNotBegun "regions-not-begun": "a pair gets durable words only where it has slice words",
        PastPointKept "past-point-kept": "what lies past the length is left when a file goes back",
    }
    "api/file.rs" {
        EarlierCloseNoPoint "earlier-close-no-point": "who closes one of several handles makes no durable point, and a drop takes it back",
    }
    "recovery/context.rs" {
        MountedAloneTaken "mounted-alone-taken": "a file is opened that is mounted by itself",
        CompanionNotOwned "companion-not-owned": "companions stay their maker's, who may be the administrator",
    }
    "recovery/mod.rs" {
        TrustedWordsKept "trusted-words-kept": "the durable words of a pair that is trusted are taken for right",
        NotRecovered "not-recovered": "a pair that was in use is not recovered",
        OpenNotCleanedUp "open-not-cleaned-up": "what lies past the length is left when a pair is opened",
        OpenHighWaterFirst "open-high-water-first": "opening lowers the high-water mark before it cleans up",
        OpenZeroesNotDrained "open-zeroes-not-drained": "opening does not drain its clean-up before the high-water mark",
        OpenHighWaterNotDrained "open-high-water-not-drained": "opening does not drain the high-water mark",
        OpenNotMarked "open-not-marked": "the home file is not marked",
        RecoverNotDrained "recover-not-drained": "no drain between recovery and the new session",
    }
    "recovery/probe.rs" {
        BootIdAloneBelieved "boot-id-alone-believed": "what a page cache held that is gone is believed",
        BackAfterDeath "back-after-death": "what was not synced is taken back when the process dies",
        LongPointTaken "long-point-taken": "a durable point is believed that no file could hold",
        RestartNotNoticed "restart-not-noticed": "a restart of the machine is not noticed",
        ShortReflectionTaken "short-reflection-taken": "a reflection file that was cut off is taken",
        OtherLengthTaken "other-length-taken": "companions restored without attributes are taken by a home file of another length",
        SumNotCompared "sum-not-compared": "a home file that was restored without attributes is taken with whatever it holds",
        UnmarkedMayHavePair "unmarked-may-have-pair": "what lies at the name of a plain file's companion refuses it",
        ShortHomeTaken "short-home-taken": "a home file that was cut off is taken",
        ChangedHomeTaken "changed-home-taken": "a home file that was changed is taken",
    }
    "recovery/make.rs" {
        DiscardedAnyones "discarded-anyones": "discard removes a companion that may be another home file's",
        MadeNotSynced "made-not-synced": "a new reflection file is not synced before it gets its name",
        MadeFolderNotSynced "made-folder-not-synced": "the name of a new reflection file is not synced",
        SessionStands "session-stands": "a new session keeps the number of the last one",
        EmptiedNotSynced "emptied-not-synced": "the journal of an emptied reflection file is removed while that it is empty is in the page cache only",
        SessionNotSynced "session-not-synced": "the new session is not synced before its first operation",
        DiscardMarkLast "discard-mark-last": "what is discarded goes before its mark",
        DiscardedNotEmptied "discarded-not-emptied": "what is discarded loses its mark while it still says that it is in use",
        MarkLast "mark-last": "a new pair is in use before its home file has the mark",
        MarkNotSynced "mark-not-synced": "the mark is not synced before the superblock that says that it is there",
    }
    "recovery/candidates.rs" {
        AnotherFileTaken "another-file-taken": "a reflection file of another home file is taken",
        UnmarkedTaken "unmarked-taken": "the reflection file of a marked home file is taken for one without a mark",
        RollBackTaken "roll-back-taken": "a mark and a superblock of different times are taken for one pair",
        InodeAloneBelieved "inode-alone-believed": "a file that got the inode number of another one gets its slices",
    }
    "recovery/medium.rs" {
        CompanionsInMemory "companions-in-memory": "companions lie in memory, and the home file promises more",
    }
    "recovery/trust.rs" {
        LinkFollowed "link-followed": "a link in a companion's place is not refused",
        HardLinkTaken "hard-link-taken": "a companion is taken that has further names",
        OwnerNotCompared "owner-not-compared": "a companion of another user is taken",
    }
    "recovery/lanes.rs" {
        RecoverNewerFirst "recover-newer-first": "sequence numbers are compared the other way round",
        RecoverLeavesOutLast "recover-leaves-out-last": "the entry is left out with whose drain the last batch of words was flushed",
        RecoverVoidIgnored "recover-void-ignored": "a void entry does not void older ones about its page",
        RecoverVoidsLane "recover-voids-lane": "a void entry voids older ones about other pages",
    }
    "recovery/apply_log.rs" {
        RecoverLoggedFirst "recover-logged-first": "logged data is stored before slices move",
        RecoverNothingTakenBack "recover-nothing-taken-back": "words are not taken back",
        RecoverNotSynced "recover-not-synced": "words that recovery writes are not synced before the new session",
        RecoverNotVouched "recover-not-vouched": "slices are not moved to where entries say",
        RecoverNotVerified "recover-not-verified": "slices move although their slots do not hold what the newest entry says",
        RightWordNotStored "right-word-not-stored": "a word that is right already is not made durable",
        RecoverVerifiesAll "recover-verifies-all": "entries do not count whose slots were written again",
        RecoverPastLength "recover-past-length": "what lies past the length is recovered",
        RecoverTakesBackAll "recover-takes-back-all": "all bits of a word are taken back, not those under the mask",
        RecoverRegionIgnored "recover-region-ignored": "recovery takes no notice of region bits",
        RecoverLoggedNotValid "recover-logged-not-valid": "logged data is not made valid",
        RecoverNotAllocated "recover-not-allocated": "recovery stores to what is not allocated",
    }
    "format/flip_record.rs" {
        VoidIsTorn "void-is-torn": "a void entry counts as torn",
        PlaceNotChecked "place-not-checked": "an entry counts in any place of its ring",
        VouchSumNotChecked "vouch-sum-not-checked": "the checksum of an entry that vouches is not looked at",
    }
    "format/entry/sequence.rs" {
        BatchOnceARing "batch-once-a-ring": "words are made durable once a ring",
        SequenceDoesNotWrap "sequence-does-not-wrap": "sequence numbers are compared as if they never began anew",
    }
    "format/entry/seed.rs" {
        HeaderWithoutSession "header-without-session": "the header of an entry that vouches does not say of which session it is",
        SeedWithoutSession "seed-without-session": "checksums do not depend on the session",
        SeedWithoutPlace "seed-without-place": "checksums do not depend on the lane",
    }
    "format/entry/spill.rs" {
        SpillSumNotChecked "spill-sum-not-checked": "the checksum of spilled data is not looked at",
    }
    "format/entry/undo_record.rs" {
        UndoSumNotChecked "undo-sum-not-checked": "the checksum of an undo entry is not looked at",
    }
    "format/floor.rs" {
        FloorOfAnySession "floor-of-any-session": "the floor of a session before counts for this one",
    }
    "format/superblock.rs" {
        SessionsUsedAgain "sessions-used-again": "a restored pair gives numbers of sessions again that its journal knows",
        SuperblockSumNotChecked "superblock-sum-not-checked": "the checksum of a superblock is not looked at",
        OlderSuperblockCounts "older-superblock-counts": "the older superblock counts",
    }
    "bitmap/mod.rs" {
        RunsJoined "runs-joined": "a run of slices goes on to the end of the page",
    }
    "recovery/reservation.rs" {
        ReservationNotAdapted "reservation-not-adapted": "the default reservation does not look at what address space is left",
    }
    "platform/os/membarrier.rs" {
        RefusedFenceNotReplaced "refused-fence-not-replaced": "a membarrier that is refused later has no other way",
    }
    "platform/os/allocate.rs" {
        BlocksNotLookedAt "blocks-not-looked-at": "where storage is reserved by writes, a page with some data counts as whole",
    }
    "platform/os/rights.rs" {
        ForeignGroupBitsKept "foreign-group-bits-kept": "a companion of another group gives it what the home file gives its own",
    }
    "platform/os/linux.rs" {
        AccessListNotCopied "access-list-not-copied": "a companion lacks the home file's access control list, whose mask its group gets",
        UncopiedListForgotten "uncopied-list-forgotten": "a companion without the home file's list gives its group the mask",
        DefaultListStays "default-list-stays": "a companion keeps the access control list of its folder",
    }
    "platform/os/calls/identity.rs" {
        UnreservedBtrfsTaken "unreserved-btrfs-taken": "a file is opened on a btrfs whose full disk ends stores in SIGBUS",
    }
    "platform/os/calls/gate.rs" {
        FilterNotExpected "filter-not-expected": "a call that a filter refuses has no other way",
    }
    "api/write_set.rs" {
        CutPieceForgotten "cut-piece-forgotten": "what a piece still has that a transaction writes over in part is forgotten",
    }
    "bitmap/span.rs" {
        LastPageOfRegionMissed "last-page-of-region-missed": "a range over a region's end misses its last page",
    }
}
