// SPDX-License-Identifier: Apache-2.0
// Makes the problems of an engine; see serving.hpp.
#include "tuner/models/serving.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/problem/dtype.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/features/score_feature.hpp"

namespace attune {
namespace {

constexpr int64_t kAssumedMemory = 80'000'000'000;
constexpr int kDraftedRows = 4;
constexpr int kPromptsOfAStep = 8;
constexpr int64_t kUsualKeys = 8192;  // where one length stands for all

Dtype dtype_of_cache(const ServingChoice& serving, const ModelConfig& model, Dtype dtype) {
  return serving.dtype_kv.value_or(model.cache_dtype.value_or(dtype));
}

// Returns the factors that caches of 4 bits usually have: those of NVFP4, and as few for int4.
KvFactors usual_factors(Dtype cache) {
  return cache == Dtype::kE2m1   ? KvFactors::kColumns16
         : cache == Dtype::kInt4 ? KvFactors::kColumns32
                                 : KvFactors::kHeads;
}
// Returns the bytes of columns of a key.
double bytes_of_columns(Dtype cache, int64_t columns) {
  const auto all = static_cast<double>(columns);
  const int group = columns_of_factor(usual_factors(cache));
  return group > 0 ? all / 2 + all / group : all * dtype_bytes(cache);
}

// Returns the keys that a request of `keys` keys has in this layer's cache.
int64_t length_of(const AttentionLayer& layer, int64_t keys) {
  if (layer.fixed_seqlen_kv > 0) return layer.fixed_seqlen_kv;
  return layer.ends_at_max && !layer.cache->is_cross ? std::min(keys, layer.max_seqlen) : keys;
}

// Returns the bytes that a request of `keys` keys takes in the caches of all layers.
double request_bytes(const ModelConfig& model, Dtype cache, int64_t keys) {
  double bytes = 0;
  for (const AttentionLayer& layer : model.layers) {
    if (!layer.cache) continue;
    const Problem& p = layer.problem;
    const int64_t own = length_of(layer, keys);
    const int64_t seen = p.window_left >= 0 ? std::min(own, p.window_left + 1) : own;
    const int64_t columns = layer.cache->latent_qk > 0
                                ? layer.cache->latent_qk
                                : int64_t{p.num_heads_kv} * (p.head_dim_qk + p.head_dim_v);
    bytes += static_cast<double>(std::max(layer.layers, 1)) * static_cast<double>(seen) *
             bytes_of_columns(cache, columns);
  }
  return bytes;
}

int64_t most_positions(const ModelConfig& model) {
  int64_t most = 0;
  for (const AttentionLayer& layer : model.layers)
    if (layer.cache && !layer.cache->is_cross) most = std::max(most, layer.max_seqlen);
  return most;
}

std::vector<int64_t> default_lengths(const ModelConfig& model, Target target) {
  std::vector<int64_t> lengths = target == Target::kCpu ? std::vector<int64_t>{256, 1024}
                                                        : std::vector<int64_t>{1024, 8192, 32768};
  const int64_t most = most_positions(model);
  if (most == 0) return lengths;
  std::erase_if(lengths, [&](int64_t length) { return length > most; });
  if (lengths.empty()) lengths.push_back(most);
  return lengths;
}

// Adds to the problem what a cache of the layer has. Rows attend to the newest keys.
Problem over_cache(const AttentionLayer& layer, Op op, Dtype dtype, Dtype cache) {
  Problem p = layer.problem;
  p.op = op;
  p.dtype_q = p.dtype_o = dtype;
  p.dtype_kv = cache;
  p.cache.kv_factors = usual_factors(cache);
  p.fp8 = {};
  p.mask = layer.cache->is_cross ? Mask::kNone : Mask::kCausalBottomRight;
  p.scores.prefix = p.scores.key_lengths = p.scores.documents = false;
  p.scores.chunk = 0;  // the engine gives the keys of the last chunk
  return p;
}

// Latent attention multiplies the rows of q with the latent vectors, which are K of one head.
void make_latent(const CacheUse& cache, const Problem& layer, Problem* p) {
  const double usual = 1 / std::sqrt(static_cast<double>(layer.head_dim_qk));
  p->num_heads_kv = 1;
  p->head_dim_qk = cache.latent_qk;
  p->head_dim_v = cache.latent_v;
  p->cache.v_in_k = true;
  if (cache.listed_keys > 0) {  // places, which engines compute once for all layers
    p->cache.key_indices = KeyIndices::kPlaces;
    p->listed_keys = cache.listed_keys;
    p->mask = Mask::kNone;
  }
  p->softmax_scale = layer.softmax_scale.value_or(static_cast<float>(usual));
}

// Returns the first feature of the layer's scores that ops over caches do not take, or null.
const ScoreFeature* feature_without_cache(const Problem& p) {
  for (const ScoreFeature* feature : score_features())
    if (!feature->over_caches && feature->is_on(p)) return feature;
  return nullptr;
}

// Returns the decoding of a layer whose scores ops over caches do not take: one row over keys that
// lie together, as a program without such a cache calls it.
std::vector<Problem> rows_over_keys(const ServingSizes& sizes, const AttentionLayer& layer,
                                    Dtype dtype) {
  std::vector<Problem> problems;
  for (const auto& [batch, keys] : sizes.decode) {
    Problem p = layer.problem;
    p.dtype_q = p.dtype_kv = p.dtype_o = dtype;
    p.batch = batch;
    p.seqlen_q = 1;
    p.seqlen_kv = length_of(layer, keys);
    problems.push_back(p);
  }
  return problems;
}

class LayerProblems {
 public:
  LayerProblems(const ServingChoice& serving, const ServingSizes& sizes,
                const AttentionLayer& layer, Dtype dtype, Dtype cache)
      : sizes_(sizes), layer_(layer), cache_(*layer.cache) {
    attention_ = over_cache(layer, Op::kAttentionKvCache, dtype, cache);
    prompts_ = over_cache(layer, Op::kAttentionKvCache, dtype, dtype);
    if (is_latent()) make_latent(cache_, layer.problem, &attention_);
    append_ = over_cache(layer, Op::kAppendKv, dtype, cache);
    append_.mask = Mask::kNone;
    append_.window_left = append_.window_right = -1;
    append_.scores = {};
    append_.softmax_scale.reset();
    page_size_ = serving.page_size > 0 ? serving.page_size : is_latent() ? 64 : 16;
    attention_.cache.page_size = append_.cache.page_size = static_cast<int>(page_size_);
  }

