// SPDX-License-Identifier: Apache-2.0
// See backward_case.hpp.
#include "tests/templates/backward/backward_case.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "generator/core/problem/narrow_float.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "runtime/engine/plan.hpp"
#include "tuner/fuzz/device_run.hpp"

namespace attune::testing {
namespace {

constexpr int kNan = 0xFF;

}  // namespace

bool GradientTensors::has(Role role) const {
  return std::any_of(all.begin(), all.end(), [&](const auto& one) { return one.first == role; });
}

const HostTensor& GradientTensors::of(Role role) const {
  return std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.first == role; })
      ->second;
}

std::string difference(const HostTensor& found, const HostTensor& wanted, double tolerance) {
  double all_error = 0, all_square = 0, worst = 0;
  const auto columns = static_cast<size_t>(std::max<int64_t>(1, wanted.columns));
  std::vector<double> squares, errors;
  for (size_t first = 0; first < wanted.values.size(); first += columns) {
    double error = 0, square = 0;
    for (size_t i = first; i < first + columns; ++i) {
      if (!std::isfinite(found.values[i]))
        return fmt::format("element {} of row {} is {}", i - first, first / columns,
                           found.values[i]);
      error += std::pow(double{found.values[i]} - wanted.values[i], 2);
      square += std::pow(double{wanted.values[i]}, 2);
    }
    errors.push_back(error), squares.push_back(square);
    all_error += error, all_square += square;
  }
  const double mean = all_square / static_cast<double>(std::max<size_t>(1, squares.size()));
  size_t worst_row = 0;
  for (size_t row = 0; row < squares.size(); ++row) {
    const double relative = std::sqrt(errors[row] / (squares[row] + mean + 1e-12));
    if (relative > worst) worst = relative, worst_row = row;
  }
  const double relative = std::sqrt(all_error / (all_square + 1e-12));
  if (relative <= tolerance && worst <= 10 * tolerance) return "";
  return fmt::format("relative error {:.2e} of all, {:.2e} of row {} (of {}); at most {:.1e}",
                     relative, worst, worst_row, squares.size(), tolerance);
}

BackwardCase::BackwardCase(std::shared_ptr<const Device> device, const Problem& problem,
                           uint64_t seed, BackwardOptions options)
    : device_(std::move(device)), problem_(problem), options_(options) {
  Problem whole = problem;
  whole.backward.gradients = Gradients::kAll;
  for (const OperandSpec& spec : operands_of(whole))
    if (kind_of(spec.role) == OperandKind::kTensor)
      add(spec, seed * 16 + static_cast<uint64_t>(spec.role));
  const int64_t rows = problem.batch * problem.num_heads_q * problem.seqlen_q;
  lse_ = DeviceMemory(*device_, 4 * rows);
  if (options.dlse) {
    dlse_ = DeviceMemory(*device_, 4 * rows);
    const std::string values = normal_values(Dtype::kFp32, rows, seed + 77);
    device_->copy_to_device(dlse_.data(), values.data(), 4 * rows);
  }
  run_forward();
}

void BackwardCase::add(const OperandSpec& spec, uint64_t seed) {
  Tensor tensor{spec, contiguous_view(spec), {}};
  if (options_.heads_first) {
    tensor.view.row_stride = padded_row(spec.dtype, spec.columns);
    tensor.view.head_stride = spec.rows * tensor.view.row_stride;
  }
  const int64_t count = spec.batch * tensor.view.batch_stride;
  tensor.memory = DeviceMemory(*device_, count * dtype_bytes(spec.dtype));
  tensor.view.data = tensor.memory.data();
  std::string values = normal_values(spec.dtype, count, seed);
  if (spec.role == Role::kDout && options_.no_dout) std::fill(values.begin(), values.end(), '\0');
  device_->copy_to_device(tensor.memory.data(), values.data(), tensor.memory.bytes());
  tensors_.push_back(std::move(tensor));
}

void BackwardCase::run_forward() {
  Problem forward = problem_;
  forward.op = Op::kPrefill;
  forward.backward.gradients = Gradients::kAll;
  forward.backward.deterministic = false;
  const KernelTemplate& t =
      template_by_name(device_->target() == Target::kCpu ? "prefill_cpu" : "prefill_sm90");
  const Arch arch = arch_for(*device_, t, spec_of(forward));
  run_plan(forward, t,
           t.default_config(spec_of(forward), arch, shape_of(forward), device_->facts()));
}

