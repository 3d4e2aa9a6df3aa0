// SPDX-License-Identifier: Apache-2.0
// Tensors on GPUs: streams, and work that is done when the device has done it. Of PyTorch
// only what it has for devices of any vendor, so that one source serves all.
#pragma once

#include "communicator.hpp"
#include "work.hpp"

#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <atomic>
#include <future>
#include <map>
#include <memory>

namespace motet
{

using Guard = c10::impl::VirtualGuardImpl;

// The vendor's stream behind one of PyTorch's. Older versions of PyTorch do not give it.
template <typename Impl>
auto handle_of(const Impl &impl, const c10::Stream &stream, int)
        -> decltype(impl.getStreamNativeHandle(stream))
{
    return impl.getStreamNativeHandle(stream);
}

template <typename Impl> void *handle_of(const Impl &, const c10::Stream &, ...)
{
    TORCH_CHECK_NOT_IMPLEMENTED(false,
            "motet: tensors on a GPU want a later PyTorch than ", TORCH_VERSION,
            ", whose guards give out the vendor's streams, as those of 2.11 do");
}

inline const at::Tensor *first_on_device(const Tensors &tensors)
{
    for (const at::Tensor &t : tensors)
        if (t.defined() && !t.is_cpu())
            return &t;
    return nullptr;
}

using Mark = std::shared_ptr<c10::Event>;
using Marks = std::vector<Mark>;

// What has been launched until now in the device's current stream.
inline Mark marked(c10::Device device)
{
    const auto mark = std::make_shared<c10::Event>(device.type());

    mark->record(Guard(device.type()).getStream(device));
    return mark;
}

// Until the device has done it: true. False if it has not within `timeout`; none: no limit. A
// failure of the communicator is an exception.
inline bool await(const c10::Event &event, Comm &comm, const char *what, Ms timeout)
{
    const auto end = std::chrono::steady_clock::now() + timeout;

    while (!event.query()) {
        comm.check_health(what);
        if (timeout > kNoTimeout && std::chrono::steady_clock::now() >= end)
            return false;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
}

// Work of a communicator of GPU ranks. wait() makes the current stream wait, as c10d wants
// it; with a time, the caller itself waits.
class DeviceWork : public Work
{
  public:
    // In the stream that is current, after all that was launched there.
    DeviceWork(Place place, OpType op, const char *title, Tensors outputs,
            std::shared_ptr<Comm> comm, c10::Stream stream)
        : Work(place.rank, op, title), place_(place), title_(title),
          outputs_(std::move(outputs)), comm_(std::move(comm)), stream_(stream),
          end_(stream.device_type())
    {
        end_.record(stream_);
    }

    bool isCompleted() override
    {
        return end_.query();
    }

    bool isSuccess() const override
    {
        return end_.query() && comm_->failure().empty();
    }

    void synchronize() override
    {
        wait(kNoTimeout);
    }

    bool wait(Ms timeout = kNoTimeout) override
    {
        comm_->check_health(word_of(title_));
        if (timeout <= kNoTimeout) {
            end_.block(Guard(stream_.device_type()).getStream(stream_.device()));
            return true;
        }
        if (!await(end_, *comm_, word_of(title_), timeout))
            give_up(place_.text() + ",", title_, timeout);
        comm_->check_health(word_of(title_)); // what has failed ends too
        return true;
    }

    Tensors result() override
    {
        return outputs_;
    }

    // Complete at once: who waits for it waits on the device.
    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        std::lock_guard<std::mutex> lock(future_mutex_);

        if (!future_) {
            const c10::StreamGuard guard(stream_);

            future_ = c10::make_intrusive<
                    c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()),
                    std::vector<c10::Device>{ stream_.device() });
            future_->markCompleted(c10::IValue(outputs_));
        }
        return future_;
    }

  private:
    const Place place_;
    const char *title_;
    const Tensors outputs_;
    const std::shared_ptr<Comm> comm_;
    const c10::Stream stream_;
    c10::Event end_;
    std::mutex future_mutex_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// A communicator of GPU ranks with the stream of what the caller does not wait for.
