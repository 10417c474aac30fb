//! The throughput of two threads compared with one, each in its half of a file.
//!
//! For a while each thread works alone, and then both work, each on its own processor. A thread
//! counts its operations and its time. So neither the start of a turn nor the wait for the slower
//! thread affects the result. In a round each thread starts with equal offsets both times, so its
//! processor's caches hold no more than the other's.
//!
//! For seconds at a time, two processors of a virtual machine may be two threads of one core. Then
//! a second thread gains little. So in each round both threads also compute in registers, which
//! needs only the core. A round counts only if they gain as much there as two cores do.
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

/// Factor for the time of a turn of writes, since each turn wakes a thread up.
const LONGER: u32 = 4;
/// Factor for the number of rounds that are tried until enough of them count.
const TRIES: usize = 4;

/// A function that writes bytes at an offset.
pub type Write<'a> = &'a (dyn Fn(&[u8], u64) + Sync);

/// Nanoseconds of a write, in the rounds that count.
#[derive(Default)]
pub struct InTwoHalves {
    /// One thread alone: the mean of the two.
    pub one: Series,
    /// Both threads together.
    pub two: Series,
}

impl InTwoHalves {
    /// Returns the throughput of two threads relative to one. Returns NaN if no round counts.
    pub fn gain(&self) -> f64 {
        if self.one.0.is_empty() { f64::NAN } else { ratio(&self.one, &self.two) }
    }
}

/// The work of a thread until it is stopped.
#[derive(Clone, Copy)]
enum Job {
    /// Writes with the contender of this number, at the offsets of this round.
    Write(usize, usize),
    /// Computes sums and products in registers.
    Reckon,
}

/// One of the two threads, as the main thread sees it.
struct Worker {
    ask: Sender<(Job, usize)>,
    /// Operations of the thread in a nanosecond.
    said: Receiver<f64>,
}

/// Returns `true` if the throughputs alone and together show that each thread had a core. Threads
/// that share a core gain nothing, or 25 %. A gain beyond two cores shows a disturbed turn.
fn had_two_cores(alone: f64, together: f64) -> bool {
    (1.8..2.2).contains(&(together / alone))
}

/// Measures writes of `len` bytes by each thread alone and by both together, each in a half of
/// `file` bytes. All of `writes` take part in every round. Also returns the number of rounds that
/// do not count.
pub fn in_two_halves<const N: usize>(
    effort: &Effort,
    file: u64,
    len: usize,
    writes: [Write<'_>; N],
) -> ([InTwoHalves; N], usize) {
    let data = vec![0x66; len];
    // Writes that start in the first half must end before the second one.
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
        // Returns the operations of these threads in a nanosecond. Returns 0 if a thread woke up
        // too late to work.
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
        // Measures one thread and both. Their order alternates from round to round.
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

/// Computes for about a tenth of a microsecond, without access to memory.
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

/// Keeps the calling thread on the core with this number, if possible. A thread that was just woken
/// up may share a core with another one for a while.
#[cfg(target_os = "linux")]
fn stay_on(number: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    // Uses the first allowed thread of each core: all threads of a core have one list.
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

    /// The test ignores how many rounds count and how fast they are: both depend on the load of the
    /// machine.
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
