// SPDX-License-Identifier: Apache-2.0
// decode_sm80 without a device: what NVRTC makes of it (skips aloud without NVRTC).
#include "generator/families/decode_sm80.hpp"

#include <gtest/gtest.h>

#include <string>

#include "generator/nvrtc_compiler.hpp"

namespace attune {
namespace {

// The PTX of a problem's default.
std::string ptx_of(const char* text, const char* arch_name) {
  const Problem p = parse_problem(text);
  const Arch arch = parse_arch(arch_name);
  const Config c =
      decode_sm80().default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts);
  return nvrtc_ptx(render(decode_sm80(), spec_of(p), arch, c), arch);
}

// Whether the value that `word` has last before `end` is chosen between 0 and another.
bool is_chosen(const std::string& ptx, const std::string& word, size_t end) {
  const size_t at = ptx.rfind(word + ", ", end);
  if (at == std::string::npos) return false;
  const size_t line = ptx.rfind('\n', at) + 1;
  const std::string text = ptx.substr(line, ptx.find('\n', at) - line);
  return text.find("selp.b32") != std::string::npos && text.find(", 0, ") != std::string::npos;
}

// A row that sees no key is 0 whatever the values are, and 0 times NaN is not: each word of O is chosen.
TEST(DecodeSm80Compile, EachWordOfOIsZeroWhereTheRowSeesNothing) {
  if (open_nvrtc_compiler() == nullptr) GTEST_SKIP() << nvrtc_advice();
  for (const auto& [text, arch] :
       {std::pair{"op=attention_kvcache,dtype=bf16,head_dim=128,heads=8/2,batch=4,seqlen_q=3,"
                  "seqlen_kv=2048,page_size=16,mask=causal_bottom_right",
                  "sm_80"},
        std::pair{"op=attention_kvcache,dtype=fp16,dtype_kv=e4m3,head_dim=128,heads=8/2,batch=4,"
                  "seqlen_q=3,seqlen_kv=2048,page_size=64,mask=causal_bottom_right",
                  "sm_90a"}}) {
    const std::string ptx = ptx_of(text, arch);
    int words = 0;
    for (const char* store : {"st.global.u32", "st.global.b32"})  // as NVRTC has it
      for (size_t at = ptx.find(store); at != std::string::npos; at = ptx.find(store, at + 1)) {
        const size_t from = ptx.find("%r", ptx.find(']', at)), end = ptx.find(';', from);
        EXPECT_TRUE(is_chosen(ptx, ptx.substr(from, end - from), at)) << text;
        ++words;
      }
    EXPECT_GT(words, 0) << text;
  }
}

}  // namespace
}  // namespace attune
