/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of rates, matrices, tests of peer access: what must be found, and what must not. */
#include "facts.h"
#include "measure.h"
#include "judged.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* ---- tables that are made here ---- */

struct spec {
    unsigned ranks, first_bit,
            last_bit;                   /* sizes are powers of two                    */
    double peak, floor;                 /* GB/s of bus bandwidth, us                  */
    const char *command, *gpu, *prefix; /* NULL: none                                 */
    unsigned drop_from, drop_to;        /* sizes that are taken away, by bit          */
    bool two_hosts, old, wrong, no_titles, no_trailer, unchecked;
};

#define TEXT_MAX (64u << 10)

static void say(char *text, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(char *text, const char *fmt, ...)
{
    const size_t used = strlen(text);
    va_list args;

    va_start(args, fmt);
    vsnprintf(text + used, TEXT_MAX - used, fmt, args);
    va_end(args);
}

static void say_head(char *text, const struct spec *s, const char *p)
{
    say(text,
            "%s# nThread 1 nGpus %u minBytes %llu maxBytes %llu step: 2(factor) "
            "warmup\n",
            p, s->two_hosts ? 1 : s->ranks, 1ull << s->first_bit, 1ull << s->last_bit);
    say(text, "%s# Using devices\n", p);
    for (unsigned i = 0; i < s->ranks; i++)
        say(text,
                "%s#  Rank %2u Group  0 Pid %6u on %10s device %2u [0000:%02x:00] %s\n",
                p, i, 900 + i, s->two_hosts && i >= s->ranks / 2 ? "node-b" : "node-a",
                s->two_hosts ? i % (s->ranks / 2) : i, 0x11 + i * 0x10,
                s->gpu != NULL ? s->gpu : "NVIDIA RTX A5000");
    say(text,
            "%s#       size         count      type   redop    root     time   algbw   "
            "busbw %s     time   algbw   busbw %s\n",
            p, s->old ? "error" : "#wrong", s->old ? "error" : "#wrong");
}

static void say_table(char *text, const struct spec *s)
{
    const char *p = s->prefix != NULL ? s->prefix : "";
    const double share = 2.0 * (s->ranks - 1) / s->ranks;
    double sum = 0;

    if (s->command != NULL)
        say(text, "$ %s\n", s->command);
    if (!s->no_titles)
        say_head(text, s, p);
    for (unsigned bit = s->first_bit; bit <= s->last_bit; bit++) {
        const double bytes = (double)(1ull << bit);
        const double time = s->floor + bytes / (s->peak * 1e3) * share;
        const double algorithm = bytes / time / 1e3, bus = algorithm * share;
        const bool bad = s->wrong && bit > 16;
        const char *check = s->unchecked ? "N/A"
                : s->old                 ? bad ? "1e+00" : "4e-07"
                : bad                    ? "17"
                                         : "0";

        sum += bus;
        if (bit >= s->drop_from && bit <= s->drop_to)
            continue;
        say(text, "%s%12llu  %12llu     float     sum      -1  %8.2f %7.2f %7.2f %6s",
                p, 1ull << bit, (1ull << bit) / 4, time, algorithm, bus, check);
        say(text, "  %8.2f %7.2f %7.2f %6s\n", time, algorithm, bus, check);
    }
    if (!s->no_trailer)
        say(text, "%s# Out of bounds values : %s\n%s# Avg bus bandwidth    : %.5g\n", p,
                s->wrong ? "7 FAILED" : "0 OK", p,
                sum / (s->last_bit - s->first_bit + 1));
}

/* ---- vectors ---- */

#define NONE DR_NUM_CODES
#define SPEC(r, a, b, p, f) \
    .ranks = (r), .first_bit = (a), .last_bit = (b), .peak = (p), .floor = (f)
#define H100 "NVIDIA H100 80GB HBM3"
#define RATES_OF_PORTS                                                                \
    "$ ibstatus\nInfiniband device 'mlx5_0' port 1 status:\n\trate:\t200 Gb/sec (4X " \
    "HDR)\n"                                                                          \
    "Infiniband device 'mlx5_1' port 1 status:\n\trate:\t200 Gb/sec (4X HDR)\n"
#define NO_PEERS                                              \
    "$ nvidia-smi topo -p2p r\n \tGPU0\tGPU1\n GPU0\tX\tNS\n" \
    " GPU1\tNS\tX\n"

static const struct {
    const char *what, *text; /* before the tables */
    struct spec tables[2];   /* ranks 0: none     */
    enum dr_code found, absent;
} tables[] = {
    { "wrong values", "", { { SPEC(2, 12, 26, 11, 15), .wrong = true } },
            DR_WRONG_RESULTS, DR_PERF_OK },
    { "wrong values behind a launcher's prefix", "",
            { { SPEC(4, 12, 26, 11, 15), .wrong = true, .prefix = "[1,0]<stdout>:" } },
            DR_WRONG_RESULTS, DR_TABLE_EDITED },
    { "an old table with wrong values, cut", "",
            { { SPEC(2, 12, 26, 11, 15), .wrong = true, .old = true,
                    .no_trailer = true } },
            DR_WRONG_RESULTS, DR_PERF_OK },
    { "an old table that rounds", "",
            { { SPEC(8, 10, 30, 380, 15), .old = true, .gpu = H100 } }, DR_PERF_OK,
            DR_WRONG_RESULTS },
    { "unchecked: the rate only", "",
            { { SPEC(8, 3, 30, 330, 20), .unchecked = true,
                    .gpu = "AMD Instinct MI300X" } },
            DR_PERF_OK, DR_WRONG_RESULTS },
    { "MI300X below its rate", "",
            { { SPEC(8, 3, 30, 250, 20), .gpu = "AMD Instinct MI300X" } }, NONE,
            DR_PERF_OK },
    { "rows taken out", "",
            { { SPEC(8, 20, 33, 400, 25), .drop_from = 22, .drop_to = 29 } },
            DR_TABLE_EDITED, DR_WRONG_RESULTS },
    { "rows taken out, each line with its time", "",
            { { SPEC(8, 20, 33, 400, 25), .drop_from = 22, .drop_to = 29,
                    .prefix = "2026-03-04T10:11:12.123456789Z " } },
            DR_TABLE_EDITED, DR_WRONG_RESULTS },
    { "the end of a table alone", "",
            { { SPEC(8, 20, 33, 400, 25), .drop_from = 20, .drop_to = 28,
                    .no_titles = true } },
            NONE, DR_TABLE_EDITED },
    { "the beginning of a table alone", "",
            { { SPEC(8, 20, 33, 400, 25), .drop_from = 27, .drop_to = 33,
                    .no_trailer = true } },
            NONE, DR_TABLE_EDITED },
    { "its end, asked for", "",
            { { SPEC(8, 20, 33, 400, 25), .drop_from = 20, .drop_to = 28,
                    .command =
                            "./all_reduce_perf -b 1M -e 8G -f 2 -g 8 | tail -n 20" } },
            NONE, DR_TABLE_EDITED },
    { "no peer access", NO_PEERS, { { SPEC(2, 10, 28, 6, 12) } }, DR_HOST_STAGED,
            DR_HOST_STAGED_SLOW },
    { "no peer access, slow", NO_PEERS, { { SPEC(2, 10, 28, 2, 12) } },
            DR_HOST_STAGED_SLOW, DR_HOST_STAGED },
    { "small sizes only", NO_PEERS, { { SPEC(2, 3, 14, 2, 12) } }, NONE,
            DR_HOST_STAGED_SLOW },
    { "peer access switched off", "",
            { { SPEC(2, 10, 28, 11, 12),
                    .command = "NCCL_P2P_DISABLE=1 ./all_reduce_perf -g 2" } },
            DR_HOST_STAGED, DR_P2P_SLOWER_THAN_HOST },
    { "flat, 27 us", "", { { SPEC(2, 9, 26, 22, 27) } }, DR_SMALL_MSG_LATENCY,
            DR_HOST_JITTER_SUSPECT },
    { "flat, 27 us, two hosts", "", { { SPEC(2, 9, 26, 22, 27), .two_hosts = true } },
            NONE, DR_SMALL_MSG_LATENCY },
    { "flat, 200 us, two hosts", "",
            { { SPEC(16, 3, 30, 350, 200), .two_hosts = true } }, DR_SMALL_MSG_LATENCY,
            DR_HOST_JITTER_SUSPECT },
    { "50 us over NVLink", "", { { SPEC(8, 3, 30, 400, 50), .gpu = H100 } },
            DR_HOST_JITTER_SUSPECT, DR_PCIE_SHARED_UPLINK },
    { "15 us over NVLink", "", { { SPEC(8, 3, 30, 400, 15), .gpu = H100 } }, DR_PERF_OK,
            DR_HOST_JITTER_SUSPECT },
    { "four behind one uplink", "", { { SPEC(4, 20, 28, 4.9, 12) } },
            DR_PCIE_SHARED_UPLINK, DR_LINK_DEGRADED },
    { "four on two hosts", "", { { SPEC(4, 20, 28, 1.1, 12), .two_hosts = true } },
            NONE, DR_PCIE_SHARED_UPLINK },
    { "a pair at the same rate", "", { { SPEC(2, 20, 28, 4.9, 12) } }, NONE,
            DR_PCIE_SHARED_UPLINK },
    { "slower with peer access", "",
            { { SPEC(2, 10, 28, 1.9, 14), .command = "./all_reduce_perf -g 2" },
                    { SPEC(2, 10, 28, 13, 14),
                            .command = "NCCL_P2P_DISABLE=1 ./all_reduce_perf -g 2" } },
            DR_P2P_SLOWER_THAN_HOST, DR_P2P_GRANTED_BUT_BROKEN },
    { "faster with peer access", "",
            { { SPEC(2, 10, 28, 23, 14), .command = "./all_reduce_perf -g 2" },
                    { SPEC(2, 10, 28, 11, 14),
                            .command = "NCCL_P2P_DISABLE=1 ./all_reduce_perf -g 2" } },
            NONE, DR_P2P_SLOWER_THAN_HOST },
    { "another operation", "",
            { { SPEC(2, 10, 28, 1.9, 14), .command = "./alltoall_perf -g 2" },
                    { SPEC(2, 10, 28, 13, 14),
                            .command = "NCCL_P2P_DISABLE=1 ./all_reduce_perf -g 2" } },
            NONE, DR_P2P_SLOWER_THAN_HOST },
    { "GPUDirect RDMA changes nothing", "",
            { { SPEC(2, 3, 27, 9.3, 40), .two_hosts = true,
                      .command = "NCCL_NET_GDR_LEVEL=LOC mpirun ./all_reduce_perf" },
                    { SPEC(2, 3, 27, 9.4, 40), .two_hosts = true,
                            .command = "NCCL_NET_GDR_LEVEL=SYS mpirun "
                                       "./all_reduce_perf" } },
            DR_GDR_NOT_USED, DR_LINK_DEGRADED },
    { "GPUDirect RDMA helps", "",
            { { SPEC(2, 3, 27, 9.3, 40), .two_hosts = true,
                      .command = "NCCL_NET_GDR_LEVEL=LOC mpirun ./all_reduce_perf" },
                    { SPEC(2, 3, 27, 19, 40), .two_hosts = true,
                            .command = "NCCL_NET_GDR_LEVEL=SYS mpirun "
                                       "./all_reduce_perf" } },
            NONE, DR_GDR_NOT_USED },
    { "one port carries a tenth", RATES_OF_PORTS,
            { { SPEC(2, 10, 30, 21.4, 40), .two_hosts = true,
                      .command = "mpirun -x NCCL_IB_HCA=mlx5_0:1 ./all_reduce_perf" },
                    { SPEC(2, 10, 30, 2.8, 40), .two_hosts = true,
                            .command = "mpirun -x NCCL_IB_HCA=mlx5_1:1 "
                                       "./all_reduce_perf" } },
            DR_LINK_DEGRADED, DR_GDR_NOT_USED },
    { "both ports are good", RATES_OF_PORTS,
            { { SPEC(2, 10, 30, 21.4, 40), .two_hosts = true,
                      .command = "mpirun -x NCCL_IB_HCA=mlx5_0:1 ./all_reduce_perf" },
                    { SPEC(2, 10, 30, 20.8, 40), .two_hosts = true,
                            .command = "mpirun -x NCCL_IB_HCA=mlx5_1:1 "
                                       "./all_reduce_perf" } },
            DR_PERF_OK, DR_LINK_DEGRADED },
};

static void expect(struct doctor *d, const char *what, enum dr_code found,
        enum dr_code absent)
{
    if (found != NONE && !dr_has_finding(d, found, NULL))
        fail_msg("%s: %s is missing", what, dr_codes[found].name);
    if (absent != NONE && dr_has_finding(d, absent, NULL))
        fail_msg("%s: %s is a false alarm", what, dr_codes[absent].name);
}

static void test_tables_are_held_against_their_path(void **state)
{
    char *text = malloc(TEXT_MAX);

    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < COUNT(tables); i++) {
        struct doctor *d;

        snprintf(text, TEXT_MAX, "%s", tables[i].text);
        for (size_t k = 0; k < COUNT(tables[i].tables); k++)
            if (tables[i].tables[k].ranks > 0)
                say_table(text, &tables[i].tables[k]);
        d = judged(text);
        expect(d, tables[i].what, tables[i].found, tables[i].absent);
        doctor_free(d);
    }
    free(text);
}

