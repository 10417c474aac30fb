//! The use of an opened pair. After every successful open, reads, writes and closes must succeed,
//! and the file must hold the expected bytes.

use super::ground::{Around, Ground, Slot};
use super::image::{Contents, Image};
use super::input::filling;
use super::patch::MarkWish;
use super::reading::{How, Outcome, cost, outcome};
use super::{ground, sums};
use atomic_mmap::testing::PAGE;
use atomic_mmap::testing::layout;
use atomic_mmap::{
    AtomicMappedFile, CloseMode, DeployPolicy, Distrust, Error, Integrity, OnMismatch, Options,
};

const P: u64 = PAGE as u64;
/// Maximum number of pages that are read and compared, among the pages with bytes.
const COMPARED: usize = 700;

/// Length of a journal that an open creates: the minimum.
const JOURNAL: u64 = 64 << 10;
/// Maximum number of pages that records may name. Replaying more takes time and shows nothing new.
const REPLAYED: u64 = 20_000;
/// Maximum length of a file that gets sums, in bytes.
const SUMMED: u64 = 16 << 20;
/// The flag of the superblock of a pair with page sums.
const SAYS_SUMS: u32 = 4;

/// The identity of another boot.
pub const ANOTHER_BOOT: [u8; 16] = [0xB0; 16];

/// The use of an opened file, from the bits of an input's byte.
#[derive(Clone, Copy, Debug)]
pub struct Life(pub u8);

impl Life {
    fn views(self) -> bool {
        self.0 & 1 != 0
    }
    fn writes(self) -> bool {
        self.0 & 2 != 0
    }
    fn resizes(self) -> bool {
        self.0 & 4 != 0
    }
    fn deploys(self) -> bool {
        self.0 & 8 != 0
    }
    fn closes_fast(self) -> bool {
        self.0 & 16 != 0
    }
    fn crosses(self) -> bool {
        self.0 & 32 != 0
    }
    fn policy(self) -> DeployPolicy {
        [DeployPolicy::Lazy, DeployPolicy::Eager, DeployPolicy::Manual, DeployPolicy::Manual]
            [usize::from(self.0 >> 6)]
    }
    /// Returns `true` if the machine restarts while the file is open, at the beginning and at the
    /// end. The other slot then opens the files that this leaves.
    fn restarts(self) -> bool {
        self.0 >> 6 == 3
    }
    /// Returns this use without a restart.
    fn without_restart(self) -> Life {
        Life(self.0 & 0xBF)
    }
}

/// Returns the options for `how`.
pub fn options(how: &How, life: Life) -> Options {
    let mut options = AtomicMappedFile::options()
        .integrity(how.integrity)
        .on_mismatch(how.wish)
        .deploy(life.policy())
        .durability(how.durability)
        .journal_len(JOURNAL)
        .close_on_drop(CloseMode::Fast);
    if let Some(medium) = how.medium {
        options = options.medium(medium);
    }
    if let Some(max_len) = how.max_len {
        options = options.max_len(max_len);
    }
    options
}

/// Returns how an image of an input is opened. Its bytes have no sums that fit. So a pair that says
/// that it has some is opened without, and gives them up. A long file is opened without, too, since
/// its first sums take long.
fn without_sums_of_no_bytes(how: &How, image: &Image, around: &Around) -> How {
    let says = |reflection: &Contents| {
        layout::SUPERBLOCKS.iter().any(|at| {
            let bytes = reflection.bytes(*at, sums::SUPERBLOCK_LEN);
            bytes.starts_with(b"AtomMmap") && sums::small(&bytes, 28) & SAYS_SUMS != 0
        })
    };
    let is_long = |file: &Contents| file.len > layout::reflection_len(SUMMED);
    let reflections = || around.companions.values().chain(&image.reflection);
    let is_refused = is_long(&image.home) || reflections().any(|file| says(file) || is_long(file));
    How { integrity: if is_refused { Integrity::Off } else { how.integrity }, ..*how }
}

/// Opens the pair of an input, as `open_pair` does.
pub fn open(ground: &Ground, slot: &Slot, image: &Image, how: &How, life: Life) {
    let how = without_sums_of_no_bytes(how, image, &ground.around(slot));
    open_pair(ground, slot, image, &how, life);
}

