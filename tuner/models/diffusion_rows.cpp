// SPDX-License-Identifier: Apache-2.0
// The table of diffusers' transformers; see diffusion_rows.hpp. Defaults are diffusers'.
#include "tuner/models/diffusion_rows.hpp"

#include "tuner/models/model_table.hpp"

namespace attune {
namespace {

// clang-format off
constexpr DiffusionRow kRows[] = {
// Images and text in one attention.
{.classes = "FluxTransformer2DModel", .defaults = R"({"num_attention_heads": 24,
    "attention_head_dim": 128, "num_layers": 19, "num_single_layers": 38})", .is_distilled = true},
{.classes = "ChromaTransformer2DModel LongCatImageTransformer2DModel",
    .defaults = R"({"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 19,
    "num_single_layers": 38})"},
{.classes = "BriaTransformer2DModel BriaFiboTransformer2DModel", .text = 128,
    .defaults = R"({"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 19,
    "num_single_layers": 38})"},
{.classes = "Flux2Transformer2DModel", .defaults = R"({"num_attention_heads": 48,
    "attention_head_dim": 128, "num_layers": 8, "num_single_layers": 48})", .is_distilled = true},
{.classes = "OvisImageTransformer2DModel", .text = 256, .defaults = R"({"num_attention_heads": 24,
    "attention_head_dim": 128, "num_layers": 6, "num_single_layers": 27})"},
{.classes = "QwenImageTransformer2DModel", .defaults = R"({"num_attention_heads": 24,
    "attention_head_dim": 128, "num_layers": 60})"},
{.classes = "AuraFlowTransformer2DModel", .text = 256, .defaults = R"({"num_attention_heads": 12,
    "attention_head_dim": 256, "num_mmdit_layers": 4, "num_single_dit_layers": 32})"},
{.classes = "CogView3PlusTransformer2DModel CogView4Transformer2DModel", .text = 224,
    .defaults = R"({"num_attention_heads": 64, "attention_head_dim": 40, "num_layers": 30})"},
{.classes = "HunyuanImageTransformer2DModel", .size = "2048 x 2048", .text = 1000,
    .defaults = R"({"num_attention_heads": 28, "attention_head_dim": 128, "num_layers": 20,
    "num_single_layers": 40})"},
{.classes = "Lumina2Transformer2DModel", .text = 256, .defaults = R"({"num_attention_heads": 24,
    "num_kv_heads": 8, "hidden_size": 2304, "num_layers": 26})"},
{.classes = "ZImageTransformer2DModel", .defaults = R"({"n_heads": 30, "dim": 3840,
    "n_layers": 30})"},
{.classes = "Krea2Transformer2DModel", .defaults = R"({"num_attention_heads": 48,
    "num_key_value_heads": 12, "attention_head_dim": 128, "num_layers": 28})"},
// Images, and cross-attention to text.
{.classes = "PixArtTransformer2DModel", .is_joint = false, .patches = 0, .text = 300,
    .defaults = R"({"num_attention_heads": 16, "attention_head_dim": 72, "num_layers": 28,
    "sample_size": 128, "patch_size": 2})"},
{.classes = "HunyuanDiT2DModel", .is_joint = false, .patches = 0, .text = 333,
    .defaults = R"({"num_attention_heads": 16, "attention_head_dim": 88, "num_layers": 28,
    "sample_size": 32, "patch_size": 2})"},
// Videos and text in one attention.
{.classes = "HunyuanVideoTransformer3DModel HunyuanVideoFramepackTransformer3DModel",
    .patches = 25440, .size = "848 x 480 in 61 frames", .text = 256,
    .defaults = R"({"num_attention_heads": 24, "attention_head_dim": 128, "num_layers": 20,
    "num_single_layers": 40})", .is_video = true},
{.classes = "CogVideoXTransformer3DModel", .patches = 17550, .size = "720 x 480 in 49 frames",
    .text = 226, .defaults = R"({"num_attention_heads": 30, "attention_head_dim": 64,
    "num_layers": 30})", .is_video = true},
{.classes = "MochiTransformer3DModel", .patches = 44520, .size = "848 x 480 in 163 frames",
    .text = 256, .defaults = R"({"num_attention_heads": 24, "attention_head_dim": 128,
    "num_layers": 48})", .is_video = true},
// Videos, and cross-attention to text.
{.classes = "WanTransformer3DModel WanVACETransformer3DModel ChronoEditTransformer3DModel",
    .is_joint = false, .patches = 32760, .size = "832 x 480 in 81 frames",
    .defaults = R"({"num_attention_heads": 40, "attention_head_dim": 128, "num_layers": 40})",
    .is_video = true},
{.classes = "SkyReelsV2Transformer3DModel", .is_joint = false, .patches = 32760,
    .size = "832 x 480 in 81 frames", .defaults = R"({"num_attention_heads": 16,
    "attention_head_dim": 128, "num_layers": 32})", .is_video = true},
{.classes = "LTXVideoTransformer3DModel", .is_joint = false, .patches = 8064,
    .size = "768 x 512 in 161 frames", .text = 128, .defaults = R"({"num_attention_heads": 32,
    "attention_head_dim": 64, "num_layers": 28})", .is_video = true},
{.classes = "AllegroTransformer3DModel", .is_joint = false, .patches = 79200,
    .size = "1280 x 720 in 88 frames", .defaults = R"({"num_attention_heads": 24,
    "attention_head_dim": 96, "num_layers": 32})", .is_video = true},
};
// clang-format on

}  // namespace

std::span<const DiffusionRow> diffusion_rows() { return kRows; }

const DiffusionRow* find_diffusion_row(std::string_view class_name) {
  const DiffusionRow* found = nullptr;
  for (const DiffusionRow& row : kRows)
    for_each_part(row.classes, ' ', [&](std::string_view one) {
      if (one == class_name) found = &row;
    });
  return found;
}

}  // namespace attune
