// SPDX-License-Identifier: Apache-2.0
// Turns workload options into problems; for models and captures see tuner/models/workload.hpp.
#include "tuner/cli/workload_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "generator/core/system/error.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/kernel_choice.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/models/workload.hpp"

namespace attune::cli {

void add_workload_options(Command command, WorkloadOptions* options) {
  add_model_options(command, options);
  add_problem_option(command, &options->problems);
  command
      .add_option("--captured", options->captured,
                  "File of problems that a program captured with ATTUNE_CAPTURE=FILE, or a folder "
                  "with such files (*.jsonl); may be given several times. Counts are added up, and "
                  "lengths of one bucket are merged")
      .repeated();
  command
      .add_option("--top", options->top,
                  "With --captured: keep this many buckets, those with the longest time")
      .positive();
  command.add_flag(
      "--training", options->training,
      "Add the backward pass of every problem: gradients of q, k and v, and of biases and sinks");
  command.add_option("--dropout", options->dropout, "With --training: dropout probability");
  command.add_flag("--deterministic", options->deterministic,
                   "With --training: gradients with the same bits in every run");
  add_program_options(command, &options->programs);
}

void add_serving_options(Command command, WorkloadOptions* options) {
  command.add_flag("--serving", options->serving,
                   "For MODEL's decoders, what an engine calls instead of plain prefill: decoding, "
                   "drafted tokens, chunks, packed prompts, appends. --batch: requests that decode "
                   "together");
  command.add_option("--kv-lengths", options->kv_lengths,
                     "With --serving: keys of a request, a list (default: those of 1024, 8192 and "
                     "32768 whose caches fit the device)");
  command
      .add_option("--page-size", options->page_size,
                  "With --serving: keys per page of the caches (default: 16; latent caches 64)")
      .positive();
  command
      .add_option("--max-batch-tokens", options->max_batch_tokens,
                  "With --serving: rows of a step with prompts (default: 8192, on a CPU 64)")
      .positive();
  command
      .add_option("--tensor-parallel", options->tensor_parallel,
                  "With --serving: GPUs that share the heads of each layer; tunes for one of them")
      .positive();
  command.add_option(
      "--kv-dtype", options->kv_dtype,
      "With --serving: dtype of the caches, such as e4m3 or int4 (default: the config's)");
}

void add_model_options(Command command, WorkloadOptions* options) {
  command.add_option("MODEL", options->model,
                     "A Hugging Face config.json, its folder, or a name such as "
                     "meta-llama/Llama-3.2-1B that is in the Hugging Face cache");
  command.add_option(
      "--as", options->read_as,
      "Read MODEL as this model_type, instead of the config's own: llama, bert, t5, ...");
  command.add_option("--seqlen", options->seqlens, "Sequence lengths, a list such as 512,2048");
  command.add_option("--batch", options->batches, "Batch sizes, a list");
  command.add_flag("--padded", options->padded,
                   "For MODEL's encoders: batches with padding (key_lengths=1)");
  command.add_option("--dtype", options->dtypes, "Dtypes, a list of bf16, fp16, fp32, e4m3");
  command.add_option(
      "--accuracy", options->accuracy,
      "Arithmetic for 8-bit and fp32 operands: accurate (default), fast or, for fp32 only, split");
  command.add_option("--v-layout", options->v_layout,
                     "Layout of V for 8-bit operands: rows (default) or transposed");
  command.add_option(
      "--scale-block", options->scale_block,
      "For 8-bit operands: number of rows that share a scale factor (default: all rows of a head)");
  add_serving_options(command, options);
}

namespace {

Fp8Options fp8_options(const WorkloadOptions& options) {
  Fp8Options chosen;
  if (!options.accuracy.empty()) chosen.accuracy = parse_accuracy(options.accuracy);
  if (!options.v_layout.empty()) chosen.v_layout = parse_v_layout(options.v_layout);
  chosen.scale_block_q = chosen.scale_block_kv = options.scale_block;
  return chosen;
}

// Throws if the options would change no problem.
void check_fp8_options(const Fp8Options& chosen, const std::vector<Problem>& problems) {
  if (chosen == Fp8Options{}) return;
  Fp8Options of_fp32;
  of_fp32.accuracy = chosen.accuracy;
  for (const Problem& problem : problems)
    if (is_8_bit(problem) || (problem.dtype_q == Dtype::kFp32 && chosen == of_fp32)) return;
  const bool only_accuracy = chosen == of_fp32;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is given, but no problem has 8-bit operands; must be given with "
                          "--dtype e4m3{}",
                          only_accuracy                       ? "--accuracy"
                          : chosen.v_layout != VLayout::kRows ? "--v-layout"
                                                              : "--scale-block",
                          only_accuracy ? " or fp32" : ""));
}

// Returns the first option that is given without --serving, or "".
std::string first_of_serving(const WorkloadOptions& options) {
  if (!options.kv_lengths.empty()) return "--kv-lengths";
  if (options.page_size != 0) return "--page-size";
  if (options.max_batch_tokens != 0) return "--max-batch-tokens";
  if (options.tensor_parallel != 0) return "--tensor-parallel";
  return options.kv_dtype.empty() ? "" : "--kv-dtype";
}

