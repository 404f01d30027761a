// SPDX-License-Identifier: Apache-2.0
// Configs of known models give the right problems, and notes on features without kernels and on
// unread fields (model_configs.json). Invalid configs are refused with advice.
#include "tuner/models/model_config.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "generator/core/system/error.hpp"
#include "tests/support/error_text.hpp"
#include "tuner/models/model_table.hpp"
#include "tuner/models/workload.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;
namespace fs = std::filesystem;

const Json& table() {
  static const Json json =
      Json::parse(std::ifstream(fs::path(ATTUNE_TEST_DATA) / "model_configs.json"));
  return json;
}

class ConfigFile : public ::testing::Test {
 protected:
  ~ConfigFile() override { fs::remove(path_); }
  Workload workload_of(const Json& config, const std::string& read_as = "",
                       const ShapeChoice& choice = {{}, {}, {Dtype::kFp32}}) {
    std::ofstream(path_) << config.dump();
    return workload_from_model(path_.string(), choice, Target::kCuda, read_as);
  }
  std::string refusal(const Json& config, const std::string& read_as = "") {
    return testing::error_text([&] { workload_of(config, read_as); }, ErrorCode::kInvalidArgument);
  }
  const fs::path path_ =
      fs::temp_directory_path() / ("attune_model_" + std::to_string(::getpid()) + ".json");
};

// Completes "head_dim=64,heads=32/8", the first problem of a kind: fp32, and 1 x 512 if it has no
// length.
std::string problem_text(const std::string& text) {
  const bool has_length = text.find("seqlen") != std::string::npos;
  return to_text(parse_problem("dtype=fp32," + text + (has_length ? "" : ",batch=1,seqlen=512")));
}

void expect_kind(const LayerKind& kind, const Json& expected) {
  EXPECT_EQ(kind.name, expected.at(0));
  EXPECT_EQ(kind.layers, expected.at(1)) << kind.name;
  if (expected.at(2).is_null()) {
    EXPECT_TRUE(kind.problems.empty());
    EXPECT_FALSE(kind.refused.empty());
    return;
  }
  ASSERT_FALSE(kind.problems.empty()) << kind.name;
  EXPECT_EQ(to_text(kind.problems.front()), problem_text(expected.at(2))) << kind.name;
  const std::vector<std::string> not_supported(expected.begin() + 3, expected.end());
  EXPECT_EQ(kind.not_supported, not_supported) << kind.name;
}

// Expects exactly these notes: none that is unnecessary, and none missing.
void expect_notes(const Workload& workload, const Json& model) {
  std::vector<std::string> expected;
  for (const LayerKind& kind : workload.layer_kinds)
    for (const std::string& feature : kind.not_supported)
      expected.push_back(kind.name + ": " + feature + " is not supported yet");
  for (const Json& note : model.value("notes", Json::array())) expected.push_back(note);
  if (model.value("padding", false)) expected.push_back("--padded tunes for batches with padding");
  EXPECT_EQ(workload.notes.size(), expected.size());
  for (const std::string& sentence : expected)
    EXPECT_THAT(workload.notes, ::testing::Contains(HasSubstr(sentence)));
}

TEST_F(ConfigFile, KnownModelsGiveTheirProblems) {
  ASSERT_GE(table().at("models").size(), 60U);
  for (const Json& model : table().at("models")) {
    SCOPED_TRACE(model.at("name").get<std::string>());
    Workload workload;
    try {
      workload = workload_of(model.at("config"));
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
      continue;
    }
    const Json& kinds = model.at("kinds");
    EXPECT_EQ(workload.layer_kinds.size(), kinds.size());
    for (size_t i = 0; i < std::min(kinds.size(), workload.layer_kinds.size()); ++i)
      expect_kind(workload.layer_kinds[i], kinds[i]);
    expect_notes(workload, model);
  }
}

