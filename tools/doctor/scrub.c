/* SPDX-License-Identifier: Apache-2.0 */
/* See scrub.h: a text is walked once, and at the beginning of each word every kind of
 * identifier is tried. */
#include "scrub.h"

#include "scan.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UUID_BYTES 36u
#define MAC_BYTES  17u
/* Accounts of people; those below are the system's own. */
#define FIRST_USER 1000u
#define LAST_USER  60000u

/* Names that say nothing of whose machine it is, and that stand for other things, too. */
static const char *const common[] = { "localhost", "localdomain", "root", "nobody",
    "user", "admin", "ubuntu", "debian", "fedora", "arch", "archlinux", "rocky",
    "linux", "pve", "proxmox", "server", "node", "host", "desktop", "workstation",
    "gpu", "amd", "nvidia", "kernel", "test", "this", "none", "video", "render", "kvm",
    "qemu", "q35", "i440fx", "virtio", "vfio", "amdgpu", "docker", "worker", "vm",
    "guest", "default", "net", "pci", "eth0", "cpu", "rocm", "cuda", "motet" };

static uint64_t hash(const char *text, size_t bytes, bool lower)
{
    uint64_t h = 14695981039346656037ull;

    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)(lower ? tolower((unsigned char)text[i]) : text[i])) *
                1099511628211ull;
    return h ^ h >> 29;
}

static bool is_word_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

void dr_scrub_name(struct dr_scrub *s, const char *kind, const char *name)
{
    const size_t length = strlen(name);
    uint32_t i;

    if (length < 2)
        return;
    for (i = 0; i < sizeof(common) / sizeof(*common); i++)
        if (strcasecmp(common[i], name) == 0)
            return;
    for (i = 0; i < s->num; i++)
        if (strcmp(s->names[i].name, name) == 0)
            return;
    (void)DR_PUSH(s->d, s->names, s->num, s->room);
    /* A long name may hold a shorter one: the longest is tried first. */
    for (i = s->num - 1; i > 0 && s->names[i - 1].length < length; i--)
        s->names[i] = s->names[i - 1];
    s->names[i].name = dr_copy(s->d, name, length);
    s->names[i].length = length;
    s->names[i].pseudonym = dr_printf(s->d, "%s-%06x", kind,
            (unsigned)(hash(name, length, true) & 0xffffff));
}

void dr_scrub_own_names(struct dr_scrub *s)
{
    char name[256] = "";
    const struct passwd *p;

    if (gethostname(name, sizeof(name) - 1) == 0) {
        const size_t first = strcspn(name, ".");

        dr_scrub_name(s, "host", name);
        dr_scrub_name(s, "host", dr_copy(s->d, name, first));
        if (name[first] == '.')
            dr_scrub_name(s, "domain", name + first + 1);
    }
    setpwent();
    for (int i = 0; i < 4096 && (p = getpwent()) != NULL; i++)
        if (p->pw_uid >= FIRST_USER && p->pw_uid < LAST_USER)
            dr_scrub_name(s, "user", p->pw_name);
    endpwent();
    if (getenv("USER") != NULL)
        dr_scrub_name(s, "user", getenv("USER"));
    if (getenv("SUDO_USER") != NULL)
        dr_scrub_name(s, "user", getenv("SUDO_USER"));
}

/* ---- one identifier at the beginning of `at`; each gives the bytes it takes, or 0 ---- */

static size_t replace_name(const struct dr_scrub *s, const char *at, size_t left,
        FILE *out)
{
    for (uint32_t i = 0; i < s->num; i++) {
        const size_t length = s->names[i].length;

        if (length <= left && memcmp(at, s->names[i].name, length) == 0 &&
                (length == left || !is_word_byte(at[length]))) {
            fputs(s->names[i].pseudonym, out);
            return length;
        }
    }
    return 0;
}

/* Whether the bytes are hexadecimal digits with @p separator where @p shape has a '-'. */
static bool has_shape(const char *at, size_t left, const char *shape, char separator)
{
    const size_t length = strlen(shape);

    if (left < length)
        return false;
    for (size_t i = 0; i < length; i++)
        if (shape[i] == '-' ? at[i] != separator : !isxdigit((unsigned char)at[i]))
            return false;
    return left == length || (!is_word_byte(at[length]) && at[length] != separator);
}

static size_t replace_uuid(const struct dr_scrub *s, const char *at, size_t left,
        FILE *out)
{
    uint64_t a, b;

    (void)s;
    if (!has_shape(at, left, "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", '-'))
        return 0;
    a = hash(at, UUID_BYTES, true);
    b = a * 0x9e3779b97f4a7c15ull;
    fprintf(out, "%08x-%04x-4%03x-8%03x-%012llx", (unsigned)(a >> 32),
            (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff),
            (unsigned)(b >> 48 & 0xfff), (unsigned long long)(b & 0xffffffffffffull));
    return UUID_BYTES;
}

