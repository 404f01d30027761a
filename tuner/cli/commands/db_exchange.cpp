// SPDX-License-Identifier: Apache-2.0
// `attune db verify | gc | export | import | merge`: maintains a store, and moves rows between
// stores (cache/exchange.hpp).
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <sstream>
#include <string_view>

#include "cache/exchange.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/commands/db_commands.hpp"
#include "tuner/cli/output/output.hpp"

namespace attune::cli {
namespace {

int verify(const DbOptions& options) {
  const auto problems = open_db(options).verify();
  if (options.json) {
    print_json(
        "db.verify",
        {{"store", options.path().string()}, {"sound", problems.empty()}, {"problems", problems}});
  } else {
    for (const std::string& problem : problems) print(problem + "\n");
    if (problems.empty()) print(fmt::format("{} is sound\n", options.path().string()));
  }
  return problems.empty() ? kOk : kStorage;
}

// Parses "500M" or "2G", in powers of 1000. Returns 0 for an empty text.
int64_t bytes_of(const std::string& text) {
  if (text.empty()) return 0;
  constexpr std::string_view kUnits = "kMG";
  const size_t unit = kUnits.find(text.back());
  double factor = 1;
  for (size_t i = 0; unit != std::string_view::npos && i <= unit; ++i) factor *= 1000;
  const char* const end = text.data() + text.size() - (unit == std::string_view::npos ? 0 : 1);
  double value = 0;
  const auto [at, error] = std::from_chars(text.data(), end, value);
  const double bytes = value * factor;
  constexpr double kMost = 1e15;
  if (error != std::errc() || at != end || !(bytes >= 1) || bytes > kMost)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--max-size is \"{}\"; must be a size such as 500M or 2G", text));
  return static_cast<int64_t>(bytes);
}

int gc(const DbOptions& options, const std::string& max_size) {
  const int64_t max_bytes = bytes_of(max_size);
  open_db(options);  // a missing store is an error, not a new store
  Store store = Store::open(options.path(), StoreMode::kReadWrite);
  const StoreStats gone = store.collect_garbage(
      [](const ToolchainIdentity& of) {
        return is_current(template_state(of.template_name, of.template_digest));
      },
      max_bytes);
  if (const int64_t left = store.stats().file_bytes; max_bytes > 0 && left > max_bytes)
    print_notice(
        fmt::format("attune: note: the store has {} after this, because trials, winners "
                    "and pinned kernels stay; `attune db rm` deletes those",
                    format_bytes(static_cast<double>(left))));
  if (options.json) {
    print_json("db.gc", {{"trials", gone.trials},
                         {"winners", gone.winners},
                         {"images", gone.images},
                         {"image_bytes", gone.image_bytes}});
  } else {
    print(fmt::format("deleted {} trials, {} winners and {} images ({})\n", gone.trials,
                      gone.winners, gone.images,
                      format_bytes(static_cast<double>(gone.image_bytes))));
  }
  return kOk;
}

bool has_suffix(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() &&
         text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

// Returns the digest that begins with `prefix`, of a device with winners: the first found. Returns
// an empty string for an empty prefix. Throws if no digest begins with it.
std::string device_digest(const Store& store, const std::string& prefix) {
  if (prefix.empty()) return {};
  for (const WinnerRecord& winner : store.all_winners())
    if (winner.device.digest().rfind(prefix, 0) == 0) return winner.device.digest();
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format(
          "--device is \"{}\"; must be the beginning of the identity of a device with winners here",
          prefix));
}

int export_rows(const DbOptions& options, const std::string& file) {
  const bool lines = file == "-" || has_suffix(file, ".jsonl");
  if (!lines && !has_suffix(file, ".db"))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("FILE is \"{}\"; must end in .jsonl (rows as JSON lines) or .db (rows "
                            "and images), or be - for JSON lines on stdout",
                            file));
  const Store store = open_db(options);
  const StoreContents contents =
      read_contents(store, {device_digest(store, options.device), options.template_name, !lines});
  if (lines) {
    std::ostringstream text;
    export_lines(contents, text);
    if (file == "-") {
      print_bytes(text.str());
      return kOk;
    }
    write_file(file, text.str());
  } else {
    export_slice(contents, file);
  }
  if (options.json)
    print_json("db.export", {{"file", file},
                             {"trials", contents.trials.size()},
                             {"winners", contents.winners.size()},
                             {"images", contents.images.size()}});
  else
    print_notice(fmt::format("wrote {} trials, {} winners and {} images to {}",
                             contents.trials.size(), contents.winners.size(),
                             contents.images.size(), file));
  return kOk;
}

bool is_database(const std::string& file) {
  constexpr std::string_view kMagic = "SQLite format 3";
  std::string unused, head(kMagic.size(), '\0');
  // only regular files are opened, because a pipe can be read only once
  const FileDescriptor opened = open_regular(file, O_RDONLY, &unused);
  return opened && ::read(opened.get(), head.data(), head.size()) > 0 && head == kMagic;
}

StoreContents contents_of(const std::string& file) {
  if (is_database(file)) return read_contents(Store::open(file, StoreMode::kReadOnly));
  std::istringstream in(read_file(file));
  try {
    return import_lines(in);
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", file, error.what()));
  }
}

// Returns a line that tells the user how many imported rows are images, because images are code.
// Empty for none.
std::string images_text(int64_t images) {
  if (images == 0) return {};
  return fmt::format("{} of the rows are images: code that programs here will run from now on\n",
                     images);
}

