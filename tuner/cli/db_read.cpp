// SPDX-License-Identifier: Apache-2.0
// `attune db ls | show | stats`: what was tried, how fast, how sure, and why the winner is one.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "generator/core/error.hpp"
#include "generator/core/visibility.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/db_commands.hpp"
#include "tuner/cli/record_output.hpp"

namespace attune::cli {
namespace {

bool matches(const DbOptions& options, const DeviceIdentity& device,
             const ToolchainIdentity& toolchain) {
  return device.digest().rfind(options.device, 0) == 0 &&
         (options.template_name.empty() || options.template_name == toolchain.template_name);
}

std::vector<WinnerRecord> winners_of(const DbOptions& options) {
  std::vector<WinnerRecord> winners;
  for (WinnerRecord& winner : open_db(options).all_winners())
    if (matches(options, winner.device, winner.toolchain)) winners.push_back(std::move(winner));
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
  Table table({"device", "problem", "template", "config", "tuned", "gain", "effort", "measured"});
  for (const WinnerRecord& winner : winners)
    table.add({winner.device.title(), to_text(problem_of(winner.spec, winner.shape)),
               winner.toolchain.template_name,
               winner.config.to_text() + (winner.pinned ? " (pinned)" : ""),
               format_time(winner.timing.median_us),
               gain_text(winner.timing, winner.default_timing), effort_name(winner.effort),
               winner.created.substr(0, 10)});
  print(table.empty() ? std::string("no winner in this store\n") : table.text());
  return kOk;
}

Json trial_json(const StoredTrial& row) {
  const TrialRecord& trial = row.trial;
  Json body{{"device", row.key.device.name},
            {"policy", row.key.policy.text},
            {"template", trial.toolchain.template_name},
            {"compiler", trial.toolchain.compiler},
            {"arch", trial.arch},
            {"config", trial.config.to_text()},
            {"is_default", trial.is_default},
            {"status", trial_status_name(trial.status)},
            {"reason", trial.reason},
            {"effort", effort_name(trial.effort)},
            {"error_max", trial.error_max},
            {"error_mean", trial.error_mean},
            {"registers", trial.info.registers},
            {"shared_bytes", trial.shared_bytes},
            {"driver", trial.driver},
            {"created", trial.created}};
  if (trial.status == TrialStatus::kOk) body["timing"] = timing_json(trial.timing);
  return body;
}

// Whether rows of this spec and shape are of the problem, in whatever form they were stored.
bool is_of(const Problem& problem, const KernelSpec& spec, const Shape& shape) {
  return to_text(shape) == to_text(shape_of(problem)) &&
         spec_of(canonical(problem_of(spec, shape))) == spec_of(canonical(problem));
}

// Of the problem, on any device; fastest first, failed last.
std::vector<StoredTrial> trials_of(const Store& store, const DbOptions& options,
                                   const Problem& problem) {
  std::vector<StoredTrial> rows;
  for (StoredTrial& row : store.all_trials())
    if (is_of(problem, row.key.spec, row.key.shape) &&
        matches(options, row.key.device, row.trial.toolchain))
      rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const StoredTrial& a, const StoredTrial& b) {
    const auto rank = [](const StoredTrial& row) {
      return std::pair(row.trial.status != TrialStatus::kOk, row.trial.timing.median_us);
    };
    return rank(a) < rank(b);
  });
  return rows;
}

void print_trials(const std::vector<StoredTrial>& rows) {
  Table table({"template", "arch", "config", "time", "95 % interval", "samples", "error",
               "registers", "result"});
  for (const StoredTrial& row : rows) {
    const TrialRecord& t = row.trial;
    const bool ok = t.status == TrialStatus::kOk;
    table.add(
        {t.toolchain.template_name, t.arch, t.config.to_text() + (t.is_default ? " (default)" : ""),
         ok ? format_time(t.timing.median_us) : "-",
         ok ? fmt::format("{} .. {}", format_time(t.timing.lo_us), format_time(t.timing.hi_us))
            : "-",
         ok ? std::to_string(t.timing.samples) : "-", ok ? fmt::format("{:.2f}", t.error_max) : "-",
         t.info.registers >= 0 ? std::to_string(t.info.registers) : "-",
         ok ? "ok" : fmt::format("{}: {}", trial_status_name(t.status), t.reason)});
  }
  print(table.text());
}

int show(const DbOptions& options, const std::string& problem_text) {
  const Problem problem = parse_problem(problem_text);
  const Store store = open_db(options);
  const auto rows = trials_of(store, options, problem);
  if (rows.empty())
    throw Error(ErrorCode::kNotTuned,
                fmt::format("{} has no trial of {}; `attune db ls` lists what was tuned",
                            options.path().string(), to_text(problem)));
  std::vector<WinnerRecord> winners;
  for (const WinnerRecord& winner : store.all_winners())
    if (is_of(problem, winner.spec, winner.shape) &&
        matches(options, winner.device, winner.toolchain))
      winners.push_back(winner);
  if (options.json) {
    Json trials = Json::array();
    for (const StoredTrial& row : rows) trials.push_back(trial_json(row));
    Json chosen = Json::array();
    for (const WinnerRecord& winner : winners) chosen.push_back(winner_json(winner));
    print_json("db.show", {{"problem", to_text(problem)}, {"winners", chosen}, {"trials", trials}});
    return kOk;
  }
  for (const WinnerRecord& winner : winners)
    print(fmt::format("{}: {} {}: {} ({} candidates, {} effort, {})\n", winner.device.title(),
                      winner.toolchain.template_name, winner.config.to_text(), winner.why,
                      winner.candidates, effort_name(winner.effort), winner.created));
  print("error: largest against the oracle, in units of what is allowed\n");
  print_trials(rows);
  return kOk;
}

int stats(const DbOptions& options) {
  const StoreStats stats = open_db(options).stats();
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

void add_db_ls(CLI::App* db, int* exit_code) {
  const auto options = std::make_shared<DbOptions>();
  CLI::App* command = add_db_command(db, "ls", "List the winners",
                                     "attune db ls --template prefill_sm90", options.get());
  add_db_filter(command, options.get());
  command->callback([options, exit_code] { *exit_code = ls(*options); });
}

void add_db_show(CLI::App* db, int* exit_code) {
  const auto options = std::make_shared<DbOptions>();
  const auto problem = std::make_shared<std::string>();
  CLI::App* command = add_db_command(
      db, "show", "List every trial of one problem, with the winner and why it is one",
      "attune db show --problem "
      "dtype=fp32,head_dim=128,heads=32/8,seqlen=1024,mask=causal_bottom_right",
      options.get());
  add_problem_option(command, problem.get());
  add_db_filter(command, options.get());
  command->callback([options, problem, exit_code] { *exit_code = show(*options, *problem); });
}

void add_db_stats(CLI::App* db, int* exit_code) {
  const auto options = std::make_shared<DbOptions>();
  CLI::App* command = add_db_command(db, "stats", "Count what is in the store",
                                     "attune db stats --json", options.get());
  command->callback([options, exit_code] { *exit_code = stats(*options); });
}

}  // namespace attune::cli
