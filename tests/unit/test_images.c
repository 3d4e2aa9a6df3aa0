/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What code objects lie in, written here: what is found in it, in which order, under which
 * name, and what is said of what cannot be read. What compilers make is in tests/images.
 */
#include "codeobj_file.h"

#include "images.h"
#include "source.h"

#include <limits.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define SEEN_MAX 64

static uint8_t box[4 << 20];
static size_t box_bytes;
static uint8_t small[4096]; /* a code object */
static size_t small_bytes;

/* What a walk handed over. */
static struct {
    char container[128], target[CODEOBJ_TARGET_MAX], member[64], why[CODEOBJ_WHY_MAX];
    uint64_t offset, holder;
    size_t kernels;
    enum image_class class;
    bool read;
    char sha256[SHA256_TEXT];
} seen[SEEN_MAX];
static size_t num_seen, most_seen;
static struct images_result result;

static bool keep(const struct image *image, void *arg)
{
    (void)arg;
    if (num_seen < SEEN_MAX) {
        snprintf(seen[num_seen].container, sizeof(seen[0].container), "%s",
                image->container);
        snprintf(seen[num_seen].target, sizeof(seen[0].target), "%s", image->target);
        snprintf(seen[num_seen].member, sizeof(seen[0].member), "%.63s", image->member);
        snprintf(seen[num_seen].why, sizeof(seen[0].why), "%s",
                image->object == NULL ? image->why : "");
        snprintf(seen[num_seen].sha256, sizeof(seen[0].sha256), "%s", image->sha256);
        seen[num_seen].offset = image->offset;
        seen[num_seen].holder = image->holder;
        seen[num_seen].read = image->object != NULL;
        seen[num_seen].class = image->class;
        seen[num_seen].kernels = image->object != NULL ? image->object->num_kernels : 0;
    }
    num_seen++;
    return num_seen < most_seen;
}

/* Read the box in a heap block of its size, which AddressSanitizer guards. */
static void read_box(void)
{
    uint8_t *copy = malloc(box_bytes == 0 ? 1 : box_bytes);

    assert_non_null(copy);
    memcpy(copy, box, box_bytes);
    memset(seen, 0, sizeof(seen));
    num_seen = 0;
    most_seen = SIZE_MAX;
    images_read(copy, box_bytes, NULL, keep, NULL, &result);
    free(copy);
    assert_int_equal(result.images, num_seen);
}

static void expect_problem(const char *words)
{
    if (strstr(result.why, words) == NULL)
        fail_msg("'%s' is not in '%s'", words, result.why);
    assert_int_equal(strncmp(result.why, "offset ", 7), 0);
}

static void box_put(const void *data, size_t bytes)
{
    assert_true(box_bytes + bytes <= sizeof(box));
    memcpy(box + box_bytes, data, bytes);
    box_bytes += bytes;
}

static void box_number(uint64_t value, unsigned bytes)
{
    for (; bytes > 0; bytes--, value >>= 8)
        box_put(&(uint8_t){ (uint8_t)value }, 1);
}

static void box_fill(size_t to)
{
    static const uint8_t zero;

    while (box_bytes < to)
        box_put(&zero, 1);
}

/* An entry of a bundle's table; the bytes go where @p offset says. */
static void box_entry(const char *id, uint64_t offset, uint64_t bytes)
{
    box_number(offset, 8);
    box_number(bytes, 8);
    box_number(strlen(id), 8);
    box_put(id, strlen(id));
}

#define HIP  "hipv4-amdgcn-amd-amdhsa--"
#define HOST "host-x86_64-unknown-linux-gnu-"

/* A bundle of the small object for two GPUs and the host, at the box's end. */
static void box_bundle(void)
{
    const size_t begin = box_bytes;

    box_put("__CLANG_OFFLOAD_BUNDLE__", 24);
    box_number(3, 8);
    box_entry(HOST, 256, 0);
    box_entry(HIP "gfx90a:xnack+", 256, small_bytes);
    box_entry(HIP "gfx1100", 256 + small_bytes, small_bytes);
    box_fill(begin + 256);
    box_put(small, small_bytes);
    box_put(small, small_bytes);
}

