/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of motet bench: nccl-tests' lines, so that what parses theirs parses ours
 * (13 fields a row; more only after them, on GPUs, with --vs and with -S).
 */
#include "bench.h"

#include "host.h"

#include "find/find.h"

#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

const char *bench_number(double value, int width, char *buf, size_t bytes)
{
    int digits = value < 1 ? 0 : (int)floor(log10(value) + 1e-12) + 1;
    int decimals = digits < width - 2 ? 2 : digits < width - 1 ? 1 : 0;

    if (!isfinite(value))
        snprintf(buf, bytes, "%*s", width, "inf");
    else if (digits <= width)
        snprintf(buf, bytes, "%*.*f", width, decimals, value);
    else
        snprintf(buf, bytes, "%*.*e", width, width >= 7 ? 1 : 0, value);
    return buf;
}

const char *bench_redop_name(const struct bench_row *row)
{
    return row->collective->reduces ? motet_redop_names[row->redop] : "none";
}

static void print_library(FILE *out, const char *what, const struct library *lib)
{
    char version[24];

    fprintf(out, "# %-7s %s%s\n", what, lib->path, lib->linked ? " (built in)" : "");
    fprintf(out, "#         version %s, sha256 %s\n",
            motet_find_version(lib->version, version, sizeof(version)), lib->sha256);
}

static void print_libraries(const struct bench *b)
{
    const struct bench_options *o = &b->options;

    print_library(b->table, "library", &b->lib);
    if (o->vs != NULL)
        print_library(b->table, "vs", &b->vs);
    for (int i = 0; i < o->nnotes; i++)
        fprintf(b->table, "# ignored %s\n", o->notes[i]);
    if (b->no_streams)
        fprintf(b->table,
                "# ignored -z %d: a library has no host streams; stream NULL is used\n",
                o->blocking);
    if (o->explain && b->lib.explain == NULL)
        fprintf(b->table,
                "# ignored --explain: the library cannot tell what it would choose\n");
}

/* How calls are made and timed. */
static void print_timing(const struct bench *b, enum bench_timing timing)
{
    const struct bench_options *o = &b->options;

    fprintf(b->table, "# timing  %s", bench_timing_names[timing]);
    if (timing == BENCH_GRAPH)
        fprintf(b->table, ", %d calls captured, %d replays a turn",
                o->iters * o->aggregate, o->replays);
    if (o->rounds > 1)
        fprintf(b->table, ", median of %d turns", o->rounds);
    if (o->sets > 1)
        fprintf(b->table, ", %d sets of buffers in turn", o->sets);
    if (o->registration > 0)
        fprintf(b->table, ", %s", o->registration == 1 ? "registered" : "in windows");
    fprintf(b->table, "\n");
    if (b->teams && o->nvs_env > 0)
        for (int i = 0; i < o->nvs_env; i++)
            fprintf(b->table, "# vs      with %s\n", o->vs_env[i]);
}

static void print_driver(const struct bench *b, int nranks)
{
    const struct backend_facts *f = &b->place.facts;
    char text[64];

    if (f->devices == 0)
        return;
    fprintf(b->table, "# driver  %s, %s\n", f->driver_path, f->driver_text);
    for (int d = 0; d < f->devices && d < nranks && d < BACKEND_DEVICES_MAX; d++)
        fprintf(b->table, "# device  %d %s %s %s\n", d, f->device[d].name,
                f->device[d].target, f->device[d].identity);
    if (*backend_sharing(&b->place, nranks, text, sizeof(text)) != 0)
        fprintf(b->table, "# %s\n", text);
}

static void print_devices(const struct bench *b, int nranks)
{
    static const struct backend_device nowhere;
    char host[65] = "host", cpu[128];

    gethostname(host, sizeof(host) - 1);
    host_cpu_name(cpu, sizeof(cpu));
    for (int r = 0; r < nranks; r++) {
        const struct backend_device *d = backend_device_of(&b->place, r);
        int devices = b->place.facts.devices;
        const struct backend_device *at = d != NULL ? d : &nowhere;

        fprintf(b->table,
                "#  Rank %2d Group %2d Pid %6d on %10s device %2d [%04x:%02x:%02x] "
                "%s\n",
                r, 0, b->pids[r], host, devices > 0 ? r % devices : r, at->domain,
                at->bus, at->slot,
                d != NULL             ? d->name
                        : devices > 0 ? "GPU"
                                      : cpu);
    }
}

/* Titles of what stands behind the 13 fields: the same for either placement. */
static void print_more_titles(const struct bench *b, bool units)
{
    for (int half = 0; half < 2 && b->place.backend->mirrored; half++)
        fprintf(b->table, "  %7s  %7s  %7s", units ? "(us)" : "p10",
                units ? "(us)" : "p90", units ? "(us)" : "issue");
    for (int half = 0; half < 2 && b->options.vs != NULL; half++)
        fprintf(b->table, "  %8s  %6s  %6s", units ? "(us)" : "vs-time",
                units ? "(vs/1)" : "ratio", units ? "(%)" : "spread");
    fprintf(b->table, "\n");
}

static void print_columns(const struct bench *b)
{
    FILE *out = b->table;

    fprintf(out, "#\n# %10s  %12s  %8s  %6s  %6s  %30s  %32s\n", "", "", "", "", "",
            "out-of-place        ", "in-place         ");
    fprintf(out, "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s ",
            "size", "count", "type", "redop", "root", "time", "algbw", "busbw",
            "#wrong", "time", "algbw", "busbw", "#wrong");
    print_more_titles(b, false);
    fprintf(out, "# %10s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s  %7s  %6s  %6s  %6s ",
            "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)",
            "(GB/s)", "(GB/s)", "");
    print_more_titles(b, true);
}

