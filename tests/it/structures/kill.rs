//! Tests that acknowledged records and names survive SIGKILL, whole, and that no space is lost.
//!
//! A child appends to a log from two threads, truncates it, and makes and removes names. It
//! acknowledges each number in a file, after the call has returned. The test kills it at random
//! times, during opening as well. Then everything must be whole: each record has its bytes, all
//! acknowledged ones are there, and [`Roots::check`] finds every extent owned once.

use super::open;
use crate::common::{self, Ground, Rng, child, role};
use atomic_mmap::{Log, Roots};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Environment variable with the number of children that are killed on each medium. Default: 20.
const ROUNDS_VARIABLE: &str = "ATOMIC_MMAP_TEST_ROUNDS";
const CHILD: &str = concat!(module_path!(), "::plays_the_child_that_is_killed_if_it_is_one");
/// Records with a higher number than this one minus the next one's may have been dropped.
const KEPT: u64 = 200;

/// Returns record `seq`. Its length and bytes follow from its number.
fn record(seq: u64) -> Vec<u8> {
    let mut rng = Rng(seq);
    let len = if rng.below(20) == 0 { rng.below(30_000) } else { rng.below(400) };
    rng.bytes(len as usize)
}

fn acknowledgements(path: &Path) -> PathBuf {
    path.with_extension("ack")
}

/// Returns the acknowledged numbers: the next record's, and the last change's of the names.
fn acknowledged(path: &Path) -> (u64, u64) {
    let bytes = std::fs::read(acknowledgements(path)).unwrap_or_default();
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let last = |kind: u64| {
        let of_kind = bytes.chunks_exact(16).filter(|part| word(&part[..8]) == kind);
        of_kind.map(|part| word(&part[8..])).max().unwrap_or(0)
    };
    (last(1), last(2))
}

fn acknowledge(mut file: &File, kind: u64, n: u64) {
    file.write_all([kind.to_le_bytes(), n.to_le_bytes()].as_flattened()).expect("acknowledge");
}

fn name_of(n: u64) -> String {
    format!("name {}", n % 40)
}

/// Checks everything. Returns the number of the next record, and of the last change of names.
fn check(roots: &Roots, path: &Path) -> (u64, u64) {
    let (next, changes) = acknowledged(path);
    roots.check().expect("all invariants hold");
    let log = roots.log("log").expect("the log");
    let range = log.range().expect("range");
    assert!(range.end >= next, "{next} records are acknowledged, and {range:?} are there");
    let mut expected = range.clone();
    for item in log.iter_from(0) {
        let (seq, bytes) = item.expect("a record");
        assert_eq!(Some(seq), expected.next());
        assert!(bytes == record(seq), "record {seq} is torn");
    }
    assert_eq!(expected.next(), None);
    assert!(range.start + KEPT >= next.min(range.end).saturating_sub(KEPT), "{range:?}");
    // The count goes up with every change of names, in one transaction with it.
    let count = roots.get_or_insert::<u64>("count").expect("count").load().expect("load");
    assert!(
        count == changes || count == changes + 1,
        "{count} changes, and {changes} acknowledged"
    );
    for name in roots.names().expect("names").iter().filter(|name| name.starts_with("name")) {
        let array = roots.get_array::<u64>(name).expect("an array").expect("an array");
        let mut values = vec![0; array.len() as usize];
        array.get_many(0, &mut values).expect("read");
        let n = values.first().copied().unwrap_or(count);
        assert!(values.iter().all(|value| *value == n) && n <= count, "{name} is torn");
    }
    (range.end, count)
}

fn append_and_truncate(log: &Log, acks: &File, mut next: u64) {
    let mut rng = Rng(next);
    loop {
        let count = 1 + rng.below(4);
        let records: Vec<Vec<u8>> = (next..next + count).map(record).collect();
        assert_eq!(log.append(&records).expect("append"), next);
        next += count;
        acknowledge(acks, 1, next);
        match rng.below(8) {
            // The records are written again, by one operation with the truncation.
            0 => {
                let from = next - rng.below(count + 1);
                let again: Vec<Vec<u8>> = (from..next).map(record).collect();
                let rewritten = log.file().transact(|tx| {
                    log.truncate_back_in(tx, from)?;
                    log.append_in(tx, &again)
                });
                assert_eq!(rewritten.expect("append"), from);
            }
            1 => log.truncate_front(next.saturating_sub(KEPT)).expect("truncate"),
            _ => {}
        }
    }
}

