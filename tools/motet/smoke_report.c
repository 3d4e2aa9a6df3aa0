/* SPDX-License-Identifier: Apache-2.0 */
/* What smoke prints: see smoke.h. */
#include "smoke.h"

#include "cmd.h"
#include "json.h"
#include "term.h"
#include "text.h"

#include "find/find.h"

#include <stdio.h>

/* --------------------------------------------------------------------- text */

static void print_devices(const struct smoke *s)
{
    const struct backend_facts *f = &s->place.facts;
    char text[64];

    if (f->devices == 0)
        return;
    printf("driver:  %s, %s\n", f->driver_path, f->driver_text);
    for (int d = 0; d < f->devices && d < s->options.ranks && d < BACKEND_DEVICES_MAX;
            d++)
        printf("device:  %d %s %s %s\n", d, f->device[d].name, f->device[d].target,
                f->device[d].identity);
    if (*backend_sharing(&s->place, s->options.ranks, text, sizeof(text)) != 0)
        printf("         %s\n", text);
}

void smoke_print_head(const struct smoke *s, const struct smoke_part *p)
{
    char version[24];

    if (s->options.json)
        return;
    printf("motet smoke: ranks=%d (%s) iters=%d\n", s->options.ranks,
            smoke_ways[p->way].ranks, SMOKE_ITERATIONS);
    printf("library: %s%s\n", s->path, s->linked ? " (built in)" : "");
    printf("         version %s, sha256 %s\n",
            motet_find_version(s->version, version, sizeof(version)), s->sha256);
    print_devices(s);
    fflush(stdout);
}

void smoke_print_connected(const struct smoke *s, const struct smoke_part *p)
{
    if (s->options.json)
        return;
    if (p != s->part)
        printf("\nonce more: ranks=%d (%s)\n", s->options.ranks,
                smoke_ways[p->way].ranks);
    printf("%s(n=%d) OK in %.1f ms, version = %d\n\n", smoke_ways[p->way].call,
            s->options.ranks, p->init_ms, s->version);
    printf("%-14s%13s%13s%13s%12s\n", "size", "median µs", "p10 µs", "p90 µs",
            "BW GB/s");
    fflush(stdout);
}

static double gb_per_s(const struct smoke_timing *t)
{
    return t->median_us > 0 ? (double)t->bytes / t->median_us / 1e3 : 0;
}

void smoke_print_timing(const struct smoke *s, const struct smoke_timing *t)
{
    char size[24];

    if (s->options.json)
        return;
    term_progress_end();
    printf("%-14s%12.1f%12.1f%12.1f%12.2f",
            text_from_bytes(t->bytes, size, sizeof(size)), t->median_us, t->p10_us,
            t->p90_us, gb_per_s(t));
    if (t->wrong != 0)
        printf("   %llu values wrong", (unsigned long long)t->wrong);
    printf("\n");
    fflush(stdout);
}

static void print_value(const struct smoke_value *v)
{
    if (v->refused)
        printf("%10zu elements: not in this version", v->count);
    else if (v->wrong == 0)
        printf("%10zu elements ok", v->count);
    else
        printf("%10zu elements: %llu values wrong", v->count,
                (unsigned long long)v->wrong);
}

/* A line for each collective and type, its counts side by side. */
void smoke_print_values(const struct smoke *s, const struct smoke_part *p)
{
    if (s->options.json)
        return;
    term_progress_end();
    printf("\n");
    for (size_t i = 0; i < SMOKE_VALUES; i++) {
        const struct smoke_value *v = &p->value[i];

        if (i % 2 == 0)
            printf("values   %-12s%-10s", v->collective->name,
                    motet_type_table[v->type].name);
        print_value(v);
        printf("%s", i % 2 == 0 ? "," : "\n");
    }
    printf("\n");
    fflush(stdout);
}

void smoke_print_verdict(const struct smoke *s, const struct collective *c,
        const struct smoke_verdict *v)
{
    if (s->options.json)
        return;
    term_progress_end();
    printf("checked  %-16s ", c->name);
    if (v->cases == 0 && v->refused == 0)
        printf("needs 2, 4, 8 … ranks");
    else if (v->wrong == 0)
        printf("%4u cases  ok", v->cases);
    else
        printf("%4u cases  %llu values wrong", v->cases, (unsigned long long)v->wrong);
    if (v->refused != 0)
        printf(", %u types and operators are not in this library", v->refused);
    printf("\n");
    fflush(stdout);
}

void smoke_print_untried(const struct smoke *s, const struct smoke_part *p)
{
    if (!s->options.json)
        printf("\nnot tried: ranks=%d (%s), made by %s: %s\n", s->options.ranks,
                smoke_ways[p->way].ranks, smoke_ways[p->way].call, p->untried);
}

void smoke_print_cold(const struct smoke *s, const struct smoke_part *p)
{
    const struct smoke_cold *c = &p->cold;
    const char *call = smoke_ways[p->way].call;

    if (s->options.json)
        return;
    printf("\ncold     %s(n=%d) in fresh processes: %d of %d ok\n", call,
            s->options.ranks, c->good, c->tried);
    if (c->good > 0) {
        printf("         init median %.1f ms, max %.1f ms\n", c->init_ms[0],
                c->init_ms[1]);
        printf("         first all_reduce median %.2f ms, max %.2f ms\n", c->call_ms[0],
                c->call_ms[1]);
    }
    if (c->first_bad != 0)
        printf("         first failure: number %d: %s\n", c->first_bad, c->said);
    if (c->stopped != NULL)
        printf("         %d of %d were not tried: %s\n", s->options.cold - c->tried,
                s->options.cold, c->stopped);
}

