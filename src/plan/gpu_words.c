/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for GPUs in words: what forces one, and what explains one. */
#include "plan/gpu.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Our words and NCCL's: its LL128 and Simple are both served by chunks. */
static const struct {
    const char *word;
    motet_gpu_protocol protocol;
} words[] = {
    { "ll", MOTET_GPU_LL },
    { "staged", MOTET_GPU_STAGED },
    { "twoshot", MOTET_GPU_TWOSHOT },
    { "simple", MOTET_GPU_STAGED },
    { "ll128", MOTET_GPU_STAGED },
    { "ce", MOTET_GPU_COPIES },
    { "copies", MOTET_GPU_COPIES },
};

static motet_gpu_protocol protocol_of(const char *word, size_t length)
{
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strlen(words[i].word) == length &&
                strncasecmp(word, words[i].word, length) == 0)
            return words[i].protocol;
    return MOTET_GPU_NOTHING;
}

motet_result motet_gpu_force(const char *text, motet_gpu_constants *constants)
{
    motet_gpu_protocol protocol = protocol_of(text, strlen(text));

    if (text[0] != '\0' && protocol == MOTET_GPU_NOTHING)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "'%s' is no protocol, need LL, LL128 or Simple, staged, twoshot or ce",
                text);
    if (protocol != MOTET_GPU_NOTHING)
        constants->forced = (uint8_t)protocol;
    return MOTET_OK;
}

/* ---- MOTET_PLAN ---- */

/* A part of a text. */
typedef struct span {
    const char *text;
    size_t length;
} span;

/* Takes what stands before the first @p mark off @p rest; all of it if there is none. */
static span take(span *rest, char mark)
{
    const char *at = memchr(rest->text, mark, rest->length);
    span head = { rest->text, at != NULL ? (size_t)(at - rest->text) : rest->length };
    size_t gone = head.length + (at != NULL);

    *rest = (span){ rest->text + gone, rest->length - gone };
    return head;
}

/* Digits and K, M or G. False: something else, or more than 2^62. */
static bool read_number(span s, uint64_t *out)
{
    static const char units[] = "KMG";
    const uint64_t most = UINT64_C(1) << 62;
    uint64_t value = 0;
    size_t i = 0;

    for (; i < s.length && s.text[i] >= '0' && s.text[i] <= '9'; i++) {
        if (value > most / 10 - 1)
            return false;
        value = value * 10 + (uint64_t)(s.text[i] - '0');
    }
    if (i == 0 || s.length - i > 1)
        return false;
    if (i < s.length) {
        const char *unit = strchr(units, s.text[i] & ~0x20);
        int shift;

        if (unit == NULL || *unit == '\0')
            return false;
        shift = 10 * (int)(unit - units + 1);
        if (value > most >> shift)
            return false;
        value <<= shift;
    }
    *out = value;
    return true;
}

/* "FROM-TO", "FROM-" */
static motet_result read_range(span s, motet_gpu_rule *out)
{
    bool open = memchr(s.text, '-', s.length) != NULL;
    span to = s, from = take(&to, '-');

    out->to = UINT64_MAX;
    if (!open || !read_number(from, &out->from) ||
            (to.length != 0 && !read_number(to, &out->to)) || out->from >= out->to)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "'%.*s' is no range of bytes, need FROM-TO or FROM-, as in 64K-1M",
                (int)s.length, s.text);
    return MOTET_OK;
}

/* "PROTOCOL", "PROTOCOL/BLOCKS" */
static motet_result read_choice(span s, motet_gpu_rule *out)
{
    bool has_blocks = memchr(s.text, '/', s.length) != NULL;
    span blocks = s, word = take(&blocks, '/');
    motet_gpu_protocol protocol = protocol_of(word.text, word.length);
    bool pairwise = motet_kind_table[out->kind].pairwise;
    uint64_t count = 0;

    if (protocol == MOTET_GPU_NOTHING)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "'%.*s' is no protocol, need ll, staged, twoshot or ce",
                (int)word.length, word.text);
    if ((protocol == MOTET_GPU_TWOSHOT && out->kind != MOTET_ALL_REDUCE) ||
            (pairwise && protocol == MOTET_GPU_LL))
        return motet_fail(MOTET_ERR_ARGUMENT, "%s does not serve %s",
                motet_gpu_protocol_names[protocol], motet_kind_table[out->kind].name);
    if (has_blocks &&
            (!read_number(blocks, &count) || count == 0 || count > MOTET_GPU_BLOCKS))
        return motet_fail(MOTET_ERR_ARGUMENT,
                "'%.*s' is no number of blocks, need 1 to %d", (int)blocks.length,
                blocks.text, MOTET_GPU_BLOCKS);
    out->protocol = (uint8_t)protocol;
    out->blocks = (uint16_t)count;
    return MOTET_OK;
}

/* all_to_allv is planned by the bytes of each pair, as sends are. */
static motet_result read_kind(span s, uint8_t *out)
{
    for (int k = 0; k < MOTET_NUM_KINDS; k++) {
        const char *name = motet_kind_table[k].name;

        if (k != MOTET_RECV && k != MOTET_ALL_TO_ALL_V && strlen(name) == s.length &&
                strncmp(name, s.text, s.length) == 0) {
            *out = (uint8_t)k;
            return MOTET_OK;
        }
    }
    return motet_fail(MOTET_ERR_ARGUMENT,
            "'%.*s' is no kind of operation, need all_reduce … or send, which is for "
            "receives, too",
            (int)s.length, s.text);
}

