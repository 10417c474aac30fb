//! The crash lab: is anything torn, and is anything lost that was acknowledged?
//!
//! One module a part; each answers one question about the real code of `atomic-mmap`, finds its own
//! planted bugs, and hands back an [`part::Outcome`]. `docs/testing.md` says what is shown by which
//! part, and what is not.
//!
//! | module | question |
//! |---|---|
//! | [`part`] | what does a part get, and what does it hand back? |
//! | [`progress`] | how far are we? |
//! | [`report`] | what has the lab found? |
//! | [`scratch`] | where do a part's files lie? |
//! | [`checker`] | what does a model checker in a process of its own say? |
//! | [`loom`] | do the protocols hold in every execution? |
//! | [`schedules`] | do whole workloads hold under schedules that a scheduler chose? |
//! | [`histories`] | is what threads see explained by some order? |

pub mod checker;
pub mod histories;
pub mod loom;
pub mod part;
pub mod progress;
pub mod report;
pub mod schedules;
pub mod scratch;
