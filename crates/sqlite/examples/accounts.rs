//! Accounts in SQLite, by rusqlite: all that changes is how the database is opened.
//!
//! `cargo run -p atomic-mmap-sqlite --example accounts [path]`

use rusqlite::{Connection, OpenFlags, params};

fn open(path: &str) -> rusqlite::Result<Connection> {
    Connection::open_with_flags_and_vfs(path, OpenFlags::default(), atomic_mmap_sqlite::VFS_NAME)
}

fn transfer(bank: &mut Connection, from: u32, to: u32, amount: i64) -> rusqlite::Result<()> {
    let tx = bank.transaction()?;
    let change = "UPDATE account SET balance = balance + ?1 WHERE id = ?2";
    tx.execute(change, params![-amount, from])?;
    tx.execute(change, params![amount, to])?;
    tx.commit() // one atomic operation of the file, and one barrier
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let given = std::env::args().nth(1);
    let path = given.unwrap_or_else(|| folder.path().join("bank.db").display().to_string());

    atomic_mmap_sqlite::register()?;
    let mut bank = open(&path)?;
    bank.execute_batch(
        "CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER NOT NULL);
         INSERT OR REPLACE INTO account VALUES (1, 100), (2, 0);",
    )?;
    for amount in 1..=10 {
        transfer(&mut bank, 1, 2, amount)?;
    }
    let balances = "SELECT group_concat(balance) FROM account";
    let balances: String = bank.query_row(balances, [], |row| row.get(0))?;
    assert_eq!(balances, "45,55");
    let stats: String = bank.query_row("PRAGMA atomic_mmap_stats", [], |row| row.get(0))?;
    println!("balances: {balances}\n{stats}");
    bank.close().map_err(|(_, error)| error)?;

    // The close leaves a plain file, which every SQLite reads.
    let plain = Connection::open(&path)?;
    let check: String = plain.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    assert_eq!(check, "ok");
    println!("integrity_check without the VFS: {check}");
    Ok(())
}
