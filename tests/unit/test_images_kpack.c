/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kpack archives, written here: by themselves, and by way of a library that names them. No
 * GPU's image may stand in for another's.
 */
#include "codeobj_file.h"

#include "images.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

static uint8_t small[4096]; /* a code object for gfx1100 */
static size_t small_bytes;
static char folder[64];

static char lines[4096]; /* of the images that were handed over */
static struct images_result result;

static bool keep(const struct image *image, void *arg)
{
    const size_t used = strlen(lines);

    (void)arg;
    snprintf(lines + used, sizeof(lines) - used, "%s %s %s%s\n", image->container,
            image->member, image->target, image->object != NULL ? "" : " unread");
    return true;
}

static void expect(const char *wanted, const char *problem)
{
    assert_string_equal(lines, wanted);
    if (problem == NULL)
        assert_string_equal(result.why, "");
    else if (strstr(result.why, problem) == NULL)
        fail_msg("'%s' is not in '%s'", problem, result.why);
}

static void put_little(uint64_t value, unsigned bytes)
{
    for (; bytes > 0; bytes--, value >>= 8)
        put_byte(value & 0xff);
}

static void patch(size_t at, uint64_t value)
{
    memcpy(file + at, &value, sizeof(value));
}

/* What an archive lists. */
struct row {
    const char *name, *arch;
    uint32_t ordinal;
};

static void put_toc(const struct row *rows, unsigned num)
{
    put_text("toc");
    put_map(num);
    for (unsigned i = 0; i < num; i++) {
        put_text(rows[i].name);
        put_map(1);
        put_text(rows[i].arch);
        put_map(3);
        put_text("type");
        put_text("hsaco");
        put_text("ordinal");
        put_number(rows[i].ordinal);
        put_text("original_size");
        put_number((uint32_t)small_bytes);
    }
}

/* An archive with one stored image, or one that is packed in a stored block. */
static void write_archive(bool packed, const struct row *rows, unsigned num)
{
    const size_t frame = 12 + small_bytes, region = 8 + frame;

    file_bytes = 0;
    put("KPAK", 4);
    put_little(1, 4);
    put_little(0, 8);
    while (file_bytes < 64)
        put_byte(0);
    if (packed) {
        put_little(1, 4);
        put_little(frame, 4);
        put_little(0xfd2fb528, 4);
        put_little(0xa0, 1);
        put_little(small_bytes, 4);
        put_little(small_bytes << 3 | 1, 3);
    }
    put(small, small_bytes);
    patch(8, file_bytes);
    put_map(packed ? 4 : 3);
    put_text("compression_scheme");
    put_text(packed ? "zstd-per-kernel" : "none");
    if (packed) {
        put_text("zstd_offset");
        put_number(64);
        put_text("zstd_size");
        put_number((uint32_t)region);
    } else {
        put_text("blobs");
        put_array(1);
        put_map(2);
        put_text("offset");
        put_number(64);
        put_text("size");
        put_number((uint32_t)small_bytes);
    }
    put_toc(rows, num);
}

static const char *path_of(const char *name)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return path;
}

static void save(const char *name)
{
    FILE *out = fopen(path_of(name), "wb");

    assert_non_null(out);
    assert_int_equal(fwrite(file, 1, file_bytes, out), file_bytes);
    assert_int_equal(fclose(out), 0);
}

/* A library whose one section of interest is a reference to @p path for "lib.so". */
static void save_library(const char *name, const char *path)
{
    static const char names[] = "\0.rocm_kpack_ref\0.shstrtab\0.hip_fatbin";
    Elf64_Shdr sections[4] = { { 0 },
        { .sh_name = 1, .sh_type = SHT_PROGBITS, .sh_offset = 64 },
        { .sh_name = 17, .sh_type = SHT_STRTAB },
        { .sh_name = 27, .sh_type = SHT_NOBITS, .sh_offset = 64, .sh_size = 1 << 30 } };
    Elf64_Ehdr header = { .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB,
                                  1 },
        .e_type = ET_DYN,
        .e_machine = EM_X86_64,
        .e_shentsize = sizeof(sections[0]),
        .e_shnum = 4,
        .e_shstrndx = 2 };

    file_bytes = 0;
    put(&header, sizeof(header));
    put_map(2);
    put_text("kernel_name");
    put_text("lib.so");
    put_text("kpack_search_paths");
    put_array(1);
    put_text(path);
    sections[1].sh_size = file_bytes - 64;
    sections[2].sh_offset = file_bytes;
    sections[2].sh_size = sizeof(names);
    put(names, sizeof(names));
    header.e_shoff = file_bytes;
    put(sections, sizeof(sections));
    memcpy(file, &header, sizeof(header));
    save(name);
}

