//! A tiny store of 8 KiB pages: allocation, a free list, and an index with page splits.
//!
//! ```sh
//! cargo run --release --example page_store            # in the temporary folder
//! cargo run --release --example page_store -- /dev/shm
//! ```
//!
//! A storage engine needs a double-write buffer or a write-ahead log against torn pages and for
//! changes of several pages. Here each of these is one operation. A page is one `store`. A split
//! changes the full page, the new one, their parent and the head of the file in one transaction. So
//! the code below can read every state that a crash can leave.

mod scratch;

use atomic_mmap::zerocopy::IntoBytes;
use atomic_mmap::{AtomicMappedFile, CloseMode, Error, Transaction, record};
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

const PAGE: u64 = 8192;
const WORDS: usize = 1021;
const MAGIC: u64 = u64::from_le_bytes(*b"pages v1");
const GROW_BY: u64 = 16;

const FREE: u16 = 1;
const LEAF: u16 = 2;
const ROOT: u16 = 3;
const NOTE: u16 = 4;

/// The index's root. Its number never changes.
const ROOT_PAGE: u64 = 1;

record! {
    /// The first bytes of page 0.
    #[derive(Clone, Copy, Debug)]
    struct Head {
        magic: u64,
        /// Pages in use or freed, including this one. The file may be longer.
        pages: u64,
        /// The first free page, or 0.
        free: u64,
    }
}

record! {
    #[derive(Clone)]
    struct Page {
        /// CRC-32C of all bytes after it. A crash never tears a page: the checksum is against
        /// damage by the disk or by a stray write.
        checksum: u32,
        kind: u16,
        /// Words in use.
        count: u16,
        /// Detects a page that was written to the wrong place.
        number: u64,
        /// The next free page, or 0.
        next: u64,
        /// In a leaf: keys in order. In the root: pairs of a first key and a leaf, in order.
        words: [u64; WORDS],
    }
}

const _: () = assert!(size_of::<Page>() as u64 == PAGE);

impl Page {
    fn new(number: u64, kind: u16, words: &[u64]) -> Page {
        let mut page = Page { checksum: 0, kind, count: 0, number, next: 0, words: [0; WORDS] };
        page.fill(words);
        page
    }

    fn used(&self) -> &[u64] {
        &self.words[..usize::from(self.count).min(WORDS)]
    }

    fn fill(&mut self, words: &[u64]) {
        self.words[..words.len()].copy_from_slice(words);
        self.count = words.len() as u16;
    }

    fn insert(&mut self, at: usize, words: &[u64]) {
        let used = self.used().len();
        self.words.copy_within(at..used, at + words.len());
        self.words[at..at + words.len()].copy_from_slice(words);
        self.count += words.len() as u16;
    }

    fn seal(&mut self) -> &Page {
        self.checksum = crc32c::crc32c(&self.as_bytes()[4..]);
        self
    }
}

fn bytes_of(number: u64) -> Range<u64> {
    number * PAGE..(number + 1) * PAGE
}

struct PageStore {
    file: AtomicMappedFile,
    /// Locked while the file grows. If two threads grow it to different lengths, the later one must
    /// not shorten the file under the earlier one.
    growth: Mutex<()>,
}

impl PageStore {
    fn open(path: &Path) -> Result<PageStore, Box<dyn std::error::Error>> {
        let file = AtomicMappedFile::create(path, GROW_BY * PAGE)?;
        let store = PageStore { file, growth: Mutex::new(()) };
        match store.file.load::<Head>(0)?.magic {
            // A new file, or one with an unfinished first transaction: zeros.
            0 => store.file.transact(|tx| {
                tx.store(0, &Head { magic: MAGIC, pages: ROOT_PAGE + 1, free: 0 })?;
                let leaf = store.allocate(tx)?;
                store.put(tx, Page::new(leaf, LEAF, &[]))?;
                store.put(tx, Page::new(ROOT_PAGE, ROOT, &[0, leaf]))
            })?,
            MAGIC => {}
            _ => return Err(format!("{}: not a page store", path.display()).into()),
        }
        Ok(store)
    }

