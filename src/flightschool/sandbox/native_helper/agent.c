/* The init of a sandbox: runs commands, caps their output, kills on excess, reaps everything. One thread, one loop; the
 * behaviour is that of `node/agent.py`, frame by frame. */
#include "helper.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHUNK 65536
#define MOST_HEADER_BYTES (1u << 20)
#define MOST_BODY_BYTES (64u << 20)
#define MOST_LEFT_BYTES (2 << 20)
#define DYING_S 5.0

struct command {
    long long id, most, seen[3];
    pid_t pid;
    double started, deadline;
    int sweep, stdin_fd, outputs[3];
    char *input;
    size_t input_at, input_size;
    const char *stopped;
    struct command *next;
};

static struct {
    const struct plan *plan;
    int channel, gate; /* the other end of the gate is the launcher's for as long as it lives */
    struct command *commands;
    double ends_at, watch_at;
    const char *over; /* the whole sandbox's limit that was passed: no command starts any more */
    char *buffer;
    size_t used, room;
    char chunk[CHUNK];
} agent;

double now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---------------------------------------------------------------- frames */

int send_frame(int channel, const char *header, const void *body, size_t size) {
    uint32_t lengths[2] = {(uint32_t)strlen(header), (uint32_t)size};
    struct iovec parts[3] = {
        {lengths, sizeof lengths}, {(void *)(uintptr_t)header, lengths[0]}, {(void *)(uintptr_t)body, size}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    while (message.msg_iovlen) {
        ssize_t sent = sendmsg(channel, &message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent < 0) return -1;
        while (message.msg_iovlen && (size_t)sent >= message.msg_iov->iov_len) {
            sent -= (ssize_t)message.msg_iov->iov_len;
            message.msg_iov++;
            message.msg_iovlen--;
        }
        if (message.msg_iovlen) {
            message.msg_iov->iov_base = (char *)message.msg_iov->iov_base + sent;
            message.msg_iov->iov_len -= (size_t)sent;
        }
    }
    return 0;
}

static void say(const char *header, const void *body, size_t size) {
    if (send_frame(agent.channel, header, body, size)) _exit(0); /* no one is left to work for */
}

static void give_up(const char *why) {
    char header[256];
    snprintf(header, sizeof header, "{\"fatal\":\"%s\"}", why);
    say(header, NULL, 0);
    _exit(0);
}

static void say_errno(long long id, int number) {
    char header[256];
    snprintf(header, sizeof header, "{\"id\":%lld,\"errno\":%d,\"text\":\"[Errno %d] %s\"}", id, number, number,
             strerror(number));
    say(header, NULL, 0);
}

static void say_unstarted(long long id, int number, const char *what) {
    char header[1024], words[600], quoted[700];
    snprintf(words, sizeof words, "[Errno %d] %s: '%.400s'", number, strerror(number), what);
    json_quote(quoted, sizeof quoted, words);
    snprintf(header, sizeof header, "{\"id\":%lld,\"done\":true,\"code\":%d,\"unstarted\":%s,\"cpu_s\":0,\"wall_s\":0}",
             id, number == ENOENT ? 127 : 126, quoted);
    say(header, NULL, 0);
}

/* ---------------------------------------------------------------- starting */

static int open_streams(struct start *start, struct command *command) {
    int pair[2];
    if (command->input_size) {
        if (pipe2(pair, O_CLOEXEC)) return errno;
        start->streams[0] = pair[0];
        command->stdin_fd = pair[1];
        fcntl(pair[1], F_SETFL, O_NONBLOCK);
    } else {
        start->streams[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (start->streams[0] < 0) return errno;
    }
    for (int stream = 1; stream < 3; stream++) {
        if (pipe2(pair, O_CLOEXEC)) return errno;
        start->streams[stream] = pair[1];
        command->outputs[stream] = pair[0];
        fcntl(pair[0], F_SETFL, O_NONBLOCK);
    }
    return 0;
}

static void close_streams(int *fds, int count) {
    for (int place = 0; place < count; place++)
        if (fds[place] >= 0) close(fds[place]);
}

static void free_command(struct command *command) {
    close_streams(command->outputs + 1, 2);
    close_streams(&command->stdin_fd, 1);
    free(command->input);
    free(command);
}

static struct command *new_command(const struct json *header, const char *body, size_t size) {
    struct command *command = calloc(1, sizeof *command);
    if (!command) give_up("out of memory");
    command->id = (long long)json_number(header, "id", 0);
    command->most = (long long)json_number(header, "most", 0);
    const struct json *sweep = json_get(header, "sweep");
    command->sweep = sweep && sweep->kind == J_TRUE;
    command->stdin_fd = command->outputs[1] = command->outputs[2] = -1;
    command->stopped = "";
    if (size) {
        command->input = malloc(size);
        if (!command->input) give_up("out of memory");
        memcpy(command->input, body, size);
        command->input_size = size;
    }
    return command;
}

static void watch_soon(void) {
    struct usage nothing = {0, 0, 0};
    if (!agent.watch_at) agent.watch_at = now_s() + pause_s(agent.plan, &nothing);
}

static void start_command(const struct json *header, const char *body, size_t size) {
    long long id = (long long)json_number(header, "id", 0);
    char told[160];
    if (*agent.over) {
        snprintf(told, sizeof told,
                 "{\"id\":%lld,\"done\":true,\"code\":null,\"stopped\":\"%s\",\"cpu_s\":0,\"wall_s\":0}", id, agent.over);
        say(told, NULL, 0);
        return;
    }
    struct start start = {.cwd = json_text(header, "cwd"), .streams = {-1, -1, -1}, .plan = agent.plan};
    struct command *command = new_command(header, body, size);
    double seconds = agent.plan->cpu_s + 1;
    start.cpu_s = seconds < 1 ? 1 : (uint64_t)seconds;
    start.argv = words_of(json_get(header, "argv"), J_LIST);
    start.environment = words_of(json_get(header, "env"), J_TABLE);
    int wrong = EINVAL, at_cwd = 0;
    if (start.argv && start.argv[0] && start.environment && start.cwd) {
        start.candidates = candidates_of(start.argv[0], start.environment);
        wrong = start.candidates ? open_streams(&start, command) : ENOMEM;
        if (!wrong) command->pid = spawn(&start, &wrong, &at_cwd);
    }
    close_streams(start.streams, 3);
    if (wrong) {
        say_unstarted(id, wrong, at_cwd ? start.cwd : start.argv && start.argv[0] ? start.argv[0] : "");
        free_command(command);
    } else {
        command->started = now_s();
        command->deadline = command->started + json_number(header, "timeout_s", 60);
        command->next = agent.commands;
        agent.commands = command;
        watch_soon();
    }
    free_words(start.argv);
    free_words(start.environment);
    free_words(start.candidates);
}

/* ---------------------------------------------------------------- streams, and the end of a command */

static void shut(int *fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
}

/* Bytes read; 0 when there is nothing now or ever. */
static ssize_t take_output(struct command *command, int stream) {
    ssize_t size = read(command->outputs[stream], agent.chunk, CHUNK);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return 0;
    if (size <= 0) {
        shut(&command->outputs[stream]);
        return 0;
    }
    long long room = command->most - command->seen[stream];
    command->seen[stream] += size;
    if (room > 0) {
        char header[80];
        snprintf(header, sizeof header, "{\"id\":%lld,\"out\":%d}", command->id, stream);
        say(header, agent.chunk, (size_t)(size < room ? size : room));
    }
    return size;
}

static void give_input(struct command *command) {
    size_t left = command->input_size - command->input_at;
    ssize_t size = write(command->stdin_fd, command->input + command->input_at, left < CHUNK ? left : CHUNK);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size > 0) command->input_at += (size_t)size;
    if (size <= 0 || command->input_at == command->input_size) shut(&command->stdin_fd);
}

static void finish(struct command *command, int status, const struct rusage *used) {
    char header[400];
    for (int stream = 1; stream < 3; stream++) { /* daemons that hold the pipes longer are not waited for */
        long long left = MOST_LEFT_BYTES;
        while (command->outputs[stream] >= 0 && left > 0) {
            ssize_t size = take_output(command, stream);
            if (!size) break;
            left -= size;
        }
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    int cut1 = command->seen[1] > command->most, cut2 = command->seen[2] > command->most;
    double cpu_s = (double)(used->ru_utime.tv_sec + used->ru_stime.tv_sec) +
                   (double)(used->ru_utime.tv_usec + used->ru_stime.tv_usec) / 1e6;
    snprintf(header, sizeof header,
             "{\"id\":%lld,\"done\":true,\"code\":%d,\"stopped\":\"%s\",\"cpu_s\":%.6f,\"cut\":[%s%s%s],"
             "\"seen\":{\"1\":%lld,\"2\":%lld},\"wall_s\":%.6f}",
             command->id, code, command->stopped, cpu_s, cut1 ? "1" : "", cut1 && cut2 ? "," : "", cut2 ? "2" : "",
             command->seen[1], command->seen[2], now_s() - command->started);
    say(header, NULL, 0);
    free_command(command);
}

static void reap(void) {
    int status;
    struct rusage used;
    pid_t pid;
    while ((pid = wait4(-1, &status, WNOHANG, &used)) > 0) {
        struct command **place = &agent.commands;
        while (*place && (*place)->pid != pid) place = &(*place)->next;
        if (!*place) continue;
        struct command *command = *place;
        *place = command->next;
        finish(command, status, &used);
    }
}

/* ---------------------------------------------------------------- limits */

static int kill_all(const char *why) { /* one call, which a fork bomb cannot outrun; then wait until none is left */
    for (struct command *command = agent.commands; command; command = command->next)
        if (!*command->stopped) command->stopped = why;
    int count = count_others();
    double patience = now_s() + DYING_S;
    kill(-1, SIGKILL);
    while (now_s() < patience) {
        reap();
        if (!count_others()) break;
        usleep(500);
    }
    return count;
}

static int is_command(pid_t pid) {
    for (struct command *command = agent.commands; command; command = command->next)
        if (command->pid == pid) return 1;
    return 0;
}

static void stop_command(struct command *command) {
    pid_t pid = command->pid;
    if (!*command->stopped) command->stopped = "timeout";
    command->deadline = INFINITY;
    if (command->sweep) {
        kill_all("");
        return;
    }
    for (int pass = 0; pass < 100; pass++) { /* a group that forks while it is being killed needs another pass */
        pid_t *alive;
        int count = processes_of(pid, pid, &alive), more = 0;
        for (int place = 0; place < count; place++) {
            kill(alive[place], SIGKILL);
            more += alive[place] != pid;
        }
        for (int place = 0; place < count; place++)
            if (!is_command(alive[place])) waitpid(alive[place], NULL, WNOHANG);
        free(alive);
        if (!more) return;
    }
}

static void watch(void) {
    struct usage used = usage_now(agent.plan);
    if (used.memory_bytes > agent.plan->memory_bytes) kill_all("memory");
    if (used.cpu_s > agent.plan->cpu_s) {
        if (!*agent.over) agent.over = "cpu";
        kill_all("cpu");
    }
    agent.watch_at = used.processes ? now_s() + pause_s(agent.plan, &used) : 0;
}

static struct command *overdue(double now) {
    struct command *command = agent.commands;
    while (command && now < command->deadline) command = command->next;
    return command;
}

static void look_at_clock(void) {
    double now = now_s();
    for (struct command *command; (command = overdue(now));) stop_command(command); /* which may end others as well */
    if (now >= agent.ends_at && !*agent.over) {
        agent.over = "wall";
        kill_all("wall");
    }
    if (agent.watch_at && now >= agent.watch_at) watch();
}

/* ---------------------------------------------------------------- the caller, and the loop */

static void handle(struct json *header, const char *body, size_t size) {
    const char *op = json_text(header, "op");
    long long id = (long long)json_number(header, "id", 0);
    char told[200];
    if (op && !strcmp(op, "exec")) {
        start_command(header, body, size);
    } else if (op && !strcmp(op, "put")) {
        int wrong = put_file(header, body, size);
        if (wrong) {
            say_errno(id, wrong);
            return;
        }
        snprintf(told, sizeof told, "{\"id\":%lld}", id);
        say(told, NULL, 0);
    } else if (op && !strcmp(op, "sweep")) {
        snprintf(told, sizeof told, "{\"id\":%lld,\"killed\":%d}", id, kill_all(""));
        say(told, NULL, 0);
    } else if (op && !strcmp(op, "usage")) {
        struct usage used = usage_now(agent.plan);
        snprintf(told, sizeof told, "{\"id\":%lld,\"processes\":%d,\"memory_bytes\":%lld,\"cpu_s\":%.6f}", id,
                 used.processes, (long long)used.memory_bytes, used.cpu_s);
        say(told, NULL, 0);
    } else {
        say_errno(id, ENOSYS); /* reading files goes through the descriptor of the root, which the caller has */
    }
}

static void make_room(size_t wanted) {
    if (wanted <= agent.room) return;
    char *more = realloc(agent.buffer, wanted);
    if (!more) give_up("out of memory");
    agent.buffer = more;
    agent.room = wanted;
}

static void handle_frames(void) {
    size_t at = 0;
    uint32_t lengths[2];
    while (agent.used - at >= sizeof lengths) {
        memcpy(lengths, agent.buffer + at, sizeof lengths);
        if (lengths[0] > MOST_HEADER_BYTES || lengths[1] > MOST_BODY_BYTES) give_up("frame announces too many bytes");
        size_t whole = sizeof lengths + lengths[0] + lengths[1];
        if (agent.used - at < whole) {
            make_room(whole + CHUNK);
            break;
        }
        char *text = agent.buffer + at + sizeof lengths;
        struct json *header = json_read(text, lengths[0]);
        if (!header) give_up("frame header is no object");
        handle(header, text + lengths[0], lengths[1]);
        json_free(header);
        at += whole;
    }
    agent.used -= at;
    memmove(agent.buffer, agent.buffer + at, agent.used);
    if (!agent.used && agent.room > 4 * CHUNK) {
        free(agent.buffer);
        agent.buffer = NULL;
        agent.room = 0;
    }
}

static void receive(void) {
    make_room(agent.used + CHUNK);
    ssize_t size = recv(agent.channel, agent.buffer + agent.used, agent.room - agent.used, MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) _exit(0);
    agent.used += (size_t)size;
    handle_frames();
}

static double patience(void) {
    double least = *agent.over ? INFINITY : agent.ends_at;
    if (agent.watch_at && agent.watch_at < least) least = agent.watch_at;
    for (struct command *command = agent.commands; command; command = command->next)
        if (command->deadline < least) least = command->deadline;
    return least - now_s();
}

static nfds_t gather(struct pollfd **list) {
    static struct pollfd *fds;
    static size_t room;
    size_t count = 2;
    for (struct command *command = agent.commands; command; command = command->next) count += 3;
    if (count > room) {
        fds = realloc(fds, count * sizeof *fds);
        if (!fds) give_up("out of memory");
        room = count;
    }
    fds[0] = (struct pollfd){.fd = agent.channel, .events = POLLIN};
    fds[1] = (struct pollfd){.fd = agent.gate, .events = POLLIN};
    count = 2;
    for (struct command *command = agent.commands; command; command = command->next) {
        fds[count++] = (struct pollfd){.fd = command->stdin_fd, .events = POLLOUT};
        fds[count++] = (struct pollfd){.fd = command->outputs[1], .events = POLLIN};
        fds[count++] = (struct pollfd){.fd = command->outputs[2], .events = POLLIN};
    }
    *list = fds;
    return count;
}

static void turn(const sigset_t *awake) {
    struct pollfd *fds;
    nfds_t count = gather(&fds);
    double left = patience();
    if (left < 0) left = 0;
    struct timespec wait = {(time_t)(left > 1e6 ? 1e6 : left), 0};
    wait.tv_nsec = left > 1e6 ? 0 : (long)((left - (double)wait.tv_sec) * 1e9);
    if (ppoll(fds, count, &wait, awake) > 0) {
        if (fds[1].revents) _exit(0); /* it died: before its death was asked for, perhaps, and then no signal comes */
        struct pollfd *at = fds + 2; /* streams first: a frame may add commands to the list */
        for (struct command *command = agent.commands; command; command = command->next, at += 3) {
            if (at[0].revents && command->stdin_fd >= 0) give_input(command);
            for (int stream = 1; stream < 3; stream++)
                if (at[stream].revents && command->outputs[stream] >= 0) take_output(command, stream);
        }
        if (fds[0].revents) receive();
    }
    reap();
    look_at_clock();
}

static void on_child(int number) { (void)number; }

void serve(const struct plan *plan, int channel, int gate) {
    sigset_t blocked, awake;
    agent.plan = plan;
    agent.channel = channel;
    agent.gate = gate;
    agent.over = "";
    agent.ends_at = now_s() + plan->wall_s;
    struct sigaction child = {.sa_handler = on_child};
    sigaction(SIGCHLD, &child, NULL);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a file that is too long is an error of the request, not the end of the init */
    signal(SIGINT, SIG_DFL);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGCHLD);
    sigprocmask(SIG_BLOCK, &blocked, &awake);
    sigdelset(&awake, SIGCHLD);
    for (;;) turn(&awake);
}
