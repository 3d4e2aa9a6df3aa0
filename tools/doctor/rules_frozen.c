/* SPDX-License-Identifier: Apache-2.0 */
/* A host that froze while GPUs wrote into each other, as people tell it. */
#include "platform.h"
#include "rules.h"

#include <ctype.h>
#include <string.h>

struct words {
    const char *const *list;
    size_t count;
};

#define WORDS(list) ((struct words){ list, sizeof(list) / sizeof(*(list)) })

/* ---- words ---- */

/* All in lower case, and a blank for '-' and '_' inside a word: texts are compared so.
 *
 * The machine, not a process: each of these alone says so. */
static const char *const dead[] = { "no ping", "no icmp", "power cycl", "powercycl",
    "power switch", "power button", "hard reset", "hard reboot", "reset button",
    "reset switch", "press reset", "pressed reset", "press the reset", "hit reset",
    "hit the reset", "pull the plug", "pulled the plug", "pulling the plug",
    "pull the power", "pulled the power", "cold boot", "forced power", "force power",
    "hard lock", "hardlock", "hard freeze", "reisub", "magic sysrq", "ping lost",
    "ping gone", "host reset", "machine reset", "system reset", "box reset",
    "ipmi reset", "bmc reset", "lost ping", "ping dead", "not answer ping",
    "answering ping", "answers no ping", "no answer to ping", "no reaction to ping",
    "respond to ping", "responding to ping", "stopped pinging", "no longer pings",
    "chassis power", "reboots by itself", "rebooted by itself", "rebooted itself",
    "reboots itself", "resets itself", "reset itself", "spontaneous reboot",
    "spontaneously reboot", "instant reboot", "kernel panic", "screen froze",
    "screen frozen", "froze solid", "frozen solid", " - crash " };

/* A machine, and near it what happened to it. */
static const char *const machines[] = { "host", "machine", "box", "node", "system",
    "computer", "pc", "workstation", "rig", "desktop", "tower", "whole server",
    "entire server", "complete server", "physical server" };
static const char *const fates[] = { "froze", "freez", "locked up", "locks up",
    "lock up", "lockup", "locked hard", "locked solid", "locks hard", "unresponsive",
    "stopped respond", "stops respond", "not respond", "not reachable", "unreachable",
    "went down", "goes down", "go down", "gone down", "down hard", "brought down",
    "brings down", "takes down", "took down", "dead", "died", "dies", "dying", "hung",
    "hangs hard", "hard hang", "crashed", "crashes", "crash", "panicked", "went dark",
    "reboots", "went away", "was gone", "is gone", "kills", "rebooted on its own",
    "reboots on its own" };

/* "host process" is no machine. */
static const char *const parts[] = { " process", " thread", " code", " memory", " side",
    " buffer", " staging", " path", " name", " controller", " ram", " port", " bridge",
    " call", " function", " program" };

/* Farther apart they are of two thoughts. */
#define BEFORE_FATE 24
#define AFTER_FATE  16

static const char *const unharmed[] = { "not the whole", "not the entire",
    "not the machine", "not the host", "never", "no longer", "no more", "any more",
    "anymore", "did not", "does not crash", "does not freeze", "does not lock",
    "doesn't crash", "doesn't freeze", "doesn't lock", "didn't", "without crash",
    "without freez", "without lock", "no freez", "no crash", "no lock", "no hard",
    "no reset", "no hang", "host unreachable", "deadlock", "dead lock" };

static const char *const peers[] = { "p2p", "custom all reduce", "custom allreduce",
    "custom ar", "one shot all", "two shot all", "peer write", "peer access",
    "peer copy", "peer copies", "gpu to gpu copy", "gpu to gpu copies", "peer memory",
    "peer mapping", "memcpypeer", "memcpy peer", "enablepeer", "peer to peer",
    "quick reduce", "quickreduce" };

/* Off, by the words themselves. */
static const char *const without[] = { "p2p disable=1", "p2p disable: \"1\"",
    "p2p disable: 1", "p2p disable 1", "p2p disable=true", "p2p level=loc",
    "p2p level=0", "disable custom all reduce", "disable custom all", "host staging",
    "host staged", "staged through host", "over host memory", "through host memory",
    "via host memory", "over shared memory", "through shared memory",
    "via shared memory", "over shm", "via shm", "shm only" };
/* Off, by such a word near one of the peers'. */
static const char *const off[] = { "off", "disable", "disabled", "disabling", "without",
    "no", "false", "=0", "instead of", "not use", "not using", "avoid", "avoiding",
    "removed", "excluding" };
#define NEAR_OFF 14
static const char *const not_off[] = { "disable=0", "disable: 0", "disable 0",
    "disable=false", "disable unset", "not disable", "no effect" };

/* A hint of a library is no word of a person. */
static const char *const hints[] = { "to silence this warning", "you can disable",
    "try setting", "consider setting", "please set", "please disable" };

