// SPDX-License-Identifier: Apache-2.0
// Converts the operands of a call from C, and fills them for tensors that are contiguous.
#include <fmt/format.h>

#include "generator/core/problem/op.hpp"
#include "runtime/c_api/c_support.hpp"
#include "runtime/operands/operands.hpp"

namespace attune::c_api {
namespace {

// Sizes of the first versions of the structs, up to the end of the last field at that time.
constexpr size_t kOperandsSize = offsetof(attune_operands, lse_head_stride) + sizeof(int64_t);

constexpr size_t kGradientsSize =
    offsetof(attune_gradient_operands, dlse_head_stride) + sizeof(int64_t);

// Maps a role to the member of a C struct that holds its tensor, or its scale factors.
template <class Struct, class Member>
struct InC {
  Role role;
  Member Struct::*member;
};
constexpr InC<attune_operands, attune_tensor> kTensors[] = {{Role::kQ, &attune_operands::q},
                                                            {Role::kK, &attune_operands::k},
                                                            {Role::kV, &attune_operands::v},
                                                            {Role::kO, &attune_operands::o}};
constexpr InC<attune_operands, attune_scale> kFactors[] = {
    {Role::kQScale, &attune_operands::q_scale},
    {Role::kKScale, &attune_operands::k_scale},
    {Role::kVScale, &attune_operands::v_scale},
    {Role::kOScale, &attune_operands::o_scale}};
constexpr InC<attune_gradient_operands, attune_tensor> kGradients[] = {
    {Role::kDout, &attune_gradient_operands::dout},
    {Role::kDq, &attune_gradient_operands::dq},
    {Role::kDk, &attune_gradient_operands::dk},
    {Role::kDv, &attune_gradient_operands::dv},
    {Role::kDscores, &attune_gradient_operands::dscores}};
constexpr InC<attune_append_operands, attune_tensor> kAppended[] = {
    {Role::kNewK, &attune_append_operands::k},
    {Role::kNewV, &attune_append_operands::v},
    {Role::kCos, &attune_append_operands::cos},
    {Role::kSin, &attune_append_operands::sin}};

constexpr InC<attune_cache_operands, attune_tensor> kGroups[] = {
    {Role::kKGroups, &attune_cache_operands::k_factors},
    {Role::kVGroups, &attune_cache_operands::v_factors}};

template <class Struct, size_t N>
inline void read_tensors(const Struct& c, const InC<Struct, attune_tensor> (&all)[N],
                         Operands* operands) {
  for (const auto& [role, member] : all) operands->*tensor_of(role) = view_of(c.*member);
}
template <class Struct, size_t N>
Struct filled(const Operands& operands, const InC<Struct, attune_tensor> (&all)[N]) {
  Struct c{};
  for (const auto& [role, member] : all) c.*member = tensor_of_view(operands.*tensor_of(role));
  return c;
}

ScaleView scale_of(const attune_scale& scale) {
  return {scale.data, scale.batch_stride, scale.head_stride, scale.block_stride,
          scale.heads_per_scale == 0 ? 1 : scale.heads_per_scale};
}

void read_gradients(const attune_gradient_operands* given, Operands* operands) {
  const attune_gradient_operands c =
      read_struct(given, "operands->gradients", attune_gradient_operands{}, kGradientsSize,
                  "attune_gradients_contiguous");
  read_tensors(c, kGradients, operands);
  operands->dlse = c.dlse;
  operands->dlse_batch_stride = c.dlse_batch_stride;
  operands->dlse_head_stride = c.dlse_head_stride;
}

// Returns contiguous operands without addresses for a problem of an op with `feature`. Refuses
// problems of other ops.
Operands contiguous_of(const attune_problem* problem, bool OpDescription::*feature,
                       const char* op) {
  const Problem p = problem_of(problem);
  validate(p);
  if (!(describe(p.op).*feature))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("problem->op is {}; must be {}", op_name(p.op), op));
  return contiguous_operands(p, nullptr, nullptr, nullptr, nullptr, nullptr);
}

// Converts the caller's operands. It is inlined, so that a run copies no operand twice.
inline Operands from_c(const attune_operands& c) {
  Operands operands;
  read_tensors(c, kTensors, &operands);
  for (const auto& [role, member] : kFactors) operands.*factors_of(role) = scale_of(c.*member);
  operands.lse = c.lse;
  operands.lse_batch_stride = c.lse_batch_stride;
  operands.lse_head_stride = c.lse_head_stride;
  if (c.gradients != nullptr) [[unlikely]]
    read_gradients(c.gradients, &operands);
  if (c.append != nullptr) [[unlikely]]
    read_tensors(read_append_operands(c.append), kAppended, &operands);
  if (c.cache != nullptr) [[unlikely]]
    read_tensors(read_cache_operands(c.cache), kGroups, &operands);
  return operands;
}

}  // namespace

attune_append_operands read_append_operands(const attune_append_operands* given) {
  constexpr size_t kAppendSize = offsetof(attune_append_operands, num_positions) + sizeof(int64_t);
  return read_struct(given, "operands->append", attune_append_operands{}, kAppendSize,
                     "attune_append_contiguous");
}

attune_cache_operands read_cache_operands(const attune_cache_operands* given) {
  constexpr size_t kCacheSize = offsetof(attune_cache_operands, slots) + sizeof(void*);
  return read_struct(given, "operands->cache", attune_cache_operands{}, kCacheSize, "sizeof");
}

Operands operands_of(const attune_operands* given) {
  if (given && given->size == sizeof(attune_operands)) [[likely]]
    return from_c(*given);
  return from_c(read_struct(given, "operands", attune_operands{}, kOperandsSize,
                            "attune_operands_contiguous"));
}

}  // namespace attune::c_api

using namespace attune;
using namespace attune::c_api;

extern "C" {

attune_status attune_operands_contiguous_sized(const attune_problem* problem, void* q, void* k,
                                               void* v, void* o, float* lse,
                                               attune_operands* operands, size_t size) {
  return guarded([&] {
    clear_struct(operands, "operands", size, kOperandsSize, "attune_operands_contiguous");
    const Problem p = problem_of(problem);
    validate(p);
    const Operands made = contiguous_operands(p, q, k, v, o, lse);
    attune_operands c = filled(made, kTensors);
    c.lse = lse;
    write_struct(c, operands, size);
  });
}

attune_status attune_gradients_contiguous_sized(const attune_problem* problem, void* dout, void* dq,
                                                void* dk, void* dv,
                                                attune_gradient_operands* gradients, size_t size) {
  return guarded([&] {
    clear_struct(gradients, "gradients", size, kGradientsSize, "attune_gradients_contiguous");
    Operands made = contiguous_of(problem, &OpDescription::has_gradients, "attention_backward");
    made.dout.data = dout;
    made.dq.data = dq;
    made.dk.data = dk;
    made.dv.data = dv;
    write_struct(filled(made, kGradients), gradients, size);
  });
}

attune_status attune_append_contiguous_sized(const attune_problem* problem, void* k, void* v,
                                             void* cos, void* sin, attune_append_operands* append,
                                             size_t size) {
  return guarded([&] {
    clear_struct(append, "append", size, sizeof(attune_append_operands),
                 "attune_append_contiguous");
    Operands made = contiguous_of(problem, &OpDescription::appends, "append_kv");
    made.k_new.data = k;
    made.v_new.data = v;
    made.cos.data = cos;
    made.sin.data = sin;
    write_struct(filled(made, kAppended), append, size);
  });
}

}  // extern "C"
