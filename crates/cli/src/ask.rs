//! Questions to the user.

use crate::outcome::Failure;
use crate::report::tell;

/// Asks on standard error. Only `y` and `yes` agree.
pub fn agrees(question: &str) -> Result<bool, Failure> {
    tell(&format!("{}? [y/N] ", atomic_mmap::shown(question)));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.map_err(|e| Failure::Io("standard input".into(), e))?;
    if answer.is_empty() {
        tell("no answer; --yes does not ask\n");
    }
    Ok(matches!(answer.trim(), "y" | "yes"))
}
