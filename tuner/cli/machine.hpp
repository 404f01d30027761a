// SPDX-License-Identifier: Apache-2.0
// The machine that a command works on, from --target and --store. Used by every command that runs
// or looks up kernels.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/engine/device.hpp"
#include "runtime/engine/engine_options.hpp"
#include "tuner/cli/command_line.hpp"
#include "tuner/measure/device_lock.hpp"

namespace attune::cli {

struct MachineOptions {
  std::string target = "auto";
  std::string store;

  std::filesystem::path store_path() const;  // --store, else the default path
};

// Adds --target and --store.
void add_machine_options(Command command, MachineOptions* options);

// Opens the device that --target names. "auto" is a GPU if there is one, else the CPU. Throws
// kDriver or kCompile, saying what is missing.
std::shared_ptr<const Device> open_machine(const std::string& target);
// Adds --wait S, for commands that measure.
void add_wait_option(Command command, double* wait_s);
// Returns a lock to hold while the device is measured. Waits at most `wait_s` seconds. Names the
// process that it waits for once, on stderr.
DeviceLock lock_device(const Device& device, double wait_s, const std::function<bool()>& stop = {});
inline constexpr double kDeviceWaitS = std::chrono::duration<double>(DeviceLock::kMost).count();
// Returns a sentence if a load average of `load` threads on `cores` cores disturbs timings on a
// device of this kind; else "".
std::string busy_text(double load, int cores, Target kind);
// Returns a warning if the device is a GPU of a kind on which attune has never run (any but
// Hopper), else "".
std::string untested_gpu_text(const DeviceIdentity& device);
// Warns on stderr if this machine is busy, because times vary then.
void note_if_busy(const Device& device);
// Returns the kind of device that open_machine would open. "cuda" is valid without a GPU too; other
// unknown words are refused as by open_machine.
Target target_of(const std::string& target);
// Returns the memory of the device that open_machine would open; 0 if it cannot be read.
int64_t memory_bytes_of(const std::string& target);
// Opens the first GPU. Returns nullptr if no driver answers; then sets *why, unless `why` is null,
// to the reason.
std::shared_ptr<const Device> try_open_cuda(std::string* why);

// Loads from the machine's stores the programs that a text names by digest ("score_mod=0123...").
// An engine does this itself; commands without an engine call this function.
void read_stored_programs(const MachineOptions& options, const std::vector<std::string>& problems);

// Returns the options of an engine on that machine and store.
EngineOptions engine_options(const MachineOptions& options);
// Like engine_options, for commands that only look up and time kernels. If --store does not exist,
// says so on stderr and does not create it.
EngineOptions looking_options(const MachineOptions& options);

// The ATTUNE_* variables that are set, what each resolves to, and what is wrong with it
// (`attune doctor`, commands/variables.cpp).

enum class VariableState {
  kInForce,
  kPassedOver,  // without effect: replaced by something else, or unknown to attune
  kRefused,     // no program opens a context until it is corrected
};

struct VariableReport {
  std::string name, value;
  VariableState state = VariableState::kInForce;
  std::string detail;  // what it resolves to, or what is wrong
};

const char* state_name(VariableState state);  // "in force", "passed over", "refused"

// Reports the variables that are set, in the order of kEnvironmentVariables, then unknown ones.
std::vector<VariableReport> report_variables();

}  // namespace attune::cli
