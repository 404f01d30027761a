// SPDX-License-Identifier: Apache-2.0
// `attune models`: lists the model types whose config.json `attune tune MODEL` reads.
#include <fmt/format.h>

#include <memory>

#include "tuner/cli/command.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/models/config_parts.hpp"
#include "tuner/models/model_table.hpp"

namespace attune::cli {
namespace {

// Returns what attune leaves out of such a model; empty if it tunes all attention.
std::string left_out(const ModelRow& row) {
  std::string text(row.not_supported);
  if (!row.not_tuned.empty()) text += fmt::format("{}{}", text.empty() ? "" : "; ", row.not_tuned);
  return text;
}

int models(bool as_json) {
  Json list = Json::array();
  Table table({"type", "read as", "not supported"});
  const auto add = [&](const std::string& type, std::string_view reading, std::string_view defaults,
                       const std::string& lacks) {
    list.push_back({{"type", type},
                    {"reading", std::string(reading)},
                    {"defaults", Json::parse(defaults.empty() ? "{}" : defaults)},
                    {"tuned", reading != reading_name(Reading::kNotCovered)},
                    {"not_supported", lacks.empty() ? Json(nullptr) : Json(lacks)}});
    table.add({type, std::string(reading), lacks.empty() ? "-" : lacks});
  };
  for (const ModelRow* row : all_model_rows())
    for_each_part(row->types, ' ', [&](std::string_view type) {
      add(std::string(type), reading_name(row->reading), row->defaults, left_out(*row));
    });
  for (const std::string& name : diffusion_classes()) add(name, "diffusers network", "", "");
  as_json ? print_json("models", {{"models", list}}) : print(table.text());
  return kOk;
}

}  // namespace

void add_models(Command program, int* exit_code) {
  const auto json = std::make_shared<bool>(false);
  Command command =
      add_command(program, "models", "List the model types whose config.json attune reads",
                  "attune models --json", json.get());
  command.callback([json, exit_code] { *exit_code = models(*json); });
}

}  // namespace attune::cli