/* "RANGE=CHOICE,…" */
static motet_result read_kind_rules(uint8_t kind, span s, motet_gpu_constants *c)
{
    while (s.length != 0) {
        motet_gpu_rule rule = { .kind = kind };
        span choice = take(&s, ','), range = take(&choice, '=');

        if (c->rules == MOTET_GPU_RULES)
            return motet_fail(MOTET_ERR_ARGUMENT, "more than %d rules",
                    MOTET_GPU_RULES);
        MOTET_TRY(read_range(range, &rule), "rule");
        MOTET_TRY(read_choice(choice, &rule), "rule");
        c->rule[c->rules++] = rule;
    }
    return MOTET_OK;
}

motet_result motet_gpu_plan_force(const char *text, motet_gpu_constants *constants)
{
    motet_gpu_constants changed = *constants;
    span all = { text, strlen(text) };

    while (all.length != 0) {
        span rules = take(&all, ';'), kind = take(&rules, ':');
        uint8_t number = 0;

        if (kind.length == 0 && rules.length == 0)
            continue;
        MOTET_TRY(read_kind(kind, &number), "read MOTET_PLAN");
        if (rules.length == 0)
            return motet_fail(MOTET_ERR_ARGUMENT,
                    "read MOTET_PLAN: nothing for %s, need %s:FROM-TO=PROTOCOL",
                    motet_kind_table[number].name, motet_kind_table[number].name);
        MOTET_TRY(read_kind_rules(number, rules, &changed), "read MOTET_PLAN");
    }
    *constants = changed;
    return MOTET_OK;
}

/* ---- explaining ---- */

static int why_text(motet_gpu_why why, uint64_t bytes, uint64_t threshold, char *buf,
        size_t size)
{
    switch (why) {
    case MOTET_GPU_WHY_RULE: return snprintf(buf, size, "a rule of MOTET_PLAN");
    case MOTET_GPU_WHY_FORCED: return snprintf(buf, size, "NCCL_PROTO");
    case MOTET_GPU_WHY_POLICY: return snprintf(buf, size, "CTA policy ZERO");
    case MOTET_GPU_WHY_AT_MOST:
        return snprintf(buf, size,
                "%" PRIu64 " bytes to other ranks are not above %" PRIu64, bytes,
                threshold);
    case MOTET_GPU_WHY_ABOVE:
        return snprintf(buf, size,
                "%" PRIu64 " bytes to other ranks are above %" PRIu64, bytes,
                threshold);
    case MOTET_GPU_WHY_AT_LEAST:
        return snprintf(buf, size,
                "%" PRIu64 " bytes to other ranks are not below %" PRIu64, bytes,
                threshold);
    case MOTET_GPU_WHY_NEVER:
        return snprintf(buf, size, "copies move messages only if asked to");
    case MOTET_GPU_WHY_RANKS:
        return snprintf(buf, size, "copies move messages of two ranks only");
    case MOTET_GPU_WHY_VETOED:
        return snprintf(buf, size, "copies did not pass their proof");
    case MOTET_GPU_WHY_CALLS:
        return snprintf(buf, size, "copies would take more calls than a queue holds");
    default: return snprintf(buf, size, "nothing goes to another rank");
    }
}

static int explain_pair(const motet_op *op, int nranks, const motet_gpu_constants *c,
        uint32_t limit, char *buf, size_t bytes)
{
    motet_gpu_pair_plan plan;
    char why[128];

    motet_gpu_pair_plan_make(motet_op_bytes(op), nranks, c, limit, &plan);
    (void)why_text(plan.why, motet_op_bytes(op), plan.threshold, why, sizeof(why));
    if (plan.copies)
        return snprintf(buf, bytes,
                "protocol: %s\nsteps: %" PRIu64 " of %" PRIu64 " bytes\nbecause: %s\n",
                motet_gpu_protocol_names[MOTET_GPU_COPIES], plan.steps, plan.step, why);
    return snprintf(buf, bytes,
            "protocol: %s\nblocks: %u\nchunk: %u bytes\nbecause: %s\n",
            motet_gpu_protocol_names[MOTET_GPU_PAIRS], plan.blocks, c->pair_chunk, why);
}

int motet_gpu_explain(const motet_op *op, int nranks,
        const motet_gpu_constants *constants, uint32_t limit,
        const motet_gpu_plan *plan, char *buf, size_t bytes)
{
    char why[128];

    if (plan == NULL)
        return explain_pair(op, nranks, constants, limit, buf, bytes);
    (void)why_text(plan->why, plan->bytes, plan->threshold, why, sizeof(why));
    if (plan->protocol == MOTET_GPU_COPIES)
        return snprintf(buf, bytes,
                "protocol: %s\nsteps: %u of %" PRIu64 " bytes\nbecause: %s\n",
                motet_gpu_protocol_names[plan->protocol], plan->steps * plan->phases,
                plan->step, why);
    return snprintf(buf, bytes,
            "protocol: %s\nblocks: %u\nchunk: %u bytes\nbecause: %s\n",
            motet_gpu_protocol_names[plan->protocol], plan->blocks,
            plan->protocol == MOTET_GPU_LL ? constants->ll_bytes : constants->chunk,
            why);
}
