//! Times in turns, and ratios.
//!
//! Two or more contenders take short turns at equal offsets, in many rounds. Each round gives one
//! ratio, and the result is the median of the ratios. So disturbances of the machine affect all
//! contenders, and a disturbance of one turn does not change the median. Absolute times are printed
//! too, but they mean nothing on a shared machine.
//!
//! May import nothing of this crate.

use std::time::{Duration, Instant};

/// The number of rounds, and the time of a turn.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Number of rounds that count.
    pub rounds: usize,
    /// Number of rounds before them.
    pub warm_up: usize,
    /// Time of a turn. The number of its operations is chosen to take about this long.
    pub turn: Duration,
}

impl Effort {
    /// Returns the effort of a quick look, or of results that are kept.
    pub fn new(quick: bool) -> Effort {
        let rounds = if quick { 31 } else { 151 };
        Effort {
            rounds,
            warm_up: 3,
            turn: Duration::from_micros(if quick { 1_500 } else { 3_000 }),
        }
    }
}

/// A contender's turn: it does a number of operations. The first argument is the number of the
/// round, so that all contenders do equal operations in one round.
pub type Turn<'a> = Box<dyn FnMut(usize, usize) + 'a>;

/// The times of a contender's turns, one for each round.
#[derive(Clone, Debug, Default)]
pub struct Series(
    /// Nanoseconds an operation.
    pub Vec<f64>,
);

impl Series {
    /// Returns the median.
    pub fn median(&self) -> f64 {
        median(self.0.clone())
    }
}

/// Returns the median, or the mean of the middle two values. Returns zero for no values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match (values.len(), values.len() / 2) {
        (0, _) => 0.0,
        (len, half) if len % 2 == 1 => values[half],
        (_, half) => f64::midpoint(values[half - 1], values[half]),
    }
}

/// Returns the median of the rounds' ratios.
pub fn ratio(of: &Series, to: &Series) -> f64 {
    median(of.0.iter().zip(&to.0).map(|(a, b)| a / b).collect())
}

/// Returns the order of `len` contenders in a round: a Williams design. Over `2 * len` rounds each
/// contender has each place equally often, and follows each other one equally often within a
/// round. So what a turn leaves behind for the next one, as dirty pages, burdens all alike.
pub fn order(round: usize, len: usize) -> impl Iterator<Item = usize> {
    // 0, 1, len - 1, 2, len - 2 and so on: the distances of neighbours differ.
    let zigzag = move |n: usize| if n % 2 == 1 { n / 2 + 1 } else { len - n / 2 };
    // An odd number of contenders also needs each order backwards.
    let is_backward = len % 2 == 1 && round % 2 == 1;
    let place = move |n| if is_backward { len - 1 - n } else { n };
    (0..len).map(move |n| (zigzag(place(n)) + round) % len)
}

/// Most operations of a turn.
const MOST: usize = 1 << 22;

/// Runs the turns of all contenders. All do an equal number of operations: what the slowest one can
/// do in the time of a turn, but at least `least`.
pub fn take_turns(effort: &Effort, least: usize, turns: &mut [Turn<'_>]) -> Vec<Series> {
    let began = Instant::now();
    take_turns_by(effort, least, turns, &|| began.elapsed())
}

/// Like [`take_turns`], with the given clock.
fn take_turns_by(
    effort: &Effort,
    least: usize,
    turns: &mut [Turn<'_>],
    clock: &dyn Fn() -> Duration,
) -> Vec<Series> {
    let mut count = least;
    // Finds the number of operations: doubles it until the slowest contender takes long enough,
    // even when it repeats them. A first touch may take a hundred times as long, and would make the
    // turns too short. The repetition finds warm caches, which makes the turns a little longer.
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
        for n in order(round, turns.len()) {
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

    /// A regression test: one slow first turn made all turns as short as about a hundred
    /// operations.
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
    fn each_contender_follows_each_other_one_equally_often() {
        for len in 1..=12 {
            let mut places = vec![vec![0; len]; len];
            let mut followers = vec![vec![0; len]; len];
            for round in 0..2 * len {
                let order: Vec<usize> = order(round, len).collect();
                assert_eq!(order.len(), len);
                order.iter().enumerate().for_each(|(place, one)| places[*one][place] += 1);
                order.windows(2).for_each(|pair| followers[pair[0]][pair[1]] += 1);
            }
            assert!(places.iter().flatten().all(|count| *count == 2), "{len}: {places:?}");
            for (one, followers) in followers.iter().enumerate() {
                let expected: Vec<i32> = (0..len).map(|n| if n == one { 0 } else { 2 }).collect();
                assert_eq!(*followers, expected, "{len}: after {one}");
            }
        }
    }

    #[test]
    fn all_contenders_have_the_same_turns() {
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
