// SPDX-License-Identifier: Apache-2.0
// decode_sm80 without a device: checks NVRTC's output (skips aloud without NVRTC).
#include "generator/families/families.hpp"

#include <gtest/gtest.h>

#include <string>

#include "generator/compile/nvrtc_compiler.hpp"

namespace attune {
namespace {

// Returns the PTX of a problem's default config.
std::string ptx_of(const char* text, const char* arch_name) {
  const Problem p = parse_problem(text);
  const Arch arch = parse_arch(arch_name);
  const Config c =
      decode_sm80().default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts);
  return nvrtc_ptx(render(decode_sm80(), spec_of(p), arch, c), arch);
}

// True if the last value of `word` before `end` is selected between 0 and another value.
bool is_chosen(const std::string& ptx, const std::string& word, size_t end) {
  const size_t at = ptx.rfind(word + ", ", end);
  if (at == std::string::npos) return false;
  const size_t line = ptx.rfind('\n', at) + 1;
  const std::string text = ptx.substr(line, ptx.find('\n', at) - line);
  return text.find("selp.b32") != std::string::npos && text.find(", 0, ") != std::string::npos;
}

// A row that sees no key must be 0 even if values are NaN, and 0 times NaN is not 0. So each word
// of O is selected.
TEST(DecodeSm80Compile, EachWordOfOIsZeroIfTheRowSeesNoKey) {
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

// Before the previous grid has ended, lists may only be read through L2. L1 would keep the old
// values after that grid's end.
TEST(DecodeSm80Compile, ListsAreReadThroughL2UntilThePreviousGridHasEnded) {
  if (open_nvrtc_compiler() == nullptr) GTEST_SKIP() << nvrtc_advice();
  for (const char* pages : {"", ",page_size=1", ",page_size=3,packed_q=1", ",page_size=16"}) {
    const std::string ptx =
        ptx_of((std::string("op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=40,"
                            "seqlen_q=1,seqlen_kv=2048,mask=none") +
                pages)
                   .c_str(),
               "sm_90a");
    const size_t wait = ptx.find("griddepcontrol.wait");
    ASSERT_NE(wait, std::string::npos) << pages;
    int lists = 0;
    for (size_t at = ptx.find("ld.global"); at < wait; at = ptx.find("ld.global", at + 1)) {
      EXPECT_EQ(ptx.compare(at, 12, "ld.global.cg"), 0) << pages << ptx.substr(at, 60);
      ++lists;
    }
    EXPECT_GT(lists, 0) << pages;
    const size_t behind = ptx.find("ld.global.cg", wait);
    EXPECT_NE(behind, std::string::npos) << pages << ": they are not read again";
  }
}

// Parts that signal their own arrival: zero bits mean that a word has not arrived. So a zero is
// written as -0, selected by its bits, since fast-math compilers may treat -0.0f as 0.0f. Such
// kernels take no tickets, and kernels with tickets do not poll words.
TEST(DecodeSm80Compile, PartsSignalTheirArrivalIfTheFirstWaits) {
  if (open_nvrtc_compiler() == nullptr) GTEST_SKIP() << nvrtc_advice();
  const Problem p = parse_problem(
      "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen_q=1,seqlen_kv=8192,"
      "mask=none");
  for (const char* arch_name : {"sm_80", "sm_90a"}) {
    const Arch arch = parse_arch(arch_name);
    for (const int waits : {0, 1}) {
      Config c =
          decode_sm80().default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts);
      c.set("waits", waits);
      const std::string ptx = nvrtc_ptx(render(decode_sm80(), spec_of(p), arch, c), arch);
      EXPECT_EQ(ptx.find("atom.acq_rel.gpu") != std::string::npos, waits == 0) << arch_name;
      EXPECT_EQ(ptx.find("ld.relaxed.gpu.global.v4") != std::string::npos, waits == 1) << arch_name;
      int clears = 0;
      for (size_t at = ptx.find("st.relaxed.gpu"); at != std::string::npos;
           at = ptx.find("st.relaxed.gpu", at + 1)) {
        const size_t values = ptx.find('{', at);
        for (size_t word = ptx.find("%r", values); word < ptx.find('}', values);
             word = ptx.find("%r", word + 1)) {
          const std::string name = ptx.substr(word, ptx.find_first_of(",}", word) - word);
          if (ptx.rfind(name + ", 0;", at) != std::string::npos) {
            ++clears;
            continue;
          }
          const size_t chosen = ptx.rfind(name + ", ", at);
          ASSERT_NE(chosen, std::string::npos) << name;
          EXPECT_NE(ptx.substr(chosen, ptx.find('\n', chosen) - chosen).find("-2147483648"),
                    std::string::npos)
              << name;
        }
      }
      EXPECT_EQ(clears > 0, waits == 1) << arch_name;
    }
  }
}

// Waiting saves time if each gang has one piece, because then all parts end at the same time. With
// many requests a gang has several pieces.
TEST(DecodeSm80Defaults, FewRequestsUseWaitingJoins) {
  const Arch arch = parse_arch("sm_90a");
  for (const auto& [batch, waits] : {std::pair{1, 1}, {8, 1}, {32, 0}}) {
    const Problem p = parse_problem(
        "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=" + std::to_string(batch) +
        ",seqlen_q=1,seqlen_kv=1024,mask=none");
    const Config c =
        decode_sm80().default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts);
    EXPECT_EQ(c.at("waits"), waits) << batch;
  }
}

// From pages smaller than a tile, rows of 128 bytes are loaded in boxes that hold all heads of a
// gang. This needs TMA and several heads. Longer rows are loaded by cp.async.
TEST(DecodeSm80Defaults, SmallPagesAreLoadedByCpAsyncOrBoxes) {
  const Arch arch = parse_arch("sm_90a");
  const auto config = [&](const char* text) {
    const Problem p = parse_problem(text);
    return decode_sm80().default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts);
  };
  const Config small = config(
      "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=32,seqlen_q=1,"
      "seqlen_kv=8192,mask=none,page_size=1");
  EXPECT_EQ(small.at("loads"), 0);
  EXPECT_EQ(small.at("heads"), 2);
  const Config narrow = config(
      "op=attention_kvcache,dtype=bf16,dtype_kv=e4m3,head_dim=128,heads=32/8,batch=32,seqlen_q=1,"
      "seqlen_kv=8192,mask=none,page_size=1");
  EXPECT_EQ(narrow.at("loads"), 3);
  EXPECT_EQ(narrow.at("heads"), 8);
  EXPECT_EQ(config("op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=32,seqlen_q=1,"
                   "seqlen_kv=8192,mask=none,page_size=16")
                .at("loads"),
            2);
  EXPECT_EQ(config("op=attention_kvcache,dtype=bf16,head_dim=80,heads=32/8,batch=32,seqlen_q=1,"
                   "seqlen_kv=8192,mask=none,page_size=1")
                .at("loads"),
            0);
}

}  // namespace
}  // namespace attune
