//! Tests that a damaged page becomes what it was in the newest snapshot that has it whole.
//!
//! The damage is done behind the engine's back, through a second descriptor.

use super::{LEN, PAGE, options};
use crate::common::{Ground, Rng, Scratch, assert_same, media, read_all};
use atomic_mmap::testing::layout;
use atomic_mmap::{
    AtomicMappedFile, CloseMode, Durability, Error, Integrity, Options, Repair, Work,
};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The page that is damaged. It lies within the file.
const AT: u64 = 5 * PAGE;
const SLICE: u64 = 64;

pub(super) struct Case {
    pub ground: Ground,
    /// `true` with `AtomicSync`: then durable points are kept on each medium.
    pub is_atomic: bool,
    /// `true` if the file is closed and opened before the damage: no page is verified then.
    pub is_reopened: bool,
    pub scratch: Scratch,
}

impl Case {
    pub fn all() -> Vec<Case> {
        let kinds = [(false, false), (false, true), (true, false), (true, true)];
        let of_kind = |(is_atomic, is_reopened)| {
            media().into_iter().map(move |ground| Case {
                scratch: ground.scratch(),
                ground,
                is_atomic,
                is_reopened,
            })
        };
        kinds.into_iter().flat_map(of_kind).collect()
    }

    pub fn path(&self) -> PathBuf {
        self.scratch.file("state.dat")
    }

    pub fn options(&self) -> Options {
        let options = options(&self.ground).integrity(Integrity::OnScrub);
        if self.is_atomic { options.durability(Durability::AtomicSync) } else { options }
    }

    /// Returns a file with random bytes, and these.
    pub fn written(&self) -> (AtomicMappedFile, Vec<u8>) {
        let file = self.options().open(self.path()).expect("open");
        let bytes = Rng(4).bytes(LEN as usize);
        file.write_at(&bytes, 0).expect("write");
        bring_home(&file);
        (file, bytes)
    }

    pub fn again(&self, file: AtomicMappedFile) -> AtomicMappedFile {
        file.close(CloseMode::Fast).expect("close");
        self.options().open(self.path()).expect("open")
    }

    /// Damages a byte in the home file, in this session or before the next one.
    fn damage(&self, file: AtomicMappedFile, at: u64) -> AtomicMappedFile {
        let file = if self.is_reopened { self.again(file) } else { file };
        flip_a_bit(&self.path(), at);
        assert_eq!(file.verify(0..LEN).expect("verify").damaged.len(), 1);
        file
    }

    fn name(&self) -> String {
        let Case { ground, is_atomic, is_reopened, .. } = self;
        format!("{}, AtomicSync: {is_atomic}, reopened: {is_reopened}", ground.medium)
    }
}

/// From here on all bytes are valid in the home file.
pub(super) fn bring_home(file: &AtomicMappedFile) {
    file.sync().expect("sync");
    file.deploy(0..file.len()).expect("deploy");
    file.sync().expect("sync");
}

pub(super) fn flip_a_bit(path: &Path, at: u64) {
    let file = File::options().read(true).write(true).open(path).expect("open");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("read");
    file.write_all_at(&[byte[0] ^ 0x10], at).expect("write");
}

fn seal(file: &AtomicMappedFile, name: &str) -> Vec<u8> {
    file.snapshot(name).expect("seal");
    read_all(file)
}

fn write(file: &AtomicMappedFile, at: u64, bytes: &[u8]) {
    file.write_at(bytes, at).expect("write");
    bring_home(file);
}

#[track_caller]
fn assert_reads(file: &AtomicMappedFile, name: &str, bytes: &[u8]) {
    let found = file.open_snapshot(name).expect("open").read_vec().expect("read");
    assert_same(&found, bytes, name);
}

#[track_caller]
fn assert_repaired(done: &Repair, name: &str, what: &str) {
    let from: Vec<_> = done.repaired.iter().map(|page| (page.range.clone(), &*page.name)).collect();
    assert_eq!((from, &done.left), (vec![(AT..AT + PAGE, name)], &vec![]), "{what}");
}

