// SPDX-License-Identifier: Apache-2.0
// The engine combines the templates for this device, the ladder over the winners, the images of
// image_source, and a cache of plans. plan.hpp has the functions that run a Plan.
#include "runtime/engine/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "cache/winner_rule.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "generator/score/features/features.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/capture.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/image_source.hpp"
#include "runtime/engine/ladder.hpp"
#include "runtime/engine/pinned_run.hpp"
#include "runtime/engine/plan_cache.hpp"
#include "runtime/engine/winner_table.hpp"
#include "runtime/operands/operand_check.hpp"

namespace attune {
namespace {

Plan plan_of(const Problem& problem, const Choice& choice,
             const std::shared_ptr<const Device>& device) {
  Plan plan;
  plan.problem = problem;
  plan.operands = operands_of(problem);
  plan.scores = score_captures(problem);
  plan.kernel_template = choice.family.kernel_template;
  plan.arch = choice.family.arch;
  plan.config = choice.config;
  plan.launch =
      plan.kernel_template->launch(choice.spec, choice.config, shape_of(problem), device->facts());
  plan.device = device;
  plan.rung = choice.rung;
  plan.why = choice.why;
  plan.winner = choice.winner;
  plan.distance = choice.distance;
  if (choice.winner && (choice.rung == Rung::kPinned || choice.rung == Rung::kExact) &&
      !choice.winner->created.empty() && measured_on(*choice.winner, device->identity()) &&
      !is_noisy(choice.winner->timing))
    plan.expected_us = choice.winner->timing.median_us;
  return plan;
}

std::string unsupported_text(Op op, const std::vector<Refusal>& refusals) {
  std::string text = "no template serves this problem on this device";
  for (const auto& [kernel_template, reason] : refusals)
    if (kernel_template->serves().op == op)
      text += fmt::format("; {}: {}", kernel_template->name(), reason);
  return text;
}

// True if the failure of a choice is logged as a warning: a tuned kernel is not available, or a
// compiler or driver failed. False if a kernel cannot read the layout, or a default config has no
// image.
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
        plans(options.max_plans),
        plain(serving(KernelSpec{}, device->archs())),
        rules{.policy = options.policy,
              .compiling = options.may_compile ? Compiling::kAllowed : Compiling::kNever,
              .pins_bind = !options.pin.empty()} {}

  Serving serving_of(const KernelSpec& spec) const;
  std::shared_ptr<const WinnerTable::Rows> winners_of(const KernelSpec& spec);
  Ladder ladder(const Problem& asked, const Serving& serving);
  void tune(const Problem& asked, const Serving& serving);
  Plan first_plan(const Problem& asked, const std::optional<std::string>& no_tensor_maps,
                  Kernels kernels);
  std::string unpinned_text(const Plan& plan) const;
  void note_refusals(const Serving& serving, Plan* plan) const;
  bool is_first_of_bucket(const Plan& plan);
  void tell_of_rung(const Problem& asked, const Plan& plan);
  void take(CachedKernel kernel, Plan* plan);

