//! The settings and the outcome of a part of the lab.

/// The settings of a part.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Seed of all random choices. An equal seed repeats a run as far as threads permit.
    pub seed: u64,
    /// Selects the amount for continuous integration instead of the long run.
    pub quick: bool,
    /// Runs for this number of seconds without the part's own planted faults, to look for a bug in
    /// the engine.
    pub seconds: Option<u64>,
    /// Runs one tenth of the part's work, 0 to 9. Ten runs together do all of it.
    pub tenth: Option<u64>,
}

impl Settings {
    /// Returns a random number generator for one purpose, seeded with the seed and the purpose.
    pub fn rng(&self, purpose: &str) -> fastrand::Rng {
        let mut seed = self.seed ^ 0x9E37_79B9_7F4A_7C15;
        for byte in purpose.bytes() {
            seed = (seed ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3).rotate_left(17);
        }
        fastrand::Rng::with_seed(seed)
    }
}

/// Number of runs that together do all of a part.
pub const TENTHS: u64 = 10;

impl Settings {
    /// Returns `true` if the item of this name is run. The name alone determines its tenth, so
    /// other items do not change it.
    pub fn has_name(&self, name: &str) -> bool {
        self.has(u64::from(crc32c::crc32c(name.as_bytes())))
    }

    /// Returns `true` if the item of this number is run.
    pub fn has(&self, number: u64) -> bool {
        self.tenth.is_none_or(|tenth| number % TENTHS == tenth)
    }

    /// Describes the tenth in words. Returns an empty text if all is run.
    pub fn tenth_in_words(&self) -> String {
        self.tenth.map_or_else(String::new, |tenth| format!("tenth {tenth} of 0 to 9: "))
    }
}

/// The work and the findings of a part.
#[derive(Clone, Default, Debug)]
pub struct Outcome {
    /// Name of the part in the table.
    pub part: &'static str,
    /// Description of the runs in words and numbers: "3,375 sequences, 2 models".
    pub runs: String,
    /// Number of times that a crash image was recovered and compared with the allowed contents.
    pub recoveries: u64,
    /// Number of killed processes.
    pub kills: u64,
    /// Number of interleavings run by a scheduler.
    pub schedules: u64,
    /// Number of planted bugs that were found.
    pub killed: u64,
    /// Number of planted bugs.
    pub planted: u64,
    /// The violations: one text each, with everything that is needed to repeat it.
    pub violations: Vec<String>,
    /// The reason why the part could not run here, if there is one.
    pub skipped: Option<String>,
}

impl Outcome {
    /// Returns the outcome of a part that has not run yet.
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

    /// The tenth of a name must not change between versions, or ten runs would not cover
    /// everything.
    #[test]
    fn the_tenth_of_a_name_stays() {
        assert!(with(Some(3)).has_name("flip-no-clear"));
    }
}
