// SPDX-License-Identifier: Apache-2.0
// The fields of attune_problem, a row each: where a field is in both structs, and what C may write
// into it. c_problem.cpp walks the rows in both directions. Only c_problem.cpp includes this file.
#pragma once

#include <algorithm>
#include <tuple>

#include "generator/core/problem/op.hpp"
#include "runtime/c_api/c_scores.hpp"
#include "runtime/c_api/c_support.hpp"

namespace attune::c_api {

inline constexpr const char* kDtypeNames =
    "ATTUNE_FP32, ATTUNE_BF16, ATTUNE_FP16, ATTUNE_E4M3, ATTUNE_E5M2, ATTUNE_INT8, ATTUNE_INT4 or "
    "ATTUNE_E2M1";
inline constexpr const char* kScoreTensorNames =
    "ATTUNE_SCORE_TENSOR_NONE, ATTUNE_SCORE_TENSOR_FP32, ATTUNE_SCORE_TENSOR_BF16 or "
    "ATTUNE_SCORE_TENSOR_FP16";
inline constexpr int32_t kAllGradients = ATTUNE_GRADIENT_Q | ATTUNE_GRADIENT_K | ATTUNE_GRADIENT_V;
inline constexpr int32_t kAllAxes =
    ATTUNE_REPEATS_BATCH | ATTUNE_REPEATS_HEADS | ATTUNE_REPEATS_ROWS | ATTUNE_REPEATS_KEYS;

// The name of a field in attune_problem, and functions that find its value in attune_problem and in
// Problem.
#define ATTUNE_FIELD(c_member, member) #c_member, ATTUNE_AT(c_member), ATTUNE_AT(member)
#define ATTUNE_SAME(member) ATTUNE_FIELD(member, member)
#define ATTUNE_AT(member) \
  [](auto& p) -> auto& { return p.member; }

// A field whose value is the same on both sides.
template <class InC, class At>
struct PlainField {
  const char* name;
  InC in_c;
  At at;

  void read(const attune_problem& c, Problem* p) const { at(*p) = in_c(c); }
  void write(const Problem& p, attune_problem* c) const { in_c(*c) = at(p); }
};

// An enumerator or a sum of bits, from 0 to `last`. `accepted` names the values in the message.
template <class InC, class At>
struct ChoiceField {
  const char* name;
  InC in_c;
  At at;
  int32_t last;
  const char* accepted;

  void read(const attune_problem& c, Problem* p) const {
    using Value = std::remove_reference_t<decltype(at(*p))>;
    at(*p) = checked<Value>(name, in_c(c), 0, last, accepted);
  }
  void write(const Problem& p, attune_problem* c) const { in_c(*c) = static_cast<int32_t>(at(p)); }
};

// A type that follows another one for ATTUNE_DTYPE_DEFAULT.
template <class InC, class At>
struct DtypeField {
  const char* name;
  InC in_c;
  At at;
  Dtype (*otherwise)(const Problem&);

  void read(const attune_problem& c, Problem* p) const {
    at(*p) = in_c(c) == ATTUNE_DTYPE_DEFAULT
                 ? otherwise(*p)
                 : checked<Dtype>(name, in_c(c), ATTUNE_FP32, ATTUNE_E2M1, kDtypeNames);
  }
  void write(const Problem& p, attune_problem* c) const { in_c(*c) = static_cast<int32_t>(at(p)); }
};

// A field with functions of its own.
template <class Read, class Write>
struct OtherField {
  Read read;
  Write write;
};

// A side of the window: every negative number means the same.
template <class InC, class At>
struct SideField {
  const char* name;
  InC in_c;
  At at;

  void read(const attune_problem& c, Problem* p) const { at(*p) = std::max<int64_t>(in_c(c), -1); }
  void write(const Problem& p, attune_problem* c) const { in_c(*c) = at(p); }
};

// A program of the score language.
template <class InC, class At>
struct ProgramField {
  const char* name;
  InC in_c;
  At at;
  score::Kind kind;

