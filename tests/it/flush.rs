//! Tests of waiting for durability: numbers of durable points, and futures.

use crate::common::{self, Ground};
use crate::durable::restarted;
use atomic_mmap::testing::call;
use atomic_mmap::testing::recorder::Recorder;
use atomic_mmap::{AtomicMappedFile, CloseMode, Durability, Error};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

const PAGE: u64 = 4096;
const LEN: u64 = 100 * PAGE;

fn ground() -> Option<Ground> {
    let ground = common::page_cache();
    if ground.is_none() {
        eprintln!("no page cache here: skipped");
    }
    ground
}

fn new_file(ground: &Ground) -> (common::Scratch, AtomicMappedFile) {
    let scratch = ground.scratch();
    let file = ground.options().create(true).len(LEN).open(scratch.file("state.dat"));
    (scratch, file.expect("open"))
}

/// Returns how many durable points were made.
fn points(file: &AtomicMappedFile) -> u64 {
    let stats = file.stats();
    stats.journal_points + stats.flush_points
}

/// Writes that a future, or a wait for a number, called durable survive a restart of the machine.
#[test]
fn what_was_waited_for_survives_a_restart() {
    let Some(ground) = ground() else { return };
    let (_scratch, file) = new_file(&ground);
    let mut numbers = vec![file.durable_number()];
    for n in 1..=4_u64 {
        file.store(n * PAGE, &n).expect("store");
        let number = file.next_durable_number();
        assert!(number > file.durable_number());
        let flush = file.flush_async();
        assert_eq!(flush.number(), number);
        let made = match n {
            1 => file.wait_durable(number),
            2 => flush.wait(),
            3 => pollster::block_on(flush),
            _ => file.sync(),
        };
        numbers.push(made.expect("a durable point"));
        assert!(numbers[n as usize] >= number && file.durable_number() >= number);
        let at_restart = restarted(&ground, file.path()).open(&ground);
        for m in 1..=4 {
            assert_eq!(at_restart.load::<u64>(m * PAGE).expect("load"), if m <= n { m } else { 0 });
        }
    }
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
}

#[test]
fn a_number_that_is_durable_makes_no_further_point() {
    let Some(ground) = ground() else { return };
    let (_scratch, file) = new_file(&ground);
    file.store(0, &1_u64).expect("store");
    let flush = file.flush_async();
    let number = file.sync().expect("a point");
    file.store(0, &2_u64).expect("store");
    let before = points(&file);
    assert_eq!(file.wait_durable(number).expect("it is made"), number);
    assert_eq!(pollster::block_on(flush).expect("it is made"), number);
    assert_eq!((file.durable_number(), points(&file)), (number, before));
}

/// Many tasks wait, on one thread. They share durable points.
#[test]
fn futures_share_durable_points() {
    let Some(ground) = ground() else { return };
    let (_scratch, file) = new_file(&ground);
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting: Vec<_> = (0..LEN / PAGE)
        .map(|n| {
            file.store(n * PAGE, &n).expect("store");
            let mut flush = Box::pin(file.flush_async());
            let is_ready = flush.as_mut().poll(&mut context).is_ready();
            (flush, is_ready)
        })
        .collect();
    let most = waiting.iter().map(|(flush, _)| flush.number()).max().expect("some");
    assert!(file.wait_durable(most).expect("a point") >= most);
    for (flush, is_ready) in &mut waiting {
        if !*is_ready {
            assert!(pollster::block_on(flush.as_mut()).expect("a point") >= flush.number());
        }
    }
    assert!(points(&file) < LEN / PAGE + 2, "{:?}", file.stats());
}

/// Where every operation is as durable as it can be when it returns, nothing is waited for.
#[test]
fn without_durable_points_every_future_is_ready() {
    for ground in common::media_in_memory() {
        let (_scratch, file) = new_file(&ground);
        file.store(0, &1_u64).expect("store");
        assert_eq!((file.next_durable_number(), file.durable_number()), (0, 0));
        let mut flush = pin!(file.flush_async());
        let polled = flush.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(polled, Poll::Ready(Ok(0))), "{polled:?}");
        assert_eq!(file.wait_durable(u64::MAX).expect("nothing to wait for"), 0);
        assert_eq!(file.sync().expect("nothing to do"), 0);
    }
}

/// No point can be made, and the handle stays usable: each waiting task gets the error.
#[test]
fn a_failed_point_is_an_error_for_every_future_that_waits_for_it() {
    let Some(ground) = ground() else { return };
    let scratch = ground.scratch();
    let (pages, recorder) = (4_000, Recorder::new());
    let options = ground.options().create(true).len(pages * PAGE).journal_len(64 << 10);
    let file = options.open_recorded(&recorder, scratch.file("state.dat")).expect("open");
    for page in 0..pages {
        file.write_at(&[1; 64], page * PAGE + page % 64 * 64).expect("write");
    }
    // Each point needs a longer journal.
    recorder.fail_from(call::ALLOCATE, 1, libc::ENOSPC);
    std::thread::scope(|threads| {
        let flush = || pollster::block_on(file.flush_async());
        let tasks: Vec<_> = (0..4).map(|_| threads.spawn(flush)).collect();
        for result in tasks.into_iter().map(|task| task.join().expect("no panic")) {
            let error = result.expect_err("no point was made");
            assert!(matches!(error, Error::NoSpace { .. }), "{error:?}");
            assert!(error.to_string().contains(".journal"), "{error}");
        }
    });
    recorder.heal();
    pollster::block_on(file.flush_async()).expect("nothing was lost, and there is space");
}

/// A future that is dropped, or never polled, leaves nothing behind.
#[test]
fn a_dropped_future_is_forgotten() {
    let Some(ground) = ground() else { return };
    let (_scratch, file) = new_file(&ground);
    for _ in 0..100 {
        file.store(0, &1_u64).expect("store");
        drop(file.flush_async());
        let mut polled = Box::pin(file.flush_async());
        let _dropped = polled.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    }
    file.close(CloseMode::Spatial).expect("close");
}

/// With `AtomicSync` a process crash goes back to the last durable point, on every medium.
#[test]
fn numbers_count_on_every_medium_where_points_are_kept() {
    for ground in common::media_in_memory() {
        let scratch = ground.scratch();
        let options = ground.options().create(true).len(LEN).durability(Durability::AtomicSync);
        let file = options.open(scratch.file("state.dat")).expect("open");
        file.store(0, &1_u64).expect("store");
        let number = pollster::block_on(file.flush_async()).expect("a point");
        assert_eq!((number, file.durable_number()), (1, 1));
    }
}

/// A panic in a caller's `Waker` ended the worker, and poisoned the file with a text that named
/// neither.
#[test]
fn a_panic_of_a_waker_ends_there() {
    struct Panics;
    impl std::task::Wake for Panics {
        fn wake(self: std::sync::Arc<Self>) {
            panic!("a fault of the program's executor");
        }
    }
    let Some(ground) = ground() else { return };
    let (_scratch, file) = new_file(&ground);
    file.write_at(&[1; 64], 0).expect("write");
    let waker = Waker::from(std::sync::Arc::new(Panics));
    let mut flush = pin!(file.flush_async());
    while flush.as_mut().poll(&mut Context::from_waker(&waker)).is_pending() {
        std::thread::yield_now();
    }
    // The worker serves others.
    file.write_at(&[2; 64], 0).expect("write");
    let mut flush = pin!(file.flush_async());
    while flush.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        std::thread::yield_now();
    }
    file.health().expect("not poisoned");
}
