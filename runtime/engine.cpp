// SPDX-License-Identifier: Apache-2.0
// Puts the parts together: candidates for this device, the ladder over the winners, images from
// image_source, plans kept. plan.cpp has what happens to a Plan afterwards (run, explain).
#include "runtime/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "generator/core/error.hpp"
#include "generator/core/log.hpp"
#include "generator/core/visibility.hpp"
#include "generator/renderer.hpp"
#include "generator/template_registry.hpp"
#include "runtime/capture.hpp"
#include "runtime/image_source.hpp"
#include "runtime/ladder.hpp"
#include "runtime/operand_check.hpp"
#include "runtime/plan_cache.hpp"

namespace attune {
namespace {

using Winners = std::vector<WinnerRecord>;
using WinnersByFamily = std::unordered_map<std::string, std::shared_ptr<const Winners>>;

// Nothing but what the ladder may use, so that plan() never asks a database: bundles first, then
// the user's store, then others.
WinnersByFamily read_winners(const ImageSource& images, const DeviceIdentity& device) {
  std::unordered_map<std::string, Winners> rows;
  for (const Bundle& bundle : images.bundles())
    for (const WinnerRecord& winner : bundle.winners())
      rows[to_text(family_of(winner.spec))].push_back(winner);
  for (WinnerRecord& winner : images.stores().load_winners(device))
    rows[to_text(family_of(winner.spec))].push_back(std::move(winner));
  WinnersByFamily winners;
  for (auto& [family, list] : rows)
    winners[family] = std::make_shared<const Winners>(std::move(list));
  return winners;
}

Plan plan_of(const Problem& problem, const Choice& choice,
             const std::shared_ptr<const Device>& device) {
  Plan plan;
  plan.problem = problem;
  plan.operands = operands_of(problem);
  plan.kernel_template = choice.candidate.kernel_template;
  plan.arch = choice.candidate.arch;
  plan.config = choice.config;
  plan.launch =
      plan.kernel_template->launch(choice.spec, choice.config, shape_of(problem), device->facts());
  plan.device = device;
  plan.rung = choice.rung;
  plan.why = choice.why;
  plan.winner = choice.winner;
  plan.distance = choice.distance;
  if (choice.winner && (choice.rung == Rung::kPinned || choice.rung == Rung::kExact) &&
      measured_on(*choice.winner, device->identity()))
    plan.expected_us = choice.winner->timing.median_us;
  return plan;
}

// Per template: nullopt = serves, else why not.
using Reasons = std::vector<std::pair<std::string, std::optional<std::string>>>;

std::string unsupported_text(const Reasons& reasons) {
  std::string text = "no template serves this problem on this device";
  for (const auto& [name, reason] : reasons)
    text += fmt::format("; {}: {}", name, reason.value_or("serves it"));
  return text;
}

// A tuned kernel that cannot be had, or a compiler or driver that fails, is worth a line in the
// log; a layout that a kernel does not take, or a default config without an image, is not.
bool worth_a_warning(const Choice& choice, ErrorCode code) {
  return code == ErrorCode::kCompile || code == ErrorCode::kDriver ||
         (code == ErrorCode::kWouldCompile && choice.winner);
}

}  // namespace

enum class Engine::Kernels { kGet, kForesee, kLeave };  // only kGet compiles and tunes

struct Engine::Impl {
  Impl(std::shared_ptr<const Device> the_device, EngineOptions the_options)
      : device(std::move(the_device)),
        options(std::move(the_options)),
        images(device, options),
        capture(options.capture_file),
        plans(options.max_plans) {}

  std::vector<Candidate> candidates(const KernelSpec& spec);
  const std::string& digest_of(const KernelTemplate& kernel_template);
  std::shared_ptr<const Winners> winners_of(const KernelSpec& spec);
  void require_template(const Problem& problem) const;
  Ladder ladder(const Problem& asked);
  void tune(const Problem& asked);
  Plan first_plan(const Problem& asked, const std::optional<std::string>& no_tensor_maps,
                  Kernels kernels);
  Reasons reasons(const KernelSpec& spec) const;
  std::optional<std::string> refusal(const KernelTemplate& kernel_template,
                                     const KernelSpec& spec) const;
  void note_refusals(const KernelSpec& spec, Plan* plan) const;
  void take(CachedKernel kernel, Plan* plan);

