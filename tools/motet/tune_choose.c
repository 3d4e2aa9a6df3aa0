/* SPDX-License-Identifier: Apache-2.0 */
/* From measured times to a MOTET_PLAN: see tune.h. */
#include "tune.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *const tune_protocols[TUNE_PROTOCOLS] = {
    [TUNE_LL] = "ll",
    [TUNE_STAGED] = "staged",
    [TUNE_TWOSHOT] = "twoshot",
    [TUNE_CE] = "ce",
};

enum {
    ALL = 1 << TUNE_LL | 1 << TUNE_STAGED | 1 << TUNE_TWOSHOT | 1 << TUNE_CE,
    MOST = ALL & ~(1 << TUNE_TWOSHOT)
};

static const struct {
    const char *bench, *plan;
    unsigned protocols;
    bool eager_only;
} rows[] = {
    { "all_reduce", "all_reduce", ALL, false },
    { "all_gather", "all_gather", MOST, false },
    { "reduce_scatter", "reduce_scatter", MOST, false },
    { "broadcast", "broadcast", MOST, false },
    { "reduce", "reduce", MOST, false },
    { "alltoall", "all_to_all", MOST, false },
    /* Copies of a message cannot be captured, and need two ranks. */
    { "sendrecv", "send", 1 << TUNE_CE, true },
};
#define ROWS (sizeof(rows) / sizeof(*rows))
_Static_assert(ROWS < TUNE_KINDS_MAX, "and one without a name");

void tune_begin(struct tune_kind out[TUNE_KINDS_MAX])
{
    memset(out, 0, TUNE_KINDS_MAX * sizeof(*out));
    for (size_t i = 0; i < ROWS; i++) {
        out[i].bench = rows[i].bench;
        out[i].plan = rows[i].plan;
        out[i].protocols = rows[i].protocols;
        out[i].eager_only = rows[i].eager_only;
    }
}

/* ---- reading ---- */

/* What of a line of the CSV matters. */
struct row {
    char collective[32], type[16], placement[16];
    uint64_t count;
    double time_us, vs_us, spread;
};

/* Field @p wanted of a line, from 0; its length, −1 if there are fewer. */
static int field(const char *line, int wanted, const char **at)
{
    for (int i = 0; i < wanted; i++) {
        line = strchr(line, ',');
        if (line == NULL)
            return -1;
        line++;
    }
    *at = line;
    return (int)strcspn(line, ",\n");
}

static bool text_field(const char *line, int wanted, char *buf, size_t bytes)
{
    const char *at;
    int length = field(line, wanted, &at);

    return length >= 0 && snprintf(buf, bytes, "%.*s", length, at) < (int)bytes;
}

static bool number_field(const char *line, int wanted, double *out)
{
    char text[32], *end;

    if (!text_field(line, wanted, text, sizeof(text)))
        return false;
    *out = strtod(text, &end);
    return end != text && *end == '\0';
}

/* collective,type,redop,root,size,count,placement,time_us,…,…,…,vs_time_us,ratio,spread,… */
static bool read_row(const char *line, struct row *out)
{
    double count;

    if (!text_field(line, 0, out->collective, sizeof(out->collective)) ||
            !text_field(line, 6, out->placement, sizeof(out->placement)) ||
            !number_field(line, 5, &count) || !number_field(line, 7, &out->time_us) ||
            !number_field(line, 11, &out->vs_us) ||
            !number_field(line, 13, &out->spread))
        return false;
    out->count = (uint64_t)count;
    return out->time_us > 0 && out->vs_us > 0;
}

static struct tune_cell *cell_for(struct tune_kind *kind, uint64_t bytes)
{
    for (size_t i = 0; i < kind->ncells; i++)
        if (kind->cells[i].bytes == bytes)
            return &kind->cells[i];
    if (kind->ncells == TUNE_SIZES_MAX)
        return NULL;
    kind->cells[kind->ncells] =
            (struct tune_cell){ .bytes = bytes, .choice = TUNE_OWN, .gain = 1 };
    return &kind->cells[kind->ncells++];
}

static bool take_row(const struct row *row, int protocol, struct tune_kind *kinds)
{
    for (struct tune_kind *k = kinds; k->bench != NULL; k++) {
        struct tune_cell *cell;

        if (strcmp(k->bench, row->collective) != 0 ||
                strcmp(row->placement, "out_of_place") != 0)
            continue;
        cell = cell_for(k, row->count * sizeof(float));
        if (cell == NULL)
            return false;
        cell->by[protocol] =
                (struct tune_pair){ true, row->time_us, row->vs_us, row->spread };
    }
    return true;
}

