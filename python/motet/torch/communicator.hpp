// SPDX-License-Identifier: Apache-2.0
// Communicators, made when they are first needed.
#pragma once

#include "tensors.hpp"

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <algorithm>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

namespace motet
{

// Both ends of a lane come at once when they have heard of each other.
constexpr Ms kLaneJoin{ 30000 };

// An entry of the store, or nothing if it is not there in time, or `stop` says so. Never
// waits inside the store: a client of it is locked then, also for those whom it waits for.
inline std::vector<uint8_t> fetch(c10d::Store &store, const std::string &key,
        Ms timeout, const std::function<bool()> &stop)
{
    const auto end = std::chrono::steady_clock::now() + timeout;

    for (auto pause = std::chrono::microseconds(100); !store.check({ key });
            pause = std::min(2 * pause, std::chrono::microseconds(5000))) {
        if (stop() || std::chrono::steady_clock::now() >= end)
            return {};
        std::this_thread::sleep_for(pause);
    }
    return store.get(key);
}

inline bool never()
{
    return false;
}

// Which rank it is, for sentences; shared by all that a group has.
struct Place {
    int rank, size;

    std::string text() const
    {
        return c10::str("motet: rank ", rank, " of ", size);
    }

    std::vector<int> everybody() const
    {
        std::vector<int> ranks(size);

        std::iota(ranks.begin(), ranks.end(), 0);
        return ranks;
    }
};

// A sentence about the ranks of a communicator, with the numbers that they have in the group.
inline std::string renumbered(const std::string &sentence,
        const std::vector<int> &ranks)
{
    const std::string word = "rank ";
    std::string out;
    size_t at = 0;

    for (size_t found; (found = sentence.find(word, at)) != std::string::npos;) {
        const size_t begin = found + word.size(),
                     end = sentence.find_first_not_of("0123456789", begin);
        const std::string digits = sentence.substr(begin, end - begin);
        const size_t rank =
                digits.empty() || digits.size() > 5 ? ranks.size() : std::stoul(digits);

        out.append(sentence, at, begin - at);
        out += rank < ranks.size() ? std::to_string(ranks[rank]) : digits;
        at = begin + digits.size();
    }
    return out.append(sentence, at);
}

[[noreturn]] inline void fail(const Place &place, const char *what,
        const std::string &sentence)
{
    throw MOTET_ERROR(c10::str(place.text(), ", ", what, ": ", sentence));
}

// Raise what a call of the library failed of, in its own words. `ranks`: what those of the
// communicator are in the group, if they have other numbers there.
inline void check_result(const Place &place, ncclResult_t result, const char *what,
        const std::vector<int> &ranks = {})
{
    if (result == ncclSuccess || result == ncclInProgress)
        return;
    const char *sentence = ncclGetLastError(nullptr);
    const std::string text = sentence != nullptr && *sentence != 0
            ? sentence
            : ncclGetErrorString(result);

    fail(place, what, renumbered(text, ranks));
}

inline unsigned whole_seconds(Ms time)
{
    return static_cast<unsigned>(time <= Ms(0) ? 0 : (time.count() + 999) / 1000);
}

// Where a call of the library runs.
struct On {
    ncclComm_t comm;
    cudaStream_t stream; // null for CPU ranks
};

// A communicator that is made when it is first needed, by the ranks that need it.
class Comm
{
  public:
    // Of `ranks` of the group, in their order.
    Comm(Place place, c10::intrusive_ptr<c10d::Store> store, std::string key,
            std::vector<int> ranks, motet_device device = MOTET_DEVICE_CPU)
        : place_(place), store_(std::move(store)), key_(std::move(key)),
          device_(device), ranks_(std::move(ranks)),
          rank_(static_cast<int>(
                  std::find(ranks_.begin(), ranks_.end(), place.rank) - ranks_.begin()))
    {
    }

    ~Comm()
    {
        abort();
    }

    void check(ncclResult_t result, const char *what) const
    {
        check_result(place_, result, what, ranks_);
    }

    // By one thread at a time, as all of its calls are. `timeout`: until all have come.
    ncclComm_t get(const char *what, Ms timeout)
    {
        ncclComm_t made = nullptr;

        TORCH_CHECK(!is_aborted(), place_.text(), ", ", what,
                ": the group was aborted");
        if (comm_ != nullptr)
            return comm_;
        const ncclUniqueId met = id(what, timeout);

        check(motet_comm_init_rank(&made, static_cast<int>(ranks_.size()), met, rank_,
                      device_, nullptr, whole_seconds(timeout)),
                what);
        std::lock_guard<std::mutex> lock(mutex_);

        comm_ = made;
        if (aborted_) {
            comm_ = nullptr;
            (void)ncclCommAbort(made);
            TORCH_CHECK(false, place_.text(), ", ", what, ": the group was aborted");
        }
        return comm_;
    }

