/* SPDX-License-Identifier: Apache-2.0 */
/* Configuration structures of every version of the API, good and bad. Each is put into
 * a heap block of exactly its size, so that a read behind it is seen by ASan. */
#include "api/config.h"
#include "motet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* Where the fields of 2.31's structure are (api.md 1.5). */
enum {
    AT_BLOCKING = 16,
    AT_CGA = 20,
    AT_MIN_CTAS = 24,
    AT_MAX_CTAS = 28,
    AT_NET_NAME = 32,
    AT_SPLIT_SHARE = 40,
    AT_TRAFFIC_CLASS = 44,
    AT_COMM_NAME = 48,
    AT_COLLNET = 56,
    AT_CTA_POLICY = 60,
    AT_SHRINK_SHARE = 64,
    AT_NVLS_CTAS = 68,
    AT_CHANNELS = 72,
    AT_NVLINK_SCHED = 76,
    AT_GRAPH_MODE = 80,
    AT_RMA_CTX = 84,
    AT_P2P_PEERS = 88,
    AT_GRAPH_ORDER = 92,
    AT_LAUNCH_ORDER = 96,
    AT_RMA_SIG = 100,
    AT_RMA_EAGER = 104,
    AT_HOST_CFT = 108,
    AT_NVLS_HOST = 112,
    END_OF_FIELDS = 116,
    NEWEST_SIZE = 120
};

#define MAGIC 0xcafebeefu
#define UNSET MOTET_CONFIG_UNSET

/* Every version that changed the structure. */
static const struct version {
    unsigned code;
    size_t size, fields_end;
} versions[] = {
    { 21400, 24, 20 },
    { 21700, 40, 40 },
    { 21800, 48, 44 },
    { 22601, 48, 48 },
    { 22700, 72, 72 },
    { 22707, 72, 72 },
    { 22800, 80, 80 },
    { 22900, 88, 88 },
    { 23003, 96, 92 },
    { 23007, 96, 96 },
    { 23100, 120, 116 },
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *no_environment(const char *name, void *arg)
{
    (void)name;
    (void)arg;
    return NULL;
}

static motet_params params;

static int load_params(void **state)
{
    (void)state;
    return motet_params_load(no_environment, NULL, &params) == MOTET_OK ? 0 : -1;
}

static void put_int(char *at, int offset, int value)
{
    memcpy(at + offset, &value, sizeof(value));
}

static void put_text(char *at, int offset, const char *text)
{
    memcpy(at + offset, &text, sizeof(text));
}

/* A block of @p size bytes as that version's initializer leaves it; what lies behind
 * the fields of the version is garbage. */
static char *make(size_t size, unsigned version)
{
    char full[NEWEST_SIZE];
    const unsigned magic = MAGIC;
    size_t known = size;
    char *block = malloc(size);

    assert_non_null(block);
    for (size_t i = 0; i < COUNT(versions); i++) {
        if (versions[i].code == version && versions[i].size == size)
            known = versions[i].fields_end;
    }
    memset(block, 0xa5, size);
    memcpy(full, &size, sizeof(size));
    memcpy(full + 8, &magic, sizeof(magic));
    memcpy(full + 12, &version, sizeof(version));
    for (int at = AT_BLOCKING; at < NEWEST_SIZE; at += 4)
        put_int(full, at, UNSET);
    put_text(full, AT_NET_NAME, NULL);
    put_text(full, AT_COMM_NAME, NULL);
    memcpy(block, full, known < sizeof(full) ? known : sizeof(full));
    return block;
}

static motet_result parse(const void *block, motet_config *out)
{
    return motet_config_parse(block, NULL, &params, out);
}

static void every_versions_initializer_gives_the_defaults(void **state)
{
    motet_config defaults, parsed;

    (void)state;
    motet_config_defaults(&defaults);
    assert_int_equal(defaults.blocking, 1);
    assert_int_equal(defaults.cga_cluster_size, 4);
    assert_int_equal(defaults.min_ctas, 1);
    assert_int_equal(defaults.max_ctas, 64);
    assert_int_equal(defaults.graph_usage_mode, 2);
    assert_int_equal(defaults.nvls_ctas, UNSET);
    for (size_t i = 0; i < COUNT(versions); i++) {
        char *block = make(versions[i].size, versions[i].code);

        memset(&parsed, 0xff, sizeof(parsed));
        assert_int_equal(parse(block, &parsed), MOTET_OK);
        assert_memory_equal(&parsed, &defaults, sizeof(parsed));
        free(block);
    }
}

static void this_headers_initializer_is_accepted(void **state)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    motet_config parsed;

    (void)state;
    config.blocking = 0;
    config.minCTAs = 3;
    config.maxCTAs = 5;
    config.commName = "tenors";
    assert_int_equal(parse(&config, &parsed), MOTET_OK);
    assert_int_equal(parsed.blocking, 0);
    assert_int_equal(parsed.min_ctas, 3);
    assert_int_equal(parsed.max_ctas, 5);
    assert_string_equal(parsed.comm_name, "tenors");
}

