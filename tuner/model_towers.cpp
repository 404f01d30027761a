// SPDX-License-Identifier: Apache-2.0
// Reading transformers; see model_towers.hpp.
#include "tuner/model_towers.hpp"

#include <fmt/format.h>

#include <cmath>

#include "tuner/layer_pattern.hpp"

namespace attune {

const Names kHeadNames{"num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"};

namespace {

constexpr Names kHiddenNames{"hidden_size", "n_embd", "n_embed", "d_model", "dim"};
constexpr Names kKvHeadNames{"num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads",
                             "attn_config.kv_n_heads"};
constexpr Names kHeadDimNames{"head_dim", "kv_channels", "d_kv"};
constexpr Names kPositionNames{"max_position_embeddings", "n_positions", "n_ctx", "seq_length",
                               "max_seq_len"};

// Falcon states num_kv_heads also where multi_query makes it 1.
int kv_heads(const ModelFields& fields, int num_heads_q) {
  fields.ignore(kKvHeadNames);
  fields.ignore({"multi_query_group_num"});
  const bool counted = fields.flag({"new_decoder_architecture"}, false);
  const bool multi_query = fields.flag({"multi_query"}, false);
  if (multi_query && !counted) return 1;
  if (fields.flag({"multi_query_attention"}, false))
    return fields.integer({"multi_query_group_num"});
  return fields.integer(kKvHeadNames, num_heads_q);
}

int head_dim(const ModelFields& fields, Names hidden_names, int num_heads_q) {
  if (fields.has(kHeadDimNames)) return fields.integer(kHeadDimNames);
  const int hidden = fields.integer(hidden_names);
  if (hidden % num_heads_q != 0)
    fields.refuse(hidden_names, fmt::format("a multiple of num_attention_heads ({})", num_heads_q));
  return hidden / num_heads_q;
}

void set_scale(const ModelFields& fields, Problem* problem) {
  static constexpr Names kScale{"attention_multiplier", "attn_config.softmax_scale"};
  const double usual = 1 / std::sqrt(problem->head_dim_qk);
  double scale = usual;
  if (fields.has(kScale)) scale = fields.number(kScale);
  if (fields.has({"query_pre_attn_scalar"}))
    scale = 1 / std::sqrt(fields.number({"query_pre_attn_scalar"}));
  if (std::fabs(scale - usual) > 1e-6) problem->softmax_scale = static_cast<float>(scale);
}

// Heads, head dims and scale of self-attention.
Problem self_attention(const ModelFields& fields, Names head_names = kHeadNames,
                       Names hidden_names = kHiddenNames) {
  Problem problem;
  problem.num_heads_q = fields.integer(head_names);
  if (fields.has({"kv_lora_rank"}) && fields.has({"qk_rope_head_dim"})) {
    // K and V are expanded from their latent form for prefill: each query head has its own.
    problem.num_heads_kv = problem.num_heads_q;
    problem.head_dim_qk =
        fields.integer({"qk_nope_head_dim"}) + fields.integer({"qk_rope_head_dim"});
    problem.head_dim_v = fields.integer({"v_head_dim"});
    fields.ignore({"num_key_value_heads", "head_dim", "qk_head_dim", "q_lora_rank"});
  } else {
    problem.num_heads_kv = kv_heads(fields, problem.num_heads_q);
    if (problem.num_heads_q % problem.num_heads_kv != 0)
      fields.refuse(kKvHeadNames,
                    fmt::format("a divisor of num_attention_heads ({})", problem.num_heads_q));
    problem.head_dim_qk = problem.head_dim_v = head_dim(fields, hidden_names, problem.num_heads_q);
  }
  set_scale(fields, &problem);
  return problem;
}

std::vector<std::string> unsupported_features(const ModelFields& fields, const ModelRow& row) {
  std::vector<std::string> features;
  if (!row.not_supported.empty()) {
    features.emplace_back(row.not_supported);
    fields.ignore({"relative_attention", "relative_attention_num_buckets",
                   "relative_attention_max_distance", "max_relative_positions"});
  }
  if (fields.has({"attn_logit_softcapping"}))
    features.push_back(fmt::format("softcap {} (attn_logit_softcapping)",
                                   fields.number({"attn_logit_softcapping"})));
  const std::string positions =
      fields.is_text({"position_embedding_type"}) ? fields.text({"position_embedding_type"}) : "";
  if (fields.flag({"alibi", "use_alibi", "attn_config.alibi"}, false) || positions == "alibi")
    features.emplace_back("ALiBi");
  if (positions.rfind("relative", 0) == 0)
    features.push_back(fmt::format("positions {} (position_embedding_type)", positions));
  if (fields.flag({"use_relative_position_bias"}, false) ||
      fields.flag({"use_shared_relative_position_bias"}, false))
    features.emplace_back("relative position bias");
  if (fields.flag({"attn_config.prefix_lm"}, false)) features.emplace_back("a prefix without mask");
  return features;
}

// One transformer while it is read: adds kinds of layer with what they share.
class Tower {
 public:
  Tower(const ModelFields& fields, const ModelRow& row, const std::string& label,
        ModelConfig* model)
      : fields_(fields), row_(row), label_(label), model_(model) {}