    // The sentence of what it failed of, by itself or in a call; empty if all is well.
    std::string failure()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ncclResult_t result = ncclSuccess;

        if (comm_ == nullptr)
            return aborted_ ? "the group was aborted" : "";
        (void)ncclCommGetAsyncError(comm_, &result);
        return result == ncclSuccess || result == ncclInProgress
                ? ""
                : renumbered(ncclGetLastError(comm_), ranks_);
    }

    void check_health(const char *what)
    {
        const std::string sentence = failure();

        if (!sentence.empty())
            fail(place_, what, sentence);
    }

    // How long the next call waits for its peers.
    void limit(Ms timeout)
    {
        const unsigned seconds = whole_seconds(timeout);

        if (seconds == seconds_)
            return;
        check(motet_comm_set_timeout(comm_, seconds), "timeout");
        seconds_ = seconds;
    }

    // From any thread: calls under way return with an error, later ones fail.
    void abort()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ncclComm_t comm = comm_;

        aborted_ = true;
        comm_ = nullptr;
        if (comm != nullptr)
            (void)ncclCommAbort(comm);
    }

    // When nothing is under way: the peers are told that no more comes.
    void destroy()
    {
        std::lock_guard<std::mutex> lock(mutex_);
        ncclComm_t comm = comm_;

        aborted_ = true;
        comm_ = nullptr;
        if (comm != nullptr)
            (void)ncclCommDestroy(comm);
    }

  private:
    bool is_aborted()
    {
        std::lock_guard<std::mutex> lock(mutex_);

        return aborted_;
    }

    ncclUniqueId id(const char *what, Ms timeout)
    {
        ncclUniqueId id;

        if (rank_ == 0) {
            check(ncclGetUniqueId(&id), "ncclGetUniqueId");
            const auto *bytes = reinterpret_cast<const uint8_t *>(&id);

            store_->set(key_, std::vector<uint8_t>(bytes, bytes + sizeof(id)));
            return id;
        }
        const auto got =
                fetch(*store_, key_, timeout > Ms(0) ? timeout : kBackendDefaultTimeout,
                        [this] { return is_aborted(); });

        if (got.size() != sizeof(id))
            fail(place_, what,
                    c10::str("rank ", ranks_[0], " did not join within ",
                            timeout.count(), " ms"));
        std::memcpy(&id, got.data(), sizeof(id));
        return id;
    }

    const Place place_;
    const c10::intrusive_ptr<c10d::Store> store_;
    const std::string key_;
    const motet_device device_;
    const std::vector<int> ranks_;
    const int rank_;
    std::mutex mutex_;
    ncclComm_t comm_ = nullptr;
    bool aborted_ = false;
    unsigned seconds_ = ~0u;
};

// By the store, so that who is absent is known by name. Rank 0 tells the others. `key`: of
// this barrier alone.
inline void monitored_barrier(const Place &place, c10d::Store &store,
        const std::string &key, Ms timeout, bool wait_all)
{
    const auto end = std::chrono::steady_clock::now() + timeout;
    std::string absent;

    if (place.rank != 0) {
        store.set(key + std::to_string(place.rank), std::vector<uint8_t>{ 1 });
        // rank 0 may have come later than this one, and names who is absent
        const auto said = fetch(store, key + "said",
                timeout + std::min(timeout, Ms(3000)), never);

        TORCH_CHECK(!said.empty(), place.text(),
                ", monitored_barrier: rank 0 did not pass it within ", timeout.count(),
                " ms");
        TORCH_CHECK(said.size() == 1, std::string(said.begin() + 1, said.end()));
        return;
    }
    for (int r = 1; r < place.size; r++) {
        const auto left =
                std::chrono::duration_cast<Ms>(end - std::chrono::steady_clock::now());

        if (!fetch(store, key + std::to_string(r), std::max(left, Ms(0)), never)
                        .empty())
            continue;
        absent += (absent.empty() ? "" : ", ") + std::to_string(r);
        if (!wait_all)
            break;
    }
    const std::string sentence = absent.empty()
            ? ""
            : c10::str("motet: rank", absent.find(',') == absent.npos ? " " : "s ",
                      absent, " failed to pass monitored_barrier within ",
                      timeout.count(), " ms");
    std::vector<uint8_t> said = { 1 };

    said.insert(said.end(), sentence.begin(), sentence.end());
    store.set(key + "said", said);
    TORCH_CHECK(sentence.empty(), sentence);
}

} // namespace motet
