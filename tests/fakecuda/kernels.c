/* SPDX-License-Identifier: Apache-2.0 */
/* Code by name: motet's kernels, built for the host, and what tests add. */
#include "fake.h"

#include "kernels/gpu/host.h"

#include <dlfcn.h>
#include <string.h>

#define ADDED 64

static struct added {
    const char *name;
    fakecuda_kernel run;
    size_t bytes;
} added[ADDED];
static size_t nadded;

static fakecuda_kernel in_place_of(const motet_gpu_host_kernel *built_in)
{
    fakecuda_kernel run = built_in->run;
    void *other =
            fake_set.kernels == NULL ? NULL : dlsym(fake_set.kernels, built_in->name);

    if (other != NULL)
        memcpy(&run, &other, sizeof(run));
    return run;
}

fakecuda_kernel fake_kernel_find(const char *name, size_t *bytes_out)
{
    const motet_gpu_host_kernel *built_in = motet_gpu_host_find(name);

    for (size_t i = 0; i < nadded; i++)
        if (strcmp(added[i].name, name) == 0) {
            *bytes_out = added[i].bytes;
            return added[i].run;
        }
    if (built_in == NULL)
        return fake_the_face.kernel != NULL ? fake_the_face.kernel(name, bytes_out)
                                            : NULL;
    *bytes_out = built_in->args_bytes;
    return in_place_of(built_in);
}

CUresult fakecuda_kernel_add(const char *name, fakecuda_kernel run, size_t bytes)
{
    size_t other;
    bool fits;

    pthread_mutex_lock(&fake_lock);
    fits = nadded < ADDED && fake_kernel_find(name, &other) == NULL;
    if (fits)
        added[nadded++] = (struct added){ name, run, bytes };
    return fake_leave(fits ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
}
