//! Tests of `durable`.

use crate::engine::durable::group::Leader;
use crate::engine::durable::point::CutGate;
use crate::format::layout;
use crate::units::PageIndex;
use crate::{AtomicMappedFile, Medium};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::task::{Context, Poll};

fn pair() -> (tempfile::TempDir, AtomicMappedFile) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = AtomicMappedFile::options().create(true).len(1 << 20).medium(Medium::PageCache);
    let file = options.open(folder.path().join("state.dat")).expect("a pair");
    file.write_at(&[1; 100], 50).expect("a write");
    (folder, file)
}

/// Longer than any step takes here, even on a loaded machine.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(600);

/// A panic of the leader must end its turn. Otherwise the threads that wait for that turn wait
/// for ever.
#[test]
fn no_thread_waits_for_a_leader_that_has_panicked() {
    let (_folder, file) = pair();
    let clone = || file.try_clone().expect("a handle");
    let (leaders, followers) = (clone(), clone());
    let (say, said) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let leader = std::thread::spawn(move || {
        let durable = leaders.engine().durable.as_ref().expect("points are kept");
        durable.turns.lock().begun += 1;
        let _lead = Leader { durable, has_ended: false };
        say.send(()).expect("the test waits");
        wait.recv().expect("the test lets it go");
        panic!("as planned");
    });
    said.recv().expect("the leader has begun");
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let engine = followers.engine();
        let durable = engine.durable.as_ref().expect("points are kept");
        let _is_heard = tell.send(engine.durable_point(durable).is_ok());
    });
    go.send(()).expect("the leader waits");
    assert!(leader.join().is_err());
    assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "it leads itself now");
}

/// More threads than lanes call `sync`. If those that wait for another thread's point kept
/// their shared lanes, the remaining threads would have to poll for one.
#[test]
fn a_thread_that_waits_for_a_point_keeps_no_lane() {
    let (_folder, file) = pair();
    let of = |file: &AtomicMappedFile| file.try_clone().expect("a handle");
    let points = file.engine().durable.as_ref().expect("points are kept");
    points.turns.lock().begun += 1;
    let lead = Leader { durable: points, has_ended: false };
    let (say, said) = std::sync::mpsc::channel();
    let followers: Vec<_> = (0..layout::LANE_COUNT + 8)
        .map(|_| {
            let (file, say) = (of(&file), say.clone());
            std::thread::spawn(move || {
                say.send(()).expect("the test waits");
                file.sync().expect("a point");
            })
        })
        .collect();
    (0..followers.len()).for_each(|_| said.recv().expect("a thread begins"));
    // Give the threads time to reach the point, which is not being made yet.
    std::thread::sleep(std::time::Duration::from_millis(100));
    let (tell, told) = std::sync::mpsc::channel();
    let writer = of(&file);
    std::thread::spawn(move || {
        let _is_heard = tell.send(writer.write_at(&[3; 10], 9000).is_ok());
    });
    assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "a writer finds a lane");
    drop(lead);
    followers.into_iter().for_each(|thread| thread.join().expect("no panic"));
}

/// A writer that waits for a page in a cut must be parked without a lane. It must not poll with
/// a lane held.
#[test]
fn a_writer_of_a_page_in_a_cut_is_parked_until_the_point_is_made() {
    let (_folder, file) = pair();
    let points = file.engine().durable.as_ref().expect("points are kept");
    assert!(!file.engine().wait_for_point(), "none is being made");
    points.turns.lock().begun += 1;
    let lead = Leader { durable: points, has_ended: false };
    let writer = file.try_clone().expect("a handle");
    let cut = file.engine().take_cut(points, CutGate::Open);
    assert!(file.engine().is_in_cut(PageIndex(0)) && !file.engine().is_in_cut(PageIndex(1)));
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _is_heard = tell.send(writer.write_at(&[3; 10], 0).is_ok());
    });
    let early = told.recv_timeout(std::time::Duration::from_millis(50));
    assert!(early.is_err(), "the page is locked");
    cut.end();
    drop(lead);
    assert_eq!(told.recv_timeout(PATIENCE), Ok(true), "it is woken");
}

/// A writer that waited for a page of the cut must not store in place after a panic. The point
/// may cover the bytes that it would overwrite.
#[test]
fn a_panic_in_the_middle_of_a_point_is_an_error_for_waiting_writers() {
    let (_folder, file) = pair();
    let (leaders, writers) =
        (file.try_clone().expect("a handle"), file.try_clone().expect("a handle"));
    let (say, said) = std::sync::mpsc::channel();
    let (go, wait) = std::sync::mpsc::channel::<()>();
    let leader = std::thread::spawn(move || {
        let engine = leaders.engine();
        let _cut =
            engine.take_cut(engine.durable.as_ref().expect("points are kept"), CutGate::Open);
        say.send(()).expect("the test waits");
        wait.recv().expect("the test lets it go");
        panic!("as planned");
    });
    said.recv().expect("it has its pages");
    let writer = std::thread::spawn(move || writers.write_at(&[2; 100], 50));
    // Give the writer time to reach the lock.
    std::thread::sleep(std::time::Duration::from_millis(50));
    go.send(()).expect("the leader waits");
    assert!(leader.join().is_err());
    assert!(writer.join().expect("no panic").is_err(), "it is unknown what is durable");
    assert!(file.sync().is_err() && file.write_at(&[2], 0).is_err(), "for good");
}

