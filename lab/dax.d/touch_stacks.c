// Touches the stack of each thread before the thread uses it. For the programs in the guest of
// `lab/dax`, which load it by LD_PRELOAD.
//
// QEMU 7.2 without KVM stores a wrong byte for `seto`, `setno`, `setp` and `setnp` if the store faults: it
// has computed the flags anew by then, and does so a second time from what is left. rustc compares
// with i64::MIN by such an instruction, so a local variable in a fresh page of a stack got the
// opposite value. A processor, and KVM, do it right.
//
// A child of fork still has faults, where it copies pages. Such a store to the heap would have, too.

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

// More than the programs use, and less than the smallest stack that they ask for.
enum { DEPTH = 256 << 10, PAGE = 4096 };

__attribute__((noinline)) static void touch(void)
{
    volatile char room[DEPTH];
    // From the top downwards, as a stack grows.
    for (int at = DEPTH - PAGE; at >= 0; at -= PAGE)
        room[at] = 0;
    (void)room[0];
}

__attribute__((constructor)) static void touch_first(void)
{
    touch();
}

struct start {
    void *(*routine)(void *);
    void *argument;
};

static void *touch_and_start(void *given)
{
    struct start start = *(struct start *)given;
    free(given);
    touch();
    return start.routine(start.argument);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*routine)(void *),
                   void *argument)
{
    int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        dlsym(RTLD_NEXT, "pthread_create");
    struct start *start = malloc(sizeof *start);
    if (!create || !start)
        abort();
    *start = (struct start){ routine, argument };
    int failed = create(thread, attributes, touch_and_start, start);
    if (failed)
        free(start);
    return failed;
}
