//! Tests the baselines against a model, with several threads, and with a process that is killed.
//!
//! Each test runs for every baseline, and for every one with logs that soon fill up. A failure
//! prints its seed, and `BASELINES_SEED` repeats it. A kill shows only the effect of a process
//! crash, since the page cache keeps every store. The module comments of the baselines explain why
//! their drains are enough for a loss of power.

use bench::baselines::{ALL, TIGHT};
use bench::scratch::Scratch;
use bench::subject::{Kind, Subject};
use fastrand::Rng;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

/// Not a multiple of a page.
const LEN: usize = (3 << 20) + 1234;

fn seed() -> u64 {
    let given = std::env::var("BASELINES_SEED").ok();
    given.map_or_else(|| fastrand::u64(..), |seed| seed.parse().expect("a number"))
}

fn kinds() -> impl Iterator<Item = &'static Kind> {
    ALL.iter().chain(TIGHT)
}

fn open(kind: &Kind, folder: &Path) -> Box<dyn Subject> {
    (kind.open)(folder, LEN as u64).expect("space, and a processor that can flush")
}

/// Returns a length from 1 to `most`: lines, pages and odd ones, most of them short.
fn some_len(rng: &mut Rng, most: usize) -> usize {
    let len = match rng.u8(..20) {
        0..6 => rng.usize(1..300),
        6..10 => 64 * rng.usize(1..10),
        10..13 => rng.usize(1..6000),
        13..16 => 4096,
        16..18 => 4096 * rng.usize(1..20),
        18 => rng.usize(1..200_000),
        _ => rng.usize(1..(1 << 20) + 1),
    };
    len.min(most)
}

/// Returns a range within `from..to`.
fn some_range(rng: &mut Rng, from: usize, to: usize) -> (usize, usize) {
    let len = some_len(rng, to - from);
    let mut offset = rng.usize(from..to - len + 1);
    // Often at the start of a page or of a line.
    for step in [4096, 64] {
        let aligned = offset / step * step;
        if rng.u8(..3) == 0 && aligned >= from {
            offset = aligned;
            break;
        }
    }
    (offset, len)
}

/// Returns a piece of bytes that are made once, so that a child spends its time in writes.
fn some_bytes(rng: &mut Rng, len: usize) -> &'static [u8] {
    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut bytes = vec![0; 3 << 20];
        Rng::with_seed(1).fill(&mut bytes);
        bytes
    });
    let from = rng.usize(..BYTES.len() - len);
    &BYTES[from..from + len]
}

/// Returns sorted parts within `from..to` that do not overlap.
fn some_parts(rng: &mut Rng, from: usize, to: usize) -> Vec<(u64, &'static [u8])> {
    let mut parts = Vec::new();
    let mut at = from;
    for _ in 0..rng.usize(1..5) {
        if to - at < 2 {
            break;
        }
        let gap = rng.usize(0..(to - at).min(9000));
        let len = rng.usize(1..(to - at - gap).clamp(2, 6000));
        let len = len.min(to - at - gap);
        parts.push(((at + gap) as u64, some_bytes(rng, len)));
        at += gap + len;
    }
    parts
}

fn apply(model: &mut [u8], offset: u64, data: &[u8]) {
    model[offset as usize..][..data.len()].copy_from_slice(data);
}

fn check(subject: &dyn Subject, model: &[u8], offset: usize, len: usize, what: &str) {
    let mut read = vec![0; len];
    subject.read(&mut read, offset as u64);
    if read == model[offset..offset + len] {
        return;
    }
    if let Some(wrong) = (0..len).find(|at| read[*at] != model[offset + at]) {
        panic!("{what}: read {len} bytes at {offset}, wrong from {}", offset + wrong);
    }
}

