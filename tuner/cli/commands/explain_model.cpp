// SPDX-License-Identifier: Apache-2.0
// Lists the problems of a model with their rungs; see explain_more.hpp. Compiles and launches
// nothing.
#include "tuner/cli/commands/explain_more.hpp"

#include <fmt/format.h>

#include "tuner/cli/command.hpp"
#include "tuner/cli/machine.hpp"

namespace attune::cli {
namespace {

Json choice_json(const Engine& engine, const Problem& problem) {
  try {
    const Plan plan = engine.foresee(problem);
    return {{"problem", to_text(problem)},
            {"rung", rung_name(plan.rung)},
            {"why", plan.why},
            {"template", plan.kernel_template->name()},
            {"config", plan.config.to_text()}};
  } catch (const Error& error) {
    const ErrorCode code = error.code();  // a program would get this error for the problem, too
    if (code != ErrorCode::kNotTuned && code != ErrorCode::kUnsupported &&
        code != ErrorCode::kWouldCompile && code != ErrorCode::kCompile)
      throw;
    return {{"problem", to_text(problem)},
            {"rung", nullptr},
            {"why", error.what()},
            {"template", nullptr},
            {"config", nullptr}};
  }
}

std::string choice_text(const Engine& engine, const Problem& problem) {
  const Json choice = choice_json(engine, problem);
  if (choice.at("rung").is_null()) return choice.at("why").get<std::string>();
  return fmt::format("{}, {}", choice.at("rung").get<std::string>(),
                     choice.at("template").get<std::string>());
}

}  // namespace

int explain_model(const WorkloadOptions& options, const Engine& engine, bool json) {
  Workload workload =
      workload_of(options, engine.device().target(), engine.device().memory_bytes());
  note_slow_kernels(engine.device().archs().front(), &workload);
  if (const std::string text = untested_gpu_text(engine.device().identity()); !text.empty())
    add_note(text, &workload);
  if (!json) {
    print(workload_text(workload,
                        [&](const Problem& problem) { return choice_text(engine, problem); }));
    return kOk;
  }
  Json problems = Json::array();
  for (const Problem& problem : workload.problems) problems.push_back(choice_json(engine, problem));
  Json body{{"device", engine.device().identity().name}, {"problems", problems}};
  body.update(workload_json(workload));
  print_json("explain", body);
  return kOk;
}

}  // namespace attune::cli
