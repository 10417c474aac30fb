// Shared writable mappings of one file. The arguments are a folder and, with the preload, "yes".
// Everything else must hold with and without it. With "records", a file and a number, the program
// maps records and publishes them until it is killed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); exit(1); } } while (0)

static char name[512], other[512];
static int preloaded;
static size_t page;

static char *map(int fd, size_t pages, size_t from) {
    char *memory = mmap(NULL, pages * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, from * page);
    HOLDS(memory != MAP_FAILED);
    return memory;
}

// The byte of the file, as another descriptor reads it.
static int byte_at(off_t at) {
    unsigned char byte = 0;
    int fd = open(name, O_RDONLY);
    HOLDS(fd >= 0 && pread(fd, &byte, 1, at) == 1 && close(fd) == 0);
    return byte;
}

static int has(const char *text, off_t at) {
    for (; *text; text++, at++)
        if (byte_at(at) != (unsigned char)*text) return 0;
    return 1;
}

static off_t length(void) {
    struct stat found;
    HOLDS(stat(name, &found) == 0);
    return found.st_size;
}

static void publications(void) {
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    HOLDS(ftruncate(fd, 3 * page + 100) == 0 && pwrite(fd, "file", 4, page) == 4);
    char *m = map(fd, 4, 0);
    HOLDS(memcmp(m + page, "file", 4) == 0);
    memcpy(m, "one", 3);
    memcpy(m + 2 * page - 2, "over", 4);
    m[3 * page + 99] = 'e';
    m[3 * page + 100] = 'x'; // past the end
    HOLDS(!preloaded || (byte_at(0) == 0 && byte_at(3 * page + 99) == 0));
    HOLDS(msync(m, 4 * page, MS_SYNC) == 0);
    HOLDS(has("one", 0) && has("over", 2 * page - 2) && has("e", 3 * page + 99) && length() == (off_t)(3 * page + 100));
    // The pages of a range, and no more.
    m[0] = 'O';
    m[page] = 'F';
    HOLDS(msync(m + page, 1, MS_ASYNC | MS_INVALIDATE) == 0 && has("F", page) && (!preloaded || has("o", 0)));
    HOLDS(msync(m + 2 * page, page, MS_SYNC) == 0 && (!preloaded || has("o", 0)));
    HOLDS(fdatasync(fd) == 0 && has("O", 0));
    m[1] = 'N';
    HOLDS(syscall(SYS_msync, m, page, MS_SYNC) == 0 && has("ON", 0));
    char *n = (char *)syscall(SYS_mmap, NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    n[1] = 'n';
    HOLDS(m[1] == 'n' && (!preloaded || has("N", 1)) && munmap(n, 4 * page) == 0 && has("n", 1));
    HOLDS(msync(m + 1, page, MS_SYNC) == -1 && errno == EINVAL);
    HOLDS(msync(m, page, MS_SYNC | MS_ASYNC) == -1 && errno == EINVAL);
    HOLDS(munmap(m + 1, page) == -1 && errno == EINVAL && munmap(m, 0) == -1 && errno == EINVAL);
    HOLDS(munmap(m, SIZE_MAX) == -1 && errno == EINVAL && msync(m, 0, MS_SYNC) == 0);
    m[2] = 'E';
    HOLDS(close(fd) == 0 && msync(m, page, MS_SYNC) == 0 && has("OnE", 0)); // the file stays open
    m[3] = '!';
    HOLDS(munmap(m, 4 * page) == 0 && has("OnE!", 0) && unlink(name) == 0);
}

// Other calls on the file beside its mapping.
static void beside(void) {
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    HOLDS(ftruncate(fd, 3 * page + 100) == 0);
    char *m = map(fd, 5, 0);
    m[0] = 'm';
    HOLDS(pwrite(fd, "write", 5, 1) == 5 && memcmp(m, "mwrite", 6) == 0);
    m[3 * page + 150] = 'x';
    HOLDS(pwrite(fd, "end", 3, 3 * page + 200) == 3 && memcmp(m + 3 * page + 200, "end", 3) == 0);
    HOLDS(!preloaded || m[3 * page + 150] == 0);
    int end = open(name, O_WRONLY | O_APPEND);
    HOLDS(write(end, "more", 4) == 4 && memcmp(m + 3 * page + 200, "endmore", 7) == 0 && close(end) == 0);
    // Shorter, and longer again: zeroes.
    m[page + 4] = m[page + 5] = m[2 * page] = 't';
    HOLDS(ftruncate(fd, page + 5) == 0 && m[page + 5] == 0 && m[page + 4] == 't');
    HOLDS(truncate(name, 3 * page) == 0 && m[page + 5] == 0 && m[2 * page] == 0);
    if (preloaded) m[4 * page + 1] = 'x'; // past the end
    HOLDS(fallocate(fd, 0, 0, 5 * page) == 0 && m[4 * page + 1] == 0);
    m[4 * page] = 'l';
    HOLDS(msync(m, 5 * page, MS_SYNC) == 0 && has("mwrite", 0) && has("t", page + 4) && has("l", 4 * page));
    // Advice takes no bytes away.
    m[0] = 'a';
    HOLDS(madvise(m, page, MADV_WILLNEED) == 0 && madvise(m, 2 * page, MADV_DONTNEED) == 0 && m[0] == 'a');
    HOLDS(madvise(m, page, MADV_SEQUENTIAL) == 0 && madvise(m, page, MADV_FREE) == -1 && errno == EINVAL);
    HOLDS(mprotect(m, page, PROT_READ | PROT_WRITE) == 0);
    // The file opens again after an exec that fails, and a child runs meanwhile.
    char *none[] = {"none", NULL};
    HOLDS(execv("/no/such/program", none) == -1 && has("a", 0));
    m[0] = 'b';
    pid_t child = vfork();
    if (child == 0) _exit(open(name, O_RDWR) == -1 && errno == EBUSY);
    int status;
    HOLDS(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == preloaded);
    HOLDS(msync(m, page, MS_SYNC) == 0 && has("bwrite", 0));
    HOLDS(munmap(m, 5 * page) == 0 && close(fd) == 0 && unlink(name) == 0);
}

// Parts of a mapping, and several ones.
static void parts(void) {
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600), second = open(other, O_RDWR | O_CREAT, 0600);
    HOLDS(ftruncate(fd, 6 * page) == 0 && ftruncate(second, page) == 0);
    char *m = map(fd, 4, 1), *last = map(fd, 1, 5);
    m[0] = '1', m[page] = '2', m[2 * page] = '3', last[0] = '5';
    HOLDS(munmap(m + page, page) == 0 && has("2", 2 * page));
    HOLDS(msync(m, 4 * page, MS_SYNC) == -1 && errno == ENOMEM); // a hole
    HOLDS(msync(m + 2 * page, page, MS_SYNC) == 0 && has("3", 3 * page) && (!preloaded || byte_at(page) == 0));
    HOLDS(pwrite(fd, "w", 1, 4 * page) == 1 && m[3 * page] == 'w');
    HOLDS(fsync(fd) == 0 && has("1", page) && has("5", 5 * page));
    // Another memory takes the place of a page, and the file that of a part of a mapping.
    m[2 * page] = 'r';
    HOLDS(mmap(m + 2 * page, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + 2 * page);
    HOLDS(has("r", 3 * page) && m[2 * page] == 0);
    m[2 * page] = 'n'; // not of the file
    m[3 * page] = 's';
    HOLDS(mmap(m + 3 * page, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, second, 0) == m + 3 * page);
    HOLDS(has("s", 4 * page) && m[3 * page] == 0);
    m[3 * page] = 'o', m[0] = 'u';
    HOLDS(munmap(m, 4 * page) == 0 && has("u", page) && has("r", 3 * page) && has("s", 4 * page));
    char byte;
    HOLDS(pread(second, &byte, 1, 0) == 1 && byte == 'o');
    // Each part keeps the file open.
    HOLDS(munmap(last, page) == 0 && close(second) == 0 && unlink(other) == 0);
    m = map(fd, 3, 0);
    HOLDS(close(fd) == 0 && munmap(m + page, page) == 0 && munmap(m, page) == 0);
    m[2 * page] = 'p';
    HOLDS(msync(m + 2 * page, page, MS_SYNC) == 0 && has("p", 2 * page));
    HOLDS(munmap(m + 2 * page, page) == 0 && unlink(name) == 0);
}

// Two mappings of the same pages are two names for the same bytes.
static void twice(void) {
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    HOLDS(ftruncate(fd, 3 * page) == 0);
    char *one = map(fd, 2, 1), *two = map(fd, 2, 1);
    one[page] = 'w';
    HOLDS(two[page] == 'w' && msync(two, 2 * page, MS_SYNC) == 0 && has("w", 2 * page));
    HOLDS(!preloaded || (munmap(one, page) == -1 && errno == EINVAL));
    two[1] = 't';
    pid_t child = fork();
    if (child == 0) _exit(munmap(one, 2 * page) || two[1] != 't' || munmap(two, 2 * page));
    int status;
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    HOLDS(munmap(one, 2 * page) == 0 && has("t", page + 1) && (two[1] = 'o'));
    HOLDS(munmap(two, 2 * page) == 0 && has("o", page + 1) && close(fd) == 0 && unlink(name) == 0);
}

// The end of a program publishes, except for a kill.
static void ends(void) {
    for (int way = 0; way < 6; way++) {
        pid_t child = fork();
        if (child == 0) {
            int fd = open(name, O_RDWR | O_CREAT, 0600);
            HOLDS(ftruncate(fd, 2 * page) == 0);
            char *m = map(fd, 2, 0), *args[] = {"true", NULL};
            m[0] = m[page] = '0' + way;
            if (way == 0) exit(0);
            if (way == 1) _exit(0);
            if (way == 2) quick_exit(0);
            if (way == 3) execv("/bin/true", args);
            if (way == 4) execl("/bin/true", "true", NULL);
            HOLDS(msync(m, 2 * page, MS_SYNC) == 0);
            m[0] = 'k';
            kill(getpid(), SIGKILL);
        }
        int status;
        HOLDS(waitpid(child, &status, 0) == child && (status == 0 || (way == 5 && WIFSIGNALED(status))));
        HOLDS(byte_at(page) == '0' + way && (byte_at(0) == '0' + way || (way == 5 && !preloaded)));
    }
    HOLDS(unlink(name) == 0);
}

#define COUNTERS 16
static char *counters;
static atomic_int is_over;

static void *count(void *unused) {
    (void)unused;
    for (long n = 0; !is_over; n++)
        (*(volatile long *)(counters + n % COUNTERS * page + 8))++;
    return NULL;
}

// Maps the page behind the counters again and again, and counts there.
static void *count_anew(void *unused) {
    (void)unused;
    int fd = open(name, O_RDWR);
    for (int round = 0; round < 200; round++) {
        char *m = map(fd, 1, COUNTERS);
        ++*(long *)m;
        HOLDS(munmap(m, page) == 0);
    }
    HOLDS(close(fd) == 0);
    return NULL;
}

// No store is lost that a thread makes while others publish, map and fork.
static void threads(void) {
    int fd = open(name, O_RDWR | O_CREAT, 0600), status;
    HOLDS(ftruncate(fd, (COUNTERS + 1) * page) == 0);
    counters = map(fd, COUNTERS, 0);
    pthread_t threads[2];
    HOLDS(pthread_create(&threads[0], NULL, count, NULL) == 0);
    HOLDS(pthread_create(&threads[1], NULL, count_anew, NULL) == 0);
    for (int round = 0; round < 200; round++) {
        HOLDS(msync(counters, COUNTERS * page, MS_ASYNC) == 0);
        HOLDS(pwrite(fd, &round, sizeof round, round % COUNTERS * page) == sizeof round);
        pid_t child = round % 20 ? 0 : fork();
        if (child == 0 && round % 20 == 0) _exit(munmap(counters, COUNTERS * page));
        HOLDS(round % 20 || (waitpid(child, &status, 0) == child && status == 0));
    }
    HOLDS(pthread_join(threads[1], NULL) == 0);
    is_over = 1;
    HOLDS(pthread_join(threads[0], NULL) == 0 && msync(counters, COUNTERS * page, MS_SYNC) == 0);
    char *bytes = malloc(COUNTERS * page);
    HOLDS(pread(fd, bytes, COUNTERS * page, 0) == (ssize_t)(COUNTERS * page));
    HOLDS(memcmp(bytes, counters, COUNTERS * page) == 0);
    HOLDS(pread(fd, bytes, 8, COUNTERS * page) == 8 && *(long *)bytes == 200);
    HOLDS(munmap(counters, COUNTERS * page) == 0 && close(fd) == 0 && unlink(name) == 0);
}

static void errors(void) {
    int fd = open(name, O_RDWR | O_CREAT, 0600), reader = open(name, O_RDONLY);
    HOLDS(ftruncate(fd, 2 * page) == 0);
    int access = PROT_READ | PROT_WRITE;
    HOLDS(mmap(NULL, page, access, MAP_SHARED, reader, 0) == MAP_FAILED && errno == EACCES);
    HOLDS(mmap(NULL, page, access, MAP_SHARED, fd, 7) == MAP_FAILED && errno == EINVAL);
    HOLDS(mmap(NULL, 0, access, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EINVAL);
    if (preloaded) {
        char *m = map(fd, 1, 0);
        HOLDS(mmap(NULL, 2 * page, access, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV);
        HOLDS(mmap(NULL, page, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV);
        HOLDS(mremap(m, page, 2 * page, MREMAP_MAYMOVE) == MAP_FAILED && errno == ENOMEM);
        char *moved = mmap(NULL, page, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        HOLDS(mremap(moved, page, page, MREMAP_MAYMOVE | MREMAP_FIXED, m) == MAP_FAILED && errno == ENOMEM);
        HOLDS(mprotect(m, page, PROT_READ) == -1 && errno == EACCES);
        HOLDS(madvise(m, page, MADV_REMOVE) == -1 && errno == EINVAL);
        HOLDS(rename(name, other) == -1 && errno == EBUSY);
        int pipes[2];
        char byte;
        m[0] = 'p';
        HOLDS(fsync(fd) == 0 && pipe(pipes) == 0);
        pid_t child = fork();
        if (child == 0) {
            close(pipes[1]);
            HOLDS(read(pipes[0], &byte, 1) == 0 && m[1] == 0);
            m[0] = 'c';
            HOLDS(msync(m, page, MS_SYNC) == -1 && errno == EIO);
            HOLDS(mprotect(m, page, PROT_READ) == 0 && munmap(m, page) == 0);
            // Another memory has the addresses.
            HOLDS(mmap(m, page, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m);
            HOLDS(msync(m, page, MS_SYNC) == 0);
            exit(0);
        }
        m[1] = 'q'; // the page is the child's, too
        HOLDS(msync(m, page, MS_SYNC) == 0 && has("pq", 0) && close(pipes[0]) == 0 && close(pipes[1]) == 0);
        int status;
        HOLDS(waitpid(child, &status, 0) == child && status == 0);
        HOLDS(memcmp(m, "pq", 3) == 0 && munmap(m, page) == 0 && has("pq", 0) && byte_at(2) == 0);
        HOLDS(rename(name, other) == 0 && rename(other, name) == 0);
    }
    HOLDS(close(fd) == 0 && close(reader) == 0 && unlink(name) == 0);
}

#define RECORDS 5
#define WORDS 700

// Publishes the next number in all records, which cross pages, until a kill.
static void records(const char *path, long n) {
    int fd = open(path, O_RDWR);
    struct stat found;
    HOLDS(fstat(fd, &found) == 0);
    char *m = map(fd, (found.st_size + page - 1) / page, 0);
    for (;; n++) {
        for (int record = 0; record < RECORDS; record++) {
            long *words = (long *)(m + 1000 + record * 9000);
            for (int word = 0; word < WORDS; word++) words[word] = n;
        }
        HOLDS(msync(m, found.st_size, MS_SYNC) == 0);
        printf(">%ld\n", n);
        fflush(stdout);
    }
}

int main(int count, char **args) {
    HOLDS(count > 1);
    alarm(300); // a deadlock ends the program
    page = sysconf(_SC_PAGESIZE);
    if (count > 3) records(args[2], atol(args[3]));
    preloaded = count > 2 && strcmp(args[2], "yes") == 0;
    snprintf(name, sizeof name, "%s/x.dat", args[1]);
    snprintf(other, sizeof other, "%s/y.dat", args[1]);
    publications();
    beside();
    parts();
    twice();
    ends();
    threads();
    errors();
}
