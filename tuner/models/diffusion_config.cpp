// SPDX-License-Identifier: Apache-2.0
// Reads the configs of diffusers' networks; see config_parts.hpp.
#include "tuner/models/config_parts.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "tuner/models/diffusion_rows.hpp"
#include "tuner/models/model_table.hpp"

namespace attune {
namespace {

constexpr int64_t kClipTokens = 77;       // text tokens that UNets see
constexpr int64_t kSd3Tokens = 77 + 256;  // CLIP's tokens and then T5's

// Returns the longest side of a square of patches that, together with `text` tokens, fits the
// longest problem.
int64_t widest_side(int64_t text) {
  return static_cast<int64_t>(std::sqrt(static_cast<double>(kMaxLength - text)));
}

// Returns the number of patches in a square. `scale` is the side of one patch in the units of
// sample_size.
int64_t patches_of(const ModelFields& fields, int64_t side, int64_t scale, int64_t text) {
  const int64_t widest = widest_side(text);
  if (side > widest)
    fields.refuse({"sample_size"}, fmt::format("at most {}, because a side has at most {} patches",
                                               (widest + 1) * scale - 1, widest));
  return side * side;
}

// Checks a number of layers that was computed from fields, and returns it as int. `names` is the
// field to name in an error.
int count_of(const ModelFields& fields, Names names, int64_t count) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  if (count > kMost)
    fields.refuse(names, fmt::format("a number that gives the model at most {} layers", kMost));
  return static_cast<int>(count);
}

void add(const std::string& name, int layers, const Problem& problem, int64_t seqlen_q,
         int64_t seqlen_kv, ModelConfig* model) {
  AttentionLayer layer;
  layer.name = name;
  layer.layers = layers;
  layer.lengths = Lengths::kDiffusion;
  layer.problem = problem;
  layer.fixed_seqlen_q = seqlen_q;
  layer.fixed_seqlen_kv = seqlen_kv;
  layer.may_be_replaced = true;
  model->layers.push_back(std::move(layer));
}

// Adds one resolution of a UNet: blocks of self- and cross-attention.
void add_level(const ModelFields& fields, size_t level, int channels, int heads, int blocks,
               ModelConfig* model) {
  Problem problem;
  problem.num_heads_q = problem.num_heads_kv = heads;
  problem.head_dim_qk = problem.head_dim_v = channels / heads;
  constexpr size_t kBitsOfSize = 31;
  const int64_t side = level < kBitsOfSize ? fields.integer({"sample_size"}) >> level : 0;
  if (side < 1)
    fields.refuse({"sample_size"}, fmt::format("a size that can be halved {} times", level));
  const int64_t patches = patches_of(fields, side, int64_t{1} << level, 0);
  const std::string at = fmt::format(" at {0} x {0}", side);
  add("self-attention" + at, blocks, problem, patches, patches, model);
  add("cross-attention" + at, blocks, problem, patches, kClipTokens, model);
}

// Reads a UNet. In diffusers' configs, attention_head_dim is the number of heads (the name is kept
// for compatibility), unless num_attention_heads is stated. Each resolution has its blocks on the
// way down, and one block more on the way up. The middle block is at the last resolution.
void read_unet(const ModelFields& fields, ModelConfig* model) {
  static constexpr Names kHeads{"num_attention_heads", "attention_head_dim"};
  const size_t levels = fields.integers({"block_out_channels"}).size();
  const std::vector<int> channels = fields.integers({"block_out_channels"}, levels);
  const std::vector<int> heads = fields.integers(kHeads, levels);
  const std::vector<std::string> types = fields.texts({"down_block_types"});
  if (types.size() != levels)
    fields.refuse({"down_block_types"},
                  fmt::format("{} block names, one for each of block_out_channels", levels));
  static constexpr Names kDepth{"transformer_layers_per_block"};
  const std::vector<int> depth =
      fields.has(kDepth) ? fields.integers(kDepth, levels) : std::vector<int>(levels, 1);
  static constexpr Names kBlocks{"layers_per_block"};
  const int64_t blocks = fields.is_list(kBlocks) ? 0 : fields.integer(kBlocks, 2);
  const std::string middle = fields.is_text({"mid_block_type"}) ? fields.text({"mid_block_type"})
                                                                : "UNetMidBlock2DCrossAttn";
  const auto crosses = [](const std::string& type) {
    return type.find("CrossAttn") != std::string::npos;
  };
  for (size_t level = 0; level < levels; ++level) {
    const bool has_middle = level + 1 == levels && crosses(middle);
    if (!crosses(types[level]) && !has_middle) continue;
    if (channels[level] % heads[level] != 0)
      fields.refuse(kHeads, fmt::format("divisors of block_out_channels ({})", channels[level]));
    const int64_t on_the_way = crosses(types[level]) && blocks > 0 ? 2 * blocks + 1 : 0;
    const int64_t count = (on_the_way + (has_middle ? 1 : 0)) * depth[level];
    add_level(fields, level, channels[level], heads[level],
              count_of(fields, depth[level] > blocks ? kDepth : kBlocks, count), model);
  }
  if (model->layers.empty()) fields.refuse({"down_block_types"}, "a list with a CrossAttn block");
}

Problem joint_attention(const ModelFields& fields) {
  Problem problem;
  problem.num_heads_q = problem.num_heads_kv = fields.integer({"num_attention_heads"}, 24);
  problem.head_dim_qk = problem.head_dim_v = fields.integer({"attention_head_dim"});
  return problem;
}

// Image and text attend to each other. Some layers of SD3.5 also have attention of the image alone.
void read_sd3(const ModelFields& fields, ModelConfig* model) {
  const Problem problem = joint_attention(fields);
  const int64_t patch = fields.integer({"patch_size"}, 2);
  const int64_t patches =
      patches_of(fields, fields.integer({"sample_size"}) / patch, patch, kSd3Tokens);
  add(fmt::format("joint attention of {} patches and {} text tokens", patches, kSd3Tokens),
      fields.integer({"num_layers"}, 0), problem, patches + kSd3Tokens, patches + kSd3Tokens,
      model);
  if (fields.is_list({"dual_attention_layers"}))
    add(fmt::format("attention of {} patches", patches),
        static_cast<int>(fields.integers({"dual_attention_layers"}).size()), problem, patches,
        patches, model);
}

int layers_of(const ModelFields& fields) {
  int64_t layers = fields.integer({"num_layers", "n_layers", "num_mmdit_layers"});
  static constexpr Names kSingle{"num_single_layers", "num_single_dit_layers"};
  layers += fields.count(kSingle);
  return count_of(fields, kSingle, layers);
}

Problem attention_of(const ModelFields& fields) {
  static constexpr Names kHeads{"num_attention_heads", "n_heads"};
  Problem problem;
  problem.num_heads_q = fields.integer(kHeads);
  problem.num_heads_kv =
      fields.integer({"num_key_value_heads", "num_kv_heads", "n_kv_heads"}, problem.num_heads_q);
  problem.head_dim_qk = problem.head_dim_v =
      fields.has({"attention_head_dim"})
          ? fields.integer({"attention_head_dim"})
          : fields.integer({"hidden_size", "dim"}) / problem.num_heads_q;
  return problem;
}

void read_transformer(const ModelFields& given, const DiffusionRow& row, ModelConfig* model) {
  const ModelFields fields = given.with_defaults(row.defaults);
  const Problem problem = attention_of(fields);
  const int layers = layers_of(fields);
  int64_t patches = row.patches;
  if (patches == 0) {
    const int64_t patch = fields.integer({"patch_size"});
    patches = patches_of(fields, fields.integer({"sample_size"}) / patch, patch, row.text);
  } else {
    model->notes.push_back(
        fmt::format("{}: its config states no size; attune tunes for {} with {} text tokens "
                    "(--seqlen changes that)",
                    fields.file(), row.size, row.text));
  }
  if (row.is_joint) {
    add(fmt::format("joint attention of {} patches and {} text tokens", patches, row.text), layers,
        problem, patches + row.text, patches + row.text, model);
  } else {
    add(fmt::format("self-attention of {} patches", patches), layers, problem, patches, patches,
        model);
    add(fmt::format("cross-attention to {} text tokens", row.text), layers, problem, patches,
        row.text, model);
  }
  for (AttentionLayer& layer : model->layers)
    layer.lengths = row.is_video       ? Lengths::kVideo
                    : row.is_distilled ? Lengths::kDistilled
                                       : Lengths::kDiffusion;
  model->published = "bf16";
}

}  // namespace

std::vector<std::string> diffusion_classes() {
  std::vector<std::string> names{"UNet2DConditionModel", "SD3Transformer2DModel"};
  for (const DiffusionRow& row : diffusion_rows())
    for_each_part(row.classes, ' ', [&](std::string_view name) { names.emplace_back(name); });
  return names;
}

void read_diffusion(const ModelFields& fields, ModelConfig* model) {
  const std::string name = fields.text({"_class_name"});
  if (name.find("UNet2DCondition") != std::string::npos) return read_unet(fields, model);
  if (name == "SD3Transformer2DModel") return read_sd3(fields, model);
  if (const DiffusionRow* row = find_diffusion_row(name))
    return read_transformer(fields, *row, model);
  fields.refuse({"_class_name"},
                "a network of diffusers that `attune models` lists, such as UNet2DConditionModel "
                "or FluxTransformer2DModel; for other models give --problem");
}

}  // namespace attune
