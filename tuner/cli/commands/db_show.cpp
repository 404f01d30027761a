// SPDX-License-Identifier: Apache-2.0
// `attune db show`: lists every trial of one problem by the race that timed it. Times of one race
// are comparable. Times of two races are not, because they were taken at different moments. The
// final race comes first, with its winner.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>

#include "cache/winner_rule.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/foreign_text.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/commands/db_commands.hpp"
#include "tuner/cli/output/record_output.hpp"
#include "tuner/cli/program_options.hpp"

namespace attune::cli {
namespace {

struct Row {
  StoredTrial stored;
  bool in_final = false;
  bool is_winner = false;
  int round = 0;  // round of exploring, from 1 in order of time; 0 for the final race and failures
};

// The trials of one device under one measuring policy.
struct Group {
  DeviceIdentity device;
  std::string policy;
  std::optional<WinnerRecord> winner;
  std::vector<Row> rows;
};

bool is_same(const TrialRecord& trial, const WinnerRecord& winner, const Config& config) {
  return trial.arch == winner.arch && trial.config == config &&
         trial.toolchain.digest() == winner.toolchain.digest();
}

// Sets each row's race. Trials of one race were stored with the same time; trials of the final race
// have their winner's time. Older stores lack this. For these, only the winner and the default are
// known to have been in the final race.
void place_rows(Group* group) {
  std::map<std::string, int> rounds;
  for (Row& row : group->rows) {
    const TrialRecord& trial = row.stored.trial;
    if (const auto& winner = group->winner) {
      row.is_winner = is_same(trial, *winner, winner->config);
      row.in_final = row.is_winner || trial.created == winner->created ||
                     (trial.is_default && is_same(trial, *winner, winner->default_config));
    }
    if (trial.status != TrialStatus::kOk) row.in_final = false;
    if (!row.in_final && trial.status == TrialStatus::kOk) rounds[trial.created] = 0;
  }
  int number = 0;
  for (auto& [created, round] : rounds) round = ++number;
  for (Row& row : group->rows)
    if (!row.in_final && row.stored.trial.status == TrialStatus::kOk)
      row.round = rounds.at(row.stored.trial.created);
}

// Sorts the final race first, then the rounds of exploring from last to first, then failures.
void sort_rows(std::vector<Row>* rows) {
  const auto rank = [](const Row& row) {
    const bool failed = row.stored.trial.status != TrialStatus::kOk;
    return std::tuple(failed, !row.in_final, -row.round, row.stored.trial.timing.median_us);
  };
  std::stable_sort(rows->begin(), rows->end(),
                   [&](const Row& a, const Row& b) { return rank(a) < rank(b); });
}

std::vector<Group> groups_of(const Store& store, const DbOptions& options, const Problem& problem) {
  std::map<std::string, Group> groups;
  for (StoredTrial& row : store.all_trials()) {
    if (!is_of(problem, row.key.spec, row.key.shape) ||
        !matches(options, row.key.device, row.trial.toolchain))
      continue;
    Group& group = groups[row.key.device.digest() + row.key.policy.text];
    group.device = row.key.device;
    group.policy = row.key.policy.text;
    group.rows.push_back({std::move(row)});
  }
  // The store lists pinned and best winners first, so the first winner found is the one that runs.
  for (WinnerRecord& winner : store.all_winners()) {
    const auto group = groups.find(winner.device.digest() + winner.policy.text);
    if (group == groups.end() || group->second.winner ||
        !is_of(problem, winner.spec, winner.shape) ||
        !matches(options, winner.device, winner.toolchain))
      continue;
    group->second.winner = std::move(winner);
  }
  std::vector<Group> all;
  for (auto& [unused, group] : groups) {
    place_rows(&group);
    sort_rows(&group.rows);
    all.push_back(std::move(group));
  }
  return all;
}

Json trial_json(const Row& row) {
  const TrialRecord& trial = row.stored.trial;
  Json body{{"device", row.stored.key.device.name},
            {"policy", row.stored.key.policy.text},
            {"template", trial.toolchain.template_name},
            {"compiler", trial.toolchain.compiler},
            {"arch", trial.arch},
            {"config", trial.config.to_text()},
            {"is_default", trial.is_default},
            {"is_winner", row.is_winner},
            {"in_final", row.in_final},
            {"round", row.round},
            {"status", trial_status_name(trial.status)},
            {"reason", trial.reason},
            {"effort", effort_name(trial.effort)},
            {"error_max", trial.error_max},
            {"error_mean", trial.error_mean},
            {"registers", trial.info.registers},
            {"shared_bytes", trial.shared_bytes},
            {"driver", trial.conditions.driver},
            {"power_limit_w", power_limit_json(trial.conditions)},
            {"created", trial.created}};
  if (trial.status == TrialStatus::kOk) body["timing"] = timing_json(trial.timing);
  return body;
}

std::string config_text(const Row& row) {
  return row.stored.trial.config.to_text() + (row.stored.trial.is_default ? " (default)" : "");
}

std::string interval_text(const Timing& timing) {
  return fmt::format("{} .. {}{}", format_time(timing.lo_us), format_time(timing.hi_us),
                     is_noisy(timing) ? " noisy" : "");
}

std::string final_text(const Group& group) {
  Table table({"", "over default", "time", "95 % interval", "samples", "error", "registers",
               "template", "arch", "config"});
  const WinnerRecord& winner = *group.winner;
  for (const Row& row : group.rows) {
    if (!row.in_final) continue;
    const TrialRecord& t = row.stored.trial;
    // In an older store, a trial's timing may be from exploring. The winner's record has the final
    // race's timing.
    const Timing& timing = row.is_winner ? winner.timing : t.timing;
    table.add({row.is_winner ? "winner" : "", gain_text(timing, winner.default_timing),
               format_time(timing.median_us), interval_text(timing), std::to_string(timing.samples),
               fmt::format("{:.2f}", t.error_max),
               t.info.registers >= 0 ? std::to_string(t.info.registers) : "-",
               t.toolchain.template_name, t.arch, config_text(row)});
  }
  return fmt::format(
      "Final race of {}: kernels were timed in turn, so these times are comparable\n{}",
      winner.created, table.text());
}

// Returns a table of at most `limit` rows; 0: all.
std::string explored_text(const Group& group, int limit) {
  Table table({"round", "slower than best", "time", "samples", "error", "registers", "template",
               "arch", "config"});
  int round = 0;
  double best_us = 0;
  int shown = 0, left = 0;
  for (const Row& row : group.rows) {
    const TrialRecord& t = row.stored.trial;
    if (row.round == 0) continue;
    if (row.round != round) best_us = t.timing.median_us;  // the first row of its round
    round = row.round;
    if (limit > 0 && shown == limit) {
      ++left;
      continue;
    }
    ++shown;
    table.add(
        {std::to_string(round), fmt::format("{:.1f} %", 100 * (t.timing.median_us / best_us - 1)),
         time_text(t.timing), std::to_string(t.timing.samples), fmt::format("{:.2f}", t.error_max),
         t.info.registers >= 0 ? std::to_string(t.info.registers) : "-", t.toolchain.template_name,
         t.arch, config_text(row)});
  }
  if (table.empty()) return "";
  return "Explored: compare times only within a round; rounds were measured at different "
         "moments\n" +
         table.text() +
         (left > 0 ? fmt::format("{} more rows; all are shown without --limit\n", left) : "");
}

std::string failed_text(const Group& group) {
  Table table({"status", "template", "arch", "config", "reason"});
  for (const Row& row : group.rows)
    if (const TrialRecord& t = row.stored.trial; t.status != TrialStatus::kOk)
      table.add({trial_status_name(t.status), t.toolchain.template_name, t.arch, config_text(row),
                 t.reason});
  return table.empty() ? "" : "Failed\n" + table.text();
}

std::string group_text(const Group& group, int limit) {
  std::string text = group.device.title();
  if (group.winner)
    text += fmt::format(": {} of {} candidates, {} effort{}", one_line(group.winner->why),
                        group.winner->candidates, effort_name(group.winner->effort),
                        group.winner->pinned ? ", pinned" : "");
  else
    text += ": no winner yet";
  text += "\nerror: the largest error against the oracle, divided by the allowed error\n";
  for (const std::string& part : {group.winner ? final_text(group) : std::string(),
                                  explored_text(group, limit), failed_text(group)})
    if (!part.empty()) text += "\n" + part;
  return text;
}

int show(const DbOptions& options, const std::string& problem_text, int limit) {
  if (limit < 0)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--limit is {}; must be at least 0 (0: all rows)", limit));
  const Problem problem = parse_problem(problem_text, TextLengths::kRequired, TextFiles::kRead);
  const std::vector<Group> groups = groups_of(open_db(options), options, problem);
  if (groups.empty())
    throw Error(ErrorCode::kNotTuned,
                fmt::format("{} has no trial of {}; `attune db ls` lists what was tuned",
                            options.path().string(), to_text(problem)));
  if (!options.json) {
    std::string text;
    for (const Group& group : groups) text += (text.empty() ? "" : "\n") + group_text(group, limit);
    if (const std::string programs = program_texts(problem); !programs.empty())
      text += "\n" + programs;
    print(text);
    return kOk;
  }
  Json winners = Json::array(), trials = Json::array();
  for (const Group& group : groups) {
    if (group.winner) winners.push_back(winner_json(*group.winner));
    for (const Row& row : group.rows) trials.push_back(trial_json(row));
  }
  print_json("db.show", {{"problem", to_text(problem)}, {"winners", winners}, {"trials", trials}});
  return kOk;
}

}  // namespace

bool is_of(const Problem& problem, const KernelSpec& spec, const Shape& shape) {
  return to_text(shape) == to_text(shape_of(problem)) &&
         spec_of(canonical(problem_of(spec, shape))) == spec_of(canonical(problem));
}

void add_db_show(Command db, int* exit_code) {
  const auto options = std::make_shared<DbOptions>();
  const auto problem = std::make_shared<std::string>();
  const auto limit = std::make_shared<int>(0);
  Command command =
      add_db_command(db, "show", "List every trial of one problem, with the winner and why it won",
                     "attune db show --problem "
                     "dtype=fp32,head_dim=128,heads=32/8,seqlen=1024,mask=causal_bottom_right",
                     options.get());
  add_problem_option(command, problem.get());
  command.add_option("--limit", *limit,
                     "Number of explored rows to show, from the last round on (default: all)");
  add_db_filter(command, options.get());
  command.callback(
      [options, problem, limit, exit_code] { *exit_code = show(*options, *problem, *limit); });
}

}  // namespace attune::cli
