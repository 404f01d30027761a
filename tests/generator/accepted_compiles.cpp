// SPDX-License-Identifier: Apache-2.0
// See accepted_compiles.hpp.
#include "tests/generator/accepted_compiles.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "generator/core/system/digest.hpp"
#include "generator/render/renderer.hpp"

namespace attune::testing {

std::string compile_key(const MatrixKernel& kernel, const Source& source,
                        const Compiler& compiler) {
  const std::string compiled_from = source_digest(source) + compiler.options(kernel.arch);
  return fmt::format("{} {} {}", kernel.kernel_template->name(), kernel.arch.name(),
                     xxh3_128_hex(compiled_from).substr(0, 16));
}

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

AcceptedCompiles::AcceptedCompiles(std::string path, const std::string& nvrtc)
    : path_(std::move(path)), known_(read_accepted_digests(path_)) {
  if (known_.nvrtc != nvrtc) known_ = {nvrtc, {}};
}

std::optional<std::string> AcceptedCompiles::line(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto known = known_.lines.find(key);
  if (known == known_.lines.end()) return std::nullopt;
  used_.insert(key);
  return known->second;
}

std::optional<std::string> AcceptedCompiles::add(const std::string& key, const std::string& line) {
  const std::lock_guard lock(mutex_);
  ++num_compiled_;
  used_.insert(key);
  const auto [known, is_new] = known_.lines.emplace(key, line);
  return is_new || known->second == line ? std::nullopt : std::optional(known->second);
}

void AcceptedCompiles::accept(bool is_whole) const {
  AcceptedDigests all = known_;
  if (is_whole)
    std::erase_if(all.lines, [&](const auto& one) { return !used_.contains(one.first); });
  write_accepted_digests(path_, all);
}

}  // namespace attune::testing
