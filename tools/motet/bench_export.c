/* SPDX-License-Identifier: Apache-2.0 */
/* Results of motet bench for other programs: CSV, and JSON with nccl-tests' names. */
#include "bench.h"

#include "host.h"
#include "json.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

bool bench_write_csv(const struct bench *b)
{
    FILE *out = b->csv;

    fprintf(out,
            "collective,type,redop,root,size,count,placement,time_us,algbw_gbps,"
            "busbw_gbps,wrong,vs_time_us,ratio,spread,timing,p10_us,p90_us,issue_us\n");
    for (size_t i = 0; i < b->results.nrows; i++) {
        const struct bench_row *row = &b->results.rows[i];

        for (int k = 0; k < 2; k++) {
            const struct bench_half *h = &row->half[k];

            if (!h->measured)
                continue;
            fprintf(out, "%s,%s,%s,%d,%llu,%llu,%s,%.4f,%.5f,%.5f,",
                    row->collective->name, motet_type_table[row->type].name,
                    bench_redop_name(row), row->root, (unsigned long long)row->bytes,
                    (unsigned long long)row->count,
                    k == 0 ? "out_of_place" : "in_place", h->time_us, h->alg_bw,
                    h->bus_bw);
            if (h->wrong >= 0)
                fprintf(out, "%lld", (long long)h->wrong);
            if (b->options.vs != NULL)
                fprintf(out, ",%.4f,%.4f,%.4f", h->other_us, h->ratio, h->spread);
            else
                fprintf(out, ",,,");
            fprintf(out, ",%s,%.4f,%.4f,%.4f\n", bench_timing_names[row->timing],
                    h->p10_us, h->p90_us, h->issue_us);
        }
    }
    return fflush(out) == 0 && !ferror(out);
}

static void write_library(struct json *j, const char *key, const struct library *lib)
{
    json_object(j, key);
    json_string(j, "path", lib->path);
    json_int(j, "version", lib->version);
    json_string(j, "sha256", lib->sha256);
    json_bool(j, "built_in", lib->linked);
    json_end(j);
}

/* Only the variables that steer libraries: the rest is nobody's business. */
static void write_environment(struct json *j)
{
    static const char *const prefix[] = { "MOTET_", "NCCL_", "RCCL_", "CUDA_", "HIP_",
        "ROCR_", "HSA_",
        "GPU_MAX_HW_QUEUES=", "LD_PRELOAD=", "LD_LIBRARY_PATH=", "OMP_" };

    json_array(j, "env");
    for (char **e = environ; *e != NULL; e++)
        for (size_t i = 0; i < sizeof(prefix) / sizeof(*prefix); i++)
            if (strncmp(*e, prefix[i], strlen(prefix[i])) == 0)
                json_string(j, NULL, *e);
    json_end(j);
}

static void write_devices(const struct bench *b, struct json *j, int nranks)
{
    char host[65] = "host", cpu[128];

    gethostname(host, sizeof(host) - 1);
    host_cpu_name(cpu, sizeof(cpu));
    json_array(j, "devices");
    for (int r = 0; r < nranks; r++) {
        const struct backend_device *d = backend_device_of(&b->place, r);
        int devices = b->place.facts.devices;

        json_object(j, NULL);
        json_int(j, "rank", r);
        json_int(j, "group", 0);
        json_int(j, "pid", b->pids[r]);
        json_string(j, "hostname", host);
        json_int(j, "device", devices > 0 ? r % devices : r);
        json_string(j, "device_info", d != NULL ? d->name : devices > 0 ? "GPU" : cpu);
        if (d != NULL) {
            json_string(j, "device_identity", d->identity);
            json_string(j, "device_target", d->target);
        }
        json_end(j);
    }
    json_end(j);
}

static const char *buffers_from(const struct bench *b)
{
    if (!b->place.backend->mirrored)
        return b->options.use_malloc ? "malloc" : "ncclMemAlloc";
    return b->options.use_malloc || b->options.registration == 0
            ? b->place.backend->allocator
            : "ncclMemAlloc";
}

