// SPDX-License-Identifier: Apache-2.0
// Programs that hide keys, on every template and every available device: kernels with block maps
// (templates/shared/block_map.h), and CPU kernels with ranges. Suites Cpu and Cuda are separate
// CTest entries.
#include "generator/score/language/user_program.hpp"
#include "tests/templates/numerics/numerics_fixture.hpp"

namespace attune::testing {
namespace {

class Masks : public Numerics {
 protected:
  // Programs that hide keys: blocks that are hidden, shown and both, rows that see nothing, masks
  // of rows, keys, heads and tables, beside limits that are compiled in, with and without a score
  // stage.
  void check_masks(const KernelTemplate& t) {
    const auto mod = [](const char* text) {
      return "mask_mod=" + to_text(read_user_program(text, score::Kind::kMask, "mask_mod").digest);
    };
    const std::string causal = ",mask=causal_bottom_right";
    const std::string masks[] = {
        "documents=1" + causal,
        "documents=1,chunk=64,window=90:30",
        "prefix=1,key_lengths=1,softcap=30",
        "mask_tensor=1,bias=bf16,window=200:0" + causal,
        mod("return floordiv(q_idx, 96) == floordiv(kv_idx, 160) && q_idx != 100;"),
        mod("return head % 3 != 1 && (kv_idx < 70 || kv_idx > 300 - 10 * head);"),
        mod("return (q_idx * 7 + kv_idx) % 5 != 0;") + causal,
        mod("return false;"),
        "block_map=hides" + causal,
        "block_map=hides,documents=1,softcap=30",
        "block_map=skips,prefix=1,key_lengths=1"};
    for (const std::string& mask : masks)
      for (const char* shape : {"head_dim=128,heads=4/2,", "head_dim=64,heads=3,"})
        for (const char* dtype : {"bf16", "fp16", "fp32", "fp32,accuracy=fast", "e4m3"}) {
          const Problem p =
              parse_problem(fmt::format("dtype={},{}batch=2,seqlen=400,{}", dtype, shape, mask));
          if (!serves(t, spec_of(p)) || HasFailure()) continue;
          const Arch arch = arch_for(*device_, t, spec_of(p));
          std::mt19937_64 random(7);
          check_config(t, p,
                       t.default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts),
                       true, random, std::string(t.name()) + " masks");
          if (dtype == std::string("bf16")) break;  // one of 16 bits
        }
  }

  // A mask that hides nothing changes no bit.
  void check_open_mask(const KernelTemplate& t, const char* dtype) {
    const Problem plain = parse_problem(
        fmt::format("dtype={},head_dim=64,heads=4/2,batch=2,seqlen_q=300,seqlen_kv=500,mask=causal_"
                    "bottom_right",
                    dtype));
    if (!serves(t, spec_of(plain))) return;
    Problem open = plain;
    open.scores.mask_mod =
        read_user_program("return kv_idx >= 0 || q_idx == kv_idx;", score::Kind::kMask, "mask_mod")
            .digest;
    const Arch arch = arch_for(*device_, t, spec_of(plain));
    const Config config =
        t.default_config(spec_of(plain), arch, shape_of(plain), typical_device(arch).facts);
    const auto result_of = [&](const Problem& p) {
      return LoadedConfig(device_, t, spec_of(p), config)
          .run(AttentionCase(p, Layout::kContiguous, Inputs::kNormal, 5))
          .result;
    };
    const AttentionResult without = result_of(plain), with = result_of(open);
    EXPECT_EQ(without.o, with.o) << t.name() << " " << dtype;
    EXPECT_EQ(without.lse, with.lse) << t.name() << " " << dtype;
  }

  void check_all_masks() {
    if (!device_) return;
    for (const KernelTemplate* t : asked_templates()) {
      check_masks(*t);
      for (const char* dtype : {"bf16", "fp16", "fp32", "fp32,accuracy=fast", "e4m3"})
        if (!t->is_reference()) check_open_mask(*t, dtype);
    }
  }
};

class Cpu : public Masks {};
class Cuda : public Masks {};

TEST_F(Cpu, MaskProgramsKeepTheRule) {
  open("cpu");
  check_all_masks();
}

TEST_F(Cuda, MaskProgramsKeepTheRule) {
  open("cuda");
  check_all_masks();
}

// Block lists that splits share, that packed heads share or have separately, and that begin at a
// window's edge; in one ring, and with each way of finding a row's maximum.
TEST_F(Cuda, ListsOfBlocksOfSm90KeepTheRule) {
  open("cuda");
  const std::string causal = ",mask=causal_bottom_right";
  check_sm90("head_dim=128,heads=4/2,documents=1" + causal,
             "block_n=96,scheduler=0,l2_section_mb=32,kv_splits=4", "lists");
  check_sm90("head_dim=128,heads=16/1,mask_tensor=1" + causal,
             "block_n=96,scheduler=0,l2_section_mb=32,kv_splits=4,pack_heads=16", "lists");
  check_sm90("head_dim=128,heads=14/2,key_lengths=1,chunk=128,window=70:0" + causal,
             "block_m=128,block_n=96,scheduler=2,l2_section_mb=32,pack_heads=8", "lists");
  check_sm90("head_dim=128,heads=16/1,block_map=hides",
             "block_n=96,scheduler=0,l2_section_mb=0,kv_splits=4,pack_heads=16", "lists");
  check_sm90("head_dim=128,heads=14/2,block_map=hides,window=70:0" + causal,
             "block_m=128,block_n=96,scheduler=2,l2_section_mb=32,pack_heads=8", "lists");
  check_sm90("head_dim=64,heads=4/2,block_map=skips,documents=1" + causal,
             "block_n=80,scheduler=2,l2_section_mb=32", "lists");
  for (const char* row_max : {"0", "1"})
    check_sm90(
        "head_dim=128,heads=4,documents=1",
        std::string("block_m=192,block_n=80,kv_ring=5,scheduler=2,l2_section_mb=32,row_max=") +
            row_max,
        "lists");
  check_sm90_fp8("head_dim=128,heads=4/2,accuracy=fast,documents=1",
                 "block_m=128,block_n=64,row_max=1,flush_keys=0,scheduler=2,l2_section_mb=32",
                 "lists");
  check_sm90_fp8("head_dim=128,heads=4/2,block_map=hides",
                 "block_m=128,block_n=64,scheduler=2,l2_section_mb=0", "lists");
  check_sm90_fp8("head_dim=128,heads=4/2,documents=1" + causal,
                 "block_m=128,block_n=64,scheduler=2,l2_section_mb=32", "lists");
}

}  // namespace
}  // namespace attune::testing
