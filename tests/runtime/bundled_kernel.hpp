// SPDX-License-Identifier: Apache-2.0
// Makes bundle entries with a fake compiler, for tests of bundles.
#pragma once

#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "runtime/bundles/bundle.hpp"
#include "tests/runtime/fake_device.hpp"
#include "tests/runtime/image_key_of.hpp"

namespace attune::testing {

// Returns the best family's default config, with one winner for the problem's shape.
inline BundledKernel bundled_kernel(const Problem& problem, const Arch& arch,
                                    const FakeCompiler& compiler) {
  const KernelSpec spec = spec_of(problem);
  const KernelTemplate& best = *serving(spec, {arch}).best()->kernel_template;
  BundledKernel made;
  made.key =
      image_key_of(best, spec, arch,
                   best.default_config(spec, arch, shape_of(problem), typical_device(arch).facts));
  made.image = compiler.compile(render(best, spec, arch, made.key.config), arch);
  WinnerRecord row;
  row.spec = spec;
  row.shape = shape_of(problem);
  row.toolchain = made.key.toolchain;
  row.arch = made.key.arch;
  row.config = row.default_config = made.key.config;
  row.device.name = "NVIDIA H200";
  row.timing = {101.5, 101, 102, 100, 50, 1980};
  row.default_timing.median_us = 120;
  row.why = "fastest by \"18 %\"";
  row.created = "2026-01-02T03:04:05.000Z";
  made.winners = {row};
  return made;
}

}  // namespace attune::testing
