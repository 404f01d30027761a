// SPDX-License-Identifier: Apache-2.0
// KernelTemplate: one algorithm for one architecture family ("prefill_sm80"). It says what it serves, its search space, how
// a config is rendered and how the result is launched. Everything a family knows stands behind this interface, in
// generator/families/<name>.cpp; nothing else in the project branches on family or arch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/core/arch.hpp"
#include "generator/core/device_facts.hpp"
#include "generator/core/kernel_spec.hpp"
#include "generator/search_space.hpp"

namespace attune {

// What the compiler is expected to report; the compile matrix holds it against the truth.
struct Resources {
  int threads = 0;
  int shared_bytes = 0;     // dynamic
  int max_registers = 255;  // launch bound the kernel is compiled for; a spill fails the trial
  int min_blocks_per_sm = 1;
};

// kVTransposed: V^T in the workspace, written by an earlier kernel of the same plan
// (LaunchPlan::v_transposed).
enum class Operand : int { kQ, kK, kV, kO, kVTransposed };

// A TMA descriptor to encode at launch: a box of one operand seen as {head_dim, seqlen, head, batch}, innermost first. An operand
// whose keys are contiguous (kVTransposed, and kV of a transposed v_layout) is seen as {seqlen, head_dim, head, batch}.
struct TensorMapPlan {
  Operand operand = Operand::kQ;
  int box_columns = 64;     // of the innermost dimension, in elements; at most 128 bytes
  int box_rows = 64;        // of the next one
  int swizzle_bytes = 128;  // 0, 32, 64 or 128
  int box_heads =
      1;  // consecutive heads; each has box_rows rows in the box, one head after the other
};

// Name of the main kernel in every Source.
inline constexpr const char* kEntryName = "attune_kernel";

// Grid and memory of one kernel. Kernel parameters are, in order: AttentionArgs (or ScaledAttentionArgs), then the tensor maps.
struct KernelLaunch {
  std::string entry = kEntryName;  // in the image: one Source may hold several kernels
  unsigned grid_x = 1, grid_y = 1, grid_z = 1;
  unsigned threads = 1;
  unsigned shared_bytes = 0;
  unsigned cluster = 1;
  bool early =
      false;  // may start before the kernel ahead of it ends; it waits inside (griddepcontrol)
  std::vector<TensorMapPlan> tensor_maps;
};

// V^T in the workspace: [batch, num_heads_kv, head_dim_v, keys], at this offset. `keys` is 0 when there is none.
struct TransposedV {
  int64_t offset = 0;  // bytes, 256-byte aligned
  int64_t keys = 0;    // seqlen_kv rounded up, 16-byte rows
};

// What one call launches, in stream order. The last kernel is the main one; those before it prepare its operands.
struct LaunchPlan {
  std::vector<KernelLaunch> kernels = std::vector<KernelLaunch>(1);
  int num_tiles = 0;            // into AttentionArgs::num_tiles
  int64_t workspace_bytes = 0;  // 256-byte aligned, given by the caller of run
  int64_t zeroed_bytes =
      0;  // leading part of the workspace that must be zero before the first launch; kernels leave it zero
  TransposedV v_transposed;

  KernelLaunch& main() { return kernels.back(); }
  const KernelLaunch& main() const { return kernels.back(); }
  bool uses_tensor_maps() const;
};

// A constexpr of the rendered preamble: `constexpr <type> <name> = <value>;`
struct Constant {
  std::string type;   // "int", "bool", "Mask", "Dtype"
  std::string name;   // "kBlockM"
  std::string value;  // "128"
};

// A generated include: the template says #include "<path>", the renderer puts `text` there.
struct GeneratedPart {
  std::string path;  // "generated/wgmma.cuh"
  std::string text;
};

inline bool LaunchPlan::uses_tensor_maps() const {
  return std::any_of(kernels.begin(), kernels.end(),
                     [](const KernelLaunch& kernel) { return !kernel.tensor_maps.empty(); });
}

// The op that a template computes, and the features of a spec that it knows, by the names of their
// fields (features_of). A template that has never heard of a field refuses each of its values but
// the default.
struct Served {
  Op op;
  std::set<std::string> features;
};

class KernelTemplate {
 public:
  virtual ~KernelTemplate() = default;

  virtual std::string_view name() const = 0;  // "prefill_sm80"
  virtual std::string_view source_path()
      const = 0;  // "cuda/prefill_sm80.cu", relative to templates/
  // The include that the rendered preamble takes the place of, e.g. "cuda/prefill_sm80_knobs.cuh".
  virtual std::string_view knobs_path() const = 0;

  virtual const Served& serves() const = 0;
  // nullopt when it serves this; else the reason, as a sentence ("head_dim_qk 264 is above 256"): an
  // op or a feature that serves() does not name, or what refusal() says.
  std::optional<std::string> refuses(const KernelSpec& spec, const Arch& arch) const;

  virtual SearchSpace space(const KernelSpec& spec, const Arch& arch) const = 0;
  virtual Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                                const DeviceFacts& device) const = 0;
  virtual Resources resources(const KernelSpec& spec, const Arch& arch,
                              const Config& config) const = 0;
  // Beyond the common constants (spec and one kCamel int per knob) that the renderer writes by itself.
  virtual std::vector<Constant> extra_constants(const KernelSpec&, const Arch&,
                                                const Config&) const {
    return {};
  }
  virtual std::vector<GeneratedPart> generated_parts(const KernelSpec&, const Arch&,
                                                     const Config&) const {
    return {};
  }
  virtual LaunchPlan launch(const KernelSpec& spec, const Config& config, const Shape& shape,
                            const DeviceFacts& device) const = 0;

  // Rough time, arbitrary unit, for ranking candidates before any is compiled; lower is better. It orders, it never decides.
  virtual double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                                const Shape& shape, const DeviceFacts& device) const = 0;

 private:
  // Of the archs and the values of what it serves. Refusals that only a call's strides or pointers
  // can show (e.g. TMA alignment) stand in runtime/operand_check.
  virtual std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const = 0;
};

}  // namespace attune
