// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks: a lane for each direction, matched by tag.
#pragma once

#include "communicator.hpp"
#include "work.hpp"

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <set>

namespace motet
{

// What goes ahead of a message; a short one is in it.
struct Head {
    static constexpr size_t room = 1000;
    int64_t tag;
    uint64_t bytes;
    char data[room];
};

inline std::string lane_key(int from, int to, const char *what)
{
    return c10::str("lane/", from, "/", to, "/", what);
}

// Messages to one rank.
class SendLane
{
  public:
    SendLane(Place place, const c10::intrusive_ptr<c10d::Store> &store, int to)
        : store_(store), ready_(lane_key(place.rank, to, "ready")),
          what_(c10::str("send to rank ", to)),
          comm_(place, store, lane_key(place.rank, to, "id"), { place.rank, to })
    {
    }

    void send(const at::Tensor &tensor, int tag, Ms timeout, const WorkPtr &work)
    {
        under_way_++;
        queue_.run(
                [=, this] {
                    std::exception_ptr error;

                    try {
                        deliver(tensor, tag, timeout);
                    } catch (...) {
                        error = std::current_exception();
                    }
                    under_way_--; // before anybody learns that it was sent, and ends the lane
                    work->end(error);
                },
                false);
    }

    // What is still under way ends with an error; what was sent arrives.
    void end()
    {
        stopped_ = true;
        if (under_way_ == 0)
            comm_.destroy();
        else
            comm_.abort();
        queue_.close();
    }

  private:
    // The library gives up on a peer that does not come; a receiver may take its time.
    void meet(Ms timeout)
    {
        if (met_)
            return;
        const auto ready =
                fetch(*store_, ready_, timeout, [this] { return bool(stopped_); });

        TORCH_CHECK(!ready.empty(), "motet: ", what_, ": no receive for it within ",
                timeout.count(), " ms");
        met_ = true;
    }

    void deliver(const at::Tensor &tensor, int tag, Ms timeout)
    {
        Head head = { tag, tensor.nbytes(), {} };

        meet(timeout);
        const char *what = what_.c_str();
        ncclComm_t comm = comm_.get(what, std::min(timeout, kLaneJoin));

        comm_.limit(timeout);
        if (head.bytes <= Head::room)
            std::memcpy(head.data, tensor.const_data_ptr(), head.bytes);
        comm_.check(ncclSend(&head, sizeof(head), ncclInt8, 1, comm, nullptr), what);
        if (head.bytes > Head::room)
            comm_.check(ncclSend(tensor.const_data_ptr(), head.bytes, ncclInt8, 1, comm,
                                nullptr),
                    what);
    }

    const c10::intrusive_ptr<c10d::Store> store_;
    const std::string ready_, what_;
    std::atomic<int> under_way_{ 0 };
    std::atomic<bool> stopped_{ false };
    bool met_ = false;
    Comm comm_;
    Queue queue_;
};

// Messages from all ranks. A lane is read only while somebody waits for what it may bring;
// what comes and is not waited for is kept.
class Mailbox
{
  public:
    static constexpr int any = -1;

    Mailbox(Place place, c10::intrusive_ptr<c10d::Store> store)
        : place_(place), store_(std::move(store))
    {
    }

    ~Mailbox()
    {
        abort();
    }

    void post(int source, int tag, const at::Tensor &tensor, const WorkPtr &work)
    {
        std::unique_lock<std::mutex> lock(mutex_);

        TORCH_CHECK(!closed_, place_.text(), ", recv: the group was aborted");
        for (auto it = kept_.begin(); it != kept_.end(); ++it)
            if ((source == any || source == it->source) && tag == it->tag) {
                const Kept kept = std::move(*it);

                kept_.erase(it);
                lock.unlock();
                accept(tensor, work, kept.source, kept.bytes.size(), kept.bytes.data());
                return;
            }
        TORCH_CHECK(source == any || gone_.count(source) == 0, place_.text(),
                ", recv: the lane from rank ", source, " has failed before");
        posted_.push_back({ source, tag, tensor, work });
        for (int from = 0; from < place_.size; from++)
            if (from != place_.rank && (source == any || source == from))
                open(from);
        changed_.notify_all();
    }

    void abort()
    {
        std::map<int, std::unique_ptr<Lane>> lanes;

        {
            std::lock_guard<std::mutex> lock(mutex_);

            closed_ = true;
            lanes.swap(lanes_);
            changed_.notify_all();
        }
        for (auto &[source, lane] : lanes)
            lane->comm.abort();
        for (auto &[source, lane] : lanes)
            lane->thread.join();
        fail(any, "the group was aborted");
    }

    // After a receive that came too late: its tensor may not be written any more.
    void forget(const WorkPtr &work)
    {
        std::lock_guard<std::mutex> lock(mutex_);

        posted_.remove_if([&](const Posted &p) { return p.work == work; });
    }

  private:
    struct Posted {
        int source, tag;
        at::Tensor tensor;
        WorkPtr work;
    };

    struct Kept {
        int source, tag;
        std::vector<char> bytes;
    };

