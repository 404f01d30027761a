// SPDX-License-Identifier: Apache-2.0
// Reading config.json of the known kinds of models; see model_config.hpp.
#include "tuner/model_config.hpp"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "generator/core/error.hpp"

namespace attune {
namespace {

using Json = nlohmann::json;

constexpr int64_t kTextTokens = 77;  // CLIP's, which Stable Diffusion's cross-attention sees

// The config with its file name, for errors.
class Reader {
 public:
  Reader(const std::filesystem::path& path, Json json)
      : path_(path.string()), json_(std::move(json)) {}

  bool has(const char* key) const { return json_.contains(key) && !json_.at(key).is_null(); }
  std::string text(const char* key) const {
    if (!has(key)) return "";
    if (!json_.at(key).is_string()) refuse(key, "a string");
    return json_.at(key);
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_boolean()) refuse(key, "true or false");
    return json_.at(key);
  }
  int integer(const char* key) const {
    if (!has(key))
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{}: \"{}\" is missing; accepted is an integer above 0", path_, key));
    return checked(key, json_.at(key));
  }
  int integer(const char* key, int otherwise) const { return has(key) ? integer(key) : otherwise; }
  double number(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    if (!json_.at(key).is_number() || json_.at(key).get<double>() <= 0)
      refuse(key, "a number above 0");
    return json_.at(key);
  }
  // A list, or one value that stands for all `count`.
  std::vector<int> integers(const char* key, size_t count) const {
    if (!has(key) || !json_.at(key).is_array()) return std::vector<int>(count, integer(key));
    std::vector<int> values;
    for (const Json& value : json_.at(key)) values.push_back(checked(key, value));
    if (values.size() != count) refuse(key, fmt::format("{} integers", count));
    return values;
  }
  std::vector<std::string> texts(const char* key) const {
    std::vector<std::string> values;
    if (!has(key) || !json_.at(key).is_array()) refuse(key, "a list of strings");
    for (const Json& value : json_.at(key)) {
      if (!value.is_string()) refuse(key, "a list of strings");
      values.push_back(value);
    }
    return values;
  }
  size_t size_of(const char* key) const {
    if (!has(key) || !json_.at(key).is_array() || json_.at(key).empty())
      refuse(key, "a list of integers");
    return json_.at(key).size();
  }
  [[noreturn]] void refuse(const char* key, const std::string& accepted) const {
    const std::string value = json_.contains(key) ? json_.at(key).dump() : "missing";
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: \"{}\" is {}; accepted is {}", path_, key, value, accepted));
  }
  const std::string& path() const { return path_; }

 private:
  int checked(const char* key, const Json& value) const {
    if (!value.is_number_integer() || value.get<int64_t>() < 1 || value.get<int64_t>() > INT32_MAX)
      refuse(key, "an integer above 0");
    return value;
  }

  std::string path_;
  Json json_;
};

Json parse_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  if (!file) throw Error(ErrorCode::kIo, fmt::format("{}: cannot be read", path.string()));
  try {
    Json json = Json::parse(file);
    if (json.is_object()) return json;
  } catch (const Json::parse_error& error) {
    const std::string what =
        error.what();  // "[json.exception...] parse error at line 3, column 5: ..."
    const size_t at = what.find("at line");
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: not JSON, {}", path.string(),
                            at == std::string::npos ? what : what.substr(at)));
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: not a JSON object; accepted is a model's config.json", path.string()));
}

std::optional<Dtype> dtype_of(const Reader& config) {
  const char* key = config.has("dtype") ? "dtype" : "torch_dtype";
  const std::string text = config.text(key);
  if (text.empty()) return std::nullopt;
  try {
    return parse_dtype(text);
  } catch (const Error&) {
    config.refuse(key, "float32, bfloat16 or float16");
  }
}

// Heads and head dim as every transformer states them.
Problem transformer_problem(const Reader& config) {
  Problem problem;
  problem.num_heads_q = config.integer("num_attention_heads");
  problem.num_heads_kv = config.integer("num_key_value_heads", problem.num_heads_q);
  if (problem.num_heads_q % problem.num_heads_kv != 0)
    config.refuse("num_key_value_heads",
                  fmt::format("a divisor of num_attention_heads ({})", problem.num_heads_q));
  if (config.has("head_dim")) {
    problem.head_dim_qk = problem.head_dim_v = config.integer("head_dim");
  } else {
    const int hidden = config.integer("hidden_size");
    if (hidden % problem.num_heads_q != 0)
      config.refuse("hidden_size",
                    fmt::format("a multiple of num_attention_heads ({})", problem.num_heads_q));
    problem.head_dim_qk = problem.head_dim_v = hidden / problem.num_heads_q;
  }
  return problem;
}

