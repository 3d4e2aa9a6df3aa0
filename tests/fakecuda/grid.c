/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running kernels. A device has room for so many threads; a block takes its share, runs
 * on a thread of its own from beginning to end, and gives it back. Blocks that find no
 * room wait for it, so a kernel whose blocks spin for each other hangs here, too, if
 * there are more of them than fit.
 */
#include "fake.h"

#include <unistd.h>

typedef struct grid {
    const fake_work *work;
    uint32_t next,
            running; /* number of the next block; blocks that are not done       */
    uint32_t share;  /* threads of the device that a block holds                 */
} grid;

unsigned fake_grid_fit(unsigned threads)
{
    unsigned fit = FAKE_SM_THREADS / threads;

    return fit > 32 ? 32 : fit;
}

static void block_main(void *arg)
{
    grid *g = arg;
    fake_device *device = g->work->context->device;
    uint32_t number;

    pthread_mutex_lock(&fake_lock);
    number = g->next++;
    pthread_mutex_unlock(&fake_lock);
    if (fake_the_face.before_block != NULL)
        fake_the_face.before_block(g->work);
    g->work->kernel.function->run(g->work->kernel.args, number, g->work->kernel.blocks);
    pthread_mutex_lock(&fake_lock);
    device->free_threads += g->share;
    g->running--;
    pthread_cond_broadcast(&fake_changed);
    pthread_mutex_unlock(&fake_lock);
}

/* Counts the launch; false: it was one too many. */
static bool survives(fake_context *context)
{
    if (context->launches++ >= fake_set.sticky_after && context->sticky == CUDA_SUCCESS)
        context->sticky = CUDA_ERROR_ILLEGAL_ADDRESS;
    return context->sticky == CUDA_SUCCESS;
}

void fake_grid_run(const fake_work *work)
{
    fake_device *device = work->context->device;
    bool alive;
    grid g = { .work = work,
        .share = FAKE_SM_THREADS / fake_grid_fit(work->kernel.threads) };

    if (fake_set.slow_us > 0)
        usleep((useconds_t)fake_set.slow_us);
    if (fake_the_face.before_grid != NULL)
        fake_the_face.before_grid(work);
    pthread_mutex_lock(&fake_lock);
    alive = survives(work->context);
    for (uint32_t b = 0; alive && b < work->kernel.blocks; b++) {
        while (device->free_threads < g.share)
            pthread_cond_wait(&fake_changed, &fake_lock);
        device->free_threads -= g.share;
        g.running++;
        if (b + 1 == work->kernel.blocks) { /* the last one on this thread */
            pthread_mutex_unlock(&fake_lock);
            block_main(&g);
            pthread_mutex_lock(&fake_lock);
        } else if (!fake_start(block_main, &g)) {
            device->free_threads += g.share;
            g.running--;
            work->context->sticky = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
            break;
        }
    }
    while (g.running > 0)
        pthread_cond_wait(&fake_changed, &fake_lock);
    pthread_mutex_unlock(&fake_lock);
}
