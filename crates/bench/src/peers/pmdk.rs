//! PMDK: a transaction of libpmemobj, which keeps the old bytes of a range in an undo log.
//!
//! The library is loaded at run time, so a build does not need it. With `PMEM_IS_PMEM_FORCE=1` it
//! flushes cache lines on tmpfs too, like `Medium::Dax` here.

use super::system::Pool;
use crate::subject::{Kind, Subject};
use std::io;
use std::path::Path;

/// PMDK with one object for the whole file.
pub const PMDK: Kind = Kind {
    name: "PMDK",
    source: "libpmemobj's transactions; readers are on their own",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(Pmdk::open(folder, len)?)),
};

struct Pmdk(Pool);

impl Pmdk {
    fn open(folder: &Path, len: u64) -> io::Result<Pmdk> {
        let path = folder.join("pool");
        if !path.exists() {
            // A process that dies here leaves no file under the final name.
            let new = folder.join("pool.new");
            if new.exists() {
                std::fs::remove_file(&new)?;
            }
            // Room for the library's own data, and for the undo log of a large transaction.
            Pool::create(&new, len, len + len / 8 + (64 << 20))?;
            std::fs::rename(&new, &path)?;
        }
        Pool::open(&path, len).map(Pmdk)
    }
}

impl Subject for Pmdk {
    fn write(&self, data: &[u8], offset: u64) {
        self.0.commit(&[(offset, data)]);
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.0.copy_out(to, offset);
    }

    fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
        self.0.commit(parts);
        true
    }
}
