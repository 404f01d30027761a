// SPDX-License-Identifier: Apache-2.0
// Finds the row for a config.json, and handles types without a row; see model_config.hpp.
// model_towers.cpp reads rows.
#include "tuner/models/model_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "generator/core/system/files.hpp"
#include "generator/core/system/json_text.hpp"
#include "tuner/models/config_parts.hpp"

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

// Returns "text" for "text_config". An object that only holds others has no label of its own.
std::string label_of(std::string_view part, const std::string& outer) {
  std::string word(part.substr(0, part.find("_config")));
  if (word == "llm" || word == "language") word = "text";
  if (word == "thinker" || word == "vlm" || word == "model" || word == "detector") return outer;
  return outer.empty() ? word : outer + " " + word;
}

bool is_text(std::string_view label) {
  return label == "text" || (label.size() > 5 && label.substr(label.size() - 5) == " text");
}

class ConfigReader {
 public:
  ConfigReader(const ModelFields& config, ModelConfig* model) : config_(config), model_(model) {}

  void read(const std::string& read_as) {
    if (!read_as.empty()) return read_as_type(read_as);
    if (config_.is_text({"_class_name"})) return read_diffusion(config_, model_);
    if (const ModelRow* row = row_of_config()) return read_row(config_, *row, "");
    if (!config_.states(kHeadNames) && !config_.object_names().empty())
      return read_objects(config_, nullptr);
    read_unknown();
  }

 private:
  void note(const std::string& sentence) {
    model_->notes.push_back(fmt::format("{}: {}", config_.file(), sentence));
  }

