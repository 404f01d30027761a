// SPDX-License-Identifier: Apache-2.0
// The machine a command works on: --target and --store, opened. Used by every command that runs or
// looks up kernels.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/device.hpp"
#include "runtime/engine_options.hpp"
#include "tuner/cli/command_line.hpp"
#include "tuner/device_lock.hpp"

namespace attune::cli {

struct MachineOptions {
  std::string target = "auto";
  std::string store;

  std::filesystem::path store_path() const;  // --store, else the default place
};

// --target and --store.
void add_machine_options(Command command, MachineOptions* options);

// "cuda", "cpu", or "auto": CUDA if a driver answers, else the CPU. Throws kDriver or kCompile
// saying what is missing.
std::shared_ptr<const Device> open_machine(const std::string& target);
// --wait S, for commands that measure.
void add_wait_option(Command command, double* wait_s);
// Held while the device is measured. Waits at most `wait_s` seconds, and says on stderr, once, for
// which process.
DeviceLock lock_device(const Device& device, double wait_s, const std::function<bool()>& stop = {});
inline constexpr double kDeviceWaitS = std::chrono::duration<double>(DeviceLock::kMost).count();
// Returns a sentence where a load average of `load` threads on `cores` cores disturbs what is timed on such a device; else "".
std::string busy_text(double load, int cores, Target kind);
// Says on stderr that this machine is busy, where it is: times vary then.
void note_if_busy(const Device& device);
// The kind that open_machine would open. "cuda" need not be there; other words are refused as by open_machine.
Target target_of(const std::string& target);
// nullptr when no driver answers; `why`, if given, then says so.
std::shared_ptr<const Device> try_open_cuda(std::string* why);

// Makes the programs known that a text names by digest ("score_mod=0123...") and the stores of that machine hold: as an engine does,
// for commands that open none.
void read_stored_programs(const MachineOptions& options, const std::vector<std::string>& problems);

// An engine on that machine and store.
EngineOptions engine_options(const MachineOptions& options);
// The same for commands that look and time. A --store that is not there is said on stderr, and stays so.
EngineOptions looking_options(const MachineOptions& options);

}  // namespace attune::cli
