// The calls of libc on one file. The arguments are a folder and, with the preload, "yes": then
// refusals are expected as well. Everything else must hold with and without it. With a last word
// "any", files of any name are chosen.
#define _GNU_SOURCE
#include <aio.h>
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno); exit(1); } } while (0)

static char name[512], other[512];
static int preloaded;

static off_t length(void) {
    struct stat found;
    HOLDS(stat(name, &found) == 0);
    return found.st_size;
}

static void holds(const char *text) {
    char bytes[256] = {0};
    int fd = open(name, O_RDONLY);
    HOLDS(fd >= 0);
    HOLDS(read(fd, bytes, sizeof bytes) == (ssize_t)strlen(text));
    HOLDS(strcmp(bytes, text) == 0);
    HOLDS(close(fd) == 0);
}

static void data(void) {
    int lowest = dup(0); // 3, or more if the caller has left descriptors open
    HOLDS(close(lowest) == 0);
    int fd = open(name, O_RDWR | O_CREAT | O_EXCL, 0640);
    HOLDS(fd == lowest); // the number is the kernel's
    HOLDS(open(name, O_RDWR | O_CREAT | O_EXCL, 0640) == -1 && errno == EEXIST);
    HOLDS(write(fd, "hello world", 11) == 11);
    HOLDS(lseek(fd, 0, SEEK_CUR) == 11 && length() == 11);
    struct iovec parts[2] = {{"HE", 2}, {"L", 1}};
    HOLDS(pwritev(fd, parts, 2, 0) == 3);
    char a[4] = {0}, b[32] = {0};
    struct iovec into[2] = {{a, 3}, {b, 30}};
    HOLDS(preadv(fd, into, 2, 0) == 11 && memcmp(a, "HEL", 3) == 0 && strcmp(b, "lo world") == 0);
    HOLDS(pwrite(fd, "!", 1, 20) == 1 && length() == 21); // past the end
    HOLDS(pread(fd, b, 32, 10) == 11 && memcmp(b, "d\0\0\0\0\0\0\0\0\0!", 11) == 0);
    HOLDS(pread(fd, b, 1, 21) == 0);
    HOLDS(pread(fd, b, 1, -1) == -1 && errno == EINVAL);
    HOLDS(lseek(fd, -1, SEEK_END) == 20 && lseek(fd, -1, SEEK_SET) == -1 && errno == EINVAL);
    HOLDS(lseek(fd, 21, SEEK_DATA) == -1 && errno == ENXIO);
    HOLDS(ftruncate(fd, 5) == 0 && truncate(name, 6) == 0 && length() == 6);
    HOLDS(fallocate(fd, 0, 0, 8) == 0 && posix_fallocate(fd, 4, 5) == 0 && length() == 9);
    HOLDS(posix_fallocate(fd, 0, 0) == EINVAL);
    HOLDS(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100) == 0 && length() == 9);
    HOLDS(fsync(fd) == 0 && fdatasync(fd) == 0 && syncfs(fd) == 0);
    struct statx more;
    HOLDS(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &more) == 0 && more.stx_size == 9);
    HOLDS(syscall(SYS_pwrite64, fd, "HELLO", 5, 0) == 5);
    HOLDS(close(fd) == 0);
    HOLDS(write(fd, "x", 1) == -1 && errno == EBADF);
    fd = open(name, O_RDONLY);
    HOLDS(write(fd, "x", 1) == -1 && errno == EBADF);
    HOLDS(ftruncate(fd, 0) == -1 && errno == EINVAL);
    HOLDS(close(fd) == 0);
    fd = open(name, O_WRONLY | O_TRUNC);
    HOLDS(length() == 0 && read(fd, b, 1) == -1 && errno == EBADF);
    HOLDS(close(fd) == 0 && unlink(name) == 0);
}