/* One value of each field that differs from its default. */
static const struct {
    int at;
    unsigned since;
    int value;
    size_t ours;
} fields[] = {
    { AT_BLOCKING, 21400, 0, offsetof(motet_config, blocking) },
    { AT_CGA, 21700, 2, offsetof(motet_config, cga_cluster_size) },
    { AT_MIN_CTAS, 21700, 7, offsetof(motet_config, min_ctas) },
    { AT_MAX_CTAS, 21700, 9, offsetof(motet_config, max_ctas) },
    { AT_SPLIT_SHARE, 21800, 1, offsetof(motet_config, split_share) },
    { AT_TRAFFIC_CLASS, 22600, -5, offsetof(motet_config, traffic_class) },
    { AT_COLLNET, 22700, 1, offsetof(motet_config, collnet_enable) },
    { AT_CTA_POLICY, 22700, 3, offsetof(motet_config, cta_policy) },
    { AT_SHRINK_SHARE, 22700, 1, offsetof(motet_config, shrink_share) },
    { AT_NVLS_CTAS, 22700, 4, offsetof(motet_config, nvls_ctas) },
    { AT_CHANNELS, 22800, 64, offsetof(motet_config, channels_per_net_peer) },
    { AT_NVLINK_SCHED, 22800, 1, offsetof(motet_config, nvlink_centric_sched) },
    { AT_GRAPH_MODE, 22900, 0, offsetof(motet_config, graph_usage_mode) },
    { AT_RMA_CTX, 22900, 0, offsetof(motet_config, rma_contexts) },
    { AT_P2P_PEERS, 23003, 8, offsetof(motet_config, max_p2p_peers) },
    { AT_GRAPH_ORDER, 23007, 0, offsetof(motet_config, graph_stream_ordering) },
    { AT_LAUNCH_ORDER, 23100, 1, offsetof(motet_config, launch_order_implicit) },
    { AT_RMA_SIG, 23100, 0, offsetof(motet_config, rma_signals) },
    { AT_RMA_EAGER, 23100, 1, offsetof(motet_config, rma_eager_init) },
    { AT_HOST_CFT, 23100, 3, offsetof(motet_config, host_cft_mode) },
    { AT_NVLS_HOST, 23100, INT_MAX, offsetof(motet_config, nvls_host_mode) },
};

static int field_of(const motet_config *config, size_t i)
{
    int value;

    memcpy(&value, (const char *)config + fields[i].ours, sizeof(value));
    return value;
}

static void a_field_counts_if_the_callers_version_knows_it(void **state)
{
    motet_config defaults, parsed;

    (void)state;
    motet_config_defaults(&defaults);
    for (size_t v = 0; v < COUNT(versions); v++) {
        /* All fields are set, in a block that has room for all of them. */
        char *block = make(NEWEST_SIZE, versions[v].code);

        for (size_t i = 0; i < COUNT(fields); i++)
            put_int(block, fields[i].at, fields[i].value);
        assert_int_equal(parse(block, &parsed), MOTET_OK);
        for (size_t i = 0; i < COUNT(fields); i++) {
            if (fields[i].since <= versions[v].code)
                assert_int_equal(field_of(&parsed, i), fields[i].value);
            else
                assert_int_equal(field_of(&parsed, i), field_of(&defaults, i));
        }
        free(block);
    }
}

