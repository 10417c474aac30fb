// Calls that reach a file by other ways than `open` and `write`. The arguments are a folder and the
// name of a case. Everything must hold with and without the preload.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); exit(1); } } while (0)

static char bytes[256];

// The bytes that a descriptor finds, from the beginning of its file.
static int finds(int fd, const char *text) {
    memset(bytes, 0, sizeof bytes);
    return pread(fd, bytes, sizeof bytes - 1, 0) == (ssize_t)strlen(text) && strcmp(bytes, text) == 0;
}

static int holds(const char *name, const char *text) {
    int fd = open(name, O_RDONLY);
    return finds(fd, text) && close(fd) == 0;
}

static int print(int fd, const char *format, ...) {
    va_list list;
    va_start(list, format);
    int count = vdprintf(fd, format, list);
    va_end(list);
    return count;
}

// `dprintf` is a write.
static void formatted(void) {
    int fd = open("x.dat", O_RDWR | O_CREAT | O_APPEND, 0600), plain = open("plain", O_RDWR | O_CREAT, 0600);
    for (int n = 0; n < 2; n++) {
        int to = n ? plain : fd;
        HOLDS(dprintf(to, "%d %s %.2f %c %ld %s %.1f %d|", 7, "seven", 7.25, 'c', 8L, "eight", 8.5, 9) == 29);
        HOLDS(write(to, "+", 1) == 1 && print(to, "%s %g", "list", 0.5) == 8);
        HOLDS(finds(to, "7 seven 7.25 c 8 eight 8.5 9|+list 0.5"));
    }
    HOLDS(dprintf(999, "x") == -1 && errno == EBADF);
}

// A stream that appends tells the end from the start.
static void appending(void) {
    int fd = open("x.dat", O_RDWR | O_CREAT, 0600);
    HOLDS(write(fd, "12345", 5) == 5);
    FILE *file = fopen("x.dat", "a");
    HOLDS(ftell(file) == 5 && fputs("6", file) >= 0 && ftell(file) == 6 && fclose(file) == 0);
    file = fdopen(fd, "a");
    HOLDS(ftell(file) == 6 && fclose(file) == 0);
    file = fopen("x.dat", "a+");
    HOLDS(ftell(file) == 0 && fgetc(file) == '1' && fclose(file) == 0);
    // Without bytes the offset stays.
    fd = open("x.dat", O_RDWR | O_APPEND);
    HOLDS(lseek(fd, 2, SEEK_SET) == 2 && write(fd, "", 0) == 0 && lseek(fd, 0, SEEK_CUR) == 2);
}

// Calls by number open a file, move vectors, and copy.
static void numbers(void) {
    struct open_how how = {.flags = O_RDWR | O_CREAT, .mode = 0600};
    int fd = syscall(SYS_openat2, AT_FDCWD, "x.dat", &how, sizeof how), other = open("x.dat", O_RDWR);
    HOLDS(fd >= 0 && write(fd, "openat2", 7) == 7 && pwrite(other, "O", 1, 0) == 1 && pwrite(fd, "P", 1, 1) == 1);
    HOLDS(finds(fd, "OPenat2") && finds(other, "OPenat2"));
    how.flags = O_WRONLY | O_TRUNC;
    how.mode = 0;
    int third = syscall(SYS_openat2, AT_FDCWD, "x.dat", &how, sizeof how);
    HOLDS(third >= 0 && finds(fd, "") && lseek(fd, 0, SEEK_SET) == 0 && close(third) == 0 && close(other) == 0);
    struct iovec parts[2] = {{"ve", 2}, {"ctor", 4}};
    HOLDS(syscall(SYS_writev, fd, parts, 2) == 6 && syscall(SYS_pwritev, fd, parts, 2, 6L, 0L) == 6);
    HOLDS(syscall(SYS_pwritev2, fd, parts, 1, 10L, 0L, 0) == 2 && finds(fd, "vectorvectve"));
#ifdef SYS_creat
    HOLDS((other = syscall(SYS_creat, "y.dat", 0600)) >= 0 && write(other, "creat", 5) == 5);
    HOLDS((third = open("y.dat", O_RDWR)) >= 0 && pwrite(other, "C", 1, 0) == 1 && finds(third, "Creat"));
    HOLDS(close(third) == 0 && close(other) == 0);
#endif
    // A copy to a chosen file may be refused, but it does not go past it.
    int plain = open("plain", O_RDWR | O_CREAT, 0600);
    HOLDS(write(plain, "COPY", 4) == 4);
    long long from = 0, to = 0;
    if (syscall(SYS_copy_file_range, plain, &from, fd, &to, 4L, 0L) == -1) HOLDS(pwrite(fd, "COPY", 4, 0) == 4);
    HOLDS(finds(fd, "COPYorvectve"));
    HOLDS(ftruncate(plain, 0) == 0 && lseek(plain, 0, SEEK_SET) == 0);
    long long at = 0;
    if (syscall(SYS_sendfile, plain, fd, &at, 4L) == -1) HOLDS(write(plain, "COPY", 4) == 4);
    HOLDS(finds(plain, "COPY") && close(plain) == 0 && close(fd) == 0 && holds("x.dat", "COPYorvectve"));
}

