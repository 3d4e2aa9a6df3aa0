// SPDX-License-Identifier: Apache-2.0
// Calls of the library, with checks of their operators.

#pragma once

#include "communicator.hpp"

#include <vector>

namespace motet
{

// Whether the caller goes on without the result. PyTorch says so from some version on.
template <typename Options>
auto goes_on(const Options &options, int) -> decltype(options.asyncOp)
{
    return options.asyncOp;
}

template <typename Options> bool goes_on(const Options &, ...)
{
    return true;
}

// Calls of the library for one rank, with what c10d has and the library has not.
class Calls
{
  protected:
    explicit Calls(Place place) : place_(place)
    {
    }

    void check(ncclResult_t result, const char *what) const
    {
        check_result(place_, result, what);
    }

    static void check_op(const at::Tensor &tensor, const c10d::ReduceOp &op)
    {
        if (is_bitwise(op)) {
            TORCH_CHECK_TYPE(at::isIntegralType(tensor.scalar_type(), true),
                    "motet: a bitwise operator wants integers, not ",
                    tensor.scalar_type());
        } else if (op != c10d::ReduceOp::PREMUL_SUM)
            (void)reduced(tensor, op);
        else
            (void)reduced(tensor, c10d::ReduceOp::SUM);
    }

    // A sum of complex numbers is that of twice as many real ones.
    static at::Tensor real(const at::Tensor &tensor, const c10d::ReduceOp &op)
    {
        if (!tensor.is_complex())
            return tensor;
        TORCH_CHECK_VALUE(op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::AVG,
                "motet: complex numbers have sums and averages only");
        return at::view_as_real(tensor);
    }

    // The library's operator, for as long as this lives.
    struct Op {
        Op(const Calls &calls, const On &on, const at::Tensor &tensor,
                const c10d::ReduceOp &wanted)
            : comm(on.comm)
        {
            if (wanted != c10d::ReduceOp::PREMUL_SUM) {
                const Reduced r = reduced(tensor, wanted);

                type = r.type;
                op = r.op;
                return;
            }
            using Supplement = c10d::NCCLPreMulSumSupplement;
            const auto *s = dynamic_cast<const Supplement *>(wanted.supplement_.get());

            TORCH_CHECK_VALUE(s != nullptr,
                    "motet: a premultiplied sum without its factor");
            const at::Tensor factor = s->tensor_factor.defined()
                    ? s->tensor_factor.to(tensor.options(), false, true).contiguous()
                    : at::scalar_tensor(s->double_factor, tensor.scalar_type());

            type = reduced(tensor, c10d::ReduceOp::SUM).type;
            calls.check(ncclRedOpCreatePreMulSum(&op, factor.mutable_data_ptr(), type,
                                factor.is_cpu() ? ncclScalarHostImmediate
                                                : ncclScalarDevice,
                                comm),
                    "ncclRedOpCreatePreMulSum");
            made = true;
        }

        Op(const Op &) = delete;

        ~Op()
        {
            if (made)
                (void)ncclRedOpDestroy(op, comm);
        }

        ncclComm_t comm;
        ncclDataType_t type;
        ncclRedOp_t op;
        bool made = false;
    };

    // Counts and offsets of each rank's part of a tensor that is split in its first dimension.
    struct Parts {
        Parts(const at::Tensor &tensor, const std::vector<int64_t> &splits, int size,
                const char *what)
            : type(Moved(tensor).type)
        {
            const int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 1;
            const size_t row = rows > 0 ? Moved(tensor).count / rows : 0;
            size_t at = 0;

            TORCH_CHECK_VALUE(splits.empty() || static_cast<int>(splits.size()) == size,
                    "motet: all_to_all_single: ", splits.size(), " splits of the ",
                    what, " for ", size, " ranks");
            TORCH_CHECK_VALUE(!splits.empty() || rows % size == 0,
                    "motet: all_to_all_single: the ", what, " has ", rows,
                    " rows, need a multiple of ", size);
            for (int r = 0; r < size; r++) {
                const int64_t part = splits.empty() ? rows / size : splits[r];

                TORCH_CHECK_VALUE(part >= 0, "motet: all_to_all_single: a split of ",
                        part);
                counts.push_back(row * part);
                offsets.push_back(at);
                at += row * part;
            }
            TORCH_CHECK_VALUE(at == Moved(tensor).count || rows == 0,
                    "motet: all_to_all_single: the splits of the ", what,
                    " are not its ", rows, " rows");
        }

