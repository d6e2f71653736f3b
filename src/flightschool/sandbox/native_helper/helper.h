/* The launcher and the init of sandboxes in C: what `node/` does in Python, for hosts with a compiler.
 *
 * The Python side decides what a sandbox is and writes it down as a recipe (`recipes.py`); this side only carries
 * recipes out and serves commands, over the same frames as `node/agent.py`. It is single-threaded throughout.
 */
#ifndef HELPER_H
#define HELPER_H

#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* ---------------------------------------------------------------- recipe.c: records of a recipe, one after another */

#define MOST_PARTS 10

struct part {
    const char *at; /* a NUL follows, so that text can be used in place */
    uint32_t size;
};

struct record {
    uint32_t op, count;
    struct part parts[MOST_PARTS];
};

struct recipe {
    const char *at, *end;
};

enum op {
    OP_HEAD = 1, /* see struct plan */
    OP_FILTER,   /* bytes: struct sock_filter records; last capability; the same for commands with powers over files */
    OP_LIMIT,    /* resource, value */
    OP_OPEN,     /* path: the next source, opened while this process still is the caller */
    OP_PRIVATE,  /* stop mounts from spreading */
    OP_MOUNT,    /* source, target, type, flags, data, when, attributes, recursive, whether the source is inside too */
    OP_BIND,     /* number of a source or -1, source, target, attributes, whether a link there stays: with its place */
    OP_OVERLAY,  /* number of a source, stage */
    OP_FOLDER,   /* path, mode: may exist already */
    OP_FOLDERS,  /* path, whether it may fail: with its parents */
    OP_MODE,     /* path, mode */
    OP_OWN,      /* path, uid, gid */
    OP_WRITE,    /* path, content, path of what must not be there */
    OP_LINK,     /* target, path, enum there: what stays if it is there already */
    OP_UNLINK,   /* path */
    OP_PIVOT,    /* path of the new root, of another folder whose descriptor is wanted */
    OP_TOUCH,    /* path: an empty file unless something is there */
    OP_UNDER,    /* path of a root: from here on paths are names inside it, and links lead to where they lead inside */
    OP_ADDABLE,  /* stage, name: a folder of the upper layer of /usr, unless the tree has its own */
    OP_SYSTEM,   /* stage: the tree's /usr over the host's, at /usr */
};

enum when { ALWAYS, IF_THERE, IF_FOLDER, IF_READABLE };
enum there { NOTHING, A_LINK, ANYTHING };

int next_record(struct recipe *recipe, struct record *record); /* 1, 0 at the end, -1 for what is no recipe */
int64_t number_of(const struct record *record, uint32_t place);
const char *text_of(const struct record *record, uint32_t place);

/* ---------------------------------------------------------------- steps.c: the file system of a sandbox */

#define MOST_SOURCES 256

struct sources {
    int fds[MOST_SOURCES];
    int count;
    int tree, root; /* descriptors, for resolving; -1 where there is none */
    char lower[64]; /* path of the tree */
};

int open_sources(struct recipe recipe, struct sources *sources);
int build_root(struct recipe recipe, struct sources *sources, int tree_fd); /* a descriptor of the new root, or -1 */
extern char trouble[512]; /* the step that failed, and the kernel's answer */
extern int trouble_number;
int failed(const char *format, ...) __attribute__((format(printf, 1, 2))); /* notes errno too; returns -1 */

/* ---------------------------------------------------------------- confine.c */

struct plan {
    int range;
    uint32_t uid, gid;
    const char *hostname, *tree;
    double cpu_s, wall_s;
    int64_t memory_bytes;
    int last_capability;
    uint64_t kept; /* capabilities of commands; none: the init gives up all of them as well */
    struct recipe steps;
    const char *filter, *command_filter;
    uint32_t filter_bytes, command_filter_bytes;
    int in_cgroup; /* it was put into a control group, which its view begins at */
};

int read_plan(struct recipe recipe, struct plan *plan);
int enter(const struct plan *plan, int channel, int gate, int tree_fd); /* a descriptor of the root, or -1 */
int harden(const struct plan *plan);
int narrow(const struct plan *plan); /* in a command to be, before exec: 0 or errno */
int keep_only(int one, int two, int three); /* beside the standard streams; -1 for none */
int idmapped_tree(const char *path, int user_namespace);
int send_with_fd(int socket, const void *data, size_t size, int fd);
#define MOST_FDS 2
ssize_t receive_with_fds(int socket, void *data, size_t size, int *fds, size_t most); /* -1 for those that did not come */

/* ---------------------------------------------------------------- json.c */

enum kind { J_NULL, J_FALSE, J_TRUE, J_NUMBER, J_TEXT, J_LIST, J_TABLE };

struct json {
    enum kind kind;
    char *key;
    char *text;
    size_t size;
    double number;
    struct json *child, *next;
};

struct json *json_read(char *text, size_t size); /* decodes in place; NULL for what is no JSON */
void json_free(struct json *value);
const struct json *json_get(const struct json *table, const char *key);
double json_number(const struct json *table, const char *key, double otherwise);
const char *json_text(const struct json *table, const char *key);
size_t json_quote(char *into, size_t room, const char *text); /* as a JSON string with its quotes; cut to fit */

/* ---------------------------------------------------------------- watch.c */

struct usage {
    int processes;
    int64_t memory_bytes;
    double cpu_s;
};

struct usage usage_now(const struct plan *plan);
double pause_s(const struct plan *plan, const struct usage *used);
int processes_of(pid_t session, pid_t root, pid_t **found); /* of one session, and the descendants of one process */
int count_others(void);

/* ---------------------------------------------------------------- spawn.c */

struct start {
    char **argv, **environment, **candidates;
    const char *cwd;
    int streams[3];
    uint64_t cpu_s;
    const struct plan *plan;
};

char **words_of(const struct json *from, enum kind kind);
void free_words(char **words);
char **candidates_of(const char *program, char **environment);
pid_t spawn(const struct start *start, int *wrong, int *at_cwd); /* -1: `wrong` tells why, `at_cwd` whether the folder is */

/* ---------------------------------------------------------------- files.c, agent.c */

int put_file(const struct json *header, const char *body, size_t size); /* 0 or errno */
void serve(const struct plan *plan, int channel, int gate) __attribute__((noreturn));
int send_frame(int channel, const char *header, const void *body, size_t size);
double now_s(void);

#endif
