// SPDX-License-Identifier: Apache-2.0
// One kernel that the command line names: problem, arch, template and config. Everything is checked
// before any work. Used by the commands that render or compile without measuring (`emit`,
// `compile`), and by `check` and `bench` for --config.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "generator/compile/compiler.hpp"
#include "generator/core/problem/device_facts.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/device.hpp"

namespace attune::cli {

// A GPU with a name on the command line, such as "l4" or "RTX 4090": its arch, and the facts that
// default configs are chosen for. Several GPUs share an arch (known_gpus.cpp).
struct KnownGpu {
  std::string_view name;  // as users write it: "rtx4090"
  std::string_view arch;  // "sm_89"
  KnownDevice device;
};

// Returns the GPU of this name, or nullptr. Case, spaces, '-' and the words NVIDIA, Tesla, Quadro
// and GeForce do not matter.
const KnownGpu* find_gpu(std::string_view name);

std::vector<std::string> gpu_names();

// The device whose facts decide defaults and grids.
struct FactsSource {
  DeviceFacts facts;
  std::string text;  // "NVIDIA H200 (132 multiprocessors, ...), a typical sm_90a device, ..."
  bool is_here = false;
};

struct KernelChoice {
  const KernelTemplate* kernel_template = nullptr;
  KernelSpec spec;
  Shape shape;
  Arch arch;
  DeviceFacts facts;
  Config config;
};

// An arch, and the GPU whose name the user gave for it, if any.
struct NamedArch {
  Arch arch;
  const KnownGpu* gpu = nullptr;

  // Returns the facts to assume on a machine without such a device.
  const KnownDevice& device() const { return gpu != nullptr ? gpu->device : typical_device(arch); }
};

// Returns the arch that a user means: "sm_90a" for "sm_90" or "h100", since kernels for Hopper are
// made for sm_90a alone, and "auto" for "native". Returns other names as they are.
std::string arch_meant(const std::string& name);
// Returns the help of --arch: what its names mean, and the names of GPUs.
std::string arch_help();
// Parses such a name. "auto" means this machine's arch: that of its GPU if a driver answers, else
// that of its CPU. Throws kDriver or kCompile if neither is available, and kInvalidArgument, with
// similar names, for an unknown name.
NamedArch arch_by_name(const std::string& name);
// Parses a list of such names; "all" means every CUDA arch that attune knows.
std::vector<NamedArch> archs_by_name(const std::string& list);

// Returns this machine's device if it runs images of the arch and is no other GPU than the named
// one. Otherwise returns the named GPU, or a typical device of the arch.
FactsSource facts_for(const NamedArch& arch);
// Returns a GPU that is not here: a Device with the arch and facts of a named or typical one, for
// commands that only choose kernels (`attune explain --arch`). It neither loads nor runs anything.
// Throws kInvalidArgument for the arch of a CPU (arch_device.cpp).
std::shared_ptr<const Device> device_of_arch(const NamedArch& arch);

// Returns the kernel that the texts name. An empty template_name selects the best template that
// serves the problem. An empty config_text selects the template's default config; otherwise it
// lists the knobs that differ from the default. Throws kInvalidArgument for an unknown template,
// knob or value. Throws kUnsupported, with every template's reason, if no template serves the
// problem.
KernelChoice choose_kernel(const Problem& problem, const Arch& arch, const DeviceFacts& facts,
                           const std::string& template_name, const std::string& config_text);

// Returns `base` with the knobs of `text` replaced. Throws kInvalidArgument for unknown knobs and
// illegal combinations.
Config config_over(const Config& base, const std::string& text, const SearchSpace& space);

// Returns a sentence for each reason why only the reference kernel serves a problem on `arch`. A
// sentence gives the templates' reasons, and a dtype that has a faster kernel.
std::vector<std::string> slow_kernel_notes(const std::vector<Problem>& problems, const Arch& arch);

// Throws kCompile if this machine has no compiler for the arch; the message says how to get one.
const Compiler& compiler_for(const Arch& arch);

// Splits "a,b, c" into {"a", "b", "c"}. Throws kInvalidArgument, naming `option`, for empty parts.
std::vector<std::string> split_list(const std::string& text, const std::string& option);

}  // namespace attune::cli
