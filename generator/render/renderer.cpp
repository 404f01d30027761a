// SPDX-License-Identifier: Apache-2.0
// Makes the constants of a kernel, its text, and digests; see renderer.hpp.
#include "generator/render/renderer.hpp"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <mutex>
#include <set>
#include <vector>

#include "generator/core/ops/ops.hpp"
#include "generator/core/problem/op.hpp"
#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"
#include "generator/render/inliner.hpp"
#include "generator/score/analysis/dependence.hpp"
#include "generator/score/features/score_feature.hpp"
#include "generator/score/print/source_text.hpp"

namespace attune {
namespace {

std::string constant_name(std::string_view knob) {
  std::string name = "k";
  bool upper = true;
  for (const char c : knob) {
    if (c == '_') {
      upper = true;
      continue;
    }
    name += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  return name;
}

std::string dtype_value(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFp32:
      return "Dtype::kFp32";
    case Dtype::kBf16:
      return "Dtype::kBf16";
    case Dtype::kFp16:
      return "Dtype::kFp16";
    case Dtype::kE4m3:
      return "Dtype::kE4m3";
    case Dtype::kE5m2:
      return "Dtype::kE5m2";
    case Dtype::kInt8:
      return "Dtype::kInt8";
    case Dtype::kInt4:
      return "Dtype::kInt4";
    case Dtype::kE2m1:
      return "Dtype::kE2m1";
  }
  throw Error(ErrorCode::kInternal, "dtype without a rendered name");
}

std::string mask_value(Mask mask) {
  switch (mask) {
    case Mask::kNone:
      return "Mask::kNone";
    case Mask::kCausalTopLeft:
      return "Mask::kCausalTopLeft";
    case Mask::kCausalBottomRight:
      return "Mask::kCausalBottomRight";
  }
  throw Error(ErrorCode::kInternal, "mask without a rendered name");
}

std::vector<Constant> spec_constants(const KernelSpec& spec, const Arch& arch) {
  std::vector<Constant> constants{{"int", "kArch", std::to_string(arch.compute_capability)},
                                  {"Dtype", "kDtypeQ", dtype_value(spec.dtype_q)},
                                  {"Dtype", "kDtypeKv", dtype_value(spec.dtype_kv)},
                                  {"Dtype", "kDtypeO", dtype_value(spec.dtype_o)},
                                  {"int", "kHeadDimQk", std::to_string(spec.head_dim_qk)},
                                  {"int", "kHeadDimV", std::to_string(spec.head_dim_v)},
                                  {"int", "kGqaRatio", std::to_string(spec.gqa_ratio)},
                                  {"Mask", "kMask", mask_value(spec.mask)},
                                  {"int", "kWindowLeft", std::to_string(spec.window_left)},
                                  {"int", "kWindowRight", std::to_string(spec.window_right)}};
  if (is_narrow(spec))
    constants.insert(
        constants.end(),
        {{"Accuracy", "kAccuracy",
          spec.fp8.accuracy == Accuracy::kFast ? "Accuracy::kFast" : "Accuracy::kAccurate"},
         {"VLayout", "kVLayout",
          spec.fp8.v_layout == VLayout::kTransposed ? "VLayout::kTransposed" : "VLayout::kRows"},
         {"int", "kScaleBlockQ", std::to_string(spec.fp8.scale_block_q)},
         {"int", "kScaleBlockKv", std::to_string(spec.fp8.scale_block_kv)},
         {"Rotation", "kRotation",
          spec.quantise.rotation == Rotation::kHadamard ? "Rotation::kHadamard"
                                                        : "Rotation::kNone"}});
  return constants;
}

// References, and kernels with applies_whole_programs(), apply the whole program to every element.
// Others have a score stage that changes scores, and a mask program that hides keys.
std::vector<Constant> score_constants(const KernelTemplate& kernel_template, const KernelSpec& spec,
                                      const Config& config) {
  const bool whole = kernel_template.applies_whole_programs();
  std::vector<Constant> constants;
  const bool has_stage = has_score_stage(spec) && !kernel_template.adds_diagonals(spec, config);
  if (whole ? is_scored(spec) : has_stage) constants.push_back({"bool", "kScored", "true"});
  if (!whole && has_score_stage(spec) && !has_stage)
    constants.push_back({"bool", "kDiagonalTerms", "true"});
  if (whole || !has_mask_program(spec)) return constants;
  const score::Dependences all = score::dependences_of(mask_program(spec).program).back();
  constants.push_back({"bool", "kMaskProgram", "true"});
  if (has_stage) constants.push_back({"bool", "kScoredMask", "true"});
  const bool by_head = asks_map(spec) || (all & score::kOnHead) != 0;
  constants.push_back(bool_constant("kMapByHead", by_head));
  if (!asks_map(spec)) return constants;
  const bool hides = hides_by_map(spec);
  constants.push_back({"bool", "kGranules", "true"});
  constants.push_back(bool_constant("kMapHides", hides));
  constants.push_back({"int", "kMapCapture", std::to_string(map_capture(spec))});
  if (hides) constants.push_back({"bool", "kHidesByMap", "true"});
  return constants;
}

std::vector<Constant> gradient_constants(const KernelSpec& spec) {
  if (!describe(spec.op).has_gradients) return {};
  const bool of_scores = spec.backward.score_gradient != ScoreGradient::kNone;
  const auto asked = [&](const char* name, Gradients one) {
    return Constant{"bool", name,
                    !of_scores && asks(spec.backward.gradients, one) ? "true" : "false"};
  };
  std::vector<Constant> constants{{"bool", "kGradients", "true"},
                                  {"bool", "kGradientArgs", "true"},
                                  asked("kGradientQ", Gradients::kQ),
                                  asked("kGradientK", Gradients::kK),
                                  asked("kGradientV", Gradients::kV)};
  if (spec.backward.accumulate) constants.push_back({"bool", "kAccumulate", "true"});
  if (spec.scores.score_mod) constants.push_back({"bool", "kUserScores", "true"});
  if (score_slope_program(spec)) constants.push_back({"bool", "kSloped", "true"});
  if (of_scores) {
    constants.push_back(
        {"int", "kScoreGradient",
         std::to_string(static_cast<int>(layout_of(spec.backward.score_gradient)))});
    constants.push_back(
        {"int", "kRepeats", std::to_string(static_cast<int>(spec.backward.repeats))});
  }
  return constants;
}

std::vector<Constant> cache_constants(const KernelSpec& spec) {
  if (!describe(spec.op).has_cache) return {};
  const bool has_pages = spec.cache.page_size > 0;
  std::vector<Constant> constants{
      {"bool", "kCacheArgs", "true"},
      bool_constant("kHasPages", has_pages),
      {"int", "kPageRows", std::to_string(has_pages ? spec.cache.page_size : 1)},
      bool_constant("kHasBegins", spec.cache.packed_q),
      bool_constant("kHasKeyBegins", spec.cache.packed_kv)};
  if (spec.cache.batch_invariant) constants.push_back({"bool", "kBatchInvariant", "true"});
  if (spec.cache.key_indices != KeyIndices::kNone) {
    constants.push_back({"bool", "kKeyLists", "true"});
    constants.push_back(bool_constant("kArePlaces", spec.cache.key_indices == KeyIndices::kPlaces));
  }
  if (is_scored(spec) && score::reads_lengths(score_program(spec)))
    constants.push_back({"bool", "kRequestLengths", "true"});
  if (!is_narrow(spec.dtype_kv)) return constants;
  if (spec.dtype_kv == Dtype::kInt8) constants.push_back({"bool", "kInt8Cache", "true"});
  const KvFactors factors = spec.cache.kv_factors;
  const int group = columns_of_factor(factors);
  if (group > 0) {
    constants.push_back({"bool", "kGroupFactors", "true"});
    constants.push_back({"int", "kGroupColumns", std::to_string(group)});
  }
  constants.push_back({"bool",
                       factors == KvFactors::kHeads || group > 0 ? "kHeadFactors"
                       : factors == KvFactors::kLatent           ? "kLatentRows"
                                                                 : "kKeyFactors",
                       "true"});
  if (spec.cache.kv_factors == KvFactors::kMade)
    constants.push_back({"bool", "kMakesFactors", "true"});
  return constants;
}

std::vector<Constant> append_constants(const KernelSpec& spec) {
  if (!describe(spec.op).appends) return {};
  const Dtype table = spec.append.rotary == ScoreTensor::kBf16   ? Dtype::kBf16
                      : spec.append.rotary == ScoreTensor::kFp16 ? Dtype::kFp16
                                                                 : Dtype::kFp32;
  return {{"bool", "kAppendArgs", "true"},
          {"Dtype", "kDtypeTable", dtype_value(table)},
          {"int", "kTurned", std::to_string(turned_columns(spec, spec.head_dim_qk))},
          bool_constant("kInterleaved", spec.append.rotary_interleaved),
          bool_constant("kTurnsQ", spec.append.rotary_q)};
}

GeneratedPart in_namespace(const char* path, const std::string& text) {
  return {path, fmt::format("namespace attune {{\n\n{}\n}}  // namespace attune\n", text)};
}

// Only for ops with gradients.
std::optional<GeneratedPart> slope_part(const KernelSpec& spec) {
  if (!describe(spec.op).has_gradients) return std::nullopt;
  const std::optional<ScoreHalf> slope = score_slope_program(spec);
  if (!slope) return std::nullopt;
  return in_namespace("generated/slope_program.h",
                      score::slope_source_text(slope->program, slope->places));
}

std::vector<GeneratedPart> score_parts(const KernelTemplate& kernel_template,
                                       const KernelSpec& spec) {
  if (kernel_template.applies_whole_programs()) {
    if (!is_scored(spec)) return {};
    return {in_namespace("generated/score_program.h", score::source_text(score_program(spec)))};
  }
  std::vector<GeneratedPart> parts;
  if (has_score_stage(spec)) {
    const ScoreHalf stage = score_stage_program(spec);
    const auto text = kernel_template.steps_scores()       ? score::step_text
                      : kernel_template.scores_in_panels() ? score::panel_text
                                                           : score::source_text;
    parts.push_back(in_namespace("generated/score_program.h", text(stage.program, stage.places)));
  }
  if (has_mask_program(spec)) {
    const ScoreHalf mask = mask_program(spec);
    const auto text =
        kernel_template.scores_in_panels() ? score::mask_panel_text : score::mask_source_text;
    parts.push_back(in_namespace("generated/mask_program.h", text(mask.program, mask.places)));
    parts.push_back(
        in_namespace("generated/mask_ranges.h", score::range_text(mask.program, mask.places)));
    if (kernel_template.steps_scores())
      parts.push_back(in_namespace("generated/mask_steps.h",
                                   fmt::format("namespace mask_steps {{\n\n{}\n}}\n",
                                               score::mask_step_text(mask.program, mask.places))));
  }
  return parts;
}

std::vector<Constant> constants_of(const KernelTemplate& kernel_template, const KernelSpec& spec,
                                   const Arch& arch, const Config& config) {
  std::vector<Constant> constants =
      spec_constants(kernel_template.compiled_spec(spec, config), arch);
  if (has_score_args(spec)) constants.push_back({"bool", "kScoreArgs", "true"});
  for (Constant& constant : score_constants(kernel_template, spec, config))
    constants.push_back(std::move(constant));
  for (Constant& constant : gradient_constants(spec)) constants.push_back(std::move(constant));
  if (spec.dropout > 0) constants.push_back({"bool", "kDropout", "true"});
  if (spec.max_logits) constants.push_back({"bool", "kMaxLogits", "true"});
  for (Constant& constant : cache_constants(spec)) constants.push_back(std::move(constant));
  for (Constant& constant : append_constants(spec)) constants.push_back(std::move(constant));
  if (spec.scores.sinks != ScoreTensor::kNone) {
    constants.push_back({"int", "kSinks", std::to_string(sinks_capture(spec))});
    constants.push_back(
        {"int", "kSinksType", std::to_string(static_cast<int>(capture_type(spec.scores.sinks)))});
  }
  for (const auto& [knob, value] : config.knobs())
    constants.push_back({"int", constant_name(knob), std::to_string(value)});
  for (Constant& constant : kernel_template.extra_constants(spec, arch, config))
    constants.push_back(std::move(constant));
  return constants;
}

std::string main_entry(const KernelTemplate& kernel_template, const KernelSpec& spec) {
  std::string name = fmt::format("attune_{}_d{}", kernel_template.name(), spec.head_dim_qk);
  if (spec.head_dim_v != spec.head_dim_qk) name += fmt::format("x{}", spec.head_dim_v);
  return name;
}

// Returns the lines that rename the functions of a kernel's steps.
std::string renamed_entries(const LaunchStructure& structure, const std::string& main) {
  std::set<std::string> entries;
  for (const StepStructure& step : structure.steps) entries.insert(step.entry);
  std::string text;
  for (const std::string& entry : entries)
    text += fmt::format("#define {} {}\n", entry, entry_in(main, entry));
  return text;
}

Preamble preamble(const KernelTemplate& kernel_template, const KernelSpec& spec, const Arch& arch,
                  const Config& config) {
  Preamble made{constants_of(kernel_template, spec, arch, config),
                fmt::format("// {} for {}\n// {}\n// {}\nnamespace attune {{\n",
                            kernel_template.name(), arch.name(), to_text(spec), config.to_text())};
  for (const Constant& c : made.constants)
    made.text += fmt::format("constexpr {} {} = {};\n", c.type, c.name, c.value);
  made.text += "}  // namespace attune\n";
  return made;
}

}  // namespace

Source render(const KernelTemplate& kernel_template, const KernelSpec& spec, const Arch& arch,
              const Config& config) {
  if (auto reason = kernel_template.refuses(spec, arch))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} does not serve this problem on {}: {}", kernel_template.name(),
                            arch.name(), *reason));
  const SearchSpace space = kernel_template.space(spec, arch);
  if (auto reason = space.broken(config))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("config is not legal for {} on {}: {}", kernel_template.name(),
                            arch.name(), *reason));
  const Config current = space.without_retired(config);
  std::vector<GeneratedPart> parts = kernel_template.generated_parts(spec, arch, current);
  for (GeneratedPart& part : score_parts(kernel_template, spec)) parts.push_back(std::move(part));
  if (auto slope = slope_part(spec)) parts.push_back(std::move(*slope));
  Source source;
  source.file_name = std::filesystem::path(kernel_template.source_path()).filename().string();
  source.entry = main_entry(kernel_template, spec);
  source.text = Inliner(kernel_template, preamble(kernel_template, spec, arch, current), parts)
                    .run("// SPDX-License-Identifier: Apache-2.0\n" +
                         renamed_entries(kernel_template.structure(spec, current), source.entry));
  return source;
}

