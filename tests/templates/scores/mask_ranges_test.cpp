// SPDX-License-Identifier: Apache-2.0
// Mask programs over boxes of rows and keys (generator/score/print/source_text.hpp). For random
// programs, the printed ranges must hold for every element of a box. For everyday masks, they must
// decide the boxes.
#include <gtest/gtest.h>

#include <random>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/score/language/evaluate.hpp"
#include "generator/score/language/parse.hpp"
#include "generator/score/print/source_text.hpp"
#include "generator/template_registry.hpp"
#include "tests/support/score_source.hpp"
#include "tuner/fuzz/random_program.hpp"

namespace attune::score {
namespace {

struct Box {
  int batch, head, kv_head, q_first, q_last, kv_first, kv_last;
};
struct RangeJob {
  const ScoreArgs* args;  // one for each program
  const Box* boxes;
  int num_boxes;
  int* out;  // [program][box]: 1 where all is seen, 2 where something may be
};

std::string range_job_source(std::span<const Program> programs) {
  std::string text, calls;
  std::set<std::string> done;
  inline_file("cpu/parts/score_ranges.hpp", &done, &text);
  text +=
      "namespace attune {\n"
      "struct Box { int batch, head, kv_head, q_first, q_last, kv_first, kv_last; };\n"
      "struct RangeJob { const ScoreArgs* args; const Box* boxes; int num_boxes; int* out; };\n";
  for (size_t i = 0; i < programs.size(); ++i) {
    const std::string number = std::to_string(i);
    text += "namespace program" + number + " {\n" + range_text(programs[i]) + "}\n";
    calls +=
        "  for (int i = 0; i < job->num_boxes; ++i) {\n"
        "    const auto& b = job->boxes[i];\n"
        "    using namespace attune::program" +
        number + ";\n    const auto& args = job->args[" + number +
        "];\n    const auto rows = mask_row_ranges(args, {b.batch, b.batch}, {b.head, b.head}, "
        "{b.kv_head, b.kv_head}, {b.q_first, b.q_last});\n"
        "    const auto r = mask_range(args, rows, {b.kv_first, b.kv_last});\n    job->out[" +
        number + " * job->num_boxes + i] = r.lo + 2 * r.hi;\n  }\n";
  }
  return text + "}\nextern \"C\" void attune_kernel(const attune::RangeJob* job, int, int) {\n" +
         calls + "}\n";
}

class MaskRanges : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    toolchain_ = compiling_toolchain(&why);
    if (toolchain_ == nullptr) GTEST_SKIP() << why;
  }
  std::vector<int> run(std::span<const Program> programs, const std::vector<ScoreArgs>& args,
                       const std::vector<Box>& boxes) {
    const Source source{range_job_source(programs), "mask_ranges.cpp"};
    const KernelImage image = toolchain_->compiler().compile(source, toolchain_->host_arch());
    EXPECT_EQ(image.log, "");
    std::vector<int> out(programs.size() * boxes.size());
    const RangeJob job{args.data(), boxes.data(), static_cast<int>(boxes.size()), out.data()};
    toolchain_->load(image.bytes, {image.entry})
        ->function()(reinterpret_cast<const KernelArguments*>(&job), 0, 1);
    return out;
  }
  const CpuToolchain* toolchain_ = nullptr;
};

// Returns 1 if a program shows all of a box, 2 if a part, found by checking each element.
int looked_at(const Program& program, const ScoreArgs& args, const Box& box) {
  const Loads loads = loads_of(program, args);
  bool any = false, all = true;
  for (int q = box.q_first; q <= box.q_last; ++q)
    for (int kv = box.kv_first; kv <= box.kv_last; ++kv) {
      const Point at{0,  box.batch,     box.head,       box.kv_head,  q,
                     kv, args.seqlen_q, args.seqlen_kv, args.head_dim};
      const bool seen = evaluate(program, at, loads) != 0;
      any = any || seen;
      all = all && seen;
    }
  return all + 2 * any;
}

std::vector<Box> random_boxes(size_t count) {
  std::mt19937_64 random(3);
  const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
  std::vector<Box> boxes(count);
  for (Box& box : boxes) {
    const int q = below(60), kv = below(60);
    box = {below(4), below(6), below(3), q, q + below(9), kv, kv + below(9)};
  }
  return boxes;
}

