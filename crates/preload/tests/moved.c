// Leads a name to the folder `chosen`, whose files `*.dat` are chosen, after the same text has led
// elsewhere. The argument names the call.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); exit(1); } } while (0)

static size_t companions(const char *folder) {
    glob_t found;
    char pattern[64];
    snprintf(pattern, sizeof pattern, "%s/.atomic-mmap.*", folder);
    size_t count = glob(pattern, 0, NULL, &found) == 0 ? found.gl_pathc : 0;
    globfree(&found);
    return count;
}

// A file that the program makes is open in the engine, with companions beside it.
static void is_chosen(const char *path, const char *folder) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    HOLDS(fd >= 0 && write(fd, "bytes", 5) == 5 && companions(folder) > 0);
    HOLDS(close(fd) == 0 && companions(folder) == 0);
}

// A crash has left companions, which go with the name of their file.
static void crash(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        int fd = open("chosen/x.dat", O_RDWR | O_CREAT, 0600);
        HOLDS(fd >= 0 && write(fd, "bytes", 5) == 5);
        kill(getpid(), SIGKILL);
    }
    HOLDS(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && companions("chosen") > 0);
}

int main(int count, char **args) {
    struct stat found;
    HOLDS(count == 2);
    const char *call = args[1];
    if (strcmp(call, "mkdir") == 0) {
        HOLDS(mkdir("other", 0700) == 0 && symlink("other", "chosen") == 0);
        HOLDS(lstat("chosen/plain", &found) == -1 && unlink("chosen") == 0 && mkdir("chosen", 0700) == 0);
        is_chosen("chosen/x.dat", "chosen");
    } else if (strcmp(call, "symlink") == 0 || strcmp(call, "link") == 0) {
        HOLDS(mkdir("chosen", 0700) == 0 && mkdir("to", 0700) == 0 && symlink("chosen", "first") == 0);
        crash();
        HOLDS(lstat("to/plain", &found) == -1 && rmdir("to") == 0);
        HOLDS((*(call + 1) == 'y' ? symlink("chosen", "to") : link("first", "to")) == 0);
        HOLDS(unlink("to/x.dat") == 0 && companions("chosen") == 0);
    } else {
        // The name of the folder is no part of the text.
        HOLDS(mkdir("folder", 0700) == 0 && chdir("folder") == 0 && lstat("plain", &found) == -1);
        if (strcmp(call, "rename") == 0) HOLDS(rename("../folder", "../chosen") == 0);
        if (strcmp(call, "whole") == 0) {
            // By names from the root on.
            char from[4096], to[4096];
            HOLDS(getcwd(from, sizeof from) && strcpy(to, from) && strcpy(strrchr(to, '/'), "/chosen"));
            HOLDS(rename(from, to) == 0);
        }
        if (strcmp(call, "number") == 0) HOLDS(syscall(SYS_renameat2, AT_FDCWD, "../folder", AT_FDCWD, "../chosen", 0) == 0);
        if (strcmp(call, "exchange") == 0) {
            int fd = open("../chosen", O_RDWR | O_CREAT, 0600);
            HOLDS(close(fd) == 0 && renameat2(AT_FDCWD, "../chosen", AT_FDCWD, "../folder", RENAME_EXCHANGE) == 0);
        }
        is_chosen("x.dat", ".");
    }
    return 0;
}
