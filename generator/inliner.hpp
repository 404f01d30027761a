// SPDX-License-Identifier: Apache-2.0
// Inliner: a template file with everything it includes, as one text. Used by the renderer.
//
// Every #include "..." is replaced by the file's text, once. Paths are relative to templates/, or
// templates/... as host code spells it. An include that not every kernel needs has a condition, and
// is left out elsewhere:
//   #include "cuda/attention/kv_split.cuh"  // where kKvSplits > 1
// The condition compares a constant of the preamble (==, !=, >, <) with a number or a name. A
// constant alone asks if the kernel has it. An editor or nvcc reads such a line as a plain include.
// Any other line may end in a condition too, so that a kernel's text has nothing that it does not
// use. A line that ends in `// unless kMaskProgram` is for kernels without that constant: another
// line replaces it elsewhere. With `// where kScored unless kRequestLengths` the first must hold
// and the second must not.
//
// Labels name the file of each line: "// ---- path" where its text begins, "// ---- path,
// continued" after a file that it includes. The namespace stays open from one file to the next.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "generator/kernel_template.hpp"

namespace attune {

// Replaces the template's knobs file: the constants of one kernel, and their text.
struct Preamble {
  std::vector<Constant> constants;
  std::string text;
};

class Inliner {
 public:
  Inliner(const KernelTemplate& kernel_template, const Preamble& preamble,
          const std::vector<GeneratedPart>& parts)
      : kernel_template_(kernel_template), preamble_(preamble), parts_(parts) {}

  // Returns `head`, then the template with its includes. Throws kInternal for an include that is
  // neither in templates/ nor generated, and for a condition that cannot be read.
  std::string run(std::string head);

 private:
  void inline_path(std::string_view path);
  void inline_knobs();
  void inline_generated(std::string_view path);
  void inline_text(std::string_view path, std::string_view text);
  void write(std::string_view path, std::string_view line);
  void write_label(std::string_view path);
  bool is_needed(std::string_view line) const;
  const Constant* constant(std::string_view name) const;  // from the preamble; null if it has none

  const KernelTemplate& kernel_template_;
  const Preamble& preamble_;
  const std::vector<GeneratedPart>& parts_;
  std::set<std::string, std::less<>> inlined_, labelled_;
  std::string out_;
  std::string_view current_;       // the file of the last line
  bool after_blank_ = true;        // the last line is empty
  bool leaves_namespace_ = false;  // the namespace's end was read, and is not written yet
};

// Returns every file that a kernel of the template may contain, whatever is compiled in. Leaves out
// generated files and the knobs.
std::vector<std::string> files_of(const KernelTemplate& kernel_template);

}  // namespace attune
