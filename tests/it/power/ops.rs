//! The operations on a file, their random choice, and a plain model of the file's contents.

use super::rng::{Rng, mix};
use atomic_mmap::{AtomicMappedFile, Error};
use std::fmt;
use std::sync::Arc;

pub const PAGE: u64 = 4096;
const SLICE: u64 = 64;

/// The contents of a file from `origin` on. The bytes before it are a hole.
#[derive(Clone, PartialEq, Eq)]
pub struct Model {
    pub origin: u64,
    pub len: u64,
    pub bytes: Vec<u8>,
}

impl Model {
    pub fn new(origin: u64, len: u64) -> Model {
        Model { origin, len, bytes: vec![0; len.saturating_sub(origin) as usize] }
    }

    pub fn apply(&mut self, effect: &Effect) {
        match effect {
            Effect::None => {}
            Effect::Bytes(parts) => {
                for (at, bytes) in parts {
                    let at = (at - self.origin) as usize;
                    self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
                }
            }
            Effect::SetLen(len) => {
                self.len = *len;
                self.bytes.resize(len.saturating_sub(self.origin) as usize, 0);
            }
            Effect::Become(model) => *self = Model::clone(model),
        }
    }
}

impl fmt::Debug for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Model({}..{})", self.origin, self.len)
    }
}

/// The change that an operation makes.
#[derive(Clone, Debug)]
pub enum Effect {
    None,
    Bytes(Vec<(u64, Vec<u8>)>),
    SetLen(u64),
    /// A read has shown which of the possible states is there.
    Become(Arc<Model>),
}

#[derive(Clone, Debug)]
pub enum Op {
    Write(u64, u64),
    Tx {
        parts: Vec<(u64, u64)>,
        reads: bool,
    },
    Deploy(u64, u64),
    Read(u64, u64),
    SetLen(u64),
    Sync,
    /// Runs in the main thread, which holds the views.
    View(u64, u64),
    DropView,
    /// Ends the thread and starts another one in its place.
    Restart,
}

/// Returns the bytes that operation `id` writes at `at`.
pub fn fill(id: u64, at: u64, len: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len as usize + 8);
    let mut word = at / 8;
    while (bytes.len() as u64) < len + at % 8 {
        bytes.extend_from_slice(&mix(id << 40 | word).to_le_bytes());
        word += 1;
    }
    bytes.drain(..(at % 8) as usize);
    bytes.truncate(len as usize);
    bytes
}

impl Op {
    pub fn effect(&self, id: u64) -> Effect {
        match self {
            Op::Write(at, len) => Effect::Bytes(vec![(*at, fill(id, *at, *len))]),
            Op::Tx { parts, .. } => {
                Effect::Bytes(parts.iter().map(|&(at, len)| (at, fill(id, at, len))).collect())
            }
            Op::SetLen(len) => Effect::SetLen(*len),
            _ => Effect::None,
        }
    }

    /// Returns `true` if the operation lies within `len` bytes.
    pub fn fits(&self, len: u64) -> bool {
        match self {
            Op::Write(at, n) | Op::Read(at, n) => at + n <= len,
            Op::Tx { parts, .. } => parts.iter().all(|(at, n)| at + n <= len),
            Op::Deploy(_, end) | Op::View(_, end) => *end <= len,
            Op::SetLen(_) | Op::Sync | Op::DropView | Op::Restart => true,
        }
    }

    /// Runs the operation. Returns `false` if it was refused and changed nothing.
    pub fn run(&self, f: &AtomicMappedFile, effect: &Effect) -> bool {
        match (self, effect) {
            (Op::Write(..), Effect::Bytes(parts)) => f.write_at(&parts[0].1, parts[0].0).unwrap(),
            (Op::Tx { reads, .. }, Effect::Bytes(parts)) => {
                let result: Result<(), Error> = f.transact(|tx| {
                    for (at, bytes) in parts {
                        if *reads {
                            tx.read_at(&mut vec![0; bytes.len().min(100)], *at)?;
                        }
                        tx.write_at(bytes, *at)?;
                    }
                    Ok(())
                });
                result.unwrap();
            }
            (Op::Deploy(start, end), _) => {
                f.deploy(*start..*end).unwrap();
            }
            (Op::Read(at, len), _) => f.read_at(&mut vec![0; *len as usize], *at).unwrap(),
            (Op::SetLen(len), _) => match f.set_len(*len) {
                Err(Error::Pinned { .. }) => return false,
                other => other.unwrap(),
            },
            (Op::Sync, _) => f.sync().unwrap(),
            _ => {}
        }
        true
    }
}

