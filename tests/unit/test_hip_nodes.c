/* SPDX-License-Identifier: Apache-2.0 */
/* Device nodes and KFD's topology, in folders made for the purpose. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "child.h"
#include "device/hip.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

static char root[64];

static int make_root(void **state)
{
    (void)state;
    snprintf(root, sizeof(root), "/tmp/motet-nodes-XXXXXX");
    if (mkdtemp(root) == NULL)
        return -1;
    return chmod(root, 0755);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static int remove_root(void **state)
{
    (void)state;
    return nftw(root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* The file at @p path below the root with its folders, of @p text. */
static void put(const char *path, const char *text, mode_t mode)
{
    char whole[512];
    int fd;

    snprintf(whole, sizeof(whole), "%s%s", root, path);
    for (char *c = whole + strlen(root) + 1; *c != '\0'; c++) {
        if (*c != '/')
            continue;
        *c = '\0';
        (void)mkdir(whole, 0755);
        *c = '/';
    }
    fd = open(whole, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
}

#define NODES "/sys/class/kfd/kfd/topology/nodes/"

/* ---- topology ---- */

/* A host with two GPUs, the second without AtomicOps and with a link to the first. */
static void put_topology(void)
{
    put(NODES "0/properties", "cpu_cores_count 24\nsimd_count 0\n", 0644);
    put(NODES "0/io_links/0/properties", "node_from 0\nnode_to 1\nflags 3\n", 0644);
    put(NODES "1/properties",
            "cpu_cores_count 0\nsimd_count 192\ngfx_target_version 110000\n"
            "location_id 768\ndomain 0\n",
            0644);
    put(NODES "1/io_links/0/properties", "type 2\nnode_from 1\nnode_to 0\nflags 1\n",
            0644);
    put(NODES "3/properties",
            "simd_count 304\ngfx_target_version 90010\nlocation_id 2561\ndomain 2\n",
            0644);
    put(NODES "3/io_links/0/properties", "type 11\nnode_from 3\nnode_to 1\nflags 1\n",
            0644);
    put(NODES "3/io_links/1/properties", "type 2\nnode_from 3\nnode_to 0\nflags 13\n",
            0644);
    put(NODES "4/properties", "", 0644); /* one that is not ours to see */
    put(NODES "5/properties", /* a partition, the third of a GPU at 0000:0c:00.0 */
            "simd_count 76\ngfx_target_version 90402\nlocation_id 536873984\n"
            "domain 0\n",
            0644);
}

static void test_a_gpu_is_found_by_its_place(void **state)
{
    motet_hip_kfd kfd;

    (void)state;
    put_topology();
    motet_hip_kfd_read(root, "0000:03:00.0", &kfd);
    assert_true(kfd.known);
    assert_int_equal(kfd.gfx_version, 110000);
    assert_int_equal(kfd.atomics, 1);
    motet_hip_kfd_read(root, "0002:0a:00.1", &kfd);
    assert_true(kfd.known);
    assert_int_equal(kfd.gfx_version, 90010);
    assert_int_equal(kfd.atomics, 0); /* of the link to the host, not to its peer */
    motet_hip_kfd_read(root, "0000:0a:00.1", &kfd);
    assert_false(kfd.known);
    assert_int_equal(kfd.atomics, -1);
    motet_hip_kfd_read(root, "0000:0c:00.2", &kfd); /* as the runtime calls it */
    assert_true(kfd.known);
    assert_int_equal(kfd.gfx_version, 90402);
    motet_hip_kfd_read(root, "0000:0c:00.0", &kfd);
    assert_true(kfd.known);
    motet_hip_kfd_read(root, "0000:0c:01.2", &kfd);
    assert_false(kfd.known);
    motet_hip_kfd_read(root, "nowhere", &kfd);
    assert_false(kfd.known);
    motet_hip_kfd_read("/nonexistent", "0000:03:00.0", &kfd);
    assert_false(kfd.known);
}

static void test_lines_are_read_whole(void **state)
{
    static const struct {
        const char *text;
        bool found;
        uint64_t value;
    } cases[] = {
        { "flags 13\n", true, 13 },
        { "flags 13", true, 13 },
        { "recommended_flags 2\nflags 1\n", true, 1 },
        { "flags_more 2\nflags 4294967295\n", true, 4294967295u },
        { "flags\n", false, 0 },
        { "flags \n", false, 0 },
        { "flags -1\n", false, 0 },
        { "flags 1x\n", false, 0 },
        { "flags 99999999999999999999999\n", false, 0 },
        { "xflags 1\n", false, 0 },
        { "", false, 0 },
        { "\n\nflags 5\n", true, 5 },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        uint64_t value = 77;

        if (motet_hip_kfd_value(cases[i].text, "flags", &value) != cases[i].found ||
                value != (cases[i].found ? cases[i].value : 77))
            fail_msg("case %zu: %llu", i, (unsigned long long)value);
    }
}

static void test_architectures_are_named(void **state)
{
    static const struct {
        unsigned version;
        const char *name;
    } cases[] = { { 110000, "gfx1100" }, { 90402, "gfx942" }, { 90010, "gfx90a" },
        { 120001, "gfx1201" }, { 100302, "gfx1032" }, { 90006, "gfx906" } };
    static const char *const wrong[] = { "", "11", "11.0", "11.0.0.0", "11.0.0x",
        "gfx1100", "11,0,0", "-8.0.0", "8.-1.0", " 8.0.0", "8. 0.0" };
    unsigned version = 7;
    char name[16];

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        motet_hip_gfx_name(cases[i].version, name, sizeof(name));
        assert_string_equal(name, cases[i].name);
    }
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_false(motet_hip_gfx_parse(wrong[i], &version));
    assert_int_equal(version, 7);
    assert_true(motet_hip_gfx_parse("10.3.0", &version));
    assert_int_equal(version, 100300);
}

