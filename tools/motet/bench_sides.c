/* SPDX-License-Identifier: Apache-2.0 */
/* Opening the libraries, and what each needs on one thread: see bench.h. */
#include "bench.h"

#include "cmd.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- libraries */

static void refuse_gpu_library(struct bench *b, const struct library *lib)
{
    if (lib->motet || b->options.host_memory || b->place.backend->mirrored ||
            b->failure[0] != 0)
        return;
    snprintf(b->failure, sizeof(b->failure),
            "'%.3000s' is not motet, so its ranks want GPU memory, and the ranks are "
            "on "
            "CPUs here; --host-memory if it takes host memory",
            lib->path);
}

static void open_one(struct bench *b, struct library *lib, const char *path)
{
    bool streams = b->options.blocking != 1;

    if (b->failure[0] != 0 ||
            library_open(lib, *path != 0 ? path : NULL, b->failure,
                    sizeof(b->failure)) != 0)
        return;
    refuse_gpu_library(b, lib);
    if (!b->place.backend->mirrored && streams && !lib->streams)
        b->no_streams = true;
}

/* What --vs-env says, before the second library reads its environment. */
static void set_environment(struct bench *b)
{
    const struct bench_options *o = &b->options;

    for (int i = 0; i < o->nvs_env; i++) {
        const char *equals = strchr(o->vs_env[i], '=');
        char *name = strndup(o->vs_env[i], (size_t)(equals - o->vs_env[i]));

        if (name == NULL || setenv(name, equals + 1, 1) != 0)
            snprintf(b->failure, sizeof(b->failure), "set '%.200s': %s", o->vs_env[i],
                    strerror(errno));
        free(name);
    }
}

/* Each process opens the libraries once, by whichever of its threads comes first. */
static void open_libraries_once(struct bench *b, int team)
{
    pthread_mutex_lock(&b->lock);
    if (!b->opened) {
        if (team == 1)
            set_environment(b);
        if (team == 0)
            open_one(b, &b->lib, b->lib_path);
        if (b->options.vs != NULL && (team == 1 || !b->teams))
            open_one(b, &b->vs, b->vs_path);
    }
    b->opened = true;
    pthread_mutex_unlock(&b->lock);
}

/* The first team's printing thread learns what the second one's library is. */
static int describe_other(struct bench *b, struct bench_sides *s)
{
    struct library other = { 0 };

    if (!b->teams)
        return EXIT_FINE;
    if (s->self->team == 1)
        other = b->vs;
    if (!ranks_tell(s->self, 1, &other, offsetof(struct library, handle)))
        return EXIT_PROBLEM;
    if (ranks_prints(s->self))
        b->vs = other;
    return EXIT_FINE;
}

/* -------------------------------------------------------------------- sides */

static int make_marks(struct bench_side *side, struct ranks *self)
{
    const struct backend *backend = self->backend;

    if (backend->mark == NULL)
        return EXIT_FINE;
    side->mark = calloc(2 * (size_t)self->count, sizeof(*side->mark));
    side->graph = calloc((size_t)self->count, sizeof(*side->graph));
    if (side->mark == NULL || side->graph == NULL)
        return ranks_fail(self, EXIT_PROBLEM, "no memory for %d ranks", self->count);
    for (int i = 0; i < 2 * self->count; i++) {
        const char *bad;

        if (ranks_bind(self, i / 2) != EXIT_FINE)
            return EXIT_PROBLEM;
        bad = backend->mark_create(&side->mark[i]);
        if (bad != NULL)
            return ranks_fail(self, EXIT_PROBLEM, "make a mark: %s", bad);
    }
    return EXIT_FINE;
}

static int make_turns(struct bench_side *side, struct ranks *self, int rounds)
{
    side->turns = calloc((size_t)rounds, sizeof(double));
    side->issues = calloc((size_t)rounds, sizeof(double));
    if (side->turns == NULL || side->issues == NULL)
        return ranks_fail(self, EXIT_PROBLEM, "no memory for %d turns", rounds);
    return EXIT_FINE;
}

/* On CPUs the library's own memory unless --malloc; on GPUs the driver's, unless
 * registering wants the library's. */
static const struct library *allocator(const struct bench *b, const struct library *lib)
{
    const struct bench_options *o = &b->options;

    if (o->use_malloc || (b->place.backend->mirrored && o->registration == 0))
        return NULL;
    return lib;
}

int bench_open_sides(struct bench *b, struct bench_sides *s, struct ranks *self)
{
    const struct bench_options *o = &b->options;
    const struct library *lib[2] = { &b->lib, &b->vs };
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    int code = EXIT_FINE, own = b->teams ? self->team : 0;

    memset(s, 0, sizeof(*s));
    s->self = self;
    s->n = o->vs != NULL ? 2 : 1;
    open_libraries_once(b, self->team);
    if (b->failure[0] != 0)
        return ranks_fail(self, EXIT_UNDECIDED, "%s", b->failure);
    config.CTAPolicy = o->cta_policy;
    for (int k = 0; k < s->n && code == EXIT_FINE; k++) {
        struct bench_side *side = &s->side[k];

        side->here = !b->teams || self->team == k;
        code = make_turns(side, self, o->rounds);
        if (!side->here || code != EXIT_FINE)
            continue;
        code = work_open(&side->work, self, lib[k], o->cta_policy >= 0 ? &config : NULL,
                o->blocking != 1 && !b->no_streams);
        side->work.buffers = &s->buffers;
    }
    if (code == EXIT_FINE)
        code = buffers_alloc(&s->buffers, self, allocator(b, lib[own]), o->sets,
                (size_t)o->max_bytes, (size_t)o->unalign * 8);
    for (int k = 0; k < s->n && code == EXIT_FINE; k++) {
        struct bench_side *side = &s->side[k];

        if (!side->here)
            continue;
        side->registration.kind = o->registration;
        code = registration_make(&side->registration, self, lib[k], side->work.comms,
                &s->buffers);
        if (code == EXIT_FINE)
            code = make_marks(side, self);
    }
    return code == EXIT_FINE ? describe_other(b, s) : code;
}

void bench_close_sides(struct bench *b, struct bench_sides *s)
{
    const struct library *lib[2] = { &b->lib, &b->vs };

    for (int k = 0; k < s->n; k++) {
        struct bench_side *side = &s->side[k];

        if (side->work.ranks != NULL)
            bench_drop_graphs(side);
        for (int i = 0; side->mark != NULL && i < 2 * s->self->count; i++)
            if (side->mark[i] != NULL)
                s->self->backend->mark_destroy(side->mark[i]);
        registration_drop(&side->registration, s->self, lib[k], side->work.comms);
        free(side->mark);
        free(side->graph);
        free(side->turns);
        free(side->issues);
    }
    for (int k = 0; k < s->n; k++)
        if (s->side[k].work.ranks != NULL)
            work_close(&s->side[k].work);
    if (s->buffers.base != NULL)
        buffers_free(&s->buffers); /* last: after a failure calls may be under way */
}