/// The places that the operations of a run use.
#[derive(Clone, Debug)]
pub struct Place {
    pub origin: u64,
    pub first_len: u64,
    /// The first of a few pages that most operations use.
    pub hot: u64,
    /// The first of a few slices in the hot page.
    pub slice: u64,
}

impl Place {
    pub fn random(rng: &mut Rng) -> Place {
        let (origin, pages) = match rng.below(20) {
            0 => ((1 << 30) - 40 * PAGE, 60),
            1 => (0, 530),
            2..=5 => (0, 200),
            6..=11 => (0, 100),
            _ => (0, 20),
        };
        let ragged = if rng.chance(50) { rng.below(PAGE) } else { 0 };
        let first_len = origin + pages * PAGE - ragged;
        let last = (first_len - 1) / PAGE;
        let hot = origin / PAGE
            + match rng.below(4) {
                0 => 0,
                1 => last - origin / PAGE - 1,
                2 => 62.min(pages - 3),
                _ => rng.below(pages - 2),
            };
        let hot = if origin > 0 && rng.chance(50) { (1 << 30) / PAGE - 1 } else { hot };
        Place { origin, first_len, hot, slice: rng.pick(&[0, 30, 60]) }
    }

    /// Returns a page that is not hot.
    pub fn other_page(&self) -> u64 {
        let first = self.origin / PAGE;
        let page = if self.hot > first + 1 { first } else { self.hot + 2 };
        page * PAGE + 100
    }

    /// Clips the range to the file, but keeps at least one byte.
    fn clip(&self, start: u64, end: u64, len: u64) -> (u64, u64) {
        let start = start.clamp(self.origin, len - 1);
        (start, end.clamp(start + 1, len) - start)
    }

    /// Returns some of the hot slices.
    fn slices(&self, rng: &mut Rng) -> (u64, u64) {
        let page = self.hot + if rng.chance(75) { 0 } else { 1 };
        let first = rng.below(3);
        let count = 1 + rng.below(3 - first);
        (page * PAGE + (self.slice + first) * SLICE, count)
    }

