/* SPDX-License-Identifier: Apache-2.0 */
/* Do the ranks that joined fit together: see agree.h. */
#include "bootstrap/agree.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A member's value of the property that is compared: any bytes, cut at its limit. */
typedef struct value {
    const char *text; /* NULL: it has none */
    size_t len;
} value;

/* Append to a text; what does not fit is cut. */
static void MOTET_PRINTF(3, 4) append(char *buf, size_t bytes, const char *fmt, ...)
{
    size_t used = strlen(buf);
    va_list args;

    va_start(args, fmt);
    vsnprintf(buf + used, bytes - used, fmt, args);
    va_end(args);
}

void motet_rank_list(const bool *in, int n, char *buf, size_t bytes)
{
    int count = 0;
    const char *comma = "";

    for (int r = 0; r < n; r++)
        count += in[r] ? 1 : 0;
    snprintf(buf, bytes, count == 1 ? "rank " : "ranks ");
    for (int r = 0; r < n; r++) {
        int last = r;

        if (!in[r])
            continue;
        while (last + 1 < n && in[last + 1])
            last++;
        if (last < r + 2) /* two in a row read better as two */
            last = r;
        append(buf, bytes, last > r ? "%s%d-%d" : "%s%d", comma, r, last);
        comma = ", ";
        r = last;
    }
}

static bool same(value a, value b)
{
    if (a.text == NULL || b.text == NULL)
        return a.text == b.text;
    return a.len == b.len && memcmp(a.text, b.text, a.len) == 0;
}

/* Index of the lowest-ranked member among those whose flag in @p skip is false. */
static int lowest(const motet_member *members, int n, const bool *skip)
{
    int best = -1;

    for (int i = 0; i < n; i++)
        if (!skip[i] &&
                (best < 0 || members[i].hello->rank < members[best].hello->rank))
            best = i;
    return best;
}

/* The groups of a split: members that are right, and the odd group that is named. */
typedef struct split {
    int right, odd; /* lowest-ranked member of each; odd −1: all are equal */
} split;

static split find_split(const motet_member *members, const value *values, int n)
{
    bool skip[MOTET_MEMBERS_MAX] = { false };
    split found = { -1, -1 };
    int best = 0;

    /* groups come up in the order of their lowest rank, so a tie keeps the earlier */
    for (int at = lowest(members, n, skip); at >= 0; at = lowest(members, n, skip)) {
        int size = 0;

        for (int i = 0; i < n; i++)
            if (same(values[i], values[at])) {
                skip[i] = true;
                size++;
            }
        if (size > best) {
            best = size;
            found.right = at;
        }
    }
    for (int i = 0; i < n; i++)
        skip[i] = same(values[i], values[found.right]);
    found.odd = lowest(members, n, skip);
    return found;
}

static void list_group(const motet_member *members, const value *values, int n, int of,
        char *buf, size_t bytes)
{
    bool in[MOTET_MAX_RANKS] = { false };

    for (int i = 0; i < n; i++)
        if (same(values[i], values[of]))
            in[members[i].hello->rank] = true;
    motet_rank_list(in, MOTET_MAX_RANKS, buf, bytes);
}

/* Longest value shown in a sentence. */
#define SHOWN_MAX 200

/* How a sentence speaks of a property: "rank 2 runs motet 1, but ranks 0, 1 run …". */
typedef struct wording {
    const char *one, *many; /* the verb */
    const char *what;
} wording;

static const char *verb(const char *list, const wording *words)
{
    return strncmp(list, "ranks ", 6) == 0 ? words->many : words->one;
}

static int shown(value v)
{
    return (int)(v.len < SHOWN_MAX ? v.len : SHOWN_MAX);
}

/* True if the members differ, and then who does. */
static bool differ(const motet_member *members, const value *values, int n,
        const wording *words, char *sentence, size_t bytes)
{
    split found = find_split(members, values, n);
    char odd[160], right[160];

    if (found.odd < 0)
        return false;
    list_group(members, values, n, found.odd, odd, sizeof(odd));
    list_group(members, values, n, found.right, right, sizeof(right));
    value o = values[found.odd], r = values[found.right];
    snprintf(sentence, bytes, "%s %s %s %.*s, but %s %s %s %.*s: all ranks must agree",
            odd, verb(odd, words), words->what, shown(o), o.text, right,
            verb(right, words), words->what, shown(r), r.text);
    return true;
}

typedef char number[12];

