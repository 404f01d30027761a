// SPDX-License-Identifier: Apache-2.0
// `attune db`: shows the contents of the store, and maintains it. This file registers it; the
// subcommands are in db_read.cpp, db_show.cpp, db_remove.cpp and db_exchange.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "generator/template_registry.hpp"
#include "runtime/engine/options.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/commands/db_commands.hpp"

namespace attune::cli {

std::filesystem::path DbOptions::path() const { return store_path_or_default(store); }

namespace {

// Throws if --template names a template that neither this version nor the store knows. A store may
// have rows of templates from other versions.
void check_template(const Store& store, const DbOptions& options) {
  std::set<std::string, std::less<>> known;
  for (const KernelTemplate* one : all_templates()) known.emplace(one->name());
  if (options.template_name.empty() || known.count(options.template_name) > 0) return;
  for (const WinnerRecord& winner : store.all_winners())
    known.insert(winner.toolchain.template_name);
  for (const StoredTrial& row : store.all_trials()) known.insert(row.trial.toolchain.template_name);
  if (known.count(options.template_name) > 0) return;
  throw Error(ErrorCode::kUnsupported,
              fmt::format("--template is \"{}\", which neither this version of attune nor {} has; "
                          "must be one of {}",
                          options.template_name, options.path().string(), fmt::join(known, ", ")));
}

}  // namespace

Store open_db(const DbOptions& options) {
  auto store = Store::open_existing(options.path());
  if (!store)
    throw Error(ErrorCode::kStore, fmt::format("there is no store at {}; `attune tune` makes one",
                                               options.path().string()));
  check_template(*store, options);
  return std::move(*store);
}

bool matches(const DbOptions& options, const DeviceIdentity& device,
             const ToolchainIdentity& toolchain) {
  return device.digest().rfind(options.device, 0) == 0 &&
         (options.template_name.empty() || options.template_name == toolchain.template_name);
}

Command add_db_command(Command db, const std::string& name, const std::string& what,
                       const std::string& example, DbOptions* options) {
  Command command = add_command(db, name, what, example, &options->json);
  command.add_option("--store", options->store,
                     "Store file (default: $ATTUNE_STORE, else ~/.cache/attune/store.db)");
  return command;
}

void add_db_filter(Command command, DbOptions* options) {
  command.add_option(
      "--device", options->device,
      "Only this device: its identity, as `attune devices` prints it, or the first digits of it");
  command.add_option("--template", options->template_name, "Only this template");
}

void add_db(Command program, int* exit_code) {
  Command db = program.add_command(
      "db", "Show and maintain the store: ls, show, stats, verify, gc, rm, export, import, merge");
  db.require_command();
  db.add_footer("Example:\n  attune db ls");
  add_db_ls(db, exit_code);
  add_db_show(db, exit_code);
  add_db_stats(db, exit_code);
  add_db_verify(db, exit_code);
  add_db_gc(db, exit_code);
  add_db_rm(db, exit_code);
  add_db_export(db, exit_code);
  add_db_import(db, exit_code);
  add_db_merge(db, exit_code);
}

}  // namespace attune::cli
