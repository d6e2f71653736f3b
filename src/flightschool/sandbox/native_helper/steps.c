/* Carries out the steps of a recipe that make a root. What each step is for stands in `node/roots.py`. */
#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MS_BIND_FLAG 4096
#define MS_NOSUID_FLAG 2
#define MS_NODEV_FLAG 4
#define MS_REC_FLAG 16384
#define MS_PRIVATE_FLAG (1 << 18)
#define MNT_DETACH_FLAG 2
#define AT_RECURSIVE_FLAG 0x8000

char trouble[512];
int trouble_number;

int failed(const char *format, ...) {
    trouble_number = errno;
    va_list words;
    va_start(words, format);
    int used = vsnprintf(trouble, sizeof trouble - 128, format, words);
    va_end(words);
    if (used > (int)sizeof trouble - 129) used = (int)sizeof trouble - 129;
    snprintf(trouble + used, sizeof trouble - (size_t)used, ": [Errno %d] %s", trouble_number, strerror(trouble_number));
    return -1;
}

static int raw_mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data) {
    if (!syscall(SYS_mount, source, target, *type ? type : NULL, flags, *data ? data : NULL)) return 0;
    return failed("mount %s on %s", *type ? type : "bind", target);
}

static int set_attributes(const char *target, uint64_t attributes, int recursive) {
    uint64_t words[4] = {attributes, 0, 0, 0};
    unsigned flags = recursive ? AT_RECURSIVE_FLAG : 0;
    if (!syscall(SYS_mount_setattr, AT_FDCWD, target, flags, words, sizeof words)) return 0;
    return failed("mount_setattr on %s", target);
}

static int make_folder(const char *path, mode_t mode) {
    struct stat found;
    if (!mkdir(path, mode)) return 0;
    if (errno == EEXIST && !stat(path, &found)) {
        if (S_ISDIR(found.st_mode)) return 0;
        errno = EEXIST;
    }
    return failed("mkdir %s", path);
}

static int make_folders(const char *path) {
    char piece[PATH_MAX];
    if (strlen(path) >= sizeof piece) return errno = ENAMETOOLONG, failed("mkdir %.80s...", path);
    strcpy(piece, path);
    for (char *at = piece + 1;; at++) {
        if (*at && *at != '/') continue;
        char end = *at;
        *at = 0;
        if (make_folder(piece, 0777)) return -1;
        if (!end) return 0;
        *at = end;
    }
}

static int touch(const char *path) {
    if (!utimensat(AT_FDCWD, path, NULL, 0)) return 0;
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) return failed("create %s", path);
    close(fd);
    return 0;
}

static int set_mode(const char *path, mode_t mode) {
    struct stat found;
    if (stat(path, &found)) return failed("stat %s", path);
    if ((found.st_mode & 07777) == mode || !chmod(path, mode) || errno == EPERM || errno == EACCES) return 0;
    return failed("chmod %s", path);
}

static int set_owner(const char *path, uid_t uid, gid_t gid) {
    struct stat found;
    if (stat(path, &found)) return failed("stat %s", path);
    if (found.st_uid == uid || !chown(path, uid, gid) || errno == EPERM || errno == EACCES) return 0;
    return failed("chown %s", path);
}

static int write_file(const char *path, const char *data, size_t size) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) return failed("create %s", path);
    while (size) {
        ssize_t written = write(fd, data, size);
        if (written <= 0) {
            failed("write %s", path);
            close(fd);
            return -1;
        }
        data += written;
        size -= (size_t)written;
    }
    close(fd);
    return 0;
}

static int holds(const char *path, int64_t when) {
    struct stat found;
    if (when == ALWAYS) return 1;
    if (stat(path, &found)) return 0;
    return when == IF_THERE || (when == IF_FOLDER && S_ISDIR(found.st_mode)) ||
           (when == IF_READABLE && (found.st_mode & 04));
}

static int do_mount(const struct record *step) {
    const char *target = text_of(step, 1);
    if (!holds(target, number_of(step, 5))) return 0;
    if (raw_mount(text_of(step, 0), target, text_of(step, 2), (unsigned long)number_of(step, 3), text_of(step, 4)))
        return -1;
    uint64_t attributes = (uint64_t)number_of(step, 6);
    return attributes ? set_attributes(target, attributes, (int)number_of(step, 7)) : 0;
}