  void read() {
    switch (row_.reading) {
      case Reading::kDecoder:
        return decoder();
      case Reading::kEncoder:
      case Reading::kFixedText:
        return encoder();
      case Reading::kImage:
        return image();
      case Reading::kAnyImage:
      case Reading::kWindowedImage:
        return any_image();
      case Reading::kAudio:
        return audio_encoder();
      case Reading::kEncoderDecoder:
      case Reading::kSpeech:
        return encoder_decoder();
      case Reading::kParts:
      case Reading::kNotCovered:
        note(fmt::format("{} is not supported yet; no problem comes of it", row_.not_supported));
    }
  }

 private:
  std::string named(const std::string& name) const {
    return label_.empty() ? name : fmt::format("{}: {}", label_, name);
  }
  void note(const std::string& sentence) {
    model_->notes.push_back(fmt::format("{}: {}", fields_.file(), named(sentence)));
  }
  AttentionLayer& add(const std::string& name, int layers, Lengths lengths,
                      const Problem& problem) {
    AttentionLayer layer;
    layer.name = named(name);
    layer.layers = layers;
    layer.lengths = lengths;
    layer.problem = problem;
    model_->layers.push_back(std::move(layer));
    return model_->layers.back();
  }

  // The kinds of layer of one tower of self-attention, by their spans.
  void add_spans(const std::string& name, Lengths lengths, const Problem& problem,
                 int64_t max_seqlen) {
    const LayerPattern pattern = read_layer_pattern(fields_);
    const auto features = unsupported_features(fields_, row_);
    const auto add_span = [&](const LayerPattern::Part& part, const std::string& span) {
      AttentionLayer& layer = add(name + span, part.layers, lengths, problem);
      layer.max_seqlen = max_seqlen;
      layer.not_supported = features;
      return &layer;
    };
    if (pattern.full.here) add_span(pattern.full, "");
    if (pattern.windowed.here) {
      const int window = window_of(fields_);
      AttentionLayer* layer = add_span(pattern.windowed, fmt::format(", window {}", window));
      const bool causal = problem.mask != Mask::kNone;  // then the window holds the query itself
      layer->problem.window_left = causal ? window - 1 : window / 2;
      layer->problem.window_right = causal ? -1 : window / 2;
    }
    if (pattern.chunked.here) {
      const int chunk = fields_.integer({"attention_chunk_size"});
      AttentionLayer* layer = add_span(pattern.chunked, fmt::format(", chunks of {}", chunk));
      layer->chunk = chunk;
      layer->not_supported.push_back(
          fmt::format("more than one chunk in a call (attention_chunk_size {})", chunk));
    }
    if (pattern.other.here)
      note(
          fmt::format("{} of its layers have no self-attention over a softmax; no problem comes "
                      "of them",
                      pattern.other.layers > 0 ? std::to_string(pattern.other.layers) : "some"));
  }

  void decoder() {
    Problem problem = self_attention(fields_);
    const bool causal = !fields_.flag({"use_bidirectional_attention"}, false);
    problem.mask = causal ? Mask::kCausalBottomRight : Mask::kNone;
    add_spans(causal ? "causal" : "both directions", Lengths::kDecoder, problem,
              fields_.integer(kPositionNames, 0));
    if (fields_.has({"kv_lora_rank"}))
      note("decoding on the latent form of K and V is not supported yet; what is tuned is prefill");
  }

  void encoder() {
    Problem problem = self_attention(fields_);
    const bool causal = fields_.flag({"is_decoder", "causal"}, false);
    if (causal) problem.mask = Mask::kCausalBottomRight;
    fields_.ignore({"type_vocab_size"});
    const int64_t positions = fields_.integer(kPositionNames, 0);
    const size_t first = model_->layers.size();
    add_spans(causal ? "causal" : "both directions", Lengths::kEncoder, problem, positions);
    if (row_.reading != Reading::kFixedText) return;
    for (size_t i = first; i < model_->layers.size(); ++i)
      fix_lengths(&model_->layers[i], positions);
  }

  void fix_lengths(AttentionLayer* layer, int64_t length) {
    layer->lengths = Lengths::kImage;
    layer->fixed_seqlen_q = layer->fixed_seqlen_kv = length;
  }

