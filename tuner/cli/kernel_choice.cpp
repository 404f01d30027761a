// SPDX-License-Identifier: Apache-2.0
// Turns words of the command line into one checked kernel; see kernel_choice.hpp.
#include "tuner/cli/kernel_choice.hpp"

#include <fmt/format.h>

#include <optional>
#include <set>
#include <utility>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/problem/kernel_spec.hpp"
#include "generator/core/system/error.hpp"
#include "tuner/cli/command_line.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/record_output.hpp"

namespace attune::cli {
namespace {

std::string refusal_text(const KernelSpec& spec, const Arch& arch,
                         const std::vector<Refusal>& refusals) {
  std::string reasons;  // only of templates of this op
  for (const Refusal& refusal : refusals)
    if (refusal.kernel_template->serves().op == spec.op)
      reasons += fmt::format("{}{}: {}", reasons.empty() ? "" : "; ",
                             refusal.kernel_template->name(), refusal.reason);
  return fmt::format("no template serves {} on {} ({})", to_problem_text(spec), arch.name(),
                     reasons);
}

bool is_slow(const Problem& problem, const Arch& arch) {
  const Serving found = serving(spec_of(problem), {arch});
  return found.families.empty() && found.reference;
}

// Returns a device of this machine that runs images for `arch`, or nullptr.
std::shared_ptr<const Device> device_with(const Arch& arch) {
  std::shared_ptr<const Device> device;
  if (arch.target == Target::kCuda)
    device = try_open_cuda(nullptr);
  else if (cpu_toolchain().host_arch().name() == arch.name())
    device = open_machine("cpu");
  if (device == nullptr) return nullptr;
  for (const Arch& here : device->archs())
    if (here.name() == arch.name()) return device;
  return nullptr;
}

// Returns a 16-bit type for which the arch has a kernel other than the reference kernel, if any.
std::optional<Dtype> faster_dtype(Problem problem, const Arch& arch) {
  problem.fp8 = {};
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
    problem.dtype_q = problem.dtype_kv = problem.dtype_o = dtype;
    if (!is_slow(problem, arch)) return dtype;
  }
  return std::nullopt;
}

// True if the template serves at least one simple problem of its op on the arch.
bool is_made_for(const KernelTemplate& kernel_template, const Arch& arch) {
  KernelSpec plain = spec_of(Problem{});
  plain.op = kernel_template.serves().op;
  for (const Dtype dtype : {Dtype::kFp16, Dtype::kBf16, Dtype::kFp32, Dtype::kE4m3})
    for (const Accuracy accuracy : {Accuracy::kAccurate, Accuracy::kFast}) {
      plain.dtype_q = plain.dtype_kv = plain.dtype_o = dtype;
      plain.fp8.accuracy = accuracy;
      if (!kernel_template.refuses(plain, arch)) return true;
    }
  return false;
}

// Returns why no template that is made for the arch and the op, except the reference, serves the
// problem.
std::string slow_reason(const KernelSpec& spec, const Arch& arch) {
  std::string reasons;
  for (const auto& [kernel_template, reason] : serving(spec, {arch}).refusals)
    if (kernel_template->serves().op == spec.op && !kernel_template->is_reference() &&
        is_made_for(*kernel_template, arch))
      reasons +=
          fmt::format("{}{}: {}", reasons.empty() ? "" : "; ", kernel_template->name(), reason);
  if (!reasons.empty()) return reasons;
  return fmt::format("no other template of op {} is made for {}", op_name(spec.op), arch.name());
}

}  // namespace

std::vector<std::string> slow_kernel_notes(const std::vector<Problem>& problems, const Arch& arch) {
  std::vector<std::string> notes;
  std::set<std::string> seen;
  for (const Problem& problem : problems) {
    if (!is_slow(problem, arch)) continue;
    const std::string reason = slow_reason(spec_of(problem), arch);
    if (!seen.insert(reason).second) continue;
    std::string note = fmt::format("only the slow reference kernel serves {} on {} ({})",
                                   short_text(problem), arch.name(), reason);
    if (const auto dtype = faster_dtype(problem, arch))
      note += fmt::format("; --dtype {} has a fast kernel", dtype_name(*dtype));
    notes.push_back(std::move(note));
  }
  return notes;
}

namespace {

// Parses an arch. Names of CPUs must be known to LLVM.
Arch checked_arch(const std::string& name) {
  Arch arch = parse_arch(name);
  if (arch.target != Target::kCpu) return arch;
  const CpuToolchain& toolchain = cpu_toolchain();
  if (!toolchain.knows_cpu(arch.cpu))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("arch is \"{}\", and LLVM has no CPU of this name; must be a CPU "
                            "that LLVM knows, such as this machine's {}",
                            name, toolchain.host_arch().name()));
  return arch;
}

