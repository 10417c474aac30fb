/* The start of speedtest1: loads the extension that EXTENSION names, and then does what it does. */
#include "sqlite3.h"
#include <stdio.h>
#include <stdlib.h>

int speedtest1_main(int argc, char **argv);

int main(int argc, char **argv) {
    const char *extension = getenv("EXTENSION");
    if (extension) {
        sqlite3 *db;
        char *why = 0;
        if (sqlite3_open(":memory:", &db) ||
            sqlite3_db_config(db, SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1, (int *)0) ||
            sqlite3_load_extension(db, extension, 0, &why)) {
            fprintf(stderr, "%s: %s\n", extension, why ? why : sqlite3_errmsg(db));
            return 1;
        }
        sqlite3_close(db);
    }
    return speedtest1_main(argc, argv);
}
