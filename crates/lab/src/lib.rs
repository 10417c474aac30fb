//! The crash lab: is anything torn, and is anything lost that was acknowledged?
//!
//! One module a part; each answers one question about the real code of `atomic-mmap`, finds its own
//! planted bugs, and hands back an [`part::Outcome`]. `docs/testing.md` says what is shown by which
//! part, and what is not.
//!
//! | module | question |
//! |---|---|
//! | [`fuzzing`] | does anything go wrong whatever the bytes are? |
//! | [`part`] | what does a part get, and what does it hand back? |
//! | [`progress`] | how far are we? |
//! | [`report`] | what has the lab found? |

pub mod fuzzing;
pub mod part;
pub mod progress;
pub mod report;
