// SPDX-License-Identifier: Apache-2.0
// `attune devices`: lists the devices of this machine with the facts that make up their identity in
// the store.
#include <fmt/format.h>

#include <memory>

#include "runtime/engine/device.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/cli/output/record_output.hpp"

namespace attune::cli {
namespace {

struct Found {
  std::string target;  // "cuda:0"
  std::shared_ptr<const Device> device;
};

// Returns the devices that open. `missing` gets a sentence for each target that does not.
std::vector<Found> find_devices(std::vector<std::string>* missing) {
  std::vector<Found> found;
  std::string why;
  const int count = cuda_device_count(&why);
  if (count == 0) missing->push_back(why);
  std::vector<std::string> targets;
  for (int i = 0; i < count; ++i) targets.push_back(fmt::format("cuda:{}", i));
  targets.emplace_back("cpu");
  for (const std::string& target : targets) {
    try {
      found.push_back({target, open_device(target)});
    } catch (const Error& error) {
      missing->push_back(fmt::format("{}: {}", target, error.what()));
    }
  }
  return found;
}

Json device_json(const Found& found) {
  const DeviceIdentity& identity = found.device->identity();
  const Conditions conditions = found.device->conditions();
  Json archs = Json::array();
  for (const Arch& arch : found.device->archs()) archs.push_back(arch.name());
  return {{"target", found.target},
          {"name", identity.name},
          {"arch", identity.arch},
          {"compiles_for", archs},
          {"sm_count", identity.sm_count},
          {"threads", identity.is_cpu() ? Json(identity.sm_count) : Json(nullptr)},
          {"shared_bytes_per_block", identity.shared_bytes_per_block},
          {"registers_per_sm", identity.registers_per_sm},
          {"l2_bytes", identity.l2_bytes},
          {"memory_bus_bits", identity.memory_bus_bits},
          {"memory_clock_hz", static_cast<int64_t>(identity.memory_clock_khz) * 1000},
          {"slice", identity.slice},
          {"driver", conditions.driver},
          {"power_limit_w", power_limit_json(conditions)},
          {"identity", identity.digest()}};
}

int devices(bool as_json) {
  std::vector<std::string> missing;
  const auto found = find_devices(&missing);
  if (as_json) {
    Json list = Json::array();
    for (const Found& one : found) list.push_back(device_json(one));
    print_json("devices", {{"devices", list}, {"missing", missing}});
    return found.empty() ? kMissing : kOk;
  }
  Table table(
      {"target", "name", "arch", "SMs or threads", "L2", "driver", "power limit", "identity"});
  for (const Found& one : found) {
    const DeviceIdentity& identity = one.device->identity();
    const Conditions conditions = one.device->conditions();
    table.add({one.target, identity.title(), identity.arch, std::to_string(identity.sm_count),
               format_bytes(static_cast<double>(identity.l2_bytes)),
               conditions.driver.empty() ? "-" : conditions.driver,
               conditions.power_limit_w == 0 ? "-" : fmt::format("{} W", conditions.power_limit_w),
               identity.digest().substr(0, 12)});
  }
  if (!table.empty()) print(table.text());
  for (const std::string& sentence : missing) print_notice(sentence);
  return found.empty() ? kMissing : kOk;
}

}  // namespace

void add_devices(Command program, int* exit_code) {
  const auto json = std::make_shared<bool>(false);
  Command command =
      add_command(program, "devices",
                  "List this machine's devices with the facts that identify them in the store",
                  "attune devices --json", json.get());
  command.callback([json, exit_code] { *exit_code = devices(*json); });
}

}  // namespace attune::cli
