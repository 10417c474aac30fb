//! openraft's own suite of tests for stores, on each medium.

use super::common::{self, Ground, Scratch};
use super::machine::Machine;
use super::openraft::StorageError;
use super::openraft::testing::{StoreBuilder, Suite};
use super::{Store, Types, file, files, open_as};
use openraft_atomic_mmap::LogStore;

/// Makes a new store in a folder of its own for each test.
struct Builder(Ground);

impl StoreBuilder<Types, Store, Machine, Scratch> for Builder {
    async fn build(&self) -> Result<(Scratch, Store, Machine), StorageError<u64>> {
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
    ) -> Result<(Scratch, LogStore<files::Types>, files::Machine), StorageError<u64>> {
        let scratch = self.0.scratch();
        let store = open_as(&self.0, &scratch.file("raft.dat"));
        let machine = file::machine(&self.0, &scratch.file("state.dat"));
        Ok((scratch, store, machine))
    }
}

#[test]
fn openrafts_suite_passes_with_the_file_as_state_machine() {
    let ground = common::page_cache().unwrap_or_else(common::ram);
    Suite::test_all(WithFile(ground)).expect("openraft's suite passes");
}

/// The suite sleeps for seconds, so the media are tested at the same time.
#[test]
fn openrafts_suite_passes_on_each_medium() {
    std::thread::scope(|scope| {
        for ground in common::media() {
            scope.spawn(|| Suite::test_all(Builder(ground)).expect("openraft's suite passes"));
        }
    });
}
