/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See run_command.h. The libraries write one file a process into a folder of ours; a file
 * that grows too large gets a hole in its middle, so its beginning and its end stay
 * whoever writes it and however.
 */
#include "run_command.h"

#include "gather.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FILE_BYTES (48ll << 20) /* more of one file are not kept …               */
#define HEAD_BYTES (8ll << 20)  /* … but so many of its beginning …              */
#define TAIL_BYTES (16ll << 20) /* … and of its end                              */
#define FILES_MAX  512
#define LINE_BYTES 65536u
#define STEP_MS    5000 /* between asking to end, telling, and killing   */
#define LOOK_MS    250
#define OUTPUT     "output"

struct stream {
    int from, shown;
    char line[LINE_BYTES]; /* what came after the last newline */
    size_t used;
};

struct running {
    struct doctor *d;
    const struct dr_command *command;
    char folder[64];
    int file; /* what it writes, line by line */
    pid_t pid;
    struct stream streams[2];
    int signals;
    int64_t deadline, next_step; /* 0: none */
    int step;                    /* how far ending it has got */
    bool ended, timed_out, interrupted;
    int status;
    pid_t *before; /* children that were there before */
    uint32_t num_before, room_before;
};

static bool write_all(int fd, const char *bytes, size_t count)
{
    while (count > 0) {
        const ssize_t done = write(fd, bytes, count);

        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return false;
        bytes += done;
        count -= (size_t)done;
    }
    return true;
}

/* ---- starting ---- */

static void set_environment(const struct running *r)
{
    const char *level = getenv("NCCL_DEBUG"), *amd = getenv("AMD_LOG_LEVEL");
    char path[128];

    if (level == NULL || strcasecmp(level, "TRACE") != 0)
        setenv("NCCL_DEBUG", "INFO", 1);
    snprintf(path, sizeof(path), "%s/nccl.%%h.%%p", r->folder);
    setenv("NCCL_DEBUG_FILE", path, 1);
    if (amd == NULL || strtol(amd, NULL, 10) < 3)
        setenv("AMD_LOG_LEVEL", "3", 1);
    snprintf(path, sizeof(path), "%s/amd", r->folder);
    setenv("AMD_LOG_LEVEL_FILE", path, 1);
}

_Noreturn static void child(const struct running *r, const int out[2], const int err[2],
        int report, const sigset_t *mask)
{
    int reason, null;

    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, mask, NULL);
    signal(SIGPIPE, SIG_DFL);
    /* In the background a read from the terminal would stop it: as good as a hang. */
    if (isatty(STDIN_FILENO) && (null = open("/dev/null", O_RDONLY)) >= 0)
        dup2(null, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    set_environment(r);
    execvp(r->command->argv[0], r->command->argv);
    reason = errno;
    (void)write_all(report, (const char *)&reason, sizeof(reason));
    _exit(127);
}

static bool start(struct running *r, const sigset_t *mask)
{
    int out[2], err[2], report[2], reason = 0;

    if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 ||
            pipe2(report, O_CLOEXEC) != 0)
        return false;
    r->pid = fork();
    if (r->pid == 0)
        child(r, out, err, report[1], mask);
    reason = r->pid < 0 ? errno : 0;
    close(out[1]);
    close(err[1]);
    close(report[1]);
    if (r->pid > 0)
        setpgid(r->pid, r->pid);
    if (r->pid > 0 && read(report[0], &reason, sizeof(reason)) <= 0)
        reason = 0;
    close(report[0]);
    r->streams[0].from = out[0];
    r->streams[1].from = err[0];
    if (reason != 0 && r->pid > 0)
        waitpid(r->pid, NULL, 0);
    errno = reason;
    return reason == 0;
}

/* ---- keeping files small ---- */

static void bound(const char *path)
{
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;

    if (fd < 0)
        return;
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
            st.st_blocks * 512ll > FILE_BYTES &&
            fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, HEAD_BYTES,
                    st.st_size - TAIL_BYTES - HEAD_BYTES) != 0)
        /* a writer goes on where it was: the rest becomes a hole as well */
        (void)!ftruncate(fd, HEAD_BYTES);
    close(fd);
}

static int is_file(const struct dirent *e)
{
    return e->d_name[0] != '.';
}

static int list_files(const struct running *r, struct dirent ***names)
{
    const int count = scandir(r->folder, names, is_file, alphasort);

    return count < 0 ? 0 : count;
}

static void bound_files(const struct running *r)
{
    struct dirent **names = NULL;
    const int count = list_files(r, &names);
    char path[512];

    for (int i = 0; i < count; i++) {
        snprintf(path, sizeof(path), "%s/%s", r->folder, names[i]->d_name);
        bound(path);
        free(names[i]);
    }
    free(names);
}

/* ---- while it runs ---- */

/* Whole lines go to the file, so that those of the two streams do not mix. */
static void keep(struct running *r, struct stream *s)
{
    const char *end = memrchr(s->line, '\n', s->used);
    const size_t whole = end != NULL ? (size_t)(end - s->line) + 1
            : s->used == LINE_BYTES  ? s->used
                                     : 0;

    (void)write_all(r->file, s->line, whole);
    memmove(s->line, s->line + whole, s->used - whole);
    s->used -= whole;
}