TEST_F(MaskRanges, HoldForEveryElementOfABox) {
  constexpr uint64_t kPrograms = 120;
  std::vector<Program> programs;
  std::vector<RandomOperands> operands;
  std::vector<ScoreArgs> args;
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    const RandomProgram drawn = random_program(seed, Kind::kMask, 4);
    programs.push_back(parse(drawn.text, drawn.kind, drawn.declarations, "mask_mod"));
    operands.emplace_back(programs.back(), seed);
  }
  for (const RandomOperands& one : operands) args.push_back(one.args());
  const std::vector<Box> boxes = random_boxes(40);
  const std::vector<int> out = run(programs, args, boxes);
  int decided = 0;
  for (size_t p = 0; p < programs.size(); ++p)
    for (size_t b = 0; b < boxes.size(); ++b) {
      const int ranges = out[p * boxes.size() + b],
                exact = looked_at(programs[p], args[p], boxes[b]);
      // 0 hides all, 3 shows all, 2 says nothing.
      EXPECT_TRUE(ranges == 2 || ranges == exact) << "program " << p << " box " << b;
      decided += ranges != 2;
    }
  EXPECT_GT(decided, static_cast<int>(kPrograms * boxes.size()) / 4);
}

// A program, and boxes that its ranges must find fully shown or fully hidden.
TEST_F(MaskRanges, DecideEverydayMasks) {
  const std::vector<const char*> texts{
      "return kv_idx <= q_idx;",
      "return kv_idx <= q_idx && q_idx - kv_idx < 20;",
      "return floordiv(q_idx, 16) == floordiv(kv_idx, 16);",
      "return kv_idx <= q_idx || kv_idx < 7;",
      "return abs(q_idx - kv_idx) <= 12;",
      "return (head & 1) == 0 || kv_idx < 30;",
      "return float(kv_idx) <= float(q_idx);",
      "return max(q_idx, 10) > min(kv_idx, 40) && !(kv_idx > 50);"};
  std::vector<Program> programs;
  for (const char* text : texts) programs.push_back(parse(text, Kind::kMask, {{}, {}}, "mask_mod"));
  const std::vector<ScoreArgs> args(programs.size());
  const std::vector<Box> boxes = random_boxes(300);
  const std::vector<int> out = run(programs, args, boxes);
  for (size_t p = 0; p < programs.size(); ++p) {
    int whole = 0, decided = 0;
    for (size_t b = 0; b < boxes.size(); ++b) {
      const int exact = looked_at(programs[p], args[p], boxes[b]);
      whole += exact != 2;
      decided += out[p * boxes.size() + b] != 2;
    }
    EXPECT_GT(whole, 60) << texts[p];
    EXPECT_GE(decided, whole * 9 / 10) << texts[p];
  }
}

// Tables indexed by rows and keys, such as document ids. Two ranges of ids compare as a whole if
// both are a single number.
TEST_F(MaskRanges, FollowTables) {
  const Program documents = parse("return ids[q_idx] == ids[kv_idx];", Kind::kMask,
                                  {{{"ids", CaptureType::kInt32, 1}}, {}}, "mask_mod");
  std::vector<int32_t> ids(80);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i / 16);
  ScoreArgs args{};
  args.captures[0] = {ids.data(), {1}, {static_cast<int>(ids.size())}};
  const std::vector<Box> boxes{{0, 0, 0, 0, 7, 8, 15},      // one document
                               {0, 0, 0, 0, 15, 16, 40},    // none in common
                               {0, 0, 0, 8, 23, 0, 31},     // some
                               {0, 0, 0, 70, 90, 75, 99}};  // one: loads stop at the last element
  const std::vector<int> out = run({&documents, 1}, {args}, boxes);
  EXPECT_EQ(out, (std::vector<int>{3, 0, 2, 3}));
  EXPECT_EQ(looked_at(documents, args, boxes[0]), 3);
  EXPECT_EQ(looked_at(documents, args, boxes[1]), 0);
}

// On a GPU the lanes of a warp read a table's range together, in a function that ranges of rows and
// of keys both call.
TEST(MaskRangesCuda, ATableIsReadByOneFunction) {
  if (open_nvrtc_compiler() == nullptr) GTEST_SKIP() << nvrtc_advice();
  const Arch arch = parse_arch("sm_90a");
  const KernelTemplate& t = template_by_name("prefill_sm90");
  const KernelSpec spec =
      spec_of(parse_problem("dtype=bf16,head_dim=64,heads=4,seqlen=4096,documents=1"));
  const Config config =
      t.default_config(spec, arch, {1, 4096, 4096, 4, 4}, typical_device(arch).facts);
  const std::string ptx = nvrtc_ptx(render(t, spec, arch, config), arch);
  const auto count = [&](const char* word) {
    size_t found = 0;
    for (size_t at = 0; (at = ptx.find(word, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  EXPECT_EQ(count("call.uni"), 2U);
  EXPECT_EQ(count("\n.func"), 2U) << "announced, and written";
}

}  // namespace
}  // namespace attune::score
