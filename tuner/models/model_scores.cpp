// SPDX-License-Identifier: Apache-2.0
// Reads score features; see model_scores.hpp.
#include "tuner/models/model_scores.hpp"

#include <fmt/format.h>

#include <cmath>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

// Returns the type of a model's biases, which is the type in which the model runs.
ScoreTensor tensor_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::kBf16:
      return ScoreTensor::kBf16;
    case Dtype::kFp16:
      return ScoreTensor::kFp16;
    default:
      return ScoreTensor::kFp32;
  }
}

// A prefix makes keys visible that a causal mask hides, so it replaces the causal mask.
void set_prefix(Problem* problem) {
  problem->mask = Mask::kNone;
  problem->scores.prefix = true;
}

// Baichuan's 13B models have ALiBi and its 7B models have rotary positions, but both have the same
// model_type.
void set_baichuan_positions(const ModelFields& fields, Problem* problem, ModelScores* scores) {
  constexpr int kHiddenOf7B = 4096;
  const int hidden = fields.integer({"hidden_size"});
  problem->scores.alibi = hidden != kHiddenOf7B;
  scores->assumptions.push_back(fmt::format(
      "its config does not state the kind of positions; from hidden_size ({}) attune assumes {}",
      hidden,
      problem->scores.alibi ? "ALiBi, as in the 13B model"
                            : "rotary positions, as in the 7B model"));
}

// Reads one of the words of ModelRow::scores.
void read_word(std::string_view word, const ModelFields& fields, bool in_window, Problem* problem,
               ModelScores* scores) {
  if (word == "relative_bias") {
    problem->scores.relative_bias = tensor_of(problem->dtype_o);
  } else if (word == "bias") {
    problem->scores.bias = tensor_of(problem->dtype_o);
  } else if (word == "prefix") {
    set_prefix(problem);
  } else if (word == "alibi_of_13b") {
    set_baichuan_positions(fields, problem, scores);
  } else if (word == "image_tokens") {
    scores->sees_images = true;
    fields.ignore({"mm_tokens_per_image"});
  } else if (word == "half_scale") {
    problem->softmax_scale = std::sqrt(2.0F / static_cast<float>(problem->head_dim_qk));
  } else if (word == "inverse_scale") {
    problem->softmax_scale = 1.0F / static_cast<float>(problem->head_dim_qk);
  } else if (word == "twice_kv_in_windows") {
    if (in_window && !fields.has({"swa_num_key_value_heads"})) problem->num_heads_kv *= 2;
  } else if (word == "repeated_kv") {
    problem->num_heads_kv = problem->num_heads_q;
  } else if (word == "sinks" || (word == "sinks_of_windows" && in_window)) {
    problem->scores.sinks = tensor_of(problem->dtype_o);
  } else if (word != "sinks_of_windows" && word != "whole_window") {
    throw Error(
        ErrorCode::kInternal,
        fmt::format("the table of models has the scores \"{}\", which are not known", word));
  }
}

// Reads "absolute", "alibi" or "relative_key".
void read_positions(const ModelFields& fields, Problem* problem, ModelScores* scores) {
  const std::string positions =
      fields.is_text({"position_embedding_type"}) ? fields.text({"position_embedding_type"}) : "";
  if (fields.flag({"alibi", "use_alibi", "attn_config.alibi"}, false) || positions == "alibi")
    problem->scores.alibi = true;
  if (positions.rfind("relative", 0) == 0)
    scores->not_supported.push_back(
        fmt::format("positions {} (position_embedding_type)", positions));
  // These fields say how entries of the table and slopes are computed; a call passes their values.
  fields.ignore({"relative_attention_num_buckets", "relative_attention_max_distance",
                 "attn_config.alibi_bias_max"});
}

}  // namespace

ModelScores read_scores(const ModelFields& fields, const ModelRow& row, bool in_window,
                        Problem* problem) {
  ModelScores scores;
  if (!row.not_supported.empty()) {
    scores.not_supported.emplace_back(row.not_supported);
    fields.ignore({"relative_attention", "max_relative_positions"});
  }
  for_each_part(row.scores, ' ', [&](std::string_view word) {
    read_word(word, fields, in_window, problem, &scores);
  });
  problem->scores.softcap =
      static_cast<float>(fields.number_or_zero({"attn_logit_softcapping", "max_attn_value"}));
  read_positions(fields, problem, &scores);
  // For an image, distances have two dimensions. So the bias is a tensor with a value for each row
  // and key.
  const bool image_bias = fields.flag({"use_relative_position_bias", "use_rel_pos"}, false);
  if (fields.flag({"use_shared_relative_position_bias"}, false) || image_bias)
    problem->scores.bias = tensor_of(problem->dtype_o);
  if (fields.flag({"attn_config.prefix_lm", "prefix_lm"}, false)) set_prefix(problem);
  if (const double length = fields.number_or_zero({"attn_temperature_len"}); length > 0)
    scores.not_supported.push_back(
        fmt::format("a temperature for rows from {} on (attn_temperature_len)", length));
  return scores;
}

void follow_dtype(Problem* problem) {
  for (ScoreTensor* tensor :
       {&problem->scores.relative_bias, &problem->scores.bias, &problem->scores.sinks})
    if (*tensor != ScoreTensor::kNone) *tensor = tensor_of(problem->dtype_o);
}

}  // namespace attune