/* Processes that the command left behind, also in other groups and sessions: they are our
 * children (PR_SET_CHILD_SUBREAPER). Those that have ended are let go; the others are sent
 * @p signal, unless it is 0. Gives how many live. */
static uint32_t orphans(const struct running *r, int signal)
{
    FILE *in = fopen("/proc/thread-self/children", "re");
    uint32_t lives = 0;
    int pid;

    while (in != NULL && fscanf(in, "%d", &pid) == 1) {
        bool ours = pid == r->pid;

        for (uint32_t i = 0; i < r->num_before && !ours; i++)
            ours = r->before[i] == pid;
        if (ours || waitpid(pid, NULL, WNOHANG) == pid)
            continue;
        lives++;
        if (signal != 0)
            kill(pid, signal);
    }
    if (in != NULL)
        fclose(in);
    return lives;
}

/* Ask, tell, kill: each time it is called one step further. */
static void end_it(struct running *r)
{
    static const int signals[] = { SIGINT, SIGTERM, SIGKILL };
    const int signal = signals[r->step < 2 ? r->step : 2];

    kill(-r->pid, signal);
    if (r->ended || r->step > 0)
        (void)orphans(r, signal);
    r->step++;
    r->next_step = dr_now_ms() + STEP_MS;
}

static void take_output(struct running *r, struct stream *s)
{
    const ssize_t got = read(s->from, s->line + s->used, LINE_BYTES - s->used);

    if (got < 0 && errno == EINTR)
        return;
    if (got <= 0) {
        close(s->from);
        s->from = -1;
        return;
    }
    if (!write_all(s->shown, s->line + s->used, (size_t)got) && errno == EPIPE &&
            !r->interrupted && !r->ended) {
        /* nobody reads any more: without us it would end by SIGPIPE */
        r->interrupted = true;
        r->step = r->step < 1 ? 1 : r->step;
        end_it(r);
    }
    s->used += (size_t)got;
    keep(r, s);
}

/* Whoever of the group has ended, also orphans: they are ours (PR_SET_CHILD_SUBREAPER). */
static void reap(struct running *r)
{
    pid_t pid;
    int status;

    while ((pid = waitpid(-r->pid, &status, WNOHANG)) > 0) {
        if (pid != r->pid)
            continue;
        r->status = status;
        r->ended = true;
        /* whoever is left of its group is told now */
        r->step = r->step < 1 ? 1 : r->step;
        end_it(r);
    }
}

