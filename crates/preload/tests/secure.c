// A program that has the library loaded, with a chosen file as its argument. It says if the library
// obeys the variables, and if the program has more rights than its caller.
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int count, char **args) {
    if (count != 2) return 2;
    int file = open(args[1], O_RDWR);
    // The library refuses this for a chosen file, with a line in the log.
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    const char *obeys = mapped == MAP_FAILED ? "obeyed" : "kept";
    return printf("%s, %s\n", obeys, getuid() == geteuid() ? "same" : "more") < 0;
}
