//! Tests names, space and logs against a map, with random operations.
//!
//! A case is a list of steps: an operation by itself, several in one transaction, several that are
//! rolled back, or a reopening. After each step the test compares everything that can be read, and
//! checks the invariants of all bytes. `PROPTEST_CASES` sets the number of cases.

use super::reading::{self, Read};
use super::{open, reason};
use crate::common::{self, Ground, Rng};
use atomic_mmap::zerocopy::IntoBytes;
use atomic_mmap::{CloseMode, Log, Roots, StructureError, Transaction};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::collections::{BTreeMap, VecDeque};

const CASES: u32 = 40;
const NAMES: [&str; 5] = [
    "a",
    "b",
    "log",
    "vote",
    "a name with exactly eighty bytes: 0123456789 \
     0123456789 0123456789 0123456789 01",
];

/// The thing that a name stands for.
#[derive(Clone, PartialEq, Debug)]
enum Thing {
    Small([u64; 1]),
    Large(Box<[u64; 600]>),
    Array(Vec<u64>),
    Log { first: u64, records: VecDeque<Vec<u8>> },
}

type Model = BTreeMap<&'static str, Thing>;

#[derive(Clone, Debug)]
enum Op {
    Small(usize, u64),
    Large(usize, u64),
    Array(usize, u64, u64),
    Log(usize),
    Append(usize, Vec<usize>, u64),
    TruncateBack(usize, u64),
    TruncateFront(usize, u64),
    Remove(usize),
}

#[derive(Clone, Debug)]
enum Step {
    Alone(Op),
    Together(Vec<Op>),
    RolledBack(Vec<Op>),
    Reopen(CloseMode),
}