static const char *const stable[] = { "stable", "stably", "solid", "up for", "days",
    "hours", "weeks", " h of", " h soak", "weekend", "a month", "months", "for a week",
    "no crash", "not crash", "n't crash", "works", "worked", "working fine", "fine",
    "survive", "under load", "never", "no freez", "not freez", "n't freez", "no lock",
    "no hang", "no issue", "no problem", "no incident", "no trouble", "no fault",
    "without a problem", "without problem", "without issue", "without incident",
    "without a hitch", "without trouble", "since", "runs", "ran all", "ran for",
    "running for", "all night", "overnight", "finish", "complete", "passes", "passed",
    "pass", "soak", " ok", "good", "keeps", "stays up", "stayed up", "healthy",
    "reliabl", "workaround", "works around", "helps", "helped", "solves", "solved",
    "fixes", "fixed", "cures", "cured", "uptime" };

/* What follows is not of the control any more. */
static const char *const otherwise[] = { "without it", "without this", "without that",
    "otherwise", "else", "unset", "default", "with it on", "before" };

/* ---- one thought ---- */

static bool has_one(const char *text, struct words words)
{
    return dr_has_any_of(text, words.list, words.count);
}

static bool is_whole(const char *text, const char *at, size_t length)
{
    return (at == text || !isalnum((unsigned char)at[-1])) &&
            !isalnum((unsigned char)at[length]);
}

static bool begins_one(const char *text, struct words words)
{
    for (size_t i = 0; i < words.count; i++)
        if (dr_begins(text, words.list[i]))
            return true;
    return false;
}

/* Whether a whole word of @p first has one of @p second at most so many bytes behind or
 * before it. */
static bool has_near(const char *text, struct words first, struct words second,
        ptrdiff_t behind, ptrdiff_t before)
{
    for (size_t f = 0; f < first.count; f++) {
        const size_t length = strlen(first.list[f]);

        for (const char *at = text; (at = strstr(at, first.list[f])) != NULL;
                at += length) {
            if ((isalnum((unsigned char)first.list[f][0]) &&
                        !is_whole(text, at, length)) ||
                    begins_one(at + length, WORDS(parts)))
                continue;
            for (size_t s = 0; s < second.count; s++) {
                const ptrdiff_t size = (ptrdiff_t)strlen(second.list[s]);
                const char *other = text;

                while ((other = strstr(other, second.list[s])) != NULL) {
                    const ptrdiff_t away = other - at;

                    if (away >= 0 ? away <= (ptrdiff_t)length + behind
                                  : -away <= size + before)
                        return true;
                    other++;
                }
            }
        }
    }
    return false;
}

static bool is_dead(const char *text)
{
    return !has_one(text, WORDS(unharmed)) &&
            (has_one(text, WORDS(dead)) ||
                    has_near(text, WORDS(machines), WORDS(fates), BEFORE_FATE,
                            AFTER_FATE));
}

static bool is_without(const char *text)
{
    return has_one(text, WORDS(without)) ||
            (!has_one(text, WORDS(not_off)) &&
                    has_near(text, WORDS(off), WORDS(peers), NEAR_OFF, NEAR_OFF));
}

/* ---- lines, thought by thought ---- */

/* Longer lines are no words of a person. */
#define PROSE_MAX 1000
/* Lines that may tell, of one machine: more are no story of a person. */
#define LINES_MAX 20000
/* Thoughts behind the word of a control in which it may be said that it held. */
#define CONTROL_REACH 4

struct frozen {
    uint32_t dead, peer, control;
    bool named;                    /* the words of a control, held or not     */
    uint32_t source, last_without; /* where they were, DR_NONE                */
    unsigned lines;                /* that were looked at                        */
    unsigned reach;                /* thoughts that may still say that it held */
    bool remark;                   /* behind a '#' at a prompt                */
    bool was_stable;               /* the thought before, of the same line    */
};

/* Whether a line may hold one of the words above: most hold none of these pieces. */
static bool may_tell(const char *text)
{
    static const char *const pieces[] = { "p2p", "peer", "custom", "all-r", "all_r",
        "allred", "quick", "staging", "staged", "shared mem", "host mem", "shm", "ping",
        "icmp", "power", "reset", "reboot", "hard", "froze", "freez", "lock", "plug",
        "cold", "sysrq", "reisub", "unre", "respond", "reach", "dead", "died", "dies",
        "dying", "down", "hung", "hang", "gone", "dark", "kill", "crash", "panick",
        "went" };

    return dr_has_any_of(text, pieces, sizeof(pieces) / sizeof(*pieces));
}

static void look_at_thought(const struct doctor *d, uint32_t i, const char *text,
        struct frozen *f)
{
    const bool typed = (d->lines[i].flags & DR_COMMAND) != 0 && !f->remark;
    const bool bad = is_dead(text), good = has_one(text, WORDS(stable));
    const bool no_peers = !has_one(text, WORDS(hints)) && is_without(text);

