// Threads that start programs at once. As a library (LIBRARY) it comes before libc, and lets the
// program know of a start when its descriptors are ready. Everything must hold with and without the
// preload. The argument is a folder.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <spawn.h>

#ifdef LIBRARY

int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const args[], char *const env[]) {
    void (*before)(void) = dlsym(RTLD_DEFAULT, "before_start");
    __typeof__(posix_spawn) *real = dlsym(RTLD_NEXT, "posix_spawn");
    if (before) before();
    return real(pid, path, actions, attributes, args, env);
}

#else

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); exit(1); } } while (0)

static sem_t ready, go;
static __thread int waits;

void before_start(void) {
    if (waits) HOLDS(sem_post(&ready) == 0 && sem_wait(&go) == 0);
}

static void say(char *word) {
    char *args[] = {"/bin/echo", word, NULL};
    pid_t child;
    int status;
    HOLDS(posix_spawn(&child, args[0], NULL, NULL, args, environ) == 0);
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
}

static void *say_late(void *word) {
    waits = 1;
    say(word);
    return NULL;
}

static void *wait_long(void *unused) {
    system("echo >go; exec sleep 1000");
    return unused;
}

// The program of a child does not get a descriptor that is to end with this one.
static void is_not_handed_on(int fd) {
    char line[64];
    snprintf(line, sizeof line, "test ! -e /proc/self/fd/%d", fd);
    HOLDS(fcntl(fd, F_SETFD, FD_CLOEXEC) == 0 && system(line) == 0);
    HOLDS(fcntl(fd, F_SETFD, 0) == 0);
}

int main(int count, char **args) {
    HOLDS(count == 2 && chdir(args[1]) == 0 && sem_init(&ready, 0, 0) == 0 && sem_init(&go, 0, 0) == 0);
    int fd = open("x.dat", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), status;
    HOLDS(fd >= 0 && dup2(fd, 1) == 1 && dup2(fd, 9) == 9);
    pthread_t late, cancelled;
    void *result;
    HOLDS(pthread_create(&late, NULL, say_late, "late") == 0 && sem_wait(&ready) == 0);

    // Another start ends while the descriptors of the first one are ready.
    say("early");
    // A child has no part in the start of its parent.
    pid_t child = fork();
    if (child == 0) {
        is_not_handed_on(9);
        _exit(0);
    }
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    HOLDS(sem_post(&go) == 0 && pthread_join(late, NULL) == 0);

    // A start that is cancelled ends as well.
    HOLDS(mkfifo("go", 0600) == 0 && pthread_create(&cancelled, NULL, wait_long, NULL) == 0);
    int pipe = open("go", O_RDONLY);
    HOLDS(pipe >= 0 && pthread_cancel(cancelled) == 0 && pthread_join(cancelled, &result) == 0);
    HOLDS(result == PTHREAD_CANCELED && close(pipe) == 0 && unlink("go") == 0);
    is_not_handed_on(9);

    char bytes[32] = {0};
    HOLDS(pread(fd, bytes, sizeof bytes, 0) == 11 && strcmp(bytes, "early\nlate\n") == 0);
    return 0;
}

#endif