void read_decoder(const Reader& config, ModelConfig* model) {
  AttentionLayer layer{transformer_problem(config), 0, 0};
  layer.problem.mask = Mask::kCausalBottomRight;
  if (config.has("query_pre_attn_scalar")) {
    const double scalar = config.number("query_pre_attn_scalar", 0);
    if (std::fabs(scalar - layer.problem.head_dim_qk) > 1e-6)
      layer.problem.softmax_scale = static_cast<float>(1 / std::sqrt(scalar));
  }
  const bool windowed = config.has("sliding_window") && config.flag("use_sliding_window", true);
  const bool alternates = model->model_type == "gemma2" || model->model_type == "gemma3_text" ||
                          config.has("layer_types");
  if (!windowed || alternates) model->layers.push_back(layer);
  if (windowed) {  // a query sees itself and the window - 1 keys before it
    layer.problem.window_left = config.integer("sliding_window") - 1;
    model->layers.push_back(layer);
  }
  if (config.has("attn_logit_softcapping"))
    model->notes.push_back(fmt::format(
        "{}: attn_logit_softcapping {} is not supported yet; kernels are tuned without it",
        config.path(), config.number("attn_logit_softcapping", 0)));
  model->max_seqlen = config.integer("max_position_embeddings", 0);
}

void read_encoder(const Reader& config, ModelConfig* model) {
  AttentionLayer layer{transformer_problem(config), 0, 0};
  if (config.has("image_size") && config.has("patch_size")) {
    model->kind = ModelKind::kImageEncoder;
    const int64_t side = config.integer("image_size") / config.integer("patch_size");
    layer.fixed_seqlen_q = layer.fixed_seqlen_kv = side * side + 1;  // patches and the class token
  } else {
    model->max_seqlen = config.integer("max_position_embeddings", 0);
  }
  model->layers.push_back(layer);
}

// Self- and cross-attention of every resolution that has transformer blocks. In diffusers' UNet
// configs attention_head_dim is the number of heads (its naming is kept for compatibility), unless
// num_attention_heads is stated.
void read_unet(const Reader& config, ModelConfig* model) {
  const size_t levels = config.size_of("block_out_channels");
  const std::vector<int> channels = config.integers("block_out_channels", levels);
  const char* heads_key =
      config.has("num_attention_heads") ? "num_attention_heads" : "attention_head_dim";
  const std::vector<int> heads = config.integers(heads_key, levels);
  const std::vector<std::string> blocks = config.texts("down_block_types");
  if (blocks.size() != levels)
    config.refuse("down_block_types",
                  fmt::format("{} block names, one for each of block_out_channels", levels));
  const int64_t sample_size = config.integer("sample_size");
  for (size_t level = 0; level < levels; ++level) {
    if (blocks[level].find("CrossAttn") == std::string::npos) continue;
    if (channels[level] % heads[level] != 0)
      config.refuse(heads_key, fmt::format("divisors of block_out_channels ({})", channels[level]));
    AttentionLayer layer;
    layer.problem.num_heads_q = layer.problem.num_heads_kv = heads[level];
    layer.problem.head_dim_qk = layer.problem.head_dim_v = channels[level] / heads[level];
    const int64_t side = sample_size >> level;
    layer.fixed_seqlen_q = layer.fixed_seqlen_kv = side * side;
    model->layers.push_back(layer);
    layer.fixed_seqlen_kv = kTextTokens;
    model->layers.push_back(layer);
  }
  if (model->layers.empty()) config.refuse("down_block_types", "a list with a CrossAttn block");
}

bool is_encoder(const std::string& model_type) {
  static const std::set<std::string> types{"bert",    "roberta", "xlm-roberta", "distilbert",
                                           "electra", "vit",     "deit",        "dinov2"};
  return types.count(model_type) > 0;
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& path) {
  const Reader config(path, parse_file(path));
  ModelConfig model;
  model.model_type = config.text("model_type");
  model.dtype = dtype_of(config);
  if (config.text("_class_name").find("UNet") != std::string::npos) {
    model.kind = ModelKind::kUnet;
    read_unet(config, &model);
  } else if (is_encoder(model.model_type)) {
    model.kind = ModelKind::kEncoder;
    read_encoder(config, &model);
  } else if (config.has("num_attention_heads")) {
    read_decoder(config, &model);
  } else {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: model_type is \"{}\" and \"num_attention_heads\" is missing; "
                            "accepted are decoders, BERT- and "
                            "ViT-like encoders, and UNets of diffusers",
                            path.string(), model.model_type));
  }
  for (const AttentionLayer& layer : model.layers) {
    try {
      validate(layer.problem);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", path.string(), error.what()));
    }
  }
  return model;
}

}  // namespace attune
