/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the run stands still: the last words of a rank are about connecting, or announce
 * a collective, and neither a result nor an error follows in the same output; or somebody
 * says so. A log that was filtered before it was shown proves nothing by its end.
 */
#include "job.h"
#include "lines.h"

#include <ctype.h>
#include <string.h>

struct word {
    const char *text;
    bool begins; /* at the beginning of the message only */
};

static bool any_of(const char *text, const struct word *words, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (words[i].begins ? dr_begins(text, words[i].text)
                            : dr_has_any_case(text, words[i].text))
            return true;
    return false;
}

/* ---- what a line is ---- */

static bool is_connect(const char *message)
{
    static const char *const shapes[] = { "^Channel %d%*", "^Ring %d%*",
        "^Connected all %*", "^P2P Chunksize set to %d", "^Trees %*", "^NVLS %*",
        "^%d coll channels%*", "^threadThresholds %*", "^Setting affinity %*",
        "^Connected NVLS%*", "^Connected Bi%*", "^Using network %*",
        "^Call to connect%*", "onnect to %*returned%*retrying" };

    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (dr_scan(message, shapes[i], NULL))
            return true;
    return false;
}

static bool is_announced(const char *message)
{
    return dr_scan(message, ": opCount %x sendbuff ", NULL);
}

/* A person's words; a table's heading and a program's own lines are not. */
static const char *remark_of(const struct dr_line *line)
{
    static const char *const bare[] = { "hangs", "it hangs", "and hangs", "then hangs",
        "stuck", "still here", "nothing more" };
    static const char *const arrows[] = { "<-", "<=", "\xe2\x86\x90", "  # " };
    const char *text = dr_after_prefix(line->text);

    if (dr_begins(text, "# nThread") || dr_has(text, "algbw") || dr_has(text, "(GB/s)"))
        return NULL;
    if ((line->flags & DR_REMARK) || strchr("(<>*=~;", *text) != NULL ||
            dr_begins(text, "--") || dr_begins(text, "...") ||
            dr_begins(text, "\xe2\x86\x90"))
        return *text != 0 ? text : NULL;
    /* words typed into the log without any mark: short, and they begin like this */
    for (size_t i = 0; line->length < 80 && i < sizeof(bare) / sizeof(*bare); i++)
        if (strncasecmp(text, bare[i], strlen(bare[i])) == 0)
            return text;
    for (size_t i = 0; i < sizeof(arrows) / sizeof(*arrows); i++) {
        const char *at = strstr(text, arrows[i]);

        if (at != NULL)
            return at;
    }
    return NULL;
}

static bool says_stalled(const char *remark)
{
    static const struct word words[] = { { "hangs", false }, { "stuck", false },
        { "still here", false }, { "nothing more", false }, { "hang here", false },
        { "hung ", false }, { "hanging", false }, { "never returns", false },
        { "no output after", false }, { "no more output", false },
        { "nothing happens", false }, { "still waiting", false } };
    static const struct word denials[] = { { "no longer", false },
        { "not hang", false }, { "n't hang", false }, { "never hang", false },
        { "not stuck", false }, { "no hang", false }, { "without hang", false },
        { "or hang", false } };

    return any_of(remark, words, sizeof(words) / sizeof(*words)) &&
            !any_of(remark, denials, sizeof(denials) / sizeof(*denials));
}

static bool is_stop(const char *text)
{
    const size_t length = strlen(text);

    return dr_begins(text, "^C") ||
            (length >= 2 && length < 80 && strcmp(text + length - 2, "^C") == 0) ||
            strcmp(text, "^Z") == 0 || dr_scan(text, "^[%d]%*Stopped ", NULL);
}

/* Banners, warnings and blanks between the log and what the program says. */
static bool is_noise(const char *text)
{
    static const struct word words[] = { { "[W", true },
        { "Setting OMP_NUM_THREADS", false }, { "version", false },
        { "warning", false }, { "waiting", false },
        { "No available shared memory broadcast", false }, { "eartbeat", false },
        { "Librccl path", false }, { "Hostname ", true }, { "W0", true },
        { "W1", true } };
    text = dr_after_prefix(text);
    return *text == 0 || any_of(text, words, sizeof(words) / sizeof(*words)) ||
            strspn(text, "*-=_.#~ ") == strlen(text);
}

bool dr_is_result(const struct doctor *d, uint32_t line)
{
    const struct dr_line *l = &d->lines[line];

    return d->job->log_of[line] == DR_NONE && !(l->flags & DR_COMMAND) &&
            !is_stop(l->text) && !is_noise(l->text) && remark_of(l) == NULL;
}

static bool is_table_head(const char *text)
{
    return dr_scan(text, "%<size %*count %*type%*algbw", NULL) ||
            dr_scan(text, "%<bytes %*N %*type%*algbw", NULL);
}

static bool is_table_row(const char *text)
{
    return dr_scan(text, "%d %d %w %w %f %f %f", NULL) ||
            dr_scan(text, "%d %d %w %w %w %f %f %f", NULL);
}

