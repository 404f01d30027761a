// SPDX-License-Identifier: Apache-2.0
// Opens the device and the store that the command line names.
#include "tuner/cli/machine.hpp"

#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>

#include "cache/store_stack.hpp"
#include "cache/winner_rule.hpp"
#include "generator/core/system/error.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/engine/options.hpp"
#include "tuner/cli/output/output.hpp"

namespace attune::cli {

std::filesystem::path MachineOptions::store_path() const { return store_path_or_default(store); }

void add_machine_options(Command command, MachineOptions* options) {
  command
      .add_option("--target", options->target,
                  "auto (a GPU if there is one, else the CPU), cuda, cuda:N, cpu or cpu:THREADS")
      .shows_default();
  command.add_option("--store", options->store,
                     "Store to use (default: $ATTUNE_STORE, else ~/.cache/attune/store.db)");
}

std::shared_ptr<const Device> open_machine(const std::string& target) {
  return open_device(target);
}

void add_wait_option(Command command, double* wait_s) {
  command
      .add_option("--wait", *wait_s,
                  "Longest wait, in seconds, while another process measures on the device. After "
                  "it, this process measures too, with a warning. 0: do not wait")
      .not_negative()
      .shows_default();
}

DeviceLock lock_device(const Device& device, double wait_s, const std::function<bool()>& stop) {
  const auto notice = [](const std::string& text) { print_notice("attune: " + text); };
  constexpr double kYearS = 365.0 * 24 * 3600;  // larger values do not fit a clock
  const std::chrono::milliseconds most(static_cast<int64_t>(1000 * std::min(wait_s, kYearS)));
  return {device.hardware(), lock_folder(), {stop, notice, most}};
}

// A kernel on a CPU uses all cores; driving a GPU takes one core.
std::string busy_text(double load, int cores, Target kind) {
  constexpr double kBusyCpuShare = 0.75;
  if (cores < 1 || load < (kind == Target::kCpu ? kBusyCpuShare : 1.0) * cores) return "";
  return fmt::format(
      "this machine is busy (load average {:.1f} on {} core{}), so times vary; an interval wider "
      "than {:.0f} % of the median is marked noisy",
      load, cores, cores == 1 ? "" : "s", 100 * kNoisyWidth);
}

std::string untested_gpu_text(const DeviceIdentity& device) {
  if (device.is_cpu() || device.arch == "sm_90") return "";
  return fmt::format(
      "attune has run on Hopper GPUs only (H100 and H200), never on a GPU of arch {} like this "
      "one: "
      "check results with `attune check`",
      device.arch);
}

void note_if_busy(const Device& device) {
  double load = 0;  // over the last minute
  if (::getloadavg(&load, 1) != 1) return;
  const auto cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN));
  if (const std::string text = busy_text(load, cores, device.target()); !text.empty())
    print_notice("attune: note: " + text);
}

Target target_of(const std::string& target) {
  if (target == "auto") return cuda_device_count() > 0 ? Target::kCuda : Target::kCpu;
  if (target == "cpu") return Target::kCpu;
  if (target == "cuda") return Target::kCuda;  // allowed without a GPU too, to show problems
  return open_device(target)->target();        // throws if the device does not exist
}

int64_t memory_bytes_of(const std::string& target) {
  if (target == "cuda" && cuda_device_count() == 0) return 0;
  return open_device(target)->memory_bytes();
}

std::shared_ptr<const Device> try_open_cuda(std::string* why) {
  return cuda_device_count(why) > 0 ? open_device("cuda") : nullptr;
}

void read_stored_programs(const MachineOptions& options, const std::vector<std::string>& problems) {
  if (std::any_of(problems.begin(), problems.end(),
                  [](const std::string& text) { return text.find("_mod=") != std::string::npos; }))
    StoreStack(store_layers(engine_options(options))).load_programs();
}

EngineOptions engine_options(const MachineOptions& options) {
  EngineOptions engine = options_from_environment().engine;
  engine.target = options.target;
  if (!options.store.empty()) {
    engine.user_store = options.store;
    engine.use_store = true;
  }
  return engine;
}

EngineOptions looking_options(const MachineOptions& options) {
  EngineOptions engine = engine_options(options);
  std::error_code failed;
  if (!options.store.empty() && std::filesystem::status(options.store, failed).type() ==
                                    std::filesystem::file_type::not_found) {
    print_notice(fmt::format("attune: note: there is no store at {}, so no kernel counts as tuned",
                             options.store));
    engine.keep_images = false;
  }
  return engine;
}

}  // namespace attune::cli