static void descriptors(void) {
    int fd = open(name, O_RDWR | O_CREAT, 0600), second = open(name, O_WRONLY | O_APPEND);
    HOLDS(write(fd, "abc", 3) == 3 && write(second, "def", 3) == 3);
    HOLDS(pwrite(second, "g", 1, 0) == 1); // Linux appends
    int copy = dup(fd);
    HOLDS(lseek(copy, 1, SEEK_SET) == 1 && lseek(fd, 0, SEEK_CUR) == 1);
    HOLDS(lseek(second, 0, SEEK_CUR) == 6);
    HOLDS(dup2(fd, 50) == 50 && fcntl(fd, F_DUPFD, 60) == 60 && fcntl(fd, F_DUPFD_CLOEXEC, 61) == 61);
    HOLDS(fcntl(50, F_GETFD) == 0 && fcntl(61, F_GETFD) == FD_CLOEXEC);
    HOLDS(fcntl(50, F_SETFD, FD_CLOEXEC) == 0 && fcntl(50, F_GETFD) == FD_CLOEXEC && fcntl(fd, F_GETFD) == 0);
    HOLDS(write(50, "B", 1) == 1 && lseek(61, 0, SEEK_CUR) == 2);
    HOLDS(fcntl(fd, F_SETFL, O_APPEND) == 0 && write(60, "h", 1) == 1);
    HOLDS(dup2(second, 50) == 50 && write(50, "i", 1) == 1); // in the place of a chosen one
    int plain = open("/dev/null", O_WRONLY);
    HOLDS(dup2(plain, 60) == 60 && write(60, "nothing", 7) == 7);
    HOLDS(dup2(999, fd) == -1 && errno == EBADF && dup2(fd, -1) == -1 && errno == EBADF);
    HOLDS(dup3(fd, 61, 1) == -1 && errno == EINVAL && close_range(5, 3, 0) == -1 && errno == EINVAL);
    HOLDS(dup2(61, 61) == 61 && dup3(61, 61, 0) == -1 && errno == EINVAL);
    HOLDS(close_range(50, 61, 0) == 0 && write(61, "x", 1) == -1 && errno == EBADF);
    HOLDS(close(plain) == 0 && close(copy) == 0 && close(second) == 0);
    for (int n = fd; n < 1000; n++)
        close(n); // as a daemon does
    holds("aBcdefghi");
    fd = open(name, O_RDWR);
    HOLDS(write(fd, "A", 1) == 1 && fsync(fd) == 0 && close(fd) == 0);
    holds("ABcdefghi");
}

static int runs_child(void) {
    pid_t child = vfork();
    if (child == 0) _exit(0);
    int status;
    return waitpid(child, &status, 0) == child && status == 0;
}

static void names(void) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    HOLDS(write(fd, "one", 3) == 3 && rename(name, other) == 0);
    HOLDS(write(fd, "two", 3) == 3 && access(name, F_OK) == -1);
    HOLDS(close(fd) == 0 && rename(other, name) == 0);
    holds("onetwo");
    int target = open(other, O_RDWR | O_CREAT, 0600);
    HOLDS(write(target, "old", 3) == 3 && rename(name, other) == 0); // replaces an open file
    char bytes[4] = {0};
    HOLDS(pread(target, bytes, 3, 0) == 3 || preloaded);
    close(target);
    HOLDS(rename(other, name) == 0);
    holds("onetwo");
    // The name by which it was opened goes, and a vfork closes files for a moment.
    HOLDS(link(name, other) == 0 && (fd = open(other, O_RDWR)) >= 0 && unlink(other) == 0);
    HOLDS(runs_child() && pwrite(fd, "O", 1, 0) == 1 && close(fd) == 0);
    holds("Onetwo");
    fd = open(name, O_RDWR);
    HOLDS(unlink(name) == 0 && pread(fd, bytes, 3, 3) == 3 && strcmp(bytes, "two") == 0);
    HOLDS(runs_child() && pread(fd, bytes, 3, 0) == 3 && strcmp(bytes, "One") == 0);
    HOLDS(close(fd) == 0 && access(name, F_OK) == -1);
}

static void streams(void) {
    FILE *file = fopen(name, "w+");
    HOLDS(file && fprintf(file, "line %d\n", 1) == 7 && fflush(file) == 0 && length() == 7);
    HOLDS(fsync(fileno(file)) == 0 && fseek(file, 0, SEEK_SET) == 0);
    char line[64];
    HOLDS(fgets(line, sizeof line, file) && strcmp(line, "line 1\n") == 0 && ftell(file) == 7);
    HOLDS(fclose(file) == 0);
    file = fopen(name, "a");
    HOLDS(file && fputs("line 2\n", file) >= 0 && fclose(file) == 0);
    file = fdopen(open(name, O_WRONLY), "a");
    HOLDS(file && fputs("line 3\n", file) >= 0 && fclose(file) == 0 && length() == 21);
    HOLDS(truncate(name, 14) == 0 && fdopen(-1, "r") == NULL);
    file = fdopen(open(name, O_RDONLY), "r");
    HOLDS(fread(line, 1, sizeof line, file) == 14 && feof(file) && fclose(file) == 0);
    HOLDS(fopen(other, "r") == NULL && errno == ENOENT);
    // Standard output, as a shell redirects it.
    fflush(stdout);
    int kept = dup(1), fd = open(name, O_WRONLY | O_TRUNC);
    HOLDS(dup2(fd, 1) == 1 && close(fd) == 0);
    printf("printed");
    fflush(stdout);
    // Bytes that are not written out go with the descriptor.
    int null = open("/dev/null", O_WRONLY);
    printf(" to nothing");
    HOLDS(dup2(null, 1) == 1 && fflush(stdout) == 0);
    holds("printed");
    printf(" first");
    HOLDS((fd = open(name, O_WRONLY | O_APPEND)) >= 0 && dup2(fd, 1) == 1 && close(fd) == 0);
    printf(" second");
    fflush(stdout);
    HOLDS(dup2(null, 1) == 1 && close(null) == 0);
    holds("printed first second");
    HOLDS(dup2(kept, 1) == 1 && close(kept) == 0);
    HOLDS(unlink(name) == 0);
}