#[track_caller]
fn assert_left(done: &Repair, drop_first: Option<&str>, what: &str) {
    let left: Vec<_> =
        done.left.iter().map(|page| (page.range.clone(), page.drop_first.as_deref())).collect();
    assert_eq!((left, &done.repaired), (vec![(AT..AT + PAGE, drop_first)], &vec![]), "{what}");
}

/// The page of `from`, among the other pages of `rest`.
fn with_page(rest: &[u8], from: &[u8]) -> Vec<u8> {
    let page = AT as usize..(AT + PAGE) as usize;
    let mut bytes = rest.to_vec();
    bytes[page.clone()].copy_from_slice(&from[page]);
    bytes
}

#[test]
fn a_page_of_which_all_is_kept_comes_back() {
    for case in Case::all() {
        let (file, a) = case.written();
        file.snapshot("a").expect("seal");
        write(&file, AT, &[7; PAGE as usize]);
        write(&file, 9 * PAGE, &[8; 100]);
        let later = read_all(&file);
        let file = case.damage(file, AT + 1000);
        let before = file.stats().damaged_pages;
        let done = file.repair(0..LEN).expect("repair");
        assert_repaired(&done, "a", &case.name());
        // A repair once counted one page up to three times.
        assert_eq!(file.stats().damaged_pages - before, 1, "{}", case.name());
        assert_eq!((done.pages, done.repaired[0].number), (71, 1));
        assert_same(&read_all(&file), &with_page(&later, &a), "only that page goes back");
        assert_reads(&file, "a", &a);
        assert_eq!(file.repair(0..LEN).expect("again").repaired, []);
        let file = case.again(file);
        assert_same(&read_all(&file), &with_page(&later, &a), "the next session");
    }
}

/// The snapshot reads most of the page from the slots of the present, which the repair replaces.
#[test]
fn a_page_that_a_snapshot_shares_with_the_present_comes_back() {
    for case in Case::all() {
        let (file, a) = case.written();
        file.snapshot("a").expect("seal");
        write(&file, AT + 3 * SLICE, &[7; 64]);
        write(&file, AT + 5 * SLICE + 10, &[8; 200]);
        let later = read_all(&file);
        let file = case.damage(file, AT + 3 * SLICE + 9);
        let before = file.stats().damaged_pages;
        assert_repaired(&file.repair(AT..AT + 1).expect("repair"), "a", &case.name());
        assert_eq!(file.stats().damaged_pages - before, 1, "{}", case.name());
        assert_same(&read_all(&file), &with_page(&later, &a), "only that page goes back");
        assert_reads(&file, "a", &a);
        write(&file, AT, &[9; PAGE as usize]);
        assert_reads(&file, "a", &a);
        let file = case.again(file);
        assert_reads(&file, "a", &a);
    }
}

#[test]
fn a_page_that_no_snapshot_has_whole_stays_damaged() {
    for case in Case::all() {
        let (file, _) = case.written();
        let file = case.damage(file, AT + 7);
        assert_left(&file.repair(0..LEN).expect("repair"), None, "no snapshot at all");
        flip_a_bit(&case.path(), AT + 7);
        file.snapshot("a").expect("seal");
        write(&file, AT + 3 * SLICE, &[7; 64]);
        let file = case.damage(file, AT + 9 * SLICE + 9);
        let before = std::fs::read(case.path()).expect("read");
        let done = file.repair(0..LEN).expect("repair");
        assert_left(&done, None, &case.name());
        let name = case.name();
        assert_same(&std::fs::read(case.path()).expect("read"), &before, &name);
        flip_a_bit(&case.path(), AT + 9 * SLICE + 9);
        assert_eq!(file.repair(0..LEN).expect("repair").left, [], "nothing was made worse");
    }
}

/// Both snapshots have the page whole, with different bytes.
#[test]
fn the_newest_snapshot_that_has_a_page_whole_is_taken() {
    for case in Case::all() {
        let (file, a) = case.written();
        file.snapshot("a").expect("seal");
        write(&file, AT + 3 * SLICE, &[7; 64]);
        let b = seal(&file, "b");
        write(&file, AT + 4 * SLICE, &[8; 64]);
        let file = case.damage(file, AT + 4 * SLICE + 9);
        assert_repaired(&file.repair(0..LEN).expect("repair"), "b", &case.name());
        assert_same(&read_all(&file), &b, "the state at the newer seal");
        assert_reads(&file, "a", &a);
        assert_reads(&file, "b", &b);
    }
}

