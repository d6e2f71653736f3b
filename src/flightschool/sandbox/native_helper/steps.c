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
#define IN_ROOT 0x10
#define NO_LINKS 0x0C
#define MOST_TRIES 10000

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

static int open_resolved(int folder, const char *path, uint64_t resolve) {
    uint64_t how[3] = {O_PATH | O_CLOEXEC, 0, resolve};
    int fd;
    /* EAGAIN: somewhere on this machine something was mounted or renamed while a `..` was followed. */
    for (int tries = 0; tries < MOST_TRIES; tries++)
        if ((fd = (int)syscall(SYS_openat2, folder, path, how, sizeof how)) >= 0 || errno != EAGAIN) break;
    return fd;
}

/* ---------------------------------------------------------------- names inside a root that is not entered yet
 *
 * See `node/rooted.py`: where links may stand, the kernel says where a name leads with the root as the root. Nothing
 * else runs below it, so what was resolved stays so. Before OP_UNDER a path is what it says. */

struct place {
    char path[PATH_MAX];
};

static const char *real(const struct sources *sources, const char *path, struct place *place) {
    char link[40];
    if (sources->root < 0) return path;
    int fd = open_resolved(sources->root, path, IN_ROOT);
    if (fd < 0) return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, place->path, sizeof place->path - 1);
    int wrong = errno;
    close(fd);
    if (size == sizeof place->path - 1) return errno = ENAMETOOLONG, NULL;
    if (size < 0) return errno = wrong, NULL;
    place->path[size] = 0;
    return place->path;
}

/* `path` itself, which need not be there, with the folders above it followed. */
static const char *name(const struct sources *sources, const char *path, struct place *place) {
    char above[PATH_MAX];
    if (sources->root < 0) return path;
    const char *last = strrchr(path, '/');
    if (!last) return errno = EINVAL, NULL;
    if ((size_t)(last - path) >= sizeof above) return errno = ENAMETOOLONG, NULL;
    memcpy(above, path, (size_t)(last - path));
    above[last - path] = 0;
    if (!real(sources, *above ? above : "/", place)) return NULL;
    size_t size = strlen(place->path);
    if (size + strlen(last) >= sizeof place->path) return errno = ENAMETOOLONG, NULL;
    strcpy(place->path + size, last);
    return place->path;
}

static int is_there(const struct sources *sources, const char *path) {
    struct place place;
    struct stat found;
    const char *at = name(sources, path, &place);
    return at && !lstat(at, &found);
}

static int make_folder(const struct sources *sources, const char *path, mode_t mode) {
    struct place place;
    struct stat found;
    const char *at = real(sources, path, &place);
    if (!at && errno == ENOENT) at = name(sources, path, &place);
    if (!at) return failed("mkdir %s", path);
    if (!mkdir(at, mode)) return 0;
    if (errno == EEXIST) {
        if (!lstat(at, &found) && S_ISDIR(found.st_mode)) return 0; /* a link here leads nowhere inside */
        errno = ENOTDIR;
    }
    return failed("mkdir %s", path);
}

static int make_folders(const struct sources *sources, const char *path) {
    char piece[PATH_MAX];
    if (strlen(path) >= sizeof piece) return errno = ENAMETOOLONG, failed("mkdir %.80s...", path);
    strcpy(piece, path);
    for (char *at = piece + 1;; at++) {
        if (*at && *at != '/') continue;
        char end = *at;
        *at = 0;
        if (make_folder(sources, piece, 0777)) return -1;
        if (!end) return 0;
        *at = end;
    }
}

