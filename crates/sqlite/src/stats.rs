//! The counters of a database's file, as one object of JSON.
//!
//! May import `pair` and `versions`.

use crate::pair::Pair;
use crate::versions::Versions;

/// Returns what `PRAGMA atomic_mmap_stats` answers.
pub(crate) fn of(pair: &Pair) -> String {
    let (file, stats) = (&pair.file, pair.file.stats());
    let words = [
        ("medium", file.medium().to_string()),
        ("survives", file.survives().to_string()),
        ("survives_after_sync", file.survives_after_sync().to_string()),
    ];
    let numbers = [
        ("len", file.len()),
        ("max_len", file.max_len()),
        ("read_only", pair.is_read_only.into()),
        ("reads", stats.reads),
        ("transactions", stats.transactions),
        ("syncs", stats.syncs),
        ("journal_points", stats.journal_points),
        ("flush_points", stats.flush_points),
        ("checkpoints", stats.checkpoints),
        ("bytes_asked", stats.bytes_asked),
        ("bytes_written", stats.bytes_written),
        ("deployments", stats.deployments),
        ("views", stats.views),
        ("reflection_allocated", stats.reflection_allocated),
        ("copied_for_readers", pair.versions.as_ref().map_or(0, Versions::copied)),
    ];
    let words = words.iter().map(|(name, word)| format!("\"{name}\":\"{word}\""));
    let numbers = numbers.iter().map(|(name, number)| format!("\"{name}\":{number}"));
    let all: Vec<String> = words.chain(numbers).collect();
    format!("{{{}}}", all.join(","))
}
