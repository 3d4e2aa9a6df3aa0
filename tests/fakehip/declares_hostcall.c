/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with NCCL's ABI that does what RCCL does since ROCm 7.2.1 on a card without
 * AtomicOps: it initialises, and its first collective launches a kernel whose metadata
 * declares a hostcall. The runtime refuses that with 401, and the caller is told of an
 * unhandled error. For showing the refusal; where the launch is let through, it says that
 * it has no collectives.
 */
#include "device/hip_api.h"

#include <nccl.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define API __attribute__((visibility("default")))

/* planted.co, without the need of a file beside the library. */
extern const unsigned char planted[];
__asm__(".pushsection .rodata\n.balign 4096\nplanted:\n.incbin \"" PLANTED
        "\"\n.popsection\n");

struct ncclComm {
    hipFunction_t kernel;
};

typedef struct runtime {
    hipError_t (*load)(hipModule_t *module, const void *image);
    hipError_t (*find)(hipFunction_t *function, hipModule_t module, const char *name);
    hipError_t (*launch)(hipFunction_t, unsigned, unsigned, unsigned, unsigned,
            unsigned, unsigned, unsigned, hipStream_t, void **, void **);
    hipError_t (*sync)(hipStream_t);
    hipError_t (*last)(void);
    const char *(*text)(hipError_t);
} runtime;

static _Thread_local char why[256];

static ncclResult_t fail(ncclResult_t result, const char *sentence)
{
    (void)snprintf(why, sizeof(why), "%s", sentence);
    return result;
}

static void take(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);

    if (found == NULL) {
        fprintf(stderr, "the HIP runtime has no %s\n", name);
        abort();
    }
    memcpy(function, &found, sizeof(found));
}

static const runtime *hip(void)
{
    static _Thread_local runtime r;
    void *library;

    if (r.load != NULL)
        return &r;
    library = dlopen("libamdhip64.so.6", RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return NULL;
    take(library, "hipModuleGetFunction", &r.find);
    take(library, "hipModuleLaunchKernel", &r.launch);
    take(library, "hipStreamSynchronize", &r.sync);
    take(library, "hipGetLastError", &r.last);
    take(library, "hipGetErrorString", &r.text);
    take(library, "hipModuleLoadData", &r.load);
    return &r;
}

/* Wherever the runtime shows its refusal: in the launch, at the next wait, or last. */
static hipError_t launch(const runtime *r, hipFunction_t kernel, hipStream_t stream)
{
    void *word = NULL, *args[] = { &word };
    hipError_t error = r->launch(kernel, 1, 1, 1, 64, 1, 1, 0, stream, args, NULL);

    if (error == hipSuccess)
        error = r->sync(stream);
    return error != hipSuccess ? error : r->last();
}

static ncclResult_t collective(ncclComm_t comm, void *stream)
{
    const runtime *r = hip();
    hipError_t error = launch(r, comm->kernel, stream);
    char text[200];

    if (error == hipSuccess)
        return fail(ncclInternalError, "this library only shows how it is refused");
    (void)snprintf(text, sizeof(text), "HIP failure %d '%s'", (int)error,
            r->text(error));
    return fail(ncclUnhandledCudaError, text);
}

API ncclResult_t ncclGetVersion(int *version)
{
    *version = 22707;
    return ncclSuccess;
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof(*id));
    return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t result)
{
    return result == ncclSuccess ? "no error" : "unhandled cuda error";
}

API const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return why;
}

API ncclResult_t ncclCommInitRank(ncclComm_t *out, int nranks, ncclUniqueId id,
        int rank)
{
    const runtime *r = hip();
    hipModule_t module;
    ncclComm_t comm;

    (void)id;
    (void)nranks;
    (void)rank;
    if (r == NULL)
        return fail(ncclSystemError, "no libamdhip64.so.6");
    comm = calloc(1, sizeof(*comm));
    if (comm == NULL)
        return fail(ncclSystemError, "no memory");
    if (r->load(&module, planted) != hipSuccess ||
            r->find(&comm->kernel, module, "planted_hostcall") != hipSuccess) {
        free(comm);
        return fail(ncclUnhandledCudaError, "the code does not load");
    }
    *out = comm;
    return ncclSuccess;
}

API ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    free(comm);
    return ncclSuccess;
}

API ncclResult_t ncclCommAbort(ncclComm_t comm)
{
    return ncclCommDestroy(comm);
}

API ncclResult_t ncclGroupStart(void)
{
    return ncclSuccess;
}

API ncclResult_t ncclGroupEnd(void)
{
    return ncclSuccess;
}

/* Every collective begins, and here ends, with the kernel; what is to be moved is unused. */
#define COLLECTIVE(name, ...)                                             \
    API ncclResult_t name(const void *from, __VA_ARGS__, ncclComm_t comm, \
            cudaStream_t stream)                                          \
    {                                                                     \
        return collective(comm, stream);                                  \
    }

COLLECTIVE(ncclAllReduce, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op)
COLLECTIVE(ncclReduce, void *to, size_t count, ncclDataType_t type, ncclRedOp_t op,
        int root)
COLLECTIVE(ncclBroadcast, void *to, size_t count, ncclDataType_t type, int root)
COLLECTIVE(ncclAllGather, void *to, size_t count, ncclDataType_t type)
COLLECTIVE(ncclReduceScatter, void *to, size_t count, ncclDataType_t type,
        ncclRedOp_t op)
COLLECTIVE(ncclSend, size_t count, ncclDataType_t type, int peer)

API ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer,
        ncclComm_t comm, cudaStream_t stream)
{
    return ncclSend(to, count, type, peer, comm, stream);
}