// An empty store in a temporary folder. A dry run is compared with it if the real store does not
// exist, so that the dry run creates nothing.
class EmptyStore {
 public:
  EmptyStore() {
    std::string folder = std::filesystem::temp_directory_path() / "attune-XXXXXX";
    if (::mkdtemp(folder.data()) == nullptr)
      throw Error(ErrorCode::kIo, fmt::format("{}: {}", folder, std::strerror(errno)));
    folder_ = folder;
  }
  ~EmptyStore() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  EmptyStore(const EmptyStore&) = delete;
  EmptyStore& operator=(const EmptyStore&) = delete;
  Store open() const { return Store::open(folder_ / "store.db", StoreMode::kReadWrite); }

 private:
  std::filesystem::path folder_;
};

// Merges files into the store. Reads all files before it stores any row.
int fold_in(const DbOptions& options, const char* schema, const std::vector<std::string>& files,
            bool dry_run) {
  std::vector<StoreContents> all;
  for (const std::string& file : files) all.push_back(contents_of(file));
  std::optional<EmptyStore> nothing;
  std::optional<Store> opened = dry_run ? Store::open_existing(options.path())
                                        : Store::open(options.path(), StoreMode::kReadWrite);
  if (!opened) opened = nothing.emplace().open();
  Store& store = *opened;
  Json steps = Json::array(), spread = Json::array();
  int64_t counts[3] = {};
  int64_t images = 0;  // added or replaced
  std::string text;
  for (const StoreContents& contents : all) {
    const MergePlan plan = dry_run ? store.plan_merge(contents) : store.merge(contents);
    for (const MergeAction action : {MergeAction::kAdd, MergeAction::kReplace, MergeAction::kKeep})
      counts[static_cast<int>(action)] += plan.count(action);
    for (const std::string& sentence : plan.spread) {
      spread.push_back(sentence);
      print_notice("attune: note: " + sentence);
    }
    for (const MergeStep& step : plan.steps) {
      images += step.row == "image" && step.action != MergeAction::kKeep;
      steps.push_back({{"action", merge_action_name(step.action)},
                       {"row", step.row},
                       {"what", step.what},
                       {"why", step.why}});
      if (dry_run)
        text += fmt::format("{:8} {:7} {} ({})\n", merge_action_name(step.action), step.row,
                            step.what, step.why);
    }
  }
  if (options.json) {
    print_json(schema, {{"dry_run", dry_run},
                        {"added", counts[0]},
                        {"replaced", counts[1]},
                        {"kept", counts[2]},
                        {"images", images},
                        {"spread", spread},
                        {"steps", steps}});
  } else {
    print(text + fmt::format("{}: {} rows added, {} replaced, {} kept as they were\n{}",
                             dry_run ? "would change" : "changed", counts[0], counts[1], counts[2],
                             images_text(images)));
  }
  return kOk;
}

struct FoldOptions : DbOptions {
  std::vector<std::string> files;
  bool dry_run = false;
};

}  // namespace

void add_db_verify(Command db, int* exit_code) {
  const auto options = std::make_shared<DbOptions>();
  Command command = add_db_command(
      db, "verify", "Check the file and every image against its SHA-256 (exit code 5 if damaged)",
      "attune db verify", options.get());
  command.callback([options, exit_code] { *exit_code = verify(*options); });
}

void add_db_gc(Command db, int* exit_code) {
  const auto options = std::make_shared<DbOptions>();
  const auto max_size = std::make_shared<std::string>();
  Command command =
      add_db_command(db, "gc", "Delete unused images and rows of templates that no longer exist",
                     "attune db gc --max-size 500M", options.get());
  command.add_option("--max-size", *max_size,
                     "Delete the oldest kernels too, until the file has this size: 500M, 2G. They "
                     "are compiled again when a program needs them");
  command.callback([options, max_size, exit_code] { *exit_code = gc(*options, *max_size); });
}

void add_db_export(Command db, int* exit_code) {
  const auto options = std::make_shared<DbOptions>();
  const auto file = std::make_shared<std::string>();
  Command command = add_db_command(
      db, "export", "Write rows to a file: .jsonl to review, .db to include compiled kernels",
      "attune db export winners.jsonl", options.get());
  command.add_option("FILE", *file, "File to write; - for stdout").required();
  add_db_filter(command, options.get());
  command.callback([options, file, exit_code] { *exit_code = export_rows(*options, *file); });
}

void add_db_import(Command db, int* exit_code) {
  const auto options = std::make_shared<FoldOptions>();
  Command command = add_db_command(db, "import", "Add the rows of one exported file",
                                   "attune db import winners.jsonl --dry-run", options.get());
  command.add_option("FILE", options->files, "A .jsonl or .db file").required().values(1, 1);
  command.add_flag("--dry-run", options->dry_run, "Show what would change; change nothing");
  command.callback([options, exit_code] {
    *exit_code = fold_in(*options, "db.import", options->files, options->dry_run);
  });
}

void add_db_merge(Command db, int* exit_code) {
  const auto options = std::make_shared<FoldOptions>();
  Command command =
      add_db_command(db, "merge",
                     "Add the rows of other stores. Of two winners for one problem, the one of "
                     "higher effort stays, then the one with more samples, then the newer one",
                     "attune db merge a.db b.db --store all.db", options.get());
  command.add_option("FILES", options->files, "Stores or exported files")
      .required()
      .values(1, 1000);
  command.add_flag("--dry-run", options->dry_run, "Show what would change; change nothing");
  command.callback([options, exit_code] {
    *exit_code = fold_in(*options, "db.merge", options->files, options->dry_run);
  });
}

}  // namespace attune::cli
