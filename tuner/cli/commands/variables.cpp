// SPDX-License-Identifier: Apache-2.0
// Checks the environment variables; see machine.hpp.
#include "tuner/cli/machine.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>

#include "generator/compile/cpu_toolchain.hpp"
#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/system/environment.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/private_path.hpp"
#include "runtime/bundles/bundle.hpp"
#include "runtime/engine/options.hpp"
#include "runtime/engine/pinned_run.hpp"

namespace attune::cli {
namespace {

namespace fs = std::filesystem;
using Report = VariableReport;

constexpr const char* kPrefix = "ATTUNE_";

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

void store(Report* report) {
  if (report->value.empty()) {
    report->detail = "programs use no store";
    return;
  }
  const fs::path path = fs::absolute(report->value);
  report->detail =
      fmt::format("{}: {}", path.string(),
                  is_file(path) ? "the file exists" : "no such file yet; the first tune makes it");
}

void bundle(Report* report) {
  std::vector<std::string> lines;
  for (const fs::path& folder : split_paths(report->value)) try {
      const Bundle bundle = Bundle::open(folder);
      lines.push_back(fmt::format("{}: {} images for {} tuned shapes",
                                  fs::absolute(folder).string(), bundle.num_images(),
                                  bundle.winners().size()));
      for (std::string& fault : bundle.faults()) {
        report->state = VariableState::kPassedOver;
        lines.push_back(std::move(fault));
      }
    } catch (const Error& error) {
      report->state = VariableState::kRefused;
      lines.emplace_back(error.what());
    }
  report->detail = fmt::format("{}", fmt::join(lines, "; "));
}

void site_store_files(Report* report) {
  std::vector<std::string> lines;
  for (const fs::path& path : split_paths(report->value))
    lines.push_back(fmt::format("{}: {}", fs::absolute(path).string(),
                                is_file(path) ? "the file exists" : "no such file"));
  report->detail = fmt::format("{}", fmt::join(lines, "; "));
}

void trust(Report* report) {
  std::vector<std::string> lines;
  std::error_code ignored;
  for (const std::string& folder : trusted_folders())
    lines.push_back(
        fs::is_directory(folder, ignored)
            ? fmt::format("{}: stores and bundles in it are used, whoever owns them", folder)
            : fmt::format("{}: no such folder", folder));
  report->detail = fmt::format("{}", fmt::join(lines, "; "));
}

void pin(Report* report) {
  try {
    const PinFile pins = read_pin_file(report->value);
    report->detail =
        fmt::format("{}: {} pins", fs::absolute(report->value).string(), pins.pins.size());
    const std::vector<std::string> faults = faults_of(pins.pins);
    if (!faults.empty()) report->detail += "; " + faults.front();
  } catch (const Error& error) {
    report->state = VariableState::kRefused;
    report->detail = error.what();
  }
}

void capture(Report* report) {
  const fs::path path = fs::absolute(report->value);
  std::error_code ignored;
  const bool writable =
      ::access(path.c_str(), W_OK) == 0 ||
      (!fs::exists(path, ignored) && ::access(path.parent_path().c_str(), W_OK | X_OK) == 0);
  report->detail = fmt::format("{}: {}", path.string(),
                               writable ? "can be written" : "cannot be written; nothing is kept");
  if (!writable) report->state = VariableState::kPassedOver;
}

void nvrtc(Report* report) {
  NvrtcLocation location;
  open_nvrtc_compiler(&location);
  report->detail = location.passed_over;
  if (location.passed_over.empty())
    report->detail = fmt::format("{} in {}", location.version, location.path);
  else
    report->state = VariableState::kPassedOver;
}

void cpu_plugin(Report* report) {
  try {
    cpu_toolchain().compiler().open();
    report->detail = fs::absolute(report->value).string();
  } catch (const Error& error) {
    report->detail = error.what();
    report->state = VariableState::kPassedOver;
  }
}

// Returns the resolvers of the variables that name files. The code that uses the other variables
// checks them.
const std::map<std::string, std::function<void(Report*)>>& resolvers() {
  static const std::map<std::string, std::function<void(Report*)>> all{
      {"ATTUNE_STORE", store},     {"ATTUNE_BUNDLE", bundle},
      {"ATTUNE_CAPTURE", capture}, {"ATTUNE_SITE_STORES", site_store_files},
      {"ATTUNE_TRUST", trust},     {"ATTUNE_PIN", pin},
      {"ATTUNE_NVRTC", nvrtc},     {"ATTUNE_CPU_PLUGIN", cpu_plugin},
  };
  return all;
}

// Returns the library's error about the environment; "" if there is none.
std::string refusal() {
  try {
    options_from_environment();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

Report report_of(const EnvironmentVariable& variable, const std::string& value,
                 const std::string& refused) {
  Report report{variable.name, value, VariableState::kInForce, variable.meaning};
  if (refused.find(fmt::format(" {} ", variable.name)) != std::string::npos) {
    report.state = VariableState::kRefused;
    report.detail = refused;
  } else if (const auto resolve = resolvers().find(variable.name);
             resolve != resolvers().end() && (!value.empty() || report.name == "ATTUNE_STORE")) {
    resolve->second(&report);
  } else if (value.empty()) {
    report.state = VariableState::kPassedOver;
    report.detail = fmt::format("is empty; counts as not set: {}", variable.fallback);
  }
  return report;
}

bool is_known(const std::string& name) {
  return std::any_of(std::begin(kEnvironmentVariables), std::end(kEnvironmentVariables),
                     [&](const EnvironmentVariable& known) { return name == known.name; });
}

}  // namespace

const char* state_name(VariableState state) {
  const char* const names[] = {"in force", "passed over", "refused"};
  return names[static_cast<int>(state)];
}

std::vector<VariableReport> report_variables() {
  const std::string refused = refusal();
  std::vector<Report> reports;
  for (const EnvironmentVariable& variable : kEnvironmentVariables)
    if (const auto value = environment_variable(variable.name))
      reports.push_back(report_of(variable, *value, refused));
  for (char** entry = environ; *entry; ++entry) {
    const std::string text = *entry;
    const size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (equals != std::string::npos && name.starts_with(kPrefix) && !is_known(name))
      reports.push_back({name, text.substr(equals + 1), VariableState::kPassedOver,
                         "attune does not know this variable"});
  }
  return reports;
}

}  // namespace attune::cli