static void requests(void) {
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    char bytes[8] = {0};
    struct aiocb request = {.aio_fildes = fd, .aio_buf = "async", .aio_nbytes = 5, .aio_offset = 2};
    const struct aiocb *list[1] = {&request};
    HOLDS(aio_write(&request) == 0 && aio_suspend(list, 1, NULL) == 0);
    HOLDS(aio_error(&request) == 0 && aio_return(&request) == 5);
    request.aio_buf = bytes;
    HOLDS(aio_read(&request) == 0 && aio_suspend(list, 1, NULL) == 0 && aio_return(&request) == 5);
    HOLDS(strcmp(bytes, "async") == 0 && length() == 7);
    HOLDS(aio_fsync(O_SYNC, &request) == 0 && aio_suspend(list, 1, NULL) == 0 && aio_return(&request) == 0);
    HOLDS(close(fd) == 0 && unlink(name) == 0);
}

ssize_t __read(int, void *, size_t), __write(int, const void *, size_t), __pread64(int, void *, size_t, off_t),
    __pwrite64(int, const void *, size_t, off_t);
off_t __lseek(int, off_t, int);
int __open(const char *, int, ...), __open64(const char *, int, ...), __close(int), __dup2(int, int), __fcntl(int, int, ...);
FILE *_IO_fopen(const char *, const char *), *_IO_fdopen(int, const char *);
int _IO_fclose(FILE *);

// Companions in the folder, of files that are open or that a crash has left.
static int companions(const char *folder) {
    DIR *all = opendir(folder);
    int count = 0;
    for (struct dirent *entry; (entry = readdir(all)) != NULL;)
        count += strncmp(entry->d_name, ".atomic-mmap", 12) == 0;
    closedir(all);
    return count;
}

// A call of the kernel that no library sees, and the next file under that number.
static void unseen_close(const char *folder) {
#ifdef __x86_64__
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    long closed = SYS_close;
    HOLDS(fd >= 0 && write(fd, "bytes", 5) == 5);
    __asm__ volatile("syscall" : "+a"(closed) : "D"((long)fd) : "rcx", "r11", "memory");
    char byte;
    HOLDS(closed == 0 && open("/dev/null", O_RDWR) == fd && read(fd, &byte, 1) == 0 && companions(folder) == 0);
    HOLDS(close(fd) == 0);
    holds("bytes");
    HOLDS(unlink(name) == 0);
#else
    (void)folder;
#endif
}

