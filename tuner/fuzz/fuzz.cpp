// SPDX-License-Identifier: Apache-2.0
// Runs fuzz cases, and counts kernels and failures; see fuzz.hpp.
#include "tuner/fuzz/fuzz.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune::testing {
namespace {

constexpr int kCasesPerKernel = 4;
constexpr Layout kLayouts[] = {Layout::kContiguous, Layout::kHeadsFirst, Layout::kPadded};
constexpr Inputs kInputs[] = {Inputs::kNormal,      Inputs::kLogitsTimes16, Inputs::kLogitsTimes64,
                              Inputs::kAllNegative, Inputs::kOutlierRow,    Inputs::kOutliers,
                              Inputs::kMeanOfV,     Inputs::kSaturated,     Inputs::kSubnormals};
constexpr size_t kOnlyFor8Bits = 2;  // the last ones

// The choices that a case's seed makes, besides the numbers.
struct Draws {
  Layout layout;
  Inputs inputs;
  int q_position0 = 0, kv_position0 = 0;
  uint64_t numbers;
};

Draws draws_of(const FuzzCase& one) {
  std::mt19937_64 random(one.seed);
  const size_t styles = std::size(kInputs) - (is_8_bit(one.problem) ? 0 : kOnlyFor8Bits);
  Draws draws{kLayouts[random() % std::size(kLayouts)], kInputs[random() % styles], 0, 0, 0};
  const bool is_moved = random() % 4 == 0;
  const int q = static_cast<int>(random() % 400), kv = static_cast<int>(random() % 400);
  if (is_moved && is_scored(one.problem)) {
    draws.q_position0 = q;
    // A table without distances counts as the call's own, which positions do not move.
    const bool has_distances = one.problem.seqlen_q + one.problem.seqlen_kv > 1;
    draws.kv_position0 =
        one.problem.scores.relative_bias == ScoreTensor::kNone || has_distances ? kv : q;
  }
  draws.numbers = random();
  return draws;
}

AttentionCase make_case(const Problem& problem, const Draws& draws, uint64_t more) {
  AttentionCase made(problem, draws.layout, draws.inputs, draws.numbers + more);
  made.q_position0 = draws.q_position0;
  made.kv_position0 = draws.kv_position0;
  return made;
}

bool serves_something(const Device& device, const KernelTemplate& kernel_template) {
  for (const char* dtype : {"bf16", "fp16", "fp32", "fp32,accuracy=fast", "e4m3"}) {
    const KernelSpec spec =
        spec_of(parse_problem(std::string("head_dim=64,heads=1,seqlen=8,dtype=") + dtype));
    for (const Arch& arch : device.archs())
      if (!kernel_template.refuses(spec, arch)) return true;
  }
  return false;
}

}  // namespace

std::vector<const KernelTemplate*> fuzzed_templates(const Device& device, const std::string& name) {
  std::vector<const KernelTemplate*> templates =
      name.empty() ? all_templates() : std::vector<const KernelTemplate*>{&template_by_name(name)};
  std::erase_if(templates,
                [&](const KernelTemplate* one) { return !serves_something(device, *one); });
  if (templates.empty())
    throw Error(ErrorCode::kUnsupported,
                fmt::format("template {} serves no attention on {}", name, device.identity().name));
  return templates;
}

void Fuzz::fail(const FuzzCase& one, const std::string& reason, bool is_wrong) {
  ++counts_.failures;
  report_({one, reason, is_wrong});
}

const LoadedConfig* Fuzz::load(const FuzzCase& one, bool is_default) {
  const KernelSpec spec = spec_of(one.problem);
  const std::string name =
      fmt::format("{} {} {}", one.kernel_template->name(), to_text(spec), one.config.to_text());
  if (name == loaded_name_) return loaded_.get();
  loaded_name_ = name;
  loaded_.reset();
  try {
    loaded_ = std::make_unique<LoadedConfig>(device_, *one.kernel_template, spec, one.config);
  } catch (const Error& error) {
    if (is_default || error.code() != ErrorCode::kCompile)
      fail(one, error.what(), false);
    else
      ++counts_.passed_over;
    return nullptr;
  }
  if (!is_default && !one.kernel_template->is_reference() && !loaded_->fault().empty()) {
    ++counts_.passed_over;
    loaded_.reset();
    return nullptr;
  }
  ++counts_.kernels;
  ++counts_.kernels_of[std::string(one.kernel_template->name())];
  return loaded_.get();
}

void Fuzz::run_case(const FuzzCase& one, bool is_default) {
  log(LogCode::kFuzzCase, fmt::format("fuzz: {} {} {} seed {}", one.kernel_template->name(),
                                      to_text(one.problem), one.config.to_text(), one.seed));
  const LoadedConfig* const loaded = load(one, is_default);
  if (loaded == nullptr) return;
  ++counts_.cases;
  const Draws draws = draws_of(one);
  const Redraw redraw = [&](uint64_t more) { return make_case(one.problem, draws, more); };
  try {
    const std::string fault = fault_of(
        *loaded, redraw(0), arithmetic_of(*one.kernel_template, device_->target()), redraw);
    if (!fault.empty()) fail(one, fault, true);
  } catch (const Error& error) {
    is_device_lost_ = error.code() == ErrorCode::kDriver;
    fail(one, error.what(), false);
  }
}

void Fuzz::run_drawn(uint64_t seed, const std::vector<const KernelTemplate*>& templates) {
  const DrawnKernel drawn = draw_kernel(seed, *device_, templates);
  std::mt19937_64 random(~seed);
  FuzzCase one{drawn.kernel_template, drawn.problem, drawn.config, 0};
  for (int i = 0; i < kCasesPerKernel; ++i) {
    draw_lengths(random, one.config, &one.problem);
    one.seed = random();
    run_case(one, drawn.is_default);
    if (loaded_ == nullptr || is_device_lost_) return;
  }
}

}  // namespace attune::testing
