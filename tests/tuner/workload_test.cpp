// SPDX-License-Identifier: Apache-2.0
// Each shipped model gives the problems of its model card. Malformed files are refused with a
// helpful sentence.
#include "tuner/models/workload.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "generator/core/problem/kernel_spec.hpp"
#include "generator/core/system/error.hpp"
#include "tests/support/error_text.hpp"

namespace attune {
namespace {

using ::testing::HasSubstr;

std::set<std::string> specs_of(const Workload& workload) {
  std::set<std::string> specs;
  for (const Problem& p : workload.problems) specs.insert(to_text(spec_of(p)));
  return specs;
}

struct Shipped {
  const char* model;
  size_t problems;
  size_t specs;
  const char* first;  // the first problem of the default GPU set
};

class ShippedModel : public ::testing::TestWithParam<Shipped> {};

TEST_P(ShippedModel, GivesItsProblems) {
  const Shipped& expected = GetParam();
  const Workload workload =
      workload_from_model(std::filesystem::path(ATTUNE_MODELS) / expected.model, {}, Target::kCuda);
  EXPECT_EQ(workload.name, expected.model);
  EXPECT_EQ(workload.problems.size(), expected.problems);
  EXPECT_EQ(specs_of(workload).size(), expected.specs);
  EXPECT_EQ(to_text(workload.problems.at(0)), expected.first);
  const Workload cpu = workload_from_model(
      std::filesystem::path(ATTUNE_MODELS) / expected.model / "config.json", {}, Target::kCpu);
  EXPECT_FALSE(cpu.problems.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, ShippedModel,
    ::testing::Values(
        Shipped{"Llama-3.1-8B", 8, 1,
                "dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=512,mask=causal_bottom_right"},
        Shipped{"Llama-3.1-70B", 8, 1,
                "dtype=bf16,head_dim=128,heads=64/8,batch=1,seqlen=512,mask=causal_bottom_right"},
        Shipped{"Qwen3-8B", 8, 1,
                "dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=512,mask=causal_bottom_right"},
        Shipped{"Mistral-7B-v0.1", 8, 1,
                "dtype=bf16,head_dim=128,heads=32/"
                "8,batch=1,seqlen=512,mask=causal_bottom_right,window=4095:-"},
        Shipped{"Gemma-2-9B", 14, 2,
                "dtype=bf16,head_dim=256,heads=16/8,batch=1,seqlen=512,mask=causal_bottom_right,"
                "softcap=50"},
        Shipped{"gpt-oss-20b", 16, 2,
                "dtype=bf16,head_dim=64,heads=64/8,batch=1,seqlen=512,mask=causal_bottom_right,"
                "sinks=bf16"},
        Shipped{"Qwen3-30B-A3B", 8, 1,
                "dtype=bf16,head_dim=128,heads=32/4,batch=1,seqlen=512,mask=causal_bottom_right"},
        Shipped{"DeepSeek-V3", 8, 1,
                "dtype=bf16,head_dim_qk=192,head_dim_v=128,heads=128/128,batch=1,seqlen=512,"
                "mask=causal_bottom_right,scale=0.13523377"},
        Shipped{"BERT-base", 5, 1,
                "dtype=fp16,head_dim=64,heads=12/12,batch=1,seqlen=512,mask=none"},
        Shipped{"ViT-L-16-384", 3, 1,
                "dtype=fp16,head_dim=64,heads=16/16,batch=1,seqlen=577,mask=none"},
        Shipped{"SDXL-UNet", 8, 1,
                "dtype=fp16,head_dim=64,heads=10/10,batch=2,seqlen=4096,mask=none"}));

TEST(Workload, EveryShippedModelIsInTheTable) {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(ATTUNE_MODELS))
    count += entry.is_directory() ? 1 : 0;
  EXPECT_EQ(count, 11U);
}

TEST(Workload, GemmaHasItsSoftcapInBothKindsOfLayer) {
  const Workload workload =
      workload_from_model(std::filesystem::path(ATTUNE_MODELS) / "Gemma-2-9B", {}, Target::kCuda);
  EXPECT_TRUE(workload.notes.empty());
  ASSERT_EQ(workload.layer_kinds.size(), 2U);
  for (const LayerKind& kind : workload.layer_kinds)
    for (const Problem& problem : kind.problems) EXPECT_EQ(problem.scores.softcap, 50) << kind.name;
}

TEST(Workload, CrossAttentionHasTheTextsLength) {
  const Workload workload =
      workload_from_model(std::filesystem::path(ATTUNE_MODELS) / "SDXL-UNet", {}, Target::kCuda);
  std::set<std::string> lengths;
  for (const Problem& p : workload.problems)
    lengths.insert(std::to_string(p.seqlen_q) + "x" + std::to_string(p.seqlen_kv));
  EXPECT_EQ(lengths, (std::set<std::string>{"4096x4096", "4096x77", "1024x1024", "1024x77"}));
}

TEST(Workload, EightBitsKeepAResultOf16AndTakeTheirOptions) {
  ShapeChoice choice{{64}, {}, {Dtype::kE4m3}};
  choice.fp8.accuracy = Accuracy::kFast;
  choice.fp8.scale_block_q = choice.fp8.scale_block_kv = 128;
  const auto only = [](const Workload& workload) {
    EXPECT_EQ(workload.problems.size(), 1U);
    return to_text(workload.problems.at(0));
  };
  const std::filesystem::path models(ATTUNE_MODELS);
  EXPECT_EQ(only(workload_from_model(models / "Llama-3.1-8B", choice, Target::kCuda)),
            "dtype=e4m3,head_dim=128,heads=32/8,batch=1,seqlen=64,mask=causal_bottom_right,"
            "accuracy=fast,scale_block_q=128,scale_block_kv=128");
  EXPECT_EQ(only(workload_from_problems({"dtype=fp16,head_dim=64,heads=4,seqlen=7"}, choice)),
            "dtype=e4m3,dtype_o=fp16,head_dim=64,heads=4/4,batch=1,seqlen=64,mask=none,"
            "accuracy=fast,scale_block_q=128,scale_block_kv=128");
  // Given values stay: other dtypes of k, v and o, and options that the choice does not name.
  const std::string given =
      "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=64,heads=4/4,batch=1,seqlen=7,mask=none,"
      "v_layout=transposed,scale_block_q=64";
  EXPECT_EQ(only(workload_from_problems({given})), given);
  // 16-bit types have no such options.
  EXPECT_EQ(only(workload_from_problems({given}, {{}, {}, {Dtype::kBf16}})),
            "dtype=bf16,head_dim=64,heads=4/4,batch=1,seqlen=7,mask=none");
}

TEST(Workload, LengthsAreInTheProblemOrInTheOptions) {
  EXPECT_THROW(workload_from_problems({"dtype=fp32,head_dim=64,heads=4"}), Error);
  const Workload given =
      workload_from_problems({"dtype=fp32,head_dim=64,heads=4"}, {{100, 200}, {}, {}});
  ASSERT_EQ(given.problems.size(), 2U);
  EXPECT_EQ(given.problems[1].seqlen_kv, 200);
}

TEST(Workload, ChoiceReplacesLengthsBatchesAndDtypes) {
  const ShapeChoice choice{{100, 200}, {1, 3}, {Dtype::kFp16, Dtype::kBf16}};
  const Workload llama = workload_from_model(std::filesystem::path(ATTUNE_MODELS) / "Llama-3.1-8B",
                                             choice, Target::kCuda);
  EXPECT_EQ(llama.problems.size(), 8U);
  EXPECT_EQ(specs_of(llama).size(), 2U);
  EXPECT_EQ(to_text(llama.problems.back()),
            "dtype=bf16,head_dim=128,heads=32/8,batch=3,seqlen=200,mask=causal_bottom_right");
  const Workload given =
      workload_from_problems({"dtype=fp32,head_dim=64,heads=4,seqlen=7"}, choice);
  EXPECT_EQ(given.problems.size(), 8U);
  EXPECT_EQ(
      workload_from_problems({"head_dim=64,heads=4,seqlen=7", "heads=4/4,head_dim=64,seqlen=7"})
          .problems.size(),
      1U);
}

class TemporaryFile : public ::testing::Test {
 protected:
  ~TemporaryFile() override { std::filesystem::remove(path_); }
  const std::filesystem::path& write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  std::string model_error(const std::string& text) {
    write(text);
    try {
      workload_from_model(path_, {}, Target::kCuda);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(path_.string()));
      return error.what();
    }
    return "nothing was thrown";
  }
  const std::filesystem::path path_ = std::filesystem::temp_directory_path() /
                                      ("attune_workload_" + std::to_string(::getpid()) + ".json");
};

TEST_F(TemporaryFile, MalformedConfigsAreRefused) {
  const std::vector<std::pair<const char*, const char*>> table{
      {"", "not JSON, at line 1"},
      {"{\n  \"a\": 1,\n  \"b\": ,\n}", "not JSON, at line 3"},
      {"[1, 2]", "not a JSON object"},
      {"{}", "\"num_attention_heads\" is missing"},
      {R"({"model_type": "mamba", "hidden_size": 64})", "model_type is \"mamba\""},
      {R"({"num_attention_heads": "32", "hidden_size": 4096})",
       "\"num_attention_heads\" is \"32\"; must be an integer above 0"},
      {R"({"num_attention_heads": 0, "hidden_size": 4096})", "\"num_attention_heads\" is 0"},
      {R"({"num_attention_heads": -4, "hidden_size": 4096})", "\"num_attention_heads\" is -4"},
      {R"({"num_attention_heads": 32})", "\"hidden_size\" is missing"},
      {R"({"num_attention_heads": 32, "hidden_size": 31})",
       "\"hidden_size\" is 31; must be at least num_attention_heads (32)"},
      {R"({"num_attention_heads": 32, "num_key_value_heads": 5, "hidden_size": 4096})",
       "\"num_key_value_heads\" is 5; must be a divisor of num_attention_heads (32)"},
      {R"({"num_attention_heads": 32, "head_dim": 580})", "head_dim_qk is 584"},
      {R"({"num_attention_heads": 32, "head_dim": 128, "torch_dtype": "int3"})",
       "\"torch_dtype\" is \"int3\"; must be float32"},
      {R"({"num_attention_heads": 32, "head_dim": 128, "sliding_window": "big"})",
       "\"sliding_window\" is \"big\""},
      {R"({"num_attention_heads": 32, "head_dim": 128, "sliding_window": 64,
          "use_sliding_window": 1})",
       "must be true or false"},
      {R"({"_class_name": "UNet2DConditionModel"})", "\"block_out_channels\" is missing"},
      {R"({"_class_name": "UNet2DConditionModel", "block_out_channels": [320, 640],
          "attention_head_dim": [5], "sample_size": 64,
          "down_block_types": ["DownBlock2D", "DownBlock2D"]})",
       "\"attention_head_dim\" is [5]; must be 2 integers"},
      {R"({"_class_name": "UNet2DConditionModel", "block_out_channels": [320, 640],
          "attention_head_dim": 8, "sample_size": 64,
          "down_block_types": ["DownBlock2D", "DownBlock2D"], "mid_block_type": "UNetMidBlock2D"})",
       "must be a list with a CrossAttn block"},
      {R"({"_class_name": "UNet2DConditionModel", "block_out_channels": [320],
          "attention_head_dim": 8, "sample_size": 46341,
          "down_block_types": ["CrossAttnDownBlock2D"]})",
       "\"sample_size\" is 46341; must be at most 46340"},
      {R"({"_class_name": "UNet2DConditionModel", "block_out_channels": [320],
          "attention_head_dim": 8, "sample_size": 64,
          "down_block_types": ["CrossAttnDownBlock2D"], "layers_per_block": 1073741823})",
       "\"layers_per_block\" is 1073741823; must be a number that gives the model at most"},
      {R"({"_class_name": "UNet2DConditionModel", "block_out_channels": [320],
          "attention_head_dim": 8, "sample_size": 64,
          "down_block_types": ["CrossAttnDownBlock2D"],
          "transformer_layers_per_block": 2147483647})",
       "\"transformer_layers_per_block\" is 2147483647; must be a number that gives"},
      {R"({"_class_name": "SD3Transformer2DModel", "attention_head_dim": 64,
          "sample_size": 2147483647})",
       "\"sample_size\" is 2147483647; must be at most"},
      {R"({"_class_name": "FluxTransformer2DModel", "attention_head_dim": 64, "num_layers": 2,
          "num_single_layers": 2147483646})",
       "\"num_single_layers\" is 2147483646; must be a number that gives the model"},
  };
  for (const auto& [text, sentence] : table)
    EXPECT_THAT(model_error(text), HasSubstr(sentence)) << text;
}

