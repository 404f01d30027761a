// SPDX-License-Identifier: Apache-2.0
// Mutates every kind of text from outside. A parser must return a value or throw an attune::Error,
// and nothing else; the asan preset also finds undefined behaviour. A failure prints the number of
// the input; the same seed gives the same inputs.
// ATTUNE_ATTACK_TIMES=N   makes N times as many inputs
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <sstream>

#include "cache/exchange.hpp"
#include "cache/records.hpp"
#include "generator/core/problem/config.hpp"
#include "generator/score/language/parse.hpp"
#include "generator/score/language/program.hpp"
#include "generator/score/print/source_text.hpp"
#include "runtime/bundles/bundle_manifest.hpp"
#include "tests/attack/mutate.hpp"
#include "tests/cache/store_samples.hpp"
#include "tuner/measure/measure_protocol.hpp"
#include "tuner/models/workload.hpp"

namespace attune {
namespace {

using testing::attack_count;
using testing::Mutator;

// Runs `parse` on `count` mutations. Some must be valid and some refused; otherwise the samples do
// not fit the parser.
void attack(int count, const std::vector<std::string>& samples,
            const std::function<void(const std::string&, Mutator&)>& parse) {
  Mutator mutator(samples, 20261122);
  for (const std::string& sample : samples) {
    Mutator unused({sample}, 1);
    ASSERT_NO_THROW(parse(sample, unused)) << sample.substr(0, 300);
  }
  int taken = 0, refused = 0;
  for (int i = 0; i < attack_count(count); ++i) {
    const std::string text = mutator.next();
    try {
      parse(text, mutator);
      ++taken;
    } catch (const Error&) {
      ++refused;
    } catch (const std::exception& error) {
      FAIL() << "input " << i << ": " << typeid(error).name() << ": " << error.what() << "\n"
             << text.substr(0, 2000);
    }
  }
  EXPECT_GT(taken, 0);
  EXPECT_GT(refused, count / 20);
}

const std::vector<std::string> kProblems = {
    "dtype=bf16,head_dim=128,heads=32/8,batch=2,seqlen=4096,mask=causal_bottom_right",
    "dtype=fp16,head_dim_qk=192,head_dim_v=128,heads=16,seqlen_q=7,seqlen_kv=300,window=100:30",
    "dtype=fp32,head_dim=64,heads=6/2,seqlen=0,mask=causal_top_left,scale=0.125",
    "dtype=e4m3,dtype_kv=e5m2,dtype_o=fp16,head_dim=64,heads=3,seqlen=200,v_layout=transposed,"
    "accuracy=fast,scale_block_q=64,scale_block_kv=128",
    "op=quantise,dtype=bf16,dtype_o=e4m3,head_dim=64,heads=2,seqlen=64,scale_block=16,"
    "rotation=hadamard,v_layout=transposed"};

TEST(ParseAttack, Problems) {
  attack(66'000, kProblems, [](const std::string& text, Mutator&) {
    const Problem problem = parse_problem(text);
    const std::string canonical = to_text(problem);
    ASSERT_EQ(to_text(parse_problem(canonical)), canonical) << text;
    to_text(spec_of(problem));
    bucket_of(shape_of(problem));
  });
}

// Score programs: a parsed program must be the same after a round trip through its canonical text.
TEST(ParseAttack, ScorePrograms) {
  const score::Declarations declarations{
      {{"slopes", CaptureType::kFp32, 1}, {"doc", CaptureType::kInt64, 2}},
      {{"window", score::Type::kInt}, {"on", score::Type::kBool}}};
  attack(
      40'000,
      {"float slope = slopes[head]; /* ALiBi */ return score - slope * abs(kv_idx - q_idx);",
       "if (doc[batch][q_idx] != doc[batch][kv_idx]) { return -INFINITY; } else if (on) return 1;\n"
       "return kv_idx <= q_idx && q_idx - kv_idx < window ? 50 * tanh(score / 50) : -1e30f;",
       "int d = (int)score % 3 + floordiv(kv_idx, 0x10) << 2; // any\nreturn d * score;"},
      [&](const std::string& text, Mutator&) {
        const score::Program program =
            score::parse(text, score::Kind::kScore, declarations, "score_mod");
        const score::Program again =
            score::parse(score::canonical_text(program), score::Kind::kScore,
                         {program.captures(), program.scalars()}, "score_mod");
        ASSERT_EQ(again, program) << text;
        score::source_text(program);
      });
}

TEST(ParseAttack, Configs) {
  attack(23'000,
         {"block_m=128,block_n=64,kv_slots=2", "block_m=16", "row_max=0,pack_heads=-1,kv_splits=4"},
         [](const std::string& text, Mutator&) {
           const std::string canonical = parse_config(text).to_text();
           ASSERT_EQ(parse_config(canonical).to_text(), canonical);
         });
}

TEST(ParseAttack, StoredSpecsAndShapes) {
  std::vector<std::string> specs, shapes;
  for (const std::string& text : kProblems) {
    specs.push_back(to_text(spec_of(parse_problem(text))));
    shapes.push_back(to_text(shape_of(parse_problem(text))));
  }
  attack(18'000, specs, [](const std::string& text, Mutator&) { to_text(parse_spec_text(text)); });
  attack(18'000, shapes, [](const std::string& text, Mutator&) {
    const Shape shape = parse_shape_text(text);
    bucket_of(shape);
  });
}

KernelRequest sample_kernel() {
  KernelRequest kernel{"prefill_cpu", Config({{"block_m", 64}}), sample_image()};
  kernel.image.entry = "attune_kernel";
  return kernel;
}

// Joins line and payload into one sample, separated by a byte that JSON never has.
std::string joined(const Frame& frame) { return frame.line + '\x01' + frame.payload; }
Frame parted(const std::string& text) {
  const size_t at = text.find('\x01');
  if (at == std::string::npos) return {text, ""};
  return {text.substr(0, at), text.substr(at + 1)};
}

TEST(ParseAttack, WireProtocol) {
  const Problem problem = parse_problem(kProblems[0]);
  attack(
      17'000,
      {joined(encode(Request(OpenRequest{{problem, 7, sample_kernel()}}))),
       joined(encode(Request(OpenRequest{{problem, 7, std::nullopt}}))),
       joined(encode(Request(PrepareRequest{3, sample_kernel()}))),
       joined(encode(Request(ReloadRequest{3, sample_kernel()}))),
       joined(encode(Request(RoundRequest{{1, 2, 3}}))), joined(encode(Request(DropRequest{4})))},
      [](const std::string& text, Mutator&) { decode_request(parted(text)); });
  attack(5'000, {joined(encode(OpenReply{"no device", 4})), joined(encode(OpenReply{}))},
         [](const std::string& text, Mutator&) { decode_open_reply(parted(text)); });
  Prepared prepared;
  prepared.info = sample_image().info;
  attack(6'000, {joined(encode(prepared))},
         [](const std::string& text, Mutator&) { decode_prepared(parted(text)); });
  attack(6'000, {joined(encode(SampleReply{{4, 12.5, std::nullopt}, 1980}))},
         [](const std::string& text, Mutator&) { decode_sample_reply(parted(text)); });
}

class ParseAttackFile : public StoreTest {};

TEST_F(ParseAttackFile, Captures) {
  std::string lines;
  for (const std::string& text : kProblems) lines += "{\"problem\": \"" + text + "\"}\n";
  attack(13'000, {lines, "{\"problem\": \"" + kProblems[0] + "\"}\n"},
         [this](const std::string& text, Mutator&) {
           write_bytes(file("capture"), text);
           workload_from_captures({file("capture")});
         });
}

TEST_F(ParseAttackFile, ModelConfigs) {
  std::vector<std::string> configs;
  for (const auto& model : std::filesystem::directory_iterator(ATTUNE_MODELS))
    configs.push_back(read_bytes(model.path() / "config.json"));
  ASSERT_GT(configs.size(), 4U);
  std::sort(configs.begin(), configs.end());
  attack(3'300, configs, [this](const std::string& text, Mutator& mutator) {
    write_bytes(file("config.json"), text);
    workload_from_model(file("config.json"), {},
                        mutator.draw(2) == 0 ? Target::kCpu : Target::kCuda);
  });
}

