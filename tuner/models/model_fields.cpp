// SPDX-License-Identifier: Apache-2.0
// Looks up and checks a config's fields; see model_fields.hpp.
#include "tuner/models/model_fields.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/system/json_text.hpp"

namespace attune {
namespace {

using Json = ModelFields::Json;

constexpr size_t kLongestValue = 80;

// Words in names of fields that describe attention. A name is ignored if it also has a word of the
// next list: dropout, precision, caches, projections, and heads of other kinds.
constexpr const char* kAttentionWords[] = {"attn",
                                           "attention",
                                           "head",
                                           "window",
                                           "alibi",
                                           "kv_",
                                           "query",
                                           "causal",
                                           "chunk",
                                           "sink",
                                           "softcap",
                                           "lora_rank",
                                           "relative",
                                           "rel_pos",
                                           "prefix_lm",
                                           "softmax",
                                           "mask_type",
                                           "encoder_",
                                           "decoder_",
                                           "cross_",
                                           "position_embedding_type",
                                           "position_encoding",
                                           "image_size",
                                           "patch_size",
                                           "type_vocab_size",
                                           "is_encoder_decoder",
                                           "bidirectional",
                                           "sparse"};
constexpr const char* kHarmlessWords[] = {"dropout",
                                          "pdrop",
                                          "_bias",
                                          "implementation",
                                          "in_fp32",
                                          "output_attentions",
                                          "flash_attn",
                                          "token",
                                          "lm_head",
                                          "qk_norm",
                                          "qk_layernorm",
                                          "mask_time",
                                          "mask_feature",
                                          "feed_forward",
                                          "mamba",
                                          "ssm",
                                          "linear_",
                                          "head_type",
                                          "classifier",
                                          "ffn",
                                          "layerdrop",
                                          "layer_norm",
                                          "layernorm",
                                          "mm_",
                                          "temperature",
                                          "kv_cache",
                                          "cache_",
                                          "sparse_step",
                                          "initializer",
                                          "projection",
                                          "rope",
                                          "kv_shared",
                                          "pooler",
                                          "heads_to_share",
                                          "tie_",
                                          "scale_attn",
                                          "reorder_and_upcast",
                                          "layer_scaling",
                                          "use_head",
                                          "temporal",
                                          "parallel_attn",
                                          "final_logit",
                                          "auxiliary_head",
                                          "encoder_stride",
                                          "task_type",
                                          "decoder_vocab",
                                          "embeddings",
                                          "_factor",
                                          "sparse_pred",
                                          "scale_decoder",
                                          "no_repeat",
                                          "floor_scale",
                                          "attn_scale",
                                          "clip_qkv",
                                          "router_",
                                          "qk_ln",
                                          "attn_impl",
                                          "conv",
                                          "proj"};
// Words that always mark a field of attention, whatever else its name contains:
// use_relative_attention_bias.
constexpr const char* kScoreWords[] = {"relative", "rel_pos", "alibi", "prefix_lm",
                                       "position_embeddings_type"};

// Words in names of objects that describe a model of text.
constexpr const char* kTextWords[] = {"text", "llm", "language", "thinker"};
// Words in names of fields of layers that a Llama does not have.
constexpr const char* kOtherLayerWords[] = {"block_configs", "mamba",  "mb_per_layer", "ssm_",
                                            "lambda_",       "linear", "recurrent",    "conv_",
                                            "state_size",    "rwkv",   "hyena",        "cca_"};
// Objects whose fields describe attention.
constexpr const char* kObjectWords[] = {"attn_config", "attention_config"};

bool has_word(std::string_view name, const auto& words) {
  return std::any_of(std::begin(words), std::end(words),
                     [&](const char* word) { return name.find(word) != std::string_view::npos; });
}

bool is_of_attention(std::string_view name) {
  return has_word(name, kScoreWords) ||
         (has_word(name, kAttentionWords) && !has_word(name, kHarmlessWords));
}

// True if the value turns a feature on. Numbers below 0 mean off.
bool says_something(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_number()) return value.get<double>() > 0;
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.empty();
}

// Returns the value at a path such as "attn_config.alibi", or nullptr.
const Json* at_path(const Json& json, std::string_view path) {
  const Json* value = &json;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    const auto found = value->is_object() ? value->find(path.substr(0, dot)) : value->end();
    if (found == value->end()) return nullptr;
    value = &*found;
    path = dot == std::string_view::npos ? std::string_view() : path.substr(dot + 1);
  }
  return value;
}

