// SPDX-License-Identifier: Apache-2.0
// The list of templates; see template_registry.hpp.
#include "generator/template_registry.hpp"

#include <fmt/format.h>

#include "generator/core/error.hpp"
#if __has_include("generator/families/prefill_sm90.hpp")
#include "generator/families/prefill_sm90.hpp"
#define ATTUNE_HAS_SM90 1
#endif
#if __has_include("generator/families/prefill_sm80.hpp")
#include "generator/families/prefill_sm80.hpp"
#define ATTUNE_HAS_SM80 1
#endif
#if __has_include("generator/families/prefill_sm75.hpp")
#include "generator/families/prefill_sm75.hpp"
#define ATTUNE_HAS_SM75 1
#endif
#if __has_include("generator/families/reference_cuda.hpp")
#include "generator/families/reference_cuda.hpp"
#define ATTUNE_HAS_RCUDA 1
#endif
#if __has_include("generator/families/prefill_cpu.hpp")
#include "generator/families/prefill_cpu.hpp"
#define ATTUNE_HAS_CPU 1
#endif
#if __has_include("generator/families/reference_cpu.hpp")
#include "generator/families/reference_cpu.hpp"
#define ATTUNE_HAS_RCPU 1
#endif

namespace attune {

const std::vector<const KernelTemplate*>& all_templates() {
  static const std::vector<const KernelTemplate*> templates{
#ifdef ATTUNE_HAS_SM90
      &prefill_sm90(),
#endif
#ifdef ATTUNE_HAS_SM80
      &prefill_sm80(),
#endif
#ifdef ATTUNE_HAS_SM75
      &prefill_sm75(),
#endif
#ifdef ATTUNE_HAS_CPU
      &prefill_cpu(),
#endif
#ifdef ATTUNE_HAS_RCUDA
      &reference_cuda(),
#endif
#ifdef ATTUNE_HAS_RCPU
      &reference_cpu(),
#endif
  };
  return templates;
}

const KernelTemplate& template_by_name(std::string_view name) {
  std::string known;
  for (const KernelTemplate* candidate : all_templates()) {
    if (candidate->name() == name) return *candidate;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", candidate->name());
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("template is \"{}\"; accepted are {}", name, known));
}

std::vector<const KernelTemplate*> templates_for(const KernelSpec& spec, const Arch& arch, std::vector<Refusal>* refusals) {
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