#define XML_GPU(bus, peer)                                                          \
    "<pci busid=\"0000:" bus ":00.0\" class=\"0x030200\" vendor=\"0x1002\">\n<gpu " \
    "dev=\"0\">\n<xgmi target=\"0000:" peer ":00.0\" count=\"1\" "                  \
    "tclass=\"0x030200\"/>\n</gpu>\n</pci>\n"
#define XML_PAIRS                                                      \
    "<system version=\"1\">\n" XML_GPU("23", "26") XML_GPU("26", "23") \
            XML_GPU("43", "46") XML_GPU("46", "43")

static const struct {
    const char *what, *text;
    enum dr_code found, absent;
} texts[] = {
    { "NVLink pairs",
            "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\n"
            "GPU0\t X \tNV4\tSYS\tSYS\tPIX\t0-15\nGPU1\tNV4\t X \tSYS\tSYS\tPIX\t0-15\n"
            "GPU2\tSYS\tSYS\t X \tNV4\tSYS\t16-31\nGPU3\tSYS\tSYS\tNV4\t X "
            "\tSYS\t16-31\n",
            DR_TOPO_SPLIT, DR_TOPO_UNIFORM },
    { "a cube of one and two NVLinks",
            "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\n"
            "GPU0\t X \tNV1\tNV2\tNV1\t0-15\nGPU1\tNV1\t X \tNV1\tNV2\t0-15\n"
            "GPU2\tNV2\tNV1\t X \tNV1\t0-15\nGPU3\tNV1\tNV2\tNV1\t X \t0-15\n",
            NONE, DR_TOPO_SPLIT },
    { "two rows of four",
            "\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\n"
            "GPU0\t X \tPIX\tPIX\tPIX\t0-15\nGPU1\tPIX\t X \tPIX\tPIX\t0-15\n",
            NONE, DR_TOPO_UNIFORM },
    { "amd-smi topology",
            "LINK TYPE TABLE:\n             0000:0c:00.0 0000:22:00.0\n"
            "0000:0c:00.0 SELF         XGMI\n0000:22:00.0 XGMI         SELF\n",
            DR_TOPO_UNIFORM, DR_P2P_NOT_SUPPORTED_BY_DRIVER },
    { "NVLink status is no refusal",
            "$ nvidia-smi topo -p2p n\n \tGPU0\tGPU1\n GPU0\tX\tNS\n GPU1\tNS\tX\n",
            NONE, DR_P2P_NOT_SUPPORTED_BY_DRIVER },
    { "refused by the driver", NO_PEERS, DR_P2P_NOT_SUPPORTED_BY_DRIVER,
            DR_P2P_GRANTED_BUT_BROKEN },
    { "refused by the runtime",
            "Device=0 CANNOT Access Peer Device=1\nDevice=1 CANNOT Access Peer "
            "Device=0\n",
            DR_P2P_NOT_SUPPORTED_BY_DRIVER, DR_P2P_GRANTED_BUT_BROKEN },
    { "simpleP2P",
            "> Peer access from RTX 4090 (GPU0) -> RTX 4090 (GPU1) : Yes\n"
            "Copy data back to host from GPU0 and verify results...\n"
            "Verification error @ element 1: val = 0.000000, ref = 4.000000\nTest "
            "failed!\n",
            DR_P2P_GRANTED_BUT_BROKEN, DR_P2P_NOT_SUPPORTED_BY_DRIVER },
    { "simpleP2P that passes",
            "> Peer access from RTX A6000 (GPU0) -> RTX A6000 (GPU1) : Yes\n"
            "Copy data back to host from GPU0 and verify results...\nTest passed\n",
            DR_NO_FINDING, DR_P2P_GRANTED_BUT_BROKEN },
    { "the writer's own view proves nothing",
            "hipDeviceCanAccessPeer(0, 1) = 1\n"
            "[0->1] read back through the window on device 0: 1 2 3 4, 0 wrong\n"
            "[0->1] read by owner on device 1: 0 0 0 0, 1048576 wrong\n",
            DR_P2P_GRANTED_BUT_BROKEN, DR_NO_FINDING },
    { "the owner sees it",
            "hipDeviceCanAccessPeer(0, 1) = 1\n"
            "[0->1] read by owner on device 1: 1 2 3 4, 0 wrong\n",
            DR_NO_FINDING, DR_P2P_GRANTED_BUT_BROKEN },
    { "a tensor that arrives empty",
            ">>> torch.cuda.can_device_access_peer(0, 1)\nTrue\n>>> a.to(\"cuda:1\")\n"
            "tensor([0, 0, 0, 0], device='cuda:1')\n",
            DR_P2P_GRANTED_BUT_BROKEN, DR_NO_FINDING },
    { "broken without a grant", "[0->1] read by owner on device 1: 0 0 0 0, 9 wrong\n",
            DR_UNDETERMINED, DR_P2P_GRANTED_BUT_BROKEN },
    { "a compared copy",
            "Inter-Device Access\n\nD/D       0         1         2\n\n"
            "0         1         1         1\n\n1         1         1         1\n\n"
            "2         1         1         1\n\nData Path Validation\n\n"
            "D/D       0         1         2\n\n0         N/A       PASS      PASS\n\n"
            "1         PASS      N/A       FAIL\n\n2         PASS      FAIL      N/A\n",
            DR_P2P_GRANTED_BUT_BROKEN, DR_NO_FINDING },
    { "the real program, with and without",
            "$ python3 probe.py --tp 2\nall_reduce 16 KiB in the engine: 215.4 ms\n"
            "$ NCCL_P2P_DISABLE=1 python3 probe.py --tp 2\n"
            "all_reduce 16 KiB in the engine: 0.146 ms\n"
            "$ python3 bench.py\nall_reduce 16 KiB: 30 us\n",
            DR_P2P_SLOWER_THAN_HOST, DR_NO_FINDING },
    { "its start is no rate",
            "$ python3 serve.py\nmodel load took 41.2 s\n"
            "$ NCCL_P2P_DISABLE=1 python3 serve.py\nmodel load took 11.5 s\n",
            NONE, DR_P2P_SLOWER_THAN_HOST },
    { "no error correction, and errors",
            "$ ethtool --show-fec ens1f1\nFEC parameters for ens1f1:\n"
            "Active FEC encoding: None\n$ ethtool -S ens1f1 | grep symbol\n"
            "     rx_symbol_err_phy: 182733\n",
            DR_LINK_DEGRADED, DR_NO_FINDING },
    { "no error correction, no errors",
            "$ ethtool --show-fec ens1f1\nFEC parameters for ens1f1:\n"
            "Active FEC encoding: None\n$ ethtool -S ens1f1 | grep symbol\n"
            "     rx_symbol_err_phy: 0\n",
            DR_NO_FINDING, DR_LINK_DEGRADED },
    { "a tuple of answers, and zeros",
            ">>> c(torch.cuda.can_device_access_peer(0,1), "
            "torch.cuda.can_device_access_peer(1,0))\n(True, True)\n"
            ">>> y = x.to('cuda:1'); y\ntensor([0, 0, 0, 0], device='cuda:1')\n",
            DR_P2P_GRANTED_BUT_BROKEN, DR_NO_FINDING },
    { "ones where the copy should be",
            "peer access 0 -> 1: yes\ncopy 0 -> 1: 10.91 GB/s  compare at destination: "
            "ff ff ff ff (16777216 of 16777216 words differ)\n",
            DR_P2P_GRANTED_BUT_BROKEN, DR_P2P_SLOWER_THAN_HOST },
    { "OSU, with and without",
            "$ mpirun -np 2 ./osu_bw -d rocm D D\n# OSU MPI-ROCM Bandwidth Test v7.3\n"
            "# Size      Bandwidth (MB/s)\n1               0.61\n4194304      1411.20\n"
            "$ mpirun -np 2 -x UCX_TLS=^rocm_ipc ./osu_bw -d rocm D D\n"
            "# OSU MPI-ROCM Bandwidth Test v7.3\n"
            "# Size      Bandwidth (MB/s)\n1               0.58\n4194304      "
            "9800.71\n",
            DR_P2P_SLOWER_THAN_HOST, DR_NO_FINDING },
    { "a topology file of two pairs", XML_PAIRS "</system>\n", DR_TOPO_SPLIT,
            DR_TOPO_UNIFORM },
    { "the same, cut", XML_PAIRS, NONE, DR_TOPO_SPLIT },
    { "one port under two names",
            "$ ethtool --show-fec ens6f1\nFEC parameters for ens6f1:\n"
            "Active FEC encoding: None\n$ rdma link\n"
            "link mlx5_1/1 state ACTIVE physical_state LINK_UP netdev ens6f1\n"
            "$ perfquery mlx5_1\nSymbolErrorCounter:..............65535\n",
            DR_LINK_DEGRADED, DR_NO_FINDING },
    { "hy-smi", "HCU     Temp     AvgPwr     Perf\n0       44.0C    92.0W      auto\n",
            DR_VENDOR_OTHER, NONE },
    { "rocm-smi",
            "GPU     Temp     AvgPwr     Perf\n0       44.0C    92.0W      auto\n",
            NONE, DR_VENDOR_OTHER },
    { "a processor of that vendor",
            "<pci busid=\"0000:00:01.0\" class=\"0x060400\" "
            "vendor=\"0x1d94\" device=\"0x1453\"/>\n",
            NONE, DR_VENDOR_OTHER },
    { "titles without a row",
            "$ ./all_reduce_perf -g 2\n#       size         count      type   redop    "
            "root     time   algbw   busbw #wrong     time   algbw   busbw #wrong\n",
            DR_UNDETERMINED, DR_NO_FINDING },
};

