// Keeps the thread that completes files from getting disk space, and waits until that has failed
// twice. The file `x.dat` is chosen, and `log` is the log. Ends with 77 without filters of calls.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); exit(1); } } while (0)

static int fd;

// The library starts its thread with the first chosen file. A thread has the filters of the one that
// has started it.
static void *open_filtered(void *unused) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fallocate, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSPC),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof steps / sizeof *steps, .filter = steps};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) exit(77);
    HOLDS((fd = open("x.dat", O_RDWR)) >= 0);
    return unused;
}

static int lines(void) {
    int count = 0;
    FILE *log = fopen("log", "r");
    for (int c; log != NULL && (c = getc(log)) != EOF;) count += c == '\n';
    if (log != NULL) HOLDS(fclose(log) == 0);
    return count;
}

int main(void) {
    static char bytes[65536];
    pthread_t thread;
    memset(bytes, 'b', sizeof bytes);
    alarm(300);
    HOLDS(pthread_create(&thread, NULL, open_filtered, NULL) == 0 && pthread_join(thread, NULL) == 0);
    HOLDS(pwrite(fd, bytes, sizeof bytes, 0) == sizeof bytes);
    while (lines() < 2) usleep(1000);
    HOLDS(close(fd) == 0);
    return 0;
}