static void a_field_counts_if_it_lies_within_the_callers_size(void **state)
{
    (void)state;
    for (size_t size = 16; size <= 200; size++) {
        char *block = make(size, 23100);
        motet_config parsed;

        for (size_t i = 0; i < COUNT(fields); i++) {
            if ((size_t)fields[i].at + 4 <= size)
                put_int(block, fields[i].at, fields[i].value);
        }
        /* A minimum needs its maximum. */
        if (size >= AT_MIN_CTAS + 4 && size < AT_MAX_CTAS + 4)
            put_int(block, AT_MIN_CTAS, UNSET);
        assert_int_equal(parse(block, &parsed), MOTET_OK);
        for (size_t i = 0; i < COUNT(fields); i++) {
            if (fields[i].at != AT_MIN_CTAS && (size_t)fields[i].at + 4 <= size)
                assert_int_equal(field_of(&parsed, i), fields[i].value);
        }
        free(block);
    }
}

static void padding_of_rccls_96_bytes_is_not_read_as_a_field(void **state)
{
    char *block = make(96, 23102);
    motet_config parsed;

    (void)state;
    put_int(block, AT_GRAPH_ORDER, 0x5a5a5a5a);
    assert_int_equal(parse(block, &parsed), MOTET_OK);
    assert_int_equal(parsed.graph_stream_ordering, 1);
    free(block);
}

static void a_value_out_of_range_is_refused_by_name(void **state)
{
    static const struct {
        int at, value;
        const char *name;
    } cases[] = {
        { AT_BLOCKING, 2, "blocking" },
        { AT_BLOCKING, -1, "blocking" },
        { AT_CGA, -1, "cgaClusterSize" },
        { AT_MIN_CTAS, 0, "minCTAs" },
        { AT_MAX_CTAS, 0, "maxCTAs" },
        { AT_MAX_CTAS, -3, "maxCTAs" },
        { AT_SPLIT_SHARE, 2, "splitShare" },
        { AT_COLLNET, -1, "collnetEnable" },
        { AT_CTA_POLICY, 4, "CTAPolicy" },
        { AT_CTA_POLICY, -1, "CTAPolicy" },
        { AT_SHRINK_SHARE, 2, "shrinkShare" },
        { AT_NVLS_CTAS, 0, "nvlsCTAs" },
        { AT_CHANNELS, 0, "nChannelsPerNetPeer" },
        { AT_CHANNELS, 65, "nChannelsPerNetPeer" },
        { AT_NVLINK_SCHED, 2, "nvlinkCentricSched" },
        { AT_GRAPH_MODE, 3, "graphUsageMode" },
        { AT_RMA_CTX, -1, "numRmaCtx" },
        { AT_P2P_PEERS, 0, "maxP2pPeers" },
        { AT_GRAPH_ORDER, 2, "graphStreamOrdering" },
        { AT_LAUNCH_ORDER, 2, "launchOrderImplicit" },
        { AT_RMA_SIG, -1, "numRmaSig" },
        { AT_RMA_EAGER, 2, "rmaEagerInit" },
        { AT_HOST_CFT, 0, "hostCftMode" },
        { AT_HOST_CFT, 4, "hostCftMode" },
        { AT_NVLS_HOST, 4, "nvlsHostMode" },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *block = make(NEWEST_SIZE, 23100);
        motet_config untouched, out;

        memset(&out, 0x77, sizeof(out));
        untouched = out;
        put_int(block, cases[i].at, cases[i].value);
        assert_int_equal(parse(block, &out), MOTET_ERR_ARGUMENT);
        assert_non_null(strstr(motet_error_trail(), cases[i].name));
        assert_memory_equal(&out, &untouched, sizeof(out));
        free(block);
    }
}

