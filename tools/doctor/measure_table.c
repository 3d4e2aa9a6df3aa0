/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables of nccl-tests, rccl-tests and what is built like them. Rows are found by their
 * shape (bytes, elements, type), so prefixes of launchers, other columns and lines of a
 * log between them do not matter.
 */
#include "measure.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Most words of a row that are looked at. */
#define WORDS_MAX 40
/* Most ranks of a table. */
#define GPUS_MAX 4096

/* ---- what a line says ---- */

static bool is_type(struct dr_span word)
{
    static const char *const types[] = { "float", "half", "double", "bfloat16",
        "bfloat", "int8", "uint8", "int32", "uint32", "int64", "uint64", "char", "int",
        "float16", "float32", "float64", "fp16", "fp32", "bf16", "f8e4m3", "f8e5m2",
        "fp8_e4m3", "fp8_e5m2", "fp8e4m3", "fp8e5m2", "fp8" };

    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (dr_span_is(word, types[i]))
            return true;
    return false;
}

/* Largest error that an old table may show; the tests' own limits. */
static double error_limit(struct dr_span type)
{
    return dr_span_is(type, "half") || dr_span_is(type, "bfloat16") ||
                    dr_span_is(type, "fp16")
            ? 1e-2
            : 1e-5;
}

/* A number of a row: NAN for "N/A", without the asterisk of a bad one. */
static bool row_number(struct dr_span word, double *out, bool *starred)
{
    char text[40], *end;

    *starred = word.length > 1 && word.at[word.length - 1] == '*';
    word.length -= *starred;
    if (dr_span_is(word, "N/A")) {
        *out = NAN;
        return true;
    }
    if (word.length == 0 || word.length >= sizeof(text) ||
            strspn(word.at, "0123456789+-.enaif") < word.length)
        return false;
    memcpy(text, word.at, word.length);
    text[word.length] = 0;
    *out = strtod(text, &end);
    return *end == 0;
}

/* "[1,0]<stdout>:1048576": a launcher's prefix may stick to the first number. */
static struct dr_span without_prefix(struct dr_span word)
{
    size_t from = word.length;

    while (from > 0 && isdigit((unsigned char)word.at[from - 1]))
        from--;
    if (from > 0 && from < word.length && strchr(":>]|", word.at[from - 1]) != NULL)
        return (struct dr_span){ word.at + from, word.length - from };
    return word;
}

/* Columns after the type: maybe the operator and the root, then time, algorithm and bus
 * bandwidth and, unless @p unchecked, a check, once or twice. */
static bool columns(const struct dr_span *words, size_t count, bool unchecked,
        struct dr_row *row)
{
    const size_t each = unchecked ? 3 : 4;
    double numbers[12], *at = numbers;
    bool stars[12];
    size_t n = 0, i = 0;

    if (count > 0 && isalpha((unsigned char)words[0].at[0]) &&
            !dr_span_is(words[0], "N/A") && !dr_span_is(words[0], "nan"))
        i = 1; /* "sum", "none" */
    while (i < count && n < 12 && row_number(words[i], &numbers[n], &stars[n]))
        n++, i++;
    if (n == each + 1 || n == 2 * each + 1) { /* the root */
        at++;
        n--;
    }
    if (n < each)
        return false;
    for (size_t side = 0; side < 2; side++, at += each) {
        const bool there = n == 2 * each || (side == 0 && n == each);

        row->time_us[side] = there ? at[0] : NAN;
        row->bus[side] = there ? at[2] : NAN;
        row->wrong[side] = there && !unchecked ? at[3] : NAN;
        if (there && !unchecked && stars[at + 3 - numbers] && at[3] > 0)
            row->wrong[side] = INFINITY;
    }
    return !isnan(row->bus[0]);
}

/* Two numbers and a type: a row has them, few other lines do. */
static bool may_be_row(const char *text)
{
    unsigned numbers = 0; /* words up to here that end in a digit */
    struct dr_span word;
    size_t at = 0;

    while (dr_word(text, &at, &word)) {
        if (numbers >= 2 && is_type(word))
            return true;
        numbers = isdigit((unsigned char)word.at[word.length - 1]) ? numbers + 1 : 0;
    }
    return false;
}