fn against_a_model(kind: &Kind) {
    let seed = seed();
    let mut rng = Rng::with_seed(seed);
    let what = format!("{kind:?}, seed {seed}");
    let scratch = Scratch::new(None).expect("a folder");
    let mut subject = open(kind, scratch.path());
    let mut model = vec![0; LEN];
    // Sums over all openings: the last one may have written nothing.
    let mut written = 0;
    for _ in 0..400 {
        match rng.u8(..10) {
            0..6 => {
                let (offset, len) = some_range(&mut rng, 0, LEN);
                let data = some_bytes(&mut rng, len);
                subject.write(data, offset as u64);
                apply(&mut model, offset as u64, data);
            }
            6 => {
                let from = rng.usize(0..LEN - 10);
                let parts = some_parts(&mut rng, from, LEN);
                if subject.transact(&parts) {
                    parts.iter().for_each(|(offset, data)| apply(&mut model, *offset, data));
                }
            }
            // Several reads, since Libnvmmio counts them and may switch between undo and redo.
            7 => {
                for _ in 0..4 {
                    let (offset, len) = some_range(&mut rng, 0, LEN);
                    check(&*subject, &model, offset, len, &what);
                }
            }
            8 => subject.sync(),
            _ if rng.u8(..8) == 0 => {
                subject.sync();
                written += subject.written().expect("baselines count");
                drop(subject);
                subject = open(kind, scratch.path());
                check(&*subject, &model, 0, LEN, &what);
            }
            _ => {}
        }
    }
    check(&*subject, &model, 0, LEN, &what);
    written += subject.written().expect("baselines count");
    assert!(written > 0, "{what}: nothing was counted");
}

fn with_threads(kind: &Kind) {
    const THREADS: usize = 4;
    // Pieces without the size or the alignment of a page. Every thread writes all of them.
    const SHARED: usize = 8;
    const PIECE: usize = 5003;
    const AREA: usize = 600_001;
    let seed = seed();
    let what = format!("{kind:?}, seed {seed}");
    let scratch = Scratch::new(None).expect("a folder");
    let subject = open(kind, scratch.path());
    let mut models: Vec<Vec<u8>> = vec![vec![0; LEN]; THREADS];
    let uniform = |piece: usize| {
        let mut read = vec![0; PIECE];
        subject.read(&mut read, (piece * PIECE) as u64);
        assert!(read.iter().all(|byte| *byte == read[0]), "{what}: piece {piece} is torn");
    };
    std::thread::scope(|scope| {
        for (thread, model) in models.iter_mut().enumerate() {
            let (subject, what, uniform) = (&*subject, &what, &uniform);
            scope.spawn(move || {
                let mut rng = Rng::with_seed(seed ^ thread as u64);
                let from = SHARED * PIECE + thread * AREA;
                for _ in 0..150 {
                    let (offset, len) = some_range(&mut rng, from, from + AREA);
                    let data = some_bytes(&mut rng, len);
                    subject.write(data, offset as u64);
                    apply(model, offset as u64, data);
                    if rng.bool() {
                        subject.sync();
                    }
                    let (offset, len) = some_range(&mut rng, from, from + AREA);
                    check(subject, model, offset, len, what);
                    let piece = rng.usize(..SHARED);
                    subject.write(&vec![rng.u8(..); PIECE], (piece * PIECE) as u64);
                    uniform(rng.usize(..SHARED));
                }
                subject.sync();
            });
        }
    });
    let all = |subject: &dyn Subject| {
        for (thread, model) in models.iter().enumerate() {
            check(subject, model, SHARED * PIECE + thread * AREA, AREA, &what);
        }
    };
    all(&*subject);
    (0..SHARED).for_each(uniform);
    drop(subject);
    let subject = open(kind, scratch.path());
    all(&*subject);
}

// ---- kills ---------------------------------------------------------------------------------

const KILLS: usize = 30;
const WRITERS: usize = 2;

/// The writers own alternate small pieces of the first part, so that both write to each page there.
/// The rest is cut in two.
const DEALT: usize = 60_000;
const SMALL: usize = 1000;

/// The steps of a writer. Each one must be whole or absent.
struct Steps {
    rng: Rng,
    writer: usize,
    transacts: bool,
    reads: bool,
}

