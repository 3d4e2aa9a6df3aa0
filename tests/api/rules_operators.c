/* SPDX-License-Identifier: Apache-2.0 */
/* Rules of reduction operators that the caller makes. */
#include "rules.h"

#include <string.h>

static bool make(multi_rank *rank, ncclRedOp_t *op, float *scalar,
        ncclScalarResidence_t residence)
{
    return multi_ok(rank,
                   ncclRedOpCreatePreMulSum(op, scalar, ncclFloat32, residence,
                           rank->comm),
                   "ncclRedOpCreatePreMulSum") &&
            multi_check(rank, (int)*op >= (int)ncclNumOps, "the operator is %d",
                    (int)*op);
}

static void destroyed_before_the_group_ends(multi_rank *rank)
{
    ncclRedOp_t op;
    float scalar = rank->rank == 0 ? 2.0f : 3.0f, mine = 10.0f, sum = 0;

    if (!make(rank, &op, &scalar, ncclScalarHostImmediate))
        return;
    scalar = 1000.0f; /* copied already */
    (void)multi_ok(rank, ncclGroupStart(), "ncclGroupStart");
    (void)multi_ok(rank,
            ncclAllReduce(&mine, &sum, 1, ncclFloat32, op, rank->comm, NULL),
            "all_reduce");
    (void)multi_ok(rank, ncclRedOpDestroy(op, rank->comm), "ncclRedOpDestroy");
    (void)multi_ok(rank, ncclGroupEnd(), "ncclGroupEnd");
    (void)multi_check(rank, sum == 50.0f, "sum is %g, expected 50", (double)sum);
}

static void device_scalar_is_read_when_the_operation_runs(multi_rank *rank)
{
    ncclRedOp_t op;
    float scalar = 0, mine = 10.0f, sum = 0;

    if (!make(rank, &op, &scalar, ncclScalarDevice))
        return;
    for (int i = 1; i <= 2; i++) {
        scalar = (float)i;
        (void)multi_ok(rank,
                ncclAllReduce(&mine, &sum, 1, ncclFloat32, op, rank->comm, NULL),
                "all_reduce");
        (void)multi_check(rank, sum == 20.0f * (float)i, "sum is %g, expected %d",
                (double)sum, 20 * i);
    }
    (void)multi_ok(rank, ncclRedOpDestroy(op, rank->comm), "ncclRedOpDestroy");
}

static void wrong_operators_are_not_destroyed(multi_rank *rank)
{
    ncclRedOp_t op;
    float scalar = 1;

    for (int i = 0; i < ncclNumOps; i++)
        (void)multi_expect(rank, ncclRedOpDestroy((ncclRedOp_t)i, rank->comm),
                ncclInvalidArgument, "destroy the built-in operator %d", i);
    (void)multi_expect(rank, ncclRedOpDestroy((ncclRedOp_t)-1, rank->comm),
            ncclInvalidArgument, "destroy the operator -1");
    (void)multi_expect(rank, ncclRedOpDestroy((ncclRedOp_t)12345, rank->comm),
            ncclInvalidArgument, "destroy an operator never made");
    (void)multi_expect(rank, ncclRedOpDestroy(ncclMaxRedOp, rank->comm),
            ncclInvalidArgument, "destroy the largest operator");
    if (!make(rank, &op, &scalar, ncclScalarHostImmediate))
        return;
    (void)multi_expect(rank, ncclRedOpDestroy(op, NULL), ncclInvalidArgument,
            "destroy without communicator");
    (void)multi_ok(rank, ncclRedOpDestroy(op, rank->comm), "ncclRedOpDestroy");
    (void)multi_expect(rank, ncclRedOpDestroy(op, rank->comm), ncclInvalidArgument,
            "destroy twice");
}

