// SPDX-License-Identifier: Apache-2.0
// The trials of one (spec, shape); see trials.hpp.
#include "tuner/search/trials.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr double kPollSeconds = 0.05;

int known_or(int value, int otherwise) { return value >= 0 ? value : otherwise; }

// True for a stored trial whose kernel can still be made: by the same template and compiler, with a
// config that is still legal (the digest of a template does not cover its rules).
class CouldBeMade {
 public:
  CouldBeMade(const TuneTarget& target, SearchSpaces& spaces) : spaces_(spaces) {
    for (const Family& family : spaces.families())
      families_[target.toolchain(family).digest() + " " + family.arch.name()] = &family;
  }
  bool operator()(const TrialRecord& trial) const {
    const auto found = families_.find(trial.toolchain.digest() + " " + trial.arch);
    return found != families_.end() && spaces_.is_legal({*found->second, trial.config, false});
  }

 private:
  SearchSpaces& spaces_;
  std::map<std::string, const Family*> families_;
};

}  // namespace

std::vector<int> ids_of(const TrialList& trials) {
  std::vector<int> ids;
  for (const Trial* trial : trials) ids.push_back(trial->id);
  return ids;
}

Trials::Trials(TuneContext& context, const Problem& problem, std::shared_ptr<SearchSpaces> spaces)
    : context_(context),
      problem_(problem),
      task_{std::move(spaces), shape_of(problem), context.target.facts()},
      effort_(context.options.effort),
      book_(context.store,
            {task_.spaces->spec(), task_.shape, context.target.identity(), measure_policy()},
            CouldBeMade(context.target, *task_.spaces),
            context.options.refresh ? Effort::kQuick : effort_, context.options.retry_failed) {}

Trials::~Trials() { unload(); }

Trial& Trials::add(const TuneCandidate& candidate) {
  const auto [place, is_new] = ids_.emplace(candidate.text(), static_cast<int>(trials_.size()));
  if (is_new) {
    Trial& trial = trials_.emplace_back();
    trial.id = place->second;
    trial.candidate = candidate;
    trial.record.toolchain = context_.target.toolchain(candidate.family);
    trial.record.arch = candidate.family.arch.name();
    trial.record.config = candidate.config;
    trial.record.effort = effort_;
    if (const TrialRecord* known = book_.find(candidate, trial.record.toolchain)) {
      trial.record = *known;
      ++num_reused_;
    }
    trial.record.is_default = false;
  }
  Trial& trial = trials_[static_cast<size_t>(place->second)];
  if (candidate.is_default) {
    trial.candidate.is_default = trial.record.is_default = true;
    default_ = &trial;
  }
  return trial;
}

void Trials::add_known() {
  for (const TrialRecord& known : book_.sorted())
    for (const Family& family : task_.spaces->families())
      if (family.kernel_template->name() == known.toolchain.template_name &&
          family.arch.name() == known.arch)
        add({family, known.config, false});
}

std::vector<TuneCandidate> Trials::unknown(std::vector<TuneCandidate> candidates) const {
  std::erase_if(candidates, [&](const TuneCandidate& c) {
    return book_.find(c, context_.target.toolchain(c.family)) != nullptr;
  });
  return candidates;
}

TrialList Trials::live() {
  TrialList found;
  for (Trial& trial : trials_)
    if (trial.live) found.push_back(&trial);
  return found;
}

TrialList Trials::ranking() {
  TrialList timed;
  for (Trial& trial : trials_)
    if (trial.is_timed()) timed.push_back(&trial);
  std::stable_sort(timed.begin(), timed.end(), [](const Trial* a, const Trial* b) {
    return a->explored_us() < b->explored_us();
  });
  return timed;
}

std::vector<TuneCandidate> Trials::best_candidates(size_t count) {
  std::vector<TuneCandidate> best;
  for (const Trial* trial : ranking()) {
    if (best.size() == count) break;
    best.push_back(trial->candidate);
    best.back().is_default = false;
  }
  return best;
}

std::set<std::string> Trials::texts() const {
  std::set<std::string> texts;
  for (const auto& [text, unused] : ids_) texts.insert(text);
  return texts;
}

double Trials::best_us() const {
  double best = INFINITY;
  for (const Trial& trial : trials_) {
    if (trial.is_timed())
      best = std::min(best, trial.explored_us());
    else if (trial.live)
      best = std::min(best, trial.estimate_us);
  }
  return best;
}

void Trials::drift(const TrialList& raced, double factor) {
  for (Trial& trial : trials_)
    if (std::find(raced.begin(), raced.end(), &trial) == raced.end()) trial.drift *= factor;
}

void Trials::open() {
  if (context_.on_device == this) return;
  context_.on_device = nullptr;
  progress("opening");
  TraceSpan span(context_.options.trace, "open");
  if (span.is_on()) span.name(to_text(problem_));
  context_.backend.open({problem_, context_.options.seed, context_.reference(problem_)});
  context_.on_device = this;
  for (Trial* trial : live()) {
    const Prepared prepared = context_.backend.reload(trial->id, request_of(*trial));
    if (prepared.fault) fail(*trial, *prepared.fault);
  }
}

void Trials::unload() {
  for (Trial& trial : trials_) trial.live = false;
  if (context_.on_device == this) context_.on_device = nullptr;
}

