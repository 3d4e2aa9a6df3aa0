/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's configuration structures are append-only: a newer version has more
 * fields at the end. A field is the caller's if it lies within `size` and is not newer
 * than `version`. Both are needed, since the compiler's padding makes versions share a
 * size: 2.18 and 2.26 have 48 bytes, 2.30.3 and 2.30.7 have 96, and what lies in the
 * padding of the older one is garbage.
 *
 * One row for each field says where it is, since when, and what it may be.
 */
#include "api/config.h"

#include "motet.h"

#include <string.h>

/* Longest list of options that is followed: a longer one is a circle. */
#define EXT_MAX 64

#define SIM_INFO_MAGIC 0x74685283u

/* ncclConfig_t of 2.31, the newest that is known. */
struct comm_layout {
    size_t size;
    unsigned int magic, version;
    int blocking, cgaClusterSize, minCTAs, maxCTAs;
    const char *netName;
    int splitShare, trafficClass;
    const char *commName;
    int collnetEnable, CTAPolicy, shrinkShare, nvlsCTAs;
    int nChannelsPerNetPeer, nvlinkCentricSched, graphUsageMode, numRmaCtx, maxP2pPeers;
    int graphStreamOrdering;
    int launchOrderImplicit, numRmaSig, rmaEagerInit, hostCftMode, nvlsHostMode;
};

_Static_assert(sizeof(ncclConfig_t) == 72, "size of 2.27");
_Static_assert(sizeof(struct comm_layout) == 120, "size of 2.31");
_Static_assert(offsetof(struct comm_layout, nvlsCTAs) ==
                offsetof(ncclConfig_t, nvlsCTAs),
        "one layout");
_Static_assert(offsetof(struct comm_layout, graphStreamOrdering) == 92, "2.30.7");
_Static_assert(sizeof(ncclCollConfig_t) == 64, "size of 2.31");

/* An integer field. A value is fine if it is unset, in low…high, or `also`. */
struct field {
    const char *name;
    unsigned since; /* version that brought it */
    size_t theirs;  /* offset in the caller's structure */
    size_t ours;    /* offset in ours */
    int dflt, low, high, also;
};

#define UNSET MOTET_CONFIG_UNSET
#define NONE  MOTET_CONFIG_UNSET
#define COMM(since, theirs, ours, ...)                      \
    { #theirs, since, offsetof(struct comm_layout, theirs), \
        offsetof(motet_config, ours), __VA_ARGS__ }
#define CALL(theirs, ours, ...)                       \
    { #theirs, 0, offsetof(ncclCollConfig_t, theirs), \
        offsetof(motet_call_config, ours), __VA_ARGS__ }

/* clang-format off */
static const struct field comm_fields[] = {
    /*    since  theirs               ours                   default  low  high     also */
    COMM(21400, blocking,            blocking,               1,       0,   1,       NONE),
    COMM(21700, cgaClusterSize,      cga_cluster_size,       4,       0,   INT_MAX, NONE),
    COMM(21700, minCTAs,             min_ctas,               UNSET,   1,   INT_MAX, NONE),
    COMM(21700, maxCTAs,             max_ctas,               UNSET,   1,   INT_MAX, NONE),
    COMM(21800, splitShare,          split_share,            0,       0,   1,       NONE),
    COMM(22500, trafficClass,        traffic_class,          UNSET, INT_MIN, INT_MAX, NONE),
    COMM(22700, collnetEnable,       collnet_enable,         0,       0,   1,       NONE),
    COMM(22700, CTAPolicy,           cta_policy,             0,       0,   3,       NONE),
    COMM(22700, shrinkShare,         shrink_share,           0,       0,   1,       NONE),
    COMM(22700, nvlsCTAs,            nvls_ctas,              UNSET,   1,   INT_MAX, NONE),
    COMM(22800, nChannelsPerNetPeer, channels_per_net_peer,  UNSET,   1,   64,      NONE),
    COMM(22800, nvlinkCentricSched,  nvlink_centric_sched,   0,       0,   1,       NONE),
    COMM(22900, graphUsageMode,      graph_usage_mode,       2,       0,   2,       NONE),
    COMM(22900, numRmaCtx,           rma_contexts,           1,       0,   INT_MAX, NONE),
    COMM(23000, maxP2pPeers,         max_p2p_peers,          UNSET,   1,   INT_MAX, NONE),
    COMM(23005, graphStreamOrdering, graph_stream_ordering,  1,       0,   1,       NONE),
    COMM(23100, launchOrderImplicit, launch_order_implicit,  UNSET,   0,   1,       NONE),
    COMM(23100, numRmaSig,           rma_signals,            UNSET,   0,   INT_MAX, NONE),
    COMM(23100, rmaEagerInit,        rma_eager_init,         UNSET,   0,   1,       NONE),
    COMM(23100, hostCftMode,         host_cft_mode,          UNSET,   1,   3,       NONE),
    COMM(23100, nvlsHostMode,        nvls_host_mode,         UNSET,   0,   3,    INT_MAX),
};

