/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From bytes to lines: decoded, without what only a terminal wants, split, and each with
 * what was typed before it and the machine it speaks of.
 */
#include "lines.h"

#include "scan.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* ---- cleaning ---- */

/* Bytes of an escape sequence at @p at: colours, titles, hyperlinks, character sets. One
 * that does not end takes the rest of the line with it. */
static size_t escape(const char *at, size_t left)
{
    size_t n = 2;

    if (left < 2 || (unsigned char)at[1] >= 0x80)
        return 1;
    if (at[1] == '[') {
        while (n < left && (at[n] < 0x40 || at[n] > 0x7e))
            n++;
        return n < left ? n + 1 : left;
    }
    if (strchr("]PX^_", at[1]) != NULL) { /* strings, up to BEL or ESC \ */
        while (n < left && at[n] != 7 && at[n] != 27)
            n++;
        n += n < left && at[n] == 27 ? 2 : 1;
        return n < left ? n : left;
    }
    return strchr("()*+-./#% ", at[1]) != NULL && left > 2 ? 3 : 2;
}

/* What a terminal would show last of a line that was overwritten: the part after the last
 * carriage return that something follows. */
static const char *after_return(const char *text, size_t *length)
{
    const char *last;

    while (*length > 0 && text[*length - 1] == '\r')
        --*length;
    last = memrchr(text, '\r', *length);
    if (last == NULL)
        return text;
    *length -= (size_t)(last + 1 - text);
    return last + 1;
}

/* Length of the UTF-8 character at @p text, of which @p left bytes are there; 0: none. */
static size_t utf8(const char *text, size_t left, uint32_t *point)
{
    static const uint32_t least[] = { 0, 0x80, 0x800, 0x10000 };
    const unsigned char *s = (const unsigned char *)text;
    const size_t more = s[0] < 0xe0 ? 1 : s[0] < 0xf0 ? 2 : 3;

    *point = s[0];
    if (s[0] < 0x80)
        return 1;
    if (s[0] < 0xc2 || s[0] > 0xf4 || more >= left)
        return 0;
    *point = s[0] & (0x3fu >> more);
    for (size_t i = 1; i <= more; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        *point = *point << 6 | (s[i] & 0x3f);
    }
    if (*point < least[more] || *point > 0x10ffff ||
            (*point >= 0xd800 && *point <= 0xdfff))
        return 0;
    return more + 1;
}

/* What a terminal acts upon instead of showing it, or that turns the direction of text. */
static bool acts(uint32_t point)
{
    return (point < 0x20 && point != '\t') || (point >= 0x7f && point < 0xa0) ||
            point == 0x200e || point == 0x200f ||
            (point >= 0x2028 && point <= 0x202e) ||
            (point >= 0x2066 && point <= 0x2069) || point == 0xfeff;
}

/* How many bytes of ASCII that are shown come first. */
static size_t plain_bytes(const char *text, size_t left)
{
    size_t n = 0;

    while (n < left && text[n] >= 0x20 && text[n] < 0x7f)
        n++;
    return n;
}

size_t dr_clean(const char *text, size_t length, char *out, size_t size, bool *cut)
{
    size_t used = 0, step;
    uint32_t point;

    *cut = false;
    text = after_return(text, &length);
    for (size_t i = 0; i < length; i += step) {
        const size_t room = used + 2 < size ? size - used - 2 : 0, left = length - i;
        const size_t plain = plain_bytes(text + i, left < room ? left : room);

        if (plain > 0) { /* most lines as a whole */
            memcpy(out + used, text + i, plain);
            used += step = plain;
            continue;
        }
        step = utf8(text + i, length - i, &point);
        if (used + step + 2 > size) {
            *cut = true;
            break;
        }
        if (point == 27) {
            step = escape(text + i, length - i);
        } else if (step == 0) {
            out[used++] = '?'; /* another encoding, or half a character */
            step = 1;
        } else if (point == 0xa0) {
            out[used++] = ' '; /* as web pages write blanks */
        } else if (!acts(point)) {
            memcpy(out + used, text + i, step);
            used += step;
        }
    }
    while (used > 0 && (out[used - 1] == ' ' || out[used - 1] == '\t'))
        used--;
    out[used] = 0;
    return used;
}

char *dr_from_utf16(const char *bytes, size_t count, size_t *out_count)
{
    const unsigned char *in = (const unsigned char *)bytes;
    bool little;
    size_t used = 0;
    char *out;

    if (count < 2 ||
            !((in[0] == 0xff && in[1] == 0xfe) || (in[0] == 0xfe && in[1] == 0xff)))
        return NULL;
    little = in[0] == 0xff;
    out = malloc(count / 2 * 3 + 1);
    if (out == NULL)
        return NULL;
    for (size_t i = 2; i + 1 < count; i += 2) {
        const unsigned low = in[little ? i : i + 1], high = in[little ? i + 1 : i];
        const unsigned c = high << 8 | low;

        if (c < 0x80) {
            out[used++] = (char)c;
        } else if (c < 0x800) {
            out[used++] = (char)(0xc0 | c >> 6);
            out[used++] = (char)(0x80 | (c & 0x3f));
        } else {
            out[used++] = (char)(0xe0 | c >> 12);
            out[used++] = (char)(0x80 | (c >> 6 & 0x3f));
            out[used++] = (char)(0x80 | (c & 0x3f));
        }
    }
    *out_count = used;
    return out;
}

