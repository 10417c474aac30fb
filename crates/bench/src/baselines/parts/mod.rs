//! What do several ways share? Small pieces, so that no code is there twice.
//!
//! | module | question |
//! |---|---|
//! | `ground` | which part of the file belongs to whom? |
//! | `lane` | which lane is this thread's? |
//! | `pages` | which pages does a write touch, and who may touch them now? |
//! | `record` | how does a checksummed record lie on the medium? |
//! | `journal` | how are records kept that recovery applies again, all of them, in order? |
//! | `undo` | how is one operation at a time made undoable? |
//!
//! Imports go downwards in this order, from the bottom up. May import `memory` besides.

pub mod ground;
pub mod journal;
pub mod lane;
pub mod pages;
pub mod record;
pub mod undo;
