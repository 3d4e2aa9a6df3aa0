/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tests of peer access between two devices: what the runtime grants, and whether the
 * owner of the memory saw what its peer wrote.
 */
#include "measure.h"

#include <ctype.h>
#include <string.h>

/* Lines between a grant and a check that belong to one test. */
#define TEST_LINES 60
/* Most tests that are kept. */
#define PAIRS_MAX 2048

static void add(struct doctor *d, enum dr_pair_what what, int from, int to,
        uint32_t line)
{
    struct dr_measure *m = d->measure;
    struct dr_pair_test *p;

    if (m->num_pairs == PAIRS_MAX)
        return;
    p = DR_PUSH(d, m->pairs, m->num_pairs, m->room_pairs);
    p->what = what;
    p->from = from;
    p->to = to;
    p->machine = d->lines[line].machine;
    p->line = line;
    dr_known(d, line);
}

static int small(struct dr_span span)
{
    uint64_t value;

    return dr_span_u64(span, &value) && value < 4096 ? (int)value : -1;
}

/* The pair that a line names: "[0->1]", "GPU0 -> GPU1", "0 -> 1", "device 0 to device 1". */
static bool names_pair(const char *text, int *from, int *to)
{
    static const char *const shapes[] = { "[%d->%d]", "[%d -> %d]", "GPU%d -> GPU%d",
        "GPU%d->GPU%d", "GPU%d) -> %*(GPU%d)", "GPU %d -> GPU %d",
        "device %d to device %d", "device %d -> device %d", "cuda:%d -> cuda:%d",
        "GPU %d to GPU %d", "GPU%d to GPU%d", "%<%d -> %d%>", "%<%d->%d%>" };
    struct dr_span found[DR_CAPTURES_MAX];

    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
        if (!dr_scan(text, shapes[i], found))
            continue;
        *from = small(found[0]);
        *to = small(found[strstr(shapes[i], "%*") != NULL ? 2 : 1]);
        return *from >= 0 && *to >= 0;
    }
    return false;
}

/* Yes or no behind a query; false if @p at holds neither. */
static bool answer(const char *at, bool *yes, const char **after)
{
    static const struct {
        const char *word;
        bool yes;
    } words[] = { { "1", true }, { "True", true }, { "true", true }, { "yes", true },
        { "0", false }, { "False", false }, { "false", false }, { "no", false } };

    at += strspn(at, " \t=:->),([");
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (dr_begins(at, words[i].word)) {
            *yes = words[i].yes;
            *after = at + strlen(words[i].word);
            return !isalnum((unsigned char)**after);
        }
    return false;
}

/* The two numbers between the brackets that begin at @p at; behind them, or NULL. */
static const char *two_numbers(const char *at, int pair[2])
{
    for (int i = 0; i < 2; i++) {
        size_t digits = 0;

        at += strcspn(at, "0123456789)");
        while (isdigit((unsigned char)at[digits]))
            digits++;
        pair[i] = small((struct dr_span){ at, digits });
        at += digits;
    }
    return pair[0] >= 0 && pair[1] >= 0 ? at : NULL;
}

/* "hipDeviceCanAccessPeer(0, 1) = 1", "can_device_access_peer(0, 1): True"; Python prints
 * the answers on the next line, in the order of the questions. */
static bool query(struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text, *later = NULL;
    const bool python = dr_has(text, "can_device_access_peer");
    const char *name = python ? "can_device_access_peer" : "CanAccessPeer";
    bool any = false;

    if (python && line + 1 < d->num_lines)
        later = d->lines[line + 1].text;
    for (const char *at = strstr(text, name); at != NULL; at = strstr(at, name)) {
        const char *after;
        int pair[2];
        bool yes;

        at += strlen(name);
        after = *at == '(' || *at == ':' ? two_numbers(at, pair) : NULL;
        if (after == NULL)
            continue;
        if (answer(after, &yes, &at))
            add(d, yes ? DR_PAIR_GRANTED : DR_PAIR_DENIED, pair[0], pair[1], line);
        else if (later != NULL && answer(later, &yes, &later))
            add(d, yes ? DR_PAIR_GRANTED : DR_PAIR_DENIED, pair[0], pair[1], line + 1);
        else
            continue;
        any = true;
    }
    return any;
}

