/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of ranks and captures of networks: one row of a table a text, with what must and what
 * must not be found in it. */
#include "doctor.h"
#include "job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coded.h"

#define COUNT(array) (sizeof(array) / sizeof(*(array)))

/* clang-format off */

static const struct row hosts_and_networks[] = {
    { "a store that is not reached",
        "[W1009 10:00:01.123 socket.cpp:464] [c10d] The client socket cannot be "
        "initialized to connect to [::ffff:192.0.2.7]:29500 (errno: 97 - Address "
        "family not supported by protocol).\n"
        "[E1009 10:05:01.123 socket.cpp:957] [c10d] The client socket has failed "
        "to connect to [::ffff:192.0.2.7]:29500 (errno: 113 - No route to host).\n"
        "torch.distributed.DistNetworkError: The client socket has failed to "
        "connect to any network address of (192.0.2.7, 29500). The client socket "
        "has failed to connect to ::ffff:192.0.2.7:29500 (errno: 113 - No route "
        "to host).\n",
        DR_FIREWALL_OR_ROUTE, DR_NO_IP_INTERFACE, "192.0.2.7" },
    { "another word than NCCL",
        "n1:10:20 [0] FLAGCX INFO Bootstrap : Using eth0:192.0.2.1<0>\n"
        "n1:10:20 [0] /x/socket.cc:505 FLAGCX WARN socketStartConnect: Connect "
        "to 192.0.2.9<38291> failed : Connection timed out\n"
        "n1:10:20 [0] FLAGCX INFO core/bootstrap.cc:201 -> 6\n"
        "n2:10:20:30 [0] FLAGCX WARN x\n",
        DR_FIREWALL_OR_ROUTE, DR_STALE_RENDEZVOUS, "192.0.2.9" },
    { "an abort before a closed socket",
        "(RayWorker pid=11) n1:10:20 [0] NCCL INFO Bootstrap : Using "
        "eth0:192.0.2.1<0>\n"
        "(RayWorker pid=11) \n"
        "(RayWorker pid=11) n1:11:20 [0] misc/socket.cc:484 NCCL WARN "
        "socketStartConnect: Connect to 192.0.2.2<46137> failed : Software "
        "caused connection abort\n"
        "(RayWorker pid=11) n1:11:20 [0] NCCL INFO misc/socket.cc:567 -> 2\n"
        "(RayWorker pid=12, ip=192.0.2.2) n2:12:20 [0] misc/socket.cc:49 NCCL "
        "WARN socketProgress: Connection closed by remote peer n1<35992>\n",
        DR_FIREWALL_OR_ROUTE, DR_PEER_EXITED, "192.0.2.2" },
    { "a time-out after a rank without memory",
        "[2025-06-02 17:00:01] n2:12:20 [0] init.cc:1 NCCL WARN Cuda failure 2 "
        "'out of memory'\n"
        "n2:12:20 [0] NCCL INFO init.cc:1 -> 1\n"
        "[2025-06-02 17:02:41] n1:11:20 [0] misc/socket.cc:484 NCCL WARN "
        "socketStartConnect: Connect to 192.0.2.2<46137> failed : Connection "
        "timed out\n"
        "n1:11:20 [0] NCCL INFO misc/socket.cc:567 -> 2\n",
        DR_UNDETERMINED, DR_FIREWALL_OR_ROUTE, NULL },
    { "an incomplete entry of arp",
        "[root@n-a ~]# ping -c 2 10.1.2.9\n"
        "PING 10.1.2.9 (10.1.2.9) 56(84) bytes of data.\n"
        "From 10.1.2.1 icmp_seq=1 Destination Host Unreachable\n"
        "\n"
        "--- 10.1.2.9 ping statistics ---\n"
        "2 packets transmitted, 0 received, +2 errors, 100% packet loss, time "
        "1001ms\n"
        "[root@n-a ~]# arp -n\n"
        "Address                  HWtype  HWaddress           Flags Mask         "
        "   Iface\n"
        "10.1.2.9                         (incomplete)                           "
        "   eno1\n"
        "10.1.2.3                 ether   00:00:5e:00:53:03   C                  "
        "   eno1\n",
        DR_HOST_OFF_OR_NIC_DEAD, DR_HOST_WEDGED, "10.1.2.9" },
    { "a failed entry that nobody asks for",
        "n-a$ ip neigh\n"
        "10.1.2.9 dev eno1  FAILED\n"
        "10.1.2.1 dev eno1 lladdr 00:00:5e:00:53:01 REACHABLE\n"
        "n-a$ uptime\n"
        " 10:00:00 up 1 day\n",
        DR_NO_FINDING, DR_HOST_OFF_OR_NIC_DEAD, NULL },
    { "a failed entry of a host that answers later",
        "n-a$ ip neigh show 10.1.2.9\n"
        "10.1.2.9 dev eno1 FAILED\n"
        "n-a$ ping -c1 10.1.2.9\n"
        "PING 10.1.2.9 (10.1.2.9) 56(84) bytes of data.\n"
        "64 bytes from 10.1.2.9: icmp_seq=1 ttl=64 time=0.2 ms\n"
        "\n"
        "--- 10.1.2.9 ping statistics ---\n"
        "1 packets transmitted, 1 received, 0% packet loss, time 0ms\n",
        DR_NO_FINDING, DR_HOST_OFF_OR_NIC_DEAD, NULL },
    { "an entry listed before the attempts",
        "n-a$ ip neigh show 10.1.2.9\n"
        "10.1.2.9 dev eno1 lladdr 00:00:5e:00:53:09 STALE\n"
        "n-a$ ping -c1 -W1 10.1.2.9\n"
        "PING 10.1.2.9 (10.1.2.9) 56(84) bytes of data.\n"
        "\n"
        "--- 10.1.2.9 ping statistics ---\n"
        "1 packets transmitted, 0 received, 100% packet loss, time 0ms\n"
        "n-a$ ssh rig@10.1.2.9\n"
        "ssh: connect to host 10.1.2.9 port 22: Connection timed out\n",
        DR_UNDETERMINED, DR_HOST_WEDGED, NULL },
    { "arping answers, nothing else does",
        "n-a$ ping -c1 -W1 n-b\n"
        "PING n-b.lan (10.1.2.9) 56(84) bytes of data.\n"
        "\n"
        "--- n-b.lan ping statistics ---\n"
        "1 packets transmitted, 0 received, 100% packet loss, time 0ms\n"
        "n-a$ nc -vz -w5 10.1.2.9 29500\n"
        "nc: connect to 10.1.2.9 port 29500 (tcp) timed out: Operation now in "
        "progress\n"
        "n-a$ ssh 10.1.2.9\n"
        "ssh: connect to host 10.1.2.9 port 22: Connection timed out\n"
        "n-a$ sudo arping -c2 -I eno1 10.1.2.9\n"
        "ARPING 10.1.2.9 from 10.1.2.1 eno1\n"
        "Unicast reply from 10.1.2.9 [00:00:5e:00:53:09]  0.7ms\n"
        "Unicast reply from 10.1.2.9 [00:00:5e:00:53:09]  0.8ms\n"
        "Sent 2 probes (1 broadcast(s))\n"
        "Received 2 response(s)\n",
        DR_HOST_WEDGED, DR_FIREWALL_OR_ROUTE, "10.1.2.9" },
    { "a refused port is an answer",
        "n-a$ ping -c1 -W1 10.1.2.9\n"
        "PING 10.1.2.9 (10.1.2.9) 56(84) bytes of data.\n"
        "\n"
        "--- 10.1.2.9 ping statistics ---\n"
        "1 packets transmitted, 0 received, 100% packet loss, time 0ms\n"
        "n-a$ ssh 10.1.2.9\n"
        "ssh: connect to host 10.1.2.9 port 22: Connection refused\n"
        "n-a$ ip neigh show 10.1.2.9\n"
        "10.1.2.9 dev eno1 lladdr 00:00:5e:00:53:09 REACHABLE\n",
        DR_UNDETERMINED, DR_HOST_WEDGED, NULL },
    { "some ranks of one machine, set up over loopback",
        "dgx:5:5 [2] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>\n"
        "dgx:5:5 [2] NCCL INFO comm 0x1 rank 2 nranks 8 cudaDev 2 busId 1000 "
        "commId 0x5 - Init COMPLETE\n"
        "dgx:5:5 [2] NCCL INFO Channel 00/0 : 2[2] -> 3[3] via P2P/CUMEM\n"
        "loss 3\n",
        DR_NO_FINDING, DR_NIC_LOOPBACK_ACROSS_HOSTS, NULL },
    { "a host that is called by a short name",
        "[ops@login ~]$ ping -c2 rig8\n"
        "PING rig8.example.net (192.0.2.81) 56(84) bytes of data.\n"
        "2 packets transmitted, 0 received, 100% packet loss, time 1016ms\n"
        "[ops@login ~]$ ssh rig8\n"
        "ssh: connect to host rig8 port 22: Connection timed out\n"
        "[ops@login ~]$ ip neigh show 192.0.2.81\n"
        "192.0.2.81 dev eno2 lladdr 00:00:5e:00:53:81 STALE\n",
        DR_HOST_WEDGED, DR_FIREWALL_OR_ROUTE, "192.0.2.81" },
    { "a meeting file that ls shows to be older",
        "[2025-10-20 07:00:00] job 5512, init_method file:///home/q/rdzv\n"
        "[rank0]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:799] "
        "connect [192.0.2.17]:9931: Connection timed out\n"
        "q@s2:~$ ls -l /home/q/rdzv\n"
        "-rw-rw-r-- 1 q q 1342 Oct  2 18:44 /home/q/rdzv\n"
        "q@s2:~$ ip -br a\n"
        "ens5             UP             192.0.2.88/24\n",
        DR_STALE_RENDEZVOUS, DR_FIREWALL_OR_ROUTE, "192.0.2.17" },
    { "a time-out of UCX",
        "[1717171717.1] [cn33:2201:0] sock.c:325  UCX  ERROR   connect(fd=41, "
        "dest_addr=192.0.2.34:41513) failed: Connection timed out\n",
        DR_FIREWALL_OR_ROUTE, DR_RDMA_UNREACHABLE, "192.0.2.34" },
    { "loopback on one host",
        "a:1:1 [0] NCCL INFO Bootstrap : Using lo:127.0.0.1<0>\n"
        "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 "
        "commId 0xabc - Init START\n"
        "a:2:3 [1] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 1 busId 2000 "
        "commId 0xabc - Init START\n"
        "a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
        "a:2:3 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/IPC\n"
        "a:1:2 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1000 "
        "commId 0xabc - Init COMPLETE\n"
        "a:2:3 [1] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 1 busId 2000 "
        "commId 0xabc - Init COMPLETE\n"
        "epoch 1 loss 3.2\n",
        DR_NO_FINDING, DR_NIC_LOOPBACK_ACROSS_HOSTS, NULL },
    { "a veth with a global address",
        "pod-a:1:1 [0] NCCL INFO Bootstrap : Using veth12ab:10.244.1.7<0>\n"
        "pod-a:1:2 [0] NCCL INFO NET/Socket : Using [0]veth12ab:10.244.1.7<0>\n"
        "pod-a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 "
        "cudaDev 0 busId 1000 commId 0xabc - Init START\n"
        "pod-b:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 1 nranks 2 "
        "cudaDev 0 busId 1000 commId 0xabc - Init START\n"
        "pod-a:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 "
        "cudaDev 0 busId 1000 commId 0xabc - Init COMPLETE\n"
        "pod-b:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 1 nranks 2 "
        "cudaDev 0 busId 1000 commId 0xabc - Init COMPLETE\n"
        "step 1 loss 1.0\n",
        DR_NO_FINDING, DR_NIC_VIRTUAL_SELECTED, NULL },
    { "IPoIB with a link-local address only",
        "[1,0]<stdout>:h1:1:1 [0] NCCL INFO Bootstrap : Using "
        "[0]ib0:fe80::9a03:9bff:fe8c:1%ib0<0>\n"
        "[1,1]<stdout>:h2:1:1 [0] NCCL INFO Bootstrap : Using "
        "[0]ib0:fe80::9a03:9bff:fe8c:2%ib0<0>\n"
        "[1,1]<stdout>:h2:1:1 [0] include/socket.h:400 NCCL WARN Connect to "
        "fe80::9a03:9bff:fe8c:1%ib0<4455> failed : Connection timed out\n",
        DR_NIC_LINK_LOCAL_SELECTED, DR_FIREWALL_OR_ROUTE, "ib0" },
    { "no interface, no name asked for",
        "h1:1:1 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface "
        "found\n"
        "h1:1:1 [0] NCCL INFO init.cc:90 -> 3\n",
        DR_NO_IP_INTERFACE, DR_NIC_NAMES_DIFFER, NULL },
    { "the named interface is down",
        "h1:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth5\n"
        "h1:1:1 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface "
        "found\n"
        "h1$ ip addr\n"
        "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN "
        "group default qlen 1000\n"
        "    inet 127.0.0.1/8 scope host lo\n"
        "2: eth5: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq state "
        "DOWN group default qlen 1000\n"
        "    link/ether 00:00:5e:00:53:01 brd ff:ff:ff:ff:ff:ff\n",
        DR_UNDETERMINED, DR_NIC_NAMES_DIFFER, NULL },
    { "another name with an address",
        "h1:1:1 [0] NCCL INFO NCCL_SOCKET_IFNAME set by environment to eth5\n"
        "h1:1:1 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface "
        "found\n"
        "h1$ ip addr\n"
        "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN "
        "group default qlen 1000\n"
        "    inet 127.0.0.1/8 scope host lo\n"
        "2: eno1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc mq state UP "
        "group default qlen 1000\n"
        "    link/ether 00:00:5e:00:53:01 brd ff:ff:ff:ff:ff:ff\n"
        "    inet 192.0.2.4/24 brd 192.0.2.255 scope global eno1\n",
        DR_NIC_NAMES_DIFFER, DR_NO_IP_INTERFACE, "eth5" },
    { "Gloo finds no such name",
        "$ GLOO_SOCKET_IFNAME=eth0 torchrun --nnodes 2 --nproc_per_node 1 t.py\n"
        "[rank1]: RuntimeError: [enforce fail at "
        "/pytorch/third_party/gloo/gloo/transport/tcp/device.cc:84] ifa != "
        "nullptr. Unable to find address for: eth0\n"
        "$ ip -br addr\n"
        "lo               UNKNOWN        127.0.0.1/8\n"
        "enp1s0           UP             192.0.2.71/24\n",
        DR_NIC_NAMES_DIFFER, DR_NO_IP_INTERFACE, "eth0" },
    { "Gloo and loopback on one host",
        "$ torchrun --nproc_per_node=2 t.py\n"
        "[rank0]: RuntimeError: Gloo connectFullMesh failed with "
        "[/x/gloo/transport/tcp/pair.cc:144] timed out connecting: SO_ERROR: "
        "Connection refused, remote=[127.0.0.1]:22817 (rank=0, size=2, "
        "local=[127.0.0.1])\n",
        DR_UNDETERMINED, DR_GLOO_HOSTNAME_LOOPBACK, NULL },
    { "Gloo and loopback on two hosts",
        "$ torchrun --nnodes=2 --nproc_per_node=2 t.py\n"
        "[rank0]: RuntimeError: "
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:799] connect "
        "[127.0.1.1]:42019: Connection refused\n",
        DR_GLOO_HOSTNAME_LOOPBACK, DR_FIREWALL_OR_ROUTE, "127.0.1.1" },
    { "Gloo and no route",
        "[rank0]: RuntimeError: Gloo connectFullMesh failed with "
        "[/x/gloo/transport/tcp/pair.cc:144] timed out connecting: SO_ERROR: No "
        "route to host, remote=[192.0.2.17]:22817 (rank=0, size=2, "
        "local=[192.0.2.16])\n",
        DR_FIREWALL_OR_ROUTE, DR_GLOO_HOSTNAME_LOOPBACK, "192.0.2.17" },
    { "a file, and a host that is shown",
        "init_method=file:///s/rdv\n"
        "g1:1:1 [0] NCCL INFO Bootstrap : Using eno1:203.0.113.101<0>\n"
        "g2:1:1 [0] NCCL INFO Bootstrap : Using eno1:203.0.113.102<0>\n"
        "g2:1:1 [0] x NCCL WARN Connect to 203.0.113.101<39920> failed : No "
        "route to host\n",
        DR_FIREWALL_OR_ROUTE, DR_STALE_RENDEZVOUS, "203.0.113.101" },
    { "status 12 by name",
        "r1:1:1 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0\n"
        "[2025-09-12 14:03:20] r1:1:9 [0] transport/net_ib.cc:2300 NCCL WARN "
        "NET/IB: Got completion from peer 192.0.2.12<49310> with "
        "status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) reqSize=0 "
        "vendor_err=129 req_type=Send localGid ::ffff:198.51.100.11 remoteGids "
        "::ffff:198.51.100.140 hca mlx5_2\n",
        DR_RDMA_UNREACHABLE, DR_PEER_EXITED, "mlx5_2" },
    { "error 12",
        "r1:1:9 [0] transport/net_ib.cc:829 NCCL WARN NET/IB : Got completion "
        "with error 12, opcode 1, len 11155, vendor err 129\n",
        DR_RDMA_UNREACHABLE, DR_UNDETERMINED, NULL },
    { "error 5",
        "r1:1:9 [0] transport/net_ib.cc:829 NCCL WARN NET/IB : Got completion "
        "with error 5, opcode 1, len 12, vendor err 129\n",
        DR_UNDETERMINED, DR_RDMA_UNREACHABLE, NULL },
    { "one command over two interfaces",
        "$ python a2a.py\n"
        "all-to-all 24160 ms\n"
        "$ GLOO_SOCKET_IFNAME=eth0 python a2a.py\n"
        "all-to-all 258 ms\n",
        DR_NIC_SLOW_SELECTED, DR_FIREWALL_OR_ROUTE, NULL },
    { "a hundred times as fast, and it reaches the peers",
        "n1$ ip -br addr\n"
        "eno1             UP             192.0.2.1/24\n"
        "ens1             UP             198.51.100.1/24\n"
        "n1$ cat /sys/class/net/eno1/speed /sys/class/net/ens1/speed\n"
        "1000\n"
        "100000\n"
        "n2$ ip -br addr\n"
        "eno1             UP             192.0.2.2/24\n"
        "ens1             UP             198.51.100.2/24\n"
        "n1:1:1 [0] NCCL INFO Bootstrap : Using eno1:192.0.2.1<0>\n"
        "n2:1:1 [0] NCCL INFO Bootstrap : Using eno1:192.0.2.2<0>\n"
        "n1:1:1 [0] NCCL INFO NET/Socket : Using [0]eno1:192.0.2.1<0>\n"
        "n1:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0\n"
        "n1:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId "
        "0x9 - Init COMPLETE\n"
        "n2:1:1 [0] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 0 busId 1 commId "
        "0x9 - Init COMPLETE\n"
        "step 1 ok\n",
        DR_NIC_SLOW_SELECTED, DR_FIREWALL_OR_ROUTE, "eno1" },
    { "wireless on one host",
        "lap:1:1 [0] NCCL INFO Bootstrap : Using wlp3s0:192.0.2.1<0>\n"
        "lap:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId "
        "0x9 - Init COMPLETE\n"
        "lap:1:2 [1] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 1 busId 2 commId "
        "0x9 - Init COMPLETE\n"
        "step 1 ok\n",
        DR_NO_FINDING, DR_NIC_SLOW_SELECTED, NULL },
    { "adapters on one host",
        "p:1:1 [0] NCCL INFO Using network Socket\n"
        "p:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId "
        "0x9 - Init COMPLETE\n"
        "p:1:2 [1] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 1 busId 2 commId "
        "0x9 - Init COMPLETE\n"
        "$ lspci | grep EFA\n"
        "4f:00.0 Ethernet controller: Amazon.com, Inc. Elastic Fabric Adapter "
        "(EFA)\n",
        DR_NO_FINDING, DR_NET_PLUGIN_NOT_LOADED, NULL },
    { "adapters unused across hosts",
        "p:1:1 [0] NCCL INFO Using network Socket\n"
        "p:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId "
        "0x9 - Init COMPLETE\n"
        "q:1:2 [1] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 1 busId 2 commId "
        "0x9 - Init COMPLETE\n"
        "$ lspci | grep -i mell\n"
        "4f:00.0 Infiniband controller: Mellanox Technologies MT28908 Family "
        "[ConnectX-6]\n",
        DR_NET_PLUGIN_NOT_LOADED, DR_WARN_BENIGN, NULL },
    { "EPERM on the node of an adapter",
        "$ ibv_devinfo\n"
        "Failed to open device\n"
        "$ cat /dev/infiniband/uverbs0\n"
        "cat: /dev/infiniband/uverbs0: Operation not permitted\n",
        DR_RDMA_DEVICE_NOT_OPENABLE, DR_RDMA_UNREACHABLE, "uverbs0" },
};