/* A row; *broken: it begins like one and does not go on. */
static bool read_row(const char *text, bool unchecked, struct dr_row *row, bool *old,
        bool *broken)
{
    struct dr_span words[WORDS_MAX];
    size_t count = 0, at = 0;

    *broken = false;
    if (!may_be_row(text))
        return false;
    while (count < WORDS_MAX && dr_word(text, &at, &words[count]))
        count++;
    for (size_t i = 0; i + 2 < count; i++) {
        const struct dr_span check = count >= 7 ? words[count - 1] : words[i];
        uint64_t elements;

        if (!is_type(words[i + 2]) || !dr_span_u64(words[i + 1], &elements) ||
                !dr_span_u64(without_prefix(words[i]), &row->bytes))
            continue;
        if (!columns(words + i + 3, count - i - 3, unchecked, row)) {
            *broken = true;
            return false;
        }
        *old = memchr(check.at, 'e', check.length) != NULL &&
                row->bus[1] == row->bus[1] &&
                (memchr(check.at, '-', check.length) != NULL ||
                        dr_span_is(check, "0e+00"));
        row->wrong_above = *old ? error_limit(words[i + 2]) : 0;
        *broken = isnan(row->bus[1]);
        return true;
    }
    return false;
}

/* ---- what was asked for ---- */

/* Variables of a session that bear on a table; they hold until they are changed. */
struct asked {
    enum dr_switch peer, gdr;
    uint32_t line_peer, line_gdr, line_port;
    const char *port;
    uint32_t via_peer, via_host, via_net, line_via;
    unsigned num_adapters;
};

static bool is_none(struct dr_span value)
{
    return dr_span_is(value, "0") || dr_span_is(value, "LOC") ||
            dr_span_is(value, "loc") || dr_span_is(value, "n");
}

/* The value of NAME in "NAME=value" or "NAME set by environment to value". */
static bool variable(const char *text, const char *name, struct dr_span *value)
{
    const char *at = strstr(text, name);
    size_t length = 0;

    if (at == NULL)
        return false;
    at += strlen(name);
    if (dr_begins(at, " set by environment to "))
        at += strlen(" set by environment to ");
    else if (*at == '=')
        at++;
    else
        return false;
    at += *at == '"' || *at == '\'';
    while (at[length] != 0 && strchr(" \t\"';,.)", at[length]) == NULL)
        length++;
    *value = (struct dr_span){ at, length };
    return length > 0;
}

/* Adapters that the library took: "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB". */
static unsigned adapters(const char *text)
{
    unsigned count = 0;

    for (const char *at = text; (at = strchr(at, '[')) != NULL; at++)
        count += dr_scan(at, "^[%d]%w:%d/", NULL);
    return count;
}

/* "# GDR off", "# with GPUDirect RDMA". */
static void remark(const char *text, uint32_t line, struct asked *asked)
{
    static const struct {
        const char *words;
        enum dr_switch gdr, peer;
    } remarks[] = {
        { "GDR off", DR_SWITCH_OFF, DR_SWITCH_UNSAID },
        { "GDR disabled", DR_SWITCH_OFF, DR_SWITCH_UNSAID },
        { "without GDR", DR_SWITCH_OFF, DR_SWITCH_UNSAID },
        { "no GDR", DR_SWITCH_OFF, DR_SWITCH_UNSAID },
        { "GDR on", DR_SWITCH_ON, DR_SWITCH_UNSAID },
        { "GDR enabled", DR_SWITCH_ON, DR_SWITCH_UNSAID },
        { "with GDR", DR_SWITCH_ON, DR_SWITCH_UNSAID },
        { "without GPUDirect", DR_SWITCH_OFF, DR_SWITCH_UNSAID },
        { "with GPUDirect", DR_SWITCH_ON, DR_SWITCH_UNSAID },
        { "P2P off", DR_SWITCH_UNSAID, DR_SWITCH_OFF },
        { "P2P disabled", DR_SWITCH_UNSAID, DR_SWITCH_OFF },
        { "without P2P", DR_SWITCH_UNSAID, DR_SWITCH_OFF },
        { "P2P on", DR_SWITCH_UNSAID, DR_SWITCH_ON },
        { "P2P enabled", DR_SWITCH_UNSAID, DR_SWITCH_ON },
        { "with P2P", DR_SWITCH_UNSAID, DR_SWITCH_ON },
    };

    for (size_t i = 0; i < sizeof(remarks) / sizeof(*remarks); i++) {
        if (!dr_has_any_case(text, remarks[i].words))
            continue;
        if (remarks[i].gdr != DR_SWITCH_UNSAID) {
            asked->gdr = remarks[i].gdr;
            asked->line_gdr = line;
        } else {
            asked->peer = remarks[i].peer;
            asked->line_peer = line;
        }
        return;
    }
}

