//! Models of lanes: claims, read sections and gates.

use crate::format::entry::Sequence;
use crate::pair::gates::Gate;
use crate::pair::log::lanes::{LaneKeeper, Lanes, next_file_number};
use crate::primitive::explore::{Preemptions, holds, is_found, needs};
use crate::primitive::ordered::Missing;
use crate::primitive::{AtomicU64, Ordering};
use crate::units::{LaneIndex, PageIndex};
use ::loom::thread;
use std::sync::{Arc, Weak};

struct Keeper {
    lanes: Lanes,
    drained: AtomicU64,
}

impl LaneKeeper for Keeper {
    fn lanes(&self) -> &Lanes {
        &self.lanes
    }

    fn before_release(&self, _lane: LaneIndex) {
        self.drained.store(1, Ordering::Relaxed);
    }
}

fn new_keeper() -> (Arc<Keeper>, Weak<dyn LaneKeeper>) {
    let keeper = Arc::new(Keeper { lanes: Lanes::new(), drained: AtomicU64::new(0) });
    let weak: Weak<Keeper> = Arc::downgrade(&keeper);
    (keeper, weak)
}

/// Two threads compete for one private lane. Each record number of a lane is given out once, and
/// the second owner of the lane finds it drained.
fn two_threads_one_lane() {
    let (keeper, weak) = new_keeper();
    let file = next_file_number();
    let operate = {
        let (keeper, weak) = (Arc::clone(&keeper), weak);
        move || {
            let lane = keeper.lanes.mine(file, &weak);
            let number = lane.next_undo().bits();
            let is_second = number != Sequence::FIRST.bits();
            if lane.is_private() && is_second {
                assert_eq!(keeper.drained.load(Ordering::Relaxed), 1, "handed on undrained");
            }
            (lane.index(), number)
        }
    };
    let threads = [thread::spawn(operate.clone()), thread::spawn(operate)];
    let [first, second] = threads.map(|thread| thread.join().unwrap());
    assert_ne!(first, second, "one number for two entries");
}

#[test]
fn a_lane_belongs_to_one_thread_and_is_handed_on_drained() {
    holds("lane claim", Preemptions(3), two_threads_one_lane);
    let kinds = [Missing::Release, Missing::Acquire];
    needs("lane claim", &kinds, Preemptions(3), two_threads_one_lane);
}

#[derive(Clone, Copy, PartialEq)]
enum LeftOut {
    Nothing,
    Pin,
    Wait,
    /// Nothing is left out, and the read section is that of a fast-path read.
    NothingAtOnce,
}

const GONE: u64 = 9;

/// One thread loads a region and reads bytes, while another thread truncates them.
fn pin_against_cut(left_out: LeftOut) {
    let (keeper, weak) = new_keeper();
    let file = next_file_number();
    let len = Arc::new(AtomicU64::new(1));
    let bytes = Arc::new(AtomicU64::new(0));
    let loaded = Arc::new(AtomicU64::new(0));
    let reader = thread::spawn({
        let (keeper, len, bytes, loaded) =
            (Arc::clone(&keeper), Arc::clone(&len), Arc::clone(&bytes), Arc::clone(&loaded));
        move || {
            let lane = keeper.lanes.mine(file, &weak);
            let pins_at_once = left_out == LeftOut::NothingAtOnce;
            let _at_once = pins_at_once.then(|| lane.pin_fast());
            let _pinned = (left_out != LeftOut::Pin && !pins_at_once).then(|| lane.pin());
            let in_range = len.load(Ordering::Relaxed) == 1;
            if in_range {
                loaded.store(1, Ordering::Relaxed);
                assert_ne!(bytes.load(Ordering::Relaxed), GONE, "read truncated bytes");
            }
            in_range
        }
    });
    len.store(0, Ordering::Relaxed);
    if left_out != LeftOut::Wait {
        keeper.lanes.synchronize();
    }
    let sees_loaded = loaded.load(Ordering::Relaxed) == 1;
    bytes.store(GONE, Ordering::Relaxed);
    if reader.join().unwrap() {
        assert!(sees_loaded, "the truncating thread does not see a region that was loaded before");
    }
}

#[test]
fn truncate_waits_for_read_sections() {
    holds("lane pin", Preemptions(3), || pin_against_cut(LeftOut::Nothing));
    let kinds = [Missing::SeqCst, Missing::Release, Missing::Acquire];
    needs("lane pin", &kinds, Preemptions(3), || pin_against_cut(LeftOut::Nothing));
    holds("lane pin at once", Preemptions(3), || pin_against_cut(LeftOut::NothingAtOnce));
    needs("lane pin at once", &kinds, Preemptions(3), || pin_against_cut(LeftOut::NothingAtOnce));
    is_found("lane pin, not pinned", Preemptions(3), || pin_against_cut(LeftOut::Pin));
    is_found("lane pin, no wait", Preemptions(3), || pin_against_cut(LeftOut::Wait));
}

/// A lane's owner records one flip record over another, while another thread asks for the first
/// record's page.
fn record_of_an_entry() {
    let (keeper, _weak) = new_keeper();
    let index = LaneIndex(0);
    // Both numbers have the same place in the ring.
    let [first, second] = [2, 4].map(Sequence::from_bits);
    keeper.lanes[index].note(first, PageIndex(7), 71);
    let owner = thread::spawn({
        let keeper = Arc::clone(&keeper);
        move || keeper.lanes[index].note(second, PageIndex(8), 81)
    });
    for (page, said) in [(7, (first, 71)), (8, (second, 81))] {
        for entry in keeper.lanes[index].active(index, PageIndex(page)) {
            assert_eq!((entry.sequence, entry.slices), said);
        }
    }
    owner.join().unwrap();
}

/// An operation of two steps, beside a thread that must see a state with both or neither.
fn operation_against_cut(passes_the_gate: bool) {
    let (keeper, weak) = new_keeper();
    let file = next_file_number();
    let steps = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let operation = thread::spawn({
        let (keeper, steps) = (Arc::clone(&keeper), Arc::clone(&steps));
        move || {
            let lane = keeper.lanes.mine(file, &weak);
            let _inside = passes_the_gate.then(|| keeper.lanes.enter(Gate::Cut, &lane));
            steps[0].store(1, Ordering::Relaxed);
            steps[1].store(1, Ordering::Relaxed);
        }
    });
    {
        let _shut = keeper.lanes.close(Gate::Cut);
        let [first, second] = [0, 1].map(|n: usize| steps[n].load(Ordering::Relaxed));
        assert_eq!(first, second, "the cut goes through an operation");
    }
    operation.join().unwrap();
    // The gate is open again, so later operations enter it.
    assert_eq!(steps[1].load(Ordering::Relaxed), 1);
}

#[test]
fn a_cut_is_taken_while_no_thread_is_inside_the_gate() {
    holds("gate", Preemptions(3), || operation_against_cut(true));
    needs("gate", &[Missing::Release, Missing::Acquire], Preemptions(3), || {
        operation_against_cut(true);
    });
    is_found("gate, not passed", Preemptions(3), || operation_against_cut(false));
}

#[test]
fn a_record_is_never_seen_with_another_records_slices() {
    let kinds = [Missing::Release, Missing::Acquire, Missing::ReleaseFence, Missing::AcquireFence];
    holds("entry record", Preemptions(3), record_of_an_entry);
    needs("entry record", &kinds, Preemptions(3), record_of_an_entry);
}
