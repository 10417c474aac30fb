//! Model checks of small programs over lanes, page states and allocation flags, in every execution.
//!
//! | file | models |
//! |---|---|
//! | `lanes` | claims of lanes, read sections, gates |
//! | `reads` | readers beside writers, deployments and truncations |
//! | `writes` | writers, views and first loads beside each other |

mod lanes;
mod reads;
mod writes;

use crate::bitmap::Side;
use crate::pair::region::RegionState;
use crate::primitive::AtomicU64;
use crate::units::PAGES_PER_REGION;
use std::sync::Arc;

pub(super) fn new_region() -> Arc<RegionState> {
    Arc::new(RegionState::new(0, &[0; PAGES_PER_REGION], None))
}

/// A word with two slots for its value.
#[derive(Default)]
pub(super) struct Slots(pub(super) [AtomicU64; 2]);

impl Slots {
    pub(super) fn of(&self, side: Side) -> &AtomicU64 {
        &self.0[usize::from(side == Side::Reflection)]
    }
}
