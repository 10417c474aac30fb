// `execl` and its kin. The arguments are a folder, and a library that is this file, too: its calls are made
// there. Everything must hold with and without the preload.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); exit(1); } } while (0)

enum { SHORT, FULL, LONG, SEARCHED, WITH_ENVIRONMENT, WAYS };

// Replaces the program: by arguments in registers alone, in all of them, and on the stack.
int replace(int way, const char *path, const char *name) {
    char *environment[] = {"NAME=value", NULL};
    switch (way) {
    case SHORT: return execl(path, "0", NULL);
    case FULL: return execl(path, "0", "1", "2", "3", "4", NULL);
    case LONG: return execl(path, "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", NULL);
    case SEARCHED: return execlp(name, "0", "1", "2", "3", "4", "5", "6", NULL);
    default: return execle(path, "0", "1", "2", "3", NULL, environment);
    }
}

#ifndef LIBRARY
// The program that comes after: it goes on with the file, at its offset.
static void after(int count, char **args) {
    const char *expected = "0123456789";
    HOLDS(count == 1 || count == 4 || count == 5 || count == 7 || count == 10);
    for (int n = 0; n < count; n++) HOLDS(args[n][0] == expected[n] && args[n][1] == '\0');
    if (count == 4) HOLDS(strcmp(getenv("NAME"), "value") == 0 && getenv("PATH") == NULL);
    else HOLDS(getenv("NAME") == NULL && getenv("PATH") != NULL);
    HOLDS(lseek(7, 0, SEEK_CUR) == 3 && write(7, "after", 5) == 5);
    HOLDS(fcntl(8, F_GETFD) == -1 && errno == EBADF); // it had `FD_CLOEXEC`
}

int main(int count, char **args) {
    if (strcmp(args[0], "0") == 0) return after(count, args), 0;
    int (*run)(int, const char *, const char *) = replace;
    HOLDS(chdir(args[1]) == 0 && setenv("PATH", args[1], 1) == 0);
    if (count > 2) {
        void *library = dlopen(args[2], RTLD_NOW | RTLD_LOCAL);
        HOLDS(library != NULL && (*(void **)&run = dlsym(library, "replace")) != NULL);
        HOLDS(run != replace);
    }
    for (int way = 0; way < WAYS; way++) {
        pid_t child = fork();
        if (child == 0) {
            int fd = open("x.dat", O_RDWR | O_CREAT, 0600);
            HOLDS(fd >= 0 && write(fd, "before", 6) == 6 && lseek(fd, 1, SEEK_SET) == 1);
            // An exec that fails changes nothing.
            HOLDS(run(way, "/no/such/program", "no-such-program") == -1 && errno == ENOENT);
            HOLDS(write(fd, "EF", 2) == 2 && dup2(fd, 7) == 7 && dup3(fd, 8, O_CLOEXEC) == 8);
            run(way, "program", "program");
            _exit(2);
        }
        int status, fd;
        char bytes[16] = {0};
        HOLDS(waitpid(child, &status, 0) == child && status == 0);
        HOLDS((fd = open("x.dat", O_RDONLY)) >= 0 && read(fd, bytes, sizeof bytes) == 8);
        HOLDS(strcmp(bytes, "bEFafter") == 0 && close(fd) == 0 && unlink("x.dat") == 0);
    }
}
#endif
