// SPDX-License-Identifier: Apache-2.0
// Finds the best config for each of four ways to make gradients, and the best of these.
#include "generator/families/backward/backward_sm90_default.hpp"

#include <algorithm>
#include <optional>

#include "generator/core/system/error.hpp"
#include "generator/families/cheapest_config.hpp"

namespace attune {
namespace {

class Defaults {
 public:
  Defaults(const SearchSpace& space, const KernelSpec& spec, const Shape& shape,
           const DeviceFacts& device)
      : space_(space), spec_(spec), shape_(shape), device_(device) {
    for (const Knob& knob : space.knobs()) first_.set(knob.name, knob.values.front());
  }

  double cost(const Config& c) const { return backward_cost(spec_, c, shape_, device_); }

  // Knobs of the two kernels are independent, so each kernel's are chosen separately.
  std::optional<Config> two_kernels() const {
    const std::optional<Config> rows = with_rows(first_);
    if (!rows) return std::nullopt;
    return best(*rows,
                {"key_block_n", "key_block_m", "q_slots", "dout_slots", "split_kv", "fold_sums"},
                [&](const Config& c) { return keeps_rule("keys", c); });
  }

  std::optional<Config> one_kernel() const {
    return best(first_,
                {"key_block_m", "q_slots", "dout_slots", "fuse_dq", "draw_tiles", "ordered"},
                [&](const Config& c) { return fuses_dq(c) && !space_.broken(c); });
  }

  std::optional<Config> band() const {
    return best(first_, {"key_block_m", "fold_sums", "band"}, [&](const Config& c) {
      return walks_band(c) && !space_.broken(c) && !backward_unfit(spec_, c, shape_);
    });
  }

  std::optional<Config> stored_scores() const {
    Config storing = first_;
    storing.set("store_ds", 1);
    const std::optional<Config> rows = with_rows(storing);
    if (!rows) return std::nullopt;
    return best(*rows, {"key_block_n", "key_block_m", "q_slots"}, [&](const Config& c) {
      return !space_.broken(c) && !backward_unfit(spec_, c, shape_);
    });
  }

 private:
  std::optional<Config> with_rows(const Config& config) const {
    return cheapest(
        space_.knobs(), config, {"block_m", "block_n", "k_slots", "v_slots"},
        [&](const Config& c) { return keeps_rule("rows", c); },
        [&](const Config& c) {
          return backward_clocks(backward_rows_kernel(spec_, c), spec_, shape_, device_);
        });
  }

  template <class Legal>
  std::optional<Config> best(const Config& config, const std::vector<std::string_view>& names,
                             const Legal& legal) const {
    return cheapest(space_.knobs(), config, names, legal,
                    [this](const Config& c) { return cost(c); });
  }

  // True if a config breaks no rule of this name.
  bool keeps_rule(std::string_view name, const Config& config) const {
    return std::none_of(space_.constraints().begin(), space_.constraints().end(),
                        [&](const Constraint& c) { return c.name == name && c.broken(config); });
  }

  const SearchSpace& space_;
  const KernelSpec& spec_;
  const Shape& shape_;
  const DeviceFacts& device_;
  Config first_;
};

}  // namespace

Config backward_sm90_default(const SearchSpace& space, const KernelSpec& spec, const Shape& shape,
                             const DeviceFacts& device) {
  const Defaults defaults(space, spec, shape, device);
  std::optional<Config> best = defaults.two_kernels();
  for (const std::optional<Config>& other :
       {defaults.one_kernel(), defaults.stored_scores(), defaults.band()})
    if (other && (!best || defaults.cost(*other) < defaults.cost(*best))) best = other;
  if (!best) throw Error(ErrorCode::kInternal, "backward_sm90 has no legal config");
  return *best;
}

}  // namespace attune
