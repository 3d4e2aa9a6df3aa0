/* SPDX-License-Identifier: Apache-2.0 */
/* What the gate's launches come to: pure, from what they saw. See probe_gate.h. */
#include "probe_gate.h"

#include <stdio.h>
#include <string.h>

/* ---- one launch ---- */

bool gate_reason(const char *line, char *buf, size_t bytes)
{
    static const char level[] = ":1:", time[] = " us: ";
    const char *text = strstr(line, level), *next;

    if (text == NULL)
        return false;
    text += sizeof(level) - 1;
    next = strchr(text, ':');
    if (next != NULL && strspn(next + 1, "0123456789") > 0)
        text = next + 1 + strspn(next + 1, "0123456789:");
    next = strstr(text, time);
    if (next != NULL)
        text = next + sizeof(time) - 1;
    next = strstr(text, "] ");
    if (next != NULL &&
            (strncmp(text, "[pid:", 5) == 0 || strstr(text, "[tid:") != NULL))
        text = next + 1;
    snprintf(buf, bytes, "%s", text + strspn(text, " "));
    return true;
}

bool gate_refused(const struct gate_seen *seen)
{
    for (int i = 0; i < GATE_PLACES; i++)
        if (seen->code[i] == 401) /* hipErrorIllegalState */
            return true;
    return false;
}

/* Lost without a word counts, too: the marker is what a refusal cannot fake. */
static bool not_run_by_runtime(const struct gate_cell *cell)
{
    return gate_refused(&cell->seen) ||
            (cell->seen.read && !cell->seen.stored && cell->rank.stage == PROBE_VALUES);
}

/* ---- one card ---- */

enum gate_verdict gate_judge(const struct gate_card *card)
{
    const struct gate_cell *cells = card->cells;
    bool all_ran = true, one_failed = false;

    for (int t = 0; t < GATE_TESTS; t++) {
        if (t == GATE_HOSTCALL || cells[t].rank.ok)
            continue;
        all_ran = false;
        one_failed |= cells[t].rank.stage != PROBE_NOT_RUN;
    }
    if (cells[GATE_PLAIN].rank.stage == PROBE_NOT_RUN ||
            cells[GATE_HOSTCALL].rank.stage == PROBE_NOT_RUN)
        return cells[GATE_PLAIN].rank.stage == PROBE_NOT_RUN ||
                        cells[GATE_PLAIN].rank.ok
                ? GATE_UNTRIED
                : GATE_BROKEN;
    if (!cells[GATE_PLAIN].rank.ok)
        return GATE_BROKEN;
    if (cells[GATE_HOSTCALL].rank.ok)
        return one_failed ? GATE_OTHER : GATE_RUNS;
    if (!not_run_by_runtime(&cells[GATE_HOSTCALL]))
        return GATE_OTHER;
    return all_ran ? GATE_REFUSES : GATE_UNSURE;
}

/* ---- in words ---- */

static const struct {
    const char *name, *means;
} verdicts[] = {
    [GATE_RUNS] = { "runs",
            "kernels that declare a hostcall run here: no collective "
            "fails for that reason" },
    [GATE_REFUSES] = { "refuses hostcall",
            "what declares a hostcall is refused, and nothing else: a library whose "
            "kernels declare one fails at its first collective, one whose kernels do "
            "not runs (motet hostcall FILE tells which)" },
    [GATE_UNSURE] = { "refuses more",
            "what declares a hostcall does not run, but not all of the rest was seen "
            "to run either: the reason may be another" },
    [GATE_BROKEN] = { "nothing runs",
            "not even the plain kernel runs: this is no matter of the hostcall "
            "(motet doctor)" },
    [GATE_OTHER] = { "other failure",
            "what failed was not refused for its hostcall: see above" },
    [GATE_UNTRIED] = { "not tried", "it could not be decided" },
};

const char *gate_verdict_name(enum gate_verdict verdict)
{
    return verdicts[verdict].name;
}

/* The runtime's own answer beside what it did. */
static const char *of_atomics(const struct gate_card *card)
{
    const int atomics = card->cells[GATE_HOSTCALL].seen.atomics;

    if (card->verdict == GATE_REFUSES && atomics == 0)
        return "; the runtime says that this card cannot send AtomicOps to host "
               "memory: motet doctor names the port";
    if (card->verdict == GATE_REFUSES && atomics == 1)
        return "; the runtime says that this card can send AtomicOps to host memory, "
               "so it has another reason";
    if (card->verdict == GATE_RUNS && atomics == 0)
        return ", although the runtime says that this card cannot send AtomicOps to "
               "host memory";
    return "";
}

const char *gate_means(const struct gate_card *card, char *buf, size_t bytes)
{
    snprintf(buf, bytes, "%s%s", verdicts[card->verdict].means, of_atomics(card));
    return buf;
}

/* What the runtime says of the card, which is what it goes by; else what PCI shows. */
const char *gate_atomics(const struct gate_card *card)
{
    for (int t = 0; t < GATE_TESTS; t++)
        if (card->cells[t].seen.atomics >= 0)
            return card->cells[t].seen.atomics != 0 ? "yes" : "no";
    return card->about->atomics[0] != 0 ? card->about->atomics : "unknown";
}
