//! Several connections of a process, and other processes.

use crate::common::{
    Role, Scratch, assert_whole, child, code, lines, one, ours, ours_with, run, try_one, try_ours,
};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

const BUSY: i32 = 5;
/// How long a connection waits for another one: longer than any test takes.
const HANGS: Duration = Duration::from_secs(600);

#[test]
fn readers_go_on_while_a_writer_prepares() {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    let (a, b) = (ours(&path), ours(&path));
    run(&a, "CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    assert_eq!(one(&b, "SELECT sum(a) FROM t"), "1");
    run(&a, "BEGIN IMMEDIATE; UPDATE t SET a = 2");
    assert_eq!(one(&b, "SELECT sum(a) FROM t"), "1", "not published");
    assert_eq!(code(b.execute("UPDATE t SET a = 3", [])), BUSY, "one writer");
    run(&b, "BEGIN");
    assert_eq!(one(&b, "SELECT sum(a) FROM t"), "1");
    assert_eq!(code(a.execute_batch("COMMIT")), BUSY, "a reader is inside");
    run(&b, "COMMIT");
    run(&a, "COMMIT");
    assert_eq!(one(&b, "SELECT sum(a) FROM t"), "2", "its page cache is dropped");
    run(&b, "INSERT INTO t VALUES (10)");
    assert_eq!(one(&a, "SELECT sum(a) FROM t"), "12");
    drop(a);
    assert_eq!(one(&b, "SELECT sum(a) FROM t"), "12");
    assert!(scratch.names().len() > 1, "the other connection keeps the pair open");
    drop(b);
    assert_eq!(scratch.names(), ["x.db"]);
}

/// Threads move amounts between rows. Their sum is the same for every reader.
#[test]
fn connections_of_several_threads_are_serializable() {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    let first = ours_with(&path, "&medium=page-cache");
    let rows = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
                SELECT i, 100, hex(randomblob(200)) FROM n";
    run(&first, &format!("CREATE TABLE t (id INTEGER PRIMARY KEY, v, x); INSERT INTO t {rows}"));
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2_u64)
            .map(|seed| {
                let path = &path;
                scope.spawn(move || {
                    let own = ours(path);
                    own.busy_timeout(HANGS).expect("a time");
                    let random = &mut fastrand::Rng::with_seed(seed);
                    for _ in 0..60 {
                        let (a, b) = (random.u8(1..200), random.u8(1..200));
                        run(
                            &own,
                            &format!(
                                "BEGIN IMMEDIATE; UPDATE t SET v = v - 7 WHERE id = {a};
                             UPDATE t SET v = v + 7 WHERE id = {b}; COMMIT"
                            ),
                        );
                    }
                })
            })
            .collect();
        for _ in 0..2 {
            scope.spawn(|| {
                let own = ours(&path);
                own.busy_timeout(HANGS).expect("a time");
                while !ended.load(Ordering::Relaxed) {
                    assert_eq!(one(&own, "SELECT sum(v) FROM t"), "20000");
                }
            });
        }
        let results: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        ended.store(true, Ordering::Relaxed);
        assert!(results.iter().all(Result::is_ok));
    });
    assert_whole(&first);
}

/// The last connection closes the file, and the next one opens it, at any time.
#[test]
fn threads_open_and_close_one_database() {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    run(&ours(&path), "CREATE TABLE t (a)");
    thread::scope(|scope| {
        for thread in 0..4 {
            let path = &path;
            scope.spawn(move || {
                for n in 0..40 {
                    let own = ours_with(path, "&medium=page-cache");
                    own.busy_timeout(HANGS).expect("a time");
                    run(&own, &format!("INSERT INTO t VALUES ({})", thread * 1000 + n));
                }
            });
        }
    });
    assert_eq!(scratch.names(), ["x.db"]);
    assert_eq!(one(&ours(&path), "SELECT count(DISTINCT a) FROM t"), "160");
}

/// The role of a process that opens the database, and says how that went.
pub fn open_and_say(role: &Role) {
    match try_ours(&role.path, &role.parameters) {
        Ok(own) => {
            let count = try_one(&own, "SELECT count(*) FROM t");
            println!(">{count:?}");
        }
        error => println!(">code {}", code(error)),
    }
}

