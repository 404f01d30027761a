// SPDX-License-Identifier: Apache-2.0
// `attune explain`: which kernel would run for a problem here, on which rung of the ladder, and why
// not another; for a model, see explain_model.hpp. Compiles and launches nothing.
#include <fmt/format.h>

#include <memory>

#include "tuner/cli/command.hpp"
#include "tuner/cli/explain_model.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/record_output.hpp"

namespace attune::cli {
namespace {

struct Options {
  bool json = false;
  MachineOptions machine;
  WorkloadOptions model;  // MODEL and what goes with it
  std::string problem;
  std::string policy = "default";
};

int explain(const Options& options) {
  const bool of_model = !options.model.model.empty();
  if (of_model == !options.problem.empty())
    throw Error(ErrorCode::kInvalidArgument, "accepted is one of MODEL and --problem");
  const Problem problem = of_model ? Problem{} : parse_problem(options.problem);
  EngineOptions engine_settings = engine_options(options.machine);
  engine_settings.policy = parse_policy(options.policy);
  const Engine engine(open_machine(options.machine.target), engine_settings);
  if (of_model) return explain_model(options.model, engine, options.json);
  const auto checks = engine.check(problem);
  const Plan plan = engine.choose(problem);

  if (!options.json) {
    std::string text = plan.explain(problem) + "\nTemplates:\n";
    for (const auto& [name, reason] : checks)
      text += fmt::format("  {:16} {}\n", name, reason ? *reason : "serves this");
    print(text);
    return kOk;
  }
  Json templates = Json::array();
  for (const auto& [name, reason] : checks)
    templates.push_back(
        {{"name", name}, {"serves", !reason}, {"reason", reason ? Json(*reason) : Json(nullptr)}});
  print_json("explain", {{"problem", to_text(problem)},
                         {"same_as", to_text(plan.problem)},
                         {"device", engine.device().identity().name},
                         {"rung", rung_name(plan.rung)},
                         {"why", plan.why},
                         {"passed_over", plan.passed_over},
                         {"template", plan.kernel_template->name()},
                         {"arch", plan.arch.name()},
                         {"config", plan.config.to_text()},
                         {"distance_octaves", plan.distance},
                         {"expected_time_s",
                          plan.expected_us > 0 ? Json(plan.expected_us * 1e-6) : Json(nullptr)},
                         {"workspace_bytes", plan.workspace_bytes()},
                         {"winner", plan.winner ? winner_json(*plan.winner) : Json(nullptr)},
                         {"templates", templates}});
  return kOk;
}

}  // namespace

void add_explain(CLI::App& program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      program, "explain", "Say which kernel would run for a problem here, and why not another",
      "attune explain --problem "
      "dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right",
      &options->json);
  add_model_options(command, &options->model);
  add_problem_option(command, &options->problem);
  command->get_option("--problem")->required(false);
  command->add_option("--policy", options->policy, "Lowest rung to accept")
      ->check(CLI::IsMember({"default", "nearest", "strict"}))
      ->capture_default_str();
  add_machine_options(command, &options->machine);
  command->callback([options, exit_code] { *exit_code = explain(*options); });
}

}  // namespace attune::cli