static int touch(const struct sources *sources, const char *path) {
    struct place place;
    struct stat found; /* a device of a system's own does as well: looked at only, since touching it would copy it up */
    const char *at = real(sources, path, &place);
    if (at && !stat(at, &found)) return 0;
    at = name(sources, path, &place);
    int fd = at ? open(at, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
    if (fd < 0) return failed("create %s", path);
    close(fd);
    return 0;
}

static int set_mode(const char *path, mode_t mode) {
    struct stat found;
    if (!path || stat(path, &found)) return failed("stat for a mode");
    if ((found.st_mode & 07777) == mode || !chmod(path, mode) || errno == EPERM || errno == EACCES) return 0;
    return failed("chmod %s", path);
}

static int set_owner(const char *path, uid_t uid, gid_t gid) {
    struct stat found;
    if (!path || stat(path, &found)) return failed("stat for an owner");
    if (found.st_uid == uid || !chown(path, uid, gid) || errno == EPERM || errno == EACCES) return 0;
    return failed("chown %s", path);
}

static int do_write(const struct record *step, const struct sources *sources) {
    struct place place;
    const char *path = text_of(step, 0), *data = step->count > 1 ? step->parts[1].at : "";
    size_t size = step->count > 1 ? step->parts[1].size : 0;
    int optional = *text_of(step, 2) != 0; /* what a tree has in the way must not keep its sandbox from starting */
    if (optional && is_there(sources, text_of(step, 2))) return 0;
    const char *at = name(sources, path, &place);
    if (!at) return optional ? 0 : failed("create %s", path);
    if (sources->root >= 0 && unlink(at) && errno != ENOENT) return optional ? 0 : failed("replace %s", path);
    int fd = open(at, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0) return optional ? 0 : failed("create %s", path);
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
    if (!path || stat(path, &found)) return 0;
    return when == IF_THERE || (when == IF_FOLDER && S_ISDIR(found.st_mode)) ||
           (when == IF_READABLE && (found.st_mode & 04));
}

static int do_mount(const struct record *step, const struct sources *sources) {
    struct place place, inside;
    const char *source = text_of(step, 0), *target = real(sources, text_of(step, 1), &place);
    if (!holds(target, number_of(step, 5))) return 0;
    if (number_of(step, 8)) source = real(sources, source, &inside);
    if (!target || !source) return failed("place to mount on: %s", text_of(step, 1));
    if (raw_mount(source, target, text_of(step, 2), (unsigned long)number_of(step, 3), text_of(step, 4))) return -1;
    uint64_t attributes = (uint64_t)number_of(step, 6);
    return attributes ? set_attributes(target, attributes, (int)number_of(step, 7)) : 0;
}

static int is_link(const struct sources *sources, const char *path) {
    struct place place;
    struct stat found;
    const char *at = name(sources, path, &place);
    return at && !lstat(at, &found) && S_ISLNK(found.st_mode);
}

static int do_bind(const struct record *step, const struct sources *sources) {
    char opened[40];
    struct place place;
    const char *source = text_of(step, 1), *target = text_of(step, 2);
    int64_t number = number_of(step, 0);
    struct stat found;
    if (number_of(step, 4) && is_link(sources, target)) return 0;
    if (number >= 0) {
        if (number >= sources->count) return errno = EINVAL, failed("source of %s", target);
        snprintf(opened, sizeof opened, "/proc/self/fd/%d", sources->fds[number]);
        source = opened;
    }
    if (stat(source, &found)) return failed("stat what is for %s", target);
    if (S_ISDIR(found.st_mode)) {
        if (make_folders(sources, target)) return -1;
    } else {
        char parent[PATH_MAX];
        snprintf(parent, sizeof parent, "%s", target);
        char *slash = strrchr(parent, '/');
        if (slash && slash != parent) {
            *slash = 0;
            if (make_folders(sources, parent)) return -1;
        }
        if (touch(sources, target)) return -1;
    }
    const char *at = real(sources, target, &place);
    if (!at) return failed("place to mount on: %s", target);
    if (raw_mount(source, at, "", MS_BIND_FLAG | MS_REC_FLAG, "")) return -1;
    return set_attributes(at, (uint64_t)number_of(step, 3), 1);
}

/* ---------------------------------------------------------------- layers: see `node/layered.py` */

static int make_plain(const char *stage, const char *last) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", stage, last);
    return mkdir(path, 0755) ? failed("mkdir %s", path) : 0;
}

