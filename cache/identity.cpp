// SPDX-License-Identifier: Apache-2.0
// Canonical texts of device and toolchain, one field per line; see identity.hpp. They are frozen,
// because their digests are stored.
#include "cache/identity.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

#include "generator/core/system/digest.hpp"
#include "generator/core/system/foreign_text.hpp"

namespace attune {

std::string to_text(const Conditions& conditions) {
  if (conditions.power_limit_w == 0) return conditions.driver;
  return fmt::format("{}{}{} W", conditions.driver, conditions.driver.empty() ? "" : ", ",
                     conditions.power_limit_w);
}

std::string difference(const Conditions& one, const Conditions& other, const char* pattern) {
  const auto sentence = [&](const std::string& a, const std::string& b) {
    return fmt::format(fmt::runtime(pattern), a, b);
  };
  std::vector<std::string> parts;
  if (!one.driver.empty() && !other.driver.empty() && one.driver != other.driver)
    parts.push_back("driver " + sentence(one.driver, other.driver));
  const int limit = one.power_limit_w, other_limit = other.power_limit_w;
  if (limit > 0 && other_limit > 0 && limit != other_limit)
    parts.push_back("power limit " +
                    sentence(fmt::format("{} W", limit), fmt::format("{} W", other_limit)));
  return fmt::format("{}", fmt::join(parts, " and "));
}

std::string DeviceIdentity::text() const {
  return fmt::format(
      "device "
      "v1\narch={}\nsm_count={}\nshared_bytes_per_block={}\nregisters_per_sm={}\nl2_bytes={}\n"
      "memory_bus_bits={}\nmemory_clock_khz={}\nslice={}\n",
      arch, sm_count, shared_bytes_per_block, registers_per_sm, l2_bytes, memory_bus_bits,
      memory_clock_khz, slice);
}

std::string DeviceIdentity::digest() const { return xxh3_128_hex(text()); }

bool DeviceIdentity::is_cpu() const { return arch.starts_with("cpu"); }

DeviceFacts DeviceIdentity::facts() const {
  constexpr double kEdges = 2;  // edges of the memory clock per cycle that carry data
  return {sm_count, l2_bytes, kEdges * memory_clock_khz * 1e3 * memory_bus_bits / 8};
}

std::string DeviceIdentity::title() const {
  if (!is_cpu()) return one_line(name);
  return fmt::format("{}, {} thread{}", one_line(name), sm_count, sm_count == 1 ? "" : "s");
}

std::string DeviceIdentity::facts_title() const {
  return is_cpu() ? title() : fmt::format("{} ({})", one_line(name), to_text(facts()));
}

bool differ_in_threads_alone(const DeviceIdentity& a, const DeviceIdentity& b) {
  DeviceIdentity with_threads_of_b = a;
  with_threads_of_b.sm_count = b.sm_count;
  return a.is_cpu() && a.sm_count != b.sm_count && with_threads_of_b.text() == b.text();
}

std::string ToolchainIdentity::text() const {
  return fmt::format("toolchain v1\ntemplate={}\ntemplate_digest={}\ncompiler={}\noptions={}\n",
                     template_name, template_digest, compiler, options);
}

std::string ToolchainIdentity::digest() const { return xxh3_128_hex(text()); }

}  // namespace attune
