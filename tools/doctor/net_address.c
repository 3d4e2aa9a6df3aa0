/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of the Internet protocols, as text. */
#include "job.h"

#include <arpa/inet.h>
#include <string.h>

/* The bytes of an address, its scope ("%eth0") and brackets left out; how many, 0: none.
 * IPv4 written as IPv6 is IPv4. */
static size_t bytes_of(const char *text, size_t length, unsigned char out[16])
{
    static const unsigned char mapped[12] = { [10] = 0xff, [11] = 0xff };
    char copy[64];
    const char *scope = memchr(text, '%', length);

    if (scope != NULL)
        length = (size_t)(scope - text);
    if (length == 0 || length >= sizeof(copy))
        return 0;
    memcpy(copy, text, length);
    copy[length] = 0;
    if (inet_pton(AF_INET, copy, out) == 1)
        return 4;
    if (inet_pton(AF_INET6, copy, out) != 1)
        return 0;
    if (memcmp(out, mapped, sizeof(mapped)) != 0)
        return 16;
    memmove(out, out + 12, 4);
    return 4;
}

bool dr_is_address(const char *text, size_t length)
{
    unsigned char bytes[16];

    return bytes_of(text, length, bytes) > 0;
}

bool dr_is_loopback(const char *address)
{
    static const unsigned char one[16] = { [15] = 1 };
    unsigned char bytes[16];
    const size_t count = bytes_of(address, strlen(address), bytes);

    return (count == 4 && bytes[0] == 127) ||
            (count == 16 && memcmp(bytes, one, sizeof(one)) == 0);
}

bool dr_is_link_local(const char *address)
{
    unsigned char bytes[16];
    const size_t count = bytes_of(address, strlen(address), bytes);

    return (count == 4 && bytes[0] == 169 && bytes[1] == 254) ||
            (count == 16 && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80);
}

bool dr_is_global(const char *address)
{
    static const unsigned char none[16] = { 0 };
    unsigned char bytes[16];
    const size_t count = bytes_of(address, strlen(address), bytes);

    return count > 0 && memcmp(bytes, none, count) != 0 && !dr_is_loopback(address) &&
            !dr_is_link_local(address);
}

bool dr_same_network(const char *a, const char *b, uint32_t prefix)
{
    unsigned char x[16], y[16];
    const size_t count = bytes_of(a, strlen(a), x);

    if (count == 0 || bytes_of(b, strlen(b), y) != count || prefix > count * 8)
        return false;
    for (uint32_t bit = 0; bit < prefix; bit++)
        if (((x[bit / 8] ^ y[bit / 8]) >> (7 - bit % 8) & 1) != 0)
            return false;
    return true;
}
