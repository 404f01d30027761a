// SPDX-License-Identifier: Apache-2.0
// Reads transformers; see config_parts.hpp.
#include "tuner/models/config_parts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "tuner/models/layer_pattern.hpp"
#include "tuner/models/model_scores.hpp"

namespace attune {

namespace {

constexpr Names kPositionNames{
    "max_position_embeddings", "n_positions", "n_ctx", "seq_length", "max_seq_len",
    "model_max_length"};

// Reads one transformer: adds kinds of layers that share its fields.
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
      case Reading::kSamImage:
        return sam_image();
      case Reading::kWindowStages:
        return window_stages();
      case Reading::kAudio:
        return audio_encoder();
      case Reading::kAnyAudio:
        return any_audio();
      case Reading::kCrossDecoder:
        return cross_decoder();
      case Reading::kEncoderDecoder:
      case Reading::kSpeech:
        return encoder_decoder();
      case Reading::kParts:
      case Reading::kNotCovered:
        note(fmt::format("it has {}; attune does not tune it", row_.not_supported));
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
    layer.layers = layers * row_.attentions_per_layer;
    layer.lengths = lengths;
    layer.problem = problem;
    model_->layers.push_back(std::move(layer));
    return model_->layers.back();
  }

  std::vector<std::string> scores_of(const ModelFields& fields, Problem* problem,
                                     bool in_window = false) {
    const ModelScores scores = read_scores(fields, row_, in_window, problem);
    for (const std::string& assumption : scores.assumptions) note(assumption);
    sees_images_ = scores.sees_images;
    return scores.not_supported;
  }

  // Adds the layers from `first` on once more, for sequences with images. Their mask has a value
  // for each row and key, which combines the causal mask, the window and the images.
  void add_with_images(size_t first) {
    for (size_t i = first, last = model_->layers.size(); i < last; ++i) {
      AttentionLayer layer = model_->layers[i];
      layer.name += ", with images";
      layer.problem.mask = Mask::kNone;
      layer.problem.window_left = layer.problem.window_right = -1;
      layer.problem.scores.mask_tensor = true;
      model_->layers.push_back(std::move(layer));
    }
  }

  // A causal model's window includes the query itself. An encoder's is what a row sees on each
  // side, or both sides together (local_attention, whole_window).
  void set_window(int window, bool causal, Problem* problem) const {
    const bool both = row_.scores == "whole_window";
    const bool is_side =
        row_.reading == Reading::kEncoder && !both && !fields_.has({"local_attention"});
    problem->window_left = causal ? window - 1 : is_side ? window : (window - (both ? 1 : 0)) / 2;
    problem->window_right = causal ? -1 : is_side ? window : window / 2;
  }

  // Adds the layers of one group.
  void add_group(const LayerGroup& group, Lengths lengths, Mask mask, int64_t max_seqlen) {
    const ModelFields fields = fields_.with_changes(group.changes);
    Problem problem = self_attention(fields);
    problem.mask = mask;
    std::vector<std::string> lacks = scores_of(fields, &problem, group.span == Span::kWindow);
    const bool causal = problem.mask != Mask::kNone || problem.scores.prefix;
    std::string name = problem.scores.prefix ? "causal after a prefix"
                       : causal              ? "causal"
                                             : "both directions";
    if (group.span == Span::kWindow) {
      const int window = window_of(fields);
      name += fmt::format(", window {}", window);
      set_window(window, causal, &problem);
      if (problem.scores.prefix)
        lacks.push_back(fmt::format("a prefix that is longer than the window ({})", window));
    } else if (group.span == Span::kChunk) {
      problem.scores.chunk = fields.integer({"attention_chunk_size"});
      name += fmt::format(", chunks of {}", problem.scores.chunk);
    } else if (group.span == Span::kSparse) {
      name += ", sparse";
      lacks.emplace_back(kChosenKeys);
      fields_.ignore({"index_topk", "index_n_heads", "index_head_dim", "index_topk_blocks"});
    }
    const auto is_here = [&](const AttentionLayer& layer) { return layer.name == named(name); };
    if (std::any_of(model_->layers.begin(), model_->layers.end(), is_here))
      name += fmt::format(", {}/{} heads of {}", problem.num_heads_q, problem.num_heads_kv,
                          problem.head_dim_qk);
    AttentionLayer& layer = add(name, group.layers, lengths, problem);
    layer.max_seqlen = max_seqlen;
    layer.may_be_padded = lengths == Lengths::kEncoder && !causal;
    layer.not_supported = lacks;
    if (group.span == Span::kSparse) sparse_.push_back(model_->layers.size() - 1);
  }

