/* SPDX-License-Identifier: Apache-2.0 */
/* The unique id: making, reading, and saying what it is when it is not ours. */
#include "bootstrap/id.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static const char id_magic[8] = { 'M', 'O', 'T', 'E', 'T', 'I', 'D', '1' };

#define CHECKSUM_AT 12
#define FLAG_FIXED  1u

_Static_assert(98 + sizeof(((motet_id_fields *)0)->host) == MOTET_ID_BYTES,
        "the host name fills the id");

static uint32_t checksum(const motet_id *id)
{
    motet_id copy = *id;

    memset(copy.bytes + CHECKSUM_AT, 0, 4);
    return (uint32_t)motet_wire_hash(copy.bytes, sizeof(copy.bytes), 4);
}

static void put_byte(motet_wire_writer *w, unsigned value)
{
    uint8_t byte = (uint8_t)value;

    motet_put_bytes(w, &byte, 1);
}

static uint8_t get_byte(motet_wire_reader *r)
{
    uint8_t byte;

    motet_get_bytes(r, &byte, 1);
    return byte;
}

void motet_id_encode(const motet_id_fields *fields, motet_id *out)
{
    motet_wire_writer w = { .at = out->bytes, .end = out->bytes + MOTET_ID_BYTES };
    motet_wire_writer sum = { .at = out->bytes + CHECKSUM_AT,
        .end = out->bytes + CHECKSUM_AT + 4 };

    memset(out, 0, sizeof(*out));
    motet_put_bytes(&w, id_magic, sizeof(id_magic));
    motet_put_u16(&w, MOTET_WIRE_VERSION);
    put_byte(&w, fields->fixed ? FLAG_FIXED : 0);
    put_byte(&w, (unsigned)fields->naddrs);
    motet_put_u32(&w, 0);
    motet_put_bytes(&w, fields->secret, sizeof(fields->secret));
    motet_put_bytes(&w, fields->name, sizeof(fields->name));
    motet_put_u32(&w, fields->pid);
    motet_put_u32(&w, fields->uid);
    motet_put_u64(&w, fields->boot_hash);
    for (int i = 0; i < MOTET_ID_ADDRS; i++) {
        const motet_inet *addr = &fields->addr[i];

        put_byte(&w, addr->family == AF_INET6 ? 6 : addr->family == AF_INET ? 4 : 0);
        put_byte(&w, 0);
        motet_put_u16(&w, addr->port);
        motet_put_bytes(&w, addr->ip, sizeof(addr->ip));
    }
    put_byte(&w, (unsigned)fields->folder);
    put_byte(&w, 0);
    motet_put_bytes(&w, fields->host, sizeof(fields->host));
    motet_put_u32(&sum, checksum(out));
}

static bool decode_address(motet_wire_reader *r, bool used, motet_inet *out)
{
    uint8_t family = get_byte(r), zero = get_byte(r);

    out->family = family == 6 ? AF_INET6 : family == 4 ? AF_INET : 0;
    out->port = motet_get_u16(r);
    motet_get_bytes(r, out->ip, sizeof(out->ip));
    return zero == 0 && (used ? out->family != 0 && out->port != 0 : family == 0);
}

static bool decode_fields(const motet_id *id, motet_id_fields *out)
{
    motet_wire_reader r = { .at = id->bytes + 10, .end = id->bytes + MOTET_ID_BYTES };
    uint8_t flags = get_byte(&r), folder;
    bool good = (flags & ~FLAG_FIXED) == 0;

    memset(out, 0, sizeof(*out));
    out->fixed = (flags & FLAG_FIXED) != 0;
    out->naddrs = get_byte(&r);
    good = good && out->naddrs <= MOTET_ID_ADDRS && motet_get_u32(&r) == checksum(id);
    motet_get_bytes(&r, out->secret, sizeof(out->secret));
    motet_get_bytes(&r, out->name, sizeof(out->name));
    out->pid = motet_get_u32(&r);
    out->uid = motet_get_u32(&r);
    out->boot_hash = motet_get_u64(&r);
    for (int i = 0; good && i < MOTET_ID_ADDRS; i++)
        good = decode_address(&r, i < out->naddrs, &out->addr[i]);
    folder = get_byte(&r);
    out->folder = (motet_id_folder)folder;
    good = good && folder <= MOTET_FOLDER_XDG && get_byte(&r) == 0;
    motet_get_bytes(&r, out->host, sizeof(out->host));
    for (size_t i = 0; good && i < sizeof(out->host); i++)
        good = out->host[i] == '\0' || (out->host[i] >= 0x20 && out->host[i] < 0x7f);
    return good && !r.bad && out->host[sizeof(out->host) - 1] == '\0';
}

