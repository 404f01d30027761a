// SPDX-License-Identifier: Apache-2.0
// Models give the problems that an engine calls: the right ops, heads and caches, and only caches
// that fit the device.
#include "tuner/models/serving.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "generator/core/system/error.hpp"
#include "tests/support/error_text.hpp"
#include "tuner/models/workload.hpp"

namespace attune {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class ServingTest : public ::testing::Test {
 protected:
  ~ServingTest() override { std::filesystem::remove(path_); }

  Workload workload_of(const std::string& config, const ServingChoice& serving = {},
                       std::vector<Dtype> dtypes = {}, Target target = Target::kCuda) {
    std::ofstream(path_) << config;
    ShapeChoice choice;
    choice.dtypes = std::move(dtypes);
    choice.serving = serving;
    return workload_from_model(path_.string(), choice, target);
  }
  std::vector<std::string> texts_of(const std::string& config, const ServingChoice& serving = {}) {
    std::vector<std::string> texts;
    for (const Problem& problem : workload_of(config, serving).problems)
      texts.push_back(to_text(problem));
    return texts;
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("attune_serving_" + std::to_string(::getpid()));
};

constexpr const char* kLlama =
    R"({"model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 4096,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
        "max_position_embeddings": 131072, "rope_theta": 500000.0})";
constexpr const char* kDeepSeek =
    R"({"model_type": "deepseek_v3", "torch_dtype": "bfloat16", "hidden_size": 7168,
        "num_attention_heads": 128, "num_hidden_layers": 61, "kv_lora_rank": 512,
        "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "max_position_embeddings": 163840})";
constexpr int64_t kH200 = 141'000'000'000;

ServingChoice on_h200() {
  ServingChoice serving;
  serving.memory_bytes = kH200;
  return serving;
}

bool is_decode(const Problem& p) { return p.op == Op::kAttentionKvCache && p.seqlen_q == 1; }

TEST_F(ServingTest, ALlamaGetsWhatAnEngineCalls) {
  const std::vector<std::string> texts = texts_of(kLlama, on_h200());
  const std::string cached = "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,";
  EXPECT_THAT(texts, Contains(cached + "batch=32,seqlen_q=1,seqlen_kv=8192,"
                                       "mask=causal_bottom_right,page_size=16"));
  EXPECT_THAT(texts, Contains(cached + "batch=32,seqlen_q=4,seqlen_kv=8192,"
                                       "mask=causal_bottom_right,page_size=16,packed_q=1"));
  EXPECT_THAT(texts, Contains(cached + "batch=1,seqlen_q=8192,seqlen_kv=32768,"
                                       "mask=causal_bottom_right,page_size=16,packed_q=1"));
  EXPECT_THAT(texts, Contains(cached + "batch=8,seqlen=1024,mask=causal_bottom_right,"
                                       "packed_q=1,packed_kv=1"));
  EXPECT_THAT(
      texts,
      Contains("op=append_kv,dtype=bf16,head_dim=128,heads=32/8,batch=128,seqlen_q=1,"
               "seqlen_kv=1024,mask=none,page_size=16,rotary=bf16,rotary_dim=128,rotary_q=1"));
  EXPECT_GE(texts.size(), 16U);
  EXPECT_THAT(texts, Each(HasSubstr("op=")));  // no plain prefill
}

// 128 KiB a token: 128 requests of 8192 keys take 137 GB.
TEST_F(ServingTest, CachesTakeHalfOfTheMemoryAtMost) {
  const auto most_keys = [&](const ServingChoice& serving) {
    std::map<int64_t, int64_t> most;
    for (const Problem& p : workload_of(kLlama, serving).problems)
      if (is_decode(p)) most[p.batch] = std::max(most[p.batch], p.seqlen_kv);
    return most;
  };
  using Most = std::map<int64_t, int64_t>;
  EXPECT_EQ(most_keys(on_h200()), (Most{{1, 32768}, {8, 32768}, {32, 8192}, {128, 1024}}));
  ServingChoice small = on_h200();
  small.memory_bytes = 24'000'000'000;
  EXPECT_EQ(most_keys(small), (Most{{1, 32768}, {8, 8192}, {32, 1024}}));
  small.kv_lengths = {2048};
  EXPECT_EQ(most_keys(small), (Most{{1, 2048}, {8, 2048}, {32, 2048}}));
  small.batches = {256};
  EXPECT_EQ(most_keys(small), (Most{{256, 2048}}));
  EXPECT_THAT(workload_of(kLlama, on_h200()).notes,
              Contains(HasSubstr("3 of 12 pairs of batch and keys are left out")));
  small.page_size = 16;
  EXPECT_THAT(workload_of(kLlama, small).notes, IsEmpty());
  small.batches = {};
  small.memory_bytes = 1'000'000;
  EXPECT_THAT(testing::error_text([&] { workload_of(kLlama, small); }, ErrorCode::kInvalidArgument),
              HasSubstr("a cache for batch 1 of 2048 keys takes"));
}