static void write_mac(const char *at, FILE *out)
{
    uint64_t h;

    if (memcmp(at, "00:00:00:00:00:00", MAC_BYTES) == 0 ||
            strncasecmp(at, "ff:ff:ff:ff:ff:ff", MAC_BYTES) == 0 ||
            strncasecmp(at, "00:00:5e:00:53:", 15) == 0) {
        /* none, all, and RFC 7042's for documentation */
        fwrite(at, 1, MAC_BYTES, out);
        return;
    }
    h = hash(at, MAC_BYTES, true);
    fprintf(out, "02:%02x:%02x:%02x:%02x:%02x", (unsigned)(h & 0xff),
            (unsigned)(h >> 8 & 0xff), (unsigned)(h >> 16 & 0xff),
            (unsigned)(h >> 24 & 0xff), (unsigned)(h >> 32 & 0xff));
}

static size_t replace_mac(const struct dr_scrub *s, const char *at, size_t left,
        FILE *out)
{
    (void)s;
    if (has_shape(at, left, "xx-xx-xx-xx-xx-xx", ':') ||
            has_shape(at, left, "xx-xx-xx-xx-xx-xx", '-')) {
        write_mac(at, out);
        return MAC_BYTES;
    }
    /* MAC= of the firewall: to, from, and the protocol */
    if (has_shape(at, left, "xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx", ':')) {
        write_mac(at, out);
        fputc(':', out);
        write_mac(at + MAC_BYTES + 1, out);
        return 2 * MAC_BYTES + 1;
    }
    /* of InfiniBand: the last eight bytes are the card's own number */
    if (has_shape(at, left,
                "xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx-xx", ':')) {
        fwrite(at, 1, 36, out);
        fputs("02:00:", out);
        write_mac(at + 42, out);
        return 59;
    }
    return 0;
}

struct network {
    uint32_t address, mask;
};

/* Not of the whole internet, or for documentation: they say nothing, or must stay. */
static const struct network kept_networks[] = { { 0x00000000, 0xff000000 },
    { 0x0a000000, 0xff000000 }, { 0x64400000, 0xffc00000 }, { 0x7f000000, 0xff000000 },
    { 0xa9fe0000, 0xffff0000 }, { 0xac100000, 0xfff00000 }, { 0xc0000200, 0xffffff00 },
    { 0xc0a80000, 0xffff0000 }, { 0xc6120000, 0xfffe0000 }, { 0xc6336400, 0xffffff00 },
    { 0xcb007100, 0xffffff00 }, { 0xe0000000, 0xe0000000 } };

static size_t replace_ipv4(const struct dr_scrub *s, const char *at, size_t left,
        FILE *out)
{
    char text[INET_ADDRSTRLEN] = "";
    size_t length = 0;
    struct in_addr in;
    uint32_t address, net;

    (void)s;
    while (length < left && (isdigit((unsigned char)at[length]) || at[length] == '.'))
        length++;
    while (length > 0 && at[length - 1] == '.')
        length--;
    if (length < 7 || length >= sizeof(text) ||
            (length < left && (is_word_byte(at[length]) || at[length] == '-')))
        return 0;
    memcpy(text, at, length);
    if (inet_pton(AF_INET, text, &in) != 1)
        return 0;
    address = ntohl(in.s_addr);
    for (size_t i = 0; i < sizeof(kept_networks) / sizeof(*kept_networks); i++)
        if ((address & kept_networks[i].mask) == kept_networks[i].address)
            return 0;
    net = address >> 8;
    net = (uint32_t)hash((const char *)&net, sizeof(net), false);
    /* 198.18.0.0/15: of nobody, and public to every rule; hosts of one /24 stay in one. */
    address = (address & 0xff) * 167 + net % 254;
    fprintf(out, "198.%u.%u.%u", 18 + (net >> 8 & 1), net >> 16 & 0xff,
            address % 254 + 1);
    return length;
}

static size_t replace_ipv6(const struct dr_scrub *s, const char *at, size_t left,
        FILE *out)
{
    char text[INET6_ADDRSTRLEN] = "";
    struct in6_addr in;
    size_t length = 0, colons = 0;
    uint64_t net, host;

    (void)s;
    for (; length < left && (isxdigit((unsigned char)at[length]) || at[length] == ':');
            length++)
        colons += at[length] == ':';
    if (colons < 2 || length >= sizeof(text) ||
            (length < left && (is_word_byte(at[length]) || at[length] == '.')))
        return 0;
    memcpy(text, at, length);
    if (inet_pton(AF_INET6, text, &in) != 1 || IN6_IS_ADDR_LOOPBACK(&in) ||
            IN6_IS_ADDR_UNSPECIFIED(&in) || IN6_IS_ADDR_MULTICAST(&in) ||
            (in.s6_addr[0] == 0x20 && in.s6_addr[1] == 0x01 && in.s6_addr[2] == 0x0d &&
                    in.s6_addr[3] == 0xb8))
        return 0;
    net = hash((const char *)in.s6_addr, 8, false);
    host = hash((const char *)in.s6_addr + 8, 8, false);
    /* Also private ones: their second half often is a MAC address. */
    if ((in.s6_addr[0] & 0xe0) == 0x20) {
        in.s6_addr[0] = 0x20, in.s6_addr[1] = 0x01, in.s6_addr[2] = 0x0d,
        in.s6_addr[3] = 0xb8;
        memcpy(in.s6_addr + 4, &net, 4);
    }
    memcpy(in.s6_addr + 8, &host, 8);
    fputs(inet_ntop(AF_INET6, &in, text, sizeof(text)), out);
    return length;
}

