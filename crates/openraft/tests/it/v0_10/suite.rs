//! openraft's own suite of tests for stores, on each medium, and the kind of errors.

use super::calls::entry;
use super::common::{self, Ground, Scratch};
use super::machine::Machine;
use super::openraft::StorageError;
use super::openraft::storage::{IOFlushed, RaftLogStorage};
use super::openraft::testing::log::{StoreBuilder, Suite};
use super::{Store, Types, file, files, open_as};
use openraft_atomic_mmap::LogStore;

/// Makes a new store in a folder of its own for each test.
struct Builder(Ground);

impl StoreBuilder<Types, Store, Machine, Scratch> for Builder {
    async fn build(&self) -> Result<(Scratch, Store, Machine), StorageError<Types>> {
        let scratch = self.0.scratch();
        let store = open_as(&self.0, &scratch.file("raft.dat"));
        Ok((scratch, store, Machine::default()))
    }
}

/// Makes a new replicated file as well.
struct WithFile(Ground);

impl StoreBuilder<files::Types, LogStore<files::Types>, files::Machine, Scratch> for WithFile {
    async fn build(
        &self,
    ) -> Result<(Scratch, LogStore<files::Types>, files::Machine), StorageError<files::Types>> {
        let scratch = self.0.scratch();
        let store = open_as(&self.0, &scratch.file("raft.dat"));
        let machine = file::machine(&self.0, &scratch.file("state.dat"));
        Ok((scratch, store, machine))
    }
}

#[test]
fn openrafts_suite_passes_with_the_file_as_state_machine() {
    let ground = common::page_cache().unwrap_or_else(common::ram);
    let all = Suite::test_all(WithFile(ground));
    file::on_runtime(all).expect("openraft's suite passes");
}

#[test]
fn an_error_is_one_of_this_crate_in_one_of_io() {
    let ground = common::ram();
    let scratch = ground.scratch();
    let path = scratch.file("raft.dat");
    let mut store: Store = open_as(&ground, &path);
    let hole = [entry(1, 0, "first"), entry(1, 2, "third")];
    let append = store.append(hole, IOFlushed::noop());
    let error = pollster::block_on(append).expect_err("a hole");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    let inner = error.downcast::<openraft_atomic_mmap::Error>().expect("this crate's");
    assert!(inner.to_string().contains(&path.display().to_string()), "{inner}");
}

/// The suite sleeps for seconds, so the media are tested at the same time.
#[test]
fn openrafts_suite_passes_on_each_medium() {
    std::thread::scope(|scope| {
        for ground in common::media() {
            scope.spawn(|| {
                let all = Suite::test_all(Builder(ground));
                file::on_runtime(all).expect("openraft's suite passes");
            });
        }
    });
}
