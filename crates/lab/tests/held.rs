//! A shrink while a thread flushes the words of its flip records. The simulated machine holds a
//! thread in that window.
//!
//! The operation that ends a batch flushes the words of the batch. It reads the lane's flip
//! records, and flushes the word of each page that they name. In these tests, all but the last
//! record name pages of a second superchunk. The thread is held before the first flush. If a shrink
//! succeeds meanwhile, the words of the second superchunk lie past the end of the reflection file,
//! and `store` panics.

use atomic_mmap::testing::layout;
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Medium};
use lab::images::kinds::HOME;
use lab::machine::Simulation;
use lab::machine::memory::{Model, PAGE};
use lab::machine::stops::{Access, PATIENCE};
use lab::machine::world::{World, be_thread};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

const WRITER: u64 = 1;
const OTHER: u64 = 2;
/// The end of the first superchunk. The writer continues below it.
const SHORT: u64 = 1 << 30;
/// An offset in a superchunk that is truncated.
const CUT: u64 = SHORT + 2 * PAGE;
const LEN: u64 = SHORT + 16 * PAGE;

struct Window {
    machine: Arc<Simulation>,
    file: AtomicMappedFile,
}

impl Window {
    fn new(device: u64) -> Window {
        let mut world = World::new(Model::Chunk, device);
        world.make(Path::new(HOME), LEN, &[]);
        let machine = Simulation::new(world);
        let file = AtomicMappedFile::options()
            .medium(Medium::Dax)
            .max_len(LEN)
            .deploy(DeployPolicy::Manual)
            .close_on_drop(CloseMode::Fast)
            .open_simulated(machine.clone(), HOME)
            .expect("a pair");
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

    /// Writes a batch of flip records for pages that are truncated later. Then writes once more,
    /// and is held before the flush of the first word.
    fn writer(&self, before_the_second: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        let machine = self.machine.clone();
        self.thread(WRITER, move |file| {
            for n in 0..layout::BATCH as u64 - 2 {
                // The words of two pages, in two lines.
                let at = CUT + n % 2 * 8 * PAGE + n * 64;
                file.write_at(&[1; 8], at).expect("a logged flip");
            }
            before_the_second();
            machine.stops.arm(WRITER, Access::FlushOfWord);
            file.write_at(&[3; 8], 0).expect("a logged flip elsewhere");
        })
    }

    fn ends(self, threads: [JoinHandle<()>; 2]) {
        let joined = threads.map(JoinHandle::join);
        let len = self.file.len();
        self.machine.kill();
        for thread in joined {
            thread.expect("no thread reaches past the end of the file");
        }
        assert_eq!(len, SHORT);
    }
}

/// A small write computes its flip record before it locks the page. Meanwhile, a flip of almost the
/// whole page moves the slice. It leaves out one byte, because no flip record covers that. The flip
/// holds the lock while it invalidates the page's older flip record.
#[test]
fn a_plan_computed_before_the_lock_is_checked_under_it() {
    let window = Window::new(2_003);
    let machine = window.machine.clone();
    let first = window.thread(WRITER, move |file| {
        file.write_at(&[1; 64], 0).expect("a logged flip");
        machine.stops.arm(WRITER, Access::CompareExchange);
        file.write_at(&[2; 4095], 0).expect("a flip");
    });
    assert!(window.machine.stops.wait_for(WRITER));
    let second = window.thread(OTHER, |file| {
        file.write_at(&[4; 64], 8 * PAGE).expect("a logged flip, which needs a lane");
        file.write_at(&[5; 64], 0).expect("a logged flip");
    });
    // Time to reach the lock, which the first thread holds.
    std::thread::sleep(PATIENCE / 4);
    window.machine.stops.let_go(WRITER);
    for thread in [first, second] {
        thread.join().expect("a write");
    }
    let mut found = [0; 64];
    window.file.read_at(&mut found, 0).expect("a read");
    window.machine.kill();
    assert_eq!(found, [5; 64], "the second write was lost");
}

/// Flip records of truncated pages are dropped, so their words are never flushed again.
#[test]
fn words_of_pages_that_were_cut_off_are_not_flushed() {
    let window = Window::new(2_002);
    let writer = window.thread(WRITER, |file| {
        file.write_at(&[1; 8], CUT).expect("a logged flip");
        file.set_len(SHORT).expect("a shrink");
        for n in 0..2 * layout::RING as u64 {
            file.write_at(&[2; 8], n * 64).expect("a logged flip elsewhere");
        }
    });
    let other = window.thread(OTHER, |_| {});
    window.ends([writer, other]);
}

/// The thread is in a read section from its read of the lane to its flush, and a shrink waits for
/// read sections.
#[test]
fn a_truncate_waits_for_a_flush_of_a_lanes_words() {
    let window = Window::new(2_000);
    let writer = window.writer(|| {});
    assert!(window.machine.stops.wait_for(WRITER));
    let machine = window.machine.clone();
    let shrinker = window.thread(OTHER, move |file| {
        file.set_len(SHORT).expect("a shrink");
        machine.stops.let_go(WRITER);
    });
    window.ends([writer, shrinker]);
}

/// The thread reads its lane after the shrink has waited once, and before the shrink has cleared
/// the lane's records. The shrink waits again before it truncates.
#[test]
fn a_truncate_waits_for_a_thread_that_has_read_its_lane_before_the_invalidation() {
    let window = Window::new(2_001);
    let (say, said) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel();
    let writer = window.writer(move || {
        say.send(()).expect("the test waits");
        wait.recv().expect("the test lets it go");
    });
    said.recv().expect("the writer is there");
    window.machine.stops.arm(OTHER, Access::CompareExchange);
    let machine = window.machine.clone();
    let shrinker = window.thread(OTHER, move |file| {
        file.set_len(SHORT).expect("a shrink");
        machine.stops.let_go(WRITER);
    });
    assert!(window.machine.stops.wait_for(OTHER));
    go.send(()).expect("the writer waits");
    assert!(window.machine.stops.wait_for(WRITER));
    window.machine.stops.let_go(OTHER);
    window.ends([writer, shrinker]);
}
