/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sweep of peer.h on Gloo: its TCP transport, which is what it has inside one host,
 * and a rendezvous through files. RANK, SIZE, FOLDER and ALGORITHM (ring or bcube) come
 * from the environment.
 */
#include "peer.h"

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>

namespace
{

std::shared_ptr<gloo::rendezvous::Context> context;
gloo::AllreduceOptions::Algorithm algorithm = gloo::AllreduceOptions::Algorithm::RING;

void all_reduce(const void *send, void *recv, size_t bytes)
{
    gloo::AllreduceOptions options(context);

    options.setAlgorithm(algorithm);
    options.setInput(static_cast<float *>(const_cast<void *>(send)),
            bytes / sizeof(float));
    options.setOutput(static_cast<float *>(recv), bytes / sizeof(float));
    options.setReduceFunction([](void *c, const void *a, const void *b, size_t n) {
        gloo::sum<float>(c, a, b, n);
    });
    gloo::allreduce(options);
}

void all_gather(const void *send, void *recv, size_t bytes)
{
    gloo::AllgatherOptions options(context);

    options.setInput(static_cast<char *>(const_cast<void *>(send)),
            bytes / static_cast<size_t>(context->size));
    options.setOutput(static_cast<char *>(recv), bytes);
    gloo::allgather(options);
}

void broadcast(void *recv, size_t bytes, int root)
{
    gloo::BroadcastOptions options(context);

    options.setOutput(static_cast<char *>(recv), bytes);
    options.setRoot(root);
    gloo::broadcast(options);
}

void all_to_all(const void *send, void *recv, size_t bytes)
{
    gloo::AlltoallOptions options(context);

    options.setInput(static_cast<char *>(const_cast<void *>(send)), bytes);
    options.setOutput(static_cast<char *>(recv), bytes);
    gloo::alltoall(options);
}

void run(enum peer_op op, const void *send, void *recv, size_t bytes, int root)
{
    switch (op) {
    case PEER_ALL_REDUCE: all_reduce(send, recv, bytes); break;
    case PEER_ALL_GATHER: all_gather(send, recv, bytes); break;
    case PEER_BROADCAST: broadcast(recv, bytes, root); break;
    default: all_to_all(send, recv, bytes);
    }
}

std::string variable(const char *name)
{
    const char *value = std::getenv(name);

    if (value == nullptr) {
        std::fprintf(stderr, "gloo_peer: %s is not set\n", name);
        std::exit(64);
    }
    return value;
}

} // namespace

int main(int argc, char **argv)
try {
    struct peer peer = {};
    gloo::transport::tcp::attr attr;

    peer.rank = std::stoi(variable("RANK"));
    peer.nranks = std::stoi(variable("SIZE"));
    peer.run = run;
    if (variable("ALGORITHM") == "bcube")
        algorithm = gloo::AllreduceOptions::Algorithm::BCUBE;
    attr.hostname = "127.0.0.1";
    auto device = gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore store(variable("FOLDER"));
    context = std::make_shared<gloo::rendezvous::Context>(peer.rank, peer.nranks);
    context->connectFullMesh(store, device);
    return peer_main(&peer, argc, argv);
} catch (const std::exception &e) {
    std::fprintf(stderr, "gloo_peer: %s\n", e.what());
    return 1;
}
