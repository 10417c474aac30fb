/* The calls on stages, and what they answer to wrong use. Run by interface.rs. */
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static char page[4096];

static ato_stage *begun(ato_file *file, uint64_t offset, uint64_t len)
{
    ato_stage *stage;

    CHECK(ato_stage_begin(file, offset, len, &stage) == 0 && stage != NULL);
    return stage;
}

static void is(ato_file *file, uint64_t offset, const char *text)
{
    char buffer[16];

    CHECK(ato_read(file, offset, buffer, strlen(text)) == 0);
    CHECK(memcmp(buffer, text, strlen(text)) == 0);
}

static void fills_and_commits(const char *path)
{
    ato_file *file = opened(path, 20000);
    ato_stage *stages[2];
    uint64_t lent;
    int medium;

    stages[0] = begun(file, 4096, 8192);
    stages[1] = begun(file, 12000, 1000);
    CHECK(ato_medium(file, &medium) == 0 && ato_stage_lent(stages[0], &lent) == 0);
    CHECK(lent == (medium == ATO_MEDIUM_PAGE_CACHE ? 0 : 8192));
    CHECK(ato_write(file, 4096, "before", 6) == 0 && ato_write(file, 8000, "kept", 4) == 0);
    CHECK(ato_write(file, 12188, "gone", 4) == 0);
    CHECK(ato_stage_write(stages[0], 0, "first", 5) == 0);
    CHECK(ato_stage_write(stages[0], 8000, "covered", 7) == 0);
    CHECK(ato_stage_write(stages[1], 96, "second", 6) == 0);
    CHECK(ato_stage_zero(stages[1], 188, 4) == 0);
    is(file, 4096, "before");
    /* The later one counts where they overlap. */
    CHECK(ato_commit_stages(file, stages, 2) == 0);
    is(file, 4096, "firste");
    is(file, 8000, "kept");
    is(file, 12096, "secondd");
    CHECK(ato_read(file, 12188, page, 4) == 0 && memcmp(page, "\0\0\0\0", 4) == 0);
    ato_stage_drop(stages[0]);
    ato_stage_drop(stages[1]);

    /* What is dropped has not happened. */
    stages[0] = begun(file, 0, 5);
    CHECK(ato_stage_write(stages[0], 0, "never", 5) == 0);
    ato_stage_drop(stages[0]);
    ato_stage_drop(NULL);
    CHECK(ato_read(file, 0, page, 1) == 0 && page[0] == 0);
    CHECK(ato_commit_stages(file, NULL, 0) == 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
}

static void with_a_transaction(const char *path)
{
    ato_file *file = opened(path, 20000);
    ato_stage *stage = begun(file, 4096, 4096), *twice[2] = {stage, stage};
    ato_tx *tx;
    char byte;

    CHECK(ato_stage_write(stage, 10, "block", 5) == 0);
    /* A conflict leaves the stage for another attempt. */
    CHECK(ato_tx_begin(file, &tx) == 0 && ato_tx_read(tx, 0, &byte, 1) == 0);
    CHECK(ato_write(file, 0, "x", 1) == 0);
    CHECK(ato_tx_write(tx, 8, "1", 1) == 0 && ato_tx_commit_with(tx, &stage, 1) == -EAGAIN);
    CHECK(ato_tx_begin(file, &tx) == 0 && ato_tx_commit_with(tx, twice, 2) == -EINVAL);
    CHECK(ato_tx_begin(file, &tx) == 0 && ato_tx_commit_with(tx, NULL, 1) == -EINVAL);
    CHECK(ato_tx_commit_with(NULL, &stage, 1) == -EINVAL);
    CHECK(ato_read(file, 4106, &byte, 1) == 0 && byte == 0);
    CHECK(ato_tx_begin(file, &tx) == 0 && ato_tx_write(tx, 8, "2", 1) == 0);
    CHECK(ato_tx_write(tx, 4104, "a tx ", 5) == 0 && ato_tx_commit_with(tx, &stage, 1) == 0);
    is(file, 8, "2");
    is(file, 4104, "a block");
    ato_stage_drop(stage);
    CHECK(ato_tx_begin(file, &tx) == 0 && ato_tx_write(tx, 8, "3", 1) == 0);
    CHECK(ato_tx_commit_with(tx, NULL, 0) == 0);
    is(file, 8, "3");
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
}

static void wrong_use(const char *path, const char *other_path)
{
    ato_file *file = opened(path, 20000), *other = opened(other_path, 20000);
    ato_stage *stage = (ato_stage *)1, *stages[3];
    uint64_t lent = 1;

    CHECK(ato_stage_begin(NULL, 0, 1, &stage) == -EINVAL && stage == NULL);
    CHECK(ato_stage_begin(file, 0, 1, NULL) == -EINVAL);
    CHECK(ato_stage_begin(file, 19999, 2, &stage) == -ERANGE && stage == NULL);
    SAYS("offset 19999");
    CHECK(ato_stage_begin(file, UINT64_MAX, 2, &stage) == -ERANGE);
    CHECK(ato_stage_write(NULL, 0, "x", 1) == -EINVAL && ato_stage_zero(NULL, 0, 1) == -EINVAL);
    CHECK(ato_stage_lent(NULL, &lent) == -EINVAL && lent == 1);

    stage = begun(file, 1000, 100);
    CHECK(ato_stage_lent(stage, NULL) == 0 && ato_stage_write(stage, 0, NULL, 1) == -EINVAL);
    CHECK(ato_stage_write(stage, 0, NULL, 0) == 0 && ato_stage_write(stage, 100, "", 0) == 0);
    CHECK(ato_stage_write(stage, 96, "12345", 5) == -ERANGE);
    SAYS("bytes of the stage");
    CHECK(ato_stage_write(stage, UINT64_MAX, "12", 2) == -ERANGE);
    CHECK(ato_stage_zero(stage, 50, 51) == -ERANGE && ato_stage_zero(stage, 1, UINT64_MAX) == -ERANGE);

    /* None of these commits anything, and all stages stay as they are. */
    CHECK(ato_stage_write(stage, 0, "whole", 5) == 0);
    stages[0] = stage;
    stages[1] = begun(file, 0, 10);
    CHECK(ato_stage_write(stages[1], 0, "more", 4) == 0);
    stages[2] = stage;
    CHECK(ato_commit_stages(file, stages, 3) == -EINVAL);
    SAYS("twice");
    stages[2] = NULL;
    CHECK(ato_commit_stages(file, stages, 3) == -EINVAL);
    stages[2] = begun(other, 0, 10);
    CHECK(ato_commit_stages(file, stages, 3) == -EINVAL);
    SAYS(path);
    CHECK(ato_commit_stages(other, stages, 2) == -EINVAL);
    SAYS(other_path);
    CHECK(ato_commit_stages(file, NULL, 2) == -EINVAL);
    CHECK(ato_commit_stages(file, stages, SIZE_MAX) == -EINVAL);
    CHECK(ato_commit_stages(NULL, stages, 2) == -EINVAL);
    CHECK(ato_read(file, 1000, page, 5) == 0 && page[0] == 0);
    CHECK(ato_commit_stages(file, stages, 2) == 0);
    is(file, 0, "more");
    is(file, 1000, "whole");

    /* A stage has one commit. */
    CHECK(ato_commit_stages(file, stages, 1) == -EINVAL);
    SAYS("committed");
    CHECK(ato_stage_write(stage, 0, "x", 1) == -EINVAL && ato_stage_lent(stage, &lent) == -EINVAL);
    CHECK(ato_close(file, ATO_CLOSE_FAST) == -EBUSY);
    SAYS("stage");
    ato_stage_drop(stages[0]);
    CHECK(ato_close(file, ATO_CLOSE_FAST) == -EBUSY);
    ato_stage_drop(stages[1]);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
    ato_stage_drop(stages[2]);
    CHECK(ato_close(other, ATO_CLOSE_SPATIAL) == 0);
}

static void from_descriptors(const char *path)
{
    ato_file *file = opened(path, 300000);
    ato_stage *stage = begun(file, 0, 200000);
    char *bytes = malloc(150000), *found = malloc(150000);
    uint64_t received = 1;
    size_t n;
    int ends[2], fd = open("input", O_RDWR | O_CREAT | O_TRUNC, 0600);

    CHECK(bytes != NULL && found != NULL && fd >= 0 && pipe(ends) == 0);
    for (n = 0; n < 150000; n++)
        bytes[n] = (char)(n % 251);
    CHECK(write(fd, bytes, 150000) == 150000 && lseek(fd, 0, SEEK_SET) == 0);

    CHECK(ato_stage_fill_from(NULL, 0, 1, fd, &received) == -EINVAL && received == 0);
    CHECK(ato_stage_read_from(NULL, 0, 1, fd, NULL) == -EINVAL);
    CHECK(ato_stage_fill_from(stage, 0, 1, -1, &received) == -EBADF && received == 0);
    CHECK(ato_stage_read_from(stage, 0, 1, ends[1], &received) == -EBADF);
    CHECK(ato_stage_fill_from(stage, 100000, 100001, fd, NULL) == -ERANGE);
    CHECK(ato_stage_read_from(stage, UINT64_MAX, 2, fd, NULL) == -ERANGE);
    CHECK(lseek(fd, 0, SEEK_CUR) == 0);

    /* By one call, and then to the end of the input. */
    CHECK(ato_stage_read_from(stage, 0, 0, fd, &received) == 0 && received == 0);
    CHECK(ato_stage_read_from(stage, 1000, 199000, fd, &received) == 0 && received == 65536);
    CHECK(ato_stage_fill_from(stage, 66536, 100000, fd, &received) == 0);
    CHECK(received == 150000 - 65536);
    CHECK(ato_stage_read_from(stage, 199000, 10, fd, &received) == 0 && received == 0);
    CHECK(ato_stage_fill_from(stage, 1000, 200000, fd, &received) == -ERANGE && received == 0);

    /* A pipe that does not block has no more. What it had is there. */
    CHECK(fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0 && write(ends[1], "piped", 5) == 5);
    CHECK(ato_stage_fill_from(stage, 10, 90, ends[0], &received) == -EAGAIN && received == 5);
    CHECK(ato_stage_fill_from(stage, 20, 5, ends[0], &received) == -EAGAIN && received == 0);
    CHECK(ato_stage_read_from(stage, 20, 5, ends[0], &received) == -EAGAIN && received == 0);

    CHECK(ato_write(file, 15, "kept", 4) == 0 && ato_commit_stages(file, &stage, 1) == 0);
    is(file, 10, "pipedkept");
    CHECK(ato_read(file, 1000, found, 150000) == 0 && memcmp(found, bytes, 150000) == 0);
    CHECK(ato_stage_fill_from(stage, 0, 1, fd, &received) == -EINVAL);
    ato_stage_drop(stage);
    CHECK(close(fd) == 0 && close(ends[0]) == 0 && close(ends[1]) == 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
    free(bytes);
    free(found);
}

struct filler {
    ato_stage *stage;
    int fd;
};

static void *fill(void *of)
{
    struct filler *filler = of;
    uint64_t received;

    CHECK(ato_stage_fill_from(filler->stage, 0, 4096, filler->fd, &received) == 0);
    CHECK(received == 5);
    return NULL;
}

/* A stage that another thread fills is busy. Afterwards any thread may use it. */
static void two_threads(const char *path)
{
    ato_file *file = opened(path, 20000);
    ato_stage *stage = begun(file, 0, 4096), *both[2] = {begun(file, 8192, 100), stage};
    struct filler filler = {stage, -1};
    pthread_t thread;
    int ends[2];

    CHECK(pipe(ends) == 0);
    filler.fd = ends[0];
    CHECK(ato_stage_write(both[0], 0, "other", 5) == 0);
    CHECK(pthread_create(&thread, NULL, fill, &filler) == 0);
    while (ato_stage_lent(stage, NULL) == 0)
        usleep(1000);
    CHECK(ato_stage_write(stage, 0, "x", 1) == -EBUSY);
    SAYS("another thread");
    CHECK(ato_commit_stages(file, both, 2) == -EBUSY);
    CHECK(write(ends[1], "pipes", 5) == 5 && close(ends[1]) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(ato_commit_stages(file, both, 2) == 0);
    is(file, 0, "pipes");
    is(file, 8192, "other");
    ato_stage_drop(both[0]);
    ato_stage_drop(stage);
    CHECK(close(ends[0]) == 0 && ato_close(file, ATO_CLOSE_SPATIAL) == 0);
}

/* A shrink may not cut off what is lent. A stage that has lent nothing is too long then. */
static void shorter_files(const char *path)
{
    ato_file *file = opened(path, 20000);
    ato_stage *stage = begun(file, 8192, 4096);
    uint64_t lent;

    CHECK(ato_stage_write(stage, 4000, "end", 3) == 0 && ato_stage_lent(stage, &lent) == 0);
    if (lent > 0) {
        CHECK(ato_set_len(file, 8192) == -EBUSY);
        CHECK(ato_commit_stages(file, &stage, 1) == 0);
        is(file, 12192, "end");
    } else {
        CHECK(ato_set_len(file, 8192) == 0);
        CHECK(ato_commit_stages(file, &stage, 1) == -ERANGE);
    }
    ato_stage_drop(stage);
    CHECK(ato_set_len(file, 8192) == 0 && ato_close(file, ATO_CLOSE_SPATIAL) == 0);
}

/* A mapping does not end before its stages. A child of `fork` cannot use them. */
static void mapped_and_inherited(const char *path, int is_to_fork)
{
    ato_file *file;
    char *map = ato_mmap(path, 20000, ATO_MAP_CREATE, &file);
    ato_stage *stage, *none;
    int status;
    pid_t child;

    CHECK(map != NULL);
    stage = begun(file, 0, 10000);
    CHECK(ato_stage_write(stage, 0, "parent", 6) == 0);
    CHECK(ato_munmap(map, 0, ATO_CLOSE_FAST) == -EBUSY);
    if (is_to_fork) {
        if ((child = fork()) == 0) {
            CHECK(ato_stage_write(stage, 0, "child", 5) == ATO_EFORKED);
            CHECK(ato_stage_begin(file, 0, 5, &none) == ATO_EFORKED && none == NULL);
            CHECK(ato_commit_stages(file, &stage, 1) == ATO_EFORKED);
            ato_stage_drop(stage);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    CHECK(ato_commit_stages(file, &stage, 1) == 0);
    is(file, 0, "parent");
    ato_stage_drop(stage);
    CHECK(ato_munmap(map, 0, ATO_CLOSE_SPATIAL) == 0);
}

static void read_only_files(const char *path)
{
    ato_options options;
    ato_file *file;
    ato_stage *stage;

    ato_options_init(&options, sizeof options);
    options.read_only = 1;
    CHECK(ato_open(path, &options, &file) == 0);
    CHECK(ato_stage_begin(file, 0, 1, &stage) == -EROFS && stage == NULL);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
}

int main(int argc, char **argv)
{
    /* Valgrind 3.19 does not know that a child lacks the pages of MADV_DONTFORK. */
    int is_to_fork = argc == 3 && strcmp(argv[2], "fork") == 0;

    if (argc < 2 || chdir(argv[1]) != 0)
        return 2;
    fills_and_commits("a.dat");
    with_a_transaction("b.dat");
    wrong_use("c.dat", "other.dat");
    from_descriptors("d.dat");
    two_threads("e.dat");
    shorter_files("f.dat");
    mapped_and_inherited("g.dat", is_to_fork);
    read_only_files("a.dat");
    puts("ok");
    return 0;
}
