//! The mark of a database with companions: stock SQLite refuses it, and harms nothing.

use crate::common::{
    Role, Scratch, assert_whole, child, code, lines, one, ours, ours_with, run, stock, try_one,
    try_ours,
};
use rusqlite::backup::Backup;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::fs;
use std::path::Path;

const CANTOPEN: i32 = 14;
const NOTADB: i32 = 26;
const SIZES: [u32; 2] = [4096, 512];

/// The role of a service that is killed behind its last commit.
pub fn serve(role: &Role) {
    let own = ours(&role.path);
    run(&own, "INSERT INTO t VALUES (3, 'three')");
    println!(">committed");
    std::process::abort();
}

fn make(folder: &Scratch, size: u32) -> std::path::PathBuf {
    let path = folder.path("x.db");
    let sql = "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'one'), (2, 'two')";
    run(&stock(&path), &format!("PRAGMA page_size = {size}; {sql}"));
    path
}

/// Makes a database that a service has left by a crash, with three rows.
fn crashed(folder: &Scratch, size: u32) -> std::path::PathBuf {
    let path = make(folder, size);
    kill_a_service(&path);
    path
}

fn kill_a_service(path: &Path) {
    let mut service = child("service", path, 0, "");
    assert_eq!(lines(&mut service).next().expect("a line"), "committed");
    service.wait().expect("wait");
}

/// Checks that the next service finds all rows, and that stock SQLite does after it.
fn assert_served(path: &Path, rows: &str) {
    let own = ours(path);
    assert_eq!(one(&own, "SELECT group_concat(a) FROM t"), rows);
    assert_whole(&own);
    drop(own);
    let plain = stock(path);
    assert_eq!(one(&plain, "SELECT group_concat(a) FROM t"), rows);
    assert_whole(&plain);
}

fn uri(path: &Path, parameters: &str) -> Connection {
    let uri = format!("file:{}?{parameters}", path.display());
    Connection::open_with_flags(uri, OpenFlags::default()).expect("open")
}

#[test]
fn stock_sqlite_reads_and_writes_nothing_of_a_database_in_use() {
    for size in SIZES {
        let folder = Scratch::new();
        let path = crashed(&folder, size);
        let before = fs::read(&path).expect("read");
        for parameters in ["mode=rw", "mode=ro", "immutable=1", "nolock=1"] {
            let plain = uri(&path, parameters);
            assert_eq!(code(try_one(&plain, "SELECT count(*) FROM t")), NOTADB, "{parameters}");
        }
        for sql in [
            "INSERT INTO t VALUES (9, 'nine')",
            "PRAGMA user_version = 5",
            "PRAGMA journal_mode = WAL",
            "PRAGMA integrity_check",
            "VACUUM",
            "VACUUM INTO '/dev/null/x'",
        ] {
            assert_eq!(code(try_one(&stock(&path), sql)), NOTADB, "{sql}");
        }
        for sql in ["SELECT count(*) FROM o.t", "INSERT INTO o.t VALUES (9, 'nine')"] {
            let memory = Connection::open_in_memory().expect("open");
            let attach = format!("ATTACH '{}' AS o", path.display());
            let done = memory.execute_batch(&format!("{attach}; {sql}"));
            assert_eq!(code(done), NOTADB, "{sql}");
        }
        let mut memory = Connection::open_in_memory().expect("open");
        run(&memory, "CREATE TABLE new (a)");
        let step = |backup: rusqlite::Result<Backup<'_, '_>>| backup?.step(-1).map(drop);
        assert_eq!(code(step(Backup::new(&memory, &mut stock(&path)))), NOTADB, "onto it");
        assert_eq!(code(step(Backup::new(&stock(&path), &mut memory))), NOTADB, "from it");
        assert!(fs::read(&path).expect("read") == before, "nothing was stored");
        assert_served(&path, "1,2,3");
    }
}

/// `stockwrite`: a user repairs the database with the stock shell, and starts the service again.
/// Before there was a mark, both wrote to it.
#[test]
fn a_service_goes_on_after_an_attempt_to_repair_its_database() {
    let folder = Scratch::new();
    let path = crashed(&folder, 4096);
    let plain = stock(&path);
    assert_eq!(
        code(plain.execute_batch("DELETE FROM t; INSERT INTO t VALUES (9, 'nine')")),
        NOTADB
    );
    drop(plain);
    assert_served(&path, "1,2,3");
    // And once more, with a crash in the second session.
    kill_a_service(&path);
    assert_eq!(code(try_one(&stock(&path), "SELECT count(*) FROM t")), NOTADB);
    assert_served(&path, "1,2,3,3");
}

