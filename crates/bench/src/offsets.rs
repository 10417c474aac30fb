//! The offsets of writes and reads, in an order that is equal for all contenders.

/// Multiples of `step`, in random or sequential order.
#[derive(Clone, Copy, Debug)]
pub struct Offsets {
    state: u64,
    places: u64,
    step: u64,
    plus: u64,
    order: Order,
}

/// The order of offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// In an order that no prefetcher predicts.
    Random,
    /// Ascending, and then from the start again.
    Sequential,
}

impl Offsets {
    /// Makes offsets for pieces of `len` bytes in a file of `file` bytes. They are multiples of
    /// `step`, plus `plus`.
    pub fn new(order: Order, file: u64, len: usize, step: u64, plus: u64, seed: u64) -> Offsets {
        let room = file - plus - len as u64;
        let places = room / step + 1;
        let state = if order == Order::Random { seed * 2 + 0x9E37_79B9_7F4A_7C15 } else { 0 };
        Offsets { state, places, step, plus, order }
    }
}

impl Iterator for Offsets {
    type Item = u64;

    #[inline]
    fn next(&mut self) -> Option<u64> {
        let place = match self.order {
            Order::Random => {
                self.state ^= self.state << 13;
                self.state ^= self.state >> 7;
                self.state ^= self.state << 17;
                // Takes the upper half of the product, which avoids a division.
                ((u128::from(self.state) * u128::from(self.places)) >> 64) as u64
            }
            Order::Sequential => {
                let place = self.state;
                self.state = if place + 1 == self.places { 0 } else { place + 1 };
                place
            }
        };
        Some(place * self.step + self.plus)
    }
}