class Link
{
  public:
    Link(Place place, const c10::intrusive_ptr<c10d::Store> &store,
            const std::string &key, const std::vector<int> &ranks)
        : place_(place),
          comm_(std::make_shared<Comm>(place, store, key, ranks, MOTET_DEVICE_GPU))
    {
    }

    void join(const char *title, c10::Device device, Ms timeout)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const c10::DeviceGuard guard(device);

        get(word_of(title), device, timeout);
    }

    // `used`: inputs and outputs. Where the caller goes on, they run beside what it launches
    // later, and their memory is kept until they have run.
    template <typename Body>
    c10::intrusive_ptr<Work> launch(OpType op, const char *title, Tensors outputs,
            const Tensors &used, Ms timeout, bool goes_on, const Body &body)
    {
        const c10::Device device = first_on_device(used)->device();

        if (goes_on)
            return launch_after(*marked(device), op, title, std::move(outputs), used,
                    timeout, body);
        const std::lock_guard<std::mutex> lock(mutex_);

        return run(Guard(device.type()).getStream(device), op, title,
                std::move(outputs), timeout, body);
    }

    // In the stream of this link, after `begun`.
    template <typename Body>
    c10::intrusive_ptr<Work> launch_after(const c10::Event &begun, OpType op,
            const char *title, Tensors outputs, const Tensors &used, Ms timeout,
            const Body &body)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        const c10::Device device = first_on_device(used)->device();
        const Guard impl(device.type());

        if (!stream_ || stream_->device() != device)
            stream_ = impl.getStreamFromGlobalPool(device, true);
        begun.block(*stream_);
        const auto work = run(*stream_, op, title, std::move(outputs), timeout, body);

        for (const at::Tensor &t : used)
            impl.recordDataPtrOnStream(t.storage().data_ptr(), *stream_);
        return work;
    }

    // What the caller and this group have launched until now, for any thread to look at.
    Marks launched()
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        Marks marks;

        if (!device_)
            return marks;
        marks.push_back(marked(*device_));
        if (stream_) {
            const c10::StreamGuard guard(*stream_);

            marks.push_back(marked(*device_));
        }
        return marks;
    }

    // Until the device has done that, or the communicator has failed.
    void finish(const Marks &marks, const char *what)
    {
        for (const Mark &mark : marks)
            (void)await(*mark, *comm_, what, kNoTimeout);
    }

    void abort()
    {
        comm_->abort();
    }

    void destroy()
    {
        comm_->destroy();
    }

  private:
    ncclComm_t get(const char *what, c10::Device device, Ms timeout)
    {
        TORCH_CHECK_VALUE(!device_ || *device_ == device, place_.text(), ", ", what,
                ": a tensor on ", device, ", and this group's first one was on ",
                *device_);
        ncclComm_t comm = comm_->get(what, timeout);

        device_ = device;
        comm_->limit(timeout);
        return comm;
    }

    template <typename Body>
    c10::intrusive_ptr<Work> run(c10::Stream stream, OpType op, const char *title,
            Tensors outputs, Ms timeout, const Body &body)
    {
        const c10::StreamGuard guard(stream);
        ncclComm_t comm = get(word_of(title), stream.device(), timeout);
        void *handle = handle_of(Guard(stream.device_type()), stream, 0);

        body(On{ comm, static_cast<cudaStream_t>(handle) });
        return c10::make_intrusive<DeviceWork>(place_, op, title, std::move(outputs),
                comm_, stream);
    }

    const Place place_;
    const std::shared_ptr<Comm> comm_;
    std::mutex mutex_;
    std::optional<c10::Device> device_;
    std::optional<c10::Stream> stream_;
};

// Work that another thread launches, since its communicator is still being made.
class LaterWork : public Work
{
  public:
    using Launched = std::shared_future<c10::intrusive_ptr<Work>>;

    LaterWork(Place place, OpType op, const char *title, Launched launched)
        : Work(place.rank, op, title), place_(place), title_(title),
          launched_(std::move(launched))
    {
    }

    bool isCompleted() override
    {
        if (launched_.wait_for(Ms(0)) != std::future_status::ready)
            return false;
        try {
            return launched_.get()->isCompleted();
        } catch (const c10::Error &) {
            return true; // wait() says why
        }
    }