/* No version: they came together, and this header has them though it says 2.27. */
static const struct field call_fields[] = {
    CALL(minCTAs,        min_ctas,         UNSET, 1, INT_MAX, NONE),
    CALL(maxCTAs,        max_ctas,         UNSET, 1, INT_MAX, NONE),
    CALL(nvlsCTAs,       nvls_ctas,        UNSET, 1, INT_MAX, NONE),
    CALL(cgaClusterSize, cga_cluster_size, UNSET, 0, 8,       NONE),
    CALL(CTAPolicy,      cta_policy,       UNSET, 0, 3,       NONE),
};
/* clang-format on */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* What the head of all of the caller's structures says. */
struct head {
    size_t size;
    unsigned magic, version;
};

static motet_result read_head(const void *theirs, unsigned magic, const char *type,
        const char *initializer, struct head *head)
{
    size_t size;

    memcpy(&size, theirs, sizeof(size));
    if (size >= sizeof(*head)) {
        memcpy(head, theirs, sizeof(*head));
        if (head->magic == magic)
            return MOTET_OK;
    }
    return motet_fail(MOTET_ERR_ARGUMENT, "%s argument not initialized via %s", type,
            initializer);
}

static bool is_theirs(const struct head *head, unsigned since, size_t offset,
        size_t bytes)
{
    return head->version >= since && offset + bytes <= head->size;
}

static motet_result check_value(const struct field *f, int value)
{
    if (value == UNSET || (value >= f->low && value <= f->high) || value == f->also)
        return MOTET_OK;
    if (f->high == INT_MAX)
        return motet_fail(MOTET_ERR_ARGUMENT, "value is %d, accepted is %d and above",
                value, f->low);
    return motet_fail(MOTET_ERR_ARGUMENT, "value is %d, accepted is %d to %d%s", value,
            f->low, f->high, f->also == NONE ? "" : " and the largest int");
}

/* @p theirs holds as much of the caller's structure as is known, @p ours is filled. */
static motet_result take_fields(const struct field *fields, size_t count,
        const struct head *head, const void *theirs, void *ours)
{
    for (size_t i = 0; i < count; i++) {
        const struct field *f = &fields[i];
        int value = UNSET;

        if (is_theirs(head, f->since, f->theirs, sizeof(value)))
            memcpy(&value, (const char *)theirs + f->theirs, sizeof(value));
        MOTET_TRY(check_value(f, value), "field '%s'", f->name);
        if (value == UNSET)
            value = f->dflt;
        memcpy((char *)ours + f->ours, &value, sizeof(value));
    }
    return MOTET_OK;
}

static void take_string(const char *text, char out[MOTET_CONFIG_STRING_MAX])
{
    size_t bytes = text == NULL ? 0 : strnlen(text, MOTET_CONFIG_STRING_MAX - 1);

    if (bytes != 0)
        memcpy(out, text, bytes);
    out[bytes] = '\0';
}

