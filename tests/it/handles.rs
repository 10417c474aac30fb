//! Do slots and arrays do what the standard library's atomics and vectors do?
//!
//! Handles that hold the file and handles that borrow it, of integers, `bool` and `Optional`; the
//! iterator over an array; values with checked bytes; and the length of a created file.

use crate::common::{self, Ground, Rng};
use atomic_mmap::{
    Array, AtomicMappedFile, Bits, CloseMode, Error, Integer, Optional, Record, Slot,
};
use proptest::prelude::*;
use std::fmt::Debug;
use std::fs;
use std::io;
use std::sync::Barrier;

const PAGE: u64 = 4096;
/// Offset of the arrays: their values lie across slices and pages.
const AT: u64 = PAGE - 21;
/// Values of an array in the model.
const COUNT: u64 = 13;

fn new_file(ground: &Ground, len: u64) -> (common::Scratch, AtomicMappedFile) {
    let scratch = ground.scratch();
    let file = ground.options().create(true).len(len).open(scratch.file("state.dat"));
    (scratch, file.expect("open"))
}

/// One operation on an array of the model.
#[derive(Clone, Copy, Debug)]
enum Op<T> {
    Set(u64, T),
    Swap(u64, T),
    Exchange(u64, T, T),
    Update(u64, T),
    FetchUpdate(u64, Option<T>),
    SetMany(u64, T),
    Slice(u64, u64),
}

fn op<T: Copy + Debug + 'static>(value: BoxedStrategy<T>) -> impl Strategy<Value = Op<T>> {
    let index = 0..COUNT;
    let (i, v) = (index.clone(), value.clone());
    prop_oneof![
        (i.clone(), v.clone()).prop_map(|(i, v)| Op::Set(i, v)),
        (i.clone(), v.clone()).prop_map(|(i, v)| Op::Swap(i, v)),
        (i.clone(), v.clone(), v.clone()).prop_map(|(i, old, new)| Op::Exchange(i, old, new)),
        (i.clone(), v.clone()).prop_map(|(i, v)| Op::Update(i, v)),
        (i.clone(), prop::option::of(v.clone())).prop_map(|(i, v)| Op::FetchUpdate(i, v)),
        (i, v).prop_map(|(i, v)| Op::SetMany(i, v)),
        (index.clone(), index).prop_map(|(a, b)| Op::Slice(a.min(b), a.max(b))),
    ]
}

fn apply<T: Record + Copy + PartialEq + Debug>(array: &Array<T>, model: &mut [T], op: Op<T>) {
    let slot = |index: u64| array.slot(index).expect("a slot");
    let old = |model: &[T], index: u64| model[index as usize];
    match op {
        Op::Set(i, v) => {
            array.set(i, &v).expect("set");
            model[i as usize] = v;
        }
        Op::Swap(i, v) => {
            assert_eq!(slot(i).swap(&v).expect("swap"), old(model, i));
            model[i as usize] = v;
        }
        Op::Exchange(i, expected, new) => {
            let found = old(model, i);
            let result = slot(i).compare_exchange(&expected, &new).expect("exchange");
            if found == expected {
                assert_eq!(result, Ok(()));
                model[i as usize] = new;
            } else {
                assert_eq!(result, Err(found));
            }
        }
        Op::Update(i, v) => {
            let found = array.update(i, |value| std::mem::replace(value, v)).expect("update");
            assert_eq!(found, old(model, i));
            model[i as usize] = v;
        }
        Op::FetchUpdate(i, new) => {
            let found = old(model, i);
            let result = slot(i).fetch_update(|value| new.filter(|_| value == found));
            match new {
                Some(new) => {
                    assert_eq!(result.expect("fetch_update"), Ok(found));
                    model[i as usize] = new;
                }
                None => assert_eq!(result.expect("fetch_update"), Err(found)),
            }
        }
        Op::SetMany(i, v) => {
            let values = vec![v; (COUNT - i) as usize];
            array.set_many(i, &values).expect("set many");
            model[i as usize..].fill(v);
        }
        Op::Slice(start, end) => {
            let slice = array.slice(start..end).expect("a slice");
            let expected = &model[start as usize..end as usize];
            assert_eq!(slice.to_vec().expect("values"), expected);
            assert_eq!(slice.iter().collect::<Result<Vec<T>, _>>().expect("values"), expected);
            assert_eq!(slice.len(), end - start);
        }
    }
    assert_eq!(array.to_vec().expect("values"), model);
    let borrowed = array.borrowed();
    for (index, expected) in (0..).zip(model.iter()) {
        assert_eq!(array.get(index).expect("a value"), *expected);
        assert_eq!(borrowed.slot(index).expect("a slot").load().expect("a value"), *expected);
    }
}

