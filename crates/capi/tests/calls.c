/* Every call, and what it answers to wrong arguments. Run by interface.rs. */
#include "check.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Programs are compiled with these sizes. */
_Static_assert(sizeof(ato_options) == 136, "ato_options");
_Static_assert(offsetof(ato_options, scrub_rate) == 80, "the first version of ato_options");
_Static_assert(offsetof(ato_options, deploy_idle_ms) == 112, "the second version of ato_options");
_Static_assert(sizeof(ato_part) == 24, "ato_part");
_Static_assert(sizeof(ato_snapshot_info) == 112, "ato_snapshot_info");
_Static_assert(sizeof(ato_stats) == 34 * 8, "ato_stats");
_Static_assert(sizeof(ato_verification) == 32, "ato_verification");

static void *read_elsewhere(void *file)
{
    char byte;

    CHECK(ato_read(file, 0, &byte, 1) == 0);
    CHECK(ato_last_error()[0] == 0);
    return NULL;
}

static int ends[2], exported;

/* Its cancellation is pending from the call on that `cancellation` meets in a write to the pipe. */
static void *is_cancelled(void *argument)
{
    ato_file *file = argument, *own;
    ato_tx *tx;

    CHECK(ato_tx_begin(file, &tx) == 0);
    CHECK(ato_export(file, NULL, "one", 0, ends[1]) == 0);
    own = opened("of-the-thread.dat", 1000);
    CHECK(ato_close(own, ATO_CLOSE_SPATIAL) == 0);
    ato_tx_rollback(tx);
    exported = 1;
    ato_write(file, 0, "never", 5);
    CHECK(!"it goes on");
    return NULL;
}

