// SPDX-License-Identifier: Apache-2.0
// Turns models, texts and captures into lists of problems; see workload.hpp.
#include "tuner/models/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <set>
#include <utility>

#include "generator/core/problem/op.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "tuner/models/model_config.hpp"
#include "tuner/models/model_scores.hpp"

namespace attune {
namespace {

struct BatchAndLength {
  int64_t batch;
  int64_t seqlen;  // 0: the model's fixed length
};

// Returns shapes that are common in serving and training of such models. For a CPU, returns shapes
// that it computes within a second.
std::vector<BatchAndLength> default_shapes(Lengths lengths, Target target) {
  const bool cpu = target == Target::kCpu;
  switch (lengths) {
    case Lengths::kDecoder:
      if (cpu)
        return {{1, 64}, {1, 128}, {1, 192}, {1, 256}, {1, 384}, {1, 512}, {2, 128}, {2, 256}};
      return {{1, 512},  {1, 1024},  {1, 2048}, {1, 4096},
              {1, 8192}, {1, 16384}, {4, 2048}, {8, 1024}};
    case Lengths::kEncoder:
      if (cpu) return {{1, 128}, {1, 512}, {8, 128}};
      return {{1, 512}, {8, 512}, {32, 512}, {32, 128}, {128, 128}};
    case Lengths::kImage:
      if (cpu) return {{1, 0}, {4, 0}};
      return {{1, 0}, {8, 0}, {64, 0}};
    case Lengths::kAnyImage:
      if (cpu) return {{1, 256}, {1, 1024}};
      return {{1, 1024}, {1, 4096}, {8, 1024}};
    case Lengths::kVideo:
      if (cpu) return {{1, 1024}};
      return {{1, 0}, {2, 0}};
    case Lengths::kDistilled:
      if (cpu) return {{1, 0}};
      return {{1, 0}, {4, 0}};
    case Lengths::kDiffusion:
      break;
  }
  if (cpu) return {{1, 0}};
  return {{2, 0}, {8, 0}};  // with and without its unconditional half, one and four images
}

// Returns the default shapes that fit the model's maximum length. If none fits, returns shapes of
// that length.
std::vector<BatchAndLength> shapes_that_fit(const AttentionLayer& layer, Target target) {
  std::vector<BatchAndLength> shapes = default_shapes(layer.lengths, target);
  if (layer.max_seqlen == 0) return shapes;
  std::erase_if(shapes,
                [&](const BatchAndLength& shape) { return shape.seqlen > layer.max_seqlen; });
  if (shapes.empty()) shapes = {{1, layer.max_seqlen}, {8, layer.max_seqlen}};
  return shapes;
}

std::vector<BatchAndLength> chosen_shapes(const AttentionLayer& layer, const ShapeChoice& choice,
                                          Target target) {
  if (choice.seqlens.empty() && choice.batches.empty()) return shapes_that_fit(layer, target);
  const std::vector<BatchAndLength> defaults = default_shapes(layer.lengths, target);
  std::vector<int64_t> seqlens = choice.seqlens;
  if (seqlens.empty())
    for (const BatchAndLength& shape : defaults)
      if (shape.batch == defaults.front().batch) seqlens.push_back(shape.seqlen);
  std::vector<BatchAndLength> shapes;
  for (int64_t batch : choice.batches.empty() ? std::vector<int64_t>{1} : choice.batches)
    for (int64_t seqlen : seqlens) shapes.push_back({batch, seqlen});
  return shapes;
}

bool is_fixed(const AttentionLayer& layer) { return layer.fixed_seqlen_q > 0; }

// Sets the lengths. A length that the model fixes stays, unless the layer is of images whose size
// is open. The number of keys of a cross-attention always stays.
void set_lengths(const AttentionLayer& layer, const BatchAndLength& shape, Problem* problem) {
  const int64_t seqlen =
      layer.ends_at_max ? std::min(shape.seqlen, layer.max_seqlen) : shape.seqlen;
  const bool keeps = is_fixed(layer) && (seqlen == 0 || !layer.may_be_replaced);
  const bool keys_keep =
      layer.fixed_seqlen_kv > 0 && (keeps || layer.fixed_seqlen_kv != layer.fixed_seqlen_q);
  if (shape.batch > kMaxLength / layer.parts)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} batch entries, each cut into {} windows, are too many; must be "
                            "at most {} windows in all",
                            layer.name, shape.batch, layer.parts, kMaxLength));
  problem->batch = shape.batch * layer.parts;
  problem->seqlen_q = keeps ? layer.fixed_seqlen_q : seqlen;
  problem->seqlen_kv = keys_keep ? layer.fixed_seqlen_kv : seqlen;
}

