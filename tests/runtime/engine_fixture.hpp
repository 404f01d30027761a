// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the engine: a fake sm_90, a private store, a problem and winners for
// it.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>

#include "cache/store.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/engine.hpp"
#include "tests/runtime/fake_device.hpp"
#include "tests/runtime/temporary_folder.hpp"

namespace attune {

class EngineTest : public ::testing::Test {
 protected:
  EngineOptions options() const {
    EngineOptions chosen;
    chosen.user_store = folder_ / "store.db";
    return chosen;
  }
  Engine engine(const EngineOptions& chosen) const { return Engine(device_, chosen); }

  // Stores a winner for `shape_problem`: one step from the best family's default config.
  WinnerRecord put_winner(const Problem& shape_problem, bool pinned = false) const {
    const KernelSpec spec = spec_of(shape_problem);
    const Arch arch = parse_arch("sm_90a");
    const KernelTemplate& best = *serving(spec, {arch}).best()->kernel_template;
    WinnerRecord row;
    row.spec = spec;
    row.shape = shape_of(shape_problem);
    row.toolchain = {std::string(best.name()), template_digest(best), "fake 1.0", "-fake"};
    row.arch = arch.name();
    row.default_config = best.default_config(spec, arch, row.shape, typical_device(arch).facts);
    row.config = best.space(spec, arch).neighbours(row.default_config).front();
    row.timing.median_us = 90;
    row.default_timing.median_us = 100;
    row.why = "fastest by 10 %";
    row.pinned = pinned;
    Store store = Store::open(folder_ / "store.db", StoreMode::kReadWrite);
    const TuningKey key{spec, row.shape, device_->identity(), {"test"}};
    pinned ? store.set_pinned(key, row) : store.put_winner(key, row);
    return row;
  }

  static ErrorCode code_of(const std::function<void()>& call, std::string* text = nullptr) {
    try {
      call();
    } catch (const Error& error) {
      if (text) *text = error.what();
      return error.code();
    }
    return ErrorCode{0};
  }

  testing::TemporaryFolder folder_;
  std::shared_ptr<testing::FakeDevice> device_ = std::make_shared<testing::FakeDevice>();
  const Problem problem_ = parse_problem(
      "dtype=bf16,head_dim=128,heads=32/8,batch=1,seqlen=4096,mask=causal_bottom_right");
};

}  // namespace attune