static void write_config(const struct bench *b, struct json *j, int nranks)
{
    const struct bench_options *o = &b->options;

    json_object(j, "config");
    json_int(j, "nprocesses", o->processes);
    json_int(j, "nthreads", o->threads);
    json_int(j, "ngpus", o->per_thread);
    json_uint(j, "minimum_bytes", o->min_bytes);
    json_uint(j, "maximum_bytes", o->max_bytes);
    if (o->step_factor != 0)
        json_uint(j, "step_factor", o->step_factor);
    else
        json_uint(j, "step_bytes", o->step_bytes);
    json_int(j, "warmup_iters", o->warm_ups);
    json_int(j, "iterations", o->iters);
    json_int(j, "aggregated_iterations", o->aggregate);
    json_int(j, "validation", o->checks);
    json_int(j, "graph",
            b->results.nrows > 0 && b->results.rows[0].timing == BENCH_GRAPH
                    ? o->replays
                    : 0);
    json_int(j, "buffer_sets", o->sets);
    json_int(j, "blocking_collectives", o->blocking);
    json_int(j, "rounds", o->rounds);
    json_int(j, "local_register", o->registration);
    json_string(j, "device", b->place.backend->name);
    json_string(j, "buffers", buffers_from(b));
    if (b->place.facts.devices > 0) {
        json_string(j, "driver", b->place.facts.driver_path);
        json_int(j, "driver_version", b->place.facts.driver_version);
    }
    write_devices(b, j, nranks);
    json_end(j);
}

static void write_half(const struct bench *b, struct json *j, const char *key,
        const struct bench_half *h)
{
    if (!h->measured) {
        json_null(j, key);
        return;
    }
    json_object(j, key);
    json_double(j, b->options.cpu_time ? "cpu_time" : "time", h->time_us);
    json_double(j, "p10", h->p10_us);
    json_double(j, "p90", h->p90_us);
    json_double(j, "issue_time", h->issue_us);
    json_double(j, "alg_bw", h->alg_bw);
    json_double(j, "bus_bw", h->bus_bw);
    if (h->wrong < 0)
        json_null(j, "nwrong");
    else
        json_int(j, "nwrong", h->wrong);
    if (b->options.vs != NULL) {
        json_double(j, "vs_time", h->other_us);
        json_double(j, "ratio", h->ratio);
        json_double(j, "spread", h->spread);
        json_int(j, "vs_nwrong", h->other_wrong);
    }
    json_end(j);
}

static void write_row(const struct bench *b, struct json *j,
        const struct bench_row *row)
{
    char root[16];

    snprintf(root, sizeof(root), "%d", row->root);
    json_object(j, NULL);
    json_string(j, "experiment_name", row->collective->name);
    json_uint(j, "size", row->bytes);
    json_uint(j, "count", row->count);
    json_string(j, "type", motet_type_table[row->type].name);
    json_string(j, "redop", bench_redop_name(row));
    json_string(j, "root", root);
    json_string(j, "timing", bench_timing_names[row->timing]);
    write_half(b, j, "out_of_place", &row->half[0]);
    write_half(b, j, "in_place", &row->half[1]);
    json_end(j);
}

/* Totals over everything measured, not only the last collective. */
static void write_totals(const struct bench *b, struct json *j)
{
    double sum = 0;
    size_t n = 0;
    int64_t wrong = 0;

    for (size_t i = 0; i < b->results.nrows; i++)
        for (int k = 0; k < 2; k++) {
            const struct bench_half *h = &b->results.rows[i].half[k];

            if (!h->measured)
                continue;
            sum += h->bus_bw;
            n++;
            wrong += (h->wrong > 0 ? h->wrong : 0) + h->other_wrong;
        }
    json_object(j, "out_of_bounds");
    json_int(j, "count", wrong);
    json_bool(j, "okay", wrong == 0);
    json_end(j);
    json_object(j, "average_bus_bandwidth");
    json_double(j, "bandwidth", n == 0 ? 0 : sum / (double)n);
    json_bool(j, "okay", !b->results.failed);
    json_end(j);
}

bool bench_write_json(const struct bench *b, int nranks)
{
    char now_text[32];
    time_t now = time(NULL);
    struct tm parts;
    struct json j;

    localtime_r(&now, &parts);
    strftime(now_text, sizeof(now_text), "%Y-%m-%d %H:%M:%S", &parts);
    json_start(&j, b->json);
    json_object(&j, NULL);
    json_int(&j, "version", 2);
    json_string(&j, "program", "motet bench " MOTET_VERSION);
    json_string(&j, "end_time", now_text);
    json_array(&j, "args");
    for (int i = 0; i < b->argc; i++)
        json_string(&j, NULL, b->argv[i]);
    json_end(&j);
    write_environment(&j);
    json_int(&j, "nccl_version", b->lib.version);
    write_library(&j, "library", &b->lib);
    if (b->options.vs != NULL)
        write_library(&j, "vs", &b->vs);
    json_array(&j, "vs_env");
    for (int i = 0; i < b->options.nvs_env; i++)
        json_string(&j, NULL, b->options.vs_env[i]);
    json_end(&j);
    write_config(b, &j, nranks);
    json_array(&j, "results");
    for (size_t i = 0; i < b->results.nrows; i++)
        write_row(b, &j, &b->results.rows[i]);
    json_end(&j);
    write_totals(b, &j);
    json_end(&j);
    return json_finish(&j);
}
