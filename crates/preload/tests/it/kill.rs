//! A program that is killed: each write call is there as a whole or not at all.
//!
//! The variable `ATOMIC_MMAP_PRELOAD_KILLS` sets the number of kills.

use crate::common::{Scratch, child, number_from};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

const KILLS: u64 = 20;
/// Bytes of a record. It begins at no multiple of a page.
const RECORD: usize = 10_000;
const RECORDS: u64 = 8;

fn record(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(RECORD / 8)
}

/// Plays the role: writes records until it is killed, half of them by appending. Says each number
/// once its write call has returned.
pub fn write(path: &Path, seed: u64) {
    let places = std::fs::OpenOptions::new().read(true).write(true).open(path).expect("open");
    let log = path.with_file_name("log.dat");
    let mut log = std::fs::OpenOptions::new().append(true).create(true).open(log).expect("open");
    for n in seed * 1_000_000 + 1.. {
        places.write_all_at(&record(n), 100 + n % RECORDS * RECORD as u64).expect("write");
        log.write_all(&record(n)).expect("append");
        println!(">{n}");
        std::io::stdout().flush().expect("flush");
    }
}

/// Returns the number of a record, which must be whole.
fn number_of(bytes: &[u8]) -> u64 {
    let n = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
    assert!(bytes == record(n), "a write call is there in part");
    n
}

#[test]
fn a_killed_program_leaves_whole_writes_and_all_that_have_returned() {
    let scratch = Scratch::new();
    let (path, log) = (scratch.path("x.dat"), scratch.path("log.dat"));
    let len = 100 + RECORDS as usize * RECORD;
    std::fs::write(&path, vec![0; len]).expect("write");
    let random = &mut fastrand::Rng::with_seed(7);
    let mut acknowledged = 0;
    for kill in 0..number_from("ATOMIC_MMAP_PRELOAD_KILLS", KILLS) {
        let mut writer = child(&scratch, "writer", &path, kill + 1);
        let mut writer = writer.stdout(Stdio::piped()).spawn().expect("start");
        let lines = BufReader::new(writer.stdout.take().expect("a pipe")).lines();
        // The harness may leave its own words at the beginning of the line.
        let mut lines = lines.map_while(Result::ok).filter_map(|line| {
            line.split_once('>').map(|(_, n)| n.parse::<u64>().expect("a number"))
        });
        let mut last = lines.next().expect("a first write");
        std::thread::sleep(Duration::from_micros(random.u64(..20_000)));
        writer.kill().expect("kill");
        last = lines.last().unwrap_or(last);
        writer.wait().expect("wait");
        assert!(!scratch.companions().is_empty(), "kill {kill}: the file was in use");
        // Programs recover what they open.
        let copied = |name: &str| scratch.run("cat", &[scratch.path(name).as_ref()]).stdout;
        let (places, appended) = (copied("x.dat"), copied("log.dat"));
        assert_eq!(places.len(), len);
        let newest = places[100..].chunks(RECORD).map(number_of).max().expect("records");
        assert!(
            newest == last || newest == last + 1,
            "kill {kill}: {last} is said, {newest} there"
        );
        assert_eq!(appended.len() % RECORD, 0, "kill {kill}: length and bytes are one operation");
        let end = number_of(&appended[appended.len() - RECORD..]);
        assert!(end == last || end == last + 1, "kill {kill}: {last} is said, {end} appended");
        acknowledged += last % 1_000_000;
        // A file without descriptors is plain: it can be renamed and removed by any program.
        scratch.shell("sh", "stat -c %s log.dat; mv x.dat y.dat; mv y.dat x.dat; rm log.dat");
        assert!(!log.exists());
        assert_eq!(scratch.companions(), [""; 0], "kill {kill}");
        assert_eq!(std::fs::read(&path).expect("read"), places, "kill {kill}");
    }
    assert!(acknowledged > 0, "the writers have done something");
}
