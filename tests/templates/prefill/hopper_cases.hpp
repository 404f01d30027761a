// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the two Hopper families: their arch and device, and problems with every
// mask and kind of length.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/kernel_template.hpp"
#include "tests/generator/accepted_compiles.hpp"

namespace attune::testing {

inline const Arch& hopper() {
  static const Arch arch = parse_arch("sm_90a");
  return arch;
}

inline const DeviceFacts kH200 = typical_device(hopper()).facts;

// `dtype`, each of `dims`, every mask and length, each of `options` (texts that begin with a comma,
// or are empty).
inline std::vector<Problem> hopper_problems(const std::string& dtype,
                                            const std::vector<std::string>& dims,
                                            const std::vector<std::string>& options = {""}) {
  std::vector<Problem> all;
  for (const std::string& dim : dims)
    for (const char* mask : {"none", "causal_bottom_right", "causal_top_left,window=128:-"})
      for (const char* lengths : {"seqlen=1", "seqlen=4096", "seqlen_q=256,seqlen_kv=32768"})
        for (const std::string& option : options)
          all.push_back(parse_problem("dtype=" + dtype + ",heads=8/2,batch=2,mask=" + mask + "," +
                                      dim + "," + lengths + option));
  return all;
}

inline std::string text_of(const Problem& p, const Config& c) {
  return to_text(p) + " " + c.to_text();
}

// Tests that compile; skipped aloud without NVRTC.
class HopperCompile : public ::testing::Test {
 protected:
  void SetUp() override {
    NvrtcLocation location;
    compiler_ = open_nvrtc_compiler(&location);
    if (compiler_ == nullptr) GTEST_SKIP() << nvrtc_advice();
  }

  // Checks that each default compiles without a fault, within the registers of its launch.
  void expect_free_defaults(const KernelTemplate& family, const std::vector<std::string>& texts) {
    for (const std::string& text : texts) {
      const Problem p = parse_problem(text);
      const KernelSpec spec = spec_of(p);
      const Config config = family.default_config(spec, hopper(), shape_of(p), kH200);
      EXPECT_EQ(compile_fault(*compiler_, family, spec, hopper(), config), "")
          << text_of(p, config);
    }
  }

  const Compiler* compiler_ = nullptr;
};

}  // namespace attune::testing