  // Adds the kinds of layers of one tower of self-attention: one kind for each group of layers.
  void add_groups(Lengths lengths, Mask mask, int64_t max_seqlen) {
    const size_t first = model_->layers.size();
    for (const LayerGroup& group : read_layer_groups(fields_)) {
      if (group.span != Span::kOther)
        add_group(group, lengths, mask, max_seqlen);
      else
        note(fmt::format("{} of its layers have no softmax self-attention; these are not tuned",
                         group.layers > 0 ? std::to_string(group.layers) : "some"));
    }
    if (sees_images_) add_with_images(first);
  }

  // Returns use_bidirectional_attention: a flag, or the name of those tokens that see ahead.
  std::string who_sees_ahead() const {
    static constexpr Names kField{"use_bidirectional_attention"};
    if (fields_.is_text(kField)) return fields_.text(kField);
    const bool is_causal = fields_.flag({"is_causal"}, true);
    return fields_.flag(kField, false) || !is_causal ? "all" : "";
  }

  void decoder() {
    const std::string ahead = who_sees_ahead();
    const size_t first = model_->layers.size();
    add_groups(Lengths::kDecoder, ahead == "all" ? Mask::kNone : Mask::kCausalBottomRight,
               fields_.integer(kPositionNames, 0));
    if (ahead == "vision" && !sees_images_) add_with_images(first);
    if (ahead == "all") return;
    for (size_t i = first; i < model_->layers.size(); ++i) {
      AttentionLayer& layer = model_->layers[i];
      if (!layer.problem.scores.mask_tensor) layer.cache = read_cache_use(fields_, layer.problem);
      const bool is_sparse = std::find(sparse_.begin(), sparse_.end(), i) != sparse_.end();
      if (is_sparse && layer.cache && layer.cache->latent_qk > 0)
        layer.cache->listed_keys = fields_.integer({"index_topk"}, 0);
    }
  }

  void encoder() {
    const bool causal = fields_.flag({"is_decoder", "causal"}, false);
    fields_.ignore({"type_vocab_size"});
    const int64_t positions = fields_.integer(kPositionNames, 0);
    const size_t first = model_->layers.size();
    add_groups(Lengths::kEncoder, causal ? Mask::kCausalBottomRight : Mask::kNone, positions);
    if (row_.reading != Reading::kFixedText) return;
    for (size_t i = first; i < model_->layers.size(); ++i)
      fix_lengths(&model_->layers[i], positions + row_.extra_tokens);
  }

  void fix_lengths(AttentionLayer* layer, int64_t length) {
    layer->lengths = Lengths::kImage;
    layer->may_be_padded = false;
    layer->fixed_seqlen_q = layer->fixed_seqlen_kv = length;
  }

  // Returns the number of patches of an image, without class and other extra tokens; 0 if the
  // config does not state it.
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

  AttentionLayer& add_image_layers(const std::string& name, int layers) {
    Problem problem =
        self_attention(fields_, kHeadNames, {"embed_dim", "hidden_size", "d_model", "dim"});
    const auto features = scores_of(fields_, &problem);
    AttentionLayer& layer = add(name, layers, Lengths::kAnyImage, problem);
    layer.not_supported = features;
    return layer;
  }

  void image() {
    const int64_t patches = num_patches();
    if (patches == 0) fields_.refuse({"image_size"}, "an integer above 0 (with patch_size)");
    AttentionLayer& layer = add_image_layers("both directions", fields_.integer(kLayerNames, 0));
    const int registers = fields_.count({"num_register_tokens", "num_registers"});
    fix_lengths(&layer, patches + row_.extra_tokens + registers);
    layer.may_be_replaced = label_.empty();
  }

  // Returns how many layers see windows of the image. The others see all of it.
  int windowed_layers() const {
    static constexpr Names kFullLayers{"fullatt_block_indexes", "global_attn_indexes"};
    const int layers = fields_.integer(kLayerNames, 0);
    if (fields_.has(kFullLayers))
      return layers - static_cast<int>(fields_.integers(kFullLayers).size());
    const std::vector<std::string> words = fields_.texts_in("layer_types");
    return static_cast<int>(std::count(words.begin(), words.end(), "window_attention"));
  }

  void add_windows(int64_t side, int layers, int64_t parts) {
    AttentionLayer& windowed =
        add_image_layers(fmt::format("windows of {0} x {0} patches", side), layers);
    if (parts == 1) windowed.not_supported.emplace_back("smaller windows at the edges of an image");
    fix_lengths(&windowed, side * side);
    windowed.parts = parts;
  }

