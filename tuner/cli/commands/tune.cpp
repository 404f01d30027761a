// SPDX-License-Identifier: Apache-2.0
// `attune tune`: makes and measures kernels for the problems of a model or a list, and stores every
// trial. It measures in a child process (tuner/measure/isolated_backend.hpp), one tune per device
// (tuner/measure/device_lock.hpp). Ctrl-C, SIGTERM, a hang-up and the end of the budget keep all
// measured results.
#include <fmt/format.h>

#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <memory>

#include "cache/winner_rule.hpp"
#include "generator/core/system/environment.hpp"
#include "generator/core/system/error.hpp"
#include "generator/template_registry.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/cli/output/progress_line.hpp"
#include "tuner/cli/output/record_output.hpp"
#include "tuner/cli/workload_options.hpp"
#include "tuner/measure/isolated_backend.hpp"
#include "tuner/search/search.hpp"
#include "tuner/search/shard.hpp"
#include "tuner/search/tune_loop.hpp"

namespace attune::cli {
namespace {

struct Options : RunOptions {
  std::string effort = "normal";
  std::string budget;
  double wait_s = kDeviceWaitS;
  bool refresh = false;
  bool retry_failed = false;
  bool dry_run = false;
  int jobs = 0;
  int verify = 0;
  std::string shard;
  std::string trace;  // file
  int replicate = 1;
};

std::atomic<int> interrupted{0};  // the signal
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler writes it");

// The first Ctrl-C ends the tune in good order; a second one ends the program.
void on_signal(int signal) {
  interrupted = signal;
  std::signal(signal, SIG_DFL);
}

// SIGTERM and SIGHUP end the tune likewise, unless nohup has SIGHUP ignored.
void stop_on_signals() {
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  if (std::signal(SIGHUP, on_signal) == SIG_IGN) std::signal(SIGHUP, SIG_IGN);
}

Effort effort_of(const std::string& name) {
  return name == "quick"    ? Effort::kQuick
         : name == "normal" ? Effort::kNormal
                            : Effort::kExhaustive;
}

// Parses "90", "90s", "10m" or "1h". Returns 0 for an empty text: then the effort decides.
double seconds_of(const std::string& text) {
  if (text.empty()) return 0;
  constexpr double kMost = 1e7;
  const char unit = text.back();
  const double factor = unit == 'm' ? 60 : unit == 'h' ? 3600 : 1;
  const bool has_unit = unit == 'm' || unit == 'h' || unit == 's';
  const char* const end = text.data() + text.size() - (has_unit ? 1 : 0);
  double value = 0;
  const auto [at, error] = std::from_chars(text.data(), end, value);
  const double seconds = value * factor;
  if (error != std::errc() || at != end || !(seconds > 0) || seconds > kMost)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--budget is \"{}\"; must be a time above 0, as in 90, 90s, 10m or 1h, "
                            "and at most {:.0f}s",
                            text, kMost));
  return seconds;
}

void show(ProgressLine* line, const Progress& now) {
  std::vector<std::string> parts{fmt::format("{}/{}", now.shape + 1, now.num_shapes),
                                 fmt::format("{} tried", now.tried)};
  if (now.budget_s > 0)
    parts.push_back(fmt::format("{:.0f} s left", std::max(0.0, now.budget_s - now.elapsed_s)));
  parts.push_back(short_text(now.problem));
  if (now.best_us > 0) parts.push_back(fmt::format("best {}", format_time(now.best_us)));
  if (now.best_us > 0 && now.default_us > 0)
    parts.push_back(fmt::format("default {}", format_time(now.default_us)));
  parts.push_back(now.phase);
  line->show(now.budget_s > 0 ? now.elapsed_s / now.budget_s : 0, parts);
}

