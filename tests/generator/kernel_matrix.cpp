// SPDX-License-Identifier: Apache-2.0
// See kernel_matrix.hpp.
#include "tests/generator/kernel_matrix.hpp"

#include <fmt/format.h>

#include <charconv>

#include "generator/core/system/digest.hpp"
#include "generator/score/language/user_program.hpp"
#include "tests/generator/gradient_specs.hpp"
#include "tests/generator/render/golden_cases.hpp"

namespace attune::testing {
namespace {

constexpr Shape kManyRows{1, 4096, 4096, 8, 8}, kFewRows{8, 16, 1024, 8, 8};

std::string short_digest(std::string_view text) { return xxh3_128_hex(text).substr(0, 8); }

// Adds 8-bit attention with each option that changes the code, and various group ratios.
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

// Adds specs of each gradient alone and together with others.
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

// Adds caches whose values are the first columns of keys, without and with lists of keys.
void add_latent_cache_specs(std::vector<KernelSpec>* specs) {
  for (const char* dims : {"head_dim_qk=576,head_dim_v=512", "head_dim_qk=448,head_dim_v=384"})
    for (const char* heads : {"fp16,heads=128/1", "bf16,heads=20/1"})
      for (const char* pages :
           {"", ",page_size=64", ",page_size=16,packed_q=1", ",packed_q=1,packed_kv=1",
            ",page_size=64,batch_invariant=1", ",page_size=1", ",page_size=12,packed_q=1"})
        specs->push_back(spec_of(parse_problem(fmt::format(
            "op=attention_kvcache,dtype={},{},seqlen_q=2,seqlen_kv=4096,v_in_k=1,mask=causal_"
            "bottom_right{}{}",
            heads, dims, pages, specs->size() % 2 ? ",window=128:0" : ""))));
  for (const char* dims : {"head_dim_qk=576,head_dim_v=512", "head_dim_qk=448,head_dim_v=384"})
    for (const char* heads : {"fp16,heads=128/1", "bf16,heads=20/1", "bf16,heads=8/1"})
      for (const char* lists :
           {",key_indices=positions,page_size=1", ",key_indices=positions,packed_q=1,packed_kv=1",
            ",key_indices=places,page_size=64,batch_invariant=1", ",key_indices=places"})
        specs->push_back(
            spec_of(parse_problem(fmt::format("op=attention_kvcache,dtype={},{},seqlen_q=2,seqlen_"
                                              "kv=4096,v_in_k=1,listed_keys=2048{}",
                                              heads, dims, lists))));
}

// Adds gradients over lists of keys, of plain and latent keys.
void add_list_gradient_specs(std::vector<KernelSpec>* specs) {
  for (const char* dims :
       {"head_dim=64", "head_dim=72", "head_dim=128", "head_dim=256",
        "head_dim_qk=192,head_dim_v=128", "head_dim_qk=576,head_dim_v=512",
        "head_dim_qk=576,head_dim_v=512,v_in_k=1", "head_dim_qk=320,head_dim_v=272,v_in_k=1"})
    for (const char* heads :
         {"fp16,heads=1/1", "bf16,heads=7/1", "bf16,heads=32/1", "fp16,heads=128/1"})
      specs->push_back(spec_of(parse_problem(
          fmt::format("op=attention_backward,dtype={},{},seqlen=4096,key_indices=positions,"
                      "listed_keys=2048{}",
                      heads, dims, specs->size() % 3 == 0 ? ",deterministic=1" : ""))));
}

// Adds caches with q in registers and in shared memory, with pages of whole boxes and others.
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
                           "head_dim=256", "head_dim_qk=192,head_dim_v=128", "head_dim=512",
                           "head_dim_qk=576,head_dim_v=512", "head_dim_qk=320,head_dim_v=272"})
    for (const char* heads : {"fp16,heads=8/1", "bf16,heads=7/1"})
      for (const char* pages : kPages)
        specs->push_back(
            spec_of(parse_problem(fmt::format("op=attention_kvcache,dtype={},{},seqlen_q=2,seqlen_"
                                              "kv=4096,mask=causal_bottom_right{}{}",
                                              heads, dims, pages, scores[specs->size() % 4]))));
  for (const char* dtypes : {"bf16", "fp16,dtype_kv=int8", "fp16,dtype_kv=int8,kv_factors=keys"})
    for (const char* dims :
         {"head_dim=64", "head_dim=80", "head_dim=128", "head_dim=256", "head_dim=512"})
      for (const char* lists :
           {",key_indices=positions,page_size=16", ",key_indices=positions,packed_q=1,packed_kv=1",
            ",key_indices=positions,softcap=30,alibi=1,sinks=fp32,packed_q=1",
            ",key_indices=places,page_size=64,batch_invariant=1", ",key_indices=places,sinks=fp32"})
        specs->push_back(spec_of(
            parse_problem(fmt::format("op=attention_kvcache,dtype={},{},heads=8/1,seqlen_q=2,"
                                      "seqlen_kv=4096,listed_keys=2048{}",
                                      dtypes, dims, lists))));
  add_latent_cache_specs(specs);
  for (const char* dims : {"head_dim=64", "head_dim=80", "head_dim=128", "head_dim=256",
                           "head_dim_qk=192,head_dim_v=128", "head_dim=512",
                           "head_dim_qk=576,head_dim_v=512,v_in_k=1"})
    for (const char* dtypes :
         {"fp16,dtype_kv=e5m2", "bf16,dtype_kv=e4m3", "bf16,dtype_kv=int8",
          "fp16,dtype_kv=int8,kv_factors=keys", "bf16,dtype_kv=e4m3,kv_factors=keys"})
      for (const char* pages : {",page_size=16", ",packed_q=1,packed_kv=1"})
        specs->push_back(
            spec_of(parse_problem(fmt::format("op=attention_kvcache,dtype={},{},heads=8/1,seqlen_q="
                                              "2,seqlen_kv=4096{}{}",
                                              dtypes, dims, pages, scores[specs->size() % 4]))));
}

