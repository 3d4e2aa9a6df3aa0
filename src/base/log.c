/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log.
 *
 * What decides about a line (level, subsystems, where it goes) is one atomic word,
 * so motet_log_on() is one load once the variables were read. A line is
 * composed on the stack and leaves in one write(), so lines of several threads and,
 * since the file is opened for appending, of several processes do not mix.
 *
 * The log file's descriptor is never closed: when the variables are read again,
 * dup3() puts the new file in its place. So a writer needs no lock, and the only
 * lock, around reading the variables, is never held while a line is written.
 */
#include "base/log.h"

#include "base/clock.h"
#include "base/param.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048
#define DEFAULT_SUBSYS (MOTET_SUB_INIT | MOTET_SUB_BOOTSTRAP | MOTET_SUB_ENV)

/* The word: subsystems below, level and flags above. All zero is "not read yet". */
#define STATE_LEVEL_SHIFT 32
#define STATE_READ        (1ull << 40) /* the variables were read                */
#define STATE_STDERR      (1ull << 41) /* warnings go to stderr, once each       */
#define STATE_TO_FILE     (1ull << 42) /* lines go to file_fd instead of stdout  */

static _Atomic uint64_t state;
static atomic_bool version_written;
static _Atomic uint64_t
        first_ns; /* when the variables were first read: TRACE counts from it */
static pthread_mutex_t read_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;
static atomic_int file_fd = -1;
static char host[256]; /* written once, before STATE_READ is */
static _Thread_local int device = -1;

static const struct {
    const char *name;
    motet_log_level level;
} levels[] = {
    { "VERSION", MOTET_LOG_VERSION },
    { "ERROR", MOTET_LOG_VERSION }, /* a level of newer RCCL, below WARN */
    { "WARN", MOTET_LOG_WARN },
    { "INFO", MOTET_LOG_INFO },
    { "ABORT", MOTET_LOG_INFO }, /* NCCL's name for INFO and then abort() */
    { "TRACE", MOTET_LOG_TRACE },
    { "NONE", MOTET_LOG_NONE },
};

static const struct {
    const char *name;
    unsigned bits;
} subsystems[] = {
    { "INIT", MOTET_SUB_INIT },
    { "COLL", MOTET_SUB_COLL },
    { "P2P", MOTET_SUB_P2P },
    { "SHM", MOTET_SUB_SHM },
    { "NET", MOTET_SUB_NET },
    { "GRAPH", MOTET_SUB_GRAPH },
    { "TUNING", MOTET_SUB_TUNING },
    { "ENV", MOTET_SUB_ENV },
    { "ALLOC", MOTET_SUB_ALLOC },
    { "CALL", MOTET_SUB_CALL },
    { "PROXY", MOTET_SUB_PROXY },
    { "NVLS", MOTET_SUB_NVLS },
    { "BOOTSTRAP", MOTET_SUB_BOOTSTRAP },
    { "REG", MOTET_SUB_REG },
    { "PROFILE", MOTET_SUB_PROFILE },
    { "RAS", MOTET_SUB_RAS },
    { "ALL", ~0u },
};

static const char *variable(const char *name)
{
    const char *text = motet_param_environment(name);

    return text != NULL && text[0] != '\0' ? text : NULL;
}

static unsigned parse_subsys(const char *text)
{
    const bool invert = text[0] == '^';
    unsigned bits = 0;

    text += invert;
    while (*text != '\0') {
        size_t length = strcspn(text, ",");

        for (size_t i = 0; i < sizeof(subsystems) / sizeof(*subsystems); i++) {
            if (strlen(subsystems[i].name) == length &&
                    strncasecmp(subsystems[i].name, text, length) == 0)
                bits |= subsystems[i].bits;
        }
        text += length + (text[length] == ',');
    }
    return invert ? ~bits : bits;
}

/* Replace %h and %p; false if the result does not fit. */
static bool expand_path(const char *pattern, char *buf, size_t bytes)
{
    size_t used = 0;

    for (; *pattern != '\0'; pattern++) {
        char one[2] = { *pattern, '\0' }, pid[16];
        const char *piece = one;

        if (pattern[0] == '%' && pattern[1] != '\0') {
            pattern++;
            snprintf(pid, sizeof(pid), "%d", (int)getpid());
            one[0] = *pattern;
            piece = *pattern == 'h' ? host : *pattern == 'p' ? pid : one;
        }
        if (used + strlen(piece) >= bytes)
            return false;
        memcpy(buf + used, piece, strlen(piece));
        used += strlen(piece);
    }
    buf[used] = '\0';
    return true;
}

/* Open @p pattern for appending, as file_fd. False with errno. */
static bool open_file(const char *pattern)
{
    char path[4096];
    int fd, old = atomic_load_explicit(&file_fd, memory_order_relaxed);

    if (!expand_path(pattern, path, sizeof(path))) {
        errno = ENAMETOOLONG;
        return false;
    }
    fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0644);
    if (fd < 0)
        return false;
    if (old < 0) {
        atomic_store_explicit(&file_fd, fd, memory_order_relaxed);
        return true;
    }
    if (dup3(fd, old, O_CLOEXEC) < 0) {
        int saved = errno;

        (void)close(fd); /* nothing was written to it */
        errno = saved;
        return false;
    }
    (void)close(fd); /* `old` is the same file now */
    return true;
}

