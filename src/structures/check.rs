//! A walk over a directory and everything that it names.
//!
//! Owns: the comparison of the bytes with the invariants of `docs/structures.md`.
//!
//! May import everything of the room.

use super::directory::{Directory, LOG};
use super::log::blocks::Blocks;
use super::log::meta::{DATA, Head, SEGMENTS, Segments};
use super::{Source, space};
use crate::error::Result;
use std::collections::BTreeSet;

/// Returns the first contradiction to an invariant of the directory at `at`.
pub(super) fn everything(source: &mut impl Source, at: u64) -> Result<()> {
    let directory = Directory::load(source, at)?;
    let mut names = BTreeSet::new();
    for entry in directory.entries() {
        let is_new = names.insert(entry.name().to_vec());
        source.expect(is_new, entry.offset.get(), "two entries have one name")?;
    }
    // Also compares all extents with each other.
    let used = space::used(&directory, source)?;
    let end = used.last().map_or(at, |last| last.end);
    let high_water = directory.header.high_water.get();
    source.expect(end <= high_water, at, "an extent lies past the high-water mark")?;
    check_zeros(source, high_water)?;
    for entry in directory.entries().filter(|entry| entry.kind == LOG) {
        check_log(source, entry.offset.get(), entry.size.get())?;
        let is_numbered = entry.size.get() < directory.header.next_id.get();
        source.expect(is_numbered, at, "a log has a number that is still to be given")?;
    }
    Ok(())
}

/// Returns an error if a byte past the high-water mark is not zero.
fn check_zeros(source: &mut impl Source, high_water: u64) -> Result<()> {
    let len = source.home().len();
    let (mut at, mut bytes) = (high_water, vec![0; 1 << 16]);
    while at < len {
        let here = len.saturating_sub(at).min(bytes.len() as u64);
        let part = &mut bytes[..here as usize];
        source.read(part, at)?;
        let are_zero = part.iter().all(|byte| *byte == 0);
        source.expect(are_zero, at, "bytes past the high-water mark are not zero")?;
        at = at.saturating_add(here);
    }
    Ok(())
}

/// Checks the log with its head at `at`: its blocks, its records, and the way to each of them.
fn check_log(source: &mut impl Source, at: u64, id: u64) -> Result<()> {
    let head = Head::load(source, at, id)?;
    let segments = Segments::load(source, at.saturating_add(SEGMENTS))?;
    let is_last = match segments.last() {
        Some(last) => *last == head.last,
        None => head.last.count.get() == 0,
    };
    source.expect(is_last, at, "the head of a log names another last segment than the list")?;
    let limits = (head.start.get(), head.end.get());
    for segment in segments.iter() {
        let is_needed = segment.has_bytes_of(limits.0..limits.1);
        source.expect(is_needed, at, "a segment of a log holds no record")?;
    }
    let blocks = Blocks::load(source, at, &head)?;
    let mut position = limits.0;
    let mut record = Vec::new();
    for seq in head.first.get()..head.next.get() {
        let place = blocks.place(source, position)?;
        let begins_block = seq == head.first.get() || begins_first(&blocks, source, seq, position)?;
        if begins_block {
            let found = blocks.find(source, seq)?;
            source.expect(found == position, place, "a search finds a record elsewhere")?;
        }
        position = blocks.record(source, position, seq, &mut record)?;
    }
    source.expect(position == limits.1, at, "the records of a log do not end where it ends")
}

/// Returns `true` if record `seq` is the first one that begins in its block.
fn begins_first(
    blocks: &Blocks<'_>,
    source: &mut impl Source,
    seq: u64,
    position: u64,
) -> Result<bool> {
    let header = blocks.header(source, position / DATA)?;
    Ok(header.first.get() == seq)
}
