//! The deliberate bugs of page sums: the file of each, its name, and what it breaks.
//!
//! Owns: a macro that adds them to the list of `bugs`. May import `space_bugs`.

macro_rules! with_those_of_sums {
    ($list:ident; $($others:tt)*) => {
        $crate::mutant::space_bugs::with_those_of_space! { $list;
            $($others)*
            "pair/sums.rs" {
                StaleSumStreamed "stale-sum-streamed": "a sum that replaces a stale one is stored past the cache, without a drain",
                SumOverDurable "sum-over-durable": "a new sum goes over that of the last durable point",
                CoveredSumNotFlushed "covered-sum-not-flushed": "the sums that flip records cover are not flushed with their words",
            }
            "format/state_word.rs" {
                StateWordNotChecked "state-word-not-checked": "a state word is believed whatever its check",
            }
            "engine/durable/point.rs" {
                NewestNotNoted "newest-not-noted": "the reflection file does not name the newest record",
            }
            "recovery/journal.rs" {
                NewestNotCompared "newest-not-compared": "a damaged newest record is taken for a torn one",
                GapInRecordsTaken "gap-in-records-taken": "a file goes back by the records behind a damaged one",
            }
            "recovery/keep.rs" {
                KeptUncompared "kept-uncompared": "an opening keeps for snapshots without a look at sums",
            }
            "recovery/make.rs" {
                BegunNotStored "begun-not-stored": "the begun word is not stored",
            }
            "recovery/probe.rs" {
                LaterSessionIgnored "later-session-ignored": "a superblock counts although a later session was begun",
            }
            "pair/log/records.rs" {
                RecordsConflictBySlice "records-conflict-by-slice": "a logged flip although a record of another lane has an older sum of the page",
            }
            "pair/space.rs" {
                SumsNotAllocated "sums-not-allocated": "the places of sums are stored to without being allocated",
            }
            "pair/snapshots/mod.rs" {
                AnySumTaken "any-sum-taken": "a page of a snapshot is compared with its sum at a later seal",
            }
            "pair/snapshots/collect.rs" {
                CopiedSumLost "copied-sum-lost": "a keep record that is copied loses the sum of its page",
            }
            "engine/keep.rs" {
                LaterSumKept "later-sum-kept": "keep records have the sum of a page that has changed since the seal",
                KeptWithoutSum "kept-without-sum": "keep records have no sums of their pages",
                KeptUnverified "kept-unverified": "a durable point keeps slices of a page that is damaged",
                CutKeptUnverified "cut-kept-unverified": "a shrink keeps slices of a page that is damaged",
            }
            "engine/verify.rs" {
                StaleSumsLeftByCrash "stale-sums-left-by-crash": "the first touch of a page leaves the sums of older states",
                DamageTakenForWhole "damage-taken-for-whole": "a page passes whatever its sum",
                NotVerifiedBeforeWrite "not-verified-before-write": "a write into a damaged page reckons a new sum",
                PresentSumKept "present-sum-kept": "a durable point keeps slices with the sum of the present",
                ReadVerifiesOnce "read-verifies-once": "reads verify a page only once",
            }
            "engine/sums.rs" {
                StaleSumsLeft "stale-sums-left": "a commit leaves sums of older states of its pages",
                StaleSumsLeftByPoint "stale-sums-left-by-point": "a durable point leaves the sum of the one before it",
                DurablePlaceTaken "durable-place-taken": "a commit replaces the sum of the last durable point",
                CutNotNoted "cut-not-noted": "a page that a shrink cuts is not in the next durable point",
                CutSumStays "cut-sum-stays": "a page that a shrink cuts keeps its sum",
                SumNotStored "sum-not-stored": "a new sum is not stored",
                SumNotInRecord "sum-not-in-record": "a flip record does not hold the page's sum",
                CoveredSumNotStored "covered-sum-not-stored": "the sum of a flip record is not stored after the commit",
                OlderSumsInRecords "older-sums-in-records": "flip records with older sums of a page stay active",
                AcceptedNotStored "accepted-not-stored": "an opening that finishes a rollback stores no sums of its pages",
                SumNotPublished "sum-not-published": "a new sum does not count after the commit",
                DurableSumNotPublished "durable-sum-not-published": "the sum of a durable point does not count",
            }
            "engine/write/range.rs" {
                SumsStoredFirst "sums-stored-first": "the sums of a write over pages are stored before it can fail",
            }
            "engine/commit/redo.rs" {
                RedoNoDrainAfterSums "redo-no-drain-after-sums": "no drain between the new sums and the redo record",
            }
            "engine/resize/mod.rs" {
                ShrinkSumNotDrained "shrink-sum-not-drained": "no drain between the sum of a page that is cut and the length",
            }
            "engine/resize/truncate.rs" {
                SumsNotZeroed "sums-not-zeroed": "the sums of pages past the end stay",
            }
            "engine/durable/point.rs" {
                RecordWithoutSums "record-without-sums": "a record of the journal has no sums",
            }
            "recovery/apply_log.rs" {
                RecordSumNotRestored "record-sum-not-restored": "recovery does not store the sum of a flip record",
            }
            "recovery/replay_journal.rs" {
                ReplayedSumsMissing "replayed-sums-missing": "a replay stores no sums",
            }
            "engine/snapshots/import.rs" {
                ReceivedWithoutSum "received-without-sum": "the records of an import have no sums of their pages",
                ImportCutsDamage "import-cuts-damage": "an import takes damaged pages away behind its commit point",
                ImportOverDamage "import-over-damage": "an import begins over pages that are damaged",
            }
            "engine/snapshots/repair.rs" {
                RepairedUnproven "repaired-unproven": "a repair takes a page of a snapshot that no sum proves",
                RepairedFromOldest "repaired-from-oldest": "a repair takes the oldest snapshot that has a page whole",
                RepairedUnderReader "repaired-under-reader": "a repair goes over slices that a newer snapshot reads",
                RepairKeepsNothing "repair-keeps-nothing": "a repair does not keep the slices that its snapshot reads",
                RepairedWhole "repaired-whole": "a repair replaces a page that another thread has replaced",
            }
            "engine/snapshots/read.rs" {
                SnapshotUnproven "snapshot-unproven": "a snapshot reads pages without a look at the sums of the seal",
                KeptDamageRolledBack "kept-damage-rolled-back": "a rollback brings back damaged bytes that were kept",
            }
            "engine/snapshots/rollback.rs" {
                DamageRolledBack "damage-rolled-back": "a rollback begins over pages that are damaged",
            }
            "recovery/sums.rs" {
                OldSumsStay "old-sums-stay": "sums that do not count stay when a file gets sums",
                FirstSumsMissing "first-sums-missing": "a file gets sums without those of its pages",
                FirstSumsNotSynced "first-sums-not-synced": "the first sums of a file are not durable before the superblock",
            }
        }
    };
}

pub(super) use with_those_of_sums;
