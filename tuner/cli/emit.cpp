// SPDX-License-Identifier: Apache-2.0
// `attune emit`: prints the rendered source, the PTX, the compiled image or the resources of one
// kernel, for any arch; needs no GPU. The source needs no compiler either.
#include <fmt/format.h>

#include <memory>

#include "generator/core/visibility.hpp"
#include "generator/nvrtc_compiler.hpp"
#include "generator/renderer.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/file.hpp"
#include "tuner/cli/kernel_choice.hpp"
#include "tuner/cli/output.hpp"
#include "tuner/cli/source_header.hpp"

namespace attune::cli {
namespace {

struct Options {
  bool json = false;
  std::string problem;
  std::string arch = "auto";
  std::string template_name;
  std::string config;
  std::string what = "source";
  std::string out;
};

Json facts(const KernelChoice& choice) {
  return {{"template", choice.kernel_template->name()},
          {"arch", choice.arch.name()},
          {"spec", to_text(choice.spec)},
          {"config", choice.config.to_text()}};
}

Json resources_json(const KernelChoice& choice, const KernelImage& image) {
  const Resources expected =
      choice.kernel_template->resources(choice.spec, choice.arch, choice.config);
  Json body = facts(choice);
  body["compiler_log"] = image.log;
  body["compile_time_s"] = image.compile_ms * 1e-3;
  body["image_bytes"] = image.bytes.size();
  body["threads"] = expected.threads;
  body["shared_bytes"] = expected.shared_bytes;
  body["static_shared_bytes"] = image.info.static_shared_bytes;
  body["registers"] = image.info.registers;
  body["stack_bytes"] = image.info.stack_bytes;
  body["spill_store_bytes"] = image.info.spill_store_bytes;
  body["spill_load_bytes"] = image.info.spill_load_bytes;
  const auto fault = image_fault(image.info);
  body["fault"] = fault ? Json(*fault) : Json(nullptr);
  return body;
}

std::string resources_text(const Json& body) {
  std::string text;
  const auto value_text = [](const Json& value) {
    if (value.is_string()) return value.get<std::string>();
    return value.is_null() || (value.is_number_integer() && value < 0) ? std::string("-")
                                                                       : value.dump();
  };
  for (const auto& [name, value] : body.items())
    if (name != "compiler_log") text += fmt::format("{:20} {}\n", name, value_text(value));
  return text;
}

// What goes to stdout or --out as it is.
std::string artefact(const Options& options, const Problem& problem, const KernelChoice& choice,
                     const Source& source) {
  if (options.what == "source") {
    const std::string config_from =
        options.config.empty() ? "the default" : "the default but for --config";
    const bool is_cuda = choice.arch.target == Target::kCuda;
    const std::string file = options.out.empty()
                                 ? std::string(is_cuda ? "kernel.cu" : "kernel.cpp")
                                 : std::filesystem::path(options.out).filename().string();
    return with_header(source.text, problem, choice, config_from, file);
  }
  if (options.what == "ptx") {
    if (choice.arch.target != Target::kCuda)
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("--what is \"ptx\", but the arch is {}; PTX exists for CUDA archs only",
                      choice.arch.name()));
    return nvrtc_ptx(source, choice.arch);
  }
  return compiler_for(choice.arch).compile(source, choice.arch).bytes;
}

int emit(const Options& options) {
  const Problem problem = canonical(parse_problem(options.problem));
  const KernelChoice choice = choose_kernel(problem, arch_by_name(options.arch),
                                            options.template_name, options.config);
  const Source source = render(*choice.kernel_template, choice.spec, choice.arch, choice.config);
  if (options.what == "resources") {
    const Json body =
        resources_json(choice, compiler_for(choice.arch).compile(source, choice.arch));
    options.json ? print_json("emit", body) : print(resources_text(body));
    return kOk;
  }
  const std::string bytes = artefact(options, problem, choice, source);
  if (!options.out.empty()) write_file(options.out, bytes);
  if (options.json) {
    Json body = facts(choice);
    body["what"] = options.what;
    body["bytes"] = bytes.size();
    if (!options.out.empty()) body["out"] = options.out;
    if (options.out.empty() && options.what != "image") body["text"] = bytes;
    print_json("emit", body);
  } else if (options.out.empty()) {
    print(bytes);
  }
  return kOk;
}

}  // namespace

void add_emit(CLI::App& program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      program, "emit",
      "Print the source, PTX, image or resources of one kernel, for any arch, without a GPU",
      "attune emit --problem "
      "dtype=bf16,head_dim=128,heads=32/8,seqlen=2048,mask=causal_bottom_right --arch sm_80",
      &options->json);
  add_problem_option(command, &options->problem);
  command->add_option("--arch", options->arch, "sm_75 ... sm_121, cpu, or auto: this machine's")
      ->capture_default_str();
  command->add_option("--template", options->template_name,
                      "Template (default: the best that serves)");
  command->add_option("--config", options->config,
                      "Knobs that differ from the default, knob=value,...");
  command->add_option("--what", options->what, "What to print")
      ->check(CLI::IsMember({"source", "ptx", "image", "resources"}))
      ->capture_default_str();
  command->add_option("--out", options->out, "File to write instead of stdout");
  command->callback([options, exit_code] { *exit_code = emit(*options); });
}

}  // namespace attune::cli
