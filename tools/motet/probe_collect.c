/* SPDX-License-Identifier: Apache-2.0 */
/*
 * motet probe --collect: all that somebody else needs to judge this machine, in one
 * archive: what `motet doctor --collect` looks at, and what the other commands say. In two
 * minutes at most, whatever hangs: each part has its time, and one that gets none says so.
 */
#include "probe_gate.h"

#include "apart.h"
#include "cmd.h"
#include "doctor_live.h"
#include "serving_parts.h"
#include "term.h"

#include "base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMMAND "probe"
#define ARGS    (PROBE_LIBRARIES_MAX + 4)
/* A cell's deadline, unless a shorter one was asked for. */
#define CELL_S 8u
/* How long a driver may take to say what devices there are. */
#define LOOK_S 15u
/* Until when no further launch begins; a cell may take its time and be killed behind it. */
#define GATE_END_S 35u
#define ROWS_END_S 80u
/* A file of motet's own state, and what a command may print, is cut there. */
#define STATE_BYTES (64u << 10)
#define SAID_BYTES  (8u << 20)

/* The archive so far, and what is missing in it. */
struct archive {
    const struct probe_options *asked;
    struct doctor *d;
    struct dr_captures captures;
    uint64_t start_ns;
    FILE *notes;
    char *text; /* of the notes */
    size_t bytes;
};

static void note(struct archive *a, const char *what, const char *why)
{
    fprintf(a->notes, "%s: %s\n", what, why);
}

/* ---- commands ---- */

/* A command of ours in a process of its own, and where its output goes. */
struct command {
    int (*run)(int argc, char **argv);
    int argc, out, err, status;
    char *argv[ARGS];
};

static void run_command(void *shared)
{
    struct command *c = shared;

    (void)dup2(c->out, STDOUT_FILENO);
    (void)dup2(c->err, STDERR_FILENO);
    c->status = c->run(c->argc, c->argv);
    fflush(stdout);
}

/* What is in a file of ours, as a string; the caller's. */
static char *text_of(int fd, size_t *bytes_out)
{
    struct stat st;
    size_t bytes = fstat(fd, &st) == 0 && st.st_size > 0 ? (size_t)st.st_size : 0;
    char *text = calloc(1, (bytes < SAID_BYTES ? bytes : SAID_BYTES) + 1);
    ssize_t n = text != NULL
            ? pread(fd, text, bytes < SAID_BYTES ? bytes : SAID_BYTES, 0)
            : 0;

    *bytes_out = n > 0 ? (size_t)n : 0;
    return text;
}

/* How it ended, with the first line that it complained with. */
static void note_end(struct archive *a, const char *name, const struct command *c,
        enum apart end)
{
    static const char *const ends[] = { [APART_FINE] = "ended with status",
        [APART_CRASHED] = "crashed",
        [APART_LATE] = "did not end in time",
        [APART_STUCK] = "did not end in time, and cannot be killed",
        [APART_FAILED] = "could not be started" };
    size_t bytes = 0;
    char *said = text_of(c->err, &bytes), why[512], status[16] = "";

    if (end == APART_FINE)
        snprintf(status, sizeof(status), " %d", c->status);
    if (said != NULL)
        said[strcspn(said, "\n")] = 0;
    snprintf(why, sizeof(why), "motet %s %s%s%s%.400s", c->argv[0], ends[end], status,
            said != NULL && said[0] != 0 ? ": " : "", said != NULL ? said : "");
    note(a, name, why);
    free(said);
}

/* Capture @p name is what the command prints within @p seconds; also what it printed
 * before it crashed or hung. */
static void add_command(struct archive *a, const char *name, struct command *c,
        unsigned seconds)
{
    size_t bytes = 0;
    char *said;
    enum apart end;

    term_progress("probe: motet %s", c->argv[0]);
    c->out = memfd_create(name, MFD_CLOEXEC);
    c->err = memfd_create(name, MFD_CLOEXEC);
    end = apart_run(run_command, c, seconds);
    said = text_of(c->out, &bytes);
    if (end != APART_FINE || bytes == 0)
        note_end(a, name, c, end);
    if (said != NULL && bytes > 0)
        dr_capture(a->d, &a->captures, name, said, bytes);
    free(said);
    if (c->out >= 0)
        close(c->out);
    if (c->err >= 0)
        close(c->err);
}

/* Those that launch nothing, and load libraries in processes of their own. */
static void add_commands(struct archive *a, const struct probe_report *report)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv);
        const char *argv[2];
        unsigned seconds;
        bool libraries; /* the paths of those that were probed follow */
    } rows[] = {
        { "motet-version.txt", cmd_version, { "version" }, 2, false },
        { "motet-lib.json", cmd_lib, { "lib", "--json" }, 10, false },
        { "motet-hostcall.json", cmd_hostcall, { "hostcall", "--json" }, 10, true },
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        struct command *c = apart_memory(sizeof(*c));

        if (c == NULL) {
            note(a, rows[i].name, "no memory");
            continue;
        }
        c->run = rows[i].run;
        for (int k = 0; k < 2 && rows[i].argv[k] != NULL; k++)
            c->argv[c->argc++] = (char *)(uintptr_t)rows[i].argv[k];
        for (int l = 0; rows[i].libraries && l < report->nlibraries; l++)
            if (report->libraries[l].path[0] == '/')
                c->argv[c->argc++] = (char *)(uintptr_t)report->libraries[l].path;
        if (rows[i].libraries && c->argc == 2)
            note(a, rows[i].name, "no library was found");
        else
            add_command(a, rows[i].name, c, rows[i].seconds);
        apart_free(c, sizeof(*c));
    }
}

/* ---- what the library remembers ---- */

