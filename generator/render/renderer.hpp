// SPDX-License-Identifier: Apache-2.0
// Renderer: (template, KernelSpec, Arch, Config) -> Source, one self-contained text.
//
// The text is the template's source file with every #include "..." replaced (inliner.hpp). The
// preamble replaces the include of the template's knobs file:
//   constexpr int kArch = 90;                  // compute capability; 0 on a CPU
//   constexpr Dtype kDtypeQ, kDtypeKv, kDtypeO;
//   constexpr int kHeadDimQk, kHeadDimV, kGqaRatio;
//   constexpr Mask kMask; constexpr int kWindowLeft, kWindowRight;  // -1 = open
//   constexpr Accuracy kAccuracy; VLayout kVLayout; Rotation kRotation;  // 8 bits only
//   constexpr int kScaleBlockQ, kScaleBlockKv;                           // 8 bits only
//   constexpr int kBlockM = 128; ...           // one per knob, snake_case -> kUpperCamel
// and the family's extra constants, all in namespace attune. The first lines rename the functions
// of the template, such as attune_kernel, to their names in the image (entry_in, launch_plan.hpp).
#pragma once

#include <string>
#include <string_view>

#include "generator/kernel_template.hpp"

namespace attune {

struct Source {
  std::string text;
  std::string file_name;  // "prefill_sm80.cu", for compiler messages
  // The main function's name in the image: "attune_prefill_sm90_d128". Profilers show it.
  std::string entry = kEntryName;
};

// Throws kInvalidArgument if the template refuses the spec, or the config is illegal.
Source render(const KernelTemplate& kernel_template, const KernelSpec& spec, const Arch& arch,
              const Config& config);

// Returns the digest of a source's text without comments, a part of an image's identity. Changed
// comments do not change it; any other changed byte, constant or generated part does.
std::string source_digest(const Source& source);

// Returns "r<revision>.<digest>". The digest is of the text, without comments, of every file that a
// kernel of the template may contain, and of the constants and generated parts that its family adds
// for some sample problems. It is part of the identity of trials and winners, whose timings depend
// on it. It needs no rendering of each kernel.
const std::string& template_digest(const KernelTemplate& kernel_template);
// True if both digests of one template have the same revision: kernels of both texts have the same
// arguments, launch and results. Digests without a revision, of attune 0.2, are equal or not.
bool same_revision(std::string_view digest, std::string_view other);

// Removes comments, blanks at line ends and empty lines. String and character literals stay
// unchanged.
std::string comment_free(std::string_view text);

}  // namespace attune
