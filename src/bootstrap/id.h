/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of a unique id: 128 bytes, little-endian.
 *
 *       0  8 bytes "MOTETID1"            8  u16 wire version of its maker
 *      10  u8 flags                     11  u8 number of addresses
 *      12  u32 checksum of all, with these four bytes zero
 *      16  16 secret random bytes       32  8 random bytes: name of the Unix sockets
 *      40  u32 pid    44  u32 uid of the maker, for messages and the path
 *      48  u64 hash of its boot id
 *      56  2 × { u8 family (4, 6), u8 zero, u16 port, 16 bytes address }
 *      96  u8 folder of the path socket, u8 zero
 *      98  30 bytes: host name, NUL-padded
 *
 * The name is not made from the secret: abstract names are visible to every user in
 * /proc/net/unix. The secret is what a stranger on the TCP port lacks; it is sent in
 * clear, so it keeps out accidents and the curious, not somebody on the wire.
 *
 * A fixed id comes from NCCL_COMM_ID: secret and name are hashes of its text, pid and
 * host are empty, so that every process makes the same bytes.
 */
#ifndef MOTET_BOOTSTRAP_ID_H
#define MOTET_BOOTSTRAP_ID_H

#include "bootstrap/sock.h"
#include "bootstrap/wire.h"

#define MOTET_ID_NAME_BYTES 8
#define MOTET_ID_ADDRS      2

/** Where the path socket lies. */
typedef enum motet_id_folder {
    MOTET_FOLDER_NONE,     /**< there is none, or (fixed id) nobody knows yet */
    MOTET_FOLDER_TMP,      /**< /tmp                                          */
    MOTET_FOLDER_RUN_USER, /**< /run/user/UID                                 */
    MOTET_FOLDER_XDG       /**< some other $XDG_RUNTIME_DIR                   */
} motet_id_folder;

typedef struct motet_id_fields {
    bool fixed; /**< from NCCL_COMM_ID: rank 0 starts the service */
    uint8_t secret[MOTET_SECRET_BYTES];
    uint8_t name[MOTET_ID_NAME_BYTES];
    uint32_t pid, uid;
    uint64_t boot_hash;
    int naddrs;
    motet_inet addr[MOTET_ID_ADDRS];
    motet_id_folder folder;
    char host[30];
} motet_id_fields;

void motet_id_encode(const motet_id_fields *fields, motet_id *out);

/** motet_id_check() and what it found. */
MOTET_MUST_USE motet_result motet_id_decode(const motet_id *id, motet_id_fields *out);

/** A new id's secret and name, from the kernel. */
MOTET_MUST_USE motet_result motet_id_random(motet_id_fields *fields);

/** Fill a fixed id from "host:port", "[ipv6]:port" or "ipv4:port"; looks the host's name up. */
MOTET_MUST_USE motet_result motet_id_from_address(const char *text, int family,
        motet_id_fields *out);

/** Name of the abstract socket. */
void motet_id_abstract_name(const motet_id_fields *fields, motet_unix_name *out);

/** Path of the socket in @p folder. False if there is none or it would be too long. */
bool motet_id_path_name(const motet_id_fields *fields, const motet_params *params,
        motet_id_folder folder, motet_unix_name *out);

#endif
