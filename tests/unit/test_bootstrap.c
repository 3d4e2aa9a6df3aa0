/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of the rendezvous: ids, messages, interface choice. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "bootstrap/id.h"
#include "bootstrap/iface.h"
#include "bootstrap/wire.h"
#include "hello_fixture.h"

#include <arpa/inet.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void assert_contains(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' does not contain '%s'", text, part);
}

static motet_inet inet(const char *ip, uint16_t port)
{
    motet_inet addr = { .family = strchr(ip, ':') != NULL ? AF_INET6 : AF_INET,
        .port = port };

    assert_int_equal(inet_pton(addr.family, ip, addr.ip), 1);
    return addr;
}

static motet_id_fields sample_fields(void)
{
    motet_id_fields fields = { .pid = 4242,
        .uid = 1000,
        .boot_hash = 0x1122334455667788u,
        .naddrs = 2,
        .folder = MOTET_FOLDER_RUN_USER,
        .host = "alpha" };

    for (size_t i = 0; i < sizeof(fields.secret); i++)
        fields.secret[i] = (uint8_t)(i * 7 + 1);
    for (size_t i = 0; i < sizeof(fields.name); i++)
        fields.name[i] = (uint8_t)(0xf0 + i);
    fields.addr[0] = inet("10.1.2.3", 7001);
    fields.addr[1] = inet("fd00::7", 7002);
    return fields;
}

/* ---- ids ---- */

static void test_an_id_keeps_every_field(void **state)
{
    motet_id_fields in = sample_fields(), out;
    motet_id id;
    char text[MOTET_INET_TEXT_MAX];

    (void)state;
    motet_id_encode(&in, &id);
    assert_int_equal(motet_id_decode(&id, &out), MOTET_OK);
    assert_memory_equal(in.secret, out.secret, sizeof(in.secret));
    assert_memory_equal(in.name, out.name, sizeof(in.name));
    assert_int_equal(out.pid, 4242);
    assert_int_equal(out.uid, 1000);
    assert_true(out.boot_hash == in.boot_hash);
    assert_int_equal(out.naddrs, 2);
    assert_int_equal(out.folder, MOTET_FOLDER_RUN_USER);
    assert_false(out.fixed);
    assert_string_equal(out.host, "alpha");
    motet_inet_format(&out.addr[0], text, sizeof(text));
    assert_string_equal(text, "10.1.2.3:7001");
    motet_inet_format(&out.addr[1], text, sizeof(text));
    assert_string_equal(text, "[fd00::7]:7002");
}