StoreContents sample_contents() {
  const TuningKey key = sample_key();
  StoredTrial trial;
  trial.key = key;
  trial.trial = sample_trial();
  WinnerRecord winner = sample_winner(key);
  winner.device = key.device;
  winner.policy = key.policy;
  trial.key.spec.scores.mask_mod =
      read_user_program("return kv_idx % 3 != 1;", score::Kind::kMask, "m").digest;
  return {{trial}, {winner}, {}, programs_of(trial.key.spec)};
}

TEST(ParseAttack, ImportedLines) {
  std::ostringstream lines;
  export_lines(sample_contents(), lines);
  attack(27'500, {lines.str()}, [](const std::string& text, Mutator&) {
    std::istringstream in(text);
    import_lines(in);
  });
}

TEST(ParseAttack, BundleManifests) {
  ManifestEntry entry{sample_image_key(),
                      "kernel.o",
                      std::string(64, 'a'),
                      sample_image(),
                      {sample_winner(sample_key())}};
  entry.key.spec.scores.mask_mod =
      read_user_program("return kv_idx % 3 != 1;", score::Kind::kMask, "m").digest;
  entry.image.entry = "attune_kernel";
  attack(11'500,
         {manifest_text({entry}, ManifestTime::kNow),
          manifest_text({entry, entry}, ManifestTime::kNone)},
         [](const std::string& text, Mutator&) { parse_manifest(text, "manifest.json"); });
}

}  // namespace
}  // namespace attune
