/* SPDX-License-Identifier: Apache-2.0 */
/* Which machine this is: see node.h. */
#include "bootstrap/node.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

void motet_text_clean(char *out, size_t bytes, const char *text)
{
    size_t n = 0;

    for (; text[n] != '\0' && n + 1 < bytes; n++) {
        unsigned char c = (unsigned char)text[n];

        out[n] = c < 0x20 || c >= 0x7f ? '?' : text[n];
    }
    out[n] = '\0';
}

static uint64_t boot_hash(const char *host)
{
    char id[64];
    ssize_t n = -1;
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);

    if (fd >= 0) {
        n = read(fd, id, sizeof(id));
        close(fd);
    }
    return n > 0 ? motet_wire_hash(id, (size_t)n, 1)
                 : motet_wire_hash(host, strlen(host), 2);
}

void motet_node_describe(const motet_params *params, motet_node *out)
{
    const char *hostid = motet_param_text(params, MOTET_P_HOSTID);
    char host[256];

    if (gethostname(host, sizeof(host)) != 0)
        host[0] = '\0';
    host[sizeof(host) - 1] = '\0';
    motet_text_clean(out->host, sizeof(out->host),
            host[0] != '\0' ? host : "localhost");
    out->boot_hash = boot_hash(host);
    out->hash = out->boot_hash;
    if (hostid[0] != '\0') {
        motet_text_clean(out->name, sizeof(out->name), hostid);
        out->hash = motet_wire_hash(hostid, strlen(hostid), 3);
    } else {
        memcpy(out->name, out->host, sizeof(out->name));
    }
}