static void a_minimum_above_or_without_its_maximum_is_refused(void **state)
{
    static const struct {
        int min, max;
        motet_result expected;
    } cases[] = {
        { 4, UNSET, MOTET_ERR_ARGUMENT },
        { 4, 3, MOTET_ERR_ARGUMENT },
        { 4, 4, MOTET_OK },
        { UNSET, 4, MOTET_OK },
        { UNSET, UNSET, MOTET_OK },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *block = make(72, 22707);
        motet_config parsed;

        put_int(block, AT_MIN_CTAS, cases[i].min);
        put_int(block, AT_MAX_CTAS, cases[i].max);
        assert_int_equal(parse(block, &parsed), cases[i].expected);
        free(block);
    }
}

static void a_structure_without_the_magic_is_refused_in_nccls_words(void **state)
{
    static const char words[] =
            "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER";
    motet_config parsed;
    char *block = make(72, 22707);

    (void)state;
    put_int(block, 8, 0);
    assert_int_equal(parse(block, &parsed), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), words));
    free(block);
    for (size_t size = 0; size < 16; size++) { /* no room for a magic */
        block = malloc(sizeof(size));
        assert_non_null(block);
        memcpy(block, &size, sizeof(size));
        assert_int_equal(parse(block, &parsed), MOTET_ERR_ARGUMENT);
        assert_non_null(strstr(motet_error_trail(), words));
        free(block);
    }
}

static void strings_are_copied_and_cut(void **state)
{
    char name[300], *block = make(72, 22707);
    motet_config parsed;

    (void)state;
    memset(name, 'n', sizeof(name) - 1);
    name[sizeof(name) - 1] = '\0';
    put_text(block, AT_NET_NAME, "Socket");
    put_text(block, AT_COMM_NAME, name);
    assert_int_equal(parse(block, &parsed), MOTET_OK);
    memset(name, 'x', sizeof(name));
    assert_string_equal(parsed.net_name, "Socket");
    assert_int_equal(strlen(parsed.comm_name), MOTET_CONFIG_STRING_MAX - 1);
    assert_int_equal(parsed.comm_name[0], 'n');
    free(block);
}

static void no_structure_gives_the_parents_values_or_the_defaults(void **state)
{
    motet_config defaults, parent, parsed;

    (void)state;
    motet_config_defaults(&defaults);
    assert_int_equal(motet_config_parse(NULL, NULL, &params, &parsed), MOTET_OK);
    assert_memory_equal(&parsed, &defaults, sizeof(parsed));

    parent = defaults;
    parent.blocking = 0;
    parent.max_ctas = 12;
    strncpy(parent.comm_name, "parent", sizeof(parent.comm_name) - 1);
    assert_int_equal(motet_config_parse(NULL, &parent, &params, &parsed), MOTET_OK);
    assert_memory_equal(&parsed, &parent, sizeof(parsed));
}

static const char *environment(const char *name, void *arg)
{
    static const char *const pairs[][2] = {
        { "NCCL_COMM_BLOCKING", "0" },
        { "NCCL_MIN_CTAS", "20" },
        { "NCCL_MAX_CTAS", "10" },
        { "NCCL_CTA_POLICY", "2" },
    };

    (void)arg;
    for (size_t i = 0; i < COUNT(pairs); i++) {
        if (strcmp(name, pairs[i][0]) == 0)
            return pairs[i][1];
    }
    return NULL;
}

static void the_environment_wins_over_the_caller(void **state)
{
    static motet_params set;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    motet_config parsed;

    (void)state;
    assert_int_equal(motet_params_load(environment, NULL, &set), MOTET_OK);
    config.blocking = 1;
    config.maxCTAs = 30;
    config.CTAPolicy = 1;
    assert_int_equal(motet_config_parse(&config, NULL, &set, &parsed), MOTET_OK);
    assert_int_equal(parsed.blocking, 0);
    assert_int_equal(parsed.max_ctas, 10);
    assert_int_equal(parsed.min_ctas, 10); /* lowered to the maximum */
    assert_int_equal(parsed.cta_policy, 2);
}

