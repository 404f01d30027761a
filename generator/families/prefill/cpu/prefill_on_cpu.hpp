// SPDX-License-Identifier: Apache-2.0
// The kernel templates/cpu/prefill/prefill_cpu.cpp as a template: what its two families share. They
// differ in the products: prefill_cpu.cpp multiplies fp32, prefill_cpu_bf16.cpp pairs of bf16.
#pragma once

#include "generator/families/families.hpp"

namespace attune {

inline int lanes_of(const Arch& arch) { return arch.vector_bytes / 4; }
// Returns the average number of keys that a row sees, from at most 64 rows.
double mean_visible_keys(const KernelSpec& spec, const Shape& shape);
// Returns the rule that block_m is 1, 2, 4 ... `most` panels.
Constraint whole_panels(const Arch& arch, int64_t most);

class PrefillOnCpu : public KernelTemplate {
 public:
  std::string_view source_path() const final { return "cpu/prefill/prefill_cpu.cpp"; }
  std::string_view knobs_path() const final { return "cpu/prefill/prefill_cpu_knobs.hpp"; }
  std::string_view group() const final { return "prefill_cpu"; }
  bool scores_in_panels() const final { return true; }
  Resources resources(const KernelSpec&, const Arch&, const Config&) const final {
    return {.threads = 1};
  }
  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch& arch,
                                        const Config& config) const override;
  LaunchStructure structure(const KernelSpec& spec, const Config&) const final;
  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape&,
                    const DeviceFacts& device) const final;

 protected:
  // Returns the bytes of a Scratch whose rows of q and o have `row_words` words of 4 bytes, and
  // whose blocks of K and V have `kv_bytes`.
  static int64_t scratch_of(const Config& config, int64_t row_words, int64_t kv_bytes);

 private:
  // Returns at least sizeof(Scratch) of the kernel on any CPU (the kernel asserts it).
  virtual int64_t scratch_bytes(const KernelSpec& spec, const Config& config) const = 0;
};

}  // namespace attune