/* --------------------------------------------------------------------- JSON */

static void json_place(struct json *j, const struct smoke *s)
{
    json_string(j, "device", s->place.backend->name);
    json_array(j, "devices");
    for (int d = 0; d < s->place.facts.devices && d < BACKEND_DEVICES_MAX; d++) {
        json_object(j, NULL);
        json_string(j, "name", s->place.facts.device[d].name);
        json_string(j, "identity", s->place.facts.device[d].identity);
        json_string(j, "target", s->place.facts.device[d].target);
        json_end(j);
    }
    json_end(j);
}

static void json_sizes(struct json *j, const struct smoke_part *p)
{
    json_array(j, "sizes");
    for (size_t i = 0; i < SMOKE_SIZES && p->timing[i].bytes != 0; i++) {
        const struct smoke_timing *t = &p->timing[i];

        json_object(j, NULL);
        json_uint(j, "bytes", t->bytes);
        json_double(j, "median_us", t->median_us);
        json_double(j, "p10_us", t->p10_us);
        json_double(j, "p90_us", t->p90_us);
        json_double(j, "gb_per_s", gb_per_s(t));
        json_uint(j, "wrong", t->wrong);
        json_end(j);
    }
    json_end(j);
}

static void json_checks(struct json *j, const struct smoke_part *p)
{
    json_array(j, "values");
    for (size_t i = 0; i < SMOKE_VALUES && p->value[i].collective != NULL; i++) {
        const struct smoke_value *v = &p->value[i];

        if (!v->done)
            continue;
        json_object(j, NULL);
        json_string(j, "collective", v->collective->name);
        json_string(j, "type", motet_type_table[v->type].name);
        json_uint(j, "elements", v->count);
        json_uint(j, "wrong", v->wrong);
        json_end(j);
    }
    json_end(j);
    json_array(j, "collectives");
    for (size_t i = 0; i < ncollectives; i++) {
        if (!p->verdict[i].done)
            continue;
        json_object(j, NULL);
        json_string(j, "name", collectives[i].name);
        json_uint(j, "cases", p->verdict[i].cases);
        json_uint(j, "wrong", p->verdict[i].wrong);
        json_uint(j, "refused", p->verdict[i].refused);
        json_end(j);
    }
    json_end(j);
}

static void json_cold(struct json *j, const struct smoke *s, const struct smoke_cold *c)
{
    static const char *const names[] = { "init_ms", "first_call_ms" };
    const double *const ms[] = { c->init_ms, c->call_ms };

    json_object(j, "cold");
    json_int(j, "asked", s->options.cold);
    json_int(j, "tried", c->tried);
    json_int(j, "ok", c->good);
    for (size_t i = 0; i < 2 && c->good > 0; i++) {
        json_object(j, names[i]);
        json_double(j, "median", ms[i][0]);
        json_double(j, "max", ms[i][1]);
        json_end(j);
    }
    if (c->first_bad != 0) {
        json_object(j, "first_failure");
        json_int(j, "number", c->first_bad);
        json_string(j, "message", c->said);
        json_end(j);
    }
    if (c->stopped != NULL)
        json_string(j, "stopped", c->stopped);
    json_end(j);
}

/* The members of one way's object. */
static void json_part(struct json *j, const struct smoke *s, const struct smoke_part *p)
{
    json_string(j, "ranks_are", smoke_ways[p->way].ranks);
    json_string(j, "made_by", smoke_ways[p->way].call);
    if (p->untried[0] != 0) {
        json_string(j, "not_tried", p->untried);
        return;
    }
    if (p->connected)
        json_double(j, "init_ms", p->init_ms);
    json_sizes(j, p);
    json_checks(j, p);
    if (p->cold.tried > 0 || p->cold.stopped != NULL)
        json_cold(j, s, &p->cold);
    if (p->said[0] != 0)
        json_string(j, "error", p->said);
}

static bool print_json(const struct smoke *s, int code)
{
    struct json j;

    json_start(&j, stdout);
    json_object(&j, NULL);
    if (s->named) {
        json_object(&j, "library");
        json_string(&j, "path", s->path);
        json_int(&j, "version", s->version);
        json_string(&j, "sha256", s->sha256);
        json_bool(&j, "built_in", s->linked);
        json_end(&j);
    }
    json_place(&j, s);
    json_int(&j, "ranks", s->options.ranks);
    json_int(&j, "iterations", SMOKE_ITERATIONS);
    json_part(&j, s, &s->part[0]);
    if (s->num_parts > 1) {
        json_object(&j, "once_more");
        json_part(&j, s, &s->part[1]);
        if (s->part[1].untried[0] == 0)
            json_bool(&j, "pass", s->part[1].code == EXIT_FINE);
        json_end(&j);
    }
    json_bool(&j, "pass", code == EXIT_FINE);
    json_end(&j);
    return json_finish(&j);
}

bool smoke_print_end(const struct smoke *s, int code)
{
    if (s->options.json)
        return print_json(s, code);
    printf("\n%s\n", code == EXIT_FINE ? "PASS" : "FAIL");
    return fflush(stdout) == 0;
}