static bool grant(struct doctor *d, uint32_t line)
{
    static const struct {
        const char *pattern;
        int from, to; /* captures */
        enum dr_pair_what what;
    } grants[] = {
        { "Device=%d CAN Access Peer Device=%d", 0, 1, DR_PAIR_GRANTED },
        { "Device=%d CANNOT Access Peer Device=%d", 0, 1, DR_PAIR_DENIED },
        { "Peer access from %*(GPU%d) -> %*(GPU%d) : Yes", 1, 3, DR_PAIR_GRANTED },
        { "Peer access from %*(GPU%d) -> %*(GPU%d) : No", 1, 3, DR_PAIR_DENIED },
        { "DeviceEnablePeerAccess ok", -1, -1, DR_PAIR_GRANTED },
        { "DeviceEnablePeerAccess: success", -1, -1, DR_PAIR_GRANTED },
    };
    const char *text = d->lines[line].text, *after;
    struct dr_span found[DR_CAPTURES_MAX];
    int pair[2];
    bool yes;

    if (query(d, line))
        return true;
    for (size_t i = 0; i < sizeof(grants) / sizeof(*grants); i++) {
        if (!dr_scan(text, grants[i].pattern, found))
            continue;
        add(d, grants[i].what, grants[i].from < 0 ? -1 : small(found[grants[i].from]),
                grants[i].to < 0 ? -1 : small(found[grants[i].to]), line);
        return true;
    }
    /* "peer access 0 -> 1: yes" */
    after = strcasestr(text, "peer access");
    if (after == NULL || !names_pair(after, &pair[0], &pair[1]))
        return false;
    after = two_numbers(after, pair);
    if (after == NULL || !answer(after, &yes, &after))
        return false;
    add(d, yes ? DR_PAIR_GRANTED : DR_PAIR_DENIED, pair[0], pair[1], line);
    return true;
}

/* ---- checks ---- */

/* "1048576 wrong": how many, or UINT64_MAX if the line gives no count. */
static uint64_t count_of_wrong(const char *text)
{
    static const char *const counts[] = { "%d wrong", "%d mismatch", "%d errors",
        "%d error%>", "%d bad", "%d of %d words differ", "%d differ", "%d incorrect",
        "mismatches: %d", "mismatches=%d", "errors: %d", "errors=%d", "wrong: %d",
        "wrong=%d", "bad: %d", "bad=%d", "failed, %d of", "%d of %d %*wrong",
        "%d of %d %*differ" };
    struct dr_span found[DR_CAPTURES_MAX];
    uint64_t value;

    for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++)
        if (dr_scan(text, counts[i], found) && dr_span_u64(found[0], &value))
            return value;
    return UINT64_MAX;
}

/* "expected deadbeef got 00000000". */
static bool differs(const char *text)
{
    static const char *const shapes[] = { "expected %w got %w", "expected %w, got %w",
        "want %w got %w", "want %w, got %w", "expected: %w got: %w",
        "expected=%w got=%w" };
    struct dr_span found[DR_CAPTURES_MAX];

    for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++)
        if (dr_scan(text, shapes[i], found))
            return found[0].length != found[1].length ||
                    memcmp(found[0].at, found[1].at, found[0].length) != 0;
    return false;
}

