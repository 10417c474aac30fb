//! Tests recovery from a loss of power, on crash images from recorded traces of the real code.
//!
//! The recorder notes every store, flush, drain and call of a run on `/dev/shm`, which is treated
//! as persistent memory. The test cuts the power at many places of the trace. An image holds the
//! durable bytes and some of the others (`media.rs`), and becomes a pair of files
//! (`files.rs`). The test opens the pair and reads it. It must hold all operations that had
//! returned, with those in flight whole or absent (`run.rs`, `ops.rs`).
//! `faults.rs` removes steps from traces, to test that the checker notices.
//!
//! | variable | meaning | default |
//! |---|---|---|
//! | `POWER_SEED` | seed of the choices | a fixed number |
//! | `POWER_IMAGES` | images of each test | about 3,000 of all tests together |
//! | `POWER_SCRIPT` | only the script of this number | all |
//! | `POWER_RUN` | only the run of this number, with all of the images | all runs |
//!
//! A violation prints the seed and the run, which determine the operations. The choice of images
//! also depends on the lanes of the threads, and on when the threads end. To find the violation
//! again, set `POWER_SEED`, `POWER_RUN` and a large `POWER_IMAGES`. Concurrent threads make another
//! trace each time, so their violations print the operations.

mod faults;
mod files;
mod media;
mod ops;
mod rng;
mod run;

use atomic_mmap::{AtomicMappedFile, CloseMode, DeployPolicy, Medium};
use faults::{FAULTS, Fault, SCRIPTS};
use files::{Folder, materialize};
use media::{Choice, Contents, Image};
use ops::{Effect, Model, Op, Place, fill};
use rng::Rng;
use run::{Plan, Player, Run, Ways, contents, positions, record};
use std::fmt::Write as _;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const SEED: u64 = 20_261_120;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Single,
    ByTurns,
    Concurrent,
    /// The power fails again while an image is recovered, and once more.
    Recovery,
}

/// The first operations of a run, with their threads.
type Script<'a> = &'a dyn Fn(&Place) -> Vec<(usize, Op)>;

#[derive(Default, Debug)]
struct Report {
    runs: u64,
    images: u64,
    /// Images with more than one allowed state.
    in_flight: u64,
    ways: Ways,
    violations: Vec<String>,
}

fn plan(kind: Kind, rng: &mut Rng) -> Plan {
    let place = Place::random(rng);
    let (threads, ops) = match kind {
        Kind::Single => (0, 5 + rng.below(20)),
        Kind::ByTurns | Kind::Recovery => (2, 4 + rng.below(16)),
        Kind::Concurrent => (2 + rng.index(2), 3 + rng.below(8)),
    };
    let concurrent = kind == Kind::Concurrent;
    let sessions = 1 + usize::from(rng.chance(40)) + usize::from(rng.chance(20));
    let script =
        if kind != Kind::Concurrent && rng.chance(50) { script(&place, rng) } else { vec![] };
    // With the main thread they leave none of the 64 private lanes free, or too few by one.
    let crowd = if kind == Kind::ByTurns && rng.chance(6) { 61 + rng.index(2) } else { 0 };
    Plan { place, threads, concurrent, sessions, ops, crowd, script }
}

/// Returns sequences that need the rules of active records: two threads write to one set of slices.
fn script(place: &Place, rng: &mut Rng) -> Vec<(usize, Op)> {
    let at = |slice: u64| place.hot * ops::PAGE + (place.slice + slice) * 64;
    let mut all = Vec::new();
    for _ in 0..3 + rng.below(10) {
        let first = rng.below(2);
        let count = 1 + rng.below(2);
        let op = match rng.below(20) {
            0..=9 => Op::Write(at(first), count * 64),
            10..=16 => {
                let parts = (first..first + count).flat_map(|n| [(at(n), 9), (at(n) + 40, 9)]);
                Op::Tx { parts: parts.collect(), reads: false }
            }
            17 => Op::Write(place.hot * ops::PAGE, ops::PAGE),
            18 => Op::Write(place.hot * ops::PAGE, 2 * ops::PAGE),
            _ => Op::Deploy(place.hot * ops::PAGE, (place.hot + 1) * ops::PAGE),
        };
        let ends = |op: &Op| match op {
            Op::Write(at, len) => at + len,
            Op::Deploy(_, end) => *end,
            _ => at(3),
        };
        if ends(&op) <= place.first_len {
            all.push((rng.index(3), op));
        }
    }
    all
}