std::shared_ptr<const Compiled> Trials::wait_compiled(const Trial& trial, double until) {
  progress("compiling");
  while (!context_.stopped() && context_.now() < until)
    if (auto made = context_.pool.wait(task_.spaces->spec(), trial.candidate, kPollSeconds))
      return made;
  return nullptr;
}

KernelRequest Trials::request_of(const Trial& trial) const {
  return {std::string(trial.candidate.family.kernel_template->name()), trial.candidate.config,
          *trial.compiled->image};
}

Load Trials::make_live(Trial& trial, double until) {
  if (trial.live) return Load::kLive;
  if (!trial.compiled) trial.compiled = wait_compiled(trial, until);
  if (!trial.compiled) return Load::kLate;
  if (trial.compiled->image) fill_record(trial, {});
  // A default that spills runs wherever nothing was tuned, so it takes part too.
  const bool takes_part = trial.candidate.is_default && trial.compiled->image;
  if (trial.compiled->fault && !takes_part) {
    fail(trial, *trial.compiled->fault);
    return Load::kFailed;
  }
  progress("checking");
  TraceSpan span(context_.options.trace, "check");
  if (span.is_on()) span.name(trial.candidate.config.to_text());
  const Prepared prepared = context_.backend.prepare(trial.id, request_of(trial));
  if (span.is_on() && prepared.fault) span.argument("fault", prepared.fault->reason);
  fill_record(trial, prepared);
  if (prepared.fault) {
    fail(trial, *prepared.fault);
    return Load::kFailed;
  }
  trial.estimate_us = prepared.estimate_us;
  trial.live = true;
  return Load::kLive;
}

// Takes resource numbers from the compiler. Fills gaps with the device's numbers.
void Trials::fill_record(Trial& trial, const Prepared& prepared) const {
  const TuneCandidate& candidate = trial.candidate;
  ImageInfo info = trial.compiled->image->info;
  info.registers = known_or(info.registers, prepared.info.registers);
  info.static_shared_bytes = known_or(info.static_shared_bytes, prepared.info.static_shared_bytes);
  info.stack_bytes = known_or(info.stack_bytes, prepared.info.stack_bytes);
  trial.record.info = info;
  const Resources resources = candidate.family.kernel_template->resources(
      task_.spaces->spec(), candidate.family.arch, candidate.config);
  trial.record.shared_bytes = resources.shared_bytes + std::max(0, info.static_shared_bytes);
  trial.record.error_max = prepared.error_max;
  trial.record.error_mean = prepared.error_mean;
}

void Trials::fail(Trial& trial, const Fault& fault) {
  trial.live = false;
  trial.record.status = fault.status;
  trial.record.reason = fault.reason;
  trial.record.timing = {};
  write_down(trial);
}

std::string Trials::why_none() const {
  std::string why = "no candidate works";
  for (const Trial& trial : trials_)
    if (!trial.works()) {
      why += fmt::format(": {}, {}", trial.candidate.text(), trial.record.reason);
      break;
    }
  if (num_measured_ == 0) why += "; all failed in an earlier run: --retry-failed tries them again";
  return why;
}

void Trials::record_timing(Trial& trial, const Timing& timing, const std::string& created) {
  trial.record.timing = timing;
  trial.drift = 1;
  trial.record.created = created;
  write_down(trial);
}

void Trials::write_down(Trial& trial) {
  trial.record.effort = effort_;
  if (!trial.tried_now) ++num_measured_;
  trial.tried_now = true;
  book_.put(trial.record);
}

void Trials::record_faults(const Race& race) {
  for (const auto& [id, fault] : race.faults())
    if (Trial& trial = trials_[static_cast<size_t>(id)]; trial.works()) fail(trial, fault);
}

int Trials::race(Race* race, const TrialList& trials, int rounds) {
  progress("timing");
  if (context_.target.kind() == Target::kCpu)
    context_.pool.cancel_pending();  // compiling would disturb the timing
  TraceSpan span(context_.options.trace, "time");
  const int done = race->run(ids_of(trials), rounds);
  if (span.is_on()) {
    span.name(trials.size() == 1 ? trials.front()->candidate.config.to_text()
                                 : std::to_string(trials.size()) + " kernels in turn");
    for (const Trial* trial : trials) span.argument("kernel", trial->candidate.config.to_text());
    span.argument("rounds", std::to_string(done));
  }
  record_faults(*race);
  return done;
}

int Trials::warm_up(Race* race, const TrialList& trials) {
  const int clock = race->warm_up(ids_of(trials));
  record_faults(*race);
  return clock;
}

void Trials::drop(Trial& trial) {
  if (context_.on_device == this) context_.backend.drop(trial.id);
  trial.live = false;
}

void Trials::progress(const char* phase) {
  Progress progress;
  progress.problem = problem_;
  progress.phase = phase;
  progress.tried = num_measured_;
  const TrialList order = ranking();
  if (!order.empty()) {
    progress.best_us = order.front()->record.timing.median_us;
    progress.best = order.front()->candidate.config.to_text();
  }
  if (default_ != nullptr) progress.default_us = default_->record.timing.median_us;
  context_.report(progress);
}

}  // namespace attune