static bool differ_in_number(const motet_member *members, const uint32_t *numbers,
        int n, const wording *words, char *sentence, size_t bytes)
{
    number text[MOTET_MEMBERS_MAX];
    value values[MOTET_MEMBERS_MAX];

    for (int i = 0; i < n; i++) {
        snprintf(text[i], sizeof(text[i]), "%u", (unsigned)numbers[i]);
        values[i] = (value){ text[i], strlen(text[i]) };
    }
    return differ(members, values, n, words, sentence, bytes);
}

static bool versions_differ(const motet_member *members, int n, char *sentence,
        size_t bytes)
{
    static const wording words = { "speaks", "speak", "wire version" };
    uint32_t numbers[MOTET_MEMBERS_MAX];

    for (int i = 0; i < n; i++)
        numbers[i] = members[i].version;
    return differ_in_number(members, numbers, n, &words, sentence, bytes);
}

static bool sizes_differ(const motet_member *members, int n, char *sentence,
        size_t bytes)
{
    static const wording words = { "was given", "were given", "nranks" };
    uint32_t numbers[MOTET_MEMBERS_MAX];

    for (int i = 0; i < n; i++)
        numbers[i] = members[i].hello->nranks;
    return differ_in_number(members, numbers, n, &words, sentence, bytes);
}

static bool libraries_differ(const motet_member *members, int n, char *sentence,
        size_t bytes)
{
    static const wording words = { "runs", "run", "motet" };
    value values[MOTET_MEMBERS_MAX];

    for (int i = 0; i < n; i++)
        values[i] =
                (value){ members[i].hello->version, strlen(members[i].hello->version) };
    return differ(members, values, n, &words, sentence, bytes);
}

static bool rank_twice(const motet_member *members, int n, char *sentence, size_t bytes)
{
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            if (members[i].hello->rank != members[k].hello->rank)
                continue;
            snprintf(sentence, bytes,
                    "rank %u joined twice: pid %u on %s and pid %u on %s",
                    (unsigned)members[i].hello->rank, (unsigned)members[k].pid,
                    members[k].hello->host, (unsigned)members[i].pid,
                    members[i].hello->host);
            return true;
        }
    return false;
}

/* The value of @p key in "key=value\n" lines. */
static value setting(const char *settings, const char *key, size_t key_len)
{
    for (const char *line = settings; *line != '\0';) {
        size_t len = strcspn(line, "\n");

        if (len > key_len && line[key_len] == '=' && memcmp(line, key, key_len) == 0)
            return (value){ line + key_len + 1, len - key_len - 1 };
        line += len;
        line += *line == '\n' ? 1 : 0;
    }
    return (value){ NULL, 0 };
}

static bool key_differs(const motet_member *members, int n, const char *key,
        size_t key_len, char *sentence, size_t bytes)
{
    static const char unset[] = "(unset)";
    value values[MOTET_MEMBERS_MAX];
    char what[96];
    wording words = { "has", "have", what };

    for (int i = 0; i < n; i++) {
        values[i] = setting(members[i].hello->settings, key, key_len);
        if (values[i].text == NULL)
            values[i] = (value){ unset, sizeof(unset) - 1 };
    }
    snprintf(what, sizeof(what), "'%.*s' =", key_len < 80 ? (int)key_len : 80, key);
    return differ(members, values, n, &words, sentence, bytes);
}

/* The first key, in the order of the lowest rank's lines, then of the others' own. */
static bool settings_differ(const motet_member *members, int n, char *sentence,
        size_t bytes)
{
    bool any = false;

    for (int i = 1; i < n; i++)
        any = any ||
                strcmp(members[i].hello->settings, members[0].hello->settings) != 0;
    if (!any)
        return false;
    bool done[MOTET_MEMBERS_MAX] = { false };

    for (int at = lowest(members, n, done); at >= 0; at = lowest(members, n, done)) {
        done[at] = true;
        for (const char *line = members[at].hello->settings; *line != '\0';) {
            size_t len = strcspn(line, "\n"), key_len = strcspn(line, "=\n");

            if (key_len < len &&
                    key_differs(members, n, line, key_len, sentence, bytes))
                return true;
            line += len;
            line += *line == '\n' ? 1 : 0;
        }
    }
    /* same keys and values, but other order, repetition, or lines without '=' */
    snprintf(sentence, bytes, "the ranks' settings differ in their order");
    return true;
}