/// The newer snapshot would read the older one's bytes after the repair, without an error.
#[test]
fn a_page_that_a_newer_snapshot_reads_stays_until_that_is_dropped() {
    for case in Case::all() {
        let (file, a) = case.written();
        file.snapshot("a").expect("seal");
        write(&file, AT + 3 * SLICE, &[7; 64]);
        let b = seal(&file, "b");
        write(&file, AT + 4 * SLICE, &[8; 64]);
        let later = read_all(&file);
        let file = case.damage(file, AT + 3 * SLICE + 9);
        assert_left(&file.repair(0..LEN).expect("repair"), Some("b"), &case.name());
        if case.is_reopened {
            let mut to = [0; 64];
            let found = file.open_snapshot("b").expect("open").read_at(&mut to, AT);
            assert!(matches!(found, Err(Error::Damaged { .. })), "{found:?}");
        }
        flip_a_bit(&case.path(), AT + 3 * SLICE + 9);
        assert_reads(&file, "b", &b);
        flip_a_bit(&case.path(), AT + 3 * SLICE + 9);
        let file = case.again(file);
        file.drop_snapshot("b").expect("drop");
        assert_repaired(&file.repair(0..LEN).expect("repair"), "a", &case.name());
        assert_same(&read_all(&file), &with_page(&later, &a), "only that page goes back");
        assert_reads(&file, "a", &a);
    }
}

/// The store of snapshots has lost a bit of the newer one, which reads nothing from the present.
#[test]
fn a_snapshot_that_lacks_kept_bytes_is_passed_over() {
    // An opening would doubt all snapshots.
    for case in Case::all().into_iter().filter(|case| !case.is_reopened) {
        let (file, a) = case.written();
        file.snapshot("a").expect("seal");
        write(&file, AT, &[7; PAGE as usize]);
        file.snapshot("b").expect("seal");
        write(&file, AT, &[8; PAGE as usize]);
        let store = file.reflection_path().with_added_extension("snapshots");
        let kept = std::fs::read(&store).expect("read");
        let kept = kept.windows(64).position(|bytes| bytes == [7; 64]).expect("kept bytes");
        flip_a_bit(&store, kept as u64 + 100);
        let file = case.damage(file, AT + 77);
        assert_repaired(&file.repair(0..LEN).expect("repair"), "a", &case.name());
        assert_same(&read_all(&file), &a, "the state at the older seal");
    }
}

/// The page ends with the file, and in another place than in the snapshot.
#[test]
fn past_the_end_of_its_snapshot_a_page_becomes_zero() {
    for case in Case::all() {
        let (file, _) = case.written();
        file.set_len(AT + 1000).expect("shrink");
        let a = seal(&file, "a");
        file.set_len(AT + 3000).expect("grow");
        write(&file, AT + 500, &[7; 2500]);
        let file = case.again(file);
        flip_a_bit(&case.path(), AT + 2000);
        let done = file.repair(0..file.len()).expect("repair");
        assert_eq!((done.repaired.len(), done.left.len()), (1, 0), "{}", case.name());
        assert_eq!(done.repaired[0].range, AT..AT + 3000);
        let mut expected = a.clone();
        expected.resize(AT as usize + 3000, 0);
        assert_same(&read_all(&file), &expected, &case.name());
        assert_reads(&file, "a", &a);
        file.set_len(LEN).expect("grow");
        expected.resize(LEN as usize, 0);
        assert_same(&read_all(&file), &expected, "a longer file");
    }
}