TEST_F(TemporaryFile, PublishedConfigsAreUnderstood) {
  // transformers 5 writes dtype. Mistral-Nemo states a head_dim that differs from hidden_size /
  // heads. Qwen2 has a window that it does not use.
  write(
      R"({"model_type": "mistral", "dtype": "float16", "hidden_size": 5120, "head_dim": 128,
            "num_attention_heads": 32, "num_key_value_heads": 8, "sliding_window": null,
            "max_position_embeddings": 1024})");
  const Workload nemo = workload_from_model(path_, {}, Target::kCuda);
  EXPECT_EQ(nemo.problems.size(), 3U);  // lengths that fit 1024 positions
  EXPECT_EQ(to_text(nemo.problems[0]),
            "dtype=fp16,head_dim=128,heads=32/8,batch=1,seqlen=512,mask=causal_bottom_right");
  write(
      R"({"model_type": "qwen2", "torch_dtype": "bfloat16", "hidden_size": 896,
            "num_attention_heads": 14, "num_key_value_heads": 2, "sliding_window": 32768,
            "use_sliding_window": false})");
  EXPECT_EQ(to_text(workload_from_model(path_, {{64}, {}, {}}, Target::kCpu).problems.at(0)),
            "dtype=bf16,head_dim=64,heads=14/2,batch=1,seqlen=64,mask=causal_bottom_right");
  // Stable Diffusion 1.5 has eight heads at every resolution.
  write(
      R"({"_class_name": "UNet2DConditionModel", "attention_head_dim": 8,
            "block_out_channels": [320, 640, 1280, 1280],
            "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D",
                                 "CrossAttnDownBlock2D", "DownBlock2D"], "sample_size": 64})");
  std::set<int> head_dims;
  for (const Problem& p : workload_from_model(path_, {}, Target::kCuda).problems)
    head_dims.insert(p.head_dim_qk);
  EXPECT_EQ(head_dims, (std::set<int>{40, 80, 160}));
}

