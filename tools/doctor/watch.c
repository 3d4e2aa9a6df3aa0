/* SPDX-License-Identifier: Apache-2.0 */
/* Reads watchdogs, RAS, stacks and loops: what its parts share. */
#include "watch.h"

#include "facts.h"
#include "rules.h"

#include <string.h>

/* A list longer than this is cut. */
#define LIST_BYTES 200
/* Where the prefix of a line ends, at the latest. */
#define HEAD_BYTES 72

struct dr_claim *dr_claim(struct doctor *d, enum dr_code code, const char *subject)
{
    struct dr_watch *w = d->watch;
    struct dr_claim *claim = DR_PUSH(d, w->claims, w->num_claims, w->room_claims);

    claim->code = code;
    claim->subject = subject;
    claim->sentence = "";
    return claim;
}

void dr_claim_line(struct dr_claim *claim, uint32_t line)
{
    if (claim->num_lines < DR_CLAIM_LINES)
        claim->lines[claim->num_lines++] = line;
}

bool dr_line_rank(const char *text, uint64_t *rank)
{
    static const char *const patterns[] = { "[rank%d]", "[rank %d]", "[Rank %d]",
        "[RANK %d]", "[default%d]:", "[1,%d]<std", "%<rank %d:", "%<rank%d:",
        "%<Rank %d:", "%<Rank%d:", "%<RANK %d:", "%<rank=%d%>", "%<rank %d]",
        "%<rank %d ", "^%d: " };
    char head
            [HEAD_BYTES]; /* a prefix is at the beginning, whatever the line's length */
    struct dr_span number;

    (void)snprintf(head, sizeof(head), "%s", text);
    if (strpbrk(head, "0123456789") == NULL)
        return false;
    for (size_t i = 0; i < sizeof(patterns) / sizeof(*patterns); i++)
        if (dr_scan(head, patterns[i], &number))
            return dr_span_u64(number, rank);
    return false;
}

const char *dr_rank_list(struct doctor *d, const uint64_t *ranks, size_t count)
{
    char text[LIST_BYTES];
    size_t used = 0;

    for (size_t i = 0, last; i < count; i = last + 1) {
        int length;

        for (last = i; last + 1 < count && ranks[last + 1] == ranks[last] + 1;)
            last++;
        if (last == i + 1)
            last = i;
        length = snprintf(text + used, sizeof(text) - used, "%s%llu", i > 0 ? ", " : "",
                (unsigned long long)ranks[i]);
        if (last > i && length > 0 && used + (size_t)length < sizeof(text))
            length += snprintf(text + used + (size_t)length,
                    sizeof(text) - used - (size_t)length, "-%llu",
                    (unsigned long long)ranks[last]);
        used += length > 0 ? (size_t)length : 0;
        if (used + 48 > sizeof(text)) {
            (void)snprintf(text + used, sizeof(text) - used, ", …");
            break;
        }
    }
    return dr_printf(d, "%s %s", count == 1 ? "rank" : "ranks", text);
}

void dr_read_watch(struct doctor *d)
{
    d->watch = dr_alloc(d, sizeof(*d->watch));
    dr_read_watchdog(d);
    dr_read_ras(d);
    dr_read_status(d);
    dr_read_stacks(d);
    dr_read_loops(d);
    dr_read_graphs(d);
    dr_read_experts(d);
}