// Adds latent caches of 8 bits over pages, slots, packed keys and lists of keys.
void add_latent_specs(std::vector<KernelSpec>* specs) {
  for (const char* form :
       {"fp16,head_dim_qk=448,head_dim_v=384", "bf16,head_dim_qk=576,head_dim_v=512",
        "bf16,head_dim_qk=576,head_dim_v=512,kv_factors=latent"})
    for (const char* heads : {"128/1", "32/1", "8/1"})
      for (const char* keys :
           {"page_size=64,mask=causal_bottom_right", "packed_q=1,packed_kv=1,window=128:0",
            "page_size=1,batch_invariant=1", "page_size=64,listed_keys=2048,key_indices=positions",
            "listed_keys=2048,key_indices=places"})
        specs->push_back(spec_of(parse_problem(fmt::format(
            "op=attention_kvcache,dtype_kv=e4m3,v_in_k=1,seqlen_q=2,seqlen_kv=4096,dtype={},heads="
            "{},{}",
            form, heads, keys))));
}

// Adds caches of all types, and rotary pairs that do and do not fill groups of eight columns.
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

// Adds caches of 4 bits, and appends to them.
void add_nibble_specs(std::vector<KernelSpec>* specs) {
  for (const char* factors :
       {"dtype_kv=int4,kv_factors=columns32", "dtype_kv=e2m1,kv_factors=columns16"})
    for (const char* dims : {"head_dim=64", "head_dim=128", "head_dim_qk=256,head_dim_v=192",
                             "head_dim_qk=192,head_dim_v=128", "head_dim=96"})
      for (const char* pages : {"page_size=16", "packed_q=1,packed_kv=1",
                                "page_size=1,batch_invariant=1,sinks=fp32,softcap=30",
                                "key_indices=positions,page_size=16,listed_keys=2048"})
        specs->push_back(spec_of(parse_problem(fmt::format(
            "op=attention_kvcache,dtype={},{},{},heads=8/1,seqlen_q=2,seqlen_kv=4096,{}",
            specs->size() % 2 == 0 ? "bf16" : "fp16", factors, dims, pages))));
  for (const char* dtypes :
       {"bf16,dtype_kv=int4,kv_factors=columns16", "fp16,dtype_kv=e2m1,kv_factors=columns32"})
    for (const char* form : {"head_dim=64", "head_dim_qk=192,head_dim_v=128,rotary=fp32,rotary_q=1",
                             "head_dim=96,page_size=3,packed_q=1,rotary=bf16,rotary_dim=20"})
      specs->push_back(spec_of(parse_problem(fmt::format(
          "op=append_kv,dtype={},heads=8/2,seqlen_q=2,seqlen_kv=4096,{}", dtypes, form))));
}

// Adds ops that choose keys, of all types and masks.
void add_choice_specs(std::vector<KernelSpec>* specs) {
  for (const char* mask : {"none", "causal_top_left", "causal_bottom_right"}) {
    for (const char* dtype : {"fp32", "bf16", "fp16"})
      specs->push_back(spec_of(parse_problem(fmt::format(
          "op=top_k,dtype={},heads=1,seqlen=4096,listed_keys=64,mask={}", dtype, mask))));
    for (const char* dtypes : {"bf16", "fp16", "e4m3"})
      for (const char* heads : {"head_dim=128,heads=64/1", "head_dim=64,heads=5/1"})
        specs->push_back(spec_of(parse_problem(fmt::format(
            "op=index_scores,dtype={},dtype_o=fp32,{},seqlen=4096,mask={}", dtypes, heads, mask))));
  }
}