/// A writer that takes its number while a point is being made must not get that point's number:
/// the cut may have been taken before the write.
#[test]
fn the_next_number_is_not_that_of_a_point_that_is_being_made() {
    let (_folder, file) = pair();
    assert_eq!((file.durable_number(), file.next_durable_number()), (0, 1));
    let points = file.engine().durable.as_ref().expect("points are kept");
    points.turns.lock().begun += 1;
    let mut lead = Leader { durable: points, has_ended: false };
    assert_eq!(file.next_durable_number(), 2);
    lead.end(true);
    assert_eq!((file.durable_number(), file.next_durable_number()), (1, 2));
    assert_eq!(file.wait_durable(1).expect("it is made"), 1);
    assert_eq!(file.durable_number(), 1, "no further point was made");
    assert_eq!(file.wait_durable(u64::MAX).expect("a point"), 2, "not for ever");
    assert_eq!(file.sync().expect("a point"), 3);
}

/// A point that follows the failed one must find that noted, so that its success takes it back.
#[cfg(feature = "recorder")]
#[test]
fn a_failed_point_at_an_interval_is_noted_before_another_one_can_be_made() {
    use crate::platform::{call, recorder::Recorder};
    let (folder, recorder) = (tempfile::tempdir().expect("a folder"), Recorder::new());
    let options = AtomicMappedFile::options().create(true).len(4000 * 4096);
    let options = options.journal_len(64 << 10).medium(Medium::PageCache);
    let file = options.open_recorded(&recorder, folder.path().join("state.dat")).expect("a pair");
    for fill in [1, 2] {
        file.write_at(&vec![fill; 4000 * 4096], 0).expect("a write");
        file.sync().expect("a point");
    }
    // A point of all these pages needs a longer journal, which the full disk refuses.
    (0..4000).for_each(|n| file.store(n * 4096 + n % 64 * 64, &n).expect("a store"));
    recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
    let engine = file.engine();
    let points = engine.durable.as_ref().expect("points are kept");
    std::thread::scope(|scope| {
        let resizing = engine.resizing.write();
        let begun = points.turns.lock().begun;
        let worker = scope.spawn(|| engine.sync_at_interval());
        wait_until(|| points.turns.lock().begun > begun);
        // From here on its turn cannot end.
        let turns = points.turns.lock();
        drop(resizing);
        wait_until(|| points.is_overdue());
        drop(turns);
        worker.join().expect("no panic");
    });
    assert!(file.write_at(&[3], 0).is_err() && points.why_overdue().is_some());
    assert!(!recorder.heal(), "it came up");
    file.sync().expect("a point");
    file.write_at(&[3], 0).expect("the point was made");
    assert_eq!(points.why_overdue(), None);
}

#[cfg(feature = "recorder")]
#[track_caller]
fn wait_until(done: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !done() {
        assert!(begin.elapsed() < std::time::Duration::from_secs(30), "it never happens");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

/// Waits for durability in threads of their own. They tell their results, with the number of the
/// last durable point at that moment.
fn flush_in_threads(file: &AtomicMappedFile, count: usize) -> Receiver<(crate::Result<u64>, u64)> {
    let (tell, told) = channel();
    for _ in 0..count {
        let (file, tell) = (file.try_clone().expect("a handle"), tell.clone());
        std::thread::spawn(move || {
            let result = pollster::block_on(file.flush_async());
            let _is_heard = tell.send((result, file.durable_number()));
        });
    }
    told
}

/// A waker that counts.
#[derive(Default)]
struct Wakes(std::sync::atomic::AtomicUsize);

impl std::task::Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    }
}

#[test]
fn a_future_is_resolved_by_a_point_that_holds_its_writes() {
    let (_folder, file) = pair();
    let points = file.engine().durable.as_ref().expect("points are kept");
    points.turns.lock().begun += 1;
    let lead = Leader { durable: points, has_ended: false };
    let told = flush_in_threads(&file, 3);
    let early = told.recv_timeout(std::time::Duration::from_millis(50));
    assert!(early.is_err(), "another point is being made, which may lack the writes");
    drop(lead);
    for _ in 0..3 {
        let (number, made) = told.recv_timeout(PATIENCE).expect("a result");
        assert!(number.expect("a point") >= 2 && made >= 2);
    }
}

/// The thread that serves the futures has died. Neither the futures that it left nor those that
/// come later may wait for ever.
#[test]
fn a_panic_of_the_worker_is_an_error_for_waiting_futures() {
    let (_folder, file) = pair();
    let points = file.engine().durable.as_ref().expect("points are kept");
    points.turns.lock().begun += 1;
    let lead = Leader { durable: points, has_ended: false };
    let wakes: [Arc<Wakes>; 2] = Default::default();
    let poll = |future: &mut crate::Flush<'_>, wakes: &Arc<Wakes>| {
        let waker = Arc::clone(wakes).into();
        std::pin::Pin::new(future).poll(&mut Context::from_waker(&waker))
    };
    let (mut first, mut second) = (file.flush_async(), file.flush_async());
    assert!(poll(&mut first, &wakes[0]).is_pending());
    while !points.waiters.lock().is_empty() {
        std::thread::yield_now();
    }
    // The worker has the first future in hand, and waits for the turn.
    assert!(poll(&mut second, &wakes[1]).is_pending());
    assert_eq!(points.waiters.lock().len(), 1);
    file.engine().poison_by_panic();
    assert_eq!(wakes[1].0.load(std::sync::atomic::Ordering::SeqCst), 1, "it is told");
    let result = poll(&mut second, &wakes[1]);
    assert!(matches!(result, Poll::Ready(Err(crate::Error::Poisoned { .. }))), "{result:?}");
    assert!(pollster::block_on(file.flush_async()).is_err(), "a later one is told at once");
    drop(lead);
    assert!(pollster::block_on(first).is_err(), "the point was not made");
}
