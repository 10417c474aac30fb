// Starts a program whose standard output is a chosen file, by the call that the first argument
// names. With a second argument the process has a record lock on the file, "partly" on part of it. Ends with 3 if the program
// did not start, or failed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); exit(1); } } while (0)

static int is_locked(int fd) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int status;
    pid_t child = fork();
    if (child == 0) {
        _exit(fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK);
    }
    HOLDS(waitpid(child, &status, 0) == child);
    return status == 0;
}

int main(int count, char **args) {
    char *echo[] = {"/bin/echo", "two", NULL}, *quiet[] = {"sqlite3", ":memory:", "select 2", NULL};
    int fd = open("x.dat", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), status = -1;
    pid_t child;
    HOLDS(count > 1 && fd >= 0 && dup2(fd, 1) == 1);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    HOLDS(count < 3 || fcntl(fd, F_SETLK, &lock) == 0);
    HOLDS(write(1, "one\n", 4) == 4);
    if (count > 2 && strcmp(args[2], "partly") == 0) {
        lock.l_type = F_UNLCK;
        lock.l_whence = SEEK_CUR;
        HOLDS(fcntl(1, F_SETLK, &lock) == 0);
    }
    if (strcmp(args[1], "system") == 0) status = system("/bin/echo two");
    if (strcmp(args[1], "popen") == 0) {
        FILE *pipe = popen("/bin/echo two", "w");
        if (pipe != NULL) status = pclose(pipe);
    }
    if (strcmp(args[1], "posix_spawn") == 0)
        if (posix_spawn(&child, echo[0], NULL, NULL, echo, environ) == 0) HOLDS(waitpid(child, &status, 0) == child);
    if (strcmp(args[1], "fork") == 0 || strcmp(args[1], "quiet") == 0) {
        char **line = strcmp(args[1], "fork") == 0 ? echo : quiet;
        if ((child = fork()) == 0) {
            execvp(line[0], line);
            _exit(9);
        }
        HOLDS(waitpid(child, &status, 0) == child);
    }
    HOLDS(write(1, "three\n", 6) == 6 && fsync(1) == 0);
    HOLDS(count < 3 || is_locked(fd));
    return status == 0 ? 0 : 3;
}
