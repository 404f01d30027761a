// SPDX-License-Identifier: Apache-2.0
// The list of templates; see template_registry.hpp.
#include "generator/template_registry.hpp"

#include <fmt/format.h>

#include "generator/core/error.hpp"
#include "generator/families/prefill_cpu.hpp"
#include "generator/families/prefill_sm75.hpp"
#include "generator/families/prefill_sm80.hpp"
#include "generator/families/prefill_sm89.hpp"
#include "generator/families/prefill_sm90.hpp"
#include "generator/families/prefill_sm90_fp8.hpp"
#include "generator/families/quantise_cpu.hpp"
#include "generator/families/quantise_cuda.hpp"
#include "generator/families/reference_cpu.hpp"
#include "generator/families/reference_cuda.hpp"

namespace attune {

namespace {

std::vector<const KernelTemplate*>& mutable_templates() {
  static std::vector<const KernelTemplate*> templates{
      &prefill_sm90(), &prefill_sm90_fp8(), &prefill_sm80(), &prefill_sm89(),   &prefill_sm75(),
      &prefill_cpu(),  &quantise_cuda(),    &quantise_cpu(), &reference_cuda(), &reference_cpu()};
  return templates;
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
              fmt::format("template is \"{}\"; accepted are {}", name, known));
}

std::vector<const KernelTemplate*> templates_for(const KernelSpec& spec, const Arch& arch,
                                                 std::vector<Refusal>* refusals) {
  std::vector<const KernelTemplate*> serving;
  for (const KernelTemplate* candidate : all_templates()) {
    if (auto reason = candidate->refuses(spec, arch)) {
      if (refusals != nullptr) refusals->push_back({candidate, *reason});
    } else {
      serving.push_back(candidate);
    }
  }
  return serving;
}

}  // namespace attune