/// It had read the database before the service began, and has its first page in the cache.
#[test]
fn an_idle_stock_connection_is_turned_away_and_goes_on_later() {
    for size in SIZES {
        let folder = Scratch::new();
        let path = make(&folder, size);
        let idle = stock(&path);
        assert_eq!(one(&idle, "SELECT count(*) FROM t"), "2");
        kill_a_service(&path);
        assert_eq!(code(try_one(&idle, "SELECT count(*) FROM t")), NOTADB);
        assert_eq!(code(idle.execute("INSERT INTO t VALUES (9, 'nine')", [])), NOTADB);
        drop(ours(&path));
        run(&idle, "INSERT INTO t VALUES (9, 'nine')");
        assert_eq!(one(&idle, "SELECT group_concat(a) FROM t"), "1,2,3,9");
        assert_served(&path, "1,2,3,9");
    }
}

/// The mark cannot prevent these changes, and opening tells of them: the companions are never
/// applied to another state.
#[test]
fn a_database_that_another_program_has_written_over_is_refused() {
    type Overwrite = fn(&Path);
    let ways: [(&str, Overwrite); 4] = [
        ("a copy over it", |path| {
            let other = path.with_extension("other");
            run(&stock(&other), "CREATE TABLE t (a); INSERT INTO t VALUES (7)");
            fs::write(path, fs::read(&other).expect("read")).expect("write over it");
        }),
        ("a reset", |path| {
            let plain = stock(path);
            plain.set_db_config(DbConfig::SQLITE_DBCONFIG_RESET_DATABASE, true).expect("reset");
            run(&plain, "VACUUM");
        }),
        ("a hot journal", |path| {
            // It was made by a stock writer, and has come back beside the file, from a backup.
            fs::rename(path.with_extension("kept"), format!("{}-journal", path.display()))
                .expect("put it back");
            let _played_back = try_one(&stock(path), "SELECT count(*) FROM t");
        }),
        ("zeros", |path| fs::write(path, vec![0; 8192]).expect("write")),
    ];
    for (what, overwrite) in ways {
        let folder = Scratch::new();
        let path = make(&folder, 4096);
        let plain = stock(&path);
        run(&plain, "PRAGMA cache_size = 1; BEGIN; UPDATE t SET b = zeroblob(100000)");
        let journal = format!("{}-journal", path.display());
        fs::copy(&journal, path.with_extension("kept")).expect("copy the journal");
        run(&plain, "ROLLBACK");
        drop(plain);
        kill_a_service(&path);
        overwrite(&path);
        let before = fs::read(&path).expect("read");
        let _removed = fs::remove_file(&journal);
        assert_eq!(code(try_ours(&path, "")), CANTOPEN, "{what}");
        let message = atomic_mmap_sqlite::last_error().expect("a message");
        assert!(message.contains("changed") || message.contains("shorter"), "{what}: {message}");
        assert!(fs::read(&path).expect("read") == before, "{what}: unchanged");
    }
}

#[test]
fn a_database_that_takes_the_place_of_a_deleted_one_is_its_own() {
    let folder = Scratch::new();
    let path = crashed(&folder, 4096);
    // As a handler of corruption does.
    fs::remove_file(&path).expect("delete");
    run(&stock(&path), "CREATE TABLE t (a, b); INSERT INTO t VALUES (7, 'new')");
    let opened = try_ours(&path, "");
    match opened {
        // Where the new file may have the inode of the old one, that is told.
        Err(error) => assert_eq!(code::<()>(Err(error)), CANTOPEN),
        Ok(own) => {
            assert_eq!(one(&own, "SELECT group_concat(a) FROM t"), "7");
            drop(own);
            assert_served(&path, "7");
        }
    }
    assert_eq!(one(&stock(&path), "SELECT group_concat(a) FROM t"), "7");
}

#[test]
fn a_copy_of_the_database_alone_is_refused_by_both() {
    for close in ["", "&close=fast"] {
        let folder = Scratch::new();
        let path = make(&folder, 4096);
        if close.is_empty() {
            kill_a_service(&path);
        } else {
            run(&ours_with(&path, close), "INSERT INTO t VALUES (3, 'three')");
        }
        let elsewhere = Scratch::new();
        let copy = elsewhere.path("copy.db");
        fs::copy(&path, &copy).expect("copy");
        assert_eq!(code(try_one(&stock(&copy), "SELECT count(*) FROM t")), NOTADB);
        assert_eq!(code(try_ours(&copy, "")), CANTOPEN);
        let message = atomic_mmap_sqlite::last_error().expect("a message");
        assert!(message.contains("in its bytes"), "{message}");
        assert_eq!(elsewhere.names(), ["copy.db"]);
        // The crate's own copy is complete.
        let file = atomic_mmap::AtomicMappedFile::open(&path).expect("open");
        file.copy_to(elsewhere.path("whole.db")).expect("copy");
        assert_eq!(one(&stock(&elsewhere.path("whole.db")), "SELECT count(*) FROM t"), "3");
        file.close(atomic_mmap::CloseMode::Spatial).expect("close");
        assert_eq!(one(&stock(&path), "SELECT count(*) FROM t"), "3");
    }
}

