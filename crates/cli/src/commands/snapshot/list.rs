//! `snapshot list`: what is known of each snapshot.

use crate::args::{Common, File};
use crate::outcome::{Failure, Outcome};
use crate::progress::shown;
use crate::report::{Report, human, print};
use crate::verdict;
use atomic_mmap::SnapshotInfo;
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Reads the file as the next open would recover it, and changes nothing.
pub fn run(common: &Common, of: &File) -> Result<Outcome, Failure> {
    let look = verdict::look_at_closed(common, &of.file)?;
    let file = shown(common.options()).read_only(true).open(&of.file)?;
    let all = file.snapshots();
    if common.json {
        let mut report = Report::new("snapshot list");
        report.path("file", Some(&look.home));
        report.add("snapshots", all.iter().map(as_json).collect::<Value>(), "");
        report.print(true)?;
    } else {
        print(table(&all).as_bytes())?;
    }
    Ok(Outcome::Ok)
}

fn as_json(of: &SnapshotInfo) -> Value {
    json!({
        "number": of.number,
        "name": of.name,
        "created": seconds(of.created),
        "length": of.len,
        "held": of.held,
        "automatic": of.is_automatic,
        "undo": of.is_undo,
    })
}

/// Returns a line for each snapshot, with its name at the end: that has any length.
fn table(all: &[SnapshotInfo]) -> String {
    if all.is_empty() {
        return "no snapshots\n".to_owned();
    }
    let line = |number: &str, time: &str, length: &str, held: &str, name: &str| {
        format!("{number:>6}  {time:<23}  {length:>10}  {held:>10}  {name}\n")
    };
    let mut text = line("number", "time", "length", "held", "name");
    for of in all {
        let (length, held) = (human(of.len), human(of.held));
        let name = of.name.escape_debug().to_string();
        text += &line(&of.number.to_string(), &utc(of.created), &length, &held, &name);
    }
    text
}

/// Returns seconds since 1970.
pub fn seconds(time: SystemTime) -> f64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// Returns a time for people, without fractions of a second.
pub fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let (mut days, of_day) = (seconds / 86_400, seconds % 86_400);
    let is_leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    let mut year = 1970;
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let february = 28 + u64::from(is_leap(year));
    let mut month = 1;
    for len in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < len {
            break;
        }
        days -= len;
        month += 1;
    }
    let (day, hour, minute, second) = (days + 1, of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::utc;
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn times_for_people() {
        for (seconds, expected) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_735_689_599, "2024-12-31 23:59:59 UTC"),
            (1_795_748_400, "2026-11-27 03:00:00 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), expected);
        }
    }
}
