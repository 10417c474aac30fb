/* A VFS with a name of its own that is SQLite's default in everything: what SQLite's tests do over it
** is what they do because a VFS is named at all. */
#include "sqlite3ext.h"
SQLITE_EXTENSION_INIT1

int sqlite3_through_init(sqlite3 *db, char **message, const sqlite3_api_routines *routines) {
  static sqlite3_vfs through;
  SQLITE_EXTENSION_INIT2(routines);
  if (sqlite3_vfs_find("through") == 0) {
    through = *sqlite3_vfs_find(0);
    through.zName = "through";
    through.pNext = 0;
    sqlite3_vfs_register(&through, 0);
  }
  return SQLITE_OK_LOAD_PERMANENTLY;
}
