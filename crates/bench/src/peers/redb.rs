//! redb: a table of rows, durable with each transaction.

use super::blocks::{BLOCK, gather, parts};
use crate::subject::{Kind, Subject};
use ::redb::{Database, Error, ReadableDatabase, TableDefinition};
use std::io;
use std::path::Path;

/// redb with its defaults, and a cache that holds the whole database.
pub const REDB: Kind = Kind {
    name: "redb",
    source: "Durability::Immediate, 4 KiB rows",
    durable_writes: true,
    open: |folder, len| Ok(Box::new(Redb::open(folder, len).map_err(io::Error::other)?)),
};

const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("t");

struct Redb(Database);

impl Redb {
    fn open(folder: &Path, len: u64) -> Result<Redb, Error> {
        let cache = len as usize * 3 + (64 << 20);
        let db = Database::builder().set_cache_size(cache).create(folder.join("rows.redb"))?;
        let tx = db.begin_write()?;
        tx.open_table(TABLE)?;
        tx.commit()?;
        Ok(Redb(db))
    }

    fn commit(&self, changes: &[(u64, &[u8])]) -> Result<(), Error> {
        let tx = self.0.begin_write()?;
        {
            let mut table = tx.open_table(TABLE)?;
            for (offset, data) in changes {
                for part in parts(*offset, data.len()) {
                    let piece = &data[part.data.clone()];
                    if part.is_whole() {
                        table.insert(part.block, piece)?;
                        continue;
                    }
                    let mut row = [0; BLOCK];
                    if let Some(found) = ::redb::ReadableTable::get(&table, part.block)? {
                        row.copy_from_slice(found.value());
                    }
                    row[part.inside].copy_from_slice(piece);
                    table.insert(part.block, row.as_slice())?;
                }
            }
        }
        tx.commit()?;
        Ok(())
    }

    fn fill(&self, to: &mut [u8], offset: u64) -> Result<(), Error> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        gather(to, offset, |block, with| {
            let row = table.get(block).expect("redb reads");
            with(row.as_ref().map(|row| row.value()));
        });
        Ok(())
    }
}

impl Subject for Redb {
    fn write(&self, data: &[u8], offset: u64) {
        self.commit(&[(offset, data)]).expect("redb commits");
    }

    fn read(&self, to: &mut [u8], offset: u64) {
        self.fill(to, offset).expect("redb reads");
    }

    fn transact(&self, parts: &[(u64, &[u8])]) -> bool {
        self.commit(parts).expect("redb commits");
        true
    }
}
