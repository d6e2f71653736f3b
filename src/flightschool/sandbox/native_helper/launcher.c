/* The launcher: one process per node that makes sandboxes, watches over their life, and ends with its caller.
 *
 * Speaks on descriptor 0 what `node/launcher.py` speaks, but for `open`: that brings the socket of the agent to be and a
 * recipe, as descriptors, and is answered on that socket, by the agent when it serves or from here when there is none. */
#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL 0
#define MOST_MESSAGE 65536
#define RANGE_BASE 0x70000000u
#define RANGE_COUNT 65536u
#define RANGES 4096
#define GRACE_S 30.0

struct box {
    long long number;
    pid_t pid;
    int pidfd, gate, slot;
    double dies_at;
    char *group; /* path of its control group; NULL: none */
    struct box *next;
};

static struct box *boxes;
static int polled, free_slots[RANGES], num_free;

static void reply(const char *text, int fd) { send_with_fd(CONTROL, text, strlen(text), fd); }

static void say_failed(int channel, const char *text, int wrong) {
    char header[800], quoted[700];
    json_quote(quoted, sizeof quoted, text);
    snprintf(header, sizeof header, "{\"failed\":%s,\"errno\":%d}", quoted, wrong);
    send_frame(channel, header, NULL, 0);
}

static void reply_gone(long long number) {
    char message[64];
    snprintf(message, sizeof message, "{\"gone\":%lld}", number);
    reply(message, -1);
}

/* ---------------------------------------------------------------- making one */

static int write_text(pid_t pid, const char *name, const char *text) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return failed("open %s", name);
    int wrong = write(fd, text, strlen(text)) < 0 ? failed("write %s", name) : 0;
    close(fd);
    return wrong;
}

static int map_ids(pid_t pid, const struct plan *plan, int slot) {
    char users[64], groups[64];
    if (plan->range) {
        snprintf(users, sizeof users, "0 %u %u", RANGE_BASE + (unsigned)slot * RANGE_COUNT, RANGE_COUNT);
        strcpy(groups, users);
    } else {
        if (write_text(pid, "setgroups", "deny")) return -1;
        snprintf(users, sizeof users, "%u %u 1", plan->uid, geteuid());
        snprintf(groups, sizeof groups, "%u %u 1", plan->gid, getegid());
    }
    return write_text(pid, "uid_map", users) || write_text(pid, "gid_map", groups) ? -1 : 0;
}

/* Before it is let through its gate, so that all it ever uses is counted there. */
static int put_into_group(const char *group, pid_t pid) {
    char path[4200], text[16];
    snprintf(path, sizeof path, "%s/cgroup.procs", group);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0) return failed("open %s", path);
    int size = snprintf(text, sizeof text, "%d", pid);
    int wrong = write(fd, text, (size_t)size) < 0 ? failed("write %s", path) : 0;
    close(fd);
    return wrong;
}

static int let_go(int gate, pid_t pid, const struct plan *plan) {
    int tree = -1;
    if (*plan->tree && plan->range) {
        char path[64];
        snprintf(path, sizeof path, "/proc/%d/ns/user", pid);
        int users = open(path, O_RDONLY | O_CLOEXEC);
        if (users < 0) return failed("open the user namespace");
        tree = idmapped_tree(plan->tree, users); /* -1 on an old kernel or file system: its owners are nobody inside */
        close(users);
    }
    int wrong = send_with_fd(gate, "g", 1, tree) ? failed("gate") : 0;
    if (tree >= 0) close(tree);
    return wrong;
}

static void become(const struct plan *plan, int channel, int gate) {
    char said, header[64];
    int tree;
    if (keep_only(channel, gate, -1)) _exit(1); /* first of all: a copy of the launcher's ends would hide that it died */
    prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    if (receive_with_fds(gate, &said, 1, &tree, 1) != 1) _exit(1);
    int root = enter(plan, channel, gate, tree);
    if (root < 0) {
        say_failed(channel, trouble, trouble_number);
        _exit(1);
    }
    static const char ready[] = "{\"ready\":true}";
    uint32_t lengths[2] = {sizeof ready - 1, 0};
    memcpy(header, lengths, sizeof lengths);
    memcpy(header + sizeof lengths, ready, sizeof ready - 1);
    if (send_with_fd(channel, header, sizeof lengths + sizeof ready - 1, root)) _exit(1);
    close(root);
    if (harden(plan)) { /* the caller may have asked already: it is told, and nothing was run */
        say_failed(channel, trouble, trouble_number);
        _exit(1);
    }
    serve(plan, channel, gate);
}

