//! A checker of linearizability: it looks for an order of the operations that explains every read.
//!
//! Owns: the checker. It is Wing and Gong's search in Lowe's just-in-time form. The checker goes
//! through calls and returns in time order. It keeps every *configuration* that explains all
//! returns so far. A configuration says which operations in progress have happened, and what the
//! cells hold. The checker lets an operation happen only when a return requires it. So the cost of
//! a history depends on its concurrency and not on its length. It merges equal configurations. May
//! import `history`.
//!
//! An operation that only reads happens as soon as possible. A read changes nothing, so this loses
//! no explanation, and it removes most choices.

use super::history::{Cell, History, Moment, Operation, TORN, Value};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Maximum number of operations in progress at the same time.
const AT_ONCE: usize = 64;

/// Maximum number of configurations at one return. A history with more has too many operations in
/// progress to be decided.
const CONFIGURATIONS: usize = 1 << 20;

/// The state of one explanation so far.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Configuration {
    /// The operations in progress that have happened, one bit for each place.
    happened: u64,
    cells: Box<[Value]>,
}

/// The index of the previous step of a configuration.
type Origin = Option<usize>;

struct Search<'a> {
    history: &'a History,
    /// The operation in each place.
    under_way: [Option<usize>; AT_ONCE],
    /// The configurations, each with its last step.
    alive: HashMap<Configuration, Origin>,
    /// The steps: an operation and the previous step.
    steps: Vec<(usize, Origin)>,
}

/// Checks a history. The error names the return that has no explanation, and shows why.
///
/// # Errors
/// If no order explains the history.
pub fn check(history: &History) -> Result<(), String> {
    let Err(first) = search(history) else { return Ok(()) };
    Err(describe(&shortened(history, first), history))
}

/// Returns `true` if some order explains the history.
pub fn is_linearizable(history: &History) -> bool {
    search(history).is_ok()
}

/// An operation with a return that has no explanation, and the explanations of the history before
/// it.
struct Stuck {
    operation: usize,
    before: Vec<Explanation>,
}

/// An order of operations, and the content of the cells after it.
struct Explanation {
    order: Vec<usize>,
    cells: Box<[Value]>,
}

fn search(history: &History) -> Result<(), Stuck> {
    // Returns and calls in time order. No two of them are at the same moment.
    let mut events: Vec<(Moment, bool, usize)> = Vec::new();
    for (n, operation) in history.operations.iter().enumerate() {
        events.push((operation.call, false, n));
        events.extend(operation.ret.map(|ret| (ret, true, n)));
    }
    events.sort_unstable();
    let first = Configuration { happened: 0, cells: history.initial.clone().into() };
    let mut search = Search {
        history,
        under_way: [None; AT_ONCE],
        alive: HashMap::from([(first, None)]),
        steps: Vec::new(),
    };
    for (_, is_return, operation) in events {
        if is_return {
            search.returns(operation)?;
        } else {
            search.calls(operation);
        }
    }
    Ok(())
}

impl Search<'_> {
    fn calls(&mut self, operation: usize) {
        let place = self.under_way.iter().position(Option::is_none);
        let place = place.expect("more operations at once than threads");
        self.under_way[place] = Some(operation);
    }

    fn returns(&mut self, operation: usize) -> Result<(), Stuck> {
        let place = self.under_way.iter().position(|o| *o == Some(operation)).expect("was called");
        let mut left: Vec<(Configuration, Origin)> =
            self.alive.iter().map(|(c, &origin)| (c.clone(), origin)).collect();
        let mut seen: HashMap<Configuration, Origin> = HashMap::new();
        let mut after: HashMap<Configuration, Origin> = HashMap::new();
        while let Some((mut configuration, mut origin)) = left.pop() {
            self.let_reads_happen(&mut configuration, &mut origin);
            if seen.contains_key(&configuration) {
                continue;
            }
            seen.insert(configuration.clone(), origin);
            assert!(seen.len() < CONFIGURATIONS, "too many operations at once to be decided");
            if configuration.happened >> place & 1 == 1 {
                configuration.happened &= !(1 << place);
                after.entry(configuration).or_insert(origin);
                continue;
            }
            for next in 0..AT_ONCE {
                let Some(n) = self.under_way[next] else { continue };
                if configuration.happened >> next & 1 == 0
                    && let Some(cells) = apply(&self.history.operations[n], &configuration.cells)
                {
                    let happened = configuration.happened | 1 << next;
                    left.push((Configuration { happened, cells }, self.step(n, origin)));
                }
            }
        }
        if after.is_empty() {
            let before = self.alive.iter().map(|(c, &origin)| self.explain(c, origin)).collect();
            return Err(Stuck { operation, before });
        }
        self.under_way[place] = None;
        self.alive = after;
        Ok(())
    }

    /// Lets every operation happen that only reads and that finds the values that it has read.
    fn let_reads_happen(&mut self, configuration: &mut Configuration, origin: &mut Origin) {
        for place in 0..AT_ONCE {
            let Some(n) = self.under_way[place] else { continue };
            let operation = &self.history.operations[n];
            if configuration.happened >> place & 1 == 0
                && operation.writes.is_empty()
                && finds(operation, &configuration.cells)
            {
                configuration.happened |= 1 << place;
                *origin = self.step(n, *origin);
            }
        }
    }

    fn step(&mut self, operation: usize, before: Origin) -> Origin {
        self.steps.push((operation, before));
        Some(self.steps.len() - 1)
    }

    fn explain(&self, configuration: &Configuration, mut origin: Origin) -> Explanation {
        let mut order = Vec::new();
        while let Some(step) = origin {
            order.push(self.steps[step].0);
            origin = self.steps[step].1;
        }
        order.reverse();
        Explanation { order, cells: configuration.cells.clone() }
    }
}

