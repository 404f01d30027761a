// SPDX-License-Identifier: Apache-2.0
// Reads heads, head dims and the scale; see config_parts.hpp.
#include "tuner/models/config_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace attune {

const Names kHeadNames{"num_attention_heads",
                       "n_head",
                       "n_heads",
                       "num_heads",
                       "attention_heads",
                       "encoder_attention_heads",
                       "decoder_attention_heads"};

const Names kHiddenNames{"hidden_size", "n_embd",  "n_embed",  "d_model",
                         "dim",         "emb_dim", "embed_dim"};

namespace {

constexpr Names kKvHeadNames{
    "num_key_value_heads", "num_kv_heads",         "n_head_kv",
    "n_kv_heads",          "num_attention_groups", "attn_config.kv_n_heads"};
constexpr Names kHeadDimNames{"head_dim", "attention_head_dim", "kv_channels",
                              "d_kv",     "dim_head",           "d_head"};

// Returns the number of KV heads. Falcon's configs state num_kv_heads even if multi_query makes it
// 1.
int kv_heads(const ModelFields& fields, int num_heads_q) {
  fields.ignore(kKvHeadNames);
  fields.ignore({"multi_query_group_num"});
  if (fields.is_text({"attn_config.attn_type"}) &&
      fields.text({"attn_config.attn_type"}) == "multiquery_attention")
    return 1;
  const bool counted = fields.flag({"new_decoder_architecture"}, false);
  const bool multi_query = fields.flag({"multi_query"}, false);
  if (multi_query && !counted) return 1;
  if (fields.flag({"multi_query_attention"}, false))
    return fields.integer({"multi_query_group_num"});
  return fields.integer(kKvHeadNames, num_heads_q);
}

// Returns the stated head dim, or hidden_size / heads, rounded down as transformers does.
int head_dim(const ModelFields& fields, Names hidden_names, int num_heads_q) {
  if (fields.has(kHeadDimNames)) return fields.integer(kHeadDimNames);
  const int hidden = fields.integer(hidden_names);
  if (hidden < num_heads_q)
    fields.refuse(hidden_names, fmt::format("at least num_attention_heads ({})", num_heads_q));
  return hidden / num_heads_q;
}

// Returns YaRN's factor for the scores of DeepSeek's models. YaRN rescales scores in addition to
// the rotation.
double yarn_factor(const ModelFields& fields) {
  const double all_dim =
      fields.number_or_zero({"rope_scaling.mscale_all_dim", "rope_parameters.mscale_all_dim"});
  const double factor = fields.number_or_zero({"rope_scaling.factor", "rope_parameters.factor"});
  if (all_dim == 0 || factor <= 1) return 1;
  const double mscale = 0.1 * all_dim * std::log(factor) + 1;
  return mscale * mscale;
}

}  // namespace

void set_scale(const ModelFields& fields, Problem* problem) {
  static constexpr Names kScale{"attention_multiplier", "attn_output_multiplier",
                                "attn_config.softmax_scale"};
  const double usual = 1 / std::sqrt(problem->head_dim_qk);
  double scale = usual;
  if (fields.has(kScale)) scale = fields.number(kScale);
  if (fields.has({"query_pre_attn_scalar"}))
    scale = 1 / std::sqrt(fields.number({"query_pre_attn_scalar"}));
  if (fields.has({"kv_lora_rank"})) scale *= yarn_factor(fields);
  if (std::fabs(scale - usual) > 1e-6) problem->softmax_scale = static_cast<float>(scale);
}

Problem self_attention(const ModelFields& fields, Names head_names, Names hidden_names) {
  Problem problem;
  problem.num_heads_q = fields.integer(head_names);
  if (fields.has({"kv_lora_rank"}) && fields.has({"qk_nope_head_dim"})) {
    // For prefill, K and V are expanded from their latent form: each query head has its own.
    problem.num_heads_kv = problem.num_heads_q;
    problem.head_dim_qk = fields.integer({"qk_nope_head_dim"}) + fields.count({"qk_rope_head_dim"});
    problem.head_dim_v = fields.integer({"v_head_dim"});
    fields.ignore({"num_key_value_heads", "head_dim", "qk_head_dim", "q_lora_rank"});
  } else {
    problem.num_heads_kv = kv_heads(fields, problem.num_heads_q);
    if (problem.num_heads_q % problem.num_heads_kv != 0)
      fields.refuse(kKvHeadNames,
                    fmt::format("a divisor of num_attention_heads ({})", problem.num_heads_q));
    problem.head_dim_qk = head_dim(fields, hidden_names, problem.num_heads_q);
    if (fields.has({"head_ratio"})) {  // ConvBERT: convolutions take the place of the other heads
      problem.num_heads_q = std::max(1, problem.num_heads_q / fields.integer({"head_ratio"}));
      problem.num_heads_kv = problem.num_heads_q;
      problem.head_dim_qk = head_dim(fields, hidden_names, problem.num_heads_q) / 2;
    }
    problem.head_dim_v = fields.integer({"v_head_dim"}, problem.head_dim_qk);
  }
  set_scale(fields, &problem);
  return problem;
}

}  // namespace attune
