// SPDX-License-Identifier: Apache-2.0
// `attune explain`: shows which kernel a program in this environment would get for a problem, on
// which rung of the ladder, and why the other kernels do not serve. For a model, see
// explain_more.hpp. Compiles and launches nothing.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "generator/template_registry.hpp"
#include "runtime/engine/engine.hpp"
#include "runtime/engine/options.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/commands/explain_more.hpp"
#include "tuner/cli/kernel_choice.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/record_output.hpp"
#include "tuner/cli/program_options.hpp"

namespace attune::cli {
namespace {

struct Options {
  bool json = false;
  MachineOptions machine;
  WorkloadOptions model;  // MODEL and its options
  std::string problem;
  ProgramOptions programs;
  std::string policy;  // empty: from the environment
  std::string arch;    // of a GPU that need not be here; empty: this machine's
  bool all = false;    // lists templates of other ops and targets too
};

std::string layers_text(const EngineOptions& settings) {
  std::string text = fmt::format("policy     {}\n", policy_name(settings.policy));
  if (!settings.pin.empty()) text += fmt::format("pin file   {}\n", settings.pin.string());
  for (const std::filesystem::path& folder : settings.bundles)
    text += fmt::format("bundle     {}\n", folder.string());
  for (const std::filesystem::path& store : store_layers(settings)) {
    std::error_code failed;
    const bool there = std::filesystem::exists(store, failed);
    text += fmt::format("store      {}{}\n", store.string(),
                        failed  ? " (" + failed.message() + ")"
                        : there ? std::string()
                                : " (does not exist)");
  }
  if (!settings.use_store) text += "store      none\n";
  if (!settings.may_compile) text += "compiling  never (no_jit)\n";
  return text;
}

Json layers_json(const EngineOptions& settings) {
  Json bundles = Json::array(), stores = Json::array();
  for (const std::filesystem::path& folder : settings.bundles) bundles.push_back(folder.string());
  for (const std::filesystem::path& store : store_layers(settings))
    stores.push_back(store.string());
  return {{"policy", policy_name(settings.policy)},
          {"pin", settings.pin.string()},
          {"bundles", bundles},
          {"stores", stores},
          {"no_jit", !settings.may_compile}};
}

void check_subject(const Options& options) {
  const bool of_model = !options.model.model.empty();
  if (of_model == !options.problem.empty())
    throw Error(ErrorCode::kInvalidArgument, "give exactly one of MODEL and --problem");
  if (const std::string given = first_given(options.model); !of_model && !given.empty())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is given without MODEL; must be given with MODEL; with --problem, "
                            "write it into the problem's text",
                            given));
}

using Checks = std::vector<std::pair<std::string, std::optional<std::string>>>;

// Lists the templates of the problem's op and of this target, and counts the others.
std::string templates_text(const Checks& checks, Op op, Target target, bool all) {
  const auto is_near = [&](const std::string& name) {
    const KernelTemplate& one = template_by_name(name);
    const bool is_cpu = one.source_path().starts_with("cpu/");
    return all || (one.serves().op == op && is_cpu == (target == Target::kCpu));
  };
  size_t width = 0, others = 0;
  for (const auto& [name, reason] : checks)
    if (is_near(name))
      width = std::max(width, name.size());
    else
      ++others;
  std::string text = "\nTemplates:\n";
  for (const auto& [name, reason] : checks)
    if (is_near(name))
      text += fmt::format("  {:{}} {}\n", name, width, reason ? *reason : "serves this");
  if (others > 0)
    text += fmt::format("  {} more for other ops and targets (--all lists them)\n", others);
  return text;
}

int explain(const Options& options) {
  check_subject(options);
  const bool of_model = !options.model.model.empty();
  const Problem problem =
      of_model ? Problem{} : parse_problem_with(options.programs, options.problem);
  EngineOptions engine_settings = looking_options(options.machine);
  if (!options.policy.empty()) engine_settings.policy = parse_policy(options.policy);
  if (!options.arch.empty()) engine_settings.use_store = false;  // holds winners of other devices
  const Engine engine(options.arch.empty() ? open_machine(options.machine.target)
                                           : device_of_arch(arch_by_name(options.arch)),
                      engine_settings);
  if (of_model) {
    WorkloadOptions model = options.model;
    model.programs = options.programs;
    return explain_model(model, engine, options.json);
  }
  const auto checks = engine.check(problem);
  Plan plan = engine.foresee(problem);
  if (std::string text = untested_gpu_text(engine.device().identity()); !text.empty())
    plan.warnings.push_back(std::move(text));
  const More more = more_of(plan, store_layers(engine_settings));

  if (!options.json) {
    std::string text = plan.explain(problem) + more_text(more, plan) + layers_text(engine_settings);
    if (const std::string programs = program_texts(problem); !programs.empty())
      text += "\n" + programs;
    print(text + templates_text(checks, problem.op, plan.arch.target, options.all));
    return kOk;
  }
  Json templates = Json::array();
  for (const auto& [name, reason] : checks)
    templates.push_back(
        {{"name", name}, {"serves", !reason}, {"reason", reason ? Json(*reason) : Json(nullptr)}});
  Json body = {
      {"problem", to_text(problem)},
      {"same_as", to_text(plan.problem)},
      {"device", engine.device().identity().name},
      {"rung", rung_name(plan.rung)},
      {"why", plan.why},
      {"passed_over", plan.passed_over},
      {"warnings", plan.warnings},
      {"image_from", plan.image_from},
      {"compiled", plan.kernel != nullptr},
      {"settings", layers_json(engine_settings)},
      {"template", plan.kernel_template->name()},
      {"arch", plan.arch.name()},
      {"config", plan.config.to_text()},
      {"distance_octaves", plan.distance},
      {"expected_time_s", plan.expected_us > 0 ? Json(plan.expected_us * 1e-6) : Json(nullptr)},
      {"workspace_bytes", plan.workspace_bytes()},
      {"winner", plan.winner ? winner_json(*plan.winner) : Json(nullptr)},
      {"templates", templates}};
  body.update(more_json(more, plan));
  print_json("explain", body);
  return kOk;
}

}  // namespace

void add_explain(Command program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  Command command = add_command(
      program, "explain",
      "Show which kernel would run for a problem on this machine, and why the others would not",
      "attune explain --problem "
      "dtype=bf16,head_dim=128,heads=32/8,seqlen=4096,mask=causal_bottom_right",
      &options->json);
  add_model_options(command, &options->model);
  add_problem_option(command, &options->problem);
  command.option("--problem").not_required();
  add_program_options(command, &options->programs);
  command
      .add_option("--policy", options->policy,
                  "Kernels to accept: default (any), nearest (tuned for some shape of this kind of "
                  "problem) or strict (tuned for this shape or for similar lengths). Default: "
                  "$ATTUNE_POLICY, else default")
      .one_of({"default", "nearest", "strict"});
  command.add_option(
      "--arch", options->arch,
      "Explain for a GPU of this arch instead of this machine, without its store: " + arch_help());
  command.add_flag(
      "--all", options->all,
      "List the templates of other ops and targets too, and why they do not serve this problem");
  add_machine_options(command, &options->machine);
  command.callback([options, exit_code] { *exit_code = explain(*options); });
}

}  // namespace attune::cli
