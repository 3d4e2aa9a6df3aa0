/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration space as `lspci -x`, `-xxx` and `-xxxx` print it. */
#include "pci_read.h"

#include <ctype.h>
#include <string.h>

/* Offsets of the standard header and of the two capabilities that matter here. */
enum {
    HEADER_TYPE = 0x0e,
    SECONDARY = 0x19,
    SUBORDINATE = 0x1a,
    CAPABILITIES = 0x34,
    HEADER_END = 0x40,
    EXTENDED = 0x100,

    EXPRESS = 0x10, /* its number */
    EXPRESS_FLAGS = 0x02,
    EXPRESS_LINK_CAP = 0x0c,
    EXPRESS_LINK_STATUS = 0x12,
    EXPRESS_DEVICE_CAP_2 = 0x24,
    EXPRESS_DEVICE_CTL_2 = 0x28,

    ACS = 0x0d, /* its number */
    ACS_CONTROL = 0x06,
};

#define CAP2_ROUTING    0x40u
#define CAP2_COMPLETE32 0x80u
#define CAP2_COMPLETE64 0x100u
#define CTL2_REQUESTER  0x40u
#define CTL2_EGRESS     0x80u

static unsigned word(const struct dr_pci_reading *r, unsigned at)
{
    return at + 1 < r->config_bytes ? r->config[at] | (unsigned)r->config[at + 1] << 8
                                    : 0;
}

static unsigned two_words(const struct dr_pci_reading *r, unsigned at)
{
    return word(r, at) | word(r, at + 2) << 16;
}

bool dr_pci_hex_line(struct dr_pci_reading *r)
{
    const char *text = r->text;
    struct dr_span offset, byte;
    size_t at;
    uint64_t start, value;
    unsigned count = 0;

    while (*text == ' ' || *text == '\t')
        text++;
    if (!isxdigit((unsigned char)*text) || !dr_scan(text, "^%x: ", &offset) ||
            offset.length > 3 || !dr_span_hex(offset, &start) || start % 16 != 0)
        return false;
    for (at = offset.length + 1; dr_word(text, &at, &byte); count++) {
        if (byte.length != 2 || count == 16 || !dr_span_hex(byte, &value))
            return false;
        r->config[start + count] = (unsigned char)value;
    }
    if (start == 0) {
        r->config_line = r->line;
        r->config_bytes = 0;
    }
    if (start == r->config_bytes)
        r->config_bytes += count; /* a gap ends what can be trusted */
    return count > 0;
}

static void decode_express(const struct dr_pci_reading *r, struct dr_pci_device *p,
        unsigned at)
{
    static const double speeds[] = { 0, 2.5, 5, 8, 16, 32, 64, 128 };
    const unsigned flags = word(r, at + EXPRESS_FLAGS);
    const unsigned cap = two_words(r, at + EXPRESS_LINK_CAP);
    const unsigned status = word(r, at + EXPRESS_LINK_STATUS);
    const unsigned cap2 = two_words(r, at + EXPRESS_DEVICE_CAP_2);
    const unsigned ctl2 = word(r, at + EXPRESS_DEVICE_CTL_2);
    const bool is_switch = (flags >> 4 & 15) == DR_UPSTREAM_PORT ||
            (flags >> 4 & 15) == DR_DOWNSTREAM_PORT;
    const bool is_port = is_switch || (flags >> 4 & 15) == DR_ROOT_PORT;

    p->express_version = (int)(flags & 15);
    p->port = (enum dr_port)(flags >> 4 & 15);
    p->line_port = r->config_line;
    p->cap_speed = speeds[cap & 7];
    p->cap_width = (int)(cap >> 4 & 63);
    p->sta_speed = speeds[status & 7];
    p->sta_width = (int)(status >> 4 & 63);
    p->line_link_cap = p->line_link_sta = r->config_line;
    if ((flags & 15) < 2)
        return;
    if (is_port) {
        p->routing = (cap2 & CAP2_ROUTING) != 0;
        p->egress_blocked = (ctl2 & CTL2_EGRESS) != 0;
    }
    if (!is_switch) {
        p->complete32 = (cap2 & CAP2_COMPLETE32) != 0;
        p->complete64 = (cap2 & CAP2_COMPLETE64) != 0;
        p->requester = (ctl2 & CTL2_REQUESTER) != 0;
    }
    p->line_atomics = p->line_requester = r->config_line;
}

static void decode_standard(const struct dr_pci_reading *r, struct dr_pci_device *p)
{
    unsigned at = r->config[CAPABILITIES] & 0xfcu;

    /* 48 capabilities fill the space: more steps than that are a loop */
    for (int n = 0; n < 48 && at >= HEADER_END && at + 1 < r->config_bytes; n++) {
        if (r->config[at] == EXPRESS)
            decode_express(r, p, at);
        at = r->config[at + 1] & 0xfcu;
    }
}

static void decode_extended(const struct dr_pci_reading *r, struct dr_pci_device *p)
{
    unsigned at = EXTENDED;

    for (int n = 0; n < 960 && at >= EXTENDED && at + 8 <= r->config_bytes; n++) {
        const unsigned head = two_words(r, at);

        if ((head & 0xffff) == ACS) {
            const unsigned control = word(r, at + ACS_CONTROL);

            p->acs_source_validation = (control & 1) != 0;
            p->acs_redirect_requests = (control & 4) != 0;
            p->acs_redirect_completions = (control & 8) != 0;
            p->line_acs = r->config_line;
        }
        if (head == 0 || head == 0xffffffff)
            return;
        at = head >> 20 & 0xffc;
    }
}

void dr_pci_hex_end(struct dr_pci_reading *r)
{
    struct dr_pci_device *p;

    if (r->config_bytes >= HEADER_END && r->device != DR_NONE) {
        p = &r->d->pci->devices[r->device];
        dr_pci_set_ids(p, (int)word(r, 0), (int)word(r, 2), (int)word(r, 0x0a));
        if ((r->config[HEADER_TYPE] & 0x7f) == 1 && r->config[SECONDARY] != 0 &&
                p->secondary < 0) {
            p->secondary = r->config[SECONDARY];
            p->subordinate = r->config[SUBORDINATE];
            p->line_bus = r->config_line;
        }
        if (r->config_bytes > HEADER_END) {
            decode_standard(r, p);
            decode_extended(r, p);
        } else if (!dr_scan(dr_command(r->d, r->config_line), "lspci -x%>", NULL) &&
                !dr_has(dr_command(r->d, r->config_line), " -nx ")) {
            p->denied = true; /* more was asked for than a user may read */
            p->line_denied = r->config_line;
        }
    }
    r->config_bytes = 0;
}