  void read_as_type(const std::string& type) {
    const ModelRow* row = find_model_row(type);
    if (row == nullptr)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("--as is \"{}\"; must be a known model type such as llama, mistral, "
                              "gemma2, deepseek_v3, bert, vit, t5 (attune models lists them)",
                              type));
    note(fmt::format("read as {}; its model_type is \"{}\"", type, model_->model_type));
    const bool is_inside = row->reading != Reading::kParts && !config_.states(kHeadNames) &&
                           !config_.object_names().empty();
    is_inside ? read_objects(config_, row) : read_row(config_, *row, "");
  }

  const ModelRow* row_of_config() const {
    for (const std::string& architecture : config_.texts_in("architectures"))
      if (const ModelRow* row = find_row_of_architecture(architecture)) return row;
    return find_model_row(model_->model_type);
  }

  void read_row(const ModelFields& given, const ModelRow& row, const std::string& label) {
    const ModelFields fields = given.with_defaults(row.defaults);
    fields.ignore({"is_encoder_decoder", "add_cross_attention"});
    for_each_part(row.ignores, ' ',
                  [&](std::string_view name) { fields.ignore(std::string(name)); });
    if (row.reading == Reading::kParts) return read_parts(fields, row, label);
    if (label.empty() && row.reading == Reading::kNotCovered)
      fields.refuse(fmt::format("model_type is \"{}\": it has {}, which attune does not tune",
                                model_->model_type, row.not_supported));
    if (label.empty()) require_something(fields);
    require_pattern(fields, row);
    read_tower(fields, row, label, model_);
    if (!row.parts.empty()) read_parts(fields, row, label);
    if (model_->published.empty()) model_->published = row.dtype;
    if (!model_->dtype) model_->dtype = dtype_of(fields);
    const auto unread = fields.unread_attention_fields();
    if (!unread.empty() && row.reading != Reading::kNotCovered)
      note(fmt::format("{} {} not known for this type of model, so attune did not read {}",
                       quoted(unread), unread.size() == 1 ? "is" : "are",
                       unread.size() == 1 ? "it" : "them"));
  }

  // Throws if the config states none of the fields that the row needs.
  void require_pattern(const ModelFields& fields, const ModelRow& row) const {
    bool stated = row.needs.empty();
    for_each_part(row.needs, ' ', [&](std::string_view name) {
      stated = stated || fields.states({std::string(name).c_str()});
    });
    if (!stated)
      fields.refuse(fmt::format("\"{}\" is missing; must be stated for a model of this type",
                                row.needs.substr(0, row.needs.find(' '))));
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
  void read_parts(const ModelFields& fields, const ModelRow& row, const std::string& outer) {
    if (model_->published.empty()) model_->published = row.dtype;
    for_each_part(row.parts, ' ', [&](std::string_view part) {
      const size_t equals = part.find('=');
      const std::string name(part.substr(0, equals));
      const std::string label = label_of(name, outer);
      // Older configs have the text's fields at the top level, next to vision_config.
      const bool flat =
          is_text(label) && !fields.is_object(name.c_str()) && fields.states(kHeadNames);
      if (!flat && fields.is_null(name.c_str())) return;  // a model without this part
      const ModelFields object = flat ? fields : fields.object(name.c_str(), "");
      const std::string type = object.text({"model_type"});
      const ModelRow* known = find_model_row(type);
      if (type.empty() || (known != nullptr && known == find_model_row(model_->model_type)))
        known = find_model_row(part.substr(equals + 1));
      const size_t first = model_->layers.size();
      if (known == nullptr) return note_unknown_part(name, type);
      ModelRow part_row = *known;
      if (is_text(label) && !row.scores.empty()) part_row.scores = row.scores;
      read_row(object, part_row, label);
      if (is_text(label) && !row.not_supported.empty())
        for (size_t i = first; i < model_->layers.size(); ++i)
          model_->layers[i].not_supported.emplace_back(row.not_supported);
    });
  }

  void note_unknown_part(const std::string& name, const std::string& type) {
    note(
        fmt::format("model_type of {} is \"{}\", which is not known; it is not tuned (give "
                    "--problem, or --as TYPE for its text)",
                    name, type));
  }

  // Reads the objects inside the config of an unknown type, each by its own type. `text`, if given,
  // is the type of the first object of text.
  void read_objects(const ModelFields& fields, const ModelRow* text) {
    std::vector<std::string> read, unknown;
    std::vector<std::pair<std::string, const ModelRow*>> rows;
    for (const std::string& name : fields.object_names()) {
      const ModelRow* row = find_model_row(fields.object(name.c_str(), "").text({"model_type"}));
      if (text != nullptr && is_text(label_of(name, ""))) row = std::exchange(text, nullptr);
      (row != nullptr ? read : unknown).push_back(name);
      rows.emplace_back(name, row);
    }
    const std::string what = fmt::format("model_type \"{}\" is not known", model_->model_type);
    if (read.empty())
      fields.refuse(
          fmt::format("{}, and neither are those of {}; give --problem instead, or name a "
                      "similar known type for its text with --as TYPE",
                      what, quoted(unknown)));
    note(fmt::format("{}; attune reads its {} by their own types", what, quoted(read)));
    for (const auto& [name, row] : rows)
      if (row != nullptr) read_row(fields.object(name.c_str(), ""), *row, label_of(name, ""));
    for (const std::string& name : unknown)
      note_unknown_part(name, fields.object(name.c_str(), "").text({"model_type"}));
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
    const auto strange = probe.fields_unlike_llama();
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

// Widens head dims that kernels do not take, as attune.attention does with such tensors.
void widen_head_dims(const std::string& file, ModelConfig* model) {
  static constexpr int kStep = 8, kLeast = 16;
  const auto wide = [](int head_dim) {
    return std::max(kLeast, (head_dim + kStep - 1) / kStep * kStep);
  };
  for (AttentionLayer& layer : model->layers) {
    Problem& problem = layer.problem;
    const int qk = problem.head_dim_qk, v = problem.head_dim_v;
    if (wide(qk) == qk && wide(v) == v) continue;
    if (wide(qk) != qk) problem.softmax_scale = problem.scale();
    problem.head_dim_qk = wide(qk);
    problem.head_dim_v = wide(v);
    const auto text = [](int a, int b) {
      return a == b ? std::to_string(a) : fmt::format("{}x{}", a, b);
    };
    model->notes.push_back(fmt::format(
        "{}: {}: its head dim is {}; attune tunes {}, to which attune.attention pads it", file,
        layer.name, text(qk, v), text(wide(qk), wide(v))));
  }
}

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
  widen_head_dims(path.string(), &model);
  check_layers(path.string(), &model);
  return model;
}

}  // namespace attune
