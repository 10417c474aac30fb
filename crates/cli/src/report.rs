//! The output of a command: lines for people, or one JSON object.
//!
//! Invariant: names of files and snapshots, which others may have chosen, reach the terminal by
//! `shown` of the library or as JSON.

use crate::outcome::Failure;
use atomic_mmap::{is_obeyed, shown};
use serde_json::{Map, Value, json};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// The version of all JSON objects. A field is never removed or changed without another number.
pub const SCHEMA: u32 = 2;

/// Named values in the order in which people read them.
pub struct Report {
    command: &'static str,
    lines: Vec<(&'static str, Value, Option<String>)>,
}

impl Report {
    pub fn new(command: &'static str) -> Self {
        Report { command, lines: Vec::new() }
    }

    /// Adds a value, and what people read for it.
    pub fn add(&mut self, name: &'static str, value: impl Into<Value>, text: impl Into<String>) {
        self.lines.push((name, value.into(), Some(text.into())));
    }

    /// Adds a value for programs alone.
    pub fn json(&mut self, name: &'static str, value: impl Into<Value>) {
        self.lines.push((name, value.into(), None));
    }

    /// Adds a text, or nothing.
    pub fn text(&mut self, name: &'static str, text: Option<String>) {
        self.add(name, text.clone(), text.unwrap_or_else(|| "none".into()));
    }

    /// Adds a path, or nothing. In JSON bytes that are no text are replaced.
    pub fn path(&mut self, name: &'static str, path: Option<&Path>) {
        let text = path.map(|path| path.to_string_lossy().into_owned());
        self.add(name, text, path.map_or("none".into(), |path| shown(path).to_string()));
    }

    pub fn count(&mut self, name: &'static str, count: u64) {
        self.add(name, count, count.to_string());
    }

    pub fn bytes(&mut self, name: &'static str, bytes: u64) {
        self.add(name, bytes, human(bytes));
    }

    pub fn flag(&mut self, name: &'static str, flag: bool) {
        self.add(name, flag, if flag { "yes" } else { "no" });
    }

    /// Returns the JSON object.
    pub fn object(&self) -> Value {
        let mut object = Map::new();
        object.insert("schema".into(), json!(SCHEMA));
        object.insert("command".into(), json!(self.command));
        for (name, value, _) in &self.lines {
            object.insert((*name).into(), value.clone());
        }
        Value::Object(object)
    }

    /// Prints the report.
    pub fn print(&self, as_json: bool) -> Result<(), Failure> {
        let mut text = String::new();
        if as_json {
            text = json_line(&self.object());
        } else {
            let told = || self.lines.iter().filter_map(|line| Some((line.0, line.2.as_ref()?)));
            let width = told().map(|line| line.0.len()).max().unwrap_or(0);
            for (name, said) in told() {
                let name = name.replace('_', " ");
                text += format!("{name:width$}  {}", shown(said)).trim_end();
                text.push('\n');
            }
        }
        print(text.as_bytes()).map(|_| ())
    }
}

/// Prints to standard output. Returns `false` if the reader has closed the pipe, which is no
/// failure: the command goes on and ends by its own exit code.
pub fn print(bytes: &[u8]) -> Result<bool, Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::printing(error)),
    }
}

/// Prints lines to standard error, and names in them as messages show them.
pub fn tell(text: &str) {
    let lines: Vec<String> = text.split('\n').map(|line| shown(line).to_string()).collect();
    draw(&lines.join("\n"));
}

/// Prints to standard error what the terminal shall obey. An error there is left out: it changes no
/// command and no exit code.
pub fn draw(text: &str) {
    let _best_effort = std::io::stderr().write_all(text.as_bytes());
}

/// Returns a JSON object as a line. In its strings each character that a terminal may obey is a
/// number.
pub fn json_line(value: &Value) -> String {
    let mut line = String::new();
    for c in value.to_string().chars() {
        match u16::try_from(u32::from(c)) {
            Ok(number) if is_obeyed(c) => line += &format!("\\u{number:04x}"),
            _ => line.push(c),
        }
    }
    line.push('\n');
    line
}

/// Returns a length for people. JSON has exact numbers.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 10.0 && value.fract() != 0.0 { 1 } else { 0 };
    format!("{value:.digits$} {}", UNITS[unit])
}
