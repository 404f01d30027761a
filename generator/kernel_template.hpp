// SPDX-License-Identifier: Apache-2.0
// KernelTemplate: one algorithm for one architecture family ("prefill_sm80"). It says what it serves, its search space, how
// a config is rendered and how the result is launched. Everything a family knows stands behind this interface, in
// generator/families/<name>.cpp; nothing else in the project branches on family or arch.
#pragma once

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
#include "generator/launch_plan.hpp"
#include "generator/search_space.hpp"

namespace attune {

// What the compiler is expected to report; the compile matrix holds it against the truth.
struct Resources {
  int threads = 0;
  int shared_bytes = 0;     // dynamic
  int max_registers = 255;  // launch bound the kernel is compiled for; a spill fails the trial
  int min_blocks_per_sm = 1;
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
  // Straight from the definition: it takes part in nothing but answers and comparisons, and stands
  // below every other template.
  virtual bool is_reference() const { return false; }
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
  // The kernels of the image and what they take; no shape has a say in it.
  virtual LaunchStructure structure(const KernelSpec& spec, const Config& config) const = 0;
  // Grids and extents. Throws kUnsupported for a shape that no launch can number.
  virtual LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                            const DeviceFacts& device) const = 0;
  LaunchPlan launch(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const {
    return launch_plan(structure(spec, config), sizes(spec, config, shape, device));
  }

  // Rough time, arbitrary unit, for ranking candidates before any is compiled; lower is better. It orders, it never decides.
  virtual double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                                const Shape& shape, const DeviceFacts& device) const = 0;

 private:
  // Of the archs and the values of what it serves. Refusals that only a call's strides or pointers
  // can show (e.g. TMA alignment) stand in runtime/operand_check.
  virtual std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const = 0;
};

}  // namespace attune
