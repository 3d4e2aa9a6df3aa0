// SPDX-License-Identifier: Apache-2.0
// Work that was started, and queues that it waits in.
#pragma once

#include "tensors.hpp"

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace motet
{

using c10d::OpType;
using c10d::Work;

// What a title says of the call: titles name the backend first.
inline const char *word_of(const char *title)
{
    return title + sizeof("motet:") - 1;
}

// A wait ends before its work does. `who`: the beginning of the sentence.
[[noreturn]] inline void give_up(const std::string &who, const char *title, Ms timeout)
{
    throw MOTET_ERROR(c10::str(who, " ", word_of(title), " did not end within ",
            timeout.count(), " ms"));
}

class MotetWork : public Work
{
  public:
    // `limit`: how long wait() waits where it is told nothing else. `inputs`: what a profiler
    // shows.
    MotetWork(int rank, OpType op, const char *title, Tensors outputs, Ms limit,
            const Tensors &inputs)
        : Work(rank, op, title, inputs), title_(title), outputs_(std::move(outputs)),
          limit_(limit)
    {
    }

    // What is done when wait() gives up.
    void when_late(std::function<void()> what)
    {
        late_ = std::move(what);
    }

    // Once; `error` null: it went well.
    void end(std::exception_ptr error)
    {
        c10::intrusive_ptr<c10::ivalue::Future> future;

        finish(error);
        {
            std::lock_guard<std::mutex> lock(future_mutex_);

            ended_ = true;
            error_ = error;
            future = future_;
        }
        if (future)
            complete(*future);
    }

    bool wait(Ms timeout = kNoTimeout) override
    {
        std::unique_lock<std::mutex> lock(mutex_);
        const auto done = [this] { return completed_; };

        if (timeout <= kNoTimeout)
            timeout = limit_;
        if (timeout <= kNoTimeout)
            cv_.wait(lock, done);
        else if (!cv_.wait_for(lock, timeout, done)) {
            lock.unlock();
            if (late_)
                late_();
            give_up(c10::str("motet: rank ", rank_, ":"), title_, timeout);
        }
        if (exception_)
            std::rethrow_exception(exception_);
        return true;
    }

    int sourceRank() const override
    {
        return source_;
    }

    void set_source(int rank)
    {
        source_ = rank;
    }

    Tensors result() override
    {
        return outputs_;
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        bool ended;

        {
            std::lock_guard<std::mutex> lock(future_mutex_);

            if (future_)
                return future_;
            future_ = c10::make_intrusive<c10::ivalue::Future>(
                    c10::ListType::create(c10::TensorType::get()));
            ended = ended_;
        }
        if (ended)
            complete(*future_);
        return future_;
    }

  private:
    void complete(c10::ivalue::Future &future)
    {
        if (error_)
            future.setError(error_);
        else
            future.markCompleted(c10::IValue(outputs_));
    }

    const char *title_;
    Tensors outputs_;
    const Ms limit_;
    std::function<void()> late_;
    int source_ = -1;
    std::mutex future_mutex_;
    bool ended_ = false;
    std::exception_ptr error_;
    c10::intrusive_ptr<c10::ivalue::Future> future_;
};

using WorkPtr = c10::intrusive_ptr<MotetWork>;

// Several as one: what a coalescing block gives.
class AllOf : public Work
{
  public:
    AllOf(int rank, std::vector<c10::intrusive_ptr<Work>> parts)
        : Work(rank, OpType::COALESCED, "motet:coalesced"), parts_(std::move(parts))
    {
    }

    bool isCompleted() override
    {
        for (const auto &part : parts_)
            if (!part->isCompleted())
                return false;
        return true;
    }

    bool wait(Ms timeout = kNoTimeout) override
    {
        for (const auto &part : parts_)
            part->wait(timeout);
        return true;
    }

    Tensors result() override
    {
        Tensors all;

        for (const auto &part : parts_)
            for (const at::Tensor &t : part->result())
                all.push_back(t);
        return all;
    }

    c10::intrusive_ptr<c10::ivalue::Future> getFuture() override
    {
        c10::List<c10::intrusive_ptr<c10::ivalue::Future>> futures(
                c10::FutureType::create(c10::ListType::create(c10::TensorType::get())));

        for (const auto &part : parts_)
            futures.push_back(part->getFuture());
        return c10::collectAll(futures);
    }

  private:
    std::vector<c10::intrusive_ptr<Work>> parts_;
};

// Jobs in order, one at a time.
class Queue
{
  public:
    using Job = std::function<void()>;

    ~Queue()
    {
        close();
    }

    // With `here`, in this thread if nothing else is under way: it has run on return. So has
    // what a job itself starts, as the callback of a future does that it completes.
    void run(Job job, bool here)
    {
        at::NoGradGuard no_grad; // outputs may be leaves that want gradients
        std::unique_lock<std::mutex> lock(mutex_);

        if (busy_ && runs_in_ == std::this_thread::get_id()) {
            lock.unlock();
            job();
            return;
        }
        if (here && jobs_.empty() && !busy_) {
            run_now(job, lock);
            if (!jobs_.empty())
                changed_.notify_all();
            return;
        }
        if (!thread_.joinable())
            thread_ = std::thread([this] { work(); });
        jobs_.push_back(std::move(job));
        changed_.notify_all();
    }

    // When the jobs that are left have run: whoever cannot wait for them aborts what they
    // use first.
    void close()
    {
        {
            std::lock_guard<std::mutex> lock(mutex_);

            closed_ = true;
            changed_.notify_all();
        }
        if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id())
            thread_.join();
        else if (thread_.joinable())
            thread_.detach();
    }

  private:
    void work()
    {
        at::NoGradGuard no_grad;
        std::unique_lock<std::mutex> lock(mutex_);

        for (;;) {
            Job job;

            changed_.wait(lock,
                    [this] { return !busy_ && (!jobs_.empty() || closed_); });
            if (jobs_.empty())
                return;
            job = std::move(jobs_.front());
            jobs_.pop_front();
            run_now(job, lock);
        }
    }

    void run_now(Job &job, std::unique_lock<std::mutex> &lock)
    {
        busy_ = true;
        runs_in_ = std::this_thread::get_id();
        lock.unlock();
        job();
        job = nullptr;
        lock.lock();
        busy_ = false;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Job> jobs_;
    bool busy_ = false, closed_ = false;
    std::thread::id runs_in_; // while it is busy
    std::thread thread_;
};

} // namespace motet
