/* What the tests in C have in common. */
#include <atomic_mmap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(is_right)                                                                            \
    do {                                                                                           \
        if (!(is_right)) {                                                                         \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #is_right, ato_last_error());  \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define SAYS(text) CHECK(strstr(ato_last_error(), text) != NULL)

static inline ato_file *opened(const char *path, uint64_t len)
{
    ato_options options;
    ato_file *file;

    ato_options_init(&options, sizeof options);
    options.create = 1;
    options.len = len;
    options.max_len = 1 << 20;
    CHECK(ato_open(path, &options, &file) == 0);
    return file;
}