static bool on_several_nodes(const motet_member *members, int n, char *sentence,
        size_t bytes)
{
    value values[MOTET_MEMBERS_MAX];
    bool done[MOTET_MEMBERS_MAX] = { false };
    int groups = 0;

    for (int i = 0; i < n; i++)
        values[i] = (value){ (const char *)&members[i].hello->node_hash,
            sizeof(members[i].hello->node_hash) };
    snprintf(sentence, bytes, "ranks are on several nodes (");
    for (int at = lowest(members, n, done); at >= 0; at = lowest(members, n, done)) {
        char group[120];

        for (int i = 0; i < n; i++)
            done[i] = done[i] || same(values[i], values[at]);
        if (groups++ >= 6) /* the sentence must stay readable and whole */
            continue;
        list_group(members, values, n, at, group, sizeof(group));
        append(sentence, bytes, "%s%s on %s", groups > 1 ? ", " : "", group,
                members[at].hello->node);
    }
    if (groups > 6)
        append(sentence, bytes, ", and %d more nodes", groups - 6);
    append(sentence, bytes,
            "), which this version of motet does not support yet: run all ranks on one "
            "node");
    return groups > 1;
}

/* One node, but somebody had to come over TCP: find out why no Unix socket did it. */
static bool unix_not_shared(const motet_member *members, int n,
        const motet_root_facts *root, char *sentence, size_t bytes)
{
    bool in[MOTET_MAX_RANKS] = { false };
    const motet_hello *first = NULL;
    char list[160];

    for (int i = 0; i < n; i++) {
        if (!members[i].tcp)
            continue;
        in[members[i].hello->rank] = true;
        if (first == NULL || members[i].hello->rank < first->rank)
            first = members[i].hello;
    }
    if (first == NULL)
        return false;
    motet_rank_list(in, MOTET_MAX_RANKS, list, sizeof(list));
    if (first->boot_hash != root->boot_hash)
        snprintf(sentence, bytes,
                "%s on %s reached the process that made the id (pid %u on %s) from "
                "another node, which this version of motet does not support yet: make "
                "the id on the ranks' node",
                list, first->host, (unsigned)root->pid, root->host);
    else if (first->uid != root->uid && first->uid != 0 && root->uid != 0)
        snprintf(sentence, bytes,
                "rank %u runs as user %u, and the process that made the id (pid %u on "
                "%s) as user %u: the ranks of one node must belong to one user",
                (unsigned)first->rank, (unsigned)first->uid, (unsigned)root->pid,
                root->host, (unsigned)root->uid);
    else
        snprintf(sentence, bytes,
                "%s and the process that made the id (pid %u on %s) are on the same "
                "node "
                "but share no Unix socket: they are in different network namespaces "
                "and "
                "see different /tmp or XDG_RUNTIME_DIR folders (containers); share one "
                "of the two",
                list, (unsigned)root->pid, root->host);
    return true;
}

bool motet_members_clash(const motet_member *a, const motet_member *b)
{
    return a->hello->rank == b->hello->rank || a->hello->nranks != b->hello->nranks ||
            a->version != b->version;
}

motet_result motet_members_agree(const motet_member *members, int n,
        const motet_root_facts *root, char *sentence, size_t bytes)
{
    if (versions_differ(members, n, sentence, bytes) ||
            sizes_differ(members, n, sentence, bytes) ||
            rank_twice(members, n, sentence, bytes) ||
            libraries_differ(members, n, sentence, bytes) ||
            settings_differ(members, n, sentence, bytes) ||
            on_several_nodes(members, n, sentence, bytes) ||
            unix_not_shared(members, n, root, sentence, bytes))
        return MOTET_ERR_USAGE;
    sentence[0] = '\0';
    return MOTET_OK;
}

void motet_limit_text(uint64_t ms, char *buf, size_t bytes)
{
    /* some milliseconds of it pass before anybody looks at the clock */
    if (ms >= 950)
        snprintf(buf, bytes, "%llu s", (unsigned long long)((ms + 500) / 1000));
    else
        snprintf(buf, bytes, "%llu ms", (unsigned long long)((ms + 5) / 10 * 10));
}

void motet_members_absent(const motet_member *members, int n, int nranks,
        uint64_t waited_ms, char *sentence, size_t bytes)
{
    bool absent[MOTET_MAX_RANKS];
    char list[400], limit[32];

    for (int r = 0; r < nranks; r++)
        absent[r] = true;
    for (int i = 0; i < n; i++)
        if (members[i].hello->rank < (uint32_t)nranks)
            absent[members[i].hello->rank] = false;
    motet_rank_list(absent, nranks, list, sizeof(list));
    motet_limit_text(waited_ms, limit, sizeof(limit));
    snprintf(sentence, bytes, "%s of %d did not join within %s", list, nranks, limit);
}
