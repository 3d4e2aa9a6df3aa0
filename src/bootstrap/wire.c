/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the rendezvous: see wire.h. */
#include "bootstrap/wire.h"

#include <string.h>

/* The longest entry, text and blob lengths included, must be what ENTRY_MAX says. */
_Static_assert(4 + 4 + 2 + MOTET_NAME_MAX + 4 + MOTET_BLOB_MAX <= MOTET_WIRE_ENTRY_MAX,
        "an entry fits");
_Static_assert(3 * (2 + MOTET_NAME_MAX) + 2 + MOTET_SETTINGS_MAX + MOTET_BLOB_MAX +
                        64 <=
                MOTET_WIRE_HELLO_MAX,
        "a hello fits");

static void put_le(motet_wire_writer *w, uint64_t value, size_t n)
{
    uint8_t bytes[8];

    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    motet_put_bytes(w, bytes, n);
}

void motet_put_u16(motet_wire_writer *w, uint16_t value)
{
    put_le(w, value, 2);
}

void motet_put_u32(motet_wire_writer *w, uint32_t value)
{
    put_le(w, value, 4);
}

void motet_put_u64(motet_wire_writer *w, uint64_t value)
{
    put_le(w, value, 8);
}

void motet_put_bytes(motet_wire_writer *w, const void *bytes, size_t n)
{
    if (w->bad || (size_t)(w->end - w->at) < n) {
        w->bad = true;
        return;
    }
    if (n > 0)
        memcpy(w->at, bytes, n);
    w->at += n;
}

void motet_put_text(motet_wire_writer *w, const char *text)
{
    size_t n = strlen(text);

    if (n > UINT16_MAX) {
        w->bad = true;
        return;
    }
    motet_put_u16(w, (uint16_t)n);
    motet_put_bytes(w, text, n);
}

static uint64_t get_le(motet_wire_reader *r, size_t n)
{
    uint8_t bytes[8] = { 0 };
    uint64_t value = 0;

    motet_get_bytes(r, bytes, n);
    for (size_t i = 0; i < n; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

uint16_t motet_get_u16(motet_wire_reader *r)
{
    return (uint16_t)get_le(r, 2);
}

uint32_t motet_get_u32(motet_wire_reader *r)
{
    return (uint32_t)get_le(r, 4);
}

uint64_t motet_get_u64(motet_wire_reader *r)
{
    return get_le(r, 8);
}

void motet_get_bytes(motet_wire_reader *r, void *out, size_t n)
{
    if (r->bad || (size_t)(r->end - r->at) < n) {
        r->bad = true;
        memset(out, 0, n);
        return;
    }
    memcpy(out, r->at, n);
    r->at += n;
}

void motet_get_text(motet_wire_reader *r, char *out, size_t bytes)
{
    size_t n = motet_get_u16(r);

    out[0] = '\0';
    if (r->bad || n >= bytes || n > (size_t)(r->end - r->at)) {
        r->bad = true;
        return;
    }
    motet_get_bytes(r, out, n);
    out[n] = '\0';
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)out[i];

        if ((c < 0x20 && c != '\n') || c == 0x7f)
            r->bad = true;
    }
}

uint64_t motet_wire_hash(const void *bytes, size_t n, uint64_t seed)
{
    const uint8_t *at = bytes;
    uint64_t h = 0xcbf29ce484222325u ^ (seed * 0x9e3779b97f4a7c15u); /* FNV-1a */

    for (size_t i = 0; i < n; i++)
        h = (h ^ at[i]) * 0x100000001b3u;
    h = (h ^ (h >> 32)) * 0xd6e8feb86659fd93u; /* spread the last bytes over all bits */
    return h ^ (h >> 32);
}