TEST_F(ServingTest, LatentCachesAreDecodedByLatentAttention) {
  const std::vector<std::string> texts = texts_of(kDeepSeek, on_h200());
  EXPECT_THAT(texts, Contains(::testing::StartsWith(
                         "op=attention_kvcache,dtype=bf16,head_dim_qk=576,head_dim_v=512,"
                         "heads=128/1,batch=8,seqlen_q=1,seqlen_kv=8192,mask=causal_bottom_right,"
                         "page_size=64,v_in_k=1,scale=0.0721687")));
  EXPECT_THAT(texts, Contains(::testing::StartsWith(
                         "op=attention_kvcache,dtype=bf16,head_dim_qk=192,head_dim_v=128,"
                         "heads=128/128,batch=1,seqlen=8192,")));
  EXPECT_THAT(texts, Contains(HasSubstr("op=append_kv,dtype=bf16,head_dim_qk=512,head_dim_v=64,"
                                        "heads=1/1,batch=1,")));
  EXPECT_THAT(texts, Each(Not(HasSubstr("rotary="))));
}

TEST_F(ServingTest, AnIndexersKeysAreLists) {
  std::string sparse = kDeepSeek;
  sparse.replace(sparse.find("deepseek_v3"), 11, "deepseek_v32");
  for (const auto& [config, keys] :
       {std::pair{sparse, 2048},
        {sparse.insert(1, R"("index_topk": 512, )"), 512}}) {  // 2048 where the config is silent
    const Workload workload = workload_of(config, on_h200());
    const std::string lists =
        fmt::format("v_in_k=1,key_indices=places,listed_keys={},scale=0.07216878", keys);
    const std::string latent =
        "op=attention_kvcache,dtype=bf16,head_dim_qk=576,head_dim_v=512,heads=128/1,";
    std::vector<std::string> texts;
    for (const Problem& problem : workload.problems) texts.push_back(to_text(problem));
    EXPECT_THAT(
        texts,
        Contains(latent + "batch=8,seqlen_q=1,seqlen_kv=32768,mask=none,page_size=64," + lists));
    EXPECT_THAT(texts,
                Contains(::testing::AllOf(HasSubstr("batch=1,seqlen_q=8192,"), HasSubstr(lists))));
    EXPECT_THAT(texts,
                Each(Not(HasSubstr("batch=8,seqlen_q=1,seqlen_kv=8192,mask=none,page_size=64,"
                                   "v_in"))));  // a row reads as many keys as at 32768
    for (const std::string& note : workload.notes) EXPECT_THAT(note, Not(HasSubstr("indexer")));
  }
}

TEST_F(ServingTest, WindowsSinksAndChunksStay) {
  const std::vector<std::string> texts = texts_of(
      R"({"model_type": "gpt_oss", "torch_dtype": "bfloat16", "head_dim": 64,
          "num_attention_heads": 64, "num_key_value_heads": 8, "sliding_window": 128,
          "num_hidden_layers": 24})",
      on_h200());
  EXPECT_THAT(texts, Contains(::testing::AllOf(HasSubstr("seqlen_q=1,"), HasSubstr("window=127:-"),
                                               HasSubstr("sinks=bf16"))));
  // A window of 128 keys: lengths between the shortest and the longest read the same keys.
  const auto decodes = std::count_if(texts.begin(), texts.end(), [](const std::string& text) {
    return text.find("batch=1,seqlen_q=1,") != std::string::npos &&
           text.find("window=127") != std::string::npos &&
           text.find("packed_q") == std::string::npos &&
           text.find("append_kv") == std::string::npos;
  });
  EXPECT_EQ(decodes, 2);
  ServingChoice one = on_h200();
  one.batches = {2};
  one.kv_lengths = {32768};
  for (const Problem& p :
       workload_of(R"({"model_type": "llama4_text", "hidden_size": 5120})", one, {Dtype::kBf16})
           .problems) {
    EXPECT_EQ(p.scores.chunk, 0);
    if (is_decode(p)) EXPECT_THAT(p.seqlen_kv, ::testing::AnyOf(8192, 32768));
  }
}

