// SPDX-License-Identifier: Apache-2.0
// attune for C++17: classes over attune.h that own their handles and throw attune::Error. Header
// only; link libattune.so. attune.h documents each call.
//
//   // q, k, v, o and stream (nullptr on a CPU) are yours; tensors are in the memory of the device.
//   attune::Context context;  // the GPU if there is one, else the CPU
//   attune::Problem problem("dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=1024");
//   attune::Plan plan = context.plan(problem);
//   void* workspace = allocate(plan.workspace_bytes());  // on the device, aligned to 256 bytes
//   plan.init_workspace(workspace, plan.workspace_bytes(), stream);  // once per buffer
//   plan.run(problem.contiguous(q, k, v, o), workspace, plan.workspace_bytes(), stream);
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "attune/attune_cascade.h"

namespace attune {
inline namespace api {

// A failed call: its status, and attune_last_error as what().
class Error : public std::runtime_error {
 public:
  Error(attune_status status, const std::string& message)
      : std::runtime_error(message), status_(status) {}
  attune_status status() const { return status_; }

 private:
  attune_status status_;
};

inline void check(attune_status status) {
  if (status != ATTUNE_OK) throw Error(status, attune_last_error());
}

struct Problem : attune_problem {
  Problem() { attune_problem_init(this); }
  explicit Problem(const std::string& text) { check(attune_problem_parse(text.c_str(), this)); }

  attune_operands contiguous(void* q, void* k, void* v, void* o, float* lse = nullptr) const {
    attune_operands operands;
    check(attune_operands_contiguous(this, q, k, v, o, lse, &operands));
    return operands;
  }
  // Describes the gradients of ATTUNE_ATTENTION_BACKWARD. Set operands.gradients to its address.
  attune_gradient_operands contiguous_gradients(void* dout, void* dq, void* dk, void* dv) const {
    attune_gradient_operands operands;
    check(attune_gradients_contiguous(this, dout, dq, dk, dv, &operands));
    return operands;
  }
  // Describes the new rows of ATTUNE_APPEND_KV. Set operands.append to its address.
  attune_append_operands contiguous_append(void* k, void* v, void* cos = nullptr,
                                           void* sin = nullptr) const {
    attune_append_operands rows;
    check(attune_append_contiguous(this, k, v, cos, sin, &rows));
    return rows;
  }
};

// Angles of rotary embeddings. Set the fields; table() then writes cos and sin
// [num_positions, rotary_dim / 2] on the host.
struct Rotary : attune_rotary {
  explicit Rotary(int dim, float rotary_base = 10000.0F) {
    attune_rotary_init(this);
    rotary_dim = dim;
    base = rotary_base;
  }
  void table(int64_t num_positions, float* cos, float* sin, int64_t first_position = 0) const {
    check(attune_rotary_table(this, first_position, num_positions, cos, sin));
  }
};

// Returns factors of an 8-bit operand in one contiguous array [batch, num_heads, blocks]. blocks is
// seqlen / scale_block, rounded up, or 1 if all rows of a head share a factor.
inline attune_scale contiguous_scale(float* data, int64_t num_heads, int64_t blocks = 1) {
  return {data, num_heads * blocks, blocks, 1, 1};
}

// A map of a problem's masks, in your memory (see attune_block_map_build):
//   attune::BlockMap map(problem);
//   map.data = allocate(map.bytes());  // on the device, aligned to 16 bytes
//   map.build(context, problem, &scores, stream);
//   problem.scores.block_map = ATTUNE_BLOCK_MAP_SKIPS;  // then make the plan for it
class Context;
struct BlockMap : attune_block_map {
  explicit BlockMap(const attune_problem& problem) { check(attune_block_map_init(&problem, this)); }
  std::size_t bytes() const { return attune_block_map_bytes(this); }
  inline void build(const Context& context, const attune_problem& problem,
                    const attune_score_operands* scores, void* stream = nullptr) const;
};

struct ContextOptions : attune_context_options {
  ContextOptions() { attune_context_options_init(this); }
};

// Owns a plan. Copies share the plan; the last copy releases it.
class Plan {
 public:
  explicit Plan(attune_plan* plan) : plan_(plan, attune_plan_release) {}

  attune_plan_info info() const {
    attune_plan_info info{};
    info.size = sizeof info;
    check(attune_plan_get_info(plan_.get(), &info));
    return info;
  }
  std::size_t workspace_bytes() const { return info().workspace_bytes; }
  std::string explain() const { return attune_plan_explain(plan_.get()); }
  void init_workspace(void* workspace, std::size_t bytes, void* stream = nullptr) const {
    check(attune_workspace_init(plan_.get(), workspace, bytes, stream));
  }
  void run(const attune_operands& operands, void* workspace, std::size_t workspace_bytes,
           void* stream = nullptr) const {
    check(attune_run(plan_.get(), &operands, workspace, workspace_bytes, stream));
  }
  attune_plan* get() const { return plan_.get(); }

 private:
  std::shared_ptr<attune_plan> plan_;
};

class Context {
 public:
  Context() : Context(ContextOptions{}) {}
  explicit Context(const attune_context_options& options) {
    attune_context* context = nullptr;
    check(attune_context_create(&options, &context));
    context_.reset(context);
  }

  Plan plan(const attune_problem& problem, const attune_operands* layout = nullptr) const {
    attune_plan* plan = nullptr;
    check(attune_plan_get(context_.get(), &problem, layout, &plan));
    return Plan(plan);
  }
  // Returns one line per template, with the reason if it refuses. Throws if all templates refuse.
  std::string check_problem(const attune_problem& problem) const {
    std::string reasons(4096, '\0');
    check(attune_problem_check(context_.get(), &problem, &reasons[0], reasons.size()));
    reasons.resize(reasons.find('\0'));
    return reasons;
  }
  void reload() const { check(attune_context_reload(context_.get())); }
  std::string device() const { return attune_context_device(context_.get()); }
  std::array<uint8_t, 32> pin_digest() const {
    std::array<uint8_t, 32> digest;
    check(attune_context_pin_digest(context_.get(), digest.data()));
    return digest;
  }
  attune_context* get() const { return context_.get(); }

 private:
  struct Destroy {
    void operator()(attune_context* context) const { attune_context_destroy(context); }
  };
  std::unique_ptr<attune_context, Destroy> context_;
};

// Owns a cascade (attune_cascade.h): levels of shared prefixes. Copies share the cascade.
class Cascade {
 public:
  Cascade(const Context& context, const std::vector<attune_problem>& levels,
          const attune_operands* const* layouts = nullptr)
      : num_levels_(levels.size()) {
    attune_cascade* cascade = nullptr;
    check(attune_cascade_get(context.get(), levels.data(), levels.size(), layouts, &cascade));
    cascade_.reset(cascade, attune_cascade_release);
  }
  std::size_t workspace_bytes() const { return attune_cascade_workspace_bytes(cascade_.get()); }
  void init_workspace(void* workspace, std::size_t bytes, void* stream = nullptr) const {
    check(attune_cascade_init(cascade_.get(), workspace, bytes, stream));
  }
  void run(const std::vector<const attune_operands*>& levels, void* workspace, std::size_t bytes,
           void* stream = nullptr) const {
    if (levels.size() != num_levels_)
      throw Error(ATTUNE_INVALID_ARGUMENT, "levels has " + std::to_string(levels.size()) +
                                               " operands; must be " + std::to_string(num_levels_) +
                                               ", one per level");
    check(attune_cascade_run(cascade_.get(), levels.data(), workspace, bytes, stream));
  }

 private:
  std::size_t num_levels_;
  std::shared_ptr<attune_cascade> cascade_;
};

inline void BlockMap::build(const Context& context, const attune_problem& problem,
                            const attune_score_operands* scores, void* stream) const {
  check(attune_block_map_build(context.get(), &problem, scores, this, stream));
}

}  // namespace api
}  // namespace attune
