// SPDX-License-Identifier: Apache-2.0
// The C functions on problems and operands, and the names of statuses.
#include <fmt/format.h>

#include <algorithm>

#include "generator/core/problem/op.hpp"
#include "runtime/c_api/c_scores.hpp"
#include "runtime/c_api/c_support.hpp"
#include "runtime/operands/operands.hpp"

#define ATTUNE_STRINGIFY(x) #x
#define ATTUNE_VERSION_TEXT(x) ATTUNE_STRINGIFY(x)

namespace attune {

static_assert(ATTUNE_INVALID_ARGUMENT == static_cast<int>(ErrorCode::kInvalidArgument));
static_assert(ATTUNE_INTERNAL_ERROR == static_cast<int>(ErrorCode::kInternal));
static_assert(ATTUNE_WOULD_COMPILE == static_cast<int>(ErrorCode::kWouldCompile));
static_assert(ATTUNE_POLICY_STRICT == static_cast<int>(Policy::kStrict));
static_assert(ATTUNE_RUNG_REFERENCE == static_cast<int>(Rung::kReference));
static_assert(ATTUNE_FP16 == static_cast<int>(Dtype::kFp16) &&
              ATTUNE_BF16 == static_cast<int>(Dtype::kBf16));
static_assert(ATTUNE_E5M2 == static_cast<int>(Dtype::kE5m2));
static_assert(ATTUNE_INT8 == static_cast<int>(Dtype::kInt8));
static_assert(ATTUNE_KV_FACTORS_MADE == static_cast<int>(KvFactors::kMade));
static_assert(ATTUNE_FAST == static_cast<int>(Accuracy::kFast));
static_assert(ATTUNE_SPLIT == static_cast<int>(Accuracy::kSplit));
static_assert(ATTUNE_V_TRANSPOSED == static_cast<int>(VLayout::kTransposed));
static_assert(ATTUNE_ROTATION_HADAMARD == static_cast<int>(Rotation::kHadamard));
static_assert(ATTUNE_SCORE_TENSOR_FP16 == static_cast<int>(ScoreTensor::kFp16));
static_assert(ATTUNE_CAUSAL_BOTTOM_RIGHT == static_cast<int>(Mask::kCausalBottomRight));

namespace c_api {
namespace {

// Sizes of the first versions of the structs, up to the end of the last field at that time.
constexpr size_t kProblemSize = offsetof(attune_problem, softmax_scale) + sizeof(float);
constexpr size_t kOperandsSize = offsetof(attune_operands, lse_head_stride) + sizeof(int64_t);

constexpr size_t kGradientsSize =
    offsetof(attune_gradient_operands, dlse_head_stride) + sizeof(int64_t);

constexpr attune_problem kDefaultProblem{.size = sizeof(attune_problem),
                                         .dtype = ATTUNE_BF16,
                                         .mask = ATTUNE_MASK_NONE,
                                         .head_dim_qk = 128,
                                         .head_dim_v = 128,
                                         .num_heads_q = 1,
                                         .num_heads_kv = 1,
                                         .batch = 1,
                                         .seqlen_q = 0,
                                         .seqlen_kv = 0,
                                         .window_left = -1,
                                         .window_right = -1,
                                         .softmax_scale = 0,
                                         .reserved = 0,
                                         .op = ATTUNE_PREFILL,
                                         .dtype_kv = ATTUNE_DTYPE_DEFAULT,
                                         .dtype_o = ATTUNE_DTYPE_DEFAULT,
                                         .accuracy = ATTUNE_ACCURATE,
                                         .v_layout = ATTUNE_V_ROWS,
                                         .scale_block_q = 0,
                                         .scale_block_kv = 0,
                                         .rotation = ATTUNE_ROTATION_NONE,
                                         .softcap = 0,
                                         .bias = ATTUNE_SCORE_TENSOR_NONE,
                                         .relative_bias = ATTUNE_SCORE_TENSOR_NONE,
                                         .alibi = 0,
                                         .mask_tensor = 0,
                                         .key_lengths = 0,
                                         .documents = 0,
                                         .prefix = 0,
                                         .chunk = 0,
                                         .score_mod = nullptr,
                                         .mask_mod = nullptr,
                                         .sinks = ATTUNE_SCORE_TENSOR_NONE,
                                         .block_map = ATTUNE_BLOCK_MAP_NONE,
                                         .gradients = 0,
                                         .dropout = 0,
                                         .page_size = 0,
                                         .packed_q = 0,
                                         .num_pages = 0,
                                         .packed_kv = 0,
                                         .score_gradient = ATTUNE_SCORE_GRADIENT_NONE,
                                         .repeats = 0,
                                         .accumulate = 0,
                                         .batch_invariant = 0,
                                         .rotary = ATTUNE_SCORE_TENSOR_NONE,
                                         .rotary_dim = 0,
                                         .rotary_interleaved = 0,
                                         .rotary_q = 0,
                                         .v_in_k = 0,
                                         .load = 0,
                                         .deterministic = 0,
                                         .kv_factors = ATTUNE_KV_FACTORS_HEADS};

// Returns the member of attune_operands that holds the tensor of a role, like tensor_of.
constexpr attune_tensor attune_operands::*tensor_in_c(Role role) {
  switch (role) {
    case Role::kQ:
      return &attune_operands::q;
    case Role::kK:
      return &attune_operands::k;
    case Role::kV:
      return &attune_operands::v;
    default:
      return &attune_operands::o;
  }
}
// Maps a role to the member of attune_gradient_operands that holds its tensor.
struct GradientInC {
  Role role;
  attune_tensor attune_gradient_operands::*tensor;
};
constexpr GradientInC kGradientsInC[] = {{Role::kDout, &attune_gradient_operands::dout},
                                         {Role::kDq, &attune_gradient_operands::dq},
                                         {Role::kDk, &attune_gradient_operands::dk},
                                         {Role::kDv, &attune_gradient_operands::dv},
                                         {Role::kDscores, &attune_gradient_operands::dscores}};
constexpr attune_scale attune_operands::*factors_in_c(Role role) {
  switch (role) {
    case Role::kQScale:
      return &attune_operands::q_scale;
    case Role::kKScale:
      return &attune_operands::k_scale;
    case Role::kVScale:
      return &attune_operands::v_scale;
    default:
      return &attune_operands::o_scale;
  }
}

ScaleView scale_of(const attune_scale& scale) {
  return {scale.data, scale.batch_stride, scale.head_stride, scale.block_stride,
          scale.heads_per_scale == 0 ? 1 : scale.heads_per_scale};
}

void read_gradients(const attune_gradient_operands* given, Operands* operands) {
  const attune_gradient_operands c =
      read_struct(given, "operands->gradients", attune_gradient_operands{}, kGradientsSize,
                  "attune_gradients_contiguous");
  for (const auto& [role, tensor] : kGradientsInC) operands->*tensor_of(role) = view_of(c.*tensor);
  operands->dlse = c.dlse;
  operands->dlse_batch_stride = c.dlse_batch_stride;
  operands->dlse_head_stride = c.dlse_head_stride;
}

// Converts the caller's operands. It is inlined, so that a run copies no operand twice.
inline Operands from_c(const attune_operands& c) {
  Operands operands;
  for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kO})
    operands.*tensor_of(role) = view_of(c.*tensor_in_c(role));
  for (const auto& [role, unused] : kFactorRoles)
    operands.*factors_of(role) = scale_of(c.*factors_in_c(role));
  operands.lse = c.lse;
  operands.lse_batch_stride = c.lse_batch_stride;
  operands.lse_head_stride = c.lse_head_stride;
  if (c.gradients != nullptr) [[unlikely]]
    read_gradients(c.gradients, &operands);
  if (c.append != nullptr) [[unlikely]]
    read_append_tensors(c.append, &operands);
  return operands;
}

constexpr const char* kDtypeNames =
    "ATTUNE_FP32, ATTUNE_BF16, ATTUNE_FP16, ATTUNE_E4M3, ATTUNE_E5M2 or ATTUNE_INT8";

Dtype dtype_or(const char* field, int32_t value, Dtype otherwise) {
  if (value == ATTUNE_DTYPE_DEFAULT) return otherwise;
  return checked<Dtype>(field, value, ATTUNE_FP32, ATTUNE_INT8, kDtypeNames);
}

Fp8Options fp8_of(const attune_problem& c) {
  Fp8Options fp8;
  fp8.accuracy = checked<Accuracy>("accuracy", c.accuracy, ATTUNE_ACCURATE, ATTUNE_SPLIT,
                                   "ATTUNE_ACCURATE, ATTUNE_FAST or ATTUNE_SPLIT");
  fp8.v_layout = checked<VLayout>("v_layout", c.v_layout, ATTUNE_V_ROWS, ATTUNE_V_TRANSPOSED,
                                  "ATTUNE_V_ROWS or ATTUNE_V_TRANSPOSED");
  fp8.rotation =
      checked<Rotation>("rotation", c.rotation, ATTUNE_ROTATION_NONE, ATTUNE_ROTATION_HADAMARD,
                        "ATTUNE_ROTATION_NONE or ATTUNE_ROTATION_HADAMARD");
  fp8.scale_block_q = c.scale_block_q;
  fp8.scale_block_kv = c.scale_block_kv;
  return fp8;
}

}  // namespace