/// Opens the pair, and panics unless the outcome is the expected one. A refused open leaves the
/// pair and the folder unchanged. After a successful open, the file is used and ends as a plain
/// file. Files of other pairs stay unchanged in any case.
fn open_pair(ground: &Ground, slot: &Slot, image: &Image, how: &How, life: Life) {
    if cost(image, slot.stat().len) > REPLAYED {
        return;
    }
    let around = ground.around(slot);
    let expected = outcome(image, &slot.stat(), &around, how);
    let opened = options(how, life).open(&slot.home);
    match (expected, opened) {
        (Outcome::Refused(why), Err(Error::Mismatch { why: found, .. })) => {
            assert_eq!(found, why, "{how:?}: refused for another reason");
            slot.assert_is(image, "refused");
            assert_left(ground, slot, &around, &[], "refused");
        }
        (Outcome::TooLong, Err(Error::TooLong { .. })) => {
            slot.assert_is(image, "too long");
            assert_left(ground, slot, &around, &[], "too long");
        }
        (
            Outcome::JournalOfAnother,
            Err(Error::Untrusted { why: Distrust::IsOfAnotherPair, path, .. }),
        ) => {
            // Recovery may have applied the log by then, and may apply it again.
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            assert!(around.companions.contains_key(&name), "{name} is no journal");
            ground::remove(&path);
            open_pair(ground, slot, &slot.image(), how, life);
        }
        (Outcome::Opened(bytes, gone), Ok(file)) => {
            live(ground, slot, file, bytes, how, life);
            assert_left(ground, slot, &around, &gone, "closed");
        }
        (Outcome::Refused(why), Ok(file)) => panic!("{how:?}: {why:?}, and was opened: {file:?}"),
        (Outcome::TooLong, Ok(file)) => panic!("{how:?}: too long, and was opened: {file:?}"),
        (Outcome::Refused(why), Err(error)) => panic!("{how:?}: {why:?}, and not {error:?}"),
        (Outcome::TooLong, Err(error)) => panic!("{how:?}: too long, and not {error:?}"),
        (Outcome::JournalOfAnother, other) => panic!("{how:?}: not its journal, and {other:?}"),
        (Outcome::Opened(..), Err(error)) => panic!("{how:?}: does not open: {error:?}"),
    }
}

/// Panics unless the companions are the old ones without those in `gone`. The companions in `gone`
/// must not exist.
#[track_caller]
fn assert_left(ground: &Ground, slot: &Slot, was: &Around, gone: &[String], what: &str) {
    let is = ground.around(slot).companions;
    for (name, contents) in &was.companions {
        if gone.contains(name) {
            assert!(!is.contains_key(name), "{what}: {name} was left");
            continue;
        }
        let Some(found) = is.get(name) else { panic!("{what}: {name} was removed") };
        if let Some(difference) = found.difference(contents) {
            panic!("{what}: {name} was changed: {difference}");
        }
    }
    for name in is.keys() {
        assert!(was.companions.contains_key(name), "{what}: {name} was left behind");
    }
}

/// Panics unless the file holds these bytes.
#[track_caller]
pub fn assert_holds(file: &AtomicMappedFile, expected: &Contents, when: &str) {
    assert_eq!(file.len(), expected.len, "{when}: the length");
    let mut pages: Vec<u64> = expected.page_numbers().take(COMPARED).collect();
    // Both ends as well, where pages may be missing.
    pages.extend([0, 1, (expected.len / P).saturating_sub(1), expected.len / P]);
    for page in pages.into_iter().filter(|page| page * P < expected.len) {
        let len = (expected.len - page * P).min(P) as usize;
        let (mut found, wanted) = (vec![0; len], expected.bytes(page * P, len));
        file.read_at(&mut found, page * P).unwrap_or_else(|e| panic!("{when}: {e}"));
        if found != wanted {
            let byte = (0..len).find(|n| found[*n] != wanted[*n]).expect("that they differ");
            panic!(
                "{when}: page {page} of {} bytes, byte {byte}: {} instead of {}",
                expected.len, found[byte], wanted[byte]
            );
        }
    }
}