/// The bytes that were damaged belong to no durable point yet. The last one is the snapshot.
#[test]
fn a_page_that_has_changed_since_the_last_point_goes_back_to_it() {
    for case in Case::all() {
        let (file, a) = case.written();
        if file.stats().flush_points + file.stats().journal_points == 0 {
            continue;
        }
        file.snapshot("a").expect("seal");
        file.write_at(&[7; 64], AT + 3 * SLICE).expect("write");
        let at = layout::reflection(AT + 3 * SLICE + 7);
        flip_a_bit(file.reflection_path(), at);
        assert_repaired(&file.repair(0..LEN).expect("repair"), "a", &case.name());
        assert_same(&read_all(&file), &a, "the last point");
        bring_home(&file);
        assert_reads(&file, "a", &a);
        let file = case.again(file);
        assert_same(&read_all(&file), &a, "the next session");
    }
}

/// A write that comes between the verification and the repair heals the page, and counts.
#[test]
fn a_page_that_was_replaced_meanwhile_stays() {
    for case in Case::all() {
        let (file, _) = case.written();
        let (slot, new) = (Arc::new(OnceLock::<AtomicMappedFile>::new()), [3; PAGE as usize]);
        file.snapshot("a").expect("seal");
        write(&file, AT, &[7; PAGE as usize]);
        file.close(CloseMode::Fast).expect("close");
        let writer = Arc::clone(&slot);
        let options = case.options().on_progress(move |progress| {
            if progress.work == Work::Verify
                && progress.done == progress.total
                && let Some(file) = writer.get()
            {
                file.write_at(&new, AT).expect("write");
            }
        });
        let file = options.open(case.path()).expect("open");
        flip_a_bit(&case.path(), AT + 99);
        assert!(slot.set(file.try_clone().expect("a handle")).is_ok());
        let done = file.repair(0..LEN).expect("repair");
        assert_eq!((done.repaired, done.left), (vec![], vec![]), "{}", case.name());
        let mut found = [0; PAGE as usize];
        file.read_at(&mut found, AT).expect("read");
        assert_same(&found, &new, "the write counts");
    }
}

/// A write of the bytes that were there before the damage leaves a sum that fits the damage. A
/// later record must not prove the page by it, wherever it lies in the store.
#[test]
fn a_sum_that_fits_the_damage_proves_nothing() {
    for case in Case::all().into_iter().filter(|case| !case.is_reopened) {
        for later in [None, Some("b")] {
            let case = Case { scratch: case.ground.scratch(), ground: case.ground.clone(), ..case };
            let (file, a) = case.written();
            let slice = &a[(AT + 3 * SLICE) as usize..][..SLICE as usize];
            file.snapshot("a").expect("seal");
            // This thread's first record is before that of the other thread.
            write(&file, 9 * PAGE, &[7; 64]);
            flip_a_bit(&case.path(), AT + 3 * SLICE + 9);
            // The page was verified before: the damaged bytes are kept.
            std::thread::scope(|scope| scope.spawn(|| write(&file, AT + 3 * SLICE, slice)).join())
                .expect("a write");
            later.iter().for_each(|name| drop(file.snapshot(name).expect("seal")));
            write(&file, AT + 4 * SLICE, &[7; 64]);
            let file = case.again(file);
            assert_left(&file.repair(0..LEN).expect("repair"), None, &case.name());
        }
    }
}

#[test]
fn a_page_that_came_by_an_import_comes_back() {
    for case in Case::all() {
        for base in [Some("base"), None] {
            let case = Case { scratch: case.ground.scratch(), ground: case.ground.clone(), ..case };
            let (file, first) = case.written();
            let folder = case.ground.scratch();
            let sender = options(&case.ground).open(folder.file("sender.dat")).expect("open");
            sender.write_at(&first, 0).expect("write");
            sender.snapshot("base").expect("seal");
            sender.write_at(&[6; 500], AT + 100).expect("write");
            let b = seal(&sender, "b");
            let mut stream = Vec::new();
            sender.export(base, "b", &mut stream).expect("export");
            file.import_over(&stream[..]).expect("import");
            write(&file, AT + 4 * SLICE, &[7; 64]);
            let file = case.damage(file, AT + 4 * SLICE + 9);
            assert_repaired(&file.repair(0..LEN).expect("repair"), "b", &case.name());
            assert_same(&read_all(&file), &b, "what was received");
        }
    }
}