fn record_len() -> impl Strategy<Value = usize> {
    prop_oneof![
        1 => Just(0usize),
        4 => 1..40usize,
        2 => prop_oneof![Just(4063usize), Just(4064), Just(4071), Just(4072), Just(4073)],
        2 => 100..6000usize,
        1 => 6000..40_000usize,
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let name = 0..NAMES.len();
    prop_oneof![
        3 => (name.clone(), any::<u64>()).prop_map(|(n, v)| Op::Small(n, v)),
        2 => (name.clone(), any::<u64>()).prop_map(|(n, v)| Op::Large(n, v)),
        2 => (name.clone(), 0..3000u64, any::<u64>()).prop_map(|(n, c, v)| Op::Array(n, c, v)),
        4 => name.clone().prop_map(Op::Log),
        14 => (name.clone(), prop::collection::vec(record_len(), 0..5), any::<u64>())
            .prop_map(|(n, lens, seed)| Op::Append(n, lens, seed)),
        4 => (name.clone(), 0..14u64).prop_map(|(n, by)| Op::TruncateBack(n, by)),
        4 => (name.clone(), 0..14u64).prop_map(|(n, by)| Op::TruncateFront(n, by)),
        3 => name.prop_map(Op::Remove),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let mode = prop_oneof![Just(CloseMode::Fast), Just(CloseMode::Spatial)];
    prop_oneof![
        12 => op().prop_map(Step::Alone),
        4 => prop::collection::vec(op(), 1..5).prop_map(Step::Together),
        3 => prop::collection::vec(op(), 1..5).prop_map(Step::RolledBack),
        1 => mode.prop_map(Step::Reopen),
    ]
}

/// The file under test: with a transaction, or with each operation by itself.
struct Subject<'a, 'tx, 'file> {
    roots: &'a Roots,
    tx: Option<&'tx mut Transaction<'file>>,
}

/// Calls the form with a transaction, or the one without.
macro_rules! call {
    ($subject:ident, $on:expr, $with:ident, $without:ident, $($argument:expr),*) => {
        match &mut $subject.tx {
            Some(tx) => $on.$with(tx, $($argument),*),
            None => $on.$without($($argument),*),
        }
    };
}

impl Subject<'_, '_, '_> {
    /// Makes or finds a value, and stores `value` in it.
    fn put<T: atomic_mmap::Record>(&mut self, name: &str, value: &T) -> atomic_mmap::Result<()> {
        match &mut self.tx {
            Some(tx) => {
                let offset = self.roots.get_or_insert_in::<T>(tx, name)?;
                tx.store(offset, value)
            }
            None => self.roots.get_or_insert::<T>(name)?.store(value),
        }
    }

    fn put_array(&mut self, name: &str, values: &[u64]) -> atomic_mmap::Result<()> {
        let count = values.len() as u64;
        match &mut self.tx {
            Some(tx) => {
                let offset = self.roots.get_or_insert_array_in::<u64>(tx, name, count)?;
                tx.store(offset, values)
            }
            None => self.roots.get_or_insert_array::<u64>(name, count)?.set_many(0, values),
        }
    }

    fn log(&mut self, name: &str) -> atomic_mmap::Result<Log> {
        call!(self, self.roots, log_in, log, name)
    }

    /// Runs an operation on the file and on the model, and compares the answers.
    fn run(&mut self, model: &mut Model, op: &Op) {
        match op {
            Op::Small(n, value) => {
                let is_other = model.get(NAMES[*n]).is_some_and(|t| !matches!(t, Thing::Small(_)));
                let result = self.put(NAMES[*n], &[*value]);
                expect_type(result, is_other, || {
                    drop(model.insert(NAMES[*n], Thing::Small([*value])))
                });
            }
            Op::Large(n, value) => {
                let is_other = model.get(NAMES[*n]).is_some_and(|t| !matches!(t, Thing::Large(_)));
                let value = Box::new([*value; 600]);
                let result = self.put(NAMES[*n], &*value);
                expect_type(result, is_other, || {
                    drop(model.insert(NAMES[*n], Thing::Large(value)))
                });
            }
            Op::Array(n, count, value) => {
                let is_other = match model.get(NAMES[*n]) {
                    Some(Thing::Array(found)) => found.len() as u64 != *count,
                    found => found.is_some(),
                };
                let values = vec![*value; *count as usize];
                let result = self.put_array(NAMES[*n], &values);
                expect_type(result, is_other, || {
                    drop(model.insert(NAMES[*n], Thing::Array(values)))
                });
            }
            Op::Remove(n) => {
                let was_there = model.remove(NAMES[*n]).is_some();
                let removed = call!(self, self.roots, remove_in, remove, NAMES[*n]);
                assert_eq!(removed.expect("remove"), was_there);
            }
            Op::Log(n) | Op::Append(n, ..) | Op::TruncateBack(n, _) | Op::TruncateFront(n, _) => {
                let is_other =
                    model.get(NAMES[*n]).is_some_and(|t| !matches!(t, Thing::Log { .. }));
                let log = self.log(NAMES[*n]);
                if is_other {
                    return expect_type(log, true, || ());
                }
                let empty = Thing::Log { first: 0, records: VecDeque::new() };
                let thing = model.entry(NAMES[*n]).or_insert(empty);
                let Thing::Log { first, records } = thing else { unreachable!() };
                self.run_on_log(&log.expect("a log"), first, records, op);
            }
        }
    }

    fn run_on_log(&mut self, log: &Log, first: &mut u64, records: &mut VecDeque<Vec<u8>>, op: &Op) {
        let next = *first + records.len() as u64;
        match op {
            Op::Append(_, lens, seed) => {
                let mut rng = Rng(*seed);
                let new: Vec<Vec<u8>> = lens.iter().map(|len| rng.bytes(*len)).collect();
                let seq = call!(self, log, append_in, append, &new).expect("append");
                assert_eq!(seq, next);
                records.extend(new);
            }
            Op::TruncateBack(_, by) => {
                let seq = next.saturating_sub(*by);
                call!(self, log, truncate_back_in, truncate_back, seq).expect("truncate");
                records.truncate(seq.saturating_sub(*first) as usize);
            }
            Op::TruncateFront(_, by) => {
                // Sometimes past the end.
                let seq = *first + *by;
                call!(self, log, truncate_front_in, truncate_front, seq).expect("truncate");
                records.drain(..(*by as usize).min(records.len()));
                *first = seq;
            }
            _ => {}
        }
        let next = *first + records.len() as u64;
        let range = match &mut self.tx {
            Some(tx) => log.range_in(tx),
            None => log.range(),
        };
        assert_eq!(range.expect("range"), *first..next);
        if let (Some(tx), Some(last)) = (&mut self.tx, records.back()) {
            assert_eq!(log.get_in(tx, next - 1).expect("get").as_ref(), Some(last));
        }
    }
}

#[track_caller]
fn expect_type<T: std::fmt::Debug>(
    result: atomic_mmap::Result<T>,
    is_other: bool,
    then: impl FnOnce(),
) {
    if is_other {
        assert!(matches!(reason(result), StructureError::WrongType { .. }));
    } else {
        result.expect("a name of this type");
        then();
    }
}

