//! Tests of `pair::space` and `pair::ahead`: the counts of allocated pages, what is known of chunks
//! that were allocated ahead, and for how many chunks words are allocated together.

use super::fixture::{new_file, open, options};
use crate::bitmap::Side;
use crate::engine::Engine;
use crate::pair::page_table::known;
use crate::primitive::Ordering;
use crate::units::{CHUNK, CHUNKS_PER_SUPERCHUNK, ChunkIndex, PAGE, SUPERCHUNK};
use crate::{AtomicMappedFile, Medium};

/// Allocates a chunk as the worker does.
fn allocate_ahead(engine: &Engine, side: Side, chunk: ChunkIndex) -> bool {
    let _no_change = engine.resizing.read();
    engine.allocate_chunk_ahead(&engine.lane(), side, chunk).expect("storage")
}

/// Fails if more pages count as allocated than have storage. A store to one of those would be a
/// fault on a full disk.
#[track_caller]
fn assert_storage(engine: &Engine, what: &str) {
    for (file, side) in [(&engine.home, Side::Home), (&engine.reflection, Side::Reflection)] {
        let Some(storage) = file.storage() else { return };
        let known = engine.allocated.bytes(side);
        assert!(known <= storage, "{what}: {known} bytes of {side:?} are known, {storage} exist");
    }
}

/// A chunk at the end of the file is allocated up to the end. After a growth it is longer.
#[test]
fn a_chunk_that_was_allocated_ahead_is_not_whole_after_a_growth() {
    let folder = tempfile::tempdir().expect("a folder");
    let len = (CHUNK + CHUNK / 4) as u64;
    let file = open(folder.path(), options(len).max_len(4 * CHUNK as u64));
    let engine = file.engine();
    let last = ChunkIndex(1);
    for side in [Side::Home, Side::Reflection] {
        assert!(allocate_ahead(engine, side, last));
        assert!(!allocate_ahead(engine, side, last), "it is allocated");
    }
    file.set_len(3 * CHUNK as u64).expect("longer");
    for n in 1..3 {
        file.write_at(&[n; PAGE], last.start()).expect("a write to either side");
        assert_storage(engine, "after a growth");
    }
    // A chunk past the end is not allocated.
    assert!(!allocate_ahead(engine, Side::Home, ChunkIndex(3)));
}

/// Some pages of the chunk were in use before the rest was allocated ahead.
#[test]
fn a_chunk_that_was_allocated_ahead_is_not_whole_after_a_punch() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = new_file(folder.path(), 2 * CHUNK as u64);
    let engine = file.engine();
    let chunk = ChunkIndex(1);
    for n in 1..3 {
        file.write_at(&[n; 8 * PAGE], chunk.start()).expect("a write to either side");
    }
    assert!(allocate_ahead(engine, Side::Reflection, chunk));
    assert_eq!(engine.allocated.bytes(Side::Reflection), CHUNK as u64);
    assert_storage(engine, "ahead");
    engine.punch_chunk(chunk, |_| !0).expect("no error");
    assert_storage(engine, "after a punch");
    file.write_at(&[3; PAGE], chunk.start()).expect("a write");
    assert_storage(engine, "after a write");
    let found: [u8; 2 * PAGE] = file.load(chunk.start()).expect("a read");
    assert_eq!([found[0], found[PAGE]], [3, 2]);
}