// Sets `dtype` for q, k, v and, if both `dtype` and o have more than 8 bits, for o. For an 8-bit
// `dtype`, o keeps a 16-bit type. An op that writes 8 bits keeps its output type.
void set_dtype(Problem* problem, Dtype dtype) {
  if (!is_8_bit(problem->dtype_o)) {
    if (!is_8_bit(dtype)) {
      problem->dtype_o = dtype;
      problem->fp8 = {};
    } else if (dtype_bytes(problem->dtype_o) != 2) {
      problem->dtype_o = Dtype::kBf16;
    }
  }
  // An 8-bit cache under wider rows stays 8-bit.
  const bool keeps_cache =
      problem->dtype_kv != problem->dtype_q && !is_8_bit(dtype) && !is_8_bit(problem->dtype_q);
  problem->dtype_q = dtype;
  if (!keeps_cache) problem->dtype_kv = dtype;
}

// Applies the choice's 8-bit and fp32 options to a problem that has them.
void set_fp8_options(Problem* problem, const ShapeChoice& choice) {
  const Fp8Options plain, &chosen = choice.fp8;
  const bool says_accuracy = choice.says_accuracy || chosen.accuracy != plain.accuracy;
  const bool says_v_layout = choice.says_v_layout || chosen.v_layout != plain.v_layout;
  if (problem->dtype_q == Dtype::kFp32 && !is_8_bit(*problem) && says_accuracy)
    problem->fp8.accuracy = chosen.accuracy;
  if (!is_8_bit(*problem)) return;
  if (says_accuracy) problem->fp8.accuracy = chosen.accuracy;
  if (says_v_layout) problem->fp8.v_layout = chosen.v_layout;
  if (chosen.scale_block_q != 0) problem->fp8.scale_block_q = chosen.scale_block_q;
  if (chosen.scale_block_kv != 0) problem->fp8.scale_block_kv = chosen.scale_block_kv;
}

// Adds a note that names the layers whose lengths --seqlen does not change.
void note_fixed_lengths(const ModelConfig& model, const ShapeChoice& choice,
                        std::vector<std::string>* notes) {
  if (choice.seqlens.empty()) return;
  const int64_t longest = *std::max_element(choice.seqlens.begin(), choice.seqlens.end());
  std::string names;
  for (const AttentionLayer& layer : model.layers)
    if ((is_fixed(layer) && !layer.may_be_replaced) ||
        (layer.ends_at_max && longest > layer.max_seqlen))
      names += fmt::format("{}{}", names.empty() ? "" : "; ", layer.name);
  if (!names.empty())
    notes->push_back(
        fmt::format("--seqlen does not apply to lengths that the model fixes, in: {}", names));
}

// Returns the dtypes to tune. Without a stated type, takes the one in which such models are
// published. On a GPU, fast kernels serve 16-bit types, so models in fp32 run there in fp16.
std::vector<Dtype> chosen_dtypes(const ModelConfig& model, const ShapeChoice& choice, Target target,
                                 std::vector<std::string>* notes) {
  if (!choice.dtypes.empty()) return choice.dtypes;
  const bool cpu = target == Target::kCpu;
  if (model.dtype && (cpu || model.dtype != Dtype::kFp32)) return {*model.dtype};
  const bool published = !model.dtype && !model.published.empty();
  const Dtype guess = published ? parse_dtype(model.published) : cpu ? Dtype::kFp32 : Dtype::kFp16;
  notes->push_back(
      fmt::format("the config's dtype is {}; {} attune tunes for {} (--dtype changes that)",
                  model.dtype ? "fp32" : "not stated",
                  published ? "as such models are published,"
                  : cpu     ? "on a CPU"
                            : "on a GPU",
                  dtype_name(guess)));
  return {guess};
}