static int setup(void **state)
{
    (void)state;
    write_small(5, 0x41);
    assert_true(file_bytes <= sizeof(small));
    memcpy(small, file, file_bytes);
    small_bytes = file_bytes;
    box_bytes = 0;
    return 0;
}

static void expect_image(size_t i, const char *container, uint64_t offset)
{
    assert_true(i < num_seen);
    if (!seen[i].read)
        fail_msg("image %zu is not read: %s", i, seen[i].why);
    assert_string_equal(seen[i].container, container);
    assert_int_equal(seen[i].offset, offset);
    assert_string_equal(seen[i].target, "gfx1100");
    assert_int_equal(seen[i].kernels, 1);
}

/* Bundles. */

static void test_bundles_lie_one_after_the_other(void **state)
{
    struct sha256 sum;
    char digest[SHA256_TEXT];
    size_t second;

    (void)state;
    box_bundle();
    box_fill(box_bytes + 999);
    second = box_bytes;
    box_bundle();
    box_fill(box_bytes + 7);
    read_box();
    assert_string_equal(result.container, "bundle");
    assert_string_equal(result.why, "");
    assert_int_equal(num_seen, 4);
    expect_image(0, "bundle", 256);
    expect_image(1, "bundle", 256 + small_bytes);
    expect_image(2, "bundle", second + 256);
    assert_int_equal(seen[1].holder, 0);
    assert_int_equal(seen[3].holder, second);
    sha256_start(&sum);
    sha256_add(&sum, small, small_bytes);
    sha256_end(&sum, digest);
    assert_string_equal(seen[3].sha256, digest);
}

static void test_the_visitor_ends_the_walk(void **state)
{
    (void)state;
    box_bundle();
    num_seen = 0;
    most_seen = 1;
    images_read(box, box_bytes, NULL, keep, NULL, &result);
    assert_int_equal(num_seen, 1);
    assert_int_equal(result.images, 1);
}

static void test_entries_say_what_they_are(void **state)
{
    static const char spirv[64] = "\x03\x02\x23\x07", text[64] = "no code";

    (void)state;
    box_put("__CLANG_OFFLOAD_BUNDLE__", 24);
    box_number(5, 8);
    box_entry("hip-spirv64-amd-amdhsa--amdgcnspirv", 512, 64);
    box_entry(HIP "gfx906", 576, 64);
    box_entry("cuda-nvptx64-nvidia-cuda--sm_90", 576, 64); /* not AMD's */
    box_entry(HIP "gfx908:sramecc+", 1 << 30, 64);         /* is not there */
    box_entry("hip-amdgcn-amd-amdhsa-unknown-gfx1100", 640, small_bytes);
    box_fill(512);
    box_put(spirv, 64);
    box_put(text, 64);
    box_put(small, small_bytes);
    read_box();
    assert_int_equal(num_seen, 3);
    assert_int_equal(result.unread, 2);
    assert_string_equal(seen[0].target, "amdgcnspirv");
    assert_non_null(strstr(seen[0].why, "offset 512: SPIR-V"));
    assert_int_equal(strlen(seen[0].sha256), 64);
    assert_string_equal(seen[1].target, "gfx906");
    assert_non_null(strstr(seen[1].why, "offset 576: neither"));
    expect_image(2, "bundle", 640);
    expect_problem("entry 3 of a bundle, for 'gfx908:sramecc+', claims 64 bytes at "
                   "1073741824");
}

/* What a walk may cost does not grow with how often the same bytes are named. */
static void test_entries_that_overlap_have_an_end(void **state)
{
    const size_t table = 32 + 4000 * (24 + sizeof(HIP "gfx1100") - 1), bytes = 2 << 20;
    struct timespec begin, end;

    (void)state;
    box_put("__CLANG_OFFLOAD_BUNDLE__", 24);
    box_number(4000, 8);
    for (int i = 0; i < 4000; i++)
        box_entry(HIP "gfx1100", table, bytes);
    box_put(small, small_bytes);
    box_fill(table + bytes);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    read_box();
    clock_gettime(CLOCK_MONOTONIC, &end);
    expect_problem("name more than 4 times the bytes that are there");
    assert_in_range(num_seen, 1, 8);
    assert_in_range(end.tv_sec - begin.tv_sec, 0, 20);
}

