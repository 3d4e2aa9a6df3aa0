/* SPDX-License-Identifier: Apache-2.0 */
/* What motet lib says: a sentence and a table, or JSON. */
#include "lib.h"

#include "json.h"
#include "text.h"

#include <stdio.h>
#include <string.h>

/* Missing names that the table shows; JSON has them all. */
#define SHOWN_MAX 8

bool lib_lacks(const struct lib_found *found)
{
    return found->chosen != NULL && found->chosen->missing.num > 0;
}

/* "RCCL for hipfire" */
static void print_subject(const struct lib_found *found)
{
    printf("%s", found->library->what);
    if (found->client != NULL)
        printf(" for %s", found->client->name);
}

/* "2.27.7" of what was loaded, else "-". */
static const char *version_of(const struct lib_facts *f, char *buf, size_t bytes)
{
    if (!f->was_loaded || !f->loaded.has_version)
        return "-";
    return motet_find_version(f->loaded.version, buf, bytes);
}

static void print_plain(const char *before, const char *text, const char *after)
{
    char copy[MOTET_FIND_SENTENCE_MAX];

    snprintf(copy, sizeof(copy), "%s", text);
    printf("%s%s%s", before, text_plain(copy), after);
}

/* What is wrong with a candidate, "" if nothing is. */
static const char *error_of(const motet_find_candidate *c, const struct lib_facts *f,
        char *buf, size_t bytes)
{
    const char *between = c->verdict == MOTET_FIND_NOT_TRIED ? "; " : ": ";

    switch (c->verdict) {
    case MOTET_FIND_TAKEN: return f->loaded.why[0] != 0 ? f->loaded.why : f->unread;
    case MOTET_FIND_ABSENT: return "no such file";
    case MOTET_FIND_NOT_LOADED:
    case MOTET_FIND_FATAL: return c->detail;
    default:
        snprintf(buf, bytes, "%s%s%s", motet_find_verdict_name(c->verdict),
                c->detail[0] != 0 ? between : "", c->detail);
        return buf;
    }
}

/* Of what the linker found by its name, the file. */
static const char *path_of(const struct lib_found *found, const motet_find_candidate *c)
{
    return c->verdict == MOTET_FIND_TAKEN ? found->report.path : c->path;
}

static void print_candidate(const struct lib_found *found, size_t at)
{
    const motet_find_candidate *c = &found->report.candidates[at];
    const struct lib_facts *f = &found->facts[at];
    char version[32], text[MOTET_FIND_DETAIL_MAX + 32];
    const char *error = error_of(c, f, text, sizeof(text));

    printf("%-18s %-8s %-18s ", motet_find_verdict_name(c->verdict),
            version_of(f, version, sizeof(version)), motet_find_origin_name(c->origin));
    print_plain("", path_of(found, c), "\n");
    if (f->real[0] != 0 && strcmp(f->real, path_of(found, c)) != 0)
        print_plain("    is ", f->real, "\n");
    if (c->verdict == MOTET_FIND_TAKEN ? error[0] != 0 : c->detail[0] != 0)
        print_plain("    ", error, "\n");
    for (size_t i = 0; i < f->poison.num; i++)
        printf("    %s\n", f->poison.name[i]);
    if (f->missing.num == 0)
        return;
    printf("    lacks");
    for (size_t i = 0; i < f->missing.num && i < SHOWN_MAX; i++)
        printf("%s %s", i > 0 ? "," : "", f->missing.name[i]);
    if (f->missing.num > SHOWN_MAX)
        printf(" and %zu more", f->missing.num - SHOWN_MAX);
    printf("\n");
}

static void print_mapped(const struct lib_found *found)
{
    if (found->mapped_why[0] != 0)
        printf("\n%s\n", found->mapped_why);
    else if (found->pid != 0)
        printf("\nprocess %d has mapped%s\n", (int)found->pid,
                found->mapped.num == 0 ? " none of these libraries" : ":");
    for (size_t i = 0; i < found->mapped.num; i++)
        printf("  %s\n", found->mapped.name[i]);
}

