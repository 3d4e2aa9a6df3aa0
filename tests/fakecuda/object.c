/* SPDX-License-Identifier: Apache-2.0 */
/* User objects: something of the caller's that lives as long as the graphs that keep it. */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct fake_object {
    LIST_ENTRY(fake_object) link;
    unsigned refs;
    CUhostFn destroy;
    void *arg;
} fake_object;

static LIST_HEAD(, fake_object) objects;

static CUresult object_of(CUuserObject handle, fake_object **out)
{
    const void *wanted = handle;
    fake_object *o;

    for (o = LIST_FIRST(&objects); o != NULL; o = LIST_NEXT(o, link))
        if (o == wanted) {
            *out = o;
            return CUDA_SUCCESS;
        }
    return CUDA_ERROR_INVALID_VALUE;
}

static void destroy_main(void *arg)
{
    fake_object *object = arg;

    fake_self.callback = true;
    object->destroy(object->arg);
    fake_self.callback = false;
    free(object);
}

static void drop(fake_object *object, unsigned count)
{
    object->refs -= count;
    if (object->refs > 0)
        return;
    LIST_REMOVE(object, link);
    if (!fake_start(destroy_main, object))
        fprintf(stderr, "%s: no thread for a user object's destructor\n",
                fake_the_face.name);
}

fake_keep *fake_keeps_copy(const fake_keep *keeps)
{
    fake_keep *copies = NULL;

    for (; keeps != NULL; keeps = keeps->next) {
        fake_keep *copy = fake_need(sizeof(*copy));

        *copy = (fake_keep){ copies, keeps->object, keeps->count };
        copy->object->refs += copy->count;
        copies = copy;
    }
    return copies;
}

void fake_keeps_free(fake_keep *keeps)
{
    while (keeps != NULL) {
        fake_keep *next = keeps->next;

        drop(keeps->object, keeps->count);
        free(keeps);
        keeps = next;
    }
}

CUresult cuUserObjectCreate(CUuserObject *out, void *ptr, CUhostFn destroy,
        unsigned references, unsigned flags)
{
    fake_object *object;
    CUresult code = out != NULL && destroy != NULL && references > 0 &&
                    flags == CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
            ? fake_enter(0)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    object = fake_need(sizeof(*object));
    object->refs = references;
    object->destroy = destroy;
    object->arg = ptr;
    LIST_INSERT_HEAD(&objects, object, link);
    *out = (CUuserObject)(void *)object;
    return fake_leave(CUDA_SUCCESS);
}

static CUresult enter_object(CUuserObject handle, unsigned count, fake_object **out)
{
    CUresult code = count > 0 ? fake_enter(0) : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = object_of(handle, out);
    return code == CUDA_SUCCESS ? code : fake_leave(code);
}

CUresult cuUserObjectRetain(CUuserObject handle, unsigned count)
{
    fake_object *object;
    CUresult code = enter_object(handle, count, &object);

    if (code != CUDA_SUCCESS)
        return code;
    object->refs += count;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuUserObjectRelease(CUuserObject handle, unsigned count)
{
    fake_object *object;
    CUresult code = enter_object(handle, count, &object);

    if (code != CUDA_SUCCESS)
        return code;
    if (count > object->refs)
        return fake_leave(CUDA_ERROR_INVALID_VALUE);
    drop(object, count);
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuGraphRetainUserObject(CUgraph graph_handle, CUuserObject handle,
        unsigned count, unsigned flags)
{
    fake_object *object;
    fake_graph *graph;
    fake_keep *keep;
    CUresult code = (flags & ~CU_GRAPH_USER_OBJECT_MOVE) == 0
            ? enter_object(handle, count, &object)
            : CUDA_ERROR_INVALID_VALUE;

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_graph_of(graph_handle, &graph);
    if (code == CUDA_SUCCESS && flags != 0 && count > object->refs)
        code = CUDA_ERROR_INVALID_VALUE;
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    if (flags == 0)
        object->refs += count;
    keep = fake_need(sizeof(*keep));
    *keep = (fake_keep){ graph->keeps, object, count };
    graph->keeps = keep;
    return fake_leave(CUDA_SUCCESS);
}

CUresult cuGraphReleaseUserObject(CUgraph graph_handle, CUuserObject handle,
        unsigned count)
{
    fake_object *object;
    fake_graph *graph;
    CUresult code = enter_object(handle, count, &object);

    if (code != CUDA_SUCCESS)
        return code;
    code = fake_graph_of(graph_handle, &graph);
    if (code != CUDA_SUCCESS)
        return fake_leave(code);
    for (fake_keep **k = &graph->keeps; *k != NULL; k = &(*k)->next)
        if ((*k)->object == object && (*k)->count >= count) {
            fake_keep *keep = *k;

            keep->count -= count;
            if (keep->count == 0) {
                *k = keep->next;
                free(keep);
            }
            drop(object, count);
            return fake_leave(CUDA_SUCCESS);
        }
    return fake_leave(CUDA_ERROR_INVALID_VALUE);
}