TEST_F(ConfigFile, AnUnreadableConfigIsRefusedWithAdvice) {
  for (const Json& entry : table().at("refused")) {
    const std::string what = refusal(entry.at("config"));
    for (const Json& words : entry.at("because"))
      EXPECT_THAT(what, HasSubstr(words.get<std::string>())) << entry.at("config").dump();
  }
}

TEST_F(ConfigFile, AnUnknownTypeCanBeReadAsAKnownOne) {
  const Json config = Json::parse(
      R"({"model_type": "new", "hidden_size": 4096, "num_attention_heads": 32,
          "multi_query": true})");
  const Workload falcon = workload_of(config, "falcon");
  EXPECT_EQ(to_text(falcon.problems.front()),
            problem_text("head_dim=128,heads=32/1,mask=causal_bottom_right"));
  EXPECT_THAT(falcon.notes.front(), HasSubstr("read as falcon; its model_type is \"new\""));
  EXPECT_EQ(to_text(workload_of(config, "bert").problems.front()),
            problem_text("head_dim=128,heads=32/1,mask=none"));
  EXPECT_THAT(refusal(config, "lama"), HasSubstr("--as is \"lama\"; must be"));
}

TEST_F(ConfigFile, AKnownTypeReplacesThatOfTheTextInside) {
  const Json config = Json::parse(
      R"({"model_type": "new", "text_config": {"model_type": "new_text", "hidden_size": 4096,
          "num_attention_heads": 32, "num_key_value_heads": 8},
          "vision_config": {"model_type": "clip_vision_model"},
          "code_config": {"model_type": "x"}})");
  const Workload llama = workload_of(config, "llama");
  ASSERT_EQ(llama.layer_kinds.size(), 2U);
  EXPECT_EQ(llama.layer_kinds[0].name, "text: causal");
  EXPECT_EQ(to_text(llama.problems.front()),
            problem_text("head_dim=128,heads=32/8,mask=causal_bottom_right"));
  EXPECT_EQ(llama.layer_kinds[1].name, "vision: both directions");
  EXPECT_THAT(llama.notes, ::testing::Contains(HasSubstr("model_type of code_config is \"x\"")));
  EXPECT_THAT(workload_of(config).notes, ::testing::Contains(HasSubstr("--as TYPE for its text")));
}

TEST_F(ConfigFile, ALengthIsForLayersWhoseLengthIsOpen) {
  const Json llava = Json::parse(
      R"({"model_type": "llava", "text_config": {"model_type": "llama"},
          "vision_config": {"model_type": "clip_vision_model"}})");
  const ShapeChoice choice{{64}, {3}, {Dtype::kFp32}};
  const Workload both = workload_of(llava, "", choice);
  ASSERT_EQ(both.problems.size(), 2U);
  EXPECT_EQ(both.problems[0].seqlen_q, 64);
  EXPECT_EQ(both.problems[1].seqlen_q, 50);
  EXPECT_EQ(both.problems[1].batch, 3);
  EXPECT_THAT(both.notes,
              ::testing::Contains(HasSubstr(
                  "--seqlen does not apply to lengths that the model fixes, in: vision")));
  // A model of images alone takes images of another size.
  const Json vit = Json::parse(R"({"model_type": "vit", "hidden_size": 768})");
  EXPECT_EQ(workload_of(vit, "", choice).problems.at(0).seqlen_q, 64);
  // A call may have any number of chunks.
  const Json scout = Json::parse(R"({"model_type": "llama4_text", "hidden_size": 5120})");
  const Workload chunks = workload_of(scout, "", {{32768}, {}, {Dtype::kFp32}});
  EXPECT_EQ(to_text(chunks.layer_kinds.at(1).problems.at(0)),
            "dtype=fp32,head_dim=128,heads=40/8,batch=1,seqlen=32768,mask=causal_bottom_right,"
            "chunk=8192");
}