    /// Returns a random operation for a file of `len` bytes, which is more than `origin`.
    pub fn random_op(&self, rng: &mut Rng, len: u64) -> Op {
        let clip = |start: u64, end: u64| self.clip(start, end, len);
        let write = |(at, len): (u64, u64)| Op::Write(at, len);
        let pages = (len - self.origin).div_ceil(PAGE);
        let any_page = |rng: &mut Rng| (self.origin / PAGE + rng.below(pages)) * PAGE;
        let hot = self.hot * PAGE;
        match rng.below(100) {
            // Logged flips.
            0..=33 => {
                let (at, count) = self.slices(rng);
                if rng.chance(50) {
                    return write(clip(at, at + count * SLICE));
                }
                let start = at + rng.below(SLICE);
                let end = at + (count - 1) * SLICE + 1 + rng.below(SLICE);
                write(clip(start, end.max(start + 1)))
            }
            34..=37 => {
                let at = hot + rng.below(PAGE - 512);
                write(clip(at, at + 1 + rng.below(512)))
            }
            // Flips of a few slices: several segments in one page.
            38..=53 => {
                let (at, count) = self.slices(rng);
                if at + count * SLICE > len {
                    return Op::Read(self.origin, len - self.origin);
                }
                let mut parts = Vec::new();
                for n in 0..count {
                    let at = at + n * SLICE;
                    if n == 0 || rng.chance(50) {
                        parts.push((at, 8 + rng.below(10)));
                    }
                    parts.push((at + 30, 1 + rng.below(33)));
                }
                Op::Tx { parts, reads: rng.chance(30) }
            }
            54..=57 => {
                let at = hot + self.slice * SLICE;
                let start = at.saturating_sub(rng.below(600)).max(hot);
                write(clip(start, (start + 513 + rng.below(2000)).min(hot + PAGE)))
            }
            58..=61 => write(clip(hot, hot + PAGE)),
            // Region words.
            62..=67 => {
                let first = (self.hot - self.hot.min(rng.below(3))) * PAGE;
                let most = if rng.chance(80) { 4 } else { 70 };
                let count = 2 + rng.below(most);
                write(clip(first.max(self.origin), first + count * PAGE))
            }
            // Undo records.
            68..=70 => {
                let start = hot + rng.below(PAGE);
                write(clip(start, start + PAGE + rng.below(3 * PAGE)))
            }
            71..=76 => {
                let mut parts = Vec::new();
                for _ in 0..2 + rng.below(4) {
                    let at = if rng.chance(60) {
                        self.slices(rng).0 + rng.below(SLICE)
                    } else {
                        any_page(rng) + rng.below(PAGE)
                    };
                    let most = if rng.chance(80) { 100 } else { 9000 };
                    parts.push(clip(at, at + 1 + rng.below(most)));
                }
                self.tx(parts, rng)
            }
            // A record that overflows: more words than a lane holds.
            77 if pages > 90 => {
                let parts = (0..88 + rng.below(5).min(pages - 89))
                    .map(|n| clip(self.origin / PAGE * PAGE + n * PAGE + 50, n * PAGE + 60))
                    .map(|(at, _)| (at, 10.min(len - at)))
                    .collect();
                self.tx(parts, rng)
            }
            77..=82 => match rng.below(3) {
                0 => Op::Deploy(hot.min(len), (hot + PAGE).min(len)),
                1 => Op::Deploy(hot.min(len), (hot + 3 * PAGE).min(len)),
                _ => Op::Deploy(if self.origin > 0 { self.origin } else { 0 }, len),
            },
            83..=86 => {
                let (at, len) = clip(hot, hot + 2 * PAGE);
                Op::Read(at, len)
            }
            87..=91 => {
                let (at, len) = clip(hot, hot + rng.below(2 * PAGE) + 1);
                Op::View(at, at + len)
            }
            92..=93 => Op::DropView,
            94..=95 => {
                let new = match rng.below(5) {
                    0 => self.first_len,
                    1 => self.first_len + rng.below(80 * PAGE),
                    2 => hot + self.slice * SLICE + rng.below(3 * SLICE),
                    3 => hot,
                    _ => self.origin + rng.below(self.first_len - self.origin),
                };
                Op::SetLen(new.max(self.origin + 1))
            }
            96..=98 => Op::Restart,
            _ => Op::Sync,
        }
    }

    fn tx(&self, mut parts: Vec<(u64, u64)>, rng: &mut Rng) -> Op {
        // Segments of an effect must not overlap with different bytes. They do not, because the
        // byte of an operation at a place is always equal.
        parts.dedup();
        Op::Tx { parts, reads: rng.chance(30) }
    }

    /// Returns an operation within the page blocks of thread `mine` of `all`, or one that changes
    /// no bytes. A block has four pages. The file has at least 16 pages and keeps its length.
    pub fn owned_op(&self, rng: &mut Rng, len: u64, mine: u64, all: u64) -> Op {
        let first = self.origin / PAGE;
        let blocks = ((len / PAGE - first) / 4) / all;
        // Usually the neighbouring blocks of the hot region.
        let block = if rng.chance(80) { 0 } else { rng.below(blocks) };
        let start = (first + (block * all + mine) * 4) * PAGE;
        let at = |rng: &mut Rng| start + (self.slice + rng.below(3)) * SLICE;
        match rng.below(20) {
            0..=6 => {
                let at = at(rng) + rng.below(60);
                Op::Write(at, 1 + rng.below(100))
            }
            7..=9 => {
                let at = at(rng);
                Op::Tx { parts: vec![(at, 10), (at + 20, 10)], reads: rng.chance(30) }
            }
            10..=13 => Op::Write(start + rng.below(2) * PAGE, (1 + rng.below(2)) * PAGE),
            14 => Op::Write(start, 4 * PAGE),
            15 => Op::Write(start + rng.below(PAGE), 2 * PAGE),
            16 => {
                let at = at(rng);
                Op::Tx { parts: vec![(at, 10), (at + PAGE, 20), (at + 3 * PAGE, 1)], reads: false }
            }
            17 => Op::Read(start, 4 * PAGE),
            _ => {
                let page = (first + rng.below(12)) * PAGE;
                let end = page + PAGE * (1 + rng.below(12));
                Op::Deploy(page.min(len), end.min(len))
            }
        }
    }
}