void motet_wire_put_header(uint8_t out[MOTET_WIRE_HEADER_BYTES], motet_wire_type type,
        size_t payload_bytes, const uint8_t secret[MOTET_SECRET_BYTES])
{
    motet_wire_writer w = { .at = out, .end = out + MOTET_WIRE_HEADER_BYTES };

    motet_put_u32(&w, MOTET_WIRE_MAGIC);
    motet_put_u16(&w, MOTET_WIRE_VERSION);
    motet_put_u16(&w, (uint16_t)type);
    motet_put_u32(&w, (uint32_t)payload_bytes);
    motet_put_u32(&w, 0);
    motet_put_bytes(&w, secret, MOTET_SECRET_BYTES);
}

static uint32_t payload_max(uint16_t type)
{
    switch (type) {
    case MOTET_WIRE_HELLO: return MOTET_WIRE_HELLO_MAX;
    case MOTET_WIRE_WELCOME: return MOTET_WIRE_WELCOME_MAX;
    case MOTET_WIRE_ROSTER: return MOTET_WIRE_ROSTER_MAX;
    case MOTET_WIRE_FAIL: return MOTET_WIRE_FAIL_MAX;
    default: return 0;
    }
}

bool motet_wire_get_header(const uint8_t in[MOTET_WIRE_HEADER_BYTES],
        motet_wire_header *out)
{
    motet_wire_reader r = { .at = in, .end = in + MOTET_WIRE_HEADER_BYTES };
    uint32_t magic = motet_get_u32(&r), zero;

    out->version = motet_get_u16(&r);
    out->type = motet_get_u16(&r);
    out->bytes = motet_get_u32(&r);
    zero = motet_get_u32(&r);
    motet_get_bytes(&r, out->secret, MOTET_SECRET_BYTES);
    return magic == MOTET_WIRE_MAGIC && zero == 0 && out->bytes >= 4 &&
            out->bytes <= payload_max(out->type);
}

/* Leave room for the header; the payload is written behind it. */
static motet_wire_writer begin(uint8_t *out, size_t room)
{
    motet_wire_writer w = { .at = out, .end = out + room };

    if (room < MOTET_WIRE_HEADER_BYTES)
        w.bad = true;
    else
        w.at += MOTET_WIRE_HEADER_BYTES;
    return w;
}

static size_t finish(const motet_wire_writer *w, uint8_t *out, motet_wire_type type,
        const uint8_t secret[MOTET_SECRET_BYTES])
{
    size_t bytes;

    if (w->bad)
        return 0;
    bytes = (size_t)(w->at - out);
    motet_wire_put_header(out, type, bytes - MOTET_WIRE_HEADER_BYTES, secret);
    return bytes;
}

size_t motet_wire_put_hello(uint8_t *out, size_t room, const motet_hello *hello,
        const uint8_t secret[MOTET_SECRET_BYTES])
{
    motet_wire_writer w = begin(out, room);

    motet_put_u32(&w, hello->rank);
    motet_put_u32(&w, hello->nranks);
    motet_put_u32(&w, hello->pid);
    motet_put_u32(&w, hello->uid);
    motet_put_u32(&w, hello->nfds);
    motet_put_u64(&w, hello->remaining_ms);
    motet_put_u64(&w, hello->boot_hash);
    motet_put_u64(&w, hello->node_hash);
    motet_put_text(&w, hello->host);
    motet_put_text(&w, hello->node);
    motet_put_text(&w, hello->version);
    motet_put_text(&w, hello->settings);
    motet_put_u32(&w, hello->blob_bytes);
    motet_put_bytes(&w, hello->blob, hello->blob_bytes);
    return finish(&w, out, MOTET_WIRE_HELLO, secret);
}

bool motet_wire_get_hello_ranks(const uint8_t *in, size_t n, motet_hello *out)
{
    motet_wire_reader r = { .at = in, .end = in + n };

    memset(out, 0, sizeof(*out));
    out->rank = motet_get_u32(&r);
    out->nranks = motet_get_u32(&r);
    return !r.bad && out->nranks >= 1 && out->nranks <= MOTET_MAX_RANKS &&
            out->rank < out->nranks;
}