fn change_names(roots: &Roots, acks: &File, mut n: u64) {
    let at = roots.get_or_insert::<u64>("count").expect("count").offset();
    loop {
        n += 1;
        let name = name_of(n);
        roots
            .file()
            .transact(|tx| {
                tx.store(at, &n)?;
                if !roots.remove_in(tx, &name)? {
                    let values = vec![n; Rng(n).below(1500) as usize];
                    let count = values.len() as u64;
                    let offset = roots.get_or_insert_array_in::<u64>(tx, &name[..], count)?;
                    tx.store(offset, &values[..])?;
                }
                Ok::<_, atomic_mmap::Error>(())
            })
            .expect("a change of names");
        acknowledge(acks, 2, n);
    }
}

#[test]
fn plays_the_child_that_is_killed_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let medium = role.parse().expect("a medium");
    let ground = Ground { base: path.parent().expect("a folder").to_owned(), medium };
    let acks = OpenOptions::new().create(true).append(true).open(acknowledgements(&path));
    let acks = acks.expect("a file for acknowledgements");
    let roots = open(&ground, &path);
    let (next, changes) = check(&roots, &path);
    // The next crash must not take back what this session has read.
    acknowledge(&acks, 1, next);
    acknowledge(&acks, 2, changes);
    acknowledge(&acks, 3, 0);
    let log = roots.log("log").expect("the log");
    std::thread::scope(|scope| {
        scope.spawn(|| append_and_truncate(&log, &acks, next));
        scope.spawn(|| change_names(&roots, &acks, changes));
    });
}

fn kill_a_child(path: &Path, medium: atomic_mmap::Medium, round: u64, rng: &mut Rng) {
    let mut victim = child(CHILD, &medium.to_string(), path)
        .stdout(std::process::Stdio::null())
        .stderr(File::create(path.with_extension("err")).expect("a file for messages"))
        .spawn()
        .expect("start a child");
    let len = || std::fs::metadata(acknowledgements(path)).map_or(0, |stat| stat.len());
    let before = len();
    let patience = Instant::now() + common::HANGS;
    // In every fourth round the child may be killed while it opens the file.
    while round % 4 != 3 && len() < before + 64 * 16 {
        assert!(victim.try_wait().expect("look at the child").is_none(), "the child has ended");
        assert!(Instant::now() < patience, "the child hangs");
        std::thread::sleep(Duration::from_micros(200));
    }
    std::thread::sleep(Duration::from_micros(rng.below(20_000)));
    victim.kill().expect("kill the child");
    let status = victim.wait().expect("wait for the child");
    let messages = std::fs::read_to_string(path.with_extension("err")).unwrap_or_default();
    assert!(!messages.contains("panicked"), "{status}\n{messages}");
}

fn check_kills(ground: Option<Ground>, seed: u64) {
    let Some(ground) = ground else {
        eprintln!("not served here: skipped");
        return;
    };
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let mut rng = Rng(seed);
    let rounds = std::env::var(ROUNDS_VARIABLE).ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    for round in 0..rounds {
        kill_a_child(&path, ground.medium, round, &mut rng);
        // In every other round the next child recovers the file, and may be killed meanwhile.
        if round % 2 == 1 {
            let roots = open(&ground, &path);
            let (next, changes) = check(&roots, &path);
            let acks = OpenOptions::new().create(true).append(true).open(acknowledgements(&path));
            let acks = acks.expect("a file for acknowledgements");
            acknowledge(&acks, 1, next);
            acknowledge(&acks, 2, changes);
        }
    }
    let (next, changes) = acknowledged(&path);
    assert!(next > 0 && changes > 0, "nothing was tested");
}

#[test]
fn acknowledged_records_in_ram_survive_being_killed() {
    check_kills(Some(common::ram()), 1);
}

#[test]
fn acknowledged_records_on_page_cache_survive_being_killed() {
    check_kills(common::page_cache(), 2);
}

#[test]
fn acknowledged_records_on_persistent_memory_survive_being_killed() {
    check_kills(common::dax(), 3);
}