/// Runs random operations on an array of `T` and on a vector. `zero` is the value of zeroed bytes.
fn check<T: Record + Copy + PartialEq + Debug + 'static>(zero: T, value: BoxedStrategy<T>) {
    let (_scratch, file) = new_file(&common::ram(), 3 * PAGE);
    let array = file.array::<T>(AT, COUNT).expect("array").into_owned().expect("an owned array");
    drop(file);
    proptest!(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(48) },
    |(ops in prop::collection::vec(op(value), 1..40))| {
        let mut model = vec![zero; COUNT as usize];
        array.set_many(0, &model).expect("reset");
        for op in ops {
            apply(&array, &mut model, op);
        }
    });
}

#[test]
fn arrays_do_what_vectors_do() {
    check(0, any::<u8>().boxed());
    check(0, (0..4_u64).boxed());
    check(0, any::<i128>().boxed());
    check(false, any::<bool>().boxed());
    check('\0', any::<char>().boxed());
    check([false; 3], any::<[bool; 3]>().boxed());
    check(Optional::none(), any::<Option<u64>>().prop_map(Optional::from).boxed());
    check(Optional::none(), any::<Option<bool>>().prop_map(Optional::from).boxed());
}

/// A call on a slot, and the value that it should leave.
type Calculation<T, F> = (fn(&Slot<T, F>, T) -> Result<T, Error>, fn(T, T) -> T);

/// Compares each calculation with the standard library's, on values near the limits.
fn check_calculations<T: Integer + Debug>(values: &[T], sum: fn(T, T) -> T, less: fn(T, T) -> T) {
    let (_scratch, file) = new_file(&common::ram(), 2 * PAGE);
    let slot = file.slot::<T>(PAGE - 1).expect("a slot");
    let calls: [Calculation<T, &AtomicMappedFile>; 4] = [
        (|s, v| s.fetch_add(v), sum),
        (|s, v| s.fetch_sub(v), less),
        (|s, v| s.fetch_max(v), |a, b| a.max(b)),
        (|s, v| s.fetch_min(v), |a, b| a.min(b)),
    ];
    for old in values {
        for value in values {
            for (call, expected) in calls {
                slot.store(old).expect("store");
                assert_eq!(call(&slot, *value).expect("a calculation"), *old);
                assert_eq!(slot.load().expect("load"), expected(*old, *value));
            }
        }
    }
    check_bits(values);
}

fn writes(file: &AtomicMappedFile) -> u64 {
    let stats = file.stats();
    let flips = stats.logged_flip_writes + stats.flip_writes;
    flips + stats.undo_writes + stats.redo_writes + stats.direct_writes
}

fn check_bits<T: Bits + Debug>(values: &[T]) {
    let (_scratch, file) = new_file(&common::ram(), 2 * PAGE);
    let slot = file.slot::<T>(PAGE - 1).expect("a slot").into_owned().expect("an owned slot");
    let calls: [Calculation<T, AtomicMappedFile>; 3] = [
        (|s, v| s.fetch_and(v), |a, b| a & b),
        (|s, v| s.fetch_or(v), |a, b| a | b),
        (|s, v| s.fetch_xor(v), |a, b| a ^ b),
    ];
    for old in values {
        for value in values {
            for (call, expected) in calls {
                slot.store(old).expect("store");
                let before = writes(&file);
                assert_eq!(call(&slot, *value).expect("a calculation"), *old);
                let new = expected(*old, *value);
                assert_eq!(slot.load().expect("load"), new);
                if new == *old {
                    assert_eq!(writes(&file), before, "nothing is written");
                }
            }
        }
    }
}