  void read(const attune_problem& c, Problem* p) const { at(*p) = digest_of(in_c(c)); }
  void write(const Problem& p, attune_problem* c) const { in_c(*c) = c_program(at(p), kind, name); }
};

// Rows of one kind.
template <class InC, class At>
constexpr PlainField<InC, At> plain(const char* name, InC in_c, At at) {
  return {name, in_c, at};
}
template <class InC, class At>
constexpr ChoiceField<InC, At> choice(const char* name, InC in_c, At at, int32_t last,
                                      const char* accepted) {
  return {name, in_c, at, last, accepted};
}
template <class InC, class At>
constexpr ChoiceField<InC, At> flag(const char* name, InC in_c, At at) {
  return {name, in_c, at, 1, "0 or 1"};
}
template <class InC, class At>
constexpr ChoiceField<InC, At> score_tensor(const char* name, InC in_c, At at) {
  return {name, in_c, at, ATTUNE_SCORE_TENSOR_FP16, kScoreTensorNames};
}

// All fields but `size` and `reserved`. A row may use the fields of earlier rows.
inline constexpr std::tuple kProblemFields{
    OtherField{[](const attune_problem& c, Problem* p) {
                 p->op = static_cast<Op>(c.op);
                 describe(p->op, "problem->op");  // refuses other values
               },
               [](const Problem& p, attune_problem* c) { c->op = static_cast<int32_t>(p.op); }},
    choice(ATTUNE_FIELD(dtype, dtype_q), ATTUNE_E2M1, kDtypeNames),
    DtypeField{ATTUNE_SAME(dtype_kv), [](const Problem& p) { return p.dtype_q; }},
    DtypeField{ATTUNE_SAME(dtype_o),
               [](const Problem& p) { return is_8_bit(p.dtype_q) ? Dtype::kBf16 : p.dtype_q; }},
    choice(ATTUNE_SAME(mask), ATTUNE_CAUSAL_BOTTOM_RIGHT,
           "ATTUNE_MASK_NONE, ATTUNE_CAUSAL_TOP_LEFT or ATTUNE_CAUSAL_BOTTOM_RIGHT"),
    plain(ATTUNE_SAME(head_dim_qk)), plain(ATTUNE_SAME(head_dim_v)),
    plain(ATTUNE_SAME(num_heads_q)), plain(ATTUNE_SAME(num_heads_kv)), plain(ATTUNE_SAME(batch)),
    plain(ATTUNE_SAME(seqlen_q)), plain(ATTUNE_SAME(seqlen_kv)),
    SideField{ATTUNE_SAME(window_left)}, SideField{ATTUNE_SAME(window_right)},
    OtherField{[](const attune_problem& c, Problem* p) {
                 if (c.softmax_scale != 0) p->softmax_scale = c.softmax_scale;
               },
               [](const Problem& p, attune_problem* c) {
                 c->softmax_scale = p.softmax_scale.value_or(0);
               }},
    // 8 bits
    choice(ATTUNE_FIELD(accuracy, fp8.accuracy), ATTUNE_SPLIT,
           "ATTUNE_ACCURATE, ATTUNE_FAST or ATTUNE_SPLIT"),
    choice(ATTUNE_FIELD(v_layout, fp8.v_layout), ATTUNE_V_TRANSPOSED,
           "ATTUNE_V_ROWS or ATTUNE_V_TRANSPOSED"),
    choice(ATTUNE_SAME(quantise.rotation), ATTUNE_ROTATION_HADAMARD,
           "ATTUNE_ROTATION_NONE or ATTUNE_ROTATION_HADAMARD"),
    plain(ATTUNE_FIELD(scale_block_q, fp8.scale_block_q)),
    plain(ATTUNE_FIELD(scale_block_kv, fp8.scale_block_kv)),
    // Scores
    plain(ATTUNE_SAME(scores.softcap)), score_tensor(ATTUNE_SAME(scores.bias)),
    score_tensor(ATTUNE_SAME(scores.relative_bias)), flag(ATTUNE_SAME(scores.alibi)),
    flag(ATTUNE_SAME(scores.mask_tensor)), flag(ATTUNE_SAME(scores.key_lengths)),
    flag(ATTUNE_SAME(scores.documents)), flag(ATTUNE_SAME(scores.prefix)),
    plain(ATTUNE_SAME(scores.chunk)), score_tensor(ATTUNE_SAME(scores.sinks)),
    choice(ATTUNE_SAME(scores.block_map), ATTUNE_BLOCK_MAP_HIDES,
           "ATTUNE_BLOCK_MAP_NONE, ATTUNE_BLOCK_MAP_SKIPS or ATTUNE_BLOCK_MAP_HIDES"),
    ProgramField{ATTUNE_SAME(scores.score_mod), score::Kind::kScore},
    ProgramField{ATTUNE_SAME(scores.mask_mod), score::Kind::kMask}, plain(ATTUNE_SAME(dropout)),
    flag(ATTUNE_SAME(max_logits)),
    // Caches
    plain(ATTUNE_SAME(cache.page_size)), flag(ATTUNE_SAME(cache.packed_q)),
    plain(ATTUNE_FIELD(cache.num_pages, num_pages)), flag(ATTUNE_SAME(cache.packed_kv)),
    flag(ATTUNE_SAME(cache.batch_invariant)), flag(ATTUNE_SAME(cache.v_in_k)),
    choice(ATTUNE_SAME(cache.kv_factors), ATTUNE_KV_FACTORS_COLUMNS32,
           "ATTUNE_KV_FACTORS_HEADS, _KEYS, _MADE, _LATENT, _COLUMNS16 or _COLUMNS32"),
    choice(ATTUNE_SAME(cache.key_indices), ATTUNE_KEY_INDICES_PLACES,
           "ATTUNE_KEY_INDICES_NONE, _POSITIONS or _PLACES"),
    plain(ATTUNE_FIELD(cache.listed_keys, listed_keys)), score_tensor(ATTUNE_SAME(append.rotary)),
    plain(ATTUNE_SAME(append.rotary_dim)), flag(ATTUNE_SAME(append.rotary_interleaved)),
    flag(ATTUNE_SAME(append.rotary_q)),
    // Gradients. All three named are the same as none named.
    OtherField{[](const attune_problem& c, Problem* p) {
                 p->backward.gradients = checked<Gradients>(
                     "backward.gradients", c.backward.gradients, 0, kAllGradients,
                     "a sum of ATTUNE_GRADIENT_Q, _K and _V, or 0 for all");
                 if (c.backward.gradients == kAllGradients) p->backward.gradients = Gradients::kAll;
               },
               [](const Problem& p, attune_problem* c) {
                 c->backward.gradients = static_cast<int32_t>(p.backward.gradients);
               }},
    choice(ATTUNE_SAME(backward.score_gradient), ATTUNE_SCORE_GRADIENT_LOAD_DIAGONALS,
           "ATTUNE_SCORE_GRADIENT_NONE, _BIAS, _RELATIVE_BIAS, _ALIBI, _SINKS, _LOAD or "
           "_LOAD_DIAGONALS"),
    plain(ATTUNE_SAME(backward.load)), flag(ATTUNE_SAME(backward.accumulate)),
    flag(ATTUNE_SAME(backward.deterministic)),
    choice(ATTUNE_SAME(backward.repeats), kAllAxes,
           "a sum of ATTUNE_REPEATS_BATCH, _HEADS, _ROWS and _KEYS")};

#undef ATTUNE_FIELD
#undef ATTUNE_SAME
#undef ATTUNE_AT

}  // namespace attune::c_api