    /// Writes a whole aligned page. This is one operation, with one drain on `dax`.
    fn write(&self, mut page: Page) -> Result<(), Error> {
        self.file.store(bytes_of(page.number).start, page.seal())
    }

    fn read(&self, number: u64) -> Result<Page, Error> {
        self.file.load(bytes_of(number).start)
    }

    fn get(&self, tx: &mut Transaction<'_>, number: u64) -> Result<Page, Error> {
        tx.load(bytes_of(number).start)
    }

    fn put(&self, tx: &mut Transaction<'_>, mut page: Page) -> Result<(), Error> {
        tx.store(bytes_of(page.number).start, page.seal())
    }

    /// Takes a page in this transaction. Without a commit the page stays free.
    fn allocate(&self, tx: &mut Transaction<'_>) -> Result<u64, Error> {
        let mut head: Head = tx.load(0)?;
        let number = if head.free == 0 {
            self.grow_to(head.pages + 1)?;
            head.pages += 1;
            head.pages - 1
        } else {
            let free = head.free;
            head.free = self.get(tx, free)?.next;
            free
        };
        tx.store(0, &head)?;
        Ok(number)
    }

    fn free(&self, tx: &mut Transaction<'_>, number: u64) -> Result<(), Error> {
        let mut head: Head = tx.load(0)?;
        let page = Page { next: head.free, ..Page::new(number, FREE, &[]) };
        head.free = number;
        self.put(tx, page)?;
        tx.store(0, &head)
    }

    /// Runs outside the transaction, which is safe: pages past the head's count are unused.
    fn grow_to(&self, pages: u64) -> Result<(), Error> {
        let _alone = self.growth.lock().unwrap_or_else(PoisonError::into_inner);
        if self.file.len() < pages * PAGE {
            self.file.set_len((pages + GROW_BY) * PAGE)?;
        }
        Ok(())
    }

    /// Inserts a key into the index. Returns `true` if a page was split.
    fn insert(&self, key: u64) -> Result<bool, Error> {
        self.file.transact(|tx| {
            let mut root = self.get(tx, ROOT_PAGE)?;
            let child = root.used().chunks(2).rposition(|pair| pair[0] <= key).unwrap_or(0);
            let mut leaf = self.get(tx, root.used()[2 * child + 1])?;
            let Err(mut at) = leaf.used().binary_search(&key) else { return Ok(false) };
            let is_full = leaf.used().len() == WORDS;
            if is_full {
                // Four pages change: all of them or none. A root with two levels holds 510 leaves;
                // a real tree would split it as well.
                let (low, high) = leaf.words.split_at(WORDS / 2);
                let mut left = Page::new(leaf.number, LEAF, low);
                let mut right = Page::new(self.allocate(tx)?, LEAF, high);
                root.insert(2 * (child + 1), &[high[0], right.number]);
                self.put(tx, root)?;
                if at > low.len() {
                    at -= low.len();
                    (left, right) = (right, left);
                }
                self.put(tx, right)?;
                leaf = left;
            }
            leaf.insert(at, &[key]);
            self.put(tx, leaf)?;
            Ok(is_full)
        })
    }

    /// Removes the last leaf and its keys from the index, and frees its page. Returns the keys.
    fn remove_last_leaf(&self) -> Result<Vec<u64>, Error> {
        self.file.transact(|tx| {
            let mut root = self.get(tx, ROOT_PAGE)?;
            let pairs = root.used().to_vec();
            let [rest @ .., _first, leaf] = &pairs[..] else { return Ok(Vec::new()) };
            root.fill(rest);
            self.put(tx, root)?;
            let keys = self.get(tx, *leaf)?.used().to_vec();
            self.free(tx, *leaf)?;
            Ok(keys)
        })
    }

