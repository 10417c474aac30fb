/* Takes blocks from standard input into a file. A block is there as a whole, with its number, or not
 * at all: also if the input breaks off in the middle of it, or the program is killed.
 *
 *   stages FILE < INPUT
 *
 * Prints how many blocks the file has then. The file begins with that number.
 *
 * Build:  cc stages.c $(pkg-config --cflags --libs atomic-mmap)
 */
#include <atomic_mmap.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

enum { HEAD = 4096, BLOCK = 65536, BLOCKS = 64 };

static int failed(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, ato_last_error());
    return 1;
}

/* Takes the next block. Stores 0 to `received` if the input has ended before it was whole. */
static int take(ato_file *file, uint64_t *number, uint64_t *received)
{
    ato_stage *block, *head, *both[2];
    uint64_t next = *number + 1;
    int code;

    if ((code = ato_stage_begin(file, HEAD + *number * BLOCK, BLOCK, &block)) != 0)
        return code;
    if ((code = ato_stage_begin(file, 0, sizeof next, &head)) != 0) {
        ato_stage_drop(block);
        return code;
    }
    /* No reader sees these bytes yet. */
    code = ato_stage_fill_from(block, 0, BLOCK, STDIN_FILENO, received);
    if (code == 0 && *received < BLOCK)
        *received = 0;
    if (code == 0 && *received > 0)
        code = ato_stage_write(head, 0, &next, sizeof next);
    both[0] = block;
    both[1] = head;
    /* The block and its number, in one operation that copies none of the block's bytes. */
    if (code == 0 && *received > 0 && (code = ato_commit_stages(file, both, 2)) == 0)
        *number = next;
    /* A block that was not committed is forgotten. */
    ato_stage_drop(block);
    ato_stage_drop(head);
    return code;
}

int main(int argc, char **argv)
{
    ato_options options;
    ato_file *file;
    uint64_t number, received = 1;
    int code = 0;

    if (argc < 2) {
        fprintf(stderr, "stages FILE < INPUT\n");
        return 2;
    }
    ato_options_init(&options, sizeof options);
    options.create = 1;
    options.len = HEAD + (uint64_t)BLOCKS * BLOCK;
    if (ato_open(argv[1], &options, &file) != 0)
        return failed("open");
    code = ato_read(file, 0, &number, sizeof number);
    while (code == 0 && received > 0 && number < BLOCKS)
        code = take(file, &number, &received);
    if (code == 0)
        printf("%" PRIu64 " blocks\n", number);
    else
        code = failed("take");
    if (ato_close(file, ATO_CLOSE_FAST) != 0)
        return failed("close");
    return code;
}