fn finds(operation: &Operation, cells: &[Value]) -> bool {
    operation.reads.iter().all(|&(cell, value)| cells[cell] == value)
}

/// Returns the content of the cells after the operation, or `None` if it would read other values.
fn apply(operation: &Operation, cells: &[Value]) -> Option<Box<[Value]>> {
    finds(operation, cells).then(|| {
        let mut cells: Box<[Value]> = cells.into();
        for &(cell, value) in &operation.writes {
            cells[cell] = value;
        }
        cells
    })
}

/// Returns a shorter history that has no explanation either. It lacks all calls after the failing
/// return, and the read-only operations that are not needed for the failure. It keeps all
/// operations that write, because otherwise some reads would return values without a write.
fn shortened(history: &History, stuck: Stuck) -> (History, Stuck) {
    let end = history.operations[stuck.operation].ret.unwrap_or(Moment::MAX);
    let mut short = history.clone();
    short.operations.retain(|o| o.call < end);
    for operation in &mut short.operations {
        operation.ret = operation.ret.filter(|&ret| ret <= end);
    }
    let mut n = short.operations.len();
    while n > 0 {
        n -= 1;
        if short.operations[n].writes.is_empty() {
            let read = short.operations.remove(n);
            if search(&short).is_ok() {
                short.operations.insert(n, read);
            }
        }
    }
    let stuck = search(&short).err().unwrap_or(stuck);
    (short, stuck)
}

/// Maximum number of operations that are shown before the failing one.
const SHOWN: usize = 16;