std::optional<ServingChoice> serving_of(const WorkloadOptions& options, int64_t memory_bytes) {
  if (!options.serving) {
    if (const std::string given = first_of_serving(options); !given.empty())
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} is given without --serving; must be given with it", given));
    return std::nullopt;
  }
  if (options.model.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "--serving is given without MODEL; must be given with MODEL, or as op=... in "
                "--problem");
  if (options.training)
    throw Error(ErrorCode::kInvalidArgument,
                "--serving and --training are given; must be one of them, because an engine "
                "computes no gradients");
  ServingChoice serving;
  serving.batches = parse_length_list("--batch", options.batches);
  serving.kv_lengths = parse_length_list("--kv-lengths", options.kv_lengths);
  serving.page_size = options.page_size;
  serving.max_batch_tokens = options.max_batch_tokens;
  serving.tensor_parallel = std::max(options.tensor_parallel, 1);
  if (!options.kv_dtype.empty()) {
    try {
      serving.dtype_kv = parse_dtype(options.kv_dtype);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("--kv-dtype: {}", error.what()));
    }
  }
  serving.memory_bytes = memory_bytes;
  return serving;
}

}  // namespace

Workload workload_of(const WorkloadOptions& options, Target target, int64_t memory_bytes) {
  const ShapeChoice choice{parse_length_list("--seqlen", options.seqlens),
                           parse_length_list("--batch", options.batches),
                           parse_dtype_list(options.dtypes),
                           fp8_options(options),
                           options.padded,
                           !options.accuracy.empty(),
                           !options.v_layout.empty(),
                           giver_of(options.programs),
                           serving_of(options, memory_bytes)};
  if (!options.read_as.empty() && options.model.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "--as is given without MODEL; must be given with MODEL");
  const bool has_shapes =
      !options.seqlens.empty() || !options.batches.empty() || !options.dtypes.empty();
  if (has_shapes && options.model.empty() && options.problems.empty() && !options.captured.empty())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is given with --captured alone; must be given with MODEL or "
                            "--problem, because captured problems have their own",
                            !options.seqlens.empty()   ? "--seqlen"
                            : !options.batches.empty() ? "--batch"
                                                       : "--dtype"));
  if (options.top != 0 && options.captured.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "--top is given without --captured; must be given with it");
  if (options.padded && options.model.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "--padded is given without MODEL; must be given with MODEL, or as key_lengths=1 "
                "in --problem");
  std::vector<Workload> parts;
  if (!options.model.empty())
    parts.push_back(workload_from_model(options.model, choice, target, options.read_as));
  if (!options.problems.empty()) parts.push_back(workload_from_problems(options.problems, choice));
  if (!options.captured.empty()) {
    parts.push_back(workload_from_captures({options.captured.begin(), options.captured.end()},
                                           target, options.top));
    for (Problem& problem : parts.back().problems) choice.complete(&problem);
  }
  if (parts.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "no problem is given; give a model's config.json, --problem or --captured");
  Workload workload = join(parts);
  if (options.training)
    add_training({static_cast<float>(options.dropout), options.deterministic}, &workload);
  if (!options.training && options.dropout != 0)
    throw Error(ErrorCode::kInvalidArgument,
                "--dropout is given without --training; must be given with --training, or as "
                "dropout=N in --problem");
  if (!options.training && options.deterministic)
    throw Error(ErrorCode::kInvalidArgument,
                "--deterministic is given without --training; must be given with --training, or "
                "as deterministic=1 in --problem with op attention_backward");
  if (options.tells_notes)
    for (const std::string& note : workload.notes) print_notice("attune: note: " + note);
  if (workload.problems.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "the model, texts or captures given contain no problem");
  check_fp8_options(choice.fp8, workload.problems);
  return workload;
}

std::string first_given(const WorkloadOptions& options) {
  if (!options.read_as.empty()) return "--as";
  if (!options.seqlens.empty()) return "--seqlen";
  if (!options.batches.empty()) return "--batch";
  if (!options.dtypes.empty()) return "--dtype";
  if (!options.accuracy.empty()) return "--accuracy";
  if (!options.v_layout.empty()) return "--v-layout";
  if (options.scale_block != 0) return "--scale-block";
  if (options.padded) return "--padded";
  if (options.serving) return "--serving";
  if (const std::string given = first_of_serving(options); !given.empty()) return given;
  if (!options.programs.score_mod.empty()) return "--score-mod";
  return options.programs.mask_mod.empty() ? "" : "--mask-mod";
}

bool has_problems(const WorkloadOptions& options) {
  return !options.problems.empty() || !options.model.empty() || !options.captured.empty();
}

void add_note(const std::string& text, Workload* workload) {
  print_notice("attune: note: " + text);
  workload->notes.push_back(text);
}

void note_slow_kernels(const Arch& arch, Workload* workload) {
  for (const std::string& note : slow_kernel_notes(workload->problems, arch))
    add_note(note, workload);
}

Workload workload_of(const RunOptions& options) {
  const std::string& machine = options.machine.target;
  const int64_t memory_bytes = options.workload.serving ? memory_bytes_of(machine) : 0;
  return workload_of(options.workload, target_of(machine), memory_bytes);
}

Command add_run_command(Command program, const std::string& name, const std::string& what,
                        const std::string& example, const std::string& template_help,
                        RunOptions* options) {
  Command command = add_command(program, name, what, example, &options->json);
  add_workload_options(command, &options->workload);
  add_machine_options(command, &options->machine);
  command.add_option("--template", options->template_name, template_help);
  command.add_option("--seed", options->seed, "Seed of inputs and of every random choice")
      .natural()
      .shows_default();
  return command;
}

}  // namespace attune::cli
