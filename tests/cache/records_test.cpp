// SPDX-License-Identifier: Apache-2.0
// Stored identities and texts: frozen digests, the facts that take part in them, and parsers that
// refuse all other texts.
#include "cache/records.hpp"

#include <gmock/gmock.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

#include "cache/record_json.hpp"
#include "tests/cache/store_samples.hpp"

namespace attune {
namespace {

void set_8_bits(KernelSpec* spec) {
  spec->dtype_q = Dtype::kE4m3;
  spec->dtype_kv = *rc::gen::element(Dtype::kE4m3, Dtype::kE5m2);
  spec->dtype_o = *rc::gen::element(Dtype::kBf16, Dtype::kFp16);
  spec->fp8.accuracy = *rc::gen::element(Accuracy::kAccurate, Accuracy::kFast);
  spec->fp8.v_layout = *rc::gen::element(VLayout::kRows, VLayout::kTransposed);
  spec->fp8.scale_block_q = 16 * *rc::gen::inRange(0, 4097);
  spec->fp8.scale_block_kv = 16 * *rc::gen::inRange(0, 4097);
}

KernelSpec random_quantise_spec() {
  KernelSpec spec;
  spec.op = Op::kQuantise;
  spec.dtype_q = spec.dtype_kv = *rc::gen::element(Dtype::kFp32, Dtype::kBf16, Dtype::kFp16);
  spec.dtype_o = *rc::gen::element(Dtype::kE4m3, Dtype::kE5m2);
  spec.head_dim_qk = spec.head_dim_v = *rc::gen::element(16, 64, 256);
  spec.fp8.scale_block_q = spec.fp8.scale_block_kv = 16 * *rc::gen::inRange(0, 4097);
  spec.quantise.rotation = *rc::gen::element(Rotation::kNone, Rotation::kHadamard);
  return spec;
}

KernelSpec random_spec() {
  if (*rc::gen::inRange(0, 3) == 0) return random_quantise_spec();
  KernelSpec spec;
  spec.dtype_q = *rc::gen::element(Dtype::kFp32, Dtype::kBf16, Dtype::kFp16);
  spec.dtype_kv = spec.dtype_o = spec.dtype_q;
  if (*rc::gen::inRange(0, 2) == 0) set_8_bits(&spec);
  spec.head_dim_qk = 8 * *rc::gen::inRange(2, 33);
  spec.head_dim_v = 8 * *rc::gen::inRange(2, 33);
  spec.gqa_ratio = *rc::gen::inRange(1, 100);
  spec.mask = *rc::gen::element(Mask::kNone, Mask::kCausalTopLeft, Mask::kCausalBottomRight);
  spec.window_left = *rc::gen::inRange<int64_t>(-1, int64_t{1} << 30);
  spec.window_right = *rc::gen::inRange<int64_t>(-1, int64_t{1} << 30);
  return spec;
}

TEST(Records, SpecTextsAreReadBack) {
  EXPECT_TRUE(rc::check("parse_spec_text is the inverse of to_text", [] {
    const KernelSpec spec = random_spec();
    const KernelSpec read = parse_spec_text(to_text(spec));
    RC_ASSERT(to_text(read) == to_text(spec));
    RC_ASSERT(read.fp8 == spec.fp8);
    RC_ASSERT(read.op == spec.op);
  }));
}

TEST(Records, ShapeTextsAreReadBack) {
  EXPECT_TRUE(rc::check("parse_shape_text is the inverse of to_text", [] {
    const auto length = rc::gen::inRange<int64_t>(0, int64_t{1} << 30);
    const int heads_kv = *rc::gen::inRange(1, 100);
    const Shape shape{*rc::gen::inRange(0, 1000), *length, *length,
                      heads_kv * *rc::gen::inRange(1, 10), heads_kv};
    RC_ASSERT(to_text(parse_shape_text(to_text(shape))) == to_text(shape));
  }));
}

// Returns `text` with another value of one of its fields.
std::string with(std::string text, const std::string& field, const std::string& value) {
  const size_t begin = text.find(field + "=") + field.size() + 1;
  return text.replace(begin, std::min(text.find(',', begin), text.size()) - begin, value);
}

TEST(Records, OtherTextsAreRefused) {
  const std::string spec = to_text(sample_key().spec), shape = to_text(sample_key().shape);
  for (const char* more : {",accuracy=exact", ",accuracy=accurate", ",v_layout=rows",
                           ",scale_block_q=x", ",scale_block_q=0", ",rotation=fourier"})
    error_of(ErrorCode::kInvalidArgument, [&] { parse_spec_text(spec + more); });
  for (const std::string& text : {std::string(), std::string("x"), spec + ",more=1",
                                  spec.substr(0, spec.size() - 1), spec + " ", shape})
    error_of(ErrorCode::kInvalidArgument, [&] { parse_spec_text(text); });
  for (const std::string& text :
       {std::string(), std::string("batch"), shape + ",", "0" + shape, spec})
    error_of(ErrorCode::kInvalidArgument, [&] { parse_shape_text(text); });
  for (const char* field : {"head_dim_qk", "head_dim_v", "gqa_ratio"})
    error_of(ErrorCode::kInvalidArgument, [&] { parse_spec_text(with(spec, field, "0")); });
  for (const char* field : {"batch", "seqlen_q", "seqlen_kv"})
    error_of(ErrorCode::kInvalidArgument, [&] { parse_shape_text(with(shape, field, "-1")); });
  for (const char* heads : {"0/0", "4/0", "-4/-1"})
    error_of(ErrorCode::kInvalidArgument, [&] { parse_shape_text(with(shape, "heads", heads)); });
}

// A look-up would find such extents near to every shape.
TEST(Records, ExtentsThatNoProblemHasAreRefused) {
  for (const char* shape :
       {"batch=-1,seqlen_q=8,seqlen_kv=8,heads=4/2", "batch=1,seqlen_q=-8,seqlen_kv=8,heads=4/2",
        "batch=1,seqlen_q=8,seqlen_kv=8,heads=0/0", "batch=1,seqlen_q=8,seqlen_kv=8,heads=3/2",
        "batch=4611686018427387904,seqlen_q=8,seqlen_kv=8,heads=4/2",
        "batch=2000000000,seqlen_q=2000000000,seqlen_kv=8,heads=4/2"})
    error_of(ErrorCode::kInvalidArgument, [&] { parse_shape_text(shape); });
  for (auto [field, bad] :
       {std::pair{"head_dim_qk=128", "head_dim_qk=0"}, std::pair{"head_dim_v=96", "head_dim_v=-96"},
        std::pair{"gqa_ratio=4", "gqa_ratio=0"},
        std::pair{"window=4096:-1", "window=9223372036854775807:-1"}}) {
    std::string text = to_text(sample_key().spec);
    text.replace(text.find(field), std::string(field).size(), bad);
    error_of(ErrorCode::kInvalidArgument, [&] { parse_spec_text(text); });
  }
}

TEST(Records, NumbersOutsideTheirIntegerTypeAreRefused) {
  const TuningKey key = sample_key();
  const std::string line = winner_line(sample_winner(key));
  ASSERT_NO_THROW(parse_winner_line(line));
  for (auto [field, bad] : {std::pair{"\"samples\":40", "\"samples\":1e300"},
                            std::pair{"\"samples\":40", "\"samples\":-40"},
                            std::pair{"\"samples\":40", "\"samples\":40.5"},
                            std::pair{"\"samples\":40", "\"samples\":18446744073709551615"},
                            std::pair{"\"samples\":40", "\"samples\":4294967336"},
                            std::pair{"\"l2_bytes\":", "\"l2_bytes\":-1"}}) {
    std::string text = line;
    ASSERT_NE(text.find(field), std::string::npos) << field;
    text.replace(text.find(field), std::string(field).size(), bad);
    error_of(ErrorCode::kInvalidArgument, [&] { parse_winner_line(text); });
  }
}

// Stores hold these digests. If this test fails, no stored row is found any more.
TEST(Records, DigestsAreFrozen) {
  const TuningKey key = sample_key();
  EXPECT_EQ(key.device.text(),
            "device "
            "v1\narch=sm_90\nsm_count=132\nshared_bytes_per_block=232448\nregisters_per_sm="
            "65536\nl2_bytes=52428800\n"
            "memory_bus_bits=6144\nmemory_clock_khz=3201000\nslice=\n");
  EXPECT_EQ(sample_toolchain().text(),
            "toolchain v1\ntemplate=prefill_sm80\ntemplate_digest=t1\ncompiler=nvrtc "
            "13.0\noptions=-O3\n");
  EXPECT_EQ(key.device.digest(), "7d05595c7dfffa74e35aef45cd197f8f");
  EXPECT_EQ(sample_toolchain().digest(), "0c8b7c0ca0501554a6718884253f289b");
  EXPECT_EQ(to_text(key.spec),
            "op=prefill,dtype_q=bf16,dtype_kv=bf16,dtype_o=bf16,head_dim_qk=128,head_dim_v=96,gqa_"
            "ratio=4,mask=causal_bottom_right,"
            "window=4096:-1");
  KernelSpec narrow = key.spec;
  narrow.dtype_q = Dtype::kE4m3;
  narrow.dtype_kv = Dtype::kE5m2;
  narrow.fp8 = {Accuracy::kFast, VLayout::kTransposed, 64, 128};
  EXPECT_EQ(to_text(narrow),
            "op=prefill,dtype_q=e4m3,dtype_kv=e5m2,dtype_o=bf16,head_dim_qk=128,head_dim_v=96,gqa_"
            "ratio=4,mask=causal_bottom_right,window=4096:-1,accuracy=fast,v_layout=transposed,"
            "scale_block_q=64,scale_block_kv=128");
  EXPECT_EQ(to_text(key.shape), "batch=2,seqlen_q=2048,seqlen_kv=2048,heads=32/8");
}

TEST(Records, EveryStructuralFactOfADeviceTakesPart) {
  const DeviceIdentity base = sample_key().device;
  std::set<std::string> digests{base.digest()};
  const auto changed = [&](const auto& change) {
    DeviceIdentity device = base;
    change(device);
    return digests.insert(device.digest()).second;
  };
  EXPECT_TRUE(changed([](DeviceIdentity& d) { d.arch = "sm_89"; }));
  EXPECT_TRUE(changed([](DeviceIdentity& d) { d.sm_count++; }));
  EXPECT_TRUE(changed([](DeviceIdentity& d) { d.shared_bytes_per_block++; }));
  EXPECT_TRUE(changed([](DeviceIdentity& d) { d.registers_per_sm++; }));
  EXPECT_TRUE(changed([](DeviceIdentity& d) { d.l2_bytes++; }));
  EXPECT_TRUE(changed([](DeviceIdentity& d) { d.memory_bus_bits++; }));
  EXPECT_TRUE(changed([](DeviceIdentity& d) { d.memory_clock_khz++; }));
  EXPECT_TRUE(changed([](DeviceIdentity& d) { d.slice = "1g.18gb"; }));
  EXPECT_FALSE(changed([](DeviceIdentity& d) { d.name = "another name"; }));
  EXPECT_FALSE(changed([](DeviceIdentity& d) { d.conditions = {"1.2.3", 500}; }));
}

TEST(Records, ConditionsAreComparedOnlyIfBothAreKnown) {
  const char* const pattern = "{}, now {}";
  const Conditions now{"580.1", 700};
  EXPECT_EQ(difference(now, now, pattern), "");
  EXPECT_EQ(difference({}, now, pattern), "");
  EXPECT_EQ(difference(now, {}, pattern), "");
  EXPECT_EQ(difference({"550.54", 700}, now, pattern), "driver 550.54, now 580.1");
  EXPECT_EQ(difference({"", 500}, now, pattern), "power limit 500 W, now 700 W");
  EXPECT_EQ(difference({"550.54", 500}, now, pattern),
            "driver 550.54, now 580.1 and power limit 500 W, now 700 W");
  EXPECT_EQ(to_text(now), "580.1, 700 W");
  EXPECT_EQ(to_text(Conditions{"580.1"}), "580.1");
  EXPECT_EQ(to_text(Conditions{"", 300}), "300 W");
  EXPECT_EQ(to_text(Conditions{}), "");
}

// Files of schema 6 and rows of a CPU have no power limit.
TEST(Records, APowerLimitThatIsNotKnownIsLeftOutOfALine) {
  const TuningKey key = sample_key();
  TrialRecord trial = sample_trial();
  trial.conditions = {"580.1", 700};
  const auto read = [&] { return parse_trial_line(trial_line({key, trial})); };
  EXPECT_THAT(trial_line({key, trial}), testing::HasSubstr("\"power_limit_w\":700"));
  EXPECT_EQ(read().trial.conditions, trial.conditions);
  EXPECT_EQ(read().key.device.conditions, trial.conditions);
  trial.conditions.power_limit_w = 0;
  EXPECT_THAT(trial_line({key, trial}), testing::Not(testing::HasSubstr("power_limit_w")));
  EXPECT_EQ(read().trial.conditions, trial.conditions);
}

TEST(Records, FactsOfADeviceFollowItsIdentity) {
  const DeviceIdentity h200 = sample_key().device;
  EXPECT_EQ(h200.facts().sm_count, 132);
  EXPECT_EQ(h200.facts().l2_bytes, 50 << 20);
  EXPECT_NEAR(h200.facts().memory_bytes_per_s, 4.917e12, 1e9);
  EXPECT_EQ(h200.facts_title(), "NVIDIA H200 (132 multiprocessors, 50 MB of L2, 4.9 TB/s)");
}

TEST(Records, ImageInfoIsReadBackAndBadTextIsRefused) {
  const ImageInfo info = sample_trial().info;
  EXPECT_EQ(info_text(parse_info_text(info_text(info))), info_text(info));
  for (const char* text : {"", "{", "[]", "{}", R"({"registers":"many"})"})
    error_of(ErrorCode::kInvalidArgument, [&] { parse_info_text(text); });
}

TEST(Records, NamesAreTheStoredWords) {
  EXPECT_STREQ(trial_status_name(TrialStatus::kOutOfResources), "out_of_resources");
  EXPECT_STREQ(effort_name(Effort::kExhaustive), "exhaustive");
}

}  // namespace
}  // namespace attune
