// Makes calls on paths that no pattern describes, as often as the second argument says. The first one
// names the call.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HOLDS(what) do { if (!(what)) { perror(#what); exit(1); } } while (0)

int main(int count, char **args) {
    struct stat found;
    char path[4096];
    HOLDS(count == 3);
    int plain = open("plain", O_RDWR | O_CREAT, 0600);
    HOLDS(plain >= 0 && close(plain) == 0 && getcwd(path, sizeof path - 8) && strcat(path, "/plain"));
    for (int n = atoi(args[2]); n > 0; n--) {
        if (strcmp(args[1], "stat") == 0) HOLDS(stat("plain", &found) == 0 && stat(path, &found) == 0 && lstat("./plain", &found) == 0);
        if (strcmp(args[1], "none") == 0) HOLDS(stat("none", &found) != 0 && open("none", O_RDONLY) < 0);
        if (strcmp(args[1], "open") == 0) HOLDS(close(open("plain", O_RDONLY)) == 0 && close(open(path, O_WRONLY | O_TRUNC)) == 0);
        if (strcmp(args[1], "rename") == 0) HOLDS(rename("plain", "other") == 0 && rename("other", "plain") == 0);
        if (strcmp(args[1], "create") == 0) HOLDS(close(open("new", O_CREAT | O_EXCL | O_RDWR, 0600)) == 0 && unlink("new") == 0);
    }
}
