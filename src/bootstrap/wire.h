/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What travels between a rank and the root service: layouts, encode and decode, no
 * I/O. All numbers are little-endian. Each message is a fixed header and a payload:
 *
 *     0  u32 magic    4  u16 version    6  u16 type    8  u32 payload bytes
 *     12 u32 zero    16  16 bytes: the secret of the id
 *
 *     rank → root   HELLO    who I am and what I bring; my descriptors ride with its
 *                            first byte (Unix sockets only)
 *     root → rank   WELCOME  hello taken; which process the root is, and which rank
 *                            lives in it, so that its death can be named. Comes again
 *                            when that rank becomes known
 *     root → rank   ROSTER   everybody joined: all entries, all descriptors; last
 *     root → rank   FAIL     result code and sentence; last
 *
 * A decoder believes nothing before the header passed: magic, a known type, and a
 * length that this type can have. The header, FAIL, and the first two words of
 * HELLO (rank, nranks) stay as they are in every later version: with them a rank of
 * another version can be told apart from a stranger, named, and told why.
 */
#ifndef MOTET_BOOTSTRAP_WIRE_H
#define MOTET_BOOTSTRAP_WIRE_H

#include "bootstrap/bootstrap.h"

#include <stdbool.h>

#define MOTET_WIRE_MAGIC        0x5754544du /* "MTTW" */
#define MOTET_WIRE_VERSION      1
#define MOTET_WIRE_HEADER_BYTES 32
#define MOTET_SECRET_BYTES      16

/** Longest payload of each type, bytes. */
#define MOTET_WIRE_HELLO_MAX   4096
#define MOTET_WIRE_WELCOME_MAX 256
#define MOTET_WIRE_FAIL_MAX    1024
#define MOTET_WIRE_ENTRY_MAX   (16 + 64 + MOTET_BLOB_MAX)
#define MOTET_WIRE_ROSTER_MAX  (4 + MOTET_MAX_RANKS * MOTET_WIRE_ENTRY_MAX)

/** Longest sentence of a FAIL, bytes with the NUL. */
#define MOTET_SENTENCE_MAX 960

/** Host and node names, bytes with the NUL; longer ones are cut. */
#define MOTET_NAME_MAX 64

typedef enum motet_wire_type {
    MOTET_WIRE_HELLO = 1,
    MOTET_WIRE_WELCOME = 2,
    MOTET_WIRE_ROSTER = 3,
    MOTET_WIRE_FAIL = 4
} motet_wire_type;

typedef struct motet_wire_header {
    uint16_t version;
    uint16_t type;
    uint32_t bytes; /**< of the payload */
    uint8_t secret[MOTET_SECRET_BYTES];
} motet_wire_header;

/** What a rank says of itself. */
typedef struct motet_hello {
    uint32_t rank, nranks;
    uint32_t pid, uid;     /**< as the rank sees itself                          */
    uint32_t nfds;         /**< how many descriptors it brings (0 over TCP)      */
    uint64_t remaining_ms; /**< until its deadline, 0 = none                     */
    uint64_t boot_hash;    /**< of the kernel's boot id: which machine           */
    uint64_t node_hash;    /**< of NCCL_HOSTID if it is set, else of the machine */
    char host[MOTET_NAME_MAX];
    char node[MOTET_NAME_MAX]; /**< NCCL_HOSTID, else the host name                  */
    char version[32];          /**< of the library                                   */
    char settings[MOTET_SETTINGS_MAX];
    uint32_t blob_bytes;
    uint8_t blob[MOTET_BLOB_MAX];
} motet_hello;

typedef struct motet_welcome {
    uint32_t pid;       /**< of the root                                 */
    uint32_t root_rank; /**< a rank of the root's process, or NO_RANK    */
    char host[MOTET_NAME_MAX];
} motet_welcome;

#define MOTET_NO_RANK 0xffffffffu

/** A bounded buffer that is written or read from front to end; `bad` sticks. */
typedef struct motet_wire_writer {
    uint8_t *at, *end;
    bool bad; /**< something did not fit */
} motet_wire_writer;

typedef struct motet_wire_reader {
    const uint8_t *at, *end;
    bool bad; /**< something was missing or not as it must be */
} motet_wire_reader;

void motet_put_u16(motet_wire_writer *w, uint16_t value);
void motet_put_u32(motet_wire_writer *w, uint32_t value);
void motet_put_u64(motet_wire_writer *w, uint64_t value);
void motet_put_bytes(motet_wire_writer *w, const void *bytes, size_t n);
/** A u16 length and the bytes. */
void motet_put_text(motet_wire_writer *w, const char *text);

uint16_t motet_get_u16(motet_wire_reader *r);
uint32_t motet_get_u32(motet_wire_reader *r);
uint64_t motet_get_u64(motet_wire_reader *r);
void motet_get_bytes(motet_wire_reader *r, void *out, size_t n);
/** Refuses what does not fit @p bytes with its NUL, and control characters but '\n'. */
void motet_get_text(motet_wire_reader *r, char *out, size_t bytes);

/** Not for secrets: tells equal texts apart from different ones. */
uint64_t motet_wire_hash(const void *bytes, size_t n, uint64_t seed);

/** Write a header in front of a payload of @p payload_bytes. */
void motet_wire_put_header(uint8_t out[MOTET_WIRE_HEADER_BYTES], motet_wire_type type,
        size_t payload_bytes, const uint8_t secret[MOTET_SECRET_BYTES]);

/** False if it is not one of our headers. Version and secret are the caller's to compare. */
bool motet_wire_get_header(const uint8_t in[MOTET_WIRE_HEADER_BYTES],
        motet_wire_header *out);

/** Whole messages, header included: bytes written into @p out, or 0 if @p room is too small. */
size_t motet_wire_put_hello(uint8_t *out, size_t room, const motet_hello *hello,
        const uint8_t secret[MOTET_SECRET_BYTES]);
size_t motet_wire_put_welcome(uint8_t *out, size_t room, const motet_welcome *welcome,
        const uint8_t secret[MOTET_SECRET_BYTES]);
size_t motet_wire_put_fail(uint8_t *out, size_t room, motet_result result,
        const char *sentence, const uint8_t secret[MOTET_SECRET_BYTES]);

/** One entry of a ROSTER's payload, which starts with a u32 nranks. */
void motet_wire_put_entry(motet_wire_writer *w, uint32_t pid, const motet_hello *hello);

/** Payloads. False if malformed; @p out is then undefined. */
bool motet_wire_get_hello(const uint8_t *in, size_t n, motet_hello *out);
/** Only rank and nranks, of a hello of another version. */
bool motet_wire_get_hello_ranks(const uint8_t *in, size_t n, motet_hello *out);
bool motet_wire_get_welcome(const uint8_t *in, size_t n, motet_welcome *out);
bool motet_wire_get_fail(const uint8_t *in, size_t n, motet_result *result_out,
        char sentence[MOTET_SENTENCE_MAX]);
/** @p nfds_out[r]: how many descriptors of the message are rank r's, in rank order. */
bool motet_wire_get_roster(const uint8_t *in, size_t n, int nranks,
        motet_roster_entry *entries, int *nfds_out);

#endif