static void ask(struct doctor *d, uint32_t line, struct asked *asked)
{
    static const struct {
        const char *name;
        bool peer;     /* it is about peer access, else about GPUDirect RDMA   */
        bool disables; /* anything but none switches it off                    */
    } names[] = {
        { "NCCL_P2P_DISABLE", true, true },
        { "NCCL_P2P_LEVEL", true, false },
        { "NCCL_NET_GDR_LEVEL", false, false },
        { "NCCL_IB_GDR_LEVEL", false, false },
        { "NCCL_NET_GDR_READ", false, false },
        { "NCCL_GDR_LEVEL", false, false },
    };
    const char *text = d->lines[line].text, *at = strstr(text, "NET/IB : Using [");
    struct dr_span value;

    if (at != NULL) { /* what was taken is better than what was asked for */
        at += strlen("NET/IB : Using [0]");
        asked->num_adapters = adapters(text);
        asked->port = dr_copy(d, at, strcspn(at, ":/ "));
        asked->line_port = line;
    }
    if (d->lines[line].flags & (DR_REMARK | DR_COMMAND))
        remark(text, line, asked);
    if (!dr_has(text, "NCCL_"))
        return;
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        enum dr_switch *to = names[i].peer ? &asked->peer : &asked->gdr;
        uint32_t *where = names[i].peer ? &asked->line_peer : &asked->line_gdr;

        if (!variable(text, names[i].name, &value))
            continue;
        *to = is_none(value) == names[i].disables ? DR_SWITCH_ON : DR_SWITCH_OFF;
        *where = line;
    }
    if (variable(text, "NCCL_IB_HCA", &value) && value.at[0] != '^') {
        value.at += value.at[0] == '=';
        value.length = strcspn(value.at, ":, \t\"'");
        asked->port = dr_copy(d, value.at, value.length);
        asked->line_port = line;
    } else if (variable(text, "NCCL_SOCKET_IFNAME", &value) && value.at[0] != '^' &&
            asked->port == NULL) {
        value.at += value.at[0] == '=';
        value.length = strcspn(value.at, ", \t\"'");
        asked->port = dr_copy(d, value.at, value.length);
        asked->line_port = line;
    }
}

/* Channels that the library's log announces: "0[0] -> 1[1] via SHM/direct/direct". */
static void see_channel(const char *text, uint32_t line, struct asked *asked)
{
    const char *at = strstr(text, "] via ");

    if (at == NULL)
        at = strstr(text, "] [send] via ");
    if (at == NULL)
        return;
    at = strstr(at, "via ") + 4;
    if (dr_begins(at, "P2P") || dr_begins(at, "direct"))
        asked->via_peer++;
    else if (dr_begins(at, "SHM"))
        asked->via_host++;
    else if (dr_begins(at, "NET"))
        asked->via_net++;
    asked->line_via = line;
}

/* ---- what a table tells ---- */

/* Largest bus bandwidth among the three largest sizes. */
static double plateau(const struct dr_table *t, uint32_t *line)
{
    uint64_t below = UINT64_MAX;
    double best = 0;

    for (int n = 0; n < 3; n++) {
        uint64_t largest = 0;

        for (uint32_t i = 0; i < t->num_rows; i++)
            if (t->rows[i].bytes < below && t->rows[i].bytes > largest)
                largest = t->rows[i].bytes;
        for (uint32_t i = 0; i < t->num_rows && largest > 0; i++)
            for (int side = 0; side < 2; side++)
                if (t->rows[i].bytes == largest && t->rows[i].bus[side] > best) {
                    best = t->rows[i].bus[side];
                    *line = t->rows[i].line;
                }
        below = largest;
    }
    return best;
}

/* Different machines among the ranks. */
static uint32_t hosts(const struct dr_table *t)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < t->num_gpus; i++) {
        bool seen = false;

        for (uint32_t k = 0; k < i && !seen; k++)
            seen = strcmp(t->gpus[k].host, t->gpus[i].host) == 0;
        count += !seen;
    }
    return count;
}

/* ---- reading ---- */

struct reading {
    struct doctor *d;
    struct dr_table *table; /* open, or NULL                                     */
    struct asked session;   /* by `export`                                       */
    struct asked asked;     /* since the last table                              */
    bool begun;             /* the open table has parameters, titles or rows     */
    const char *operation;  /* that was announced                                */
};

static struct dr_table *open_table(struct reading *r, uint32_t line)
{
    struct doctor *d = r->d;
    struct dr_measure *m = d->measure;
    struct dr_table *t;

