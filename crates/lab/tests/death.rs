//! Small runs of the parts that kill processes: they pass, and they find planted bugs.
//!
//! A binary of its own, with one test at a time. The tests fork children, and no other thread may
//! hold a lock at a fork.
#![cfg(target_os = "linux")]

use lab::death::kinds::{PLANTED, Planted};
use lab::death::process::{Deadline, End, ask, exit, fork};
use lab::death::writer::FAULTS;
use lab::death::{grounds, numbered, timed};
use lab::part::Settings;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const SETTINGS: Settings = Settings { seed: 1, quick: true, seconds: None, tenth: None };

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn assert_clean(violations: Vec<String>) {
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn a_child_answers_or_it_is_said_how_it_died() {
    let _alone = alone();
    let patience = Duration::from_secs(60);
    assert_eq!(ask(patience, || "yes".to_owned()), Ok("yes".to_owned()));
    let died = ask(patience, || exit(3)).expect_err("it says nothing");
    assert!(died.contains("Exited(3)"), "{died}");
    let died = ask(patience, || panic!("because")).expect_err("it panics");
    assert!(died.contains("because"), "{died}");
    let hangs = ask(Duration::from_millis(20), || {
        std::thread::sleep(Duration::from_secs(60));
        String::new()
    });
    assert!(hangs.expect_err("it sleeps").contains("hangs"));
}

#[test]
fn the_timer_kills() {
    let _alone = alone();
    let child = fork(|| {
        Deadline::new().expect("a timer").set(Duration::from_micros(200));
        std::thread::sleep(Duration::from_secs(60));
        0
    });
    assert_eq!(child.expect("a child").wait(), End::Killed(libc::SIGKILL));
}

#[test]
fn kills_find_nothing_but_what_is_planted() {
    let _alone = alone();
    assert_clean(timed::quick_check(&SETTINGS, 24));
    // The part runs all of them. Here are the ones that show soonest.
    for fault in &FAULTS[..2] {
        assert!(timed::finds(&SETTINGS, *fault), "{fault:?}");
    }
}

#[test]
fn kills_of_files_with_durable_points_find_nothing() {
    let _alone = alone();
    assert_clean(timed::quick_check_of_points(&SETTINGS, 60));
}

#[test]
fn numbered_events_find_nothing_but_what_is_planted() {
    let _alone = alone();
    assert_clean(numbered::quick_check(&SETTINGS, "logged flip over slices", 4));
    assert_clean(numbered::quick_check(&SETTINGS, "undo entry over regions", 4));
    let ground = &grounds().expect("a file system")[0];
    for planted in PLANTED.into_iter().chain([Planted::Unkept, Planted::Unsummed]) {
        assert!(numbered::finds(&SETTINGS, ground, planted), "{planted:?}");
    }
}

#[test]
fn numbered_events_in_place_find_nothing() {
    let _alone = alone();
    for name in ["in place over slices", "in place, synced", "in place in 90 pages"] {
        assert_clean(numbered::quick_check_of_points(&SETTINGS, name, 8));
    }
    for name in ["sync by journal", "a sync of all or nothing"] {
        assert_clean(numbered::quick_check_of_points(&SETTINGS, name, 4));
    }
}

#[test]
fn numbered_events_of_files_with_snapshots_and_sums_find_nothing() {
    let _alone = alone();
    for name in ["keep in a slice", "roll back and seal", "drop the oldest", "cut a page"] {
        assert_clean(numbered::quick_check(&SETTINGS, name, 4));
    }
    for name in ["sums by journal", "a seal of a point"] {
        assert_clean(numbered::quick_check_of_points(&SETTINGS, name, 4));
    }
}

#[cfg(target_arch = "x86_64")]
#[test]
fn single_steps_find_nothing_but_what_is_planted() {
    use lab::death::stepped;
    let _alone = alone();
    match stepped::quick_check(&SETTINGS, "logged flip over slices") {
        Ok(violations) => assert_clean(violations),
        Err(why) => return eprintln!("skipped: {why}"),
    }
    let ground = &grounds().expect("a file system")[0];
    let mut rng = SETTINGS.rng("steps");
    for planted in PLANTED {
        assert!(stepped::finds(ground, planted, &mut rng), "{planted:?}");
    }
}
