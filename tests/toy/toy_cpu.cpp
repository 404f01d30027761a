// SPDX-License-Identifier: Apache-2.0
// The family of the toy op on CPUs.
#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "generator/render/inliner.hpp"
#include "generator/template_registry.hpp"
#include "tests/toy/toy.hpp"

namespace attune::toy {
namespace {

class ToyCpu final : public KernelTemplate {
 public:
  std::string_view name() const override { return "toy_cpu"; }
  std::string_view source_path() const override { return "toy/toy.cpp"; }
  std::string_view knobs_path() const override { return "toy/toy_knobs.hpp"; }
  const Served& serves() const override {
    static const Served served{kToy, {}};
    return served;
  }

  SearchSpace space(const KernelSpec&, const Arch&) const override {
    return SearchSpace({{"rows", {1, 4, 16}, "rows that a thread takes at a time"}}, {});
  }
  Config default_config(const KernelSpec&, const Arch&, const Shape&,
                        const DeviceFacts&) const override {
    return Config({{"rows", 1}});
  }
  Resources resources(const KernelSpec&, const Arch&, const Config&) const override {
    return {.threads = 1};
  }
  LaunchStructure structure(const KernelSpec&, const Config&) const override { return {}; }
  LaunchSizes sizes(const KernelSpec&, const Config&, const Shape&,
                    const DeviceFacts&) const override {
    return {};
  }
  double predicted_cost(const KernelSpec&, const Arch&, const Config& config, const Shape&,
                        const DeviceFacts&) const override {
    return 1 / static_cast<double>(config.at("rows"));
  }

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch& arch) const override {
    if (arch.target != Target::kCpu)
      return fmt::format("this template serves CPUs, not {}", arch.name());
    return std::nullopt;
  }
};

std::string file_text(const char* path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

[[maybe_unused]] const bool registered =
    (add_bundled_file("toy/toy.cpp", file_text(ATTUNE_TOY_TEMPLATE)), add_template(toy_cpu()),
     true);

}  // namespace

const KernelTemplate& toy_cpu() {
  static const ToyCpu instance;
  return instance;
}

}  // namespace attune::toy
