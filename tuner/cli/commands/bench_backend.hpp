// SPDX-License-Identifier: Apache-2.0
// BenchBackend: times anything that can be launched on one problem's inputs (plans, standard
// attention) with the tuner's Race. So `attune bench` measures as the tuner does: interleaved, on
// rotating random inputs. Used by bench.cpp.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "tuner/measure/backend.hpp"
#include "tuner/measure/inputs.hpp"

namespace attune::cli {

class BenchBackend final : public Sampler {
 public:
  // Makes one launch on the given operands.
  using Runner = std::function<void(const Operands&)>;

  BenchBackend(const Device& device, const Problem& problem, uint64_t seed);

  // Warms the runner up and estimates how long a launch takes.
  void add(int id, Runner runner);
  const Operands& operands() const { return inputs_.set(0); }

  Round round(const std::vector<int>& order, double sample_us) override;

 private:
  struct Entry {
    Runner runner;
    double launch_us = 0;
  };
  double time_us(const Entry& entry, int launches);

  const Device& device_;
  Inputs inputs_;
  int next_set_ = 0;
  std::map<int, Entry> entries_;
};

}  // namespace attune::cli