/// The parts of a step. `sync` tells to sync all steps up to this one.
struct Step {
    parts: Vec<(u64, &'static [u8])>,
    sync: bool,
}

impl Steps {
    fn new(seed: u64, writer: usize, transacts: bool) -> Steps {
        let rng = Rng::with_seed(seed ^ (writer as u64) << 60);
        // In every other round, so that Libnvmmio uses undo there and redo in the others.
        Steps { rng, writer, transacts, reads: seed.is_multiple_of(2) }
    }

    fn next(&mut self) -> Step {
        let rng = &mut self.rng;
        let half = (LEN - DEALT) / WRITERS;
        let from = DEALT + self.writer * half;
        let kind = rng.u8(..4);
        if kind == 0 {
            let piece = rng.usize(..DEALT / SMALL / WRITERS) * WRITERS + self.writer;
            let len = rng.usize(1..SMALL + 1);
            let offset = piece * SMALL + rng.usize(..SMALL - len + 1);
            return Step { parts: vec![(offset as u64, some_bytes(rng, len))], sync: rng.bool() };
        }
        if self.transacts && kind == 1 && rng.bool() {
            let from = from + rng.usize(..half - 100);
            return Step {
                parts: some_parts(rng, from, DEALT + (self.writer + 1) * half),
                sync: true,
            };
        }
        let (mut offset, mut len) = some_range(rng, from, from + half);
        if kind > 1 {
            // A large write: most kills interrupt it.
            len = rng.usize(60_000..1 << 20);
            offset = rng.usize(from..from + half - len + 1);
        }
        Step { parts: vec![(offset as u64, some_bytes(rng, len))], sync: rng.bool() }
    }

    /// Returns the ranges that no other writer uses.
    fn own(&self) -> Vec<std::ops::Range<usize>> {
        let half = (LEN - DEALT) / WRITERS;
        let large = DEALT + self.writer * half;
        (self.writer..DEALT / SMALL)
            .step_by(WRITERS)
            .map(|piece| piece * SMALL..(piece + 1) * SMALL)
            .chain(std::iter::once(large..large + half))
            .collect()
    }
}

/// Runs the child until it is killed.
fn write_until_killed(kind: &Kind, folder: &Path, seed: u64, transacts: bool) {
    let subject = open(kind, folder);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let subject = &*subject;
            scope.spawn(move || {
                let mut steps = Steps::new(seed, writer, transacts);
                let mut done = 0u32;
                loop {
                    let step = steps.next();
                    match &step.parts[..] {
                        [(offset, data)] => subject.write(data, *offset),
                        parts => assert!(subject.transact(parts)),
                    }
                    if steps.reads {
                        let mut read = [0; 16];
                        (0..8).for_each(|_| subject.read(&mut read, step.parts[0].0.min(1000)));
                    }
                    done += 1;
                    if step.sync {
                        subject.sync();
                        // Five bytes in one call, so that the pipe keeps them together.
                        let mut said = [writer as u8; 5];
                        said[1..].copy_from_slice(&done.to_le_bytes());
                        std::io::stderr().write_all(&said).expect("the parent listens");
                    }
                }
            });
        }
    });
}

/// Not a test: the kill tests run it in its own process.
#[test]
fn child() {
    let Ok(name) = std::env::var("BASELINES_CHILD") else { return };
    let word = |name| std::env::var(name).expect("set beside it");
    let kind = kinds().find(|kind| kind.name == name).expect("a known one");
    let seed = word("BASELINES_CHILD_SEED").parse().expect("a number");
    let transacts = word("BASELINES_CHILD_TRANSACTS") == "true";
    write_until_killed(kind, Path::new(&word("BASELINES_CHILD_FOLDER")), seed, transacts);
}