TEST_F(ConfigFile, ALengthDoesNotReplaceFixedGeometry) {
  const ShapeChoice choice{{4096}, {}, {Dtype::kFp32}};
  const auto lengths = [&](const char* config) {
    const Workload workload = workload_of(Json::parse(config), "", choice);
    EXPECT_THAT(
        workload.notes,
        ::testing::Contains(HasSubstr("--seqlen does not apply to lengths that the model")));
    std::vector<std::pair<int64_t, int64_t>> all;
    for (const LayerKind& kind : workload.layer_kinds)
      all.emplace_back(kind.problems.at(0).seqlen_q, kind.problems.at(0).seqlen_kv);
    return all;
  };
  using Pairs = std::vector<std::pair<int64_t, int64_t>>;
  EXPECT_EQ(lengths(R"({"model_type": "swin", "embed_dim": 96})"),
            (Pairs{{49, 49}, {49, 49}, {49, 49}, {49, 49}}));
  EXPECT_EQ(lengths(R"({"model_type": "clip", "text_config": {}, "vision_config": {}})"),
            (Pairs{{77, 77}, {50, 50}}));
  EXPECT_EQ(lengths(R"({"model_type": "whisper", "d_model": 384})"),
            (Pairs{{1500, 1500}, {448, 1500}, {448, 448}}));
}

TEST_F(ConfigFile, AMissingDtypeIsGuessedWithANote) {
  const auto guess = [&](const char* config, Target target) {
    std::ofstream(path_) << config;
    const Workload workload = workload_from_model(path_.string(), {{64}, {}, {}}, target);
    EXPECT_THAT(workload.notes, ::testing::Contains(HasSubstr("dtype is not stated")));
    return workload.problems.at(0).dtype_q;
  };
  for (const Target target : {Target::kCpu, Target::kCuda}) {
    EXPECT_EQ(guess(R"({"model_type": "gpt_oss", "hidden_size": 2880})", target), Dtype::kBf16);
    EXPECT_EQ(
        guess(R"({"_class_name": "FluxTransformer2DModel", "attention_head_dim": 128})", target),
        Dtype::kBf16);
  }
  EXPECT_EQ(guess(R"({"model_type": "gpt2", "n_embd": 768})", Target::kCuda), Dtype::kFp16);
  EXPECT_EQ(guess(R"({"model_type": "gpt2", "n_embd": 768})", Target::kCpu), Dtype::kFp32);
}

TEST_F(ConfigFile, ABiasHasTheTypeOfItsModel) {
  Json t5 = Json::parse(R"({"model_type": "t5", "d_model": 512, "torch_dtype": "bfloat16"})");
  const auto biases = [&](const std::vector<Dtype>& dtypes) {
    std::vector<std::string> names;
    for (const Problem& problem : workload_of(t5, "", {{64}, {}, dtypes}).problems)
      names.emplace_back(score_tensor_name(problem.scores.relative_bias));
    return names;
  };
  // Biases of encoder, cross-attention and decoder.
  EXPECT_EQ(biases({}), (std::vector<std::string>{"bf16", "none", "bf16"}));
  EXPECT_EQ(biases({Dtype::kFp16}), (std::vector<std::string>{"fp16", "none", "fp16"}));
  EXPECT_EQ(biases({Dtype::kFp32}), (std::vector<std::string>{"fp32", "none", "fp32"}));
  EXPECT_EQ(biases({Dtype::kE4m3}), (std::vector<std::string>{"bf16", "none", "bf16"}));
  t5.erase("torch_dtype");  // then fp16 is tuned on a GPU
  EXPECT_EQ(biases({}), (std::vector<std::string>{"fp16", "none", "fp16"}));
}

