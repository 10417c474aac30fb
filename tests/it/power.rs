//! Smoke tests of recovery from a loss of power, on crash images of the native code.
//!
//! `lab images` opens every image of every short sequence, on a simulated machine. These tests open
//! some images that the native copies and flushes leave. A recorder notes all stores of a run on
//! `/dev/shm`, which is treated as persistent memory. The power goes before each drain, and after
//! each operation. Every store that is not durable then is on the medium as a whole, or not at all,
//! or by words at random. The file must hold all operations that had returned. The operation in
//! progress is whole or absent.
//!
//! Simplification: what a system call has changed is durable at once.

use crate::common::{self, Rng, Scratch};
use atomic_mmap::testing::recorder::{Event, Recorder, What};
use atomic_mmap::testing::{FileId, PageIndex, layout};
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Error, Medium, Mismatch, OnMismatch, Options, Roots,
    View,
};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub const PAGE: u64 = 4096;
const LEN: u64 = 70 * PAGE + 100;

type Page = [u8; PAGE as usize];

/// The bytes of a file. Missing pages are zero.
#[derive(Clone, Default)]
pub struct Contents {
    pub len: u64,
    pages: BTreeMap<u64, Page>,
}

impl Contents {
    fn write(&mut self, mut at: u64, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let from = (at % PAGE) as usize;
            let (part, rest) = bytes.split_at(bytes.len().min(PAGE as usize - from));
            let page = self.pages.entry(at / PAGE).or_insert([0; PAGE as usize]);
            page[from..][..part.len()].copy_from_slice(part);
            (at, bytes) = (at + part.len() as u64, rest);
        }
    }

    fn zero(&mut self, start: u64, end: u64) {
        for (n, page) in self.pages.range_mut(start / PAGE..end.div_ceil(PAGE)) {
            let (from, to) = (start.max(n * PAGE), end.min((n + 1) * PAGE));
            page[(from - n * PAGE) as usize..(to - n * PAGE) as usize].fill(0);
        }
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.zero(len, self.len.next_multiple_of(PAGE));
        }
        self.len = len;
    }

    /// Gives an existing file these bytes. It stays the same file, so its pair stays the same pair.
    pub fn put(&self, path: &Path) {
        let file = File::options().write(true).open(path).expect("the file");
        file.set_len(0).and_then(|()| file.set_len(self.len)).expect("space");
        for (n, page) in &self.pages {
            let len = PAGE.min(self.len.saturating_sub(n * PAGE)) as usize;
            file.write_all_at(&page[..len], n * PAGE).expect("space");
        }
    }
}

/// A store that is not durable.
struct Store {
    file: usize,
    at: u64,
    bytes: Vec<u8>,
    /// The next drain makes it durable: it was streamed, or its line was flushed.
    is_pending: bool,
}

/// The stores of one thread to the home file, the reflection file and the store of snapshots.
#[derive(Default)]
pub struct Memory {
    durable: [Contents; 3],
    stores: Vec<Store>,
}

/// The choice of the stores that reach the medium although they are not durable.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    None,
    All,
    Words,
    /// All of this file, and none of the others.
    AllOf(FileId),
    /// All of the other files, and none of this.
    AllBut(FileId),
    /// All but the sums of pages.
    AllButSums,
}

/// Returns `true` if byte `at` of the reflection file belongs to the sum of a page.
fn is_sum(at: u64) -> bool {
    (layout::page_sums(PageIndex(0))..layout::page_sums(PageIndex(LEN / PAGE + 1))).contains(&at)
}

fn index(file: FileId) -> usize {
    match file {
        FileId::Home => 0,
        FileId::Reflection => 1,
        FileId::Snapshots => 2,
        FileId::Journal => panic!("no durable points are kept on Dax"),
        FileId::Spool => panic!("no image has it"),
    }
}

impl Memory {
    fn store(&mut self, file: FileId, at: u64, bytes: &[u8], is_pending: bool) {
        self.stores.push(Store { file: index(file), at, bytes: bytes.to_vec(), is_pending });
    }