  std::vector<Problem> all() {
    for (const auto& [batch, keys] : sizes_.decode)
      if (!is_within_window(batch, keys)) add(false, batch, 1, keys);
    for (const int64_t batch : batches()) add(true, batch, 1, keys_for(batch));
    for (const int64_t batch : batches())
      if (batch > 1 && batch <= kMostDrafting) add(true, batch, kDraftedRows, keys_for(batch));
    if (!is_latent() || cache_.listed_keys > 0) add_chunks();
    if (!cache_.is_cross) {  // an encoder's keys are written before the first row
      add_prompts();
      add_appends();
    }
    return std::move(problems_);
  }

 private:
  static constexpr int64_t kMostDrafting = 32;

  bool is_latent() const { return cache_.latent_qk > 0; }

  std::vector<int64_t> batches() const {
    std::vector<int64_t> all;
    for (const auto& [batch, unused] : sizes_.decode)
      if (std::find(all.begin(), all.end(), batch) == all.end()) all.push_back(batch);
    return all;
  }

  // Returns the longest length of the batch up to the usual one, else its shortest.
  int64_t keys_for(int64_t batch) const {
    int64_t best = 0, least = 0;
    for (const auto& [one, keys] : sizes_.decode) {
      if (one != batch) continue;
      least = least == 0 ? keys : std::min(least, keys);
      if (keys <= kUsualKeys) best = std::max(best, keys);
    }
    return best > 0 ? best : least;
  }

  // True for lengths of a layer with a window or lists of keys, between the batch's shortest and
  // longest. One row reads the same number of keys at all of them.
  bool is_within_window(int64_t batch, int64_t keys) const {
    if (cache_.listed_keys == 0 && (attention_.window_left < 0 || keys <= attention_.window_left))
      return false;
    int64_t least = keys, most = keys;
    for (const auto& [one, other] : sizes_.decode) {
      if (one != batch) continue;
      least = std::min(least, other);
      most = std::max(most, other);
    }
    return keys > least && keys < most;
  }