#[test]
fn calculations_are_those_of_the_standard_library() {
    check_calculations(&[0, 1, 7, 0x5A, u8::MAX], u8::wrapping_add, u8::wrapping_sub);
    let large = [0, 1, 1 << 63, u64::MAX - 1, u64::MAX, 0x0123_4567_89AB_CDEF];
    check_calculations(&large, u64::wrapping_add, u64::wrapping_sub);
    let signed = [0, 1, -1, i32::MIN, i32::MAX, 0x5A5A];
    check_calculations(&signed, i32::wrapping_add, i32::wrapping_sub);
    check_bits(&[false, true]);
}

#[test]
fn no_calculation_of_several_threads_is_lost() {
    const THREADS: u32 = 4;
    for ground in common::media() {
        let (_scratch, file) = new_file(&ground, 3 * PAGE);
        let number = || file.slot::<u64>(64).expect("a slot").into_owned().expect("owned");
        let bits = || file.slot::<u64>(PAGE - 4).expect("a slot").into_owned().expect("owned");
        let flags = file.array::<bool>(2 * PAGE, 64).expect("an array");
        let parity = file.slot::<u32>(128).expect("a slot");
        number().store(&1000).expect("store");
        bits().store(&u64::from(u32::MAX)).expect("store");
        let all_there = Barrier::new(THREADS as usize);
        let counts: Vec<u32> = std::thread::scope(|scope| {
            let threads = (0..THREADS).map(|thread| {
                // Each thread owns its handles.
                let (number, bits, all_there) = (number(), bits(), &all_there);
                scope.spawn(move || {
                    all_there.wait();
                    let mut first = 0;
                    for n in 0..32 {
                        number.fetch_sub(u64::from(thread)).expect("sub");
                        number.fetch_add(u64::from(thread) + 1).expect("add");
                        // All threads set the same flags. One of them is the first.
                        let was_set = flags.slot(n).expect("a slot").fetch_or(true).expect("or");
                        first += u32::from(!was_set);
                        parity.fetch_xor((1 << n) ^ (1 << (thread * 8))).expect("xor");
                        if n % u64::from(THREADS) == u64::from(thread) {
                            bits.fetch_or(1 << (32 + n)).expect("or");
                            bits.fetch_and(!(1 << n)).expect("and");
                        }
                    }
                    first
                })
            });
            let threads: Vec<_> = threads.collect();
            threads.into_iter().map(|thread| thread.join().expect("a thread")).collect()
        });
        assert_eq!(counts.iter().sum::<u32>(), 32, "each flag has one first thread");
        assert_eq!(number().load().expect("load"), 1000 + 32 * u64::from(THREADS));
        assert_eq!(bits().load().expect("load"), u64::from(u32::MAX) << 32);
        let is_set: Vec<bool> = flags.to_vec().expect("values");
        assert_eq!(is_set, [[true; 32], [false; 32]].concat());
        // Each bit was toggled an even number of times.
        assert_eq!(parity.load().expect("load"), 0);
    }
}

struct Offsets {
    committed: Array<u64>,
    is_clean: Slot<bool>,
}

#[test]
fn a_struct_can_keep_handles_and_they_keep_the_file_open() {
    for ground in common::media() {
        let (scratch, file) = new_file(&ground, 2 * PAGE);
        let path = scratch.file("state.dat");
        let offsets = Offsets {
            committed: file.array(64, 100).expect("array").into_owned().expect("owned"),
            is_clean: file.slot(7).expect("slot").into_owned().expect("owned"),
        };
        offsets.is_clean.store(&true).expect("store");
        let closed = file.close(CloseMode::Spatial);
        assert!(matches!(closed, Err(Error::StillOpen { handles: 2, .. })), "{closed:?}");
        let again = ground.options().open(&path);
        assert!(matches!(again, Err(Error::Busy { in_this_process: true, .. })), "{again:?}");

        let offsets = std::thread::spawn(move || {
            offsets.committed.set(99, &5).expect("set");
            offsets
        });
        let Offsets { committed, is_clean } = offsets.join().expect("a thread");
        assert_eq!(committed.slot(99).expect("a slot").fetch_add(1).expect("add"), 5);
        drop(committed);
        assert_eq!(is_clean.file().len(), 2 * PAGE);
        is_clean.into_file().close(CloseMode::Spatial).expect("close");
        assert!(scratch.reflections().is_empty(), "the last handle has closed the file");
        let bytes = fs::read(&path).expect("read");
        assert_eq!((bytes[7], bytes[64 + 99 * 8]), (1, 6));
    }
}

