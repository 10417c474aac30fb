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
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

/// A turn of writes is so many times as long as others: a thread is woken up in each.
const LONGER: u32 = 4;
/// Rounds are tried until as many count as are wanted, but no more than so many times as many.
const TRIES: usize = 4;

/// Who writes so many bytes at an offset.
pub type Write<'a> = &'a (dyn Fn(&[u8], u64) + Sync);

/// Nanoseconds in which a write gets done, in the rounds that count.
#[derive(Default)]
pub struct InTwoHalves {
    /// By one thread: the mean of the two.
    pub one: Series,
    /// By both at a time.
    pub two: Series,
}

impl InTwoHalves {
    /// The throughput of two, to that of one. No number if no round counts.
    pub fn gain(&self) -> f64 {
        if self.one.0.is_empty() { f64::NAN } else { ratio(&self.one, &self.two) }
    }
}

/// What a thread does until it is stopped.
#[derive(Clone, Copy)]
enum Job {
    /// Writes as this one of those who are compared, at the offsets of this round.
    Write(usize, usize),
    /// Sums and products, in registers.
    Reckon,
}

/// One of the two, from outside.
struct Worker {
    ask: Sender<(Job, usize)>,
    /// What it got done in a nanosecond.
    said: Receiver<f64>,
}

/// Whether two threads that got so much done alone, and together, had a core each. Two that share one gain nothing, or
/// a quarter; what is beyond two cores is a turn in which somebody else was in the way.
fn had_two_cores(alone: f64, together: f64) -> bool {
    (1.8..2.2).contains(&(together / alone))
}

