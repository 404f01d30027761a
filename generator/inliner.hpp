// SPDX-License-Identifier: Apache-2.0
// Inliner: a template file with everything it includes, as one text. Used by the renderer.
//
// Every #include "..." (paths relative to templates/, or templates/... as host code spells it) is replaced by the file's
// text, once. An include that not every kernel needs says when it is needed, and is left out elsewhere:
//   #include "cuda/attention/kv_split.cuh"  // where kKvSplits > 1
// The condition compares a constant of the preamble (==, !=, >, <) with a number or a name, or is a constant alone: whether the
// kernel has it. An editor or nvcc reads such a line as a plain include. Any other line may end in a condition, too: so the
// text of a kernel holds nothing of what it does not use. A line that ends in `// unless kMaskProgram` stands in kernels without that
// constant: it is for the line that another one takes the place of. `// where kScored unless kRequestLengths` wants the first and
// not the second.
//
// Labels say which file a line is from: "// ---- path" where its text begins, "// ---- path, continued" where it goes on
// behind a file that it includes. From one file to the next the namespace stays open.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "generator/kernel_template.hpp"

namespace attune {

// What takes the place of the template's knobs file: the constants of one kernel, and their text.
struct Preamble {
  std::vector<Constant> constants;
  std::string text;
};

class Inliner {
 public:
  Inliner(const KernelTemplate& kernel_template, const Preamble& preamble,
          const std::vector<GeneratedPart>& parts)
      : kernel_template_(kernel_template), preamble_(preamble), parts_(parts) {}

  // `head` and, behind it, the template with its includes. Throws kInternal for an include that is neither a file of
  // templates/ nor generated, and for a condition that cannot be read.
  std::string run(std::string head);

 private:
  void inline_path(std::string_view path);
  void inline_knobs();
  void inline_generated(std::string_view path);
  void inline_text(std::string_view path, std::string_view text);
  void write(std::string_view path, std::string_view line);
  void write_label(std::string_view path);
  bool is_needed(std::string_view line) const;
  const Constant* constant(std::string_view name) const;  // of the preamble; null where it has none

  const KernelTemplate& kernel_template_;
  const Preamble& preamble_;
  const std::vector<GeneratedPart>& parts_;
  std::set<std::string, std::less<>> inlined_, labelled_;
  std::string out_;
  std::string_view current_;       // the file that the last line is from
  bool after_blank_ = true;        // the last line is empty
  bool leaves_namespace_ = false;  // its end was read, and is not written yet
};

// Every file that a kernel of the template may contain, whatever is compiled in; without the generated ones and the knobs.
std::vector<std::string> files_of(const KernelTemplate& kernel_template);

}  // namespace attune
