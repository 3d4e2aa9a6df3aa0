/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts. One that ends keeps its memory, so that a stale handle is recognised as
 * such for the rest of the process.
 */
#include "fake.h"

#include <stdlib.h>

static LIST_HEAD(, fake_context) contexts;

/* CUcontext and CUgreenCtx are our structure. */
static fake_context *of(CUcontext handle)
{
    return (fake_context *)(void *)handle;
}

static CUcontext handle_of(fake_context *context)
{
    return (CUcontext)(void *)context;
}

fake_context *fake_current(void)
{
    return fake_self.depth > 0 ? fake_self.stack[fake_self.depth - 1] : NULL;
}

fake_context *fake_context_first(void)
{
    return LIST_FIRST(&contexts);
}

CUresult fake_context_check(const fake_context *context)
{
    const fake_context *c;

    for (c = LIST_FIRST(&contexts); c != NULL; c = LIST_NEXT(c, link))
        if (c == context)
            return c->ended ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
    return CUDA_ERROR_INVALID_CONTEXT;
}

static fake_context *create(fake_device *device, unsigned flags)
{
    fake_context *context = fake_need(sizeof(*context));

    context->device = device;
    context->flags = flags;
    context->number = fake_serial();
    LIST_INIT(&context->streams);
    context->legacy = fake_stream_new(context, 0, 0);
    LIST_INSERT_HEAD(&contexts, context, link);
    return context;
}

/* Everything of it is worked off first. The lock is released meanwhile. */
static void end(fake_context *context)
{
    context->ended = true;
    fake_context_drain(context);
    for (fake_stream *s = LIST_FIRST(&context->streams), *next; s != NULL; s = next) {
        next = LIST_NEXT(s, link);
        if (!s->destroyed)
            fake_stream_drop(s);
    }
}

static CUresult push(fake_context *context)
{
    if (fake_self.depth == sizeof(fake_self.stack) / sizeof(*fake_self.stack))
        return CUDA_ERROR_INVALID_VALUE;
    fake_self.stack[fake_self.depth++] = context;
    return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice ordinal)
{
    fake_device *device;
    CUresult code = out != NULL ? fake_enter(0) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_device_of(ordinal, &device);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    if (device->primary == NULL)
        device->primary = create(device, 0);
    device->primary_refs++;
    *out = handle_of(device->primary);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice ordinal)
{
    fake_context *last = NULL;
    fake_device *device;
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_device_of(ordinal, &device);
    if (code == CUDA_SUCCESS && device->primary_refs == 0)
        code = CUDA_ERROR_INVALID_CONTEXT;
    if (code == CUDA_SUCCESS && --device->primary_refs == 0) {
        last = device->primary;
        device->primary = NULL;
        end(last);
    }
    return fake_leave(code);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice ordinal, unsigned *flags, int *active)
{
    fake_device *device;
    CUresult code =
            flags != NULL && active != NULL ? fake_enter(0) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_device_of(ordinal, &device);
    if (code == CUDA_SUCCESS) {
        *active = device->primary != NULL;
        *flags = device->primary != NULL ? device->primary->flags : 0;
    }
    return fake_leave(code);
}

/* Contexts that an application makes for itself; the new one is current. */
static CUresult create_current(CUcontext *out, unsigned flags, int ordinal, bool green)
{
    fake_context *context;
    fake_device *device;
    CUresult code = out != NULL ? fake_enter(FAKE_UNSAFE) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_device_of(ordinal, &device);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    context = create(device, flags);
    context->green = green;
    *out = handle_of(context);
    return fake_leave(green ? CUDA_SUCCESS : push(context));
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned flags, CUdevice ordinal)
{
    return create_current(out, flags, ordinal, false);
}

CUresult fakecuda_green_context(CUcontext *out, CUdevice ordinal)
{
    return create_current(out, 0, ordinal, true);
}

CUresult cuCtxDestroy_v2(CUcontext handle)
{
    fake_context *context = of(handle);
    CUresult code = fake_enter(FAKE_UNSAFE);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_context_check(context);
    if (code == CUDA_SUCCESS && context == context->device->primary)
        code = CUDA_ERROR_INVALID_CONTEXT;
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    if (fake_current() == context)
        fake_self.depth--;
    end(context);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuCtxPushCurrent_v2(CUcontext handle)
{
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_context_check(of(handle));
    return fake_leave(code == CUDA_SUCCESS ? push(of(handle)) : code);
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    if (fake_self.depth == 0)
        return fake_leave(CUDA_ERROR_INVALID_CONTEXT);
    if (out != NULL)
        *out = handle_of(fake_current());
    fake_self.depth--;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuCtxSetCurrent(CUcontext handle)
{
    CUresult code = fake_enter(0);

    if (code != CUDA_SUCCESS)
        return code;
    if (handle != NULL)
        code = fake_context_check(of(handle));
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    if (fake_self.depth > 0)
        fake_self.depth--;
    return fake_leave(handle != NULL ? push(of(handle)) : CUDA_SUCCESS);
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
    CUresult code = out != NULL ? fake_enter(0) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    *out = handle_of(fake_current());
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetDevice(CUdevice *out)
{
    CUresult code = out != NULL ? fake_enter(FAKE_CONTEXT) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    *out = (int)fake_current()->device->ordinal;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuCtxGetId(CUcontext handle, unsigned long long *id)
{
    fake_context *context = of(handle);
    CUresult code = id != NULL ? fake_enter(0) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    if (context == NULL)
        context = fake_current();
    code = fake_context_check(context);
    if (code == CUDA_SUCCESS)
        *id = context->number;
    return fake_leave(code);
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
    CUresult code = fake_enter(FAKE_CONTEXT);

    if (code != CUDA_SUCCESS)
        return code;
    if (least != NULL)
        *least = 0;
    if (greatest != NULL)
        *greatest = -5;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuCtxSynchronize(void)
{
    fake_context *context;
    CUresult code = fake_enter(FAKE_CONTEXT);

    if (code != CUDA_SUCCESS)
        return code;
    context = fake_current();
    code = fake_capture_in(context);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    fake_context_drain(context);
    return fake_leave(context->sticky);
}

CUresult cuCtxEnablePeerAccess(CUcontext handle, unsigned flags)
{
    fake_context *peer = of(handle), *context;
    CUresult code = flags == 0 ? fake_enter(FAKE_CONTEXT | FAKE_UNSAFE)
                               : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    context = fake_current();
    code = fake_context_check(peer);
    if (code == CUDA_SUCCESS && context->device == peer->device)
        code = CUDA_ERROR_INVALID_DEVICE;
    if (code == CUDA_SUCCESS &&
            !fake_peers(context->device->physical, peer->device->physical))
        code = CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (code == CUDA_SUCCESS && (context->peers & 1u << peer->device->ordinal) != 0)
        code = CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    if (code == CUDA_SUCCESS)
        context->peers |= 1u << peer->device->ordinal;
    return fake_leave(code);
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *out)
{
    fake_stream *s;
    CUresult code = out != NULL ? fake_enter(0) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_stream_of(stream, &s);
    if (code == CUDA_SUCCESS)
        *out = handle_of(s->context);
    return fake_leave(code);
}

CUresult cuStreamGetGreenCtx(CUstream stream, CUgreenCtx *out)
{
    fake_stream *s;
    CUresult code = out != NULL ? fake_enter(0) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_stream_of(stream, &s);
    if (code == CUDA_SUCCESS)
        *out = s->context->green ? (CUgreenCtx)(void *)s->context : NULL;
    return fake_leave(code);
}