// Returns the arch of a name that is neither a machine's word, nor begins with sm_ or cpu:.
NamedArch gpu_by_name(const std::string& name) {
  if (const KnownGpu* gpu = find_gpu(name)) return {parse_arch(gpu->arch), gpu};
  std::vector<std::string> known = gpu_names();
  known.insert(known.end(), {"auto", "native", "cpu"});
  known.insert(known.end(), known_cuda_archs().begin(), known_cuda_archs().end());
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("arch is \"{}\"; must be sm_75 ... sm_121, native, cpu, cpu:<llvm cpu "
                          "name>, or a GPU that --help lists, such as a100, h100 or l4{}",
                          name, suggestion(name, known)));
}

// True if the device is the GPU, by the beginning of its name: "NVIDIA H100 80GB HBM3".
bool is_called(const Device& device, const KnownGpu& gpu) {
  const std::string name = device.identity().name + " ";
  return name.starts_with(std::string(gpu.device.name) + " ");
}

}  // namespace

std::string arch_meant(const std::string& name) {
  if (name == "native") return "auto";
  if (name == "sm_90") return "sm_90a";
  const KnownGpu* const gpu = find_gpu(name);
  return gpu != nullptr ? std::string(gpu->arch) : name;
}

std::string arch_help() {
  return fmt::format(
      "sm_75 ... sm_121, cpu, and auto or native (this machine's arch). sm_90 means sm_90a. A "
      "GPU's "
      "name means its arch, with defaults for that GPU: {}",
      fmt::join(gpu_names(), ", "));
}

NamedArch arch_by_name(const std::string& given) {
  const std::string name = given == "native" ? "auto" : given == "sm_90" ? "sm_90a" : given;
  if (name.starts_with("sm_") || name.starts_with("cpu:")) return {checked_arch(name)};
  if (name != "auto" && name != "cpu") return gpu_by_name(name);
  if (name == "auto") {
    if (const auto device = try_open_cuda(nullptr)) return {device->archs().front()};
  }
  return {cpu_toolchain().host_arch()};
}

std::vector<NamedArch> archs_by_name(const std::string& list) {
  std::vector<NamedArch> archs;
  if (list == "all") {
    for (const std::string& name : known_cuda_archs()) archs.push_back({parse_arch(name)});
    return archs;
  }
  for (const std::string& name : split_list(list, "--arch")) archs.push_back(arch_by_name(name));
  return archs;
}

FactsSource facts_for(const NamedArch& named) {
  const Arch& arch = named.arch;
  const auto here = device_with(arch);
  if (here != nullptr && (named.gpu == nullptr || is_called(*here, *named.gpu)))
    return {here->facts(), here->identity().facts_title(), true};
  const KnownDevice& device = named.device();
  const std::string facts =
      arch.target == Target::kCuda ? fmt::format(" ({})", to_text(device.facts)) : "";
  return {device.facts,
          named.gpu != nullptr
              ? fmt::format("{}{} of arch {}", device.name, facts, arch.name())
              : fmt::format("{}{}, a typical {} device, because this machine has none", device.name,
                            facts, arch.name()),
          false};
}

KernelChoice choose_kernel(const Problem& problem, const Arch& arch, const DeviceFacts& facts,
                           const std::string& template_name, const std::string& config_text) {
  KernelChoice choice{nullptr, spec_of(problem), shape_of(problem), arch, facts, {}};
  if (template_name.empty()) {
    Serving found = serving(choice.spec, {arch});
    found.families = by_fit(found.families, choice.spec, choice.shape, facts);
    if (!found.best())
      throw Error(ErrorCode::kUnsupported, refusal_text(choice.spec, arch, found.refusals));
    choice.kernel_template = found.best()->kernel_template;
  } else {
    choice.kernel_template = &template_by_name(template_name);
    if (const auto reason = choice.kernel_template->refuses(choice.spec, arch))
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("template {} does not serve this problem: {}", template_name, *reason));
  }
  const Config base =
      choice.kernel_template->default_config(choice.spec, arch, choice.shape, facts);
  choice.config = config_over(base, config_text, choice.kernel_template->space(choice.spec, arch));
  return choice;
}

Config config_over(const Config& base, const std::string& text, const SearchSpace& space) {
  Config config = base;
  if (text.empty()) return config;
  const Config given = parse_config(text);
  for (const auto& [knob, value] : given.knobs()) {
    if (!base.has(knob)) {
      std::string known;
      for (const Knob& one : space.knobs())
        known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("config has the knob \"{}\", which this template lacks; {}", knob,
                              known.empty() ? "it has no knobs" : "must be one of " + known));
    }
    config.set(knob, value);
  }
  if (const auto broken = space.broken(config))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("config {}: {}", config.to_text(), *broken));
  return config;
}

const Compiler& compiler_for(const Arch& arch) {
  if (arch.target == Target::kCuda) {
    const Compiler* compiler = open_nvrtc_compiler();
    if (compiler == nullptr) throw Error(ErrorCode::kCompile, nvrtc_advice());
    return *compiler;
  }
  return cpu_toolchain().compiler();
}

std::vector<std::string> split_list(const std::string& text, const std::string& option) {
  std::vector<std::string> parts;
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    std::string part = text.substr(start, end - start);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    if (part.empty())
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} is \"{}\"; must be a list such as a,b without empty parts",
                              option, text));
    parts.push_back(std::move(part));
    start = end + 1;
  }
  return parts;
}

}  // namespace attune::cli