static void options_of_a_call_are_taken_and_checked(void **state)
{
    static const struct {
        int min, max, nvls, cga, force, policy;
        motet_result expected;
    } cases[] = {
        { UNSET, UNSET, UNSET, UNSET, 1, UNSET, MOTET_OK },
        { 2, 3, 1, 8, 0, 3, MOTET_OK },
        { 2, UNSET, UNSET, UNSET, 1, UNSET, MOTET_OK },
        { 3, 2, UNSET, UNSET, 1, UNSET, MOTET_ERR_ARGUMENT },
        { 0, UNSET, UNSET, UNSET, 1, UNSET, MOTET_ERR_ARGUMENT },
        { UNSET, UNSET, 0, UNSET, 1, UNSET, MOTET_ERR_ARGUMENT },
        { UNSET, UNSET, UNSET, 9, 1, UNSET, MOTET_ERR_ARGUMENT },
        { UNSET, UNSET, UNSET, UNSET, 2, UNSET, MOTET_ERR_ARGUMENT },
        { UNSET, UNSET, UNSET, UNSET, 1, 4, MOTET_ERR_ARGUMENT },
    };

    (void)state;
    for (size_t i = 0; i < COUNT(cases); i++) {
        ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
        motet_call_config parsed;

        config.minCTAs = cases[i].min;
        config.maxCTAs = cases[i].max;
        config.nvlsCTAs = cases[i].nvls;
        config.cgaClusterSize = cases[i].cga;
        config.forceAlgSelection = cases[i].force;
        config.CTAPolicy = cases[i].policy;
        config.algSelection = "ring";
        config.userProfilerTag = 1ull << 40;
        assert_int_equal(motet_call_config_parse(&config, &parsed), cases[i].expected);
        if (cases[i].expected != MOTET_OK)
            continue;
        assert_int_equal(parsed.min_ctas, cases[i].min);
        assert_int_equal(parsed.cta_policy, cases[i].policy);
        assert_int_equal(parsed.force_algorithm, cases[i].force);
        assert_string_equal(parsed.algorithm, "ring");
        assert_true(parsed.profiler_tag == 1ull << 40);
        assert_false(parsed.has_timeout);
    }
}

static void a_call_without_options_asks_for_nothing(void **state)
{
    motet_call_config parsed;

    (void)state;
    memset(&parsed, 0xff, sizeof(parsed));
    assert_int_equal(motet_call_config_parse(NULL, &parsed), MOTET_OK);
    assert_int_equal(parsed.min_ctas, UNSET);
    assert_int_equal(parsed.cta_policy, UNSET);
    assert_false(parsed.has_timeout);
    assert_false(parsed.force_algorithm);
    assert_string_equal(parsed.algorithm, "");
}

static motet_result parse_list(ncclConfigExt_t *list, motet_call_config *out)
{
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;

    config.ext = list;
    return motet_call_config_parse(&config, out);
}

static void options_of_other_vendors_are_passed_over(void **state)
{
    ncclConfigExt_t ours = { NULL, { MOTET_EXT_VENDOR, MOTET_EXT_TIMEOUT_MS },
        { 250 } };
    ncclConfigExt_t other = { &ours, { 4711, MOTET_EXT_TIMEOUT_MS }, { -1 } };
    motet_call_config parsed;

    (void)state;
    assert_int_equal(parse_list(&other, &parsed), MOTET_OK);
    assert_true(parsed.has_timeout);
    assert_int_equal(parsed.timeout_ms, 250);
}

