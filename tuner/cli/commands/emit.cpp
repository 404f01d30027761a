// SPDX-License-Identifier: Apache-2.0
// `attune emit`: prints one kernel for any arch, without a GPU: its rendered source, its PTX, its
// compiled image, its resources, or a page of all these. The source needs no compiler either.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "cache/store.hpp"
#include "generator/compile/nvrtc_compiler.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/json_text.hpp"
#include "generator/render/renderer.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/kernel_choice.hpp"
#include "tuner/cli/machine.hpp"
#include "tuner/cli/output/emit_page.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/cli/program_options.hpp"

namespace attune::cli {
namespace {

struct Options {
  bool json = false;
  std::string problem;
  ProgramOptions programs;
  std::string archs = "auto";
  std::string template_name;
  std::string config;
  bool tuned = false;
  bool html = false;
  std::string store;
  std::string what = "source";
  std::string out;
};

// One kernel to emit.
struct Request {
  Problem problem;
  KernelChoice choice;
  std::string config_from;  // "the default"
  std::string device;       // its facts choose defaults and grid
  std::string out;          // file; empty: stdout
};

Json facts(const Request& request) {
  return {{"template", request.choice.kernel_template->name()},
          {"arch", request.choice.arch.name()},
          {"problem", to_text(request.problem)},
          {"config", request.choice.config.to_text()},
          {"config_from", request.config_from},
          {"device", request.device}};
}

// Returns the stored winner of the problem's spec and shape on `arch`, from any device.
WinnerRecord stored_winner(const Options& options, const Problem& problem, const Arch& arch) {
  MachineOptions machine;
  machine.store = options.store;
  const std::filesystem::path path = machine.store_path();
  if (const auto store = Store::open_existing(path))
    for (WinnerRecord& winner : store->all_winners())
      if (to_text(winner.spec) == to_text(spec_of(problem)) &&
          to_text(winner.shape) == to_text(shape_of(problem)) && winner.arch == arch.name() &&
          (options.template_name.empty() ||
           options.template_name == winner.toolchain.template_name))
        return std::move(winner);
  throw Error(ErrorCode::kNotTuned, fmt::format("--tuned is given, but {} has no winner for {} on "
                                                "{}; `attune db ls` lists what was tuned",
                                                path.string(), to_text(problem), arch.name()));
}

Request request_for(const Options& options, const Problem& problem, const NamedArch& named) {
  const Arch& arch = named.arch;
  if (!options.tuned) {
    const FactsSource source = facts_for(named);
    return {problem,
            choose_kernel(problem, arch, source.facts, options.template_name, options.config),
            options.config.empty() ? "the default" : "the default, changed by --config",
            source.text, options.out};
  }
  const WinnerRecord winner = stored_winner(options, problem, arch);
  return {problem,
          choose_kernel(problem, arch, winner.device.facts(), winner.toolchain.template_name,
                        winner.config.to_text()),
          fmt::format("the winner of {} on {}", winner.created.substr(0, 10), winner.device.name),
          winner.device.facts_title(), options.out};
}

Json resources_json(const Request& request, const KernelImage& image) {
  const KernelChoice& choice = request.choice;
  const Resources expected =
      choice.kernel_template->resources(choice.spec, choice.arch, choice.config);
  Json body = facts(request);
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

std::string value_text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() || (value.is_number_integer() && value < 0) ? std::string("-")
                                                                     : to_json_text(value);
}

std::string resources_text(const Json& body) {
  std::string text;
  for (const auto& [name, value] : body.items())
    if (name != "compiler_log") text += fmt::format("{:20} {}\n", name, value_text(value));
  return text;
}

// Returns a page with source and machine code side by side. For CUDA without a disassembler, PTX
// replaces the machine code.
std::string page_of(const Request& request, const Source& source) {
  const KernelChoice& choice = request.choice;
  const KernelImage image = compiler_for(choice.arch).compile(source, choice.arch);
  EmitPage page{
      .title = fmt::format("{} for {}", choice.kernel_template->name(), choice.arch.name()),
      .compiler_log = image.log,
      .source = source.text};
  const Json known = facts(request), all = resources_json(request, image);
  for (const auto& [name, value] : all.items())
    if (known.contains(name))
      page.facts.emplace_back(name, value_text(value));
    else if (name != "compiler_log")
      page.resources.emplace_back(name, value.is_number_float()
                                            ? fmt::format("{:.3g}", value.get<double>())
                                            : value_text(value));
  if (const auto text = disassemble(image.bytes, choice.arch)) {
    page.code_title = fmt::format("Machine code, by {}", text->tool);
    page.code = text->text;
  } else if (choice.arch.target == Target::kCuda) {
    page.code_title = "PTX (neither nvdisasm nor cuobjdump was found)";
    page.code = nvrtc_ptx(source, choice.arch);
  } else {
    page.code_title = "No machine code (neither objdump nor llvm-objdump was found)";
  }
  return to_html(page);
}

// Returns the bytes that go to stdout or --out unchanged.
std::string artefact(const Options& options, const Request& request, const Source& source) {
  const KernelChoice& choice = request.choice;
  const bool is_cuda = choice.arch.target == Target::kCuda;
  if (options.what == "source") {
    const std::string file = request.out.empty()
                                 ? std::string(is_cuda ? "kernel.cu" : "kernel.cpp")
                                 : std::filesystem::path(request.out).filename().string();
    return with_header(source, request.problem, choice, request.config_from, request.device, file);
  }
  if (options.what == "html") return page_of(request, source);
  if (options.what == "ptx") {
    if (!is_cuda)
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("--what is \"ptx\", but the arch is {}; PTX exists for CUDA archs only",
                      choice.arch.name()));
    return nvrtc_ptx(source, choice.arch);
  }
  return compiler_for(choice.arch).compile(source, choice.arch).bytes;
}

// Writes or prints one kernel; returns its part of the --json output.
Json emit_one(const Options& options, const Request& request) {
  const KernelChoice& choice = request.choice;
  const Source source = render(*choice.kernel_template, choice.spec, choice.arch, choice.config);
  if (options.what == "resources") {
    Json body = resources_json(request, compiler_for(choice.arch).compile(source, choice.arch));
    if (!request.out.empty()) {
      write_file(request.out, resources_text(body));
      body["out"] = request.out;
    } else if (!options.json) {
      print(resources_text(body) + "\n");
    }
    return body;
  }
  const std::string bytes = artefact(options, request, source);
  if (!request.out.empty()) write_file(request.out, bytes);
  Json body = facts(request);
  body["what"] = options.what;
  body["bytes"] = bytes.size();
  if (!request.out.empty()) body["out"] = request.out;
  if (request.out.empty() && options.what != "image") body["text"] = bytes;
  if (!options.json && request.out.empty()) print_bytes(bytes);
  return body;
}

// Returns a file in the folder --out: with several archs, each gets its own file.
std::string file_of(const Options& options, const Request& request) {
  const bool is_cuda = request.choice.arch.target == Target::kCuda;
  const char* suffix = options.what == "source"      ? (is_cuda ? "cu" : "cpp")
                       : options.what == "ptx"       ? "ptx"
                       : options.what == "html"      ? "html"
                       : options.what == "resources" ? "txt"
                       : is_cuda                     ? "cubin"
                                                     : "o";
  std::string arch = request.choice.arch.name();
  std::replace(arch.begin(), arch.end(), ':', '_');
  const std::string name =
      fmt::format("{}_{}.{}", request.choice.kernel_template->name(), arch, suffix);
  return (std::filesystem::path(options.out) / name).string();
}

void check_place(const Options& options, size_t num_archs) {
  if (!options.out.empty() || options.json || options.what == "resources") return;
  if (num_archs > 1)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--arch names {} archs; must be one, unless --out FOLDER (a file for "
                            "each) or --what resources is given",
                            num_archs));
  if (options.what == "image" && ::isatty(STDOUT_FILENO) == 1)
    throw Error(ErrorCode::kInvalidArgument,
                "--what is \"image\", and stdout is a terminal; give --out FILE, or redirect "
                "stdout to a file or pipe");
}

