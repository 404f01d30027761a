// SPDX-License-Identifier: Apache-2.0
// PlanCache: the plans used last. The key is the problem, canonical or as asked, and a flag if TMA
// can load the layout. A hit costs one shared lock and one hash look-up. If there are too many
// entries, the least recently used plan is dropped; a caller that holds it keeps it.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "runtime/engine/plan.hpp"

namespace attune {

struct PlanKey {
  Problem problem;
  bool tensor_maps;          // TMA can load the layout
  bool fixed_masks = false;  // ScoreCaptures::has_fixed_masks

  bool operator==(const PlanKey&) const = default;
};

struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const noexcept;
};

class PlanCache {
 public:
  explicit PlanCache(size_t capacity) : capacity_(std::max<size_t>(capacity, 1)) {}

  std::shared_ptr<const Plan> find(const PlanKey& key) const {
    const std::shared_lock lock(mutex_);
    const auto found = plans_.find(key);
    return found == plans_.end() ? nullptr : used(found->second);
  }
  // Returns a number that clear() raises. A plan that was made from older winners has an older
  // generation, and insert() does not keep it.
  uint64_t generation() const {
    const std::shared_lock lock(mutex_);
    return generation_;
  }
  // Inserts a plan unless the key has one already, and returns the key's plan. If the cache was
  // cleared since `generation`, inserts nothing and returns `plan`.
  std::shared_ptr<const Plan> insert(const PlanKey& key, std::shared_ptr<const Plan> plan,
                                     uint64_t generation) {
    const std::unique_lock lock(mutex_);
    if (generation != generation_) return plan;
    ++inserts_;
    const auto [place, is_new] = plans_.try_emplace(key);
    if (is_new) place->second.plan = std::move(plan);
    std::shared_ptr<const Plan> kept = used(place->second);
    if (plans_.size() > capacity_) drop_oldest();
    return kept;
  }
  void clear() {
    const std::unique_lock lock(mutex_);
    plans_.clear();
    ++generation_;
  }
  size_t size() const {
    const std::shared_lock lock(mutex_);
    return plans_.size();
  }

 private:
  struct Entry {
    std::shared_ptr<const Plan> plan;
    mutable std::atomic<uint64_t> last_used{0};  // value of inserts_; a hit only stores it
  };

  const std::shared_ptr<const Plan>& used(const Entry& entry) const {
    entry.last_used.store(inserts_, std::memory_order_relaxed);
    return entry.plan;
  }
  // Scans all entries, which takes some microseconds: far less than making the new plan.
  void drop_oldest() {
    plans_.erase(std::min_element(plans_.begin(), plans_.end(), [](const auto& a, const auto& b) {
      return a.second.last_used.load(std::memory_order_relaxed) <
             b.second.last_used.load(std::memory_order_relaxed);
    }));
  }

  const size_t capacity_;
  mutable std::shared_mutex mutex_;
  uint64_t generation_ = 0;
  uint64_t inserts_ = 0;
  std::unordered_map<PlanKey, Entry, PlanKeyHash> plans_;
};

inline size_t PlanKeyHash::operator()(const PlanKey& key) const noexcept {
  const Problem& p = key.problem;
  uint64_t h = key.tensor_maps;
  const auto mix = [&h](uint64_t value) {
    h = (h ^ value) * 0x9E3779B97F4A7C15ull;
    h ^= h >> 32;
  };
  mix(static_cast<uint64_t>(p.op) | static_cast<uint64_t>(p.dtype_q) << 8 |
      static_cast<uint64_t>(p.dtype_kv) << 16 | static_cast<uint64_t>(p.dtype_o) << 24 |
      static_cast<uint64_t>(p.mask) << 32 | static_cast<uint64_t>(p.fp8.accuracy) << 36 |
      static_cast<uint64_t>(p.fp8.v_layout) << 38 |
      static_cast<uint64_t>(p.quantise.rotation) << 39);
  mix(static_cast<uint64_t>(p.head_dim_qk) << 32 | static_cast<uint32_t>(p.head_dim_v));
  mix(static_cast<uint64_t>(p.num_heads_q) << 32 | static_cast<uint32_t>(p.num_heads_kv));
  mix(static_cast<uint64_t>(p.batch));
  mix(static_cast<uint64_t>(p.seqlen_q));
  mix(static_cast<uint64_t>(p.seqlen_kv));
  mix(static_cast<uint64_t>(p.window_left) << 32 ^ static_cast<uint64_t>(p.window_right));
  return h;  // other fields rarely differ if all these are equal
}

}  // namespace attune
