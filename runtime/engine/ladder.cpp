// SPDX-License-Identifier: Apache-2.0
// Climbing the ladder: one function per rung, called from the top down.
#include "runtime/engine/ladder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <tuple>

#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

double log2_extent(int64_t extent) { return std::log2(static_cast<double>(extent) + 1); }
double log2_rows(const Shape& s) {
  return std::log2(static_cast<double>(s.batch) * s.num_heads_q + 1);
}

bool beat_default(const WinnerRecord& winner) {
  return !winner.default_is_winner && winner.timing.median_us < winner.default_timing.median_us;
}

constexpr size_t kSentences = 16;  // about winners not taken; more are only counted

KernelSpec canonical_spec(const KernelSpec& spec, const Shape& shape) {
  return spec_of(canonical(problem_of(spec, shape)));
}

// Returns the distance of two thread counts in octaves; 0 = equal, or not known.
double threads_apart(const WinnerRecord& winner, const DeviceIdentity& device) {
  if (winner.device.sm_count <= 0 || winner.device.sm_count == device.sm_count) return 0;
  return std::abs(std::log2(static_cast<double>(winner.device.sm_count) / device.sm_count));
}

// A winner that can run here, with the family for which it was tuned.
struct Usable {
  const WinnerRecord* winner;
  const Family* family;
  KernelSpec spec;
  double distance, threads_apart;
  bool same_shape, same_bucket;
  bool other_text;  // timed with another text of its template
};

class Climb {
 public:
  Climb(const Problem& asked, const Serving& serving, const DeviceIdentity& device,
        const LadderRules& rules, Ladder* ladder)
      : asked_(spec_of(asked)),
        spec_(spec_of(canonical(asked))),
        shape_(shape_of(asked)),
        shape_text_(to_text(shape_)),
        bucket_(bucket_of(shape_)),
        serving_(serving),
        device_(device),
        rules_(rules),
        ladder_(ladder) {}

  void sort_winners(const std::vector<WinnerRecord>& winners) {
    for (const WinnerRecord& winner : winners) {
      if (canonical_spec(winner.spec, winner.shape) != canonical_spec(spec_, winner.shape))
        continue;
      const double distance = shape_distance(winner.shape, shape_);
      if (std::isnan(distance)) continue;  // from negative extents
      const KernelSpec& spec = canonical_spec(winner.spec, shape_) == spec_ ? winner.spec : spec_;
      bool other_text = false;
      const Family* const family = family_of_winner(winner, spec, &other_text);
      if (!family && rules_.pins_bind && winner.pinned && to_text(winner.shape) == shape_text_)
        throw Error(ErrorCode::kNotTuned,
                    fmt::format("{} is pinned to {} with {}, which cannot run here: {}",
                                to_text(problem_of(spec_, shape_)), winner.toolchain.template_name,
                                winner.config.to_text(),
                                ladder_->passed_over.empty() ? "see the log"
                                                             : ladder_->passed_over.back()));
      if (family)
        usable_.push_back({&winner, family, spec, distance, threads_apart(winner, device_),
                           to_text(winner.shape) == shape_text_, bucket_of(winner.shape) == bucket_,
                           other_text});
    }
    std::stable_sort(usable_.begin(), usable_.end(), [](const Usable& a, const Usable& b) {
      return std::tie(a.distance, a.threads_apart) < std::tie(b.distance, b.threads_apart);
    });
  }