  void any_image() {
    static constexpr Names kSide{"pos_emb_height"};
    int layers = fields_.integer(kLayerNames, 0);
    const bool windows = row_.reading == Reading::kWindowedImage;
    if (windows) layers -= windowed_layers();
    const std::vector<std::string> words = fields_.texts_in("layer_types");
    if (const auto other = std::count(words.begin(), words.end(), "conv"); other > 0) {
      note(fmt::format("{} of its layers have no softmax self-attention; these are not tuned",
                       other));
      layers -= static_cast<int>(other);
    }
    add_image_layers("both directions", layers).max_seqlen = num_patches();
    if (windows) {
      const int side = fields_.has({"window_size"})
                           ? fields_.integer({"window_size"}) / fields_.integer({"patch_size"})
                           : fields_.integer(kSide);
      if (side < 1) fields_.refuse({"window_size"}, "a multiple of patch_size");
      add_windows(side, windowed_layers(), 1);
    }
    note("its length is the number of patches of an image; set yours with --seqlen");
  }

  // Adds the layers of a Segment Anything encoder. Its image has a fixed size, and is padded to
  // whole windows.
  void sam_image() {
    const int64_t patches = num_patches();
    if (patches == 0) fields_.refuse({"image_size"}, "an integer above 0 (with patch_size)");
    const int windows = windowed_layers(), side = fields_.integer({"window_size"});
    const std::vector<int> image = fields_.integers({"image_size"}, 2);
    const int pixels = fields_.integer({"patch_size"}) * side;
    const auto across = [&](int all) { return int64_t{(all + pixels - 1) / pixels}; };
    fix_lengths(&add_image_layers("both directions", fields_.integer(kLayerNames) - windows),
                patches);
    if (windows > 0) add_windows(side, windows, across(image[0]) * across(image[1]));
  }

  // Adds stages of shifted windows. Each window is one batch entry. The bias hides keys that a row
  // of a shifted window must not see. A stage that is not larger than a window is one window.
  void window_stages() {
    // each has half the size of the one before in either direction
    constexpr size_t kMostStages = 32;
    const std::vector<int> depths = fields_.integers({"depths"});
    if (depths.size() > kMostStages)
      fields_.refuse({"depths"}, fmt::format("at most {} stages", kMostStages));
    const std::vector<int> heads = fields_.integers({"num_heads"}, depths.size());
    const std::vector<int> image = fields_.integers({"image_size"}, 2);
    const int patch = fields_.integer({"patch_size"}), window = fields_.integer({"window_size"});
    const int width = fields_.integer({"embed_dim"});
    fields_.ignore({"num_layers", "hidden_size", "pretrained_window_sizes", "encoder_stride",
                    "use_absolute_embeddings"});
    for (size_t i = 0; i < depths.size(); ++i) {
      const int64_t scale = int64_t{patch} << i, dim = int64_t{width} << i;
      const auto side = [&](int pixels) {
        return std::max<int64_t>(1, (pixels + scale - 1) / scale);
      };
      const int64_t seen = std::min({int64_t{window}, side(image[0]), side(image[1])});
      const auto across = [&](int pixels) { return (side(pixels) + seen - 1) / seen; };
      if (dim % heads[i] != 0)
        fields_.refuse({"num_heads"}, fmt::format("a divisor of stage {}'s width ({})", i, dim));
      Problem problem;
      problem.num_heads_q = problem.num_heads_kv = heads[i];
      problem.head_dim_qk = problem.head_dim_v = static_cast<int>(dim / heads[i]);
      set_scale(fields_, &problem);
      const auto features = scores_of(fields_, &problem);
      AttentionLayer& layer =
          add(fmt::format("stage {0}, windows of {1} x {1} patches", i + 1, seen), depths[i],
              Lengths::kImage, problem);
      fix_lengths(&layer, seen * seen);
      layer.parts = across(image[0]) * across(image[1]);
      layer.not_supported = features;
    }
  }

  void audio_encoder() {
    const Problem problem = self_attention(fields_);
    fix_lengths(&add("both directions", fields_.integer({"encoder_layers", "num_hidden_layers"}, 0),
                     Lengths::kImage, problem),
                fields_.integer({"max_source_positions"}));
  }

  void any_audio() {
    Problem problem = self_attention(fields_);
    const auto features = scores_of(fields_, &problem);
    AttentionLayer& layer =
        add("both directions", fields_.integer({"encoder_layers", "num_hidden_layers"}, 0),
            Lengths::kAnyImage, problem);
    layer.not_supported = features;
    note("its length is the number of frames of a sound; set yours with --seqlen");
  }