// Other ways to the same calls: glibc's second names, and numbers.
static void other_names(void) {
    char bytes[8] = {0};
    int fd = open(name, O_RDWR | O_CREAT, 0600), plain = open("/dev/null", O_WRONLY);
    HOLDS(__write(fd, "abc", 3) == 3 && __pwrite64(fd, "B", 1, 1) == 1 && length() == 3);
    HOLDS(__lseek(fd, 0, SEEK_SET) == 0 && __read(fd, bytes, 1) == 1 && __pread64(fd, bytes + 1, 2, 1) == 2);
    HOLDS(strcmp(bytes, "aBc") == 0 && __dup2(fd, 90) == 90 && __fcntl(90, F_DUPFD, 91) == 91);
    HOLDS(pwrite(91, "A", 1, 0) == 1 && __dup2(plain, 90) == 90 && write(90, "nothing", 7) == 7);
    HOLDS(__close(91) == 0 && __close(90) == 0);
    int second = __open(name, O_RDONLY);
    HOLDS(read(second, bytes, 8) == 3 && memcmp(bytes, "ABc", 3) == 0 && __close(second) == 0);
    FILE *file = _IO_fopen(name, "a");
    HOLDS(file && fputs("d", file) >= 0 && _IO_fclose(file) == 0);
    file = _IO_fdopen(__open64(name, O_RDONLY), "r");
    HOLDS(file && fgets(bytes, sizeof bytes, file) && strcmp(bytes, "ABcd") == 0 && _IO_fclose(file) == 0);

    second = syscall(SYS_openat, AT_FDCWD, name, O_RDWR);
    HOLDS(read(second, bytes, 8) == 4 && memcmp(bytes, "ABcd", 4) == 0 && lseek(second, 0, SEEK_SET) == 0);
    HOLDS(close(fd) == 0);
    fd = second;
    int copy = syscall(SYS_dup, fd), other_copy = syscall(SYS_fcntl, fd, F_DUPFD, 80);
    HOLDS(ftruncate(fd, 6) == 0 && syscall(SYS_write, copy, "by", 2) == 2);
    struct stat found;
    HOLDS(syscall(SYS_fstat, fd, &found) == 0 && found.st_size == 6);
    HOLDS(syscall(SYS_dup3, plain, copy, 0) == copy && write(copy, "nothing", 7) == 7);
    HOLDS(syscall(SYS_dup3, other_copy, copy, 0) == copy && write(copy, "+", 1) == 1);
    HOLDS(syscall(SYS_close, fd) == 0 && syscall(SYS_close, copy) == 0 && syscall(SYS_close, other_copy) == 0);
    fd = open("/dev/null", O_RDWR); // the number of a file that was chosen
    HOLDS(read(fd, bytes, 1) == 0 && close(fd) == 0 && close(plain) == 0);
    fd = open(name, O_RDWR);
    HOLDS(read(fd, bytes, 8) == 6 && memcmp(bytes, "by+d\0\0", 6) == 0 && close(fd) == 0);
    HOLDS(unlink(name) == 0);
}

static void *submit(void *argument) {
    struct iocb *list[1] = {argument};
    HOLDS(syscall(SYS_io_submit, list[0]->aio_data, 1, list) == 1);
    return NULL;
}

// The kernel's requests by number, and a thread that waits for those of another one.
static void kernel_requests(void) {
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    aio_context_t context = 0;
    HOLDS(syscall(SYS_io_setup, 4, &context) == 0);
    struct iocb request = {.aio_fildes = fd, .aio_lio_opcode = IOCB_CMD_PWRITE, .aio_buf = (uintptr_t)"event",
                           .aio_nbytes = 5, .aio_data = context};
    pthread_t thread;
    struct io_event event;
    HOLDS(pthread_create(&thread, NULL, submit, &request) == 0);
    HOLDS(syscall(SYS_io_getevents, context, 1, 1, &event, NULL) == 1 && event.res == 5);
    HOLDS(pthread_join(thread, NULL) == 0 && length() == 5);
    struct timespec soon = {0, 5000000};
    HOLDS(syscall(SYS_io_getevents, context, 1, 1, &event, &soon) == 0);
    HOLDS(syscall(SYS_io_destroy, context) == 0 && syscall(SYS_io_destroy, context) == -1 && errno == EINVAL);
    HOLDS(close(fd) == 0);
    holds("event");
    HOLDS(unlink(name) == 0);
}

