/* SPDX-License-Identifier: Apache-2.0 */
/* Watchdogs, RAS, motet status, stacks, loops, graphs, experts: text in, codes out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "rows.h"

#define CAUGHT(rank, seq, op, in, out)                                       \
    "[rank" rank "]:[E0318 07:52:10.1 ProcessGroupNCCL.cpp:632] [Rank " rank \
    "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" seq   \
    ", OpType=" op ", NumelIn=" in ", NumelOut=" out                         \
    ", Timeout(ms)=600000) ran for 600042 milliseconds before timing out.\n"
#define AT_WORK(rank, group, local, seq, last)                                    \
    "[rank" rank "]:[E0318 07:52:10.2 ProcessGroupNCCL.cpp:1895] [" group         \
    " Rank " local                                                                \
    "] Exception (either an error or timeout) detected by watchdog at work: " seq \
    ", last enqueued NCCL work: " last ", last completed NCCL work: 16.\n"
#define IN_GROUP(rank, local, seq, op)                                              \
    "[rank" rank "]:[E0318 07:52:10.1 ProcessGroupNCCL.cpp:632] [Rank " local       \
    "] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=" seq          \
    ", OpType=" op ", NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran for 600042 " \
    "milliseconds before timing out.\n"

static void test_sets_of_ranks_say_who_is_missing(void **state)
{
    static const struct row rows[] = {
        { "old wording, no size of the world, the first rank is missing",
                "[E ProcessGroupNCCL.cpp:821] [Rank 1] Watchdog caught collective "
                "operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, "
                "Timeout(ms)=1800000) ran for 1800710 milliseconds before timing out.\n"
                "[E ProcessGroupNCCL.cpp:821] [Rank 2] Watchdog caught collective "
                "operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, "
                "Timeout(ms)=1800000) ran for 1800711 milliseconds before timing "
                "out.\n",
                "RANK_MISSING", "RANK_BEHIND ALL_PRESENT_SAME_OP RANKS_UNACCOUNTED",
                "rank 0" },
        { "two are missing of eight",
                "world_size: 8\n" CAUGHT("0", "9", "ALLREDUCE", "8", "8") CAUGHT("1",
                        "9", "ALLREDUCE", "8", "8") CAUGHT("2", "9", "ALLREDUCE", "8",
                        "8") CAUGHT("4", "9", "ALLREDUCE", "8", "8") CAUGHT("5", "9",
                        "ALLREDUCE", "8", "8") CAUGHT("6", "9", "ALLREDUCE", "8", "8"),
                "RANK_MISSING", "ALL_PRESENT_SAME_OP RANK_BEHIND", "rank 7" },
        { "fewer than half",
                "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/8\n" CAUGHT("2",
                        "9", "ALLREDUCE", "8", "8")
                        CAUGHT("3", "9", "ALLREDUCE", "8", "8"),
                "RANKS_UNACCOUNTED",
                "RANK_MISSING ALL_PRESENT_SAME_OP UNDETERMINED NO_FINDING", "2 of 8" },
        { "the size of a node is not the size of the world",
                "LOCAL_WORLD_SIZE=2\ntp_world_size=2\n" CAUGHT("0", "9", "ALLREDUCE",
                        "8", "8") CAUGHT("1", "9", "ALLREDUCE", "8", "8"),
                "UNDETERMINED", "ALL_PRESENT_SAME_OP RANK_MISSING", NULL },
        { "the reduce-scatter tells the size",
                CAUGHT("0", "9", "_REDUCE_SCATTER_BASE", "128", "64")
                        CAUGHT("1", "9", "_REDUCE_SCATTER_BASE", "128", "64"),
                "ALL_PRESENT_SAME_OP", "RANK_MISSING", "_REDUCE_SCATTER_BASE" },
        { "the rank that asked for the dump is not missing",
                "world_size=2\n[rank0]:[E1 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID "
                "0(default_pg) Rank 0] Received a dump signal due to a collective "
                "timeout "
                "from rank 1 and we will try our best to dump the debug info. Last "
                "enqueued NCCL work: 12, last completed NCCL work: 11.\n",
                "UNDETERMINED", "RANK_MISSING ALL_PRESENT_SAME_OP", NULL },
        { "monitored barrier",
                "[Rank 0]: Ranks 1, 2 failed to pass monitoredBarrier in 30000 ms\n",
                "RANK_MISSING", "UNDETERMINED", "ranks 1, 2" },
    };

    (void)state;
    CHECK(rows);
}

static void test_ranks_at_earlier_operations_are_behind(void **state)
{
    static const struct row rows[] = {
        { "one is at an earlier number",
                "world_size=4\n" CAUGHT("0", "12", "ALLREDUCE", "8", "8")
                        CAUGHT("1", "12", "ALLREDUCE", "8", "8")
                                CAUGHT("2", "11", "ALLREDUCE", "8", "8")
                                        CAUGHT("3", "12", "ALLREDUCE", "8", "8"),
                "RANK_BEHIND", "RANK_MISSING ALL_PRESENT_SAME_OP COLLECTIVE_MISMATCH",
                "rank 2" },
        { "only what it has asked for is known",
                "world_size=3\n" CAUGHT("0", "17", "ALLREDUCE", "8", "8") AT_WORK("0",
                        "PG ID 0 PG GUID 0(default_pg)", "0", "17", "17")
                        CAUGHT("1", "17", "ALLREDUCE", "8",
                                "8") "[rank2]:[E0 ProcessGroupNCCL.cpp:1746] [PG ID 0 "
                                     "PG GUID 0(default_pg) "
                                     "Rank 2] Received a dump signal due to a "
                                     "collective timeout from rank 0 "
                                     "and we will try our best to dump the debug info. "
                                     "Last enqueued NCCL "
                                     "work: 16, last completed NCCL work: 16.\n",
                "RANK_BEHIND", "RANK_MISSING ALL_PRESENT_SAME_OP", "rank 2" },
        { "all in one operation, one has asked for more: nobody is behind",
                "world_size=2\n" CAUGHT("0", "17", "ALLREDUCE", "8", "8")
                        CAUGHT("1", "17", "ALLREDUCE", "8", "8") AT_WORK("0", "PG 0",
                                "0", "17", "19") AT_WORK("1", "PG 0", "1", "17", "17"),
                "ALL_PRESENT_SAME_OP", "RANK_BEHIND RANK_MISSING", NULL },
        { "another process group is at other numbers",
                "world_size=2\n" IN_GROUP("0", "0", "500", "ALLREDUCE") AT_WORK("0",
                        "PG ID 0 PG GUID 0(default_pg)", "0", "500",
                        "500") IN_GROUP("1", "1", "500", "ALLREDUCE") AT_WORK("1",
                        "PG ID 0 PG GUID 0(default_pg)", "1", "500",
                        "500") IN_GROUP("1", "1", "7", "BROADCAST")
                        AT_WORK("1", "PG ID 1 PG GUID 4(tp)", "1", "7", "7")
                                IN_GROUP("0", "0", "7", "BROADCAST") AT_WORK("0",
                                        "PG ID 1 PG GUID 4(tp)", "0", "7", "7"),
                "ALL_PRESENT_SAME_OP", "RANK_BEHIND COLLECTIVE_MISMATCH RANK_MISSING",
                "500" },
    };

    (void)state;
    CHECK(rows);
}

static void test_other_groups_and_tools_tell_more(void **state)
{
    static const struct row rows[] = {
        { "a group with a missing rank takes the all-clear from the others",
                "world_size=4\n" IN_GROUP("0", "0", "7", "ALLREDUCE") AT_WORK("0",
                        "PG ID 0 PG GUID 0(default_pg)", "0", "7",
                        "7") IN_GROUP("1", "1", "7", "ALLREDUCE")
                        AT_WORK("1", "PG ID 0 PG GUID 0(default_pg)", "1", "7", "7")
                                IN_GROUP("2", "2", "7", "ALLREDUCE") AT_WORK("2",
                                        "PG ID 0 PG GUID 0(default_pg)", "2", "7", "7"),
                "RANK_MISSING", "ALL_PRESENT_SAME_OP", "rank 3" },
        { "RAS lists those ahead",
                "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  "
                "Errors\n"
                "    0         1         4         8        32        32   RUNNING  "
                "MISMATCH\n"
                "#0-0 (27a079b828ff1a75) MISMATCH\n"
                "  Communicator ranks have different collective operation counts\n"
                "  30 ranks have launched up to operation 640\n"
                "  Rank 3 has launched up to operation 641 -- GPU 3 managed by process "
                "9 "
                "on node 192.0.2.3\n"
                "  Rank 17 has launched up to operation 641 -- GPU 1 managed by "
                "process 8 "
                "on node 192.0.2.4\n",
                "RANK_BEHIND", "RANK_MISSING COLLECTIVE_MISMATCH",
                "ranks 0-2, 4-16, 18-31" },
        { "RAS misses a process",
                "#0-0 (27a079b828ff1a75) INCOMPLETE\n"
                "  Missing communicator data from 1 job process\n"
                "  Process 3487984 on node 192.0.2.13 managing GPU 5\n",
                "RANK_MISSING", "RANK_BEHIND", "3487984" },
        { "the barrier at the start",
                "RuntimeError: Timed out initializing process group in store based "
                "barrier on rank: 0, for key: store_based_barrier_key:1 (world_size=3, "
                "worker_count=2, timeout=0:30:00)\n"
                "RuntimeError: Timed out initializing process group in store based "
                "barrier on rank: 1, for key: store_based_barrier_key:1 (world_size=3, "
                "worker_count=2, timeout=0:30:00)\n",
                "RANK_MISSING", "ALL_PRESENT_SAME_OP", "rank 2" },
        { "RAS lists the missing rank of a communicator",
                "#0-0 (cf264af53edbe986) INCOMPLETE\n"
                "  Missing communicator data from 1 rank\n  The missing rank: 3\n",
                "RANK_MISSING", "UNDETERMINED", "rank 3" },
        { "PyTorch's reader of flight recorders",
                "Not all ranks joining collective, sequence number: 57\n"
                "collective: nccl:all_reduce\nmissing ranks: {1, 3}\nworld size: 4\n",
                "RANK_MISSING", "UNDETERMINED ALL_PRESENT_SAME_OP", "ranks 1, 3" },
    };

    (void)state;
    CHECK(rows);
}

static void test_different_calls_are_a_mismatch(void **state)
{
    static const struct row rows[] = {
        { "same number, another size",
                "world_size=3\n" CAUGHT("0", "12", "ALLREDUCE", "8", "8")
                        CAUGHT("1", "12", "ALLREDUCE", "9", "9")
                                CAUGHT("2", "12", "ALLREDUCE", "8", "8"),
                "COLLECTIVE_MISMATCH", "ALL_PRESENT_SAME_OP RANK_BEHIND RANK_MISSING",
                "rank 1" },
        { "same number, another operation",
                "world_size=2\n" CAUGHT("0", "12", "ALLREDUCE", "8", "8")
                        CAUGHT("1", "12", "BROADCAST", "8", "8"),
                "COLLECTIVE_MISMATCH", "ALL_PRESENT_SAME_OP", "BROADCAST" },
        { "an uneven all-to-all may differ",
                "world_size=2\n" CAUGHT("0", "12", "ALLTOALL_BASE", "8", "9")
                        CAUGHT("1", "12", "ALLTOALL_BASE", "9", "8"),
                "ALL_PRESENT_SAME_OP", "COLLECTIVE_MISMATCH", NULL },
        { "a send and its receive are no mismatch",
                CAUGHT("0", "12", "SEND", "8", "8") CAUGHT("1", "12", "RECV", "8", "8"),
                "", "COLLECTIVE_MISMATCH", NULL },
        { "older fingerprints",
                "RuntimeError: Detected mismatch between collectives on ranks. Rank 0 "
                "is "
                "running inconsistent collective: "
                "CollectiveFingerPrint(OpType=ALLREDUCE, "
                "TensorShape=[1435], TensorDtypes=Float, TensorDeviceTypes=x)\n",
                "COLLECTIVE_MISMATCH", "UNDETERMINED", "1435" },
        { "on the wire",
                "n1:5:9 [0] transport/net_ib.cc:1295 NCCL WARN NET/IB : req 0/1 tag 7 "
                "peer "
                "192.0.2.1<4> collective mismatch error, local size 496640 remote size "
                "65536\n",
                "COLLECTIVE_MISMATCH", "UNDETERMINED", "65536" },
        { "a number that is cut off does not count",
                "world_size=2\n" CAUGHT("0", "412", "ALLREDUCE", "8",
                        "8") "[rank1]:[E0318] [Rank 1] Watchdog caught collective "
                             "operation timeout: "
                             "WorkNCCL(SeqNum=41",
                "", "RANK_BEHIND COLLECTIVE_MISMATCH ALL_PRESENT_SAME_OP RANK_MISSING",
                NULL },
    };

    (void)state;
    CHECK(rows);
}

#define STATUS_HEAD                                                                    \
    "communicator 00abcdef12345678 'tp0': 4 ranks on node1, path shared, made "        \
    "2026-01-02 03:04:05 UTC\n"                                                        \
    "   rank      pid  command         device process                         "        \
    "operations  the last one\n"                                                       \
    "      3    21224  python3         cpu    alive, heartbeat 0.2 s ago             " \
    " 56  "                                                                            \
    "all_reduce 1024 x float, sum: done 14.0 s ago\n"

static void test_motet_status_is_believed(void **state)
{
    static const struct row rows[] = {
        { "text",
                STATUS_HEAD
                "  problem RANK_BEHIND: rank 3 is behind, with 56 collectives "
                "begun: ranks 0-2 wait in number 57\n",
                "RANK_BEHIND", "RANK_MISSING UNDETERMINED", "rank 3" },
        { "text: calls of both sides",
                STATUS_HEAD
                "  problem COLLECTIVE_MISMATCH: the ranks made different calls as "
                "collective number 4:\n"
                "            ranks 0-2: all_reduce 8 x float, sum (fingerprint "
                "00000001)\n"
                "            rank 3: all_reduce 9 x float, sum (fingerprint "
                "00000002)\n",
                "COLLECTIVE_MISMATCH", "UNDETERMINED", "rank 3" },
        { "a note is no problem",
                STATUS_HEAD "  note    RANK_MISSING: 1 of 4 ranks has no "
                            "recorder file here: 2\n",
                "NO_FINDING", "RANK_MISSING UNDETERMINED", NULL },
        { "fine", STATUS_HEAD "  fine: no rank is dead, late or missing\n",
                "NO_FINDING", "RANK_MISSING UNDETERMINED", NULL },
        { "a dead rank is behind as a matter of course",
                STATUS_HEAD
                "  problem RANK_DEAD: rank 2 is dead: process 5 (python3) is "
                "gone, last sign of life 2026-01-02 03:05:15 UTC\n"
                "  problem RANK_BEHIND: rank 2 is behind, with 5 collectives "
                "begun: ranks 0-1 wait in number 6\n",
                "RANK_MISSING", "RANK_BEHIND", "rank 2" },
        { "JSON",
                "{\n  \"format\": 1,\n  \"communicators\": [\n    {\n      "
                "\"communicator\": \"00abcdef12345678\",\n      \"findings\": [\n      "
                "  "
                "{\n          \"code\": \"RANK_BEHIND\",\n          \"severity\": "
                "\"problem\",\n          \"ranks\": \"3\",\n          \"text\": \"rank "
                "3 is "
                "behind, with 56 collectives begun\"\n        }\n      ]\n    }\n  "
                "]\n}\n",
                "RANK_BEHIND", "UNDETERMINED", "rank 3" },
        { "JSON in one line",
                "{\"communicators\":[{\"communicator\":\"0a\",\"findings\":[{\"code\":"
                "\"ALL_PRESENT_SAME_OP\",\"severity\":\"problem\",\"ranks\":\"0-3\","
                "\"text\":\"all 4 ranks are in collective number 9 and wait\"}]}]}\n",
                "ALL_PRESENT_SAME_OP", "UNDETERMINED", "number 9" },
        { "JSON: a note",
                "{\"communicators\":[{\"findings\":[{\"code\":\"RANK_BEHIND\","
                "\"severity\":"
                "\"note\",\"ranks\":\"3\",\"text\":\"rank 3 is behind\"}]}]}\n",
                "NO_FINDING", "RANK_BEHIND", NULL },
    };

    (void)state;
    CHECK(rows);
}

static void test_stacks_show_an_abort_that_joins(void **state)
{
    static const struct row rows[] = {
        { "py-spy, native frames",
                "Process 40117: python train.py\n"
                "Thread 40117 (idle): \"MainThread\"\n"
                "    pthread_clockjoin_np (libc.so.6)\n"
                "    commFree (libnccl.so.2)\n"
                "    commReclaim (libnccl.so.2)\n"
                "    ncclCommAbort (libnccl.so.2)\n"
                "    abort (torch/distributed/distributed_c10d.py:1422)\n",
                "ABORT_HANG", "RANK_MISSING UNDETERMINED", NULL },
        { "outermost first, as some print it",
                "Thread 1 (LWP 7):\n"
                "#5  0x01 in ncclCommAbort () from librccl.so.1\n"
                "#4  0x02 in commReclaim(ncclAsyncJob*) () from librccl.so.1\n"
                "#3  0x03 in commFree(ncclComm*) () from librccl.so.1\n"
                "#2  0x04 in __pthread_clockjoin_ex () from libc.so.6\n",
                "ABORT_HANG", "", NULL },
        { "a join in another thread is not this one",
                "Thread 2 (LWP 8):\n"
                "#0  pthread_join () from libc.so.6\n"
                "#1  std::thread::join() () from libstdc++.so.6\n"
                "Thread 1 (LWP 7):\n"
                "#0  sched_yield () from libc.so.6\n"
                "#1  commFree(ncclComm*) () from libnccl.so.2\n"
                "#2  ncclCommAbort () from libnccl.so.2\n",
                "UNDETERMINED", "ABORT_HANG", NULL },
        { "clones of a compiler",
                "Thread 1 (Thread 0x7f0 (LWP 4411)):\n"
                "#0  0x7f in __pthread_clockjoin_ex () from /lib64/libpthread.so.0\n"
                "#1  0x7f in commFree.isra.0 (comm=0x5) at init.cc:300\n"
                "#2  0x7f in ncclCommAbort () from /opt/rocm/lib/librccl.so.1\n",
                "ABORT_HANG", "UNDETERMINED", NULL },
        { "words of a person are no stack",
                "We call ncclCommAbort and then commFree should pthread_join the "
                "proxy.\n",
                "", "ABORT_HANG UNDETERMINED", NULL },
    };

    (void)state;
    CHECK(rows);
}

static void test_loops_that_lose_memory_leak(void **state)
{
    static const struct row rows[] = {
        { "key=value, rss rises",
                "[iter 1] rss=600.0MB fds=60\n[iter 2] rss=700.1MB fds=60\n"
                "[iter 3] rss=712.2MB fds=60\n[iter 4] rss=724.0MB fds=60\n"
                "[iter 5] rss=736.3MB fds=60\n",
                "LEAK", "NO_FINDING", "rss" },
        { "a table",
                "cycle free_MiB rss_MiB\n0 22901 410\n1 22755 600\n2 22721 600\n3 "
                "22687 600\n"
                "4 22653 600\n",
                "LEAK", "NO_FINDING", "free_MiB" },
        { "value before the name, GPU with a number",
                "cycle #1: gpu 0 22901 MiB free, gpu 1 22904 MiB free\n"
                "cycle #2: gpu 0 22801 MiB free, gpu 1 22904 MiB free\n"
                "cycle #3: gpu 0 22701 MiB free, gpu 1 22904 MiB free\n"
                "cycle #4: gpu 0 22601 MiB free, gpu 1 22904 MiB free\n"
                "cycle #5: gpu 0 22501 MiB free, gpu 1 22904 MiB free\n",
                "LEAK", "NO_FINDING", "gpu 0" },
        { "a count before its name, every tenth cycle",
                "round 10: 140 fds\nround 20: 163 fds\nround 30: 186 fds\n"
                "round 40: 209 fds\nround 50: 232 fds\n",
                "LEAK", "NO_FINDING", "fds" },
        { "a table with names of several words",
                "| cycle | gpu0 free (MiB) | fds |\n|---|---|---|\n| 0 | 24000 | 60 |\n"
                "| 1 | 23500 | 80 |\n| 2 | 23460 | 80 |\n| 3 | 23420 | 80 |\n"
                "| 4 | 23380 | 80 |\n",
                "LEAK", "NO_FINDING", "gpu0 free" },
        { "the first cycle pays once",
                "loop 0 free 22901 MiB\nloop 1 free 22851 MiB\nloop 2 free 22851 MiB\n"
                "loop 3 free 22851 MiB\nloop 4 free 22851 MiB\nloop 5 free 22851 MiB\n",
                "NO_FINDING", "LEAK", NULL },
        { "it levels out",
                "loop 0 free 22901 MiB\nloop 1 free 22851 MiB\nloop 2 free 22821 MiB\n"
                "loop 3 free 22791 MiB\nloop 4 free 22761 MiB\nloop 5 free 22761 MiB\n"
                "loop 6 free 22761 MiB\n",
                "NO_FINDING", "LEAK", NULL },
        { "two cycles are too few",
                "loop 0 free 22901 MiB\nloop 1 free 22851 MiB\nloop 2 free 22821 MiB\n"
                "loop 3 free 22791 MiB\n",
                "NO_FINDING", "LEAK", NULL },
    };

    (void)state;
    CHECK(rows);
}

static void test_handles_and_dumps(void **state)
{
    static const struct row rows[] = {
        { "RCCL, another wording of the file",
                "node7:77:77 [3] /src/init.cc:1999 NCCL WARN comm 0x7f5c2c000b70 has "
                "already been destroyed\n",
                "DOUBLE_DESTROY", "LEAK ABORT_HANG", "0x7f5c2c000b70" },
        { "dump of a process without a prefix",
                "[W ProcessGroupNCCL.cpp:2093] [PG 0 Rank 3] timed out after waiting "
                "for "
                "60000ms flight recorder dumps to finish.\n",
                "FLIGHT_RECORDER_TIMED_OUT", "NO_FINDING", "rank 3" },
    };

    (void)state;
    CHECK(rows);
}

static void test_graphs_that_share_a_communicator(void **state)
{
    static const struct row rows[] = {
        { "graphs that stand, and no control run",
                "[rank0] capture graph a on stream 0x1, comm 0x8c40\n"
                "[rank0] capture graph b on stream 0x2, comm 0x8c40\n"
                "[rank0] HANG, comm 0x8c40 at opCount 99\n"
                "[rank1] HANG, comm 0x91a0 at opCount 100\n",
                "UNDETERMINED", "GRAPH_REPLAY_SHARED_COMM RANK_BEHIND", NULL },
        { "headings instead of commands, counts in hexadecimal",
                "== 4 graphs, 4 streams, shared ==\n"
                "[rank0] graph=a stream=0x1 comm=0x8c40\n"
                "[rank0] graph=b stream=0x2 comm=0x8c40\n"
                "[rank0] stuck: comm=0x8c40 opCount=14ff\n"
                "[rank1] stuck: comm=0x91a0 opCount=1500\n"
                "== one stream ==\n[rank0] finished 1000 rounds\n",
                "GRAPH_REPLAY_SHARED_COMM", "UNDETERMINED RANK_BEHIND", "0x8c40" },
        { "a person's words, the control in words, the adapter's error after it",
                "$ ./replay --graphs 3\n"
                "rank=0 graph=a stream=0x10 comm=0xfe00\n"
                "rank=0 graph=b stream=0x20 comm=0xfe00\n"
                "rank=0 comm=0xfe00 op_count=77 waits\n"
                "rank=1 comm=0xfd00 op_count=78 waits\n"
                "a:7:9 [0] net_ib.cc:1 NCCL WARN NET/IB : Got completion from peer "
                "192.0.2.32<47> with status=12 opcode=0 len=0 vendor err 129 (Send)\n"
                "# hangs here\n# with --streams 1 it runs through\n",
                "GRAPH_REPLAY_SHARED_COMM", "RANK_BEHIND RDMA_UNREACHABLE", "0xfe00" },
        { "the ends stand at one count",
                "$ ./replay --graphs=4 --shared-comm\n"
                "rank 0: comm 0xabc0: 4 graphs on 4 streams\nreplay 85: stuck\n"
                "rank 0: comm 0xabc0 opCount 52\nrank 1: comm 0xabd0 opCount 52\n"
                "$ ./replay --graphs=1\n1000 replays done\n",
                "UNDETERMINED", "GRAPH_REPLAY_SHARED_COMM NO_FINDING", NULL },
        { "one stream stands as well",
                "$ ./replay --graphs=4 --shared-comm\n"
                "rank 0: comm 0xabc0: 4 graphs on 4 streams\nreplay 85: stuck\n"
                "rank 0: comm 0xabc0 opCount 52\nrank 1: comm 0xabd0 opCount 53\n"
                "$ ./replay --graphs=1\nreplay 20 done\nreplay 21: stuck\n",
                "UNDETERMINED", "GRAPH_REPLAY_SHARED_COMM NO_FINDING", NULL },
    };

    (void)state;
    CHECK(rows);
}

static void test_experts_that_wait_in_vain(void **state)
{
    static const struct row rows[] = {
        { "two receiving nodes",
                "DeepEP dispatch NVL receiver timeout, channel: 1, RDMA: 0, nvl: 2, "
                "src "
                "RDMA: 1, src nvl: 1, start: 0, end: 0\n"
                "DeepEP dispatch NVL receiver timeout, channel: 1, RDMA: 1, nvl: 2, "
                "src "
                "RDMA: 0, src nvl: 1, start: 0, end: 0\n",
                "EP_DISPATCH_TIMEOUT", "RANK_MISSING UNDETERMINED", "RDMA: 1" },
        { "something had come",
                "DeepEP dispatch NVL receiver timeout, channel: 1, RDMA: 0, nvl: 2, "
                "src "
                "RDMA: 1, src nvl: 1, start: 0, end: 12\n",
                "UNDETERMINED", "EP_DISPATCH_TIMEOUT", NULL },
        { "key=value, by process",
                "(EngineCore_0 pid=11) rank 0: num_tokens=12\n"
                "(EngineCore_1 pid=12) rank 1: num_tokens=0, skipping MoE layers\n"
                "(EngineCore_0 pid=11) rank 0: RuntimeError: DeepEP error: CPU recv "
                "timeout\n",
                "EP_HANG_UNEVEN_RANKS", "EP_DISPATCH_TIMEOUT RANK_MISSING UNDETERMINED",
                "rank 1" },
        { "an early return",
                "EP rank 0 step=77 recv 31 tokens\n"
                "EP rank 1 step=77 recv 0 tokens -> return early (no dispatch)\n"
                "EP rank 0 dispatch hang detected: waited 100 s\n",
                "EP_HANG_UNEVEN_RANKS", "EP_DISPATCH_TIMEOUT UNDETERMINED", "rank 1" },
        { "the empty rank takes part",
                "rank 0: 12 tokens\nrank 1: 0 tokens\n"
                "rank 0: layer 3 dispatch enter\nrank 1: layer 3 dispatch enter\n"
                "rank 0: DeepEP error: timeout (dispatch CPU)\n",
                "UNDETERMINED", "EP_HANG_UNEVEN_RANKS", NULL },
    };

    (void)state;
    CHECK(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sets_of_ranks_say_who_is_missing),
        cmocka_unit_test(test_ranks_at_earlier_operations_are_behind),
        cmocka_unit_test(test_other_groups_and_tools_tell_more),
        cmocka_unit_test(test_different_calls_are_a_mismatch),
        cmocka_unit_test(test_motet_status_is_believed),
        cmocka_unit_test(test_stacks_show_an_abort_that_joins),
        cmocka_unit_test(test_loops_that_lose_memory_leak),
        cmocka_unit_test(test_handles_and_dumps),
        cmocka_unit_test(test_graphs_that_share_a_communicator),
        cmocka_unit_test(test_experts_that_wait_in_vain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
