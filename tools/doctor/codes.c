/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue as a table. */
#include "rules.h"

#include <string.h>

/* clang-format off */
#define DR_LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })
#define DR_NOTHING   ((const char *const[]){ NULL })
/* The end of a step that tests on the hardware. */
#define DR_STOP_FIRST                                                              \
    "stop and mask the unit that serves on these cards, "                          \
    "`systemctl stop U && systemctl mask U`; one that is only stopped may come "   \
    "back in the middle."

const struct dr_code_info dr_codes[DR_NUM_CODES] = {
#define DR_ROW(name, severity, rule, means, when, fix, will_not_help, not_this, sources) \
    { #name, severity, rule, means, when, fix, will_not_help, not_this, sources },
#include "codes.def"
#undef DR_ROW
};
/* clang-format on */

const char *dr_severity_name(enum dr_severity severity)
{
    static const char *const names[] = { "error", "warn", "unknown", "info", "ok" };

    return names[severity];
}

enum dr_code dr_code_find(const char *name)
{
    int code = 0;

    while (code < DR_NUM_CODES && strcasecmp(dr_codes[code].name, name) != 0)
        code++;
    return (enum dr_code)code;
}
