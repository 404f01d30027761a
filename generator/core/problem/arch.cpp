// SPDX-License-Identifier: Apache-2.0
// Limits of the CUDA architectures, from the "Technical Specifications per Compute Capability"
// table of the CUDA C++ Programming Guide; see arch.hpp.
#include "generator/core/problem/arch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

struct CudaRow {
  int compute_capability;
  int shared_bytes_per_block;
  int shared_bytes_per_sm;
};

constexpr int kKiB = 1024;
constexpr std::array<CudaRow, 11> kCudaRows{{{75, 64 * kKiB, 64 * kKiB},
                                             {80, 163 * kKiB, 164 * kKiB},
                                             {86, 99 * kKiB, 100 * kKiB},
                                             {87, 163 * kKiB, 164 * kKiB},
                                             {89, 99 * kKiB, 100 * kKiB},
                                             {90, 227 * kKiB, 228 * kKiB},
                                             {100, 227 * kKiB, 228 * kKiB},
                                             {103, 227 * kKiB, 228 * kKiB},
                                             {110, 227 * kKiB, 228 * kKiB},
                                             {120, 99 * kKiB, 100 * kKiB},
                                             {121, 99 * kKiB, 100 * kKiB}}};

[[noreturn]] void refuse(std::string_view text) {
  std::string known;
  for (const CudaRow& row : kCudaRows) {
    known += fmt::format("sm_{}, ", row.compute_capability);
    if (row.compute_capability >= 90) known += fmt::format("sm_{}a, ", row.compute_capability);
  }
  known.resize(known.size() - 2);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("arch is \"{}\"; must be {} or cpu:<llvm cpu name>", text, known));
}

Arch parse_cuda(std::string_view text) {
  std::string_view digits = text.substr(3);
  std::string suffix;
  if (!digits.empty() && digits.back() == 'a') {
    suffix = "a";
    digits.remove_suffix(1);
  }
  if (digits.empty() || digits.size() > 3 ||
      digits.find_first_not_of("0123456789") != std::string_view::npos)
    refuse(text);
  const int capability = std::stoi(std::string(digits));
  if (!suffix.empty() && capability < 90) refuse(text);
  for (const CudaRow& row : kCudaRows) {
    if (row.compute_capability != capability) continue;
    Arch arch;
    arch.target = Target::kCuda;
    arch.compute_capability = capability;
    arch.suffix = suffix;
    arch.shared_bytes_per_block = row.shared_bytes_per_block;
    arch.shared_bytes_per_sm = row.shared_bytes_per_sm;
    return arch;
  }
  refuse(text);
}

}  // namespace

std::string Arch::name() const {
  if (target == Target::kCpu) return "cpu:" + cpu;
  return fmt::format("sm_{}{}", compute_capability, suffix);
}

bool Arch::has_feature(std::string_view feature) const {
  return std::find(features.begin(), features.end(), feature) != features.end();
}

Arch parse_arch(std::string_view text) {
  if (text.substr(0, 3) == "sm_") return parse_cuda(text);
  if (text.substr(0, 4) != "cpu:" || text.size() == 4) refuse(text);
  Arch arch;
  arch.target = Target::kCpu;
  arch.cpu = std::string(text.substr(4));
  arch.vector_bytes = 16;
  return arch;
}

const std::vector<std::string>& known_cuda_archs() {
  static const std::vector<std::string> archs{"sm_75",  "sm_80",  "sm_86",  "sm_89",
                                              "sm_90",  "sm_90a", "sm_100", "sm_103",
                                              "sm_110", "sm_120", "sm_121"};
  return archs;
}

}  // namespace attune
