//! openraft's own suite of tests for stores, on each medium.

use super::common::{self, Ground, Scratch};
use super::machine::Machine;
use super::{Types, open};
use openraft::StorageError;
use openraft::testing::{StoreBuilder, Suite};
use openraft_atomic_mmap::LogStore;

/// Makes a new store in a folder of its own for each test.
struct Builder(Ground);

impl StoreBuilder<Types, LogStore<Types>, Machine, Scratch> for Builder {
    async fn build(&self) -> Result<(Scratch, LogStore<Types>, Machine), StorageError<u64>> {
        let scratch = self.0.scratch();
        let store = open(&self.0, &scratch.file("raft.dat"));
        Ok((scratch, store, Machine::default()))
    }
}

fn pass(ground: Option<Ground>) {
    let Some(ground) = ground else {
        eprintln!("not served here: skipped");
        return;
    };
    Suite::test_all(Builder(ground)).expect("openraft's suite passes");
}

#[test]
fn openrafts_suite_passes_in_ram() {
    pass(Some(common::ram()));
}

#[test]
fn openrafts_suite_passes_on_page_cache() {
    pass(common::page_cache());
}

#[test]
fn openrafts_suite_passes_on_persistent_memory() {
    pass(common::dax());
}