  const std::shared_ptr<const Device> device;
  const EngineOptions options;
  ImageSource images;
  Capture capture;
  PlanCache plans;
  const Serving plain;  // for a spec without features: the templates made for this device
  const LadderRules rules;
  std::mutex mutex;  // winners, warnings, told_buckets
  std::mutex tuning;
  std::mutex reloading;
  WinnerTable winners;
  std::optional<PinFile> pins;         // if options.pin names a file: the only source of winners
  std::set<std::string> told_buckets;  // of tell_of_rung
  std::vector<std::string> opening_warnings;  // from bundles
  std::vector<std::string> warnings;          // from bundles and from reading stores
};

// Returns the templates that serve a spec on this device. Throws if not even the reference does.
Serving Engine::Impl::serving_of(const KernelSpec& spec) const {
  Serving found = serving(spec, device->archs());
  if (!found.best())
    throw Error(ErrorCode::kUnsupported, unsupported_text(spec.op, found.refusals));
  return found;
}

// Adds to the plan the templates for this op and device that refuse the problem, with reasons.
void Engine::Impl::note_refusals(const Serving& serving, Plan* plan) const {
  for (const auto& [kernel_template, reason] : serving.refusals)
    if (kernel_template->serves().op == plan->problem.op && !plain.refusal_of(*kernel_template))
      plan->passed_over.push_back(fmt::format("{}: {}", kernel_template->name(), reason));
}

// Returns the winners of a spec's family. Reading them may find damaged rows; each later plan then
// has these warnings.
std::shared_ptr<const WinnerTable::Rows> Engine::Impl::winners_of(const KernelSpec& spec) {
  const std::lock_guard lock(mutex);
  const WarningCollector found;
  std::shared_ptr<const WinnerTable::Rows> rows = winners.of(spec);
  for (const std::string& text : found.texts())
    if (std::find(warnings.begin(), warnings.end(), text) == warnings.end())
      warnings.push_back(text);
  return rows;
}

Ladder Engine::Impl::ladder(const Problem& asked, const Serving& serving) {
  const std::shared_ptr<const WinnerTable::Rows> rows = winners_of(spec_of(canonical(asked)));
  return climb(asked, serving, *rows, device->identity(), rules);
}

// Tunes the problem if neither its shape nor its bucket was tuned. One thread tunes at a time. A
// thread that waited climbs the ladder again first, because another may have tuned the problem.
void Engine::Impl::tune(const Problem& asked, const Serving& serving) {
  const std::lock_guard one(tuning);
  const Ladder known = ladder(asked, serving);
  if (!known.choices.empty() && known.choices.front().rung <= Rung::kBucket) return;
  const std::optional<WinnerRecord> winner = options.config_source->tune(canonical(asked));
  if (!winner) return;
  const std::lock_guard lock(mutex);
  winners.add(*winner);
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

// Returns a plan of the first choice that can read the layout. Unless `kernels` is kLeave, the
// choice's kernel must also be available.
Plan Engine::Impl::first_plan(const Problem& asked,
                              const std::optional<std::string>& no_tensor_maps, Kernels kernels) {
  const Problem problem = canonical(asked);
  const Serving serving = serving_of(spec_of(problem));
  if (options.policy == Policy::kTuneOnMiss && options.config_source && kernels == Kernels::kGet &&
      options.pin.empty())
    tune(asked, serving);
  Ladder rungs = ladder(asked, serving);
  std::optional<Error> failure;
  for (const Choice& choice : rungs.choices) {
    const std::string what =
        fmt::format("{}: {} with {}", rung_name(choice.rung), choice.family.kernel_template->name(),
                    choice.config.to_text());
    try {
      Plan plan = plan_of(problem, choice, device);
      plan.scores.has_fixed_masks = has_fixed_masks(asked, with_built_ins(asked));
      if (no_tensor_maps && plan.launch.uses_tensor_maps())
        throw Error(ErrorCode::kUnsupported, *no_tensor_maps);
      if (kernels == Kernels::kGet)
        take(images.kernel(choice), &plan);
      else if (kernels == Kernels::kForesee)
        take(images.foresee(choice), &plan);
      plan.passed_over = std::move(rungs.passed_over);
      note_refusals(serving, &plan);
      if (const std::string text = unpinned_text(plan); !text.empty())
        plan.warnings.push_back(text);
      return plan;
    } catch (const Error& error) {
      rungs.passed_over.push_back(fmt::format("{}: {}", what, error.what()));
      if (!failure) failure = error;
      if (worth_a_warning(choice, error.code()))
        log(LogCode::kKernelPassedOver, rungs.passed_over.back());
    }
  }
  if (failure) throw *failure;
  const std::string passed = fmt::format("{}", fmt::join(rungs.passed_over, "; "));
  throw Error(
      ErrorCode::kNotTuned,
      fmt::format("policy {} allows no kernel for {}: {}; {}, and policy default takes one that "
                  "was not tuned",
                  policy_name(options.policy), to_text(asked),
                  passed.empty() ? "no shape of this spec was tuned on this device" : passed,
                  serving.families.empty() ? reference_advice(asked, options)
                                           : tune_advice(asked, options, images.stores())));
}

// Returns a warning if there is a pin file that does not name the problem; else "". Ranks with
// equal pins may run different kernels for such problems.
std::string Engine::Impl::unpinned_text(const Plan& plan) const {
  if (options.pin.empty() || plan.rung == Rung::kPinned || useful_flops(plan.problem) <= 0)
    return "";
  return fmt::format("pin file {} does not name {} on this device; rung \"{}\" chooses the kernel",
                     options.pin.string(), to_text(plan.problem), rung_name(plan.rung));
}

// Returns true for the first plan of a bucket. A decoding loop has a problem for each length, and
// one tune serves all lengths of a bucket.
bool Engine::Impl::is_first_of_bucket(const Plan& plan) {
  const std::string bucket = to_text(spec_of(plan.problem)) + " " +
                             bucket_of(shape_of(plan.problem)) +
                             (plan.rung == Rung::kBucket ? " tuned" : "");
  const std::lock_guard lock(mutex);
  return told_buckets.insert(bucket).second;
}

// Logs the rung of a new plan, once per bucket. Ops that are bound by memory are not reported,
// because they are seldom tuned.
void Engine::Impl::tell_of_rung(const Problem& asked, const Plan& plan) {
  const bool bound_by_memory = useful_flops(plan.problem) <= 0;
  if (bound_by_memory || plan.rung <= Rung::kExact || !is_first_of_bucket(plan)) return;
  if (const std::string text = unpinned_text(plan); !text.empty()) {
    log(LogCode::kNotTuned, text + "; tune it, and write the pin file anew with `attune pin`");
    return;
  }
  log(plan.rung == Rung::kBucket ? LogCode::kTunedElsewhere : LogCode::kNotTuned,
      fmt::format("{} runs {} by rung \"{}\"; {}", to_text(asked), plan.kernel_template->name(),
                  rung_name(plan.rung),
                  plan.rung == Rung::kReference ? reference_advice(asked, options)
                                                : tune_advice(asked, options, images.stores())));
}

Engine::Engine(std::shared_ptr<const Device> device, EngineOptions options) {
  const WarningCollector warnings;
  impl_ = std::make_unique<Impl>(std::move(device), std::move(options));
  impl_->opening_warnings = warnings.texts();
  reload();
}
Engine::~Engine() = default;

const Device& Engine::device() const { return *impl_->device; }

// Caches a plan under its canonical problem and under the problem as asked. The next call with this
// problem is then one look-up.
std::shared_ptr<const Plan> Engine::plan(const Problem& asked, const Operands* layout) {
  std::optional<std::string> no_tensor_maps;
  if (layout) no_tensor_maps = tensor_map_refusal(operands_of(asked), *layout);
  const PlanKey as_asked{asked, !no_tensor_maps};
  if (std::shared_ptr<const Plan> known = impl_->plans.find(as_asked)) return known;
  const uint64_t generation = impl_->plans.generation();
  validate(asked);
  impl_->capture.note(asked);
  const PlanKey key{canonical(asked), !no_tensor_maps,
                    has_fixed_masks(asked, with_built_ins(asked))};
  std::shared_ptr<const Plan> plan = impl_->plans.find(key);
  if (!plan) {
    Plan made = impl_->first_plan(asked, no_tensor_maps, Kernels::kGet);
    made.calls = impl_->capture.counts_of(made.problem, made.rung);
    impl_->tell_of_rung(asked, made);
    plan = std::make_shared<const Plan>(std::move(made));
    plan = impl_->plans.insert(key, std::move(plan), generation);
  }
  return impl_->plans.insert(as_asked, std::move(plan), generation);
}

Plan Engine::look(const Problem& asked, const Operands* layout, Kernels kernels) const {
  validate(asked);
  const Problem problem = canonical(asked);
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
  const Serving found = serving(spec, impl_->device->archs());
  const Family* const family = found.find(kernel_template.name());
  if (!family)
    throw Error(
        ErrorCode::kUnsupported,
        fmt::format(
            "template {} does not serve this problem on this device: {}", kernel_template.name(),
            found.refusal_of(kernel_template).value_or("it is not in the list of templates")));
  if (auto broken = kernel_template.space(spec, family->arch).broken(config))
    throw Error(ErrorCode::kInvalidArgument, *broken);
  const Choice choice{*family, spec, config, Rung::kPinned, "given by the caller", 0, std::nullopt};
  Plan plan = plan_of(problem, choice, impl_->device);
  impl_->take(impl_->images.kernel(choice), &plan);
  return std::make_shared<const Plan>(std::move(plan));
}

std::vector<std::pair<std::string, std::optional<std::string>>> Engine::check(
    const Problem& problem) const {
  validate(problem);
  const Serving found = serving(spec_of(canonical(problem)), impl_->device->archs());
  std::vector<std::pair<std::string, std::optional<std::string>>> answers;
  for (const KernelTemplate* one : all_templates())
    answers.emplace_back(one->name(), found.refusal_of(*one));
  return answers;
}

// One thread reads at a time: older contents must not replace newer ones.
void Engine::reload() {
  const std::lock_guard one(impl_->reloading);
  const WarningCollector warnings;
  const DeviceIdentity& identity = impl_->device->identity();
  std::optional<PinFile> pins;
  if (!impl_->options.pin.empty()) pins = read_pin_file(impl_->options.pin);
  impl_->images.stores().load_programs();
  WinnerTable fresh = pins ? WinnerTable(pinned_winners(impl_->options.pin, *pins, identity))
                           : WinnerTable(impl_->images, identity);
  const std::lock_guard lock(impl_->mutex);
  impl_->winners = std::move(fresh);
  impl_->pins = std::move(pins);
  impl_->warnings = impl_->opening_warnings;
  impl_->warnings.insert(impl_->warnings.end(), warnings.texts().begin(), warnings.texts().end());
  impl_->plans.clear();
}

std::array<uint8_t, 32> Engine::pin_digest() const {
  const std::lock_guard lock(impl_->mutex);
  return (impl_->pins ? *impl_->pins : impl_->winners.pins(impl_->device->identity())).digest();
}

}  // namespace attune