bool motet_wire_get_hello(const uint8_t *in, size_t n, motet_hello *out)
{
    motet_wire_reader r = { .at = in, .end = in + n };

    if (!motet_wire_get_hello_ranks(in, n, out))
        return false;
    r.at += 8;
    out->pid = motet_get_u32(&r);
    out->uid = motet_get_u32(&r);
    out->nfds = motet_get_u32(&r);
    out->remaining_ms = motet_get_u64(&r);
    out->boot_hash = motet_get_u64(&r);
    out->node_hash = motet_get_u64(&r);
    motet_get_text(&r, out->host, sizeof(out->host));
    motet_get_text(&r, out->node, sizeof(out->node));
    motet_get_text(&r, out->version, sizeof(out->version));
    motet_get_text(&r, out->settings, sizeof(out->settings));
    out->blob_bytes = motet_get_u32(&r);
    if (out->blob_bytes > MOTET_BLOB_MAX || out->nfds > MOTET_JOIN_FDS)
        return false;
    motet_get_bytes(&r, out->blob, out->blob_bytes);
    return !r.bad && r.at == r.end;
}

size_t motet_wire_put_welcome(uint8_t *out, size_t room, const motet_welcome *welcome,
        const uint8_t secret[MOTET_SECRET_BYTES])
{
    motet_wire_writer w = begin(out, room);

    motet_put_u32(&w, welcome->pid);
    motet_put_u32(&w, welcome->root_rank);
    motet_put_text(&w, welcome->host);
    return finish(&w, out, MOTET_WIRE_WELCOME, secret);
}

bool motet_wire_get_welcome(const uint8_t *in, size_t n, motet_welcome *out)
{
    motet_wire_reader r = { .at = in, .end = in + n };

    out->pid = motet_get_u32(&r);
    out->root_rank = motet_get_u32(&r);
    motet_get_text(&r, out->host, sizeof(out->host));
    return !r.bad && r.at == r.end;
}

size_t motet_wire_put_fail(uint8_t *out, size_t room, motet_result result,
        const char *sentence, const uint8_t secret[MOTET_SECRET_BYTES])
{
    motet_wire_writer w = begin(out, room);

    motet_put_u32(&w, (uint32_t)result);
    motet_put_text(&w, sentence);
    return finish(&w, out, MOTET_WIRE_FAIL, secret);
}

bool motet_wire_get_fail(const uint8_t *in, size_t n, motet_result *result_out,
        char sentence[MOTET_SENTENCE_MAX])
{
    motet_wire_reader r = { .at = in, .end = in + n };
    uint32_t result = motet_get_u32(&r);

    motet_get_text(&r, sentence, MOTET_SENTENCE_MAX);
    if (r.bad || r.at != r.end || result == MOTET_OK || result == MOTET_IN_PROGRESS ||
            result >= MOTET_NUM_RESULTS)
        return false;
    *result_out = (motet_result)result;
    return true;
}

void motet_wire_put_entry(motet_wire_writer *w, uint32_t pid, const motet_hello *hello)
{
    motet_put_u32(w, pid);
    motet_put_u32(w, hello->nfds);
    motet_put_text(w, hello->host);
    motet_put_u32(w, hello->blob_bytes);
    motet_put_bytes(w, hello->blob, hello->blob_bytes);
}

bool motet_wire_get_roster(const uint8_t *in, size_t n, int nranks,
        motet_roster_entry *entries, int *nfds_out)
{
    motet_wire_reader r = { .at = in, .end = in + n };

    if (motet_get_u32(&r) != (uint32_t)nranks)
        return false;
    for (int i = 0; i < nranks && !r.bad; i++) {
        motet_roster_entry *entry = &entries[i];
        uint32_t nfds;

        entry->pid = (pid_t)motet_get_u32(&r);
        nfds = motet_get_u32(&r);
        motet_get_text(&r, entry->host, sizeof(entry->host));
        entry->blob_bytes = motet_get_u32(&r);
        if (nfds > MOTET_JOIN_FDS || entry->blob_bytes > MOTET_BLOB_MAX)
            return false;
        motet_get_bytes(&r, entry->blob, entry->blob_bytes);
        nfds_out[i] = (int)nfds;
    }
    return !r.bad && r.at == r.end;
}