static void read_file(const char *name)
{
    lines[0] = 0;
    assert_int_equal(images_open(path_of(name), keep, NULL, &result), 0);
}

static int setup(void **state)
{
    (void)state;
    unsetenv("ROCM_KPACK_PATH");
    unsetenv("ROCM_KPACK_PATH_PREFIX");
    snprintf(folder, sizeof(folder), "/tmp/motet-kpack-XXXXXX");
    assert_non_null(mkdtemp(folder));
    assert_int_equal(mkdir(path_of("pack"), 0755), 0);
    write_small(5, 0x41);
    memcpy(small, file, file_bytes);
    small_bytes = file_bytes;
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = { "all.kpack", "lib.so", "pack/a_gfx1100.kpack",
        "pack/a_gfx90a.kpack", "pack/[a]*.kpack", "pack/link.kpack", "pack" };

    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        (void)remove(path_of(names[i]));
    assert_int_equal(rmdir(folder), 0);
    return codeobj_teardown(state);
}

static void test_archives_are_read_by_themselves(void **state)
{
    static const struct row rows[] = { { "lib.so#0", "gfx1100", 0 },
        { "other.so#0", "gfx1100", 0 } };

    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        write_archive(packed, rows, 2);
        save("all.kpack");
        read_file("all.kpack");
        assert_string_equal(result.container, "kpack");
        expect(packed ? "kpack zstd lib.so#0 gfx1100\nkpack zstd other.so#0 gfx1100\n"
                      : "kpack none lib.so#0 gfx1100\nkpack none other.so#0 gfx1100\n",
                NULL);
    }
}

static void test_an_image_that_is_not_there_is_no_other(void **state)
{
    static const struct row rows[] = { { "lib.so#0", "gfx90a", 1 },
        { "lib.so#1", "gfx1100", 0 } };

    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        write_archive(packed, rows, 2);
        save("all.kpack");
        read_file("all.kpack");
        expect(packed ? "kpack zstd lib.so#1 gfx1100\n"
                      : "kpack none lib.so#1 gfx1100\n",
                "for 'gfx90a', is not there");
    }
}

static void test_an_image_that_cannot_be_read_keeps_its_target(void **state)
{
    static const struct row rows[] = { { "lib.so#0", "gfx90a:xnack+", 0 } };

    (void)state;
    memset(small + NOTE_AT, 0, 20);
    write_archive(true, rows, 1);
    save("all.kpack");
    read_file("all.kpack");
    expect("kpack zstd lib.so#0 gfx90a:xnack+ unread\n", NULL);
}

static void test_a_library_s_own_images_are_found(void **state)
{
    static const struct row first[] = { { "lib.so#0", "gfx1100", 0 },
        { "lib.so.2#0", "gfx1100", 0 } };
    static const struct row second[] = { { "lib.so#0", "gfx90a", 0 },
        { "lib.so#1", "gfx90a", 0 } };

    (void)state;
    write_archive(false, first, 2);
    save("pack/a_gfx1100.kpack");
    memset(small + NOTE_AT, 0, 20); /* so that the archive's word is seen */
    write_archive(true, second, 2);
    save("pack/a_gfx90a.kpack");
    save_library("lib.so", "pack/a_@GFXARCH@.kpack");
    read_file("lib.so");
    assert_string_equal(result.container, "elf");
    expect("elf/kpack none lib.so#0 gfx1100\nelf/kpack zstd lib.so#0 gfx90a unread\n"
           "elf/kpack zstd lib.so#1 gfx90a unread\n",
            NULL);
}

static void test_an_archive_counts_once(void **state)
{
    static const struct row rows[] = { { "lib.so#0", "gfx1100", 0 } };
    char real[PATH_MAX];

    (void)state;
    write_archive(false, rows, 1);
    save("pack/a_gfx1100.kpack");
    snprintf(real, sizeof(real), "%s", path_of("pack/a_gfx1100.kpack"));
    assert_int_equal(symlink(real, path_of("pack/link.kpack")), 0);
    save_library("lib.so", "pack/@GFXARCH@.kpack");
    read_file("lib.so");
    expect("elf/kpack none lib.so#0 gfx1100\n", NULL);
}

