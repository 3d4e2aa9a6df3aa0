/* SPDX-License-Identifier: Apache-2.0 */
/*
 * LD_PRELOAD=onegpu.so lets a program of the CUDA runtime that wants more devices than
 * there are run all the same: device d is device d modulo the number of real ones, and
 * the program is told of ONEGPU_DEVICES devices (16 if that is not set). Only for programs
 * that link libcudart as a shared library, and only the calls that name a device by its
 * number in nccl-tests; nothing that measures speed.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#define SHOWN 16

/* cudaError_t is an int; the structures are passed through. */
typedef int count_fn(int *count);
typedef int set_fn(int device);
typedef int properties_fn(void *properties, int device);
typedef int attribute_fn(int *value, int attribute, int device);
typedef int bus_fn(char *id, int bytes, int device);

int cudaGetDeviceCount(int *count);
int cudaSetDevice(int device);
int cudaGetDeviceProperties(void *properties, int device);
int cudaDeviceGetAttribute(int *value, int attribute, int device);
int cudaDeviceGetPCIBusId(char *id, int bytes, int device);

static void *next(const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);

    if (found == NULL) {
        (void)fprintf(stderr, "onegpu: %s is in no shared library\n", name);
        exit(1);
    }
    return found;
}

static int fold(int device)
{
    count_fn *count = NULL;
    int real = 0;

    *(void **)&count = next("cudaGetDeviceCount");
    return count(&real) == 0 && real > 0 && device >= 0 ? device % real : device;
}

int cudaGetDeviceCount(int *count)
{
    const char *text = getenv("ONEGPU_DEVICES");
    long shown = text != NULL ? strtol(text, NULL, 10) : 0;
    count_fn *real = NULL;
    int result;

    *(void **)&real = next("cudaGetDeviceCount");
    result = real(count);
    if (result == 0 && *count > 0)
        *count = shown > 0 && shown <= INT_MAX ? (int)shown : SHOWN;
    return result;
}

int cudaSetDevice(int device)
{
    set_fn *real = NULL;

    *(void **)&real = next("cudaSetDevice");
    return real(fold(device));
}

int cudaGetDeviceProperties(void *properties, int device)
{
    properties_fn *real = NULL;

    *(void **)&real = next("cudaGetDeviceProperties");
    return real(properties, fold(device));
}

int cudaDeviceGetAttribute(int *value, int attribute, int device)
{
    attribute_fn *real = NULL;

    *(void **)&real = next("cudaDeviceGetAttribute");
    return real(value, attribute, fold(device));
}

int cudaDeviceGetPCIBusId(char *id, int bytes, int device)
{
    bus_fn *real = NULL;

    *(void **)&real = next("cudaDeviceGetPCIBusId");
    return real(id, bytes, fold(device));
}