TEST_F(ServingTest, CachesHaveTheTypeOfTheConfigOrOfTheOption) {
  const auto types = [&](const std::string& config, const ServingChoice& serving) {
    std::set<Dtype> found;
    for (const Problem& p : workload_of(config, serving).problems)
      if (p.cache.page_size > 0) found.insert(p.dtype_kv);
    return found;
  };
  const auto quantised = [&](const std::string& scheme) {
    std::string text = kLlama;
    return text.insert(1, R"("quantization_config": )" + scheme + ", ");
  };
  using Types = std::set<Dtype>;
  EXPECT_EQ(types(kLlama, {}), Types{Dtype::kBf16});
  EXPECT_EQ(types(quantised(R"({"kv_cache_scheme": {"num_bits": 8, "type": "float"}})"), {}),
            Types{Dtype::kE4m3});
  EXPECT_EQ(types(quantised(R"({"kv_cache_scheme": {"num_bits": 8, "type": "int"}})"), {}),
            Types{Dtype::kInt8});
  EXPECT_EQ(types(quantised(R"({"kv_cache_scheme": null})"), {}), Types{Dtype::kBf16});
  EXPECT_EQ(types(quantised(R"({"kv_cache_quant_algo": "FP8"})"), {}), Types{Dtype::kE4m3});
  ServingChoice wide;
  wide.dtype_kv = Dtype::kBf16;
  EXPECT_EQ(types(quantised(R"({"kv_cache_quant_algo": "FP8"})"), wide), Types{Dtype::kBf16});
}

TEST_F(ServingTest, OneOfSeveralGpusHasAPartOfTheHeads) {
  const auto heads = [&](const std::string& config, int gpus) {
    ServingChoice serving = on_h200();
    serving.tensor_parallel = gpus;
    const Problem p = workload_of(config, serving).problems.front();
    return std::pair(p.num_heads_q, p.num_heads_kv);
  };
  EXPECT_EQ(heads(kLlama, 4), std::pair(8, 2));
  EXPECT_EQ(heads(kLlama, 16), std::pair(2, 1)) << "heads of K are repeated";
  EXPECT_EQ(heads(kDeepSeek, 8), std::pair(16, 1));
  EXPECT_THAT(testing::error_text([&] { heads(kLlama, 3); }, ErrorCode::kInvalidArgument),
              HasSubstr("--tensor-parallel is 3, and causal has 32 heads of q and 8 of k"));
}

// Queries of 32 bits have no caches of 8 bits. The config's wish becomes a note, the user's an
// error.
TEST_F(ServingTest, ACacheThatIsNotServedIsSaid) {
  std::string text = kLlama;
  text.insert(1, R"("quantization_config": {"kv_cache_scheme": {"num_bits": 8}}, )");
  const Workload workload = workload_of(text, on_h200(), {Dtype::kFp32});
  ASSERT_EQ(workload.layer_kinds.size(), 1U);
  EXPECT_THAT(workload.layer_kinds[0].not_supported,
              Contains(::testing::AllOf(HasSubstr("its cache of e4m3 (dtype"),
                                        HasSubstr("one of fp32 is tuned"))));
  for (const Problem& p : workload.problems) EXPECT_EQ(p.dtype_kv, Dtype::kFp32);
  ServingChoice asked = on_h200();
  asked.dtype_kv = Dtype::kE4m3;
  EXPECT_THAT(testing::error_text([&] { workload_of(kLlama, asked, {Dtype::kFp32}); }),
              HasSubstr("--kv-dtype is e4m3: dtype"));
  for (const Problem& p : workload_of(kDeepSeek, asked).problems)
    if (p.cache.v_in_k) EXPECT_EQ(p.dtype_kv, Dtype::kE4m3) << "latent caches have 8 bits too";
}