/// Writes of `len` bytes by each of two threads alone, and by both at a time, each in a half of `file` bytes. By all of
/// `writes` in the same rounds. And how many rounds do not count.
pub fn in_two_halves<const N: usize>(
    effort: &Effort,
    file: u64,
    len: usize,
    writes: [Write<'_>; N],
) -> ([InTwoHalves; N], usize) {
    let data = vec![0x66; len];
    // What begins at the first has to end before the second.
    let halves = [(0, file / 2), (file / 2, file)];
    let stop = AtomicBool::new(false);
    let are_there = Barrier::new(2);
    let work = |which: usize, job: Job| {
        let (start, end) = halves[which];
        let is_on = |_: &u64| !stop.load(Ordering::Relaxed);
        let begin = Instant::now();
        let done = match job {
            Job::Write(who, round) => {
                Offsets::new(Order::Random, end, len, len as u64, start, round as u64)
                    .take_while(is_on)
                    .inspect(|at| writes[who](&data, *at))
                    .count()
            }
            Job::Reckon => (0..).take_while(is_on).inspect(|n| reckon(*n)).count(),
        };
        done as f64 / begin.elapsed().as_nanos() as f64
    };
    let mut found = std::array::from_fn(|_| InTwoHalves::default());
    let mut left_out = 0;
    thread::scope(|s| {
        let (work, are_there) = (&work, &are_there);
        let workers = [0, 1].map(|which| {
            let (ask, asked) = channel();
            let (say, said) = channel();
            s.spawn(move || {
                stay_on(which);
                while let Ok((job, together)) = asked.recv() {
                    if together == 2 {
                        are_there.wait();
                    }
                    if say.send(work(which, job)).is_err() {
                        break;
                    }
                }
            });
            Worker { ask, said }
        });
        // What these get done in a nanosecond. Nothing if one was woken up too late to do anything.
        let turn = |workers: &[Worker], job: Job, time: Duration| -> f64 {
            stop.store(false, Ordering::Relaxed);
            for worker in workers {
                worker.ask.send((job, workers.len())).expect("the thread is there");
            }
            thread::sleep(time);
            stop.store(true, Ordering::Relaxed);
            let each =
                workers.iter().map(|worker| worker.said.recv().expect("the thread is there"));
            let each: Vec<f64> = each.collect();
            if each.contains(&0.0) { 0.0 } else { each.iter().sum() }
        };
        // By one of them, and by both. Who is first in a round is last in the next.
        let both_ways = |round: usize, job: Job, time: Duration| {
            let before = round.is_multiple_of(2).then(|| turn(&workers, job, time));
            let each = [turn(&workers[..1], job, time), turn(&workers[1..], job, time)];
            let one = if each.contains(&0.0) { 0.0 } else { f64::midpoint(each[0], each[1]) };
            (one, before.unwrap_or_else(|| turn(&workers, job, time)))
        };
        for round in 0..effort.warm_up + effort.rounds * TRIES {
            let (alone, together) = both_ways(round, Job::Reckon, effort.turn);
            let times: [_; N] = std::array::from_fn(|who| {
                both_ways(round, Job::Write(who, round), effort.turn * LONGER)
            });
            if round < effort.warm_up {
                continue;
            }
            let all_worked = times.iter().all(|(one, two)| *one > 0.0 && *two > 0.0);
            if !had_two_cores(alone, together) || !all_worked {
                left_out += 1;
                continue;
            }
            for (found, (one, two)) in found.iter_mut().zip(times) {
                found.one.0.push(1.0 / one);
                found.two.0.push(1.0 / two);
            }
            if found.iter().all(|found| found.one.0.len() == effort.rounds) {
                break;
            }
        }
    });
    (found, left_out)
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

/// Keeps the calling thread on the core with this number, where that can be had: for a while after it was woken up, a
/// thread may share one with another.
#[cfg(target_os = "linux")]
fn stay_on(number: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    // Of the threads of one core the first that may be used: all of them have the same list.
    let mut cores = std::collections::HashSet::new();
    let is_of_another_core = |cpu: &usize| {
        let of = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        cores.insert(std::fs::read_to_string(of).unwrap_or_else(|_| cpu.to_string()))
    };
    let Ok(usable) = sched_getaffinity(None) else { return };
    let usable = (0..CpuSet::MAX_CPU).filter(|cpu| usable.is_set(*cpu));
    let Some(cpu) = usable.filter(is_of_another_core).nth(number) else { return };
    let mut only = CpuSet::new();
    only.set(cpu);
    let _where_it_may_not = sched_setaffinity(None, &only);
}

#[cfg(not(target_os = "linux"))]
fn stay_on(_number: usize) {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    #[test]
    fn two_threads_of_one_core_are_told_from_two_cores() {
        assert!(had_two_cores(1.0, 2.0) && had_two_cores(0.5, 0.95));
        assert!(!had_two_cores(1.0, 1.0) && !had_two_cores(1.0, 1.3) && !had_two_cores(1.0, 2.5));
    }

    #[test]
    fn the_gain_is_that_of_the_rounds_that_count() {
        let series = |each: &[f64]| Series(each.to_vec());
        let found = InTwoHalves { one: series(&[2.0, 4.0, 40.0]), two: series(&[1.0, 2.0, 40.0]) };
        assert_eq!(found.gain(), 2.0);
        let in_turn = InTwoHalves { one: series(&[3.0]), two: series(&[3.0]) };
        assert_eq!(in_turn.gain(), 1.0, "a writer that waits for the other gains nothing");
        assert!(InTwoHalves::default().gain().is_nan(), "no round counts");
    }

    /// How many rounds count depends on what else the machine does, and how fast they are as well:
    /// neither is looked at here.
    #[test]
    fn each_thread_stays_in_its_half_and_every_round_is_accounted_for() {
        let effort = Effort { rounds: 5, warm_up: 1, turn: Duration::from_millis(2) };
        let places = Mutex::new(BTreeSet::new());
        let write = |data: &[u8], at: u64| {
            assert!(data.len() == 4096 && at + 4096 <= 1 << 16);
            let mut places = places.lock().expect("no panic");
            places.insert((at >= 1 << 15, format!("{:?}", thread::current().id())));
        };
        let ([found], left_out) = in_two_halves(&effort, 1 << 16, 4096, [&write]);
        let counted = found.one.0.len();
        assert_eq!(counted, found.two.0.len());
        assert!(counted == 5 || counted + left_out == 20, "{counted}, {left_out}");
        let places = places.into_inner().expect("no panic");
        for half in [false, true] {
            let threads = places.iter().filter(|(of, _)| *of == half).count();
            assert!(threads <= 1, "{threads} threads in one half");
        }
        let threads: BTreeSet<_> = places.iter().map(|(_, thread)| thread).collect();
        assert_eq!(threads.len(), places.len(), "a thread in both halves");
    }
}