/// Runs a child for a while and kills it. Returns the number of durable steps of each writer.
fn kill_one(
    kind: &Kind,
    folder: &Path,
    seed: u64,
    transacts: bool,
    rng: &mut Rng,
) -> [u32; WRITERS] {
    let mut child = Command::new(std::env::current_exe().expect("we run"))
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env("BASELINES_CHILD", kind.name)
        .env("BASELINES_CHILD_SEED", seed.to_string())
        .env("BASELINES_CHILD_FOLDER", folder)
        .env("BASELINES_CHILD_TRANSACTS", transacts.to_string())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut pipe = child.stderr.take().expect("piped");
    let mut said = vec![0; 5];
    pipe.read_exact(&mut said).expect("the child writes");
    std::thread::sleep(std::time::Duration::from_micros(rng.u64(..8000)));
    child.kill().expect("it runs until then");
    pipe.read_to_end(&mut said).expect("the rest");
    child.wait().expect("it is dead");
    let mut durable = [0; WRITERS];
    let (whole, rest) = said.as_chunks::<5>();
    assert!(
        rest.is_empty() && whole.iter().all(|said| usize::from(said[0]) < WRITERS),
        "{}",
        String::from_utf8_lossy(&said)
    );
    for [writer, count @ ..] in whole {
        durable[usize::from(*writer)] = u32::from_le_bytes(*count);
    }
    durable
}

fn with_kills(kind: &Kind, kills: usize) {
    let first = seed();
    let scratch = Scratch::new(None).expect("a folder");
    let transacts = {
        let folder = scratch.folder("asked").expect("a folder");
        open(kind, &folder).transact(&[(0, &[1])])
    };
    let folder = scratch.folder("killed").expect("a folder");
    let mut model = vec![0; LEN];
    let mut total = 0;
    for round in 0..kills as u64 {
        let seed = first.wrapping_add(round);
        let what = format!("{kind:?}, round {round}, BASELINES_SEED={first}");
        let mut rng = Rng::with_seed(seed);
        let durable = kill_one(kind, &folder, seed, transacts, &mut rng);
        let subject = open(kind, &folder);
        let mut found = vec![0; LEN];
        subject.read(&mut found, 0);
        for (writer, durable) in durable.into_iter().enumerate() {
            total += durable;
            let mut steps = Steps::new(seed, writer, transacts);
            let own = steps.own();
            let wrong = |model: &[u8]| {
                let range =
                    own.iter().find(|own| model[(*own).clone()] != found[(*own).clone()])?;
                range.clone().find(|at| model[*at] != found[*at])
            };
            let mut at = 0;
            let mut synced = 0;
            // The file must hold the durable steps, and then a number of whole steps, at most up to
            // the sync that the kill interrupted.
            let mut first_wrong = None;
            loop {
                if at >= durable {
                    match wrong(&model) {
                        None => break,
                        Some(place) => first_wrong = first_wrong.or(Some(place)),
                    }
                    assert!(
                        synced <= durable,
                        "{what}: writer {writer}, {durable} steps are durable; byte {} is wrong",
                        first_wrong.expect("just found")
                    );
                }
                let step = steps.next();
                step.parts.iter().for_each(|(offset, data)| apply(&mut model, *offset, data));
                at += 1;
                synced = if step.sync { at } else { synced };
            }
        }
    }
    assert!(total > kills as u32, "{kind:?}: only {total} steps in {kills} rounds");
}

macro_rules! every_way {
    ($($name:ident = $index:expr),*) => { $(
        mod $name {
            use super::*;

            #[test]
            fn against_a_model() {
                super::against_a_model(&ALL[$index]);
            }

            #[test]
            fn with_threads() {
                super::with_threads(&ALL[$index]);
            }

            #[test]
            fn with_kills() {
                super::with_kills(&ALL[$index], KILLS);
            }
        }
    )* };
}

every_way!(
    page_copy = 0,
    undo_log = 1,
    redo_log = 2,
    hybrid_log = 3,
    shadow_tree = 4,
    half_block = 5,
    two_level = 6
);

#[test]
fn there_are_no_others() {
    assert_eq!(ALL.len(), 7);
}

#[test]
fn tight_logs_against_a_model() {
    TIGHT.iter().for_each(against_a_model);
}

#[test]
fn tight_logs_with_threads() {
    TIGHT.iter().for_each(with_threads);
}

#[test]
fn tight_logs_with_kills() {
    TIGHT.iter().for_each(|kind| with_kills(kind, KILLS / 2));
}