/// Returns the first file: of length zero, or with plain bytes.
fn beginning(place: &Place, rng: &mut Rng) -> (Image, Vec<Arc<Model>>) {
    if place.origin == 0 && rng.chance(40) {
        let bytes = fill(0, 0, place.first_len);
        let home = Contents::of(&bytes);
        let model = Model { origin: 0, len: place.first_len, bytes };
        return (Image { home, ..Image::default() }, vec![Arc::new(model)]);
    }
    let empty = Model::new(place.origin, 0);
    let made = Model::new(place.origin, place.first_len);
    (Image::default(), vec![Arc::new(empty), Arc::new(made)])
}

/// Opens an image and compares its contents with the allowed states.
fn check(
    folder: &Folder,
    image: &Image,
    allowed: &[Arc<Model>],
    run: &Run,
    rng: &mut Rng,
) -> Result<Arc<Model>, String> {
    let pair = materialize(folder, image, rng);
    let origin = allowed[0].origin;
    let open = || {
        AtomicMappedFile::options()
            .medium(Medium::Dax)
            .max_len((1 << 30) + (16 << 20))
            .deploy(DeployPolicy::Manual)
            .close_on_drop(CloseMode::Fast)
            .open(&pair.home)
            .map_err(|error| format!("does not open: {error}"))
    };
    let compare = |found: &Model, when: &str| {
        allowed.iter().find(|model| ***model == *found).cloned().ok_or_else(|| {
            let mut text = format!("{when}:\n");
            for model in allowed {
                text += &difference(found, model, run);
            }
            text
        })
    };
    let act = || {
        let f = open()?;
        let found = compare(&contents(&f, origin), "wrong contents")?;
        if !rng.chance(25) {
            return Ok(found);
        }
        // The next operations start from this one state.
        let mut model = Model::clone(&found);
        let place = Place { origin, first_len: model.len.max(origin + 1), hot: 0, slice: 0 };
        let place = Place { hot: origin / ops::PAGE + rng.below(2), ..place };
        if model.len > origin + 3 * ops::PAGE {
            for id in 0..3 {
                let op = place.random_op(rng, model.len);
                let effect = op.effect((1 << 22) + id);
                if op.run(&f, &effect) {
                    model.apply(&effect);
                }
            }
        }
        let one = [Arc::new(model)];
        let compare = |found: &Model, when: &str| match *found == *one[0] {
            true => Ok(()),
            false => Err(format!("{when}:\n{}", difference(found, &one[0], run))),
        };
        compare(&contents(&f, origin), "wrong contents after more operations")?;
        if rng.chance(50) {
            f.close(CloseMode::Fast).map_err(|e| e.to_string())?;
            let f = open()?;
            compare(&contents(&f, origin), "wrong contents after a fast close")?;
            f.close(CloseMode::Spatial).map_err(|e| e.to_string())?;
        } else {
            f.close(CloseMode::Spatial).map_err(|e| e.to_string())?;
        }
        // The home file is plain and complete.
        let home = std::fs::File::open(&pair.home).expect("the file");
        let mut plain = Model::new(origin, home.metadata().expect("a file").len());
        home.read_exact_at(&mut plain.bytes, origin).expect("its bytes");
        compare(&plain, "wrong home file after a spatial close")?;
        if pair.reflection.exists() {
            return Err("a reflection file after a spatial close".into());
        }
        Ok(found)
    };
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|text| text.to_string()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    })
}

/// Describes where two states differ, and which operation wrote the bytes there.
fn difference(found: &Model, expected: &Model, run: &Run) -> String {
    if found.len != expected.len {
        return format!("  length {} instead of {}\n", found.len, expected.len);
    }
    let mut text = String::new();
    let pieces = found.bytes.chunks(64).zip(expected.bytes.chunks(64)).enumerate();
    let differing: Vec<_> = pieces.filter(|(_, (a, b))| a != b).collect();
    let _ = writeln!(text, "  {} slices differ:", differing.len());
    for (n, (a, b)) in differing.into_iter().take(6) {
        let at = found.origin + n as u64 * 64;
        let byte = (0..a.len()).find(|n| a[*n] != b[*n]).expect("that they differ");
        let place = at + byte as u64;
        let _ = writeln!(
            text,
            "    page {} slice {} from byte {byte}: {} instead of {}",
            place / 4096,
            place % 4096 / 64,
            writer_of(run, place, &a[byte..]),
            writer_of(run, place, &b[byte..])
        );
    }
    text
}

