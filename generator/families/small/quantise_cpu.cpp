// SPDX-License-Identifier: Apache-2.0
// quantise_cpu: op quantise on CPUs. Kernel: templates/cpu/small/quantise.cpp.
// The kernel, templates/cpu/small/quantise.cpp, explains the knobs.
#include "generator/families/families.hpp"
#include "generator/families/served.hpp"

#include <cmath>

namespace attune {
namespace {

constexpr int64_t kMaxKeptBytes = 256 << 10;  // per thread: as much as its cache holds

bool transposed(const KernelSpec& spec) { return spec.fp8.v_layout == VLayout::kTransposed; }

bool may_keep(const KernelSpec& spec) {
  const int64_t bytes = int64_t{4} * spec.fp8.scale_block_q * spec.head_dim_qk;
  return bytes > 0 && bytes <= kMaxKeptBytes;
}

// Returns the number of floats of scratch per thread, in whole cache lines, so that threads share
// no line.
int64_t scratch_floats(const KernelSpec& spec, const Config& config) {
  const int64_t rows = config.at("keep") != 0 ? spec.fp8.scale_block_q : 1;
  return (rows * spec.head_dim_qk + 31) / 32 * 32;
}

class QuantiseCpu final : public KernelTemplate {
 public:
  std::string_view name() const override { return "quantise_cpu"; }
  std::string_view source_path() const override { return "cpu/small/quantise.cpp"; }
  std::string_view knobs_path() const override { return "cpu/small/small_knobs.hpp"; }

  const Served& serves() const override { return serves_quantising(); }

  SearchSpace space(const KernelSpec& spec, const Arch&) const override {
    return SearchSpace(
        {{"keep", may_keep(spec) ? std::vector<int64_t>{1, 0} : std::vector<int64_t>{0},
          "1: rows stay in fp32 until they are rounded; 0: rows are loaded twice"},
         {"tile_rows",
          transposed(spec) ? std::vector<int64_t>{16, 32, 64, 128} : std::vector<int64_t>{16},
          "transposed output: rows whose codes are written together"}},
        {});
  }

  Config default_config(const KernelSpec& spec, const Arch&, const Shape&,
                        const DeviceFacts&) const override {
    return Config({{"keep", may_keep(spec) ? 1 : 0}, {"tile_rows", transposed(spec) ? 64 : 16}});
  }

  Resources resources(const KernelSpec&, const Arch&, const Config&) const override {
    return {.threads = 1};
  }

  std::vector<Constant> extra_constants(const KernelSpec& spec, const Arch&,
                                        const Config& config) const override {
    return {{"long long", "kScratchFloats", std::to_string(scratch_floats(spec, config))}};
  }

  LaunchStructure structure(const KernelSpec&, const Config&) const override {
    return {.steps = {{.parts = {ArgumentPart::kBase, ArgumentPart::kScales}}},
            .workspace = {{.name = "scratch"}}};
  }
  LaunchSizes sizes(const KernelSpec& spec, const Config& config, const Shape&,
                    const DeviceFacts& device) const override {
    return {.workspace = {{.columns = scratch_floats(spec, config), .rows = device.sm_count}}};
  }

  // Returns elements times the work per element. Rows that are not kept are loaded and rotated
  // twice.
  double predicted_cost(const KernelSpec& spec, const Arch&, const Config& config,
                        const Shape& shape, const DeviceFacts& device) const override {
    const double elements = static_cast<double>(shape.batch * shape.num_heads_q) *
                            static_cast<double>(shape.seqlen_q) * spec.head_dim_qk;
    const double rotation =
        spec.quantise.rotation == Rotation::kHadamard ? std::log2(spec.head_dim_qk) : 0;
    const double passes = config.at("keep") != 0 ? 1.2 : 2;
    const double writing =
        transposed(spec) ? 2 + 16.0 / static_cast<double>(config.at("tile_rows")) : 1;
    return elements * (passes * (1 + rotation) + 2 + writing) / device.sm_count;
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    return other_target(arch, Target::kCpu);
  }
};

}  // namespace

const KernelTemplate& quantise_cpu() {
  static const QuantiseCpu instance;
  return instance;
}

}  // namespace attune