// True if the same command would continue the search. Without --budget, a search that ended with
// its default budget counts as complete, because the effort promises no more.
bool is_partial(const TuneReport& report, bool budget_given) {
  return report.interrupted ||
         std::any_of(report.shapes.begin(), report.shapes.end(), [&](const ShapeReport& shape) {
           if (shape.winner) return budget_given && !shape.complete;
           return !shape.complete && !is_lost(shape, report);
         });
}

Json report_json(const TuneReport& report, const Device& device, const std::filesystem::path& store,
                 bool budget_given) {
  Json shapes = Json::array();
  for (const ShapeReport& shape : report.shapes) {
    size_t failed = 0;
    for (const TrialRecord& trial : shape.trials)
      failed += trial.status == TrialStatus::kOk ? 0 : 1;
    shapes.push_back({{"problem", to_text(shape.problem)},
                      {"winner", shape.winner ? winner_json(*shape.winner) : Json(nullptr)},
                      {"trials", shape.trials.size()},
                      {"failed_trials", failed},
                      {"measured", shape.measured},
                      {"reused", shape.reused},
                      {"complete", shape.complete},
                      {"already_tuned", shape.already_tuned},
                      {"noisy", shape.winner ? Json(is_noisy(*shape.winner)) : Json(nullptr)},
                      {"note", shape.note},
                      {"error", shape.error.has_value()},
                      {"time_s", shape.seconds}});
  }
  return {{"device", device_json(device)},
          {"store", store.string()},
          {"stored", report.stored},
          {"interrupted", report.interrupted},
          {"partial", is_partial(report, budget_given)},
          {"compiled", report.compiled},
          {"time_s", report.seconds},
          {"budget_s", report.budget_s},
          {"shapes", shapes}};
}

std::string report_text(const TuneReport& report, const Device& device,
                        const std::filesystem::path& store) {
  Table table({"problem", "template", "config", "tuned", "default", "gain", "tried", "note"});
  for (const ShapeReport& shape : report.shapes) {
    const std::string tried = std::to_string(shape.trials.size());
    if (!shape.winner) {
      table.add({short_text(shape.problem), "-", "-", "-", "-", "-", tried, shape.note});
      continue;
    }
    const WinnerRecord& winner = *shape.winner;
    std::string note = shape.already_tuned ? "tuned before" : winner.why;
    if (!shape.note.empty()) note += "; " + shape.note;
    table.add({short_text(shape.problem), winner.toolchain.template_name, winner.config.to_text(),
               time_text(winner.timing), time_text(winner.default_timing),
               gain_text(winner.timing, winner.default_timing), tried, note});
  }
  std::string text = fmt::format("{}\n{}", device.identity().name, table.text());
  text += fmt::format(
      "{} shapes, {} kernels compiled, {:.1f} s; {}\n", report.shapes.size(), report.compiled,
      report.seconds,
      report.stored ? "stored in " + store.string() : "not stored: the store cannot be written");
  if (report.interrupted) text += "interrupted: the same command continues from here\n";
  return text;
}

// Returns the exit code. A shape that has no winner although its search is complete has no working
// kernel. After a signal, returns what a shell gives for it: 130 for Ctrl-C.
int exit_code_for(const TuneReport& report, bool budget_given) {
  constexpr int kSignals = 128;
  if (report.interrupted && interrupted != 0) return kSignals + interrupted;
  for (const ShapeReport& shape : report.shapes) {
    if (!shape.winner && shape.complete) return kNotSupported;
    if (is_lost(shape, report) && !report.interrupted) return exit_code_of(*shape.error);
  }
  if (is_partial(report, budget_given)) return kPartial;
  return report.stored ? kOk : kStorage;
}

// Prints a line for each finished shape. Used if stderr is not a terminal: then there is no
// progress line, and the lines show progress in a log.
void print_finished(const ShapeReport& shape, size_t index, size_t num_shapes) {
  std::string text =
      fmt::format("attune: {}/{} {}: ", index + 1, num_shapes, short_text(shape.problem));
  if (shape.winner)
    text += fmt::format("{}, default {}, ", time_text(shape.winner->timing),
                        time_text(shape.winner->default_timing));
  text += shape.already_tuned
              ? "tuned before"
              : fmt::format("{} tried, {:.1f} s", shape.trials.size(), shape.seconds);
  if (!shape.note.empty()) text += "; " + shape.note;
  print_notice(text);
}

