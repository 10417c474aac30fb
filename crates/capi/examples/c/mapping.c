/* Acumen's three calls: a mapping whose addresses name the bytes of a file.
 *
 *   mapping FILE
 *
 * Build:  cc mapping.c $(pkg-config --cflags --libs atomic-mmap)
 */
#include <atomic_mmap.h>
#include <stdio.h>
#include <string.h>

struct account {
    char owner[24];
    int64_t balance;
};

enum { ACCOUNTS = 100 };

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ato_last_error());
    return 1;
}

int main(int argc, char **argv)
{
    struct account *accounts; /* addresses only: nothing may look at *accounts */
    struct account account = {"", 0}, back;
    ato_file *file;
    uint64_t len;

    if (argc < 2) {
        fprintf(stderr, "mapping FILE\n");
        return 2;
    }
    accounts = ato_mmap(argv[1], ACCOUNTS * sizeof *accounts, ATO_MAP_CREATE, &file);
    if (accounts == NULL)
        return failed("ato_mmap");
    /* A write: all of it or nothing, whatever crashes. */
    strcpy(account.owner, "Ada");
    account.balance = 1815;
    if (ato_memcpy(&accounts[7], &account, sizeof account, 0) == NULL)
        return failed("write");
    /* One part of it. The address of a member is computed, and not read. */
    account.balance = 1852;
    if (ato_memcpy(&accounts[7].balance, &account.balance, sizeof account.balance, ATO_EAGER) == NULL)
        return failed("write of a part");
    /* From one place of the mapping to another. */
    if (ato_memcpy(&accounts[8], &accounts[7], sizeof account, 0) == NULL)
        return failed("copy");
    /* A read. */
    if (ato_memcpy(&back, &accounts[8], sizeof back, 0) == NULL)
        return failed("read");
    printf("%s %lld\n", back.owner, (long long)back.balance);
    /* Past the end: an error, and nothing has changed. */
    if (ato_memcpy(&accounts[ACCOUNTS - 1].balance, &account, sizeof account, 0) != NULL)
        return 1;
    /* The handle of the mapping has all other calls. */
    if (ato_sync(file, NULL) != 0 || ato_len(file, &len) != 0)
        return failed("sync");
    printf("%llu bytes\n", (unsigned long long)len);
    if (ato_munmap(accounts, 0, ATO_CLOSE_SPATIAL) != 0)
        return failed("ato_munmap");
    return 0;
}