TEST_F(ConfigFile, PaddingIsAnOptionOfLayersThatAttendToPadding) {
  ShapeChoice choice{{64}, {2}, {Dtype::kFp32}};
  choice.padded = true;
  const auto padded = [&](const char* config) {
    const Workload workload = workload_of(Json::parse(config), "", choice);
    EXPECT_TRUE(workload.notes.empty());
    std::vector<bool> flags;
    for (const LayerKind& kind : workload.layer_kinds)
      flags.push_back(kind.problems.at(0).scores.key_lengths);
    return flags;
  };
  EXPECT_EQ(padded(R"({"model_type": "bert", "hidden_size": 768})"), (std::vector<bool>{true}));
  EXPECT_EQ(padded(R"({"model_type": "t5", "d_model": 512})"),
            (std::vector<bool>{true, true, false}));
  try {
    workload_of(Json::parse(R"({"model_type": "llama", "hidden_size": 4096})"), "", choice);
    FAIL() << "a decoder has no padding";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--padded is given, but the model has no layer"));
  }
}

TEST_F(ConfigFile, NumbersThatPythonWritesAndJsonHasNotAreReadOver) {
  std::ofstream(path_)
      << R"({"model_type": "bamba", "name": "a \"NaN\", Infinity", "hidden_size": 4096,
    "num_hidden_layers": 32, "attn_layer_indices": [9, 18, 27],
    "time_step_limit": [-Infinity, Infinity], "x": NaN})";
  const ModelConfig model = read_model_config(path_);
  ASSERT_EQ(model.layers.size(), 1U);
  EXPECT_EQ(model.layers[0].layers, 3);
}

TEST_F(ConfigFile, HostileConfigsAreRefusedInOneSentence) {
  const auto refused = [&](const std::string& text) -> std::string {
    std::ofstream(path_) << text;
    try {
      read_model_config(path_);
    } catch (const Error& error) {
      EXPECT_LT(std::string(error.what()).size(), 600U);
      return error.what();
    }
    return "nothing was thrown";
  };
  const std::string deep(100000, '[');
  EXPECT_THAT(refused(R"({"model_type":"llama","num_attention_heads":)" + deep),
              HasSubstr("nests deeper than 64 levels"));
  EXPECT_THAT(refused(R"({"model_type":"llama","num_attention_heads":1e400})"), HasSubstr("1e400"));
  const std::string wide(100000, 'x');
  EXPECT_THAT(refused(R"({"model_type":"llama","num_attention_heads":")" + wide + "\"}"),
              HasSubstr("..."));
  EXPECT_THAT(refused(R"({"model_type":"llama","hidden_size":64,"num_hidden_layers":2000000000})"),
              HasSubstr("must be an integer from 1 to 4096"));
  EXPECT_THAT(refused(std::string(17 << 20, ' ')), HasSubstr("larger than 16777216 bytes"));
  EXPECT_THAT(refused(R"({"model_type": "llama"})"),
              HasSubstr("\"num_attention_heads\" is missing"));
}

TEST(ModelTable, EveryRowIsRead) {
  std::set<std::string_view> types;
  for (const ModelRow* row : all_model_rows()) {
    for_each_part(row->types, ' ', [&](std::string_view type) {
      EXPECT_TRUE(types.insert(type).second) << type << " stands twice";
      EXPECT_EQ(find_model_row(type), row);
    });
    for_each_part(row->parts, ' ', [&](std::string_view part) {
      EXPECT_NE(find_model_row(part.substr(part.find('=') + 1)), nullptr) << part;
    });
    for_each_part(row->architectures, ' ', [&](std::string_view architecture) {
      EXPECT_EQ(find_row_of_architecture(architecture), row) << architecture;
    });
    const std::string_view defaults = row->defaults.empty() ? "{}" : row->defaults;
    EXPECT_TRUE(Json::parse(defaults).is_object()) << row->types;
  }
  EXPECT_GT(types.size(), 120U);
  EXPECT_EQ(find_model_row(""), nullptr);
  EXPECT_EQ(find_model_row("lama"), nullptr);
  EXPECT_EQ(find_row_of_architecture(""), nullptr);
}

}  // namespace
}  // namespace attune
