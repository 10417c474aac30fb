//! The parameters of a database's URI.
//!
//! May import `failure` and `spill`.

use crate::failure::{Code, Failure, Result};
use crate::spill::BUDGET;
use atomic_mmap::{CloseMode, Durability, Medium};
use std::time::Duration;

/// How a database is opened. The first connection of a process decides for all that follow.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// `durability`: `on-sync`, `every-write` or `atomic-sync`.
    pub durability: Durability,
    /// `medium`: `dax`, `page-cache` or `ram`. Detected by default.
    pub medium: Option<Medium>,
    /// `close`: `spatial` or `fast`.
    pub close: CloseMode,
    /// `busy_timeout`: how long to wait at opening for another process, in milliseconds.
    pub busy_timeout: Duration,
    /// `max_len`: the largest length of the database, in bytes.
    pub max_len: Option<u64>,
    /// `overlay_memory`: memory for the pages of a transaction, in bytes.
    pub overlay_memory: u64,
}

impl Settings {
    /// Reads the parameters. `parameter` returns the value of one by its name.
    pub fn parse(parameter: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let number = |name: &str| {
            let value = parameter(name);
            let parsed = value.map(|value| {
                value.parse::<u64>().map_err(|_| refuse(name, &value, "a number is wanted"))
            });
            parsed.transpose()
        };
        let durability = match parameter("durability").as_deref() {
            None | Some("on-sync") => Durability::OnSync,
            Some("every-write") => Durability::EveryWrite,
            Some("atomic-sync") => Durability::AtomicSync,
            Some(other) => {
                let known = "there are on-sync, every-write and atomic-sync";
                return Err(refuse("durability", other, known));
            }
        };
        let close = match parameter("close").as_deref() {
            None | Some("spatial") => CloseMode::Spatial,
            Some("fast") => CloseMode::Fast,
            Some(other) => return Err(refuse("close", other, "there are spatial and fast")),
        };
        let medium = parameter("medium").map(|name| {
            name.parse().map_err(|_| refuse("medium", &name, "there are dax, page-cache and ram"))
        });
        Ok(Settings {
            durability,
            medium: medium.transpose()?,
            close,
            busy_timeout: Duration::from_millis(number("busy_timeout")?.unwrap_or(0)),
            max_len: number("max_len")?,
            overlay_memory: number("overlay_memory")?.unwrap_or(BUDGET),
        })
    }
}

fn refuse(name: &str, value: &str, known: &str) -> Failure {
    Failure::new(Code::ERROR, format!("the URI parameter {name}={value}: {known}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_refused() {
        let one = |name: &'static str, value: &'static str| {
            Settings::parse(|asked| (asked == name).then(|| value.to_owned()))
        };
        assert_eq!(
            one("durability", "every-write").expect("known").durability,
            Durability::EveryWrite
        );
        assert_eq!(one("medium", "ram").expect("known").medium, Some(Medium::Ram));
        for (name, value) in
            [("durability", "full"), ("medium", "ssd"), ("close", ""), ("busy_timeout", "1s")]
        {
            let failure = one(name, value).expect_err("unknown");
            assert_eq!(failure.code, Code::ERROR);
            assert!(failure.message.expect("a message").contains(name));
        }
    }
}