static int do_bind(const struct record *step, const struct sources *sources) {
    char opened[40];
    const char *source = text_of(step, 1), *target = text_of(step, 2);
    int64_t number = number_of(step, 0);
    struct stat found;
    if (number >= 0) {
        if (number >= sources->count) return errno = EINVAL, failed("source of %s", target);
        snprintf(opened, sizeof opened, "/proc/self/fd/%d", sources->fds[number]);
        source = opened;
    }
    if (stat(source, &found)) return failed("stat what is for %s", target);
    if (S_ISDIR(found.st_mode)) {
        if (make_folders(target)) return -1;
    } else {
        char parent[PATH_MAX];
        snprintf(parent, sizeof parent, "%s", target);
        char *slash = strrchr(parent, '/');
        if (slash && slash != parent) {
            *slash = 0;
            if (make_folders(parent)) return -1;
        }
        if (touch(target)) return -1;
    }
    if (raw_mount(source, target, "", MS_BIND_FLAG | MS_REC_FLAG, "")) return -1;
    return set_attributes(target, (uint64_t)number_of(step, 3), 1);
}

static int do_overlay(const struct record *step, const struct sources *sources, int tree_fd) {
    static const char *const names[] = {"lower", "upper", "work", "root"};
    const char *stage = text_of(step, 1);
    char path[64], lower[64], root[64], data[256];
    for (int place = 0; place < 4; place++) {
        snprintf(path, sizeof path, "%s/%s", stage, names[place]);
        if (mkdir(path, 0755)) return failed("mkdir %s", path);
    }
    int64_t number = number_of(step, 0);
    if (number < 0 || number >= sources->count) return errno = EINVAL, failed("image tree");
    if (tree_fd >= 0) {
        snprintf(lower, sizeof lower, "%s/lower", stage);
        if (syscall(SYS_move_mount, tree_fd, "", AT_FDCWD, lower, 4)) return failed("attach to %s", lower);
    } else {
        snprintf(lower, sizeof lower, "/proc/self/fd/%d", sources->fds[number]);
    }
    snprintf(root, sizeof root, "%s/root", stage);
    snprintf(data, sizeof data, "lowerdir=%s,upperdir=%s/upper,workdir=%s/work,userxattr", lower, stage, stage);
    return raw_mount("overlay", root, "overlay", MS_NOSUID_FLAG | MS_NODEV_FLAG, data);
}

static int do_link(const struct record *step) {
    struct stat found;
    const char *path = text_of(step, 1);
    if (!symlink(text_of(step, 0), path)) return 0;
    if (errno == EEXIST && number_of(step, 2) && !lstat(path, &found) && S_ISLNK(found.st_mode)) return 0;
    return failed("link %s", path);
}

static int do_pivot(const char *root) {
    if (chdir(root)) return failed("chdir %s", root);
    if (syscall(SYS_pivot_root, ".", ".")) return failed("pivot_root");
    if (syscall(SYS_umount2, ".", MNT_DETACH_FLAG)) return failed("unmount the old root");
    return chdir("/") ? failed("chdir /") : 0;
}

static int do_step(const struct record *step, const struct sources *sources, int tree_fd) {
    const char *first = text_of(step, 0);
    switch (step->op) {
    case OP_PRIVATE: return raw_mount("none", "/", "", MS_REC_FLAG | MS_PRIVATE_FLAG, "");
    case OP_MOUNT: return do_mount(step);
    case OP_BIND: return do_bind(step, sources);
    case OP_OVERLAY: return do_overlay(step, sources, tree_fd);
    case OP_FOLDER: return make_folder(first, (mode_t)number_of(step, 1));
    case OP_FOLDERS: return make_folders(first);
    case OP_MODE: return set_mode(first, (mode_t)number_of(step, 1));
    case OP_OWN: return set_owner(first, (uid_t)number_of(step, 1), (gid_t)number_of(step, 2));
    case OP_WRITE: return write_file(first, step->parts[1].at, step->parts[1].size);
    case OP_LINK: return do_link(step);
    case OP_UNLINK: return unlink(first) ? failed("unlink %s", first) : 0;
    case OP_PIVOT: return do_pivot(first);
    case OP_TOUCH: return touch(first);
    case OP_HEAD:
    case OP_FILTER:
    case OP_LIMIT:
    case OP_OPEN: return 0;
    default: return errno = EINVAL, failed("step %u", step->op);
    }
}

int open_sources(struct recipe recipe, struct sources *sources) {
    struct record record;
    int more;
    sources->count = 0;
    while ((more = next_record(&recipe, &record)) > 0) {
        if (record.op != OP_OPEN) continue;
        if (sources->count == MOST_SOURCES) return errno = EMFILE, failed("more than %d sources", MOST_SOURCES);
        int fd = open(text_of(&record, 0), O_PATH | O_CLOEXEC);
        if (fd < 0) return failed("open %s", text_of(&record, 0));
        sources->fds[sources->count++] = fd;
    }
    return more ? (errno = EINVAL, failed("recipe")) : 0;
}

int build_root(struct recipe recipe, struct sources *sources, int tree_fd) {
    struct record record;
    int more;
    while ((more = next_record(&recipe, &record)) > 0)
        if (do_step(&record, sources, tree_fd)) return -1;
    if (more) return errno = EINVAL, failed("recipe");
    int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? failed("open the root") : root;
}
