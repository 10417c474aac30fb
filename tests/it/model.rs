//! Tests a file against a plain `Vec<u8>`, with random operations.
//!
//! A case is a list of operations, with most offsets and sizes near the boundaries of slices,
//! pages, regions and chunks. The test runs them on the file and on the vector, and compares every
//! answer. After each reopening it compares all bytes. After a spatial close it reads the plain
//! file without this crate. `PROPTEST_CASES` sets the number of cases.

use crate::common::{self, Ground, Rng, assert_same, read_all};
use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Error, Transaction, View};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::Once;

const CASES: u32 = 64;
const PAGE: u64 = 4096;
const REGION: u64 = 262_144;
const CHUNK: u64 = 2 << 20;

/// A place in the file, relative to its length at that time.
#[derive(Clone, Copy, Debug)]
struct Spot {
    unit: u64,
    count: u64,
    nudge: i64,
}

impl Spot {
    /// Returns a number from 0 to `len`, inclusive.
    fn within(self, len: u64) -> u64 {
        let base = match self.unit {
            0 => len,
            unit => self.count % (len / unit + 1) * unit,
        };
        base.saturating_add_signed(self.nudge).min(len)
    }
}

#[derive(Clone, Copy, Debug)]
struct Range {
    spot: Spot,
    len: u64,
    /// Do not clip the range to the file: it is then usually out of range.
    uncut: bool,
}

impl Range {
    fn within(self, len: u64) -> (u64, usize) {
        let offset = self.spot.within(len);
        let most = if self.uncut { u64::MAX } else { len - offset };
        (offset, self.len.min(most) as usize)
    }
}

#[derive(Clone, Debug)]
enum InTx {
    Write(Range, u64),
    Read(Range),
    Store(Spot, u64),
    Update(Spot, u64),
    SetLen(Spot),
    Len,
}

#[derive(Clone, Debug)]
enum Op {
    Write(Range, u64),
    WriteMany(Vec<(Range, u64)>),
    Read(Range),
    Store(Spot, u64),
    Load(Spot),
    Update(Spot, u64),
    Transaction(Vec<InTx>, bool),
    View(Range),
    DropView(usize),
    Deploy(Range),
    Sync,
    SetLen(Spot),
    Replace(Spot, u64),
    ReadVec,
    Reopen(CloseMode, DeployPolicy),
}

fn spot() -> impl Strategy<Value = Spot> {
    let unit = prop_oneof![
        2 => Just(1u64), 2 => Just(8), 4 => Just(64), 6 => Just(PAGE), 4 => Just(REGION), 1 => Just(0)
    ];
    let nudge = prop_oneof![
        6 => Just(0i64), 1 => Just(-1i64), 1 => Just(1), 1 => Just(63), 1 => Just(-64), 1 => Just(7),
        1 => -5000i64..5000
    ];
    (unit, any::<u32>(), nudge).prop_map(|(unit, count, nudge)| Spot {
        unit,
        count: count.into(),
        nudge,
    })
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0u64),
        3 => 1..10u64,
        3 => Just(64u64),
        2 => prop_oneof![Just(63u64), Just(65)],
        3 => 1..600u64,
        4 => prop_oneof![Just(4095u64), Just(4096), Just(4097)],
        3 => 1..20_000u64,
        3 => (1..40u64).prop_map(|pages| pages * PAGE),
        2 => prop_oneof![Just(262_143u64), Just(262_144), Just(262_145)],
        1 => Just(2 * REGION),
    ]
}

fn range() -> impl Strategy<Value = Range> {
    (spot(), size(), prop::bool::weighted(0.06)).prop_map(|(spot, len, uncut)| Range {
        spot,
        len,
        uncut,
    })
}

fn in_tx() -> impl Strategy<Value = InTx> {
    prop_oneof![
        4 => (range(), any::<u64>()).prop_map(|(r, seed)| InTx::Write(r, seed)),
        2 => range().prop_map(InTx::Read),
        2 => (spot(), any::<u64>()).prop_map(|(s, v)| InTx::Store(s, v)),
        1 => (spot(), any::<u64>()).prop_map(|(s, v)| InTx::Update(s, v)),
        2 => spot().prop_map(InTx::SetLen),
        1 => Just(InTx::Len),
    ]
}

fn policy() -> impl Strategy<Value = DeployPolicy> {
    prop_oneof![Just(DeployPolicy::Lazy), Just(DeployPolicy::Eager), Just(DeployPolicy::Manual)]
}

