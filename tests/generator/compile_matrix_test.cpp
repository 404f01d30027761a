// SPDX-License-Identifier: Apache-2.0
// Compiles the matrix of kernels through NVRTC; no GPU is needed. No kernel may spill. Registers
// and shared memory must be within the arch's limits and equal to the search space's figures.
// Machine code must be the accepted one (tests/golden/sass_digests.txt). The quick run compiles the
// golden cases, without checking their limits, and one kernel of the matrix in 97. Most
// sources that did not change are not compiled again (accepted_compiles.hpp).
// ATTUNE_FULL_MATRIX=1 compiles all, ATTUNE_MATRIX_TEMPLATE=<name> one family.
// ATTUNE_ACCEPT_GOLDEN=1 accepts the machine code. Skips aloud without NVRTC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/problem/op.hpp"
#include "generator/core/system/error.hpp"
#include "tests/generator/accepted_compiles.hpp"
#include "tests/generator/kernel_matrix.hpp"
#include "tests/generator/sass_digest.hpp"

namespace attune {
namespace {

using Entry = testing::MatrixKernel;

constexpr uint32_t kSampleStep = 97;  // in the quick run
constexpr Shape kShape{1, 4096, 4096, 8, 8};

bool is_full() { return std::getenv("ATTUNE_FULL_MATRIX") != nullptr; }

// Returns all templates, or the template that the environment names.
std::vector<const KernelTemplate*> asked_templates() {
  const char* only = std::getenv("ATTUNE_MATRIX_TEMPLATE");
  return only != nullptr ? std::vector{&template_by_name(only)} : all_templates();
}

// Returns the kernels of this run: golden cases, and the matrix or its sample.
std::vector<Entry> asked_kernels() {
  const std::vector<const KernelTemplate*> templates = asked_templates();
  std::vector<Entry> kernels = testing::golden_cuda_kernels();
  std::erase_if(kernels, [&](const Entry& e) {
    return std::find(templates.begin(), templates.end(), e.kernel_template) == templates.end();
  });
  const uint32_t step = is_full() ? 1 : kSampleStep;
  for (Entry& e : testing::matrix_kernels(
           templates, [&](const std::string& key) { return testing::in_sample(key, step); }))
    kernels.push_back(std::move(e));
  return kernels;
}

// Returns what is wrong with the image of the entry, or "".
std::string broken(const ImageInfo& info, const Entry& e) {
  const bool oracle = e.kernel_template->is_reference();  // never timed, so it may spill
  if (auto fault = image_fault(info); fault && !oracle) return *fault;
  const Resources expected = e.kernel_template->resources(e.spec, e.arch, e.config);
  if (info.registers <= 0 || info.registers > expected.max_registers)
    return fmt::format("{} registers; the search space says at most {}", info.registers,
                       expected.max_registers);
  if (expected.max_registers > e.arch.max_registers_per_thread)
    return "the search space allows more registers than the arch has";
  if (expected.max_registers * expected.threads * expected.min_blocks_per_sm >
      e.arch.registers_per_sm)
    return "the blocks' registers exceed the arch's";
  if (info.static_shared_bytes > 0)
    return fmt::format("{} bytes of static shared memory, which the search space does not count",
                       info.static_shared_bytes);
  if (expected.shared_bytes > e.arch.shared_bytes_per_block)
    return fmt::format("{} bytes of shared memory; the arch has {}", expected.shared_bytes,
                       e.arch.shared_bytes_per_block);
  return {};
}

struct Compiled {
  std::string fault;   // "" when there is none
  std::string digest;  // line of sass_digests.txt without its key; "" when it did not compile
  double ms = 0;
};

Compiled compile(const Compiler& compiler, const Entry& e) try {
  const testing::Compiled made = testing::accepted_compiles().compile(compiler, e, !is_full());
  return {broken(made.info, e), testing::line_of_code(e, made.code), made.ms};
} catch (const Error& error) {
  return {error.what(), "", 0};
}

std::vector<Compiled> compile_all(const Compiler& compiler, const std::vector<Entry>& entries) {
  std::vector<Compiled> results(entries.size());
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back([&] {
      for (size_t k; (k = next++) < entries.size();) results[k] = compile(compiler, entries[k]);
    });
  for (std::thread& thread : threads) thread.join();
  return results;
}

// Compiles the kernels of this run once; two tests read the results.
class CompileMatrix : public ::testing::Test {
 protected:
  void SetUp() override {
    const Compiler* compiler = open_nvrtc_compiler();
    if (compiler == nullptr) GTEST_SKIP() << nvrtc_advice();
    compiler_ = compiler;
  }
  const std::vector<Entry>& kernels() {
    static const std::vector<Entry> all = asked_kernels();
    return all;
  }
  const std::vector<Compiled>& results() {
    static const std::vector<Compiled> all = compile_all(*compiler_, kernels());
    return all;
  }
  std::string fault(const Entry& e) { return compile(*compiler_, e).fault; }