int emit(const Options& options) {
  MachineOptions machine;
  machine.store = options.store;
  read_stored_programs(machine, {options.problem});
  const Problem problem = canonical(parse_problem_with(options.programs, options.problem));
  const std::vector<NamedArch> archs = archs_by_name(options.archs);
  check_place(options, archs.size());
  Json kernels = Json::array();
  for (const NamedArch& arch : archs) {
    Request request = request_for(options, problem, arch);
    if (archs.size() > 1 && !options.out.empty()) request.out = file_of(options, request);
    kernels.push_back(emit_one(options, request));
  }
  if (!options.json) return kOk;
  print_json("emit", archs.size() == 1 ? kernels[0] : Json{{"kernels", kernels}});
  return kOk;
}

}  // namespace

void add_emit(Command program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  Command command = add_command(
      program, "emit",
      "Print the source, PTX, image or resources of one kernel, for any arch, without a GPU",
      "attune emit --problem "
      "dtype=bf16,head_dim=128,heads=32/8,seqlen=2048,mask=causal_bottom_right --arch sm_80",
      &options->json);
  add_problem_option(command, &options->problem);
  add_program_options(command, &options->programs);
  command
      .add_option("--arch", options->archs,
                  "all (every CUDA arch), or a list separated by commas: " + arch_help())
      .shows_default();
  command.add_option("--template", options->template_name,
                     "Kernel template (default: the best that serves the problem)");
  const Option config = command.add_option("--config", options->config,
                                           "Knobs that differ from the default, knob=value,...");
  command
      .add_flag("--tuned", options->tuned,
                "Use the stored winner of this problem on that arch, not the template's default")
      .excludes(config);
  command.add_option("--store", options->store,
                     "Store for --tuned (default: $ATTUNE_STORE, else ~/.cache/attune/store.db)");
  Option what = command.add_option("--what", options->what, "What to print");
  what.one_of({"source", "ptx", "image", "resources", "html"}).shows_default();
  command
      .add_flag("--html", options->html,
                "Same as --what html: a page that shows the source and its machine code")
      .excludes(what);
  command.add_option("--out", options->out,
                     "File to write instead of stdout; with several archs a folder");
  command.callback([options, exit_code] {
    if (options->html) options->what = "html";
    *exit_code = emit(*options);
  });
}

}  // namespace attune::cli
