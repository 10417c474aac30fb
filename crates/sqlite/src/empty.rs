//! The first page of an empty database.
//!
//! The first transaction of an empty file may be too large for memory. Then it is more than one
//! operation, and before its pages the file gets this one: a crash leaves an empty database.

/// Bytes of a database's header.
pub(crate) const HEADER: usize = 100;
const MAGIC: &[u8; 16] = b"SQLite format 3\0";
/// The kind of a page that is a table's only one.
const LEAF: u8 = 13;

/// Returns the only page of an empty database that is like the one with this `header`: of the same
/// page size and settings. Returns `None` if it is no header of SQLite's.
pub(crate) fn page_like(header: &[u8; HEADER]) -> Option<Vec<u8>> {
    if !header.starts_with(MAGIC) {
        return None;
    }
    let size = match u16::from_be_bytes([header[16], header[17]]) {
        1 => 65536,
        size if size.is_power_of_two() && size >= 512 => usize::from(size),
        _ => return None,
    };
    let mut page = vec![0; size];
    page[..HEADER].copy_from_slice(header);
    let mut set = |at: usize, number: u32| {
        page[at..at + 4].copy_from_slice(&number.to_be_bytes());
    };
    set(28, 1); // pages
    set(32, 0); // the first free page
    set(36, 0); // free pages
    if header[52..56] != [0; 4] {
        set(52, 1); // the largest root page, with auto_vacuum
    }
    page[HEADER] = LEAF;
    // 65536 is written as 0.
    let content = (size - usize::from(header[20])) as u16;
    page[HEADER + 5..HEADER + 7].copy_from_slice(&content.to_be_bytes());
    Some(page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn sqlite_takes_the_page_for_an_empty_database() {
        let folder = tempfile::tempdir().expect("a folder");
        for (n, (size, vacuum)) in
            [(512, "NONE"), (4096, "FULL"), (65536, "INCREMENTAL")].iter().enumerate()
        {
            let (full, empty) =
                (folder.path().join(format!("{n}")), folder.path().join(format!("{n}e")));
            let made = Connection::open(&full).expect("open");
            let sql = "CREATE TABLE t (a); INSERT INTO t VALUES (zeroblob(200000)); DROP TABLE t;
                       CREATE TABLE u (a); PRAGMA user_version = 7";
            let settings = format!("PRAGMA page_size = {size}; PRAGMA auto_vacuum = {vacuum};");
            made.execute_batch(&format!("{settings} {sql}")).expect("make");
            made.close().expect("close");
            let bytes = std::fs::read(&full).expect("read");
            let page = page_like(bytes[..HEADER].try_into().expect("a header")).expect("a page");
            assert_eq!(page.len(), *size);
            std::fs::write(&empty, page).expect("write");
            let empty = Connection::open(&empty).expect("open");
            let one = |sql| empty.query_row(sql, [], |row| row.get::<_, String>(0)).expect(sql);
            assert_eq!(one("PRAGMA integrity_check"), "ok");
            assert_eq!(one("SELECT cast(count(*) AS TEXT) FROM sqlite_schema"), "0");
            empty.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").expect("write");
            assert_eq!(one("PRAGMA integrity_check"), "ok");
        }
        assert_eq!(page_like(&[0; HEADER]), None);
    }
}
