// SPDX-License-Identifier: Apache-2.0
// Inliner: turns a template file and all its includes into one text. Used by the renderer.
//
// Every #include "..." is replaced by the file's text, once. Paths are relative to templates/; host
// code spells them templates/... An include that only some kernels need has a condition, and other
// kernels leave it out:
//   #include "cuda/sm90/kv_split.cuh"  // where kKvSplits > 1
// The condition compares a constant of the preamble (==, !=, >, <) with a number or a name. A
// constant alone is true if the kernel has it. A line that ends in `// unless kMask` is for kernels
// without that constant. With `// where kScored unless kRequestLengths` the first condition must
// hold and the second must not. An editor or nvcc reads such a line as a plain include. A line with
// one parameter of a `__global__` function may end in a condition too, and no other line may. The
// parameter that comes last in a kernel loses its comma if the list ends on a line of its own.
//
// Kernels for which the condition of an include fails may have another file, named by its path from
// the included file's folder. A folder stands for its file of the same name:
//   #include "cuda/sm90/score_stage.cuh"  // where kScored, else none/
//   #include "cuda/parts/block_map.cuh"   // unless kGranules, else granule_lists.cuh
//
// Labels give the file of each line: "// ---- path" at the beginning of the file's text, "// ----
// path, continued" after an included file. The namespace remains open between files.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "generator/kernel_template.hpp"

namespace attune {

// A file of templates/, embedded into the library at build time (source_bundle.cpp).
struct BundledFile {
  std::string_view path;  // "cuda/ptx/mma.cuh"
  std::string_view text;
};

const std::vector<BundledFile>& bundled_files();
std::optional<std::string_view> bundled_text(std::string_view path);
// Adds a file from outside templates/, such as a test's, or replaces one. Must be called before any
// other function of the library.
void add_bundled_file(std::string path, std::string text);

// The constants of one kernel and their text, which replace the template's knobs file.
struct Preamble {
  std::vector<Constant> constants;
  std::string text;
};

class Inliner {
 public:
  Inliner(const KernelTemplate& kernel_template, const Preamble& preamble,
          const std::vector<GeneratedPart>& parts)
      : kernel_template_(kernel_template), preamble_(preamble), parts_(parts) {}

  // Returns `head`, then the template with its includes. Throws kInternal for a file that is not
  // in templates/ and not generated, and for an invalid or misplaced condition.
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

// Returns every file that a kernel of the template may contain, with any conditions. Excludes
// generated files and the knobs.
std::vector<std::string> files_of(const KernelTemplate& kernel_template);

}  // namespace attune
