// Calls on mappings that fail, and ends of programs. The arguments are a folder and a case.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); exit(1); } } while (0)
#define RW (PROT_READ | PROT_WRITE)

static char name[512], other[512], folder[400];
static size_t page;

static int sized(const char *path, size_t pages) {
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    HOLDS(fd >= 0 && ftruncate(fd, pages * page) == 0);
    return fd;
}

static char *map(int fd, size_t pages, size_t from) {
    char *memory = mmap(NULL, pages * page, RW, MAP_SHARED, fd, from * page);
    HOLDS(memory != MAP_FAILED);
    return memory;
}

static int byte_of(const char *path, off_t at) {
    unsigned char byte = 0;
    int fd = open(path, O_RDONLY);
    HOLDS(fd >= 0 && pread(fd, &byte, 1, at) == 1 && close(fd) == 0);
    return byte;
}

// A call that fails leaves the mapping as it is.
static void fixed(void) {
    int fd = sized(name, 8), second = sized(other, 2);
    int reader = open(other, O_RDONLY), writer = open(other, O_WRONLY);
    char *m = map(fd, 2, 0), *elsewhere = map(fd, 2, 4), byte = '0';
    (void)elsewhere;
    struct { int access, flags, fd; size_t from; } calls[] = {
        {RW, MAP_SHARED, 9999, 0},
        {RW, MAP_SHARED, reader, 0},
        {RW, MAP_ANONYMOUS, -1, 0},
        {RW, MAP_SHARED, fd, 5}, // it overlaps
        {RW, MAP_PRIVATE, writer, 0},
        {RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0},
        {RW, MAP_SHARED | MAP_FIXED_NOREPLACE, second, 0},
    };
    for (size_t n = 0; n < sizeof calls / sizeof *calls; n++) {
        m[page] = ++byte;
        HOLDS(mmap(m + page, page, calls[n].access, calls[n].flags | MAP_FIXED, calls[n].fd, calls[n].from * page) == MAP_FAILED);
        HOLDS(m[page] == byte);
        m[page + 1] = byte;
        HOLDS(msync(m, 2 * page, MS_SYNC) == 0);
        HOLDS(byte_of(name, page) == byte && byte_of(name, page + 1) == byte);
    }
    // Other memory stays as it is, too.
    char *plain = mmap(NULL, page, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    plain[0] = 'p';
    HOLDS(mmap(plain, page, RW, MAP_PRIVATE | MAP_FIXED, writer, 0) == MAP_FAILED && errno == EACCES);
    HOLDS(mmap(plain, page, RW, MAP_SHARED | MAP_FIXED, fd, 5 * page) == MAP_FAILED && errno == ENODEV);
    HOLDS(plain[0] == 'p');
    // Calls that succeed: the mapping over itself, and a copy over it.
    m[0] = 's';
    HOLDS(mmap(m, 2 * page, RW, MAP_SHARED | MAP_FIXED, fd, 0) == m && m[0] == 's');
    m[1] = 't';
    HOLDS(mmap(m, page, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == m && m[0] == 's' && m[1] == 't');
    m[page] = 'u';
    HOLDS(munmap(m, 2 * page) == 0 && byte_of(name, 1) == 't' && byte_of(name, page) == 'u');
}

// Nothing ends before everything is checked.
static void several(void) {
    int fd = sized(name, 4);
    char *m = mmap(NULL, 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HOLDS(mmap(m, page, RW, MAP_SHARED | MAP_FIXED, fd, 0) == m);
    HOLDS(mmap(m + page, 2 * page, RW, MAP_SHARED | MAP_FIXED, fd, page) == m + page);
    HOLDS(map(fd, 2, 1) == m + page); // a second time
    HOLDS(munmap(m, 2 * page) == -1 && errno == EINVAL);
    m[0] = 'a';
    HOLDS(msync(m, page, MS_SYNC) == 0 && byte_of(name, 0) == 'a');
}

// Advice takes effect beside a mapping.
static void advice(void) {
    int fd = sized(name, 4);
    char *m = mmap(NULL, 4 * page, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    m[0] = m[2 * page] = m[3 * page] = 'x';
    HOLDS(mmap(m + page, page, RW, MAP_SHARED | MAP_FIXED, fd, 0) == m + page);
    m[page] = 'f';
    HOLDS(madvise(m, 3 * page, MADV_DONTNEED) == 0);
    HOLDS(m[0] == 0 && m[page] == 'f' && m[2 * page] == 0 && m[3 * page] == 'x');
    HOLDS(madvise(m + 1, 3 * page, MADV_DONTNEED) == -1 && errno == EINVAL);
}

// Runs `body` in a child with a mapping of two pages, which ends as it likes.
static void in_child(void (*body)(char *m)) {
    pid_t child = fork();
    if (child == 0) body(map(sized(name, 2), 2, 0));
    int status;
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    HOLDS(byte_of(name, page) == 's');
    HOLDS(unlink(name) == 0);
}

static void fail_to_exec(char *m) {
    char *args[] = {"none", NULL};
    HOLDS(execv("/no/such/program", args) == -1);
    m[page] = 's';
}

static void exec_and_exit(char *m) {
    fail_to_exec(m);
    exit(0);
}

static void exec_and_leave(char *m) {
    fail_to_exec(m);
    _exit(0);
}

static void exec_twice(char *m) {
    char *args[] = {"true", NULL};
    fail_to_exec(m);
    execv("/bin/true", args);
    _exit(1);
}

static void execs(void) {
    in_child(exec_and_exit);
    in_child(exec_and_leave);
    in_child(exec_twice);
}

// Makes a durable point, which takes longer than a second.
static void *publish(void *m) {
    msync(m, page, MS_SYNC);
    pause(); // the end has closed the file
    return NULL;
}

static void exit_beside(char *m) {
    m[0] = 'b';
    char byte = 0;
    int fd = open(name, O_RDWR);
    pthread_t thread;
    HOLDS(pthread_create(&thread, NULL, publish, m) == 0);
    while (byte != 'b') HOLDS(pread(fd, &byte, 1, 0) == 1);
    m[page] = 's';
    exit(0);
}

static void beside(void) {
    in_child(exit_beside);
}

static void become_a_daemon(char *m) {
    m[page] = 's';
    HOLDS(daemon(1, 1) == 0);
    _exit(0);
}

static void exit_by_number(char *m) {
    m[page] = 's';
    syscall(SYS_exit_group, 0);
}

static void ends(void) {
    in_child(become_a_daemon);
    in_child(exit_by_number);
}

// Many mappings leave the program its descriptors.
static void descriptors(void) {
    struct rlimit limit = {128, 128};
    HOLDS(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int fd = sized(name, 200);
    char *maps[100];
    for (int n = 0; n < 100; n++) (maps[n] = map(fd, 1, 2 * n))[0] = 'd';
    for (int n = 0; n < 80; n++) {
        int copy = dup(1);
        HOLDS(copy >= 0 && copy < 96);
    }
    HOLDS(msync(maps[0], page, MS_SYNC) == 0 && msync(maps[99], page, MS_SYNC) == 0);
    for (int n = 0; n < 100; n++) HOLDS(munmap(maps[n], page) == 0 && pread(fd, maps, 1, 2 * n * page) == 1 && *(char *)maps == 'd');
}

static void *publish_it(void *m) {
    return (void *)(long)msync(m, 2 * page, MS_SYNC);
}

// A thread with a small stack publishes. Without optimization the engine takes most of it.
static void stack(void) {
    char *m = map(sized(name, 2), 2, 0);
    m[page] = 's';
    pthread_attr_t small;
    pthread_t thread;
    void *result;
    HOLDS(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 40 << 10) == 0);
    HOLDS(pthread_create(&thread, &small, publish_it, m) == 0);
    HOLDS(pthread_join(thread, &result) == 0 && result == NULL && byte_of(name, page) == 's');
}

// Without memory a publication fails, and the next one has its changes.
static void memory(void) {
    size_t pages = 16384, size = 0;
    char *m = map(sized(name, pages), pages, 0);
    memset(m, 'm', pages * page);
    FILE *told = fopen("/proc/self/statm", "r");
    HOLDS(told && fscanf(told, "%zu", &size) == 1 && fclose(told) == 0);
    struct rlimit before, limit;
    HOLDS(getrlimit(RLIMIT_AS, &before) == 0);
    limit = before;
    limit.rlim_cur = size * page + (16 << 20);
    HOLDS(setrlimit(RLIMIT_AS, &limit) == 0);
    HOLDS(msync(m, pages * page, MS_SYNC) == -1 && errno == ENOMEM && byte_of(name, 0) == 0);
    HOLDS(setrlimit(RLIMIT_AS, &before) == 0);
    HOLDS(msync(m, pages * page, MS_SYNC) == 0);
    HOLDS(byte_of(name, 0) == 'm' && byte_of(name, pages * page - 1) == 'm');
}

// In a folder that cannot be read, the engine syncs the file system.
static void unreadable(void) {
    char path[500], text[8] = "second";
    chmod(folder, 0777);
    snprintf(path, sizeof path, "%s/log", folder);
    chmod(path, 0666);
    snprintf(path, sizeof path, "%s/folder", folder);
    HOLDS(mkdir(path, 0777) == 0 && chmod(path, 0333) == 0);
    HOLDS(getuid() != 0 || (setgid(65534) == 0 && setuid(65534) == 0));
    char *m = map(sized(name, 1), 1, 0);
    m[0] = 'f';
    snprintf(path, sizeof path, "%s/folder/x.dat", folder);
    int fd = sized(path, 1);
    HOLDS(pwrite(fd, text, 6, 0) == 6 && fsync(fd) == 0);
    char *n = map(fd, 1, 0);
    n[0] = 'S';
    HOLDS(msync(n, page, MS_SYNC) == 0 && ftruncate(fd, 3000 * page) == 0);
    sync();
    HOLDS(syncfs(fd) == 0 && munmap(n, page) == 0 && close(fd) == 0 && byte_of(path, 0) == 'S');
    HOLDS(unlink(path) == 0 && byte_of(name, 0) == 'f');
    snprintf(path, sizeof path, "%s/folder", folder);
    chmod(path, 0700); // no matter for root
}

int main(int count, char **args) {
    HOLDS(count == 3);
    alarm(300); // a deadlock ends the program
    page = sysconf(_SC_PAGESIZE);
    snprintf(folder, sizeof folder, "%s", args[1]);
    snprintf(name, sizeof name, "%s/x.dat", folder);
    snprintf(other, sizeof other, "%s/y.dat", folder);
    struct { const char *name; void (*run)(void); } cases[] = {
        {"fixed", fixed}, {"several", several}, {"advice", advice}, {"execs", execs}, {"beside", beside},
        {"unreadable", unreadable}, {"ends", ends}, {"descriptors", descriptors}, {"stack", stack},
        {"memory", memory},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        if (strcmp(cases[n].name, args[2]) == 0) {
            cases[n].run();
            return 0;
        }
    }
    return 2;
}
