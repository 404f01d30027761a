// SPDX-License-Identifier: Apache-2.0
// One kernel as named on the command line: problem, arch, template and config, checked before any
// work. Used by the commands that render or compile without measuring (`emit`, `compile`) and by
// `check` and `bench` for --config.
#pragma once

#include <string>
#include <vector>

#include "generator/compiler.hpp"
#include "generator/template_registry.hpp"

namespace attune::cli {

// The device whose facts defaults and grids follow.
struct FactsSource {
  DeviceFacts facts;
  std::string
      text;  // "NVIDIA H200 (132 multiprocessors, ...), which stands for sm_90a: none is here"
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

// "auto" is what this machine has: its GPU's arch if a driver answers, else its CPU. Throws kDriver
// or kCompile when neither can be had.
Arch arch_by_name(const std::string& name);
// A list of such names; "all" is every CUDA arch that attune knows.
std::vector<Arch> archs_by_name(const std::string& list);

// This machine's device where it runs images of `arch`, else the one that stands for the arch.
FactsSource facts_for(const Arch& arch);

// Empty template_name: the best one that serves; empty config_text: its default. A config names the
// knobs that differ from the default. Throws kInvalidArgument for an unknown template, knob or
// value, kUnsupported with every template's reason.
KernelChoice choose_kernel(const Problem& problem, const Arch& arch, const DeviceFacts& facts,
                           const std::string& template_name, const std::string& config_text);

// The knobs of `text` laid over `base`; unknown knobs and illegal combinations throw
// kInvalidArgument.
Config config_over(const Config& base, const std::string& text, const SearchSpace& space);

// A sentence for each reason why only the reference kernel serves a problem on `arch`, as the templates give it, with a type that has
// a better one.
std::vector<std::string> slow_kernel_notes(const std::vector<Problem>& problems, const Arch& arch);

// Throws kCompile, saying how to get one, when this machine has no compiler for the arch.
const Compiler& compiler_for(const Arch& arch);

// "a,b, c" -> {"a", "b", "c"}; empty parts throw kInvalidArgument naming `option`.
std::vector<std::string> split_list(const std::string& text, const std::string& option);

}  // namespace attune::cli