static const struct row identity[] = {
    { "one bus id twice",
        "w0:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 3000 "
        "commId 0xabc - Init START\n"
        "w0:2:2 [0] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 0 busId 3000 "
        "commId 0xabc - Init START\n",
        DR_DUPLICATE_GPU, DR_VISIBLE_DEVICES_ASYMMETRIC, "3000" },
    { "one bus id twice in the list of a test",
        "#  Rank  0 Group  0 Pid  81001 on   n12 device  0 [0x3b] NVIDIA A100\n"
        "#  Rank  1 Group  0 Pid  81002 on   n12 device  0 [0x3b] NVIDIA A100\n"
        "n12: Test NCCL failure common.cu:1279 'invalid usage'\n",
        DR_DUPLICATE_GPU, DR_VISIBLE_DEVICES_ASYMMETRIC, "0000:3b:00.0" },
    { "one bus id twice without a name of the communicator",
        "h:301:310 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId b1000 - "
        "Init START\n"
        "h:302:311 [0] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 0 busId b1000 - "
        "Init START\n",
        DR_DUPLICATE_GPU, DR_NO_FINDING, "b1000" },
    { "one process in two communicators without names",
        "h:301:310 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId b1000 - "
        "Init COMPLETE\n"
        "h:301:310 [0] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 0 busId b1000 - "
        "Init COMPLETE\n"
        "ok\n",
        DR_NO_FINDING, DR_DUPLICATE_GPU, NULL },
    { "one bus id on two hosts",
        "w0:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 3000 "
        "commId 0xabc - Init START\n"
        "w1:2:2 [0] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 0 busId 3000 "
        "commId 0xabc - Init START\n"
        "w0:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 3000 "
        "commId 0xabc - Init COMPLETE\n"
        "w1:2:2 [0] NCCL INFO comm 0x2 rank 1 nranks 2 cudaDev 0 busId 3000 "
        "commId 0xabc - Init COMPLETE\n"
        "step 3 ok\n",
        DR_NO_FINDING, DR_DUPLICATE_GPU, NULL },
    { "one device a rank",
        "rank 0 CUDA_VISIBLE_DEVICES=0\n"
        "rank 1 CUDA_VISIBLE_DEVICES=1\n"
        "rank 0 ordinal 0 -> 0000:27:00.0\n"
        "rank 1 ordinal 0 -> 0000:c7:00.0\n"
        "all ranks done\n",
        NO_CODE, DR_VISIBLE_DEVICES_ASYMMETRIC, NULL },
    { "lists that differ, and a failed query",
        "[rank0]: CUDA_VISIBLE_DEVICES=0,1\n"
        "[rank1]: CUDA_VISIBLE_DEVICES=1\n"
        "[rank1]: RuntimeError: CUDA error: cudaDeviceCanAccessPeer: invalid "
        "device ordinal\n",
        DR_VISIBLE_DEVICES_ASYMMETRIC, DR_DUPLICATE_GPU, "rank 1" },
    { "the odd one of three hosts",
        "[1,0]<stdout>:n01:3:3 [0] NCCL INFO NCCL version 2.19.3+cuda12.2\n"
        "[1,1]<stdout>:n02:3:3 [0] NCCL INFO NCCL version 2.21.5+cuda12.2\n"
        "[1,2]<stdout>:n03:3:3 [0] NCCL INFO NCCL version 2.19.3+cuda12.2\n"
        "[1,0]<stdout>:n01:3:3 [0] NCCL INFO comm 0x1 rank 0 nranks 3 cudaDev 0 "
        "busId 1 commId 0x7 - Init START\n"
        "[1,1]<stdout>:n02:3:3 [0] NCCL INFO comm 0x1 rank 1 nranks 3 cudaDev 0 "
        "busId 1 commId 0x7 - Init START\n",
        DR_VERSION_MISMATCH_ACROSS_RANKS, DR_NO_FINDING, "n02" },
    { "versions of two runs",
        "n01:3:3 [0] NCCL INFO NCCL version 2.19.3+cuda12.2\n"
        "n01:3:3 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1 commId "
        "0x7 - Init COMPLETE\n"
        "n02:3:3 [0] NCCL INFO NCCL version 2.21.5+cuda12.2\n"
        "n02:3:3 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId "
        "0x8 - Init COMPLETE\n"
        "n02:3:4 [1] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 1 busId 2 commId "
        "0x8 - Init COMPLETE\n"
        "done ok\n",
        DR_NO_FINDING, DR_VERSION_MISMATCH_ACROSS_RANKS, NULL },
    { "a truncated first message",
        "n01:330:352 [0] bootstrap.cc:224 NCCL WARN Message truncated : received "
        "256 bytes instead of 4\n"
        "n01:330:352 [0] NCCL INFO bootstrap.cc:257 -> 3\n",
        DR_VERSION_MISMATCH_ACROSS_RANKS, DR_COLLECTIVE_MISMATCH, NULL },
    { "subgroups of one",
        "n01:3:3 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1 commId "
        "0x7 - Init COMPLETE\n"
        "n01:4:4 [1] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 1 busId 2 commId "
        "0x8 - Init COMPLETE\n"
        "n01:3:3 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId "
        "0x9 - Init COMPLETE\n"
        "n01:4:4 [1] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 1 busId 2 commId "
        "0x9 - Init COMPLETE\n"
        "done ok\n",
        DR_NO_FINDING, DR_LAUNCHER_WORLD_SIZE_1, NULL },
};

