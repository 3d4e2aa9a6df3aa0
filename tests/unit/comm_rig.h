/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators whose ranks are threads of this process, from inside. */
#ifndef MOTET_TESTS_COMM_RIG_H
#define MOTET_TESTS_COMM_RIG_H

#include "comm/registry.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#define MAX_RANKS 4

typedef struct starting {
    motet_comm *comm;
    motet_comm_spec spec;
    pthread_t thread;
} starting;

static void *start_thread(void *arg)
{
    starting *s = arg;

    motet_comm_started(s->comm, motet_comm_start(s->comm, &s->spec));
    return NULL;
}

static void make_id(motet_id *id)
{
    motet_params *params = malloc(sizeof(*params));

    assert_non_null(params);
    assert_int_equal(motet_params_from_environment(params), MOTET_OK);
    assert_int_equal(motet_id_create(params, id), MOTET_OK);
    free(params);
}

/* Rank r takes device r, if it takes one. */
static void make_comms_on(motet_device_choice choice, int n, motet_comm **comm)
{
    starting s[MAX_RANKS] = { 0 };
    motet_id id;

    make_id(&id);
    for (int r = 0; r < n; r++) {
        assert_int_equal(motet_comm_new(&comm[r]), MOTET_OK);
        s[r].comm = comm[r];
        s[r].spec = (motet_comm_spec){ .id = id,
            .nranks = n,
            .rank = r,
            .ordinal = r,
            .choice = choice,
            .config = { .blocking = 1 } };
        assert_int_equal(pthread_create(&s[r].thread, NULL, start_thread, &s[r]), 0);
    }
    for (int r = 0; r < n; r++) {
        pthread_join(s[r].thread, NULL);
        assert_int_equal(motet_comm_async(comm[r]), MOTET_OK);
    }
}

static void destroy_comms(int n, motet_comm **comm)
{
    for (int r = 0; r < n; r++)
        assert_int_equal(motet_comm_destroy(comm[r]), MOTET_OK);
}

static motet_batch *batch_of(motet_comm *comm, const motet_op *op, const void *stream)
{
    motet_batch *batch;

    assert_int_equal(motet_batch_get(comm, &batch), MOTET_OK);
    assert_int_equal(motet_batch_add(batch, op, stream), MOTET_OK);
    return batch;
}

#endif
