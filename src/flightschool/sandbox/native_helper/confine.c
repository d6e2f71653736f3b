/* From a fresh clone to a process that can do nothing but serve: the order of `node/confine.py`, and for its reasons. */
#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NO_ROOT_PRIVILEGES_LOCKED 0x2F

int read_plan(struct recipe recipe, struct plan *plan) {
    struct record head;
    memset(plan, 0, sizeof *plan);
    if (next_record(&recipe, &head) != 1 || head.op != OP_HEAD || head.count != 9) return -1;
    plan->range = (int)number_of(&head, 0);
    plan->uid = (uint32_t)number_of(&head, 1);
    plan->gid = (uint32_t)number_of(&head, 2);
    plan->hostname = text_of(&head, 3);
    plan->tree = text_of(&head, 4);
    plan->cpu_s = (double)number_of(&head, 5) / 1e6;
    plan->wall_s = (double)number_of(&head, 6) / 1e6;
    plan->memory_bytes = number_of(&head, 7);
    plan->kept = (uint64_t)number_of(&head, 8);
    if (next_record(&recipe, &head) != 1 || head.op != OP_FILTER || head.count != 3) return -1;
    plan->filter = head.parts[0].at;
    plan->filter_bytes = head.parts[0].size;
    plan->last_capability = (int)number_of(&head, 1);
    plan->command_filter = head.parts[2].at;
    plan->command_filter_bytes = head.parts[2].size;
    plan->steps = recipe;
    return plan->filter_bytes >= sizeof(struct sock_filter) ? 0 : -1;
}

static int close_all_but(const int *keep, int count) { /* `keep` in rising order */
    unsigned start = 0;
    for (int place = 0; place < count; place++) {
        unsigned fd = (unsigned)keep[place];
        if (fd > start && syscall(SYS_close_range, start, fd - 1, 0)) return failed("close_range");
        start = fd + 1;
    }
    return syscall(SYS_close_range, start, ~0U, 0) ? failed("close_range") : 0;
}

int keep_only(int one, int two, int three) {
    int keep[6] = {0, 1, 2}, count = 3, more[3] = {one, two, three};
    for (int place = 0; place < 3; place++) {
        if (more[place] <= 2) continue;
        int at = count++;
        for (; at > 3 && keep[at - 1] > more[place]; at--) keep[at] = keep[at - 1];
        keep[at] = more[place];
    }
    return close_all_but(keep, count);
}

static int take_ids(uint32_t uid, uint32_t gid) {
    if (syscall(SYS_setresgid, gid, gid, gid)) return failed("setresgid %u", gid);
    return syscall(SYS_setresuid, uid, uid, uid) ? failed("setresuid %u", uid) : 0;
}

static int quiet_streams(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return failed("open /dev/null");
    for (int stream = 0; stream < 3; stream++)
        if (dup2(null, stream) < 0) return failed("dup2");
    if (null > 2) close(null);
    return 0;
}

static int loopback_up(void) {
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};
    int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (any < 0) return failed("socket");
    int wrong = ioctl(any, SIOCSIFFLAGS, &request) ? failed("loopback") : 0;
    close(any);
    return wrong;
}

static int set_limits(struct recipe steps) {
    struct record record;
    int more;
    while ((more = next_record(&steps, &record)) > 0) {
        if (record.op != OP_LIMIT) continue;
        int resource = (int)number_of(&record, 0);
        rlim_t value = (rlim_t)number_of(&record, 1);
        struct rlimit limit;
        if (getrlimit(resource, &limit)) return failed("getrlimit %d", resource);
        if (limit.rlim_max != RLIM_INFINITY && limit.rlim_max < value) value = limit.rlim_max;
        limit.rlim_cur = limit.rlim_max = value;
        if (setrlimit(resource, &limit)) return failed("setrlimit %d", resource);
    }
    return more ? (errno = EINVAL, failed("recipe")) : 0;
}

static int drop_bounding_set(int last) {
    for (int capability = 0; capability <= last; capability++)
        if (prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)) return failed("drop capability %d", capability);
    return prctl(PR_SET_SECUREBITS, NO_ROOT_PRIVILEGES_LOCKED, 0, 0, 0) ? failed("securebits") : 0;
}

static int clear_capabilities(void) {
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct empty[2] = {{0}, {0}};
    return syscall(SYS_capset, &header, empty) ? failed("capset") : 0;
}

