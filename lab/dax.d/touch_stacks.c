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

// The deepest that a test goes is an array of 1 MiB in a thread's stack of 2 MiB.
enum { MOST = 2 << 20, REST = 128 << 10, PAGE = 4096 };

__attribute__((noinline)) static void touch(void)
{
    pthread_attr_t attributes;
    void *low;
    size_t size;
    if (pthread_getattr_np(pthread_self(), &attributes) ||
        pthread_attr_getstack(&attributes, &low, &size))
        abort();
    pthread_attr_destroy(&attributes);
    size_t depth = (char *)__builtin_frame_address(0) - (char *)low;
    if (depth <= REST)
        return;
    depth = depth - REST < MOST ? depth - REST : MOST;
    volatile char *room = __builtin_alloca(depth);
    // From the top downwards, as a stack grows.
    for (size_t at = depth; at >= PAGE; at -= PAGE)
        room[at - PAGE] = 0;
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