fn describe((short, stuck): &(History, Stuck), whole: &History) -> String {
    let failing = &short.operations[stuck.operation];
    let mut text = format!(
        "no order of {} operations explains this one (moments count calls and returns):\n  {failing}\n",
        whole.operations.len()
    );
    for &(cell, value) in &failing.reads {
        let by: Vec<String> = whole
            .operations
            .iter()
            .filter(|o| o.writes.contains(&(cell, value)))
            .map(|o| o.to_string())
            .collect();
        let wrote = match &by[..] {
            _ if value == TORN => "bytes of several values".to_owned(),
            [] if short.initial.get(cell) == Some(&value) => "there from the beginning".to_owned(),
            [] => "written by no operation".to_owned(),
            some => format!("written by {}", some.join(" and ")),
        };
        let name = Operation { reads: vec![(cell, value)], writes: Vec::new(), ..failing.clone() };
        let name = name.to_string();
        let name = name.split(" r ").nth(1).unwrap_or_default();
        let name = name.split(" #").next().unwrap_or_default();
        let _ = writeln!(text, "  found {name}: {wrote}");
    }
    let mut before: Vec<usize> =
        (0..short.operations.len()).filter(|&n| n != stuck.operation).collect();
    before.sort_by_key(|&n| short.operations[n].ret.unwrap_or(Moment::MAX));
    let hidden = before.len().saturating_sub(SHOWN);
    let _ = writeln!(text, "what came before or meanwhile ({hidden} earlier ones not shown):");
    for &n in &before[hidden..] {
        let _ = writeln!(text, "  {}", short.operations[n]);
    }
    let cells: Vec<Cell> = failing.reads.iter().map(|&(cell, _)| cell).collect();
    let _ = writeln!(text, "{} explanations of that; the first ones:", stuck.before.len());
    for explanation in stuck.before.iter().take(3) {
        let held: Vec<(Cell, Value)> = cells.iter().map(|&c| (c, explanation.cells[c])).collect();
        let last = explanation.order.iter().rev().take(4).rev();
        let last: Vec<String> = last.map(|&n| short.operations[n].to_string()).collect();
        let held = Operation { reads: held, writes: Vec::new(), what: "", ..failing.clone() };
        let held = held.to_string();
        let held = held.split(" r ").nth(1).unwrap_or_default();
        let _ = writeln!(text, "  holding {held} after ... | {}", last.join(" | "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries every order, for short histories: the definition itself.
    fn by_definition(history: &History) -> bool {
        fn go(history: &History, done: u32, cells: &[Value]) -> bool {
            let all = &history.operations;
            let is_left = |n: usize| done >> n & 1 == 0;
            let mut left = (0..all.len()).filter(|&n| is_left(n));
            if left.clone().all(|n| all[n].ret.is_none()) {
                return true;
            }
            left.any(|n| {
                // No remaining operation returned before this one was called.
                let may_be_next = (0..all.len())
                    .filter(|&m| is_left(m))
                    .all(|m| all[m].ret.is_none_or(|ret| ret > all[n].call));
                may_be_next
                    && apply(&all[n], cells).is_some_and(|cells| go(history, done | 1 << n, &cells))
            })
        }
        go(history, 0, &history.initial)
    }

    /// Returns a short random history. Some of them have an explanation, some do not.
    fn random_history(rng: &mut fastrand::Rng) -> History {
        let mut history = History::of_zeroes(2);
        let mut moments: Vec<Moment> = (1..=16).collect();
        rng.shuffle(&mut moments);
        for thread in 0..rng.usize(2..7) {
            let (a, b) = (moments.pop().expect("enough"), moments.pop().expect("enough"));
            let some = |rng: &mut fastrand::Rng| -> Vec<(Cell, Value)> {
                let mut maybe = |cell| {
                    let value = rng.u64(0..6);
                    (value < 3).then_some((cell, value))
                };
                (0..2).filter_map(&mut maybe).collect()
            };
            history.operations.push(Operation {
                thread,
                what: "",
                call: a.min(b),
                ret: (rng.u32(0..6) != 0).then_some(a.max(b)),
                reads: if rng.bool() { some(rng) } else { Vec::new() },
                writes: if rng.bool() { some(rng) } else { Vec::new() },
            });
        }
        history
    }

    #[test]
    fn it_says_what_the_definition_says_of_short_histories() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut counts = [0; 2];
        for _ in 0..20_000 {
            let history = random_history(&mut rng);
            let expected = by_definition(&history);
            assert_eq!(is_linearizable(&history), expected, "{history:#?}");
            counts[usize::from(expected)] += 1;
        }
        assert!(counts.iter().all(|&n| n > 2_000), "too many of one kind: {counts:?}");
    }

    #[test]
    fn a_long_history_is_decided_quickly_and_one_changed_value_is_found() {
        let mut rng = fastrand::Rng::with_seed(2);
        let mut history = History::of_zeroes(4);
        let mut cells = [0; 4];
        // Four operations are in progress at a time, and happen in some order.
        for round in 0..250 {
            let base = round * 8;
            for thread in 0..4 {
                let cell = rng.usize(0..4);
                let reads = vec![(cell, cells[cell])];
                let value = round * 4 + thread as u64 + 1;
                let writes = if rng.bool() { vec![(cell, value)] } else { Vec::new() };
                writes.iter().for_each(|&(cell, value)| cells[cell] = value);
                history.operations.push(Operation {
                    thread,
                    what: "",
                    call: base + thread as u64,
                    ret: Some(base + 7 - thread as u64),
                    reads,
                    writes,
                });
            }
        }
        assert_eq!(check(&history), Ok(()));
        let n = (600..1000).find(|&n| history.operations[n].reads[0].1 > 500).expect("one");
        history.operations[n].reads[0].1 = 3;
        let message = check(&history).expect_err("a value from long ago");
        assert!(message.contains("no order of 1000 operations"), "{message}");
        assert!(message.lines().count() < 40, "{message}");
    }
}
