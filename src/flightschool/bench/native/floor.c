/* The floor: a bare clone with the namespaces and mounts of a sandbox, `true` in it, and its end; nothing else.
 *
 * Arguments: a recipe, flags of clone, 1 for a range of ids. For each byte on standard input it makes one, and says how
 * many nanoseconds that took, from before the clone until after the wait. No hardening, no agent, no caller. */
#include "helper.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int write_text(pid_t pid, const char *name, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int wrong = fd < 0 || write(fd, text, strlen(text)) < 0;
    if (fd >= 0) close(fd);
    return wrong;
}

static int map_ids(pid_t pid, int range) {
    char users[64] = "0 1879048192 65536", groups[64] = "0 1879048192 65536";
    if (!range) {
        snprintf(users, sizeof users, "1000 %u 1", geteuid());
        snprintf(groups, sizeof groups, "1000 %u 1", getegid());
        if (write_text(pid, "setgroups", "deny")) return 1;
    }
    return write_text(pid, "uid_map", users) || write_text(pid, "gid_map", groups);
}

static void become(struct recipe recipe, int gate, int range) {
    struct sources none = {.count = 0};
    char said, *argv[] = {"true", NULL}, *environment[] = {NULL};
    if (read(gate, &said, 1) != 1) _exit(9);
    if (range && (syscall(SYS_setresgid, 0, 0, 0) || syscall(SYS_setresuid, 0, 0, 0))) _exit(8);
    if (build_root(recipe, &none, -1) < 0) {
        fprintf(stderr, "%s\n", trouble);
        _exit(7);
    }
    execve("/usr/bin/true", argv, environment);
    execve("/bin/true", argv, environment);
    _exit(6);
}

static long long make_one(struct recipe recipe, unsigned long flags, int range) {
    struct timespec from, to;
    int gate[2], status = 1;
    clock_gettime(CLOCK_MONOTONIC, &from);
    if (pipe2(gate, O_CLOEXEC)) return -1;
    pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        close(gate[1]);
        become(recipe, gate[0], range);
    }
    int wrong = pid < 0 || map_ids(pid, range) || write(gate[1], "g", 1) != 1;
    close(gate[0]);
    close(gate[1]);
    if (pid > 0) waitpid(pid, &status, 0);
    clock_gettime(CLOCK_MONOTONIC, &to);
    if (wrong || !WIFEXITED(status) || WEXITSTATUS(status)) return -1;
    return (to.tv_sec - from.tv_sec) * 1000000000LL + (to.tv_nsec - from.tv_nsec);
}

int main(int count, char **words) {
    char asked;
    struct stat found;
    int fd = count == 4 ? open(words[1], O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0 || fstat(fd, &found)) return 2;
    char *text = mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (text == MAP_FAILED) return 2;
    struct recipe recipe = {text, text + found.st_size};
    while (read(0, &asked, 1) == 1) {
        printf("%lld\n", make_one(recipe, strtoul(words[2], NULL, 10), atoi(words[3])));
        fflush(stdout);
    }
    return 0;
}
