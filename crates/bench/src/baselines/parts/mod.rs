//! Code that several protocols share.
//!
//! | module | contents |
//! |---|---|
//! | `ground` | the layout of the file |
//! | `lane` | the lanes of threads |
//! | `pages` | the pages of a write, and their locks |
//! | `record` | checksummed records on the medium |
//! | `journal` | records that recovery applies again, in order |
//! | `undo` | undo of one operation at a time |
//!
//! Imports go downwards in this order, from the bottom up. All may import `memory`.

pub mod ground;
pub mod journal;
pub mod lane;
pub mod pages;
pub mod record;
pub mod undo;
