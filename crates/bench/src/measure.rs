//! How are times taken, and what is a ratio?
//!
//! Two (or more) who are compared take short turns, round and round, at the same offsets. Each round gives
//! one ratio; what is told is the median of the ratios. So whatever else happens on the machine happens to
//! both, and what happens to one turn only is not in the middle. Absolute times are told beside, for who
//! wants to know; they mean nothing on a shared machine.
//!
//! May import nothing of this crate.

use std::time::{Duration, Instant};

/// How much is measured.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Rounds that count.
    pub rounds: usize,
    /// Rounds before them.
    pub warm_up: usize,
    /// Operations in a turn are as many as take about this long.
    pub turn: Duration,
}

impl Effort {
    /// For a look at it, or for figures that are kept.
    pub fn new(quick: bool) -> Effort {
        let rounds = if quick { 31 } else { 151 };
        Effort {
            rounds,
            warm_up: 3,
            turn: Duration::from_micros(if quick { 1_500 } else { 3_000 }),
        }
    }
}

/// Who takes a turn: does so many operations. The number of the round comes with it, so that all do the
/// same in the same round.
pub type Turn<'a> = Box<dyn FnMut(usize, usize) + 'a>;

/// What a turn took, for each round.
#[derive(Clone, Debug, Default)]
pub struct Series(
    /// Nanoseconds an operation.
    pub Vec<f64>,
);

impl Series {
    /// In the middle.
    pub fn median(&self) -> f64 {
        median(self.0.clone())
    }
}

/// The middle one, or the mean of the middle two. Zero for none.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (len, half) if len % 2 == 1 => values[half],
        (_, half) => f64::midpoint(values[half - 1], values[half]),
    }
}

/// The median of the rounds' ratios.
pub fn ratio(of: &Series, to: &Series) -> f64 {
    median(of.0.iter().zip(&to.0).map(|(a, b)| a / b).collect())
}

/// Operations of a turn, at most.
const MOST: usize = 1 << 22;

/// Lets everybody take turns. All do the same number of operations: as many as the slowest can do in the
/// time of a turn, but at least `least`.
pub fn take_turns(effort: &Effort, least: usize, turns: &mut [Turn<'_>]) -> Vec<Series> {
    let began = Instant::now();
    take_turns_by(effort, least, turns, &|| began.elapsed())
}

/// As [`take_turns`], by a clock that says how long it has been running.
fn take_turns_by(
    effort: &Effort,
    least: usize,
    turns: &mut [Turn<'_>],
    clock: &dyn Fn() -> Duration,
) -> Vec<Series> {
    let mut count = least;
    // How many? Doubled until the slowest takes long enough, also when it does the same once more. What is touched for
    // the first time may take a hundred times as long, and the turns would be that much too short; that the caches hold
    // some of it makes them a little longer.
    loop {
        let mut slowest = Duration::ZERO;
        for turn in turns.iter_mut() {
            let mut took = || {
                let begin = clock();
                turn(usize::MAX, count);
                clock() - begin
            };
            slowest = slowest.max(took().min(took()));
        }
        if slowest >= effort.turn || count > MOST {
            break;
        }
        count *= 2;
    }
    let mut series = vec![Series::default(); turns.len()];
    for round in 0..effort.warm_up + effort.rounds {
        // Who is first in a round is last in the next: nobody is always behind the same one.
        for n in 0..turns.len() {
            let n = (n + round) % turns.len();
            let begin = clock();
            turns[n](round, count);
            let took = (clock() - begin).as_nanos() as f64 / count as f64;
            if round >= effort.warm_up {
                series[n].0.push(took);
            }
        }
    }
    series
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn the_middle_is_in_the_middle() {
        assert_eq!(median(vec![]), 0.0);
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let (a, b) = (Series(vec![2.0, 20.0, 200.0]), Series(vec![1.0, 10.0, 50.0]));
        assert_eq!(ratio(&a, &b), 2.0);
    }

    /// A first turn that was slow once made all turns those of a hundred operations or so.
    #[test]
    fn what_is_slow_once_makes_no_turn_short() {
        let effort = Effort { rounds: 1, warm_up: 0, turn: Duration::from_millis(50) };
        let (mut is_first, mut last) = (true, 0);
        let now = Cell::new(Duration::ZERO);
        let mut turns: Vec<Turn<'_>> = vec![Box::new(|_, count| {
            let slow = if is_first { Duration::from_millis(200) } else { Duration::ZERO };
            now.set(now.get() + slow + Duration::from_millis(1) * count as u32);
            (is_first, last) = (false, count);
        })];
        let series = take_turns_by(&effort, 1, &mut turns, &|| now.get());
        drop(turns);
        assert_eq!(last, 64, "the first power of two that takes 50 ms");
        assert_eq!(series[0].0, [1e6], "nanoseconds an operation");
    }

    #[test]
    fn everybody_has_the_same_turns() {
        let effort = Effort { rounds: 5, warm_up: 1, turn: Duration::from_micros(10) };
        let mut seen = [Vec::new(), Vec::new()];
        let [first, second] = &mut seen;
        let mut turns: Vec<Turn<'_>> =
            vec![Box::new(|r, n| first.push((r, n))), Box::new(|r, n| second.push((r, n)))];
        let series = take_turns(&effort, 1, &mut turns);
        drop(turns);
        assert_eq!(series.len(), 2);
        assert_eq!(series[0].0.len(), 5);
        assert_eq!(
            seen[0].iter().map(|s| s.0).collect::<Vec<_>>()[seen[0].len() - 6..],
            [0, 1, 2, 3, 4, 5]
        );
        assert_eq!(seen[0].last(), seen[1].last());
    }
}