static void test_depth_has_an_end(void **state)
{
    const size_t deep = 12, table = 32 + 24 + sizeof(HIP "gfx1100") - 1;

    (void)state;
    for (size_t i = 1; i <= deep; i++) {
        box_put("__CLANG_OFFLOAD_BUNDLE__", 24);
        box_number(1, 8);
        box_entry(HIP "gfx1100", table, (deep - i) * table + small_bytes);
    }
    box_put(small, small_bytes);
    read_box();
    assert_int_equal(num_seen, 0);
    expect_problem("containers lie in each other more than 6 deep");
}

/* The names of entries hold tables, whose names are the rest of what holds them. */
static void test_tables_in_tables_have_an_end(void **state)
{
    (void)state;
    box_put("__CLANG_OFFLOAD_BUNDLE__", 24);
    box_number(4096, 8);
    for (int i = 0; i < 1000; i++) {
        size_t end;

        box_number(0, 16);
        box_number(1024, 8);
        for (end = box_bytes + 1024; box_bytes + 56 <= end;) {
            box_put("__CLANG_OFFLOAD_BUNDLE__", 24);
            box_number(4096, 8);
            box_number(0, 16);
            box_number(end - box_bytes - 8, 8);
        }
        box_fill(end);
    }
    box_bundle(); /* which is not reached */
    read_box();
    expect_problem("the table of a bundle ends in entry");
    assert_int_equal(num_seen, 0);
}

/* Packed ones, their data stored: what packs well is in tests/images. */

static void box_zstd(const uint8_t *data, size_t bytes)
{
    box_number(0xfd2fb528, 4); /* one segment, one stored block */
    box_number(0xa0, 1);
    box_number(bytes, 4);
    box_number(bytes << 3 | 1, 3);
    box_put(data, bytes);
}

static void box_ccob(unsigned version, const uint8_t *data, size_t bytes,
        uint64_t claimed)
{
    const unsigned width = version == 3 ? 8 : 4;
    const size_t header = version == 1 ? 20 : version == 2 ? 24 : 32;

    box_put("CCOB", 4);
    box_number(version, 2);
    box_number(1, 2);
    if (version > 1)
        box_number(header + 12 + bytes, width);
    box_number(claimed, width);
    box_number(0, 8);
    box_zstd(data, bytes);
}

static void test_packed_bundles_of_each_version_are_read(void **state)
{
    uint8_t inner[8192];
    size_t inner_bytes;
    char name[64];

    (void)state;
    box_bundle();
    inner_bytes = box_bytes;
    memcpy(inner, box, inner_bytes);
    for (unsigned version = 1; version <= 3; version++) {
        size_t second;

        box_bytes = 0;
        box_ccob(version, inner, inner_bytes, inner_bytes);
        box_fill(box_bytes + 5);
        second = box_bytes;
        box_ccob(version, inner, inner_bytes, inner_bytes);
        read_box();
        assert_string_equal(result.container, "ccob");
        assert_string_equal(result.why, "");
        assert_int_equal(num_seen, 4);
        snprintf(name, sizeof(name), "ccob v%u zstd/bundle", version);
        expect_image(0, name, 0);
        expect_image(3, name, second);
    }
}

static void test_packed_bundles_that_lie_are_refused(void **state)
{
    uint8_t inner[8192];
    size_t inner_bytes;

    (void)state;
    box_bundle();
    inner_bytes = box_bytes;
    memcpy(inner, box, inner_bytes);
    box_bytes = 0;
    box_ccob(3, inner, inner_bytes, inner_bytes + 1);
    read_box();
    assert_int_equal(num_seen, 2);
    expect_problem("unpacks to fewer than");
    box_bytes = 0;
    box_ccob(2, inner, inner_bytes, UINT32_MAX);
    read_box();
    expect_problem("unpacks to fewer than");
    box_bytes = 0;
    box_ccob(3, inner, inner_bytes, inner_bytes);
    box_bytes -= 100;
    read_box();
    expect_problem(" are there");
    assert_int_equal(num_seen, 0);
    box_bytes = 0;
    box_ccob(4, inner, inner_bytes, inner_bytes);
    read_box();
    expect_problem("is of version 4, 1 to 3 are read");
    box_bytes = 0;
    box_ccob(3, inner, inner_bytes, inner_bytes);
    memset(box + 8, 0, 8);
    box[8] = 5;
    read_box();
    expect_problem("claims 5 bytes, its header alone has 32");
    box_bytes = 0;
    box_ccob(3, small, small_bytes, small_bytes);
    read_box();
    expect_problem("no bundle");
}