#[test]
fn handles_past_the_end_of_a_shorter_file_return_errors() {
    let (_scratch, file) = new_file(&common::ram(), 2 * PAGE);
    let array = file.array::<u64>(0, 1024).expect("array");
    let slot = array.slot(1023).expect("slot").into_owned().expect("owned");
    file.set_len(PAGE).expect("shrink");
    for result in [slot.load().map(drop), slot.store(&1), array.to_vec().map(drop)] {
        assert!(matches!(result, Err(Error::PastEnd { .. })), "{result:?}");
    }
    let mut values = array.iter();
    assert!(values.next().expect("a value").is_err(), "the first block goes past the end");
    assert!(values.next().is_none() && values.next().is_none(), "an error ends the iteration");
}

#[test]
fn an_iterator_reads_blocks_of_one_state() {
    const VALUES: u64 = 3 * (16 << 10) / 8 + 5;
    for ground in common::media_in_memory() {
        let (_scratch, file) = new_file(&ground, 64 * PAGE);
        let array = file.array::<u64>(24, VALUES).expect("array");
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for n in 1..=200 {
                    array.set_many(0, &vec![n; VALUES as usize]).expect("set many");
                }
            });
            loop {
                let is_last = writer.is_finished();
                let all: Vec<u64> = array.iter().collect::<Result<_, _>>().expect("values");
                assert_eq!(all.len() as u64, VALUES);
                assert!(
                    all.chunks((16 << 10) / 8).all(|block| block.iter().all(|v| *v == block[0]))
                );
                assert!(all.is_sorted(), "a later block is not of an earlier state");
                let whole = array.to_vec().expect("values");
                assert!(whole.iter().all(|value| *value == whole[0]));
                if is_last {
                    assert_eq!(all[0], 200);
                    break;
                }
            }
        });
    }
}

#[test]
fn an_iterator_takes_values_of_every_size() {
    let (_scratch, file) = new_file(&common::ram(), 64 * PAGE);
    file.write_at(&Rng(1).bytes(64 * PAGE as usize), 0).expect("fill");
    fn same<T: Record + PartialEq>(file: &AtomicMappedFile, count: u64) {
        let array = file.array::<T>(33, count).expect("array");
        let found: Vec<T> = array.iter().collect::<Result<_, _>>().expect("values");
        assert_eq!(found.len() as u64, count);
        for (index, value) in (0..).zip(&found) {
            assert!(*value == array.get(index).expect("a value"), "value {index}");
        }
        assert_eq!(array.iter().size_hint(), (usize::from(count > 0), Some(count as usize)));
    }
    same::<u8>(&file, 40_000);
    same::<[u8; 3]>(&file, 20_000);
    same::<[u8; 16_383]>(&file, 5);
    same::<[u8; 16_385]>(&file, 5);
    same::<[u64; 5000]>(&file, 3);
    same::<u64>(&file, 0);
    same::<[u8; 0]>(&file, 40_000);
}

