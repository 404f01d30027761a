// SPDX-License-Identifier: Apache-2.0
// One trial of a ShapeTuner: from candidate to a loaded kernel, and what is written down of it. See
// shape_tuner.hpp.
#include <algorithm>

#include "tuner/shape_tuner.hpp"

namespace attune {
namespace {

constexpr double kPollSeconds = 0.05;

int known_or(int value, int otherwise) { return value >= 0 ? value : otherwise; }

}  // namespace

std::shared_ptr<const Compiled> ShapeTuner::wait_compiled(const Entry& entry, double until) {
  progress("compiling");
  while (!stopped() && context_.now() < until)
    if (auto compiled = context_.pool.wait(entry.candidate, kPollSeconds)) return compiled;
  return nullptr;
}

bool ShapeTuner::make_live(int id, double until) {
  Entry& entry = entries_.at(id);
  if (entry.live) return true;
  const std::shared_ptr<const Compiled> compiled = wait_compiled(entry, until);
  if (!compiled) {
    cut_ = true;
    return false;
  }
  if (compiled->image) fill_record(&entry, *compiled->image, {});
  if (compiled->fault) {
    fail(id, *compiled->fault);
    return false;
  }
  progress("checking");
  const std::string name(entry.candidate.family.kernel_template->name());
  const Prepared prepared =
      context_.backend.prepare(id, {name, entry.candidate.config, *compiled->image}, true);
  fill_record(&entry, *compiled->image, prepared);
  if (prepared.fault) {
    fail(id, *prepared.fault);
    return false;
  }
  entry.estimate_us = prepared.estimate_us;
  entry.live = true;
  return true;
}

// The compiler's figures, completed by the device's.
void ShapeTuner::fill_record(Entry* entry, const KernelImage& image, const Prepared& prepared) {
  const TuneCandidate& candidate = entry->candidate;
  ImageInfo info = image.info;
  info.registers = known_or(info.registers, prepared.info.registers);
  info.static_shared_bytes = known_or(info.static_shared_bytes, prepared.info.static_shared_bytes);
  info.stack_bytes = known_or(info.stack_bytes, prepared.info.stack_bytes);
  entry->record.info = info;
  const Resources resources = candidate.family.kernel_template->resources(
      task_.spaces->spec(), candidate.family.arch, candidate.config);
  entry->record.shared_bytes = resources.shared_bytes + std::max(0, info.static_shared_bytes);
  entry->record.error_max = prepared.error_max;
  entry->record.error_mean = prepared.error_mean;
}

void ShapeTuner::fail(int id, const Fault& fault) {
  Entry& entry = entries_.at(id);
  entry.live = false;
  entry.record.status = fault.status;
  entry.record.reason = fault.reason;
  entry.record.timing = {};
  entry.record.effort = effort_;
  if (!entry.tried_now) ++report_.measured;
  entry.tried_now = true;
  book_.put(entry.record);
}

void ShapeTuner::record_timing(int id, const Timing& timing, const std::string& created) {
  Entry& entry = entries_.at(id);
  entry.record.timing = timing;
  entry.record.created = created;
  entry.record.effort = effort_;
  if (!entry.tried_now) ++report_.measured;
  entry.tried_now = true;
  book_.put(entry.record);
}

int ShapeTuner::race(const std::vector<int>& ids, int rounds) {
  progress("timing");
  if (context_.target.kind() == Target::kCpu)
    context_.pool.cancel_pending();  // compiling would disturb the timing
  const int done = race_->run(ids, rounds);
  for (const auto& [id, fault] : race_->faults())
    if (entries_.at(id).record.status == TrialStatus::kOk) fail(id, fault);
  return done;
}

void ShapeTuner::drop(int id) {
  context_.backend.drop(id);
  entries_.at(id).live = false;
}

}  // namespace attune