static const struct row transports_and_peers[] = {
    { "simpleP2P, one way",
        "$ ./simpleP2P\n"
        "> Peer access from NVIDIA A100 (GPU0) -> NVIDIA A100 (GPU1) : Yes\n"
        "> Peer access from NVIDIA A100 (GPU1) -> NVIDIA A100 (GPU0) : No\n",
        DR_P2P_ASYMMETRIC, DR_NO_FINDING, NULL },
    { "the matrix of connections, one way",
        "P2P Connectivity Matrix\n"
        "     D\\D     0     1\n"
        "     0       1     1\n"
        "     1       0     1\n",
        DR_P2P_ASYMMETRIC, DR_NO_FINDING, NULL },
    { "the live query, one way",
        "$ x\n"
        "DeviceCanAccessPeer(0, 1) 1\n"
        "DeviceCanAccessPeer(1, 0) 0\n",
        DR_P2P_ASYMMETRIC, DR_NO_FINDING, NULL },
    { "two runs with two transports",
        "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC\n"
        "h:1:1 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via P2P/IPC\n"
        "run ok 12 GB/s\n"
        "h:2:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via SHM/direct/direct\n"
        "h:2:1 [1] NCCL INFO Channel 00/0 : 1[1] -> 0[0] via SHM/direct/direct\n"
        "run ok 7 GB/s\n",
        DR_NO_FINDING, DR_P2P_ASYMMETRIC, NULL },
    { "the runtime's words before the call",
        "a:1:5 [1] /b/p2p.cc:248 NCCL WARN Cuda failure 'invalid argument'\n"
        "a:1:5 [1] /b/p2p.cc:250 NCCL WARN cudaIpcGetMemHandle failed : invalid "
        "argument\n"
        "a:1:5 [1] NCCL INFO /b/p2p.cc:701 -> 1\n",
        DR_P2P_IPC_FAILED, DR_PEER_EXITED, NULL },
    { "a missing plugin across hosts",
        "a:1:1 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)\n"
        "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId "
        "0x9 - Init COMPLETE\n"
        "b:1:1 [0] NCCL INFO comm 0x1 rank 1 nranks 2 cudaDev 0 busId 1 commId "
        "0x9 - Init COMPLETE\n"
        "done ok\n",
        DR_NO_FINDING, DR_WARN_BENIGN, NULL },
    { "words of a command line are a hint",
        "a:1:1 [0] /tmp/init.cc:163 NCCL WARN Missing \"iommu=pt\" from kernel "
        "command line which can lead to system instablity or hang!\n"
        "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 1 cudaDev 0 busId 1 commId "
        "0x9 - Init COMPLETE\n"
        "step 1 loss 2\n"
        "$ cat /proc/cmdline\n"
        "BOOT_IMAGE=x iommu=pt amd_iommu=on\n",
        NO_CODE, DR_WARN_BENIGN, NULL },
    { "a peer without last words",
        "[rank0]: RuntimeError: "
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed "
        "by peer [198.51.100.35]:61724\n",
        DR_UNDETERMINED, DR_PEER_EXITED, "198.51.100.35" },
    { "a peer that ran out of memory first",
        "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        "2 GiB\n"
        "[rank0]: RuntimeError: "
        "[../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed "
        "by peer [198.51.100.35]:61724\n"
        "rank 2 node-c 198.51.100.35\n"
        "rank 2 exited with code 1\n",
        DR_UNDETERMINED, DR_PEER_EXITED, NULL },
    { "an exit status on the host of the peer",
        "[rank0]: RuntimeError: "
        "[/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection "
        "closed by peer [198.51.100.35]:61724\n"
        "node-c$ ip -br -4 addr\n"
        "eth0             UP             198.51.100.35/24\n"
        "node-c$ tail -1 /var/log/job.log\n"
        "E0611 10:00:00.1 77 torch/distributed/elastic/multiprocessing/api.py:874"
        "] failed (exitcode: -9) local_rank: 0 (pid: 31) of binary: "
        "/usr/bin/python3\n",
        DR_PEER_EXITED, DR_UNDETERMINED, "198.51.100.35" },
};