void lib_print_text(const struct lib_found *found)
{
    const motet_find_report *report = &found->report;
    char version[32];

    print_subject(found);
    print_plain(report->outcome == MOTET_FIND_FOUND ? ": " : ": none. ",
            report->sentence, "\n");
    if (found->chosen != NULL && found->chosen->loaded.has_version)
        printf("version %s (%d)%s\n",
                version_of(found->chosen, version, sizeof(version)),
                found->chosen->loaded.version,
                found->motet ? ", built from motet" : "");
    if (lib_lacks(found))
        printf("it lacks %zu name%s that %s takes\n", found->chosen->missing.num,
                found->chosen->missing.num == 1 ? "" : "s", found->client->name);
    if (report->num_candidates > 0)
        printf("\n%-18s %-8s %-18s %s\n", "answer", "version", "why", "file");
    for (size_t i = 0; i < report->num_candidates; i++)
        print_candidate(found, i);
    if (report->num_more > 0)
        printf("and %zu more\n", report->num_more);
    print_mapped(found);
}

static void json_names(struct json *j, const char *key, const struct lib_names *names)
{
    json_array(j, key);
    for (size_t i = 0; i < names->num; i++)
        json_string(j, NULL, names->name[i]);
    json_end(j);
}

static const char *or_null(const char *text)
{
    return text[0] != 0 ? text : NULL;
}

static void json_candidate(struct json *j, const struct lib_found *found, size_t at)
{
    const motet_find_candidate *c = &found->report.candidates[at];
    const struct lib_facts *f = &found->facts[at];
    char version[32], text[MOTET_FIND_DETAIL_MAX + 32];

    json_object(j, NULL);
    json_string(j, "path", path_of(found, c));
    json_string(j, "origin", motet_find_origin_name(c->origin));
    json_bool(j, "tried", f->tried);
    json_bool(j, "exists", f->exists);
    if (f->tried)
        json_bool(j, "loads",
                c->verdict == MOTET_FIND_TAKEN || (f->was_loaded && f->loaded.loads));
    else
        json_null(j, "loads");
    json_string(j, "error", or_null(error_of(c, f, text, sizeof(text))));
    if (f->was_loaded && f->loaded.has_version) {
        json_string(j, "version",
                motet_find_version(f->loaded.version, version, sizeof(version)));
        json_int(j, "version_code", f->loaded.version);
    } else {
        json_null(j, "version");
        json_null(j, "version_code");
    }
    json_names(j, "missing", &f->missing);
    json_string(j, "verdict", motet_find_verdict_name(c->verdict));
    json_string(j, "real_path", or_null(f->real));
    json_names(j, "needs", &f->needed);
    json_names(j, "poison", &f->poison);
    json_end(j);
}

bool lib_print_json(const struct lib_found *found)
{
    const motet_find_report *report = &found->report;
    struct json j;

    json_start(&j, stdout);
    json_object(&j, NULL);
    json_string(&j, "library", found->library->name);
    json_string(&j, "client", found->client != NULL ? found->client->name : NULL);
    json_string(&j, "root", or_null(report->root));
    json_array(&j, "ambiguous");
    for (size_t i = 0; i < report->num_ambiguous; i++)
        json_string(&j, NULL, report->ambiguous[i]);
    json_end(&j);
    json_array(&j, "candidates");
    for (size_t i = 0; i < report->num_candidates; i++)
        json_candidate(&j, found, i);
    json_end(&j);
    json_string(&j, "chosen", or_null(report->path));
    json_bool(&j, "motet", found->motet);
    json_string(&j, "sentence", report->sentence);
    if (found->pid != 0) {
        json_int(&j, "pid", found->pid);
        json_names(&j, "mapped", &found->mapped);
        json_string(&j, "mapped_error", or_null(found->mapped_why));
    }
    json_end(&j);
    return json_finish(&j);
}
