// SPDX-License-Identifier: Apache-2.0
// Checks and times on a Device; see device_backend.hpp.
#include "tuner/measure/device_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <new>

#include "generator/core/system/error.hpp"
#include "generator/template_registry.hpp"
#include "tuner/measure/verify.hpp"

namespace attune {
namespace {

constexpr int kMaxLaunches = 200;

int launches_for(double sample_us, double launch_us) {
  return std::clamp(static_cast<int>(std::ceil(sample_us / std::max(launch_us, 0.1))), 1,
                    kMaxLaunches);
}

Fault fault_of(const Error& error) {
  const bool no_memory = error.code() == ErrorCode::kOutOfMemory;
  return {no_memory ? TrialStatus::kOutOfResources : TrialStatus::kLaunchFailed, error.what(),
          false};
}

// Converts an error during a run into a fault. A kernel that failed on the device may have broken
// the device, so that fault is fatal.
Fault fault_while_running(const Error& error) {
  Fault fault = fault_of(error);
  fault.fatal = fault.status == TrialStatus::kLaunchFailed;
  return fault;
}

}  // namespace

DeviceBackend::DeviceBackend(std::shared_ptr<const Device> device) : device_(std::move(device)) {}

void DeviceBackend::restart() {
  loaded_.clear();
  expected_.reset();
  of_the_host_.clear();
  inputs_.reset();
}

void DeviceBackend::open(const MeasureTask& task) {
  loaded_.clear();
  expected_.reset();
  if (!inputs_ || seed_ != task.seed) {
    of_the_host_.clear();
    inputs_ = std::make_unique<Inputs>(*device_, task.seed);
  }
  seed_ = task.seed;
  problem_ = task.problem;
  inputs_->open(problem_, task.is_timed);
  try {
    open_oracle(task.reference);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::kOutOfMemory,
                fmt::format("the expected results of {} take more host memory than is free",
                            to_text(problem_)));
  }
}

DeviceBackend::Loaded DeviceBackend::load(const KernelRequest& request,
                                          const Problem& problem) const {
  const KernelTemplate& kernel_template = template_by_name(request.template_name);
  const KernelSpec spec = spec_of(problem);
  Plan plan;
  plan.problem = problem;
  plan.operands = operands_of(problem);
  plan.scores = score_captures(problem);
  plan.kernel_template = &kernel_template;
  plan.config = request.config;
  plan.device = device_;
  plan.launch = kernel_template.launch(spec, request.config, shape_of(problem), device_->facts());
  plan.kernel = device_->load(request.image, spec, kernel_template.structure(spec, request.config));
  return with_workspace(std::move(plan));
}

DeviceBackend::Loaded DeviceBackend::with_workspace(Plan plan) const {
  Loaded loaded;
  loaded.plan = std::move(plan);
  const int64_t bytes = loaded.plan.launch.workspace_bytes;
  if (bytes > 0) {
    loaded.workspace = DeviceMemory(*device_, bytes);
    device_->fill(loaded.workspace.data(), 0, bytes, nullptr);
  }
  return loaded;
}

void DeviceBackend::launch(const Loaded& loaded, const Operands& operands) const {
  run(loaded.plan, operands, loaded.workspace.data(), loaded.workspace.bytes(), nullptr);
}

std::shared_ptr<DeviceBackend::Expected> DeviceBackend::kept_results() const {
  for (const std::shared_ptr<Expected>& one : of_the_host_)
    if (one->problem == problem_) return one;
  return nullptr;
}

// Makes the expected results. Makes none if the oracle needs a reference kernel and `reference` is
// nullopt. Results of the host are kept, since they take seconds.
void DeviceBackend::open_oracle(const std::optional<KernelRequest>& reference) {
  constexpr size_t kMostKept = 16;
  expected_ = kept_results();
  if (expected_) return;
  const Oracle& oracle = oracle_of(problem_);
  const bool is_of_host = !oracle.reference_spec(problem_, device_->target());
  if (!reference && !is_of_host) return;
  const auto made = std::make_shared<Expected>(Expected{problem_, nullptr});
  OracleBench bench{*device_, made->problem, *inputs_, nullptr};
  if (reference)
    bench.run_reference = [this, kernel = *reference](const Problem& part,
                                                      const Operands& operands) {
      launch(load(kernel, part), operands);
      device_->synchronize();
    };
  made->results = oracle.expect(bench);
  expected_ = made;
  if (!is_of_host) return;
  of_the_host_.push_front(made);
  if (of_the_host_.size() > kMostKept) of_the_host_.pop_back();
}