static const struct {
    const char *what, *text;
    bool stalled;
} stalls[] = {
    { "an announced collective",
        "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId "
        "0x9 - Init COMPLETE\n"
        "a:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff 0x7 recvbuff 0x7 "
        "count 5 datatype 9 op 0 root 0 comm 0x1 [nranks=2] stream 0x1\n",
        true },
    { "words of the program follow",
        "(EngineCore pid=5) a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev "
        "0 busId 1 commId 0x9 - Init COMPLETE\n"
        "(EngineCore pid=5) a:1:1 [0] NCCL INFO AllReduce: opCount 0 sendbuff "
        "0x7 recvbuff 0x7 count 5 datatype 9 op 0 root 0 comm 0x1 [nranks=2] "
        "stream 0x1\n"
        "(EngineCore pid=5) INFO 05-01 10:00 loading weights\n",
        false },
    { "a remark that it does not",
        "a:1:1 [0] NCCL INFO comm 0x1 rank 0 nranks 2 cudaDev 0 busId 1 commId "
        "0x9 - Init COMPLETE\n"
        "(no longer hangs after reboot)\n"
        "step 1 loss 3\n",
        false },
    { "a heading without rows",
        "$ timeout 60 ./build/all_reduce_perf -b 8 -e 64M -f 2 -g 2\n"
        "# nThread 1 nGpus 2 minBytes 8 maxBytes 67108864 step: 2(factor) warmup "
        "iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0\n"
        "#       size         count      type   redop    root     time   algbw   "
        "busbw #wrong     time   algbw   busbw #wrong\n"
        "$ echo $?\n"
        "124\n",
        true },
};

