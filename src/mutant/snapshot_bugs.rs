//! The deliberate bugs of snapshots: the file of each, its name, and what it breaks.
//!
//! Owns: a macro that adds them, and those of page sums, to the list of `bugs`.
//! May import `sum_bugs`.

macro_rules! with_those_of_snapshots {
    ($list:ident; $($others:tt)*) => {
        $crate::mutant::sum_bugs::with_those_of_sums! { $list;
            $($others)*
            "format/snapshots/table.rs" {
                TableUnchecked "table-unchecked": "a torn table of snapshots counts",
                OlderTableCounts "older-table-counts": "of two whole tables of snapshots the older one counts",
                HighestForgotten "highest-forgotten": "the number of a dropped snapshot is given again",
            }
            "format/snapshots/segment.rs" {
                SegmentSeedOld "segment-seed-old": "the checksums of a segment do not depend on its turn",
                RecordUnchecked "record-unchecked": "a torn keep record counts",
                KeptBytesUnchecked "kept-bytes-unchecked": "a keep record with torn slices counts",
            }
            "pair/snapshots/mod.rs" {
                TableOverNewest "table-over-newest": "all tables of snapshots go to one place",
                DoubtIgnored "doubt-ignored": "a snapshot that may lack kept bytes is read",
                CloseMarksNoEnds "close-marks-no-ends": "a close leaves segments without an end",
                CloseCountsNoEnds "close-counts-no-ends": "a close does not count the ends of segments",
                FoundUnchecked "found-unchecked": "a lookup does not check kept bytes",
            }
            "pair/snapshots/open.rs" {
                FoundRecordsNotFlushed "found-records-not-flushed": "keep records that opening finds are not flushed",
                LostHeaderIgnored "lost-header-ignored": "a segment with an end and no header is no damage",
                EndNotCompared "end-not-compared": "records that end before the segment does are no damage",
                EndsNotCounted "ends-not-counted": "an opening does not count the ends of segments",
                SessionNotConfirmed "session-not-confirmed": "the table does not say that the announced session has begun",
                OpeningNumberKept "opening-number-kept": "an opening begins segments under the number of the one before",
            }
            "pair/snapshots/live.rs" {
                LaterByOldSet "later-by-old-set": "a collection judges records of later seals by its own set",
                CollectForgetsNeeded "collect-forgets-needed": "a kept slice counts as needed by the snapshot of its own epoch alone",
            }
            "pair/snapshots/segments.rs" {
                FreedPastCache "freed-past-cache": "the header of a freed segment is cleared past the cache, without a drain",
            }
            "pair/snapshots/collect.rs" {
                FreedBeforeSettled "freed-before-settled": "a segment is freed before the copies of its records are durable",
                FreedWithEnd "freed-with-end": "a segment is freed before its end is durably gone",
                FreedBeforeReadersLeft "freed-before-readers-left": "a segment is freed while readers may be copying from it",
            }
            "pair/region.rs" {
                KeptOverSeal "kept-over-seal": "what a page remembers as kept stays so over a seal",
                KeptOverDrop "kept-over-drop": "a page that has kept for a dropped snapshot is taken for one without kept slices",
            }
            "engine/keep.rs" {
                KeptNotLookedUp "kept-not-looked-up": "a page that remembers nothing is taken for one without kept slices",
                NothingKept "nothing-kept": "an operation keeps nothing for snapshots",
                ShrinkKeepsNothing "shrink-keeps-nothing": "a shrink keeps nothing for snapshots",
                FailedKeepNotDrained "failed-keep-not-drained": "a keep that fails in the middle does not drain what it has kept",
                KeepsNotSynced "keeps-not-synced": "what a durable point keeps is not synced before its record",
            }
            "engine/write/page.rs" {
                LoggedFlipKeeps "logged-flip-keeps": "a logged flip keeps by its only drain",
                FastPathKeepsNothing "fast-path-keeps-nothing": "the fast path of writes within a page keeps nothing",
            }
            "engine/write/direct.rs" {
                DirectStoreKeepsNothing "direct-store-keeps-nothing": "the fast path of direct stores keeps nothing",
                DirectStoreOwes "direct-store-owes": "a direct store inside the gate does not look at what is owed",
            }
            "engine/commit/redo.rs" {
                RedoNoDrainAfterKeeps "redo-no-drain-after-keeps": "no drain between what is kept and the redo record",
                ShrinkWritesUnkept "shrink-writes-unkept": "the point of a shrink keeps behind the commit what the shrink writes",
            }
            "engine/write/length.rs" {
                ShrinkGateOpen "shrink-gate-open": "writes go on between a shrink and the cut of its point",
            }
            "engine/durable/point.rs" {
                ShrinkKeepsLater "shrink-keeps-later": "the point of a shrink keeps behind the commit what has changed before",
                ShrinkRecordUnreserved "shrink-record-unreserved": "a shrink takes the space of the record of its point behind the commit",
            }
            "engine/commit/restore.rs" {
                RestoreNoDrainBeforeWords "restore-no-drain-before-words": "a rollback does not drain before its words",
                RestoreNoDrainAfterWords "restore-no-drain-after-words": "a rollback does not drain its words before it is over",
            }
            "engine/snapshots/seal.rs" {
                DropUnderReader "drop-under-reader": "a snapshot is dropped while a handle reads it",
                SealWithoutPoint "seal-without-point": "a snapshot is sealed without a durable point",
                SealGateOpen "seal-gate-open": "a snapshot is sealed while operations are half way",
                SwitchNoWait "switch-no-wait": "the first seal does not wait for operations outside the gate",
                TableNotRepeated "table-not-repeated": "one copy of the table has the newest state alone",
                RepeatedTableNotSynced "repeated-table-not-synced": "a table goes over the newest durable copy",
                TableNotDurable "table-not-durable": "the table of the store is not made durable",
            }
            "engine/snapshots/read.rs" {
                SnapshotReadUnlocked "snapshot-read-unlocked": "a reader of a snapshot does not lock the page",
                DamagedRecordRolledBack "damaged-record-rolled-back": "a rollback begins without a look at the records that it needs",
                SnapshotReadsPresent "snapshot-reads-present": "a reader of a snapshot goes by the working words",
            }
            "engine/snapshots/rollback.rs" {
                RollbackNotCounted "rollback-not-counted": "automatic snapshots do not see a rollback",
                RollbackNotReserved "rollback-not-reserved": "a rollback takes its space behind the intention",
                RollbackNotSaid "rollback-not-said": "the table does not say that a rollback is under way",
                RestoresPastTheEnd "restores-past-the-end": "a rollback puts back what records have past the end of the snapshot",
                RollbackNotFinished "rollback-not-finished": "an opening does not finish a rollback",
            }
            "engine/resize/mod.rs" {
                FailedCutNotDrained "failed-cut-not-drained": "a truncation that fails in the middle does not drain its zeroes",
                ShownInSnapshot "shown-in-snapshot": "an append is shown in slots that a snapshot reads",
            }
            "pair/unfinished.rs" {
                CutOffRollbackGoesOn "cut-off-rollback-goes-on": "the handle stays usable after an error in the middle of a rollback",
            }
            "pair/mod.rs" {
                SwitchNotSeenUnderLock "switch-not-seen-under-lock": "a writer does not look at the first snapshot's switch under its lock",
            }
            "format/export/mod.rs" {
                FrameUnchecked "frame-unchecked": "a damaged frame of a stream counts",
            }
            "api/stream.rs" {
                FrameOrderUnchecked "frame-order-unchecked": "the frames of a stream count in any order",
                BytesPastTheEnd "bytes-past-the-end": "a stream may have bytes past the end of its file",
            }
            "api/spool.rs" {
                SpoolOfAnyOwner "spool-of-any-owner": "an import takes what another user may change",
                SpoolStays "spool-stays": "what was received stays after it was applied",
                SpoolNameTooLong "spool-name-too-long": "a file with a long name takes no stream",
                SpoolOfAnyFile "spool-of-any-file": "a receiver takes the lock of a file that was removed",
            }
            "api/import.rs" {
                ImportChecksLate "import-checks-late": "a new file is made before its options are compared with the stream",
                ImportTakesLength "import-takes-length": "a new file of an empty snapshot gets the length of the options",
            }
            "engine/snapshots/export.rs" {
                ExportForgetsNewest "export-forgets-newest": "an increment lacks what has changed since the last snapshot before the newer one",
            }
            "engine/snapshots/import.rs" {
                ImportAnyBase "import-any-base": "changes are applied to any content",
                ImportAnyResult "import-any-result": "changes are applied that do not lead to the stated content",
                ImportNumberNotGiven "import-number-not-given": "records of an import are appended before the table gives their number",
                ImportKeepsNothing "import-keeps-nothing": "an import keeps nothing for the snapshots that there are",
                ImportKeepsNoZeros "import-keeps-no-zeros": "an import that makes the file longer keeps no zeros for longer snapshots",
                ImportKeepsNotDurable "import-keeps-not-durable": "what an import keeps is not durable before its records",
                ImportRecordsNotDurable "import-records-not-durable": "the records of an import are not durable before its table",
                ImportNotRemembered "import-not-remembered": "a page does not remember what an import has appended",
                ImportCutsUnkept "import-cuts-unkept": "an import keeps what a shorter length takes behind its commit point",
                ImportNotSaid "import-not-said": "the table of an import does not say that a rollback is under way",
            }
            "engine/snapshots/seen.rs" {
                SeenTakenForPresent "seen-taken-for-present": "an import does not read again what has changed beside it",
            }
            "recovery/snapshots.rs" {
                StoreInLargeFolios "store-in-large-folios": "the page cache may keep segments of a store and holes beside them in one folio",
                AnnouncedStoreRefused "announced-store-refused": "a store of an opening that died after its superblock is refused",
                ConfirmedStoreNotDurable "confirmed-store-not-durable": "a session begins before the store durably names it",
                OldStoreTaken "old-store-taken": "a store of snapshots from before the last session is believed",
                EmptyStoreRemovalNotSynced "empty-store-removal-not-synced": "the removal of an empty store is not durable before the next session",
                FoundStoreNotDurable "found-store-not-durable": "a found store is not made durable before it is stored to",
                BegunStoreNotDurable "begun-store-not-durable": "a session begins before its number is durable in the store",
                UnfinishedStoreStays "unfinished-store-stays": "an opening leaves a store that was being made",
                DeadSessionKeepsNothing "dead-session-keeps-nothing": "recovery makes a durable point and keeps nothing for snapshots",
                DeadKeepsNotDurable "dead-keeps-not-durable": "what recovery keeps is not durable before its durable point",
            }
            "engine/companions.rs" {
                StoreNotSynced "store-not-synced": "a new store gets its name before it is durable",
                StoreFolderNotSynced "store-folder-not-synced": "the name of a new store is not synced",
            }
            "engine/close.rs" {
                SpatialDropsSnapshots "spatial-drops-snapshots": "a spatial close removes the snapshots",
                CloseEndsUnsettled "close-ends-unsettled": "a close marks ends of records that are not durable",
                CloseEndsNotDurable "close-ends-not-durable": "a close counts ends that are not durable",
                ClosedStoreNotDurable "closed-store-not-durable": "the last table of a session is not durable before the close",
                EmptyStoreStays "empty-store-stays": "a close leaves a store without a snapshot",
            }
        }
    };
}

pub(super) use with_those_of_snapshots;
