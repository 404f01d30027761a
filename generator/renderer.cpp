// SPDX-License-Identifier: Apache-2.0
// Rendering: preamble first, then every include in its place, once; see renderer.hpp.
#include "generator/renderer.hpp"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <set>
#include <vector>

#include "generator/core/digest.hpp"
#include "generator/core/error.hpp"
#include "generator/source_bundle.hpp"

namespace attune {
namespace {

// Raised when the rendering of unchanged templates changes; part of every template digest.
constexpr std::string_view kRendererVersion = "renderer 1";

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
  if (is_fp8(spec))
    constants.insert(
        constants.end(),
        {{"Accuracy", "kAccuracy",
          spec.fp8.accuracy == Accuracy::kFast ? "Accuracy::kFast" : "Accuracy::kAccurate"},
         {"VLayout", "kVLayout",
          spec.fp8.v_layout == VLayout::kTransposed ? "VLayout::kTransposed" : "VLayout::kRows"},
         {"int", "kScaleBlockQ", std::to_string(spec.fp8.scale_block_q)},
         {"int", "kScaleBlockKv", std::to_string(spec.fp8.scale_block_kv)},
         {"Rotation", "kRotation",
          spec.fp8.rotation == Rotation::kHadamard ? "Rotation::kHadamard" : "Rotation::kNone"}});
  return constants;
}

std::string preamble(const KernelTemplate& kernel_template, const KernelSpec& spec,
                     const Arch& arch, const Config& config) {
  std::string text =
      fmt::format("// {} for {}\n// {}\n// {}\nnamespace attune {{\n", kernel_template.name(),
                  arch.name(), to_text(spec), config.to_text());
  const auto write = [&](const Constant& c) {
    text += fmt::format("constexpr {} {} = {};\n", c.type, c.name, c.value);
  };
  for (const Constant& constant : spec_constants(spec, arch)) write(constant);
  for (const auto& [knob, value] : config.knobs())
    write({"int", constant_name(knob), std::to_string(value)});
  for (const Constant& constant : kernel_template.extra_constants(spec, arch, config))
    write(constant);
  return text + "}  // namespace attune\n";
}

// The quoted path of an #include line, or empty.
std::string_view included_path(std::string_view line) {
  constexpr std::string_view kDirective = "#include \"";
  if (line.substr(0, kDirective.size()) != kDirective) return {};
  const size_t end = line.find('"', kDirective.size());
  return end == std::string_view::npos ? std::string_view()
                                       : line.substr(kDirective.size(), end - kDirective.size());
}

// `#include "templates/shared/x.h"` (host spelling) and `#include "shared/x.h"` name the same file.
std::string_view without_root(std::string_view path) {
  constexpr std::string_view kRoot = "templates/";
  return path.substr(0, kRoot.size()) == kRoot ? path.substr(kRoot.size()) : path;
}

class Inliner {
 public:
  // With parts == nullptr the knobs and generated parts are left out: what remains is what all configs share.
  Inliner(const KernelTemplate& kernel_template, const std::string& preamble_text,
          const std::vector<GeneratedPart>* parts, bool fp8)
      : kernel_template_(kernel_template), preamble_(preamble_text), parts_(parts), fp8_(fp8) {}

  // `head` and, behind it, the template with its includes.
  std::string run(std::string head) {
    constexpr size_t kRoom = 256 << 10;  // more than a template takes: growing copies all of it
    out_ = std::move(head);
    out_.reserve(kRoom);
    inline_file(kernel_template_.source_path());
    return std::move(out_);
  }

 private:
  void inline_file(std::string_view path) {
    if (!done_.insert(std::string(path)).second) return;
    if (path == kernel_template_.knobs_path()) {
      inline_enums();
      out_ += preamble_;
      return;
    }
    if (path.substr(0, 10) == "generated/") return inline_generated(path);
    const auto text = bundled_text(path);
    if (!text)
      throw Error(ErrorCode::kInternal,
                  fmt::format("template file \"{}\" includes \"{}\", which is not in templates/",
                              kernel_template_.source_path(), path));
    out_ += fmt::format("// ---- {}\n", path);
    inline_lines(*text);
  }

