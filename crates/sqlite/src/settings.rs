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
    /// `snapshot_reads`: a read transaction sees one version, and blocks no commit.
    pub snapshot_reads: bool,
    /// `wal=as-snapshots`: so it is, and `PRAGMA journal_mode=WAL` answers `wal`.
    pub wal_as_snapshots: bool,
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
        let snapshot_reads = match parameter("snapshot_reads").as_deref() {
            None | Some("0") => false,
            Some("1") => true,
            Some(other) => return Err(refuse("snapshot_reads", other, "there are 0 and 1")),
        };
        let wal_as_snapshots = match parameter("wal").as_deref() {
            None => false,
            Some("as-snapshots") => true,
            Some(other) => return Err(refuse("wal", other, "there is as-snapshots")),
        };
        Ok(Settings {
            durability,
            medium: medium.transpose()?,
            close,
            busy_timeout: Duration::from_millis(number("busy_timeout")?.unwrap_or(0)),
            max_len: number("max_len")?,
            overlay_memory: number("overlay_memory")?.unwrap_or(BUDGET),
            snapshot_reads: snapshot_reads || wal_as_snapshots,
            wal_as_snapshots,
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
        assert!(one("wal", "as-snapshots").expect("known").snapshot_reads);
        for (name, value) in [
            ("durability", "full"),
            ("medium", "ssd"),
            ("close", ""),
            ("busy_timeout", "1s"),
            ("snapshot_reads", "yes"),
            ("wal", "1"),
            // A terminal obeys these characters: `durability=%1b]0;x%07%c2%9b`.
            ("durability", "\u{1b}]0;x\u{7}\u{9b}"),
        ] {
            let failure = one(name, value).expect_err("unknown");
            assert_eq!(failure.code, Code::ERROR);
            let message = failure.message.expect("a message");
            assert!(message.contains(name) && !message.contains(char::is_control), "{message:?}");
        }
    }
}