static void read_host(void)
{
    if (host[0] != '\0')
        return;
    if (gethostname(host, sizeof(host) - 1) != 0)
        snprintf(host, sizeof(host), "unknown");
    host[strcspn(host, ".")] = '\0'; /* as NCCL shows it */
    if (host[0] == '\0')
        snprintf(host, sizeof(host), "unknown");
}

static bool is_false(const char *text)
{
    return text != NULL &&
            (strcmp(text, "0") == 0 || strcasecmp(text, "no") == 0 ||
                    strcasecmp(text, "false") == 0);
}

/* The state that the variables ask for. What is wrong with them is described in
 * @p complaint, since nothing can be logged yet. */
static uint64_t read_variables(char *complaint, size_t bytes)
{
    const char *level_text = variable("NCCL_DEBUG");
    const char *subsys_text = variable("NCCL_DEBUG_SUBSYS");
    const char *file_text = variable("NCCL_DEBUG_FILE");
    motet_log_level level = MOTET_LOG_NONE;
    bool known = level_text == NULL, silent = is_false(variable("MOTET_DEBUG"));
    uint64_t word = STATE_READ;
    char reason[128];

    for (size_t i = 0; level_text != NULL && i < sizeof(levels) / sizeof(*levels);
            i++) {
        if (strcasecmp(level_text, levels[i].name) == 0) {
            known = true;
            level = levels[i].level;
            silent = silent || level == MOTET_LOG_NONE;
        }
    }
    if (!known)
        snprintf(complaint, bytes,
                "NCCL_DEBUG is '%.40s', need VERSION, WARN, INFO or TRACE: "
                "only warnings are shown",
                level_text);
    word |= (uint64_t)level << STATE_LEVEL_SHIFT;
    word |= subsys_text != NULL ? parse_subsys(subsys_text) : DEFAULT_SUBSYS;
    if (level < MOTET_LOG_WARN && !silent)
        word |= STATE_STDERR;
    if (file_text != NULL && level > MOTET_LOG_VERSION) {
        if (open_file(file_text))
            word |= STATE_TO_FILE;
        else
            snprintf(complaint, bytes,
                    "the log goes to stdout: open NCCL_DEBUG_FILE '%.200s': %s",
                    file_text, strerror_r(errno, reason, sizeof(reason)));
    }
    return word;
}

static void before_fork(void)
{
    pthread_mutex_lock(&read_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&read_lock);
}

/* A fork while another thread reads the variables must not leave the child locked. */
static void watch_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork,
            after_fork); /* fails without memory */
}

static uint64_t read_state(void)
{
    char complaint[512] = "";
    int saved = errno;
    uint64_t word;

    pthread_once(&fork_once, watch_forks);
    pthread_mutex_lock(&read_lock);
    word = atomic_load_explicit(&state, memory_order_relaxed);
    if (!(word & STATE_READ)) {
        read_host();
        if (atomic_load_explicit(&first_ns, memory_order_relaxed) == 0)
            atomic_store_explicit(&first_ns, motet_now_ns(), memory_order_relaxed);
        word = read_variables(complaint, sizeof(complaint));
        /* release, paired with current(): `host` is there for who sees STATE_READ */
        atomic_store_explicit(&state, word, memory_order_release);
    }
    pthread_mutex_unlock(&read_lock);
    if (complaint[0] != '\0')
        motet_warn("%s", complaint);
    errno = saved;
    return word;
}

static uint64_t current(void)
{
    uint64_t word = atomic_load_explicit(&state, memory_order_acquire);

    return word & STATE_READ ? word : read_state();
}

static bool is_on(uint64_t word, motet_log_level level, unsigned subsys)
{
    const unsigned limit = (unsigned)(word >> STATE_LEVEL_SHIFT) & 0xff;

    if (level == MOTET_LOG_WARN && (word & STATE_STDERR))
        return true;
    return (unsigned)level <= limit && limit != MOTET_LOG_NONE &&
            (level <= MOTET_LOG_WARN || (subsys & (unsigned)word) != 0);
}

bool motet_log_on(motet_log_level level, unsigned subsys)
{
    return is_on(current(), level, subsys);
}

/*
 * "One line for each cause": a cause is a place in the source with a text. A place
 * whose text differs each time (a time, a sequence number) is cut off after a few.
 * The table is a set without a lock: a slot goes from 0 to its value once.
 */
