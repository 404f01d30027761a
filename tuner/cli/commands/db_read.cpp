// SPDX-License-Identifier: Apache-2.0
// `attune db ls | stats`: lists the winners, and counts the store's contents.
#include <fmt/format.h>

#include <memory>

#include "tuner/cli/command.hpp"
#include "tuner/cli/commands/db_commands.hpp"
#include "tuner/cli/output/record_output.hpp"

namespace attune::cli {
namespace {

std::vector<WinnerRecord> winners_of(const DbOptions& options) {
  std::vector<WinnerRecord> winners = open_db(options).all_winners();
  std::erase_if(winners, [&](const WinnerRecord& winner) {
    return !matches(options, winner.device, winner.toolchain);
  });
  return winners;
}

int ls(const DbOptions& options) {
  const auto winners = winners_of(options);
  if (options.json) {
    Json list = Json::array();
    for (const WinnerRecord& winner : winners) list.push_back(winner_json(winner));
    print_json("db.ls", {{"store", options.path().string()}, {"winners", list}});
    return kOk;
  }
  Table table({"problem", "device", "template", "config", "tuned", "gain", "effort", "measured"});
  for (const WinnerRecord& winner : winners)
    table.add({to_text(problem_of(winner.spec, winner.shape)), winner.device.title(),
               winner.toolchain.template_name,
               winner.config.to_text() + (winner.pinned ? " (pinned)" : ""),
               time_text(winner.timing), gain_text(winner.timing, winner.default_timing),
               effort_name(winner.effort), winner.created.substr(0, 10)});
  print(table.empty() ? std::string("this store has no winners\n") : table.text());
  return kOk;
}

int stats(const DbOptions& options, bool prom) {
  const Store store = open_db(options);
  const StoreStats stats = store.stats();
  if (prom) {
    print(prometheus_text(options.path().string(), stats, store.all_winners()));
    return kOk;
  }
  if (options.json) {
    print_json("db.stats", {{"store", options.path().string()},
                            {"schema_version", stats.schema_version},
                            {"devices", stats.devices},
                            {"problems", stats.problems},
                            {"winners", stats.winners},
                            {"trials", stats.trials},
                            {"failed_trials", stats.failed_trials},
                            {"images", stats.images},
                            {"image_bytes", stats.image_bytes},
                            {"file_bytes", stats.file_bytes}});
    return kOk;
  }
  print(
      fmt::format("store     {}, schema {}, {}\nproblems  {} on {} devices\nwinners   {}\ntrials   "
                  " {}, {} of them failed\n"
                  "images    {}, {}\n",
                  options.path().string(), stats.schema_version,
                  format_bytes(static_cast<double>(stats.file_bytes)), stats.problems,
                  stats.devices, stats.winners, stats.trials, stats.failed_trials, stats.images,
                  format_bytes(static_cast<double>(stats.image_bytes))));
  return kOk;
}

}  // namespace

void add_db_ls(Command db, int* exit_code) {
  const auto options = std::make_shared<DbOptions>();
  Command command = add_db_command(db, "ls", "List the winners",
                                   "attune db ls --template prefill_sm90", options.get());
  add_db_filter(command, options.get());
  command.callback([options, exit_code] { *exit_code = ls(*options); });
}

void add_db_stats(Command db, int* exit_code) {
  const auto options = std::make_shared<DbOptions>();
  Command command = add_db_command(db, "stats", "Count the rows and images of the store",
                                   "attune db stats --json", options.get());
  const auto prom = std::make_shared<bool>(false);
  command
      .add_flag("--prom", *prom,
                "Print gauges in Prometheus' text format, as its textfile collector reads them")
      .excludes(command.option("--json"));
  command.callback([options, prom, exit_code] { *exit_code = stats(*options, *prom); });
}

}  // namespace attune::cli