attune_problem c_problem(const Problem& p) {
  return {.size = sizeof(attune_problem),
          .dtype = static_cast<int32_t>(p.dtype_q),
          .mask = static_cast<int32_t>(p.mask),
          .head_dim_qk = p.head_dim_qk,
          .head_dim_v = p.head_dim_v,
          .num_heads_q = p.num_heads_q,
          .num_heads_kv = p.num_heads_kv,
          .batch = p.batch,
          .seqlen_q = p.seqlen_q,
          .seqlen_kv = p.seqlen_kv,
          .window_left = p.window_left,
          .window_right = p.window_right,
          .softmax_scale = p.softmax_scale.value_or(0),
          .reserved = 0,
          .op = static_cast<int32_t>(p.op),
          .dtype_kv = static_cast<int32_t>(p.dtype_kv),
          .dtype_o = static_cast<int32_t>(p.dtype_o),
          .accuracy = static_cast<int32_t>(p.fp8.accuracy),
          .v_layout = static_cast<int32_t>(p.fp8.v_layout),
          .scale_block_q = p.fp8.scale_block_q,
          .scale_block_kv = p.fp8.scale_block_kv,
          .rotation = static_cast<int32_t>(p.fp8.rotation),
          .softcap = p.softcap,
          .bias = static_cast<int32_t>(p.bias),
          .relative_bias = static_cast<int32_t>(p.relative_bias),
          .alibi = p.alibi ? 1 : 0,
          .mask_tensor = p.mask_tensor ? 1 : 0,
          .key_lengths = p.key_lengths ? 1 : 0,
          .documents = p.documents ? 1 : 0,
          .prefix = p.prefix ? 1 : 0,
          .chunk = p.chunk,
          .score_mod = c_program(p.score_mod, score::Kind::kScore, "score_mod"),
          .mask_mod = c_program(p.mask_mod, score::Kind::kMask, "mask_mod"),
          .sinks = static_cast<int32_t>(p.sinks),
          .block_map = static_cast<int32_t>(p.block_map),
          .gradients = static_cast<int32_t>(p.gradients),
          .dropout = p.dropout,
          .page_size = p.page_size,
          .packed_q = p.packed_q ? 1 : 0,
          .num_pages = p.num_pages,
          .packed_kv = p.packed_kv ? 1 : 0,
          .score_gradient = static_cast<int32_t>(p.score_gradient),
          .repeats = static_cast<int32_t>(p.repeats),
          .accumulate = p.accumulate ? 1 : 0,
          .batch_invariant = p.batch_invariant ? 1 : 0,
          .rotary = static_cast<int32_t>(p.rotary),
          .rotary_dim = p.rotary_dim,
          .rotary_interleaved = p.rotary_interleaved ? 1 : 0,
          .rotary_q = p.rotary_q ? 1 : 0,
          .v_in_k = p.v_in_k ? 1 : 0,
          .load = p.load,
          .deterministic = p.deterministic ? 1 : 0,
          .kv_factors = static_cast<int32_t>(p.kv_factors)};
}

