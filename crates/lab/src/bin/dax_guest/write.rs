//! The writes during which the guest is killed.

use crate::fresh::Fresh;
use crate::places::{
    BASE_LEN, COUNTER_AT, COUNTING, KINDS, RESIZED_AT, THREADS, len_after, places, stamp,
};
use crate::say::Say;
use crate::{Anything, Numbers, UNSYNCED, open};
use atomic_mmap::{AtomicMappedFile, CloseMode, Error};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// Time between two acknowledgements.
const EVERY: Duration = Duration::from_millis(4);
/// Time between closing and reopening, so that some kills find the file closed.
const CLOSED_FOR: Duration = Duration::from_millis(200);
/// Approximate length of a view.
const VIEWED: u64 = 300_000;

/// The operations that have returned, for the thread that acknowledges them.
struct Returned {
    written: [AtomicU64; THREADS],
    resized: AtomicU64,
    made: AtomicU64,
    over: AtomicBool,
}

impl Returned {
    fn new(numbers: Numbers) -> Returned {
        Returned {
            written: numbers.written.map(AtomicU64::new),
            resized: AtomicU64::new(numbers.resized),
            made: AtomicU64::new(numbers.made),
            over: AtomicBool::new(false),
        }
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            written: self.written.each_ref().map(|n| n.load(Ordering::Acquire)),
            resized: self.resized.load(Ordering::Acquire),
            made: self.made.load(Ordering::Acquire),
        }
    }

    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }
}

/// Writes, closes and reopens, forever. `file` was just opened and contains `found`.
pub fn until_killed(
    folder: &Path,
    mut file: AtomicMappedFile,
    found: Numbers,
    say: &Say,
    random: &mut fastrand::Rng,
) -> Anything<()> {
    let returned = Returned::new(found);
    let fresh = Fresh::new(folder)?;
    for session in 0_u64.. {
        returned.over.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            let (file, returned) = (&file, &returned);
            let run = |what: &dyn Fn() -> Anything<()>| {
                if let Err(error) = what() {
                    say.violation(&format!("an error that should not be: {error}"));
                    std::process::exit(1);
                }
            };
            for thread in 0..THREADS {
                scope.spawn(move || run(&|| write(file, thread, returned)));
            }
            let seed = random.u64(..);
            scope.spawn(move || run(&|| resize(file, returned, seed)));
            let fresh = &fresh;
            scope.spawn(move || {
                run(&|| {
                    let made = &returned.made;
                    while returned.goes_on() {
                        let n = made.load(Ordering::Relaxed) + 1;
                        fresh.make(n)?;
                        made.store(n, Ordering::Release);
                    }
                    Ok(())
                });
            });
            scope.spawn(move || {
                let mut said = Numbers::default();
                while returned.goes_on() {
                    let numbers = returned.numbers();
                    if numbers != said {
                        say.line(&format!("ack {numbers}"));
                        said = numbers;
                    }
                    thread::sleep(EVERY);
                }
            });
            thread::sleep(Duration::from_millis(random.u64(200..2_000)));
            returned.over.store(true, Ordering::Relaxed);
        });
        say.line(&format!("ack {}", returned.numbers()));
        let mode = if session % 2 == 0 { CloseMode::Spatial } else { CloseMode::Fast };
        say.line(&format!("closing {mode:?}"));
        file.close(mode)?;
        // No thread syncs this file. On an idle machine it should be gone after a stop now.
        File::create(folder.join(UNSYNCED))?;
        say.line(&format!("closed {mode:?}"));
        thread::sleep(CLOSED_FOR);
        std::fs::remove_file(folder.join(UNSYNCED))?;
        say.line("opening again");
        // The host must receive the message before the guest opens a file.
        thread::sleep(EVERY);
        file = open(folder)?;
        say.line("opened again");
    }
    Ok(())
}

fn write(file: &AtomicMappedFile, thread: usize, returned: &Returned) -> Anything<()> {
    let mut n = returned.written[thread].load(Ordering::Relaxed);
    while returned.goes_on() {
        n += 1;
        let places = places(thread, n);
        if let ([place], true) = (&places[..], n % KINDS != COUNTING) {
            file.write_at(&stamp(thread, n, 0, place.len), place.at)?;
        } else {
            file.transact(|tx| {
                for (number, place) in places.iter().enumerate() {
                    tx.write_at(&stamp(thread, n, number, place.len), place.at)?;
                }
                if n % KINDS == COUNTING {
                    tx.update(COUNTER_AT, |count: &mut u64| *count += 1)?;
                }
                Ok::<_, Error>(())
            })?;
        }
        returned.written[thread].store(n, Ordering::Release);
    }
    Ok(())
}

/// Grows, shrinks and deploys the file, and takes views that prevent deployment.
fn resize(file: &AtomicMappedFile, returned: &Returned, seed: u64) -> Anything<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut n = returned.resized.load(Ordering::Relaxed);
    // The machine may have stopped after the change, before its note.
    if len_after(n) == file.len() {
        note(file, n)?;
    }
    while returned.goes_on() {
        n += 1;
        file.set_len(len_after(n))?;
        note(file, n)?;
        returned.resized.store(n, Ordering::Release);
        let at = random.u64(..BASE_LEN - VIEWED);
        if random.bool() {
            file.deploy(at..BASE_LEN)?;
        } else {
            let view = file.view(at..at + VIEWED)?;
            let before = view.to_vec()?;
            thread::sleep(Duration::from_millis(random.u64(1..10)));
            if view.to_vec()? != before {
                return Err(format!("the view of {VIEWED} bytes at {at} has changed").into());
            }
        }
    }
    Ok(())
}

fn note(file: &AtomicMappedFile, n: u64) -> Result<(), Error> {
    let len = file.len();
    if len > BASE_LEN {
        file.store(len - 8, &n)?;
    }
    file.store(RESIZED_AT, &n)
}