fn close_mode() -> impl Strategy<Value = CloseMode> {
    prop_oneof![Just(CloseMode::Fast), Just(CloseMode::Spatial)]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => (range(), any::<u64>()).prop_map(|(r, seed)| Op::Write(r, seed)),
        4 => prop::collection::vec((range(), any::<u64>()), 0..8).prop_map(Op::WriteMany),
        4 => range().prop_map(Op::Read),
        4 => (spot(), any::<u64>()).prop_map(|(s, v)| Op::Store(s, v)),
        2 => spot().prop_map(Op::Load),
        2 => (spot(), any::<u64>()).prop_map(|(s, v)| Op::Update(s, v)),
        5 => (prop::collection::vec(in_tx(), 0..8), prop::bool::weighted(0.8))
            .prop_map(|(ops, commit)| Op::Transaction(ops, commit)),
        4 => range().prop_map(Op::View),
        2 => (0..8usize).prop_map(Op::DropView),
        3 => range().prop_map(Op::Deploy),
        1 => Just(Op::Sync),
        4 => spot().prop_map(Op::SetLen),
        4 => (spot(), any::<u64>()).prop_map(|(s, seed)| Op::Replace(s, seed)),
        1 => Just(Op::ReadVec),
        3 => (close_mode(), policy()).prop_map(|(mode, policy)| Op::Reopen(mode, policy)),
    ]
}

/// Returns a strategy for the first length.
fn first_len() -> impl Strategy<Value = u64> {
    prop_oneof![
        1 => Just(0u64),
        1 => 1..70u64,
        2 => 4000..9000u64,
        6 => (REGION - 70)..(4 * REGION),
        1 => (CHUNK - 5000)..(CHUNK + 5000),
    ]
}

#[track_caller]
fn assert_out_of_range<T: std::fmt::Debug>(result: Result<T, Error>, what: &str) {
    assert!(matches!(result, Err(Error::PastEnd { .. })), "{what}: {result:?}");
}

fn slice(model: &[u8], offset: u64, len: usize) -> Option<std::ops::Range<usize>> {
    let start = usize::try_from(offset).ok()?;
    let end = start.checked_add(len).filter(|end| *end <= model.len())?;
    Some(start..end)
}

struct Alive<'a> {
    view: View<'a>,
    bytes: Vec<u8>,
}

impl Alive<'_> {
    #[track_caller]
    fn check(&self, when: &str) {
        let now = self.view.to_vec().expect("read a view");
        assert_same(&now, &self.bytes, &format!("view of {:?}, {when}", self.view.range()));
    }
}

/// Returns a new length, up to about twice the length, and at most a little more than a chunk.
fn new_len(spot: Spot, len: u64) -> u64 {
    spot.within((len * 2 + 10_000).min(CHUNK + 300_000))
}

