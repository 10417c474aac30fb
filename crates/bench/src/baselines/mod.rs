//! How do the papers' systems answer? Their ways of being atomic, written here, compact and fair.
//!
//! Everybody has one [`Memory`](crate::memory::Memory): the data, and what is kept beside it. Each file
//! here is one way; its module comment says which paper, what is kept of it and what is not. What several
//! ways share is in `parts`.
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

/// All of them.
pub const ALL: &[Kind] = &[
    page_copy::PAGE_COPY,
    undo_log::UNDO_LOG,
    redo_log::REDO_LOG,
    hybrid_log::HYBRID_LOG,
    shadow_tree::SHADOW_TREE,
    half_block::HALF_BLOCK,
    two_level::TWO_LEVEL,
];

/// Those whose logs fill up, with logs so small that they soon do. For tests.
pub const TIGHT: &[Kind] =
    &[page_copy::TIGHT, redo_log::TIGHT, hybrid_log::TIGHT, shadow_tree::TIGHT];