void BackwardCase::run_plan(const Problem& problem, const KernelTemplate& t,
                            const Config& config) const {
  const KernelSpec spec = spec_of(problem);
  Plan plan;
  plan.problem = problem;
  plan.operands = operands_of(problem);
  plan.kernel_template = &t;
  plan.config = config;
  plan.device = device_;
  plan.launch = t.launch(spec, config, shape_of(problem), device_->facts());
  plan.kernel = device_->load(image(problem, t, config), spec, t.structure(spec, config));
  Operands operands{};
  for (const Tensor& tensor : tensors_) operands.*tensor_of(tensor.spec.role) = tensor.view;
  operands.lse = reinterpret_cast<float*>(lse_.data());
  operands.dlse = reinterpret_cast<const float*>(dlse_.data());
  const DeviceMemory workspace(*device_, plan.workspace_bytes());
  device_->fill(workspace.data(), kNan, std::max<int64_t>(plan.workspace_bytes(), 1), nullptr);
  init_workspace(plan, workspace.data(), plan.workspace_bytes(), nullptr);
  attune::run(plan, operands, workspace.data(), plan.workspace_bytes(), nullptr);
  device_->synchronize();
}

const KernelImage& BackwardCase::image(const Problem& problem, const KernelTemplate& t,
                                       const Config& config) const {
  const auto [at, is_new] =
      images_.try_emplace(fmt::format("{} {}", t.name(), config.to_text()), KernelImage{});
  if (is_new) {
    const KernelSpec spec = spec_of(problem);
    const Arch arch = arch_for(*device_, t, spec);
    at->second = device_->compiler().compile(render(t, spec, arch, config), arch);
  }
  return at->second;
}

std::string BackwardCase::fault(const KernelTemplate& t, const Config& config) const {
  if (const auto reason = t.unfit(spec_of(problem_), config, shape_of(problem_))) return *reason;
  try {
    return image_fault(image(problem_, t, config).info).value_or("");
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCompile) throw;
    return error.what();
  }
}

GradientTensors BackwardCase::run(const KernelTemplate& t, const Config& config) const {
  for (const Tensor& tensor : tensors_)
    if (tensor.spec.written)
      device_->fill(tensor.memory.data(), kNan, tensor.memory.bytes(), nullptr);
  run_plan(problem_, t, config);
  GradientTensors found;
  for (const OperandSpec& spec : operands_of(problem_))
    if (spec.written) found.all.emplace_back(spec.role, download(of(spec.role)));
  return found;
}

const BackwardCase::Tensor& BackwardCase::of(Role role) const {
  return *std::find_if(tensors_.begin(), tensors_.end(),
                       [&](const Tensor& tensor) { return tensor.spec.role == role; });
}

HostTensor BackwardCase::download(const Tensor& tensor) const {
  const OperandSpec& spec = tensor.spec;
  std::string bytes(static_cast<size_t>(tensor.memory.bytes()), '\0');
  device_->copy_to_host(bytes.data(), tensor.memory.data(), tensor.memory.bytes());
  HostTensor host{spec.heads, spec.rows, spec.columns, {}};
  for (int64_t b = 0; b < spec.batch; ++b)
    for (int64_t head = 0; head < spec.heads; ++head)
      for (int64_t row = 0; row < spec.rows; ++row)
        for (int64_t i = 0; i < spec.columns; ++i)
          host.values.push_back(load_element(spec.dtype, bytes.data(),
                                             b * tensor.view.batch_stride +
                                                 head * tensor.view.head_stride +
                                                 row * tensor.view.row_stride + i));
  return host;
}

std::string BackwardCase::sum_of_dv_fault(const GradientTensors& found) const {
  const HostTensor& dv = found.of(Role::kDv);
  const HostTensor dout = download(of(Role::kDout));
  const int64_t group = dout.heads / dv.heads;
  for (int64_t b = 0; b < problem_.batch; ++b)
    for (int64_t head = 0; head < dv.heads; ++head)
      for (int64_t i = 0; i < dv.columns; ++i) {
        double wanted = 0, sum = 0, square = 0;
        for (int64_t row = 0; row < dout.rows * group; ++row) {
          const int64_t at = row % dout.rows;
          const auto keys = visible_keys(problem_, problem_, at);
          if (keys.last < keys.first) continue;
          const double value = dout.at(b, head * group + row / dout.rows, at, i);
          wanted += value, square += value * value;
        }
        for (int64_t key = 0; key < dv.rows; ++key) sum += dv.at(b, head, key, i);
        if (!(std::abs(sum - wanted) <= 0.02 * std::sqrt(square) + 1e-3))
          return fmt::format("dv of column {} of head {} sums to {}, dout to {}", i, head, sum,
                             wanted);
      }
  return "";
}

std::string BackwardCase::inner_product_fault(const GradientTensors& found) const {
  double sums[2] = {0, 0}, square = 0;
  for (const auto& [side, tensor, gradient] :
       {std::tuple{0, Role::kQ, Role::kDq}, {1, Role::kK, Role::kDk}}) {
    const HostTensor values = download(of(tensor));
    const HostTensor& gradients = found.of(gradient);
    for (size_t i = 0; i < values.values.size(); ++i) {
      const double product = double{values.values[i]} * gradients.values[i];
      sums[side] += product, square += product * product;
    }
  }
  if (std::abs(sums[0] - sums[1]) <= 0.05 * std::sqrt(square)) return "";
  return fmt::format("<q, dq> is {}, <k, dk> {}", sums[0], sums[1]);
}

}  // namespace attune::testing
