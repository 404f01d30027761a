// SPDX-License-Identifier: Apache-2.0
// The base of the four families of gradients on Hopper. Each family is one file, which tells its
// choices in call order: the problems that it serves, its knobs, their rules, the default, and the
// launch. Read two_kernels.cpp first.
//
//   two_kernels.cpp  backward_sm90             dQ by tiles of rows; dK and dV by tiles of keys
//   one_kernel.cpp   backward_sm90_one_kernel  all gradients by tiles of keys; dQ added in fp32
//   stored.cpp       backward_sm90_stored      dK and dV from dS and P, which dQ's kernel stores
//   band.cpp         backward_sm90_band        all gradients of a narrow window, in registers
//
// A family describes its kernels (gradient_kernel.hpp). The predicted cost is the sum of their
// clocks (gradient_clocks.hpp). Costs of all four have one unit. So by_fit() in
// template_registry.cpp takes, among those whose fit() is kWell, the one with the cheapest default.
#pragma once

#include <string>
#include <vector>

#include "generator/families/backward/gradient_steps.hpp"
#include "generator/families/backward/sm90/gradient_clocks.hpp"
#include "generator/families/backward/sm90/head_parts.hpp"

namespace attune {

using Broken = std::optional<std::string>;

class GradientsSm90 : public KernelTemplate {
 public:
  std::string_view name() const final { return name_; }
  std::string_view group() const final { return "backward_sm90"; }
  std::string_view source_path() const final { return source_path_; }
  std::string_view knobs_path() const final { return knobs_path_; }
  const Served& serves() const final { return served_; }

  Resources resources(const KernelSpec& spec, const Arch& arch, const Config& config) const final;
  // Returns the clocks of all kernels, and of L2 and delta.
  double predicted_cost(const KernelSpec& spec, const Arch& arch, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override;
  // Returns the kernels that multiply, in the order of a launch: the kernel of rows, if any, comes
  // first. `config` needs only their knobs.
  virtual std::vector<BackwardKernel> kernels(const KernelSpec& spec,
                                              const Config& config) const = 0;

 protected:
  // `folder`: in templates/cuda/backward_sm90/. `features`: fields that only some families serve,
  // besides masks and windows.
  GradientsSm90(std::string name, const std::string& folder, std::set<std::string> features);

  // Returns a default for a family whose rules are "rows" and "keys". The knobs of the two sides
  // are independent, so the cheapest of each is found by itself. Throws kInternal if there is none.
  Config cheapest_of_sides(const KernelSpec& spec, const Arch& arch, const Shape& shape,
                           const DeviceFacts& device) const;
  virtual Sums sums(const Config&) const { return Sums::kStep; }
  // Returns why the family does not serve a spec that all four could serve.
  virtual Broken family_refusal(const KernelSpec& spec, const Arch& arch) const = 0;

 private:
  std::optional<std::string> refusal(const KernelSpec& spec, const Arch& arch) const final;

  const std::string name_, source_path_, knobs_path_;
  const Served served_;
};

// Returns the first reason why one of the kernels does not fit the machine.
Broken broken_kernels(const std::vector<BackwardKernel>& kernels, const KernelSpec& spec,
                      const Arch& arch);

// Returns the constants that all four families have: kL2SectionMb.
std::vector<Constant> gradient_constants();

// Return a kernel's step: its threads, shared memory and tensor maps. `entry`: of its function.
StepStructure gradient_step(const BackwardKernel& kernel, const KernelSpec& spec,
                            const std::string& entry = kEntryName);
// Returns the grid of a kernel: a block for each tile, or persistent blocks. Blocks of kAll that
// draw tiles are persistent. Without a mask, the kernel of rows gains by that. Tiles under a mask
// differ in length, so the device should hand them to blocks as others end. Kernels of keys lose by
// persistence. Tiles of a narrow window have two or three steps each, so the start of a block
// counts. Timings: templates/cuda/backward_sm90/LOG.md.
StepSize gradient_size(const BackwardKernel& kernel, const KernelSpec& spec, const Shape& shape,
                       const DeviceFacts& device);

// Returns the step that writes L2 and delta of every row to the workspace; likewise its size.
StepStructure prepare_step();
StepSize prepare_size(const KernelSpec& spec, const Shape& shape, int64_t padded_rows);
// Returns the extents of L2 and delta in the workspace.
TensorExtents sums_extents(const Shape& shape, int64_t padded_rows);
// Adds the arguments of dropout to all steps, after kBase, if the spec has it.
void add_dropout(const KernelSpec& spec, LaunchStructure* structure);

}  // namespace attune
