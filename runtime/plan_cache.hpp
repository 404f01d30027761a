// SPDX-License-Identifier: Apache-2.0
// Plans made so far, by problem and whether the layout suits TMA. A hit costs one shared lock and
// one hash look-up.
#pragma once

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <tuple>
#include <unordered_map>

#include "runtime/engine.hpp"

namespace attune {

struct PlanKey {
  Problem problem;
  bool tensor_maps;  // the layout suits TMA

  // By field: Problem's own comparison makes texts, which a look-up on the way to a launch cannot
  // afford.
  bool operator==(const PlanKey& other) const {
    const auto fields = [](const PlanKey& key) {
      const Problem& p = key.problem;
      return std::tie(p.op, p.dtype_q, p.dtype_kv, p.dtype_o, p.head_dim_qk, p.head_dim_v,
                      p.num_heads_q, p.num_heads_kv, p.batch, p.seqlen_q, p.seqlen_kv, p.mask,
                      p.window_left, p.window_right, p.softmax_scale, p.fp8.accuracy, p.fp8.v_layout,
                      p.fp8.scale_block_q, p.fp8.scale_block_kv, p.fp8.rotation, key.tensor_maps);
    };
    return fields(*this) == fields(other);
  }
};

struct PlanKeyHash {
  size_t operator()(const PlanKey& key) const noexcept;
};

class PlanCache {
 public:
  std::shared_ptr<const Plan> find(const PlanKey& key) const {
    const std::shared_lock lock(mutex_);
    const auto found = plans_.find(key);
    return found == plans_.end() ? nullptr : found->second;
  }
  // Raised by clear: a plan made from what was known before must not be kept.
  uint64_t generation() const {
    const std::shared_lock lock(mutex_);
    return generation_;
  }
  // The plan that was there first. Not kept when the cache was cleared since `generation`.
  std::shared_ptr<const Plan> insert(const PlanKey& key, std::shared_ptr<const Plan> plan,
                                     uint64_t generation) {
    const std::unique_lock lock(mutex_);
    return generation == generation_ ? plans_.emplace(key, std::move(plan)).first->second : plan;
  }
  void clear() {
    const std::unique_lock lock(mutex_);
    plans_.clear();
    ++generation_;
  }

 private:
  mutable std::shared_mutex mutex_;
  uint64_t generation_ = 0;
  std::unordered_map<PlanKey, std::shared_ptr<const Plan>, PlanKeyHash> plans_;
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
      static_cast<uint64_t>(p.fp8.v_layout) << 37 | static_cast<uint64_t>(p.fp8.rotation) << 38);
  mix(static_cast<uint64_t>(p.head_dim_qk) << 32 | static_cast<uint32_t>(p.head_dim_v));
  mix(static_cast<uint64_t>(p.num_heads_q) << 32 | static_cast<uint32_t>(p.num_heads_kv));
  mix(static_cast<uint64_t>(p.batch));
  mix(static_cast<uint64_t>(p.seqlen_q));
  mix(static_cast<uint64_t>(p.seqlen_kv));
  mix(static_cast<uint64_t>(p.window_left) << 32 ^ static_cast<uint64_t>(p.window_right));
  return h;  // the scale rarely differs where all else is equal
}

}  // namespace attune
