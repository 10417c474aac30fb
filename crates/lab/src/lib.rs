//! The crash lab: is anything torn, and is anything lost that was acknowledged?
//!
//! One module a part; each answers one question about the real code of `atomic-mmap`, finds its own
//! planted bugs, and hands back an [`part::Outcome`]. `docs/testing.md` says what is shown by which
//! part, and what is not.
//!
//! | module | question |
//! |---|---|
//! | [`mutants`] | would anybody notice a bug in the engine? |
//! | [`part`] | what does a part get, and what does it hand back? |
//! | [`progress`] | how far are we? |
//! | [`report`] | what has the lab found? |

pub mod mutants;
pub mod part;
pub mod progress;
pub mod report;
