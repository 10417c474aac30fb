//! How much more do two threads get done than one, each in its half of a file?
//!
//! For a while each of them works alone, and then both do, each on a processor of its own; who works counts what it
//! got done, and in what time. So neither the start of a turn nor the wait for the slower one is in the figures. In a
//! round each begins with the same offsets both times, and finds no more in its processor's caches than the other.
//!
//! What a virtual machine calls two processors may be, for seconds at a time, two threads of one core: then nobody
//! gains much by working beside somebody else. So in each round the two reckon, too, which needs nothing but the core,
//! and only the rounds count in which they gained by that what two cores gain.
//!
//! May import `measure`, `offsets`.

use crate::measure::{Effort, Series, ratio};
use crate::offsets::{Offsets, Order};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A turn of writes is so many times as long as others: a thread is woken up in each.
const LONGER: u32 = 4;
/// Two threads that reckon gain so much on two cores: a little less than twice as much, since others are there. On
/// one core they gain nothing, or a quarter.
const TWO_CORES: f64 = 1.8;
/// So many times as many rounds as are wanted are tried, until so many count.
const TRIES: usize = 4;

/// Nanoseconds in which a write gets done, in the rounds that count.
#[derive(Default)]
pub struct InTwoHalves {
    /// By one thread: the mean of the two.
    pub one: Series,
    /// By both at a time.
    pub two: Series,
    /// Rounds in which the two had no core each. They do not count.
    pub on_one_core: usize,
}

impl InTwoHalves {
    /// The throughput of two, to that of one.
    pub fn gain(&self) -> f64 {
        ratio(&self.one, &self.two)
    }
}

/// What a thread does until it is stopped.
#[derive(Clone, Copy)]
enum Job {
    /// Writes, at the offsets of this round.
    Write(usize),
    /// Sums and products, in registers.
    Reckon,
}

/// One of the two, from outside.
struct Worker {
    ask: Sender<Job>,
    /// What it got done in a nanosecond.
    said: Receiver<f64>,
}

/// Writes of `len` bytes by each of two threads alone, and by both at a time, each in a half of `file` bytes.
pub fn in_two_halves(
    effort: &Effort,
    file: u64,
    len: usize,
    write: impl Fn(&[u8], u64) + Sync,
) -> InTwoHalves {
    let data = vec![0x66; len];
    // What begins at the first has to end before the second.
    let halves = [(0, file / 2), (file / 2, file)];
    let stop = AtomicBool::new(false);
    let work = |which: usize, job: Job| {
        let (start, end) = halves[which];
        let is_on = |_: &u64| !stop.load(Ordering::Relaxed);
        let begin = Instant::now();
        let done = match job {
            Job::Write(round) => {
                Offsets::new(Order::Random, end, len, len as u64, start, round as u64)
                    .take_while(is_on)
                    .inspect(|at| write(&data, *at))
                    .count()
            }
            Job::Reckon => (0..).take_while(is_on).inspect(|n| reckon(*n)).count(),
        };
        done as f64 / begin.elapsed().as_nanos() as f64
    };
    let mut found = InTwoHalves::default();
    thread::scope(|s| {
        let work = &work;
        let workers = [0, 1].map(|which| {
            let (ask, asked) = channel();
            let (say, said) = channel();
            s.spawn(move || {
                stay_on(which);
                while let Ok(job) = asked.recv() {
                    if say.send(work(which, job)).is_err() {
                        break;
                    }
                }
            });
            Worker { ask, said }
        });
        // What these get done in a nanosecond.
        let turn = |workers: &[Worker], job: Job, time: Duration| -> f64 {
            stop.store(false, Ordering::Relaxed);
            for worker in workers {
                worker.ask.send(job).expect("the thread is there");
            }
            thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            workers.iter().map(|worker| worker.said.recv().expect("the thread is there")).sum()
        };
        // By one of them, and by both. Who is first in a round is last in the next.
        let both_ways = |round: usize, job: Job, time: Duration| {
            let before = round.is_multiple_of(2).then(|| turn(&workers, job, time));
            let one = f64::midpoint(turn(&workers[..1], job, time), turn(&workers[1..], job, time));
            (one, before.unwrap_or_else(|| turn(&workers, job, time)))
        };
        for round in 0..effort.warm_up + effort.rounds * TRIES {
            let (one, two) = both_ways(round, Job::Write(round), effort.turn * LONGER);
            let (one_reckons, two_reckon) = both_ways(round, Job::Reckon, effort.turn);
            if round < effort.warm_up {
                continue;
            }
            if two_reckon < TWO_CORES * one_reckons {
                found.on_one_core += 1;
                continue;
            }
            found.one.0.push(1.0 / one);
            found.two.0.push(1.0 / two);
            if found.one.0.len() == effort.rounds {
                break;
            }
        }
    });
    found
}

/// As much as a core can do in a tenth of a microsecond or so, without a look at the memory.
#[inline]
fn reckon(seed: u64) {
    let mut numbers = [0, 1, 2, 3, 4, 5].map(|n| seed ^ n);
    for _ in 0..100 {
        for number in &mut numbers {
            *number = number.wrapping_mul(3) ^ 5;
        }
    }
    black_box(numbers);
}

/// Keeps the calling thread on the processor with this number, where that can be had: for a while after it was woken
/// up, a thread may share one with another.
fn stay_on(_number: usize) {
    #[cfg(target_os = "linux")]
    {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let Ok(usable) = sched_getaffinity(None) else { return };
        let nth = (0..CpuSet::MAX_CPU).filter(|cpu| usable.is_set(*cpu)).nth(_number);
        let Some(cpu) = nth else { return };
        let mut only = CpuSet::new();
        only.set(cpu);
        let _where_it_may_not = sched_setaffinity(None, &only);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    /// Who waits for the other gains nothing by it, and each stays in its half.
    #[test]
    fn two_that_take_turns_gain_nothing() {
        let effort = Effort { rounds: 5, warm_up: 1, turn: Duration::from_millis(2) };
        let places = Mutex::new(BTreeSet::new());
        let found = in_two_halves(&effort, 1 << 16, 4096, |data, at| {
            assert!(data.len() == 4096 && at + 4096 <= 1 << 16);
            let mut places = places.lock().expect("no panic");
            places.insert((format!("{:?}", thread::current().id()), at >= 1 << 15));
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_micros(20) {}
        });
        assert_eq!(found.one.0.len(), found.two.0.len());
        assert!(found.one.0.len() == 5 || found.on_one_core >= 15, "{}", found.on_one_core);
        assert!(found.one.0.is_empty() || found.gain() < 1.5, "{}", found.gain());
        assert_eq!(places.into_inner().expect("no panic").len(), 2, "each in its half");
    }
}