/* Like NCCL, a minimum without a maximum is refused. */
static motet_result check_ctas(int min_ctas, int max_ctas, bool alone_is_fine)
{
    if (min_ctas == UNSET || (max_ctas == UNSET && alone_is_fine))
        return MOTET_OK;
    if (max_ctas == UNSET)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "field 'minCTAs': value is %d but 'maxCTAs' is not set: set both",
                min_ctas);
    if (min_ctas > max_ctas)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "field 'minCTAs': value is %d, accepted is up to 'maxCTAs', %d",
                min_ctas, max_ctas);
    return MOTET_OK;
}

static motet_result parse_comm(const void *config, motet_config *out)
{
    struct comm_layout theirs;
    struct head head;
    motet_result result = read_head(config, NCCL_API_MAGIC, "ncclConfig_t",
            "NCCL_CONFIG_INITIALIZER", &head);

    if (result != MOTET_OK)
        return result;
    memset(&theirs, 0, sizeof(theirs));
    memcpy(&theirs, config, head.size < sizeof(theirs) ? head.size : sizeof(theirs));
    /* RCCL's structure ends before this field whatever its version, with the same 96
     * bytes: there, what is no value of the field is padding. */
    if (head.size == offsetof(struct comm_layout, launchOrderImplicit) &&
            theirs.graphStreamOrdering != 0 && theirs.graphStreamOrdering != 1)
        theirs.graphStreamOrdering = UNSET;

    MOTET_TRY(take_fields(comm_fields, COUNT(comm_fields), &head, &theirs, out),
            "ncclConfig_t");
    MOTET_TRY(check_ctas(out->min_ctas, out->max_ctas, false), "ncclConfig_t");
    take_string(is_theirs(&head, 21700, offsetof(struct comm_layout, netName),
                        sizeof(theirs.netName))
                    ? theirs.netName
                    : NULL,
            out->net_name);
    take_string(is_theirs(&head, 22700, offsetof(struct comm_layout, commName),
                        sizeof(theirs.commName))
                    ? theirs.commName
                    : NULL,
            out->comm_name);
    return MOTET_OK;
}

/* The two whose defaults depend on each other's being set. */
static void default_ctas(motet_config *config)
{
    if (config->max_ctas == UNSET)
        config->max_ctas = 64;
    if (config->min_ctas == UNSET)
        config->min_ctas = 1;
}

void motet_config_defaults(motet_config *out)
{
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < COUNT(comm_fields); i++)
        memcpy((char *)out + comm_fields[i].ours, &comm_fields[i].dflt, sizeof(int));
    default_ctas(out);
}

/* As in NCCL the environment wins, and a minimum above the maximum is lowered. */
static void override_by_environment(const motet_params *params, motet_config *config)
{
    int64_t blocking = motet_param(params, MOTET_P_COMM_BLOCKING);
    int64_t min_ctas = motet_param(params, MOTET_P_MIN_CTAS);
    int64_t max_ctas = motet_param(params, MOTET_P_MAX_CTAS);

    if (blocking >= 0)
        config->blocking = (int)blocking;
    if (min_ctas > 0)
        config->min_ctas = (int)min_ctas;
    if (max_ctas > 0)
        config->max_ctas = (int)max_ctas;
    if (config->min_ctas > config->max_ctas)
        config->min_ctas = config->max_ctas;
    if (params->value[MOTET_P_CTA_POLICY].set)
        config->cta_policy = (int)motet_param(params, MOTET_P_CTA_POLICY);
}

motet_result motet_config_parse(const ncclConfig_t *config, const motet_config *parent,
        const motet_params *params, motet_config *out)
{
    motet_config parsed;
    motet_result result = MOTET_OK;

    motet_config_defaults(&parsed);
    if (config != NULL)
        result = parse_comm(config, &parsed);
    else if (parent != NULL)
        parsed = *parent;
    if (result != MOTET_OK)
        return result;
    default_ctas(&parsed);
    override_by_environment(params, &parsed);
    *out = parsed;
    return MOTET_OK;
}