// Adds a note that padding needs --padded, because a batch with several lengths uses another
// kernel.
void note_padding(const ModelConfig& model, const ShapeChoice& choice,
                  std::vector<std::string>* notes) {
  const bool here = std::any_of(model.layers.begin(), model.layers.end(),
                                [](const AttentionLayer& layer) { return layer.may_be_padded; });
  if (here && !choice.padded)
    notes->push_back(
        "attune assumes that all sequences of a batch have one length; --padded tunes for batches "
        "with padding (key_lengths=1)");
  if (!here && choice.padded)
    throw Error(ErrorCode::kInvalidArgument,
                "--padded is given, but the model has no layer that sees padding; must be a "
                "model with an encoder of text or sound");
}

void add_once(const Problem& problem, std::vector<Problem>* problems, std::set<std::string>* seen) {
  validate(problem);
  if (seen->insert(to_text(problem)).second) problems->push_back(problem);
}

// Merges problems whose rows see the same keys, because they are tuned once: a window that is wider
// than the rows hides nothing.
void add_like_tune(const Problem& problem, std::vector<Problem>* problems,
                   std::set<std::string>* seen) {
  validate(problem);
  if (seen->insert(to_text(canonical(problem))).second) problems->push_back(problem);
}

bool decodes(const ModelConfig& model) {
  return std::any_of(model.layers.begin(), model.layers.end(), [](const AttentionLayer& layer) {
    return layer.cache && layer.refused.empty();
  });
}

// Returns the sizes of serving, which depend on the type of the caches. Empty without --serving.
std::map<Dtype, ServingSizes> sizes_by_dtype(const ModelConfig& model, const ShapeChoice& choice,
                                             const std::vector<Dtype>& dtypes, Target target,
                                             std::vector<std::string>* notes) {
  std::map<Dtype, ServingSizes> sizes;
  if (!choice.serving) return sizes;
  if (!decodes(model))
    throw Error(ErrorCode::kInvalidArgument,
                "--serving is given, but the model has no decoder whose caches attune reads; must "
                "be a model that generates tokens");
  if (!choice.seqlens.empty() && std::all_of(model.layers.begin(), model.layers.end(),
                                             [](const auto& layer) { return layer.cache; }))
    throw Error(ErrorCode::kInvalidArgument,
                "--seqlen is given with --serving; must be --kv-lengths and --max-batch-tokens");
  for (const Dtype dtype : dtypes) {
    if (is_8_bit(dtype))
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("--dtype is {} with --serving; must have 16 or 32 bits (--kv-dtype "
                              "{} is for caches)",
                              dtype_name(dtype), dtype_name(dtype)));
    sizes[dtype] = serving_sizes(*choice.serving, model, dtype, target);
    for (const std::string& note : sizes[dtype].notes)
      if (std::find(notes->begin(), notes->end(), note) == notes->end()) notes->push_back(note);
  }
  return sizes;
}

// Returns the layer's name. With --serving, it says what a cache of an encoder's keys has.
std::string name_of(const AttentionLayer& layer, const ShapeChoice& choice) {
  if (!choice.serving || !layer.cache || !layer.cache->is_cross) return layer.name;
  if (layer.fixed_seqlen_kv == 0) return layer.name + ", cached keys of the encoder, no append";
  return fmt::format("{}, {} cached keys, no append", layer.name, layer.fixed_seqlen_kv);
}

void add_notes(const LayerKind& kind, Workload* workload) {
  for (const std::string& feature : kind.not_supported)
    workload->notes.push_back(
        fmt::format("{}, {}: {} is not supported yet; kernels are tuned without it", workload->name,
                    kind.name, feature));
  if (!kind.refused.empty())
    workload->notes.push_back(
        fmt::format("{}, {}: it is not tuned: {}", workload->name, kind.name, kind.refused));
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return parts;
}

}  // namespace

