//! The choice of the images of an epoch, and the contents of each image.

use crate::disk::SECTOR;

/// Selects the writes of an epoch that are present.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    Empty,
    Full,
    /// The first writes, up to this number.
    Prefix(usize),
    /// All writes except this one.
    Without(usize),
    /// A random subset, by a seed.
    Some(u64),
    /// A random subset, with some writes torn between sectors, by a seed.
    Torn(u64),
}

/// The part of a write that is present.
pub enum Part {
    Nothing,
    Whole,
    /// The sectors for which the flag is `true`.
    Sectors(Vec<bool>),
}

/// Returns at most `at_most` choices for an epoch with `writes` writes, always including the empty
/// one.
pub fn choices(writes: usize, at_most: usize, random: &mut fastrand::Rng) -> Vec<Choice> {
    if writes == 0 {
        return vec![Choice::Empty];
    }
    let mut rest = vec![Choice::Full];
    rest.extend((1..writes).map(Choice::Prefix));
    // An image without the last write is a prefix.
    rest.extend((0..writes - 1).map(Choice::Without));
    let drawn = if writes == 1 { 0 } else { writes.min(16) };
    rest.extend((0..drawn).map(|_| Choice::Some(random.u64(..))));
    rest.extend((0..1 + drawn / 2).map(|_| Choice::Torn(random.u64(..))));
    random.shuffle(&mut rest);
    rest.truncate(at_most.saturating_sub(1));
    rest.push(Choice::Empty);
    rest
}

impl Choice {
    /// Returns the part of each write that is present. Each write has its length, and a flag that
    /// is `true` if it can be torn.
    pub fn parts(self, writes: &[(usize, bool)]) -> Vec<Part> {
        let whole = |is_there: bool| if is_there { Part::Whole } else { Part::Nothing };
        let mut random = match self {
            Choice::Some(seed) | Choice::Torn(seed) => fastrand::Rng::with_seed(seed),
            _ => fastrand::Rng::with_seed(0),
        };
        writes
            .iter()
            .enumerate()
            .map(|(n, &(len, can_be_torn))| match self {
                Choice::Empty => Part::Nothing,
                Choice::Full => Part::Whole,
                Choice::Prefix(count) => whole(n < count),
                Choice::Without(missing) => whole(n != missing),
                Choice::Some(_) => whole(random.bool()),
                Choice::Torn(_) => match random.u8(..4) {
                    0 => Part::Nothing,
                    1 => Part::Whole,
                    _ if !can_be_torn => whole(random.bool()),
                    how => Part::Sectors(torn(len, how == 2, &mut random)),
                },
            })
            .collect()
    }
}

fn torn(len: usize, is_prefix: bool, random: &mut fastrand::Rng) -> Vec<bool> {
    let sectors = len.div_ceil(SECTOR);
    if is_prefix {
        let count = random.usize(..=sectors);
        return (0..sectors).map(|n| n < count).collect();
    }
    (0..sectors).map(|_| random.bool()).collect()
}
