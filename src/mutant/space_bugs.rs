//! The deliberate bugs of space that is given back, of its budget and of background deployment: the
//! file of each, its name, and what it breaks.
//!
//! Owns: a macro that adds them to the list of `bugs`. May import nothing from the crate.

macro_rules! with_those_of_space {
    ($list:ident; $($others:tt)*) => {
        $crate::mutant::stage_bugs::with_those_of_stages! { $list;
            $($others)*
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