    struct Lane {
        Lane(Place place, const c10::intrusive_ptr<c10d::Store> &store, int from)
            : what(c10::str("recv from rank ", from)),
              comm(place, store, lane_key(from, place.rank, "id"), { from, place.rank })
        {
        }

        const std::string what;
        Comm comm;
        std::thread thread;
    };

    // With the lock.
    void open(int source)
    {
        auto &lane = lanes_[source];

        if (lane)
            return;
        lane = std::make_unique<Lane>(place_, store_, source);
        store_->set(lane_key(source, place_.rank, "ready"), std::vector<uint8_t>{ 1 });
        lane->thread = std::thread(
                [this, source, lane = lane.get()] { listen(source, *lane); });
    }

    // With the lock.
    bool is_wanted(int source) const
    {
        for (const Posted &p : posted_)
            if (p.source == any || p.source == source)
                return true;
        return false;
    }

    void listen(int source, Lane &lane)
    {
        at::NoGradGuard no_grad;
        bool made = false;

        for (;;) {
            {
                std::unique_lock<std::mutex> lock(mutex_);

                changed_.wait(lock, [&] { return closed_ || is_wanted(source); });
                if (closed_)
                    return;
            }
            try {
                made = made || is_there(source);
                if (made)
                    receive(source, lane);
            } catch (const std::exception &error) {
                fail(source, error.what());
                return;
            }
        }
    }

    bool is_there(int source)
    {
        const auto stop = [&] {
            std::lock_guard<std::mutex> lock(mutex_);

            return closed_ || !is_wanted(source);
        };

        return !fetch(*store_, lane_key(source, place_.rank, "id"),
                kBackendDefaultTimeout, stop)
                        .empty();
    }

    void receive(int source, Lane &lane)
    {
        Comm &comm = lane.comm;
        const char *what = lane.what.c_str();
        Head head;
        std::optional<Posted> posted;
        std::vector<char> bytes;
        ncclComm_t handle = comm.get(what, kLaneJoin);

        comm.limit(Ms(
                0)); // a receive has its own deadline; a lane may be silent for hours
        comm.check(ncclRecv(&head, sizeof(head), ncclInt8, 0, handle, nullptr), what);
        posted = take(source, static_cast<int>(head.tag));
        if (posted && posted->tensor.nbytes() == head.bytes &&
                head.bytes > Head::room) {
            comm.check(ncclRecv(posted->tensor.mutable_data_ptr(), head.bytes, ncclInt8,
                               0, handle, nullptr),
                    what);
            posted->work->set_source(source);
            posted->work->end(nullptr);
            return;
        }
        bytes.resize(head.bytes);
        if (head.bytes > Head::room)
            comm.check(ncclRecv(bytes.data(), head.bytes, ncclInt8, 0, handle, nullptr),
                    what);
        else
            std::memcpy(bytes.data(), head.data, head.bytes);
        if (posted) {
            accept(posted->tensor, posted->work, source, head.bytes, bytes.data());
            return;
        }
        std::lock_guard<std::mutex> lock(mutex_);

        kept_.push_back({ source, static_cast<int>(head.tag), std::move(bytes) });
    }

    void accept(const at::Tensor &tensor, const WorkPtr &work, int source, size_t bytes,
            const char *data)
    {
        if (tensor.nbytes() != bytes) {
            work->end(std::make_exception_ptr(MOTET_ERROR(
                    c10::str(place_.text(), ", recv: rank ", source, " sent ", bytes,
                            " bytes, this receive is for ", tensor.nbytes()))));
            return;
        }
        std::memcpy(tensor.mutable_data_ptr(), data, bytes);
        work->set_source(source);
        work->end(nullptr);
    }

    std::optional<Posted> take(int source, int tag)
    {
        std::lock_guard<std::mutex> lock(mutex_);

        for (auto it = posted_.begin(); it != posted_.end(); ++it)
            if ((it->source == any || it->source == source) && it->tag == tag) {
                Posted found = *it;

                posted_.erase(it);
                return found;
            }
        return std::nullopt;
    }

    // Receives from `source` end with an error; those from any only if nobody is left.
    void fail(int source, const std::string &sentence)
    {
        std::list<Posted> failed;

        {
            std::lock_guard<std::mutex> lock(mutex_);

            gone_.insert(source);
            const bool nobody =
                    source == any || static_cast<int>(gone_.size()) >= place_.size - 1;

            for (auto it = posted_.begin(); it != posted_.end();) {
                const auto here = it++;

                if (here->source == any ? nobody
                                        : source == any || here->source == source)
                    failed.splice(failed.end(), posted_, here);
            }
        }
        for (const Posted &p : failed)
            p.work->end(std::make_exception_ptr(MOTET_ERROR(sentence)));
    }

    const Place place_;
    const c10::intrusive_ptr<c10d::Store> store_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool closed_ = false;
    std::list<Posted> posted_;
    std::list<Kept> kept_;
    std::set<int> gone_; // whose lane has failed
    std::map<int, std::unique_ptr<Lane>> lanes_;
};

} // namespace motet
