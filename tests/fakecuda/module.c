/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Modules, their functions, and launches. What an image looks like is the face's
 * business; what runs is the host build of the kernel of the same name.
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fake_module {
    LIST_ENTRY(fake_module) link;
    fake_context *context;
    LIST_HEAD(, fake_function) functions;
};

static LIST_HEAD(, fake_module) modules;

fake_function *fake_module_add(fake_module *module)
{
    fake_function *function = fake_need(sizeof(*function));

    function->context = module->context;
    function->threads = FAKE_BLOCK_LIMIT;
    function->registers = 32;
    LIST_INSERT_HEAD(&module->functions, function, link);
    return function;
}

CUresult fake_module_bind(fake_function *function)
{
    size_t bytes = 0;

    function->run = fake_kernel_find(function->name, &bytes);
    if (function->run == NULL || bytes == function->bytes)
        return CUDA_SUCCESS;
    fprintf(stderr, "%s: kernel %s takes %zu bytes in the image, %zu on the host\n",
            fake_the_face.name, function->name, function->bytes, bytes);
    return CUDA_ERROR_INVALID_PTX;
}

static void module_free(fake_module *module)
{
    while (!LIST_EMPTY(&module->functions)) {
        fake_function *function = LIST_FIRST(&module->functions);

        LIST_REMOVE(function, link);
        free(function);
    }
    free(module);
}

CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned count,
        CUjit_option *options, void **values)
{
    fake_module *module;
    CUresult code = out != NULL && image != NULL
            ? fake_enter(FAKE_CONTEXT | FAKE_UNSAFE)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    for (unsigned i = 0; i < count; i++)
        if (options[i] == CU_JIT_ERROR_LOG_BUFFER && values[i] != NULL)
            *(char *)values[i] = '\0';
    module = fake_need(sizeof(*module));
    module->context = fake_current();
    code = fake_the_face.image(image, module);
    if (code == CUDA_SUCCESS) {
        LIST_INSERT_HEAD(&modules, module, link);
        *out = (CUmodule)(void *)module;
    } else {
        module_free(module);
    }
    return fake_leave(code);
}

CUresult cuModuleLoadData(CUmodule *out, const void *image)
{
    return cuModuleLoadDataEx(out, image, 0, NULL, NULL);
}

static CUresult enter_module(unsigned needs, CUmodule handle, fake_module **out)
{
    const void *wanted = handle;
    fake_module *m;
    CUresult code = fake_enter(needs);

    if (code != CUDA_SUCCESS)
        return code;
    for (m = LIST_FIRST(&modules); m != NULL; m = LIST_NEXT(m, link))
        if (m == wanted) {
            *out = m;
            return CUDA_SUCCESS;
        }
    return fake_leave(CUDA_ERROR_INVALID_HANDLE);
}

/* Waits for the context: a kernel of the module may still run. */
CUresult cuModuleUnload(CUmodule handle)
{
    fake_module *module;
    CUresult code = enter_module(FAKE_CONTEXT | FAKE_UNSAFE, handle, &module);

    if (code != CUDA_SUCCESS)
        return code;
    LIST_REMOVE(module, link);
    fake_context_drain(module->context);
    module_free(module);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuModuleGetFunction(CUfunction *out, CUmodule handle, const char *name)
{
    fake_module *module;
    fake_function *f;
    CUresult code = out != NULL && name != NULL
            ? enter_module(FAKE_CONTEXT, handle, &module)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    for (f = LIST_FIRST(&module->functions); f != NULL; f = LIST_NEXT(f, link))
        if (strcmp(f->name, name) == 0 && f->run != NULL) {
            *out = (CUfunction)(void *)f;
            return fake_leave(CUDA_SUCCESS);
        }
    return fake_leave(CUDA_ERROR_NOT_FOUND);
}

CUresult fake_function_of(CUfunction handle, fake_function **out)
{
    const void *wanted = handle;
    fake_module *m;
    fake_function *f;

    for (m = LIST_FIRST(&modules); m != NULL; m = LIST_NEXT(m, link))
        for (f = LIST_FIRST(&m->functions); f != NULL; f = LIST_NEXT(f, link))
            if (f == wanted) {
                *out = f;
                return CUDA_SUCCESS;
            }
    return CUDA_ERROR_INVALID_HANDLE;
}

static CUresult enter_function(unsigned needs, CUfunction handle, fake_function **out)
{
    CUresult code = fake_enter(needs);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_function_of(handle, out);
    return code == CUDA_SUCCESS ? code : fake_leave(code);
}

CUresult cuFuncLoad(CUfunction handle)
{
    fake_function *function;
    CUresult code = enter_function(FAKE_CONTEXT | FAKE_UNSAFE, handle, &function);

    return code == CUDA_SUCCESS ? fake_leave(code) : code;
}

CUresult cuFuncGetAttribute(int *value, CUfunction_attribute attribute,
        CUfunction handle)
{
    fake_function *function;
    CUresult code = value != NULL ? enter_function(0, handle, &function)
                                  : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
        *value = (int)function->threads;
        break;
    case CU_FUNC_ATTRIBUTE_NUM_REGS: *value = (int)function->registers; break;
    default: code = CUDA_ERROR_INVALID_VALUE;
    }
    return fake_leave(code);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, CUfunction handle,
        int threads, size_t shared_bytes)
{
    fake_function *function;
    CUresult code = blocks != NULL && threads > 0 && shared_bytes == 0
            ? enter_function(FAKE_CONTEXT, handle, &function)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    *blocks = (unsigned)threads <= function->threads
            ? (int)fake_grid_fit((unsigned)threads)
            : 0;
    return fake_leave(CUDA_SUCCESS);
}

/* The one argument struct, from either way of passing it; NULL if it does not fit. */
static const void *arguments(const fake_function *function, void **parameters,
        void **extra)
{
    const void *buffer = NULL;
    size_t bytes = 0;

    if (parameters != NULL)
        return extra == NULL ? parameters[0] : NULL;
    for (; extra != NULL && *extra != CU_LAUNCH_PARAM_END; extra += 2) {
        if (*extra == CU_LAUNCH_PARAM_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == CU_LAUNCH_PARAM_BUFFER_SIZE)
            bytes = *(const size_t *)extra[1];
        else
            return NULL;
    }
    return bytes == function->bytes ? buffer : NULL;
}

CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y,
        unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
        unsigned shared_bytes, CUstream stream_handle, void **parameters, void **extra)
{
    fake_work work = { .kind = FAKE_KERNEL };
    fake_function *function;
    fake_stream *stream;
    const void *args;
    CUresult code = grid_x > 0 && grid_y == 1 && grid_z == 1 && block_x > 0 &&
                    block_y == 1 && block_z == 1 && shared_bytes == 0
            ? enter_function(FAKE_CONTEXT, handle, &function)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_stream_of(stream_handle, &stream);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    args = arguments(function, parameters, extra);
    if (function->context != stream->context)
        return fake_leave(CUDA_ERROR_INVALID_HANDLE);
    if (block_x > function->threads || (function->bytes > 0 && args == NULL) ||
            function->bytes > FAKE_ARGS_LIMIT)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    work.context = stream->context;
    work.kernel.function = function;
    work.kernel.blocks = grid_x;
    work.kernel.threads = block_x;
    work.kernel.bytes = function->bytes;
    work.kernel.args = fake_need(FAKE_ARGS_LIMIT);
    if (function->bytes > 0)
        memcpy(work.kernel.args, args, function->bytes);
    return fake_leave(fake_submit(stream, work, (fake_points){ 0 }, NULL));
}