// A time that a program gives stays, and companions get the mode of their file.
static void attributes(void) {
    struct stat found;
    struct timespec times[2] = {{1000, 0}, {2000, 0}};
    int fd = open("x.dat", O_RDWR | O_CREAT, 0644);
    HOLDS(write(fd, "bytes", 5) == 5 && futimens(fd, times) == 0 && close(fd) == 0);
    HOLDS(stat("x.dat", &found) == 0 && found.st_mtime == 2000 && holds("x.dat", "bytes"));
    HOLDS((fd = open("x.dat", O_RDWR)) >= 0 && pwrite(fd, "B", 1, 0) == 1);
    times[1].tv_sec = 3000;
    HOLDS(utimensat(AT_FDCWD, "x.dat", times, 0) == 0 && finds(fd, "Bytes") && close(fd) == 0);
    HOLDS(stat("x.dat", &found) == 0 && found.st_mtime == 3000);
    HOLDS((fd = open("x.dat", O_RDWR)) >= 0 && write(fd, "b", 1) == 1 && fchmod(fd, 0600) == 0);
    HOLDS(chown("x.dat", -1, getegid()) == 0 && write(fd, "ytes", 4) == 4 && fsync(fd) == 0);
    DIR *all = opendir(".");
    for (struct dirent *entry; (entry = readdir(all)) != NULL;)
        if (strncmp(entry->d_name, ".atomic-mmap", 12) == 0)
            HOLDS(stat(entry->d_name, &found) == 0 && (found.st_mode & 0777) == 0600);
    HOLDS(closedir(all) == 0 && chmod("x.dat", 0400) == 0 && write(fd, "!", 1) == 1 && close(fd) == 0);
    HOLDS(holds("x.dat", "bytes!"));
}

// A file without a name leaves nothing behind in its folder.
static void nameless(void) {
    int status, fd;
    HOLDS(mkdir("folder", 0700) == 0 && (fd = open("folder/x.dat", O_RDWR | O_CREAT, 0600)) >= 0);
    HOLDS(write(fd, "one", 3) == 3 && unlink("folder/x.dat") == 0 && rmdir("folder") == 0);
    HOLDS(write(fd, "two", 3) == 3 && fsync(fd) == 0 && finds(fd, "onetwo") && close(fd) == 0);
    pid_t child = fork();
    if (child == 0) {
        HOLDS((fd = open("y.dat", O_RDWR | O_CREAT, 0600)) >= 0 && write(fd, "one", 3) == 3 && link("y.dat", "z.dat") == 0);
        HOLDS(unlink("y.dat") == 0 && write(fd, "two", 3) == 3 && unlink("z.dat") == 0 && write(fd, "three", 5) == 5);
        kill(getpid(), SIGKILL);
    }
    HOLDS(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    // A program that takes the descriptor over finds all bytes.
    child = fork();
    if (child == 0) {
        HOLDS((fd = open("y.dat", O_RDWR | O_CREAT, 0600)) >= 0 && write(fd, "taken", 5) == 5 && unlink("y.dat") == 0);
        HOLDS(write(fd, " over", 5) == 5 && lseek(fd, 0, SEEK_SET) == 0 && dup2(fd, 0) == 0);
        char *args[] = {"sh", "-c", "test \"$(cat)\" = 'taken over'", NULL};
        execvp("sh", args);
    }
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
}

// Descriptors of a file follow it to the name of a chosen one.
static void renamed(void) {
    int plain = open("x.tmp", O_RDWR | O_CREAT | O_CLOEXEC, 0600), copy = dup(plain);
    HOLDS(write(plain, "renamed", 7) == 7 && rename("x.tmp", "x.dat") == 0);
    int fd = open("x.dat", O_RDWR);
    HOLDS(pwrite(fd, "R", 1, 0) == 1 && pwrite(plain, "E", 1, 1) == 1 && write(copy, "!", 1) == 1);
    HOLDS(finds(fd, "REnamed!") && finds(plain, "REnamed!") && lseek(plain, 0, SEEK_CUR) == 8);
    HOLDS(fcntl(plain, F_GETFD) == FD_CLOEXEC && fcntl(copy, F_GETFD) == 0);
    HOLDS(close(fd) == 0 && pwrite(plain, "N", 1, 2) == 1 && close(plain) == 0 && close(copy) == 0);
    HOLDS(holds("x.dat", "RENamed!"));
    char path[64];
    plain = open(".", O_TMPFILE | O_RDWR, 0600);
    snprintf(path, sizeof path, "/proc/self/fd/%d", plain);
    HOLDS(write(plain, "linked", 6) == 6 && linkat(AT_FDCWD, path, AT_FDCWD, "y.dat", AT_SYMLINK_FOLLOW) == 0);
    HOLDS((fd = open("y.dat", O_RDWR)) >= 0 && pwrite(plain, "L", 1, 0) == 1 && finds(fd, "Linked"));
}

// A descriptor that comes by a socket is one of the same file.
static void received(void) {
    int sockets[2], fd = open("x.dat", O_RDWR | O_CREAT, 0600), got;
    union { char room[CMSG_SPACE(sizeof(int))]; struct cmsghdr header; } control = {0};
    struct iovec part = {bytes, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    control.header = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof fd);
    HOLDS(socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets) == 0 && sendmsg(sockets[0], &message, 0) == 1);
    HOLDS(pwrite(fd, "sent", 4, 0) == 4 && recvmsg(sockets[1], &message, 0) == 1);
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    HOLDS(got != fd && finds(got, "sent") && pwrite(got, "S", 1, 0) == 1 && finds(fd, "Sent"));
    HOLDS(close(got) == 0 && close(fd) == 0 && holds("x.dat", "Sent"));
}

