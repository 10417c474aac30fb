//! What was done by whom, and what came of it? Histories, and their text form.
//!
//! Owns: the words for what several threads did to a few cells, and when. May import nothing from
//! the lab.
//!
//! An operation is what it read and what it wrote, and both happened at one moment between its call
//! and its return: a read writes nothing, a write reads nothing, a transaction may do both, and one
//! that was rolled back is what it had read. An operation that never returned (its thread was
//! killed, or the run ended) happened once at any time after its call, or not at all.

use std::fmt;

/// A place in the file that operations read or write as a whole. They are numbered from 0 on.
pub type Cell = usize;

/// What a cell holds. Before the first operation every cell holds what the history begins with.
pub type Value = u64;

/// What a cell was found to hold if its bytes were not of one value: nobody writes this.
pub const TORN: Value = Value::MAX;

/// A moment. No two calls or returns of one history have the same.
pub type Moment = u64;

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Operation {
    /// Whose.
    pub thread: usize,
    /// What it is, for messages.
    pub what: &'static str,
    /// When it was called.
    pub call: Moment,
    /// When it had returned. None: never.
    pub ret: Option<Moment>,
    /// Which cells it found to hold what.
    pub reads: Vec<(Cell, Value)>,
    /// What it wrote where.
    pub writes: Vec<(Cell, Value)>,
}

/// What several threads did to the cells.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct History {
    /// What the cells held before.
    pub initial: Vec<Value>,
    /// In no order: each tells when it was.
    pub operations: Vec<Operation>,
}

/// Cells have letters, as far as they go.
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
    /// `A 3-7 r x=1 w y=2`, as [`History::parse`] reads it, and what it was.
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
    /// A history of `cells` zeroes.
    pub fn of_zeroes(cells: usize) -> History {
        History { initial: vec![0; cells], operations: Vec::new() }
    }

    /// From one line an operation: thread, call and return (`?` for never), then `r` and what was
    /// read, `w` and what was written, and a remark after `#`.
    ///
    /// # Panics
    /// On what is not like that: it is written by hand.
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