/* "Serial Number: ABC": the words before stay. */
static size_t replace_serial(const struct dr_scrub *s, const char *at, size_t left,
        FILE *out)
{
    static const char *const words[] = { "SerialNumber:", "Serial Number",
        "serial number", "Serial number", "serial:", "S/N:", "unique_id",
        "serial_number:", "Asset Tag:", "product_serial:", "board_serial:",
        "node_guid:", "sys_image_guid:", "serial=", "asset=", "wwn=", "<serial>",
        "\"serial\":", "name='serial'>", "name=\"serial\">", "name='asset'>",
        "name=\"asset\">" };
    static const char ends[] = " \t\n,'\"<>}";

    (void)s;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++) {
        size_t end = strlen(words[i]);

        if (end >= left || memcmp(at, words[i], end) != 0 ||
                (is_word_byte(at[end]) && is_word_byte(at[end - 1])))
            continue;
        while (end < left && at[end] != 0 && strchr(" :\t'\"", at[end]) != NULL)
            end++;
        if (end == left || at[end] == '\n')
            return 0; /* nothing is said */
        fwrite(at, 1, end, out);
        fputs("serial-hidden", out);
        while (end < left && strchr(ends, at[end]) == NULL)
            end++;
        return end;
    }
    return 0;
}

/* Where each kind may begin: never within a word. */
static const struct {
    size_t (*replace)(const struct dr_scrub *s, const char *at, size_t left, FILE *out);
    bool in_numbers; /* also behind a dot, a dash, or a colon after a digit */
} kinds[] = { { replace_serial, true }, { replace_uuid, true }, { replace_mac, false },
    { replace_ipv6, false }, { replace_ipv4, false }, { replace_name, true } };

static size_t replace_one(const struct dr_scrub *s, const char *text, size_t at,
        size_t bytes, FILE *to)
{
    const char before = at > 0 ? text[at - 1] : ' ',
               earlier = at > 1 ? text[at - 2] : ' ';
    const bool number = before == '.' || before == '-' ||
            (before == ':' && isxdigit((unsigned char)earlier));
    size_t used = 0;

    for (size_t i = 0;
            !is_word_byte(before) && i < sizeof(kinds) / sizeof(*kinds) && used == 0;
            i++)
        if (!number || kinds[i].in_numbers)
            used = kinds[i].replace(s, text + at, bytes - at, to);
    return used;
}

char *dr_scrub_text(struct dr_scrub *s, const char *text, size_t bytes,
        size_t *out_bytes)
{
    char *buf = NULL, *out;
    size_t size = 0;
    FILE *to = open_memstream(&buf, &size);

    if (to == NULL)
        return NULL;
    for (size_t at = 0; at < bytes;) {
        const size_t used = replace_one(s, text, at, bytes, to);

        if (used == 0)
            fputc(text[at], to);
        at += used > 0 ? used : 1;
    }
    fclose(to);
    out = dr_copy(s->d, buf, size);
    free(buf);
    *out_bytes = size;
    return out;
}

/* The names that a definition or a command line of a guest gives it. */
static void add_guest_names(struct dr_scrub *s, const struct dr_capture *c)
{
    static const struct {
        const char *capture, *before, *ends;
    } rows[] = { { "qemu-server-", "\nname: ", " \n" }, { "libvirt-", "<name>", "<\n" },
        { "qemu-", "-name guest=", " ,'\n" }, { "qemu-", "-name 'guest=", ",'\n" },
        { "qemu-", "-name ", " ,'\n" } };

    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        const char *at = dr_begins(c->name, rows[i].capture)
                ? strstr(c->text, rows[i].before)
                : NULL;

        if (at == NULL)
            continue;
        at += strlen(rows[i].before);
        dr_scrub_name(s, "guest", dr_copy(s->d, at, strcspn(at, rows[i].ends)));
    }
}

void dr_scrub_captures(struct dr_scrub *s, struct dr_captures *captures)
{
    for (uint32_t i = 0; i < captures->num; i++) {
        struct dr_capture *c = &captures->list[i];
        /* A guest may be called like anything: its name is replaced in its own only. */
        struct dr_scrub own = { .d = s->d };
        size_t bytes = 0;
        const char *text;

        for (uint32_t k = 0; k < s->num; k++)
            *DR_PUSH(own.d, own.names, own.num, own.room) = s->names[k];
        add_guest_names(&own, c);
        text = dr_scrub_text(&own, c->text, c->bytes, &bytes);

        if (text == NULL) { /* rather nothing than a name */
            c->text = "";
            c->bytes = 0;
            continue;
        }
        c->text = text;
        c->bytes = bytes;
        c->name = dr_scrub_text(&own, c->name, strlen(c->name), &bytes);
    }
}