        ncclDataType_t type;
        std::vector<size_t> counts, offsets;
    };

    template <typename Body> void grouped(const char *what, Body body)
    {
        check(ncclGroupStart(), what);
        try {
            body();
        } catch (...) {
            (void)ncclGroupEnd();
            throw;
        }
        check(ncclGroupEnd(), what);
    }

    void send_to(const On &on, const at::Tensor &t, int to)
    {
        const Moved m(t);

        check(ncclSend(t.const_data_ptr(), m.count, m.type, to, on.comm, on.stream),
                "send");
    }

    void receive(const On &on, const at::Tensor &t, int from)
    {
        const Moved m(t);

        check(ncclRecv(t.mutable_data_ptr(), m.count, m.type, from, on.comm, on.stream),
                "recv");
    }

    void broadcast_from(const On &on, const at::Tensor &t, int root)
    {
        const Moved m(t);

        check(ncclBroadcast(t.const_data_ptr(), t.mutable_data_ptr(), m.count, m.type,
                      root, on.comm, on.stream),
                "broadcast");
    }

    void gather_all(const On &on, const at::Tensor &input, const at::Tensor &output)
    {
        const Moved m(input);

        check(ncclAllGather(input.const_data_ptr(), output.mutable_data_ptr(), m.count,
                      m.type, on.comm, on.stream),
                "all_gather");
    }

    // The outputs may differ in size, and lie anywhere.
    void gather_list(const On &on, const at::Tensor &input, const Tensors &list)
    {
        if (all_alike(list, input)) {
            const auto whole = as_one(list);
            const at::Tensor flat = whole ? *whole : flat_like(list);

            gather_all(on, input, flat);
            if (!whole)
                split_into(flat, list);
            return;
        }
        list[place_.rank].view({ -1 }).copy_(input.view({ -1 }));
        for (int root = 0; root < place_.size; root++)
            broadcast_from(on, list[root], root);
    }

    // Bits of all ranks' elements, folded here: the library has no such operators.
    at::Tensor bitwise(const On &on, const at::Tensor &input, const c10d::ReduceOp &op)
    {
        const at::Tensor all =
                at::empty({ place_.size, input.numel() }, input.options());
        at::Tensor result;

        gather_all(on, input, all);
        result = all[0];
        for (int r = 1; r < place_.size; r++)
            switch (static_cast<c10d::ReduceOp::RedOpType>(op)) {
            case c10d::ReduceOp::BAND: result.bitwise_and_(all[r]); break;
            case c10d::ReduceOp::BOR: result.bitwise_or_(all[r]); break;
            default: result.bitwise_xor_(all[r]); break;
            }
        return result;
    }

    void reduce_to(const On &on, const at::Tensor &input, const at::Tensor &output,
            const c10d::ReduceOp &wanted, int root)
    {
        const Op op(*this, on, input, wanted);

        check(ncclReduce(input.const_data_ptr(), output.mutable_data_ptr(),
                      input.numel(), op.type, op.op, root, on.comm, on.stream),
                "reduce_scatter");
    }

    void all_reduce_one(const On &on, const at::Tensor &t, const c10d::ReduceOp &wanted)
    {
        if (is_bitwise(wanted)) {
            t.view({ -1 }).copy_(bitwise(on, t, wanted));
            return;
        }
        const Op op(*this, on, t, wanted);

        check(ncclAllReduce(t.const_data_ptr(), t.mutable_data_ptr(), t.numel(),
                      op.type, op.op, on.comm, on.stream),
                "all_reduce");
    }

    const Place place_;
};

} // namespace motet