// Fields of caches vary between releases, and plain tunes need none of them.
TEST_F(ServingTest, OddFieldsOfCachesMeanNone) {
  for (const char* odd :
       {R"("rotary_dim": 0)", R"("rotary_dim": "all")", R"("partial_rotary_factor": [1])",
        R"("quantization_config": {"kv_cache_scheme": {"num_bits": "8"}})",
        R"("quantization_config": {"kv_cache_scheme": {"num_bits": 8.0, "type": 3}})",
        R"("quantization_config": {"kv_cache_quant_algo": 8})", R"("quantization_config": 4)"}) {
    std::string text = kLlama;
    text.insert(1, std::string(odd) + ", ");
    EXPECT_FALSE(workload_of(text).problems.empty()) << odd;
  }
  const std::string nope =
      R"({"model_type": "deepseek_v3", "torch_dtype": "bfloat16", "hidden_size": 7168,
          "num_attention_heads": 16, "num_hidden_layers": 61, "kv_lora_rank": 512,
          "qk_nope_head_dim": 128, "qk_rope_head_dim": 0, "v_head_dim": 128})";
  std::ofstream(path_) << nope;
  EXPECT_FALSE(workload_from_model(path_.string(), {}, Target::kCuda).problems.empty());
}

TEST_F(ServingTest, AModelWithoutADecoderIsRefused) {
  const auto refusal = [&](const std::string& config, std::vector<Dtype> dtypes = {}) {
    return testing::error_text([&] { workload_of(config, {}, dtypes); },
                               ErrorCode::kInvalidArgument);
  };
  EXPECT_THAT(refusal(R"({"model_type": "bert", "hidden_size": 768})"),
              HasSubstr("the model has no decoder whose caches attune reads"));
  EXPECT_THAT(refusal(kLlama, {Dtype::kE4m3}), HasSubstr("--dtype is e4m3 with --serving"));
}

// Returns the problems of the kind of layer with this name, as texts.
std::vector<std::string> texts_of_kind(const Workload& workload, const std::string& name) {
  for (const LayerKind& kind : workload.layer_kinds) {
    if (kind.name != name) continue;
    std::vector<std::string> texts;
    for (const Problem& problem : kind.problems) texts.push_back(to_text(problem));
    return texts;
  }
  ADD_FAILURE() << "no kind of layer is called " << name;
  return {};
}

constexpr const char* kWhisper =
    R"({"model_type": "whisper", "torch_dtype": "float16", "d_model": 1280,
        "encoder_attention_heads": 20, "decoder_attention_heads": 20, "encoder_layers": 32,
        "decoder_layers": 32, "max_source_positions": 1500, "max_target_positions": 448})";

// A cache of what the decoder wrote, and one of the encoder's 1500 keys, which nothing appends to.
TEST_F(ServingTest, ADecoderBesideAnEncoderHasTwoCaches) {
  const Workload workload = workload_of(kWhisper, on_h200());
  const std::string cached = "op=attention_kvcache,dtype=fp16,head_dim=64,heads=20/20,batch=";
  const auto own = texts_of_kind(workload, "decoder, causal");
  EXPECT_THAT(own, Contains(cached + "8,seqlen_q=1,seqlen_kv=448,mask=causal_bottom_right,"
                                     "page_size=16"));
  EXPECT_THAT(own, Contains(cached + "1,seqlen=448,mask=causal_bottom_right,page_size=16,"
                                     "packed_q=1"))
      << "no prompt is longer than the decoder's positions";
  EXPECT_THAT(own, Contains(HasSubstr("op=append_kv")));
  EXPECT_THAT(own, Each(Not(HasSubstr("seqlen_kv=1500"))));
  const auto cross = texts_of_kind(workload, "cross-attention, 1500 cached keys, no append");
  EXPECT_THAT(cross, Contains(cached + "8,seqlen_q=1,seqlen_kv=1500,mask=none,page_size=16"));
  EXPECT_THAT(cross, Contains(cached + "8,seqlen_q=4,seqlen_kv=1500,mask=none,page_size=16,"
                                       "packed_q=1"));
  EXPECT_THAT(cross, Contains(cached + "1,seqlen_q=448,seqlen_kv=1500,mask=none,page_size=16,"
                                       "packed_q=1"));
  EXPECT_THAT(cross, Each(::testing::AllOf(HasSubstr("op=attention_kvcache"),
                                           HasSubstr("seqlen_kv=1500,mask=none"))));
  const auto encoder = texts_of_kind(workload, "encoder, both directions");
  EXPECT_THAT(encoder,
              Contains("dtype=fp16,head_dim=64,heads=20/20,batch=8,seqlen=1500,mask=none"));
  EXPECT_FALSE(workload.decodes);
  std::ofstream(path_) << kWhisper;
  EXPECT_TRUE(workload_from_model(path_.string(), {}, Target::kCuda).decodes)
      << "the program says that --serving tunes the rest";
}

