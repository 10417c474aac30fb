//! Tests of `deploy::admission` and of the turns in which the worker gives space back.

use super::fixture::{open, options};
use crate::engine::Engine;
use crate::format::layout;
use crate::pair::budget::Budget;
use crate::units::PAGE;
use crate::{AtomicMappedFile, Medium};
use std::path::Path;

/// The least budget, with the shortest journal.
const BUDGET: u64 = (4 << 20) + 2 * JOURNAL;
const JOURNAL: u64 = 64 << 10;

fn new_file(folder: &Path, medium: Medium) -> AtomicMappedFile {
    let options = options(32 << 20).medium(medium).journal_len(JOURNAL);
    open(folder, options.reflection_budget(0))
}

fn budget_of(engine: &Engine) -> &Budget {
    engine.budget.as_ref().expect("it was asked for")
}

/// An operation that queues though there is room waits for the worker, and each one behind it too.
#[test]
fn an_operation_that_arrives_waits_only_if_the_first_in_the_queue_would_lose_its_room() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), Medium::Ram);
    let (engine, budget) = (file.engine(), budget_of(file.engine()));
    let waits = budget.queue(BUDGET / 2);
    let page = PAGE as u64;
    let room = engine.take_room(budget, page, budget.kept_for_first());
    assert!(room.is_some(), "both have room");
    drop((waits, room));
    let _waits = budget.queue(BUDGET);
    assert!(engine.take_room(budget, page, budget.kept_for_first()).is_none());
    assert!(engine.take_room(budget, page, 0).is_some());
}

/// Storage that is counted at the next measurement alone is more than the budget until then.
#[test]
fn what_the_companions_have_is_counted_as_they_get_it() {
    for medium in [Medium::Ram, Medium::PageCache] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = new_file(folder.path(), medium);
        let (engine, budget) = (file.engine(), budget_of(file.engine()));
        let before = engine.companions_take(budget);
        engine.ensure_region_words(0).expect("storage");
        let with_words = engine.companions_take(budget);
        assert_eq!(with_words - before, layout::REGION_WORDS_LEN, "{medium:?}");
        let lane = engine.lane();
        assert!(!lane.is_allocated());
        engine.ensure_lane(&lane, lane.index()).expect("storage");
        engine.ensure_lane(&lane, lane.index()).expect("storage");
        let with_lane = engine.companions_take(budget);
        assert_eq!(with_lane - with_words, layout::LANE as u64, "{medium:?}");
        drop(lane);
        for n in 0..100 {
            file.write_at(&[1; 100], n * 8 * PAGE as u64).expect("a write");
            let Some(storage) = engine.reflection.storage() else { return };
            let counted = engine.companions_take(budget);
            assert!(storage <= counted, "{medium:?}: {storage} of {counted}, write {n}");
        }
    }
}

/// A turn that no operation waits for leaves the pages that are not cold. An operation that came
/// too late for it must not take more than the budget for that.
#[test]
fn only_a_turn_that_an_operation_has_waited_for_finds_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), Medium::Ram);
    let (engine, budget) = (file.engine(), budget_of(file.engine()));
    // Pages that a view pins are not deployed.
    let view = file.view(0..3 << 20).expect("a view");
    file.write_at(&vec![1; 3 << 20], 0).expect("a write");
    let place = budget.queue(1);
    let turn_finds_nothing = || {
        let seen = budget.turns();
        while !engine.give_back_batch() {}
        budget.wait(&place, true, seen)
    };
    for _ in 0..10 {
        assert!(!turn_finds_nothing());
    }
    // The worker's own turn may come between.
    while {
        budget.note_waiting(1);
        !turn_finds_nothing()
    } {}
    drop(view);
}