static void test_texts_of_tools_are_understood(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(texts); i++) {
        struct doctor *d = judged(texts[i].text);

        expect(d, texts[i].what, texts[i].found, texts[i].absent);
        doctor_free(d);
    }
}

static void test_direct_links_and_plateau_are_answered(void **state)
{
    static const struct {
        const char *text;
        enum dr_answer answer;
    } vectors[] = {
        { "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV2\t0-7\nGPU1\tNV2\t X \t0-7\n",
                DR_YES },
        { "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNODE\t0-7\nGPU1\tNODE\t X \t0-7\n",
                DR_NO },
        { "       GPU0         GPU1\nGPU0   0            XGMI\nGPU1   XGMI         0\n",
                DR_YES },
        { "<system version=\"1\">\n<nvlink target=\"0000:07:00.0\" count=\"2\" "
          "tclass=\"0x030200\"/>\n",
                DR_YES },
        { "<system version=\"1\">\n<nvlink target=\"0004:00:00.0\" count=\"2\" "
          "tclass=\"0x060400\"/>\n",
                DR_UNSURE },
        { "nothing of the kind\n", DR_UNSURE },
    };
    uint32_t line = DR_NONE;
    struct doctor *d;

    (void)state;
    for (size_t i = 0; i < COUNT(vectors); i++) {
        d = judged(vectors[i].text);
        if (dr_direct_links(d, DR_NONE, &line) != vectors[i].answer)
            fail_msg("wrong answer for: %s", vectors[i].text);
        doctor_free(d);
    }
    d = judged("1048576 262144 float sum -1 100.0 9.0 9.1 0 100.0 9.0 9.2 0\n"
               "2097152 524288 float sum -1 100.0 9.0 9.9 0 100.0 9.0 9.3 0\n");
    assert_true(fabs(dr_plateau(d, &line) - 9.9) < 1e-9);
    assert_int_equal(line, 1);
    doctor_free(d);
}

static void test_cut_and_mixed_rows_are_no_values(void **state)
{
    static const char *const rows[] = {
        "1048576 262144 float sum -1 121.9 8.6",
        "1048576 262144 float",
        "1048576 262144 float sum -1 121.9 8.60 8.60 0 121.6 8.62 h:1:2 [0] NCCL INFO "
        "x",
        "%s%n%s 1 2 float %n",
        "18446744073709551616 1 float sum -1 1 1 1 9 1 1 1 9",
    };
    uint32_t line;

    (void)state;
    for (size_t i = 0; i < COUNT(rows); i++) {
        struct doctor *d = judged(rows[i]);

        if (dr_has_finding(d, DR_WRONG_RESULTS, NULL) || dr_plateau(d, &line) > 100)
            fail_msg("made a value of: %s", rows[i]);
        doctor_free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tables_are_held_against_their_path),
        cmocka_unit_test(test_texts_of_tools_are_understood),
        cmocka_unit_test(test_direct_links_and_plateau_are_answered),
        cmocka_unit_test(test_cut_and_mixed_rows_are_no_values),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