static void test_every_flipped_bit_of_an_id_is_noticed(void **state)
{
    motet_id_fields fields = sample_fields();
    motet_id id;

    (void)state;
    motet_id_encode(&fields, &id);
    for (int bit = 0; bit < MOTET_ID_BYTES * 8; bit++) {
        motet_id bad = id;

        bad.bytes[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        if (motet_id_check(&bad) != MOTET_ERR_ARGUMENT)
            fail_msg("bit %d of byte %d was not noticed", bit % 8, bit / 8);
    }
}

static void nccl_id(motet_id *id, uint16_t family)
{
    memset(id, 0, sizeof(*id));
    memcpy(id->bytes, "\x83\x12\xaa\x07\x55\x01\x02\x90", 8);
    memcpy(id->bytes + 8, &family, sizeof(family));
    memcpy(id->bytes + 10, "\x9c\x41\xc0\x00\x02\x02", 6);
}

static void test_a_foreign_id_is_refused_and_described(void **state)
{
    motet_id zero = { { 0 } }, ones, v4, v6, future, wire, text;
    motet_id_fields fields = sample_fields();
    const struct {
        const motet_id *id;
        const char *sentence;
    } cases[] = {
        { NULL, "the unique id is NULL" },
        { &zero, "all 128 bytes are zero" },
        { &ones, "begins with ff ff ff ff" },
        { &v4, "it looks like one of NCCL's: family 2 at offset 8" },
        { &v6, "it looks like one of NCCL's: family 10 at offset 8" },
        { &future, "another version of motet (format 0x39" },
        { &wire, "another version of motet (wire version 77" },
        { &text, "begins with 68 65 6c 6c" },
    };

    (void)state;
    memset(&ones, 0xff, sizeof(ones));
    nccl_id(&v4, AF_INET);
    nccl_id(&v6, AF_INET6);
    motet_id_encode(&fields, &future);
    wire = future;
    future.bytes[7] = '9';
    wire.bytes[8] = 77;
    memset(&text, ' ', sizeof(text));
    memcpy(text.bytes, "hello", 5);
    for (size_t i = 0; i < COUNT(cases); i++) {
        assert_int_equal(motet_id_check(cases[i].id), MOTET_ERR_ARGUMENT);
        assert_contains(motet_error_trail(), cases[i].sentence);
    }
}

static void test_a_fixed_address_is_parsed_or_explained(void **state)
{
    static const struct {
        const char *text, *address; /* address NULL: refused */
    } cases[] = {
        { "127.0.0.1:7000", "127.0.0.1:7000" },
        { "[::1]:65535", "[::1]:65535" },
        { "localhost:1", "127.0.0.1:1" },
        { "127.0.0.1", NULL },
        { "300.0.0.1:7000", NULL },
        { "[10.0.0.999]:7000", NULL },
        { "127.0.0.1:", NULL },
        { ":7000", NULL },
        { "127.0.0.1:0", NULL },
        { "127.0.0.1:65536", NULL },
        { "127.0.0.1:99999999999999999999", NULL },
        { "127.0.0.1:70x", NULL },
        { "127.0.0.1:70-80", NULL },
        { "::1:7000", NULL },
        { "[::1]", NULL },
        { "[]:7000", NULL },
        { "[::1:7000", NULL },
        { "", NULL },
    };
    char got[MOTET_INET_TEXT_MAX];

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        motet_id_fields fields;
        motet_result result = motet_id_from_address(cases[i].text,
                strncmp(cases[i].text, "local", 5) == 0 ? AF_INET : 0, &fields);

        if ((result == MOTET_OK) != (cases[i].address != NULL))
            fail_msg("'%s': result %d, %s", cases[i].text, result, motet_error_trail());
        if (result == MOTET_OK) {
            motet_inet_format(&fields.addr[0], got, sizeof(got));
            assert_string_equal(got, cases[i].address);
            assert_true(fields.fixed);
        } else {
            assert_int_equal(result, MOTET_ERR_ARGUMENT);
            assert_contains(motet_error_trail(), "NCCL_COMM_ID is '");
        }
    }
}

static void test_fixed_ids_are_the_same_bytes_for_the_same_text(void **state)
{
    motet_id_fields a, b, c;
    motet_id ia, ib, ic;

    (void)state;
    assert_int_equal(motet_id_from_address("127.0.0.1:7000", 0, &a), MOTET_OK);
    assert_int_equal(motet_id_from_address("127.0.0.1:7000", 0, &b), MOTET_OK);
    assert_int_equal(motet_id_from_address("127.0.0.1:7001", 0, &c), MOTET_OK);
    motet_id_encode(&a, &ia);
    motet_id_encode(&b, &ib);
    motet_id_encode(&c, &ic);
    assert_memory_equal(&ia, &ib, sizeof(ia));
    assert_memory_not_equal(a.secret, c.secret, sizeof(a.secret));
    assert_memory_not_equal(a.name, c.name, sizeof(a.name));
    assert_int_equal(motet_id_check(&ia), MOTET_OK);
}