static bool all_zero(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

/* NCCL's ids hold a random word, a socket address at 8, a rank count at 36, zeros. */
static bool looks_like_nccl(const motet_id *id, unsigned *family)
{
    uint16_t at_8;

    memcpy(&at_8, id->bytes + 8, sizeof(at_8));
    *family = at_8;
    return (at_8 == AF_INET || at_8 == AF_INET6) && all_zero(id->bytes + 40, 88);
}

static motet_result not_ours(const motet_id *id)
{
    unsigned family;

    if (all_zero(id->bytes, MOTET_ID_BYTES))
        return motet_fail(MOTET_ERR_ARGUMENT,
                "this id was not made by motet (all %d bytes are zero: it was never "
                "filled in, or did not reach this rank)",
                MOTET_ID_BYTES);
    if (looks_like_nccl(id, &family))
        return motet_fail(MOTET_ERR_ARGUMENT,
                "this id was not made by motet (it looks like one of NCCL's: family %u "
                "at offset 8): the process that made it runs another library",
                family);
    if (memcmp(id->bytes, id_magic, sizeof(id_magic) - 1) == 0)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "this id was made by another version of motet (format 0x%02x, this "
                "version reads 0x%02x)",
                (unsigned)id->bytes[7], (unsigned)id_magic[7]);
    return motet_fail(MOTET_ERR_ARGUMENT,
            "this id was not made by motet (it begins with %02x %02x %02x %02x, not "
            "with "
            "'MOTETID1')",
            (unsigned)id->bytes[0], (unsigned)id->bytes[1], (unsigned)id->bytes[2],
            (unsigned)id->bytes[3]);
}

motet_result motet_id_decode(const motet_id *id, motet_id_fields *out)
{
    motet_wire_reader r;
    motet_id_fields fields;
    uint16_t version;

    if (id == NULL)
        return motet_fail(MOTET_ERR_ARGUMENT, "the unique id is NULL");
    if (memcmp(id->bytes, id_magic, sizeof(id_magic)) != 0)
        return not_ours(id);
    r = (motet_wire_reader){ .at = id->bytes + 8, .end = id->bytes + 10 };
    version = motet_get_u16(&r);
    if (version != MOTET_WIRE_VERSION)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "this id was made by another version of motet (wire version %u, this "
                "version speaks %d)",
                (unsigned)version, MOTET_WIRE_VERSION);
    if (!decode_fields(id, &fields))
        return motet_fail(MOTET_ERR_ARGUMENT,
                "this id was made by motet but is damaged: its %d bytes must reach "
                "every "
                "rank unchanged",
                MOTET_ID_BYTES);
    *out = fields;
    return MOTET_OK;
}

motet_result motet_id_check(const motet_id *id)
{
    motet_id_fields fields;

    return motet_id_decode(id, &fields);
}

motet_result motet_id_random(motet_id_fields *fields)
{
    uint8_t bytes[MOTET_SECRET_BYTES + MOTET_ID_NAME_BYTES];
    size_t have = 0;

    while (have < sizeof(bytes)) {
        ssize_t n = getrandom(bytes + have, sizeof(bytes) - have, 0);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return motet_fail_errno(MOTET_ERR_SYSTEM,
                    "get %zu random bytes for a unique id", sizeof(bytes));
        have += (size_t)n;
    }
    memcpy(fields->secret, bytes, MOTET_SECRET_BYTES);
    memcpy(fields->name, bytes + MOTET_SECRET_BYTES, MOTET_ID_NAME_BYTES);
    return MOTET_OK;
}

/* "host:port" or "[host]:port" into its parts. */
static bool split_address(const char *text, char host[256], const char **port)
{
    const char *colon = strrchr(text, ':');
    size_t len;

    if (colon == NULL || colon == text)
        return false;
    len = (size_t)(colon - text);
    if (text[0] == '[') {
        if (len < 3 || text[len - 1] != ']')
            return false;
        text++;
        len -= 2;
    } else if (memchr(text, ':', len) != NULL) {
        return false; /* an IPv6 address needs its brackets, or the port is ambiguous */
    }
    if (len >= 256)
        return false;
    memcpy(host, text, len);
    host[len] = '\0';
    *port = colon + 1;
    return true;
}

