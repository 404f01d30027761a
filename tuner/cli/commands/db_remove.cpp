// SPDX-License-Identifier: Apache-2.0
// `attune db rm`: deletes trials and winners by problem, device, template or age. The next tune
// starts anew for them.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "generator/core/system/error.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/commands/db_commands.hpp"
#include "tuner/cli/output/output.hpp"

namespace attune::cli {
namespace {

struct Options : DbOptions {
  std::string problem;
  int older_than = 0;  // days; 0: any age
  bool dry_run = false;
};

RowFilter filter_of(const Options& options) {
  if (options.problem.empty() && options.device.empty() && options.template_name.empty() &&
      options.older_than == 0)
    throw Error(ErrorCode::kInvalidArgument,
                "no rows are selected; give one or more of --problem, --device, "
                "--template and --older-than");
  std::optional<Problem> problem;
  if (!options.problem.empty()) problem = parse_problem(options.problem);
  const std::string before = options.older_than > 0 ? utc_now(options.older_than) : "";
  return [options, problem, before](const TuningKey& key, const ToolchainIdentity& toolchain,
                                    const std::string& created) {
    return (!problem || is_of(*problem, key.spec, key.shape)) &&
           matches(options, key.device, toolchain) && (before.empty() || created < before);
  };
}

// Counts the rows that the filter would remove. Pins are kept.
StoreStats taken_by(const Store& store, const RowFilter& takes) {
  StoreStats taken{};
  for (const StoredTrial& row : store.all_trials())
    if (takes(row.key, row.trial.toolchain, row.trial.created)) ++taken.trials;
  for (const WinnerRecord& row : store.all_winners())
    if (!row.pinned &&
        takes({row.spec, row.shape, row.device, row.policy}, row.toolchain, row.created))
      ++taken.winners;
  return taken;
}

int remove(const Options& options) {
  const RowFilter takes = filter_of(options);
  StoreStats gone = taken_by(open_db(options), takes);
  if (gone.trials + gone.winners == 0)
    throw Error(ErrorCode::kNotTuned, fmt::format("{} has no trial or winner that the options "
                                                  "select; `attune db ls` lists the tuned problems",
                                                  options.path().string()));
  if (!options.dry_run) gone = Store::open(options.path(), StoreMode::kReadWrite).remove(takes);
  if (options.json)
    print_json("db.rm", {{"trials", gone.trials},
                         {"winners", gone.winners},
                         {"images", gone.images},
                         {"dry_run", options.dry_run}});
  else if (options.dry_run)
    print(fmt::format("would delete {} trials and {} winners\n", gone.trials, gone.winners));
  else
    print(fmt::format("deleted {} trials, {} winners and {} images\n", gone.trials, gone.winners,
                      gone.images));
  return kOk;
}

}  // namespace

void add_db_rm(Command db, int* exit_code) {
  const auto options = std::make_shared<Options>();
  Command command = add_db_command(
      db, "rm",
      "Delete trials and winners, so that the next tune starts from scratch; pinned kernels stay",
      "attune db rm --older-than 90 --dry-run", options.get());
  add_problem_option(command, &options->problem);
  command.option("--problem").not_required();
  add_db_filter(command, options.get());
  command
      .add_option("--older-than", options->older_than,
                  "Only rows measured at least this many days ago")
      .between(1, 36500);
  command.add_flag("--dry-run", options->dry_run, "Show what would be deleted; delete nothing");
  command.callback([options, exit_code] { *exit_code = remove(*options); });
}

}  // namespace attune::cli
