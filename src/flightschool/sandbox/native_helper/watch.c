/* What a sandbox uses, counted from inside: see `node/watcher.py`, whose sums these are. */
#include "helper.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define FASTEST_BYTES_PER_S 4294967296.0
#define SHORTEST_S 0.005
#define LONGEST_S 0.2

struct state {
    pid_t parent, session;
    int64_t resident_pages;
    double ticks;
};

static ssize_t read_some(const char *path, char *into, size_t room) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    ssize_t size = read(fd, into, room - 1);
    close(fd);
    if (size >= 0) into[size] = 0;
    return size;
}

static int read_state(pid_t pid, struct state *state) {
    char path[40], text[2048];
    snprintf(path, sizeof path, "/proc/%d/stat", pid);
    if (read_some(path, text, sizeof text) <= 0) return -1;
    char *at = strrchr(text, ')'); /* the name before it is the process's own choice */
    if (!at) return -1;
    double words[22];
    int count = 0;
    at += 2;
    while (count < 22) {
        while (*at == ' ') at++;
        if (!*at) return -1;
        words[count++] = isalpha((unsigned char)*at) ? 0 : strtod(at, NULL);
        while (*at && *at != ' ') at++;
    }
    state->parent = (pid_t)words[1];
    state->session = (pid_t)words[3];
    state->ticks = words[11] + words[12] + words[13] + words[14];
    state->resident_pages = (int64_t)words[21];
    return 0;
}

/* Every process but this one, which is the init. NULL when there is none; the caller frees. */
static pid_t *others(int *count) {
    pid_t *pids = NULL;
    int room = 0;
    *count = 0;
    DIR *folder = opendir("/proc");
    if (!folder) return NULL;
    for (struct dirent *entry; (entry = readdir(folder));) {
        int pid = atoi(entry->d_name);
        if (pid <= 1) continue;
        if (*count == room) {
            room = room ? 2 * room : 64;
            pid_t *more = realloc(pids, (size_t)room * sizeof *pids);
            if (!more) break;
            pids = more;
        }
        pids[(*count)++] = pid;
    }
    closedir(folder);
    return pids;
}

int count_others(void) {
    int count;
    free(others(&count));
    return count;
}

static int64_t sum_of_lines(char *text, const char *one, const char *other) {
    int64_t sum = 0;
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
        if (!strncmp(line, one, strlen(one)) || !strncmp(line, other, strlen(other)))
            sum += (int64_t)strtoll(strchr(line, ':') + 1, NULL, 10) << 10;
    return sum;
}

static int64_t exact_bytes(pid_t pid) {
    char path[40], text[8192];
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    if (read_some(path, text, sizeof text) > 0) return sum_of_lines(text, "Pss_Anon:", "Pss_Shmem:");
    snprintf(path, sizeof path, "/proc/%d/status", pid); /* unreadable by its own doing: whole resident sets count */
    if (read_some(path, text, sizeof text) > 0) return sum_of_lines(text, "RssAnon:", "RssShmem:");
    return 0;
}

static int64_t system_v_bytes(void) {
    char line[512];
    int64_t sum = 0;
    FILE *file = fopen("/proc/sysvipc/shm", "re");
    if (!file) return 0;
    if (fgets(line, sizeof line, file))
        while (fgets(line, sizeof line, file)) {
            char *rest = line, *word = NULL;
            for (int place = 0; place < 15; place++) word = strtok_r(place ? NULL : line, " \n", &rest);
            if (word) sum += strtoll(word, NULL, 10);
        }
    fclose(file);
    return sum;
}

struct usage usage_now(const struct plan *plan) {
    struct rusage reaped;
    struct usage used = {0, 0, 0};
    getrusage(RUSAGE_CHILDREN, &reaped);
    used.cpu_s = (double)(reaped.ru_utime.tv_sec + reaped.ru_stime.tv_sec) +
                 (double)(reaped.ru_utime.tv_usec + reaped.ru_stime.tv_usec) / 1e6;
    used.memory_bytes = system_v_bytes();
    double tick = (double)sysconf(_SC_CLK_TCK);
    int64_t page = sysconf(_SC_PAGESIZE);
    pid_t *pids = others(&used.processes);
    for (int place = 0; place < used.processes; place++) {
        struct state state;
        if (read_state(pids[place], &state)) continue;
        used.memory_bytes += state.resident_pages * page;
        used.cpu_s += state.ticks / tick;
    }
    if (used.memory_bytes > plan->memory_bytes) {
        used.memory_bytes = system_v_bytes();
        for (int place = 0; place < used.processes; place++) used.memory_bytes += exact_bytes(pids[place]);
    }
    free(pids);
    return used;
}

double pause_s(const struct plan *plan, const struct usage *used) {
    double left = (double)(plan->memory_bytes - used->memory_bytes) / FASTEST_BYTES_PER_S;
    return left < SHORTEST_S ? SHORTEST_S : left > LONGEST_S ? LONGEST_S : left;
}

enum mark { UNKNOWN, CHOSEN, OTHER, ASKED };

static int by_number(const void *one, const void *other) {
    pid_t mine = *(const pid_t *)one, theirs = *(const pid_t *)other;
    return mine < theirs ? -1 : mine > theirs;
}

/* Whether a process descends from a chosen one; what is found on the way up is noted, so that a long chain of forks,
 * which a policy can make, costs one walk and not one for each of its links. */
static void judge(int place, const pid_t *pids, const struct state *states, char *marks, int count) {
    int at = place;
    while (marks[at] == UNKNOWN) {
        marks[at] = ASKED;
        pid_t parent = states[at].parent;
        const pid_t *found = bsearch(&parent, pids, (size_t)count, sizeof *pids, by_number);
        if (!found) break;
        at = (int)(found - pids);
    }
    char verdict = marks[at] == CHOSEN ? CHOSEN : OTHER;
    for (at = place; marks[at] == ASKED;) {
        marks[at] = verdict;
        pid_t parent = states[at].parent;
        const pid_t *found = bsearch(&parent, pids, (size_t)count, sizeof *pids, by_number);
        if (!found) break;
        at = (int)(found - pids);
    }
}

int processes_of(pid_t session, pid_t root, pid_t **found) {
    int count, kept = 0;
    pid_t *pids = others(&count);
    if (pids) qsort(pids, (size_t)count, sizeof *pids, by_number);
    struct state *states = calloc((size_t)count + 1, sizeof *states);
    char *marks = calloc((size_t)count + 1, 1);
    if (!states || !marks) count = 0;
    for (int place = 0; place < count; place++) {
        if (read_state(pids[place], &states[place])) marks[place] = OTHER; /* it ended */
        else if (states[place].session == session || pids[place] == root) marks[place] = CHOSEN;
    }
    for (int place = 0; place < count; place++) judge(place, pids, states, marks, count);
    for (int place = 0; place < count; place++)
        if (marks[place] == CHOSEN) pids[kept++] = pids[place];
    free(states);
    free(marks);
    *found = pids;
    return kept;
}