Problem problem_of(const attune_problem* given) {
  const attune_problem c =
      read_struct(given, "problem", kDefaultProblem, kProblemSize, "attune_problem_init");
  Problem p;
  p.op = static_cast<Op>(c.op);
  describe(p.op, "problem->op");  // refuses other values
  p.dtype_q = checked<Dtype>("dtype", c.dtype, ATTUNE_FP32, ATTUNE_INT8, kDtypeNames);
  p.dtype_kv = dtype_or("dtype_kv", c.dtype_kv, p.dtype_q);
  p.dtype_o = dtype_or("dtype_o", c.dtype_o, is_8_bit(p.dtype_q) ? Dtype::kBf16 : p.dtype_q);
  p.mask = checked<Mask>("mask", c.mask, ATTUNE_MASK_NONE, ATTUNE_CAUSAL_BOTTOM_RIGHT,
                         "ATTUNE_MASK_NONE, ATTUNE_CAUSAL_TOP_LEFT or ATTUNE_CAUSAL_BOTTOM_RIGHT");
  p.fp8 = fp8_of(c);
  p.head_dim_qk = c.head_dim_qk;
  p.head_dim_v = c.head_dim_v;
  p.num_heads_q = c.num_heads_q;
  p.num_heads_kv = c.num_heads_kv;
  p.batch = c.batch;
  p.seqlen_q = c.seqlen_q;
  p.seqlen_kv = c.seqlen_kv;
  p.window_left = std::max<int64_t>(c.window_left, -1);
  p.window_right = std::max<int64_t>(c.window_right, -1);
  if (c.softmax_scale != 0) p.softmax_scale = c.softmax_scale;
  read_scores(c, &p);
  p.dropout = c.dropout;
  p.page_size = c.page_size;
  p.packed_q = flag("packed_q", c.packed_q);
  p.num_pages = c.num_pages;
  p.packed_kv = flag("packed_kv", c.packed_kv);
  read_append(c, &p);
  constexpr int32_t kAllGradients = ATTUNE_GRADIENT_Q | ATTUNE_GRADIENT_K | ATTUNE_GRADIENT_V;
  p.gradients = checked<Gradients>("gradients", c.gradients, 0, kAllGradients,
                                   "a sum of ATTUNE_GRADIENT_Q, _K and _V, or 0 for all");
  if (c.gradients == kAllGradients) p.gradients = Gradients::kAll;
  p.score_gradient = checked<ScoreGradient>(
      "score_gradient", c.score_gradient, ATTUNE_SCORE_GRADIENT_NONE,
      ATTUNE_SCORE_GRADIENT_LOAD_DIAGONALS,
      "ATTUNE_SCORE_GRADIENT_NONE, _BIAS, _RELATIVE_BIAS, _ALIBI, _SINKS, _LOAD or "
      "_LOAD_DIAGONALS");
  p.load = c.load;
  p.accumulate = flag("accumulate", c.accumulate);
  p.deterministic = flag("deterministic", c.deterministic);
  constexpr int32_t kAllAxes =
      ATTUNE_REPEATS_BATCH | ATTUNE_REPEATS_HEADS | ATTUNE_REPEATS_ROWS | ATTUNE_REPEATS_KEYS;
  p.repeats = checked<Repeats>("repeats", c.repeats, 0, kAllAxes,
                               "a sum of ATTUNE_REPEATS_BATCH, _HEADS, _ROWS and _KEYS");
  return p;
}