  void inline_enums() {
    inline_file("shared/attention_enums.h");
    if (fp8_) inline_file("shared/fp8_options.h");
  }

  void inline_generated(std::string_view path) {
    if (parts_ == nullptr) return;
    for (const GeneratedPart& part : *parts_) {
      if (part.path != path) continue;
      out_ += fmt::format("// ---- {}\n{}", path, part.text);
      return;
    }
    throw Error(ErrorCode::kInternal,
                fmt::format("template {} does not generate \"{}\"", kernel_template_.name(), path));
  }

  void inline_lines(std::string_view text) {
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view line = text.substr(0, end);
      const std::string_view path = included_path(line);
      if (!path.empty()) {
        inline_file(without_root(path));
      } else if (line != "#pragma once" && line.substr(0, 8) != "// SPDX-") {
        out_ += line;
        out_ += '\n';
      }
      text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    }
  }

  const KernelTemplate& kernel_template_;
  const std::string& preamble_;
  const std::vector<GeneratedPart>* parts_;
  const bool fp8_;
  std::set<std::string> done_;
  std::string out_;
};

}  // namespace

Source render(const KernelTemplate& kernel_template, const KernelSpec& spec, const Arch& arch,
              const Config& config) {
  if (auto reason = kernel_template.refuses(spec, arch))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} does not serve this problem on {}: {}", kernel_template.name(),
                            arch.name(), *reason));
  if (auto reason = kernel_template.space(spec, arch).broken(config))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("config is not legal for {} on {}: {}", kernel_template.name(),
                            arch.name(), *reason));
  const std::string constants = preamble(kernel_template, spec, arch, config);
  const std::vector<GeneratedPart> parts = kernel_template.generated_parts(spec, arch, config);
  Source source;
  source.file_name = std::filesystem::path(kernel_template.source_path()).filename().string();
  source.text = Inliner(kernel_template, constants, &parts, is_fp8(spec))
                    .run("// SPDX-License-Identifier: Apache-2.0\n");
  return source;
}

namespace {

// What a family generates for `problem` on the first arch where it serves it; empty when it does not.
std::string generated_for(const KernelTemplate& kernel_template, const Problem& problem) {
  const KernelSpec spec = spec_of(problem);
  for (const std::string& name : known_cuda_archs()) {
    const Arch arch = parse_arch(name);
    if (kernel_template.refuses(spec, arch)) continue;
    std::string text;
    const Config config =
        kernel_template.default_config(spec, arch, shape_of(problem), typical_device(arch).facts);
    for (const GeneratedPart& part : kernel_template.generated_parts(spec, arch, config))
      text += part.path + "\n" + part.text;
    return text;
  }
  return {};
}

// What a family generates for an ordinary problem of its operands' width, so that a change of its emitter is noticed.
std::string generated_sample(const KernelTemplate& kernel_template) {
  constexpr std::string_view kRest = "head_dim=128,heads=8,seqlen=1024,mask=causal_bottom_right";
  const std::string wide =
      generated_for(kernel_template, parse_problem(fmt::format("dtype=fp16,{}", kRest)));
  return wide.empty()
             ? generated_for(kernel_template, parse_problem(fmt::format("dtype=e4m3,{}", kRest)))
             : wide;
}

}  // namespace

std::string template_digest(const KernelTemplate& kernel_template) {
  const std::string none;
  std::string text = Inliner(kernel_template, none, nullptr, false)
                         .run(fmt::format("{}\n{}\n", kRendererVersion, kernel_template.name()));
  text.append("\n").append(generated_sample(kernel_template));
  return xxh3_128_hex(text);
}

}  // namespace attune