  void pinned() {
    for (const Usable& row : usable_)
      if (row.winner->pinned && row.same_shape && row.threads_apart == 0)
        take(row, Rung::kPinned, "pinned for this shape");
  }
  void exact() {
    for (const Usable& row : usable_)
      if (!row.winner->pinned && row.same_shape && row.threads_apart == 0)
        take(row, Rung::kExact, "tuned for this shape: " + row.winner->why);
  }
  void same_bucket() {
    for (const Usable& row : usable_)
      if (!row.same_shape && row.same_bucket && row.threads_apart == 0)
        take(row, Rung::kBucket,
             fmt::format("tuned for {} of the same bucket", to_text(row.winner->shape)));
  }
  void other_threads() {
    for (const Usable& row : usable_)
      if (row.same_shape && row.threads_apart > 0)
        take(row, Rung::kNearest, threads_text(row) + "this shape");
    for (const Usable& row : usable_)
      if (!row.same_shape && row.same_bucket && row.threads_apart > 0)
        take(row, Rung::kNearest,
             fmt::format("{}{} of the same bucket", threads_text(row), to_text(row.winner->shape)));
  }
  // Notes winners that other_threads() would take, because policy strict does not take them.
  void pass_over_other_threads() {
    for (const Usable& row : usable_)
      if (row.threads_apart > 0 && (row.same_shape || row.same_bucket))
        pass_over(fmt::format("{}{}, which policy nearest takes", threads_text(row),
                              row.same_shape ? "this shape" : to_text(row.winner->shape)));
  }
  void nearest(double far_octaves) {
    for (const Usable& row : usable_) {
      if (row.same_shape || row.same_bucket) continue;
      const std::string where =
          fmt::format("{} at {:.2f} octaves (batch x heads, rows and keys together)",
                      to_text(row.winner->shape), row.distance);
      if (!beat_default(*row.winner))
        pass_over(fmt::format("nearest: {}: the default config was as good there", where));
      else if (row.distance > far_octaves)
        pass_over(fmt::format("nearest: {} is farther than {:.0f}", where, far_octaves)),
            far_.push_back(row);
      else
        take(row, Rung::kNearest,
             fmt::format("{}nearest tuned shape is {}; it beat the default there",
                         threads_text(row), where));
    }
  }
  void defaults() {
    for (const Family& family : families())
      take_default(family, spec_, Rung::kDefaultConfig, default_reason(), device_.facts());
  }
  void defaults_as_asked() {
    if (asked_ == spec_) return;
    for (const Family& family : families())
      take_default(family, asked_, Rung::kDefaultConfig,
                   default_reason() + "; as it was asked, because nothing may be compiled",
                   device_.facts());
  }
  // Adds the default configs for a typical device of the arch, with which kernels are compiled on
  // other machines.
  void defaults_of_typical_device() {
    for (const Family& family : families())
      take_default(family, spec_, Rung::kDefaultConfig,
                   fmt::format("{}; as it is for {}, because nothing may be compiled",
                               default_reason(), typical_device(family.arch).name),
                   typical_device(family.arch).facts);
  }
  void far() {
    for (const Usable& row : far_)
      take(row, Rung::kNearest,
           fmt::format("tuned for {}, far away; taken because nothing may be compiled",
                       to_text(row.winner->shape)));
  }
  void reference() {
    if (serving_.reference)
      take_default(*serving_.reference, spec_, Rung::kReference,
                   "no other template serves this problem", device_.facts());
  }
  void count_more() {
    if (more_ > 0)
      ladder_->passed_over.push_back(fmt::format("{} more winners, for reasons like these", more_));
  }

 private:
  // Returns the family that runs the winner here, or null. Sets *other_text if the winner was timed
  // with another text of the same revision of its template.
  const Family* family_of_winner(const WinnerRecord& winner, const KernelSpec& spec,
                                 bool* other_text) {
    const auto pass_over_it = [&](const std::string& why) {
      pass_over(fmt::format("winner for {} ({}): {}", to_text(winner.shape),
                            winner.toolchain.template_name, why));
    };
    const Family* const family = serving_.find(winner.toolchain.template_name);
    const std::string& timed = winner.toolchain.template_digest;
    const std::string now = family ? rules_.digest_of(*family->kernel_template) : timed;
    *other_text = now != timed;
    if (!family)
      pass_over(fmt::format("winner for {}: template {} does not serve this problem here",
                            to_text(winner.shape), winner.toolchain.template_name));
    else if (!same_revision(now, timed))
      pass_over_it("the template has changed since; tune again");
    else if (family->arch.name() != winner.arch)
      pass_over_it(
          fmt::format("made for {}, this device takes {}", winner.arch, family->arch.name()));
    else if (const auto broken = space_of(*family, spec).broken(winner.config))
      pass_over_it(*broken);
    else if (const auto unfit = family->kernel_template->unfit(spec, winner.config, shape_))
      pass_over_it(*unfit);
    else
      return family;
    return nullptr;
  }

  // Returns the search space, made once per spec: a spec may have hundreds of winners.
  const SearchSpace& space_of(const Family& family, const KernelSpec& spec) {
    for (const Space& known : spaces_)
      if (known.family == &family && known.spec == spec) return known.space;
    spaces_.push_back({&family, spec, family.kernel_template->space(spec, family.arch)});
    return spaces_.back().space;
  }