// Refuses a parsed problem that a struct of an older header cannot hold: fields that came later
// must have their defaults.
void refuse_if_cut(const attune_problem& whole, size_t size, const Problem& parsed) {
  attune_problem cut = kDefaultProblem;
  std::memcpy(&cut, &whole, size);
  cut.size = sizeof(cut);
  bool same = false;
  try {
    same = to_text(problem_of(&cut)) == to_text(parsed);
  } catch (const Error&) {  // without the later fields the problem may be invalid
  }
  if (!same)
    refuse(
        fmt::format("text sets fields that a problem of {} bytes does not have; compile the "
                    "program with the headers of attune {}",
                    size, attune_version()));
}

Operands operands_of(const attune_operands* given) {
  if (given && given->size == sizeof(attune_operands)) [[likely]]
    return from_c(*given);
  return from_c(read_struct(given, "operands", attune_operands{}, kOperandsSize,
                            "attune_operands_contiguous"));
}

}  // namespace c_api
}  // namespace attune

using namespace attune;
using namespace attune::c_api;

extern "C" {

const char* attune_version(void) { return ATTUNE_VERSION_TEXT(ATTUNE_PROJECT_VERSION); }
int32_t attune_abi_version(void) { return ATTUNE_ABI_VERSION; }

const char* attune_status_name(attune_status status) {
  if (status == ATTUNE_OK) return "ok";
  if (status < ATTUNE_OK || status > ATTUNE_INTERNAL_ERROR) return "unknown";
  return error_code_name(static_cast<ErrorCode>(status));
}

void attune_problem_init_sized(attune_problem* problem, size_t size) {
  if (problem) write_struct(kDefaultProblem, problem, size);
}

attune_status attune_problem_parse_sized(const char* text, attune_problem* problem, size_t size) {
  return guarded([&] {
    const Problem parsed = parse_problem(&not_null(text, "text"));
    if (size < kProblemSize || size > kLargestStruct)
      refuse_size("problem", size, kProblemSize, "attune_problem_parse");
    const attune_problem whole = c_problem(parsed);
    if (size < sizeof(whole)) refuse_if_cut(whole, size, parsed);
    write_struct(whole, &not_null(problem, "problem"), size);
  });
}

attune_status attune_operands_contiguous_sized(const attune_problem* problem, void* q, void* k,
                                               void* v, void* o, float* lse,
                                               attune_operands* operands, size_t size) {
  return guarded([&] {
    clear_struct(operands, "operands", size, kOperandsSize, "attune_operands_contiguous");
    const Problem p = problem_of(problem);
    validate(p);
    const Operands made = contiguous_operands(p, q, k, v, o, lse);
    attune_operands filled{};
    for (const Role role : {Role::kQ, Role::kK, Role::kV, Role::kO})
      filled.*tensor_in_c(role) = tensor_of_view(made.*tensor_of(role));
    filled.lse = lse;
    write_struct(filled, operands, size);
  });
}

attune_status attune_gradients_contiguous_sized(const attune_problem* problem, void* dout, void* dq,
                                                void* dk, void* dv,
                                                attune_gradient_operands* gradients, size_t size) {
  return guarded([&] {
    clear_struct(gradients, "gradients", size, kGradientsSize, "attune_gradients_contiguous");
    const Problem p = problem_of(problem);
    validate(p);
    if (!describe(p.op).has_gradients)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("problem->op is {}; must be attention_backward", op_name(p.op)));
    Operands made = contiguous_operands(p, nullptr, nullptr, nullptr, nullptr, nullptr);
    made.dout.data = dout;
    made.dq.data = dq;
    made.dk.data = dk;
    made.dv.data = dv;
    attune_gradient_operands filled{};
    for (const auto& [role, tensor] : kGradientsInC)
      filled.*tensor = tensor_of_view(made.*tensor_of(role));
    write_struct(filled, gradients, size);
  });
}

}  // extern "C"
