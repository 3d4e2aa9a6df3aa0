/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Matrices of devices against devices: nvidia-smi topo, rocm-smi --showtopo, amd-smi
 * topology, hy-smi, p2pBandwidthLatencyTest, rocm-bandwidth-test. All have a line that
 * names the columns and rows that begin with one of these names.
 */
#include "measure.h"

#include <ctype.h>
#include <string.h>

/* Words of a launcher or a log before a row. */
#define PREFIX_MAX 6
/* Lines between a title and its columns. */
#define TITLE_MAX 3

/* "GPU0", "DCU1", "HCU[3]", "0000:0c:00.0". */
static bool is_device(struct dr_span word)
{
    static const char *const kinds[] = { "GPU", "DCU", "HCU" };
    char bdf[DR_BDF_MAX];

    for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
        size_t at = 3, first;

        if (word.length < 4 || memcmp(word.at, kinds[i], 3) != 0)
            continue;
        at += word.at[at] == '[';
        first = at;
        while (at < word.length && isdigit((unsigned char)word.at[at]))
            at++;
        if (at > first && at + (at < word.length && word.at[at] == ']') == word.length)
            return true;
    }
    return word.length >= 7 && word.length < DR_BDF_MAX &&
            word.at[word.length - 2] == '.' && dr_span_bdf(word, bdf);
}

static bool is_number(struct dr_span word)
{
    uint64_t value;

    return dr_span_u64(word, &value);
}

static bool span_equal(struct dr_span a, struct dr_span b)
{
    return a.length == b.length && memcmp(a.at, b.at, a.length) == 0;
}

/* Names of the columns; positions that are no GPU ("NIC0") keep length 0. Their count, 0
 * if the line names none. */
static uint32_t columns(const char *text, struct dr_span names[DR_MATRIX_MAX],
        bool *cpu)
{
    uint32_t count = 0, devices = 0;
    bool numbered = false;
    struct dr_span word;
    size_t at = 0;

    *cpu = false;
    while (dr_word(text, &at, &word)) {
        if (count == 0 && !numbered &&
                (dr_span_is(word, "D\\D") || dr_span_is(word, "D/D") ||
                        dr_span_is(word, "GPU") || dr_span_is(word, "CPU"))) {
            numbered = true;
            *cpu = dr_span_is(word, "CPU");
            continue;
        }
        if (dr_span_is(word, "CPU") || dr_span_is(word, "NUMA"))
            break;
        if (count == DR_MATRIX_MAX || (numbered && !is_number(word)))
            return 0;
        if (!numbered && !is_device(word)) {
            if (count == 0)
                continue; /* a prefix */
            if (isdigit((unsigned char)word.at[0]) || word.at[word.length - 1] == ':')
                return 0;
            word.length = 0;
        }
        devices += word.length > 0;
        names[count++] = word;
    }
    return devices >= 2 ? count : 0;
}

static enum dr_matrix_kind kind_of_cell(struct dr_span cell)
{
    static const char *const links[] = { "XGMI", "PCIE", "PIX", "PXB", "PHB", "NODE",
        "SYS", "SOC", "PCI" };
    static const char *const grants[] = { "OK", "CNS", "GNS", "TNS", "NS", "DR", "U",
        "True", "False", "ENABLED", "DISABLED" };
    uint64_t count;

    if (dr_is_direct(cell, &count))
        return DR_MATRIX_LINKS;
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++)
        if (dr_span_is(cell, links[i]))
            return DR_MATRIX_LINKS;
    for (size_t i = 0; i < sizeof(grants) / sizeof(*grants); i++)
        if (dr_span_is(cell, grants[i]))
            return DR_MATRIX_GRANTS;
    return DR_MATRIX_OTHER;
}

static enum dr_matrix_kind kind_of_title(const char *title)
{
    static const struct {
        const char *word;
        enum dr_matrix_kind kind;
    } words[] = { { "NUMA BW", DR_MATRIX_OTHER }, { "weight", DR_MATRIX_WEIGHT },
        { "validation", DR_MATRIX_CHECK }, { "hops", DR_MATRIX_HOPS },
        { "latency", DR_MATRIX_LATENCY }, { "bandwidth", DR_MATRIX_RATE },
        { "connectivity", DR_MATRIX_GRANTS }, { "access", DR_MATRIX_GRANTS },
        { "link type", DR_MATRIX_LINKS } };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (dr_has_any_case(title, words[i].word))
            return words[i].kind;
    return DR_MATRIX_OTHER;
}

struct reading {
    struct doctor *d;
    uint32_t open;  /* index of the matrix that rows belong to, DR_NONE */
    uint32_t left;  /* its rows that have not come yet                  */
    uint32_t title; /* last line that is no part of a matrix, DR_NONE   */
};

