#!/usr/bin/python3
"""A session with Python's own sqlite3. Run it in the folder of the extension."""
import os
import sqlite3

# Loaded once, and registered for all connections of the process.
loader = sqlite3.connect(":memory:")
loader.enable_load_extension(True)
loader.load_extension("./libatomic_mmap_sqlite")

# Nothing else changes: the open names the VFS.
db = sqlite3.connect("file:notes.db?vfs=atomic-mmap", uri=True)
db.execute("CREATE TABLE IF NOT EXISTS note (id INTEGER PRIMARY KEY, text TEXT)")
with db:  # a transaction: all or nothing, also if the process is killed
    db.executemany("INSERT INTO note(text) VALUES (?)", [("first",), ("second",)])
try:
    with db:
        db.execute("DELETE FROM note")
        raise RuntimeError("on second thoughts")
except RuntimeError:
    pass
assert [text for (text,) in db.execute("SELECT text FROM note")] == ["first", "second"]
assert not [name for name in os.listdir(".") if name.startswith("notes.db-")], "no journal"
print(db.execute("PRAGMA atomic_mmap_stats").fetchone()[0])

# Another VFS, or another process, finds the database locked while it is open here.
try:
    sqlite3.connect("notes.db", timeout=0).execute("SELECT * FROM note")
    raise AssertionError("the stock VFS got in")
except sqlite3.OperationalError as error:
    print("the stock VFS:", error)
if os.fork() == 0:
    try:
        sqlite3.connect("file:notes.db?vfs=atomic-mmap", uri=True)
        os._exit(1)
    except sqlite3.OperationalError as error:
        print("a child of fork:", error, flush=True)
        os._exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
with db:
    db.execute("INSERT INTO note(text) VALUES ('third')")
db.close()

# A read transaction is a snapshot: it sees one state, and blocks no commit.
uri = "file:notes.db?vfs=atomic-mmap&wal=as-snapshots"
db, reader = [sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None) for _ in range(2)]
assert db.execute("PRAGMA journal_mode = WAL").fetchone() == ("wal",)
count = "SELECT count(*) FROM note"
reader.execute("BEGIN")
assert reader.execute(count).fetchone() == (3,)
db.execute("DELETE FROM note WHERE text = 'second'")
assert reader.execute(count).fetchone() == (3,)
try:
    reader.execute("INSERT INTO note(text) VALUES ('fourth')")
    raise AssertionError("a writer that has read an earlier version")
except sqlite3.OperationalError as error:
    print("a reader that wants to write:", error)
reader.execute("COMMIT")
reader.execute("INSERT INTO note(text) VALUES ('fourth')")
assert db.execute(count).fetchone() == (3,)
reader.close()
db.close()

# An open that fails says why in a function of the loading connection, and in SQLite's log.
plain = sqlite3.connect("notes.db")
assert plain.execute("SELECT count(*) FROM note").fetchone() == (3,)
assert plain.execute("PRAGMA journal_mode = wal").fetchone() == ("wal",)
plain.close()
try:
    sqlite3.connect("file:notes.db?vfs=atomic-mmap", uri=True)
    raise AssertionError("a database in WAL mode was opened")
except sqlite3.OperationalError:
    print(loader.execute("SELECT atomic_mmap_error()").fetchone()[0])
