//! Histories: the operations of several threads, their results and their text form.
//!
//! Owns: the types for the operations of several threads on a few cells, with their times. May
//! import nothing from the lab.
//!
//! An operation consists of its reads and its writes, which happen at one moment between its call
//! and its return. A read has no writes, and a write has no reads. A transaction may have both, and
//! a transaction that was rolled back has only reads. An operation may never return, because its
//! thread was killed or the run ended. Then it happened at any time after its call, or not at all.

use std::fmt;

/// A place in the file that operations read or write as a whole. Cells are numbered from 0.
pub type Cell = usize;

/// The content of a cell. Each history has an initial value for every cell.
pub type Value = u64;

/// The value of a cell with mixed bytes. No operation writes it.
pub const TORN: Value = Value::MAX;

/// A moment. All calls and returns of a history have different moments.
pub type Moment = u64;

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// The thread of the operation.
    pub thread: usize,
    /// The kind of the operation, for messages.
    pub what: &'static str,
    /// The moment of its call.
    pub call: Moment,
    /// The moment of its return. None: it never returned.
    pub ret: Option<Moment>,
    /// The cells that it read, and the values that it found.
    pub reads: Vec<(Cell, Value)>,
    /// The cells that it wrote, and the new values.
    pub writes: Vec<(Cell, Value)>,
}

/// The operations of several threads on the cells.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct History {
    /// The initial values of the cells.
    pub initial: Vec<Value>,
    /// The operations in any order: each has its times.
    pub operations: Vec<Operation>,
}

/// Returns the name of a cell: a letter as long as there are letters.
fn cell_name(cell: Cell) -> String {
    const LETTERS: &[u8] = b"xyzuvwabcdefgh";
    LETTERS.get(cell).map_or_else(|| format!("c{cell}"), |&letter| char::from(letter).to_string())
}

fn cell_of(name: &str) -> Option<Cell> {
    (0..64).find(|&cell| cell_name(cell) == name)
}

fn thread_name(thread: usize) -> char {
    char::from(b'A' + (thread % 26) as u8)
}

fn write_cells(f: &mut fmt::Formatter<'_>, cells: &[(Cell, Value)]) -> fmt::Result {
    for &(cell, value) in cells {
        if value == TORN {
            write!(f, " {}=torn", cell_name(cell))?;
        } else {
            write!(f, " {}={value}", cell_name(cell))?;
        }
    }
    Ok(())
}

impl fmt::Display for Operation {
    /// Formats an operation as `A 3-7 r x=1 w y=2` and its kind, as [`History::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}-", thread_name(self.thread), self.call)?;
        match self.ret {
            Some(ret) => write!(f, "{ret}")?,
            None => write!(f, "?")?,
        }
        if !self.reads.is_empty() {
            write!(f, " r")?;
            write_cells(f, &self.reads)?;
        }
        if !self.writes.is_empty() {
            write!(f, " w")?;
            write_cells(f, &self.writes)?;
        }
        if !self.what.is_empty() {
            write!(f, " # {}", self.what)?;
        }
        Ok(())
    }
}

impl History {
    /// Returns a history of `cells` zeroes.
    pub fn of_zeroes(cells: usize) -> History {
        History { initial: vec![0; cells], operations: Vec::new() }
    }

    /// Parses one operation from each line: thread, call and return (`?` for never). Then `r` and
    /// the reads, `w` and the writes, and a remark after `#`.
    ///
    /// # Panics
    /// If the text has another form, because these texts are written by hand.
    pub fn parse(text: &str) -> History {
        let mut history = History::default();
        for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
            if line.is_empty() {
                continue;
            }
            let mut words = line.split_whitespace();
            let thread = words.next().and_then(|w| w.bytes().next()).expect("a thread") - b'A';
            let (call, ret) = words.next().and_then(|w| w.split_once('-')).expect("call-return");
            let mut operation = Operation {
                thread: thread.into(),
                what: "",
                call: call.parse().expect("a moment"),
                ret: (ret != "?").then(|| ret.parse().expect("a moment")),
                reads: Vec::new(),
                writes: Vec::new(),
            };
            let mut writes = false;
            for word in words {
                let Some((cell, value)) = word.split_once('=') else {
                    assert!(word == "r" || word == "w", "{word} in {line}");
                    writes = word == "w";
                    continue;
                };
                let cell = cell_of(cell).expect("a cell");
                let value = if value == "torn" { TORN } else { value.parse().expect("a value") };
                if history.initial.len() <= cell {
                    history.initial.resize(cell + 1, 0);
                }
                let to = if writes { &mut operation.writes } else { &mut operation.reads };
                to.push((cell, value));
            }
            history.operations.push(operation);
        }
        history
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        let text = "A 1-2 w x=1 y=2\nB 3-? r x=1 y=torn w z=5";
        let history = History::parse(text);
        assert_eq!(history.initial, [0, 0, 0]);
        let printed: Vec<String> = history.operations.iter().map(|o| o.to_string()).collect();
        assert_eq!(printed.join("\n"), text);
    }
}
