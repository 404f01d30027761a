// SPDX-License-Identifier: Apache-2.0
// `attune pin`: writes the kernel of each tuned problem to a file that a site can review and ship
// (cache/pin_file.hpp). With --check, reports whether this version of attune can run the kernels of
// such a file here. Programs use the file through ATTUNE_PIN.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <set>

#include "generator/core/system/error.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/pinned_run.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/commands/db_commands.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/output.hpp"

namespace attune::cli {
namespace {

struct Options : DbOptions {
  std::string file;
  std::string target = "auto";
  bool check = false;
};

std::string hex_of(const PinFile& pins) {
  std::string hex;
  for (const uint8_t byte : pins.digest()) hex += fmt::format("{:02x}", byte);
  return hex;
}

// Returns the store's pins. Leaves out winners whose template has changed, and counts them in
// *stale.
PinFile pins_of_store(const Options& options, size_t* stale) {
  std::vector<WinnerRecord> winners;
  for (WinnerRecord& winner : open_db(options).all_winners()) {
    if (!matches(options, winner.device, winner.toolchain)) continue;
    const ToolchainIdentity& of = winner.toolchain;
    if (!is_current(template_state(of.template_name, of.template_digest)))
      ++*stale;
    else
      winners.push_back(std::move(winner));
  }
  return pins_of(winners);
}

size_t devices_of(const PinFile& pins) {
  std::set<std::string> digests;
  for (const Pin& pin : pins.pins) digests.insert(pin.device_digest);
  return digests.size();
}

// Throws for options that would have no effect.
void check_options(const Options& options) {
  const auto refuse = [](const std::string& sentence) {
    throw Error(ErrorCode::kInvalidArgument, sentence);
  };
  if (!options.check && options.target != "auto")
    refuse("--target is given without --check; must be given with --check");
  if (!options.check && options.json && options.file == "-")
    refuse(
        "--json is given, and FILE is -, but stdout can hold either pins or JSON; leave one out");
  const bool filters = !options.device.empty() || !options.template_name.empty();
  if (options.check && options.store.empty() && filters)
    refuse(
        fmt::format("{} is given with --check and without --store; must be given with --store, "
                    "because it filters that store's winners",
                    options.device.empty() ? "--template" : "--device"));
}

int write_pins(const Options& options) {
  size_t stale = 0;
  const PinFile pins = pins_of_store(options, &stale);
  if (pins.pins.empty())
    throw Error(ErrorCode::kNotTuned,
                fmt::format("{} has no winner to pin; run `attune tune` first, or see `attune db "
                            "ls`",
                            options.path().string()));
  if (options.file == "-") {
    print_bytes(pins.text());
    return kOk;
  }
  write_file(options.file, pins.text());
  if (options.json)
    print_json("pin", {{"file", options.file},
                       {"pins", pins.pins.size()},
                       {"devices", devices_of(pins)},
                       {"stale", stale},
                       {"digest", hex_of(pins)}});
  else
    print(fmt::format("pinned {} problems for {} kinds of device in {}\ndigest {}\n{}",
                      pins.pins.size(), devices_of(pins), options.file, hex_of(pins),
                      stale > 0
                          ? fmt::format("{} winners of changed templates are left out\n", stale)
                          : std::string()));
  return kOk;
}

// Returns the differences between the file and the store's own pins, one a line.
std::vector<std::string> differences(const Options& options, const PinFile& pins) {
  size_t stale = 0;
  std::vector<std::string> lines;
  std::set<std::string> in_file, in_store;
  for (const Pin& pin : pins.pins) in_file.insert(pin.line());
  for (const Pin& pin : pins_of_store(options, &stale).pins) in_store.insert(pin.line());
  for (const std::string& line : in_file)
    if (in_store.count(line) == 0) lines.push_back("only in the file:  " + line);
  for (const std::string& line : in_store)
    if (in_file.count(line) == 0) lines.push_back("only in the store: " + line);
  return lines;
}

int check_pins(const Options& options) {
  const PinFile pins = read_pin_file(options.file, FileKinds::kStreamsToo);
  const std::vector<std::string> faults = faults_of(pins.pins);
  std::vector<std::string> differing;
  if (!options.store.empty()) differing = differences(options, pins);
  const auto device = open_machine(options.target);
  const size_t here = pins_for(pins, device->identity()).size();
  if (options.json) {
    print_json("pin.check", {{"file", options.file},
                             {"digest", hex_of(pins)},
                             {"pins", pins.pins.size()},
                             {"device", device->identity().title()},
                             {"pins_here", here},
                             {"faults", faults},
                             {"differences", differing}});
  } else {
    std::string text =
        fmt::format("{}: {} pins, {} of them for this device ({})\ndigest {}\n", options.file,
                    pins.pins.size(), here, device->identity().title(), hex_of(pins));
    for (const std::string& fault : faults) text += fault + "\n";
    for (const std::string& line : differing) text += line + "\n";
    print(text);
  }
  return faults.empty() && differing.empty() ? kOk : kStorage;
}

}  // namespace

void add_pin(Command program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  Command command = add_command(
      program, "pin", "Write a file that fixes which kernels run, for all ranks to share",
      "attune pin site.pin --store site.db   # then run with ATTUNE_PIN=site.pin", &options->json);
  command.add_option("FILE", options->file, "File to write, or with --check to read; - for stdout")
      .required();
  command.add_flag(
      "--check", options->check,
      "Only report whether this version of attune can run the kernels of FILE, how many are for "
      "this device and, with --store, how the store's pins differ (exit code 5 if they differ, "
      "1 if FILE was changed or is not a pin file)");
  command.add_option("--store", options->store,
                     "Store to pin from (default: $ATTUNE_STORE, else ~/.cache/attune/store.db)");
  command
      .add_option("--target", options->target,
                  "With --check: auto (a GPU if there is one, else the CPU), cuda, cuda:N, cpu or "
                  "cpu:THREADS")
      .shows_default();
  add_db_filter(command, options.get());
  command.callback([options, exit_code] {
    check_options(*options);
    *exit_code = options->check ? check_pins(*options) : write_pins(*options);
  });
}

}  // namespace attune::cli
