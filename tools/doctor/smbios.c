/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Slots of an SMBIOS table (type 9), in the shape of `dmidecode -t 9`. The table is the
 * firmware's: every length in it is checked. SMBIOS reference specification, 7.10.
 */
#include "gather.h"

#include <string.h>

#define TYPE_SLOT 9
#define TYPE_END  127
#define HEADER    4u

struct named {
    unsigned number;
    const char *name;
};

static const struct named types[] = { { 0x01, "Other" }, { 0x06, "PCI" },
    { 0x0e, "PCI-66" }, { 0x12, "PCI-X" }, { 0x14, "M.2 Socket 1-DP" },
    { 0x15, "M.2 Socket 1-SD" }, { 0x16, "M.2 Socket 2" }, { 0x17, "M.2 Socket 3" },
    { 0x18, "MXM Type I" }, { 0x1f, "PCI Express 2 SFF-8639 (U.2)" },
    { 0x20, "PCI Express 3 SFF-8639 (U.2)" }, { 0x24, "PCI Express 4 SFF-8639 (U.2)" },
    { 0x25, "PCI Express 5 SFF-8639 (U.2)" },
    { 0x26, "OCP NIC 3.0 Small Form Factor (SFF)" },
    { 0x27, "OCP NIC 3.0 Large Form Factor (LFF)" }, { 0xc4, "PCI Express 6+" } };

/* From these on: any, x1, x2, x4, x8, x16 of one generation. */
static const struct named generations[] = { { 0xa5, "PCI Express" },
    { 0xab, "PCI Express 2" }, { 0xb1, "PCI Express 3" }, { 0xb8, "PCI Express 4" },
    { 0xbe, "PCI Express 5" } };
static const char *const lanes[] = { "", " x1", " x2", " x4", " x8", " x16" };

static const char *const widths[] = { [8] = "x1 ",
    [9] = "x2 ",
    [10] = "x4 ",
    [11] = "x8 ",
    [12] = "x12 ",
    [13] = "x16 ",
    [14] = "x32 " };
static const char *const usages[] = { [1] = "Other",
    [2] = "Unknown",
    [3] = "Available",
    [4] = "In Use",
    [5] = "Unavailable" };
static const char *const lengths[] = { [1] = "Other",
    [2] = "Unknown",
    [3] = "Short",
    [4] = "Long",
    [5] = "2.5\" drive form factor",
    [6] = "3.5\" drive form factor" };

static const char *of(const char *const *table, size_t count, unsigned index)
{
    return index < count && table[index] != NULL ? table[index] : "";
}
#define OF(table, index) of(table, sizeof(table) / sizeof(*(table)), index)

static void write_type(FILE *out, unsigned width, unsigned type)
{
    fprintf(out, "\tType: %s", OF(widths, width));
    for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
        if (types[i].number == type) {
            fprintf(out, "%s\n", types[i].name);
            return;
        }
    for (size_t i = 0; i < sizeof(generations) / sizeof(*generations); i++)
        if (type >= generations[i].number && type < generations[i].number + 6) {
            fprintf(out, "%s%s\n", generations[i].name,
                    lanes[type - generations[i].number]);
            return;
        }
    fputs("Unknown\n", out);
}

/* String @p number of the set at @p strings that ends before @p end; its length. */
static size_t string_of(const char *strings, const char *end, unsigned number,
        const char **out)
{
    while (strings < end && number > 1) {
        strings += strnlen(strings, (size_t)(end - strings)) + 1;
        number--;
    }
    *out = strings;
    return strings < end && number == 1 ? strnlen(strings, (size_t)(end - strings)) : 0;
}

static void write_slot(FILE *out, const unsigned char *s, const char *strings,
        const char *end)
{
    const unsigned length = s[1];
    const char *name;
    size_t bytes;

    fprintf(out, "Handle 0x%04X, DMI type 9, %u bytes\nSystem Slot Information\n",
            (unsigned)s[2] | (unsigned)s[3] << 8, length);
    if (length < 0x0b)
        return;
    bytes = string_of(strings, end, s[4], &name);
    fputs("\tDesignation: ", out);
    for (size_t i = 0; i < bytes; i++) /* as dmidecode: no byte that acts */
        fputc(name[i] >= ' ' && name[i] < 127 ? name[i] : '.', out);
    fputs(bytes > 0 ? "\n" : "Not Specified\n", out);
    write_type(out, s[6], s[5]);
    fprintf(out, "\tCurrent Usage: %s\n", OF(usages, s[7]));
    fprintf(out, "\tLength: %s\n", OF(lengths, s[8]));
    fprintf(out, "\tID: %u\n", (unsigned)s[9] | (unsigned)s[10] << 8);
    if (length >= 0x11 &&
            !(s[0x0d] == 0xff && s[0x0e] == 0xff && s[0x0f] == 0xff && s[0x10] == 0xff))
        fprintf(out, "\tBus Address: %04x:%02x:%02x.%x\n",
                (unsigned)s[0x0d] | (unsigned)s[0x0e] << 8, s[0x0f], s[0x10] >> 3,
                s[0x10] & 7u);
    fputc('\n', out);
}

void dr_write_smbios_slots(FILE *out, const unsigned char *table, size_t bytes)
{
    size_t at = 0;

    fputs("# dmidecode 3.5\nGetting SMBIOS data from sysfs.\n\n", out);
    while (at + HEADER <= bytes && table[at + 1] >= HEADER &&
            at + table[at + 1] <= bytes && table[at] != TYPE_END) {
        const unsigned char *s = table + at;
        size_t end = at + s[1];

        /* The strings of a structure end with two zeros, also when it has none. */
        while (end + 2 <= bytes && (table[end] != 0 || table[end + 1] != 0))
            end++;
        if (s[0] == TYPE_SLOT)
            write_slot(out, s, (const char *)s + s[1], (const char *)table + end);
        at = end + 2;
    }
}