static void children(const char *program) {
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    HOLDS(write(fd, "parent", 6) == 6);
    pid_t child = fork();
    if (child == 0) {
        if (write(fd, "child", 5) != 5) _exit(1); // at the offset of both
        int own = open(other, O_RDWR | O_CREAT, 0600); // another file
        if (own < 0 || write(own, "child", 5) != 5 || close(own) != 0) _exit(2);
        close(fd);
        _exit(7);
    }
    int status;
    HOLDS(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    HOLDS(lseek(fd, 0, SEEK_CUR) == 11 && lseek(fd, 6, SEEK_SET) == 6 && write(fd, "+", 1) == 1 && unlink(other) == 0);
    char *none[] = {"none", NULL};
    HOLDS(execv("/no/such/program", none) == -1 && errno == ENOENT);
    HOLDS(write(fd, "again", 5) == 5 && length() == 12); // the file is open again
    child = vfork();
    if (child == 0) {
        close(fd);
        _exit(0);
    }
    HOLDS(waitpid(child, &status, 0) == child);
    HOLDS(write(fd, "!", 1) == 1);
    // The last act: the next program takes the descriptor over, and its offset.
    HOLDS(dup2(fd, 77) == 77 && close(fd) == 0);
    char *args[] = {(char *)program, "after", name, preloaded ? "yes" : NULL, NULL};
    execv("/proc/self/exe", args);
    HOLDS(0);
}

static void after(const char *path) {
    strcpy(name, path);
    HOLDS(lseek(77, 0, SEEK_CUR) == 13 && write(77, "new", 3) == 3 && length() == 16);
    HOLDS(dup2(77, 1) == 1);
    printf("left"); // the end of the process writes it
}

// A program may close its standard output, as those of coreutils do.
static void end_of_stdout(void) {
    pid_t child = fork();
    if (child == 0) {
        int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        HOLDS(dup2(fd, 1) == 1 && close(fd) == 0 && printf("last words") == 10);
        HOLDS(fclose(stdout) == 0 && (fd = open("/dev/null", O_WRONLY)) == 1);
        for (size_t n = 200; n < 800; n += 8) HOLDS(malloc(n) != (void *)stdout); // it is not freed
        printf("later");
        exit(0);
    }
    int status;
    HOLDS(waitpid(child, &status, 0) == child && status == 0);
    holds("last words");
    HOLDS(unlink(name) == 0);
}

// A program may end without its exit handlers, and may replace itself by a descriptor.
static void other_ends(const char *folder) {
    for (int way = 0; way < 3; way++) {
        pid_t child = fork();
        if (child == 0) {
            int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
            HOLDS(write(fd, "end", 3) == 3 && (companions(folder) > 0) == preloaded);
            char *args[] = {"true", NULL};
            if (way == 0) quick_exit(0);
            if (way == 1) _Exit(0);
            execveat(AT_FDCWD, "/bin/true", args, environ, 0);
        }
        int status;
        HOLDS(waitpid(child, &status, 0) == child && status == 0 && companions(folder) == 0);
        holds("end");
    }
    HOLDS(unlink(name) == 0);
}

// Files of any name are chosen here, with a preload.
static void any_name(const char *folder) {
    int fd = open(folder, O_TMPFILE | O_RDWR, 0600);
    HOLDS(fd >= 0 && write(fd, "nameless", 8) == 8 && lseek(fd, 0, SEEK_CUR) == 8 && close(fd) == 0);
    HOLDS(freopen("/dev/null", "w", stdout) && printf("nothing") == 7 && fflush(stdout) == 0);
    HOLDS((fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0 && symlink(name, other) == 0);
    HOLDS((freopen(other, "r", stdin) == NULL && errno == EOPNOTSUPP) || !preloaded);
    HOLDS(unlink(name) == 0 && close(fd) == 0);
    HOLDS((freopen(other, "w", stdin) == NULL && errno == EOPNOTSUPP) || !preloaded);
    unlink(name);
    HOLDS(unlink(other) == 0);
}

static void refusals(void) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), plain = open(other, O_RDWR | O_CREAT, 0600);
    HOLDS(write(fd, "bytes", 5) == 5);
    HOLDS(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV);
    HOLDS(mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED && errno == ENODEV);
    char *copy = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
    HOLDS(copy != MAP_FAILED && strcmp(copy, "bytes") == 0);
    off_t at = 0;
    HOLDS(copy_file_range(fd, &at, plain, NULL, 5, 0) == -1 && errno == EXDEV);
    HOLDS(sendfile(plain, fd, NULL, 5) == -1 && errno == EINVAL);
    int pipes[2];
    HOLDS(pipe(pipes) == 0 && splice(fd, NULL, pipes[1], NULL, 5, 0) == -1 && errno == EINVAL);
    HOLDS(ioctl(plain, FICLONE, fd) == -1 && errno == EOPNOTSUPP);
    struct file_clone_range range = {.src_fd = fd};
    HOLDS(ioctl(plain, FICLONERANGE, &range) == -1 && errno == EOPNOTSUPP);
    HOLDS(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 5) == -1 && errno == EOPNOTSUPP);
    HOLDS(flock(fd, LOCK_EX | LOCK_NB) == -1 && errno == ENOLCK);
    HOLDS(syscall(425, 8, NULL) == -1 && errno == ENOSYS);
    HOLDS(freopen(name, "r", stdin) == NULL && errno == EOPNOTSUPP);
    HOLDS(close(fd) == 0 && close(plain) == 0 && unlink(name) == 0 && unlink(other) == 0);
}

int main(int count, char **args) {
    if (count > 2 && strcmp(args[1], "after") == 0) {
        after(args[2]);
        return 0;
    }
    preloaded = count > 2 && strcmp(args[2], "yes") == 0;
    snprintf(name, sizeof name, "%s/x.dat", args[1]);
    snprintf(other, sizeof other, "%s/y.dat", args[1]);
    if (strcmp(args[count - 1], "any") == 0) {
        any_name(args[1]);
        return 0;
    }
    data();
    descriptors();
    names();
    streams();
    end_of_stdout();
    other_ends(args[1]);
    requests();
    other_names();
    unseen_close(args[1]);
    kernel_requests();
    if (preloaded) refusals();
    children(args[0]);
}