    pub fn play(&mut self, what: &What) {
        match what {
            // No recovery reads it.
            What::Write { file: FileId::Spool, .. } | What::SetLen { file: FileId::Spool, .. } => {}
            What::Store { file, offset, value, through } => {
                self.store(*file, *offset, &value.to_le_bytes(), *through);
            }
            What::CompareExchange { file, offset, new, done: true, .. } => {
                self.store(*file, *offset, &new.to_le_bytes(), false);
            }
            What::Copy { file, offset, bytes, through } => {
                self.store(*file, *offset, bytes, *through);
            }
            What::Flush { file, offset, len } => {
                let lines = offset / 64 * 64..(offset + len).next_multiple_of(64);
                for store in self.stores.iter_mut().filter(|store| store.file == index(*file)) {
                    let is_inside =
                        store.at < lines.end && store.at + store.bytes.len() as u64 > lines.start;
                    store.is_pending |= is_inside;
                }
            }
            What::Drain => {
                self.forget_overtaken();
                for store in self.stores.extract_if(.., |store| store.is_pending) {
                    self.durable[store.file].write(store.at, &store.bytes);
                }
            }
            What::Sync { file, .. } => {
                for store in self.stores.extract_if(.., |store| store.file == index(*file)) {
                    self.durable[store.file].write(store.at, &store.bytes);
                }
            }
            What::Write { file, offset, bytes } => {
                let file = &mut self.durable[index(*file)];
                file.len = file.len.max(offset + bytes.len() as u64);
                file.write(*offset, bytes);
            }
            What::Allocate { file, offset, len } => {
                let file = &mut self.durable[index(*file)];
                file.len = file.len.max(offset + len);
            }
            What::Punch { file, offset, len } => {
                self.durable[index(*file)].zero(*offset, offset + len);
            }
            What::SetLen { file, len } => self.durable[index(*file)].set_len(*len),
            _ => {}
        }
    }

    /// Drops stores that a later one is about to make durable: a cache line never goes back.
    fn forget_overtaken(&mut self) {
        let covers = |late: &Store, early: &Store| {
            let ends = |store: &Store| store.at + store.bytes.len() as u64;
            late.is_pending
                && late.file == early.file
                && late.at <= early.at
                && ends(early) <= ends(late)
        };
        for n in (0..self.stores.len()).rev() {
            let (early, late) = self.stores.split_at(n + 1);
            if late.iter().any(|late| covers(late, &early[n])) {
                self.stores.remove(n);
            }
        }
    }

    pub fn image(&self, choice: Choice, random: &mut Rng) -> [Contents; 3] {
        let mut image = self.durable.clone();
        for Store { file, at, bytes, .. } in &self.stores {
            let mut from = 0;
            while from < bytes.len() {
                let to = bytes.len().min(from + 8 - (at + from as u64) as usize % 8);
                let is_there = match choice {
                    Choice::None => false,
                    Choice::All => true,
                    Choice::Words => random.below(2) == 0,
                    Choice::AllOf(one) => *file == index(one),
                    Choice::AllBut(one) => *file != index(one),
                    Choice::AllButSums => *file != 1 || !is_sum(at + from as u64),
                };
                if is_there {
                    image[*file].write(at + from as u64, &bytes[from..to]);
                }
                from = to;
            }
        }
        image
    }
}

/// The stores that reach the medium in the images of a run.
const CHOICES: [Choice; 5] =
    [Choice::None, Choice::All, Choice::Words, Choice::Words, Choice::AllButSums];

/// A pair with a recorder of its stores, and the contents that it must have.
pub struct Run {
    recorder: Recorder,
    pub file: AtomicMappedFile,
    home: PathBuf,
    /// The events of each operation, and the contents before and after it.
    operations: Vec<(Vec<Event>, [Vec<u8>; 2])>,
    pub content: Vec<u8>,
    scratch: Scratch,
}

pub fn options() -> Options {
    let options = AtomicMappedFile::options().medium(Medium::Dax).max_len(1 << 20);
    options.deploy(DeployPolicy::Manual).close_on_drop(CloseMode::Unsynced)
}

impl Run {
    pub fn new() -> Run {
        Run::with(options())
    }

    fn with(options: Options) -> Run {
        let (scratch, recorder) = (common::ram().scratch(), Recorder::new());
        let home = scratch.file("state.dat");
        let file = options.create(true).len(LEN).open_recorded(&recorder, &home).expect("open");
        let content = vec![0; LEN as usize];
        let operations = vec![(recorder.take(), [content.clone(), content.clone()])];
        Run { recorder, file, home, operations, content, scratch }
    }

    pub fn step(&mut self, after: Vec<u8>, act: impl FnOnce(&AtomicMappedFile)) {
        act(&self.file);
        let before = std::mem::replace(&mut self.content, after.clone());
        self.operations.push((self.recorder.take(), [before, after]));
    }

    /// Writes parts of these lengths at these offsets, in one operation.
    pub fn write(&mut self, parts: &[(u64, usize)]) {
        let fill = self.operations.len() as u8;
        let bytes: Vec<_> = parts.iter().map(|&(at, len)| (at, vec![fill; len])).collect();
        let mut after = self.content.clone();
        for (at, bytes) in &bytes {
            after[*at as usize..][..bytes.len()].copy_from_slice(bytes);
        }
        let parts: Vec<_> = bytes.iter().map(|(at, bytes)| (*at, &bytes[..])).collect();
        self.step(after, |file| file.write_many(&parts).expect("a write"));
    }