/* motet's options in the list; those of other vendors are passed over. */
static motet_result take_options(const ncclConfigExt_t *ext, motet_call_config *out)
{
    for (int seen = 0; ext != NULL; ext = ext->next, seen++) {
        if (seen == EXT_MAX)
            return motet_fail(MOTET_ERR_ARGUMENT,
                    "list 'ext' has more than %d options, or is a circle", EXT_MAX);
        if (ext->key.vendorId != MOTET_EXT_VENDOR)
            continue;
        if (ext->key.optionId != MOTET_EXT_TIMEOUT_MS)
            return motet_fail(MOTET_ERR_ARGUMENT,
                    "option %d in list 'ext' is unknown, motet has %d "
                    "(MOTET_EXT_TIMEOUT_MS)",
                    ext->key.optionId, MOTET_EXT_TIMEOUT_MS);
        if (out->has_timeout)
            return motet_fail(MOTET_ERR_ARGUMENT,
                    "option MOTET_EXT_TIMEOUT_MS is twice in list 'ext'");
        if (ext->val.i < 0)
            return motet_fail(MOTET_ERR_ARGUMENT,
                    "option MOTET_EXT_TIMEOUT_MS is %d ms, accepted is 0 and above",
                    ext->val.i);
        out->has_timeout = true;
        out->timeout_ms = (uint32_t)ext->val.i;
    }
    return MOTET_OK;
}

static motet_result parse_call(const void *config, motet_call_config *out)
{
    ncclCollConfig_t theirs = NCCL_COLLCONFIG_INITIALIZER;
    struct head head;
    motet_result result = read_head(config, NCCL_API_MAGIC, "ncclCollConfig_t",
            "NCCL_COLLCONFIG_INITIALIZER", &head);

    if (result != MOTET_OK)
        return result;
    /* All fields came with one version, so a structure that is shorter is none. */
    if (head.size < sizeof(theirs))
        return motet_fail(MOTET_ERR_ARGUMENT,
                "ncclCollConfig_t: field 'size': value is %zu bytes, accepted is %zu "
                "and above",
                head.size, sizeof(theirs));
    memcpy(&theirs, config, sizeof(theirs));
    MOTET_TRY(take_fields(call_fields, COUNT(call_fields), &head, &theirs, out),
            "ncclCollConfig_t");
    MOTET_TRY(check_ctas(out->min_ctas, out->max_ctas, true), "ncclCollConfig_t");
    if (theirs.forceAlgSelection != 0 && theirs.forceAlgSelection != 1)
        return motet_fail(MOTET_ERR_ARGUMENT,
                "ncclCollConfig_t: field 'forceAlgSelection': value is %d, accepted "
                "is 0 to 1",
                theirs.forceAlgSelection);
    out->force_algorithm = theirs.forceAlgSelection == 1;
    out->profiler_tag = theirs.userProfilerTag;
    take_string(theirs.algSelection, out->algorithm);
    return take_options(theirs.ext, out);
}

motet_result motet_call_config_parse(const ncclCollConfig_t *config,
        motet_call_config *out)
{
    motet_call_config parsed;
    motet_result result = MOTET_OK;

    memset(&parsed, 0, sizeof(parsed));
    for (size_t i = 0; i < COUNT(call_fields); i++)
        memcpy((char *)&parsed + call_fields[i].ours, &call_fields[i].dflt,
                sizeof(int));
    if (config != NULL)
        result = parse_call(config, &parsed);
    if (result != MOTET_OK)
        return result;
    *out = parsed;
    return MOTET_OK;
}

motet_result motet_sim_info_check(const ncclSimInfo_t *info)
{
    struct head head;

    if (info == NULL)
        return MOTET_OK;
    return read_head(info, SIM_INFO_MAGIC, "ncclSimInfo_t", "NCCL_SIM_INFO_INITIALIZER",
            &head);
}

void motet_sim_info_set_time(ncclSimInfo_t *info, float time_us)
{
    if (info != NULL &&
            info->size >= offsetof(ncclSimInfo_t, estimatedTime) + sizeof(float))
        info->estimatedTime = time_us;
}