static void test_archives_that_are_not_there_are_named(void **state)
{
    (void)state;
    save_library("lib.so", "pack/a_@GFXARCH@.kpack");
    read_file("lib.so");
    expect("", "in kpack archives that are not there");
    assert_non_null(strstr(result.why, "/pack/a_*.kpack"));
}

static void test_references_to_other_things_are_refused(void **state)
{
    static const struct row rows[] = { { "other.so#0", "gfx1100", 0 } };
    static const struct {
        const char *path, *words;
    } cases[] = {
        { "lib.so", "no kpack archive" }, /* itself */
        { "pack", "a folder, need a file" },
        { "/dev/zero", "not a regular file" },
        { "pack/link.kpack", "are not there" }, /* a link to itself */
        { "all.kpack", "none has any of 'lib.so'" },
    };

    (void)state;
    write_archive(false, rows, 1);
    save("all.kpack");
    assert_int_equal(symlink("link.kpack", path_of("pack/link.kpack")), 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        save_library("lib.so", cases[i].path);
        read_file("lib.so");
        expect("", cases[i].words);
    }
}

/* Only @GFXARCH@ stands for anything. */
static void test_paths_are_no_patterns(void **state)
{
    static const struct row rows[] = { { "lib.so#0", "gfx1100", 0 } };

    (void)state;
    write_archive(false, rows, 1);
    save("pack/a_gfx1100.kpack");
    save_library("lib.so", "pack/*.kpack");
    read_file("lib.so");
    expect("", "are not there");
    write_archive(false, rows, 1);
    save("pack/[a]*.kpack");
    save_library("lib.so", "pack/[a]*.kpack");
    read_file("lib.so");
    expect("elf/kpack none lib.so#0 gfx1100\n", NULL);
}

/* The runtime's own variables: one list instead of the library's, one before all. */
static void test_the_runtime_s_lists_are_followed(void **state)
{
    static const struct row rows[] = { { "lib.so#0", "gfx1100", 0 } };
    char list[2 * PATH_MAX];

    (void)state;
    write_archive(false, rows, 1);
    save("pack/a_gfx1100.kpack");
    write_archive(true, rows, 1);
    save("all.kpack");
    save_library("lib.so", "pack/a_@GFXARCH@.kpack");
    snprintf(list, sizeof(list), "%s/gone.kpack:%s", folder, path_of("all.kpack"));
    setenv("ROCM_KPACK_PATH", list, 1);
    read_file("lib.so");
    expect("elf/kpack zstd lib.so#0 gfx1100\n", NULL);
    setenv("ROCM_KPACK_PATH", path_of("gone.kpack"), 1);
    read_file("lib.so");
    expect("", "that are not there: ROCM_KPACK_PATH=/tmp/");
    setenv("ROCM_KPACK_PATH", "", 1);
    setenv("ROCM_KPACK_PATH_PREFIX", list, 1);
    read_file("lib.so");
    expect("elf/kpack zstd lib.so#0 gfx1100\nelf/kpack none lib.so#0 gfx1100\n", NULL);
}

static void test_in_memory_no_reference_is_followed(void **state)
{
    (void)state;
    save_library("lib.so", "pack/a_@GFXARCH@.kpack");
    lines[0] = 0;
    images_read(file, file_bytes, NULL, keep, NULL, &result);
    expect("", "its code is in kpack archives");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_archives_are_read_by_themselves),
        TEST(test_an_image_that_is_not_there_is_no_other),
        TEST(test_an_image_that_cannot_be_read_keeps_its_target),
        TEST(test_a_library_s_own_images_are_found),
        TEST(test_an_archive_counts_once),
        TEST(test_archives_that_are_not_there_are_named),
        TEST(test_references_to_other_things_are_refused),
        TEST(test_paths_are_no_patterns),
        TEST(test_the_runtime_s_lists_are_followed),
        TEST(test_in_memory_no_reference_is_followed),
    };

    if (!codeobj_reads_with("libelf") || !codeobj_reads_with("zstd")) {
        fprintf(stderr, "SKIPPED: this build reads no code objects, or none packed\n");
        return 77;
    }
    return cmocka_run_group_tests_name("images_kpack", tests, NULL, NULL);
}