static int make_box(struct box *box, const struct plan *plan, unsigned long flags, int channel) {
    int gates[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gates)) return failed("socketpair");
    pid_t pid = (pid_t)syscall(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0) {
        become(plan, channel, gates[1]);
        _exit(1);
    }
    int wrong = pid < 0 ? failed("clone") : 0;
    close(gates[1]);
    if (!wrong) {
        box->pid = pid;
        box->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        wrong = box->pidfd < 0 ? failed("pidfd_open") : box->group ? put_into_group(box->group, pid) : 0;
        wrong = wrong || map_ids(pid, plan, box->slot) || let_go(gates[0], pid, plan);
        if (wrong) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            if (box->pidfd >= 0) close(box->pidfd);
        }
    }
    if (wrong) {
        close(gates[0]);
        return -1;
    }
    box->gate = gates[0]; /* stays open for as long as this process lives: see `serve` */
    return 0;
}

static void free_box(struct box *box) {
    if (box) free(box->group);
    free(box);
}

static struct box *new_box(const struct json *request, int channel, struct plan *plan) {
    struct box *box = calloc(1, sizeof *box);
    const char *group = json_text(request, "group");
    if (box && group) box->group = strdup(group);
    if (!box || !num_free || (group && !box->group)) {
        errno = box && !num_free ? EAGAIN : ENOMEM;
        failed("as many sandboxes as there are id ranges are open already, or memory has run out");
        free_box(box);
        return NULL;
    }
    unsigned long flags = (unsigned long)json_number(request, "flags", 0);
    if (group) flags &= ~(unsigned long)CLONE_NEWCGROUP; /* its view begins at the group once it is in there */
    plan->in_cgroup = group != NULL;
    box->number = (long long)json_number(request, "id", 0);
    box->slot = free_slots[--num_free];
    box->dies_at = now_s() + plan->wall_s + GRACE_S;
    if (!make_box(box, plan, flags, channel)) return box;
    free_slots[num_free++] = box->slot;
    free_box(box);
    return NULL;
}

static void open_box(const struct json *request, int channel, int recipe_fd) {
    struct stat found;
    struct plan plan;
    struct box *box = NULL;
    if (recipe_fd < 0 || fstat(recipe_fd, &found) || found.st_size <= 0) {
        say_failed(channel, "no recipe came with it", EINVAL);
        return;
    }
    size_t size = (size_t)found.st_size;
    char *text = mmap(NULL, size, PROT_READ, MAP_PRIVATE, recipe_fd, 0);
    if (text == MAP_FAILED || read_plan((struct recipe){text, text + size}, &plan)) {
        say_failed(channel, "the recipe cannot be read", EINVAL);
    } else {
        box = new_box(request, channel, &plan);
        if (!box) say_failed(channel, trouble, trouble_number);
    }
    if (text != MAP_FAILED) munmap(text, size);
    if (!box) return;
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = box};
    epoll_ctl(polled, EPOLL_CTL_ADD, box->pidfd, &event);
    box->next = boxes;
    boxes = box;
}

/* ---------------------------------------------------------------- ending them */

static void kill_box(const struct box *box) { syscall(SYS_pidfd_send_signal, box->pidfd, SIGKILL, NULL, 0); }

/* Dead, with a control group that is the caller's to remove: kept until it has done so, since the caller may be dying
   too, which a sandbox sees before we do. */
static struct box *left;

static void leave(struct box *box) {
    for (struct box **place = &left; *place;) {
        struct box *one = *place;
        if (access(one->group, F_OK)) {
            *place = one->next;
            free_box(one);
        } else place = &one->next;
    }
    if (!box->group) {
        free_box(box);
        return;
    }
    box->next = left;
    left = box;
}

/* Its init is dead, and the kernel let it go only after every process of its namespace. */
static void bury(struct box *box) {
    waitpid(box->pid, NULL, 0);
    epoll_ctl(polled, EPOLL_CTL_DEL, box->pidfd, NULL); /* a child that is just made holds it too: closing is not enough */
    close(box->pidfd);
    close(box->gate);
    free_slots[num_free++] = box->slot;
    for (struct box **place = &boxes; *place; place = &(*place)->next)
        if (*place == box) {
            *place = box->next;
            break;
        }
    reply_gone(box->number);
    leave(box);
}

static void close_box(long long number) {
    for (const struct box *box = boxes; box; box = box->next)
        if (box->number == number) {
            kill_box(box);
            return;
        }
    reply_gone(number);
}