    /// Runs an operation, and reads from the file what it has done to the bytes.
    fn act(&mut self, act: impl FnOnce()) {
        act();
        let after = common::read_all(&self.file);
        self.step(after, |_| ());
    }

    fn set_len(&mut self, len: u64) {
        let mut after = self.content.clone();
        after.resize(len as usize, 0);
        self.step(after, |file| file.set_len(len).expect("a new length"));
    }

    /// Writes parts and changes the length, in one operation.
    fn resize(&mut self, len: u64, parts: &[(u64, usize)]) {
        let fill = self.operations.len() as u8;
        let mut after = self.content.clone();
        after.resize(len as usize, 0);
        parts.iter().for_each(|&(at, len)| after[at as usize..][..len].fill(fill));
        self.step(after, |file| {
            let mut tx = file.begin();
            tx.set_len(len).expect("a length");
            for &(at, len) in parts {
                tx.write_at(&vec![fill; len], at).expect("a write");
            }
            tx.commit().expect("a commit");
        });
    }

    fn replace(&mut self, len: usize) {
        let after = vec![self.operations.len() as u8; len];
        self.step(after.clone(), |file| file.replace(&after).expect("a new document"));
    }

    /// Loses the power at many moments of the run. Returns the number of images.
    pub fn lose_power(self) -> usize {
        self.images(|home, _, states| {
            let found = recovered(home);
            assert_eq!(recovered(home), found, "the next session finds another state");
            assert!(states.contains(&found), "no state of the file");
        })
    }

    /// Builds the images of the run, one after the other, in the place of the files. `look` gets
    /// the home file, its image, and the contents that the operations allow. Returns the number of
    /// images.
    fn images(self, mut look: impl FnMut(&Path, &Contents, &[Vec<u8>])) -> usize {
        let Run { file, home, operations, scratch, .. } = self;
        let reflection = file.reflection_path().to_owned();
        file.close(CloseMode::Unsynced).expect("a close that writes nothing");
        let (mut memory, mut random) = (Memory::default(), Rng(7));
        let mut images = 0;
        for (n, (events, states)) in operations.iter().enumerate() {
            for (at, event) in events.iter().enumerate() {
                memory.play(&event.what);
                let is_end = at + 1 == events.len();
                // The file is made before it is the home file of a whole pair.
                let is_next_drained =
                    n > 0 && events.get(at + 1).is_some_and(|next| next.what == What::Drain);
                if !is_end && !is_next_drained {
                    continue;
                }
                for choice in CHOICES {
                    let [first, second, _] = memory.image(choice, &mut random);
                    first.put(&home);
                    second.put(&reflection);
                    let place = format!("operation {n}, before event {}, {choice:?}", at + 1);
                    let _tells_where = OnPanic(place);
                    look(&home, &first, if is_end { &states[1..] } else { states });
                    images += 1;
                }
            }
        }
        drop(scratch);
        images
    }
}

/// Prints where a test was when it panicked.
pub struct OnPanic(pub String);

impl Drop for OnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.0);
        }
    }
}

fn recovered(home: &Path) -> Vec<u8> {
    let file = options().open(home).expect("an image is recovered");
    let mut bytes = vec![0; file.len() as usize];
    file.read_at(&mut bytes, 0).expect("a read");
    file.close(CloseMode::Unsynced).expect("a close");
    bytes
}

#[test]
fn small_writes_survive() {
    let mut run = Run::new();
    // More flip records than a ring has places, some of them over the same slices.
    for n in 0..40 {
        run.write(&[(3 * PAGE + n % 7 * 64, 128)]);
    }
    run.write(&[(3 * PAGE + 30, 300)]);
    run.write(&[(5 * PAGE, PAGE as usize)]);
    // The third write overwrites a slot that the first record names. Recovery must not verify it.
    for page in 8..12 {
        run.write(&[(page * PAGE, 128)]);
        (0..2).for_each(|_| run.write(&[(page * PAGE + 64, 64)]));
    }
    assert!(run.lose_power() > 300);
}

#[test]
fn writes_over_pages_survive() {
    let mut run = Run::new();
    for _ in 0..3 {
        run.write(&[(4 * PAGE + 64, 64), (9 * PAGE + 7, 30), (66 * PAGE - 5, 10)]);
        run.write(&[(4 * PAGE, 3 * PAGE as usize)]);
        run.write(&[(63 * PAGE + 100, 2 * PAGE as usize)]);
    }
    assert!(run.lose_power() > 80);
}

