// routes.h: the requests that graph captures and MemPools claim.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "versions.h"

namespace stplan {

class Routes {
 public:
  void begin(MempoolId_t pool, std::function<bool(cudaStream_t)> filter) {
    std::lock_guard<std::mutex> lock(lock_);
    list_.emplace_back(pool, std::move(filter));
    count_.store(list_.size(), std::memory_order_release);
  }

  // end removes the pool's route; it returns false if the pool has none.
  bool end(MempoolId_t pool) {
    std::lock_guard<std::mutex> lock(lock_);
    for (auto it = list_.begin(); it != list_.end(); ++it)
      if (it->first == pool) {
        list_.erase(it);
        count_.store(list_.size(), std::memory_order_release);
        return true;
      }
    return false;
  }

  size_t count() const { return count_.load(std::memory_order_acquire); }

  // claims says whether a request by this thread on this stream belongs to a pool.
  bool claims(cudaStream_t stream) {
    std::lock_guard<std::mutex> lock(lock_);
    for (const auto& route : list_)
      if (route.second(stream))
        return true;
    return false;
  }

 private:
  std::mutex lock_;
  std::vector<std::pair<MempoolId_t, std::function<bool(cudaStream_t)>>> list_;
  std::atomic<size_t> count_{0};
};

} // namespace stplan