/* The kernel counts a reaped process out of its group a moment later, on a busy machine seconds later. */
static void remove_group(const char *group) {
    for (int tries = 0; rmdir(group) && errno == EBUSY && tries < 5000; tries++) usleep(2000);
}

/* Where the caller was killed nobody else would: first what is in its own group, then that. */
static void remove_groups(const struct box *first) {
    for (const struct box *box = first; box; box = box->next)
        if (box->group) remove_group(box->group);
}

static void remove_bases(const struct box *first) {
    for (const struct box *box = first; box; box = box->next) {
        char *slash = box->group ? strrchr(box->group, '/') : NULL;
        if (!slash) continue;
        *slash = 0;
        remove_group(box->group); /* for the next box it is gone already */
    }
}

static void end_all(void) {
    for (const struct box *box = boxes; box; box = box->next) kill_box(box);
    for (const struct box *box = boxes; box; box = box->next) waitpid(box->pid, NULL, 0);
    remove_groups(boxes);
    remove_groups(left);
    remove_bases(boxes);
    remove_bases(left);
    _exit(0);
}

static int patience_ms(void) {
    double least = INFINITY;
    for (const struct box *box = boxes; box; box = box->next)
        if (box->dies_at < least) least = box->dies_at;
    if (least == INFINITY) return -1;
    double left = (least - now_s()) * 1e3;
    return left < 0 ? 0 : left > 1e9 ? 1000000000 : (int)left + 1;
}

static void kill_overdue(void) {
    double now = now_s();
    for (struct box *box = boxes; box; box = box->next)
        if (now >= box->dies_at) {
            kill_box(box);
            box->dies_at = INFINITY;
        }
}

/* ---------------------------------------------------------------- the caller, and the loop */

/* Places for the descriptors that come with a message: without them it could not even be said that none are left. */
static int spares[MOST_FDS] = {-1, -1};

static void free_spares(void) {
    for (int place = 0; place < MOST_FDS; place++) {
        if (spares[place] >= 0) close(spares[place]);
        spares[place] = -1;
    }
}

static void take_spares(void) {
    for (int place = 0; place < MOST_FDS; place++)
        if (spares[place] < 0) spares[place] = fcntl(CONTROL, F_DUPFD_CLOEXEC, 3);
}

static void on_message(void) {
    static char message[MOST_MESSAGE];
    int fds[MOST_FDS];
    free_spares();
    ssize_t size = receive_with_fds(CONTROL, message, sizeof message - 1, fds, MOST_FDS);
    if (size <= 0) end_all();
    struct json *request = json_read(message, (size_t)size);
    const char *op = request ? json_text(request, "op") : NULL;
    if (op && !strcmp(op, "open")) open_box(request, fds[0], fds[1]);
    else if (op && !strcmp(op, "close")) close_box((long long)json_number(request, "id", 0));
    json_free(request);
    for (int place = 0; place < MOST_FDS; place++)
        if (fds[place] >= 0) close(fds[place]);
    take_spares();
}

int main(void) {
    static char caller_mark;
    char hello[64];
    prctl(PR_SET_NAME, "sandbox-init", 0, 0, 0);
    signal(SIGINT, SIG_IGN); /* the caller's Ctrl-C is the caller's to handle */
    signal(SIGPIPE, SIG_IGN);
    int caller = (int)syscall(SYS_pidfd_open, getppid(), 0);
    polled = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event control = {.events = EPOLLIN, .data.ptr = NULL};
    struct epoll_event parent = {.events = EPOLLIN, .data.ptr = &caller_mark};
    if (caller < 0 || polled < 0 || epoll_ctl(polled, EPOLL_CTL_ADD, CONTROL, &control) ||
        epoll_ctl(polled, EPOLL_CTL_ADD, caller, &parent))
        return 1;
    for (int slot = RANGES - 1; slot >= 0; slot--) free_slots[num_free++] = slot;
    take_spares();
    snprintf(hello, sizeof hello, "{\"launcher\":%d}", getpid());
    reply(hello, -1);
    for (;;) {
        struct epoll_event events[64];
        int count = epoll_wait(polled, events, 64, patience_ms());
        int asked = 0;
        for (int place = 0; place < count; place++) {
            if (events[place].data.ptr == &caller_mark) end_all();
            if (events[place].data.ptr) bury(events[place].data.ptr);
            else asked = 1;
        }
        if (asked) on_message();
        kill_overdue();
    }
}
