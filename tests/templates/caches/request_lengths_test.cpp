// SPDX-License-Identifier: Apache-2.0
// Programs over caches that read seqlen_q and seqlen_kv, without a device: what the kernels' text
// and NVRTC's PTX say (the latter skips aloud without NVRTC). Values:
// tests/python/score/program_lengths_test.py.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/render/renderer.hpp"
#include "generator/score/language/user_program.hpp"
#include "generator/template_registry.hpp"

namespace attune {
namespace {

constexpr const char* kByLengths =
    "return score * log2(float(seqlen_kv)) + (kv_idx + 9 > seqlen_kv ? float(seqlen_q) : 0.0);";
constexpr const char* kByPositions = "return score - 0.125 * abs(q_idx - kv_idx);";

struct Case {
  const char *family, *arch, *problem;
};

constexpr Case kCaches[] = {
    {"decode_sm80", "sm_80",
     "op=attention_kvcache,dtype=bf16,head_dim=128,heads=8/2,batch=4,seqlen_q=3,seqlen_kv=2048,"
     "page_size=16,mask=causal_bottom_right"},
    {"decode_sm80", "sm_90a",
     "op=attention_kvcache,dtype=fp16,dtype_kv=int8,head_dim=64,heads=8,batch=4,seqlen_q=2,"
     "seqlen_kv=2048,packed_q=1,packed_kv=1"},
    {"cache_sm90", "sm_90a",
     "op=attention_kvcache,dtype=bf16,head_dim=128,heads=32/8,batch=8,seqlen_q=512,seqlen_kv=8192,"
     "page_size=16,mask=causal_bottom_right"},
    {"cache_sm90", "sm_90a",
     "op=attention_kvcache,dtype=fp16,head_dim=64,heads=8,batch=4,seqlen_q=100,seqlen_kv=1000,"
     "packed_q=1,packed_kv=1,batch_invariant=1"},
};
constexpr Case kPrefill = {"prefill_sm90", "sm_90a",
                           "dtype=bf16,head_dim=128,heads=8,seqlen=2048,mask=causal_bottom_right"};

Source text_of(const Case& one, const char* program) {
  const Problem p = parse_problem(
      fmt::format("{},score_mod={}", one.problem,
                  to_text(read_user_program(program, score::Kind::kScore, "score_mod").digest)));
  const Arch arch = parse_arch(one.arch);
  const KernelTemplate& family = template_by_name(one.family);
  return render(family, spec_of(p), arch,
                family.default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts));
}

// True if a member of the first parameter is read, by its name or through a register that has its
// address.
bool reads_member(const std::string& ptx, size_t offset) {
  const size_t name = ptx.find(".entry ") + std::string_view(".entry ").size();
  const std::string first = ptx.substr(name, ptx.find('(', name) - name) + "_param_0";
  std::vector<std::string> bases{first};
  const std::string is_address = ", " + first + ";";
  for (size_t at = ptx.find(is_address); at != std::string::npos; at = ptx.find(is_address, at + 1))
    bases.push_back(ptx.substr(ptx.rfind('%', at), at - ptx.rfind('%', at)));
  return std::any_of(bases.begin(), bases.end(), [&](const std::string& base) {
    return ptx.find(fmt::format("[{}+{}]", base, offset)) != std::string::npos;
  });
}

bool reads_lengths_of_call(const std::string& ptx) {
  return reads_member(ptx, offsetof(ScoreArgs, seqlen_q)) ||
         reads_member(ptx, offsetof(ScoreArgs, seqlen_kv));
}

// Returns the local memory of a thread. A rare form of the score stage holds some.
size_t local_bytes(const std::string& ptx) {
  const size_t at = ptx.find("__local_depot0[");
  return at == std::string::npos ? 0 : std::stoul(ptx.substr(ptx.find('[', at) + 1));
}

// The first parameter of these kernels is ScoreArgs.
TEST(RequestLengths, KernelsOverCachesDoNotReadTheLengthsOfTheCall) {
  if (open_nvrtc_compiler() == nullptr) GTEST_SKIP() << nvrtc_advice();
  const std::string ptx = nvrtc_ptx(text_of(kPrefill, kByLengths), parse_arch(kPrefill.arch));
  EXPECT_TRUE(reads_lengths_of_call(ptx));
  for (const Case& one : kCaches) {
    const std::string cached = nvrtc_ptx(text_of(one, kByLengths), parse_arch(one.arch));
    EXPECT_TRUE(reads_member(cached, offsetof(ScoreArgs, kv_position0))) << one.problem;
    EXPECT_FALSE(reads_lengths_of_call(cached)) << one.problem;
    EXPECT_LT(local_bytes(cached), sizeof(ScoreArgs))
        << one.problem << ": the copy of the arguments stands in memory";
  }
}

// Lengths of requests do not change a kernel whose program does not read them.
TEST(RequestLengths, OnlyProgramsThatReadThemChangeAKernel) {
  constexpr Case kCpu = {"decode_cpu", "cpu:x86-64",
                         "op=attention_kvcache,dtype=fp32,head_dim=64,heads=8/2,seqlen=1000"};
  const auto takes_lengths = [](const Case& one, const char* program) {
    const std::string text = text_of(one, program).text;
    return text.find("kRequestLengths") != std::string::npos &&
           text.find("take_lengths(") != std::string::npos;
  };
  for (const Case& one : {kCaches[0], kCaches[1], kCaches[2], kCaches[3], kCpu}) {
    EXPECT_TRUE(takes_lengths(one, kByLengths)) << one.problem;
    EXPECT_FALSE(takes_lengths(one, kByPositions)) << one.problem;
  }
  EXPECT_FALSE(takes_lengths(kPrefill, kByLengths));
}

}  // namespace
}  // namespace attune