  const Compiler* compiler_ = nullptr;
};

TEST_F(CompileMatrix, DefaultsCompileWithinLimits) {
  ASSERT_GT(kernels().size(), is_full() ? testing::matrix_specs().size() / 8 : 1);
  std::vector<double> times;
  for (size_t i = 0; i < kernels().size(); ++i) {
    if (testing::is_golden(kernels()[i].key())) continue;  // compiled for their machine code only
    EXPECT_EQ(results()[i].fault, "") << kernels()[i].name();
    if (results()[i].ms > 0) times.push_back(results()[i].ms);
  }
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  fmt::print("{} kernels, compile time median {:.0f} ms, p95 {:.0f} ms, longest {:.0f} ms\n",
             times.size(), times[times.size() / 2], times[times.size() * 95 / 100], times.back());
}

// The file has a line for each golden case and for the sample. The full run, too, compares these.
TEST_F(CompileMatrix, MachineCodeEqualsTheAcceptedMachineCode) {
  const std::string path = ATTUNE_GOLDEN_DIR "/sass_digests.txt", build = testing::nvrtc_build();
  testing::AcceptedDigests accepted = testing::read_accepted_digests(path);
  if (build != accepted.nvrtc)
    GTEST_SKIP() << "NVRTC here is " << build << "; the accepted machine code is from "
                 << accepted.nvrtc << ": nothing was compared. `bash tests/generator/same_code.sh "
                 << "HEAD` compares the working tree with a commit, with any NVRTC.";
  testing::AcceptedDigests found{build, {}};
  std::map<std::string, std::string> names;
  for (size_t i = 0; i < kernels().size(); ++i) {
    const Entry& e = kernels()[i];
    if (!testing::in_sample(e.key(), kSampleStep)) continue;
    EXPECT_NE(results()[i].digest, "") << e.name() << " does not compile: " << results()[i].fault;
    if (results()[i].digest.empty()) continue;
    found.lines[e.key()] = results()[i].digest;
    names[e.key()] = e.name();
  }
  // A run of one family keeps the lines of other families.
  const std::vector<const KernelTemplate*> templates = asked_templates();
  for (const auto& [key, line] : accepted.lines) {
    const std::string family = key.substr(0, key.find(' '));
    const bool is_asked = std::any_of(templates.begin(), templates.end(),
                                      [&](const KernelTemplate* t) { return t->name() == family; });
    if (!is_asked && templates.size() < all_templates().size()) found.lines.emplace(key, line);
  }
  if (std::getenv("ATTUNE_ACCEPT_GOLDEN") != nullptr) {
    testing::write_accepted_digests(path, found);
    accepted = testing::read_accepted_digests(path);
  }
  constexpr const char* kHow =
      "\nATTUNE_ACCEPT_GOLDEN=1 in this test's environment accepts the machine code of this tree";
  for (const auto& [key, line] : found.lines) {
    const auto known = accepted.lines.find(key);
    if (known == accepted.lines.end())
      ADD_FAILURE() << key << " has no line in sass_digests.txt: " << names[key] << kHow;
    else
      EXPECT_EQ(testing::line_difference(known->second, line), "")
          << key << " compiles to other machine code: " << names[key] << kHow;
  }
  for (const auto& [key, line] : accepted.lines)
    EXPECT_TRUE(found.lines.contains(key))
        << key << " is in sass_digests.txt and not in the matrix any more" << kHow;
}

// The most common problems: none may spill on an arch on which their family is the first choice.
TEST_F(CompileMatrix, DefaultsWithDropoutDoNotSpill) {
  for (const auto& [family, arch_name] : {std::pair{"prefill_sm90", "sm_90a"},
                                          {"prefill_sm80", "sm_80"},
                                          {"backward_sm90", "sm_90a"},
                                          {"backward_sm80", "sm_80"}}) {
    const KernelTemplate& t = template_by_name(family);
    const Arch arch = parse_arch(arch_name);
    for (const char* dims : {"head_dim=64", "head_dim=128"})
      for (const char* mask : {"none", "causal_bottom_right"}) {
        const KernelSpec spec = spec_of(parse_problem(
            fmt::format("op={},dtype=bf16,{},heads=16,batch=4,seqlen=4096,mask={},dropout=0.1",
                        describe(t.serves().op).name, dims, mask)));
        const Entry entry{
            &t, spec, arch,
            t.default_config(spec, arch, {4, 4096, 4096, 16, 16}, typical_device(arch).facts), ""};
        EXPECT_EQ(fault(entry), "") << entry.name();
      }
  }
}

// Compiles the kernel that computes all gradients, in forms that are no default.
TEST_F(CompileMatrix, OneKernelOfAllGradientsDoesNotSpill) {
  const KernelTemplate& t = template_by_name("backward_sm90_one_kernel");
  const Arch arch = parse_arch("sm_90a");
  for (const auto& [dims, rows] : {std::pair{"head_dim=64", 128},
                                   {"head_dim=128", 64},
                                   {"head_dim=128", 80},
                                   {"head_dim=96", 80},
                                   {"head_dim=64", 64},
                                   {"head_dim=16", 128},
                                   {"head_dim_qk=32,head_dim_v=64", 64},
                                   {"head_dim_qk=32,head_dim_v=64", 128}})
    for (const char* mask : {"mask=none", "mask=causal_bottom_right", "mask=none,window=100:70"})
      for (const auto& [tiles, dropout] :
           {std::pair{"section_heads=4,scheduler=0,split_heads=0,ordered=1", ""},
            {"section_heads=32,scheduler=2,split_heads=1,ordered=1", ""},
            {"section_heads=4,scheduler=0,split_heads=1,ordered=0", ""},
            {"section_heads=32,scheduler=2,split_heads=0,ordered=0", ""},
            {"section_heads=8,scheduler=2,split_heads=1,ordered=0", ",dropout=0.1"}}) {
        const bool ordered = std::string_view(tiles).ends_with("ordered=1");
        if (ordered ? rows == 80 : rows == 64 && std::string_view(dims) != "head_dim=128") continue;
        const KernelSpec spec = spec_of(parse_problem(fmt::format(
            "op=attention_backward,dtype=bf16,{},heads=8/2,seqlen=512,{}{}", dims, mask, dropout)));
        const Config config =
            parse_config(fmt::format("key_block_m={},q_slots=2,dout_slots=2,{}", rows, tiles));
        EXPECT_EQ(t.space(spec, arch).broken(config), std::nullopt);
        EXPECT_EQ(fault({&t, spec, arch, config, ""}), "") << config.to_text();
      }
}

// A score stage needs registers. A default that spills would leave a problem without a kernel until
// it is tuned. The quick run takes every 11th one.
TEST_F(CompileMatrix, DefaultsWithAScoreStageDoNotSpill) {
  const Arch arch = parse_arch("sm_90a");
  const size_t stride = is_full() ? 1 : 11;
  size_t number = 0;
  for (const char* scores : {"softcap=50", "alibi=1", "bias=bf16", "bias=fp32",
                             "relative_bias=fp32", "mask_tensor=1", "documents=1", "key_lengths=1",
                             "chunk=512", "block_map=hides", "documents=1,block_map=skips"})
    for (const char* dims : {"head_dim=64", "head_dim=128", "head_dim=256", "head_dim=512"})
      for (const char* mask : {"none", "causal_bottom_right"}) {
        if (number++ % stride != 0) continue;
        const KernelSpec spec = spec_of(parse_problem(
            fmt::format("dtype=bf16,{},heads=4,seqlen=4096,mask={},{}", dims, mask, scores)));
        const KernelTemplate& t = template_by_name("prefill_sm90");
        const Entry entry{&t, spec, arch,
                          t.default_config(spec, arch, kShape, typical_device(arch).facts), ""};
        EXPECT_EQ(fault(entry), "") << entry.name();
      }
}

// Several features at once crowd the registers most.
TEST_F(CompileMatrix, DefaultsWithSeveralScoresDoNotSpill) {
  struct Case {
    const char* family;
    const char* arch;
    const char* problem;
  };
  constexpr Case kCases[] = {
      {"prefill_sm90", "sm_90a", "dtype=bf16,head_dim=64,documents=1,softcap=50"},
      {"prefill_sm90", "sm_90a", "dtype=bf16,head_dim=64,mask=causal_bottom_right,bias=bf16"},
      {"prefill_sm90", "sm_90a", "dtype=fp16,head_dim=64,softcap=50,alibi=1,bias=bf16"},
      {"prefill_sm80", "sm_80",
       "dtype=bf16,head_dim=64,bias=bf16,relative_bias=fp32,mask_tensor=1"},
      {"prefill_sm80", "sm_80", "dtype=bf16,head_dim=64,bias=bf16,mask_tensor=1"},
      {"prefill_sm80", "sm_80",
       "dtype=bf16,head_dim=128,bias=bf16,relative_bias=fp32,mask_tensor=1"}};
  const bool all = is_full();
  for (const Case& one : kCases) {
    if (!all && &one != kCases) continue;
    const KernelSpec spec =
        spec_of(parse_problem(fmt::format("{},heads=32,batch=4,seqlen=4096", one.problem)));
    const KernelTemplate& t = template_by_name(one.family);
    const Arch arch = parse_arch(one.arch);
    const Shape shape{4, 4096, 4096, 32, 32};
    const Entry entry{&t, spec, arch,
                      t.default_config(spec, arch, shape, typical_device(arch).facts), ""};
    EXPECT_EQ(fault(entry), "") << entry.name();
  }
}

}  // namespace
}  // namespace attune
