// SPDX-License-Identifier: Apache-2.0
// Random problems of `attune check --fuzz --op`: they contain every kind of cache, have texts that
// give the same problem, and kernels that compute something else are caught.
#include <gtest/gtest.h>

#include <set>

#include "tuner/cli/command.hpp"
#include "tuner/cli/commands/checked_kernel.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/oracles/draw_ops.hpp"

namespace attune::cli {
namespace {

std::vector<Problem> drawn(Op op, int count) {
  std::mt19937_64 random(7);
  std::vector<Problem> problems;
  for (int i = 0; i < count; ++i) problems.push_back(testing::random_op_problem(random, op));
  return problems;
}

TEST(DrawOps, ProblemsAreValidAndHaveATextThatRepeatsThem) {
  for (const Op op : testing::drawn_ops())
    for (const Problem& problem : drawn(op, 200)) {
      EXPECT_EQ(problem.op, op);
      Problem plain = problem;
      plain.scores.score_mod = plain.scores.mask_mod = {};
      EXPECT_EQ(to_text(parse_problem(to_text(plain))), to_text(plain));
    }
}

TEST(DrawOps, CachesOfEveryKindAreDrawn) {
  std::set<std::string> seen;
  const auto note = [&](bool is_so, const char* what) {
    if (is_so) seen.insert(what);
  };
  for (const Problem& p : drawn(Op::kAttentionKvCache, 2000)) {
    const CacheFields& cache = p.cache;
    note(cache.page_size == 0 && !cache.packed_kv, "slots");
    note(cache.page_size == 1, "pages of 1");
    note(cache.page_size == 256, "pages of 256");
    note(cache.packed_kv, "packed keys");
    note(cache.packed_q, "packed rows");
    note(p.seqlen_q > 30, "many rows");
    note(p.seqlen_kv == 0, "no keys");
    note(p.num_heads_kv == 1 && p.num_heads_q >= 16, "one head of K");
    note(p.num_heads_kv == p.num_heads_q && p.num_heads_q > 1, "as many heads of K");
    note(p.head_dim_qk == 576 && p.head_dim_v == 512 && cache.v_in_k, "latent");
    note(p.head_dim_qk > 256 && !cache.v_in_k, "wide");
    note(is_8_bit(p.dtype_kv) && cache.kv_factors == KvFactors::kKeys, "8 bits by key");
    note(p.dtype_kv == Dtype::kInt8, "int8");
    note(p.dtype_o == Dtype::kFp32 && p.dtype_q != Dtype::kFp32, "wide o");
    note(cache.key_indices == KeyIndices::kPlaces, "places");
    note(cache.key_indices == KeyIndices::kPositions, "positions");
    note(cache.batch_invariant, "batch-invariant");
    note(p.window_left >= 0, "window");
    note(p.scores.softcap > 0, "softcap");
    note(p.scores.alibi, "alibi");
    note(p.scores.sinks != ScoreTensor::kNone, "sinks");
    note(p.scores.score_mod != ProgramDigest{}, "score program");
    note(p.scores.mask_mod != ProgramDigest{}, "mask program");
  }
  EXPECT_EQ(seen.size(), 23U);
}

// Makes kernels that see fewer keys than the problem says.
class NarrowTarget : public DeviceTarget {
 public:
  using DeviceTarget::DeviceTarget;
  KernelImage make(const KernelSpec& spec, const TuneCandidate& candidate) const override {
    KernelSpec narrow = spec;
    narrow.window_left = 0;
    return DeviceTarget::make(narrow, candidate);
  }
};

TEST(CheckDrawn, WrongKernelsAreCaught) {
  MachineOptions machine;
  machine.target = "cpu";
  const auto device = open_machine(machine.target);
  RunOptions run;
  const auto draw = [](uint64_t, std::mt19937_64* random) {
    return std::vector{
        parse_problem("op=attention_kvcache,dtype=fp32,head_dim=32,heads=2,batch=3,seqlen_q=2,"
                      "mask=none,page_size=4,seqlen_kv=" +
                      std::to_string(30 + (*random)() % 9))};
  };
  EXPECT_EQ(check_drawn(3, run, device, NarrowTarget(device), "cases", draw), kWrongResult);
  EXPECT_EQ(check_drawn(3, run, device, DeviceTarget(device), "cases", draw), kOk);
}

}  // namespace
}  // namespace attune::cli
