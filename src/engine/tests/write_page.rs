//! Tests of `write::page`.

use crate::AtomicMappedFile;

/// The prefetches run before any lock is taken, so a truncation may come in between. A prefetch
/// past the end must not panic.
#[test]
fn a_prefetch_past_the_end_does_not_panic() {
    let folder = crate::doctest_dir();
    let file = AtomicMappedFile::create(folder.path().join("x"), 1 << 20).expect("create");
    let engine = file.engine();
    for at in [engine.home.backed(), file.max_len() - 1, file.max_len(), u64::MAX] {
        engine.home.prefetch_write(at);
        engine.home.prefetch_read(at);
    }
}