static void test_port_ranges(void **state)
{
    static const struct {
        const char *text;
        int low, high; /* −1: refused */
    } cases[] = {
        { "", 0, 0 },
        { "7000", 7000, 7000 },
        { "7000-7010", 7000, 7010 },
        { "1-65535", 1, 65535 },
        { "7010-7000", -1, 0 },
        { "0", -1, 0 },
        { "65536", -1, 0 },
        { "7000-", -1, 0 },
        { "-7000", -1, 0 },
        { "7000-7010-7020", -1, 0 },
        { "7000 ", -1, 0 },
        { "seven", -1, 0 },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        motet_port_range range = { 9, 9 };
        motet_result result = motet_port_range_parse(cases[i].text, &range);

        if (cases[i].low < 0) {
            assert_int_equal(result, MOTET_ERR_ARGUMENT);
            assert_contains(motet_error_trail(), "MOTET_PORT_RANGE is '");
            assert_int_equal(range.low, 9); /* untouched */
        } else {
            assert_int_equal(result, MOTET_OK);
            assert_int_equal(range.low, cases[i].low);
            assert_int_equal(range.high, cases[i].high);
        }
    }
}

/* ---- messages ---- */

static const uint8_t secret[MOTET_SECRET_BYTES] = "0123456789abcde";

static void test_a_hello_keeps_every_field(void **state)
{
    motet_hello in = sample_hello(3, 8), out;
    uint8_t raw[MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_HELLO_MAX], again[sizeof(raw)];
    motet_wire_header head;
    size_t n;

    (void)state;
    memset(in.settings, 'x', sizeof(in.settings) - 1); /* the longest there is */
    memset(in.host, 'h', sizeof(in.host) - 1);
    memset(in.node, 'n', sizeof(in.node) - 1);
    memset(in.blob, 0xee, sizeof(in.blob));
    in.blob_bytes = MOTET_BLOB_MAX;
    n = motet_wire_put_hello(raw, sizeof(raw), &in, secret);
    assert_true(n > 0);
    assert_true(motet_wire_get_header(raw, &head));
    assert_int_equal(head.type, MOTET_WIRE_HELLO);
    assert_int_equal(head.bytes, n - MOTET_WIRE_HEADER_BYTES);
    assert_memory_equal(head.secret, secret, sizeof(secret));
    assert_true(motet_wire_get_hello(raw + MOTET_WIRE_HEADER_BYTES, head.bytes, &out));
    assert_int_equal(out.rank, 3);
    assert_string_equal(out.settings, in.settings);
    assert_string_equal(out.version, "0.1.0");
    assert_int_equal(motet_wire_put_hello(again, sizeof(again), &out, secret), n);
    assert_memory_equal(raw, again, n);
}

static void test_a_hello_cut_anywhere_or_too_long_is_refused(void **state)
{
    motet_hello in = sample_hello(1, 2), out;
    uint8_t raw[MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_HELLO_MAX] = { 0 };
    size_t n = motet_wire_put_hello(raw, sizeof(raw), &in, secret);

    (void)state;
    n -= MOTET_WIRE_HEADER_BYTES;
    for (size_t cut = 0; cut < n; cut++)
        assert_false(motet_wire_get_hello(raw + MOTET_WIRE_HEADER_BYTES, cut, &out));
    assert_true(motet_wire_get_hello(raw + MOTET_WIRE_HEADER_BYTES, n, &out));
    assert_false(motet_wire_get_hello(raw + MOTET_WIRE_HEADER_BYTES, n + 1, &out));
}

static void test_a_hello_with_impossible_values_is_refused(void **state)
{
    motet_hello bad[6], out;

    (void)state;
    for (size_t i = 0; i < COUNT(bad); i++)
        bad[i] = sample_hello(1, 2);
    bad[0].rank = 2;
    bad[1].nranks = 0;
    bad[2].nranks = MOTET_MAX_RANKS + 1;
    bad[3].nfds = MOTET_JOIN_FDS + 1;
    bad[4].host[0] = '\x1b'; /* would reach a terminal */
    bad[5].rank = UINT32_MAX;
    for (size_t i = 0; i < COUNT(bad); i++) {
        uint8_t raw[MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_HELLO_MAX];
        size_t n = motet_wire_put_hello(raw, sizeof(raw), &bad[i], secret);

        if (motet_wire_get_hello(raw + MOTET_WIRE_HEADER_BYTES,
                    n - MOTET_WIRE_HEADER_BYTES, &out))
            fail_msg("case %zu was accepted", i);
    }
}

