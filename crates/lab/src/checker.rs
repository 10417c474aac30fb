//! What does a model checker say, in a process and a build of its own?
//!
//! Owns: running cargo on this workspace with a `--cfg` that switches `src/primitive` of the crate,
//! and reading lines of the form `name: what: 123 executions` from it. The parts `loom` and
//! `schedules` are such runs.

use crate::progress::Progress;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One run of cargo.
#[derive(Clone, Debug)]
pub struct Checker<'a> {
    /// The `--cfg`, which is also the folder under `target` and the word that lines begin with.
    pub name: &'a str,
    /// What cargo is told after `test --release`.
    pub arguments: &'a [&'a str],
    /// What the tests are told.
    pub variables: &'a [(&'a str, String)],
}

/// What a run said.
#[derive(Clone, Default, Debug)]
pub struct Said {
    /// Lines that began with the checker's name, without it.
    pub lines: Vec<String>,
    /// Whether everything passed.
    pub passed: bool,
    /// The end of everything else that was said: what is needed to understand a failure.
    pub rest: String,
}

/// Lines of a failing run that are kept.
const KEPT: usize = 60;

/// The workspace that this was built from.
fn workspace() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.parent()?;
    root.join("Cargo.toml").is_file().then(|| root.to_owned())
}

/// Where a build with `--cfg name` goes: other flags of the outer build would make another build of it.
pub(crate) fn target(root: &Path, name: &str) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join(name)
}

impl Checker<'_> {
    /// Runs it. The error is why it cannot be run here.
    ///
    /// # Errors
    /// If there is no cargo, or the sources are not where they were built.
    pub fn run(&self, progress: &Progress) -> Result<Said, String> {
        let root = workspace().ok_or("the sources are not here any more")?;
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut child = Command::new(cargo)
            .current_dir(&root)
            .args(["test", "--release"])
            .args(self.arguments)
            .args(["--", "--nocapture"])
            .env("RUSTFLAGS", format!("--cfg {}", self.name))
            .env("CARGO_TARGET_DIR", target(&root, self.name))
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cargo cannot be run: {e}"))?;
        let errors = child.stderr.take().map(|errors| {
            std::thread::spawn(move || {
                BufReader::new(errors).lines().map_while(Result::ok).collect::<Vec<_>>()
            })
        });
        let mut said = Said::default();
        let mut rest: Vec<String> = Vec::new();
        let prefix = format!("{}: ", self.name);
        for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
            let Ok(line) = line else { break };
            // The harness leaves the beginning of a line of its own before the first one.
            match line.split_once(&prefix) {
                Some((_, line)) => {
                    progress.tick(format_args!("{line}"));
                    said.lines.push(line.to_owned());
                }
                None => rest.push(line),
            }
        }
        let status = child.wait().map_err(|e| format!("cargo cannot be waited for: {e}"))?;
        said.passed = status.success();
        rest.extend(errors.and_then(|errors| errors.join().ok()).into_iter().flatten());
        let from = rest.len().saturating_sub(KEPT);
        said.rest = rest[from..].join("\n");
        Ok(said)
    }
}

/// The number before the last word of a line: `... 123 executions`.
pub fn count(line: &str) -> u64 {
    line.split_whitespace().rev().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_before_the_last_word_counts() {
        assert_eq!(count("page version: 849 executions"), 849);
        assert_eq!(count("planted page version, one look: found after 3 executions"), 3);
        assert_eq!(count("nothing"), 0);
    }
}