/// The counts are read without a walk. They equal the sums that a walk through all chunks finds.
#[test]
fn the_counts_of_both_files_are_what_a_walk_through_all_chunks_finds() {
    for medium in [Medium::Ram, Medium::PageCache] {
        let folder = tempfile::tempdir().expect("a folder");
        let options = AtomicMappedFile::options().create(true).len(4 << 20).medium(medium);
        let file = options.open(folder.path().join("state.dat")).expect("a pair");
        let engine = file.engine();
        let counts = || [Side::Home, Side::Reflection].map(|side| engine.allocated.bytes(side));
        let check = |what: &str| {
            let counted = counts();
            let _no_allocation = engine.allocating.lock();
            engine.recount_all();
            assert_eq!(counted, counts(), "{medium:?}: {what}");
            counted
        };
        assert_eq!(check("nothing")[1], 0);
        file.write_at(&[1; 10], 0).expect("a write");
        let one = check("one page")[1];
        // The slots, and the words beside them.
        let expected = if medium == Medium::Ram { PAGE + PAGE } else { PAGE + 2 * PAGE };
        assert_eq!(one, expected as u64, "{medium:?}");
        assert_eq!(file.stats().reflection_allocated, one);
        file.write_at(&vec![1; 3 << 20], 100).expect("a write");
        // The next write may then go to the slots of the point before.
        file.sync().expect("a durable point");
        file.write_at(&vec![2; 3 << 20], 100).expect("a write over both sides");
        let [home, reflection] = check("both sides");
        assert!(home >= 3 << 20 && reflection >= 3 << 20, "{medium:?}: {home}, {reflection}");
        file.deploy(0..4 << 20).expect("deployed");
        // A deployment gives chunks back, where the file system has holes.
        let given_back = file.stats().punches;
        assert_eq!(check("a hole")[1] < reflection, given_back > 0, "{medium:?}");
        file.write_at(&[3; 10], 3 << 20).expect("a write");
        file.set_len(1 << 20).expect("shorter");
        assert!(check("a truncation")[0] < home, "{medium:?}");
        file.set_len(8 << 20).expect("longer");
        file.write_at(&[3; 10], 6 << 20).expect("a write");
        check("a growth");
    }
}

/// A writer that goes on has words that lie together on a disk. A writer that jumps about has no
/// more words than it needs.
#[test]
fn words_are_allocated_for_as_many_chunks_as_lie_before() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = options(64 * CHUNK as u64).medium(Medium::PageCache);
    let file = open(folder.path(), options);
    let engine = file.engine();
    let with_words = || -> Vec<u64> {
        let has = |n: &u64| {
            let state = engine.chunk_state(ChunkIndex(*n)).load(Ordering::Relaxed);
            state & known::SLICE_WORDS != 0
        };
        (0..CHUNKS_PER_SUPERCHUNK as u64).filter(has).collect()
    };
    // From here on each write has to find a slice word.
    let write = |chunk: u64| {
        let half = [chunk as u8 + 1; PAGE / 2];
        file.write_at(&half, ChunkIndex(chunk).start()).expect("a write");
    };
    for chunk in [5, 9, 3] {
        write(chunk);
    }
    assert_eq!(with_words(), [3, 5, 9], "none lies before");
    write(4);
    assert_eq!(with_words(), [3, 4, 5, 9], "the next one has words");
    write(6);
    assert_eq!(with_words(), [3, 4, 5, 6, 7, 8, 9], "three before, and up to the next one");
    write(10);
    let all_up_to = |end: u64| (3..end).collect::<Vec<_>>();
    assert_eq!(with_words(), all_up_to(17), "seven before");
    write(17);
    assert_eq!(with_words(), all_up_to(31), "fourteen before");
    write(31);
    assert_eq!(with_words(), all_up_to(47), "the longest run");
    write(63);
    assert_eq!(with_words().last(), Some(&63));
    assert_storage(engine, "with words ahead");
}

/// Words are allocated ahead up to the end of their superchunk, since the next words lie elsewhere.
#[test]
fn words_ahead_end_with_their_superchunk() {
    let folder = tempfile::tempdir().expect("a folder");
    let len = SUPERCHUNK as u64 + CHUNK as u64;
    let file = open(folder.path(), options(len).medium(Medium::PageCache));
    let per_superchunk = CHUNKS_PER_SUPERCHUNK as u64;
    for chunk in per_superchunk - 8..=per_superchunk {
        file.write_at(&[1; PAGE / 2], ChunkIndex(chunk).start()).expect("a write");
        assert_storage(file.engine(), "at the end of a superchunk");
    }
    let state = file.engine().chunk_state(ChunkIndex(per_superchunk + 1)).load(Ordering::Relaxed);
    assert_eq!(state & known::SLICE_WORDS, 0, "one chunk at the beginning of the next one");
}
