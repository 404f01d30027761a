// SPDX-License-Identifier: Apache-2.0
// The compile matrix: every default config of every (CUDA template, arch) through NVRTC, no GPU
// needed. No spills, registers and shared memory within the arch's limits and equal to what the
// search space says. Every 97th entry in the quick run; all with ATTUNE_FULL_MATRIX=1; one family
// alone with ATTUNE_MATRIX_TEMPLATE=<name>. Skips aloud without NVRTC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "generator/core/error.hpp"
#include "generator/core/op.hpp"
#include "generator/nvrtc_compiler.hpp"
#include "generator/template_registry.hpp"
#include "tests/generator/gradient_specs.hpp"

namespace attune {
namespace {

constexpr size_t kQuickStride = 97;
constexpr Shape kShapes[] = {{1, 4096, 4096, 8, 8}, {8, 16, 1024, 8, 8}};

struct Entry {
  const KernelTemplate* kernel_template;
  KernelSpec spec;
  Arch arch;
  Config config;

  std::string name() const {
    return fmt::format("{} {} {} {}", kernel_template->name(), arch.name(), to_text(spec),
                       config.to_text());
  }
};

// 8-bit attention: each of the options that change the code, group ratios by turns.
void add_fp8_specs(std::vector<KernelSpec>* specs) {
  constexpr const char* kHeads[] = {"1/1", "4/1", "7/1"};
  for (const char* options :
       {"", ",accuracy=fast,dtype_o=fp16", ",v_layout=transposed", ",dtype_kv=e5m2,scale_block=128",
        ",accuracy=fast,scale_block_q=64,scale_block_kv=48",
        ",v_layout=transposed,scale_block_kv=16"})
    for (const char* mask : {"none", "causal_top_left", "causal_bottom_right,window=1024:0"})
      for (const char* dims : {"head_dim=64", "head_dim=72", "head_dim=96", "head_dim=128",
                               "head_dim=256", "head_dim_qk=192,head_dim_v=128"})
        specs->push_back(
            spec_of(parse_problem(fmt::format("dtype=e4m3,{},heads={},seqlen=4096,mask={}{}", dims,
                                              kHeads[specs->size() % 3], mask, options))));
}

// Each kernel alone and with the others.
void add_gradient_specs(std::vector<KernelSpec>* specs) {
  constexpr const char* kGradients[] = {"", ",gradients=q", ",gradients=kv", ",gradients=k",
                                        ",gradients=v"};
  for (const char* dims :
       {"head_dim=64", "head_dim=72", "head_dim=96", "head_dim=128", "head_dim=192", "head_dim=256",
        "head_dim_qk=192,head_dim_v=128", "head_dim_qk=40,head_dim_v=256"})
    for (const char* mask :
         {"none", "causal_top_left", "causal_bottom_right", "causal_bottom_right,window=1024:0"})
      for (const char* heads : {"fp16,heads=1/1", "bf16,heads=7/1"})
        specs->push_back(spec_of(
            parse_problem(fmt::format("op=attention_backward,dtype={},{},seqlen=4096,mask={}{}",
                                      heads, dims, mask, kGradients[specs->size() % 5]))));
}

// Rows of q in registers and in shared memory, pages that hold whole boxes and pages that do not.
void add_cache_specs(std::vector<KernelSpec>* specs) {
  constexpr const char* kPages[] = {"",
                                    ",page_size=16",
                                    ",page_size=1",
                                    ",page_size=5,packed_q=1",
                                    ",packed_q=1,packed_kv=1",
                                    ",page_size=16,batch_invariant=1"};
  constexpr const char* kLengths =
      "// capture slopes: fp32[2]\n"
      "return score * log(float(seqlen_kv)) - slopes[head][kv_idx] * float(seqlen_q);";
  const std::string lengths =
      ",score_mod=" + to_text(read_user_program(kLengths, score::Kind::kScore, "score_mod").digest);
  const std::string scores[] = {"", ",window=128:0", ",softcap=30,alibi=1,sinks=fp32", lengths};
  for (const char* dims : {"head_dim=64", "head_dim=80", "head_dim=128", "head_dim=192",
                           "head_dim=256", "head_dim_qk=192,head_dim_v=128"})
    for (const char* heads : {"fp16,heads=8/1", "bf16,heads=7/1"})
      for (const char* pages : kPages)
        specs->push_back(
            spec_of(parse_problem(fmt::format("op=attention_kvcache,dtype={},{},seqlen_q=2,seqlen_"
                                              "kv=4096,mask=causal_bottom_right{}{}",
                                              heads, dims, pages, scores[specs->size() % 4]))));
  for (const char* dims : {"head_dim_qk=576,head_dim_v=512", "head_dim_qk=448,head_dim_v=384"})
    for (const char* heads : {"fp16,heads=128/1", "bf16,heads=20/1"})
      for (const char* pages : {"", ",page_size=64", ",page_size=16,packed_q=1",
                                ",packed_q=1,packed_kv=1", ",page_size=64,batch_invariant=1"})
        specs->push_back(spec_of(parse_problem(fmt::format(
            "op=attention_kvcache,dtype={},{},seqlen_q=2,seqlen_kv=4096,v_in_k=1,mask=causal_"
            "bottom_right{}{}",
            heads, dims, pages, specs->size() % 2 ? ",window=128:0" : ""))));
  for (const char* dims : {"head_dim=64", "head_dim=80", "head_dim=128", "head_dim=256",
                           "head_dim_qk=192,head_dim_v=128"})
    for (const char* dtypes :
         {"fp16,dtype_kv=e5m2", "bf16,dtype_kv=e4m3", "bf16,dtype_kv=int8",
          "fp16,dtype_kv=int8,kv_factors=keys", "bf16,dtype_kv=e4m3,kv_factors=keys"})
      for (const char* pages : {",page_size=16", ",packed_q=1,packed_kv=1"})
        specs->push_back(
            spec_of(parse_problem(fmt::format("op=attention_kvcache,dtype={},{},heads=8/1,seqlen_q="
                                              "2,seqlen_kv=4096{}{}",
                                              dtypes, dims, pages, scores[specs->size() % 4]))));
}

// Caches of all types; pairs in whole groups of eight columns and not, of part of a row.
void add_append_specs(std::vector<KernelSpec>* specs) {
  for (const char* dtypes :
       {"bf16", "fp16,dtype_kv=e5m2", "fp32", "bf16,dtype_kv=int8,kv_factors=made"})
    for (const char* rotary : {"", ",rotary=fp32,rotary_q=1", ",rotary=bf16,rotary_dim=20",
                               ",rotary=fp16,rotary_interleaved=1,rotary_q=1"})
      for (const char* dims : {"head_dim=64", "head_dim_qk=192,head_dim_v=128"})
        for (const char* pages : {"", ",page_size=3,packed_q=1"})
          specs->push_back(spec_of(parse_problem(
              fmt::format("op=append_kv,dtype={},{},heads=8/2,seqlen_q=2,seqlen_kv=4096{}{}",
                          dtypes, dims, rotary, pages))));
}

// Dropout, forward and backward, beside what shares its registers.
std::vector<KernelSpec> dropout_specs() {
  constexpr const char* kOthers[] = {"", ",softcap=30", "", ",bias=bf16", "", ",documents=1",
                                     "", ",alibi=1",    "", ",sinks=fp32"};
  constexpr const char* kGradients[] = {"", ",gradients=q", ",gradients=kv", ",gradients=v"};
  std::vector<KernelSpec> specs;
  size_t number = 0;
  for (const char* dims : {"head_dim=40", "head_dim=64", "head_dim=96", "head_dim=128",
                           "head_dim=256", "head_dim_qk=192,head_dim_v=128"})
    for (const char* mask :
         {"none", "causal_bottom_right", "causal_top_left,window=1000:0", "none,window=100:100"})
      for (const char* heads : {"fp16,heads=1/1", "bf16,heads=7/1"}) {
        const std::string common = fmt::format("dtype={},{},seqlen=4096,mask={},dropout=0.1{}",
                                               heads, dims, mask, kOthers[number % 10]);
        const bool has_sinks = common.find("sinks") != std::string::npos;
        specs.push_back(spec_of(parse_problem(common)));
        if (!has_sinks)
          specs.push_back(
              spec_of(parse_problem("op=attention_backward," + common + kGradients[number % 4])));
        ++number;
      }
  return specs;
}

std::vector<KernelSpec> matrix_specs() {
  std::vector<KernelSpec> specs;
  for (const char* dtype : {"fp16", "bf16"})
    for (const char* mask :
         {"none", "causal_top_left", "causal_bottom_right", "causal_bottom_right,window=1024:0"})
      for (const char* dims :
           {"head_dim=64", "head_dim=80", "head_dim=96", "head_dim=128", "head_dim=192",
            "head_dim=256", "head_dim=72", "head_dim_qk=192,head_dim_v=128", "head_dim=320",
            "head_dim=384", "head_dim=512", "head_dim_qk=576,head_dim_v=512",
            "head_dim_qk=264,head_dim_v=40", "head_dim_qk=48,head_dim_v=296"})
        for (const char* heads : {"1/1", "4/1", "7/1"})
          specs.push_back(spec_of(parse_problem(
              fmt::format("dtype={},{},heads={},seqlen=4096,mask={}", dtype, dims, heads, mask))));
  add_fp8_specs(&specs);
  for (const char* options : {"accuracy=fast", "accuracy=split", "accuracy=fast,softcap=30"})
    for (const char* mask : {"none", "causal_bottom_right", "causal_top_left,window=1024:0"})
      for (const char* dims :
           {"head_dim=64", "head_dim=72", "head_dim=96", "head_dim=128", "head_dim=256",
            "head_dim_qk=192,head_dim_v=128", "head_dim_qk=576,head_dim_v=512"})
        specs.push_back(spec_of(parse_problem(
            fmt::format("dtype=fp32,{},heads=4/1,seqlen=4096,mask={},{}", dims, mask, options))));
  for (const char* dtype : {"bf16,dtype_o=e4m3", "fp32,dtype_o=e5m2"})
    for (const char* dims : {"head_dim=64", "head_dim=80", "head_dim=128", "head_dim=256"})
      for (const char* options : {"", ",scale_block=128", ",scale_block=64,v_layout=transposed",
                                  ",scale_block=128,rotation=hadamard"}) {
        const std::string text =
            fmt::format("op=quantise,dtype={},{},heads=1,seqlen=4096{}", dtype, dims, options);
        const bool odd_rotation =
            text.find("=80") != std::string::npos && text.find("hadamard") != std::string::npos;
        if (!odd_rotation) specs.push_back(spec_of(parse_problem(text)));
      }
  for (const char* dtypes : {"fp32,dtype_kv=bf16", "bf16", "fp16,dtype_o=fp32"})
    for (const char* dims : {"head_dim=16", "head_dim=40", "head_dim=128", "head_dim=512"})
      specs.push_back(spec_of(
          parse_problem(fmt::format("op=merge,dtype={},{},heads=1,seqlen=4096", dtypes, dims))));
  add_gradient_specs(&specs);
  testing::add_score_gradient_specs(&specs);
  testing::add_load_gradient_specs(&specs);
  testing::add_sums_of_gradients(&specs);
  add_cache_specs(&specs);
  add_append_specs(&specs);
  for (KernelSpec& spec : dropout_specs()) specs.push_back(std::move(spec));
  for (const char* masks :
       {"documents=1", "mask_tensor=1,key_lengths=1", "prefix=1", "mask_tensor=1",
        "key_lengths=1,chunk=64", "chunk=512,mask=causal_top_left", "documents=1,block_map=hides"})
    specs.push_back(spec_of(
        parse_problem(fmt::format("op=block_map,head_dim=128,heads=4/2,seqlen=4096,{}", masks))));
  return specs;
}

// All templates, or the one that the environment names.
std::vector<const KernelTemplate*> asked_templates() {
  const char* only = std::getenv("ATTUNE_MATRIX_TEMPLATE");
  return only != nullptr ? std::vector{&template_by_name(only)} : all_templates();
}

// Each distinct default of these templates; shapes often share one.
std::vector<Entry> matrix(const std::vector<const KernelTemplate*>& templates) {
  std::vector<Entry> entries;
  for (const KernelTemplate* t : templates)
    for (const std::string& arch_name : known_cuda_archs())
      for (const KernelSpec& spec : matrix_specs()) {
        const Arch arch = parse_arch(arch_name);
        if (t->refuses(spec, arch)) continue;
        for (const Shape& shape : kShapes) {
          Entry entry{t, spec, arch,
                      t->default_config(spec, arch, shape, typical_device(arch).facts)};
          const bool repeated = &shape != kShapes && entry.config == entries.back().config;
          if (!repeated) entries.push_back(std::move(entry));
        }
      }
  return entries;
}

// Returns the fault of the compiled entry, or "".
std::string broken(const Compiler& compiler, const Entry& e, double* compile_ms) try {
  const KernelImage image =
      compiler.compile(render(*e.kernel_template, e.spec, e.arch, e.config), e.arch);
  *compile_ms = image.compile_ms;
  const bool oracle = e.kernel_template->is_reference();  // never timed: a spill is no fault
  if (auto fault = image_fault(image.info); fault && !oracle) return *fault;
  const Resources expected = e.kernel_template->resources(e.spec, e.arch, e.config);
  const ImageInfo& info = image.info;
  if (info.registers <= 0 || info.registers > expected.max_registers)
    return fmt::format("{} registers; the search space says at most {}", info.registers,
                       expected.max_registers);
  if (expected.max_registers > e.arch.max_registers_per_thread)
    return "the search space allows more registers than the arch has";
  if (expected.max_registers * expected.threads * expected.min_blocks_per_sm >
      e.arch.registers_per_sm)
    return "the blocks' registers exceed the arch's";
  if (info.static_shared_bytes > 0)
    return fmt::format("{} bytes of static shared memory that the search space does not know of",
                       info.static_shared_bytes);
  if (expected.shared_bytes > e.arch.shared_bytes_per_block)
    return fmt::format("{} bytes of shared memory; the arch has {}", expected.shared_bytes,
                       e.arch.shared_bytes_per_block);
  return {};
} catch (const Error& error) {
  return error.what();
}

TEST(CompileMatrix, DefaultsCompileWithinLimits) {
  const Compiler* compiler = open_nvrtc_compiler();
  if (compiler == nullptr) GTEST_SKIP() << nvrtc_advice();
  const std::vector<Entry> entries = matrix(asked_templates());
  ASSERT_GE(entries.size(), matrix_specs().size() / 8)
      << "the families of ops beside prefill have these";
  const size_t stride = std::getenv("ATTUNE_FULL_MATRIX") != nullptr ? 1 : kQuickStride;
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::vector<double> times;
  const auto work = [&] {
    for (size_t i; (i = stride * next++) < entries.size();) {
      double ms = 0;
      const std::string fault = broken(*compiler, entries[i], &ms);
      const std::lock_guard lock(mutex);
      EXPECT_TRUE(fault.empty()) << entries[i].name() << ": " << fault;
      times.push_back(ms);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(times.size(), (entries.size() + stride - 1) / stride);
  std::sort(times.begin(), times.end());
  fmt::print("{} of {} kernels, compile time median {:.0f} ms, p95 {:.0f} ms, longest {:.0f} ms\n",
             times.size(), entries.size(), times[times.size() / 2], times[times.size() * 95 / 100],
             times.back());
}

// The problems that are most asked for: all of these run, on each arch of which their family is the
// first.
TEST(CompileMatrix, DefaultsWithDropoutDoNotSpill) {
  const Compiler* compiler = open_nvrtc_compiler();
  if (compiler == nullptr) GTEST_SKIP() << nvrtc_advice();
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
            t.default_config(spec, arch, {4, 4096, 4096, 16, 16}, typical_device(arch).facts)};
        double ms = 0;
        EXPECT_EQ(broken(*compiler, entry, &ms), "") << entry.name();
      }
  }
}

// One kernel of all gradients, in forms that defaults do not have.
TEST(CompileMatrix, OneKernelOfAllGradientsDoesNotSpill) {
  const Compiler* compiler = open_nvrtc_compiler();
  if (compiler == nullptr) GTEST_SKIP() << nvrtc_advice();
  const KernelTemplate& t = template_by_name("backward_sm90");
  const Arch arch = parse_arch("sm_90a");
  for (const auto& [dims, rows] : {std::pair{"head_dim=64", 128},
                                   {"head_dim=128", 64},
                                   {"head_dim=128", 80},
                                   {"head_dim=64", 64},
                                   {"head_dim=16", 128},
                                   {"head_dim_qk=32,head_dim_v=64", 64},
                                   {"head_dim_qk=32,head_dim_v=64", 128}})
    for (const char* mask : {"mask=none", "mask=causal_bottom_right", "mask=none,window=100:70"})
      for (const auto& [tiles, dropout] : {std::pair{"fuse_dq=4,draw_tiles=0,ordered=1", ""},
                                           {"fuse_dq=32,draw_tiles=1,ordered=1", ""},
                                           {"fuse_dq=4,draw_tiles=0,ordered=0", ""},
                                           {"fuse_dq=32,draw_tiles=1,ordered=0", ""},
                                           {"fuse_dq=8,draw_tiles=1,ordered=0", ",dropout=0.1"}}) {
        const bool ordered = std::string_view(tiles).ends_with("ordered=1");
        if (ordered ? rows == 80 : rows == 64 && std::string_view(dims) != "head_dim=128") continue;
        const KernelSpec spec = spec_of(parse_problem(fmt::format(
            "op=attention_backward,dtype=bf16,{},heads=8/2,seqlen=512,{}{}", dims, mask, dropout)));
        const Config config = parse_config(fmt::format(
            "block_m=128,block_n=48,k_slots=2,v_slots=1,key_block_n=128,key_block_m={},q_slots=2,"
            "dout_slots=2,split_kv=0,fold_sums=0,store_ds=0,band=0,{}",
            rows, tiles));
        EXPECT_EQ(t.space(spec, arch).broken(config), std::nullopt);
        double ms = 0;
        EXPECT_EQ(broken(*compiler, {&t, spec, arch, config}, &ms), "") << config.to_text();
      }
}

// A score stage wants registers: a default that spills would leave a problem without a tuned
// kernel. Every 11th one in the quick run.
TEST(CompileMatrix, DefaultsWithAScoreStageDoNotSpill) {
  const Compiler* compiler = open_nvrtc_compiler();
  if (compiler == nullptr) GTEST_SKIP() << nvrtc_advice();
  const Arch arch = parse_arch("sm_90a");
  const size_t stride = std::getenv("ATTUNE_FULL_MATRIX") != nullptr ? 1 : 11;
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
                          t.default_config(spec, arch, kShapes[0], typical_device(arch).facts)};
        double ms = 0;
        EXPECT_EQ(broken(*compiler, entry, &ms), "") << entry.name();
      }
}

// Several features at once crowd the registers most.
TEST(CompileMatrix, DefaultsWithSeveralScoresDoNotSpill) {
  const Compiler* compiler = open_nvrtc_compiler();
  if (compiler == nullptr) GTEST_SKIP() << nvrtc_advice();
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
  const bool all = std::getenv("ATTUNE_FULL_MATRIX") != nullptr;
  for (const Case& one : kCases) {
    if (!all && &one != kCases) continue;
    const KernelSpec spec =
        spec_of(parse_problem(fmt::format("{},heads=32,batch=4,seqlen=4096", one.problem)));
    const KernelTemplate& t = template_by_name(one.family);
    const Arch arch = parse_arch(one.arch);
    const Shape shape{4, 4096, 4096, 32, 32};
    const Entry entry{&t, spec, arch,
                      t.default_config(spec, arch, shape, typical_device(arch).facts)};
    double ms = 0;
    EXPECT_EQ(broken(*compiler, entry, &ms), "") << entry.name();
  }
}

}  // namespace
}  // namespace attune
