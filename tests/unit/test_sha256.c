/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256: the vectors of FIPS 180-4 and NIST's example pages, and how input may be cut. */
#include "sha256.h"
#include "sha256_mix.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct vector {
    const char *text;
    int times;
    const char *digest;
} vectors[] = {
    { "", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855" },
    { "abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" },
    { "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1" },
    { "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
      "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
            1, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1" },
    { "a", 1000000,
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0" },
};

static void test_published_vectors(void **state)
{
    char text[SHA256_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof(vectors) / sizeof(*vectors); i++) {
        struct sha256 s;

        sha256_start(&s);
        for (int k = 0; k < vectors[i].times; k++)
            sha256_add(&s, vectors[i].text, strlen(vectors[i].text));
        sha256_end(&s, text);
        assert_string_equal(text, vectors[i].digest);
    }
}

static void test_cutting_the_input_changes_nothing(void **state)
{
    unsigned char data[300];
    char whole[SHA256_TEXT], cut[SHA256_TEXT];

    (void)state;
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * 7);
    for (size_t bytes = 0; bytes <= sizeof(data); bytes++) {
        struct sha256 a, b;

        sha256_start(&a);
        sha256_add(&a, data, bytes);
        sha256_end(&a, whole);
        sha256_start(&b);
        for (size_t done = 0, step = 1; done < bytes;
                done += step, step = step * 2 + 1) {
            if (step > bytes - done)
                step = bytes - done;
            sha256_add(&b, data + done, step);
        }
        sha256_end(&b, cut);
        assert_string_equal(whole, cut);
    }
}

static void test_both_ways_mix_alike(void **state)
{
    unsigned char data[640];
    uint32_t plain[8], x86[8];

    (void)state;
    if (!sha256_has_x86())
        skip();
    for (size_t i = 0; i < sizeof(data); i++)
        data[i] = (unsigned char)(i * i + i / 7);
    for (size_t blocks = 0; blocks <= sizeof(data) / 64; blocks++) {
        for (uint32_t i = 0; i < 8; i++)
            plain[i] = x86[i] = 0x9e3779b9u * (i + 1);
        sha256_mix_plain(plain, data, blocks);
        sha256_mix_x86(x86, data, blocks);
        assert_memory_equal(plain, x86, sizeof(plain));
    }
}

static void test_a_file_has_the_digest_of_its_bytes(void **state)
{
    char path[] = "/tmp/motet-sha256-XXXXXX", text[SHA256_TEXT];
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "abc", 3), 3);
    close(fd);
    assert_int_equal(sha256_file(path, text), 0);
    assert_string_equal(text, vectors[1].digest);
    unlink(path);
    assert_int_equal(sha256_file(path, text), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_vectors),
        cmocka_unit_test(test_cutting_the_input_changes_nothing),
        cmocka_unit_test(test_both_ways_mix_alike),
        cmocka_unit_test(test_a_file_has_the_digest_of_its_bytes),
    };

    return cmocka_run_group_tests_name("sha256", tests, NULL, NULL);
}
