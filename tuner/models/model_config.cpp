// SPDX-License-Identifier: Apache-2.0
// Finds the row for a config.json, and handles types without a row; see model_config.hpp.
// model_towers.cpp reads rows.
#include "tuner/models/model_config.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/system/json_text.hpp"
#include "generator/core/system/read_file.hpp"
#include "tuner/models/cache_use.hpp"
#include "tuner/models/diffusion_config.hpp"
#include "tuner/models/model_towers.hpp"

namespace attune {
namespace {

using Json = ModelFields::Json;

constexpr size_t kLargestConfig = 16 << 20;
constexpr Names kDtypeNames{"dtype", "torch_dtype"};

// Replaces Infinity and NaN by null. Python writes them into configs (time_step_limit of Mamba
// layers), although JSON has no such values. No field about attention has such a value.
std::string without_infinities(std::string_view text) {
  std::string json;
  bool in_string = false;
  while (!text.empty()) {
    const auto is_next = [&](std::string_view word) { return text.substr(0, word.size()) == word; };
    size_t taken = in_string && text[0] == '\\' ? 2 : 1;
    if (text[0] == '"') in_string = !in_string;
    for (const std::string_view word : {"-Infinity", "Infinity", "NaN"})
      if (!in_string && is_next(word)) taken = word.size();
    json += taken > 2 ? "null" : text.substr(0, taken);
    text.remove_prefix(std::min(taken, text.size()));
  }
  return json;
}

Json parse_file(const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, fmt::format("{}: {}", path.string(), what));
  };
  Json json;
  try {
    json = parse_json<Json>(without_infinities(
        read_file("the model's config", path, kLargestConfig, FileKinds::kStreamsToo)));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInvalidArgument) throw;
    refuse(error.what());
  }
  if (!json.is_object()) refuse("not a JSON object; must be a model's config.json");
  return json;
}

std::optional<Dtype> dtype_of(const ModelFields& config) {
  const std::string text = config.text(kDtypeNames);
  if (text.empty()) return std::nullopt;
  try {
    return parse_dtype(text);
  } catch (const Error&) {
    config.refuse(kDtypeNames, "float32, bfloat16 or float16");
  }
}

std::string quoted(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names)
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", name);
  return text;
}

bool sounds_like_decoder(const std::string& model_type) {
  for (const char* word :
       {"encoder", "vision", "image", "audio", "bert", "vit", "clip", "detr", "wav"})
    if (model_type.find(word) != std::string::npos) return false;
  return true;
}

// Returns "text" for "text_config".
std::string label_of(std::string_view part) {
  const size_t end = part.find("_config");
  const std::string_view word = part.substr(0, end);
  return std::string(word == "llm" || word == "language" ? "text" : word);
}

class ConfigReader {
 public:
  ConfigReader(const ModelFields& config, ModelConfig* model) : config_(config), model_(model) {}