static void add_file(struct archive *a, const char *name, const char *path)
{
    char *text = malloc(STATE_BYTES);
    ssize_t n = text != NULL ? serving_read(text, STATE_BYTES, "%s", path) : -1;

    if (n > 0)
        dr_capture(a->d, &a->captures, name, text, (size_t)n);
    else if (n < 0 && errno != ENOENT)
        note(a, name, strerror(errno));
    free(text);
}

/* Vetoes and first touches of pairs, and stages that did not come back. */
static void add_state(struct archive *a)
{
    char folder[PATH_MAX - 300], path[PATH_MAX], name[32];
    unsigned number = 0;
    struct dirent *entry;
    DIR *stages;

    if (!serving_state("stages", folder, sizeof(folder))) {
        note(a, "motet-vetoes.txt", "motet has no folder to remember anything in");
        return;
    }
    snprintf(path, sizeof(path), "%s/../paths", folder);
    add_file(a, "motet-vetoes.txt", path);
    stages = opendir(folder);
    while (stages != NULL && (entry = readdir(stages)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        /* its name is made of paths: what it is stands inside, without names */
        snprintf(name, sizeof(name), "motet-stage-%u.txt", number++);
        add_file(a, name, path);
    }
    if (stages != NULL)
        closedir(stages);
}

/* ---- launches ---- */

/* Capture @p name is what @p print writes. */
static void add_printed(struct archive *a, const char *name,
        bool (*print)(const void *report, FILE *out), const void *report)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    bool written = out != NULL && print(report, out);

    if (out != NULL && fclose(out) == 0 && written)
        dr_capture(a->d, &a->captures, name, text, bytes);
    else
        note(a, name, "no memory");
    free(text);
}

static bool print_rows(const void *report, FILE *out)
{
    return probe_print_json(report, out);
}

static bool print_gate(const void *report, FILE *out)
{
    return gate_print_json(report, out);
}

/* As the doctor's readers know it. */
static bool print_gate_text(const void *report, FILE *out)
{
    gate_print_text(report, out);
    return true;
}

static struct probe_options until(const struct archive *a, unsigned seconds)
{
    struct probe_options o = *a->asked;

    o.until_ns = a->start_ns + seconds * MOTET_NS_PER_S;
    if (o.timeout_s > CELL_S)
        o.timeout_s = CELL_S;
    return o;
}

/* Only AMD's runtime has a gate. */
static int add_gate(struct archive *a)
{
    struct gate_report *report = calloc(1, sizeof(*report));
    struct probe_options o = until(a, GATE_END_S);
    int code = EXIT_UNDECIDED;

    if (report != NULL)
        code = gate_look(&o, report);
    if (report != NULL && report->ncards > 0) {
        add_printed(a, "motet-gate.json", print_gate, report);
        add_printed(a, "motet-gate.txt", print_gate_text, report);
    } else {
        note(a, "motet-gate.json", "no AMD GPU was tried");
    }
    free(report);
    return code;
}

/* @return −1, or an exit code: what was asked for cannot be probed. */
static int add_rows(struct archive *a, struct probe_report *report)
{
    struct probe_options o = until(a, ROWS_END_S);
    const int code = probe_run(&o, report);

    if (code < 0)
        add_printed(a, "motet-probe.json", print_rows, report);
    else
        note(a, "motet-probe.json", "nothing was probed");
    return code;
}

/* ---- all of it ---- */

/* Which devices there are, asked where it may hang. */
struct look {
    const struct probe_options *asked;
    int code;
    struct backend_choice place;
};

static void look(void *shared)
{
    struct look *l = shared;

    l->code =
            backend_choose(COMMAND, l->asked->device, l->asked->host_memory, &l->place);
}

/* @return -1 and whether AMD's runtime is it; or an exit code. */
static int look_for_devices(struct archive *a, bool *amd)
{
    struct look *l = apart_memory(sizeof(*l));
    int code = EXIT_UNDECIDED;

    if (l == NULL)
        return cmd_error(COMMAND, code, "no memory");
    l->asked = a->asked;
    if (apart_run(look, l, LOOK_S) == APART_FINE) {
        code = l->code;
        *amd = l->place.backend == &backend_hip;
    } else {
        note(a, "motet-probe.json", "the driver did not say what devices there are");
    }
    apart_free(l, sizeof(*l));
    return code;
}

static int collect(struct archive *a, struct probe_report *report)
{
    bool amd = false;
    int code;

    term_progress("probe: looking at the machine");
    code = look_for_devices(a, &amd);
    if (code == EXIT_USAGE)
        return code;
    doctor_live_gather(a->d, &a->captures);
    if (code < 0 && amd)
        code = add_gate(a);
    if (code < 0)
        code = add_rows(a, report);
    add_commands(a, report);
    add_state(a);
    term_progress_end();
    return code;
}

int probe_collect(const struct probe_options *options)
{
    struct archive a = { .asked = options, .start_ns = motet_now_ns() };
    struct probe_report *report = calloc(1, sizeof(*report));
    int code, written;

    a.d = doctor_new();
    a.notes = open_memstream(&a.text, &a.bytes);
    if (report == NULL || a.notes == NULL)
        return cmd_error(COMMAND, EXIT_UNDECIDED, "no memory");
    code = collect(&a, report);
    if (fclose(a.notes) == 0 && a.bytes > 0)
        dr_capture(a.d, &a.captures, "motet-notes.txt", a.text, a.bytes);
    written = code == EXIT_USAGE
            ? code
            : doctor_live_write(COMMAND, a.d, &a.captures, options->collect, false);
    probe_report_free(report);
    doctor_free(a.d);
    free(report);
    free(a.text);
    return written != EXIT_FINE ? written : code < 0 ? EXIT_FINE : code;
}
