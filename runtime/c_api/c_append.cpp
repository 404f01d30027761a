// SPDX-License-Identifier: Apache-2.0
// The C functions of op append_kv: its operands, and tables of rotary angles.
#include <fmt/format.h>

#include "generator/core/problem/op.hpp"
#include "runtime/c_api/c_scores.hpp"
#include "runtime/c_api/c_support.hpp"
#include "runtime/operands/operands.hpp"
#include "runtime/operands/rotary_table.hpp"

namespace attune::c_api {
namespace {

// Maps a role to the member of attune_append_operands that holds its tensor.
struct AppendInC {
  Role role;
  attune_tensor attune_append_operands::*tensor;
};
constexpr AppendInC kAppendInC[] = {{Role::kNewK, &attune_append_operands::k},
                                    {Role::kNewV, &attune_append_operands::v},
                                    {Role::kCos, &attune_append_operands::cos},
                                    {Role::kSin, &attune_append_operands::sin}};

constexpr size_t kRotarySize = offsetof(attune_rotary, frequencies) + sizeof(void*);

constexpr attune_rotary kDefaultRotary{.size = sizeof(attune_rotary),
                                       .rotary_dim = 0,
                                       .scaling = ATTUNE_ROTARY_PLAIN,
                                       .base = 10000,
                                       .factor = 1,
                                       .low_freq_factor = 1,
                                       .high_freq_factor = 4,
                                       .beta_fast = 32,
                                       .beta_slow = 1,
                                       .mscale = 0,
                                       .mscale_all_dim = 0,
                                       .attention_factor = 0,
                                       .original_max_position = 0,
                                       .frequencies = nullptr};

Rotary rotary_of(const attune_rotary* given) {
  const attune_rotary c =
      read_struct(given, "rotary", kDefaultRotary, kRotarySize, "attune_rotary_init");
  if (c.scaling < ATTUNE_ROTARY_PLAIN || c.scaling > ATTUNE_ROTARY_YARN)
    refuse(
        fmt::format("rotary.scaling is {}; must be ATTUNE_ROTARY_PLAIN, _LINEAR, _LLAMA3 "
                    "or _YARN",
                    c.scaling));
  Rotary rotary{.dim = c.rotary_dim,
                .scaling = static_cast<RotaryScaling>(c.scaling),
                .base = c.base,
                .factor = c.factor,
                .low_freq_factor = c.low_freq_factor,
                .high_freq_factor = c.high_freq_factor,
                .beta_fast = c.beta_fast,
                .beta_slow = c.beta_slow,
                .mscale = c.mscale,
                .mscale_all_dim = c.mscale_all_dim,
                .attention_factor = c.attention_factor,
                .original_max_position = c.original_max_position};
  check_rotary(rotary);
  if (c.frequencies != nullptr)
    rotary.frequencies.assign(c.frequencies, c.frequencies + c.rotary_dim / 2);
  return rotary;
}

}  // namespace

attune_append_operands read_append_operands(const attune_append_operands* given) {
  constexpr size_t kAppendSize = offsetof(attune_append_operands, num_positions) + sizeof(int64_t);
  return read_struct(given, "operands->append", attune_append_operands{}, kAppendSize,
                     "attune_append_contiguous");
}

bool flag(const char* field, int32_t value) {
  if (value != 0 && value != 1) refuse(fmt::format("{} is {}; must be 0 or 1", field, value));
  return value == 1;
}

void read_append(const attune_problem& c, Problem* p) {
  p->batch_invariant = flag("batch_invariant", c.batch_invariant);
  p->v_in_k = flag("v_in_k", c.v_in_k);
  p->rotary =
      checked<ScoreTensor>("rotary", c.rotary, ATTUNE_SCORE_TENSOR_NONE, ATTUNE_SCORE_TENSOR_FP16,
                           "ATTUNE_SCORE_TENSOR_NONE, ATTUNE_SCORE_TENSOR_FP32, _BF16 or _FP16");
  p->kv_factors =
      checked<KvFactors>("kv_factors", c.kv_factors, ATTUNE_KV_FACTORS_HEADS,
                         ATTUNE_KV_FACTORS_MADE, "ATTUNE_KV_FACTORS_HEADS, _KEYS or _MADE");
  p->rotary_dim = c.rotary_dim;
  p->rotary_interleaved = flag("rotary_interleaved", c.rotary_interleaved);
  p->rotary_q = flag("rotary_q", c.rotary_q);
}

void read_append_tensors(const attune_append_operands* given, Operands* operands) {
  const attune_append_operands c = read_append_operands(given);
  for (const auto& [role, tensor] : kAppendInC) operands->*tensor_of(role) = view_of(c.*tensor);
}

}  // namespace attune::c_api

using namespace attune;
using namespace attune::c_api;

extern "C" {

attune_status attune_append_contiguous_sized(const attune_problem* problem, void* k, void* v,
                                             void* cos, void* sin, attune_append_operands* append,
                                             size_t size) {
  return guarded([&] {
    clear_struct(append, "append", size, sizeof(attune_append_operands),
                 "attune_append_contiguous");
    const Problem p = problem_of(problem);
    validate(p);
    if (!describe(p.op).appends)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("problem->op is {}; must be append_kv", op_name(p.op)));
    Operands made = contiguous_operands(p, nullptr, nullptr, nullptr, nullptr, nullptr);
    made.k_new.data = k;
    made.v_new.data = v;
    made.cos.data = cos;
    made.sin.data = sin;
    attune_append_operands filled{};
    for (const auto& [role, tensor] : kAppendInC)
      filled.*tensor = tensor_of_view(made.*tensor_of(role));
    write_struct(filled, append, size);
  });
}

void attune_rotary_init_sized(attune_rotary* rotary, size_t size) {
  if (rotary) write_struct(kDefaultRotary, rotary, size);
}

attune_status attune_rotary_table(const attune_rotary* rotary, int64_t first_position,
                                  int64_t num_positions, float* cos, float* sin) {
  return guarded([&] {
    const Rotary asked = rotary_of(rotary);
    if (num_positions < 0 || first_position < 0)
      refuse(fmt::format("first_position is {} and num_positions is {}; must be at least 0",
                         first_position, num_positions));
    if (first_position > kMaxLength - std::min<int64_t>(num_positions, kMaxLength))
      refuse(
          fmt::format("first_position is {} and num_positions is {}; positions must be at most {}",
                      first_position, num_positions, kMaxLength));
    if (num_positions == 0) return;
    rotary_table(asked, first_position, num_positions, &not_null(cos, "cos"),
                 &not_null(sin, "sin"));
  });
}

}  // extern "C"