// Returns specs with dropout, forward and backward, and with features that share its registers.
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

}  // namespace

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
  add_score_gradient_specs(&specs);
  add_load_gradient_specs(&specs);
  add_sums_of_gradients(&specs);
  add_list_gradient_specs(&specs);
  add_cache_specs(&specs);
  add_append_specs(&specs);
  add_choice_specs(&specs);
  for (KernelSpec& spec : dropout_specs()) specs.push_back(std::move(spec));
  for (const char* masks :
       {"documents=1", "mask_tensor=1,key_lengths=1", "prefix=1", "mask_tensor=1",
        "key_lengths=1,chunk=64", "chunk=512,mask=causal_top_left", "documents=1,block_map=hides"})
    specs.push_back(spec_of(
        parse_problem(fmt::format("op=block_map,head_dim=128,heads=4/2,seqlen=4096,{}", masks))));
  for (const char* dims : {"fp16,head_dim=80,heads=8/2", "bf16,head_dim=128,heads=8/1,sinks=fp32",
                           "bf16,dtype_kv=e4m3,head_dim=128,heads=8/2",
                           "bf16,head_dim_qk=576,head_dim_v=512,heads=16/1,v_in_k=1"})
    specs.push_back(spec_of(parse_problem(fmt::format(
        "op=attention_kvcache,dtype_o=fp32,dtype={},seqlen_q=2,seqlen_kv=4096,page_size=16",
        dims))));
  add_latent_specs(&specs);
  add_nibble_specs(&specs);
  return specs;
}

std::string MatrixKernel::name() const {
  return fmt::format("{} {} {} {}", kernel_template->name(), arch.name(), to_text(spec),
                     config.to_text());
}

std::string MatrixKernel::key() const {
  return fmt::format("{} {} {}", kernel_template->name(), arch.name(), id);
}

std::string MatrixKernel::config_digest() const { return short_digest(config.to_text()); }

bool is_golden(std::string_view key) {
  return key.find('_', key.rfind(' ') + 1) != std::string_view::npos;
}

bool in_sample(std::string_view key, uint32_t step) {
  if (is_golden(key)) return true;
  const std::string_view id = key.substr(key.rfind(' ') + 1);
  uint32_t number = 0;
  std::from_chars(id.data(), id.data() + id.size(), number, 16);
  return number % step == 0;
}

std::vector<MatrixKernel> matrix_kernels(const std::vector<const KernelTemplate*>& templates,
                                         const std::function<bool(const std::string&)>& is_wanted) {
  std::vector<MatrixKernel> kernels;
  const std::vector<KernelSpec> specs = matrix_specs();
  std::vector<std::string> ids, ids_of_few_rows;
  for (const KernelSpec& spec : specs) {
    ids.push_back(short_digest(to_text(spec)));
    ids_of_few_rows.push_back(short_digest(to_text(spec) + " few rows"));
  }
  for (const KernelTemplate* t : templates)
    for (const std::string& arch_name : known_cuda_archs()) {
      const Arch arch = parse_arch(arch_name);
      const DeviceFacts& device = typical_device(arch).facts;
      for (size_t i = 0; i < specs.size(); ++i) {
        const MatrixKernel many{t, specs[i], arch, {}, ids[i]};
        const bool wants_many = is_wanted(many.key());
        const MatrixKernel few{t, specs[i], arch, {}, ids_of_few_rows[i]};
        const bool wants_few = is_wanted(few.key());
        if ((!wants_many && !wants_few) || t->refuses(specs[i], arch)) continue;
        const Config config = t->default_config(specs[i], arch, kManyRows, device);
        if (wants_many) kernels.push_back({t, specs[i], arch, config, ids[i]});
        if (!wants_few) continue;
        const Config other = t->default_config(specs[i], arch, kFewRows, device);
        if (!(other == config)) kernels.push_back({t, specs[i], arch, other, ids_of_few_rows[i]});
      }
    }
  return kernels;
}

std::vector<MatrixKernel> golden_cuda_kernels() {
  std::vector<MatrixKernel> kernels;
  for (const GoldenCase& c : kGoldenCases) {
    const Arch arch = parse_arch(c.arch);
    if (arch.target != Target::kCuda) continue;
    const KernelTemplate& t = template_by_name(c.template_name);
    const Problem problem = parse_problem(c.problem);
    kernels.push_back(
        {&t, spec_of(problem), arch,
         t.default_config(spec_of(problem), arch, shape_of(problem), typical_device(arch).facts),
         c.name});
  }
  return kernels;
}

}  // namespace attune::testing
