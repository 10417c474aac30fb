//! The goals and their measurements: the table, and `target/bench/ratios.json`.
//!
//! | file | contents |
//! |---|---|
//! | `goals` | the names and the goals |
//! | `run` | the measurement of each ratio |
//! | `halves` | the throughput of two threads compared with one |
//! | `limit` | the limits of the hardware |
//! | `child` | a process that ends after writes |

pub mod child;
pub mod goals;
mod halves;
pub(crate) mod limit;
pub(crate) mod run;

use crate::measure::Effort;
use crate::scratch::{self, Scratch};
use atomic_mmap::Medium;
use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

/// The options of a measurement.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Runs fewer rounds.
    pub quick: bool,
    /// Runs only groups with this text in their name.
    pub only: Option<String>,
    /// The folder of the files.
    pub base: Option<PathBuf>,
}

impl Options {
    /// Returns the folder for files on a disk: the one that the options name, or the temporary
    /// folder. Prints it with its file system, which may lie in memory.
    pub(crate) fn disk(&self) -> io::Result<PathBuf> {
        let folder = self.base.clone().unwrap_or_else(std::env::temp_dir);
        println!("files on disk in {}, {}", folder.display(), scratch::file_system(&folder)?);
        Ok(folder)
    }
}

/// The results.
#[derive(Clone, Debug, Default)]
pub struct Found {
    values: Vec<(String, f64)>,
}

impl Found {
    pub(crate) fn add(&mut self, name: &str, value: f64, told: &str) {
        let verdict = match goals::goal(name) {
            Some(goal) if goal.is_met(value) => format!("{goal}  met"),
            Some(goal) => format!("{goal}  MISSED"),
            None => String::new(),
        };
        println!("{name:<40} {value:>9.4}  {verdict:<16} {told}");
        self.values.push((name.to_owned(), value));
    }

    pub(crate) fn add_detail(&mut self, name: &str, value: f64) {
        self.values.push((name.replace(' ', "_"), value));
    }

    /// Returns names and values, in the order of measurement.
    pub fn all(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Writes the results as JSON, and prints where. Writes nothing if there are none: everything
    /// was skipped or left out.
    ///
    /// # Errors
    /// Returns the error of the system.
    pub fn save(&self, path: &Path) -> io::Result<()> {
        if self.values.is_empty() {
            println!("nothing was measured");
            return Ok(());
        }
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, self.to_json())?;
        println!("\n{}", path.display());
        Ok(())
    }

    /// Returns flat JSON: names to numbers.
    pub fn to_json(&self) -> String {
        let mut json = String::from("{\n");
        for (n, (name, value)) in self.all().enumerate() {
            let comma = if n == 0 { "" } else { ",\n" };
            // All names are ours and need no escapes. JSON has no infinity.
            let value = if value.is_finite() { format!("{value:.6}") } else { "null".into() };
            let _never_fails = write!(json, "{comma}  \"{name}\": {value}");
        }
        json.push_str("\n}\n");
        json
    }
}

/// A group of measurements, by its name.
pub(crate) type Group<'a> = (&'a str, Box<dyn Fn(&Scratch, &mut Found) -> io::Result<()> + 'a>);

/// Runs the groups that the options select.
pub(crate) fn run_groups(options: &Options, groups: &[Group<'_>]) -> io::Result<Found> {
    let mut found = Found::default();
    for (name, group) in groups {
        if options.only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            // A folder for each group, so that the memory of earlier groups is freed.
            let scratch = Scratch::new(options.base.as_deref())?;
            group(&scratch, &mut found)?;
        }
    }
    Ok(found)
}

/// Returns the name of a row on this medium: `Dax` is not named.
pub(crate) fn row(medium: Medium, name: &str) -> String {
    if medium == Medium::Dax { name.to_owned() } else { format!("{medium}_{name}") }
}

/// Measures everything, and prints the table.
///
/// # Errors
/// Returns an error of the system or the crate.
pub fn measure(options: &Options) -> io::Result<Found> {
    let effort = Effort::new(options.quick);
    let groups: [Group<'_>; 9] = [
        ("writes", Box::new(|s, f| run::writes(&effort, s, f))),
        ("transactions", Box::new(|s, f| run::transactions(&effort, s, f))),
        ("reads", Box::new(|s, f| run::reads(&effort, s, f))),
        ("ram", Box::new(|s, f| run::ram(&effort, s, f))),
        ("scaling", Box::new(|s, f| run::scaling(&effort, s, f))),
        ("volume", Box::new(run::volume)),
        ("baselines", Box::new(|s, f| run::baselines(&effort, s, options.quick, f))),
        ("opening", Box::new(|s, f| run::opening(options.quick, s, f))),
        ("dram", Box::new(run::dram)),
    ];
    run_groups(options, &groups)
}
