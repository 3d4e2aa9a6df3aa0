/* SPDX-License-Identifier: Apache-2.0 */
/* e_flags of AMD's ELF files, and names of arguments' kinds. Numbers: LLVM's ELF.h. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#define MACH_MASK     0xffu
#define XNACK_SHIFT   8 /* two bits from version 4 on, one before */
#define SRAMECC_SHIFT 10
#define XNACK_V3      0x100u
#define SRAMECC_V3    0x200u
#define GENERIC_SHIFT 24

/* clang-format off */
static const char *const processors[256] = {
    [0x20] = "gfx600",   [0x21] = "gfx601",   [0x22] = "gfx700",   [0x23] = "gfx701",
    [0x24] = "gfx702",   [0x25] = "gfx703",   [0x26] = "gfx704",   [0x28] = "gfx801",
    [0x29] = "gfx802",   [0x2a] = "gfx803",   [0x2b] = "gfx810",   [0x2c] = "gfx900",
    [0x2d] = "gfx902",   [0x2e] = "gfx904",   [0x2f] = "gfx906",   [0x30] = "gfx908",
    [0x31] = "gfx909",   [0x32] = "gfx90c",   [0x33] = "gfx1010",  [0x34] = "gfx1011",
    [0x35] = "gfx1012",  [0x36] = "gfx1030",  [0x37] = "gfx1031",  [0x38] = "gfx1032",
    [0x39] = "gfx1033",  [0x3a] = "gfx602",   [0x3b] = "gfx705",   [0x3c] = "gfx805",
    [0x3d] = "gfx1035",  [0x3e] = "gfx1034",  [0x3f] = "gfx90a",   [0x40] = "gfx940",
    [0x41] = "gfx1100",  [0x42] = "gfx1013",  [0x43] = "gfx1150",  [0x44] = "gfx1103",
    [0x45] = "gfx1036",  [0x46] = "gfx1101",  [0x47] = "gfx1102",  [0x48] = "gfx1200",
    [0x49] = "gfx1250",  [0x4a] = "gfx1151",  [0x4b] = "gfx941",   [0x4c] = "gfx942",
    [0x4e] = "gfx1201",  [0x4f] = "gfx950",   [0x50] = "gfx1310",
    [0x51] = "gfx9-generic",    [0x52] = "gfx10-1-generic", [0x53] = "gfx10-3-generic",
    [0x54] = "gfx11-generic",   [0x55] = "gfx1152",         [0x57] = "gfx1154",
    [0x58] = "gfx1153",         [0x59] = "gfx12-generic",   [0x5a] = "gfx1251",
    [0x5b] = "gfx12-5-generic", [0x5c] = "gfx1172",         [0x5d] = "gfx1170",
    [0x5e] = "gfx1171",         [0x5f] = "gfx9-4-generic",  [0x62] = "gfx11-7-generic",
    [0x63] = "gfx13-generic",
};
/* clang-format on */

static const struct {
    const char *name, *short_name;
} kinds[CODEOBJ_NUM_KINDS] = {
#define ROW(name, value_kind, short_name) [CODEOBJ_##name] = { value_kind, short_name },
    CODEOBJ_KINDS(ROW)
#undef ROW
};

static const char *suffix_of(enum codeobj_setting setting)
{
    return setting == CODEOBJ_ON ? "+" : "-";
}

static void write_text(struct codeobj_target *t)
{
    int used = snprintf(t->text, sizeof(t->text), "%.31s", t->processor);

    if (t->sramecc >= CODEOBJ_OFF)
        used += snprintf(t->text + used, sizeof(t->text) - (size_t)used, ":sramecc%s",
                suffix_of(t->sramecc));
    if (t->xnack >= CODEOBJ_OFF)
        snprintf(t->text + used, sizeof(t->text) - (size_t)used, ":xnack%s",
                suffix_of(t->xnack));
}

void codeobj_target_of(uint32_t e_flags, int version, struct codeobj_target *out)
{
    const char *name = processors[e_flags & MACH_MASK];

    memset(out, 0, sizeof(*out));
    out->mach = e_flags & MACH_MASK;
    if (version >= 4) {
        out->xnack = (enum codeobj_setting)(e_flags >> XNACK_SHIFT & 3);
        out->sramecc = (enum codeobj_setting)(e_flags >> SRAMECC_SHIFT & 3);
    } else {
        /* Off and not there were one and the same. */
        out->xnack = (e_flags & XNACK_V3) != 0 ? CODEOBJ_ON : CODEOBJ_NOT_THERE;
        out->sramecc = (e_flags & SRAMECC_V3) != 0 ? CODEOBJ_ON : CODEOBJ_NOT_THERE;
    }
    if (name == NULL)
        snprintf(out->processor, sizeof(out->processor), "mach 0x%02x", out->mach);
    else
        snprintf(out->processor, sizeof(out->processor), "%s", name);
    out->generic = name != NULL && strstr(name, "-generic") != NULL;
    if (out->generic && version >= 6)
        out->generic_version = e_flags >> GENERIC_SHIFT;
    write_text(out);
}

const char *codeobj_kind_name(enum codeobj_kind kind)
{
    return (unsigned)kind < CODEOBJ_NUM_KINDS ? kinds[kind].name : "*";
}

const char *codeobj_kind_short(enum codeobj_kind kind)
{
    return (unsigned)kind < CODEOBJ_NUM_KINDS ? kinds[kind].short_name : "other";
}

bool codeobj_kind_hidden(enum codeobj_kind kind)
{
    return kind >= CODEOBJ_BLOCK_COUNT_X && kind <= CODEOBJ_HIDDEN_OTHER;
}

bool codeobj_makes_hostcall(const char *name)
{
    static const char *const beginnings[] = { "__assert_fail", "__assertfail",
        "__ockl_call_host_function", "__ockl_devmem_request", "__ockl_dm_",
        "__ockl_fprintf_", "__ockl_hostcall_", "__ockl_printf_",
        "__ockl_sanitizer_report" };

    if (name[0] != '_' || name[1] != '_')
        return false;
    for (size_t i = 0; i < sizeof(beginnings) / sizeof(*beginnings); i++)
        if (strncmp(name, beginnings[i], strlen(beginnings[i])) == 0)
            return true;
    return false;
}