/* Blocks of 128 KiB zeros in four bytes each: nobody unpacks all of them. */
static void test_what_is_packed_too_densely_is_left_out(void **state)
{
    const uint64_t blocks = 1 << 20;
    struct source s;

    (void)state;
    box_number(0xfd2fb528, 4);
    box_number(0x5800, 2); /* a window of 2 MiB */
    for (uint64_t i = 0; box_bytes + 4 <= sizeof(box); i++)
        box_number((128 << 10) << 3 | 2, 4);
    assert_true(source_open(&s, SOURCE_ZSTD, box, box_bytes, UINT64_MAX));
    assert_in_range(source_skip(&s, UINT64_MAX), 1, blocks << 10);
    assert_non_null(strstr(s.why, "packed more densely than any code"));
    source_close(&s);
}

/* Archives, and what is none. */

static void box_member(const char *name, const void *data, size_t bytes)
{
    char header[61];

    snprintf(header, sizeof(header), "%-16s%-12d%-6d%-6d%-8s%-10zu`\n", name, 0, 0, 0,
            "100644", bytes);
    box_put(header, 60);
    box_put(data, bytes);
    if (bytes % 2 != 0)
        box_put("\n", 1);
}

static void test_members_of_an_archive_have_names(void **state)
{
    static const char names[] = "a_member_with_a_long_name.o/\n";
    uint8_t bsd[64 + sizeof(small)] = "a_long_name_as_BSD_writes_it.o";

    (void)state;
    memcpy(bsd + 32, small, small_bytes);
    box_put("!<arch>\n", 8);
    box_member("/", "\0\0\0\0", 4);
    box_member("//", names, sizeof(names) - 1);
    box_member("a.o/", small, small_bytes);
    box_member("text/", "nothing", 7);
    box_member("/0", small, small_bytes);
    box_member("#1/32", bsd, 32 + small_bytes);
    read_box();
    assert_string_equal(result.why, "");
    assert_int_equal(num_seen, 3);
    assert_string_equal(seen[0].member, "a.o");
    assert_string_equal(seen[1].member, "a_member_with_a_long_name.o");
    assert_string_equal(seen[2].member, "a_long_name_as_BSD_writes_it.o");
    assert_string_equal(seen[2].container, "archive");
    box[8 + 58] = 'x';
    read_box();
    expect_problem("member is damaged");
}

static void test_what_is_no_container_has_nothing(void **state)
{
    (void)state;
    box_put("just text", 9);
    read_box();
    assert_null(result.container);
    assert_int_equal(num_seen, 0);
    assert_string_equal(result.why, "");
    box_bytes = 0;
    read_box();
    assert_null(result.container);
    assert_int_equal(images_open("/nonexistent", keep, NULL, &result), -1);
    assert_string_equal(result.why, "No such file or directory");
    assert_int_equal(images_open("/tmp", keep, NULL, &result), -1);
    assert_string_equal(result.why, "a folder, need a file");
}

static void test_an_object_that_cannot_be_read_is_a_file_s_problem(void **state)
{
    (void)state;
    box_put(small, small_bytes);
    memset(box + NOTE_AT, 0, 20);
    read_box();
    assert_string_equal(result.container, "code object");
    assert_int_equal(num_seen, 0);
    expect_problem("offset 0: no note");
}

/* A host's file: two loaded segments, the second one writable with wrappers in it. */

enum {
    FATBIN_AT = 4096,
    ADDRESS = 0x10000,
    DATA_AT = 3 << 20,
    DATA_ADDRESS = 0x400000
};