    bool wait(Ms timeout = kNoTimeout) override
    {
        if (timeout > kNoTimeout &&
                launched_.wait_for(timeout) != std::future_status::ready)
            give_up(place_.text() + ",", title_, timeout);
        return launched_.get()->wait(timeout);
    }

    Tensors result() override
    {
        return launched_.get()->result();
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        return launched_.get()->getFuture();
    }

  private:
    const Place place_;
    const char *title_;
    const Launched launched_;
};

// The lanes of messages on GPUs: two for each pair of ranks, so that neither direction holds
// up the other. Both ranks make both when they have heard of each other; until then messages
// wait in a thread of the pair, and their senders go on.
class Lanes
{
  public:
    Lanes(Place place, c10::intrusive_ptr<c10d::Store> store)
        : place_(place), store_(std::move(store))
    {
    }

    // `body` gets the lane, in which rank 0 is `from`.
    template <typename Body>
    c10::intrusive_ptr<Work> launch(int from, int to, OpType op, const char *title,
            const Tensors &tensors, Ms timeout, const Body &body)
    {
        Pair &pair = with(from == place_.rank ? to : from);
        Link &lane = from < to ? pair.up : pair.down;

        if (pair.is_joined && pair.waiting == 0)
            return lane.launch(op, title, tensors, tensors, timeout, true, body);
        const auto promise = std::make_shared<std::promise<c10::intrusive_ptr<Work>>>();
        const c10::Device device = tensors[0].device();
        const Mark begun = marked(device);

        pair.waiting++;
        pair.queue.run(
                [=, this, &pair, &lane] {
                    try {
                        join(pair, title, device, timeout);
                        promise->set_value(lane.launch_after(*begun, op, title, tensors,
                                tensors, timeout, body));
                    } catch (...) {
                        promise->set_exception(std::current_exception());
                    }
                    pair.waiting--;
                },
                false);
        return c10::make_intrusive<LaterWork>(place_, op, title,
                promise->get_future().share());
    }

    // What waits ends with an error.
    void abort()
    {
        is_over_ = true;
        for (auto &[peer, pair] : pairs_) {
            pair.up.abort();
            pair.down.abort();
            pair.queue.close();
        }
    }

    void destroy()
    {
        for (auto &[peer, pair] : pairs_)
            if (pair.waiting == 0) {
                pair.up.destroy();
                pair.down.destroy();
            }
    }

  private:
    struct Pair {
        Pair(Place place, const c10::intrusive_ptr<c10d::Store> &store, int peer)
            : Pair(place, store, peer, std::min(peer, place.rank),
                      std::max(peer, place.rank))
        {
        }

        Pair(Place place, const c10::intrusive_ptr<c10d::Store> &store, int peer,
                int low, int high)
            : peer(peer), key(c10::str("gpu/", low, "/", high, "/")),
              up(place, store, key + "up", { low, high }),
              down(place, store, key + "down", { high, low })
        {
        }

        const int peer;
        const std::string key;
        Link up, down; // from the lower rank, from the higher one
        std::atomic<bool> is_joined{ false };
        std::atomic<int> waiting{ 0 };
        Queue queue; // last: its jobs use the others
    };

    Pair &with(int peer)
    {
        return pairs_.try_emplace(peer, place_, store_, peer).first->second;
    }

    // In the pair's thread.
    void join(Pair &pair, const char *title, c10::Device device, Ms timeout)
    {
        if (pair.is_joined)
            return;
        store_->set(pair.key + std::to_string(place_.rank), std::vector<uint8_t>{ 1 });
        const auto ready = fetch(*store_, pair.key + std::to_string(pair.peer), timeout,
                [this] { return bool(is_over_); });

        TORCH_CHECK(!is_over_, place_.text(), ", ", word_of(title),
                ": the group was aborted");
        if (ready.empty())
            fail(place_, word_of(title),
                    c10::str("rank ", pair.peer, " has no message for this one within ",
                            timeout.count(), " ms"));
        pair.up.join(title, device, kLaneJoin);
        pair.down.join(title, device, kLaneJoin);
        pair.is_joined = true;
    }

    const Place place_;
    const c10::intrusive_ptr<c10d::Store> store_;
    std::atomic<bool> is_over_{ false };
    std::map<int, Pair> pairs_;
};

} // namespace motet
