//! Copies, write-backs, drains and checksums on x86-64.
//!
//! Owns: every instruction that touches mapped memory on this architecture, except the atomic word
//! operations (`atomic_word.rs`), and the instructions for checksums. They are inline assembly
//! because mapped bytes do not belong to the compiler: another thread (an optimistic reader),
//! another process or the kernel may touch them at any time. An assembly block is opaque to the
//! compiler and means just what the processor does; a Rust copy would be a data race.
//!
//! Invariants:
//! - No block carries `nomem` or `readonly` if it writes or orders memory, so each is a compiler
//!   barrier for everything around it.
//! - No reference into mapped memory is formed, only raw addresses.
//! - A copy promises no atomicity of any width: small sizes store some bytes twice, with equal
//!   values.
//! - Cached copies keep the order of x86: earlier stores are visible before them, they before later
//!   stores, loads in order. Streamed ones do not, until a drain.
//!
//! May import: its own files only.

#[macro_use]
mod steps;

mod cached;
mod copy_crc;
mod cpu;
mod crc;
mod interleaved;
mod masked_store;
mod page_sum;
mod prefetch;
mod streamed;
mod write_back;

/// All sides of a copy are equal to the processor. The portable code tells them apart.
pub use cached::{copy as copy_in, copy as copy_across};

pub use cached::copy_out;
pub use copy_crc::{stream_to_sides_summed, sums_on_the_way};
use cpu::Fold;
pub use cpu::{Cpu, Crc, Masked};
pub use interleaved::{copy_from_sides, copy_to_sides, prefetch_from_sides, stream_to_sides};
pub use masked_store::{store_in_line, stores_in_line};
pub use page_sum::weighted_sum;
pub use prefetch::{prefetch_read, prefetch_write};
pub use streamed::{stream, stream_line, stream_word};
pub use write_back::{drain, write_back, write_back_line};

/// Bytes in a cache line.
const LINE: usize = 64;

/// The processor has streaming stores and can write lines back, so it can promise to survive power
/// loss.
pub const FLUSHES: bool = true;
