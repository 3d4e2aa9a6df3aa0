/* SPDX-License-Identifier: Apache-2.0 */
/* What the gate's launches came to, as text and as JSON. See probe_gate.h. */
#include "probe_gate.h"

#include <string.h>

static const char *const places[GATE_PLACES] = { "launch", "sync", "last error" };
/* The same in JSON. */
static const char *const keys[GATE_PLACES] = { "launch", "sync", "last_error" };

static const char *or_unknown(const char *text)
{
    return text[0] != 0 ? text : "unknown";
}

/* What was told at @p place. */
static const char *of_place(const struct gate_seen *seen, int place,
        const char *not_reached, const char *fine)
{
    switch (seen->code[place]) {
    case GATE_NOT_REACHED: return not_reached;
    case 0: return fine;
    default: return seen->error[place];
    }
}

static const char *of_marker(const struct gate_cell *cell)
{
    if (!cell->seen.read)
        return cell->rank.stage == PROBE_NOT_RUN ? "-" : "unread";
    return cell->seen.stored ? "stored" : "not stored";
}

/* "ok", "refused: sync", "failed: values". */
static void write_end(const struct gate_cell *cell, FILE *out)
{
    const enum probe_stage stage = cell->rank.stage;

    if (cell->rank.ok)
        fputs("ok", out);
    else if (stage == PROBE_NOT_RUN || stage == PROBE_HANG)
        fputs(probe_stage_name(stage), out);
    else
        fprintf(out, "%s: %s", gate_refused(&cell->seen) ? "refused" : "failed",
                probe_stage_name(stage));
}

static void write_row(const struct gate_test *test, const struct gate_cell *cell,
        FILE *out)
{
    fprintf(out, "  %-10s %-35s", test->name, test->what);
    for (int i = 0; i < GATE_PLACES; i++)
        fprintf(out, " %-20s", of_place(&cell->seen, i, "-", "ok"));
    fprintf(out, " %-10s ", of_marker(cell));
    write_end(cell, out);
    fputc('\n', out);
}

/* What is behind the table: whatever failed, once for each reason. */
static void write_reasons(const struct gate_card *card, FILE *out)
{
    const char *before = "";

    for (int t = 0; t < GATE_TESTS; t++) {
        const struct gate_cell *cell = &card->cells[t];

        if (cell->rank.ok || strcmp(cell->rank.message, before) == 0)
            continue;
        before = cell->rank.message;
        fprintf(out, "  %s: %s\n", gate_tests[t].name, before);
        if (cell->seen.said[0] != 0)
            fprintf(out, "  %*s  the runtime printed: %s\n",
                    (int)strlen(gate_tests[t].name), "", cell->seen.said);
    }
}

static void write_card(const struct gate_card *card, FILE *out)
{
    const struct probe_card *c = card->about;
    char means[512];

    fprintf(out, "\ndevice %d: %s, %s, %s", card->device, c->name,
            or_unknown(c->target), or_unknown(c->address));
    if (c->root_port[0] != 0)
        fprintf(out, ", root port %s", c->root_port);
    if (c->link[0] != 0)
        fprintf(out, ", %s", c->link);
    fprintf(out, ", AtomicOps to host memory: %s\n", gate_atomics(card));
    fprintf(out, "  %-10s %-35s %-20s %-20s %-20s %-10s\n", "", "", places[0],
            places[1], places[2], "marker");
    for (int t = 0; t < GATE_TESTS; t++)
        write_row(&gate_tests[t], &card->cells[t], out);
    write_reasons(card, out);
    fprintf(out, "  %s: %s\n", gate_verdict_name(card->verdict),
            gate_means(card, means, sizeof(means)));
}

void gate_print_text(const struct gate_report *report, FILE *out)
{
    const struct backend_facts *facts = &report->probe.place.facts;

    fputs("Two kernels that differ in one thing: the second declares a hostcall. Each "
          "launch\nis a process of its own; no collective library is loaded.\n",
            out);
    fprintf(out, "runtime: %s, %s\n", facts->driver_path, facts->driver_text);
    for (int d = 0; d < report->ncards; d++)
        write_card(&report->cards[d], out);
}

/* ---- JSON ---- */

static void json_cell(struct json *j, const struct gate_test *test,
        const struct gate_cell *cell)
{
    json_object(j, NULL);
    json_string(j, "test", test->name);
    json_string(j, "kernel", test->kernel);
    json_string(j, "what", test->what);
    json_bool(j, "ok", cell->rank.ok);
    json_string(j, "stage", probe_stage_name(cell->rank.stage));
    json_bool(j, "refused", gate_refused(&cell->seen));
    for (int i = 0; i < GATE_PLACES; i++)
        json_string(j, keys[i], of_place(&cell->seen, i, NULL, "hipSuccess"));
    if (cell->seen.read)
        json_bool(j, "stored", cell->seen.stored);
    else
        json_null(j, "stored");
    json_string(j, "message", cell->rank.message);
    json_string(j, "printed", cell->seen.said);
    probe_json_ms(j, "ms", cell->rank.ms);
    json_end(j);
}

static void json_card(struct json *j, const struct gate_card *card)
{
    char means[512];

    json_object(j, NULL);
    json_int(j, "device", card->device);
    json_string(j, "name", card->about->name);
    json_string(j, "target", card->about->target);
    json_string(j, "address", card->about->address);
    json_string(j, "root_port", card->about->root_port);
    json_string(j, "link", card->about->link);
    json_string(j, "atomics", gate_atomics(card));
    json_string(j, "image", card->image[0] != 0 ? card->image : NULL);
    json_string(j, "verdict", gate_verdict_name(card->verdict));
    json_string(j, "means", gate_means(card, means, sizeof(means)));
    json_array(j, "tests");
    for (int t = 0; t < GATE_TESTS; t++)
        json_cell(j, &gate_tests[t], &card->cells[t]);
    json_end(j);
    json_end(j);
}

bool gate_print_json(const struct gate_report *report, FILE *out)
{
    struct json j;

    json_start(&j, out);
    json_object(&j, NULL);
    json_object(&j, "runtime");
    json_string(&j, "path", report->probe.place.facts.driver_path);
    json_string(&j, "version", report->probe.place.facts.driver_text);
    json_end(&j);
    json_array(&j, "gate");
    for (int d = 0; d < report->ncards; d++)
        json_card(&j, &report->cards[d]);
    json_end(&j);
    return json_finish(&j);
}
