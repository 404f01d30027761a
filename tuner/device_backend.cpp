// SPDX-License-Identifier: Apache-2.0
// Checking and timing on a Device; see device_backend.hpp.
#include "tuner/device_backend.hpp"

#include <algorithm>
#include <cmath>
#include <new>

#include "generator/core/error.hpp"
#include "generator/core/narrow_float.hpp"
#include "generator/template_registry.hpp"
#include "tuner/quantise_check.hpp"

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

// A kernel that failed on the device may have broken it.
Fault fault_while_running(const Error& error) {
  Fault fault = fault_of(error);
  fault.fatal = fault.status == TrialStatus::kLaunchFailed;
  return fault;
}

void* offset(void* data, int64_t elements, Dtype dtype) {
  return static_cast<char*>(data) + elements * dtype_bytes(dtype);
}

OperandView part_of(const OperandView& view, int64_t batch, int64_t row, int64_t head,
                    Dtype dtype) {
  OperandView part = view;
  part.data =
      offset(view.data, batch * view.batch_stride + row * view.row_stride + head * view.head_stride,
             dtype);
  return part;
}

ScaleView part_of(const ScaleView& view, int64_t batch, int64_t head) {
  ScaleView part = view;
  if (view.data != nullptr)
    part.data += batch * view.batch_stride + head / view.heads_per_scale * view.head_stride;
  return part;
}

}  // namespace

DeviceBackend::DeviceBackend(std::shared_ptr<const Device> device) : device_(std::move(device)) {}

void DeviceBackend::restart() {
  loaded_.clear();
  expected_.clear();
  expected_sums_.reset();
  inputs_.reset();
}

void DeviceBackend::open(const MeasureTask& task) {
  loaded_.clear();
  expected_.clear();
  expected_sums_.reset();
  if (!inputs_ || seed_ != task.seed) inputs_ = std::make_unique<Inputs>(*device_, task.seed);
  seed_ = task.seed;
  problem_ = task.problem;
  inputs_->open(problem_);
  if (task.reference) compute_expected(*task.reference);
}

