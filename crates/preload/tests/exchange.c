// A library that is loaded after ours. Before it runs a call on the chosen file, it exchanges one of
// that file's companions for another file, as another user of the folder could.
#include <fcntl.h>
#include <string.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define RENAME_EXCHANGE 2

static void exchange(const char *name) {
    size_t len = strlen(name);
    if (len < 4 || strcmp(name + len - 4, ".dat") != 0) return;
    const char *secret = getenv("SECRET"), *companion = getenv("COMPANION");
    if (syscall(SYS_renameat2, AT_FDCWD, secret, AT_FDCWD, companion, RENAME_EXCHANGE) != 0) abort();
}

int fchmodat(int dir, const char *name, mode_t mode, int flags) {
    exchange(name);
    return flags == 0 ? (int)syscall(SYS_fchmodat, dir, name, mode) : -1;
}

int chmod(const char *name, mode_t mode) {
    exchange(name);
    return (int)syscall(SYS_fchmodat, AT_FDCWD, name, mode);
}

int unlinkat(int dir, const char *name, int flags) {
    exchange(name);
    return (int)syscall(SYS_unlinkat, dir, name, flags);
}