static void take_signals(struct running *r)
{
    struct signalfd_siginfo info;

    while (read(r->signals, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        r->interrupted = true;
        if (r->step == 0 && info.ssi_signo != SIGINT)
            r->step = 1;
        end_it(r);
    }
    reap(r);
}

static bool lives(const struct running *r)
{
    return kill(-r->pid, 0) == 0 || errno == EPERM ||
            orphans(r, r->step > 2 ? SIGKILL : 0) > 0;
}

static void watch(struct running *r)
{
    int64_t next_look = 0;

    while (!r->ended || lives(r)) {
        struct pollfd p[] = { { r->streams[0].from, POLLIN, 0 },
            { r->streams[1].from, POLLIN, 0 }, { r->signals, POLLIN, 0 } };

        (void)poll(p, 3, LOOK_MS);
        for (int i = 0; i < 2; i++)
            if (p[i].revents != 0 && r->streams[i].from >= 0)
                take_output(r, &r->streams[i]);
        take_signals(r);
        if (r->deadline != 0 && !r->ended && r->step == 0 &&
                dr_now_ms() >= r->deadline) {
            r->timed_out = true;
            r->step = 1;
            end_it(r);
        }
        if (r->next_step != 0 && dr_now_ms() >= r->next_step)
            end_it(r);
        if (r->step > 4)
            break; /* it waits inside the kernel: nobody can end that */
        if (dr_now_ms() >= next_look) {
            bound_files(r);
            next_look = dr_now_ms() + LOOK_MS;
        }
    }
    for (int i = 0; i < 2; i++)
        while (r->streams[i].from >= 0) {
            struct pollfd p = { r->streams[i].from, POLLIN, 0 };

            if (poll(&p, 1, 0) <= 0)
                break;
            take_output(r, &r->streams[i]);
        }
}

/* ---- what it left ---- */

struct holey {
    int fd;
    off_t at;
    bool jumped;
};

/* The bytes of a file, a newline for each hole. */
static ssize_t read_data(void *cookie, char *buf, size_t bytes)
{
    struct holey *h = cookie;
    const off_t data = lseek(h->fd, h->at, SEEK_DATA);
    off_t hole;
    ssize_t got;

    if (data < 0 || bytes == 0)
        return 0;
    if (data != h->at) {
        h->at = data;
        buf[0] = '\n';
        return 1;
    }
    hole = lseek(h->fd, h->at, SEEK_HOLE);
    if (hole > h->at && (off_t)bytes > hole - h->at)
        bytes = (size_t)(hole - h->at);
    got = pread(h->fd, buf, bytes, h->at);
    h->at += got > 0 ? got : 0;
    return got;
}

static void add_file(struct running *r, const char *name)
{
    char path[512];
    struct holey h = { .fd = -1 };
    FILE *in;

    snprintf(path, sizeof(path), "%s/%s", r->folder, name);
    h.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (h.fd < 0)
        return;
    in = fopencookie(&h, "r", (cookie_io_functions_t){ .read = read_data });
    if (in != NULL) {
        if (doctor_add_stream(r->d, name, in))
            r->d->sources[r->d->num_sources - 1].known = true;
        else
            doctor_unread(r->d, name, "%s", strerror(errno));
        fclose(in);
    }
    close(h.fd);
}

static void add_files(struct running *r)
{
    struct dirent **names = NULL;
    const int count = list_files(r, &names);
    char path[512];

    for (int i = 0; i < count; i++) {
        if (i < FILES_MAX)
            add_file(r, names[i]->d_name);
        snprintf(path, sizeof(path), "%s/%s", r->folder, names[i]->d_name);
        unlink(path);
        free(names[i]);
    }
    free(names);
    if (count > FILES_MAX)
        doctor_unread(r->d, "logs of the command", "files after the first %d",
                FILES_MAX);
    rmdir(r->folder);
}

static void write_command(const struct running *r)
{
    dprintf(r->file, "%s$", r->command->host);
    for (char *const *word = r->command->argv; *word != NULL; word++)
        dprintf(r->file, " %s", *word);
    dprintf(r->file, "\n");
}

/* How it ended, as a line that every reader knows; true if that was badly. */
static bool write_end(const struct running *r)
{
    int status = 128 + SIGKILL; /* of one that nothing could end */

    for (int i = 0; i < 2; i++)
        if (r->streams[i].used > 0)
            dprintf(r->file, "%.*s\n", (int)r->streams[i].used, r->streams[i].line);
    if (r->timed_out)
        status = 124;
    else if (r->ended && WIFSIGNALED(r->status))
        status = 128 + WTERMSIG(r->status);
    else if (r->ended && WIFEXITED(r->status))
        status = WEXITSTATUS(r->status);
    if (r->interrupted)
        dprintf(r->file, "^C\n");
    dprintf(r->file, "exit status %d\n", status);
    return status != 0 || r->interrupted;
}

static void note_trouble(struct doctor *d, uint32_t first_source)
{
    for (uint32_t i = first_source; i < d->num_sources; i++)
        if (strcmp(d->sources[i].name, OUTPUT) == 0 && d->sources[i].count > 0)
            dr_trouble(d, d->sources[i].first + d->sources[i].count - 1);
}

static bool prepare(struct running *r)
{
    const char *base = getenv("TMPDIR");
    char path[128];

    if (snprintf(r->folder, sizeof(r->folder), "%s/motet-doctor-XXXXXX",
                base != NULL && base[0] == '/' && strlen(base) < 32 ? base : "/tmp") <
                    0 ||
            mkdtemp(r->folder) == NULL)
        return false;
    snprintf(path, sizeof(path), "%s/" OUTPUT, r->folder);
    r->file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    return r->file >= 0;
}

static void note_children(struct running *r)
{
    FILE *in = fopen("/proc/thread-self/children", "re");
    int pid;

    while (in != NULL && fscanf(in, "%d", &pid) == 1)
        *DR_PUSH(r->d, r->before, r->num_before, r->room_before) = pid;
    if (in != NULL)
        fclose(in);
}

bool dr_run_command(struct doctor *d, const struct dr_command *command)
{
    struct running *r = dr_alloc(d, sizeof(*r));
    static const int caught[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD };
    const uint32_t first_source = d->num_sources;
    void (*pipe_before)(int);
    sigset_t wanted, before;
    bool started, badly = false;
    int reason;

    r->d = d;
    r->command = command;
    r->streams[0].shown = command->out_fd;
    r->streams[1].shown = command->err_fd;
    if (!prepare(r))
        return false;
    write_command(r);
    sigemptyset(&wanted);
    for (size_t i = 0; i < sizeof(caught) / sizeof(*caught); i++)
        sigaddset(&wanted, caught[i]);
    sigprocmask(SIG_BLOCK, &wanted, &before);
    pipe_before = signal(SIGPIPE, SIG_IGN);
    r->signals = signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK);
    note_children(r);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    r->deadline =
            command->timeout_s > 0 ? dr_now_ms() + command->timeout_s * 1000ll : 0;
    started = start(r, &before);
    reason = errno;
    if (started) {
        watch(r);
        badly = write_end(r);
    }
    close(r->signals);
    signal(SIGPIPE, pipe_before);
    sigprocmask(SIG_SETMASK, &before, NULL);
    close(r->file);
    add_files(r);
    if (badly)
        note_trouble(d, first_source);
    errno = reason;
    return started;
}
