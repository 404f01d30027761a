// SPDX-License-Identifier: Apache-2.0
// From the workload options to problems; reading models and captures is tuner/workload.hpp.
#include "tuner/cli/workload_options.hpp"

#include <fmt/format.h>

#include "generator/core/error.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/output.hpp"
#include "tuner/workload.hpp"

namespace attune::cli {

void add_workload_options(CLI::App* command, WorkloadOptions* options) {
  command->add_option("MODEL", options->model, "A Hugging Face config.json, or its folder");
  add_problem_option(command, &options->problems);
  command->add_option("--captured", options->captured,
                      "Problems written by a program run with ATTUNE_CAPTURE=FILE");
  command->add_option("--seqlen", options->seqlens, "Lengths, a list such as 512,2048");
  command->add_option("--batch", options->batches, "Batch sizes, a list");
  command->add_option("--dtype", options->dtypes, "Types, a list of bf16, fp16, fp32, e4m3");
  command->add_option("--accuracy", options->accuracy,
                      "Of 8-bit operands: accurate (default) or fast");
  command->add_option("--v-layout", options->v_layout,
                      "Of 8-bit operands: rows (default) or transposed");
  command->add_option("--scale-block", options->scale_block,
                      "Of 8-bit operands: rows that share a factor (default: all of a head)");
}

namespace {

Fp8Options fp8_options(const WorkloadOptions& options) {
  Fp8Options chosen;
  if (!options.accuracy.empty()) chosen.accuracy = parse_accuracy(options.accuracy);
  if (!options.v_layout.empty()) chosen.v_layout = parse_v_layout(options.v_layout);
  chosen.scale_block_q = chosen.scale_block_kv = options.scale_block;
  return chosen;
}

// Options that would change nothing are a mistake.
void check_fp8_options(const Fp8Options& chosen, const std::vector<Problem>& problems) {
  if (chosen == Fp8Options{}) return;
  for (const Problem& problem : problems)
    if (is_fp8(problem)) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      "--accuracy, --v-layout or --scale-block is given, but no problem has 8-bit operands; "
      "accepted are these with --dtype e4m3");
}

// " fast V^T blocks 64/128"
std::string fp8_text(const Problem& problem) {
  const Fp8Options& fp8 = problem.fp8;
  std::string text;
  if (problem.op == Op::kQuantise) text += fmt::format(" to {}", dtype_name(problem.dtype_o));
  if (fp8.accuracy == Accuracy::kFast) text += " fast";
  if (fp8.v_layout == VLayout::kTransposed)
    text += problem.op == Op::kQuantise ? " transposed" : " V^T";
  if (fp8.scale_block_q > 0 || fp8.scale_block_kv > 0)
    text += fp8.scale_block_q == fp8.scale_block_kv
                ? fmt::format(" blocks {}", fp8.scale_block_q)
                : fmt::format(" blocks {}/{}", fp8.scale_block_q, fp8.scale_block_kv);
  if (fp8.rotation == Rotation::kHadamard) text += " hadamard";
  return text;
}

}  // namespace

std::vector<Problem> problems_of(const WorkloadOptions& options, Target target) {
  const ShapeChoice choice{parse_length_list("--seqlen", options.seqlens),
                           parse_length_list("--batch", options.batches),
                           parse_dtype_list(options.dtypes), fp8_options(options)};
  std::vector<Workload> parts;
  if (!options.model.empty()) parts.push_back(workload_from_model(options.model, choice, target));
  if (!options.problems.empty()) parts.push_back(workload_from_problems(options.problems, choice));
  if (!options.captured.empty()) parts.push_back(workload_from_capture(options.captured));
  if (parts.empty())
    throw Error(
        ErrorCode::kInvalidArgument,
        "no problem was given; accepted are a model's config.json, --problem and --captured");
  Workload workload = join(std::move(parts));
  for (const std::string& note : workload.notes) print_notice("attune: note: " + note);
  if (workload.problems.empty())
    throw Error(ErrorCode::kInvalidArgument, "the workload holds no problem");
  check_fp8_options(choice.fp8, workload.problems);
  return std::move(workload.problems);
}

CLI::App* add_run_command(CLI::App& program, const std::string& name, const std::string& what,
                          const std::string& example, const std::string& template_help,
                          RunOptions* options) {
  CLI::App* command = add_command(program, name, what, example, &options->json);
  add_workload_options(command, &options->workload);
  add_machine_options(command, &options->machine);
  command->add_option("--template", options->template_name, template_help);
  command->add_option("--seed", options->seed, "Of inputs and of every random choice")
      ->capture_default_str();
  return command;
}

std::string short_text(const Problem& problem) {
  const auto same_or_both = [](int64_t a, int64_t b) {
    return a == b ? std::to_string(a) : fmt::format("{}x{}", a, b);
  };
  std::string text = fmt::format("{} d{} {}/{} heads, {} x {}", dtype_name(problem.dtype_q),
                                 same_or_both(problem.head_dim_qk, problem.head_dim_v),
                                 problem.num_heads_q, problem.num_heads_kv, problem.batch,
                                 same_or_both(problem.seqlen_q, problem.seqlen_kv));
  if (problem.mask != Mask::kNone) text += " causal";
  if (problem.mask == Mask::kCausalTopLeft) text += " top left";
  if (problem.window_left >= 0 || problem.window_right >= 0) {
    const auto side = [](int64_t value) {
      return value < 0 ? std::string("-") : std::to_string(value);
    };
    text += fmt::format(" window {}:{}", side(problem.window_left), side(problem.window_right));
  }
  if (is_fp8(problem)) text += fp8_text(problem);
  return text;
}

}  // namespace attune::cli