static int do_overlay(const struct record *step, struct sources *sources, int tree_fd) {
    static const char *const names[] = {"lower", "upper", "work", "merged"};
    const char *stage = text_of(step, 1);
    char root[64], data[256];
    for (int place = 0; place < 4; place++)
        if (make_plain(stage, names[place])) return -1;
    int64_t number = number_of(step, 0);
    if (number < 0 || number >= sources->count) return errno = EINVAL, failed("image tree");
    if (tree_fd >= 0) {
        snprintf(sources->lower, sizeof sources->lower, "%s/lower", stage);
        if (syscall(SYS_move_mount, tree_fd, "", AT_FDCWD, sources->lower, 4))
            return failed("attach to %s", sources->lower);
    } else {
        snprintf(sources->lower, sizeof sources->lower, "/proc/self/fd/%d", sources->fds[number]);
    }
    sources->tree = open(sources->lower, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (sources->tree < 0) return failed("open the image tree");
    snprintf(root, sizeof root, "%s/merged", stage);
    snprintf(data, sizeof data, "lowerdir=%s,upperdir=%s/upper,workdir=%s/work,userxattr", sources->lower, stage, stage);
    return raw_mount("overlay", root, "overlay", MS_NOSUID_FLAG | MS_NODEV_FLAG, data);
}

static int own_system(const struct sources *sources) { /* a descriptor of the tree's own /usr; -1: it has none */
    struct stat found;
    int fd = open_resolved(sources->tree, "usr", NO_LINKS);
    if (fd < 0 || (!fstat(fd, &found) && S_ISDIR(found.st_mode))) return fd;
    close(fd);
    return -1;
}

static int do_addable(const struct record *step, const struct sources *sources) {
    static const struct sources plain = {.root = -1, .tree = -1};
    char path[PATH_MAX];
    int own = own_system(sources);
    if (own >= 0) {
        int fd = open_resolved(own, text_of(step, 1), NO_LINKS);
        int absent = fd < 0 && errno == ENOENT;
        if (fd >= 0) close(fd);
        close(own);
        if (!absent) return 0; /* its own, or a link or file on the way to it, stands */
    }
    snprintf(path, sizeof path, "%s/system_upper/%s", text_of(step, 0), text_of(step, 1));
    return make_folders(&plain, path);
}

static int do_system(const struct record *step, const struct sources *sources) {
    struct place place;
    char data[256], lower[96] = "";
    const char *stage = text_of(step, 0);
    int own = own_system(sources);
    if (own >= 0) {
        close(own);
        snprintf(lower, sizeof lower, "%s/usr:", sources->lower);
    }
    snprintf(data, sizeof data, "%s/system_upper", stage);
    if (mkdir(data, 0755) && errno != EEXIST) return failed("mkdir %s", data);
    if (make_plain(stage, "system_work") || make_folder(sources, "/usr", 0755)) return -1;
    const char *at = real(sources, "/usr", &place);
    if (!at) return failed("/usr of the root");
    snprintf(data, sizeof data, "lowerdir=%s/usr,upperdir=%s/system_upper,workdir=%s/system_work,userxattr", lower, stage,
             stage);
    return raw_mount("overlay", at, "overlay", MS_NOSUID_FLAG | MS_NODEV_FLAG, data);
}

/* ---------------------------------------------------------------- the rest */

static int do_link(const struct record *step, const struct sources *sources) {
    struct place place;
    struct stat found;
    const char *path = text_of(step, 1), *at = name(sources, path, &place);
    if (!at) return failed("link %s", path);
    if (!symlink(text_of(step, 0), at)) return 0;
    if (errno == EEXIST && number_of(step, 2)) {
        if (number_of(step, 2) == ANYTHING) return 0;
        if (lstat(at, &found)) return failed("link %s", path);
        if (S_ISLNK(found.st_mode)) return 0;
        if (S_ISCHR(found.st_mode)) { /* a device of a system's own, that perhaps nobody here may remove */
            char source[PATH_MAX];
            snprintf(source, sizeof source, "%.*s%s", (int)(strrchr(at, '/') + 1 - at), at, text_of(step, 0));
            return raw_mount(source, at, "", MS_BIND_FLAG, "");
        }
        errno = EEXIST;
    }
    return failed("link %s", path);
}

static int do_under(const struct record *step, struct sources *sources) {
    sources->root = open(text_of(step, 0), O_PATH | O_DIRECTORY | O_CLOEXEC);
    return sources->root < 0 ? failed("open %s", text_of(step, 0)) : 0;
}

static int remove_file(const char *path) { return !path || unlink(path) ? failed("unlink") : 0; }

static int do_pivot(const char *root) {
    if (chdir(root)) return failed("chdir %s", root);
    if (syscall(SYS_pivot_root, ".", ".")) return failed("pivot_root");
    if (syscall(SYS_umount2, ".", MNT_DETACH_FLAG)) return failed("unmount the old root");
    return chdir("/") ? failed("chdir /") : 0;
}

static int do_step(const struct record *step, struct sources *sources, int tree_fd) {
    struct place place;
    const char *first = text_of(step, 0);
    int wrong;
    switch (step->op) {
    case OP_PRIVATE: return raw_mount("none", "/", "", MS_REC_FLAG | MS_PRIVATE_FLAG, "");
    case OP_MOUNT: return do_mount(step, sources);
    case OP_BIND: return do_bind(step, sources);
    case OP_OVERLAY: return do_overlay(step, sources, tree_fd);
    case OP_ADDABLE: return do_addable(step, sources);
    case OP_SYSTEM: return do_system(step, sources);
    case OP_UNDER: return do_under(step, sources);
    case OP_FOLDER: return make_folder(sources, first, (mode_t)number_of(step, 1));
    case OP_FOLDERS:
        wrong = make_folders(sources, first);
        return number_of(step, 1) ? 0 : wrong;
    case OP_MODE: return set_mode(real(sources, first, &place), (mode_t)number_of(step, 1));
    case OP_OWN: return set_owner(real(sources, first, &place), (uid_t)number_of(step, 1), (gid_t)number_of(step, 2));
    case OP_WRITE: return do_write(step, sources);
    case OP_LINK: return do_link(step, sources);
    case OP_UNLINK: return remove_file(name(sources, first, &place));
    case OP_PIVOT: return do_pivot(first);
    case OP_TOUCH: return touch(sources, first);
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
    int more, way_in = -1;
    sources->root = sources->tree = -1;
    while ((more = next_record(&recipe, &record)) > 0) {
        if (record.op == OP_PIVOT && *text_of(&record, 1)) {
            way_in = open(text_of(&record, 1), O_PATH | O_DIRECTORY | O_CLOEXEC);
            if (way_in < 0) return failed("open %s", text_of(&record, 1));
        }
        if (do_step(&record, sources, tree_fd)) return -1;
    }
    if (more) return errno = EINVAL, failed("recipe");
    int root = way_in >= 0 ? way_in : open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return root < 0 ? failed("open the root") : root;
}
