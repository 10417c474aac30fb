// Calls of several threads and processes on one file. The arguments are a folder and, for the first
// part alone, a word. Everything must hold with and without the preload.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); exit(1); } } while (0)

#define ROUNDS 200

static char name[512], other[512];
static pthread_barrier_t gate;

static pthread_t start_with(void *(*body)(void *), void *argument) {
    pthread_t thread;
    HOLDS(pthread_create(&thread, NULL, body, argument) == 0);
    return thread;
}

static pthread_t start(void *(*body)(void *)) {
    return start_with(body, NULL);
}

// Appends bytes until the descriptor is closed, once a round.
static void *append(void *unused) {
    (void)unused;
    long written = 0;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&gate);
        while (write(100, "x", 1) == 1) written++;
        HOLDS(errno == EBADF);
        pthread_barrier_wait(&gate);
    }
    return (void *)written;
}

// Each write that returns 1 is in the file, whatever happens to its descriptor meanwhile.
static void closes(void) {
    int fd = open(name, O_RDWR | O_CREAT | O_APPEND, 0600), unwritable = open("/dev/null", O_RDONLY);
    pthread_barrier_init(&gate, NULL, 3);
    pthread_t threads[2] = {start(append), start(append)};
    for (int round = 0; round < ROUNDS; round++) {
        HOLDS(dup2(fd, 100) == 100);
        pthread_barrier_wait(&gate);
        usleep(round % 50);
        HOLDS(dup2(fd, 100) == 100 && dup2(999, 100) == -1 && errno == EBADF);
        HOLDS(round % 2 ? close(100) == 0 : dup2(unwritable, 100) == 100);
        pthread_barrier_wait(&gate);
    }
    off_t sum = 0;
    for (int n = 0; n < 2; n++) {
        void *written;
        HOLDS(pthread_join(threads[n], &written) == 0);
        sum += (long)written;
    }
    HOLDS(close(fd) == 0 && close(unwritable) == 0 && close(100) == (ROUNDS % 2 ? 0 : -1));
    struct stat found;
    HOLDS(stat(name, &found) == 0 && found.st_size == sum && unlink(name) == 0);
}

static void *look(void *unused) {
    (void)unused;
    struct stat found;
    pthread_barrier_wait(&gate);
    HOLDS(stat(name, &found) == 0);
    return NULL;
}

