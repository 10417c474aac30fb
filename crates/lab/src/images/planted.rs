//! Planted faults of the machine, each with a sequence of operations that needs the omitted step.
//!
//! Here the machine leaves steps out. The part `mutants` plants bugs in the engine itself.

use super::MODELS;
use super::explore::Explorer;
use super::kinds::{Kind, Player, Second};
use crate::machine::world::LeftOut;
use crate::part::Outcome;
use atomic_mmap::testing::layout;

const LANES: LeftOut = LeftOut::Streams(layout::LANES, layout::LOG_AREA);
const LOG: LeftOut = LeftOut::Streams(layout::LOG_AREA, layout::SUPERCHUNKS);
const SLICE_WORDS: LeftOut = LeftOut::Streams(layout::SUPERCHUNKS, layout::SUPERCHUNKS + (2 << 20));
const FLUSHED_WORDS: LeftOut =
    LeftOut::Flushes(layout::SUPERCHUNKS, layout::SUPERCHUNKS + (2 << 20));
const REGION_WORDS: LeftOut =
    LeftOut::Streams(layout::SUPERCHUNKS, layout::SUPERCHUNKS + layout::SUPERCHUNK_META);
const SLOTS: LeftOut = LeftOut::Streams(layout::SUPERCHUNKS + layout::SUPERCHUNK_META, u64::MAX);

/// The ring wraps around and overwrites the first flip record.
const ROUND: [Kind; 34] = {
    let mut kinds = [Kind::LoggedFlip; 34];
    kinds[0] = Kind::LoggedFlipElsewhere;
    kinds
};

/// The omitted step, and a sequence. If the flag is `true`, all operations of the sequence lack the
/// step, otherwise only the last one.
const FAULTS: &[(&str, LeftOut, &[Kind], bool)] = {
    use Kind::*;
    &[
        ("no drain at all, logged flip", LeftOut::Drains, &[LoggedFlip], false),
        ("no drain at all, flip", LeftOut::Drains, &[Flip], false),
        ("a logged flip's drain", LeftOut::Drain(1), &[LoggedFlip], false),
        ("the drain between data and word", LeftOut::Drain(1), &[Flip], false),
        ("the drain after the word", LeftOut::Drain(2), &[Flip], false),
        ("the same for a region word", LeftOut::Drain(2), &[Pages], false),
        ("the drain between undo record and words", LeftOut::Drain(1), &[OverPages], false),
        ("the drain between words and retiring", LeftOut::Drain(2), &[OverPages], false),
        ("the drain after retiring", LeftOut::Drain(3), &[OverRegions], false),
        ("the drain after a spilled record", LeftOut::Drain(1), &[Spilled], false),
        ("flip records wait for no drain", LANES, &[LoggedFlip], false),
        ("undo records wait for no drain", LANES, &[Transaction], false),
        ("spilled bytes wait for no drain", LOG, &[Spilled], false),
        ("slice words wait for no drain", SLICE_WORDS, &[Flip], false),
        ("region words wait for no drain", REGION_WORDS, &[Pages], false),
        ("slots wait for no drain", SLOTS, &[Flip], false),
        ("words that flip records cover are not flushed", FLUSHED_WORDS, &ROUND, true),
        ("nothing is synced at a spatial close", LeftOut::Syncs, &[Flip, Spatial], false),
        ("nothing is synced when the file grows", LeftOut::Syncs, &[Grow], false),
        ("nothing is synced when the store is made", LeftOut::Syncs, &[Seal], false),
        ("the drain after the table of a seal", LeftOut::Drain(1), &[Seal, Seal], false),
        ("the drain between what is kept and the word", LeftOut::Drain(1), &[Seal, Flip], false),
        ("no drain in a rollback", LeftOut::Drains, &[Seal, Flip, RollBack], false),
    ]
};

/// Plants each fault, and counts the ones that are noticed in at least one of the models.
pub fn run(outcome: &mut Outcome) {
    let second = Second::new();
    for (name, fault, kinds, from_the_start) in FAULTS {
        outcome.planted += 1;
        let noticed = MODELS.iter().any(|model| {
            let play = || {
                let mut player = Player::new(*model, super::new_device(), &second)?;
                for (n, kind) in kinds.iter().enumerate() {
                    let is_last = n + 1 == kinds.len();
                    if *from_the_start && n == 0 || !*from_the_start && is_last {
                        player.leave_out(*fault);
                    }
                    if is_last {
                        player.watch();
                    }
                    player.play(*kind)?;
                }
                let ranges = player.ranges.clone();
                Ok::<_, atomic_mmap::Error>((player.finish(), ranges))
            };
            let Ok((moments, ranges)) = play() else { return false };
            let mut explorer = Explorer::default();
            for moment in &moments {
                explorer.explore(moment, &ranges, 0, name);
            }
            !explorer.violations.is_empty()
        });
        if noticed {
            outcome.killed += 1;
        } else {
            outcome.violations.push(format!("planted and not noticed: {name}"));
        }
    }
}