Workload workload_from_model(const std::string& model_text, const ShapeChoice& choice,
                             Target target, const std::string& read_as) {
  const ModelFile file = find_model(model_text, hugging_face_cache());
  ModelConfig model = read_model_config(file.config, read_as);
  if (choice.serving) take_part_of_heads(choice.serving->tensor_parallel, &model);
  Workload workload{file.name, {}, model.notes, {}, decodes(model) && !choice.serving};
  const std::vector<Dtype> dtypes = chosen_dtypes(model, choice, target, &workload.notes);
  const auto serving = sizes_by_dtype(model, choice, dtypes, target, &workload.notes);
  note_padding(model, choice, &workload.notes);
  note_fixed_lengths(model, choice, &workload.notes);
  for (const AttentionLayer& layer : model.layers) {
    LayerKind kind{name_of(layer, choice), layer.layers, {}, layer.not_supported, layer.refused};
    std::set<std::string> of_kind;
    for (Dtype dtype : dtypes) {
      if (!layer.refused.empty()) break;
      if (choice.serving && layer.cache) {
        std::vector<std::string> lacks;
        for (Problem problem :
             serving_problems(*choice.serving, serving.at(dtype), layer, model, dtype, &lacks)) {
          follow_dtype(&problem);
          if (choice.complete && !describe(problem.op).appends) choice.complete(&problem);
          add_like_tune(problem, &kind.problems, &of_kind);
        }
        if (dtype == dtypes.front()) {
          std::vector<std::string>& all = kind.not_supported;
          if (layer.cache->listed_keys > 0) std::erase(all, kChosenKeys);
          all.insert(all.end(), lacks.begin(), lacks.end());
          if (kind.problems.empty() && !all.empty())
            kind.refused = std::exchange(all, {}).back() + " is not supported";
        }
        continue;
      }
      for (const BatchAndLength& shape : chosen_shapes(layer, choice, target)) {
        Problem problem = layer.problem;
        set_dtype(&problem, model.dtype.value_or(Dtype::kFp32));
        set_dtype(&problem, dtype);
        set_fp8_options(&problem, choice);
        follow_dtype(&problem);
        if (layer.may_be_padded) problem.scores.key_lengths = choice.padded;
        set_lengths(layer, shape, &problem);
        if (choice.complete) choice.complete(&problem);
        add_like_tune(problem, &kind.problems, &of_kind);
      }
    }
    add_notes(kind, &workload);
    workload.layer_kinds.push_back(std::move(kind));
  }
  std::set<std::string> seen;
  for (const LayerKind& kind : workload.layer_kinds)
    for (const Problem& problem : kind.problems) add_like_tune(problem, &workload.problems, &seen);
  return workload;
}

Workload workload_from_problems(const std::vector<std::string>& texts, const ShapeChoice& choice) {
  Workload workload{"problems", {}, {}, {}};
  std::set<std::string> seen;
  for (const std::string& text : texts) {
    Problem given =
        read_problem(text, choice.seqlens.empty() ? TextLengths::kRequired : TextLengths::kOptional,
                     TextFiles::kRead);
    if (choice.complete) choice.complete(&given);
    validate(given);
    const std::vector<int64_t> lengths =
        choice.seqlens.empty() ? std::vector<int64_t>{-1} : choice.seqlens;
    const std::vector<int64_t> batches =
        choice.batches.empty() ? std::vector<int64_t>{given.batch} : choice.batches;
    const std::vector<Dtype> dtypes =
        choice.dtypes.empty() ? std::vector<Dtype>{given.dtype_q} : choice.dtypes;
    for (Dtype dtype : dtypes) {
      for (int64_t batch : batches) {
        for (int64_t length : lengths) {
          Problem problem = given;
          if (dtype != given.dtype_q) set_dtype(&problem, dtype);
          set_fp8_options(&problem, choice);
          problem.batch = batch;
          if (length >= 0) problem.seqlen_q = problem.seqlen_kv = length;
          add_once(problem, &workload.problems, &seen);
        }
      }
    }
  }
  return workload;
}

Workload join(const std::vector<Workload>& parts) {
  Workload all;
  std::set<std::string> seen;
  for (const Workload& part : parts) {
    all.name += (all.name.empty() ? "" : " + ") + part.name;
    for (const Problem& problem : part.problems) add_once(problem, &all.problems, &seen);
    all.decodes |= part.decodes;
    all.remarks.insert(part.remarks.begin(), part.remarks.end());
    all.notes.insert(all.notes.end(), part.notes.begin(), part.notes.end());
    all.layer_kinds.insert(all.layer_kinds.end(), part.layer_kinds.begin(), part.layer_kinds.end());
  }
  return all;
}

std::vector<int64_t> parse_length_list(std::string_view argument, std::string_view text) {
  std::vector<int64_t> values;
  for (std::string_view part : split(text)) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value);
    if (error != std::errc() || end != part.data() + part.size() || value < 1)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} is \"{}\"; must be integers above 0, separated by commas",
                              argument, text));
    values.push_back(value);
  }
  return values;
}

std::vector<Dtype> parse_dtype_list(std::string_view text) {
  std::vector<Dtype> values;
  for (std::string_view part : split(text)) values.push_back(parse_dtype(part));
  return values;
}

}  // namespace attune