#[track_caller]
fn assert_invalid<T: Debug>(result: Result<T, Error>, at: u64, name: &str) {
    match result {
        Err(Error::InvalidValue { path, offset, type_name }) => {
            assert_eq!((offset, type_name), (at, name));
            assert!(path.ends_with("state.dat"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn bytes_that_are_no_value_are_an_error_with_their_offset() {
    for ground in common::media() {
        let (_scratch, file) = new_file(&ground, 64 * PAGE);
        let flags = file.array::<bool>(100, 50_000).expect("array");
        let at = 100 + 40_000;
        file.store(at, &2_u8).expect("store");
        let flag = flags.slot(40_000).expect("slot");
        let error = |result: Result<bool, Error>| assert_invalid(result, at, "bool");
        error(flag.load());
        error(flag.swap(&true));
        error(flag.fetch_or(true));
        error(flag.update(|value| *value));
        error(flags.get(40_000));
        error(flag.compare_exchange(&false, &true).map(|result| result.is_ok()));
        error(flag.fetch_update(Some).map(|result| result.is_ok()));
        error(file.view(50..at + 1).expect("a view").load(at - 50));
        error(file.begin().load(at));
        error(file.transact(|tx| tx.load(at)));
        error(flags.to_vec().map(|_| true));
        let mut values = flags.iter();
        assert_eq!(values.by_ref().take(40_000).filter(|value| value.is_ok()).count(), 40_000);
        error(values.next().expect("a value"));
        assert!(values.next().is_none(), "an error ends the iteration");
        assert_invalid(file.load::<Optional<u8>>(at), at, std::any::type_name::<Optional<u8>>());
        assert_eq!(file.load::<u8>(at).expect("load"), 2, "nothing was changed");

        let error = io::Error::from(flag.load().expect_err("no bool"));
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains("state.dat: the bytes at offset 40100 are no valid"));
        flag.store(&true).expect("store");
        assert!(flag.load().expect("load"), "a store replaces the bytes");
    }
}

#[test]
fn a_created_file_has_at_least_the_length_asked_for() {
    let scratch = common::ram().scratch();
    let path = scratch.file("state.dat");
    let create = |len| AtomicMappedFile::create(&path, len);
    fs::write(&path, [7; 5000]).expect("a plain file");
    let file = create(9000).expect("open");
    let bytes = common::read_all(&file);
    assert_eq!((&bytes[..5000], &bytes[5000..]), (&[7; 5000][..], &[0; 4000][..]));
    file.write_at(&[8], 8999).expect("write");
    file.close(CloseMode::Fast).expect("close");

    // A longer file keeps its length.
    let file = create(100).expect("open");
    assert_eq!((file.len(), file.load::<u8>(8999).expect("load")), (9000, 8));
    file.close(CloseMode::Spatial).expect("close");

    // The options give a length to new files only.
    let file = AtomicMappedFile::options().len(10_000).open(&path).expect("open");
    assert_eq!(file.len(), 9000);
}

/// Compiles only if `transact` needs no annotation of its error type.
#[test]
fn transact_infers_its_error_in_functions_of_every_error_type() {
    fn as_io(file: &AtomicMappedFile) -> io::Result<u64> {
        let n = file.transact(|tx| {
            tx.store(0, &1_u64)?;
            Ok(tx.load::<u64>(0)? + 1)
        })?;
        Ok(n)
    }
    fn as_box(file: &AtomicMappedFile) -> Result<u64, Box<dyn std::error::Error>> {
        let n = file.transact(|tx| {
            let n: u64 = tx.load(0)?;
            tx.store(8, &(n + 5))?;
            tx.load::<u64>(8)
        })?;
        Ok(n)
    }
    let (_scratch, file) = new_file(&common::ram(), PAGE);
    assert_eq!(as_io(&file).expect("a transaction"), 2);
    assert_eq!(as_box(&file).expect("a transaction"), 6);
}

#[test]
fn a_private_copy_is_lent_as_a_slice() {
    for ground in common::media() {
        let (_scratch, file) = new_file(&ground, 4 * PAGE);
        file.write_at(b"first", 10).expect("write");
        let first = file.view(10..15).expect("a view");
        file.write_at(b"other", 10).expect("write");
        let second = file.view(10..15).expect("a view");
        file.write_at(b"third", 10).expect("write");
        for (view, expected) in [(&first, b"first"), (&second, b"other")] {
            assert_eq!(view.as_copy().is_none(), view.is_mapped());
            assert!(view.as_copy().is_none_or(|bytes| bytes == expected), "{view:?}");
            assert_eq!(view.to_vec().expect("bytes"), expected);
        }
        assert!(second.as_copy().is_some(), "the first view pins the page, or it is page cache");
    }
}
