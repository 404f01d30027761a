// SPDX-License-Identifier: Apache-2.0
// One function per rung, called from the top down.
#include "runtime/ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "generator/core/error.hpp"

namespace attune {
namespace {

double log2_extent(int64_t extent) { return std::log2(static_cast<double>(extent) + 1); }

bool beat_default(const WinnerRecord& winner) {
  return !winner.default_is_winner && winner.timing.median_us < winner.default_timing.median_us;
}

// A winner that can run here, tied to the candidate it was tuned on.
struct Usable {
  const WinnerRecord* winner;
  const Candidate* candidate;
  double distance;
  bool same_shape, same_bucket;
};

class Climb {
 public:
  Climb(const Problem& problem, const std::vector<Candidate>& candidates, Ladder* ladder)
      : spec_(spec_of(problem)),
        shape_(shape_of(problem)),
        shape_text_(to_text(shape_)),
        bucket_(bucket_of(shape_)),
        candidates_(candidates),
        ladder_(ladder) {}

  void sort_winners(const std::vector<WinnerRecord>& winners) {
    for (const WinnerRecord& winner : winners)
      if (const Candidate* candidate = candidate_of(winner))
        usable_.push_back({&winner, candidate, shape_distance(winner.shape, shape_),
                           to_text(winner.shape) == shape_text_,
                           bucket_of(winner.shape) == bucket_});
    std::stable_sort(usable_.begin(), usable_.end(),
                     [](const Usable& a, const Usable& b) { return a.distance < b.distance; });
  }

  void pinned() {
    for (const Usable& row : usable_)
      if (row.winner->pinned && row.same_shape) take(row, Rung::kPinned, "pinned for this shape");
  }
  void exact() {
    for (const Usable& row : usable_)
      if (!row.winner->pinned && row.same_shape)
        take(row, Rung::kExact, "tuned for this shape: " + row.winner->why);
  }
  void same_bucket() {
    for (const Usable& row : usable_)
      if (!row.same_shape && row.same_bucket)
        take(row, Rung::kBucket,
             fmt::format("tuned for {} of the same bucket", to_text(row.winner->shape)));
  }
  void nearest(double far_octaves) {
    for (const Usable& row : usable_) {
      if (row.same_shape || row.same_bucket) continue;
      const std::string where =
          fmt::format("{} at {:.2f} octaves", to_text(row.winner->shape), row.distance);
      if (!beat_default(*row.winner))
        pass_over(fmt::format("nearest: {}: the default config was as good there", where));
      else if (row.distance > far_octaves)
        pass_over(fmt::format("nearest: {} is farther than {:.0f}", where, far_octaves)),
            far_.push_back(row);
      else
        take(row, Rung::kNearest,
             fmt::format("nearest tuned shape is {}; it beat the default there", where));
    }
  }
  void defaults() {
    for (const Candidate& candidate : candidates_)
      if (!is_reference(*candidate.kernel_template))
        take_default(candidate, Rung::kDefaultConfig, default_reason());
  }
  void far() {
    for (const Usable& row : far_)
      take(row, Rung::kNearest,
           fmt::format("tuned for {}, far away; taken because nothing may be compiled",
                       to_text(row.winner->shape)));
  }
  void reference() {
    for (const Candidate& candidate : candidates_)
      if (is_reference(*candidate.kernel_template))
        take_default(candidate, Rung::kReference, "no other template serves this problem");
  }

 private:
  const Candidate* candidate_of(const WinnerRecord& winner) {
    const auto pass_over_it = [&](const std::string& why) {
      pass_over(fmt::format("winner for {} ({}): {}", to_text(winner.shape),
                            winner.toolchain.template_name, why));
    };
    for (const Candidate& candidate : candidates_) {
      if (candidate.kernel_template->name() != winner.toolchain.template_name) continue;
      if (candidate.template_digest() != winner.toolchain.template_digest)
        pass_over_it("the template has changed since; tune again");
      else if (candidate.arch.name() != winner.arch)
        pass_over_it(
            fmt::format("made for {}, this device takes {}", winner.arch, candidate.arch.name()));
      else if (const auto broken = space_of(candidate).broken(winner.config))
        pass_over_it(*broken);
      else
        return &candidate;
      return nullptr;
    }
    pass_over(fmt::format("winner for {}: template {} does not serve this problem here",
                          to_text(winner.shape), winner.toolchain.template_name));
    return nullptr;
  }

  // Made once: a spec may have hundreds of winners.
  const SearchSpace& space_of(const Candidate& candidate) {
    const auto found = spaces_.find(&candidate);
    if (found != spaces_.end()) return found->second;
    return spaces_.emplace(&candidate, candidate.kernel_template->space(spec_, candidate.arch))
        .first->second;
  }

  std::string default_reason() const {
    return usable_.empty() ? "no tuned shape of this spec on this device"
                           : "no tuned shape near enough";
  }

  void take(const Usable& row, Rung rung, std::string why) {
    ladder_->choices.push_back(
        {*row.candidate, row.winner->config, rung, std::move(why), row.distance, *row.winner});
  }
  void take_default(const Candidate& candidate, Rung rung, std::string why) {
    try {
      Config config = candidate.kernel_template->default_config(spec_, candidate.arch, shape_);
      ladder_->choices.push_back(
          {candidate, std::move(config), rung, std::move(why), 0, std::nullopt});
    } catch (const Error& error) {
      pass_over(fmt::format("{}: {}: {}", rung_name(rung), candidate.kernel_template->name(),
                            error.what()));
    }
  }
  void pass_over(std::string sentence) { ladder_->passed_over.push_back(std::move(sentence)); }

  KernelSpec spec_;
  Shape shape_;
  std::string shape_text_, bucket_;
  const std::vector<Candidate>& candidates_;
  Ladder* ladder_;
  std::vector<Usable> usable_, far_;
  std::map<const Candidate*, SearchSpace> spaces_;
};

}  // namespace

bool measured_on(const WinnerRecord& winner, const DeviceIdentity& device) {
  return winner.device.name.empty() || winner.device.name == device.name;
}

bool is_reference(const KernelTemplate& kernel_template) {
  return kernel_template.name().starts_with("reference");
}

double shape_distance(const Shape& a, const Shape& b) {
  const double rows = log2_extent(a.batch * a.num_heads_q) - log2_extent(b.batch * b.num_heads_q);
  const double queries = log2_extent(a.seqlen_q) - log2_extent(b.seqlen_q);
  const double keys = log2_extent(a.seqlen_kv) - log2_extent(b.seqlen_kv);
  return std::sqrt(rows * rows + queries * queries + keys * keys);
}

Ladder climb(const Problem& problem, const std::vector<Candidate>& candidates,
             const std::vector<WinnerRecord>& winners, Policy policy, bool may_compile) {
  Ladder ladder;
  Climb climb(problem, candidates, &ladder);
  climb.sort_winners(winners);
  climb.pinned();
  climb.exact();
  climb.same_bucket();
  if (policy == Policy::kStrict) return ladder;
  climb.nearest(policy == Policy::kNearest ? HUGE_VAL : kFarOctaves);
  if (policy == Policy::kNearest) return ladder;
  climb.defaults();
  if (!may_compile) climb.far();
  climb.reference();
  return ladder;
}

}  // namespace attune
