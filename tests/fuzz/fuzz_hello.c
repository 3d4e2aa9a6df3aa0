/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as what a rank or the root of a rendezvous sends: whole payloads into the
 * decoders, and a stream into the root's connection reader, in pieces, under a good
 * header where the first byte says so. A hello that is accepted must encode to the
 * same bytes again, and the judge must put any two into a sentence.
 */
#include "bootstrap/conn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static const uint8_t secret[MOTET_SECRET_BYTES] = "0123456789abcde";

static void give_up(const char *what)
{
    fprintf(stderr, "fuzz_hello: %s\n", what);
    abort();
}

static void judge(const motet_hello *hello)
{
    static motet_hello good = { .rank = 0,
        .nranks = 2,
        .host = "alpha",
        .node = "alpha",
        .version = "0.1.0",
        .settings = "path=shared\nchunk=16384\n" };
    motet_root_facts root = { .pid = 7, .host = "alpha" };
    char sentence[MOTET_SENTENCE_MAX];

    for (int tcp = 0; tcp < 2; tcp++) {
        motet_member members[2] = {
            { .hello = &good, .pid = 1, .version = MOTET_WIRE_VERSION },
            { .hello = hello,
                    .pid = 2,
                    .version = MOTET_WIRE_VERSION,
                    .tcp = tcp != 0 },
        };
        motet_result result =
                motet_members_agree(members, 2, &root, sentence, sizeof(sentence));

        if ((result == MOTET_OK) != (sentence[0] == '\0'))
            give_up("a verdict without a sentence, or a sentence without one");
    }
    motet_members_absent(&(motet_member){ .hello = hello }, 1, (int)hello->nranks, 1000,
            sentence, sizeof(sentence));
}

static void check_payload(const uint8_t *data, size_t bytes)
{
    static motet_hello hello;
    static motet_roster_entry entries[MOTET_MAX_RANKS];
    static uint8_t again[MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_HELLO_MAX];
    int nfds[MOTET_MAX_RANKS];
    motet_welcome welcome;
    motet_result result;
    char sentence[MOTET_SENTENCE_MAX];

    if (motet_wire_get_hello(data, bytes, &hello)) {
        size_t n = motet_wire_put_hello(again, sizeof(again), &hello, secret);

        if (n != MOTET_WIRE_HEADER_BYTES + bytes ||
                memcmp(again + MOTET_WIRE_HEADER_BYTES, data, bytes) != 0)
            give_up("a hello was accepted that is not what it encodes to");
        judge(&hello);
    }
    (void)motet_wire_get_hello_ranks(data, bytes, &hello);
    (void)motet_wire_get_welcome(data, bytes, &welcome);
    if (motet_wire_get_fail(data, bytes, &result, sentence) && result == MOTET_OK)
        give_up("a failure that is none");
    for (int nranks = 1; nranks <= MOTET_MAX_RANKS; nranks += nranks)
        (void)motet_wire_get_roster(data, bytes, nranks, entries, nfds);
}

static void check_stream(const uint8_t *data, size_t bytes, bool header, size_t piece)
{
    uint8_t head[MOTET_WIRE_HEADER_BYTES];
    const char *why = "";
    motet_conn *conn;
    motet_conn_event event = MOTET_CONN_WAITS;
    int pair[2];

    if (bytes > MOTET_WIRE_HELLO_MAX ||
            socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) !=
                    0)
        return;
    conn = motet_conn_new(pair[0], false, 1, 0);
    motet_wire_put_header(head, MOTET_WIRE_HELLO, bytes, secret);
    if (header)
        (void)motet_sock_send(pair[1], head, sizeof(head), NULL, 0); /* room is ample */
    for (size_t at = 0; at < bytes && event == MOTET_CONN_WAITS; at += piece) {
        size_t n = bytes - at < piece ? bytes - at : piece;

        (void)motet_sock_send(pair[1], data + at, n, NULL, 0);
        event = motet_conn_read(conn, secret, &why);
    }
    if (event == MOTET_CONN_LEFT || event == MOTET_CONN_DONE)
        give_up("a reader that says what only a member can do");
    if (event == MOTET_CONN_STRANGER && why[0] == '\0')
        give_up("a stranger without a reason");
    motet_conn_free(conn);
    close(pair[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes == 0)
        return 0;
    check_payload(data + 1, bytes - 1);
    check_stream(data + 1, bytes - 1, (data[0] & 1) != 0,
            (data[0] & 2) != 0 ? 7 : 4096);
    return 0;
}