/// Reads, writes, changes the length and closes.
fn live(
    ground: &Ground,
    slot: &Slot,
    file: AtomicMappedFile,
    mut bytes: Contents,
    how: &How,
    life: Life,
) {
    assert_holds(&file, &bytes, "opened");
    if life.restarts() {
        restart(ground, slot, how, life);
    }
    let first = bytes.page_numbers().next().unwrap_or(0) * P;
    if life.views() && bytes.len > 0 {
        let end = (first + 2 * P).min(bytes.len);
        let view = file.view(first..end).expect("a view");
        let wanted = bytes.bytes(first, (end - first) as usize);
        assert_eq!(view.to_vec().expect("its bytes"), wanted, "a view");
        if life.writes() {
            write(&file, &mut bytes, first, 100, 1);
            assert_eq!(view.to_vec().expect("its bytes"), wanted, "a view after a write");
        }
    }
    if life.writes() {
        write(&file, &mut bytes, first + 7, 300, 2);
        let last = bytes.len.saturating_sub(1);
        write(&file, &mut bytes, last / P * P, 4096, 3);
    }
    if life.crosses() {
        let middle = first + 60 * P;
        write(&file, &mut bytes, middle + 9, 5 * 4096, 4);
        write(&file, &mut bytes, first, 8 * 4096, 5);
    }
    if life.resizes() {
        let (was, most) = (bytes.len, how.max_len.unwrap_or(u64::MAX));
        for len in [was.saturating_sub(5000), was / 2, was + 70_000] {
            if len <= most.min(atomic_mmap::MAX_LEN) {
                set_len(&file, &mut bytes, len);
            }
        }
        assert_holds(&file, &bytes, "after other lengths");
        let last = bytes.len.saturating_sub(1);
        write(&file, &mut bytes, last.saturating_sub(200), 200, 6);
    }
    if life.deploys() {
        let end = bytes.len.min(first + (8 << 20));
        file.deploy(first.min(end)..end).expect("to deploy");
    }
    assert_holds(&file, &bytes, "after more operations");
    if life.restarts() {
        restart(ground, slot, how, life);
    }
    let file = if life.closes_fast() {
        file.close(CloseMode::Fast).expect("to close");
        let how = How { wish: OnMismatch::Refuse, ..*how };
        let file = options(&how, life).open(&slot.home).expect("to open again");
        assert_holds(&file, &bytes, "opened again");
        file
    } else {
        file
    };
    let file = if how.integrity == Integrity::Off {
        file
    } else {
        assert_eq!(file.verify(0..file.len()).expect("to verify").damaged, [], "sums");
        file.close(CloseMode::Spatial).expect("to close with sums");
        let how = How { wish: OnMismatch::Refuse, integrity: Integrity::Off, ..*how };
        options(&how, life).open(&slot.home).expect("to open without sums")
    };
    file.close(CloseMode::Spatial).expect("to close for good");
    // The caller checks the companions that remain.
    let left = Image { home: bytes, mark: None, ..slot.image() };
    slot.assert_is(&left, "closed");
}

/// Opens the files that a restart of the machine leaves of an open pair, in the other slot.
/// Everything that was stored is there. The second reading says how much of it counts.
fn restart(ground: &Ground, slot: &Slot, how: &How, life: Life) {
    let Some(other) = ground.slots.iter().find(|other| other.home != slot.home) else { return };
    let mut image = slot.image();
    let Some(reflection) = &mut image.reflection else { return };
    let uuid = reflection.bytes(layout::SUPERBLOCKS[0] + 32, 16);
    let uuid = uuid.try_into().expect("16 bytes");
    image.mark = other.mark(&MarkWish::Right, uuid).filter(|_| ground.has_marks);
    let stat = other.put_home(&image);
    let reflection = image.reflection.as_mut().expect("as above");
    let now = ground::Cache { boot: ANOTHER_BOOT, ..ground.now() };
    ground::adopt(reflection, &stat, Some(&now));
    sums::repair_superblocks(reflection);
    other.put_reflection(&image);
    open_pair(ground, other, &image, how, life.without_restart());
    // The files of a refused open stay.
    other.put_home(&Image::default());
    other.put_reflection(&Image::default());
}

fn set_len(file: &AtomicMappedFile, bytes: &mut Contents, len: u64) {
    file.set_len(len).unwrap_or_else(|e| panic!("{len} bytes: {e}"));
    bytes.set_len(len);
}

/// Writes as much as fits.
fn write(file: &AtomicMappedFile, bytes: &mut Contents, at: u64, len: usize, seed: u64) {
    let len = bytes.len.saturating_sub(at).min(len as u64) as usize;
    let what = filling(seed + 1000, len);
    if len > 0 {
        file.write_at(&what, at).unwrap_or_else(|e| panic!("{len} bytes at {at}: {e}"));
        bytes.write(&what, at);
    }
}
