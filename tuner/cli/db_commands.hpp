// SPDX-License-Identifier: Apache-2.0
// The subcommands of `attune db`: reading (db_read.cpp, db_show.cpp), upkeep and exchange (db_exchange.cpp).
// Registered by db.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "cache/store.hpp"

namespace attune::cli {

struct DbOptions {
  bool json = false;
  std::string store;   // --store, or empty
  std::string device;  // prefix of a device identity
  std::string template_name;

  std::filesystem::path path() const;
};

// The store of an existing file. Throws kStore when there is none.
Store open_db(const DbOptions& options);
// Whether rows of this device and template are asked for (--device, --template).
bool matches(const DbOptions& options, const DeviceIdentity& device,
             const ToolchainIdentity& toolchain);
// A subcommand of db with --json and --store.
CLI::App* add_db_command(CLI::App* db, const std::string& name, const std::string& what,
                         const std::string& example, DbOptions* options);
// --device and --template.
void add_db_filter(CLI::App* command, DbOptions* options);

void add_db_ls(CLI::App* db, int* exit_code);
void add_db_show(CLI::App* db, int* exit_code);
void add_db_stats(CLI::App* db, int* exit_code);
void add_db_verify(CLI::App* db, int* exit_code);
void add_db_gc(CLI::App* db, int* exit_code);
void add_db_export(CLI::App* db, int* exit_code);
void add_db_import(CLI::App* db, int* exit_code);
void add_db_merge(CLI::App* db, int* exit_code);

}  // namespace attune::cli