TEST(Workload, AMissingFileIsSaid) {
  EXPECT_THROW(workload_from_model("/nonexistent/config.json", {}, Target::kCuda), Error);
}

TEST(Workload, ListsOfLengths) {
  EXPECT_EQ(parse_length_list("--seqlen", "512,1024"), (std::vector<int64_t>{512, 1024}));
  EXPECT_TRUE(parse_length_list("--seqlen", "").empty());
  for (const char* bad : {"0", "-1", "12x", "1,,2", "1 2", "99999999999999999999"}) {
    try {
      parse_length_list("--seqlen", bad);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(),
                  HasSubstr("--seqlen is \"" + std::string(bad) + "\"; must be integers above 0"));
    }
  }
  EXPECT_EQ(parse_dtype_list("bf16,fp16"), (std::vector<Dtype>{Dtype::kBf16, Dtype::kFp16}));
}

std::vector<std::string> trained(const std::string& problem, float dropout,
                                 bool deterministic = false) {
  Workload workload = workload_from_problems({problem});
  add_training({dropout, deterministic}, &workload);
  std::vector<std::string> texts;
  for (const Problem& p : workload.problems) texts.push_back(to_text(p));
  return texts;
}

TEST(Training, AddsTheGradientsOfEachForward) {
  const std::string llama = "head_dim=128,heads=32/8,batch=1,seqlen=512,mask=causal_bottom_right";
  EXPECT_EQ(trained("dtype=bf16," + llama, 0),
            (std::vector<std::string>{"dtype=bf16," + llama,
                                      "op=attention_backward,dtype=bf16," + llama}));
  EXPECT_EQ(
      trained("dtype=bf16," + llama, 0.25F),
      (std::vector<std::string>{"dtype=bf16," + llama + ",dropout=0.25",
                                "op=attention_backward,dtype=bf16," + llama + ",dropout=0.25"}));
  EXPECT_EQ(trained("dtype=e4m3,accuracy=fast," + llama, 0).at(1),
            "op=attention_backward,dtype=bf16," + llama);
}