std::string source_digest(const Source& source) { return xxh3_128_hex(comment_free(source.text)); }

namespace {

// Returns the text that a family itself writes for one problem, on the first arch where it serves
// it; empty if it serves none.
std::string written_for(const KernelTemplate& kernel_template, const KernelSpec& spec,
                        const std::vector<Arch>& archs) {
  std::string text;
  for (const Arch& arch : archs) {
    if (kernel_template.refuses(spec, arch)) continue;
    // Changes of default configs do not affect this one.
    const Config config = kernel_template.space(spec, arch).first_values();
    for (const Constant& c : kernel_template.extra_constants(spec, arch, config))
      text += fmt::format("{} {} = {}\n", c.type, c.name, c.value);
    for (const GeneratedPart& part : kernel_template.generated_parts(spec, arch, config))
      text += fmt::format("{}\n{}", part.path, comment_free(part.text));
    break;
  }
  return text;
}

// Returns these texts for one problem of each kind, so that the digest shows a change of a family's
// formula or emitter.
std::string written_for_samples(const KernelTemplate& kernel_template) {
  std::vector<Arch> archs{parse_arch("cpu:x86-64")};
  for (const std::string& name : known_cuda_archs()) archs.push_back(parse_arch(name));
  std::string text;
  for (const char* problem :
       {"dtype=fp32", "dtype=fp16", "dtype=e4m3", "op=quantise,dtype=fp16,dtype_o=e4m3"})
    text += written_for(
        kernel_template,
        spec_of(parse_problem(fmt::format("{},head_dim=72,heads=8,seqlen=1024", problem))), archs);
  return text;
}

std::string make_digest(const KernelTemplate& kernel_template) {
  std::string text(kernel_template.name());
  for (const std::string& file : files_of(kernel_template))
    text.append("\n").append(comment_free(*bundled_text(file)));
  return fmt::format("r{}.{}", kernel_template.revision(),
                     xxh3_128_hex(text + "\n" + written_for_samples(kernel_template)));
}

}  // namespace

bool same_revision(std::string_view digest, std::string_view other) {
  const size_t point = digest.find('.');
  return digest == other || (point != std::string_view::npos &&
                             digest.substr(0, point + 1) == other.substr(0, point + 1));
}

const std::string& template_digest(const KernelTemplate& kernel_template) {
  return kernel_template.digest_.get([&] { return make_digest(kernel_template); });
}

}  // namespace attune
