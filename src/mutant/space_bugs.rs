//! The deliberate bugs of space that is given back, of its budget, of background deployment, and of
//! what a journal is needed for: the file of each, its name, and what it breaks.
//!
//! Owns: a macro that adds them to the list of `bugs`. May import nothing from the crate.

macro_rules! with_those_of_space {
    ($list:ident; $($others:tt)*) => {
        $crate::mutant::stage_bugs::with_those_of_stages! { $list;
            $($others)*
            "recovery/byte_mark.rs" {
                ByteMarkNotRead "byte-mark-not-read": "a home file that is in use by its bytes opens alone",
                ByteMarkNotPut "byte-mark-not-put": "a new pair does not mark the bytes of its home file",
                LostByteMarkTaken "lost-byte-mark-taken": "companions are applied to a home file that another program has written over",
            }
            "engine/byte_mark.rs" {
                ByteMarkWithoutPoint "byte-mark-without-point": "a mark is stored to a slot that the last durable point counts",
                MarkWordNotDrained "mark-word-not-drained": "the state word of a mark is not drained",
                MarkWordOutlivesMark "mark-word-outlives-mark": "a shrink that cuts the mark off does not say so",
            }
            "recovery/make.rs" {
                ByteMarkWordMissing "byte-mark-word-missing": "a new pair does not say that the slice of its mark is in the reflection file",
            }
            "recovery/journal.rs" {
                HeaderNotCopied "header-not-copied": "a journal's header has no copy",
            }
            "recovery/overdue.rs" {
                LeftRecordNotDurable "left-record-not-durable": "an opening without space leaves a point of which the record is in the page cache",
                LeftWordsNotPublished "left-words-not-published": "an opening without space leaves the durable words of the point before",
                LeftPointNotSynced "left-point-not-synced": "an opening without space voids the records before the words that replace them are durable",
                LongerPointLeft "longer-point-left": "an opening without space leaves a point that has bytes behind the recovered end",
            }
            "engine/durable/sync.rs" {
                RecoveredNotChanged "recovered-not-changed": "a point after an opening without space leaves out what was recovered",
            }
            "recovery/probe.rs" {
                DeadNeedsJournal "dead-needs-journal": "a pair is refused after a process crash because its journal is damaged",
            }
            "engine/close.rs" {
                HomeNotTouched "home-not-touched": "a close leaves the time of the home file although its bytes have changed",
                RefusedNotEmptied "refused-not-emptied": "companions that a close may not remove go on counting",
                DropErrorForgotten "drop-error-forgotten": "no call tells of a drop that could not close the file",
            }
            "engine/turns.rs" {
                TurnNotHeeded "turn-not-heeded": "a transaction that has lost often goes on losing to small writes",
            }
            "api/transaction.rs" {
                LoadConflictNotCounted "load-conflict-not-counted": "a conflict that a load finds is not counted",
            }
            "engine/deploy/admission.rs" {
                BudgetWithoutQueue "budget-without-queue": "small operations take the room that a large one waits for",
            }
            "api/spool.rs" {
                GapKeepsAnothers "gap-keeps-anothers": "the frames of another stream stay, and each resumed transfer fails on them",
            }
            "pair/populate.rs" {
                PopulatedWithoutWords "populated-without-words": "an open that allocates the whole file leaves out the words",
            }
            "pair/allocated.rs" {
                PunchedStaysAhead "punched-stays-ahead": "a chunk that was allocated ahead counts as whole although pages of it were punched",
            }
            "pair/space.rs" {
                AheadOutlivesGrowth "ahead-outlives-growth": "a chunk that was allocated ahead counts as whole after a growth",
                WordsAheadNotAllocated "words-ahead-not-allocated": "words count as allocated with those of an earlier chunk, and are not",
            }
            "engine/resize/mod.rs" {
                GrowthNotPopulated "growth-not-populated": "a growth is not allocated although the whole file should be",
            }
            "engine/durable/group.rs" {
                FailureToldLate "failure-told-late": "a failed durable point at an interval is noted when the next one may be made",
            }
            "pair/budget.rs" {
                BudgetNotHeeded "budget-not-heeded": "an operation does not wait for room in the budget",
                AheadOfBudget "ahead-of-budget": "space is allocated ahead of need although the budget is tight",
            }
            "engine/deploy/admission.rs" {
                NotAdmitted "not-admitted": "operations reserve no room in the budget",
            }
            "engine/deploy/cold.rs" {
                SweepMakesPoint "sweep-makes-point": "background deployment makes a durable point with AtomicSync",
            }
            "engine/deploy/words.rs" {
                ZeroedByTwoStores "zeroed-by-two-stores": "the two words of a deployed page are zeroed without an undo record",
                ZeroedNotClosed "zeroed-not-closed": "the words of deployed pages change without a new version",
            }
            "engine/deploy/punch.rs" {
                PunchNotValidated "punch-not-validated": "pages are punched that have changed since the look without locks",
                PunchWordsNoWait "punch-words-no-wait": "words are punched without waiting for threads that load their region",
                PunchWordsInUse "punch-words-in-use": "the words of a chunk are punched while some are not zero",
                PunchWordsOfNextPoint "punch-words-of-next-point": "words are punched although the next durable point stores one of them",
                NamedWordsPunched "named-words-punched": "words are punched that a flip record would still write back",
            }
        }
    };
}

pub(super) use with_those_of_space;
