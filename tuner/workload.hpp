// SPDX-License-Identifier: Apache-2.0
// Workload: the problems to tune, from a model's config.json (model_config.hpp), from problem
// texts, or from problems that a program captured (ATTUNE_CAPTURE). Every error names file or
// argument, key, value and what is accepted.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/core/arch.hpp"
#include "generator/core/problem.hpp"

namespace attune {

// What the user asks for instead of a model's default shapes; empty = default.
struct ShapeChoice {
  std::vector<int64_t> seqlens;
  std::vector<int64_t> batches;
  std::vector<Dtype> dtypes;
  Fp8Options fp8 = {};  // of 8-bit problems; what differs from its defaults replaces theirs
  bool padded = false;  // of a model's encoders: each sequence of a batch has its length
  bool says_accuracy = false, says_v_layout = false;  // fp8's replace a problem's, defaults too
  std::function<void(Problem*)> complete = {};        // adds to each problem before it is validated
};

// One kind of attention layer of a model, with its part of the problems.
struct LayerKind {
  std::string name;                        // "text: causal, window 4096"
  int layers = 0;                          // how many of the model are such; 0 = not stated
  std::vector<Problem> problems;           // empty where `refused` says why
  std::vector<std::string> not_supported;  // what the model does there and no kernel does yet
  std::string refused;
};

struct Workload {
  std::string name;                // "Llama-3.1-8B": the config's folder or file
  std::vector<Problem> problems;   // each once
  std::vector<std::string> notes;  // what of the model is not covered, or was assumed: sentences
  std::vector<LayerKind> layer_kinds;  // of a model; problems of two kinds may be the same
};

// `model`: a config.json, a folder, or a name in the Hugging Face cache (model_path.hpp). `target`
// decides the default shapes: a CPU gets short ones. `read_as`: as of read_model_config.
Workload workload_from_model(const std::string& model, const ShapeChoice& choice, Target target,
                             const std::string& read_as = "");
// Problem texts (problem.hpp). The choice's lists, where given, replace lengths, batch and dtype of
// each. An 8-bit dtype is that of q, k and v; o keeps 16 bits.
Workload workload_from_problems(const std::vector<std::string>& texts,
                                const ShapeChoice& choice = {});
// JSON lines as the runtime captures them: {"problem": "dtype=bf16,…"}. Empty lines are skipped.
Workload workload_from_capture(const std::filesystem::path& path);
// Problems of all, each once, in order.
Workload join(const std::vector<Workload>& parts);

// "512,1024,2048" and "bf16,e4m3"; `argument` is named in errors. Empty text gives an empty list.
std::vector<int64_t> parse_length_list(std::string_view argument, std::string_view text);
std::vector<Dtype> parse_dtype_list(std::string_view text);

}  // namespace attune
