/* SPDX-License-Identifier: Apache-2.0 */
/* The document of `motet probe --json`; documented in docs/probe.md. */
#include "probe_decide.h"

#include "json.h"

#include "find/find.h"

void probe_json_ms(struct json *j, const char *key, double ms)
{
    if (ms >= 0)
        json_double(j, key, ms);
    else
        json_null(j, key);
}

static void write_libraries(struct json *j, const struct probe_report *r)
{
    char version[24];

    json_array(j, "libraries");
    for (int i = 0; i < r->nlibraries; i++) {
        const struct probe_library *l = &r->libraries[i];

        json_object(j, NULL);
        json_string(j, "path", l->path);
        json_string(j, "version",
                l->version != 0
                        ? motet_find_version(l->version, version, sizeof(version))
                        : NULL);
        json_string(j, "sha256", l->sha256);
        json_bool(j, "built_in", l->given == NULL);
        json_string(j, "why", l->why);
        json_end(j);
    }
    json_end(j);
}

static void write_devices(struct json *j, const struct probe_report *r)
{
    json_array(j, "devices");
    for (int i = 0; i < r->ncards; i++) {
        const struct probe_card *card = &r->cards[i];

        json_object(j, NULL);
        json_int(j, "device", i);
        json_string(j, "kind", r->place.backend->name);
        json_string(j, "name", card->name);
        json_string(j, "identity", card->identity);
        json_string(j, "target", card->target);
        json_string(j, "address", card->address);
        json_string(j, "root_port", card->root_port);
        json_string(j, "link", card->link);
        json_string(j, "atomics", card->atomics);
        json_end(j);
    }
    json_end(j);
}

static void write_rows(struct json *j, const struct probe_report *r)
{
    json_array(j, "rows");
    for (size_t i = 0; i < r->nrows; i++) {
        const struct probe_row *row = &r->rows[i];

        json_object(j, NULL);
        json_string(j, "library", r->libraries[row->library].path);
        json_string(j, "operation", row->operation);
        json_array(j, "ranks");
        for (int k = 0; k < row->nranks; k++) {
            const struct probe_rank *cell = &row->ranks[k];

            json_object(j, NULL);
            json_int(j, "rank", cell->rank);
            if (cell->device >= 0)
                json_int(j, "device", cell->device);
            else
                json_null(j, "device");
            json_bool(j, "ok", cell->ok);
            json_string(j, "stage", probe_stage_name(cell->stage));
            json_string(j, "message", cell->message);
            probe_json_ms(j, "ms", cell->ms);
            json_end(j);
        }
        json_end(j);
        json_end(j);
    }
    json_end(j);
}

static void write_answer(struct json *j, const struct probe_answer *a)
{
    json_string(j, "answer", probe_word_name(a->word));
    json_string(j, "because", a->because);
    probe_json_ms(j, "ms_per_token_step", a->step_ms);
}

/* With any library is enough; "no" of one says more than "unknown" of another. */
static void write_decides(struct json *j, const struct probe_report *r)
{
    json_object(j, "decides");
    for (size_t i = 0; i < nprobe_uses && r->nlibraries > 0; i++) {
        struct probe_answer all[PROBE_LIBRARIES_MAX];
        int best = 0;

        for (int l = 0; l < r->nlibraries; l++) {
            probe_decide(r, &probe_uses[i], l, &all[l]);
            if (all[best].word != PROBE_YES &&
                    (all[l].word == PROBE_YES || all[best].word == PROBE_UNKNOWN))
                best = l;
        }
        json_object(j, probe_uses[i].key);
        write_answer(j, &all[best]);
        json_array(j, "libraries");
        for (int l = 0; l < r->nlibraries; l++) {
            json_object(j, NULL);
            json_string(j, "library", r->libraries[l].path);
            write_answer(j, &all[l]);
            json_end(j);
        }
        json_end(j);
        json_end(j);
    }
    json_end(j);
}

bool probe_print_json(const struct probe_report *r, FILE *out)
{
    struct json j;

    json_start(&j, out);
    json_object(&j, NULL);
    write_libraries(&j, r);
    write_devices(&j, r);
    write_rows(&j, r);
    write_decides(&j, r);
    json_end(&j);
    return json_finish(&j);
}
