//! Tests that a seal takes one state while threads write, and that readers of a snapshot see it.
//!
//! Writers give two pages the same number in one operation, and count in further pages. Another
//! thread seals, reads, rolls back and drops. In each snapshot the two pages must agree, and no
//! page may be torn.
//!
//! ATOMIC_MMAP_TEST_SEALS sets the number of snapshots, and `lab/long` takes more. A sealing thread
//! waits long for threads that write without a pause, so there are few by default.

use crate::common::{Ground, media_in_memory};
use atomic_mmap::{AtomicMappedFile, Durability};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

const PAGE: u64 = 4096;
const LEN: u64 = 200 * PAGE;
const WRITERS: u64 = 3;

/// The pages that a writer gives the same number: far apart, and one with slices only.
fn pages(writer: u64) -> [u64; 3] {
    [writer * 10 * PAGE, (90 + writer) * PAGE, (150 + writer) * PAGE + 64 * writer]
}

fn write_number(file: &AtomicMappedFile, writer: u64, number: u64) {
    let page: Vec<u8> = number.to_le_bytes().repeat(512);
    let [first, second, third] = pages(writer);
    let parts = [(first, &page[..]), (second, &page[..]), (third, &page[..64])];
    file.write_many(&parts).expect("write");
    // Commits by a logged flip.
    file.write_at(&page[..128], (180 + writer) * PAGE).expect("write");
}

/// Checks what `read` returns for all writers. Returns their numbers.
fn check(read: impl Fn(&mut [u8], u64), what: &str) -> Vec<u64> {
    let number_at = |offset: u64, len: usize| {
        let mut bytes = vec![0; len];
        read(&mut bytes, offset);
        let first: [u8; 8] = bytes[..8].try_into().expect("8 bytes");
        assert!(bytes.chunks(8).all(|word| word == first), "{what}: torn at {offset}");
        u64::from_le_bytes(first)
    };
    let of_writer = |writer| {
        let [first, second, third] = pages(writer);
        let number = number_at(first, PAGE as usize);
        assert_eq!(number_at(second, PAGE as usize), number, "{what}: writer {writer}");
        assert_eq!(number_at(third, 64), number, "{what}: writer {writer}");
        let after = number_at((180 + writer) * PAGE, 128);
        assert!(after == number || after + 1 == number, "{what}: {after} after {number}");
        number
    };
    (0..WRITERS).map(of_writer).collect()
}

fn seals(default: u64) -> u64 {
    std::env::var("ATOMIC_MMAP_TEST_SEALS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

fn test_on(ground: &Ground, durability: Durability, rounds: u64) {
    let scratch = ground.scratch();
    let options = ground.options().create(true).len(LEN).durability(durability);
    let file = options.open(scratch.file("state.dat")).expect("open");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (file, is_over) = (&file, &is_over);
            scope.spawn(move || {
                for number in 1.. {
                    write_number(file, writer, number);
                    if number % 64 == writer {
                        let range = writer * 10 * PAGE..(writer * 10 + 8) * PAGE;
                        file.deploy(range).expect("deploy");
                    }
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        let (file, is_over) = (&file, &is_over);
        scope.spawn(move || {
            // A length that cuts no writer off.
            for n in 0.. {
                file.set_len(LEN + n % 7 * 3000).expect("a new length");
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let stop = Stop(is_over);
        for round in 0..rounds {
            let name = round.to_string();
            file.snapshot(&name).expect("seal");
            let snapshot = file.open_snapshot(&name).expect("open a snapshot");
            let read = |to: &mut [u8], at: u64| snapshot.read_at(to, at).expect("read");
            let first = check(read, &name);
            let whole = snapshot.view(0..snapshot.len()).expect("view");
            for _ in 0..10 {
                assert_eq!(check(read, &name), first, "the snapshot changes");
            }
            let by_view = |to: &mut [u8], at: u64| {
                let view = snapshot.view(at..at + to.len() as u64).expect("view");
                to.copy_from_slice(view.as_copy().expect("a copy"));
            };
            assert_eq!(check(by_view, &name), first, "a view differs");
            let by_array = |to: &mut [u8], at: u64| {
                let array = snapshot.array::<u8>(at, to.len() as u64).expect("an array");
                array.get_many(0, to).expect("read");
            };
            assert_eq!(check(by_array, &name), first, "an array differs");
            let by_whole = |to: &mut [u8], at: u64| whole.read_at(to, at).expect("read");
            assert_eq!(check(by_whole, &name), first, "the view changes");
            if let Some(oldest) = round.checked_sub(3) {
                let oldest = oldest.to_string();
                let snapshot = file.open_snapshot(&oldest).expect("open a snapshot");
                check(|to, at| snapshot.read_at(to, at).expect("read"), &oldest);
                drop(snapshot);
                file.drop_snapshot(&oldest).expect("drop");
            }
        }
        drop(stop);
    });
}

/// Ends the threads also after a panic.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_snapshot_is_one_state_beside_writers() {
    for ground in media_in_memory() {
        test_on(&ground, Durability::default(), seals(6));
    }
}

#[test]
fn a_snapshot_is_one_state_beside_writers_with_durable_points() {
    for ground in media_in_memory() {
        test_on(&ground, Durability::AtomicSync, seals(4));
    }
}

/// The first snapshot makes the writers enter the gate.
#[test]
fn the_first_snapshot_is_one_state() {
    for ground in media_in_memory() {
        (0..seals(6)).for_each(|_| test_on(&ground, Durability::default(), 1));
    }
}