// Returns "quick 10 s, normal 11 s (each further length or batch 7 s), exhaustive 3600 s".
std::string default_budgets() {
  std::string text;
  for (const Effort effort : {Effort::kQuick, Effort::kNormal, Effort::kExhaustive}) {
    const EffortPlan plan = effort_plan(effort);
    text += fmt::format("{}{} {:g} s", text.empty() ? "" : ", ", effort_name(effort),
                        plan.budget_s_first);
    if (plan.budget_s_more != plan.budget_s_first)
      text += fmt::format(" (each further length or batch {:g} s)", plan.budget_s_more);
  }
  return text;
}

TuneOptions settings_of(const Options& options) {
  TuneOptions settings;
  settings.effort = effort_of(options.effort);
  settings.budget_s = seconds_of(options.budget);
  settings.seed = options.seed;
  settings.refresh = options.refresh;
  settings.retry_failed = options.retry_failed;
  settings.compile_threads = options.jobs;
  settings.stop = [] { return interrupted != 0; };
  return settings;
}

TuneReport run_tune(TuneOptions settings, const std::vector<Problem>& problems,
                    const TuneTarget& target, MeasureBackend& backend, Store* store) {
  ProgressLine line;
  if (line.active())
    settings.progress = [&](const Progress& now) { show(&line, now); };
  else
    settings.finished = print_finished;
  return tune(target, backend, store, problems, settings);
}

int show_workload(const Options& options, const Workload& workload) {
  const TunePreview all = preview(workload.problems, effort_of(options.effort));
  const double given_s = seconds_of(options.budget);
  const double budget_s = given_s > 0 ? given_s : all.budget_s;
  if (!options.json) {
    print(workload_text(workload) +
          fmt::format("{} shape{} to tune: up to {:.0f} s{}\n", all.num_shapes,
                      all.num_shapes == 1 ? "" : "s", budget_s,
                      given_s > 0 ? "" : fmt::format(" with --effort {}", options.effort)));
    return kOk;
  }
  Json problems = Json::array();
  for (const Problem& problem : workload.problems) problems.push_back(to_text(problem));
  Json body{{"dry_run", true},
            {"problems", problems},
            {"num_shapes", all.num_shapes},
            {"budget_s", budget_s}};
  body.update(workload_json(workload));
  print_json("tune", body);
  return kOk;
}

// Keeps only the shard's problems, and reports which shard it is. A shard may have no problem.
void take_shard(const Options& options, Workload* workload) {
  if (options.shard.empty()) {
    if (options.replicate != 1)
      throw Error(ErrorCode::kInvalidArgument,
                  "--replicate is given without --shard; must be given with --shard");
    return;
  }
  const Shard shard = parse_shard(options.shard, environment_variable);
  const size_t all = workload->problems.size();
  workload->problems = problems_of_shard(workload->problems, shard, options.replicate);
  print_notice(fmt::format("attune: shard {} of {}: {} of {} problems", shard.index, shard.count,
                           workload->problems.size(), all));
}

