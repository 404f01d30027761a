// SPDX-License-Identifier: Apache-2.0
// `attune version`: prints the version of the program, its templates and the formats it writes.
#include <fmt/core.h>

#include <memory>

#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/output/output.hpp"

namespace attune::cli {
namespace {

int version(bool json) {
  Json templates = Json::array();
  std::string text = fmt::format("attune {}\n", ATTUNE_VERSION);
  for (const KernelTemplate* one : all_templates()) {
    templates.push_back(
        {{"name", one->name()}, {"digest", template_digest(*one)}, {"source", one->source_path()}});
    text += fmt::format("  {:16} {}\n", one->name(), template_digest(*one));
  }
  json ? print_json("version", {{"version", ATTUNE_VERSION}, {"templates", templates}})
       : print(text);
  return kOk;
}

}  // namespace

void add_version(Command program, int* exit_code) {
  const auto json = std::make_shared<bool>(false);
  Command command =
      add_command(program, "version", "Print the version and the digests of the templates",
                  "attune version --json", json.get());
  command.callback([json, exit_code] { *exit_code = version(*json); });
}

}  // namespace attune::cli