  void cross_decoder() {
    static constexpr Names kHeads{"decoder_attention_heads", "attention_heads", "num_heads",
                                  "num_attention_heads"};
    Problem causal = self_attention(fields_, kHeads);
    Problem cross = causal;
    cross.num_heads_q = fields_.integer({"cross_num_attention_heads"}, cross.num_heads_q);
    cross.num_heads_kv = fields_.integer({"cross_num_key_value_heads"}, cross.num_heads_kv);
    cross.head_dim_qk = fields_.integer({"cross_head_dim"}, cross.head_dim_qk);
    cross.head_dim_v = fields_.integer({"cross_head_dim"}, cross.head_dim_v);
    causal.mask = Mask::kCausalBottomRight;
    const auto features = scores_of(fields_, &causal);
    const int layers = fields_.integer(
        {"decoder_layers", "num_decoder_layers", "layers", "num_layers", "num_hidden_layers"}, 0);
    fields_.ignore({"encoder_layers", "encoder_attention_heads", "add_cross_attention",
                    "is_decoder", "encoder_hidden_size"});
    const int64_t positions = fields_.integer(kPositionNames, 0);
    AttentionLayer& self = add("causal", layers, Lengths::kEncoder, causal);
    self.max_seqlen = positions;
    self.not_supported = features;
    self.cache = read_cache_use(fields_, causal);
    AttentionLayer& over = add("cross-attention", layers, Lengths::kEncoder, cross);
    over.max_seqlen = positions;
    over.cache = CacheUse{.is_cross = true};
  }

  void encoder_decoder() {
    const bool speech = row_.reading == Reading::kSpeech;
    fields_.ignore({"is_encoder_decoder", "num_hidden_layers"});
    Problem encoder = self_attention(
        fields_, {"encoder_attention_heads", "num_encoder_attention_heads",
                  "encoder_num_attention_heads", "num_heads", "num_attention_heads"});
    const Problem decoder = self_attention(
        fields_, {"decoder_attention_heads", "num_decoder_attention_heads",
                  "decoder_num_attention_heads", "num_heads", "num_attention_heads"});
    const int encoder_layers = fields_.integer(
        {"encoder_layers", "num_encoder_layers", "encoder_num_hidden_layers", "num_layers"}, 0);
    const int decoder_layers =
        fields_.has({"num_decoder_layers"})
            ? fields_.integer({"num_decoder_layers"})
            : fields_.integer({"decoder_layers", "decoder_num_hidden_layers", "num_layers"}, 0);
    const int64_t max_seqlen =
        speech ? fields_.integer({"max_target_positions"}) : fields_.integer(kPositionNames, 0);
    // A position bias belongs to self-attention only.
    Problem causal = decoder;
    causal.mask = Mask::kCausalBottomRight;
    const auto features = scores_of(fields_, &encoder);
    scores_of(fields_, &causal);
    const auto add_kind = [&](const char* name, int layers, const Problem& problem) {
      AttentionLayer& layer = add(name, layers, Lengths::kEncoder, problem);
      layer.max_seqlen = max_seqlen;
      layer.ends_at_max = speech;
      layer.may_be_padded = !speech && problem.mask == Mask::kNone;
      return &layer;
    };
    AttentionLayer* const first = add_kind("encoder, both directions", encoder_layers, encoder);
    first->not_supported = features;
    if (speech) fix_lengths(first, fields_.integer({"max_source_positions"}));
    AttentionLayer* const cross = add_kind("cross-attention", decoder_layers, decoder);
    if (speech) cross->fixed_seqlen_kv = fields_.integer({"max_source_positions"});
    cross->cache = CacheUse{.is_cross = true};
    AttentionLayer* const self = add_kind("decoder, causal", decoder_layers, causal);
    self->not_supported = features;
    self->cache = read_cache_use(fields_, causal);
  }

  const ModelFields& fields_;
  const ModelRow& row_;
  const std::string& label_;
  ModelConfig* model_;
  std::vector<size_t> sparse_;  // layers whose keys an indexer chooses
  bool sees_images_ = false;    // of the last scores_of
};

}  // namespace

void read_tower(const ModelFields& fields, const ModelRow& row, const std::string& label,
                ModelConfig* model) {
  Tower(fields, row, label, model).read();
  if (!row.not_tuned.empty())
    model->notes.push_back(fmt::format("{}: {}{} is not tuned", fields.file(),
                                       label.empty() ? "" : label + ": ", row.not_tuned));
}

}  // namespace attune