/* ---- properties ---- */

static void test_a_target_is_found_where_the_struct_has_grown(void **state)
{
    static char properties[4096];
    char target[32] = "kept";

    (void)state;
    assert_false(motet_hip_find_target(properties, sizeof(properties),
            HIP_PROP_R0600_ARCH, target, sizeof(target)));
    assert_string_equal(target, "kept");
    memcpy(properties, "gfx1100 is in the name", 23);
    memcpy(properties + 1300, "gfx90a:sramecc+:xnack-", 23);
    assert_true(motet_hip_find_target(properties, sizeof(properties),
            HIP_PROP_R0600_ARCH, target, sizeof(target)));
    assert_string_equal(target, "gfx90a:sramecc+:xnack-");
    memcpy(properties + HIP_PROP_R0600_ARCH, "gfx1201", 8);
    assert_true(motet_hip_find_target(properties, sizeof(properties),
            HIP_PROP_R0600_ARCH, target, sizeof(target)));
    assert_string_equal(target, "gfx1201");
    /* cut off by the end of what was read, or longer than a target is */
    assert_false(motet_hip_find_target("gfx1100", 7, 0, target, sizeof(target)));
    assert_false(motet_hip_find_target("gfx1100", 8, 0, target, 5));
}

/* ---- pointers ---- */

static void test_kinds_of_memory_are_decoded_by_version(void **state)
{
    static const struct {
        int version, type, managed;
        motet_pointer_kind kind;
    } cases[] = {
        { 5070, 0, 0, MOTET_POINTER_HOST },
        { 5070, 1, 0, MOTET_POINTER_DEVICE },
        { 5070, 2, 0, MOTET_POINTER_UNKNOWN },
        { 5020, 0, 1, MOTET_POINTER_MANAGED },
        { 6000, 0, 0, MOTET_POINTER_UNKNOWN },
        { 6000, 1, 0, MOTET_POINTER_HOST },
        { 6000, 2, 0, MOTET_POINTER_DEVICE },
        { 7000, 3, 0, MOTET_POINTER_MANAGED },
        { 7000, 2, 1, MOTET_POINTER_MANAGED },
        { 7000, 10, 0, MOTET_POINTER_UNKNOWN },
        { 7000, -1, 0, MOTET_POINTER_UNKNOWN },
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        const hipPointerAttribute_t attributes = { .type = cases[i].type,
            .isManaged = cases[i].managed };

        if (motet_hip_pointer_kind(cases[i].version, &attributes) != cases[i].kind)
            fail_msg("case %zu", i);
    }
}

/* ---- nodes ---- */

static void test_missing_nodes_are_named(void **state)
{
    char why[400] = "";

    (void)state;
    assert_int_equal(motet_hip_nodes(root, why, sizeof(why)), MOTET_GPU_NO_DEVICE);
    assert_non_null(strstr(why, "/dev/kfd is not there"));
    assert_non_null(strstr(why, "--device=/dev/kfd"));
    put("/dev/kfd", "", 0666);
    assert_int_equal(motet_hip_nodes(root, why, sizeof(why)), MOTET_GPU_NO_DEVICE);
    assert_non_null(strstr(why, "/dev/dri/renderD*"));
    put("/dev/dri/renderD128", "", 0666);
    assert_int_equal(motet_hip_nodes(root, why, sizeof(why)), MOTET_GPU_USABLE);
}

static int look_without_rights(const void *arg)
{
    char why[400] = "";

    (void)arg;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
        return 77;
    if (motet_hip_nodes(root, why, sizeof(why)) != MOTET_GPU_BROKEN)
        return 1;
    printf("%s", why);
    return 0;
}

static void test_nodes_without_rights_are_named(void **state)
{
    child_result child;
    char group[32];

    (void)state;
    put("/dev/kfd", "", 0660);
    put("/dev/dri/renderD128", "", 0);
    if (geteuid() != 0) /* who runs the test owns them */
        put("/dev/kfd", "", 0);
    child = child_run(look_without_rights, NULL, NULL);
    if (child.status == 77)
        skip();
    assert_int_equal(child.status, 0);
    assert_non_null(strstr(child.out, "/dev/kfd (mode 0"));
    assert_non_null(strstr(child.out, "may not be opened by user"));
    assert_non_null(strstr(child.out, "--group-add"));
    snprintf(group, sizeof(group), "group %s", getegid() == 0 ? "root" : "");
    assert_non_null(strstr(child.out, group));

    put("/dev/kfd", "", 0666);
    child = child_run(look_without_rights, NULL, NULL);
    assert_int_equal(child.status, 0);
    assert_non_null(strstr(child.out, "/dev/dri/renderD128 (mode 0000"));
    /* another vendor's, while ours opens */
    put("/dev/dri/renderD129", "", 0666);
    child = child_run(look_without_rights, NULL, NULL);
    assert_int_equal(child.status, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_gpu_is_found_by_its_place, make_root,
                remove_root),
        cmocka_unit_test(test_lines_are_read_whole),
        cmocka_unit_test(test_architectures_are_named),
        cmocka_unit_test(test_a_target_is_found_where_the_struct_has_grown),
        cmocka_unit_test(test_kinds_of_memory_are_decoded_by_version),
        cmocka_unit_test_setup_teardown(test_missing_nodes_are_named, make_root,
                remove_root),
        cmocka_unit_test_setup_teardown(test_nodes_without_rights_are_named, make_root,
                remove_root),
    };

    return cmocka_run_group_tests_name("hip_nodes", tests, NULL, NULL);
}
