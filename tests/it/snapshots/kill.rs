//! Tests that snapshots survive SIGKILL.
//!
//! A child runs random operations, and appends a byte to a log after each. The parent kills it. The
//! file must hold the state after the operations that are in the log, or after one more: its bytes,
//! its length, and all of its snapshots. ATOMIC_MMAP_TEST_ROUNDS sets the number of children.

use super::model::{FIRST_LEN, Model, Op, check_all, run};
use crate::common::{self, Ground, Rng, child, media, role};
use atomic_mmap::AtomicMappedFile;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

const CHILD: &str = concat!(module_path!(), "::plays_the_child_that_is_killed_if_it_is_one");
const ROUNDS_VARIABLE: &str = "ATOMIC_MMAP_TEST_ROUNDS";

fn ground(role: &str) -> Ground {
    let of_role = |ground: &Ground| ground.medium.to_string() == role;
    media().into_iter().find(of_role).expect("a medium")
}

/// The random operations of the child with this number.
fn operations(number: u64) -> (Rng, Model) {
    (Rng(number), Model::new())
}

fn number_of(path: &Path) -> u64 {
    let name = path.file_name().and_then(|name| name.to_str()).expect("a name");
    name.parse().expect("a number")
}

#[test]
fn plays_the_child_that_is_killed_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let file = ground(&role).options().create(true).len(FIRST_LEN).open(&path).expect("open");
    let mut log = File::create(path.with_extension("log")).expect("a log");
    let (mut rng, mut model) = operations(number_of(&path));
    loop {
        let op = Op::random(&mut rng);
        run(Some(&file), &mut model, op, &mut rng);
        log.write_all(b".").expect("append");
    }
}

/// Compares a recovered file with what it may hold.
fn judge(path: &Path, file: &AtomicMappedFile, acknowledged: u64) {
    let (mut rng, mut model) = operations(number_of(path));
    for _ in 0..acknowledged {
        let op = Op::random(&mut rng);
        run(None, &mut model, op, &mut rng);
    }
    let before = model.clone();
    let op = Op::random(&mut rng);
    run(None, &mut model, op, &mut rng);
    let names = |model: &Model| model.sealed.keys().cloned().collect::<Vec<_>>();
    let mut found: Vec<String> = file.snapshots().into_iter().map(|info| info.name).collect();
    found.sort();
    let present = common::read_all(file);
    let is_before = found == names(&before) && present == before.present;
    println!(
        "{acknowledged} operations, then {op:?}: {}",
        if is_before { "absent" } else { "whole" }
    );
    check_all(file, if is_before { &before } else { &model });
}

fn kill_on(ground: &Ground, rounds: u64) {
    let scratch = ground.scratch();
    let mut rng = Rng(std::process::id().into());
    for _ in 0..rounds {
        let number = rng.number() >> 40;
        let path = scratch.file(&number.to_string());
        let log = path.with_extension("log");
        let mut child = child(CHILD, &ground.medium.to_string(), &path).spawn().expect("a child");
        let begun = Instant::now();
        let acknowledged = || fs::metadata(&log).map_or(0, |log| log.len());
        while acknowledged() == 0 && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(rng.below(120)));
        child.kill().and_then(|()| child.wait()).expect("a killed child");
        let count = acknowledged();
        assert!(count > 0, "the child did nothing");
        let options = ground.options();
        let file = options.clone().open(&path).expect("a killed file is recovered");
        judge(&path, &file, count);
        drop(file);
        let file = options.open(&path).expect("open again");
        judge(&path, &file, count);
    }
}

#[test]
fn snapshots_survive_a_kill() {
    let rounds = std::env::var(ROUNDS_VARIABLE).ok().and_then(|n| n.parse().ok()).unwrap_or(10);
    media().iter().for_each(|ground| kill_on(ground, rounds));
}