static void begin(struct reading *r, uint32_t line, const struct dr_span *names,
        uint32_t count, bool cpu)
{
    struct doctor *d = r->d;
    struct dr_measure *m = d->measure;
    struct dr_matrix *x;
    const char *title = "";

    r->open = DR_NONE;
    if (m->num_matrices == DR_MATRICES_MAX)
        return;
    x = DR_PUSH(d, m->matrices, m->num_matrices, m->room_matrices);
    r->open = m->num_matrices - 1;
    if (r->title != DR_NONE && line - r->title <= TITLE_MAX)
        title = d->lines[r->title].text;
    x->machine = d->lines[line].machine;
    x->line_columns = line;
    x->kind = cpu ? DR_MATRIX_OTHER : kind_of_title(title);
    x->peer = dr_has(title, "P2P=Enabled")  ? DR_SWITCH_ON
            : dr_has(title, "P2P=Disabled") ? DR_SWITCH_OFF
                                            : DR_SWITCH_UNSAID;
    x->both_ways = dr_has_any_case(title, "bidirectional");
    x->size = count;
    x->names = dr_alloc(d, count * sizeof(*x->names));
    memcpy(x->names, names, count * sizeof(*x->names));
    x->cells = dr_alloc(d, count * sizeof(*x->cells));
    x->lines = dr_alloc(d, count * sizeof(*x->lines));
    r->left = 0;
    for (uint32_t i = 0; i < count; i++) {
        x->lines[i] = DR_NONE;
        r->left += names[i].length > 0;
    }
}

/* The row that begins with @p word, or DR_NONE. */
static uint32_t row_of(const struct dr_matrix *x, struct dr_span word)
{
    for (uint32_t i = 0; i < x->size; i++)
        if (x->names[i].length > 0 && span_equal(x->names[i], word))
            return i;
    return DR_NONE;
}

static bool read_row(struct reading *r, uint32_t line)
{
    struct doctor *d = r->d;
    const char *text = d->lines[line].text;
    struct dr_matrix *x = &d->measure->matrices[r->open];
    struct dr_span word, cells[DR_MATRIX_MAX];
    uint32_t row = DR_NONE, count = 0;
    size_t at = 0;

    for (int i = 0; i <= PREFIX_MAX && row == DR_NONE && dr_word(text, &at, &word); i++)
        row = row_of(x, word);
    if (row == DR_NONE)
        return false;
    while (count < x->size && dr_word(text, &at, &cells[count]))
        count++;
    if (count < x->size || x->cells[row] != NULL)
        return false;
    x->cells[row] = dr_alloc(d, count * sizeof(*cells));
    memcpy(x->cells[row], cells, count * sizeof(*cells));
    x->lines[row] = line;
    for (uint32_t i = 0; i < count; i++) {
        const enum dr_matrix_kind kind = kind_of_cell(cells[i]);

        if (i != row && x->names[i].length > 0 && kind != DR_MATRIX_OTHER &&
                (kind == DR_MATRIX_LINKS || x->kind == DR_MATRIX_OTHER))
            x->kind = kind;
    }
    dr_known(d, line);
    if (--r->left == 0)
        r->open = DR_NONE;
    return true;
}

void dr_read_matrices(struct doctor *d)
{
    struct reading r = { .d = d, .open = DR_NONE, .title = DR_NONE };

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const struct dr_line *l = &d->lines[i];
        struct dr_span names[DR_MATRIX_MAX];
        uint32_t count;
        bool cpu;

        if ((l->flags & DR_COMMAND) || (i > 0 && d->lines[i - 1].source != l->source)) {
            r.open = r.title = DR_NONE;
            if (l->flags & DR_COMMAND)
                continue;
        }
        if (l->length == 0)
            continue;
        count = (d->measure->signs[i] & DR_SIGN_DEVICE) != 0
                ? columns(l->text, names, &cpu)
                : 0;
        if (count > 0)
            begin(&r, i, names, count, cpu);
        else if (r.open == DR_NONE || !read_row(&r, i))
            r.title = i;
    }
}

bool dr_is_direct(struct dr_span cell, uint64_t *count)
{
    *count = 0;
    if (dr_span_is(cell, "XGMI"))
        return true;
    return cell.length > 2 && cell.at[0] == 'N' && cell.at[1] == 'V' &&
            dr_span_u64((struct dr_span){ cell.at + 2, cell.length - 2 }, count);
}

struct dr_span dr_cell(const struct dr_matrix *m, uint32_t row, uint32_t column)
{
    if (m->names[row].length == 0 || m->names[column].length == 0 ||
            m->cells[row] == NULL)
        return (struct dr_span){ "", 0 };
    return m->cells[row][column];
}

bool dr_is_complete(const struct dr_matrix *m)
{
    for (uint32_t i = 0; i < m->size; i++)
        if (m->names[i].length > 0 && m->cells[i] == NULL)
            return false;
    return true;
}