  // Of an image as the config states it, without class and other tokens; 0 when it does not.
  int64_t num_patches() const {
    fields_.ignore({"image_size", "patch_size"});
    if (fields_.has({"num_patches"})) return fields_.integer({"num_patches"});
    if (!fields_.has({"image_size"}) || !fields_.has({"patch_size"})) return 0;
    const std::vector<int> image = fields_.integers({"image_size"}, 2);
    const std::vector<int> patch = fields_.integers({"patch_size"}, 2);
    if (image[0] < patch[0] || image[1] < patch[1])
      fields_.refuse({"patch_size"}, fmt::format("up to image_size ({})", image[0]));
    return int64_t{image[0] / patch[0]} * (image[1] / patch[1]);
  }

  AttentionLayer& add_image_layers(int layers) {
    AttentionLayer& layer =
        add("both directions", layers, Lengths::kAnyImage,
            self_attention(fields_, kHeadNames, {"embed_dim", "hidden_size", "d_model", "dim"}));
    layer.not_supported = unsupported_features(fields_, row_);
    return layer;
  }

  void image() {
    const int64_t patches = num_patches();
    if (patches == 0) fields_.refuse({"image_size"}, "an integer above 0, beside patch_size");
    fix_lengths(&add_image_layers(fields_.integer(kLayerNames, 0)),
                patches + row_.extra_tokens + fields_.count({"num_register_tokens"}));
  }

  void any_image() {
    const int layers = fields_.integer(kLayerNames, 0);
    AttentionLayer& all = add_image_layers(layers);
    all.max_seqlen = num_patches();
    if (row_.reading == Reading::kWindowedImage) {
      const int full = static_cast<int>(fields_.integers({"fullatt_block_indexes"}).size());
      const int side = fields_.integer({"window_size"}) / fields_.integer({"patch_size"});
      if (side < 1) fields_.refuse({"window_size"}, "a multiple of patch_size");
      all.layers = full;
      AttentionLayer windowed = all;
      windowed.name = named(fmt::format("windows of {0} x {0} patches", side));
      windowed.layers = layers - full;
      windowed.not_supported.emplace_back("smaller windows at the edges of an image");
      fix_lengths(&windowed, int64_t{side} * side);
      model_->layers.push_back(std::move(windowed));
    }
    note("its length is the number of patches of an image; --seqlen gives yours");
  }

  void audio_encoder() {
    const Problem problem = self_attention(fields_, {"encoder_attention_heads"});
    fix_lengths(
        &add("both directions", fields_.integer({"encoder_layers"}, 0), Lengths::kImage, problem),
        fields_.integer({"max_source_positions"}));
  }

  void encoder_decoder() {
    const bool speech = row_.reading == Reading::kSpeech;
    fields_.ignore({"is_encoder_decoder", "num_hidden_layers"});
    const Problem encoder =
        self_attention(fields_, {"encoder_attention_heads", "num_heads", "num_attention_heads"});
    Problem decoder =
        self_attention(fields_, {"decoder_attention_heads", "num_heads", "num_attention_heads"});
    const int encoder_layers = fields_.integer({"encoder_layers", "num_layers"}, 0);
    const int decoder_layers = fields_.has({"num_decoder_layers"})
                                   ? fields_.integer({"num_decoder_layers"})
                                   : fields_.integer({"decoder_layers", "num_layers"}, 0);
    const int64_t max_seqlen =
        speech ? fields_.integer({"max_target_positions"}) : fields_.integer(kPositionNames, 0);
    const auto features = unsupported_features(fields_, row_);
    const auto add_kind = [&](const char* name, int layers, const Problem& problem) {
      AttentionLayer& layer = add(name, layers, Lengths::kEncoder, problem);
      layer.max_seqlen = max_seqlen;
      layer.not_supported = features;
      return &layer;
    };
    AttentionLayer* const first = add_kind("encoder, both directions", encoder_layers, encoder);
    if (speech) fix_lengths(first, fields_.integer({"max_source_positions"}));
    AttentionLayer* const cross = add_kind("cross-attention", decoder_layers, decoder);
    cross->not_supported.clear();  // a bias of positions is that of self-attention alone
    if (speech) cross->fixed_seqlen_kv = fields_.integer({"max_source_positions"});
    decoder.mask = Mask::kCausalBottomRight;
    add_kind("decoder, causal", decoder_layers, decoder);
  }

  const ModelFields& fields_;
  const ModelRow& row_;
  const std::string& label_;
  ModelConfig* model_;
};

}  // namespace

void read_tower(const ModelFields& fields, const ModelRow& row, const std::string& label,
                ModelConfig* model) {
  Tower(fields, row, label, model).read();
}

}  // namespace attune
