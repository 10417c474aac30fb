-- A session with the stock shell: sqlite3 < session.sql, in the folder of the extension.
.bail on
.log stderr
.load ./libatomic_mmap_sqlite
.open file:shop.db?vfs=atomic-mmap
.vfsname
CREATE TABLE item (name TEXT PRIMARY KEY, count INTEGER);
BEGIN;
INSERT INTO item VALUES ('pears', 3), ('plums', 40);
UPDATE item SET count = count - 1 WHERE name = 'plums';
COMMIT;
SELECT * FROM item;
-- No journal, and no log: the transaction was one atomic operation of the file.
.shell ls
PRAGMA atomic_mmap_stats;
