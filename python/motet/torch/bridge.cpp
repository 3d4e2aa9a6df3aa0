// SPDX-License-Identifier: Apache-2.0
//
// The bridge to a vendor's own ProcessGroupNCCL: a factory, for a Python whose own PyTorch was
// built without it, or under another name. Compiled by `python -m motet.torch.bridge build`,
// with the headers of that Python's PyTorch and the libraries of the vendor's.

#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <torch/extension.h>

#ifndef USE_C10D_NCCL
#error "USE_C10D_NCCL must be defined: without it PyTorch declares no ProcessGroupNCCL"
#endif

namespace
{

c10::intrusive_ptr<c10d::Backend> make_nccl_backend(const c10::intrusive_ptr<
                                                            c10d::Store> &store,
        int rank, int size, int64_t timeout_ms, bool high_priority_stream)
{
    auto options = c10d::ProcessGroupNCCL::Options::create(high_priority_stream);

    TORCH_CHECK_VALUE(size >= 1 && rank >= 0 && rank < size, "make_nccl_backend: rank ",
            rank, " of ", size);
    if (timeout_ms > 0)
        options->timeout = std::chrono::milliseconds(timeout_ms);
    return c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size, options);
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    m.doc() = "c10d::ProcessGroupNCCL of the vendor's libtorch.";
    m.def("make_nccl_backend", &make_nccl_backend, py::arg("store"), py::arg("rank"),
            py::arg("size"), py::arg("timeout_ms") = 0,
            py::arg("high_priority_stream") = false,
            py::call_guard<py::gil_scoped_release>());
}
