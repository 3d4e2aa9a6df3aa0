// SPDX-License-Identifier: Apache-2.0
//
// The c10d backend "motet". A process group has one communicator for its collectives, whose
// calls run one after the other: in the caller's own thread where it waits for the result
// and nothing is under way, else in a thread of the group. Messages between two ranks have a
// lane for each direction, a communicator of two, so that they hold up nobody else; what a
// lane brings is matched by tag.
//
// PyTorch >= 2.2. Errors are exceptions with the library's own sentence and the rank. One
// file is compiled; the headers beside it are its parts.

#include "calls.hpp"
#include "device.hpp"
#include "messages.hpp"

#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>

namespace motet
{

class MotetBackend : public c10d::Backend, private Calls
{
  public:
    MotetBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Ms timeout)
        : Backend(rank, size), Calls({ rank, size }),
          store_(c10::make_intrusive<c10d::PrefixStore>("motet", std::move(store))),
          timeout_(timeout), comm_(place_, store_, "id", place_.everybody()),
          mailbox_(place_, store_), gpu_(place_, store_, "gpu", place_.everybody()),
          gpu_lanes_(place_, store_)
    {
    }

    ~MotetBackend() override
    {
        abort();
    }

    const std::string getBackendName() const override
    {
        return "motet";
    }

    // ---- its life. Older versions of PyTorch have not all of these to override.

    void setTimeout(Ms timeout)
    {
        timeout_ = timeout;
    }

    bool supportsSplitting() const
    {
        return true;
    }

    bool supportsCoalescing() const
    {
        return true;
    }

    void abort()
    {
        comm_.abort();
        mailbox_.abort();
        for (auto &[to, lane] : lanes_)
            lane->end();
        gpu_.abort();
        gpu_lanes_.abort();
        queue_.close();
    }

    // What was started is completed before.
    void shutdown()
    {
        queue_.close();
        comm_.destroy();
        gpu_.destroy();
        gpu_lanes_.destroy();
        abort();
    }

    // init_process_group() with a device: what is wrong shows there.
    void eagerConnectSingleDevice(at::Device device)
    {
        if (!device.is_cpu())
            gpu_.join("motet:init_process_group", device, timeout_);
    }

    void setSequenceNumberForGroup() override
    {
    }

    uint64_t getSequenceNumberForGroup() override
    {
        return sequence_;
    }

#if TORCH_AT_LEAST(2, 9)
    c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store> &store,
            const std::vector<int> &ranks,
            const c10::intrusive_ptr<Options> &options) override
    {
        const auto mine = std::find(ranks.begin(), ranks.end(), rank_);

        if (mine == ranks.end())
            return nullptr;
        return c10::make_intrusive<MotetBackend>(store,
                static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()),
                options ? options->timeout : timeout_);
    }