/// Takes over the contents that an operation with another length has made, unless a view stands in
/// its way.
#[track_caller]
fn take_length(
    result: Result<(), Error>,
    views: &[Alive<'_>],
    model: &mut Vec<u8>,
    draft: Vec<u8>,
    name: &str,
) {
    let (len, new) = (model.len() as u64, draft.len() as u64);
    let mapped = || views.iter().filter(|v| v.view.is_mapped() && !v.view.is_empty());
    let cuts = mapped().any(|v| v.view.range().end > new);
    // Pins cover whole pages.
    let may_cut = mapped().any(|v| (v.view.range().end - 1) / PAGE >= new / PAGE);
    match result {
        Ok(()) => {
            assert!(new >= len || !cuts, "{name}: cut a view off");
            *model = draft;
        }
        Err(Error::Pinned { .. }) => assert!(new < len && may_cut, "{name}: no view is there"),
        Err(e) => panic!("{name}: {e}"),
    }
}

/// Runs operations until one reopens the file, and returns that operation.
fn run_session(
    file: &AtomicMappedFile,
    ops: &mut VecDeque<Op>,
    model: &mut Vec<u8>,
) -> Option<(CloseMode, DeployPolicy)> {
    let mut views: Vec<Alive<'_>> = Vec::new();
    let mut next = None;
    while let Some(op) = ops.pop_front() {
        let len = model.len() as u64;
        let name = format!("{op:?}");
        match op {
            Op::Write(range, seed) => {
                let (offset, count) = range.within(len);
                let data = Rng(seed).bytes(count);
                let result = file.write_at(&data, offset);
                match slice(model, offset, count) {
                    Some(place) => {
                        result.expect(&name);
                        model[place].copy_from_slice(&data);
                    }
                    None => assert_out_of_range(result, &name),
                }
            }
            Op::WriteMany(parts) => {
                let parts: Vec<(u64, Vec<u8>)> = parts
                    .into_iter()
                    .map(|(range, seed)| {
                        let (offset, count) = range.within(len);
                        (offset, Rng(seed).bytes(count))
                    })
                    .collect();
                let borrowed: Vec<(u64, &[u8])> =
                    parts.iter().map(|(offset, data)| (*offset, &data[..])).collect();
                let result = file.write_many(&borrowed);
                let places: Option<Vec<_>> =
                    parts.iter().map(|(at, data)| slice(model, *at, data.len())).collect();
                match places {
                    Some(places) => {
                        result.expect(&name);
                        for (place, (_, data)) in places.into_iter().zip(&parts) {
                            model[place].copy_from_slice(data);
                        }
                    }
                    None => assert_out_of_range(result, &name),
                }
            }
            Op::Read(range) => {
                let (offset, count) = range.within(len);
                let mut found = vec![0xee; count];
                let result = file.read_at(&mut found, offset);
                match slice(model, offset, count) {
                    Some(place) => {
                        result.expect(&name);
                        assert_same(&found, &model[place], &name);
                    }
                    None => {
                        assert_out_of_range(result, &name);
                        assert!(found.iter().all(|byte| *byte == 0xee), "{name}: changed");
                    }
                }
            }
            Op::Store(spot, value) => {
                let offset = spot.within(len);
                let result = file.store(offset, &value);
                match slice(model, offset, 8) {
                    Some(place) => {
                        result.expect(&name);
                        model[place].copy_from_slice(&value.to_ne_bytes());
                    }
                    None => assert_out_of_range(result, &name),
                }
            }
            Op::Load(spot) => {
                let offset = spot.within(len);
                let result = file.load::<[u8; 24]>(offset);
                match slice(model, offset, 24) {
                    Some(place) => assert_same(&result.expect(&name), &model[place], &name),
                    None => assert_out_of_range(result, &name),
                }
            }
            Op::Update(spot, value) => {
                let offset = spot.within(len);
                let result = file.update(offset, |found: &mut [u64; 3]| {
                    found[1] = found[1].wrapping_mul(value);
                    *found
                });
                match slice(model, offset, 24) {
                    Some(place) => {
                        let word = &mut model[place.start + 8..place.start + 16];
                        let old = u64::from_ne_bytes(word.try_into().expect("8 bytes"));
                        word.copy_from_slice(&old.wrapping_mul(value).to_ne_bytes());
                        let bytes: Vec<u8> = result
                            .expect(&name)
                            .iter()
                            .flat_map(|word| word.to_ne_bytes())
                            .collect();
                        assert_same(&bytes, &model[place], &name);
                    }
                    None => assert_out_of_range(result, &name),
                }
            }
            Op::Transaction(steps, commit) => {
                let mut tx = file.begin();
                let mut draft = model.clone();
                for step in steps {
                    run_in_transaction(&mut tx, step, &mut draft);
                }
                if commit {
                    take_length(tx.commit(), &views, model, draft, &name);
                } else {
                    tx.rollback();
                }
            }
            Op::View(range) => {
                let (offset, count) = range.within(len);
                let result = file.view(offset..offset + count as u64);
                match slice(model, offset, count) {
                    Some(place) => {
                        let alive =
                            Alive { view: result.expect(&name), bytes: model[place].to_vec() };
                        alive.check("when it is new");
                        views.push(alive);
                    }
                    None => assert_out_of_range(result, &name),
                }
            }
            Op::DropView(n) => {
                if !views.is_empty() {
                    let alive = views.remove(n % views.len());
                    alive.check("before it is dropped");
                }
            }
            Op::Deploy(range) => {
                let (offset, count) = range.within(len);
                let result = file.deploy(offset..offset + count as u64);
                match slice(model, offset, count) {
                    Some(_) => drop(result.expect(&name)),
                    None => assert_out_of_range(result, &name),
                }
            }
            Op::Sync => file.sync().map(drop).expect("sync"),
            Op::SetLen(spot) => {
                let new = new_len(spot, len);
                let mut draft = model.clone();
                draft.resize(new as usize, 0);
                take_length(file.set_len(new), &views, model, draft, &name);
            }
            Op::Replace(spot, seed) => {
                let draft = Rng(seed).bytes(new_len(spot, len) as usize);
                take_length(file.replace(&draft), &views, model, draft, &name);
            }
            Op::ReadVec => assert_same(&file.read_vec().expect(&name), model, &name),
            Op::Reopen(mode, policy) => {
                next = Some((mode, policy));
                break;
            }
        }
        assert_eq!(file.len(), model.len() as u64, "after {name}");
    }
    views.iter().for_each(|alive| alive.check("at the end"));
    drop(views);
    assert_same(&read_all(file), model, "at the end of a session");
    next
}

fn run_in_transaction(tx: &mut Transaction<'_>, step: InTx, draft: &mut Vec<u8>) {
    let len = draft.len() as u64;
    let name = format!("in a transaction: {step:?}");
    match step {
        InTx::Write(range, seed) => {
            let (offset, count) = range.within(len);
            let data = Rng(seed).bytes(count);
            let result = tx.write_at(&data, offset);
            match slice(draft, offset, count) {
                Some(place) => {
                    result.expect(&name);
                    draft[place].copy_from_slice(&data);
                }
                None => assert_out_of_range(result, &name),
            }
        }
        InTx::Read(range) => {
            let (offset, count) = range.within(len);
            let mut found = vec![0; count];
            let result = tx.read_at(&mut found, offset);
            match slice(draft, offset, count) {
                Some(place) => {
                    result.expect(&name);
                    assert_same(&found, &draft[place], &name);
                }
                None => assert_out_of_range(result, &name),
            }
        }
        InTx::Store(spot, value) => {
            let offset = spot.within(len);
            let result = tx.store(offset, &value);
            match slice(draft, offset, 8) {
                Some(place) => {
                    result.expect(&name);
                    draft[place].copy_from_slice(&value.to_ne_bytes());
                }
                None => assert_out_of_range(result, &name),
            }
        }
        InTx::Update(spot, value) => {
            let offset = spot.within(len);
            let result = tx.update(offset, |found: &mut u64| {
                *found ^= value;
                *found
            });
            match slice(draft, offset, 8) {
                Some(place) => {
                    let new = result.expect(&name).to_ne_bytes();
                    let old = value.to_ne_bytes();
                    draft[place.clone()].iter_mut().zip(old).for_each(|(b, v)| *b ^= v);
                    assert_same(&new, &draft[place], &name);
                }
                None => assert_out_of_range(result, &name),
            }
        }
        InTx::SetLen(spot) => {
            let new = new_len(spot, len);
            tx.set_len(new).expect(&name);
            draft.resize(new as usize, 0);
        }
        InTx::Len => assert_eq!(tx.len().expect(&name), len),
    }
}

fn run_case(ground: &Ground, len: u64, policy: DeployPolicy, ops: Vec<Op>) {
    let scratch = ground.scratch();
    let path = scratch.file("state.dat");
    let mut model = vec![0; len as usize];
    let mut ops = VecDeque::from(ops);
    let mut policy = policy;
    loop {
        let file = ground.options().create(true).len(len).deploy(policy).open(&path);
        let is_empty = model.is_empty();
        if is_empty {
            // Opening gives an empty file the length of the options.
            model.resize(len as usize, 0);
        }
        let file = match file {
            Ok(file) => file,
            Err(e) => panic!("open: {e}"),
        };
        if is_empty && file.is_empty() {
            // Unless a reflection file says that the file is empty.
            model.clear();
        }
        assert_eq!(file.medium(), ground.medium);
        assert_same(&read_all(&file), &model, "after opening");
        let next = run_session(&file, &mut ops, &mut model);
        let (mode, next_policy) = next.unwrap_or((CloseMode::Spatial, policy));
        file.close(mode).expect("close");
        if mode == CloseMode::Spatial {
            let plain = std::fs::read(&path).expect("read the plain file");
            assert_same(&plain, &model, "the plain file after a spatial close");
            assert!(scratch.reflections().is_empty(), "{:?}", scratch.reflections());
        }
        if next.is_none() {
            break;
        }
        policy = next_policy;
    }
}

/// Catches panics without printing them: shrinking a case takes hundreds of them.
fn quietly(run: impl FnOnce()) -> std::thread::Result<()> {
    thread_local!(static QUIET: Cell<bool> = const { Cell::new(false) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    QUIET.set(true);
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    QUIET.set(false);
    result
}

fn check(ground: Option<Ground>) {
    let Some(ground) = ground else {
        eprintln!("not served here: skipped");
        return;
    };
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok());
    let config = Config {
        cases: cases.unwrap_or(CASES),
        failure_persistence: None,
        max_shrink_iters: 3000,
        ..Config::default()
    };
    let cases = (first_len(), policy(), prop::collection::vec(op(), 1..60));
    let result = TestRunner::new(config).run(&cases, |(len, policy, ops)| {
        // A panic of a case is its failure, which proptest shrinks.
        let run = || run_case(&ground, len, policy, ops);
        quietly(run).map_err(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            TestCaseError::fail(text.unwrap_or_else(|| "a panic without a message".to_owned()))
        })
    });
    if let Err(failure) = result {
        panic!("on {:?}: {failure}", ground.medium);
    }
}

#[test]
fn operations_in_ram_do_what_they_do_to_a_vector() {
    check(Some(common::ram()));
}

#[test]
fn operations_on_page_cache_do_what_they_do_to_a_vector() {
    check(common::page_cache());
}

#[test]
fn operations_on_persistent_memory_do_what_they_do_to_a_vector() {
    check(common::dax());
}