  // Returns the first words of a reason, which name both thread counts; "" if these are equal.
  std::string threads_text(const Usable& row) const {
    if (row.threads_apart == 0) return "";
    const int count = row.winner->device.sm_count;
    return fmt::format("tuned for {} {}{}, this is {}: ", count,
                       device_.is_cpu() ? "thread" : "multiprocessor", count == 1 ? "" : "s",
                       device_.sm_count);
  }

  // Returns the families, best first for this shape. Their order may need the costs of defaults, so
  // it is found only if a rung asks for defaults.
  const std::vector<Family>& families() {
    if (families_.empty()) families_ = by_fit(serving_.families, spec_, shape_, device_.facts());
    return families_;
  }

  std::string default_reason() const {
    return usable_.empty() ? "no tuned shape of this spec on this device"
                           : "no tuned shape near enough";
  }

  void take(const Usable& row, Rung rung, std::string why) {
    if (row.other_text)
      why += "; timed with another text of the template (attune tune --refresh times it again)";
    ladder_->choices.push_back({*row.family, row.spec, row.winner->config, rung, std::move(why),
                                row.distance, *row.winner});
  }
  void take_default(const Family& family, const KernelSpec& spec, Rung rung, std::string why,
                    const DeviceFacts& facts) {
    try {
      Config config = family.kernel_template->default_config(spec, family.arch, shape_, facts);
      for (const Choice& known : ladder_->choices)
        if (known.rung == rung && known.family.kernel_template == family.kernel_template &&
            known.spec == spec && known.config == config)
          return;
      ladder_->choices.push_back(
          {family, spec, std::move(config), rung, std::move(why), 0, std::nullopt});
    } catch (const Error& error) {
      pass_over(
          fmt::format("{}: {}: {}", rung_name(rung), family.kernel_template->name(), error.what()));
    }
  }
  void pass_over(std::string sentence) {
    if (ladder_->passed_over.size() < kSentences)
      ladder_->passed_over.push_back(std::move(sentence));
    else
      ++more_;
  }

  struct Space {
    const Family* family;
    KernelSpec spec;
    SearchSpace space;
  };

  const KernelSpec asked_, spec_;
  Shape shape_;
  std::string shape_text_, bucket_;
  const Serving& serving_;
  const DeviceIdentity& device_;
  const LadderRules& rules_;
  Ladder* ladder_;
  std::vector<Family> families_;  // see families()
  std::vector<Usable> usable_, far_;
  std::deque<Space> spaces_;  // a deque: references stay valid
  int more_ = 0;
};

}  // namespace

bool measured_on(const WinnerRecord& winner, const DeviceIdentity& device) {
  if (winner.device.name.empty()) return true;
  return winner.device.name == device.name &&
         (!device.is_cpu() || winner.device.sm_count == device.sm_count);
}

double shape_distance(const Shape& a, const Shape& b) {
  const double rows = log2_rows(a) - log2_rows(b);
  const double queries = log2_extent(a.seqlen_q) - log2_extent(b.seqlen_q);
  const double keys = log2_extent(a.seqlen_kv) - log2_extent(b.seqlen_kv);
  return std::sqrt(rows * rows + queries * queries + keys * keys);
}

KernelSpec family_of(const KernelSpec& spec) {
  KernelSpec family = spec;
  family.mask = Mask::kNone;
  family.window_left = family.window_right = -1;
  return family;
}

Ladder climb(const Problem& asked, const Serving& serving, const std::vector<WinnerRecord>& winners,
             const DeviceIdentity& device, const LadderRules& rules) {
  Ladder ladder;
  Climb climb(asked, serving, device, rules, &ladder);
  climb.sort_winners(winners);
  climb.pinned();
  if (rules.pins_bind && !ladder.choices.empty()) {
    climb.count_more();
    return ladder;
  }
  climb.exact();
  climb.same_bucket();
  if (rules.policy != Policy::kStrict) {
    climb.other_threads();
    climb.nearest(rules.policy == Policy::kNearest ? HUGE_VAL : kFarOctaves);
  } else if (ladder.choices.empty()) {
    climb.pass_over_other_threads();
  }
  if (rules.policy == Policy::kDefault || rules.policy == Policy::kTuneOnMiss) {
    climb.defaults();
    if (rules.compiling == Compiling::kNever)
      climb.defaults_of_typical_device(), climb.defaults_as_asked(), climb.far();
    climb.reference();
  }
  climb.count_more();
  return ladder;
}

}  // namespace attune