/* It was ended by "FATAL: exception not rethrown" and SIGABRT in a call of the system. */
static void cancellation(const char *path)
{
    ato_file *file = opened(path, 1 << 20);
    pthread_t thread;
    void *result;
    char buffer[4096], *bytes = malloc(1 << 20);

    memset(bytes, 'x', 1 << 20);
    CHECK(ato_write(file, 0, bytes, 1 << 20) == 0 && ato_snapshot(file, "one") == 0);
    CHECK(pipe(ends) == 0 && pthread_create(&thread, NULL, is_cancelled, file) == 0);
    CHECK(read(ends[0], buffer, 1) == 1 && pthread_cancel(thread) == 0);
    /* The stream is longer than a pipe holds, so the call is under way. Its end fits a pipe. */
    for (ssize_t left = 1 << 20, n; left > 0; left -= n)
        CHECK((n = read(ends[0], buffer, sizeof buffer)) > 0);
    CHECK(pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
    CHECK(exported);
    CHECK(ato_read(file, 0, buffer, 5) == 0 && memcmp(buffer, "xxxxx", 5) == 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
    close(ends[0]);
    close(ends[1]);
    free(bytes);
}

/* A task fails in one thread, and reads its message in another one, which has failed otherwise. */
static void *fails_elsewhere(void *message)
{
    CHECK(ato_explain(ato_open("/nowhere/\xc3\xa4", NULL, NULL), message, 400) == -EINVAL);
    return NULL;
}

static void messages(const char *path)
{
    ato_file *file = opened(path, 1000);
    char message[400] = "", whole[400], byte;
    pthread_t thread;

    CHECK(pthread_create(&thread, NULL, fails_elsewhere, message) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(ato_explain(ato_read(file, 7777, &byte, 1), whole, sizeof whole) == -ERANGE);
    CHECK(strstr(message, "handle") != NULL && strstr(whole, "7777") != NULL);
    CHECK(ato_explain(ato_read(file, 0, &byte, 1), whole, sizeof whole) == 0 && whole[0] == 0);
    CHECK(ato_explain(-ERANGE, NULL, 9) == -ERANGE && ato_explain(-ERANGE, message, 0) == -ERANGE);

    /* A cut message is text as well. */
    ato_file *none;
    CHECK(ato_explain(ato_open("/nowhere/\xc3\xa4", NULL, &none), message, 400) == -ENOENT);
    size_t before = (size_t)(strstr(message, "\xc3\xa4") - message);
    CHECK(ato_explain(-ENOENT, whole, before + 2) == -ENOENT && strlen(whole) == before);
    CHECK(ato_explain(-ENOENT, whole, before + 3) == -ENOENT && strlen(whole) == before + 2);
    CHECK(ato_explain(-ENOENT, whole, 1) == -ENOENT && whole[0] == 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
}

static void wrong_arguments(const char *path)
{
    ato_file *file = opened(path, 1000), *second = (ato_file *)1;
    ato_options options;
    char buffer[8] = "";

    CHECK(ato_open(NULL, NULL, &second) == -EINVAL && second == NULL);
    CHECK(ato_open(path, NULL, NULL) == -EINVAL);
    CHECK(ato_open("/nowhere/at/all", NULL, &second) == -ENOENT);
    SAYS("/nowhere/at/all");
    CHECK(ato_open(path, NULL, &second) == -EBUSY && second == NULL);
    SAYS("this process");
    memset(&options, 0xff, sizeof options);
    CHECK(ato_open(path, &options, &second) == -EINVAL);
    memset(&options, 0, sizeof options);
    CHECK(ato_open(path, &options, &second) == -EINVAL);
    SAYS("ato_options_init");
    CHECK(ato_read(NULL, 0, buffer, 1) == -EINVAL);
    CHECK(ato_read(file, 0, NULL, 1) == -EINVAL);
    CHECK(ato_write(file, 0, NULL, 1) == -EINVAL);
    CHECK(ato_write(file, 0, buffer, SIZE_MAX) == -EINVAL);
    CHECK(ato_read(file, 0, NULL, 0) == 0);
    CHECK(ato_writev(file, NULL, 1) == -EINVAL);
    CHECK(ato_writev(file, NULL, 0) == 0);
    CHECK(ato_write(file, 996, buffer, 5) == -ERANGE);
    SAYS("offset 996");
    CHECK(ato_write(file, UINT64_MAX, buffer, 2) == -ERANGE);
    CHECK(ato_deploy(file, UINT64_MAX, 2, NULL) == -ERANGE);
    CHECK(ato_set_len(file, UINT64_MAX) == -EFBIG);
    CHECK(ato_copy_to(file, NULL) == -EINVAL);
    CHECK(ato_get_stats(file, NULL, 0) == -EINVAL);
    CHECK(ato_tx_begin(NULL, NULL) == -EINVAL);
    CHECK(ato_tx_begin(file, NULL) == -EINVAL);
    CHECK(ato_tx_commit(NULL) == -EINVAL);
    ato_tx_rollback(NULL);
    CHECK(ato_close(NULL, ATO_CLOSE_FAST) == 0);
    CHECK(ato_close(file, 9) == -EINVAL);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
}

static void calls_on_a_file(const char *path, const char *copy)
{
    ato_file *file = opened(path, 1000), *read_only;
    ato_options options;
    ato_part parts[] = {{10, "left", 4}, {900, "right", 5}};
    ato_stats stats;
    uint64_t number, next, len, pages;
    int at_once, after_sync, medium;
    char buffer[8] = "";
    pthread_t thread;

    CHECK(ato_writev(file, parts, 2) == 0);
    CHECK(ato_read(file, 900, buffer, 5) == 0 && strcmp(buffer, "right") == 0);
    CHECK(ato_write(file, 999, "xy", 2) == -ERANGE);
    CHECK(pthread_create(&thread, NULL, read_elsewhere, file) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(ato_next_durable_number(file, &next) == 0);
    CHECK(ato_sync(file, &number) == 0 && number >= next);
    CHECK(ato_durable_number(file, &number) == 0 && number >= next);
    CHECK(ato_wait_durable(file, next) == 0);
    CHECK(ato_next_durable_number(file, &next) == 0);
    CHECK(ato_wait_durable(file, next + 1) == -EINVAL);
    SAYS("no durable point has number");
    CHECK(ato_wait_durable(file, UINT64_MAX) == -EINVAL && ato_wait_durable(file, next) == 0);
    CHECK(ato_set_len(file, 2000) == 0 && ato_len(file, &len) == 0 && len == 2000);
    CHECK(ato_deploy(file, 0, 2000, &pages) == 0 && pages <= 1);
    CHECK(ato_medium(file, &medium) == 0 && medium != ATO_MEDIUM_ANY);
    CHECK(ato_survives(file, &at_once, &after_sync) == 0 && at_once <= after_sync);
    CHECK(ato_health(file) == 0);
    CHECK(ato_get_stats(file, &stats, sizeof stats) == 0 && stats.bytes_asked == 9);
    CHECK(ato_replace(file, "whole", 5) == 0 && ato_len(file, &len) == 0 && len == 5);
    CHECK(ato_copy_to(file, copy) == 0);
    CHECK(ato_close(file, ATO_CLOSE_FAST) == 0);

    ato_options_init(&options, sizeof options);
    options.read_only = 1;
    CHECK(ato_open(path, &options, &read_only) == 0);
    CHECK(ato_write(read_only, 0, "x", 1) == -EROFS);
    CHECK(ato_read(read_only, 0, buffer, 5) == 0 && memcmp(buffer, "whole", 5) == 0);
    CHECK(ato_close(read_only, ATO_CLOSE_SPATIAL) == 0);
}

static void transactions(const char *path)
{
    ato_file *file = opened(path, 1000);
    ato_tx *tx, *other;
    uint64_t len;
    char buffer[4];

    CHECK(ato_tx_begin(file, &tx) == 0);
    CHECK(ato_tx_len(tx, &len) == 0 && len == 1000);
    CHECK(ato_tx_set_len(tx, 3000) == 0);
    CHECK(ato_tx_write(tx, 2990, "new", 3) == 0);
    CHECK(ato_tx_read(tx, 2990, buffer, 3) == 0 && memcmp(buffer, "new", 3) == 0);
    CHECK(ato_len(file, &len) == 0 && len == 1000);
    CHECK(ato_close(file, ATO_CLOSE_FAST) == -EBUSY);
    SAYS("transaction");
    CHECK(ato_tx_commit(tx) == 0);
    CHECK(ato_len(file, &len) == 0 && len == 3000);

    CHECK(ato_tx_begin(file, &tx) == 0 && ato_tx_begin(file, &other) == 0);
    CHECK(ato_tx_read(tx, 0, buffer, 1) == 0 && ato_tx_write(tx, 8, "a", 1) == 0);
    CHECK(ato_tx_write(other, 0, "b", 1) == 0 && ato_tx_commit(other) == 0);
    CHECK(ato_tx_commit(tx) == -EAGAIN);
    CHECK(ato_tx_begin(file, &tx) == 0 && ato_tx_write(tx, 8, "c", 1) == 0);
    ato_tx_rollback(tx);
    CHECK(ato_read(file, 8, buffer, 1) == 0 && buffer[0] == 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
}

static void snapshots(const char *path)
{
    ato_file *file = opened(path, 1000);
    ato_snapshot_info found[3];
    ato_stats stats;
    uint64_t len, words[sizeof found[0] / 8 + 2];
    size_t count, size = sizeof found[0];
    char buffer[8] = "", longest[66];

    CHECK(ato_snapshot_list(file, NULL, size, 0, &count) == 0 && count == 0);
    CHECK(ato_snapshot_list(file, NULL, size, 1, &count) == -EINVAL);
    CHECK(ato_snapshot(file, NULL) == -EINVAL && ato_snapshot(file, "\xff") == -EINVAL);
    SAYS("UTF-8");
    CHECK(ato_snapshot(NULL, "first") == -EINVAL && ato_snapshot(file, "") == ATO_ESNAPSHOT);
    CHECK(ato_write(file, 100, "old", 3) == 0 && ato_snapshot(file, "first") == 0);
    CHECK(ato_snapshot(file, "first") == ATO_ESNAPSHOT);
    SAYS("already");
    CHECK(ato_write(file, 100, "new", 3) == 0 && ato_set_len(file, 2000) == 0);
    CHECK(ato_snapshot_read(file, "first", 100, buffer, 3) == 0 && strcmp(buffer, "old") == 0);
    CHECK(ato_snapshot_read(file, "first", 998, buffer, 3) == -ERANGE);
    CHECK(ato_snapshot_read(file, "first", 0, NULL, 3) == -EINVAL);
    CHECK(ato_snapshot_read(file, "none", 100, buffer, 3) == ATO_ESNAPSHOT);
    SAYS("\"none\"");

    /* The other way and back again. They stay when the file is closed. */
    CHECK(ato_snapshot_rollback(file, "none", NULL) == ATO_ESNAPSHOT);
    CHECK(ato_snapshot_rollback(file, "first", "first") == ATO_ESNAPSHOT);
    CHECK(ato_snapshot_rollback(file, NULL, "undo") == -EINVAL);
    CHECK(ato_snapshot_rollback(file, "first", "undo") == 0);
    CHECK(ato_read(file, 100, buffer, 3) == 0 && strcmp(buffer, "old") == 0);
    CHECK(ato_len(file, &len) == 0 && len == 1000);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
    file = opened(path, 0);
    CHECK(ato_snapshot_rollback(file, "undo", NULL) == 0);
    CHECK(ato_read(file, 100, buffer, 3) == 0 && strcmp(buffer, "new") == 0);
    CHECK(ato_len(file, &len) == 0 && len == 2000);

    memset(longest, 'x', 65);
    longest[65] = 0;
    CHECK(ato_snapshot(file, longest) == ATO_ESNAPSHOT);
    longest[64] = 0;
    CHECK(ato_snapshot(file, longest) == 0);
    memset(found, 0xff, sizeof found);
    CHECK(ato_snapshot_list(file, found, size, 2, &count) == 0 && count == 3);
    CHECK(found[2].number == UINT64_MAX);
    CHECK(ato_snapshot_list(file, found, size, 3, NULL) == 0);
    CHECK(strcmp(found[0].name, "first") == 0 && found[0].len == 1000 && !found[0].is_undo);
    CHECK(strcmp(found[1].name, "undo") == 0 && found[1].len == 2000 && found[1].is_undo == 1);
    CHECK(strcmp(found[2].name, longest) == 0 && found[1].number == found[0].number + 1);
    CHECK(!found[1].is_automatic && found[1].created_ns >= found[0].created_ns);
    CHECK(found[0].created_ns / 1000000000 >= (uint64_t)time(NULL) - 3600);
    /* A program that knows the first field alone, and one that knows a field more. */
    memset(words, 0xff, sizeof words);
    CHECK(ato_snapshot_list(file, (ato_snapshot_info *)words, 8, 1, NULL) == 0);
    CHECK(words[0] == found[0].number && words[1] == UINT64_MAX);
    CHECK(ato_snapshot_list(file, (ato_snapshot_info *)words, size + 8, 1, NULL) == 0);
    CHECK(words[size / 8] == 0 && words[size / 8 + 1] == UINT64_MAX);

    CHECK(ato_get_stats(file, &stats, sizeof stats) == 0 && stats.snapshots == 1);
    CHECK(ato_snapshot_drop(file, "first") == 0 && ato_snapshot_drop(file, "undo") == 0);
    CHECK(ato_snapshot_drop(file, "first") == ATO_ESNAPSHOT);
    CHECK(ato_snapshot_drop(file, NULL) == -EINVAL && ato_snapshot_drop(file, longest) == 0);
    CHECK(ato_snapshot_list(file, found, size, 3, &count) == 0 && count == 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
}

/* Changes a byte of the file behind the library's back. */
static void spoil(const char *path, off_t at)
{
    int fd = open(path, O_RDWR);
    char byte;

    CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
    byte ^= 0x10;
    CHECK(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

struct damages {
    const char *path;
    atomic_int count;
    _Atomic uint64_t offset, len;
};

static void on_damage(void *user, const char *path, uint64_t offset, uint64_t len)
{
    struct damages *damages = user;

    CHECK(strstr(path, damages->path) != NULL);
    damages->offset = offset;
    damages->len = len;
    damages->count++;
}

/* Damage that `opened_with` lets a program hear of. */
static struct damages heard;

static ato_file *opened_with(const char *path, int integrity, uint64_t scrub_rate)
{
    ato_options options;
    ato_file *file;

    ato_options_init(&options, sizeof options);
    options.create = 1;
    options.len = 3 * 4096 + 100;
    options.integrity = integrity;
    options.scrub_rate = scrub_rate;
    heard.path = path;
    heard.count = 0;
    options.on_damage = on_damage;
    options.on_damage_user = &heard;
    CHECK(ato_open(path, &options, &file) == 0);
    return file;
}

static const char page[4096] = "whole";

/* A thread that waits for the library's own thread. Rust frees what it knows of a thread when the
 * thread ends, and never for the main thread of a program in C. */
static void *scrub(void *path)
{
    ato_file *file = opened_with(path, ATO_INTEGRITY_ON_READ, 1 << 30);
    ato_stats stats;
    char buffer[8];

    CHECK(ato_read(file, 0, buffer, 6) == 0);
    spoil(path, 7);
    CHECK(ato_read(file, 0, buffer, 6) == ATO_EDAMAGED);
    do {
        usleep(1000);
        CHECK(ato_get_stats(file, &stats, sizeof stats) == 0);
        /* The read was told of, and then each pass of the library's own thread. */
    } while (stats.scrub_passes == 0 || heard.count < 2);
    CHECK(heard.offset == 0 && heard.len == 4096);
    CHECK(ato_write(file, 0, page, 4096) == 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
    return NULL;
}

static void integrity(const char *path)
{
    ato_file *file = opened_with(path, ATO_INTEGRITY_ON_SCRUB, 0);
    ato_verification found;
    ato_stats stats;
    uint64_t at, len = 3 * 4096 + 100, words[5] = {0, 0, 0, 0, UINT64_MAX};
    char buffer[8];
    pthread_t thread;

    CHECK(ato_verify(file, 0, len, NULL, 0) == -EINVAL);
    CHECK(ato_verify(NULL, 0, len, &found, sizeof found) == -EINVAL);
    CHECK(ato_verify(file, 0, len + 1, &found, sizeof found) == -ERANGE);
    CHECK(ato_verify(file, UINT64_MAX, 2, &found, sizeof found) == -ERANGE);
    for (at = 0; at < len; at += 4096)
        CHECK(ato_write(file, at, page, at + 4096 < len ? 4096 : len - at) == 0);
    CHECK(ato_verify(file, 0, len, &found, sizeof found) == 0);
    CHECK(found.pages == 4 && found.damaged == 0 && found.first_len == 0);
    CHECK(ato_deploy(file, 0, len, NULL) == 0);
    spoil(path, 4096 + 1000);
    spoil(path, 3 * 4096 + 50);
    CHECK(heard.count == 0);
    CHECK(ato_verify(file, 0, len, &found, sizeof found) == 0 && found.damaged == 2);
    CHECK(heard.count == 2 && heard.offset == 3 * 4096 && heard.len == 100);
    CHECK(found.first_offset == 4096 && found.first_len == 4096);
    CHECK(ato_verify(file, 8192, len - 8192, &found, sizeof found) == 0 && found.damaged == 1);
    CHECK(found.first_offset == 3 * 4096 && found.first_len == 100);
    /* A program that knows the first field alone, and one that knows a field more. */
    CHECK(ato_verify(file, 0, len, (ato_verification *)words, 8) == 0);
    CHECK(words[0] == 4 && words[1] == 0);
    CHECK(ato_verify(file, 0, len, (ato_verification *)words, 40) == 0);
    CHECK(words[1] == 2 && words[2] == 4096 && words[4] == 0);
    CHECK(ato_close(file, ATO_CLOSE_UNSYNCED) == 0);

    /* The sums stay with the file. The first touch of a page verifies it. */
    file = opened_with(path, ATO_INTEGRITY_AS_IS, 0);
    CHECK(ato_read(file, 4096, buffer, 5) == ATO_EDAMAGED);
    SAYS("the 4096 bytes at offset 4096 are damaged");
    CHECK(heard.count == 1 && heard.offset == 4096 && heard.len == 4096);
    SAYS(path);
    CHECK(ato_write(file, 4096 + 9, "x", 1) == ATO_EDAMAGED);
    CHECK(ato_read(file, 8192, buffer, 6) == 0 && strcmp(buffer, "whole") == 0);
    CHECK(ato_get_stats(file, &stats, sizeof stats) == 0 && stats.damaged_pages >= 2);
    CHECK(stats.pages_verified >= 1);
    CHECK(ato_write(file, 4096, page, 4096) == 0 && ato_read(file, 4096, buffer, 6) == 0);
    CHECK(ato_write(file, 3 * 4096, page, 100) == 0);
    CHECK(ato_verify(file, 0, len, &found, sizeof found) == 0 && found.damaged == 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);

    CHECK(pthread_create(&thread, NULL, scrub, (void *)path) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    file = opened_with(path, ATO_INTEGRITY_OFF, 0);
    CHECK(ato_verify(file, 0, len, &found, sizeof found) == 0 && found.pages == 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
}

/* A program that was compiled with the first version of the options. */
static void options_of_the_first_version(const char *path)
{
    ato_options options;
    ato_verification found;
    ato_file *file;

    options.scrub_rate = UINT64_MAX;
    options.integrity = 9;
    ato_options_init(&options, 80);
    CHECK(options.size == 80 && options.scrub_rate == UINT64_MAX && options.integrity == 9);
    options.create = 1;
    options.len = 100;
    CHECK(ato_open(path, &options, &file) == 0 && ato_write(file, 0, "a", 1) == 0);
    CHECK(ato_verify(file, 0, 100, &found, sizeof found) == 0 && found.pages == 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
    options.size = sizeof options;
    memset(options.reserved_2, 0, sizeof options.reserved_2);
    memset(options.reserved_3, 0, sizeof options.reserved_3);
    options.allocation = ATO_ALLOCATE_ON_DEMAND;
    CHECK(ato_open(path, &options, &file) == -EINVAL);
    SAYS("page sums 9");
}

/* Waits for pages that become cold, in a thread of its own: see `scrub`. */
static void *deploy_in_background(void *path)
{
    ato_options options;
    ato_file *file;
    ato_stats stats;
    void *bytes;

    ato_options_init(&options, sizeof options);
    options.create = 1;
    options.len = 8 << 20;
    options.deploy_idle_ms = 1;
    CHECK(ato_open(path, &options, &file) == 0 && ato_write(file, 4096, page, 4096) == 0);
    do {
        usleep(1000);
        CHECK(ato_get_stats(file, &stats, sizeof stats) == 0);
    } while (stats.cold_deployments == 0);
    CHECK(stats.budget_waits == 0 && ato_close(file, ATO_CLOSE_SPATIAL) == 0);

    /* A write that is larger than the least budget waits, and does not fail. */
    options.deploy_idle_ms = 0;
    options.reflection_budget = 1;
    options.journal_len = 64 << 10;
    CHECK(ato_open(path, &options, &file) == 0 && (bytes = calloc(2, 4 << 20)) != NULL);
    CHECK(ato_write(file, 0, bytes, 8 << 20) == 0);
    free(bytes);
    CHECK(ato_get_stats(file, &stats, sizeof stats) == 0 && stats.budget_waits > 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
    return NULL;
}

static void deployment(const char *path, const char *cold)
{
    ato_file *file = opened(path, 10000);
    ato_options options;
    ato_stats stats;
    uint64_t before;
    int policy, medium, other;
    char buffer[8] = "";
    pthread_t thread;

    CHECK(ato_deploy_policy(file, &policy) == 0 && policy == ATO_DEPLOY_LAZY);
    CHECK(ato_set_deploy_policy(file, 4) == -EINVAL);
    SAYS("policy of deployment 4");
    CHECK(ato_set_deploy_policy(NULL, ATO_DEPLOY_EAGER) == -EINVAL);
    CHECK(ato_deploy_policy(NULL, &policy) == -EINVAL && ato_deploy_policy(file, NULL) == 0);
    for (other = ATO_DEPLOY_ADAPTIVE; other >= ATO_DEPLOY_LAZY; other--) {
        CHECK(ato_set_deploy_policy(file, other) == 0);
        CHECK(ato_deploy_policy(file, &policy) == 0 && policy == other);
    }

    CHECK(ato_write_eager(NULL, 0, page, 1) == -EINVAL);
    CHECK(ato_write_eager(file, 0, NULL, 1) == -EINVAL);
    CHECK(ato_write_eager(file, 9999, page, 2) == -ERANGE);
    CHECK(ato_set_deploy_policy(file, ATO_DEPLOY_MANUAL) == 0 && ato_medium(file, &medium) == 0);
    CHECK(ato_write(file, 3, "lazy", 4) == 0);
    CHECK(ato_get_stats(file, &stats, sizeof stats) == 0);
    before = stats.deployments;
    CHECK(ato_write_eager(file, 100, "eager", 5) == 0 && ato_read(file, 100, buffer, 5) == 0);
    CHECK(strcmp(buffer, "eager") == 0 && ato_get_stats(file, &stats, sizeof stats) == 0);
    /* On page cache it is deployed by the next durable point. */
    CHECK(stats.deployments == before + (medium != ATO_MEDIUM_PAGE_CACHE));
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);

    ato_options_init(&options, sizeof options);
    options.deploy = ATO_DEPLOY_ADAPTIVE;
    options.allocation = ATO_ALLOCATE_FULL;
    CHECK(ato_open(path, &options, &file) == 0);
    CHECK(ato_get_stats(file, &stats, sizeof stats) == 0);
    before = stats.allocations;
    CHECK(ato_write(file, 0, page, 4096) == 0 && ato_get_stats(file, &stats, sizeof stats) == 0);
    CHECK(stats.allocations == before && stats.allocations_ahead == 0);
    CHECK(ato_deploy_policy(file, &policy) == 0 && policy == ATO_DEPLOY_ADAPTIVE);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);

    CHECK(pthread_create(&thread, NULL, deploy_in_background, (void *)cold) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

static int new_stream(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    CHECK(fd >= 0);
    return fd;
}

static void wrong_streams(ato_file *file, const char *stream)
{
    ato_file *none = (ato_file *)1;
    int fd = new_stream(stream), read_only = open(stream, O_RDONLY);

    CHECK(ato_export(file, NULL, "one", 0, -1) == -EBADF);
    CHECK(ato_export(file, NULL, "one", 0, 1 << 20) == -EBADF);
    CHECK(ato_export(file, NULL, "one", 0, read_only) == -EBADF);
    CHECK(ato_export(NULL, NULL, "one", 0, fd) == -EINVAL);
    CHECK(ato_export(file, NULL, NULL, 0, fd) == -EINVAL);
    CHECK(ato_export(file, NULL, "none", 0, fd) == ATO_ESNAPSHOT);
    CHECK(ato_export(file, "two", "one", 0, fd) == ATO_ESTREAM);
    SAYS("is not older than");
    CHECK(ato_import(NULL, fd, 0, NULL) == -EINVAL && ato_import(file, -1, 0, NULL) == -EBADF);
    CHECK(ato_import(file, fd, 0, NULL) == ATO_ESTREAM);
    SAYS("the stream ends at offset 0");
    CHECK(ato_import_new("nothing.dat", NULL, -1, &none) == -EBADF && none == NULL);
    CHECK(ato_import_new("nothing.dat", NULL, fd, NULL) == -EINVAL);
    CHECK(ato_import_new(NULL, NULL, fd, &none) == -EINVAL);
    CHECK(ato_import_progress(NULL, NULL) == -EINVAL);
    CHECK(ato_export(file, "one", "two", 0, fd) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(ato_import_new("nothing.dat", NULL, fd, &none) == ATO_ESTREAM && none == NULL);
    SAYS("send the whole first");
    CHECK(access("nothing.dat", F_OK) != 0);
    CHECK(close(fd) == 0 && close(read_only) == 0);
}

static void streams(const char *path, const char *copy, const char *stream)
{
    ato_file *file = opened(path, 1000), *replica;
    ato_snapshot_info taken;
    uint64_t number, frames;
    off_t len;
    char buffer[8] = "";
    int fd;

    CHECK(ato_write(file, 100, "old", 3) == 0 && ato_snapshot(file, "one") == 0);
    CHECK(ato_write(file, 100, "new", 3) == 0 && ato_snapshot(file, "two") == 0);
    wrong_streams(file, stream);

    /* Two streams, one behind the other. Each import reads its own. */
    fd = new_stream(stream);
    CHECK(ato_export(file, NULL, "one", 0, fd) == 0 && (len = lseek(fd, 0, SEEK_CUR)) > 0);
    CHECK(ato_export(file, "one", "two", 0, fd) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(ato_import_new(copy, NULL, fd, &replica) == 0);
    CHECK(ato_read(replica, 100, buffer, 3) == 0 && strcmp(buffer, "old") == 0);
    CHECK(ato_import(replica, fd, 0, &number) == 0 && number == 2);
    CHECK(ato_read(replica, 100, buffer, 3) == 0 && strcmp(buffer, "new") == 0);
    CHECK(ato_snapshot_read(replica, "one", 100, buffer, 3) == 0 && strcmp(buffer, "old") == 0);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && ato_import(replica, fd, 0, NULL) == ATO_ESNAPSHOT);
    CHECK(ato_close(replica, ATO_CLOSE_SPATIAL) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(ato_import_new(copy, NULL, fd, &replica) == -EEXIST && replica == NULL);

    /* A whole file goes over bytes only if it is to replace them. */
    CHECK(unlink(copy) == 0);
    replica = opened("replaced.dat", 50);
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && ato_import(replica, fd, 0, NULL) == ATO_ESTREAM);
    SAYS("not empty");
    CHECK(lseek(fd, 0, SEEK_SET) == 0 && ato_import(replica, fd, 1, &number) == 0);
    CHECK(ato_snapshot_list(replica, &taken, sizeof taken, 1, NULL) == 0);
    CHECK(taken.number == number && strcmp(taken.name, "one") == 0);

    /* A transfer breaks, and goes on. */
    CHECK(lseek(fd, len, SEEK_SET) == len && ftruncate(fd, lseek(fd, 0, SEEK_END) - 1) == 0);
    CHECK(lseek(fd, len, SEEK_SET) == len && ato_import(replica, fd, 0, NULL) == ATO_ESTREAM);
    SAYS("before its last frame");
    CHECK(ato_import_progress("replaced.dat", &frames) == 0 && frames == 1);
    CHECK(ftruncate(fd, 0) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(ato_export(file, "one", "two", frames, fd) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    CHECK(ato_import(replica, fd, 0, NULL) == 0);
    CHECK(ato_read(replica, 100, buffer, 3) == 0 && strcmp(buffer, "new") == 0);
    CHECK(ato_import_progress("replaced.dat", &frames) == 0 && frames == 0);
    CHECK(ato_close(replica, ATO_CLOSE_SPATIAL) == 0 && close(fd) == 0);
    CHECK(ato_close(file, ATO_CLOSE_SPATIAL) == 0);
}

static void mappings(const char *path, int is_to_fork)
{
    ato_file *file;
    ato_tx *tx;
    char *map, *other, buffer[8] = "";
    int status;
    pid_t child;

    CHECK(ato_mmap(path, 0, 1 << 20, NULL) == NULL);
    CHECK(ato_mmap(NULL, 0, 0, NULL) == NULL);
    map = ato_mmap(path, 10000, ATO_MAP_CREATE | ATO_MAP_EAGER, &file);
    CHECK(map != NULL && file != NULL);
    CHECK(ato_memcpy(map + 5000, "abc", 3, 0) == map + 5000);
    CHECK(ato_memcpy(map + 5001, map + 5000, 3, ATO_EAGER) != NULL);
    CHECK(ato_memcpy(buffer, map + 5000, 4, 0) == buffer && memcmp(buffer, "aabc", 4) == 0);
    CHECK(ato_memcpy(buffer, map + 9999, 2, 0) == NULL);
    SAYS("end past");
    CHECK(ato_memcpy(map + 10000, buffer, 1, 0) == NULL);
    CHECK(ato_memcpy(buffer, "x", 1, 0) == NULL);
    CHECK(ato_memcpy(map, buffer, 1, 2) == NULL);
    CHECK(ato_memcpy(map, NULL, 1, 0) == NULL);
    CHECK(ato_close(file, ATO_CLOSE_FAST) == -EBUSY);
    CHECK(ato_munmap(map + 4096, 0, ATO_CLOSE_FAST) == -EINVAL);
    CHECK(ato_munmap(map, 4096, ATO_CLOSE_FAST) == -EINVAL);
    CHECK(ato_tx_begin(file, &tx) == 0);
    CHECK(ato_munmap(map, 0, ATO_CLOSE_FAST) == -EBUSY);
    ato_tx_rollback(tx);

    /* A child cannot use the mapping. A plain access is a fault, and changes nothing. */
    if (is_to_fork) {
        if ((child = fork()) == 0) {
            if (ato_memcpy(map, "x", 1, 0) != NULL || strstr(ato_last_error(), "parent") == NULL)
                _exit(3);
            *(volatile char *)map = 'x';
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    }
    CHECK(ato_memcpy(buffer, map, 1, 0) != NULL && buffer[0] == 0);
    CHECK(ato_munmap(map, 10000, ATO_CLOSE_FAST) == 0);
    CHECK(ato_memcpy(buffer, map, 1, 0) == NULL);

    other = ato_mmap(path, 0, ATO_MAP_READ_ONLY, NULL);
    CHECK(other != NULL && ato_memcpy(other, "x", 1, 0) == NULL);
    CHECK(ato_memcpy(buffer, other + 5000, 4, 0) != NULL && memcmp(buffer, "aabc", 4) == 0);
    CHECK(ato_munmap(other, 0, ATO_CLOSE_FAST) == 0);
}

int main(int argc, char **argv)
{
    /* Valgrind 3.19 does not know that a child lacks the pages of MADV_DONTFORK. */
    int is_to_fork = argc == 3 && strcmp(argv[2], "fork") == 0;

    if (argc < 2 || chdir(argv[1]) != 0)
        return 2;
    CHECK(ato_version_number() == ATO_VERSION_NUMBER && ato_version()[0] != 0);
    wrong_arguments("a.dat");
    calls_on_a_file("b.dat", "copy.dat");
    cancellation("n.dat");
    messages("m.dat");
    transactions("c.dat");
    snapshots("s.dat");
    integrity("i.dat");
    options_of_the_first_version("o.dat");
    deployment("p.dat", "cold.dat");
    streams("e.dat", "replica.dat", "stream");
    mappings("d.dat", is_to_fork);
    puts("ok");
    return 0;
}