static void test_a_header_is_believed_only_when_all_of_it_fits(void **state)
{
    static const struct {
        size_t at;
        uint8_t value;
        bool good;
    } cases[] = {
        { 0, 'X', false },   /* magic                              */
        { 4, 9, true },      /* version: the caller's to compare   */
        { 6, 0, false },     /* no such type                       */
        { 6, 5, false },     /* no such type                       */
        { 11, 0x80, false }, /* 2 GiB                              */
        { 9, 0x20, false },  /* 8 KiB: longer than a hello         */
        { 8, 3, false },     /* shorter than anything              */
        { 12, 1, false },    /* must be zero                       */
        { 16, 0xff, true },  /* secret: the caller's to compare    */
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        uint8_t raw[MOTET_WIRE_HEADER_BYTES];
        motet_wire_header head;

        motet_wire_put_header(raw, MOTET_WIRE_HELLO, 100, secret);
        raw[cases[i].at] = cases[i].value;
        if (motet_wire_get_header(raw, &head) != cases[i].good)
            fail_msg("case %zu", i);
    }
}

static void test_a_failure_travels_with_its_sentence(void **state)
{
    uint8_t raw[MOTET_WIRE_HEADER_BYTES + MOTET_WIRE_FAIL_MAX];
    char in[MOTET_SENTENCE_MAX], out[MOTET_SENTENCE_MAX];
    motet_result result;
    size_t n;

    (void)state;
    memset(in, 's', sizeof(in) - 1);
    in[sizeof(in) - 1] = '\0';
    n = motet_wire_put_fail(raw, sizeof(raw), MOTET_ERR_REMOTE, in, secret);
    assert_true(n > 0);
    assert_true(motet_wire_get_fail(raw + MOTET_WIRE_HEADER_BYTES,
            n - MOTET_WIRE_HEADER_BYTES, &result, out));
    assert_int_equal(result, MOTET_ERR_REMOTE);
    assert_string_equal(in, out);
    raw[MOTET_WIRE_HEADER_BYTES] = MOTET_OK; /* a failure that is none */
    assert_false(motet_wire_get_fail(raw + MOTET_WIRE_HEADER_BYTES,
            n - MOTET_WIRE_HEADER_BYTES, &result, out));
}

static void test_a_roster_keeps_its_entries_in_order(void **state)
{
    enum { NRANKS = 3 };
    uint8_t raw[MOTET_WIRE_ROSTER_MAX];
    motet_wire_writer w = { .at = raw, .end = raw + sizeof(raw) };
    motet_roster_entry entries[NRANKS] = { { 0 } };
    int nfds[NRANKS];
    size_t n;

    (void)state;
    motet_put_u32(&w, NRANKS);
    for (uint32_t r = 0; r < NRANKS; r++) {
        motet_hello hello = sample_hello(r, NRANKS);

        hello.nfds = r;
        hello.blob[0] = (uint8_t)('A' + r);
        motet_wire_put_entry(&w, 50 + r, &hello);
    }
    assert_false(w.bad);
    n = (size_t)(w.at - raw);
    assert_true(motet_wire_get_roster(raw, n, NRANKS, entries, nfds));
    for (int r = 0; r < NRANKS; r++) {
        assert_int_equal(entries[r].pid, 50 + r);
        assert_string_equal(entries[r].host, "alpha");
        assert_int_equal(entries[r].blob_bytes, 5);
        assert_int_equal(entries[r].blob[0], 'A' + r);
        assert_int_equal(nfds[r], r);
    }
    assert_false(motet_wire_get_roster(raw, n, NRANKS - 1, entries, nfds));
    for (size_t cut = 0; cut < n; cut++)
        assert_false(motet_wire_get_roster(raw, cut, NRANKS, entries, nfds));
}

/* ---- interfaces ---- */

static motet_iface iface(const char *name, const char *ip)
{
    motet_iface entry = { .addr = inet(ip, 0) };

    snprintf(entry.name, sizeof(entry.name), "%s", name);
    return entry;
}

