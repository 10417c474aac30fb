/* A file of records that a crash never tears: the program may be killed at any moment.
 *
 *   records FILE write [N]   stores the next numbers to all records, N times or for ever. Prints a
 *                            number when its write has returned
 *   records FILE check N     checks that all records have one number, and that it is N or a later one
 *
 * Build:  cc records.c $(pkg-config --cflags --libs atomic-mmap)
 */
#include <atomic_mmap.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RECORDS = 20, RECORD = 712 };

struct record {
    uint64_t number;
    unsigned char bytes[RECORD - sizeof(uint64_t)];
};

static void fill(struct record *record, uint64_t number)
{
    record->number = number;
    memset(record->bytes, (int)(number % 251), sizeof record->bytes);
}

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ato_last_error());
    return 1;
}

/* Stores a number to all records: one transaction, so all of them or none. */
static int store(ato_file *file, uint64_t number)
{
    ato_tx *tx;
    struct record record;
    int code, n;

    fill(&record, number);
    if ((code = ato_tx_begin(file, &tx)) != 0)
        return code;
    for (n = 0; n < RECORDS; n++) {
        if ((code = ato_tx_write(tx, (uint64_t)n * RECORD, &record, sizeof record)) != 0) {
            ato_tx_rollback(tx);
            return code;
        }
    }
    return ato_tx_commit(tx);
}

/* Returns the number that all records have, or -1 if one of them is not whole. */
static int64_t load(ato_file *file)
{
    static struct record found[RECORDS];
    struct record whole;
    int n;

    /* A new file is zero, as the record of the number 0 is. */
    if (ato_read(file, 0, found, sizeof found) != 0)
        return -1;
    fill(&whole, found[0].number);
    for (n = 0; n < RECORDS; n++)
        if (memcmp(&found[n], &whole, sizeof whole) != 0)
            return -1;
    return (int64_t)found[0].number;
}

int main(int argc, char **argv)
{
    ato_options options;
    ato_file *file;
    int64_t number;
    int code = 0;

    if (argc < 3 || (strcmp(argv[2], "write") != 0 && argc < 4)) {
        fprintf(stderr, "records FILE write [N] | records FILE check N\n");
        return 2;
    }
    ato_options_init(&options, sizeof options);
    options.create = 1;
    options.len = (uint64_t)RECORDS * RECORD;
    if (ato_open(argv[1], &options, &file) != 0)
        return failed("open");
    if ((number = load(file)) < 0) {
        fprintf(stderr, "a record is torn\n");
        return 1;
    }
    if (strcmp(argv[2], "check") == 0) {
        if (number < strtoll(argv[3], NULL, 10)) {
            fprintf(stderr, "%s was acknowledged, and %" PRId64 " is there\n", argv[3], number);
            code = 1;
        }
        printf("%" PRId64 "\n", number);
    } else {
        int64_t left = argc > 3 ? strtoll(argv[3], NULL, 10) : INT64_MAX;
        for (; left > 0 && code == 0; left--) {
            code = store(file, (uint64_t)++number);
            if (code == 0) {
                printf("%" PRId64 "\n", number);
                fflush(stdout);
            }
        }
        if (code == 0)
            code = ato_sync(file, NULL);
        if (code != 0)
            code = failed("write");
    }
    if (ato_close(file, ATO_CLOSE_FAST) != 0)
        return failed("close");
    return code;
}
