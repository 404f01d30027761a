// SPDX-License-Identifier: Apache-2.0
// Tests heads of more than 256 columns in prefill_sm90, in configs that random choices seldom hit,
// against the float64 oracle. numerics_test.cpp has random specs with such heads for every family.
#include <gtest/gtest.h>

#include "tests/templates/numerics/device_fixture.hpp"

namespace attune::testing {
namespace {

class Cuda : public DeviceFixture {
 protected:
  // Checks a config: `changes` to one slot of K and V in tiles of 128 rows.
  void check(const std::string& problem, const std::string& changes) {
    const KernelTemplate& t = template_by_name("prefill_sm90");
    const Problem p = parse_problem("dtype=bf16,batch=2," + problem);
    Config config = parse_config(
        "block_m=128,block_n=64,blocks_per_sm=1,kv_slots=1,kv_ring=0,overlap=1,ping_pong=0,"
        "scheduler=2,"
        "l2_section_mb=32,o_staging=0,row_max=1,pack_heads=1,kv_splits=1");
    const Config changed = parse_config(changes);
    for (const auto& [knob, value] : changed.knobs()) config.set(knob, value);
    const std::string trace = problem + " " + changes;
    expect_legal_on_hopper(t, p, config);
    if (!device_) return;
    if (!serves(t, spec_of(p))) GTEST_SKIP() << "no sm_90a device";
    const LoadedConfig loaded(device_, t, spec_of(p), config);
    ASSERT_EQ(loaded.fault(), "") << trace;
    for (const Inputs inputs : {Inputs::kNormal, Inputs::kLogitsTimes64}) {
      const Redraw redraw = [&](uint64_t seed) {
        return AttentionCase(p, Layout::kContiguous, inputs, 1 + seed);
      };
      EXPECT_EQ(fault_of(loaded, redraw(0), arithmetic_of(t), redraw), "") << trace;
    }
  }
};

const std::string kCausal = ",mask=causal_bottom_right";

TEST_F(Cuda, PartsOfKAndSlicesOfV) {
  open("cuda");
  check("head_dim=512,heads=4/2,seqlen_q=200,seqlen_kv=300" + kCausal, "v_slices=2,k_parts=4");
  check("head_dim_qk=576,head_dim_v=512,heads=4/1,seqlen_q=70,seqlen_kv=333,window=70:0" + kCausal,
        "v_slices=2,k_parts=3,block_n=48,ping_pong=1,pack_heads=4");
  check("head_dim_qk=264,head_dim_v=40,heads=2/2,seqlen=300" + kCausal,
        "k_parts=5,block_n=32,o_staging=1");
}

// V is whole, so that a product takes two statements, or in slices that overlap.
TEST_F(Cuda, OneSliceOfVAndThree) {
  open("cuda");
  check("head_dim=320,heads=3/1,seqlen_q=130,seqlen_kv=257",
        "v_slices=1,k_parts=1,block_n=48,kv_slots=2,scheduler=1,l2_section_mb=0");
  check("head_dim_qk=264,head_dim_v=296,heads=2/1,seqlen_q=190,seqlen_kv=190,mask=causal_top_left",
        "block_m=64,v_slices=3,k_parts=1,block_n=32,kv_slots=3,scheduler=0");
}

// The last case hides 4 blocks of keys from one warpgroup of a tile but not from the other.
TEST_F(Cuda, SplitsScoresAndSkippedSteps) {
  open("cuda");
  check("head_dim=512,heads=2/2,seqlen_q=9,seqlen_kv=700",
        "v_slices=2,k_parts=8,block_n=32,scheduler=0,kv_splits=6,l2_section_mb=0");
  check("head_dim=384,heads=4/2,seqlen_q=129,seqlen_kv=500,softcap=20,sinks=bf16" + kCausal,
        "v_slices=2,k_parts=3,block_n=48");
  check("head_dim=512,heads=2/2,seqlen=600,window=10:0" + kCausal,
        "v_slices=2,k_parts=2,block_n=16");
}

}  // namespace
}  // namespace attune::testing