    if (r->table != NULL)
        return r->table;
    t = DR_PUSH(d, m->tables, m->num_tables, m->room_tables);
    t->source = d->lines[line].source;
    t->machine = d->lines[line].machine;
    t->line_parameters = t->line_titles = t->line_bounds = t->line_average = DR_NONE;
    t->line_last = line;
    t->average = -1;
    t->operation = r->operation != NULL ? r->operation : "";
    r->table = t;
    return t;
}

static void close_table(struct reading *r)
{
    struct dr_table *t = r->table;

    if (t != NULL) {
        t->hosts = hosts(t);
        t->line_plateau = DR_NONE;
        t->plateau = plateau(t, &t->line_plateau);
        t->peer = r->asked.peer;
        t->gdr = r->asked.gdr;
        t->line_peer = r->asked.line_peer;
        t->line_gdr = r->asked.line_gdr;
        t->port = r->asked.port;
        t->line_port = r->asked.line_port;
        t->via_peer = r->asked.via_peer;
        t->via_host = r->asked.via_host;
        t->via_net = r->asked.via_net;
        t->line_via = r->asked.line_via;
        t->num_adapters = r->asked.num_adapters;
        if (t->num_rows == 0 && t->line_titles != DR_NONE)
            dr_trouble(r->d, t->line_titles);
    }
    r->table = NULL;
    r->asked = r->session;
}

/* "all_reduce" of "./build/all_reduce_perf_mpi -b 8". */
static const char *operation(struct doctor *d, const char *text)
{
    const char *end = strstr(text, "_perf"), *at = end;

    while (at != NULL && at > text && (isalpha((unsigned char)at[-1]) || at[-1] == '_'))
        at--;
    return at == NULL || at == end ? NULL : dr_copy(d, at, (size_t)(end - at));
}

static void read_gpu(struct reading *r, uint32_t line, const struct dr_span *found)
{
    struct doctor *d = r->d;
    struct dr_table *t = open_table(r, line);
    struct dr_table_gpu *g;
    struct dr_span bus = found[4];
    char address[24];
    uint64_t number;

    if (t->num_gpus == GPUS_MAX)
        return;
    g = DR_PUSH(d, t->gpus, t->num_gpus, t->room_gpus);
    g->line = line;
    g->ordinal =
            dr_span_u64(found[3], &number) && number < GPUS_MAX ? (uint32_t)number : 0;
    g->host = dr_copy(d, found[2].at, found[2].length);
    g->name = dr_copy(d, found[5].at, found[5].length);
    if (dr_span_bdf(bus, g->bdf) || bus.length >= 16)
        return;
    if (dr_span_hex(bus, &number) && number < 256)
        snprintf(address, sizeof(address), "%02x:00.0", (unsigned)number);
    else
        snprintf(address, sizeof(address), "%.*s.0", (int)bus.length, bus.at);
    (void)dr_span_bdf((struct dr_span){ address, strlen(address) }, g->bdf);
}

static void read_parameters(struct reading *r, uint32_t line,
        const struct dr_span *found)
{
    struct dr_table *t;

    if (r->table != NULL && r->begun)
        close_table(r);
    t = open_table(r, line);
    r->begun = true;
    t->line_parameters = line;
    (void)dr_span_u64(found[1], &t->gpus_of_each);
    (void)dr_span_u64(found[2], &t->min_bytes);
    (void)dr_span_u64(found[3], &t->max_bytes);
    (void)dr_span_u64(found[4], &t->step);
    t->by_factor = dr_begins(found[5].at, "factor");
}

static bool read_trailer(struct reading *r, uint32_t line)
{
    const char *text = r->d->lines[line].text;
    struct dr_span found[DR_CAPTURES_MAX];
    struct dr_table *t;

    if (dr_scan(text, "Out of bounds values : %d %w", found)) {
        t = open_table(r, line);
        r->begun = true;
        t->line_bounds = t->line_last = line;
        t->failed = dr_begins(found[1].at, "FAILED");
        return true;
    }
    if (dr_scan(text, "Avg bus bandwidth : %f", found)) {
        t = open_table(r, line);
        t->average = dr_span_double(found[0]);
        t->line_average = t->line_last = line;
        close_table(r);
        return true;
    }
    return false;
}

static bool is_titles(const char *text)
{
    return dr_has(text, "algbw") && dr_has(text, "busbw") && dr_has(text, "time") &&
            (dr_has(text, "size") || dr_has(text, "bytes"));
}