  void read(const std::string& read_as) {
    if (!read_as.empty()) {
      const ModelRow* row = find_model_row(read_as);
      if (row == nullptr)
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("--as is \"{}\"; must be a known model type such as llama, "
                                "mistral, gemma2, deepseek_v3, bert, vit, t5",
                                read_as));
      note(fmt::format("read as {}; its model_type is \"{}\"", read_as, model_->model_type));
      return read_row(config_, *row, "");
    }
    if (config_.is_text({"_class_name"})) return read_diffusion(config_, model_);
    if (const ModelRow* row = row_of_config()) return read_row(config_, *row, "");
    if (read_known_parts()) return;
    read_unknown();
  }

 private:
  void note(const std::string& sentence) {
    model_->notes.push_back(fmt::format("{}: {}", config_.file(), sentence));
  }

  const ModelRow* row_of_config() const {
    for (const std::string& architecture : config_.texts_in("architectures"))
      if (const ModelRow* row = find_row_of_architecture(architecture)) return row;
    return find_model_row(model_->model_type);
  }

  void read_row(const ModelFields& given, const ModelRow& row, const std::string& label) {
    const ModelFields fields = given.with_defaults(row.defaults);
    if (row.reading == Reading::kParts) return read_parts(fields, row);
    if (label.empty() && row.reading != Reading::kNotCovered) require_something(fields);
    read_tower(fields, row, label, model_);
    if (!model_->dtype) model_->dtype = dtype_of(fields);
    const auto unread = fields.unread_attention_fields();
    if (!unread.empty() && row.reading != Reading::kNotCovered)
      note(fmt::format("{} {} not known for this type of model, so attune did not read {}",
                       quoted(unread), unread.size() == 1 ? "is" : "are",
                       unread.size() == 1 ? "it" : "them"));
  }

  // Throws if no field of the config describes attention: then it is probably the wrong file.
  void require_something(const ModelFields& fields) const {
    if (fields.states(kHeadNames)) return;
    if (!fields.states({"encoder_attention_heads", "hidden_size", "n_embd", "n_embed", "d_model",
                        "dim", "embed_dim"}))
      fields.refuse(
          "\"num_attention_heads\" is missing, and so are all other fields that describe "
          "attention");
  }

  // Reads each part by its own type. If a part has no type, or the whole model's type, uses the
  // type that the row gives for it.
  void read_parts(const ModelFields& fields, const ModelRow& row) {
    for_each_part(row.parts, ' ', [&](std::string_view part) {
      const size_t equals = part.find('=');
      const std::string name(part.substr(0, equals));
      const std::string label = label_of(name);
      // Older configs have the text's fields at the top level, next to vision_config.
      const bool flat =
          label == "text" && !fields.is_object(name.c_str()) && fields.states(kHeadNames);
      const ModelFields object = flat ? fields : fields.object(name.c_str(), "");
      const std::string type = object.text({"model_type"});
      const ModelRow* known = find_model_row(type);
      if (type.empty() || (known != nullptr && known->reading == Reading::kParts))
        known = find_model_row(part.substr(equals + 1));
      const size_t first = model_->layers.size();
      if (known == nullptr) return read_unknown_part(name, type);
      ModelRow part_row = *known;
      if (label == "text" && !row.scores.empty()) part_row.scores = row.scores;
      read_row(object, part_row, label);
      if (label == "text" && !row.not_supported.empty())
        for (size_t i = first; i < model_->layers.size(); ++i)
          model_->layers[i].not_supported.emplace_back(row.not_supported);
    });
  }

  void read_unknown_part(const std::string& name, const std::string& type) {
    note(
        fmt::format("model_type of {} is \"{}\", which is not known; it is not tuned (give "
                    "--problem)",
                    name, type));
  }

  // Reads a model of an unknown type by its parts, if these have known types.
  bool read_known_parts() {
    std::vector<std::string> names, unknown;
    for (const char* name :
         {"text_config", "llm_config", "language_config", "vision_config", "audio_config"}) {
      if (!config_.is_object(name)) continue;
      const ModelFields object = config_.object(name, "");
      const ModelRow* row = find_model_row(object.text({"model_type"}));
      const bool known = row != nullptr && row->reading != Reading::kParts;
      (known ? names : unknown).emplace_back(name);
    }
    if (names.empty()) return false;
    note(fmt::format("model_type \"{}\" is not known; attune reads its {} by their own types",
                     model_->model_type, quoted(names)));
    for (const std::string& name : names) {
      const ModelFields object = config_.object(name.c_str(), "");
      read_row(object, *find_model_row(object.text({"model_type"})), label_of(name));
    }
    for (const std::string& name : unknown)
      read_unknown_part(name, config_.object(name.c_str(), "").text({"model_type"}));
    return true;
  }

  // Reads the model as a Llama, if no field contradicts that.
  void read_unknown() {
    const std::string what =
        model_->model_type.empty()
            ? "model_type is missing"
            : fmt::format("model_type is \"{}\", which is not known", model_->model_type);
    const ModelFields probe = config_.with_defaults("");
    probe.ignore({"num_attention_heads", "num_key_value_heads", "head_dim", "sliding_window",
                  "use_sliding_window", "max_window_layers", "layer_types",
                  "attn_logit_softcapping", "query_pre_attn_scalar", "attention_multiplier"});
    if (!sounds_like_decoder(model_->model_type))
      config_.refuse(fmt::format(
          "{}, and its name does not say that it is a decoder; give --problem instead, or "
          "name a similar known type with --as TYPE",
          what));
    const auto strange = probe.unread_attention_fields();
    if (!strange.empty())
      config_.refuse(
          fmt::format("{}, and a Llama has no {}; give --problem instead, or name a similar known "
                      "type with --as TYPE",
                      what, quoted(strange)));
    if (!config_.has({"num_attention_heads"}))
      config_.refuse(fmt::format(
          "{}, and \"num_attention_heads\" is missing; give --problem instead, or name a "
          "similar known type with --as TYPE",
          what));
    note(
        fmt::format("{}: attune treats it as a Llama (causal attention and nothing else). If that "
                    "is wrong, give --problem, or --as TYPE",
                    what));
    ModelRow llama = *find_model_row("llama");
    llama.defaults = "";
    read_row(config_, llama, "");
  }

  const ModelFields& config_;
  ModelConfig* model_;
};

// Stores in each kind of layer that no kernel supports the reason. Throws if no other kind is left.
void check_layers(const std::string& file, ModelConfig* model) {
  for (AttentionLayer& layer : model->layers) {
    try {
      validate(layer.problem);
    } catch (const Error& error) {
      layer.refused = error.what();
    }
  }
  const bool usable =
      std::any_of(model->layers.begin(), model->layers.end(),
                  [](const AttentionLayer& layer) { return layer.refused.empty(); });
  if (usable) return;
  if (model->layers.empty())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: attune found no attention to make a kernel for; give --problem "
                            "instead{}",
                            file, model->notes.empty() ? "" : " (" + model->notes.front() + ")"));
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{}: {}", file, model->layers.front().refused));
}

}  // namespace

ModelConfig read_model_config(const std::filesystem::path& path, const std::string& read_as) {
  const ModelFields config(path.string(), "", parse_file(path), "");
  ModelConfig model;
  model.model_type = config.text({"model_type"});
  model.dtype = dtype_of(config);
  model.cache_dtype = cache_dtype_of(config);
  ConfigReader(config, &model).read(read_as);
  check_layers(path.string(), &model);
  return model;
}

}  // namespace attune
