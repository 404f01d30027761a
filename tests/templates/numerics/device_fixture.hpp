// SPDX-License-Identifier: Apache-2.0
// Shared by tests of every template on a real device: opens the device or skips aloud, and selects
// the templates.
//   ATTUNE_NUMERICS_TEMPLATE=NAME   only this one
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "generator/core/system/error.hpp"
#include "runtime/engine/device.hpp"
#include "tuner/fuzz/device_run.hpp"

namespace attune::testing {

class DeviceFixture : public ::testing::Test {
 protected:
  void open(const char* target) {
    try {
      device_ = open_device(target);
    } catch (const Error& error) {
      GTEST_SKIP() << "no device here: " << error.what();
    }
  }

  static std::string asked_template() {
    const char* only = std::getenv("ATTUNE_NUMERICS_TEMPLATE");
    return only != nullptr ? only : "";
  }

  // Returns all templates, or the template that the environment names.
  static std::vector<const KernelTemplate*> asked_templates() {
    std::vector<const KernelTemplate*> templates = all_templates();
    if (const std::string only = asked_template(); !only.empty())
      templates.erase(std::remove_if(templates.begin(), templates.end(),
                                     [&](const KernelTemplate* t) { return t->name() != only; }),
                      templates.end());
    return templates;
  }

  // True if the template serves the spec on some arch of the device.
  bool serves(const KernelTemplate& t, const KernelSpec& spec) const {
    const std::vector<Arch> archs = device_->archs();
    return std::any_of(archs.begin(), archs.end(),
                       [&](const Arch& arch) { return !t.refuses(spec, arch); });
  }

  // Fails if a config that a test names for sm_90a is illegal. Needs no device, so CI sees it.
  static void expect_legal_on_hopper(const KernelTemplate& t, const Problem& p,
                                     const Config& config) {
    const std::optional<std::string> broken =
        t.space(spec_of(p), parse_arch("sm_90a")).broken(config);
    EXPECT_EQ(broken, std::nullopt) << to_text(p) << " " << config.to_text();
  }

  Arithmetic arithmetic_of(const KernelTemplate& t) const {
    return testing::arithmetic_of(t, device_->target());
  }

  std::shared_ptr<const Device> device_;
};

}  // namespace attune::testing