  const std::shared_ptr<const Device> device;
  const EngineOptions options;
  ImageSource images;
  Capture capture;
  PlanCache plans;
  std::mutex mutex;  // winners, digests
  std::mutex tuning;
  WinnersByFamily winners;
  std::vector<std::string> opening_warnings;  // of bundles
  std::vector<std::string> warnings;          // those, and of reading stores
  std::unordered_map<const KernelTemplate*, std::string> digests;
};

const std::string& Engine::Impl::digest_of(const KernelTemplate& kernel_template) {
  const std::lock_guard lock(mutex);
  std::string& digest = digests[&kernel_template];
  if (digest.empty()) digest = template_digest(kernel_template);
  return digest;
}

std::vector<Candidate> Engine::Impl::candidates(const KernelSpec& spec) {
  std::vector<Candidate> found;
  const std::vector<Arch> archs = device->archs();
  for (const KernelTemplate* kernel_template : all_templates()) {
    const auto arch = std::find_if(archs.begin(), archs.end(), [&](const Arch& a) {
      return !kernel_template->refuses(spec, a);
    });
    if (arch != archs.end())
      found.push_back({kernel_template, *arch,
                       [this, kernel_template] { return digest_of(*kernel_template); }});
  }
  return found;
}

std::optional<std::string> Engine::Impl::refusal(const KernelTemplate& kernel_template,
                                                 const KernelSpec& spec) const {
  std::optional<std::string> reason = "this device runs no arch that attune compiles for";
  for (const Arch& arch : device->archs())
    if (!(reason = kernel_template.refuses(spec, arch))) break;
  return reason;
}

// Templates made for this device (they serve a plain spec) that refuse this one.
void Engine::Impl::note_refusals(const KernelSpec& spec, Plan* plan) const {
  for (const KernelTemplate* kernel_template : all_templates())
    if (const auto reason = refusal(*kernel_template, spec);
        reason && !refusal(*kernel_template, KernelSpec{}))
      plan->passed_over.push_back(fmt::format("{}: {}", kernel_template->name(), *reason));
}

std::shared_ptr<const Winners> Engine::Impl::winners_of(const KernelSpec& spec) {
  static const auto none = std::make_shared<const Winners>();
  const std::lock_guard lock(mutex);
  const auto found = winners.find(to_text(family_of(spec)));
  return found == winners.end() ? none : found->second;
}

Reasons Engine::Impl::reasons(const KernelSpec& spec) const {
  Reasons answers;
  for (const KernelTemplate* kernel_template : all_templates())
    answers.emplace_back(kernel_template->name(), refusal(*kernel_template, spec));
  return answers;
}

// Throws unless some template serves it here, be it the reference.
void Engine::Impl::require_template(const Problem& problem) const {
  const Reasons answers = reasons(spec_of(problem));
  for (const auto& [unused, reason] : answers)
    if (!reason) return;
  throw Error(ErrorCode::kUnsupported, unsupported_text(answers));
}

Ladder Engine::Impl::ladder(const Problem& asked) {
  const KernelSpec spec = spec_of(canonical(asked));
  const std::shared_ptr<const Winners> rows = winners_of(spec);
  return climb(asked, candidates(spec), *rows, device->identity(), options.policy,
               options.may_compile);
}

// Asks the tuner when neither this shape nor its bucket was tuned. One tune at a time; whoever
// waited looks again.
void Engine::Impl::tune(const Problem& asked) {
  const std::lock_guard one(tuning);
  const Ladder known = ladder(asked);
  if (!known.choices.empty() && known.choices.front().rung <= Rung::kBucket) return;
  const std::optional<WinnerRecord> winner = options.config_source->tune(canonical(asked));
  if (!winner) return;
  const std::lock_guard lock(mutex);
  std::shared_ptr<const Winners>& rows = winners[to_text(family_of(winner->spec))];
  Winners more{*winner};
  if (rows) more.insert(more.end(), rows->begin(), rows->end());
  rows = std::make_shared<const Winners>(std::move(more));
}

void Engine::Impl::take(CachedKernel kernel, Plan* plan) {
  plan->kernel = std::move(kernel.kernel);
  plan->image_from = std::move(kernel.image_from);
  plan->check_workspace = options.check_workspace;
  const std::lock_guard lock(mutex);
  plan->warnings = warnings;
  for (std::string& text : kernel.warnings)
    if (std::find(warnings.begin(), warnings.end(), text) == warnings.end())
      plan->warnings.push_back(std::move(text));
}

// The first choice that the layout suits and, unless kernels are left alone, whose kernel can be
// had.
Plan Engine::Impl::first_plan(const Problem& asked,
                              const std::optional<std::string>& no_tensor_maps, Kernels kernels) {
  if (options.policy == Policy::kTuneOnMiss && options.config_source && kernels == Kernels::kGet)
    tune(asked);
  const Problem problem = canonical(asked);
  Ladder rungs = ladder(asked);
  std::optional<Error> failure;
  for (const Choice& choice : rungs.choices) {
    const std::string what =
        fmt::format("{}: {} with {}", rung_name(choice.rung),
                    choice.candidate.kernel_template->name(), choice.config.to_text());
    try {
      Plan plan = plan_of(problem, choice, device);
      if (no_tensor_maps && plan.launch.uses_tensor_maps())
        throw Error(ErrorCode::kUnsupported, *no_tensor_maps);
      if (kernels == Kernels::kGet)
        take(images.kernel(choice), &plan);
      else if (kernels == Kernels::kForesee)
        take(images.foresee(choice), &plan);
      plan.passed_over = std::move(rungs.passed_over);
      note_refusals(spec_of(problem), &plan);
      return plan;
    } catch (const Error& error) {
      rungs.passed_over.push_back(fmt::format("{}: {}", what, error.what()));
      if (!failure) failure = error;
      if (worth_a_warning(choice, error.code())) log(LogLevel::kWarning, rungs.passed_over.back());
    }
  }
  if (failure) throw *failure;
  const std::string passed = fmt::format("{}", fmt::join(rungs.passed_over, "; "));
  throw Error(
      ErrorCode::kNotTuned,
      fmt::format("policy {} allows no kernel for {}: {}; tune it with `attune tune --problem {}` "
                  "or use policy default",
                  policy_name(options.policy), to_text(asked),
                  passed.empty() ? "no shape of this spec was tuned on this device" : passed,
                  to_text(asked)));
}

Engine::Engine(std::shared_ptr<const Device> device, EngineOptions options) {
  const WarningCollector warnings;
  impl_ = std::make_unique<Impl>(std::move(device), std::move(options));
  impl_->opening_warnings = warnings.texts();
  reload();
}
Engine::~Engine() = default;

const Device& Engine::device() const { return *impl_->device; }

// Kept under the canonical problem and, so that the next call only looks up, as it was asked.
std::shared_ptr<const Plan> Engine::plan(const Problem& asked, const Operands* layout) {
  std::optional<std::string> no_tensor_maps;
  if (layout) no_tensor_maps = tensor_map_refusal(operands_of(asked), *layout);
  const PlanKey as_asked{asked, !no_tensor_maps};
  if (std::shared_ptr<const Plan> known = impl_->plans.find(as_asked)) return known;
  const uint64_t generation = impl_->plans.generation();
  validate(asked);
  impl_->capture.note(asked);
  const PlanKey key{canonical(asked), !no_tensor_maps};
  std::shared_ptr<const Plan> plan = impl_->plans.find(key);
  if (!plan) {
    impl_->require_template(key.problem);
    plan = std::make_shared<const Plan>(impl_->first_plan(asked, no_tensor_maps, Kernels::kGet));
    plan = impl_->plans.insert(key, std::move(plan), generation);
  }
  return impl_->plans.insert(as_asked, std::move(plan), generation);
}

Plan Engine::look(const Problem& asked, const Operands* layout, Kernels kernels) const {
  validate(asked);
  const Problem problem = canonical(asked);
  impl_->require_template(problem);
  return impl_->first_plan(
      asked, layout ? tensor_map_refusal(operands_of(problem), *layout) : std::nullopt, kernels);
}

Plan Engine::choose(const Problem& asked, const Operands* layout) const {
  return look(asked, layout, Kernels::kLeave);
}

Plan Engine::foresee(const Problem& asked, const Operands* layout) const {
  return look(asked, layout, Kernels::kForesee);
}

std::shared_ptr<const Plan> Engine::plan_with(const Problem& problem,
                                              const KernelTemplate& kernel_template,
                                              const Config& config) {
  validate(problem);
  const KernelSpec spec = spec_of(problem);
  for (Candidate& candidate : impl_->candidates(spec)) {
    if (candidate.kernel_template != &kernel_template) continue;
    if (auto broken = kernel_template.space(spec, candidate.arch).broken(config))
      throw Error(ErrorCode::kInvalidArgument, *broken);
    const Choice choice{std::move(candidate),  spec, config,      Rung::kPinned,
                        "given by the caller", 0,    std::nullopt};
    Plan plan = plan_of(problem, choice, impl_->device);
    impl_->take(impl_->images.kernel(choice), &plan);
    return std::make_shared<const Plan>(std::move(plan));
  }
  throw Error(ErrorCode::kUnsupported, unsupported_text(impl_->reasons(spec)));
}

Reasons Engine::check(const Problem& problem) const {
  validate(problem);
  return impl_->reasons(spec_of(canonical(problem)));
}

void Engine::reload() {
  const WarningCollector warnings;
  WinnersByFamily fresh = read_winners(impl_->images, impl_->device->identity());
  const std::lock_guard lock(impl_->mutex);
  impl_->winners = std::move(fresh);
  impl_->warnings = impl_->opening_warnings;
  impl_->warnings.insert(impl_->warnings.end(), warnings.texts().begin(), warnings.texts().end());
  impl_->plans.clear();
}

}  // namespace attune