static volatile sig_atomic_t handled;

static void handle(int signal) {
    (void)signal;
    handled++;
}

// A signal that the program blocks waits, whatever threads the library has.
static void signals(void) {
    static char block[4096];
    sigset_t blocked, pending;
    int fd = open("x.dat", O_RDWR | O_CREAT, 0600), got;
    for (int n = 0; n < 300; n++)
        HOLDS(pwrite(fd, block, sizeof block, n * 7919 % 200 * 4096) == sizeof block && (n % 3 || fsync(fd) == 0));
    signal(SIGUSR1, handle);
    HOLDS(sigemptyset(&blocked) == 0 && sigaddset(&blocked, SIGUSR1) == 0 && sigaddset(&blocked, SIGUSR2) == 0);
    HOLDS(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0 && kill(getpid(), SIGUSR1) == 0 && kill(getpid(), SIGUSR2) == 0);
    usleep(20000);
    HOLDS(handled == 0 && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1) == 1);
    HOLDS(sigwait(&blocked, &got) == 0 && got == SIGUSR1 && sigwait(&blocked, &got) == 0 && got == SIGUSR2);
}

// Returns where another process finds a lock.
static off_t locked_at(int fd) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int status;
    pid_t child = fork();
    if (child == 0) {
        HOLDS(fcntl(fd, F_GETLK, &lock) == 0 && lock.l_whence == SEEK_SET);
        _exit(lock.l_type == F_UNLCK ? 99 : lock.l_start);
    }
    HOLDS(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

// A lock may have its place by the offset, and by the end of the file.
static void locks(void) {
    int fd = open("x.dat", O_RDWR | O_CREAT, 0600);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = -1, .l_len = 2};
    HOLDS(write(fd, "0123456789", 10) == 10 && lseek(fd, 4, SEEK_SET) == 4 && fcntl(fd, F_SETLK, &lock) == 0);
    HOLDS(lock.l_start == -1 && lock.l_whence == SEEK_CUR && locked_at(fd) == 3);
    lock.l_type = F_UNLCK;
    HOLDS(fcntl(fd, F_SETLK, &lock) == 0 && locked_at(fd) == 99);
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -3};
    HOLDS(fcntl(fd, F_OFD_SETLK, &lock) == 0 && locked_at(fd) == 7);
    lock.l_type = F_UNLCK;
    HOLDS(fcntl(fd, F_OFD_SETLK, &lock) == 0 && locked_at(fd) == 99);
    HOLDS(lockf(fd, F_TEST, 2) == 0 && lockf(fd, F_TLOCK, 2) == 0 && locked_at(fd) == 4 && lockf(fd, F_TEST, 2) == 0);
    HOLDS(lseek(fd, 4, SEEK_SET) == 4 && lockf(fd, F_ULOCK, 2) == 0 && locked_at(fd) == 99);
    lock = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_CUR, .l_start = -5};
    HOLDS(fcntl(fd, F_SETLK, &lock) == -1 && errno == EINVAL && lockf(fd, 17, 0) == -1 && errno == EINVAL);
}

int main(int count, char **args) {
    HOLDS(count == 3 && chdir(args[1]) == 0);
    const struct { const char *name; void (*run)(void); } cases[] = {
        {"formatted", formatted}, {"appending", appending}, {"numbers", numbers},
        {"attributes", attributes}, {"nameless", nameless}, {"renamed", renamed}, {"signals", signals}, {"received", received},
        {"locks", locks},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++)
        if (strcmp(args[2], cases[n].name) == 0) return cases[n].run(), 0;
    HOLDS(!"a case");
}