    if (f->source != d->lines[i].source || bad)
        f->last_without = DR_NONE;
    f->source = d->lines[i].source;
    f->named = f->named || no_peers;
    if (no_peers && !bad) {
        f->last_without = i;
        f->reach = CONTROL_REACH;
    }
    if (bad && f->control == i && !has_one(text, WORDS(peers)) &&
            !has_one(text, WORDS(otherwise)))
        f->control = DR_NONE; /* it held for a while only */
    if (f->last_without != DR_NONE && f->control == DR_NONE &&
            (good || (no_peers && f->was_stable)))
        f->control = f->last_without;
    if (f->last_without != DR_NONE && f->reach-- == 0)
        f->last_without = DR_NONE;
    f->was_stable = good && !bad;
    if (typed)
        return;
    /* a later word of a person weighs more than the list of logins */
    if (bad && (f->dead == DR_NONE || dr_has(d->lines[f->dead].text, " - crash ")))
        f->dead = i;
    if (f->peer == DR_NONE && !no_peers && has_one(text, WORDS(peers)) &&
            !has_one(text, WORDS(hints)))
        f->peer = i;
}

/* Where one thought ends and another begins. */
static size_t thought(const char *text)
{
    for (size_t n = 0; text[n] != 0; n++)
        if ((strchr(".;,:!?)", text[n]) != NULL &&
                    (text[n + 1] == ' ' || text[n + 1] == 0)) ||
                (text[n] == ' ' &&
                        (dr_begins(text + n, " but ") ||
                                dr_begins(text + n, " while ") ||
                                dr_begins(text + n, " -> ") ||
                                dr_begins(text + n, " => ") ||
                                dr_begins(text + n, " # "))))
            return n + 1;
    return strlen(text);
}

/* Lower case, and blanks where words are joined. */
static void normalise(const char *text, size_t length, char *out)
{
    for (size_t n = 0; n < length; n++) {
        const bool joint = (text[n] == '-' || text[n] == '_') && n > 0 &&
                n + 1 < length && isalnum((unsigned char)text[n - 1]) &&
                isalnum((unsigned char)text[n + 1]);

        out[n] = joint ? ' ' : (char)tolower((unsigned char)text[n]);
    }
    out[length] = 0;
}

static void look_at_line(const struct doctor *d, uint32_t i, struct frozen *f)
{
    const char *text = d->lines[i].text;
    char piece[PROSE_MAX];

    if (dr_has(text, "NCCL ") && dr_has(text, " [")) { /* a library's words */
        if (f->peer == DR_NONE && dr_has(text, "via P2P"))
            f->peer = i;
        if (dr_has(text, "NCCL INFO"))
            return;
    }
    f->was_stable = f->remark = false;
    while (*text != 0) {
        const size_t length = thought(text);

        f->remark = f->remark || dr_begins(text, "# ");

        normalise(text, length, piece);
        look_at_thought(d, i, piece, f);
        text += length;
    }
}

static bool is_told(const struct frozen *f)
{
    return f->dead != DR_NONE && f->peer != DR_NONE && f->control != DR_NONE;
}

void dr_rule_frozen(struct doctor *d)
{
    struct frozen at[DR_MACHINES_LOOKED_AT];

    for (uint32_t m = 0; m < DR_MACHINES_LOOKED_AT; m++)
        at[m] = (struct frozen){ .dead = DR_NONE,
            .peer = DR_NONE,
            .control = DR_NONE,
            .source = DR_NONE,
            .last_without = DR_NONE };
    for (uint32_t i = 0; i < d->num_lines; i++) {
        struct frozen *f = d->lines[i].machine < DR_MACHINES_LOOKED_AT
                ? &at[d->lines[i].machine]
                : NULL;

        if (f == NULL || is_told(f) || d->lines[i].length >= PROSE_MAX ||
                f->lines == LINES_MAX ||
                (f->last_without == DR_NONE && !may_tell(d->lines[i].text)))
            continue;
        f->lines++;
        look_at_line(d, i, f);
    }
    for (uint32_t m = 0; m < dr_looked_at(d); m++) {
        struct dr_finding *f;

        if (at[m].dead == DR_NONE || (at[m].peer == DR_NONE && !at[m].named))
            continue;
        if (at[m].peer == DR_NONE || at[m].control == DR_NONE) {
            dr_trouble(d, at[m].dead);
            continue;
        }
        f = dr_found(d, DR_P2P_UNSAFE_ON_THIS_FABRIC, "%s", d->machines[m].name);
        dr_say(d, f,
                "The whole machine went down while GPUs wrote into each other over "
                "PCIe, and it stays up without such writes: peer access must not be "
                "used here.");
        dr_because(d, f, at[m].dead);
        dr_because(d, f, at[m].peer);
        dr_because(d, f, at[m].control);
    }
}
