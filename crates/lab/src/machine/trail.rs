//! The choices between several possible values of a load.
//!
//! Owns: [`Trail`], the choices of one run, and the walk through all of them. The walk is depth
//! first and runs again with the next choice. This is the stateless search of Jaaru and of most
//! model checkers.

/// The choices of one run.
#[derive(Clone, Debug, Default)]
pub struct Trail {
    /// The choices so far: the index of each, and the number of possibilities.
    made: Vec<(u32, u32)>,
    /// The number of choices that this run has used.
    at: usize,
    /// The generator of further choices, if they are random.
    random: Option<fastrand::Rng>,
}

impl Trail {
    /// Returns a trail with random choices.
    pub fn at_random(rng: fastrand::Rng) -> Trail {
        Trail { random: Some(rng), ..Trail::default() }
    }

    /// Chooses one of `count` possibilities.
    pub fn choose(&mut self, count: usize) -> usize {
        debug_assert!(count > 0);
        if count == 1 {
            return 0;
        }
        if self.at == self.made.len() {
            let first = self.random.as_mut().map_or(0, |rng| rng.u32(0..count as u32));
            self.made.push((first, count as u32));
        }
        let (chosen, of) = self.made[self.at];
        assert_eq!(of as usize, count, "the run is not the same as the last time");
        self.at += 1;
        chosen as usize
    }

    /// Returns the trail of the next run, or `None` after the last one.
    pub fn next(mut self) -> Option<Trail> {
        self.made.truncate(self.at);
        self.at = 0;
        while let Some((chosen, count)) = self.made.pop() {
            if chosen + 1 < count {
                self.made.push((chosen + 1, count));
                return Some(self);
            }
        }
        None
    }

    /// Returns the choices, for messages.
    pub fn choices(&self) -> Vec<u32> {
        self.made.iter().map(|(chosen, _)| *chosen).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_is_visited_once() {
        // The second choice depends on the first one, as it does in a recovery.
        let mut seen = Vec::new();
        let mut next = Some(Trail::default());
        while let Some(mut trail) = next {
            let a = trail.choose(3);
            let b = if a == 1 { trail.choose(2) } else { trail.choose(1) };
            let c = trail.choose(2);
            seen.push((a, b, c));
            next = trail.next();
        }
        assert_eq!(
            seen,
            [
                (0, 0, 0),
                (0, 0, 1),
                (1, 0, 0),
                (1, 0, 1),
                (1, 1, 0),
                (1, 1, 1),
                (2, 0, 0),
                (2, 0, 1)
            ]
        );
    }
}
