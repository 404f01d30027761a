// SPDX-License-Identifier: Apache-2.0
// `attune doctor`: reports on driver, NVRTC, CPU target and store. If one is missing, says what
// does not work without it and how to get it. Lists the variables that are set and their effect.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <utility>

#include "cache/store.hpp"
#include "generator/compile/cpu_toolchain.hpp"
#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/problem/arch.hpp"
#include "generator/core/system/environment.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/engine/options.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/output.hpp"

namespace attune::cli {
namespace {

struct Finding {
  std::string name;
  bool found = false;
  std::string detail;         // what was found; or why not, and how to get it
  std::string cost;           // what does not work without it
  bool will_be_made = false;  // absent, but nothing to repair
  std::vector<std::string> warnings = {};
};

Finding driver_finding() {
  Finding finding{"driver", false, "",
                  "no kernel runs on a GPU; compiling and emitting for GPUs still work"};
  std::string why;
  const int count = cuda_device_count(&why);
  if (count == 0) {
    finding.detail = why;
    return finding;
  }
  try {
    const auto device = open_device("cuda");
    finding.found = true;
    finding.detail = fmt::format("{} device{}, first {} ({}), driver {}", count,
                                 count == 1 ? "" : "s", device->identity().name,
                                 device->identity().arch, device->identity().conditions.driver);
    if (std::string text = untested_gpu_text(device->identity()); !text.empty())
      finding.warnings.push_back(std::move(text));
  } catch (const Error& error) {
    finding.detail = error.what();
  }
  return finding;
}

// A compiler that opens may still lack its builtins, so this compiles an empty kernel.
std::string compile_empty_kernel(const Compiler& compiler) {
  const Source empty{"extern \"C\" __global__ void attune_kernel() {}\n", "empty.cu"};
  return fmt::format("compiled an empty kernel in {:.0f} ms",
                     compiler.compile(empty, parse_arch("sm_90")).compile_ms);
}

Finding nvrtc_finding() {
  NvrtcLocation location;
  Finding finding{"nvrtc", false, "",
                  "no CUDA kernel can be compiled here; stored and exported kernels run"};
  const Compiler* compiler = open_nvrtc_compiler(&location);
  if (!location.passed_over.empty()) finding.warnings.push_back(location.passed_over);
  if (compiler == nullptr) {
    finding.detail = nvrtc_advice();
    return finding;
  }
  finding.detail =
      fmt::format("{} in {}, from {}", location.version, location.path, location.origin);
  try {
    finding.detail += "; " + compile_empty_kernel(*compiler);
    finding.found = true;
  } catch (const Error& error) {
    finding.detail += fmt::format("; it does not compile: {}", error.what());
  }
  return finding;
}

// Returns how kernels multiply bf16 on a CPU.
std::string bf16_text(const Arch& arch) {
  if (!has_bf16_tiles(arch) && !has_bf16_pairs(arch)) return "bf16 is multiplied as fp32";
  return fmt::format("bf16 is multiplied as fp32, or by {} if that won a tuning",
                     has_bf16_tiles(arch) ? "AMX" : "AVX512_BF16");
}

Finding cpu_finding() {
  Finding finding{"cpu_target", false, "",
                  "no kernel can be compiled for the CPU here; stored and exported kernels run"};
  const CpuToolchain& toolchain = cpu_toolchain();
  finding.detail =
      fmt::format("{}, vectors of {} bytes; {}; ", toolchain.host_arch().name(),
                  toolchain.host_arch().vector_bytes, bf16_text(toolchain.host_arch()));
  try {
    finding.detail += toolchain.compiler().version();
    finding.found = true;
  } catch (const Error& error) {
    finding.detail += error.what();
  }
  return finding;
}

// True if a folder can be created there. Permission bits are not enough: root passes them even on a
// read-only file system.
bool can_write_into(const std::filesystem::path& folder) {
  std::string probe = (folder / ".attune-probe-XXXXXX").string();
  if (::mkdtemp(probe.data()) == nullptr) return false;
  return ::rmdir(probe.c_str()) == 0;
}

// Reports on the store without creating it. A missing store is fine if its folder can be made.
Finding store_finding(const std::filesystem::path& path) {
  Finding finding{"store", false, "",
                  "nothing is remembered: every process compiles again, and tuning is lost"};
  if (path.empty() && environment_variable("ATTUNE_STORE") == "") {
    finding.found = true;
    finding.detail = "none, because ATTUNE_STORE is empty";
    return finding;
  }
  try {
    store_path_or_default(path);  // throws the reason if there is no path
    if (const auto store = Store::open_existing(path)) {
      const StoreStats stats = store->stats();
      const bool writable = ::access(path.c_str(), W_OK) == 0 &&
                            can_write_into(std::filesystem::absolute(path).parent_path());
      finding.found = writable;
      finding.detail = fmt::format("{}: {} winners, {} trials, {} images, {}{}", path.string(),
                                   stats.winners, stats.trials, stats.images,
                                   format_bytes(static_cast<double>(stats.file_bytes)),
                                   writable ? "" : "; it or its folder cannot be written");
      finding.warnings = store->verify();
      return finding;
    }
  } catch (const Error& error) {
    finding.detail = error.what();
    return finding;
  }
  std::filesystem::path folder = std::filesystem::absolute(path).parent_path();
  std::error_code error;
  while (!std::filesystem::exists(folder, error) && folder.has_relative_path())
    folder = folder.parent_path();
  finding.will_be_made = can_write_into(folder);
  finding.detail =
      finding.will_be_made
          ? fmt::format("{}: the first tune will create it", path.string())
          : fmt::format("{} cannot be made: {} cannot be written; set ATTUNE_STORE to another file",
                        path.string(), folder.string());
  return finding;
}

int exit_code_for(const std::vector<Finding>& findings,
                  const std::vector<VariableReport>& variables) {
  const auto found = [&](const char* name) {
    for (const Finding& finding : findings)
      if (finding.name == name) return finding.found || finding.will_be_made;
    return false;
  };
  for (const VariableReport& variable : variables)
    if (variable.state == VariableState::kRefused) return kUsage;
  if (!found("store")) return kStorage;
  return (found("driver") && found("nvrtc")) || found("cpu_target") ? kOk : kMissing;
}

Json doctor_json(const std::vector<Finding>& findings, const std::vector<VariableReport>& variables,
                 const std::filesystem::path& store, int code) {
  Json body, warnings = Json::array(), environment = Json::array();
  for (const Finding& finding : findings) {
    body[finding.name + "_found"] = finding.found;
    body[finding.name] = finding.detail;
    for (const std::string& warning : finding.warnings) warnings.push_back(warning);
  }
  for (const VariableReport& variable : variables)
    environment.push_back({{"name", variable.name},
                           {"value", variable.value},
                           {"state", state_name(variable.state)},
                           {"detail", variable.detail}});
  body["store_path"] = store.string();
  body["warnings"] = warnings;
  body["environment"] = environment;
  body["ready"] = code == kOk;
  return body;
}

std::string doctor_text(const std::vector<Finding>& findings,
                        const std::vector<VariableReport>& variables, int code) {
  std::string text;
  for (const Finding& finding : findings) {
    const char* state = finding.found ? "found" : finding.will_be_made ? "not yet" : "missing";
    text += fmt::format("{:8} {:11} {}\n", state, finding.name, finding.detail);
    if (!finding.found && !finding.will_be_made)
      text += fmt::format("{:20} without it: {}\n", "", finding.cost);
    for (const std::string& warning : finding.warnings)
      text += fmt::format("{:20} warning: {}\n", "", warning);
  }
  if (!variables.empty()) text += "Environment:\n";
  for (const VariableReport& variable : variables)
    text += fmt::format("  {}={}\n    {}: {}\n", variable.name, variable.value,
                        state_name(variable.state), variable.detail);
  return text + (code == kOk
                     ? "Ready: attune tune --problem "
                       "dtype=bf16,head_dim=128,heads=32/8,seqlen=1024,mask=causal_bottom_right\n"
                     : "Not ready: see what is missing or refused above.\n");
}

int doctor(bool as_json, const std::string& store) {
  const std::filesystem::path path =
      store.empty() ? default_store_path() : std::filesystem::path(store);
  const std::vector<Finding> findings{driver_finding(), nvrtc_finding(), cpu_finding(),
                                      store_finding(path)};
  const std::vector<VariableReport> variables = report_variables();
  const int code = exit_code_for(findings, variables);
  if (as_json) {
    print_json("doctor", doctor_json(findings, variables, path, code));
    return code;
  }
  print(doctor_text(findings, variables, code));
  return code;
}

}  // namespace

void add_doctor(Command program, int* exit_code) {
  struct Options {
    bool json = false;
    std::string store;
  };
  const auto options = std::make_shared<Options>();
  Command command = add_command(program, "doctor",
                                "Report what is installed and what is missing, what does not work "
                                "without it, and how to get it",
                                "attune doctor", &options->json);
  command.add_option("--store", options->store,
                     "Store to look at (default: $ATTUNE_STORE, else ~/.cache/attune/store.db)");
  command.callback([options, exit_code] { *exit_code = doctor(options->json, options->store); });
}

}  // namespace attune::cli