TEST(Training, LeavesProblemsOf8BitsWithoutDropoutWhereOthersTakeIt) {
  const std::string rest = "head_dim=128,heads=32/8,batch=1,seqlen=512,mask=causal_bottom_right";
  Workload mixed = workload_from_problems({"dtype=e4m3," + rest, "dtype=bf16," + rest});
  add_training({0.25F, false}, &mixed);
  std::vector<float> dropouts;
  for (const Problem& p : mixed.problems) dropouts.push_back(p.dropout);
  EXPECT_EQ(dropouts, (std::vector<float>{0, 0, 0.25F, 0.25F}));
  for (const std::string problem : {"dtype=e4m3," + rest, "dtype=bf16,dropout=0.5," + rest}) try {
      trained(problem, 0.25F);
      ADD_FAILURE() << problem << " was not refused";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("--dropout is given, but no problem takes it"));
    }
}

TEST(Training, RequestsEqualBitsForGradientsOnly) {
  const std::string sinks =
      "dtype=bf16,head_dim=64,heads=8/8,batch=1,seqlen=512,mask=none,sinks=bf16";
  const std::string backward = "op=attention_backward," + sinks;
  EXPECT_EQ(trained(sinks, 0, true),
            (std::vector<std::string>{sinks, backward + ",deterministic=1",
                                      backward + ",score_gradient=sinks,deterministic=1"}));
  EXPECT_EQ(trained(sinks, 0.25F, true).at(1), backward + ",deterministic=1,dropout=0.25");
}

TEST(Training, AddsGradientsOfLearnedTensors) {
  const std::string t5 = "dtype=bf16,head_dim=64,heads=8/8,batch=4,seqlen=512,mask=none,bias=bf16";
  EXPECT_EQ(trained(t5, 0).at(2), "op=attention_backward," + t5 + ",score_gradient=bias,repeats=b");
  const std::string oss =
      "dtype=bf16,head_dim=64,heads=64/8,batch=1,seqlen=512,mask=causal_bottom_right,sinks=bf16";
  EXPECT_EQ(trained(oss, 0).at(2), "op=attention_backward," + oss + ",score_gradient=sinks");
  EXPECT_EQ(trained("dtype=bf16,head_dim=64,heads=8,seqlen=512,alibi=1", 0).size(), 2U);
}

TEST(Training, RefusesWorkloadsWithoutAForward) {
  try {
    trained("op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=128,heads=8,seqlen=512", 0);
    ADD_FAILURE() << "was not refused";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("--training is given, but no problem has op prefill"));
  }
  EXPECT_THROW(trained("dtype=bf16,head_dim=128,heads=8,seqlen=512", 1.5F), Error);
}

}  // namespace
}  // namespace attune
