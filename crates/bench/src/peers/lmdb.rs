//! LMDB, through heed: a table of rows, durable with each transaction.

use super::blocks::{BLOCK, gather, parts};
use super::system;
use crate::subject::{Kind, Subject};
use heed::types::Bytes;
use heed::{Database, Env, IntegerComparator};
use std::io;
use std::path::Path;

/// LMDB with integer keys, which writes through its mapping.
pub const LMDB: Kind = Kind {
    name: "LMDB",
    source: "heed, WRITEMAP, integer keys, 4 KiB rows",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(Lmdb::open(folder, len).map_err(io::Error::other)?)),
};

type Number = heed::types::U64<heed::byteorder::NativeEndian>;

struct Lmdb {
    env: Env,
    table: Database<Number, Bytes, IntegerComparator>,
}

impl Lmdb {
    fn open(folder: &Path, len: u64) -> heed::Result<Lmdb> {
        let folder = folder.join("lmdb");
        std::fs::create_dir_all(&folder)?;
        // A row takes two pages, and a change of all rows in one transaction takes twice that
        // space.
        let env = system::lmdb(&folder, (len as usize * 4 + (64 << 20)).next_multiple_of(1 << 20))?;
        let mut tx = env.write_txn()?;
        let table = env
            .database_options()
            .types::<Number, Bytes>()
            .key_comparator::<IntegerComparator>()
            .create(&mut tx)?;
        tx.commit()?;
        Ok(Lmdb { env, table })
    }

    fn commit(&self, changes: &[(u64, &[u8])]) -> heed::Result<()> {
        let mut tx = self.env.write_txn()?;
        for (offset, data) in changes {
            for part in parts(*offset, data.len()) {
                let piece = &data[part.data.clone()];
                if part.is_whole() {
                    self.table.put(&mut tx, &part.block, piece)?;
                    continue;
                }
                let mut row = [0; BLOCK];
                if let Some(found) = self.table.get(&tx, &part.block)? {
                    row.copy_from_slice(found);
                }
                row[part.inside].copy_from_slice(piece);
                self.table.put(&mut tx, &part.block, &row)?;
            }
        }
        tx.commit()
    }

    fn fill(&self, to: &mut [u8], offset: u64) -> heed::Result<()> {
        let tx = self.env.read_txn()?;
        gather(to, offset, |block, with| {
            with(self.table.get(&tx, &block).expect("LMDB reads"));
        });
        Ok(())
    }
}

impl Subject for Lmdb {
    fn write(&self, data: &[u8], offset: u64) {
        self.commit(&[(offset, data)]).expect("LMDB commits");
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.fill(to, offset).expect("LMDB reads");
    }

    fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
        self.commit(parts).expect("LMDB commits");
        true
    }
}
