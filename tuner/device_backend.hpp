// SPDX-License-Identifier: Apache-2.0
// DeviceBackend: checks and times kernels on a Device in this process. It launches them the way a
// user's call does (run of engine.hpp). A kernel that faults may take the process along: see
// isolated_backend.hpp.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tuner/backend.hpp"
#include "tuner/inputs.hpp"
#include "tuner/verify.hpp"

namespace attune {

class DeviceBackend : public MeasureBackend {
 public:
  explicit DeviceBackend(std::shared_ptr<const Device> device);

  void open(const MeasureTask& task) override;
  Prepared prepare(int id, const KernelRequest& request, bool check) override;
  Round round(const std::vector<int>& order) override;
  void drop(int id) override;
  void restart() override;

 private:
  // What the oracle says about one region, laid out [batch, rows, heads, head_dim_v].
  struct Expected {
    CheckRegion region;
    std::vector<float> o;
    std::vector<float> lse;  // [batch, heads, rows]
  };
  struct Loaded {
    Plan plan;
    DeviceMemory workspace;
    int launches = 1;  // of one sample
  };

  Loaded load(const KernelRequest& request, const Problem& problem) const;
  void compute_expected(const KernelRequest& reference);
  Expected expect(const KernelRequest& reference, const CheckPlan& plan, const CheckRegion& region,
                  const Operands& all) const;
  DeviceMemory q_factors_of(const Problem& part, const CheckRegion& region, ScaleView* view) const;
  CheckError check(const Loaded& loaded);
  std::optional<std::string> check_sums(const Loaded& loaded);
  // Calls `row(want, got, index in the region, place)` with each row of O.
  template <class Row>
  void visit(const Expected& expected, const Row& row) const;
  void compare(const Expected& expected, const std::vector<float>& lse,
               Comparison* comparison) const;
  void launch(const Loaded& loaded, const Operands& operands) const;
  double time_once_us(const Loaded& loaded, int launches);
  void estimate(Loaded* loaded, Prepared* prepared);

  std::shared_ptr<const Device> device_;
  std::unique_ptr<Inputs> inputs_;
  uint64_t seed_ = 0;
  Problem problem_;
  std::vector<Expected> expected_;
  std::optional<Expected> expected_sums_;  // of the V with a mean, where the problem has one
  std::map<int, Loaded> loaded_;
  int next_set_ = 0;
};

}  // namespace attune