/// Returns the operation that wrote these bytes.
fn writer_of(run: &Run, at: u64, bytes: &[u8]) -> String {
    let wrote = run.ops.iter().filter(|(_, done)| match &done.effect {
        Effect::Bytes(parts) => {
            parts.iter().any(|(start, bytes)| (*start..start + bytes.len() as u64).contains(&at))
        }
        _ => false,
    });
    let same = |id: u64| {
        let own = fill(id, at, bytes.len() as u64);
        own.iter().zip(bytes).take_while(|(a, b)| a == b).count()
    };
    let best = wrote.map(|(id, _)| *id).chain([0]).max_by_key(|id| same(*id)).unwrap_or(0);
    match same(best) {
        n if n >= 4.min(bytes.len()) && best > 0 => format!("#{best}"),
        n if n >= 4.min(bytes.len()) => "the first bytes".into(),
        _ if bytes[0] == 0 => "0".into(),
        _ => "something else".into(),
    }
}

/// Returns the report of a violation.
fn describe(run: &Run, player: &Player<'_>, plan: &Plan, what: &str) -> String {
    let mut text = format!("{what}\nplan: {plan:?}\n");
    for id in &player.last {
        let _ = writeln!(text, "  {}", run.ops[id].text);
    }
    for id in &player.in_flight {
        let _ = writeln!(text, "  {} (in flight)", run.ops[id].text);
    }
    let from = player.at.saturating_sub(12);
    for (n, event) in run.trace[from..player.at].iter().enumerate() {
        let mut event = format!("{event:?}");
        event.truncate(160);
        let _ = writeln!(text, "  event {}: {event}", from + n);
    }
    text
}

/// Checks images of one run, and of the runs that follow on some of them.
#[allow(clippy::too_many_arguments, reason = "a recursion's state")]
fn crash(
    folder: &Folder,
    run: &Run,
    plan: &Plan,
    count: usize,
    depth: u32,
    rng: &mut Rng,
    report: &mut Report,
    path: &str,
) {
    let mut player = Player::new(run);
    let is_recovery = path.contains("image");
    for (n, at) in positions(&run.trace, count, is_recovery, rng).into_iter().enumerate() {
        let mut rng = rng.fork(n as u64);
        player.play(at);
        let choice = Choice::random(&mut rng);
        let image = player.media.image(choice, &mut rng);
        let allowed = player.allowed();
        report.images += 1;
        report.in_flight += u64::from(allowed.len() > 1);
        let here =
            format!("{path}, image {n} before event {at} of {}, {choice:?}", run.trace.len());
        if let Err(what) = check(folder, &image, &allowed, run, &mut rng) {
            report.violations.push(describe(run, &player, plan, &format!("{here}\n{what}")));
            return;
        }
        if depth == 0 {
            continue;
        }
        let again = Plan {
            sessions: 1,
            ops: rng.below(4),
            threads: 1,
            concurrent: false,
            crowd: 0,
            script: Vec::new(),
            place: plan.place.clone(),
        };
        match record(folder, &image, &allowed, &again, &mut rng) {
            Ok(next) => {
                crash(folder, &next, &again, 5, depth - 1, &mut rng, report, &here);
            }
            Err(what) => {
                let what = format!("{here}\nopened again: {what}");
                report.violations.push(describe(run, &player, plan, &what));
            }
        }
        if !report.violations.is_empty() {
            return;
        }
    }
}

/// Makes runs and images until there are enough of them, or until a violation.
fn explore(kind: Kind, images: u64, script: Script<'_>, fault: Option<Fault>) -> Report {
    let seed = number("POWER_SEED").unwrap_or(SEED);
    let only = number("POWER_RUN");
    let folder = Folder::new();
    let base = Rng::new(seed).fork(kind as u64);
    let mut report = Report::default();
    for n in only.unwrap_or(0).. {
        let mut rng = base.fork(n);
        let mut plan = plan(kind, &mut rng);
        let script = script(&plan.place);
        if !script.is_empty() {
            plan = Plan { sessions: 2, ops: script.len() as u64, crowd: 0, script, ..plan };
        }
        let (start, allowed) = beginning(&plan.place, &mut rng);
        let path = format!("{kind:?}, POWER_SEED={seed} POWER_RUN={n}");
        report.runs += 1;
        match record(&folder, &start, &allowed, &plan, &mut rng) {
            Ok(mut run) => {
                report.ways.add(&run.ways);
                if let Some(fault) = fault {
                    run.trace = fault.plant(run.trace);
                }
                let (count, depth) = match (kind, only) {
                    (Kind::Recovery, None) => (4, 2),
                    // Five images follow each image, and five more follow each of those.
                    (Kind::Recovery, Some(_)) => ((images / 31).max(1) as usize, 2),
                    (_, None) => (30, 0),
                    (_, Some(_)) => (images as usize, 0),
                };
                crash(&folder, &run, &plan, count, depth, &mut rng, &mut report, &path);
            }
            Err(what) => report.violations.push(format!("{path}\n{what}\nplan: {plan:?}")),
        }
        if report.images >= images || !report.violations.is_empty() || only.is_some() {
            break;
        }
    }
    report
}

