//! The protocols of the papers' systems, written for this bench: compact and fair.
//!
//! All of them use one kind of [`Memory`](crate::memory::Memory), which holds the data and their
//! metadata. Each file here is one protocol. Its module comment names the paper, and tells which
//! parts are kept and which are not. Code that several protocols share is in `parts`.
//!
//! May import `memory` and `subject`.

mod half_block;
mod hybrid_log;
mod page_copy;
mod parts;
mod redo_log;
mod shadow_tree;
mod two_level;
mod undo_log;

use crate::subject::Kind;

/// All systems.
pub const ALL: &[Kind] = &[
    page_copy::PAGE_COPY,
    undo_log::UNDO_LOG,
    redo_log::REDO_LOG,
    hybrid_log::HYBRID_LOG,
    shadow_tree::SHADOW_TREE,
    half_block::HALF_BLOCK,
    two_level::TWO_LEVEL,
];

/// The systems with logs, with logs so small that they soon fill up. For tests.
pub const TIGHT: &[Kind] =
    &[page_copy::TIGHT, redo_log::TIGHT, hybrid_log::TIGHT, shadow_tree::TIGHT];
