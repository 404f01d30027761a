// SPDX-License-Identifier: Apache-2.0
// Specs of op attention_backward that add to fp32, or that give gradients of tensors which scores
// read. Used by compile_matrix_test.cpp.
#pragma once

#include <fmt/format.h>

#include <vector>

#include "generator/core/problem/kernel_spec.hpp"
#include "generator/score/language/user_program.hpp"

namespace attune::testing {

// Adds specs of gradients that are accumulated.
inline void add_sums_of_gradients(std::vector<KernelSpec>* specs) {
  for (const char* dims :
       {"head_dim=64", "head_dim=128", "head_dim=256", "head_dim_qk=192,head_dim_v=128"})
    for (const char* heads : {"fp16,heads=1/1", "bf16,heads=7/1,dropout=0.1"})
      specs->push_back(spec_of(parse_problem(fmt::format(
          "op=attention_backward,dtype={},{},seqlen=4096,mask=causal_bottom_right,accumulate=1",
          heads, dims))));
}

// Adds specs of gradients of biases, slopes and sinks: written, summed over tiles, or computed from
// row statistics.
inline void add_score_gradient_specs(std::vector<KernelSpec>* specs) {
  constexpr const char* kGradients[] = {"bias=bf16,score_gradient=bias",
                                        "bias=fp32,score_gradient=bias,repeats=bh",
                                        "bias=bf16,alibi=1,score_gradient=bias,repeats=q",
                                        "relative_bias=fp32,score_gradient=relative_bias",
                                        "alibi=1,softcap=30,score_gradient=alibi,repeats=b",
                                        "sinks=bf16,score_gradient=sinks",
                                        "bias=bf16,documents=1,score_gradient=bias,dropout=0.1"};
  for (const char* dims : {"head_dim=64", "head_dim=72", "head_dim=128", "head_dim=256",
                           "head_dim_qk=192,head_dim_v=128"})
    for (const char* gradient : kGradients)
      for (const char* heads : {"fp16,heads=1/1", "bf16,heads=7/1"})
        specs->push_back(spec_of(parse_problem(
            fmt::format("op=attention_backward,dtype={},{},seqlen=4096,mask={},{}", heads, dims,
                        specs->size() % 2 ? "causal_bottom_right" : "none", gradient))));
}

// Adds specs of gradients of a program's loads, by element and along diagonals.
inline void add_load_gradient_specs(std::vector<KernelSpec>* specs) {
  constexpr const char* kText =
      "// capture table: fp32[2]\n// capture keys: bf16[1]\n"
      "return tanh(score * table[head][q_idx - kv_idx + 4096]) * keys[kv_idx];";
  for (const char* dims : {"head_dim=64", "head_dim=128", "head_dim=256"})
    for (const char* gradient :
         {"score_gradient=load_diagonals", "score_gradient=load,load=1,repeats=bhq",
          "score_gradient=load,load=1,softcap=20,documents=1", "score_gradient=load,dropout=0.1"})
      specs->push_back(spec_of(parse_problem(fmt::format(
          "op=attention_backward,dtype=bf16,heads=8/2,{},seqlen=4096,mask=causal_bottom_right,{},"
          "score_mod={}",
          dims, gradient,
          to_text(read_user_program(kText, score::Kind::kScore, "score_mod").digest)))));
}

}  // namespace attune::testing