bool is_integer(const Json& value, int64_t least) {
  return value.is_number_integer() && value.get<int64_t>() >= least &&
         value.get<int64_t>() <= INT32_MAX;
}

std::string shown(const Json& value) {
  std::string text = to_json_text(value);
  if (text.size() > kLongestValue) text = text.substr(0, kLongestValue) + "...";
  return text;
}

}  // namespace

ModelFields::ModelFields(std::string file, std::string prefix, Json config,
                         std::string_view defaults)
    : file_(std::move(file)),
      prefix_(std::move(prefix)),
      config_(std::move(config)),
      defaults_(parse_json<Json>(defaults.empty() ? "{}" : defaults)),
      asked_(std::make_shared<std::set<std::string, std::less<>>>()) {}

const Json* ModelFields::find(Names names, std::string* name) const {
  for (const char* one : names) asked_->insert(one);
  for (const Json* source : {&config_, &defaults_}) {
    bool left_out = false;
    for (const char* one : names) {
      const Json* value = at_path(*source, one);
      if (value == nullptr) continue;
      if (name != nullptr) *name = one;
      if (!value->is_null()) return value;
      left_out = true;
    }
    if (left_out) return nullptr;
  }
  return nullptr;
}

bool ModelFields::has(Names names) const { return find(names) != nullptr; }

bool ModelFields::states(Names names) const {
  return std::any_of(names.begin(), names.end(), [&](const char* one) {
    const Json* value = at_path(config_, one);
    return value != nullptr && !value->is_null();
  });
}

const Json& ModelFields::need(Names names, const std::string& accepted) const {
  const Json* value = find(names);
  if (value == nullptr) refuse(names, accepted);
  return *value;
}

std::string ModelFields::text(Names names) const {
  const Json* value = find(names);
  if (value == nullptr) return "";
  if (!value->is_string()) refuse(names, "a string");
  return *value;
}

bool ModelFields::flag(Names names, bool otherwise) const {
  const Json* value = find(names);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(names, "true or false");
  return *value;
}

int ModelFields::integer(Names names) const {
  const Json& value = need(names, "an integer above 0");
  if (!is_integer(value, 1)) refuse(names, "an integer above 0");
  return value;
}

int ModelFields::integer(Names names, int otherwise) const {
  return has(names) ? integer(names) : otherwise;
}

int ModelFields::count(Names names) const {
  const Json* value = find(names);
  if (value == nullptr) return 0;
  if (!is_integer(*value, 0)) refuse(names, "an integer, at least 0");
  return *value;
}

double ModelFields::number(Names names) const {
  const Json& value = need(names, "a number above 0");
  if (!value.is_number() || !(value.get<double>() > 0)) refuse(names, "a number above 0");
  return value;
}

double ModelFields::number_or_zero(Names names) const {
  const Json* value = find(names);
  if (value == nullptr) return 0;
  if (!value->is_number() || !(value->get<double>() >= 0)) refuse(names, "a number, at least 0");
  return *value;
}

double ModelFields::number_if_any(Names names) const {
  const Json* value = find(names);
  return value != nullptr && value->is_number() ? value->get<double>() : 0;
}

bool ModelFields::is_list(Names names) const {
  const Json* value = find(names);
  return value != nullptr && value->is_array() && !value->empty();
}

bool ModelFields::is_text(Names names) const {
  const Json* value = find(names);
  return value != nullptr && value->is_string() && !value->get_ref<const std::string&>().empty();
}