  // Chunked layers see the keys of one chunk alone.
  int64_t seen(int64_t keys) const {
    const int64_t chunk = layer_.problem.scores.chunk, own = length_of(layer_, keys);
    return chunk > 0 ? std::min(own, chunk) : own;
  }

  // Returns the rows of a prompt: no more than the model has positions.
  int64_t prompt_rows(int64_t rows) const {
    return std::max<int64_t>(1, layer_.max_seqlen > 0 ? std::min(rows, layer_.max_seqlen) : rows);
  }

  void add(bool packed, int64_t batch, int64_t rows, int64_t keys) {
    Problem p = attention_;
    p.cache.packed_q = packed;
    p.batch = batch;
    p.seqlen_q = rows;
    p.seqlen_kv = seen(cache_.is_cross ? keys : std::max(keys, rows));
    if (cache_.is_cross || p.seqlen_kv >= rows) problems_.push_back(p);
  }

  // A step's rows are one long chunk, or chunks of several prompts.
  void add_chunks() {
    int64_t longest = 0;
    for (const auto& [batch, keys] : sizes_.decode) longest = std::max(longest, keys);
    add(true, 1, prompt_rows(sizes_.max_batch_tokens), longest);
    add(true, kPromptsOfAStep, prompt_rows(sizes_.max_batch_tokens / kPromptsOfAStep),
        std::min(longest, kUsualKeys));
  }

  void add_prompts() {
    const int64_t rows = sizes_.max_batch_tokens;
    for (const auto& [batch, length] : {std::pair<int64_t, int64_t>{1, prompt_rows(rows)},
                                        {kPromptsOfAStep, prompt_rows(rows / kPromptsOfAStep)}}) {
      Problem p = prompts_;
      p.cache.packed_q = p.cache.packed_kv = true;
      p.batch = batch;
      p.seqlen_q = p.seqlen_kv = seen(length);
      problems_.push_back(p);
    }
  }

  // Writes by slots give the page of each row, so a problem's length is that of a page.
  void add_appends() {
    Problem slots = append_;
    slots.cache.packed_q = true;
    slots.batch = 1;
    slots.seqlen_q = sizes_.max_batch_tokens;
    slots.seqlen_kv = page_size_;
    slots.num_pages = std::max<int64_t>(sizes_.max_batch_tokens / page_size_, 1);
    if (is_latent()) {
      if (cache_.latent_qk == cache_.latent_v) return;  // rows of one part, which engines copy
      slots.num_heads_q = slots.num_heads_kv = 1;
      slots.head_dim_qk = cache_.latent_v;
      slots.head_dim_v = cache_.latent_qk - cache_.latent_v;
      problems_.push_back(slots);
      return;
    }
    slots.num_heads_q = slots.num_heads_kv;
    problems_.push_back(slots);
    if (cache_.rotary_dim == 0) return;
    const std::vector<int64_t> all = batches();
    const int64_t batch = *std::max_element(all.begin(), all.end()), keys = keys_for(batch);
    Problem turned = append_;
    turned.batch = batch;
    turned.seqlen_q = 1;
    turned.seqlen_kv = keys;
    turned.append.rotary = turned.dtype_q == Dtype::kBf16   ? ScoreTensor::kBf16
                           : turned.dtype_q == Dtype::kFp16 ? ScoreTensor::kFp16
                                                            : ScoreTensor::kFp32;
    turned.append.rotary_dim = cache_.rotary_dim;
    turned.append.rotary_interleaved = cache_.rotary_interleaved;
    turned.append.rotary_q = true;
    problems_.push_back(turned);
  }

  const ServingSizes& sizes_;
  const AttentionLayer& layer_;
  const CacheUse& cache_;
  Problem attention_, prompts_, append_;
  int64_t page_size_ = 0;
  std::vector<Problem> problems_;
};

}  // namespace

void take_part_of_heads(int gpus, ModelConfig* model) {
  for (AttentionLayer& layer : model->layers) {
    if (!layer.cache) continue;
    Problem& p = layer.problem;
    const bool divides =
        p.num_heads_q % gpus == 0 && (p.num_heads_kv % gpus == 0 || gpus % p.num_heads_kv == 0);
    if (gpus < 1 || !divides)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("--tensor-parallel is {}, and {} has {} heads of q and {} of k; must "
                              "divide the heads",
                              gpus, layer.name, p.num_heads_q, p.num_heads_kv));
    p.num_heads_q /= gpus;
    p.num_heads_kv = std::max(p.num_heads_kv / gpus, 1);
  }
}