static int install_filter(const char *filter, uint32_t bytes) {
    struct sock_fprog program = {
        .len = (unsigned short)(bytes / sizeof(struct sock_filter)),
        .filter = (struct sock_filter *)(uintptr_t)filter,
    };
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
}

/* What `node/powers.py` does. Runs in the memory of the agent (vfork): credentials and filters are the child's own. */
int narrow(const struct plan *plan) {
    if (!plan->kept) return 0;
    for (int capability = 0; capability <= plan->last_capability; capability++)
        if (!(plan->kept >> capability & 1) && prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)) return errno;
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct sets[2] = {{0}, {0}};
    sets[0].effective = sets[0].permitted = (uint32_t)plan->kept;
    sets[1].effective = sets[1].permitted = (uint32_t)(plan->kept >> 32);
    if (syscall(SYS_capset, &header, sets)) return errno;
    if (plan->command_filter_bytes && install_filter(plan->command_filter, plan->command_filter_bytes)) return errno;
    return 0;
}

static int renounce(const struct plan *plan) {
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)) return failed("dumpable");
    if (!plan->kept) {
        if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)) return failed("ambient capabilities");
        if (clear_capabilities()) return -1;
    }
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)) return failed("parent-death signal"); /* ids have changed: again */
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return failed("no_new_privs");
    return install_filter(plan->filter, plan->filter_bytes) ? failed("seccomp") : 0;
}

static void choose_me_first(void) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0) return;
    ssize_t ignored = write(fd, "1000", 4); /* an outer limit may forbid it */
    (void)ignored;
    close(fd);
}

int enter(const struct plan *plan, int channel, int gate, int tree_fd) {
    static struct sources sources;
    if (keep_only(channel, gate, tree_fd)) return -1;
    if (plan->in_cgroup && unshare(CLONE_NEWCGROUP)) return failed("cgroup namespace");
    if (open_sources(plan->steps, &sources)) return -1;
    if (plan->range) {
        if (syscall(SYS_setgroups, 0, NULL)) return failed("setgroups");
        if (take_ids(0, 0)) return -1;
    }
    umask(022);
    choose_me_first();
    int root = build_root(plan->steps, &sources, tree_fd);
    if (root < 0) return -1;
    return keep_only(channel, gate, root) || quiet_streams() ? -1 : root;
}

/* What must be done before the first command and needs nobody to wait for it: the caller is told of the root before. */
int harden(const struct plan *plan) {
    if (sethostname(plan->hostname, strlen(plan->hostname))) return failed("sethostname");
    if (loopback_up() || set_limits(plan->steps)) return -1;
    if (!plan->kept && drop_bounding_set(plan->last_capability)) return -1;
    if (take_ids(plan->uid, plan->gid)) return -1;
    return renounce(plan);
}

/* ---------------------------------------------------------------- descriptors over sockets, trees through other ids */

int idmapped_tree(const char *path, int user_namespace) {
    uint64_t words[4] = {0x00100000 | 1 | 2 | 4, 0, 0, (uint64_t)user_namespace}; /* idmap, read-only, nosuid, nodev */
    int fd = (int)syscall(SYS_open_tree, AT_FDCWD, path, 1 | O_CLOEXEC | 0x8000);
    if (fd < 0) return -1;
    if (!syscall(SYS_mount_setattr, fd, "", 0x1000, words, sizeof words)) return fd;
    close(fd);
    return -1;
}

int send_with_fd(int socket, const void *data, size_t size, int fd) {
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec vector = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    if (fd >= 0) {
        memset(&control, 0, sizeof control);
        message.msg_control = control.space;
        message.msg_controllen = sizeof control.space;
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(header), &fd, sizeof fd);
    }
    ssize_t sent;
    do sent = sendmsg(socket, &message, MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    return sent == (ssize_t)size ? 0 : -1;
}

ssize_t receive_with_fds(int socket, void *data, size_t size, int *fds, size_t most) {
    union {
        char space[CMSG_SPACE(MOST_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec vector = {data, size};
    struct msghdr message = {
        .msg_iov = &vector, .msg_iovlen = 1, .msg_control = control.space, .msg_controllen = CMSG_SPACE(most * sizeof(int))};
    ssize_t received;
    for (size_t place = 0; place < most; place++) fds[place] = -1;
    do received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (received < 0 && errno == EINTR);
    if (received < 0) return -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(header), header->cmsg_len - CMSG_LEN(0));
    return received;
}
