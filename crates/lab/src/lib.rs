//! The crash lab: is anything torn, and is anything lost that was acknowledged?
//!
//! One module a part; each answers one question about the real code of `atomic-mmap`, finds its own
//! planted bugs, and hands back an [`part::Outcome`]. `docs/testing.md` says what is shown by which
//! part, and what is not.
//!
//! | module | question |
//! |---|---|
//! | [`blocks`] | is every block of a page there before the page is stored to, whatever a block's size is? |
//! | [`faults`] | does every failing system call end in the right error, with nothing lost? |
//! | [`fuzzing`] | does anything go wrong whatever the bytes are? |
//! | [`identity`] | is what belongs to others left alone, and what is ours found? |
//! | [`images`] | what can be left on persistent memory, and is all of it recovered? |
//! | [`machine`] | what does a machine remember after a loss of power? |
//! | [`mutants`] | would anybody notice a bug in the engine? |
//! | [`part`] | what does a part get, and what does it hand back? |
//! | [`progress`] | how far are we? |
//! | [`quiet`] | how is the code under test kept from printing its panics? |
//! | [`report`] | what has the lab found? |
//! | [`checker`] | what does a model checker in a process of its own say? |
//! | [`histories`] | is what threads see explained by some order? |
//! | [`loom`] | do the protocols hold in every execution? |
//! | [`schedules`] | is every schedule of several threads atomic, and a crash in the middle of one? |
//! | [`scratch`] | where do a part's files lie? |
//! | `death` | what does the death of the process leave of the file? (Linux) |

pub mod blocks;
pub mod checker;
#[cfg(target_os = "linux")]
pub mod death;
pub mod faults;
pub mod fuzzing;
pub mod histories;
pub mod identity;
pub mod images;
pub mod loom;
pub mod machine;
pub mod mutants;
pub mod part;
pub mod progress;
pub mod quiet;
pub mod report;
pub mod schedules;
pub mod scratch;

/// The workspace's folder: where the lab was built.
pub fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