// 32 layers of two caches: 1500 keys of the encoder and 448 of the decoder, 5120 bytes a key.
TEST_F(ServingTest, BothCachesTakeMemory) {
  const auto batches = [&](int64_t memory_bytes) {
    ServingChoice serving;
    serving.memory_bytes = memory_bytes;
    std::set<int64_t> found;
    for (const Problem& p : workload_of(kWhisper, serving).problems)
      if (is_decode(p)) found.insert(p.batch);
    return found;
  };
  constexpr int64_t kRequest = int64_t{32} * (1500 + 448) * 5120;
  EXPECT_EQ(batches(2 * 8 * kRequest), (std::set<int64_t>{1, 8}));
  EXPECT_EQ(batches(2 * 8 * kRequest - 2), std::set<int64_t>{1});
}

TEST_F(ServingTest, AnEncodersLengthIsTheRequestsUnlessTheModelFixesIt) {
  const Workload workload = workload_of(
      R"({"model_type": "bart", "torch_dtype": "float16", "d_model": 1024,
          "max_position_embeddings": 1024})",
      on_h200());
  const auto cross =
      texts_of_kind(workload, "cross-attention, cached keys of the encoder, no append");
  EXPECT_THAT(cross, Contains("op=attention_kvcache,dtype=fp16,head_dim=64,heads=16/16,batch=32,"
                              "seqlen_q=1,seqlen_kv=1024,mask=none,page_size=16"));
  EXPECT_THAT(cross, Each(Not(HasSubstr("append_kv"))));
  const auto own = texts_of_kind(workload, "decoder, causal");
  EXPECT_THAT(own, Contains(HasSubstr("op=append_kv")));
  EXPECT_THAT(own, Each(Not(HasSubstr("seqlen=8192"))));
}

// Ops over caches take no bias. The decoder's rows are tuned as they are called without a cache.
TEST_F(ServingTest, RowsUnderABiasAreTunedWithoutACache) {
  const Workload workload =
      workload_of(R"({"model_type": "t5", "torch_dtype": "bfloat16", "d_model": 512})", on_h200());
  const auto own = texts_of_kind(workload, "decoder, causal");
  EXPECT_THAT(own, Contains(::testing::StartsWith(
                       "dtype=bf16,head_dim=64,heads=8/8,batch=8,seqlen_q=1,seqlen_kv=8192,")));
  EXPECT_THAT(own, Each(HasSubstr("bias=")));
  EXPECT_THAT(workload.notes,
              Contains(HasSubstr("decoder, causal: a cache beside relative_bias is not "
                                 "supported yet; kernels are tuned without it")));
  const auto cross =
      texts_of_kind(workload, "cross-attention, cached keys of the encoder, no append");
  EXPECT_THAT(cross, Contains(::testing::StartsWith(
                         "op=attention_kvcache,dtype=bf16,head_dim=64,heads=8/8,batch=8,seqlen_q=1,"
                         "seqlen_kv=8192,mask=none,page_size=16,scale=1")));
}

TEST_F(ServingTest, ImagesKeepTheirProblems) {
  const Workload workload = workload_of(
      R"({"model_type": "llava", "torch_dtype": "float16", "text_config": {"model_type": "llama"},
          "vision_config": {"model_type": "clip_vision_model"}})");
  ASSERT_EQ(workload.layer_kinds.size(), 2U);
  EXPECT_EQ(workload.layer_kinds[0].problems[0].op, Op::kAttentionKvCache);
  EXPECT_EQ(workload.layer_kinds[1].problems[0].op, Problem{}.op);
  EXPECT_FALSE(workload.decodes);
}

}  // namespace
}  // namespace attune