static void bad_options_of_ours_are_refused(void **state)
{
    ncclConfigExt_t negative = { NULL, { MOTET_EXT_VENDOR, MOTET_EXT_TIMEOUT_MS },
        { -1 } };
    ncclConfigExt_t unknown = { NULL, { MOTET_EXT_VENDOR, 99 }, { 1 } };
    ncclConfigExt_t second = { NULL, { MOTET_EXT_VENDOR, MOTET_EXT_TIMEOUT_MS },
        { 1 } };
    ncclConfigExt_t first = { &second, { MOTET_EXT_VENDOR, MOTET_EXT_TIMEOUT_MS },
        { 1 } };
    motet_call_config parsed;

    (void)state;
    assert_int_equal(parse_list(&negative, &parsed), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "-1 ms"));
    assert_int_equal(parse_list(&unknown, &parsed), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "99"));
    assert_int_equal(parse_list(&first, &parsed), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "twice"));
}

static void a_list_that_is_a_circle_ends(void **state)
{
    ncclConfigExt_t a = { NULL, { 1, 1 }, { 0 } }, b = { &a, { 1, 2 }, { 0 } };
    motet_call_config parsed;

    (void)state;
    a.next = &b;
    assert_int_equal(parse_list(&b, &parsed), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "circle"));
}

static void a_call_structure_that_is_none_is_refused(void **state)
{
    ncclCollConfig_t config = NCCL_COLLCONFIG_INITIALIZER;
    motet_call_config parsed;

    (void)state;
    config.magic = 1;
    assert_int_equal(motet_call_config_parse(&config, &parsed), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "NCCL_COLLCONFIG_INITIALIZER"));
    config.magic = NCCL_API_MAGIC;
    config.size = 63;
    assert_int_equal(motet_call_config_parse(&config, &parsed), MOTET_ERR_ARGUMENT);
    config.size = 72; /* of a newer version */
    assert_int_equal(motet_call_config_parse(&config, &parsed), MOTET_OK);
}

static void the_simulation_structure_is_checked_and_filled(void **state)
{
    ncclSimInfo_t info = NCCL_SIM_INFO_INITIALIZER;

    (void)state;
    assert_int_equal(motet_sim_info_check(NULL), MOTET_OK);
    assert_int_equal(motet_sim_info_check(&info), MOTET_OK);
    motet_sim_info_set_time(&info, 12.5f);
    assert_true(info.estimatedTime > 12.0f);
    info.size = 16; /* a caller without the field */
    motet_sim_info_set_time(&info, 99.0f);
    assert_true(info.estimatedTime < 13.0f);
    motet_sim_info_set_time(NULL, 1.0f);
    info.magic = NCCL_API_MAGIC;
    assert_int_equal(motet_sim_info_check(&info), MOTET_ERR_ARGUMENT);
    assert_non_null(strstr(motet_error_trail(), "NCCL_SIM_INFO_INITIALIZER"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_versions_initializer_gives_the_defaults),
        cmocka_unit_test(this_headers_initializer_is_accepted),
        cmocka_unit_test(a_field_counts_if_the_callers_version_knows_it),
        cmocka_unit_test(a_field_counts_if_it_lies_within_the_callers_size),
        cmocka_unit_test(padding_of_rccls_96_bytes_is_not_read_as_a_field),
        cmocka_unit_test(a_value_out_of_range_is_refused_by_name),
        cmocka_unit_test(a_minimum_above_or_without_its_maximum_is_refused),
        cmocka_unit_test(a_structure_without_the_magic_is_refused_in_nccls_words),
        cmocka_unit_test(strings_are_copied_and_cut),
        cmocka_unit_test(no_structure_gives_the_parents_values_or_the_defaults),
        cmocka_unit_test(the_environment_wins_over_the_caller),
        cmocka_unit_test(options_of_a_call_are_taken_and_checked),
        cmocka_unit_test(a_call_without_options_asks_for_nothing),
        cmocka_unit_test(options_of_other_vendors_are_passed_over),
        cmocka_unit_test(bad_options_of_ours_are_refused),
        cmocka_unit_test(a_list_that_is_a_circle_ends),
        cmocka_unit_test(a_call_structure_that_is_none_is_refused),
        cmocka_unit_test(the_simulation_structure_is_checked_and_filled),
    };

    return cmocka_run_group_tests(tests, load_params, NULL);
}
