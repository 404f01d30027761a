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
#include "generator/core/made_once.hpp"
#include "generator/core/problem_fields.hpp"
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
  // It has a score stage, and so serves every score feature (core/score_feature.hpp).
  bool scores = false;
};

// How a family does with a shape: defaults of those that do well are taken first, and kNever is not tried by a tuner.
enum class Fit { kWell, kPoorly, kNever };

class KernelTemplate {
 public:
  virtual ~KernelTemplate() = default;

  virtual std::string_view name() const = 0;  // "prefill_sm80"
  // Whether it computes straight from the definition. Such a template is the oracle of tests and of
  // the tuner, and the last resort of a call: it is never tuned, and stands below every other one.
  virtual bool is_reference() const { return false; }
  virtual std::string_view source_path()
      const = 0;  // "cuda/prefill_sm80.cu", relative to templates/
  // The include that the rendered preamble replaces, e.g. "cuda/prefill_sm80_knobs.cuh".
  virtual std::string_view knobs_path() const = 0;

  virtual const Served& serves() const = 0;
  // nullopt when it serves this; else the reason, as a sentence ("head_dim_qk 264 is above 256"): an
  // op or a feature that serves() does not name, or what refusal() says.
  std::optional<std::string> refuses(const KernelSpec& spec, const Arch& arch) const;
  // The same for who asks many templates about one spec, with features_of(spec).
  std::optional<std::string> refuses(const KernelSpec& spec, const Features& features,
                                     const Arch& arch) const;

  // Where several families serve a spec.
  virtual Fit fit(const KernelSpec&, const Shape&) const { return Fit::kWell; }

  virtual SearchSpace space(const KernelSpec& spec, const Arch& arch) const = 0;
  virtual Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                                const DeviceFacts& device) const = 0;
  virtual Resources resources(const KernelSpec& spec, const Arch& arch,
                              const Config& config) const = 0;
  // The spec that the constants of a kernel tell: with another head_dim_v where a kernel computes
  // some columns of O at a time (families/v_slices.hpp).
  virtual KernelSpec compiled_spec(const KernelSpec& spec, const Config&) const { return spec; }
  // Constants of this family. The renderer writes the common ones: the spec, one kCamel int per
  // knob.
  virtual std::vector<Constant> extra_constants(const KernelSpec&, const Arch&,
                                                const Config&) const {
    return {};
  }
  virtual std::vector<GeneratedPart> generated_parts(const KernelSpec&, const Arch&,
                                                     const Config&) const {
    return {};
  }
  // Whether it applies what changes scores and what hides keys as one program, to every element.
  virtual bool applies_whole_programs() const { return is_reference(); }
  // Whether its score stage works through keys in steps, and so takes score::step_text of a program, not source_text.
  virtual bool steps_scores() const { return false; }
  // Whether what a score stage would add stands in the accumulators before (score::adds_along_diagonals), so that there is none.
  virtual bool adds_diagonals(const KernelSpec&, const Config&) const { return false; }
  // Whether programs are printed for panels of rows (score::panel_text).
  virtual bool scores_in_panels() const { return false; }
  // The kernels of the image and what each takes. It does not depend on the shape.
  virtual LaunchStructure structure(const KernelSpec& spec, const Config& config) const = 0;
  // Grids and extents. Throws kUnsupported for a shape that no launch can number.
  virtual LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                            const DeviceFacts& device) const = 0;
  LaunchPlan launch(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const {
    return launch_plan(structure(spec, config), sizes(spec, config, shape, device));
  }

  // Why no one chooses this config for this shape, as a sentence; nullopt where it may be chosen. Who asks for it all the same gets it, or an error from sizes().
  virtual std::optional<std::string> unfit(const KernelSpec&, const Config&, const Shape&) const {
    return std::nullopt;
  }

  // Rough time, arbitrary unit, for ranking candidates before any is compiled; lower is better. It orders, it never decides.
  virtual double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                                const Shape& shape, const DeviceFacts& device) const = 0;

 private:
  friend const std::string& template_digest(const KernelTemplate& kernel_template);
  // Why it does not serve this arch, or these values of what serves() names; nullopt when it does.
  // What only a call's strides or pointers can show (e.g. TMA alignment) is refused in
  // runtime/operand_check.
  virtual std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const = 0;

  MadeOnce<std::string> digest_;
};

}  // namespace attune
