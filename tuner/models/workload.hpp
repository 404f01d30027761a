// SPDX-License-Identifier: Apache-2.0
// Workload: the problems to tune, from a model's config.json (model_config.hpp), from problem
// texts, or from problems that a program captured. Errors name file or argument,
// key, value and the allowed values.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/problem/arch.hpp"
#include "generator/core/problem/problem.hpp"
#include "tuner/models/serving.hpp"

namespace attune {

// The user's choices. They replace a model's default shapes; an empty choice keeps the default.
struct ShapeChoice {
  std::vector<int64_t> seqlens;
  std::vector<int64_t> batches;
  std::vector<Dtype> dtypes;
  Fp8Options fp8 = {};  // for 8-bit problems; fields that differ from the defaults replace theirs
  bool padded = false;  // for a model's encoders: each sequence of a batch has its own length
  // then fp8's value replaces a problem's, even a default
  bool says_accuracy = false, says_v_layout = false;
  std::function<void(Problem*)> complete = {};  // adds to each problem before it is validated
  // Layers of decoders get the problems of an engine instead of prefill.
  std::optional<ServingChoice> serving = {};
};

// One kind of attention layer of a model, with its problems.
struct LayerKind {
  std::string name;                        // "text: causal, window 4096"
  int layers = 0;                          // number of such layers; 0: not stated
  std::vector<Problem> problems;           // empty if `refused` says why
  std::vector<std::string> not_supported;  // features of the layer that no kernel has yet
  std::string refused;
};

struct Workload {
  std::string name;               // "Llama-3.1-8B": the config's folder or file
  std::vector<Problem> problems;  // each once
  // sentences: parts of the model that are not covered, or assumptions
  std::vector<std::string> notes;
  std::vector<LayerKind> layer_kinds;  // of a model; problems of two kinds may be the same
  bool decodes = false;                // a model with a decoder, whose serving is not in `problems`
  // For some problems' texts, what to say of them: "3 lengths, 4096 calls, 41 % of the time".
  std::map<std::string, std::string> remarks;
};

// `model`: a config.json, a folder, or a name in the Hugging Face cache (find_model). `target`
// decides the default shapes: a CPU gets short ones. `read_as`: as in read_model_config.
Workload workload_from_model(const std::string& model, const ShapeChoice& choice, Target target,
                             const std::string& read_as = "");
// Reads problem texts (problem.hpp). The lists of `choice`, if given, replace lengths, batch and
// dtype of each problem. An 8-bit dtype applies to q, k and v; o keeps 16 bits.
Workload workload_from_problems(const std::vector<std::string>& texts,
                                const ShapeChoice& choice = {});
// Returns the problems of all workloads, each once, in order.
Workload join(const std::vector<Workload>& parts);

// Parses "512,1024,2048" and "bf16,e4m3". Errors name `argument`. An empty text gives an empty
// list.
std::vector<int64_t> parse_length_list(std::string_view argument, std::string_view text);
std::vector<Dtype> parse_dtype_list(std::string_view text);

// The problems that programs captured (ATTUNE_CAPTURE, runtime/engine/capture.hpp). A decoding loop
// asks for each length once, so problems of one bucket are merged: one tune serves them all.

// Reads files of JSON lines, or all *.jsonl of a folder, as several processes of a program write
// them; problems and counts of all are added up. A line is {"problem": "dtype=bf16,…", "calls": 12,
// "recorded": 3, "rung": "exact"}, of which "problem" is required. Skips empty lines. Of each
// bucket, the problem with the longest time stands for all. They come in the order of their
// buckets' times, longest first; those that were recorded into CUDA graphs come before others,
// because nobody counts replays. Times are calls times a rough time of the problem on a device of
// the kind of `target`. A note says how many calls ran tuned kernels, if lines name rungs.
// `top`: how many buckets to keep; 0: all. Throws kIo for an unreadable file or a folder without
// files, and kInvalidArgument for a line that is not valid.
Workload workload_from_captures(const std::vector<std::filesystem::path>& paths,
                                Target target = Target::kCuda, int top = 0);

// Training (the option --training of the program).
struct Training {
  // for problems with gradients and their gradient problems; not for 8-bit operands
  float dropout = 0;
  bool deterministic = false;  // gradients have the same bits in every run
};

// Adds gradient problems after each problem that has gradients (gradient_problems in
// generator/core/ops/ops.hpp). Throws kInvalidArgument if no problem has gradients,
// for a dropout that no problem takes, and for a problem that validate() refuses.
void add_training(const Training& training, Workload* workload);

// A model's config.json: of a file, a folder (also of a diffusers pipeline), a folder of the
// Hugging Face cache, or a model's name on the hub, looked up in that cache. Never downloads.
struct ModelFile {
  std::filesystem::path config;
  std::string name;  // "Llama-3.1-8B"
};

// Finds the config. `cache` is the Hugging Face cache, usually hugging_face_cache(). Throws kIo if
// there is no such config; the message names the places that were searched.
ModelFile find_model(const std::string& text, const std::filesystem::path& cache);

// Returns $HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub or ~/.cache/huggingface/hub;
// empty if there is no home folder either.
std::filesystem::path hugging_face_cache();

}  // namespace attune
