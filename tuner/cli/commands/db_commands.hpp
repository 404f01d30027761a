// SPDX-License-Identifier: Apache-2.0
// The subcommands of `attune db`: reading (db_read.cpp, db_show.cpp), deleting (db_remove.cpp),
// maintenance and exchange (db_exchange.cpp). Registered by db.cpp.
#pragma once

#include <filesystem>
#include <string>

#include "cache/store.hpp"
#include "tuner/cli/command_line.hpp"

namespace attune::cli {

struct DbOptions {
  bool json = false;
  std::string store;   // --store, or empty
  std::string device;  // prefix of a device identity
  std::string template_name;

  std::filesystem::path path() const;
};

// Opens the store in an existing file. Throws kStore if there is no such file. Throws kUnsupported
// for a --template that neither this version nor the store knows.
Store open_db(const DbOptions& options);
// True if the options (--device, --template) select rows of this device and template.
bool matches(const DbOptions& options, const DeviceIdentity& device,
             const ToolchainIdentity& toolchain);
// True if rows with this spec and shape belong to the problem, in whichever form they were stored.
bool is_of(const Problem& problem, const KernelSpec& spec, const Shape& shape);
// Adds a subcommand of db with --json and --store.
Command add_db_command(Command db, const std::string& name, const std::string& what,
                       const std::string& example, DbOptions* options);
// Adds --device and --template.
void add_db_filter(Command command, DbOptions* options);

void add_db_ls(Command db, int* exit_code);
void add_db_show(Command db, int* exit_code);
void add_db_stats(Command db, int* exit_code);
void add_db_verify(Command db, int* exit_code);
void add_db_gc(Command db, int* exit_code);
void add_db_rm(Command db, int* exit_code);
void add_db_export(Command db, int* exit_code);
void add_db_import(Command db, int* exit_code);
void add_db_merge(Command db, int* exit_code);

}  // namespace attune::cli