/* Its output was filtered: the end of it is not the end of the run. */
static bool is_filtered(const char *command)
{
    static const struct word words[] = { { "grep ", false }, { "| head", false },
        { "|head", false }, { "| awk", false }, { "| sed", false }, { "sed -n", true },
        { "head ", true } };

    return any_of(command, words, sizeof(words) / sizeof(*words));
}

/* A file was shown that is no log: its comments are about something else. */
static bool is_file(const char *command)
{
    static const struct word words[] = { { "cat ", true }, { "grep ", true },
        { "zgrep ", true }, { "sudo cat ", true }, { "head ", true } };

    return any_of(command, words, sizeof(words) / sizeof(*words)) &&
            !dr_has(command, "log") && !dr_has(command, ".out") &&
            !dr_has(command, ".err");
}

/* Exit status of `timeout` when it had to stop the program. */
static bool is_timed_out(const struct doctor *d, uint32_t line)
{
    static const char *const shapes[] = { "exit status %d%>", "exit status: %d%>",
        "exit code %d%>", "exit code: %d%>", "exited with %d%>", "rc=%d%>",
        "exitcode: %d%>", "status=%d%>", "exit=%d%>", "rc %d%>" };
    const char *text = d->lines[line].text;
    struct dr_span got[2];

    if (strcmp(text, "124") == 0)
        return dr_has(dr_command(d, line), "$?");
    if (!dr_has(text, "124"))
        return false;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (dr_scan(text, shapes[i], got) && dr_span_is(got[0], "124"))
            return true;
    return false;
}

/* ---- one output after another ---- */

/* What the output of one command (or a file without commands) brings. */
struct output {
    uint32_t last_result, last_log, head, stop, first_log; /* lines, or DR_NONE */
    bool completed, filtered, failed;
};

/* In its output a rank's last words are about connecting, and nothing follows. */
static uint32_t stall_of(const struct doctor *d, const struct output *o)
{
    const struct dr_job *job = d->job;

    if (o->head != DR_NONE && !o->filtered)
        return o->head;
    if (o->last_log == DR_NONE || o->filtered ||
            (o->last_result != DR_NONE && o->last_result > o->last_log) || o->failed)
        return DR_NONE;
    if (o->stop != DR_NONE && o->stop > o->last_log)
        return o->stop;
    for (uint32_t i = job->log_of[o->first_log]; i < job->num_log; i++) {
        const struct dr_log_line *l = &job->log[i];
        const struct dr_worker *w = &job->workers[l->worker];

        if (l->line > o->last_log)
            break;
        if (w->last != i || l->warn)
            continue;
        if (is_announced(l->message) || (!o->completed && is_connect(l->message)))
            return l->line;
    }
    return DR_NONE;
}

static void take_line(struct doctor *d, struct output *o, uint32_t i)
{
    const struct dr_job *job = d->job;
    const char *text = d->lines[i].text, *remark;

    if (job->log_of[i] != DR_NONE) {
        const struct dr_log_line *l = &job->log[job->log_of[i]];

        if (o->first_log == DR_NONE)
            o->first_log = i;
        o->last_log = i;
        o->failed = o->failed || dr_scan(l->message, "^%*:%d -> %d", NULL);
        o->completed = o->completed || dr_has(l->message, "Init COMPLETE");
        remark = strstr(l->message, "<-");
        if (remark != NULL && says_stalled(remark))
            d->job->stalled = d->job->stalled == DR_NONE ? i : d->job->stalled;
        return;
    }
    if (is_table_head(text))
        o->head = i;
    else if (o->head != DR_NONE && is_table_row(text))
        o->head = DR_NONE;
    if (is_stop(text))
        o->stop = i;
    else if (o->last_log != DR_NONE &&
            (o->last_result == DR_NONE || o->last_result < o->last_log) &&
            dr_is_result(d, i))
        o->last_result = i;
    remark = remark_of(&d->lines[i]);
    if (remark != NULL && is_file(dr_command(d, i)))
        remark = NULL;
    if (((remark != NULL && says_stalled(remark)) || is_timed_out(d, i)) &&
            d->job->stalled == DR_NONE)
        d->job->stalled = i;
}

void dr_read_stalls(struct doctor *d)
{
    static const struct output none = { DR_NONE, DR_NONE, DR_NONE, DR_NONE, DR_NONE,
        false, false, false };
    struct output o = none;
    uint32_t found = DR_NONE;

    for (uint32_t i = 0; i <= d->num_lines; i++) {
        const bool ends = i == d->num_lines || (d->lines[i].flags & DR_COMMAND) ||
                (i > 0 && d->lines[i].source != d->lines[i - 1].source);

        if (ends) {
            const uint32_t stall = stall_of(d, &o);

            found = found == DR_NONE ? stall : found;
            o = none;
        }
        if (i == d->num_lines)
            break;
        if (d->lines[i].flags & DR_COMMAND)
            o.filtered = is_filtered(dr_typed(&d->lines[i]));
        else
            take_line(d, &o, i);
    }
    if (d->job->stalled == DR_NONE || found < d->job->stalled)
        d->job->stalled = found == DR_NONE ? d->job->stalled : found;
    if (d->job->stalled != DR_NONE)
        dr_trouble(d, d->job->stalled);
}
