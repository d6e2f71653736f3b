/* Writing one piece of a file beside its place; the last piece moves it there, over whatever had the name. */
#include "helper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int make_parents(char *path) {
    for (char *at = path + 1; *at; at++) {
        if (*at != '/') continue;
        struct stat found;
        *at = 0;
        int wrong = mkdir(path, 0777) && !(errno == EEXIST && !stat(path, &found) && S_ISDIR(found.st_mode));
        *at = '/';
        if (wrong) return errno;
    }
    return 0;
}

static int write_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t written = write(fd, data, size);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return errno;
        data += written;
        size -= (size_t)written;
    }
    return 0;
}

static int is_true(const struct json *header, const char *key) {
    const struct json *value = json_get(header, key);
    return value && value->kind == J_TRUE;
}

int put_file(const struct json *header, const char *body, size_t size) {
    const char *path = json_text(header, "path"), *key = json_text(header, "key");
    char target[PATH_MAX], aside[PATH_MAX];
    int first = is_true(header, "first"), wrong = 0;
    if (!path || !key || *path != '/') return EINVAL;
    if (strlen(path) + strlen(key) + 3 > sizeof target) return ENAMETOOLONG;
    strcpy(target, path);
    char *name = strrchr(target, '/') + 1;
    if (!*name) return EISDIR;
    if (first && (wrong = make_parents(target))) return wrong;
    snprintf(aside, sizeof aside, "%.*s.%s.%s", (int)(name - target), target, name, key);
    int fd = open(aside, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | (first ? O_EXCL : O_APPEND), 0600);
    if (fd < 0) {
        wrong = errno;
    } else {
        wrong = write_all(fd, body, size);
        if (close(fd) && !wrong) wrong = errno;
        if (!wrong && is_true(header, "last"))
            if (chmod(aside, (mode_t)json_number(header, "mode", 0644)) || rename(aside, target)) wrong = errno;
    }
    if (wrong) unlink(aside);
    return wrong;
}