std::vector<int> ModelFields::integers(Names names) const {
  const Json& list = need(names, "a list of integers");
  if (!list.is_array()) refuse(names, "a list of integers");
  std::vector<int> values;
  for (const Json& value : list) {
    if (!is_integer(value, 0)) refuse(names, "a list of integers, at least 0 each");
    values.push_back(value);
  }
  return values;
}

std::vector<int> ModelFields::integers(Names names, size_t count) const {
  if (!is_list(names)) return std::vector<int>(count, integer(names));
  std::vector<int> values = integers(names);
  if (values.size() != count || *std::min_element(values.begin(), values.end()) < 1)
    refuse(names, fmt::format("{} integers above 0", count));
  return values;
}

std::vector<std::string> ModelFields::texts(Names names) const {
  const Json& list = need(names, "a list of strings");
  std::vector<std::string> values;
  if (!list.is_array()) refuse(names, "a list of strings");
  for (const Json& value : list) {
    if (!value.is_string()) refuse(names, "a list of strings");
    values.push_back(value);
  }
  return values;
}

std::vector<std::string> ModelFields::texts_in(const char* name) const {
  const Json* list = find({name});
  std::vector<std::string> values;
  if (list == nullptr || !list->is_array()) return values;
  for (const Json& value : *list)
    if (value.is_string()) values.push_back(value);
  return values;
}

bool ModelFields::is_object(const char* name) const {
  const Json* value = find({name});
  return value != nullptr && value->is_object();
}

bool ModelFields::is_null(const char* name) const {
  const Json* value = at_path(config_, name);
  return value != nullptr && value->is_null();
}

std::vector<std::string> ModelFields::object_names() const {
  std::vector<std::string> texts, others;
  for (const auto& [name, value] : config_.items()) {
    if (!value.is_object() || !value.contains("model_type")) continue;
    const bool is_text = has_word(name, kTextWords);
    (is_text ? texts : others).push_back(name);
  }
  texts.insert(texts.end(), others.begin(), others.end());
  return texts;
}

ModelFields ModelFields::object(const char* name, std::string_view defaults) const {
  const Json* value = find({name});
  if (value != nullptr && !value->is_object() && !value->is_null()) refuse({name}, "an object");
  return {file_, fmt::format("{}{}.", prefix_, name),
          value != nullptr && value->is_object() ? *value : Json::object(), defaults};
}

const Json& ModelFields::json(Names names) const {
  static const Json kNull;
  const Json* value = find(names);
  return value != nullptr ? *value : kNull;
}

ModelFields ModelFields::with_changes(const Json& changes) const {
  ModelFields changed = *this;
  if (changes.is_object()) changed.config_.update(changes);
  return changed;
}

ModelFields ModelFields::with_defaults(std::string_view defaults) const {
  return {file_, prefix_, config_, defaults};
}

std::vector<std::string> ModelFields::unread_attention_fields() const {
  std::vector<std::string> names;
  const auto look_at = [&](const std::string& object, const std::string& name, const Json& value) {
    if (!value.is_object() && says_something(value) && asked_->count(object + name) == 0 &&
        is_of_attention(name))
      names.push_back(object + name);
  };
  for (const auto& [name, value] : config_.items()) {
    look_at("", name, value);
    if (value.is_object() && has_word(name, kObjectWords))
      for (const auto& [inner, inner_value] : value.items())
        look_at(name + ".", inner, inner_value);
  }
  return names;
}

std::vector<std::string> ModelFields::fields_unlike_llama() const {
  std::vector<std::string> names = unread_attention_fields();
  for (const auto& [name, value] : config_.items())
    if (has_word(name, kOtherLayerWords) && says_something(value)) names.push_back(name);
  return names;
}

void ModelFields::refuse(Names names, const std::string& accepted) const {
  std::string name = *names.begin();
  const Json* value = find(names, &name);
  refuse(fmt::format("\"{}{}\" is {}; must be {}", prefix_, name,
                     value == nullptr ? "missing" : shown(*value), accepted));
}

void ModelFields::refuse(const std::string& what) const {
  throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", file_, what));
}

}  // namespace attune