static bool is_new_cause(const char *file, int line, const char *text)
{
    enum { SLOTS = 128, TEXTS_OF_A_PLACE = 8 };
    static _Atomic uint64_t seen[SLOTS];
    uint64_t place = 14695981039346656037u, cause; /* FNV-1a */
    int same_place = 0;

    for (; *file != '\0'; file++)
        place = (place ^ (unsigned char)*file) * 1099511628211u;
    place = (place ^ (unsigned)line) * 1099511628211u;
    for (cause = place; *text != '\0'; text++)
        cause = (cause ^ (unsigned char)*text) * 1099511628211u;
    cause = (place << 32) | (cause & 0xffffffff) | 1; /* 0 means free */

    for (size_t i = 0; i < SLOTS; i++) {
        uint64_t old = 0;

        if (atomic_compare_exchange_strong_explicit(&seen[i], &old, cause,
                    memory_order_relaxed, memory_order_relaxed))
            return true;
        if (old == cause)
            return false;
        same_place += (old >> 32) == (cause >> 32);
        if (same_place == TEXTS_OF_A_PLACE)
            return false;
    }
    return false;
}

/* Write all of it or give up: there is nobody to tell. */
static void write_all(int fd, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = write(fd, text, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return;
        text += n;
        bytes -= (size_t)n;
    }
}

/* The part of __FILE__ below src/, so that a line does not show where it was built. */
static const char *source_name(const char *file)
{
    const char *name = file;

    for (const char *at = file; (at = strstr(at, "src/")) != NULL; at += 4) {
        if (at == file || at[-1] == '/')
            name = at + 4;
    }
    if (name == file && strrchr(file, '/') != NULL)
        name = strrchr(file, '/') + 1;
    return name;
}

static size_t write_prefix(char *buf, size_t bytes, motet_log_level level,
        bool to_stderr, const char *file, int line)
{
    const int pid = (int)getpid(), tid = (int)gettid();
    const uint64_t start_ns = atomic_load_explicit(&first_ns, memory_order_relaxed);
    char stamp[32] = "";
    struct tm tm;
    time_t now;
    int n = 0;

    switch (level) {
    case MOTET_LOG_NONE:
    case MOTET_LOG_VERSION: break;
    case MOTET_LOG_WARN:
        if (to_stderr) {
            n = snprintf(buf, bytes, "%s:%d:%d [%d] NCCL WARN ", host, pid, tid,
                    device);
            break;
        }
        now = time(NULL);
        if (localtime_r(&now, &tm) != NULL)
            strftime(stamp, sizeof(stamp), "%Y-%m-%d %H:%M:%S", &tm);
        n = snprintf(buf, bytes, "\n[%s] %s:%d:%d [%d] %s:%d NCCL WARN ", stamp, host,
                pid, tid, device, source_name(file), line);
        break;
    case MOTET_LOG_INFO:
        n = snprintf(buf, bytes, "%s:%d:%d [%d] NCCL INFO ", host, pid, tid, device);
        break;
    case MOTET_LOG_TRACE:
        n = snprintf(buf, bytes, "%s:%d:%d [%d] %.3f %s:%d NCCL TRACE ", host, pid, tid,
                device, (double)(motet_now_ns() - start_ns) / (double)MOTET_NS_PER_MS,
                source_name(file), line);
        break;
    }
    return n < 0 ? 0 : (size_t)n < bytes ? (size_t)n : bytes - 1;
}

void motet_log_write(motet_log_level level, unsigned subsys, const char *file, int line,
        const char *fmt, ...)
{
    const int saved = errno;
    const uint64_t word = current();
    const bool to_stderr = level == MOTET_LOG_WARN && (word & STATE_STDERR);
    char text[LINE_MAX_BYTES];
    size_t prefix, length;
    va_list args;
    int n;

    if (!is_on(word, level, subsys))
        return;
    prefix = write_prefix(text, sizeof(text) / 2, level, to_stderr, file, line);
    errno = saved; /* for %m */
    va_start(args, fmt);
    n = vsnprintf(text + prefix, sizeof(text) - prefix - 1, fmt, args);
    va_end(args);
    if (n < 0)
        text[prefix] = '\0';
    length = prefix + strlen(text + prefix);
    for (size_t i = prefix; i < length; i++) { /* one line, whatever is quoted in it */
        if ((unsigned char)text[i] < ' ' || text[i] == 0x7f)
            text[i] = ' ';
    }
    if (!to_stderr || is_new_cause(file, line, text + prefix)) {
        int fd = to_stderr ? STDERR_FILENO : STDOUT_FILENO;

        if (!to_stderr && (word & STATE_TO_FILE))
            fd = atomic_load_explicit(&file_fd, memory_order_relaxed);
        text[length] = '\n';
        write_all(fd, text, length + 1);
    }
    errno = saved;
}

void motet_log_version(void)
{
    if (!motet_log_on(MOTET_LOG_VERSION, 0) ||
            atomic_exchange_explicit(&version_written, true, memory_order_relaxed))
        return;
    if (strcmp(motet_conf_name, "rccl") == 0)
        motet_log_write(MOTET_LOG_VERSION, 0, __FILE__, __LINE__,
                "RCCL version : 2.27.7-motet" MOTET_VERSION);
    else
        motet_log_write(MOTET_LOG_VERSION, 0, __FILE__, __LINE__,
                "NCCL version 2.27.7+motet" MOTET_VERSION);
}

void motet_log_set_device(int ordinal)
{
    device = ordinal;
}

void motet_log_reset(void)
{
    atomic_store_explicit(&version_written, false, memory_order_relaxed);
    atomic_store_explicit(&state, 0, memory_order_relaxed);
}