int tune_command(const Options& options) {
  seconds_of(options.budget);
  if (options.verify < 0)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--verify is {}; must be at least 0 (0: off)", options.verify));
  read_stored_programs(options.machine, options.workload.problems);
  Workload workload = workload_of(options);
  if (workload.decodes)
    add_note("decoding, chunks and appends of an engine are not tuned; --serving tunes those",
             &workload);
  take_shard(options, &workload);
  if (options.dry_run) return show_workload(options, workload);
  require_programs(workload.problems);
  const auto device = open_machine(options.machine.target);
  note_slow_kernels(device->archs().front(), &workload);
  const std::vector<Problem>& problems = workload.problems;
  const std::filesystem::path path = options.machine.store_path();
  Store store = Store::open(path, StoreMode::kReadWrite);
  const KernelTemplate* only =
      options.template_name.empty() ? nullptr : &template_by_name(options.template_name);
  const DeviceTarget target(device, only);
  IsolatedBackend backend(own_worker_command(options.machine.target, *device));
  stop_on_signals();
  const DeviceLock device_lock =
      lock_device(*device, options.wait_s, [] { return interrupted != 0; });
  TuneTrace trace;
  TuneOptions settings = settings_of(options);
  if (!options.trace.empty()) {
    write_file(options.trace, trace.json());  // fails now, not after a tune of an hour
    settings.trace = &trace;
  }
  if (interrupted == 0) note_if_busy(*device);
  const TuneReport report = run_tune(settings, problems, target, backend, &store);
  if (settings.trace != nullptr) write_file(options.trace, trace.json());
  std::vector<WinnerCheck> repeats;
  if (options.verify > 0)
    repeats =
        verify_winners(target, backend, &store, problems, settings_of(options), options.verify);
  if (options.json) {
    Json body = report_json(report, *device, path, !options.budget.empty());
    if (options.verify > 0) body["verify"] = repeats_json(repeats);
    body.update(workload_json(workload));
    print_json("tune", body);
  } else {
    print(report_text(report, *device, path) +
          (options.verify > 0 ? repeats_text(repeats) : std::string()));
  }
  return exit_code_for(report, !options.budget.empty());
}

}  // namespace

void add_tune(Command program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  Command command = add_run_command(
      program, "tune",
      "Compile and measure kernels on this machine; store every trial and the winners",
      "attune tune examples/models/Llama-3.1-8B/config.json --seqlen 1024,4096 --effort quick",
      "Tune this template only, such as prefill_sm80 (default: all that serve the problem)",
      options.get());
  command
      .add_option("--effort", options->effort,
                  "How thoroughly to search. A result of a higher effort replaces one of a lower "
                  "effort. Without --budget, a problem may take: " +
                      default_budgets())
      .one_of({"quick", "normal", "exhaustive"})
      .shows_default();
  command.add_option(
      "--budget", options->budget,
      fmt::format("Time limit for everything, compiling included: 90, 90s, 10m, 1h (default: by "
                  "effort). At the limit, measured results are kept, the exit code is 6, and the "
                  "same command continues from there. A measuring process that hangs is killed "
                  "{:g} s later. Waiting for another tune on the device (--wait) does not count",
                  kGraceSeconds));
  add_wait_option(command, &options->wait_s);
  add_jobs_option(command, &options->jobs);
  command
      .add_option("--verify", options->verify,
                  "Afterwards, repeat each final race this many times in fresh processes. Report "
                  "how often another kernel would win (flips), and how much slower the winner is "
                  "than the fastest (regret)")
      .shows_default();
  command.add_option("--shard", options->shard,
                     "Tune one part of the problems: I/N, or env for the variables of Slurm, "
                     "torchrun or MPI, or env/N for Kubernetes' JOB_COMPLETION_INDEX. Give each "
                     "shard its own store, and join the stores with `attune db merge`");
  command
      .add_option(
          "--replicate", options->replicate,
          "With --shard: number of shards that tune each problem, to see how well devices agree")
      .shows_default();
  command.add_option("--trace", options->trace,
                     "File for a timeline of compiling, checking and timing, for Perfetto "
                     "(ui.perfetto.dev) or chrome://tracing");
  command.add_flag("--dry-run", options->dry_run,
                   "Show the problems by kind of layer; measure nothing");
  command.add_flag("--refresh", options->refresh,
                   "Time the best tuned kernels again, for example after a driver update");
  command.add_flag("--retry-failed", options->retry_failed,
                   "Try candidates again that failed before");
  command.callback([options, exit_code] { *exit_code = tune_command(*options); });
}

}  // namespace attune::cli