DeviceBackend::Loaded DeviceBackend::load(const KernelRequest& request,
                                          const Problem& problem) const {
  const KernelTemplate& kernel_template = template_by_name(request.template_name);
  const KernelSpec spec = spec_of(problem);
  Loaded loaded;
  loaded.plan.problem = problem;
  loaded.plan.kernel_template = &kernel_template;
  loaded.plan.config = request.config;
  loaded.plan.device = device_;
  loaded.plan.launch =
      kernel_template.launch(spec, request.config, shape_of(problem), device_->facts());
  loaded.plan.kernel = device_->load(request.image, spec, loaded.plan.launch);
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

void DeviceBackend::compute_expected(const KernelRequest& reference) {
  const CheckPlan plan = check_plan(problem_, check_flops_limit(device_->target() == Target::kCpu));
  for (const CheckRegion& region : plan.regions)
    expected_.push_back(expect(reference, plan, region, inputs_->set(0)));
  if (!is_fp8(problem_)) return;
  Operands operands = inputs_->set(0);
  operands.v = inputs_->v_with_mean();
  expected_sums_ = expect(reference, plan, plan.regions.back(), operands);  // sees the most keys
}

DeviceBackend::Expected DeviceBackend::expect(const KernelRequest& reference, const CheckPlan& plan,
                                              const CheckRegion& region,
                                              const Operands& all) const {
  const Problem part = region_problem(problem_, plan, region);
  const int64_t rows = part.batch * part.seqlen_q * part.num_heads_q;
  Expected expected{region, std::vector<float>(static_cast<size_t>(rows * part.head_dim_v)),
                    std::vector<float>(static_cast<size_t>(rows))};
  const auto o_bytes = static_cast<int64_t>(expected.o.size() * sizeof(float));
  const auto lse_bytes = static_cast<int64_t>(expected.lse.size() * sizeof(float));
  const DeviceMemory o(*device_, o_bytes);
  const DeviceMemory lse(*device_, lse_bytes);
  const int ratio = problem_.num_heads_q / problem_.num_heads_kv;
  Operands operands = contiguous_operands(part, nullptr, nullptr, nullptr, o.data(),
                                          reinterpret_cast<float*>(lse.data()));
  operands.q = part_of(all.q, region.batch_begin, region.row_begin, region.kv_head_begin * ratio,
                       problem_.dtype_q);
  operands.k = part_of(all.k, region.batch_begin, 0, region.kv_head_begin, problem_.dtype_kv);
  operands.v = part_of(all.v, region.batch_begin, 0, region.kv_head_begin, problem_.dtype_kv);
  operands.k_scale = part_of(all.k_scale, region.batch_begin, region.kv_head_begin);
  operands.v_scale = part_of(all.v_scale, region.batch_begin, region.kv_head_begin);
  const DeviceMemory q_factors = q_factors_of(part, region, &operands.q_scale);
  launch(load(reference, part), operands);
  device_->synchronize();
  device_->copy_to_host(expected.o.data(), o.data(), o_bytes);
  device_->copy_to_host(expected.lse.data(), lse.data(), lse_bytes);
  return expected;
}

// Factors of q as the reference takes them: for each kSliceRows rows of the region.
DeviceMemory DeviceBackend::q_factors_of(const Problem& part, const CheckRegion& region,
                                         ScaleView* view) const {
  const int block = problem_.fp8.scale_block_q;
  const int64_t first_head = int64_t{region.kv_head_begin} * (part.num_heads_q / part.num_heads_kv);
  *view = part_of(inputs_->set(0).q_scale, region.batch_begin, first_head);
  if (block == 0) return {};
  const int64_t blocks = (part.seqlen_q + kSliceRows - 1) / kSliceRows;
  std::vector<float> factors;
  for (int64_t b = 0; b < part.batch; ++b)
    for (int64_t head = 0; head < part.num_heads_q; ++head)
      for (int64_t i = 0; i < blocks; ++i)
        factors.push_back(inputs_->q_factor(region.batch_begin + b, first_head + head,
                                            (region.row_begin + i * kSliceRows) / block));
  DeviceMemory memory(*device_, static_cast<int64_t>(factors.size() * sizeof(float)));
  device_->copy_to_device(memory.data(), factors.data(), memory.bytes());
  *view = {reinterpret_cast<float*>(memory.data()), part.num_heads_q * blocks, blocks, 1, 1};
  return memory;
}

template <class Check>
Prepared DeviceBackend::enter(int id, const KernelRequest& request, const Check& check) {
  Prepared prepared;
  Loaded loaded;
  try {
    loaded = load(request, problem_);
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

Prepared DeviceBackend::prepare(int id, const KernelRequest& request) {
  return enter(id, request, [this](const Loaded& loaded, Prepared* prepared) {
    if (expected_.empty() && !is_checked_on_host(problem_)) return;
    const CheckError error = check(loaded);
    prepared->error_max = error.max;
    prepared->error_mean = error.mean;
    if (error.wrong) prepared->fault = Fault{TrialStatus::kWrongResult, *error.wrong, false};
  });
}

Prepared DeviceBackend::reload(int id, const KernelRequest& request) {
  return enter(id, request, [](const Loaded&, Prepared*) {});
}

CheckError DeviceBackend::check(const Loaded& loaded) {
  const Operands operands = inputs_->poisoned();
  launch(loaded, operands);
  device_->synchronize();
  if (is_checked_on_host(problem_)) return check_quantised(*device_, problem_, operands);
  std::vector<float> lse(
      static_cast<size_t>(problem_.batch * problem_.num_heads_q * problem_.seqlen_q));
  device_->copy_to_host(lse.data(), operands.lse, static_cast<int64_t>(lse.size() * sizeof(float)));
  Comparison comparison(problem_, weights_on(device_->target()));
  for (const Expected& expected : expected_) compare(expected, lse, &comparison);
  CheckError error = comparison.result();
  if (expected_sums_ && !error.wrong) error.wrong = check_sums(loaded);
  return error;
}

std::optional<std::string> DeviceBackend::check_sums(const Loaded& loaded) {
  Operands operands = inputs_->poisoned();
  operands.v = inputs_->v_with_mean();
  launch(loaded, operands);
  device_->synchronize();
  LossComparison comparison;
  visit(*expected_sums_, [&](const float* want, const float* got, int64_t, const RowPlace&) {
    comparison.add(want, got, static_cast<size_t>(problem_.head_dim_v));
  });
  return comparison.wrong(problem_, weights_on(device_->target()));
}

template <class Row>
void DeviceBackend::visit(const Expected& expected, const Row& row) const {
  const CheckRegion& region = expected.region;
  const int ratio = problem_.num_heads_q / problem_.num_heads_kv;
  const int64_t heads = int64_t{region.num_kv_heads} * ratio;
  const int64_t rows = region.row_end - region.row_begin;
  const int64_t dim = problem_.head_dim_v;
  const int64_t row_elements = problem_.num_heads_q * dim;
  std::string bytes(static_cast<size_t>(rows * row_elements * dtype_bytes(problem_.dtype_o)), '\0');
  std::vector<float> got(static_cast<size_t>(dim));
  for (int64_t b = 0; b < region.num_batches; ++b) {
    const OperandView from =
        part_of(inputs_->set(0).o, region.batch_begin + b, region.row_begin, 0, problem_.dtype_o);
    device_->copy_to_host(bytes.data(), from.data, static_cast<int64_t>(bytes.size()));
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t head = region.kv_head_begin * ratio + h;
        for (int64_t i = 0; i < dim; ++i)
          got[static_cast<size_t>(i)] =
              load_element(problem_.dtype_o, bytes.data(), r * row_elements + head * dim + i);
        row(&expected.o[static_cast<size_t>(((b * rows + r) * heads + h) * dim)], got.data(),
            (b * heads + h) * rows + r,
            RowPlace{region.batch_begin + b, region.row_begin + r, head});
      }
    }
  }
}

void DeviceBackend::compare(const Expected& expected, const std::vector<float>& lse,
                            Comparison* comparison) const {
  visit(expected, [&](const float* want, const float* got, int64_t index, const RowPlace& place) {
    comparison->add_row(want, got, problem_.head_dim_v, place);
    const int64_t lse_at =
        (place.batch * problem_.num_heads_q + place.head) * problem_.seqlen_q + place.row;
    comparison->add_lse(expected.lse[static_cast<size_t>(index)], lse[static_cast<size_t>(lse_at)],
                        place);
  });
}

double DeviceBackend::time_once_us(const Loaded& loaded, int launches) {
  const int first = next_set_;
  next_set_ = (next_set_ + launches) % inputs_->num_sets();
  return device_->time_us(launches, [&](int i) { launch(loaded, inputs_->set(first + i)); }) /
         launches;
}

// The check, or the first launch here, was the warm-up.
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
