//! What if the file is cut off while a thread is between a look at its lane and the flush of what
//! its last redo entry stored? Threads of the simulated machine, held in that window.
//!
//! A redo entry's store in place is flushed by the lane's next operation: it looks at the lane's record,
//! and flushes the slots that it names, in one piece for each file. Here it names slots of both files, and
//! the thread is held before the first piece. If a shrink gets through meanwhile, the second piece
//! lies past the end of the file: `store` panics.

use atomic_mmap::AtomicMappedFile;
use lab::images::kinds::{HOME, open};
use lab::machine::Simulation;
use lab::machine::memory::{Model, PAGE};
use lab::machine::stops::Access;
use lab::machine::world::{World, be_thread};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

const WRITER: u64 = 1;
const SHRINKER: u64 = 2;
/// In a region that is cut off.
const CUT: u64 = 68 * PAGE;
/// The end of the region before: the writer goes on below it.
const SHORT: u64 = 64 * PAGE;

struct Window {
    machine: Arc<Simulation>,
    file: AtomicMappedFile,
}

impl Window {
    fn new(device: u64) -> Window {
        let mut world = World::new(Model::Chunk, device);
        world.make(Path::new(HOME), 70 * PAGE, &[]);
        let machine = Simulation::new(world);
        let file = open(&machine).expect("a pair");
        Window { machine, file }
    }

    fn thread(
        &self,
        n: u64,
        act: impl FnOnce(&AtomicMappedFile) + Send + 'static,
    ) -> JoinHandle<()> {
        let file = self.file.try_clone().expect("a handle");
        std::thread::spawn(move || {
            be_thread(n);
            act(&file);
        })
    }

    /// Writes so that its lane's record names slots of both files, and then, held before the flush of
    /// the first of them, something else.
    fn writer(&self, before_the_second: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let machine = self.machine.clone();
        self.thread(WRITER, move |file| {
            // A flip: these slices are in the reflection file now.
            file.write_at(&[1; 300], CUT + 64).expect("a flip");
            // A redo entry over a slice at home and one that is not.
            file.write_at(&[2; 100], CUT + 10).expect("a redo entry");
            before_the_second();
            machine.stops.arm(WRITER, Access::Flush);
            file.write_at(&[3; 8], 0).expect("a redo entry elsewhere");
        })
    }

    fn ends(self, threads: [JoinHandle<()>; 2]) {
        let joined = threads.map(JoinHandle::join);
        let len = self.file.len();
        self.machine.kill();
        for thread in joined {
            thread.expect("nobody reaches past the end of the file");
        }
        assert_eq!(len, SHORT);
    }
}

/// The thread is pinned from its look to its flush, and a shrink waits for who is pinned.
#[test]
fn nothing_is_cut_off_between_the_look_at_a_lane_and_the_flush() {
    let window = Window::new(2_000);
    let writer = window.writer(|| {});
    assert!(window.machine.stops.wait_for(WRITER));
    let machine = window.machine.clone();
    let shrinker = window.thread(SHRINKER, move |file| {
        file.set_len(SHORT).expect("a shrink");
        machine.stops.let_go(WRITER);
    });
    window.ends([writer, shrinker]);
}

/// The same if the thread looks at its lane after the shrink has waited for the first time, and before
/// it has cleared the lane's entries: it waits again before it cuts.
#[test]
fn nothing_is_cut_off_under_who_looked_at_its_lane_before_the_entries_were_cleared() {
    let window = Window::new(2_001);
    let (say, said) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel();
    let writer = window.writer(move || {
        say.send(()).expect("the test waits");
        wait.recv().expect("the test lets it go");
    });
    said.recv().expect("the writer is there");
    window.machine.stops.arm(SHRINKER, Access::CompareExchange);
    let machine = window.machine.clone();
    let shrinker = window.thread(SHRINKER, move |file| {
        file.set_len(SHORT).expect("a shrink");
        machine.stops.let_go(WRITER);
    });
    assert!(window.machine.stops.wait_for(SHRINKER));
    go.send(()).expect("the writer waits");
    assert!(window.machine.stops.wait_for(WRITER));
    window.machine.stops.let_go(SHRINKER);
    window.ends([writer, shrinker]);
}