fn run_all(kind: Kind, default: u64) {
    let images = number("POWER_IMAGES").unwrap_or(default);
    let start = std::time::Instant::now();
    let report = explore(kind, images, &|_| Vec::new(), None);
    println!(
        "{kind:?}: {} runs, {} images ({} with operations in flight), {:?}, {:?}",
        report.runs,
        report.images,
        report.in_flight,
        report.ways,
        start.elapsed()
    );
    assert!(report.violations.is_empty(), "\n{}", report.violations.join("\n"));
}

#[test]
fn one_thread() {
    run_all(Kind::Single, 900);
}

#[test]
fn two_threads_by_turns() {
    run_all(Kind::ByTurns, 1200);
}

#[test]
fn threads_at_the_same_time() {
    run_all(Kind::Concurrent, 400);
}

#[test]
fn crashes_while_recovering() {
    run_all(Kind::Recovery, 500);
}

/// Runs the scripts of all rules, without a fault.
#[test]
fn what_needs_each_rule() {
    let images = number("POWER_IMAGES").unwrap_or(40);
    let of_faults = FAULTS.map(|fault| move |place: &Place| fault.script(place));
    let scripts: Vec<Script<'_>> = of_faults.iter().map(|script| script as Script<'_>).collect();
    let scripts = scripts.into_iter().chain(SCRIPTS.iter().map(|script| script as Script<'_>));
    for (n, script) in scripts.enumerate() {
        let is_wanted = number("POWER_SCRIPT").is_none_or(|only| only == n as u64);
        // A fault that random runs find has no script.
        if is_wanted && !script(&Place::random(&mut Rng::new(SEED))).is_empty() {
            let report = explore(Kind::ByTurns, images, script, None);
            assert!(report.violations.is_empty(), "\n{}", report.violations.join("\n"));
        }
    }
}

/// Tests that some kind of run finds each fault.
#[test]
fn planted_faults_are_found() {
    let mut missed = Vec::new();
    for fault in FAULTS {
        let start = std::time::Instant::now();
        let images = number("POWER_FAULT_IMAGES").unwrap_or(2000);
        let script = |place: &Place| fault.script(place);
        let report = explore(Kind::ByTurns, images, &script, Some(fault));
        println!(
            "{fault:?}: {} after {} images, {:?}",
            if report.violations.is_empty() { "missed" } else { "found" },
            report.images,
            start.elapsed()
        );
        if report.violations.is_empty() {
            missed.push(fault);
        }
    }
    assert!(missed.is_empty(), "missed: {missed:?}");
}

/// Tests that an image without an acknowledged write is a violation.
#[test]
fn lost_writes_are_found() {
    let folder = Folder::new();
    let mut found = 0;
    for n in 0..20 {
        let mut rng = Rng::new(SEED).fork(n);
        let place = Place { origin: 0, first_len: 40 * ops::PAGE, hot: 3, slice: 0 };
        let script = vec![(0, Op::Write(3 * ops::PAGE + 64, 64))];
        let plan =
            Plan { place, threads: 0, concurrent: false, sessions: 1, ops: 1, crowd: 0, script };
        let (start, allowed) = beginning(&plan.place, &mut rng);
        let run = record(&folder, &start, &allowed, &plan, &mut rng).expect("to be recorded");
        let mut player = Player::new(&run);
        player.play(run.trace.len());
        let mut image = player.media.image(Choice::Newest, &mut rng);
        assert!(check(&folder, &image, &player.allowed(), &run, &mut rng).is_ok());
        let at = 3 * ops::PAGE + 64 + 8 * rng.below(8);
        image.home.set_word(at, image.home.word(at) ^ 1 << rng.below(64));
        found += u32::from(check(&folder, &image, &player.allowed(), &run, &mut rng).is_err());
    }
    assert_eq!(found, 20);
}