#[test]
fn writes_under_a_view_and_new_lengths_survive() {
    let mut run = Run::new();
    let handle = run.file.try_clone().expect("a handle");
    for _ in 0..3 {
        let view: View<'_> = handle.view(0..6 * PAGE).expect("a view");
        // The second write finds no free slot, and logs its data.
        (0..2).for_each(|_| run.write(&[(5 * PAGE + 10, 200)]));
        drop(view);
        let content = run.content.clone();
        run.step(content, |file| assert!(file.deploy(0..LEN).expect("a deployment") > 0));
        run.set_len(5 * PAGE + 77);
        run.set_len(LEN);
        run.write(&[(5 * PAGE, 500)]);
    }
    drop(handle);
    assert!(run.lose_power() > 150);
}

#[test]
fn structures_survive() {
    let mut run = Run::new();
    let roots = Roots::open(run.file.try_clone().expect("a handle"));
    let roots = roots.expect("a directory in a file of zeros");
    run.act(|| ());
    let (mut array, mut log) = (None, None);
    run.act(|| array = Some(roots.get_or_insert_array::<u64>("array", 600).expect("make")));
    run.act(|| array.expect("an array").set_many(0, &[!0; 600]).expect("fill"));
    run.act(|| roots.remove("array").map(drop).expect("remove"));
    run.act(|| log = Some(roots.log("log").expect("make")));
    let log = log.expect("a log");
    for n in 0..6_u8 {
        // The last ones need a second segment, which takes the array's space.
        run.act(|| log.append(&[vec![n; 300], vec![n; 4000]]).map(drop).expect("append"));
    }
    run.act(|| log.truncate_back(9).expect("truncate"));
    run.act(|| log.truncate_front(7).expect("truncate"));
    run.act(|| roots.get_or_insert::<u64>("value").map(drop).expect("make"));
    run.act(|| roots.remove("log").map(drop).expect("remove"));
    roots.check().expect("check");
    drop((roots, log));
    assert!(run.lose_power() > 100);
}

fn change_lengths(mut run: Run) {
    let handle = run.file.try_clone().expect("a handle");
    for n in 0..3 {
        // Grows over a page and over a region, with bytes on both sides of the old end.
        run.resize(LEN + 2 * PAGE + n, &[(LEN - 100, 150), (LEN + PAGE, 10)]);
        run.resize(130 * PAGE + 5, &[(7, 90), (129 * PAGE - 64, 128)]);
        // Shrinks within a region and to an earlier one, beside a flip of another page.
        run.write(&[(100 * PAGE, 64)]);
        run.resize(80 * PAGE + 33, &[(80 * PAGE + 10, 23), (3 * PAGE, 8)]);
        run.resize(40 * PAGE + 64, &[(0, 5000)]);
        // Under a view, where slices have no free slot.
        let view = handle.view(0..2 * PAGE).expect("a view");
        run.resize(LEN, &[(10, 200), (LEN - 8, 8)]);
        run.resize(50 * PAGE, &[(10, 200)]);
        drop(view);
        run.replace(5000);
        run.replace(60);
        run.replace(0);
        run.replace(3 * PAGE as usize);
        run.replace(3 * PAGE as usize);
        run.resize(LEN, &[]);
    }
    drop(handle);
    assert!(run.lose_power() > 600);
}

#[test]
fn new_lengths_with_their_bytes_survive() {
    change_lengths(Run::new());
}

#[test]
fn new_lengths_with_bytes_that_a_follower_sees_survive() {
    change_lengths(Run::with(options().shows_appends(true)));
}

/// The process crashed in an operation that grows the file, and then the home file lost its new
/// end. A redo record holds the new length, and the length word does not yet.
/// [`OnMismatch::Discard`] kept the home file, and then applied the log of the pair to it.
#[test]
fn the_log_of_a_discarded_pair_changes_nothing() {
    let mut run = Run::new();
    let handle = run.file.try_clone().expect("a handle");
    // The second write finds no free slot, so its record holds the bytes.
    let view = handle.view(0..PAGE).expect("a view");
    run.write(&[(10, 200)]);
    run.resize(LEN + 2 * PAGE, &[(10, 200), (LEN + PAGE, 10)]);
    drop(view);
    drop(handle);
    let mut discarded = 0;
    run.images(|home, image, _| {
        let mut cut = image.clone();
        cut.set_len(LEN);
        cut.put(home);
        // A reader changes neither file, so the next image finds its pair.
        let open = |wish| options().read_only(true).on_mismatch(wish).open(home);
        match open(OnMismatch::Refuse) {
            Ok(_) => return,
            Err(Error::Mismatch { why: Mismatch::HomeTruncated, .. }) => discarded += 1,
            Err(error) => panic!("{error:?}"),
        }
        let file = open(OnMismatch::Discard).expect("the home file alone");
        let bytes = std::fs::read(home).expect("the home file");
        common::assert_same(&common::read_all(&file), &bytes, "the home file without its pair");
    });
    assert!(discarded > 0);
}