fn say_of_another_process(path: &std::path::Path, parameters: &str) -> String {
    let mut opener = child("opener", path, 0, parameters);
    let said = lines(&mut opener).next().expect("a line");
    opener.wait().expect("wait");
    said
}

#[test]
fn another_process_waits_until_the_file_is_closed() {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    let own = ours(&path);
    run(&own, "CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    assert_eq!(say_of_another_process(&path, ""), "code 5");
    assert_eq!(say_of_another_process(&path, "&mode=ro"), "code 5");
    let mut waits = child("opener", &path, 0, "&busy_timeout=600000");
    drop(own);
    assert_eq!(lines(&mut waits).next().expect("a line"), "Ok(\"1\")");
    waits.wait().expect("wait");
    // Readers share the file.
    let reader = ours_with(&path, "&mode=ro");
    assert_eq!(say_of_another_process(&path, "&mode=ro"), "Ok(\"1\")");
    assert_eq!(say_of_another_process(&path, ""), "code 5", "a reader is inside");
    assert_eq!(one(&reader, "SELECT a FROM t"), "1");
    assert_eq!(code(reader.execute("INSERT INTO t VALUES (2)", [])), 8, "read-only");
    assert_eq!(code(try_ours(&path, "")), BUSY, "the first connection decides");
    drop(reader);
    let writer = ours(&path);
    let reader = ours_with(&path, "&mode=ro");
    run(&writer, "INSERT INTO t VALUES (2)");
    assert_eq!(one(&reader, "SELECT sum(a) FROM t"), "3");
    assert_eq!(code(reader.execute("INSERT INTO t VALUES (3)", [])), 8, "read-only");
}

#[test]
fn a_moved_database_is_not_written_to() {
    let scratch = Scratch::in_memory();
    let path = scratch.path("x.db");
    let own = ours(&path);
    run(&own, "CREATE TABLE t (a); INSERT INTO t VALUES (1)");
    std::fs::rename(&path, scratch.path("y.db")).expect("rename");
    assert_eq!(code(own.execute("INSERT INTO t VALUES (2)", [])), 8, "SQLITE_READONLY_DBMOVED");
    std::fs::rename(scratch.path("y.db"), &path).expect("rename");
    run(&own, "INSERT INTO t VALUES (2)");
    assert_eq!(one(&own, "SELECT sum(a) FROM t"), "3");
    std::io::stdout().flush().expect("flush");
}

/// An open of a pipe for reading alone waits for a writer, and SQLite's own resolution of links
/// passes over the kernel's rule for links in shared folders.
#[test]
fn no_database_is_opened_through_another_users_link_nor_is_a_pipe_waited_for() {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};
    let ground = Scratch::in_memory();
    let pipe = std::ffi::CString::new(ground.path("pipe").into_os_string().into_encoded_bytes());
    // SAFETY: a C string.
    assert_eq!(unsafe { libc::mkfifo(pipe.expect("no zero").as_ptr(), 0o400) }, 0);
    try_ours(&ground.path("pipe"), "").expect_err("no database");

    drop(ours(&ground.path("db")));
    symlink("db", ground.path("link")).expect("a link");
    drop(ours(&ground.path("link")));
    let folder = ground.path("db").parent().expect("a folder").to_owned();
    let mode = std::fs::Permissions::from_mode(0o1777);
    std::fs::set_permissions(folder, mode).expect("chmod");
    if lchown(ground.path("link"), Some(12_345), None).is_err() {
        eprintln!("only root can give a link away");
    } else {
        // The rule holds also where the kernel's is off, and for each link on the way.
        symlink("link", ground.path("own")).expect("a link");
        symlink("absent", ground.path("dangling")).expect("a link");
        lchown(ground.path("dangling"), Some(12_345), None).expect("chown");
        for name in ["link", "own", "dangling"] {
            assert_eq!(code(try_ours(&ground.path(name), "")), 14, "{name}");
        }
        assert!(!ground.path("absent").exists());
    }
    drop(ours(&ground.path("db")));
}
