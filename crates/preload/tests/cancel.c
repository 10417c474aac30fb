// Cancels threads in calls on a chosen file, and in those that libc serves. The argument is a
// folder. Everything must hold with and without the preload. As a library (LIBRARY) it comes before
// libc, and lets the program know of a close.
#define _GNU_SOURCE
#include <dlfcn.h>

#ifdef LIBRARY

int close(int fd) {
    void (*before)(void) = dlsym(RTLD_DEFAULT, "before_close");
    int (*real)(int) = dlsym(RTLD_NEXT, "close");
    if (before) before();
    return real(fd);
}

#else

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); exit(1); } } while (0)

#define ROUNDS 50
#define LEN 20000

static int file, ends[2];
static atomic_int writes;

static void *writes_on(void *argument) {
    static char bytes[LEN];
    (void)argument;
    for (char n = 1;; n++) {
        memset(bytes, n, LEN);
        HOLDS(pwrite(file, bytes, LEN, 0) == LEN);
        atomic_fetch_add(&writes, 1);
        HOLDS(fsync(file) == 0);
    }
}

static void *waits(void *argument) {
    char byte;
    (void)argument;
    HOLDS(read(ends[0], &byte, 1) == 1);
    return NULL;
}

static void is_cancelled(void *(*body)(void *), int after) {
    pthread_t thread;
    void *result;
    atomic_store(&writes, 0);
    HOLDS(pthread_create(&thread, NULL, body, NULL) == 0);
    while (atomic_load(&writes) < after)
        sched_yield();
    HOLDS(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
    HOLDS(result == PTHREAD_CANCELED);
}

static char name[512];
static _Thread_local int ends_at_close;

void before_close(void) {
    if (ends_at_close) HOLDS(pthread_cancel(pthread_self()) == 0);
}

// Is cancelled before the close.
static void *closes_late(void *argument) {
    int state;
    HOLDS(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state) == 0);
    HOLDS(pthread_cancel(pthread_self()) == 0 && pthread_setcancelstate(state, NULL) == 0);
    close(file);
    return argument;
}

// Is cancelled in the close.
static void *closes(void *argument) {
    ends_at_close = 1;
    close(file);
    pthread_testcancel();
    return argument;
}

// Is cancelled in a close of the library, if that is there.
static void *looks(void *argument) {
    struct stat found;
    ends_at_close = 1;
    HOLDS(lstat(name, &found) == 0);
    HOLDS(pthread_cancel(pthread_self()) == 0);
    pthread_testcancel();
    return argument;
}

static void ends_in(void *(*body)(void *)) {
    pthread_t thread;
    void *result;
    HOLDS(pthread_create(&thread, NULL, body, NULL) == 0 && pthread_join(thread, &result) == 0);
    HOLDS(result == PTHREAD_CANCELED);
}

static int open_descriptors(void) {
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    while (readdir(all) != NULL) count++;
    HOLDS(closedir(all) == 0);
    return count;
}

// A close happens as a whole, or not at all.
static void cancel_closes(void) {
    ends_in(closes_late);
    HOLDS(pwrite(file, "x", 1, 0) == 1);
    ends_in(closes);
    int is_open = fcntl(file, F_GETFD) >= 0;
    HOLDS((pwrite(file, "y", 1, 0) == 1) == is_open && (close(file) == 0) == is_open);
    int count = open_descriptors();
    ends_in(looks);
    HOLDS(open_descriptors() == count && (file = open(name, O_RDWR)) >= 0);
}

int main(int argc, char **argv) {
    char bytes[LEN];
    HOLDS(argc > 1 && snprintf(name, sizeof name, "%s/x.dat", argv[1]) > 0 && pipe(ends) == 0);
    HOLDS((file = open(name, O_RDWR | O_CREAT, 0600)) >= 0);
    for (int round = 0; round < ROUNDS; round++) {
        is_cancelled(writes_on, 1 + round % 7);
        HOLDS(pread(file, bytes, LEN, 0) == LEN && memcmp(bytes, bytes + 1, LEN - 1) == 0);
        is_cancelled(waits, 0);
    }
    cancel_closes();
    HOLDS(pwrite(file, "after", 5, 0) == 5 && close(file) == 0);
    return 0;
}

#endif