#endif

    void startCoalescing() override
    {
        coalescing_ = true;
        coalesced_.clear();
        batch_.clear();
    }

    c10::intrusive_ptr<Work> endCoalescing() override
    {
        coalescing_ = false;
        if (!batch_.empty())
            coalesced_.push_back(launch_batch(std::exchange(batch_, {})));
        return c10::make_intrusive<AllOf>(rank_, std::exchange(coalesced_, {}));
    }

    // ---- reductions

    c10::intrusive_ptr<Work> allreduce(Tensors &tensors,
            const c10d::AllreduceOptions &options = {}) override
    {
        the_one(tensors, "all_reduce");
        return all_reduce_each(tensors, options, OpType::ALLREDUCE, "motet:all_reduce");
    }

    c10::intrusive_ptr<Work> allreduce_coalesced(Tensors &tensors,
            const c10d::AllreduceCoalescedOptions &options = {}) override
    {
        check_all(tensors, "all_reduce_coalesced");
        return all_reduce_each(tensors, options, OpType::ALLREDUCE_COALESCED,
                "motet:all_reduce_coalesced");
    }

    c10::intrusive_ptr<Work> reduce(Tensors &tensors,
            const c10d::ReduceOptions &options = {}) override
    {
        const at::Tensor tensor = real(the_one(tensors, "reduce"), options.reduceOp);
        const int root = static_cast<int>(options.rootRank);

        check_root(root, size_, "reduce");
        check_op(tensor, options.reduceOp);
        return start(OpType::REDUCE, "motet:reduce", tensors, {}, options,
                [this, tensor, op = options.reduceOp, root](const On &on) {
                    if (is_bitwise(op)) {
                        const at::Tensor result = bitwise(on, tensor, op);

                        if (root == rank_)
                            tensor.view({ -1 }).copy_(result);
                        return;
                    }
                    const Op made(*this, on, tensor, op);

                    check(ncclReduce(tensor.const_data_ptr(), tensor.mutable_data_ptr(),
                                  tensor.numel(), made.type, made.op, root, on.comm,
                                  on.stream),
                            "reduce");
                });
    }

    c10::intrusive_ptr<Work> reduce_scatter(Tensors &outputs,
            std::vector<Tensors> &inputs,
            const c10d::ReduceScatterOptions &options = {}) override
    {
        const at::Tensor output = the_one(outputs, "reduce_scatter");

        TORCH_CHECK_VALUE(inputs.size() == 1,
                "motet: reduce_scatter takes one list of tensors");
        check_list(inputs[0], size_, output, "reduce_scatter");
        TORCH_CHECK_VALUE(inputs[0][rank_].numel() == output.numel(),
                "motet: reduce_scatter: the output has ", output.numel(),
                " elements, this rank's input ", inputs[0][rank_].numel());
        if (all_alike(inputs[0], output)) {
            const auto whole = as_one(inputs[0]);

            return reduce_scatter_one(output, whole ? *whole : at::Tensor(), inputs[0],
                    options);
        }
        return start(OpType::REDUCE_SCATTER, "motet:reduce_scatter", outputs, inputs[0],
                options,
                [this, output, list = inputs[0], op = options.reduceOp](const On &on) {
                    for (int root = 0; root < size_; root++)
                        reduce_to(on, list[root], root == rank_ ? output : list[root],
                                op, root);
                });
    }

    c10::intrusive_ptr<Work> _reduce_scatter_base(at::Tensor &output, at::Tensor &input,
            const c10d::ReduceScatterOptions &options = {}) override
    {
        check_pair(input, output, "reduce_scatter_tensor");
        TORCH_CHECK_VALUE(input.numel() == output.numel() * size_,
                "motet: reduce_scatter_tensor: an input of ", input.numel(),
                " elements and an output of ", output.numel(), ", need ", size_,
                " times as many");
        return reduce_scatter_one(output, input, {}, options);
    }

    c10::intrusive_ptr<Work> reduce_scatter_tensor_coalesced(Tensors &outputs,
            Tensors &inputs, const c10d::ReduceScatterOptions &options = {}) override
    {
        return each(outputs, inputs, "reduce_scatter_tensor_coalesced",
                [&](at::Tensor &output, at::Tensor &input) {
                    return _reduce_scatter_base(output, input, options);
                });
    }

    // ---- moves

    c10::intrusive_ptr<Work> broadcast(Tensors &tensors,
            const c10d::BroadcastOptions &options = {}) override
    {
        const at::Tensor tensor = the_one(tensors, "broadcast");
        const int root = static_cast<int>(options.rootRank);

        check_root(root, size_, "broadcast");
        return start(OpType::BROADCAST, "motet:broadcast", tensors, {}, options,
                [this, tensor, root](
                        const On &on) { broadcast_from(on, tensor, root); });
    }

    c10::intrusive_ptr<Work> allgather(std::vector<Tensors> &outputs, Tensors &inputs,
            const c10d::AllgatherOptions &options = {}) override
    {
        (void)the_one(inputs, "all_gather");
        TORCH_CHECK_VALUE(outputs.size() == 1,
                "motet: all_gather takes one list of tensors");
        return gather_lists(OpType::ALLGATHER, inputs, outputs, options);
    }

    c10::intrusive_ptr<Work> _allgather_base(at::Tensor &output, at::Tensor &input,
            const c10d::AllgatherOptions &options = {}) override
    {
        check_pair(input, output, "all_gather_into_tensor");
        TORCH_CHECK_VALUE(output.numel() == input.numel() * size_,
                "motet: all_gather_into_tensor: an input of ", input.numel(),
                " elements and an output of ", output.numel(), ", need ", size_,
                " times as many");
        return start(OpType::_ALLGATHER_BASE, "motet:all_gather_into_tensor",
                { output }, { input }, options,
                [this, input, output](const On &on) { gather_all(on, input, output); });
    }

    c10::intrusive_ptr<Work> allgather_coalesced(std::vector<Tensors> &outputs,
            Tensors &inputs, const c10d::AllgatherOptions &options = {}) override
    {
        std::vector<Tensors> lists(inputs.size());

        TORCH_CHECK_VALUE(static_cast<int>(outputs.size()) == size_,
                "motet: all_gather_coalesced: ", outputs.size(), " lists for ", size_,
                " ranks");
        for (const Tensors &list : outputs) {
            TORCH_CHECK_VALUE(list.size() == inputs.size(),
                    "motet: all_gather_coalesced: a list of ", list.size(),
                    " tensors for ", inputs.size(), " inputs");
            for (size_t i = 0; i < inputs.size(); i++)
                lists[i].push_back(list[i]);
        }
        return gather_lists(OpType::ALLGATHER_COALESCED, inputs, lists, options);
    }

    c10::intrusive_ptr<Work> allgather_into_tensor_coalesced(Tensors &outputs,
            Tensors &inputs, const c10d::AllgatherOptions &options = {}) override
    {
        return each(outputs, inputs, "all_gather_into_tensor_coalesced",
                [&](at::Tensor &output, at::Tensor &input) {
                    return _allgather_base(output, input, options);
                });
    }

    c10::intrusive_ptr<Work> gather(std::vector<Tensors> &outputs, Tensors &inputs,
            const c10d::GatherOptions &options = {}) override
    {
        const at::Tensor input = the_one(inputs, "gather");
        const int root = static_cast<int>(options.rootRank);
        Tensors list;

        check_root(root, size_, "gather");
        if (root == rank_) {
            TORCH_CHECK_VALUE(outputs.size() == 1,
                    "motet: gather takes one list of tensors");
            list = outputs[0];
            check_list(list, size_, input, "gather");
            TORCH_CHECK_VALUE(list[rank_].numel() == input.numel(),
                    "motet: gather: the input has ", input.numel(),
                    " elements, this rank's output ", list[rank_].numel());
        } else {
            TORCH_CHECK_VALUE(outputs.empty() || outputs[0].empty(),
                    "motet: gather: only rank ", root, " has outputs");
        }
        return start(OpType::GATHER, "motet:gather", list, inputs, options,
                [this, input, list, root](const On &on) {
                    if (root == rank_)
                        list[rank_].view({ -1 }).copy_(input.view({ -1 }));
                    grouped("gather", [&] {
                        for (int r = 0; r < size_; r++)
                            if (root == rank_ && r != rank_)
                                receive(on, list[r], r);
                        if (root != rank_)
                            send_to(on, input, root);
                    });
                });
    }

    c10::intrusive_ptr<Work> scatter(Tensors &outputs, std::vector<Tensors> &inputs,
            const c10d::ScatterOptions &options = {}) override
    {
        const at::Tensor output = the_one(outputs, "scatter");
        const int root = static_cast<int>(options.rootRank);
        Tensors list;

        check_root(root, size_, "scatter");
        if (root == rank_) {
            TORCH_CHECK_VALUE(inputs.size() == 1,
                    "motet: scatter takes one list of tensors");
            list = inputs[0];
            check_list(list, size_, output, "scatter");
            TORCH_CHECK_VALUE(list[rank_].numel() == output.numel(),
                    "motet: scatter: the output has ", output.numel(),
                    " elements, this rank's input ", list[rank_].numel());
        } else {
            TORCH_CHECK_VALUE(inputs.empty() || inputs[0].empty(),
                    "motet: scatter: only rank ", root, " has inputs");
        }
        return start(OpType::SCATTER, "motet:scatter", outputs, list, options,
                [this, output, list, root](const On &on) {
                    if (root == rank_)
                        output.view({ -1 }).copy_(list[rank_].view({ -1 }));
                    grouped("scatter", [&] {
                        for (int r = 0; r < size_; r++)
                            if (root == rank_ && r != rank_)
                                send_to(on, list[r], r);
                        if (root != rank_)
                            receive(on, output, root);
                    });
                });
    }

    c10::intrusive_ptr<Work> alltoall(Tensors &outputs, Tensors &inputs,
            const c10d::AllToAllOptions &options = {}) override
    {
        check_list(outputs, size_, outputs[0], "all_to_all");
        check_list(inputs, size_, outputs[0], "all_to_all");
        TORCH_CHECK_VALUE(inputs[rank_].numel() == outputs[rank_].numel(),
                "motet: all_to_all: this rank sends itself ", inputs[rank_].numel(),
                " elements and receives ", outputs[rank_].numel());
        return start(OpType::ALLTOALL, "motet:all_to_all", outputs, inputs, options,
                [this, outputs, inputs](const On &on) {
                    outputs[rank_].view({ -1 }).copy_(inputs[rank_].view({ -1 }));
                    grouped("all_to_all", [&] {
                        for (int r = 0; r < size_; r++)
                            if (r != rank_) {
                                send_to(on, inputs[r], r);
                                receive(on, outputs[r], r);
                            }
                    });
                });
    }

    c10::intrusive_ptr<Work> alltoall_base(at::Tensor &output, at::Tensor &input,
            std::vector<int64_t> &output_splits, std::vector<int64_t> &input_splits,
            const c10d::AllToAllOptions &options = {}) override
    {
        check_pair(input, output, "all_to_all_single");
        return start(OpType::ALLTOALL_BASE, "motet:all_to_all_single", { output },
                { input }, options,
                [this, output, input, to = Parts(input, input_splits, size_, "input"),
                        from = Parts(output, output_splits, size_, "output")](
                        const On &on) {
                    check(ncclAlltoAllv(input.const_data_ptr(), to.counts.data(),
                                  to.offsets.data(), output.mutable_data_ptr(),
                                  from.counts.data(), from.offsets.data(), to.type,
                                  on.comm, on.stream),
                            "all_to_all_single");
                });
    }

    // Also for what was launched on a GPU until now.
    c10::intrusive_ptr<Work> barrier(const c10d::BarrierOptions &options = {}) override
    {
        const auto launched = gpu_.launched();

        return start(OpType::BARRIER, "motet:barrier", {}, {}, options,
                [this, launched](const On &on) {
                    gpu_.finish(launched, "barrier");
                    int8_t word = 0;

                    check(ncclAllReduce(&word, &word, 1, ncclInt8, ncclMax, on.comm,
                                  on.stream),
                            "barrier");
                });
    }

    void monitoredBarrier(const c10d::BarrierOptions &options, bool wait_all) override
    {
        monitored_barrier(place_, *store_, c10::str("monitored/", monitored_++, "/"),
                options.timeout >= Ms(0) ? options.timeout : timeout_, wait_all);
    }

    // ---- messages

    c10::intrusive_ptr<Work> send(Tensors &tensors, int to, int tag) override
    {
        const at::Tensor tensor = the_one(tensors, "send");

        check_peer(to, "send");
        if (!tensor.is_cpu())
            return move_on_device({ tensor, to, true }, OpType::SEND, "motet:send");
        auto &lane = lanes_[to];
        const auto work = make(OpType::SEND, "motet:send", {}, timeout_, tensors);

        if (!lane)
            lane = std::make_unique<SendLane>(place_, store_, to);
        lane->send(tensor, tag, timeout_, work);
        return remember(work);
    }

    c10::intrusive_ptr<Work> recv(Tensors &tensors, int from, int tag) override
    {
        check_peer(from, "recv");
        if (!the_one(tensors, "recv").is_cpu())
            return move_on_device({ tensors[0], from, false }, OpType::RECV,
                    "motet:recv");
        return receive_into(tensors, from, tag, OpType::RECV, "motet:recv");
    }

    c10::intrusive_ptr<Work> recvAnysource(Tensors &tensors, int tag) override
    {
        TORCH_CHECK_NOT_IMPLEMENTED(the_one(tensors, "recv").is_cpu(),
                "motet: recv from any source takes tensors on cpu: on a GPU, name the "
                "source");
        return receive_into(tensors, Mailbox::any, tag, OpType::RECVANYSOURCE,
                "motet:recvAnySource");
    }

  private:
    // ---- starting

    WorkPtr make(OpType op, const char *title, Tensors outputs, Ms limit,
            const Tensors &inputs)
    {
        return c10::make_intrusive<MotetWork>(rank_, op, title, std::move(outputs),
                limit, inputs);
    }

    c10::intrusive_ptr<Work> remember(const c10::intrusive_ptr<Work> &work)
    {
        if (coalescing_)
            coalesced_.push_back(work);
        return work;
    }

    // `body` calls the library, in the group's order: for tensors on GPUs at once, in a
    // stream.
    template <typename Options, typename Body>
    c10::intrusive_ptr<Work> start(OpType op, const char *title, Tensors outputs,
            const Tensors &inputs, const Options &options, Body body)
    {
        const Ms timeout = options.timeout > Ms(0) ? options.timeout : timeout_;
        const bool later = goes_on(options, 0);
        Tensors used = outputs;

        sequence_++;
        used.insert(used.end(), inputs.begin(), inputs.end());
        if (first_on_device(used) != nullptr)
            return remember(gpu_.launch(op, title, std::move(outputs), used, timeout,
                    later, body));
        const WorkPtr work =
                make(op, title, outputs, Ms(0), inputs.empty() ? outputs : inputs);

        queue_.run(
                [this, timeout, title, work, body = std::move(body)] {
                    try {
                        ncclComm_t comm = comm_.get(word_of(title), timeout);

                        comm_.limit(timeout);
                        body(On{ comm, nullptr });
                        work->end(nullptr);
                    } catch (...) {
                        work->end(std::current_exception());
                    }
                },
                !later && !coalescing_);
        return remember(work);
    }

    template <typename One>
    c10::intrusive_ptr<Work> each(Tensors &outputs, Tensors &inputs, const char *what,
            One one)
    {
        std::vector<c10::intrusive_ptr<Work>> parts;

        TORCH_CHECK_VALUE(outputs.size() == inputs.size(), "motet: ", what, ": ",
                inputs.size(), " inputs and ", outputs.size(), " outputs");
        for (size_t i = 0; i < inputs.size(); i++)
            parts.push_back(one(outputs[i], inputs[i]));
        return c10::make_intrusive<AllOf>(rank_, std::move(parts));
    }

    c10::intrusive_ptr<Work> receive_into(Tensors &tensors, int from, int tag,
            OpType op, const char *title)
    {
        const at::Tensor tensor = the_one(tensors, "recv");
        const WorkPtr work = make(op, title, tensors, timeout_, tensors);

        work->when_late([this, late = work.get()] {
            mailbox_.forget(WorkPtr::reclaim_copy(late));
        });
        mailbox_.post(from, tag, tensor, work);
        return remember(work);
    }

    // ---- messages on GPUs. Those of a batch are launched as one, by all ranks.

    struct Message {
        at::Tensor tensor;
        int peer;
        bool is_sent;
    };

    void move(const On &on, const Message &m, int peer)
    {
        if (m.is_sent)
            send_to(on, m.tensor, peer);
        else
            receive(on, m.tensor, peer);
    }

    c10::intrusive_ptr<Work> move_on_device(const Message &m, OpType op,
            const char *title)
    {
        if (coalescing_) {
            batch_.push_back(m);
            return nullptr;
        }
        return gpu_lanes_.launch(m.is_sent ? rank_ : m.peer, m.is_sent ? m.peer : rank_,
                op, title, { m.tensor }, timeout_,
                [this, m](const On &on) { move(on, m, m.is_sent ? 1 : 0); });
    }

    c10::intrusive_ptr<Work> launch_batch(const std::vector<Message> &batch)
    {
        Tensors tensors;

        for (const Message &m : batch)
            tensors.push_back(m.tensor);
        return gpu_.launch(OpType::COALESCED, "motet:batch_isend_irecv", tensors,
                tensors, timeout_, true, [&](const On &on) {
                    grouped("batch_isend_irecv", [&] {
                        for (const Message &m : batch)
                            move(on, m, m.peer);
                    });
                });
    }

    // ---- checks

    void check_peer(int peer, const char *what) const
    {
        check_root(peer, size_, what);
        TORCH_CHECK_VALUE(peer != rank_, "motet: ", what, ": rank ", rank_,
                " is this rank");
    }

    static void check_pair(const at::Tensor &input, const at::Tensor &output,
            const char *what)
    {
        check_tensor(input, what);
        check_tensor(output, what);
        check_alike(input, output, what);
    }

    c10::intrusive_ptr<Work> all_reduce_each(Tensors &tensors,
            const c10d::AllreduceOptions &options, OpType type, const char *title)
    {
        Tensors reals;

        for (const at::Tensor &t : tensors) {
            check_op(real(t, options.reduceOp), options.reduceOp);
            if (!is_among(t, reals)) // each memory once
                reals.push_back(real(t, options.reduceOp));
        }
        return start(type, title, tensors, {}, options,
                [this, reals, wanted = options.reduceOp](const On &on) {
                    for (const at::Tensor &t : reals)
                        all_reduce_one(on, t, wanted);
                });
    }

    // `lists`: for each input, the outputs of all ranks.
    c10::intrusive_ptr<Work> gather_lists(OpType type, const Tensors &inputs,
            const std::vector<Tensors> &lists, const c10d::AllgatherOptions &options)
    {
        Tensors outputs;

        for (size_t i = 0; i < inputs.size(); i++) {
            check_tensor(inputs[i], "all_gather");
            check_list(lists[i], size_, inputs[i], "all_gather");
            TORCH_CHECK_VALUE(lists[i][rank_].numel() == inputs[i].numel(),
                    "motet: all_gather: the input has ", inputs[i].numel(),
                    " elements, this rank's output ", lists[i][rank_].numel());
            outputs.insert(outputs.end(), lists[i].begin(), lists[i].end());
        }
        return start(type, "motet:all_gather", outputs, inputs, options,
                [this, inputs, lists](const On &on) {
                    for (size_t i = 0; i < inputs.size(); i++)
                        gather_list(on, inputs[i], lists[i]);
                });
    }

    // `input` is the whole, or, where it is undefined, what the list becomes.
    c10::intrusive_ptr<Work> reduce_scatter_one(const at::Tensor &output,
            const at::Tensor &input, const Tensors &list,
            const c10d::ReduceScatterOptions &options)
    {
        const at::Tensor to = real(output, options.reduceOp);

        Tensors used = list;

        check_op(to, options.reduceOp);
        if (input.defined())
            used.push_back(input);
        return start(OpType::_REDUCE_SCATTER_BASE, "motet:reduce_scatter", { output },
                used, options,
                [this, to, input, list, wanted = options.reduceOp](const On &on) {
                    at::Tensor from = input.defined() ? input : flat_like(list);

                    if (!input.defined())
                        join_from(list, from);
                    from = real(from, wanted);
                    if (is_bitwise(wanted)) {
                        to.view({ -1 }).copy_(bitwise(on, from, wanted)
                                        .narrow(0, rank_ * to.numel(), to.numel()));
                        return;
                    }
                    const Op op(*this, on, to, wanted);

                    check(ncclReduceScatter(from.const_data_ptr(),
                                  to.mutable_data_ptr(), to.numel(), op.type, op.op,
                                  on.comm, on.stream),
                            "reduce_scatter");
                });
    }

    const c10::intrusive_ptr<c10d::Store> store_;
    Ms timeout_;
    uint64_t sequence_ = 0, monitored_ = 0;
    bool coalescing_ = false;
    std::vector<c10::intrusive_ptr<Work>> coalesced_;
    std::vector<Message> batch_;
    Comm comm_;
    Mailbox mailbox_;
    std::map<int, std::unique_ptr<SendLane>> lanes_;
    Link gpu_;
    Lanes gpu_lanes_;
    Queue queue_; // last: its jobs use the others
};

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store> &store,
        int rank, int size, double timeout_s)
{
    return c10::make_intrusive<MotetBackend>(store, rank, size,
            Ms(static_cast<int64_t>(timeout_s * 1000)));
}

} // namespace motet

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)
{
    m.doc() = "The c10d backend of motet.";
    m.attr("torch_version") = TORCH_VERSION;
    // PyTorch >= 2.9 tells the ranks that are not in a new group, where the library needs it.
    py::class_<motet::MotetBackend, c10d::Backend,
            c10::intrusive_ptr<motet::MotetBackend>>(m, "MotetBackend")
            .def("perform_nocolor_split", [](motet::MotetBackend &, at::Device) {});
    m.def("create", &motet::create, py::arg("store"), py::arg("rank"), py::arg("size"),
            py::arg("timeout_s"), py::call_guard<py::gil_scoped_release>());
}