static void box_host(bool relocated, const uint64_t *targets, size_t num)
{
    const Elf64_Phdr segments[] = {
        { .p_type = PT_LOAD,
                .p_flags = PF_R,
                .p_offset = FATBIN_AT,
                .p_vaddr = ADDRESS,
                .p_filesz = box_bytes - FATBIN_AT },
        { .p_type = PT_LOAD,
                .p_flags = PF_R | PF_W,
                .p_offset = DATA_AT,
                .p_vaddr = DATA_ADDRESS,
                .p_filesz = 4096 },
        { .p_type = PT_DYNAMIC,
                .p_offset = DATA_AT,
                .p_filesz = 3 * sizeof(Elf64_Dyn) },
    };
    const Elf64_Ehdr header = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64,
                                        ELFDATA2LSB, 1 },
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_phoff = sizeof(header),
        .e_phentsize = sizeof(segments[0]),
        .e_phnum = 3 };
    const Elf64_Dyn dynamic[] = { { DT_RELA, { DATA_ADDRESS + 2048 } },
        { DT_RELASZ, { num * sizeof(Elf64_Rela) } }, { DT_NULL, { 0 } } };

    memcpy(box, &header, sizeof(header));
    memcpy(box + sizeof(header), segments, sizeof(segments));
    box_fill(DATA_AT);
    box_put(dynamic, sizeof(dynamic));
    box_fill(DATA_AT + 1024);
    for (size_t i = 0; i < num; i++) {
        box_number(0x48495046, 4);
        box_number(1, 4);
        box_number(relocated ? 0 : targets[i], 8);
        box_number(0, 8);
    }
    box_fill(DATA_AT + 2048);
    for (size_t i = 0; i < num && relocated; i++) {
        box_number(DATA_ADDRESS + 1024 + 24 * i + 8, 8);
        box_number(8, 8); /* R_X86_64_RELATIVE */
        box_number(targets[i], 8);
    }
    box_fill(DATA_AT + 4096);
}

static void test_wrappers_are_followed(void **state)
{
    (void)state;
    for (int relocated = 0; relocated < 2; relocated++) {
        uint64_t targets[3] = { ADDRESS, 0, 0x7fffffff };
        size_t second;

        box_bytes = 0;
        box_fill(FATBIN_AT);
        box_bundle();
        box_put("not zeros, and no bundle", 24);
        second = box_bytes;
        box_bundle();
        targets[1] = ADDRESS + second - FATBIN_AT;
        box_host(relocated != 0, targets, 3);
        read_box();
        assert_string_equal(result.container, "elf");
        assert_string_equal(result.why, "");
        assert_int_equal(num_seen, 4);
        expect_image(0, "elf/bundle", FATBIN_AT + 256);
        expect_image(3, "elf/bundle", second + 256 + small_bytes);
    }
}

static void test_without_wrappers_the_loaded_bytes_are_searched(void **state)
{
    (void)state;
    box_fill(FATBIN_AT);
    box_put("__CLANG_OFFLOAD_BUNDLE__, a name only; CCOB as well", 50);
    box_bundle();
    box_put("CCOB\x02\x00\x01\x00", 8);
    box_put(small, small_bytes);
    box_host(false, NULL, 0);
    read_box();
    assert_string_equal(result.why, "");
    assert_int_equal(num_seen, 3);
    expect_image(0, "elf/bundle", FATBIN_AT + 50 + 256);
    assert_string_equal(seen[2].container, "elf");
    assert_int_equal(seen[1].holder, FATBIN_AT + 50);
    assert_int_equal(seen[2].holder, seen[2].offset);
}

/* A library may carry anything, packed piece by piece. */
static void test_packed_pieces_that_are_no_code_are_no_problem(void **state)
{
    uint8_t piece[500];

    (void)state;
    memset(piece, 'x', sizeof(piece));
    box_fill(FATBIN_AT);
    for (int i = 0; i < 1500; i++)
        box_zstd(piece, sizeof(piece));
    box_host(false, NULL, 0);
    read_box();
    assert_string_equal(result.why, "");
    assert_int_equal(num_seen, 0);
}