static void test_the_interface_is_chosen_by_nccls_rules(void **state)
{
    const motet_iface many[] = {
        iface("lo", "127.0.0.1"),
        iface("virbr0", "192.168.122.1"),
        iface("docker0", "172.17.0.1"),
        iface("eth0", "10.0.0.1"),
        iface("eth0", "fd00::1"),
        iface("eth0", "10.0.0.9"),
        iface("eth01", "10.0.1.1"),
        iface("ib0", "10.9.0.1"),
        iface("wlan0", "fd00::2"),
    };
    const motet_iface few[] = {
        iface("virbr0", "192.168.122.1"),
        iface("lo", "127.0.0.1"),
        iface("docker0", "172.17.0.1"),
    };
    const struct {
        const motet_iface *list;
        int n;
        const char *names;
        int family;
        const char *first, *second; /* addresses, NULL where there is none */
    } cases[] = {
        { many, 9, "", 0, "10.9.0.1:0", NULL },
        { many, 7, "", 0, "10.0.0.1:0", "[fd00::1]:0" },
        { many, 7, "", AF_INET, "10.0.0.1:0", NULL },
        { many, 7, "", AF_INET6, "[fd00::1]:0", NULL },
        { many, 9, "eth", 0, "10.0.0.1:0", "[fd00::1]:0" },
        { many, 9, "eth01", 0, "10.0.1.1:0", NULL },
        { many, 9, "=eth0", 0, "10.0.0.1:0", "[fd00::1]:0" },
        { many, 9, "=eth", 0, NULL, NULL },
        { many, 9, "wlan,ib", 0, "10.9.0.1:0", NULL }, /* the list's order, not ours */
        { many, 9, "^lo,virbr,docker", 0, "10.0.0.1:0", "[fd00::1]:0" },
        { many, 9, "^lo,virbr,docker,eth", 0, "10.9.0.1:0", NULL },
        { many, 9, "^=lo,virbr0,docker0,eth0", 0, "10.0.1.1:0", NULL },
        { many, 9, "eth", AF_INET6, "[fd00::1]:0", NULL },
        { many, 9, "nothing", 0, NULL, NULL },
        { many, 9, ",,", 0, NULL, NULL },
        { few, 3, "", 0, "172.17.0.1:0", NULL },
        { few, 2, "", 0, "127.0.0.1:0", NULL },
        { few, 1, "", 0, "192.168.122.1:0", NULL },
        { few, 0, "", 0, NULL, NULL },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        motet_inet out[2];
        int n = motet_iface_choose(cases[i].list, cases[i].n, cases[i].names,
                cases[i].family, out);
        int want = cases[i].first == NULL ? 0 : cases[i].second == NULL ? 1 : 2;
        char text[MOTET_INET_TEXT_MAX];

        if (n != want)
            fail_msg("case %zu ('%s'): %d addresses, not %d", i, cases[i].names, n,
                    want);
        if (n > 0) {
            motet_inet_format(&out[0], text, sizeof(text));
            assert_string_equal(text, cases[i].first);
        }
        if (n > 1) {
            motet_inet_format(&out[1], text, sizeof(text));
            assert_string_equal(text, cases[i].second);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_id_keeps_every_field),
        cmocka_unit_test(test_every_flipped_bit_of_an_id_is_noticed),
        cmocka_unit_test(test_a_foreign_id_is_refused_and_described),
        cmocka_unit_test(test_a_fixed_address_is_parsed_or_explained),
        cmocka_unit_test(test_fixed_ids_are_the_same_bytes_for_the_same_text),
        cmocka_unit_test(test_port_ranges),
        cmocka_unit_test(test_a_hello_keeps_every_field),
        cmocka_unit_test(test_a_hello_cut_anywhere_or_too_long_is_refused),
        cmocka_unit_test(test_a_hello_with_impossible_values_is_refused),
        cmocka_unit_test(test_a_header_is_believed_only_when_all_of_it_fits),
        cmocka_unit_test(test_a_failure_travels_with_its_sentence),
        cmocka_unit_test(test_a_roster_keeps_its_entries_in_order),
        cmocka_unit_test(test_the_interface_is_chosen_by_nccls_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