static void read_rows(struct reading *r, uint32_t line)
{
    const struct dr_line *l = &r->d->lines[line];
    struct dr_row row = { .line = line };
    bool old = false, broken = false;
    struct dr_table *t;

    if ((r->d->measure->signs[line] & DR_SIGN_TABLE) != 0 && is_titles(l->text)) {
        if (r->table != NULL &&
                (r->table->num_rows > 0 || r->table->line_titles != DR_NONE))
            close_table(r);
        t = open_table(r, line);
        t->line_titles = t->line_last = line;
        t->unchecked = !dr_has(l->text, "wrong") && !dr_has(l->text, "error") &&
                !dr_has(l->text, "res");
        r->begun = true;
        return;
    }
    if (read_row(l->text, r->table != NULL && r->table->unchecked, &row, &old,
                &broken)) {
        t = open_table(r, line);
        r->begun = true;
        *DR_PUSH(r->d, t->rows, t->num_rows, t->room_rows) = row;
        t->old = t->old || old;
        t->line_last = line;
        dr_known(r->d, line);
    }
    if (broken && r->table != NULL)
        r->table->broken = true;
}

static void read_line(struct reading *r, uint32_t line)
{
    struct doctor *d = r->d;
    const struct dr_line *l = &d->lines[line];
    struct dr_span found[DR_CAPTURES_MAX];
    const char *name = NULL;

    if (l->flags & DR_COMMAND) {
        const bool lasts = dr_has(l->text, "export ");

        close_table(r);
        if (dr_has(l->text, "unset ") && dr_has(l->text, "NCCL_"))
            r->session = r->asked = (struct asked){ .port = NULL };
        ask(d, line, lasts ? &r->session : &r->asked);
        if (lasts)
            r->asked = r->session;
        r->operation = operation(d, l->text);
        return;
    }
    if ((d->measure->signs[line] & DR_SIGN_TABLE) == 0) {
        read_rows(r, line);
        return;
    }
    if (dr_scan(l->text, "Test %w failure", NULL) || dr_has(l->text, ": Test failure"))
        dr_trouble(d, line);
    ask(d, line, &r->asked);
    see_channel(l->text, line, &r->asked);
    if (dr_has(l->text, "Collective test starting"))
        name = operation(d, l->text);
    if (name != NULL) {
        if (r->table != NULL && r->begun)
            close_table(r);
        r->operation = name;
    } else if (dr_scan(l->text,
                       "nThread %d nGpus %d minBytes %d maxBytes %d step: %d(%w",
                       found)) {
        read_parameters(r, line, found);
    } else if (dr_scan(l->text, "Rank %d %*on %w device %d [%*] %*", found)) {
        read_gpu(r, line, found);
    } else if (dr_scan(l->text, "Reducing maxBytes to %d", found)) {
        (void)dr_span_u64(found[0], &open_table(r, line)->max_bytes);
    } else if (!read_trailer(r, line)) {
        read_rows(r, line);
    }
}

void dr_read_tables(struct doctor *d)
{
    struct reading r = { .d = d };

    for (uint32_t i = 0; i < d->num_lines; i++) {
        if (i > 0 && d->lines[i].source != d->lines[i - 1].source) {
            close_table(&r);
            r = (struct reading){ .d = d };
        }
        read_line(&r, i);
        if (r.table == NULL)
            r.begun = false;
    }
    close_table(&r);
}

/* ---- asked by the rules ---- */

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double dr_table_floor(struct doctor *d, const struct dr_table *t)
{
    double *times = dr_alloc(d, (2 * (size_t)t->num_rows + 1) * sizeof(*times));
    uint32_t count = 0, sizes = 0;

    for (uint32_t i = 0; i < t->num_rows; i++) {
        const struct dr_row *row = &t->rows[i];

        if (row->bytes == 0 || row->bytes > 16384)
            continue;
        sizes++;
        for (int side = 0; side < 2; side++)
            if (row->time_us[side] > 0)
                times[count++] = row->time_us[side];
    }
    if (sizes < 3 || count == 0)
        return 0;
    qsort(times, count, sizeof(*times), compare);
    return count % 2 == 1 ? times[count / 2]
                          : (times[count / 2 - 1] + times[count / 2]) / 2;
}

uint32_t dr_table_ranks(const struct dr_table *t)
{
    return t->num_gpus > 0                                  ? t->num_gpus
            : t->gpus_of_each > 1 && t->gpus_of_each < 4096 ? (uint32_t)t->gpus_of_each
                                                            : 0;
}
