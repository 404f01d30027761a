// SPDX-License-Identifier: Apache-2.0
// Reads ptxas messages about a kernel, and decides which of them forbid timing it; see
// image_info.hpp. image_info.cpp reads the ELF file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "generator/compile/image_info.hpp"

namespace attune {
namespace {

struct Fault {
  std::string_view code;
  std::string_view meaning;
};
// C7519 (a fence was injected) is harmless: it is recorded, but is not a fault.
constexpr std::array<Fault, 8> kFaults{
    {{"C7508", "setmaxnreg ignored"},
     {"C7510", "wgmma serialised (function boundary)"},
     {"C7511", "wgmma serialised (branches)"},
     {"C7512", "wgmma serialised (registers)"},
     {"C7513", "wgmma serialised (inputs written in flight)"},
     {"C7514", "wgmma serialised (accumulator moved in flight)"},
     {"C7515", "wgmma serialised (accumulator written in flight)"},
     {"C7517", "wait injected before wgmma results are read"}}};

// Appended to a code that is not in the table
constexpr std::string_view kSerialised = " serialised";

bool is_known(std::string_view code) {
  return std::any_of(kFaults.begin(), kFaults.end(),
                     [&](const Fault& fault) { return fault.code == code; });
}

// Returns "C7510" from "... : (C7510) Potential Performance Loss: ...". Returns a code that is not
// in the table only if its message mentions serialisation.
std::string warning_at(std::string_view log, size_t at) {
  const std::string_view line = log.substr(at, log.find('\n', at) - at);
  std::string warning(line.substr(0, 5));
  if (!is_known(warning) && line.find("are serialized") != std::string_view::npos)
    warning += kSerialised;
  return warning;
}

// Returns the integer directly before the next `unit` after `from`, or -1.
int number_before(std::string_view log, std::string_view unit, size_t from = 0) {
  const size_t at = log.find(unit, from);
  if (at == std::string_view::npos) return -1;
  size_t start = at;
  while (start > 0 && log[start - 1] >= '0' && log[start - 1] <= '9') --start;
  int value = -1;
  std::from_chars(log.data() + start, log.data() + at, value);
  return value;
}

}  // namespace

// Keeps the largest number of each kind, since a source may contain several kernels.
void add_log_info(std::string_view log, ImageInfo* info) {
  const auto take = [&](int* field, std::string_view unit) {
    int largest = -1;
    for (size_t at = log.find(unit); at != std::string_view::npos; at = log.find(unit, at + 1))
      largest = std::max(largest, number_before(log, unit, at));
    if (largest >= 0) *field = largest;
  };
  take(&info->registers, " registers");
  take(&info->stack_bytes, " bytes stack frame");
  take(&info->spill_store_bytes, " bytes spill stores");
  take(&info->spill_load_bytes, " bytes spill loads");
  take(&info->static_shared_bytes, " bytes smem");
  for (size_t at = log.find("C75"); at != std::string_view::npos; at = log.find("C75", at + 1)) {
    std::string warning = warning_at(log, at);
    if (std::find(info->warnings.begin(), info->warnings.end(), warning) == info->warnings.end())
      info->warnings.push_back(std::move(warning));
  }
}

std::optional<std::string> image_fault(const ImageInfo& info) {
  for (const Fault& fault : kFaults)
    if (std::find(info.warnings.begin(), info.warnings.end(), fault.code) != info.warnings.end())
      return fmt::format("{}: {}", fault.code, fault.meaning);
  for (const std::string& warning : info.warnings)
    if (warning.ends_with(kSerialised))
      return fmt::format("{}: wgmma serialised", warning.substr(0, 5));
  if (info.spill_store_bytes > 0 || info.spill_load_bytes > 0)
    return fmt::format("spills {} bytes to local memory (loads {})", info.spill_store_bytes,
                       info.spill_load_bytes);
  return std::nullopt;
}

}  // namespace attune