ServingSizes serving_sizes(const ServingChoice& serving, const ModelConfig& model, Dtype dtype,
                           Target target) {
  const bool cpu = target == Target::kCpu;
  ServingSizes sizes;
  sizes.max_batch_tokens = serving.max_batch_tokens > 0 ? serving.max_batch_tokens
                           : cpu                        ? 64
                                                        : 8192;
  const std::vector<int64_t> batches = !serving.batches.empty() ? serving.batches
                                       : cpu                    ? std::vector<int64_t>{1, 4}
                                             : std::vector<int64_t>{1, 8, 32, 128};
  const std::vector<int64_t> lengths =
      !serving.kv_lengths.empty() ? serving.kv_lengths : default_lengths(model, target);
  const bool all_given = !serving.batches.empty() && !serving.kv_lengths.empty();
  const int64_t memory = serving.memory_bytes > 0 ? serving.memory_bytes : kAssumedMemory;
  const Dtype cache = dtype_of_cache(serving, model, dtype);
  size_t left_out = 0;
  for (const int64_t batch : batches)
    for (const int64_t length : lengths) {
      const double bytes = static_cast<double>(batch) * request_bytes(model, cache, length);
      if (all_given || 2 * bytes <= static_cast<double>(memory))
        sizes.decode.push_back({batch, length});
      else
        ++left_out;
    }
  if (serving.page_size == 0)
    sizes.notes.emplace_back(
        "attune assumes pages of 16 keys, in latent caches of 64; an engine's own must be given "
        "with --page-size, since kernels are tuned for one size");
  if (sizes.decode.empty())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--serving: a cache for batch {} of {} keys takes {:.3g} GB, more than "
                            "half of {} {:.3g} GB; must be smaller --batch and --kv-lengths, or "
                            "both lists, which are taken as they are",
                            batches.front(), lengths.front(),
                            1e-9 * static_cast<double>(batches.front()) *
                                request_bytes(model, cache, lengths.front()),
                            serving.memory_bytes > 0 ? "the device's" : "an assumed",
                            1e-9 * static_cast<double>(memory)));
  if (left_out > 0)
    sizes.notes.push_back(fmt::format(
        "{} of {} pairs of batch and keys are left out, because their caches take more than half "
        "of {} {:.3g} GB; --batch and --kv-lengths together ask for any",
        left_out, left_out + sizes.decode.size(),
        serving.memory_bytes > 0 ? "the device's" : "an assumed",
        1e-9 * static_cast<double>(memory)));
  return sizes;
}

std::vector<Problem> serving_problems(const ServingChoice& serving, const ServingSizes& sizes,
                                      const AttentionLayer& layer, const ModelConfig& model,
                                      Dtype dtype, std::vector<std::string>* not_supported) {
  if (!layer.cache) return {};
  Dtype cache = dtype_of_cache(serving, model, dtype);
  try {
    for (const Problem& problem : LayerProblems(serving, sizes, layer, dtype, cache).all())
      if (problem.dtype_kv == cache && !feature_without_cache(problem)) validate(problem);
  } catch (const Error& error) {
    if (cache == dtype) throw;
    if (serving.dtype_kv)
      throw Error(error.code(),
                  fmt::format("--kv-dtype is {}: {}", dtype_name(cache), error.what()));
    not_supported->push_back(fmt::format("its cache of {} ({}), so one of {} is tuned",
                                         dtype_name(cache), error.what(), dtype_name(dtype)));
    cache = dtype;
  }
  const Problem probe = over_cache(layer, Op::kAttentionKvCache, dtype, cache);
  if (const ScoreFeature* feature = feature_without_cache(probe)) {
    not_supported->push_back(fmt::format("a cache beside {}", feature->field));
    return rows_over_keys(sizes, layer, dtype);
  }
  return LayerProblems(serving, sizes, layer, dtype, cache).all();
}

}  // namespace attune
