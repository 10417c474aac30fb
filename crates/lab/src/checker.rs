//! Runs of a model checker, in a process and a build of its own.
//!
//! Owns: running cargo on this workspace with a `--cfg` that switches `src/primitive` of the crate.
//! It also reads the lines of the form `name: what: 123 executions` from the output. The parts
//! `loom` and `schedules` are runs of this kind.

use crate::progress::Progress;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// One run of cargo.
#[derive(Clone, Debug)]
pub struct Checker<'a> {
    /// The `--cfg`, which is also the folder under `target` and the first word of result lines.
    pub name: &'a str,
    /// Arguments of cargo after `test --release`.
    pub arguments: &'a [&'a str],
    /// Environment variables of the tests.
    pub variables: &'a [(&'a str, String)],
}

/// The output of a run.
#[derive(Clone, Default, Debug)]
pub struct Said {
    /// The lines that began with the checker's name, without the name.
    pub lines: Vec<String>,
    /// `true` if all tests passed.
    pub passed: bool,
    /// The end of all other output, which helps to understand a failure.
    pub rest: String,
}

/// Number of lines that are kept of a failing run.
const KEPT: usize = 60;

/// Returns the workspace that this program was built from.
fn workspace() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent()?.parent()?;
    root.join("Cargo.toml").is_file().then(|| root.to_owned())
}

/// Returns the target folder of a build with `--cfg name`. In the outer build's folder, the other
/// flags would force a rebuild.
pub(crate) fn target(root: &Path, name: &str) -> PathBuf {
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    target.join(name)
}

impl Checker<'_> {
    /// Runs cargo. The error says why this machine cannot run it.
    ///
    /// # Errors
    /// If there is no cargo, or if the sources are no longer where they were built.
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
            // The harness prints the beginning of its own line before the first result.
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

/// Returns the number before the last word of a line: `... 123 executions`.
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
