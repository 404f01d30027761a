// SPDX-License-Identifier: Apache-2.0
// See accepted_compiles.hpp.
#include "tests/generator/accepted_compiles.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "generator/render/renderer.hpp"

namespace attune::testing {
namespace {

// Returns "TEMPLATE ARCH SOURCE".
std::string key_of(const MatrixKernel& kernel, const Source& source, const Compiler& compiler) {
  const std::string compiled_from = source_digest(source) + compiler.options(kernel.arch);
  return fmt::format("{} {} {}", kernel.kernel_template->name(), kernel.arch.name(),
                     xxh3_128_hex(compiled_from).substr(0, 16));
}

// Accepts what was compiled, when all tests of the program have ended.
class Acceptance : public ::testing::Environment {
 public:
  void TearDown() override {
    const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
    fmt::print("{}\n", accepted_compiles().summary());
    if (std::getenv("ATTUNE_ACCEPT_GOLDEN") != nullptr)
      accepted_compiles().accept(all.test_to_run_count() == all.total_test_count() &&
                                 std::getenv("ATTUNE_MATRIX_TEMPLATE") == nullptr);
  }
};

}  // namespace

ImageInfo image_info_of(const std::string& line) {
  ImageInfo info;
  std::istringstream groups(line);
  for (std::string code; groups >> code && code != "constants"; groups >> code) {
    int registers = -1, shared = -1, barriers = -1;
    groups >> registers >> shared >> barriers;
    info.registers = std::max(info.registers, registers);
    info.static_shared_bytes = std::max(info.static_shared_bytes, shared);
  }
  return info;
}

AcceptedCompiles::AcceptedCompiles()
    : path_(fmt::format("{}/compiles/{}.txt", ATTUNE_GOLDEN_DIR, program_invocation_short_name)),
      known_(read_accepted_digests(path_)) {
  if (const std::string build = nvrtc_build(); known_.nvrtc != build) known_ = {build, {}};
}

Compiled AcceptedCompiles::compile(const Compiler& compiler, const MatrixKernel& kernel,
                                   bool use_known) {
  const Source source = render(*kernel.kernel_template, kernel.spec, kernel.arch, kernel.config);
  const std::string key = key_of(kernel, source, compiler);
  {
    const std::lock_guard lock(mutex_);
    const auto known = known_.lines.find(key);
    if (known != known_.lines.end() && use_known && key.back() != '0') {  // one in 16 ends so
      used_.insert(key);
      return {image_info_of(known->second), known->second};
    }
  }
  const KernelImage image = compiler.compile(source, kernel.arch);
  Compiled compiled{image.info, sass_digest(image.bytes).value_or("no cubin"), image.compile_ms};
  const std::lock_guard lock(mutex_);
  ++num_compiled_;
  if (image_fault(image.info)) return compiled;  // is compiled each time
  used_.insert(key);
  const std::string& line = known_.lines.emplace(key, compiled.code).first->second;
  if (line != compiled.code)
    throw Error(ErrorCode::kInternal, fmt::format("{} says that {} compiles to {}, not to {}",
                                                  path_, key, line, compiled.code));
  return compiled;
}

void AcceptedCompiles::accept(bool is_whole) const {
  AcceptedDigests all = known_;
  if (is_whole)
    std::erase_if(all.lines, [&](const auto& one) { return !used_.contains(one.first); });
  write_accepted_digests(path_, all);
}

std::string AcceptedCompiles::summary() const {
  return fmt::format("{} of {} sources were compiled, the others are known by {}", num_compiled_,
                     used_.size(), path_);
}

AcceptedCompiles& accepted_compiles() {
  static AcceptedCompiles& all = []() -> AcceptedCompiles& {
    static AcceptedCompiles made;
    ::testing::AddGlobalTestEnvironment(new Acceptance);
    return made;
  }();
  return all;
}

std::string compile_fault(const Compiler& compiler, const KernelTemplate& kernel_template,
                          const KernelSpec& spec, const Arch& arch, const Config& config) {
  const Compiled compiled =
      accepted_compiles().compile(compiler, {&kernel_template, spec, arch, config, ""});
  if (const std::optional<std::string> fault = image_fault(compiled.info)) return *fault;
  const Resources needed = kernel_template.resources(spec, arch, config);
  if (compiled.info.registers > needed.max_registers)
    return fmt::format("{} registers; its launch gives it {}", compiled.info.registers,
                       needed.max_registers);
  return {};
}

}  // namespace attune::testing
