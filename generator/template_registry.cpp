// SPDX-License-Identifier: Apache-2.0
// The list of templates; see template_registry.hpp.
#include "generator/template_registry.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "generator/core/problem/problem_fields.hpp"
#include "generator/core/system/error.hpp"
#include "generator/families/families.hpp"
#include "generator/render/renderer.hpp"

namespace attune {

namespace {

std::vector<const KernelTemplate*>& mutable_templates() {
  static std::vector<const KernelTemplate*> templates{&prefill_sm90(),
                                                      &prefill_sm90_fp8(),
                                                      &prefill_sm80(),
                                                      &prefill_sm80_tf32(),
                                                      &prefill_sm89(),
                                                      &prefill_sm75(),
                                                      &prefill_cpu(),
                                                      &prefill_cpu_bf16(),
                                                      &backward_sm90(),
                                                      &backward_sm90_one_kernel(),
                                                      &backward_sm90_stored(),
                                                      &backward_sm90_band(),
                                                      &backward_sm80(),
                                                      &backward_cpu(),
                                                      &backward_lists_sm80(),
                                                      &backward_lists_cpu(),
                                                      &cache_sm90(),
                                                      &mla_sm90(),
                                                      &decode_sm80(),
                                                      &decode_cpu(),
                                                      &quantise_cuda(),
                                                      &quantise_cpu(),
                                                      &block_map_cuda(),
                                                      &block_map_cpu(),
                                                      &merge_cuda(),
                                                      &merge_cpu(),
                                                      &append_kv_cuda(),
                                                      &append_kv_cpu(),
                                                      &top_k_cuda(),
                                                      &top_k_cpu(),
                                                      &index_scores_sm80(),
                                                      &index_scores_cpu(),
                                                      &score_gradient_sm80(),
                                                      &reference_cuda(),
                                                      &reference_cpu(),
                                                      &backward_reference_cuda(),
                                                      &backward_reference_cpu()};
  return templates;
}

// A family of a list, with what orders it: its fit, the place of its group, then its cost.
struct Ranked {
  Fit fit;
  std::ptrdiff_t group;
  double cost;
  size_t index;

  bool operator<(const Ranked& other) const {
    return std::tie(fit, group, cost) < std::tie(other.fit, other.group, other.cost);
  }
};

double default_cost(const Family& family, const KernelSpec& spec, const Shape& shape,
                    const DeviceFacts& device) {
  const KernelTemplate& one = *family.kernel_template;
  return one.predicted_cost(spec, family.arch, one.default_config(spec, family.arch, shape, device),
                            shape, device);
}

}  // namespace

const std::vector<const KernelTemplate*>& all_templates() { return mutable_templates(); }

void add_template(const KernelTemplate& kernel_template) {
  mutable_templates().insert(mutable_templates().begin(), &kernel_template);
}

const KernelTemplate& template_by_name(std::string_view name) {
  std::string known;
  for (const KernelTemplate* candidate : all_templates()) {
    if (candidate->name() == name) return *candidate;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate->name());
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("template is \"{}\"; must be {}", name, known));
}

const Family* Serving::best() const {
  if (!families.empty()) return &families.front();
  return reference ? &*reference : nullptr;
}

const Family* Serving::find(std::string_view template_name) const {
  for (const Family& family : families)
    if (family.kernel_template->name() == template_name) return &family;
  return reference && reference->kernel_template->name() == template_name ? &*reference : nullptr;
}

std::optional<std::string> Serving::refusal_of(const KernelTemplate& kernel_template) const {
  for (const Refusal& refusal : refusals)
    if (refusal.kernel_template == &kernel_template) return refusal.reason;
  return std::nullopt;
}

std::vector<Family> by_fit(const std::vector<Family>& families, const KernelSpec& spec,
                           const Shape& shape, const DeviceFacts& device) {
  std::vector<Ranked> ranked;
  for (size_t i = 0; i < families.size(); ++i) {
    const KernelTemplate& one = *families[i].kernel_template;
    const auto of_group = [&](const Family& other) {
      return other.kernel_template->group() == one.group();
    };
    const auto first = std::find_if(families.begin(), families.end(), of_group);
    const Fit fit = one.fit(spec, shape);
    const bool has_rivals = std::count_if(families.begin(), families.end(), of_group) > 1;
    ranked.push_back(
        {fit, first - families.begin(),
         has_rivals && fit != Fit::kNever ? default_cost(families[i], spec, shape, device) : 0, i});
  }
  std::stable_sort(ranked.begin(), ranked.end());
  std::vector<Family> ordered;
  for (const Ranked& one : ranked) ordered.push_back(families[one.index]);
  return ordered;
}

TemplateState template_state(std::string_view name, std::string_view digest) {
  for (const KernelTemplate* one : all_templates())
    if (one->name() == name) {
      const std::string& now = template_digest(*one);
      if (now == digest) return TemplateState::kSame;
      return same_revision(now, digest) ? TemplateState::kReworded : TemplateState::kChanged;
    }
  return TemplateState::kGone;
}

std::vector<Family> worth_trying(const std::vector<Family>& families, const KernelSpec& spec,
                                 const Shape& shape, const DeviceFacts& device) {
  std::vector<Family> ordered = by_fit(families, spec, shape, device);
  const auto never = std::find_if(ordered.begin(), ordered.end(), [&](const Family& family) {
    return family.kernel_template->fit(spec, shape) == Fit::kNever;
  });
  if (never != ordered.begin()) ordered.erase(never, ordered.end());
  return ordered;
}

Serving serving(const KernelSpec& spec, const std::vector<Arch>& archs) {
  const Features features = features_of(spec);
  Serving found;
  for (const KernelTemplate* one : all_templates()) {
    std::vector<std::string> reasons;  // from the archs that it does not serve
    for (const Arch& arch : archs) {
      auto reason = one->refuses(spec, features, arch);
      if (!reason) break;
      reasons.push_back(*std::move(reason));
    }
    if (reasons.size() == archs.size())
      found.refusals.push_back(
          {one, archs.empty() ? "attune compiles for no arch of this device" : reasons.front()});
    else if (!one->is_reference())
      found.families.push_back({one, archs[reasons.size()]});
    else if (!found.reference)
      found.reference = {one, archs[reasons.size()]};
    else
      found.refusals.push_back({one, "another reference template serves this problem"});
  }
  return found;
}

}  // namespace attune