static void test_tables_of_a_loader_are_not_read_again_and_again(void **state)
{
    const size_t num = 200, bytes = 512 << 10;
    Elf64_Phdr dynamic = { .p_type = PT_DYNAMIC, .p_filesz = bytes };

    (void)state;
    box_fill(FATBIN_AT);
    box_host(false, (const uint64_t[]){ 1 }, 1);
    dynamic.p_offset = box_bytes;
    ((Elf64_Ehdr *)box)->e_phoff = box_bytes + bytes;
    ((Elf64_Ehdr *)box)->e_phnum = (uint16_t)(num + 2);
    while (box_bytes < dynamic.p_offset + bytes)
        box_number(UINT64_MAX, 8);
    box_put(box + sizeof(Elf64_Ehdr), 2 * sizeof(dynamic));
    for (size_t i = 0; i < num; i++)
        box_put(&dynamic, sizeof(dynamic));
    read_box();
    expect_problem("name more than 4 times the bytes that are there");
}

/* As motet's own libraries carry them: one after the other, each packed by itself. */
static void test_objects_that_are_packed_one_by_one_are_found(void **state)
{
    size_t second;

    (void)state;
    box_fill(FATBIN_AT);
    box_zstd(small, small_bytes);
    second = box_bytes;
    box_zstd(small, small_bytes);
    box_zstd((const uint8_t *)"no code at all", 14);
    box_host(false, NULL, 0);
    read_box();
    assert_string_equal(result.why, "");
    assert_int_equal(num_seen, 2);
    expect_image(0, "elf/zstd", FATBIN_AT);
    expect_image(1, "elf/zstd", second);
}

/* A file that others write to meanwhile. */

static bool cut_off(const struct image *image, void *arg)
{
    (void)image;
    num_seen++;
    assert_int_equal(truncate(arg, 100), 0);
    return true;
}

static void test_a_file_may_become_shorter_while_it_is_read(void **state)
{
    char path[] = "/tmp/motet-images-XXXXXX";
    const int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    box_put("__CLANG_OFFLOAD_BUNDLE__", 24);
    box_number(2, 8);
    box_entry(HIP "gfx90a", 4096, small_bytes);
    box_entry(HIP "gfx1100", 1 << 20, small_bytes);
    box_fill(4096);
    box_put(small, small_bytes);
    box_fill(1 << 20);
    box_put(small, small_bytes);
    assert_int_equal(write(fd, box, box_bytes), box_bytes);
    num_seen = 0;
    assert_int_equal(images_open(path, cut_off, path, &result), -1);
    assert_string_equal(result.why, "it became shorter while it was read");
    assert_int_equal(num_seen, 2); /* zeros are no code, which is said of the second */
    assert_int_equal(result.unread, 1);
    close(fd);
    unlink(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, codeobj_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_bundles_lie_one_after_the_other),
        TEST(test_the_visitor_ends_the_walk),
        TEST(test_entries_say_what_they_are),
        TEST(test_entries_that_overlap_have_an_end),
        TEST(test_tables_in_tables_have_an_end),
        TEST(test_depth_has_an_end),
        TEST(test_packed_bundles_of_each_version_are_read),
        TEST(test_packed_bundles_that_lie_are_refused),
        TEST(test_what_is_packed_too_densely_is_left_out),
        TEST(test_members_of_an_archive_have_names),
        TEST(test_what_is_no_container_has_nothing),
        TEST(test_an_object_that_cannot_be_read_is_a_file_s_problem),
        TEST(test_wrappers_are_followed),
        TEST(test_without_wrappers_the_loaded_bytes_are_searched),
        TEST(test_packed_pieces_that_are_no_code_are_no_problem),
        TEST(test_tables_of_a_loader_are_not_read_again_and_again),
        TEST(test_objects_that_are_packed_one_by_one_are_found),
        TEST(test_a_file_may_become_shorter_while_it_is_read),
    };

    if (!codeobj_reads_with("libelf") || !codeobj_reads_with("zstd")) {
        fprintf(stderr, "SKIPPED: this build reads no code objects, or none packed\n");
        return 77;
    }
    return cmocka_run_group_tests_name("images", tests, NULL, NULL);
}
