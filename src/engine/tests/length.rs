//! Tests that a new length and its bytes become visible together.

use super::fixture::new_file;
use crate::AtomicMappedFile;
use crate::pair::pause;
use crate::units::PAGE;
use std::cell::Cell;
use std::rc::Rc;

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