/// Compares everything that can be read with the model.
fn compare(roots: &Roots, model: &Model) {
    roots.check().expect("all invariants hold");
    let bytes = common::read_all(roots.file());
    let as_read = |thing: &Thing| match thing {
        Thing::Small(value) => Read::Bytes(8, value.as_bytes().to_vec()),
        Thing::Large(value) => Read::Bytes(4800, value.as_bytes().to_vec()),
        Thing::Array(values) => Read::Bytes(8, values.as_bytes().to_vec()),
        Thing::Log { first, records } => Read::Log(*first, records.iter().cloned().collect()),
    };
    let expected: BTreeMap<_, _> =
        model.iter().map(|(name, thing)| ((*name).to_owned(), as_read(thing))).collect();
    assert!(reading::read(&bytes) == expected, "the bytes are not those of the model");
    assert_eq!(roots.names().expect("names"), model.keys().copied().collect::<Vec<_>>());
    for (name, thing) in model {
        match thing {
            Thing::Small(value) => {
                let slot = roots.get::<[u64; 1]>(*name).expect("a value").expect("a value");
                assert_eq!(slot.load().expect("load"), *value);
            }
            Thing::Large(value) => {
                let slot = roots.get::<[u64; 600]>(*name).expect("a value").expect("a value");
                assert_eq!(slot.load().expect("load"), **value);
            }
            Thing::Array(values) => {
                let array = roots.get_array::<u64>(*name).expect("an array").expect("an array");
                let mut found = vec![0; array.len() as usize];
                array.get_many(0, &mut found).expect("read");
                assert_eq!(found, *values);
            }
            Thing::Log { first, records } => {
                compare_log(&roots.log(*name).expect("a log"), *first, records)
            }
        }
    }
}

fn compare_log(log: &Log, first: u64, records: &VecDeque<Vec<u8>>) {
    let next = first + records.len() as u64;
    assert_eq!(log.range().expect("range"), first..next);
    let all: Vec<(u64, Vec<u8>)> = log.iter_from(0).map(|item| item.expect("a record")).collect();
    assert_eq!(all, (first..).zip(records.iter().cloned()).collect::<Vec<_>>());
    for (seq, record) in (first..).zip(records) {
        assert_eq!(log.get(seq).expect("get").as_ref(), Some(record), "record {seq}");
    }
    assert_eq!(log.get(next).expect("get"), None);
    assert_eq!(first.checked_sub(1).and_then(|seq| log.get(seq).expect("get")), None);
    assert!(log.iter_from(next).next().is_none());
}

fn run_case(ground: &Ground, steps: &[Step]) {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let mut roots = open(ground, &path);
    let mut model = Model::new();
    for step in steps {
        match step {
            Step::Alone(op) => Subject { roots: &roots, tx: None }.run(&mut model, op),
            Step::Together(ops) | Step::RolledBack(ops) => {
                let file = roots.file().try_clone().expect("a handle");
                let mut tx = file.begin();
                let mut after = model.clone();
                let mut subject = Subject { roots: &roots, tx: Some(&mut tx) };
                ops.iter().for_each(|op| subject.run(&mut after, op));
                if matches!(step, Step::Together(_)) {
                    tx.commit().expect("commit");
                    model = after;
                }
            }
            Step::Reopen(mode) => {
                roots.into_file().close(*mode).expect("close");
                roots = open(ground, &path);
            }
        }
        compare(&roots, &model);
    }
}

fn check(ground: Option<Ground>) {
    let Some(ground) = ground else {
        eprintln!("not served here: skipped");
        return;
    };
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(CASES);
    let config =
        Config { cases, failure_persistence: None, max_shrink_iters: 500, ..Config::default() };
    let steps = prop::collection::vec(step(), 1..25);
    let result = TestRunner::new(config).run(&steps, |steps| {
        run_case(&ground, &steps);
        Ok(())
    });
    if let Err(failure) = result {
        panic!("on {:?}: {failure}", ground.medium);
    }
}

#[test]
fn operations_in_ram_do_what_they_do_to_a_map() {
    check(Some(common::ram()));
}

#[test]
fn operations_on_page_cache_do_what_they_do_to_a_map() {
    check(common::page_cache());
}

#[test]
fn operations_on_persistent_memory_do_what_they_do_to_a_map() {
    check(common::dax());
}
