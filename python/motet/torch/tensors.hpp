// SPDX-License-Identifier: Apache-2.0
// Tensors as the library takes them: types, operators, checks, and lists as one piece.
#pragma once

#include <motet.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/extension.h>
#include <torch/version.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

// What the library cannot do, or a peer did.
#define MOTET_ERROR(sentence)                                                      \
    c10::DistBackendError({ __func__, __FILE__, static_cast<uint32_t>(__LINE__) }, \
            sentence)

#define TORCH_AT_LEAST(major, minor)  \
    (TORCH_VERSION_MAJOR > (major) || \
            (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

namespace motet
{

using Tensors = std::vector<at::Tensor>;
using Ms = std::chrono::milliseconds;

struct TypeRow {
    at::ScalarType scalar;
    ncclDataType_t type;
};

// Of what is reduced; data that is only moved may be of any type.
constexpr TypeRow type_rows[] = {
    { at::kChar, ncclInt8 },
    { at::kByte, ncclUint8 },
    { at::kBool, ncclUint8 },
    { at::kInt, ncclInt32 },
    { at::kLong, ncclInt64 },
    { at::kHalf, ncclFloat16 },
    { at::kBFloat16, ncclBfloat16 },
    { at::kFloat, ncclFloat32 },
    { at::kDouble, ncclFloat64 },
    { at::kFloat8_e4m3fn, ncclFloat8e4m3 },
    { at::kFloat8_e5m2, ncclFloat8e5m2 },
#if TORCH_AT_LEAST(2, 3)
    { at::kUInt32, ncclUint32 },
    { at::kUInt64, ncclUint64 },
#endif
};

inline std::optional<ncclDataType_t> type_of(const at::Tensor &tensor)
{
    for (const TypeRow &row : type_rows)
        if (row.scalar == tensor.scalar_type())
            return row.type;
    return std::nullopt;
}

// Elements as the library counts them: of their own type, or bytes of one it has not.
struct Moved {
    ncclDataType_t type;
    size_t count;

    explicit Moved(const at::Tensor &tensor)
        : type(type_of(tensor).value_or(ncclInt8)),
          count(type_of(tensor) ? tensor.numel() : tensor.nbytes())
    {
    }
};

struct Reduced {
    ncclDataType_t type;
    ncclRedOp_t op;
};

// Of booleans, a sum says whether any is true and a product whether all are.
inline ncclRedOp_t op_of(c10d::ReduceOp::RedOpType op, bool boolean)
{
    using Op = c10d::ReduceOp;

    switch (op) {
    case Op::SUM: return boolean ? ncclMax : ncclSum;
    case Op::PRODUCT: return boolean ? ncclMin : ncclProd;
    case Op::MIN: return ncclMin;
    case Op::MAX: return ncclMax;
    case Op::AVG:
        TORCH_CHECK_VALUE(!boolean, "motet: booleans have no average");
        return ncclAvg;
    default: TORCH_CHECK_VALUE(false, "motet: this operator has no such form");
    }
}

inline bool is_bitwise(const c10d::ReduceOp &op)
{
    return op == c10d::ReduceOp::BAND || op == c10d::ReduceOp::BOR ||
            op == c10d::ReduceOp::BXOR;
}

inline Reduced reduced(const at::Tensor &tensor, const c10d::ReduceOp &op)
{
    const auto type = type_of(tensor);

    TORCH_CHECK_TYPE(type, "motet: no reduction of ", tensor.scalar_type(),
            ": it has those of 8, 32 and 64-bit integers, of booleans and of floats");
    return { *type, op_of(op, tensor.scalar_type() == at::kBool) };
}

inline void check_tensor(const at::Tensor &t, const char *what)
{
    TORCH_CHECK_TYPE(t.layout() == at::kStrided, "motet: ", what,
            " takes dense tensors, not one of layout ", t.layout());
    TORCH_CHECK_TYPE(t.is_cpu() || t.is_cuda(), "motet: ", what, ": a tensor on ",
            t.device(), ", and motet.torch takes those on cpu and cuda");
    TORCH_CHECK_VALUE(t.is_contiguous(), "motet: ", what,
            " takes contiguous tensors, not one of sizes ", t.sizes(), " and strides ",
            t.strides());
}

inline void check_alike(const at::Tensor &a, const at::Tensor &b, const char *what)
{
    TORCH_CHECK_TYPE(a.scalar_type() == b.scalar_type(), "motet: ", what,
            ": tensors of ", a.scalar_type(), " and ", b.scalar_type());
    TORCH_CHECK_VALUE(a.device() == b.device(), "motet: ", what, ": tensors on ",
            a.device(), " and ", b.device());
}

inline void check_all(const Tensors &tensors, const char *what)
{
    for (const at::Tensor &t : tensors) {
        check_tensor(t, what);
        check_alike(tensors[0], t, what);
    }
}

const at::Tensor &the_one(const Tensors &tensors, const char *what)
{
    TORCH_CHECK_VALUE(tensors.size() == 1, "motet: ", what, " takes one tensor, not ",
            tensors.size());
    check_tensor(tensors[0], what);
    return tensors[0];
}

inline void check_list(const Tensors &list, int size, const at::Tensor &like,
        const char *what)
{
    TORCH_CHECK_VALUE(static_cast<int>(list.size()) == size, "motet: ", what,
            ": a list of ", list.size(), " tensors for ", size, " ranks");
    check_all(list, what);
    check_alike(list[0], like, what);
}

inline void check_root(int64_t root, int size, const char *what)
{
    TORCH_CHECK_VALUE(root >= 0 && root < size, "motet: ", what, ": rank ", root,
            " of ", size);
}

inline bool is_among(const at::Tensor &tensor, const Tensors &list)
{
    return std::any_of(list.begin(), list.end(), [&](const at::Tensor &t) {
        return t.const_data_ptr() == tensor.const_data_ptr() &&
                t.nbytes() == tensor.nbytes();
    });
}

inline bool all_alike(const Tensors &list, const at::Tensor &like)
{
    for (const at::Tensor &t : list)
        if (t.numel() != like.numel())
            return false;
    return true;
}

// One tensor over a list whose memory is one piece, or nothing.
inline std::optional<at::Tensor> as_one(const Tensors &list)
{
    const auto *at = static_cast<const char *>(list[0].const_data_ptr());
    int64_t count = 0;

    for (const at::Tensor &t : list) {
        if (t.const_data_ptr() != at || t.storage().data() != list[0].storage().data())
            return std::nullopt;
        at += t.nbytes();
        count += t.numel();
    }
    return list[0].as_strided({ count }, { 1 });
}

inline at::Tensor flat_like(const Tensors &list)
{
    int64_t count = 0;

    for (const at::Tensor &t : list)
        count += t.numel();
    return at::empty({ count }, list[0].options());
}

inline void split_into(const at::Tensor &flat, const Tensors &list)
{
    int64_t at = 0;

    for (const at::Tensor &t : list) {
        t.view({ -1 }).copy_(flat.narrow(0, at, t.numel()));
        at += t.numel();
    }
}

inline void join_from(const Tensors &list, const at::Tensor &flat)
{
    int64_t at = 0;

    for (const at::Tensor &t : list) {
        flat.narrow(0, at, t.numel()).copy_(t.view({ -1 }));
        at += t.numel();
    }
}

} // namespace motet