/* clang-format on */

static void test_hosts_and_networks_are_told_apart(void **state)
{
    (void)state;
    check(hosts_and_networks, COUNT(hosts_and_networks));
}

static void test_who_is_who(void **state)
{
    (void)state;
    check(identity, COUNT(identity));
}

static void test_the_first_cause_and_no_fall_out(void **state)
{
    (void)state;
    check(transports_and_peers, COUNT(transports_and_peers));
}

static void test_a_run_that_stands_still(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(stalls); i++) {
        struct doctor *d = judged(stalls[i].text);
        uint32_t line = DR_NONE;

        if (dr_stalled(d, &line) != stalls[i].stalled)
            fail_msg("%s", stalls[i].what);
        assert_true(!stalls[i].stalled || line < d->num_lines);
        doctor_free(d);
    }
}

static void test_addresses(void **state)
{
    (void)state;
    assert_true(dr_is_global("192.0.2.1") && dr_is_global("2001:db8::1"));
    assert_true(dr_is_link_local("169.254.9.1") && dr_is_link_local("fe80::1%eth0"));
    assert_true(dr_is_loopback("127.0.1.1") && dr_is_loopback("::1"));
    assert_true(dr_is_loopback("::ffff:127.0.0.1"));
    assert_false(dr_is_address("0000:03:00.0", 12) || dr_is_address("", 0));
    assert_true(dr_same_network("10.1.2.3", "10.1.9.9", 16));
    assert_false(dr_same_network("10.1.2.3", "10.1.9.9", 24));
    assert_false(dr_same_network("10.1.2.3", "fe80::1", 0));
}

static void test_times_are_in_one_order(void **state)
{
    (void)state;
    assert_true(dr_line_time("[2025-06-02 17:00:41] host") ==
            dr_line_time("2025-06-02T17:00:41 host"));
    assert_true(dr_line_time("[rank1]:[E602 17:00:42.5 x.cpp:1]") >
            dr_line_time("[2025-06-02 17:00:41] host"));
    assert_true(dr_line_time("host:1:2 [0] NCCL INFO") < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hosts_and_networks_are_told_apart),
        cmocka_unit_test(test_who_is_who),
        cmocka_unit_test(test_the_first_cause_and_no_fall_out),
        cmocka_unit_test(test_a_run_that_stands_still),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_times_are_in_one_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