bool tune_read(FILE *csv, int protocol, struct tune_kind *kinds)
{
    char line[512];
    bool good = fgets(line, sizeof(line), csv) != NULL; /* the head */
    struct row row;

    while (good && fgets(line, sizeof(line), csv) != NULL)
        good = read_row(line, &row) && take_row(&row, protocol, kinds);
    return good && !ferror(csv);
}

/* ---- choosing ---- */

static void choose(struct tune_cell *cell)
{
    cell->choice = TUNE_OWN;
    cell->gain = 1;
    for (int p = 0; p < TUNE_PROTOCOLS; p++) {
        const struct tune_pair *pair = &cell->by[p];
        double gain = pair->measured ? pair->own_us / pair->forced_us : 0;
        double least = pair->spread > TUNE_LEAST_GAIN ? pair->spread : TUNE_LEAST_GAIN;

        if (gain > 1 + least && gain > cell->gain) {
            cell->choice = p;
            cell->gain = gain;
        }
    }
}

void tune_choose(struct tune_kind *kinds)
{
    for (struct tune_kind *k = kinds; k->bench != NULL; k++)
        for (size_t i = 0; i < k->ncells; i++)
            choose(&k->cells[i]);
}

/* ---- writing ---- */

/* The cells from @p first on that have its choice: where they end, and what they gain. */
static size_t run_of(const struct tune_kind *kind, size_t first, double *gain_out)
{
    size_t end = first;

    *gain_out = 0;
    for (; end < kind->ncells && kind->cells[end].choice == kind->cells[first].choice;
            end++)
        *gain_out += kind->cells[end].gain - 1;
    return end;
}

/* Leaves out the run that gains least, if there are more than the library takes. */
static bool drop_one(struct tune_kind *kinds)
{
    struct tune_kind *poorest = NULL;
    size_t first = 0, runs = 0;
    double least = 0, gain;

    for (struct tune_kind *k = kinds; k->bench != NULL; k++)
        for (size_t i = 0, end; i < k->ncells; i = end) {
            end = run_of(k, i, &gain);
            if (k->cells[i].choice == TUNE_OWN)
                continue;
            if (runs++ == 0 || gain < least) {
                poorest = k;
                first = i;
                least = gain;
            }
        }
    if (poorest == NULL || runs <= TUNE_RULES_MAX)
        return false;
    for (size_t end = run_of(poorest, first, &gain); first < end; first++) {
        poorest->cells[first].choice = TUNE_OWN;
        poorest->cells[first].gain = 1;
    }
    return true;
}

/* "64K", "1M", "12": as MOTET_PLAN reads it. */
static const char *words_of(uint64_t bytes, char *buf, size_t size)
{
    static const char units[] = "KMG";
    int unit = -1;

    while (unit < 2 && bytes >= 1024 && bytes % 1024 == 0) {
        bytes /= 1024;
        unit++;
    }
    snprintf(buf, size, "%" PRIu64 "%.*s", bytes, unit < 0 ? 0 : 1,
            unit < 0 ? "" : &units[unit]);
    return buf;
}

/* The first size measured stands for all below it, the last for all above. */
static void write_run(FILE *out, const struct tune_kind *kind, size_t first, size_t end)
{
    char from[24], to[24] = "";

    words_of(first == 0 ? 0 : kind->cells[first].bytes, from, sizeof(from));
    if (end < kind->ncells)
        words_of(kind->cells[end].bytes, to, sizeof(to));
    fprintf(out, "%s-%s=%s", from, to, tune_protocols[kind->cells[first].choice]);
}

void tune_plan(struct tune_kind *kinds, char *buf, size_t bytes)
{
    FILE *out;
    double gain;
    bool some = false;

    while (drop_one(kinds))
        ;
    buf[0] = '\0';
    out = fmemopen(buf, bytes, "w");
    if (out == NULL)
        return;
    for (struct tune_kind *k = kinds; k->bench != NULL; k++) {
        bool named = false;

        for (size_t i = 0, end; i < k->ncells; i = end) {
            end = run_of(k, i, &gain);
            if (k->cells[i].choice == TUNE_OWN)
                continue;
            if (named)
                fputc(',', out);
            else
                fprintf(out, "%s%s:", some ? ";" : "", k->plan);
            write_run(out, k, i, end);
            named = some = true;
        }
    }
    (void)fclose(out);
}
