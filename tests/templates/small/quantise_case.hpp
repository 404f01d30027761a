// SPDX-License-Identifier: Apache-2.0
// Op quantise as tests see it: operands of one problem in host memory, in some layout, and a
// compiled config that runs on them. Used by quantise_test.cpp.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "generator/core/problem/narrow_float.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/plan.hpp"
#include "tuner/measure/inputs.hpp"

namespace attune::testing {

constexpr uint8_t kStale = 0xA5;

enum class Layout { kContiguous, kHeadsFirst, kPadded };
using Draw = std::function<float(int64_t row, int64_t column)>;

// Operands of one problem in host memory; gaps of q are NaN, o and o_scale are stale.
struct QuantiseCase {
  Problem problem;
  Operands host;
  std::vector<char> q;
  std::vector<uint8_t> o;
  std::vector<float> o_scale;

  QuantiseCase(const Problem& p, Layout layout, const Draw& draw) : problem(p) {
    const int64_t rows = std::max<int64_t>(p.seqlen_q, 1);
    host = contiguous_operands(p, nullptr, nullptr, nullptr, nullptr, nullptr);
    const bool turned = p.fp8.v_layout == VLayout::kTransposed;
    if (layout == Layout::kHeadsFirst) {
      host.q.row_stride = padded_row(p.dtype_q, p.head_dim_qk);
      host.q.head_stride = rows * host.q.row_stride;
      if (!turned)
        host.o.row_stride = padded_row(p.dtype_o, p.head_dim_v),
        host.o.head_stride = rows * host.o.row_stride;
    } else if (layout == Layout::kPadded) {
      for (OperandView* view : {&host.q, &host.o}) {
        if (view == &host.o && turned)
          view->row_stride += 32, view->head_stride = p.head_dim_v * view->row_stride + 16;
        else
          view->head_stride += 16, view->row_stride = p.num_heads_q * view->head_stride + 48;
      }
      host.q.batch_stride = rows * host.q.row_stride + 16;
      host.o.batch_stride =
          (turned ? p.num_heads_q * host.o.head_stride : rows * host.o.row_stride) + 16;
    }
    q.resize(static_cast<size_t>(p.batch * host.q.batch_stride * dtype_bytes(p.dtype_q) + 64),
             char(0xFF));
    o.resize(static_cast<size_t>(p.batch * host.o.batch_stride + 64), kStale);
    const int64_t blocks =
        p.fp8.scale_block_q > 0 ? (rows + p.fp8.scale_block_q - 1) / p.fp8.scale_block_q : 1;
    host.o_scale = {nullptr, p.num_heads_q * blocks, blocks, 1, 1};
    o_scale.resize(static_cast<size_t>(p.batch * p.num_heads_q * blocks),
                   std::numeric_limits<float>::quiet_NaN());
    fill(draw);
    host.q.data = q.data();
    host.o.data = o.data();
    host.o_scale.data = o_scale.data();
  }

  void fill(const Draw& draw) {
    for (int64_t b = 0; b < problem.batch; ++b)
      for (int64_t row = 0; row < problem.seqlen_q; ++row)
        for (int64_t head = 0; head < problem.num_heads_q; ++head)
          for (int64_t i = 0; i < problem.head_dim_qk; ++i)
            store_element(
                problem.dtype_q, q.data(),
                b * host.q.batch_stride + row * host.q.row_stride + head * host.q.head_stride + i,
                draw(row, i));
  }

  int64_t o_index(int64_t b, int64_t row, int64_t head, int64_t i) const {
    const bool turned = problem.fp8.v_layout == VLayout::kTransposed;
    return b * host.o.batch_stride + head * host.o.head_stride +
           (turned ? i : row) * host.o.row_stride + (turned ? row : i);
  }
  uint8_t code(int64_t row, int64_t i) const {
    return o[static_cast<size_t>(o_index(0, row, 0, i))];
  }

  bool gaps_intact() const {
    std::vector<bool> element(o.size(), false);
    for (int64_t b = 0; b < problem.batch; ++b)
      for (int64_t row = 0; row < problem.seqlen_q; ++row)
        for (int64_t head = 0; head < problem.num_heads_q; ++head)
          for (int64_t i = 0; i < problem.head_dim_qk; ++i)
            element[static_cast<size_t>(o_index(b, row, head, i))] = true;
    for (size_t i = 0; i < o.size(); ++i)
      if (!element[i] && o[i] != kStale) return false;
    return true;
  }
};

template <class T>
inline DeviceMemory upload(const Device& device, const std::vector<T>& values) {
  DeviceMemory memory(device, static_cast<int64_t>(values.size() * sizeof(T)));
  device.copy_to_device(memory.data(), values.data(), memory.bytes());
  return memory;
}

template <class T>
inline void download(const Device& device, const DeviceMemory& memory, std::vector<T>* values) {
  device.copy_to_host(values->data(), memory.data(), memory.bytes());
}

// Compiles a config and runs it on cases of its spec.
class Quantiser {
 public:
  Quantiser(std::shared_ptr<const Device> device, const KernelTemplate& t, const Arch& arch,
            const KernelSpec& spec, const Config& config)
      : device_(std::move(device)),
        template_(t),
        spec_(spec),
        config_(config),
        image_(device_->compiler().compile(render(t, spec, arch, config), arch)) {}

  std::string fault() const { return image_fault(image_.info).value_or(""); }

  // Runs twice over stale outputs. Returns whether both runs gave the same codes.
  bool run(QuantiseCase* c) const {
    Plan plan;
    plan.problem = c->problem;
    plan.operands = operands_of(c->problem);
    plan.kernel_template = &template_;
    plan.config = config_;
    plan.device = device_;
    plan.launch = template_.launch(spec_, config_, shape_of(c->problem), device_->facts());
    plan.kernel = device_->load(image_, spec_, template_.structure(spec_, config_));
    const DeviceMemory q = upload(*device_, c->q), workspace(*device_, plan.workspace_bytes());
    device_->fill(workspace.data(), 0xFF, std::max<int64_t>(plan.workspace_bytes(), 1), nullptr);
    init_workspace(plan, workspace.data(), plan.workspace_bytes(), nullptr);
    const QuantiseCase stale = *c;
    std::vector<uint8_t> first;
    for (int repeat = 0; repeat < 2; ++repeat) {
      const DeviceMemory o = upload(*device_, stale.o), o_scale = upload(*device_, stale.o_scale);
      Operands operands = c->host;
      operands.q.data = q.data();
      operands.o.data = o.data();
      operands.o_scale.data = reinterpret_cast<float*>(o_scale.data());
      attune::run(plan, operands, workspace.data(), plan.workspace_bytes(), nullptr);
      device_->synchronize();
      download(*device_, o, &c->o);
      download(*device_, o_scale, &c->o_scale);
      if (repeat == 0) first = c->o;
    }
    return first == c->o;
  }

 private:
  std::shared_ptr<const Device> device_;
  const KernelTemplate& template_;
  const KernelSpec spec_;
  const Config config_;
  const KernelImage image_;
};

}  // namespace attune::testing
