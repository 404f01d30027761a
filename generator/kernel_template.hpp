// SPDX-License-Identifier: Apache-2.0
// KernelTemplate: one algorithm for one architecture family ("prefill_sm80"). A template describes
// the specs that it serves and its search space, renders configs, and describes launches. Its
// implementation is <name>.cpp below generator/families; no other code branches on family or arch.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/core/problem/arch.hpp"
#include "generator/core/problem/device_facts.hpp"
#include "generator/core/problem/kernel_spec.hpp"
#include "generator/core/problem/problem_fields.hpp"
#include "generator/core/system/threads.hpp"
#include "generator/launch_plan.hpp"
#include "generator/search_space.hpp"

namespace attune {

// The resources that the compiler should report, checked by the compile matrix.
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

inline Constant bool_constant(std::string name, bool value) {
  return {"bool", std::move(name), value ? "true" : "false"};
}

// A generated include: the renderer replaces #include "<path>" in the template with `text`.
struct GeneratedPart {
  std::string path;  // "generated/wgmma.cuh"
  std::string text;
};

// The op that a template computes, and the features that it supports, by field name (features_of).
// For other fields the template accepts only the default.
struct Served {
  Op op;
  std::set<std::string> features;
  // True if the template has a score stage, and so supports every score feature
  // (core/score_feature.hpp).
  bool scores = false;
};

// How well a family handles a shape. Defaults prefer families with kWell; the tuner never tries
// kNever.
enum class Fit { kWell, kPoorly, kNever };

class KernelTemplate {
 public:
  virtual ~KernelTemplate() = default;

  virtual std::string_view name() const = 0;  // "prefill_sm80"
  // Returns the group of the template: several algorithms for the same problems, whose predicted
  // costs have one unit. The registry prefers the cheapest default of a group, and the tuner
  // searches the spaces of a group together.
  virtual std::string_view group() const { return name(); }
  // True if the template computes straight from the definition. Such a template is the oracle of
  // tests and of the tuner, and the last choice for a call. It is never tuned.
  virtual bool is_reference() const { return false; }
  // "cuda/prefill_sm80/prefill_sm80.cu", relative to templates/
  virtual std::string_view source_path() const = 0;
  // The include that the rendered preamble replaces, e.g.
  // "cuda/prefill_sm80/prefill_sm80_knobs.cuh".
  virtual std::string_view knobs_path() const = 0;

  virtual const Served& serves() const = 0;
  // Returns the revision of the template: 1, until its results, the arguments of its kernels or its
  // launch change. Raise it then. Winners and images of another revision are not used. Any other
  // change of the text only makes timings old. tests/generator/revision_test.cpp refuses a changed
  // launch or argument struct without a new revision.
  virtual int revision() const { return 1; }
  // Returns nullopt if the template serves the spec on this arch. Otherwise returns a sentence such
  // as "head_dim_qk is 264; must be at most 256", about an op or feature that serves() lacks, or
  // from refusal().
  std::optional<std::string> refuses(const KernelSpec& spec, const Arch& arch) const;
  // Does the same with features_of(spec) given, for callers that ask many templates about one spec.
  std::optional<std::string> refuses(const KernelSpec& spec, const Features& features,
                                     const Arch& arch) const;

  // Ranks families if several serve a spec.
  virtual Fit fit(const KernelSpec&, const Shape&) const { return Fit::kWell; }

  virtual SearchSpace space(const KernelSpec& spec, const Arch& arch) const = 0;
  virtual Config default_config(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                                const DeviceFacts& device) const = 0;
  virtual Resources resources(const KernelSpec& spec, const Arch& arch,
                              const Config& config) const = 0;
  // Returns the spec for the kernel's constants. Its head_dim_v is smaller in kernels that compute
  // only some columns of O at a time (prefill/prefill_parts.hpp).
  virtual KernelSpec compiled_spec(const KernelSpec& spec, const Config&) const { return spec; }
  // Returns the constants of this family only. The renderer adds the constants of the spec, and one
  // kCamel int per knob.
  virtual std::vector<Constant> extra_constants(const KernelSpec&, const Arch&,
                                                const Config&) const {
    return {};
  }
  virtual std::vector<GeneratedPart> generated_parts(const KernelSpec&, const Arch&,
                                                     const Config&) const {
    return {};
  }
  // True if the kernel applies score changes and masks as one program, to every element.
  virtual bool applies_whole_programs() const { return is_reference(); }
  // True if the score stage processes keys in steps, and so needs score::step_text in place of
  // source_text.
  virtual bool steps_scores() const { return false; }
  // True if the accumulators already contain the terms that a score stage would add
  // (score::adds_along_diagonals), so that the kernel has no score stage.
  virtual bool adds_diagonals(const KernelSpec&, const Config&) const { return false; }
  // True if programs are printed for panels of rows (score::panel_text).
  virtual bool scores_in_panels() const { return false; }
  // Returns the kernels of the image and the arguments of each, for all shapes.
  virtual LaunchStructure structure(const KernelSpec& spec, const Config& config) const = 0;
  // Returns grids and extents. Throws kUnsupported for a shape that is too large for one launch.
  virtual LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape& shape,
                            const DeviceFacts& device) const = 0;
  LaunchPlan launch(const KernelSpec& spec, const Config& config, const Shape& shape,
                    const DeviceFacts& device) const {
    return launch_plan(structure(spec, config), sizes(spec, config, shape, device));
  }

  // Returns a sentence with the reason to avoid this config for this shape, or nullopt. Advisory:
  // an explicit request still gets the config, or an error from sizes().
  virtual std::optional<std::string> unfit(const KernelSpec&, const Config&, const Shape&) const {
    return std::nullopt;
  }

  // Returns an estimated time in an arbitrary unit; lower is better. Only ranks candidates before
  // they are compiled.
  virtual double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                                const Shape& shape, const DeviceFacts& device) const = 0;

 private:
  friend const std::string& template_digest(const KernelTemplate& kernel_template);
  // Returns the reason why the template does not serve this arch, or these values of fields in
  // serves(); nullopt if it does. Rules on a call's strides or pointers, such as TMA alignment, are
  // in runtime/operands/operand_check.
  virtual std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const = 0;

  MadeOnce<std::string> digest_;
};

}  // namespace attune