static motet_result look_up(const char *text, const char *host, uint16_t port,
        int family, motet_id_fields *out)
{
    struct addrinfo hints = { .ai_family = family, .ai_socktype = SOCK_STREAM };
    struct addrinfo *found = NULL;
    int error;

    /* what can only be an address, right or wrong, is nothing to ask a name server */
    if (text[0] == '[' || strspn(host, "0123456789.") == strlen(host))
        hints.ai_flags = AI_NUMERICHOST;
    error = getaddrinfo(host, NULL, &hints, &found);
    if (error != 0)
        return motet_fail(error == EAI_SYSTEM || error == EAI_MEMORY
                        ? MOTET_ERR_SYSTEM
                        : MOTET_ERR_ARGUMENT,
                "NCCL_COMM_ID is '%s', and '%s' is no address: %s", text, host,
                gai_strerror(error));
    out->naddrs = 0;
    for (const struct addrinfo *at = found; at != NULL && out->naddrs == 0;
            at = at->ai_next)
        if (motet_inet_from_sockaddr(at->ai_addr, &out->addr[0]))
            out->naddrs = 1;
    freeaddrinfo(found);
    if (out->naddrs == 0)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "NCCL_COMM_ID is '%s', and '%s' has no IP address", text, host);
    out->addr[0].port = port;
    return MOTET_OK;
}

motet_result motet_id_from_address(const char *text, int family, motet_id_fields *out)
{
    motet_id_fields fields = { .fixed = true };
    char host[256];
    const char *port;
    motet_port_range range = { 0, 0 };
    uint64_t hash[3];

    if (!split_address(text, host, &port) || *port == '\0' ||
            strchr(port, '-') != NULL ||
            motet_port_range_parse(port, &range) != MOTET_OK)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "NCCL_COMM_ID is '%s', need host:port or [ipv6]:port with a port "
                "between "
                "1 and 65535",
                text);
    MOTET_TRY(look_up(text, host, range.low, family, &fields),
            "read the rendezvous address");
    for (size_t i = 0; i < 3; i++)
        hash[i] = motet_wire_hash(text, strlen(text), 5 + i);
    memcpy(fields.secret, hash, MOTET_SECRET_BYTES);
    memcpy(fields.name, &hash[2], MOTET_ID_NAME_BYTES);
    *out = fields;
    return MOTET_OK;
}

static void hex_name(const motet_id_fields *fields,
        char out[2 * MOTET_ID_NAME_BYTES + 1])
{
    for (size_t i = 0; i < MOTET_ID_NAME_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", (unsigned)fields->name[i]);
}

void motet_id_abstract_name(const motet_id_fields *fields, motet_unix_name *out)
{
    char hex[2 * MOTET_ID_NAME_BYTES + 1];
    int len;

    hex_name(fields, hex);
    memset(out, 0, sizeof(*out));
    out->addr.sun_family = AF_UNIX;
    len = snprintf(out->addr.sun_path + 1, sizeof(out->addr.sun_path) - 1, "motet-%s",
            hex);
    out->bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len);
}

bool motet_id_path_name(const motet_id_fields *fields, const motet_params *params,
        motet_id_folder folder, motet_unix_name *out)
{
    char hex[2 * MOTET_ID_NAME_BYTES + 1], run_user[32];
    const char *dir = "/tmp";
    uint32_t uid = fields->fixed ? (uint32_t)geteuid() : fields->uid;
    int len;

    if (folder == MOTET_FOLDER_NONE)
        return false;
    snprintf(run_user, sizeof(run_user), "/run/user/%u", (unsigned)uid);
    if (folder == MOTET_FOLDER_RUN_USER)
        dir = run_user;
    else if (folder == MOTET_FOLDER_XDG)
        dir = motet_param_text(params, MOTET_P_XDG_RUNTIME_DIR);
    if (dir[0] != '/')
        return false;
    hex_name(fields, hex);
    memset(out, 0, sizeof(*out));
    out->addr.sun_family = AF_UNIX;
    len = snprintf(out->addr.sun_path, sizeof(out->addr.sun_path),
            "%s/motet-%u-%s.sock", dir, (unsigned)uid, hex);
    out->bytes = (socklen_t)sizeof(out->addr);
    return len > 0 && (size_t)len < sizeof(out->addr.sun_path);
}
