//! Tests of the index in `examples/index`: it does what a map does, and keeps acknowledged keys
//! when it is killed, also while it grows.

#[path = "../../examples/index/index.rs"]
mod example;

use crate::common::{self, Ground, Rng, child, role};
use atomic_mmap::CloseMode;
use example::Index;
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const CHILD: &str = concat!(module_path!(), "::plays_the_child_that_is_killed_if_it_is_one");
/// Number of keys of the index that is killed: it grows four times.
const KEYS: u64 = 3000;
/// Most keys that one child inserts, however late the kill comes.
const MOST: u64 = 1000;

fn open(ground: &Ground, path: &Path) -> Index {
    let file = ground.options().create(true).open(path).expect("open");
    Index::open(file).expect("an index")
}

#[test]
fn an_index_does_what_a_map_does() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("index");
    let mut rng = Rng(1);
    let mut map = HashMap::new();
    for _ in 0..4 {
        let mut index = open(&ground, &path);
        for _ in 0..2000 {
            let (key, value) = (1 + rng.below(6000), rng.number());
            index.insert(key, value).expect("insert");
            map.insert(key, value);
        }
        assert_eq!(index.len().expect("len"), map.len() as u64);
        for key in 0..=6001 {
            assert_eq!(index.get(key).expect("get"), map.get(&key).copied(), "{key}");
        }
        let file = index.file().try_clone().expect("a handle");
        drop(index);
        file.close(CloseMode::Fast).expect("close");
    }
}

/// Each acknowledged key is a byte of this file.
fn acknowledgements(path: &Path) -> PathBuf {
    path.with_extension("ack")
}

fn acknowledged(path: &Path) -> u64 {
    std::fs::metadata(acknowledgements(path)).map_or(0, |stat| stat.len())
}

#[test]
fn plays_the_child_that_is_killed_if_it_is_one() {
    let Some((role, path)) = role() else { return };
    let medium = role.parse().expect("a medium");
    let ground = Ground { base: path.parent().expect("a folder").to_owned(), medium };
    let mut index = open(&ground, &path);
    let acks = OpenOptions::new().create(true).append(true).open(acknowledgements(&path));
    let mut acks = acks.expect("a file for acknowledgements");
    let first = acknowledged(&path) + 1;
    for key in first..(first + MOST).min(KEYS + 1) {
        index.insert(key, key * key).expect("insert");
        acks.write_all(&[0]).expect("acknowledge");
    }
    // The parent kills it, whatever it does.
    loop {
        std::thread::park();
    }
}

#[test]
fn acknowledged_keys_survive_being_killed() {
    for ground in common::media() {
        let scratch = ground.scratch();
        let path = scratch.file("index");
        let mut rng = Rng(2);
        let mut kills = 0;
        while acknowledged(&path) < KEYS {
            let before = acknowledged(&path);
            let mut victim = child(CHILD, &ground.medium.to_string(), &path);
            let victim = victim.stdout(std::process::Stdio::null()).spawn();
            let mut victim = victim.expect("start a child");
            let patience = Instant::now() + common::HANGS;
            let some = (before + 1 + rng.below(600)).min(KEYS);
            while acknowledged(&path) < some {
                assert!(victim.try_wait().expect("a child").is_none(), "the child has ended");
                assert!(Instant::now() < patience, "the child hangs");
                std::thread::sleep(Duration::from_micros(100));
            }
            victim.kill().expect("kill the child");
            victim.wait().expect("wait for the child");
            kills += 1;
            let index = open(&ground, &path);
            let (keys, told) = (index.len().expect("len"), acknowledged(&path));
            assert!(keys == told || keys == told + 1, "{keys} keys, {told} acknowledged");
            for key in 1..=keys {
                assert_eq!(index.get(key).expect("get"), Some(key * key));
            }
        }
        assert!(kills > 1, "nothing was tested");
    }
}
