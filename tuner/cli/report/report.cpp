// SPDX-License-Identifier: Apache-2.0
// `attune report`: shows a store, or the difference of two, as one HTML page. report_data.cpp
// reads, report_page.cpp writes, report/ draws. examples/guide/report.md explains the page.
#include <fmt/format.h>

#include <memory>

#include "generator/core/system/error.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/engine/options.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/cli/output/record_output.hpp"
#include "tuner/cli/report/report_data.hpp"
#include "tuner/cli/workload_options.hpp"

namespace attune::cli {
namespace {

struct Options {
  bool json = false;
  MachineOptions machine;
  WorkloadOptions model;
  std::string out;
  std::vector<std::string> diff;
  std::string peers;
};

Store existing(const std::filesystem::path& path) {
  auto store = Store::open_existing(path);
  if (!store)
    throw Error(ErrorCode::kStore,
                fmt::format("there is no store at {}; `attune tune` makes one", path.string()));
  return std::move(*store);
}

Json problem_row(const Engine& engine, const Problem& problem) {
  Json row{{"p", to_text(problem)}, {"name", short_text(problem)}};
  try {
    const Plan plan = engine.foresee(problem);
    row.update({{"rung", rung_name(plan.rung)},
                {"why", plan.why},
                {"tpl", plan.kernel_template->name()},
                {"cfg", plan.config.to_text()},
                {"us", plan.expected_us > 0 ? Json(plan.expected_us) : Json()}});
  } catch (const Error& error) {
    row.update({{"rung", nullptr}, {"why", error.what()}});
  }
  return row;
}

// Returns the kernels that run for a model on this machine, by kind of layer.
Json model_data(const Options& options) {
  const Engine engine(open_machine(options.machine.target), engine_options(options.machine));
  Workload workload =
      workload_of(options.model, engine.device().target(), engine.device().memory_bytes());
  note_slow_kernels(engine.device().archs().front(), &workload);
  Json kinds = Json::array();
  for (const LayerKind& kind : workload.layer_kinds) {
    Json problems = Json::array();
    for (const Problem& problem : kind.problems) problems.push_back(problem_row(engine, problem));
    kinds.push_back({{"name", kind.name},
                     {"layers", kind.layers},
                     {"problems", problems},
                     {"not_supported", kind.not_supported},
                     {"refused", kind.refused}});
  }
  return {{"name", workload.name},
          {"device", engine.device().identity().facts_title()},
          {"kinds", kinds},
          {"notes", workload.notes}};
}

Json head(const std::string& kind) {
  return {{"kind", kind}, {"made", utc_now()}, {"version", ATTUNE_VERSION}};
}

Json diff_data(const Options& options) {
  if (options.diff.size() != 2)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--diff names {} stores; must be two, the one before and the one "
                            "after",
                            options.diff.size()));
  if (!options.model.model.empty())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("MODEL is {}, and --diff is given; must be only one of them",
                            options.model.model));
  if (!options.peers.empty())
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--peers is {}, and --diff is given; must be only one of them", options.peers));
  Json data = head("diff");
  data["stores"] = options.diff;
  data.update(report_diff(existing(options.diff[0]), existing(options.diff[1])));
  return data;
}

Json store_data(const Options& options) {
  const std::filesystem::path path = options.machine.store_path();
  const Store store = existing(path);
  Json data = head("store");
  data["store"] = path.string();
  const PeerTimes peers = options.peers.empty() ? PeerTimes{} : read_peer_times(options.peers);
  data.update(report_data(store, peers));
  if (!options.peers.empty()) data["peers"] = {{"file", options.peers}, {"device", peers.device}};
  if (!options.model.model.empty()) data["model"] = model_data(options);
  return data;
}

int report(const Options& options) {
  if (const std::string given = first_given(options.model);
      options.model.model.empty() && !given.empty())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is given without MODEL; must be given with MODEL", given));
  const Json data = options.diff.empty() ? store_data(options) : diff_data(options);
  const std::string page = report_page(data);
  write_file(options.out, page);
  if (options.json)
    print_json("report", {{"file", options.out}, {"bytes", page.size()}});
  else
    print(fmt::format("wrote {} ({})\n", options.out,
                      format_bytes(static_cast<double>(page.size()))));
  return kOk;
}

}  // namespace

void add_report(Command program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  Command command = add_command(
      program, "report",
      "Write an HTML page about the tuned kernels: gains, certainty, age, failures, times",
      "attune report examples/models/Llama-3.1-8B/config.json --out report.html", &options->json);
  add_model_options(command, &options->model);
  command.add_option("--out", options->out, "HTML file to write").required();
  command
      .add_option("--diff", options->diff,
                  "Two stores, before and after: gains and losses of problems that both have")
      .values(2, 2);
  command.add_option(
      "--peers", options->peers,
      "JSON file with times of other libraries to show too, as tests/bench writes it");
  add_machine_options(command, &options->machine);
  command.callback([options, exit_code] { *exit_code = report(*options); });
}

}  // namespace attune::cli
