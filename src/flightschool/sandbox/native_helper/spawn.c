/* Starting one program: words, places where it may lie, and the process. */
#include "helper.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs in the memory of the agent until it execs (vfork): calls only, no data of the agent's is changed. */
static int become_command(const struct start *start, int *at_cwd) {
    sigset_t none;
    struct rlimit cpu = {start->cpu_s, start->cpu_s};
    int wrong = ENOENT;
    setsid();
    for (int stream = 0; stream < 3; stream++)
        if (dup2(start->streams[stream], stream) < 0) return errno;
    syscall(SYS_close_range, 3, ~0U, 0);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setrlimit(RLIMIT_CPU, &cpu);
    int narrowed = narrow(start->plan);
    if (narrowed) return narrowed;
    if (chdir(start->cwd)) return *at_cwd = 1, errno;
    for (char **candidate = start->candidates; *candidate; candidate++) {
        if (access(*candidate, F_OK) && (errno == ENOENT || errno == ENOTDIR)) continue; /* cheaper than to have exec say so */
        execve(*candidate, start->argv, start->environment);
        if (errno != ENOENT && errno != ENOTDIR && wrong == ENOENT) wrong = errno;
    }
    return wrong;
}

/* A new process may be put on a busy processor and wait there for a whole slice, while this one, which sleeps until it
 * has called exec, leaves its own idle. So it is made here, and both get the old mask back once it has become the command. */
pid_t spawn(const struct start *start, int *wrong, int *at_cwd) {
    volatile int answer = 0, cwd_answer = 0;
    cpu_set_t any, here;
    int cpu = sched_getcpu();
    volatile int pinned = 0; /* set before, read after vfork */
    if (cpu >= 0 && cpu < CPU_SETSIZE && !sched_getaffinity(0, sizeof any, &any)) {
        CPU_ZERO(&here);
        CPU_SET(cpu, &here);
        pinned = !sched_setaffinity(0, sizeof here, &here);
    }
    pid_t pid = vfork();
    if (pid == 0) {
        int at = 0;
        answer = become_command(start, &at);
        cwd_answer = at;
        _exit(127);
    }
    *wrong = pid < 0 ? errno : answer;
    if (pinned && pid > 0) sched_setaffinity(pid, sizeof any, &any);
    if (pinned) sched_setaffinity(0, sizeof any, &any);
    *at_cwd = cwd_answer;
    if (pid > 0 && answer) {
        waitpid(pid, NULL, 0);
        pid = -1;
    }
    return pid;
}

/* Texts of a list, or `key=value` of a table, as a NULL-ended array; NULL for what a program cannot be given. */
char **words_of(const struct json *from, enum kind kind) {
    size_t count = 0;
    if (!from || from->kind != kind) return NULL;
    for (const struct json *child = from->child; child; child = child->next) count++;
    char **words = calloc(count + 1, sizeof *words);
    if (!words) return NULL;
    count = 0;
    for (const struct json *child = from->child; child; child = child->next, count++) {
        int whole = child->kind == J_TEXT && strlen(child->text) == child->size;
        if (kind == J_TABLE && whole) {
            whole = *child->key && !strchr(child->key, '=') &&
                    asprintf(&words[count], "%s=%s", child->key, child->text) >= 0;
        } else if (whole) {
            words[count] = strdup(child->text);
        }
        if (whole && words[count]) continue;
        for (size_t place = 0; place < count; place++) free(words[place]);
        free(words);
        return NULL;
    }
    return words;
}

void free_words(char **words) {
    for (char **word = words; word && *word; word++) free(*word);
    free(words);
}

char **candidates_of(const char *program, char **environment) {
    const char *path = "/bin:/usr/bin";
    size_t count = 2;
    for (char **variable = environment; *variable; variable++)
        if (!strncmp(*variable, "PATH=", 5)) path = *variable + 5;
    for (const char *at = path; *at; at++) count += *at == ':';
    char **found = calloc(count + 1, sizeof *found);
    if (!found) return NULL;
    if (strchr(program, '/')) {
        found[0] = strdup(program);
        return found;
    }
    count = 0;
    for (const char *at = path;; at = strchr(at, ':') + 1) {
        int size = (int)strcspn(at, ":");
        if (asprintf(&found[count], "%.*s%s%s", size, at, size ? "/" : "", program) >= 0) count++;
        if (!at[size]) return found;
    }
}