    /// Reads the whole file once, from one state, without a copy. Returns the keys in order, or the
    /// first fault that it finds.
    fn check(&self) -> Result<Vec<u64>, Box<dyn std::error::Error>> {
        let head: Head = self.file.load(0)?;
        let view = self.file.view(0..head.pages * PAGE)?;
        // SAFETY: only this process uses the file, and it changes the file through the crate only.
        let bytes = unsafe { view.as_slice() };
        for (number, page) in (0..).zip(bytes.chunks_exact(PAGE as usize)).skip(1) {
            if crc32c::crc32c(&page[4..]).as_bytes() != &page[..4] {
                return Err(format!("page {number}: its checksum is not that of its bytes").into());
            }
        }

        // Every page has exactly one use: no page is lost, and none is used twice.
        let page = |number: u64| view.load::<Page>(bytes_of(number).start);
        let mut uses = vec![0; head.pages as usize];
        let mut used_as = |number: u64, kind: u16| -> Result<Page, Box<dyn std::error::Error>> {
            let page = page(number)?;
            if (page.number, page.kind) != (number, kind) {
                return Err(format!("page {number}: of kind {}, not {kind}", page.kind).into());
            }
            uses[number as usize] += 1;
            Ok(page)
        };
        let mut keys = Vec::new();
        for pair in used_as(ROOT_PAGE, ROOT)?.used().chunks(2) {
            keys.extend_from_slice(used_as(pair[1], LEAF)?.used());
        }
        let mut free = head.free;
        while free != 0 {
            free = used_as(free, FREE)?.next;
        }
        for number in 1..head.pages {
            if page(number)?.kind == NOTE {
                used_as(number, NOTE)?;
            }
        }
        if let Some(number) = uses.iter().skip(1).position(|&uses| uses != 1) {
            return Err(format!("page {}: not used exactly once", number + 1).into());
        }
        if !keys.is_sorted_by(|a, b| a < b) {
            return Err("the keys are not in order".into());
        }
        Ok(keys)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const THREADS: u64 = 2;
    const KEYS: u64 = 20_000;

    let scratch = scratch::Scratch::from_args()?;
    let path = scratch.path("pages");
    let store = PageStore::open(&path)?;
    println!("{}: {}, survives {:?}", path.display(), store.file.medium(), store.file.survives());

    // One page, written repeatedly, each time as one operation.
    let note = store.file.transact(|tx| {
        let number = store.allocate(tx)?;
        store.put(tx, Page::new(number, NOTE, &[]))?;
        Ok::<_, Error>(number)
    })?;
    for version in 0..1000 {
        store.write(Page::new(note, NOTE, &[version; WORDS]))?;
    }
    println!("page {note} written 1000 times");

    // Odd multipliers permute the numbers below a power of two, so every key occurs once.
    let key = |n: u64| n.wrapping_mul(0x9e37_79b9) % (1 << 32);
    let splits = thread::scope(|scope| {
        let insert = |thread| {
            let store = &store;
            move || -> Result<u64, Error> {
                let mut splits = 0;
                for n in (thread..KEYS).step_by(THREADS as usize) {
                    splits += u64::from(store.insert(key(n))?);
                }
                Ok(splits)
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(insert(thread))).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        joined.sum::<Result<u64, Error>>()
    })?;
    let stats = store.file.stats();
    println!("{KEYS} keys by {THREADS} threads, {splits} splits, {} conflicts", stats.conflicts);
    println!("the file has grown from {} to {} pages", GROW_BY, store.file.len() / PAGE);

    let mut removed = Vec::new();
    for _ in 0..3 {
        removed.extend(store.remove_last_leaf()?);
    }
    let pages = store.file.load::<Head>(0)?.pages;
    println!("3 leaves removed, with {} keys: their pages are free", removed.len());
    for key in &removed {
        store.insert(*key)?;
    }
    println!("and inserted again: {} new pages", store.file.load::<Head>(0)?.pages - pages);
    removed = store.remove_last_leaf()?;

    store.file.close(CloseMode::Fast)?;
    let store = PageStore::open(&path)?;
    let found = store.check()?;
    let mut expected: Vec<u64> = (0..KEYS).map(key).filter(|key| !removed.contains(key)).collect();
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(store.read(note)?.used(), [999; WORDS]);
    println!("opened again: every checksum holds, every page has its use, every key is there");
    Ok(())
}