bool dr_is_binary(const char *bytes, size_t count)
{
    size_t strange = 0;

    if (count > 65536)
        count = 65536;
    for (size_t i = 0; i < count; i++) {
        const unsigned char c = (unsigned char)bytes[i];

        strange += c == 0 ||
                (c < 32 && c != '\t' && c != '\n' && c != '\r' && c != 27 &&
                        c != '\f' && c != '\b' && c != 7);
    }
    return strange > count / 10;
}

/* ---- prompts ---- */

/* Commands that people type as root, to tell "# lspci -vv" from a remark. */
static bool is_command_word(const char *at, size_t length)
{
    static const char *const words[] = { "amd-smi", "arp", "arping", "bash", "cat",
        "cd", "curl", "date", "dmesg", "dmidecode", "docker", "echo", "env", "ethtool",
        "export", "fi_info", "find", "for", "getent", "grep", "head", "hipcc", "hy-smi",
        "hostname", "ibdev2netdev", "ibstat", "ibv_devices", "ibv_devinfo", "id",
        "ifconfig", "ip", "iw", "journalctl", "kubectl", "last", "ldconfig", "ldd",
        "ls", "lsb_release", "lscpu", "lsmod", "lspci", "mpirun", "mthreads-gmi", "nc",
        "ncclras", "nm", "nvidia-smi", "pct", "ping", "pip", "pip3", "podman",
        "printenv", "ps", "pvesh", "pveversion", "py-spy", "python", "python3", "qm",
        "rdma", "readelf", "readlink", "rocm-smi", "rocminfo", "setpci", "srun", "ssh",
        "strings", "sudo", "sysctl", "systemctl", "systemd-detect-virt", "tail",
        "telnet", "timeout", "torchrun", "ulimit", "uname", "uptime", "virsh", "zcat",
        "zgrep" };

    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        if (strlen(words[i]) == length && memcmp(words[i], at, length) == 0)
            return true;
    return length > 1 && (at[0] == '/' || (at[0] == '.' && at[1] == '/'));
}

static bool is_host_byte(char c)
{
    return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

/* The name of an environment before a prompt: "(venv) ". */
static size_t environment(const char *text)
{
    const size_t length = text[0] == '(' ? strcspn(text + 1, " ()") + 1 : 0;

    return length > 1 && dr_begins(text + length, ") ") ? length + 2 : 0;
}

/* "user@host:~/x$ ", "host$ ", "[user@host dir]# ": the host's name, and where the command
 * begins; 0 if @p text is no prompt. */
static size_t prompt(const char *text, struct dr_span *host)
{
    const size_t skip = environment(text);
    const bool bracket = text[skip] == '[';
    const char *at = text + skip + bracket, *name = at;

    while (is_host_byte(*at))
        at++;
    if (*at == '@') {
        name = ++at;
        while (is_host_byte(*at))
            at++;
    } else if (bracket) {
        return 0;
    }
    *host = (struct dr_span){ name, (size_t)(at - name) };
    if (*at == ':' || (bracket && *at == ' ')) {
        const size_t path = strcspn(at, bracket ? "]" : "$# ");

        at += path + (bracket && at[path] == ']');
        /* "host:~ # ", as SUSE has it */
        if (path > 1 && (at[1 - (int)path] == '~' || at[1 - (int)path] == '/') &&
                at[0] == ' ' && at[1] == '#')
            at++;
    } else if (name > text + skip && *at == ' ' && (at[1] == '~' || at[1] == '/')) {
        const size_t path = strcspn(at + 1, " ") + 1; /* "user@host ~ % ", zsh's */

        return dr_begins(at + path, " % ") ? (size_t)(at + path - text) + 2 : 0;
    }
    if ((*at != '$' && *at != '#') || (at[1] != ' ' && at[1] != 0))
        return 0;
    if (*at == '#' && host->length == 0)
        return 0; /* "# text": a remark or root's prompt */
    return (size_t)(at - text) + 1;
}

void dr_look_at_line(struct dr_line *line, struct dr_span *host)
{
    const char *text = line->text;
    const size_t end = prompt(text, host);
    size_t at = 1;
    struct dr_span word;

    if (end > 0) {
        line->flags |= DR_COMMAND;
        return;
    }
    *host = (struct dr_span){ NULL, 0 };
    if (text[0] == '+' && text[1] == ' ') {
        line->flags |= DR_COMMAND; /* what sh -x prints */
    } else if (text[0] == '#' && text[1] == ' ' && dr_word(text, &at, &word)) {
        line->flags |= is_command_word(word.at, word.length) ? DR_COMMAND : DR_REMARK;
    } else if (text[0] == '#' || (text[0] == '/' && text[1] == '/')) {
        line->flags |= DR_REMARK;
    }
}

const char *dr_typed(const struct dr_line *line)
{
    struct dr_span host;
    const size_t end = prompt(line->text, &host);
    const char *at = line->text + (end > 0 ? end : 1);

    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}