void bench_print_head(const struct bench *b, const struct collective *c,
        enum bench_timing timing, int nranks)
{
    const struct bench_options *o = &b->options;
    uint64_t step = o->step_factor != 0 ? o->step_factor : o->step_bytes;

    fprintf(b->table, "# nccl-tests version motet-%s nccl-headers=%d nccl-library=%d\n",
            MOTET_VERSION, NCCL_VERSION_CODE, b->lib.version);
    fprintf(b->table, "# Collective test starting: %s_perf\n", c->name);
    fprintf(b->table,
            "# nThread %d nGpus %d minBytes %ld maxBytes %ld step: %ld(%s) "
            "warmup iters: %d iters: %d agg iters: %d validation: %d graph: %d "
            "unalign: %d\n",
            o->threads, o->per_thread, (long)o->min_bytes, (long)o->max_bytes,
            (long)step, o->step_factor != 0 ? "factor" : "bytes", o->warm_ups, o->iters,
            o->aggregate, o->checks, timing == BENCH_GRAPH ? o->replays : 0,
            o->unalign);
    fprintf(b->table, "#\n");
    print_libraries(b);
    print_driver(b, nranks);
    print_timing(b, timing);
    fprintf(b->table, "#\n# Using devices\n");
    print_devices(b, nranks);
    print_columns(b);
    fflush(b->table);
}

static void print_half(FILE *out, const struct bench_half *h)
{
    char time[32], alg[32], bus[32];

    if (!h->measured) {
        fprintf(out, "  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    fprintf(out, "  %7s  %6s  %6s", bench_number(h->time_us, 7, time, sizeof(time)),
            bench_number(h->alg_bw, 6, alg, sizeof(alg)),
            bench_number(h->bus_bw, 6, bus, sizeof(bus)));
    if (h->wrong < 0)
        fprintf(out, "  %6s", "N/A");
    else
        fprintf(out, "  %6g", (double)h->wrong);
}

static void print_more(FILE *out, const struct bench_half *h)
{
    char p10[32], p90[32], issue[32];

    if (h->measured)
        fprintf(out, "  %7s  %7s  %7s", bench_number(h->p10_us, 7, p10, sizeof(p10)),
                bench_number(h->p90_us, 7, p90, sizeof(p90)),
                bench_number(h->issue_us, 7, issue, sizeof(issue)));
    else
        fprintf(out, "  %7s  %7s  %7s", "N/A", "N/A", "N/A");
}

static void print_other(FILE *out, const struct bench_half *h)
{
    char time[32];

    if (h->measured)
        fprintf(out, "  %8s  %6.2f  %6.1f",
                bench_number(h->other_us, 8, time, sizeof(time)), h->ratio,
                100 * h->spread);
    else
        fprintf(out, "  %8s  %6s  %6s", "N/A", "N/A", "N/A");
}

void bench_print_row(const struct bench *b, const struct bench_row *row)
{
    FILE *out = b->table;

    fprintf(out, "%12li  %12li  %8s  %6s  %6i", (long)row->bytes, (long)row->count,
            motet_type_table[row->type].name, bench_redop_name(row), row->root);
    print_half(out, &row->half[0]);
    print_half(out, &row->half[1]);
    for (int i = 0; i < 2 && b->place.backend->mirrored; i++)
        print_more(out, &row->half[i]);
    if (b->options.vs != NULL) {
        print_other(out, &row->half[0]);
        print_other(out, &row->half[1]);
    }
    if (b->options.timestamps) {
        time_t now = time(NULL);
        struct tm parts;
        char text[32];

        localtime_r(&now, &parts);
        strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
        fprintf(out, "  %s", text);
    }
    fprintf(out, "\n");
    for (int i = 0; i < 2; i++)
        if (row->half[i].other_wrong > 0)
            fprintf(out, "# the library of --vs: %lld values wrong %s\n",
                    (long long)row->half[i].other_wrong,
                    i == 0 ? "out of place" : "in place");
    fflush(out);
}

void bench_print_plan(const struct bench *b, const struct bench_row *row,
        const struct work *work)
{
    char text[4096] = "";

    if (b->lib.explain == NULL)
        return;
    if (b->lib.explain(work->comms[0], row->collective->name, row->count,
                (ncclDataType_t)row->type, work->ops[0], text,
                sizeof(text)) != ncclSuccess) {
        fprintf(b->table, "# plan: the library does not tell\n");
        return;
    }
    for (char *line = text; *line != 0;) {
        size_t length = strcspn(line, "\n");

        fprintf(b->table, "# plan: %.*s\n", (int)length, line);
        line += length;
        line += *line == '\n';
    }
    fflush(b->table);
}

bool bench_print_foot(const struct bench *b, const struct collective *c)
{
    const struct bench_results *r = &b->results;
    double mean = r->bus_bw_count == 0 ? 0 : r->bus_bw_sum / (double)r->bus_bw_count;
    bool fast = r->min_bw <= 0 || mean >= 0.9 * r->min_bw;

    fprintf(b->table, "# %-20s : %llu %s\n", "Out of bounds values",
            (unsigned long long)r->wrong, r->wrong == 0 ? "OK" : "FAILED");
    fprintf(b->table, "# %-20s : %g %s\n", "Avg bus bandwidth", mean,
            r->min_bw <= 0 ? ""
                    : fast ? "OK"
                           : "FAILED");
    fprintf(b->table, "#\n# Collective test concluded: %s_perf\n#\n", c->name);
    fflush(b->table);
    return fast && r->wrong == 0;
}