template <class Load, class Check>
Prepared DeviceBackend::enter(int id, const Load& load, const Check& check) {
  Prepared prepared;
  Loaded loaded;
  try {
    loaded = load();
  } catch (const Error& error) {
    prepared.fault = fault_of(error);
    return prepared;
  } catch (const std::bad_alloc&) {
    prepared.fault = Fault{TrialStatus::kOutOfResources, "out of host memory", false};
    return prepared;
  }
  prepared.info = loaded.plan.kernel->info();
  try {
    check(loaded, &prepared);
    if (!prepared.fault) prepared.estimate_us = loaded.estimate_us = estimate_us(loaded);
  } catch (const Error& error) {
    prepared.fault = fault_while_running(error);
  }
  if (!prepared.fault) loaded_[id] = std::move(loaded);
  return prepared;
}

void DeviceBackend::hold(const Loaded& loaded, Prepared* prepared) {
  if (!expected_) return;
  const CheckError error = check(loaded);
  prepared->error_max = error.max;
  prepared->error_mean = error.mean;
  std::optional<std::string> wrong = error.wrong;
  if (!wrong && problem_.backward.deterministic) wrong = compare_two_runs(loaded);
  if (wrong) prepared->fault = Fault{TrialStatus::kWrongResult, *wrong, false};
}

Prepared DeviceBackend::prepare(int id, const KernelRequest& request) {
  return enter(
      id, [&] { return load(request, problem_); },
      [this](const Loaded& loaded, Prepared* prepared) { hold(loaded, prepared); });
}

Prepared DeviceBackend::prepare_plan(int id, const Plan& plan) {
  return enter(
      id, [&] { return with_workspace(plan); },
      [this](const Loaded& loaded, Prepared* prepared) { hold(loaded, prepared); });
}

Prepared DeviceBackend::reload(int id, const KernelRequest& request) {
  return enter(
      id, [&] { return load(request, problem_); }, [](const Loaded&, Prepared*) {});
}

CheckError DeviceBackend::check(const Loaded& loaded) {
  return expected_->results->check([&](const Operands& operands) {
    launch(loaded, operands);
    device_->synchronize();
  });
}

std::optional<std::string> DeviceBackend::compare_two_runs(const Loaded& loaded) {
  const DeviceMemory& workspace = loaded.workspace;
  return difference_of_two_runs(
      *device_, problem_, *inputs_, [&](const Operands& operands, int stale) {
        if (workspace.bytes() > 0) {
          device_->fill(workspace.data(), stale, workspace.bytes(), nullptr);
          init_workspace(loaded.plan, workspace.data(), workspace.bytes(), nullptr);
        }
        launch(loaded, operands);
        device_->synchronize();
      });
}

double DeviceBackend::time_once_us(const Loaded& loaded, int launches) {
  const int first = next_set_;
  next_set_ = (next_set_ + launches) % inputs_->num_sets();
  return device_->time_us(launches, [&](int i) { launch(loaded, inputs_->set(first + i)); }) /
         launches;
}

// Estimates the time of one launch. The kernel is warm, because the check, or the first launch
// here, ran it.
double DeviceBackend::estimate_us(const Loaded& loaded) {
  const double us = time_once_us(loaded, 1);
  return std::min(us, time_once_us(loaded, launches_for(kShortSampleUs, us)));
}

Round DeviceBackend::round(const std::vector<int>& order, double sample_us) {
  Round round;
  for (int id : order) {
    Sample sample;
    sample.id = id;
    const Loaded& loaded = loaded_.at(id);
    try {
      sample.us = time_once_us(loaded, launches_for(sample_us, loaded.estimate_us));
    } catch (const Error& error) {
      sample.fault = fault_while_running(error);
      loaded_.erase(id);
    }
    round.samples.push_back(sample);
    if (sample.fault) break;
  }
  round.sm_clock_mhz = device_->sm_clock_mhz();
  return round;
}

void DeviceBackend::drop(int id) { loaded_.erase(id); }

}  // namespace attune
