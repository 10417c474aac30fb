//! Tests that a new length and its bytes become visible together.

use super::fixture::{A_WHILE, new_file, open, options};
use crate::engine::plan::Segment;
use crate::pair::pause;
use crate::units::{PAGE, PageIndex, REGION};
use crate::{AtomicMappedFile, Error, Medium};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc::channel;
use std::thread;

/// Returns the document of this length: each byte says which one it is.
fn document(len: usize) -> Vec<u8> {
    vec![(len % 251) as u8 + 1; len]
}

/// Each time that this thread loads the length from now on, another thread reads the whole file,
/// and must find one document. Counts the loads.
fn look_at_each_length(file: AtomicMappedFile, looks: Rc<Cell<u32>>) {
    pause::at_next_length(move || {
        looks.set(looks.get() + 1);
        let read = || file.read_vec().expect("a read");
        let found = std::thread::scope(|scope| scope.spawn(read).join().expect("no panic"));
        assert_eq!(found, document(found.len()), "bytes of another document");
        look_at_each_length(file, looks);
    });
}

#[test]
fn a_document_is_visible_with_its_length_and_not_before_or_after() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), 0);
    file.replace(&document(100)).expect("a document");
    let looks = Rc::new(Cell::new(0));
    look_at_each_length(file.try_clone().expect("a handle"), looks.clone());
    for len in [PAGE + 5, 3 * PAGE, 200, 70, 30 * PAGE] {
        file.replace(&document(len)).expect("a document");
    }
    // The last pause has a handle of the file.
    pause::at_next_length(|| ());
    assert!(looks.get() >= 10, "{} looks", looks.get());
}

/// While a transaction publishes its longer length, it holds what it has read and what it writes,
/// on both sides of the old end. So no other operation stores to a page that its record covers.
#[test]
fn a_growth_holds_all_its_pages_when_its_length_is_published() {
    let (page, region) = (PAGE as u64, REGION as u64);
    for old in [0, 5 * page + 7, region, region + page, 3 * region - 1] {
        let folder = tempfile::tempdir().expect("a folder");
        let file = new_file(folder.path(), old);
        let writes = [old, old + page, old + region, old + 3 * region];
        let reads = [0, old / 2, old.saturating_sub(8)].map(|at| at.min(old.saturating_sub(8)));
        let reads = if old == 0 { &[][..] } else { &reads };
        let pages: Vec<u64> = reads.iter().chain(&writes).copied().collect();
        let looks = Rc::new(Cell::new(0));
        let (same, looked) = (file.try_clone().expect("a handle"), looks.clone());
        pause::at_next_new_length(move || {
            let is_held = |at: &u64| {
                let page = PageIndex::of(*at);
                let region = same.engine().region(page.region()).expect("a region");
                region.lock.is_locked() || region.pages[page.in_region()].lock.is_locked()
            };
            let open: Vec<&u64> = pages.iter().filter(|at| !is_held(at)).collect();
            assert!(open.is_empty(), "not locked: {open:?}, from {old}");
            looked.set(looked.get() + 1);
        });
        file.transact(|tx| {
            reads.iter().try_for_each(|at| tx.read_at(&mut [0; 8], *at))?;
            tx.set_len(old + 4 * region)?;
            writes.iter().try_for_each(|at| tx.write_at(&[7; 8], *at))
        })
        .expect("a growth");
        assert_eq!(looks.get(), 1);
        for at in writes {
            assert_eq!(file.load::<[u8; 8]>(at).expect("a read"), [7; 8]);
        }
    }
}

/// Another thread's write may need space in the durable point of a shrink. The shrink has taken no
/// space for it, so it has to wait until the point has its cut.
#[test]
fn no_write_comes_between_a_shrink_and_the_cut_of_its_point() {
    let folder = tempfile::tempdir().expect("a folder");
    let len = 3 * REGION as u64;
    let file = open(folder.path(), options(len).medium(Medium::PageCache));
    for writes in [false, true] {
        let same = file.try_clone().expect("a handle");
        let (tell, told) = channel();
        pause::at_next_new_length(move || {
            let writer = thread::spawn(move || same.write_at(&[7; 8], 0));
            thread::sleep(A_WHILE);
            assert!(!writer.is_finished(), "it waits");
            tell.send(writer).expect("told");
        });
        // The locks of the region that the new end cuts keep no write from the one before it.
        file.transact(|tx| {
            tx.set_len(len / 2)?;
            if writes { tx.write_at(&[1; 8], len / 2 - 8) } else { Ok(()) }
        })
        .expect("a shrink");
        told.recv().expect("a writer").join().expect("no panic").expect("a write");
        assert_eq!(file.len(), len / 2);
        file.set_len(len).expect("a growth");
        assert_eq!(file.load::<[u8; 8]>(0).expect("a read"), [7; 8]);
    }
}

/// Another thread may make the file shorter between the look at its length and the locks. The
/// replacement then looks again: it must not report its own bytes as past the end.
#[test]
fn a_replacement_that_finds_a_shorter_file_is_a_conflict() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = open(folder.path(), options(100).medium(Medium::Ram));
    let data = document(5000);
    let segments = [Segment { offset: 0, data: &data }];
    let replaced = file.engine().replace_once(&segments, 5000, 5000);
    assert!(matches!(replaced, Err(Error::Conflict { .. })), "{replaced:?}");
    assert_eq!(file.len(), 100);
    file.replace(&data).expect("the length is looked at");
    assert_eq!(file.read_vec().expect("read"), data);
}
