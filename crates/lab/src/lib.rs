//! The crash lab: no operation is torn, and no acknowledged operation is lost.
//!
//! Each part is a module that tests one property of the real code of `atomic-mmap`. A part finds
//! its own planted bugs, and returns an [`part::Outcome`]. `docs/testing.md` says what each part
//! shows, and what no part shows.
//!
//! | module | contents |
//! |---|---|
//! | [`blocks`] | full disks, and stores to pages without storage, for each block size |
//! | `corpora` | the fuzzer's corpora, with bugs planted in recovery (Linux on x86-64) |
//! | [`faults`] | failing system calls: the right error, and nothing lost |
//! | [`fuzzing`] | the fuzz targets |
//! | [`identity`] | ownership of files, when files were moved, copied or lost |
//! | [`images`] | a model checker: recovery from every image that a power loss can leave |
//! | [`machine`] | the simulated machine, which can lose power |
//! | [`mutants`] | bugs planted in the engine, and the tests that notice them |
//! | [`part`] | the settings and the outcome of a part |
//! | [`progress`] | progress messages |
//! | [`quiet`] | suppression of panic messages of the code under test |
//! | [`report`] | the results of all parts |
//! | [`checker`] | runs of a model checker in a process of its own |
//! | [`histories`] | linearizability of what real threads see |
//! | [`loom`] | the small protocols in every execution |
//! | [`schedules`] | random schedules of threads, with crashes in the middle |
//! | [`scribbles`] | random overwrites of a file with page sums, which no read returns (Linux) |
//! | [`scratch`] | the folder for the files of a part |
//! | `death` | process crashes (Linux) |

pub mod blocks;
pub mod checker;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod corpora;
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
#[cfg(target_os = "linux")]
pub mod scribbles;

/// Returns the folder of the workspace that the lab was built from.
pub fn root() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}