#[test]
fn a_file_that_was_cut_is_no_database_for_stock_sqlite() {
    for len in [100, 20] {
        let folder = Scratch::new();
        let path = crashed(&folder, 4096);
        fs::File::options().write(true).open(&path).expect("open").set_len(len).expect("cut");
        let found = code(try_one(&stock(&path), "SELECT count(*) FROM t"));
        assert_eq!(found, NOTADB, "{len}");
        assert_eq!(code(try_ours(&path, "")), CANTOPEN);
    }
}

/// A log of the stock VFS beside the database, from a backup: this VFS refuses both.
#[test]
fn a_write_ahead_log_beside_a_database_in_use_is_refused() {
    let folder = Scratch::new();
    let path = crashed(&folder, 4096);
    let log = folder.path("x.db-wal");
    fs::write(&log, [7; 4152]).expect("write");
    assert_eq!(code(try_ours(&path, "")), CANTOPEN);
    fs::remove_file(&log).expect("remove");
    assert_served(&path, "1,2,3");
}

/// A new database has its mark from its first page on, and readers of this VFS see the real header.
#[test]
fn a_new_database_has_the_mark_and_no_connection_of_this_vfs_sees_it() {
    for parameters in ["", "&snapshot_reads=1", "&medium=page-cache", "&medium=dax"] {
        let folder = Scratch::new();
        let path = folder.path("x.db");
        let own = ours_with(&path, parameters);
        run(&own, "CREATE TABLE t (a, b); INSERT INTO t VALUES (1, 'one')");
        let other = ours_with(&path, parameters);
        for user in [&own, &other] {
            assert_eq!(one(user, "SELECT count(*) FROM t"), "1");
            assert_whole(user);
            run(user, "VACUUM");
        }
        assert_eq!(code(try_one(&uri(&path, "immutable=1"), "SELECT count(*) FROM t")), NOTADB);
        drop((own, other));
        assert_served(&path, "1");
        let own = ours_with(&path, parameters);
        run(&own, "INSERT INTO t VALUES (2, 'two')");
        assert_eq!(code(try_one(&uri(&path, "immutable=1"), "SELECT count(*) FROM t")), NOTADB);
        let mut memory = Connection::open_in_memory().expect("open");
        Backup::new(&own, &mut memory).expect("begin").step(-1).expect("a backup");
        assert_eq!(one(&memory, "SELECT count(*) FROM t"), "2");
    }
}

/// A replica of a database in use: streams have no mark, and an increment fits the plain replica.
#[test]
fn streams_and_copies_of_a_database_have_no_mark() {
    use atomic_mmap::{AtomicMappedFile, CloseMode};
    let folder = Scratch::new();
    let path = make(&folder, 4096);
    let session = |name: &str| {
        run(&ours_with(&path, "&close=fast"), "INSERT INTO t VALUES (3, 'three')");
        let file = AtomicMappedFile::open(&path).expect("open");
        file.snapshot(name).expect("snapshot");
        file
    };
    let file = session("one");
    let mut whole = Vec::new();
    file.export(None, "one", &mut whole).expect("export");
    file.close(CloseMode::Fast).expect("close");
    let file = session("two");
    let mut increment = Vec::new();
    file.export(Some("one"), "two", &mut increment).expect("export");
    let replica = folder.path("replica.db");
    let (received, _) = AtomicMappedFile::options().import(&replica, &whole[..]).expect("import");
    received.drop_snapshot("one").expect("drop");
    received.close(CloseMode::Spatial).expect("close");
    assert_eq!(one(&stock(&replica), "SELECT group_concat(a) FROM t"), "1,2,3");
    let received = AtomicMappedFile::open(&replica).expect("open");
    received.import(&increment[..]).expect("the increment");
    received.drop_snapshot("two").expect("drop");
    received.close(CloseMode::Spatial).expect("close");
    assert_eq!(one(&stock(&replica), "SELECT group_concat(a) FROM t"), "1,2,3,3");
    assert_whole(&stock(&replica));
}
