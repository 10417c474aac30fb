//! What does a part of the lab get, and what does it hand back?

/// How a part is run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where all random choices begin. The same seed repeats a run as far as threads allow it.
    pub seed: u64,
    /// The amount for continuous integration; otherwise the long run.
    pub quick: bool,
    /// Only so many seconds, and nothing of the part's own is planted: to look for a bug that was
    /// planted in the engine.
    pub seconds: Option<u64>,
    /// Of what a part divides into tenths only this one, 0 to 9: ten runs together do all of it.
    pub tenth: Option<u64>,
}

impl Settings {
    /// A generator of random numbers for one purpose: the seed, and the purpose's own number or
    /// name.
    pub fn rng(&self, purpose: &str) -> fastrand::Rng {
        let mut seed = self.seed ^ 0x9E37_79B9_7F4A_7C15;
        for byte in purpose.bytes() {
            seed = (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3).rotate_left(17);
        }
        fastrand::Rng::with_seed(seed)
    }
}

/// Runs that together do all of a part.
pub const TENTHS: u64 = 10;

impl Settings {
    /// Whether the thing of this name is run. Its tenth follows from the name alone, so that it stays
    /// the same whatever else is added or removed.
    pub fn has_name(&self, name: &str) -> bool {
        self.has(u64::from(crc32c::crc32c(name.as_bytes())))
    }

    /// Whether the thing of this number is run.
    pub fn has(&self, number: u64) -> bool {
        self.tenth.is_none_or(|tenth| number % TENTHS == tenth)
    }

    /// Which tenth this is, in words; nothing if it is everything.
    pub fn tenth_in_words(&self) -> String {
        self.tenth.map_or_else(String::new, |tenth| format!("tenth {tenth} of 0 to 9: "))
    }
}

/// What a part has done and found.
#[derive(Clone, Default, Debug)]
pub struct Outcome {
    /// The part's name in the table.
    pub part: &'static str,
    /// What was run, in words and numbers: "3,375 sequences, 2 models".
    pub runs: String,
    /// Times that a crash image was recovered and compared with what it may hold.
    pub recoveries: u64,
    /// Processes killed.
    pub kills: u64,
    /// Interleavings run by a scheduler.
    pub schedules: u64,
    /// Planted bugs that were found.
    pub killed: u64,
    /// Planted bugs.
    pub planted: u64,
    /// What must not be: one text each, with everything that is needed to repeat it.
    pub violations: Vec<String>,
    /// Why the part was not run here, if it was not.
    pub skipped: Option<String>,
}

impl Outcome {
    /// Nothing run yet.
    pub fn of(part: &'static str) -> Outcome {
        Outcome { part, ..Outcome::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(tenth: Option<u64>) -> Settings {
        Settings { seed: 1, quick: true, seconds: None, tenth }
    }

    #[test]
    fn ten_tenths_are_everything_once() {
        let names = ["page-flips-durable-slots", "flip-no-clear", "", "a", "b", "c", "d"];
        for name in names {
            assert!(with(None).has_name(name));
            let tenths = (0..TENTHS).filter(|n| with(Some(*n)).has_name(name)).count();
            assert_eq!(tenths, 1, "{name}");
        }
        assert_eq!((0..100).filter(|n| with(Some(3)).has(*n)).count(), 10);
    }

    /// A name's tenth is the same in each version, or what ten runs do is not everything.
    #[test]
    fn the_tenth_of_a_name_stays() {
        assert!(with(Some(3)).has_name("flip-no-clear"));
    }
}