static bool fails(const char *text)
{
    static const char *const words[] = { "mismatch", "compare failed",
        "comparison failed", "verification failed", "verification error",
        "verify failed", "validation failed", "check failed", "data corrupt",
        "corrupted", "corrupt data", "wrong data", "data wrong", "reads zeros",
        "reads zeroes", "all zeros", "all zeroes", "got zeros", "all ones",
        "stale data", "old data", "not equal", "data is wrong", "data error" };
    const uint64_t count = count_of_wrong(text);

    if (count != UINT64_MAX)
        return count > 0;
    if (differs(text))
        return true;
    if (dr_has_any_case(text, "no mismatch") || dr_has_any_case(text, "not corrupt"))
        return false;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (dr_has_any_case(text, words[i]))
            return true;
    return false;
}

/* What the writer reads through its own window says nothing of the owner. */
static bool is_read_back(const char *text)
{
    return (dr_has_any_case(text, "read back") || dr_has_any_case(text, "read-back") ||
                   dr_has_any_case(text, "readback") ||
                   dr_has_any_case(text, "through the window") ||
                   dr_has_any_case(text, "by writer") ||
                   dr_has_any_case(text, "by the writer")) &&
            !dr_has_any_case(text, "owner");
}

/* Lines of a library's log and of the kernel speak of peers, too. */
static bool is_log(const char *text)
{
    return dr_has(text, " INFO ") || dr_has(text, " WARN ") ||
            dr_has(text, "collective") || dr_has(text, "Collective") ||
            dr_has(text, "Traceback") || dr_has(text, "kfd") || dr_has(text, "NVRM");
}

/* Zeros where a tensor was copied to another device: a line of Python's. */
static bool empty_tensor(const struct doctor *d, uint32_t line)
{
    const char *text = d->lines[line].text, *at = strstr(text, "tensor([");
    const char *device = strstr(text, "device='");
    bool copied = false;

    if (at == NULL || device == NULL || !dr_scan(device, "^device='%w:%d'", NULL))
        return false;
    for (at += 8; at < device; at++)
        if (isdigit((unsigned char)*at) && *at != '0')
            return false;
    for (uint32_t back = 1; back <= 4 && back <= line && !copied; back++)
        copied = dr_has(d->lines[line - back].text, ".to(") ||
                dr_has(d->lines[line - back].text, ".copy_(");
    return copied;
}

/* The verdict of a line about one pair. */
static bool says_bad(const char *text)
{
    static const char *const words[] = { "%<FAIL%>", "%<FAILED%>", "%<BAD%>",
        "%<WRONG%>", "%<CORRUPT%>" };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (dr_scan(text, words[i], NULL))
            return true;
    return false;
}

static void check(struct doctor *d, uint32_t line, bool in_test)
{
    const char *text = d->lines[line].text;
    int from = -1, to = -1;
    bool pair, of_peers;

    if (empty_tensor(d, line)) {
        add(d, DR_PAIR_BROKEN, -1, -1, line);
        return;
    }
    if (is_log(text))
        return;
    of_peers = in_test || dr_has_any_case(text, "peer window") ||
            dr_has_any_case(text, "owner") || dr_has_any_case(text, "p2p");
    if (!of_peers && !dr_has(text, "->") && !dr_has(text, " to "))
        return;
    if (is_read_back(text))
        return;
    pair = names_pair(text, &from, &to);
    if (pair ? fails(text) || says_bad(text) : of_peers && fails(text))
        add(d, DR_PAIR_BROKEN, from, to, line);
}

void dr_read_pairs(struct doctor *d)
{
    uint32_t last_test = DR_NONE;

    for (uint32_t i = 0; i < d->num_lines; i++) {
        const unsigned signs = d->measure->signs[i];
        const bool in_test = last_test != DR_NONE && i - last_test <= TEST_LINES &&
                d->lines[last_test].source == d->lines[i].source;

        if ((signs & DR_SIGN_PEER) != 0 && grant(d, i))
            last_test = i;
        else if ((d->lines[i].flags & DR_COMMAND) == 0 &&
                (signs & DR_SIGN_WRONG) != 0 &&
                (in_test || (signs & (DR_SIGN_PEER | DR_SIGN_PAIR)) != 0))
            check(d, i, in_test);
    }
}
