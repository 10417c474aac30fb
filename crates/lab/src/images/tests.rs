//! Tests of the part, by a few short sequences.

use super::*;

/// Runs these sequences. Fails at a violation, and after fewer recoveries than `least`.
#[track_caller]
fn check(jobs: &[Job], least: u64) {
    let quiet = crate::quiet::Quiet::new();
    let settings = Settings { seed: 1, quick: true, seconds: None, tenth: None };
    let totals = check_all(&settings, jobs, 0, 0, None, &Progress::new("images"));
    drop(quiet);
    let violations = totals.violations.into_inner().unwrap();
    assert!(violations.is_empty(), "{violations:#?}");
    assert!(totals.recoveries.into_inner() > least);
}

/// Runs durable points in every sequence of one operation. Of those of two, and of three with a
/// sync, it runs one in 24. The lab runs all of them.
#[test]
fn a_loss_of_power_goes_back_to_the_last_sync() {
    let job = |kinds| job(kinds, 0, None);
    let kinds = kinds::ON_PAGE_CACHE;
    let mut jobs: Vec<Job> = kinds.iter().map(|kind| job(vec![*kind])).collect();
    let pairs = kinds.iter().flat_map(|first| kinds.iter().map(|last| (*first, *last)));
    for (n, (first, last)) in pairs.enumerate() {
        // Not the same ones of each row of pairs.
        match (n + n / kinds.len()) % 24 {
            0 => jobs.push(job(vec![first, last])),
            12 => jobs.push(job(vec![first, Kind::Sync, last])),
            _ => {}
        }
    }
    check(&jobs, 2_000);
}

/// Runs every sequence of one operation, one in five with crashes in recovery too, and one in 81 of
/// those of two operations. The lab runs all of them, with crashes in recovery.
#[test]
fn short_sequences_recover_from_every_image() {
    let mut jobs = Vec::new();
    for model in MODELS {
        for (len, depth, every) in [(1, 0, 1), (1, 1, 5), (2, 0, 81)] {
            let one = |kinds| job(kinds, depth, Some(model));
            // A spilled undo record has many images, and its recovery is slow without
            // optimization.
            let quick = all(len).filter(|k| !k.contains(&Kind::Spilled));
            jobs.extend(quick.step_by(every).map(one));
        }
    }
    jobs.extend(chosen(0));
    check(&jobs, 2_000);
}

/// Runs one in 14 of the first sequences with snapshots. The lab runs all of them.
#[test]
fn snapshots_recover_from_every_image() {
    let jobs: Vec<Job> = snapshots::first(0).into_iter().step_by(14).collect();
    check(&jobs, 1_000);
}

/// Runs one in 13 of the first sequences with stages, background deployment and a budget. The lab
/// runs all of them.
#[test]
fn stages_and_sweeps_recover_from_every_image() {
    let jobs: Vec<Job> = space::first(0).into_iter().step_by(13).collect();
    check(&jobs, 1_000);
}

#[test]
fn every_step_that_is_left_out_is_noticed() {
    let mut outcome = Outcome::of("images");
    let quiet = crate::quiet::Quiet::new();
    planted::run(&mut outcome);
    drop(quiet);
    assert_eq!((outcome.killed, &outcome.violations), (outcome.planted, &vec![]));
    assert!(outcome.planted >= 19);
}