static void wrong_arguments_make_no_operator(multi_rank *rank)
{
    ncclRedOp_t op = ncclProd;
    float scalar = 1;

    (void)multi_expect(rank,
            ncclRedOpCreatePreMulSum(&op, &scalar, ncclFloat32, ncclScalarHostImmediate,
                    NULL),
            ncclInvalidArgument, "without communicator");
    (void)multi_check(rank,
            ncclRedOpCreatePreMulSum(&op, &scalar, (ncclDataType_t)44,
                    ncclScalarHostImmediate, rank->comm) != ncclSuccess,
            "an operator of type 44 was made");
    (void)multi_check(rank,
            ncclRedOpCreatePreMulSum(NULL, &scalar, ncclFloat32,
                    ncclScalarHostImmediate, rank->comm) != ncclSuccess,
            "an operator without a place was made");
    (void)multi_check(rank,
            ncclRedOpCreatePreMulSum(&op, NULL, ncclFloat32, ncclScalarHostImmediate,
                    rank->comm) != ncclSuccess,
            "an operator without scalar was made");
    (void)multi_check(rank, op == ncclProd, "a refused call wrote its output");
}

static void operator_of_another_communicator_is_unknown(multi_rank *rank)
{
    ncclComm_t other = NULL;
    ncclRedOp_t op;
    float scalar = 1, mine = 1, sum = 0;

    if (!multi_ok(rank, ncclCommInitAll(&other, 1, NULL), "ncclCommInitAll") ||
            !make(rank, &op, &scalar, ncclScalarHostImmediate))
        return;
    (void)multi_expect(rank,
            ncclAllReduce(&mine, &sum, 1, ncclFloat32, op, other, NULL),
            ncclInvalidArgument, "an operator of another communicator");
    (void)multi_expect(rank, ncclRedOpDestroy(op, other), ncclInvalidArgument,
            "destroy an operator of another communicator");
    (void)multi_ok(rank, ncclRedOpDestroy(op, rank->comm), "ncclRedOpDestroy");
    (void)multi_ok(rank, ncclCommDestroy(other), "ncclCommDestroy");
}

static void operator_is_for_its_type_only(multi_rank *rank)
{
    ncclRedOp_t op;
    float scalar = 1;
    double mine = 1, sum = 0;

    if (!make(rank, &op, &scalar, ncclScalarHostImmediate))
        return;
    (void)multi_expect(rank,
            ncclAllReduce(&mine, &sum, 1, ncclFloat64, op, rank->comm, NULL),
            ncclInvalidArgument, "an operator of another type");
    (void)multi_ok(rank, ncclRedOpDestroy(op, rank->comm), "ncclRedOpDestroy");
    (void)multi_expect(rank,
            ncclAllReduce(&scalar, &scalar, 1, ncclFloat32, op, rank->comm, NULL),
            ncclInvalidArgument, "a destroyed operator");
    (void)rules_works(rank, rank->comm, "after refused operators");
}

static void a_thousand_operators_at_once(multi_rank *rank)
{
    enum { N = 1000 };
    ncclRedOp_t op[N];
    float scalar, mine = 1, sum = 0;

    for (int i = 0; i < N; i++) {
        scalar = (float)i;
        if (!make(rank, &op[i], &scalar, ncclScalarHostImmediate))
            return;
    }
    for (int i = 0; i < N; i += 37) {
        (void)multi_ok(rank,
                ncclAllReduce(&mine, &sum, 1, ncclFloat32, op[i], rank->comm, NULL),
                "all_reduce");
        (void)multi_check(rank, sum == (float)(i * rank->nranks),
                "sum is %g, expected %d", (double)sum, i * rank->nranks);
    }
    for (int i = 0; i < N; i++)
        if (!multi_ok(rank, ncclRedOpDestroy(op[i], rank->comm), "ncclRedOpDestroy"))
            return;
}

#define PAIR  MULTI_THREADS, 2, true, NULL, 0
#define ALONE MULTI_THREADS, 1, true, NULL, 0

const rule rules_operators[] = {
    { "an operator may be destroyed before its group ends",
            destroyed_before_the_group_ends, PAIR },
    { "a device scalar is read when the operation runs",
            device_scalar_is_read_when_the_operation_runs, PAIR },
    { "built-in, unknown and destroyed operators are not destroyed",
            wrong_operators_are_not_destroyed, ALONE },
    { "wrong arguments make no operator", wrong_arguments_make_no_operator, ALONE },
    { "an operator of another communicator is unknown",
            operator_of_another_communicator_is_unknown, ALONE },
    { "an operator is good for its type only, until destroyed",
            operator_is_for_its_type_only, PAIR },
    { "a thousand operators at once", a_thousand_operators_at_once, PAIR },
    { NULL, NULL, MULTI_THREADS, 0, false, NULL, 0 },
};
