//! Overwrites random bytes of the files, and looks at what readers see.
//!
//! Each overwrite has 1 byte to 40 KiB of home file or reflection file. A read afterwards either
//! returns what was written, or fails. RMMIO tests its sums so (IV-D). `lab scribbles` does it
//! oftener.

use super::{LEN, PAGE, options};
use crate::common::{Ground, Rng, media};
use crate::durable::died;
use atomic_mmap::testing::layout;
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Integrity, OnMismatch};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Files that are overwritten once before an opening.
const CLOSED: u64 = 150;
/// Overwrites of a file in use.
const IN_USE: u64 = 4000;

/// Writes at random places. Returns the states of the file in between.
fn some_writes(file: &AtomicMappedFile, rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut states = Vec::new();
    for _ in 0..40 {
        let at = rng.below(LEN);
        let len = [1 + rng.below(64), 1 + rng.below(9000)][rng.below(2) as usize].min(LEN - at);
        states.push(crate::common::read_all(file));
        file.write_at(&rng.bytes(len as usize), at).expect("write");
    }
    states
}

/// Returns an overwrite of a file that is `len` bytes long: a place among those that hold
/// something, and bytes.
fn scribble(rng: &mut Rng, len: u64, is_home: bool) -> (u64, Vec<u8>) {
    let count = match rng.below(3) {
        0 => 1 + rng.below(8),
        1 => 1 + rng.below(300),
        _ => 1 + rng.below(40 << 10),
    };
    let at = match rng.below(3) {
        _ if is_home => rng.below(len),
        0 => layout::page_sums(atomic_mmap::testing::PageIndex(0)) + rng.below(71 * 32),
        1 => layout::slice_word(atomic_mmap::testing::PageIndex(0)) + rng.below(71 * 8),
        _ => layout::reflection(0) + rng.below(LEN),
    };
    (at, rng.bytes(count.min(len - at) as usize))
}

/// Compares each page, by itself. A page may also be as it was in one of the `older` states.
/// Returns the number of pages that are damaged.
fn check(file: &AtomicMappedFile, expected: &[u8], older: &[Vec<u8>], what: &str) -> usize {
    let mut damaged = 0;
    for (n, page) in expected.chunks(PAGE as usize).enumerate() {
        let mut found = vec![0; page.len()];
        match file.read_at(&mut found, n as u64 * PAGE) {
            Ok(()) => {
                let at = n * PAGE as usize;
                let was = older.iter().any(|state| state[at..at + page.len()] == found);
                assert!(found == page || was, "{what}: page {n} is read wrong");
            }
            Err(Error::Damaged { offset, .. }) if offset == n as u64 * PAGE => damaged += 1,
            Err(error) => panic!("{what}: {error}"),
        }
    }
    damaged
}

fn scribble_on_closed(ground: &Ground) {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = options(ground).open(&path).expect("open");
    let mut rng = Rng(11);
    let mut states = some_writes(&file, &mut rng);
    file.sync().expect("sync");
    states.append(&mut some_writes(&file, &mut rng));
    let expected = crate::common::read_all(&file);
    let (mut damaged, mut refused) = (0, 0);
    for n in 0..CLOSED {
        let image = died(ground, &path);
        let trusting = || {
            let options = ground.options().integrity(Integrity::OnScrub);
            options.on_mismatch(OnMismatch::Trust).open(&image.home)
        };
        // Every other file is verified and closed before that. Then no sum of an older state is
        // left. After a crash, a scribble over a word may bring such a state back.
        let is_closed = n % 2 == 0;
        let older = if is_closed { &[][..] } else { &states };
        if is_closed {
            let whole = trusting().expect("open");
            assert_eq!(whole.verify(0..LEN).expect("verify").damaged, []);
            whole.close(CloseMode::Fast).expect("close");
        }
        let reflection = crate::common::reflections_in(image.home.parent().expect("a folder"));
        let is_home = rng.below(3) == 0;
        let target = if is_home { &image.home } else { &reflection[0] };
        let target = File::options().read(true).write(true).open(target).expect("open");
        let (at, bytes) = scribble(&mut rng, target.metadata().expect("stat").len(), is_home);
        target.write_all_at(&bytes, at).expect("scribble");
        match trusting() {
            Ok(found) => {
                let what = format!("{} {n}: {} bytes at {at:#x}", ground.medium, bytes.len());
                damaged += check(&found, &expected, older, &what);
            }
            Err(_) => refused += 1,
        }
    }
    println!("{}: {damaged} pages are damaged, {refused} openings refused", ground.medium);
    assert!(damaged > 50);
}

fn scribble_in_use(ground: &Ground) {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let file = options(ground).open(&path).expect("open");
    let mut rng = Rng(12);
    drop(some_writes(&file, &mut rng));
    let expected = crate::common::read_all(&file);
    let open = |path: &Path| File::options().read(true).write(true).open(path).expect("open");
    let files = [open(&path), open(file.reflection_path())];
    let mut damaged = 0;
    for n in 0..IN_USE {
        let is_home = rng.below(2) == 0;
        let target = &files[usize::from(!is_home)];
        let (at, bytes) = scribble(&mut rng, target.metadata().expect("stat").len(), is_home);
        let mut before = vec![0; bytes.len()];
        target.read_exact_at(&mut before, at).expect("read");
        target.write_all_at(&bytes, at).expect("scribble");
        let slots = if is_home { 0 } else { layout::reflection(0) };
        let first = (at.saturating_sub(slots) / PAGE).min(LEN / PAGE);
        let end = (first + bytes.len() as u64 / PAGE + 2).min(LEN.div_ceil(PAGE));
        for page in first..end {
            let of = &expected[(page * PAGE) as usize..((page + 1) * PAGE).min(LEN) as usize];
            let mut found = vec![0; of.len()];
            match file.read_at(&mut found, page * PAGE) {
                Ok(()) => assert!(found == of, "{n}: page {page} is read wrong"),
                Err(Error::Damaged { .. }) => damaged += 1,
                Err(error) => panic!("{error}"),
            }
        }
        target.write_all_at(&before, at).expect("undo");
    }
    assert!(damaged > 500, "{damaged}");
    assert_eq!(check(&file, &expected, &[], "at the end"), 0);
}

#[test]
fn no_scribble_over_a_closed_or_crashed_file_is_read() {
    media().iter().for_each(scribble_on_closed);
}

#[test]
fn no_scribble_over_a_file_in_use_is_read() {
    media().iter().for_each(scribble_in_use);
}