// A thread that looks at a file after a crash is in no other's way.
static void settles(void) {
    for (int round = 0; round < 30; round++) {
        pid_t child = fork();
        if (child == 0) {
            int fd = open(name, O_RDWR | O_CREAT, 0600);
            HOLDS(write(fd, "abc", 3) == 3);
            kill(getpid(), SIGKILL);
        }
        int status;
        HOLDS(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
        pthread_barrier_init(&gate, NULL, 2);
        pthread_t thread = start(look);
        pthread_barrier_wait(&gate);
        usleep(round * 50);
        int fd = open(name, O_RDWR);
        HOLDS(fd >= 0 && close(fd) == 0 && pthread_join(thread, NULL) == 0);
    }
    HOLDS(unlink(name) == 0);
}

static void *exchange(void *is_first) {
    for (int round = 0; round < 100; round++)
        HOLDS(renameat2(AT_FDCWD, is_first ? name : other, AT_FDCWD, is_first ? other : name, RENAME_EXCHANGE) == 0);
    return NULL;
}

static void renames(void) {
    int fd = open(name, O_RDWR | O_CREAT, 0600), second = open(other, O_RDWR | O_CREAT, 0600);
    HOLDS(write(fd, "first", 5) == 5 && write(second, "second", 6) == 6);
    pthread_t thread = start(exchange);
    exchange(name);
    HOLDS(pthread_join(thread, NULL) == 0);
    HOLDS(lseek(fd, 0, SEEK_END) == 5 && lseek(second, 0, SEEK_END) == 6);
    HOLDS(close(fd) == 0 && close(second) == 0 && unlink(name) == 0 && unlink(other) == 0);
}

// A child by fork has no part in the offset of its parent.
static void forks(void) {
    int fd = open(name, O_RDWR | O_CREAT, 0600), pipes[2], status;
    HOLDS(fd >= 0);
    for (int closes = 0; closes < 2; closes++) {
        HOLDS(pwrite(fd, "start", 5, 0) == 5 && lseek(fd, 3, SEEK_SET) == 3 && pipe(pipes) == 0);
        pid_t child = fork();
        if (child == 0) {
            char byte;
            close(pipes[1]);
            HOLDS(read(pipes[0], &byte, 1) == 0);
            if (closes) close(fd);
            _exit(0);
        }
        char *none[] = {"none", NULL};
        HOLDS(write(fd, "two", 3) == 3 && execv("/no/such/program", none) == -1);
        HOLDS(close(pipes[0]) == 0 && close(pipes[1]) == 0);
        HOLDS(waitpid(child, &status, 0) == child && status == 0 && lseek(fd, 0, SEEK_CUR) == 6);
    }
    HOLDS(close(fd) == 0 && unlink(name) == 0);
}

static void *read_stream(void *stream) {
    getc(stream);
    return NULL;
}

// A program ends while a thread waits for input.
static void ends(void) {
    pid_t child = fork();
    if (child == 0) {
        int pipes[2];
        alarm(200);
        HOLDS(pipe(pipes) == 0);
        FILE *stream = fdopen(pipes[0], "r");
        start_with(read_stream, stream);
        while (ftrylockfile(stream) == 0) {
            funlockfile(stream);
            usleep(100);
        }
        exit(7);
    }
    int status;
    HOLDS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static volatile int is_over;

// Opens and closes a file again and again, so that its number gets free.
static void *reopen(void *argument) {
    while (!is_over) {
        int fd = open(name, O_RDWR | O_CREAT, 0600);
        HOLDS(fd >= 0 && write(fd, "12345678", 8) == 8 && close(fd) == 0);
    }
    return argument;
}

// Writes to a file that is not chosen, under numbers that chosen ones had.
static void *write_plain(void *path) {
    while (!is_over) {
        char bytes[16] = {0};
        int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        HOLDS(fd >= 0 && write(fd, "plain", 5) == 5);
        usleep(500);
        HOLDS(write(fd, "more", 4) == 4 && pread(fd, bytes, sizeof bytes, 0) == 9);
        HOLDS(strcmp(bytes, "plainmore") == 0 && close(fd) == 0);
    }
    return NULL;
}

// Programs that a thread starts are in no way of files that other threads open and close.
static void starts(const char *folder, int rounds) {
    char path[512], *args[] = {"true", NULL};
    snprintf(path, sizeof path, "%s/plain", folder);
    pthread_t first = start(reopen), second = start_with(write_plain, path);
    for (int round = 0; round < rounds; round++) {
        int status;
        pid_t child = vfork();
        if (child == 0) _exit(0);
        HOLDS(waitpid(child, &status, 0) == child && status == 0);
        HOLDS(posix_spawnp(&child, "true", NULL, NULL, args, environ) == 0);
        HOLDS(waitpid(child, &status, 0) == child && status == 0);
    }
    is_over = 1;
    HOLDS(pthread_join(first, NULL) == 0 && pthread_join(second, NULL) == 0 && unlink(name) == 0);
}

int main(int count, char **args) {
    HOLDS(count > 1);
    alarm(300); // a deadlock ends the program
    snprintf(name, sizeof name, "%s/x.dat", args[1]);
    snprintf(other, sizeof other, "%s/y.dat", args[1]);
    if (count > 2 && strcmp(args[2], "starts") == 0) {
        starts(args[1], 30);
        return 0;
    }
    closes();
    if (count > 2) return 0;
    settles();
    renames();
    forks();
    ends();
    starts(args[1], 60);
}
