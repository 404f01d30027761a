// SPDX-License-Identifier: Apache-2.0
// Validation rules that all ops share; see problem.hpp. Rules for single ops are in ops/, parsing
// is in problem_text.cpp.
#include "generator/core/problem/problem.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "generator/core/problem/op.hpp"
#include "generator/core/problem/problem_fields.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/features/score_feature.hpp"
#include "templates/shared/nibble_rows.h"

namespace attune {
namespace {

constexpr int kMinHeadDim = 16;
constexpr int kHeadDimStep = 8;
constexpr int kMaxHeads = 65536;
constexpr double kMaxRows = 0x1p50;  // rows of 1 KB: strides, tiles and bytes stay within 64 bits

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void check_head_dim(const char* name, int value, int most, const char* where) {
  if (value < kMinHeadDim || value > most || value % kHeadDimStep != 0)
    refuse(fmt::format("{} is {}; must be a multiple of {} from {} to {}{}", name, value,
                       kHeadDimStep, kMinHeadDim, most, where));
}

void check_head_dims(const Problem& p) {
  const bool narrow = is_8_bit(p) && !describe(p.op).has_cache;
  const char* where = narrow ? " with 8-bit operands" : "";
  check_head_dim("head_dim_qk", p.head_dim_qk, narrow ? kMaxHeadDimOf8Bits : kMaxHeadDimQk, where);
  check_head_dim("head_dim_v", p.head_dim_v, narrow ? kMaxHeadDimOf8Bits : kMaxHeadDimV, where);
}

void check_length(const char* name, int64_t value) {
  if (value < 0 || value > kMaxLength)
    refuse(fmt::format("{} is {}; must be 0 to {}", name, value, kMaxLength));
}

void check_rows(const Problem& p, const char* name, int64_t seqlen, int num_heads) {
  if (static_cast<double>(p.batch) * static_cast<double>(seqlen) * num_heads > kMaxRows)
    refuse(fmt::format(
        "batch is {}, {} is {} and there are {} heads; their product must be at most 2^50", p.batch,
        name, seqlen, num_heads));
}

void check_heads(const Problem& p) {
  if (p.num_heads_q < 1 || p.num_heads_q > kMaxHeads)
    refuse(fmt::format("num_heads_q is {}; must be 1 to {}", p.num_heads_q, kMaxHeads));
  if (p.num_heads_kv < 1 || p.num_heads_kv > p.num_heads_q)
    refuse(fmt::format("num_heads_kv is {}; must be 1 to num_heads_q ({})", p.num_heads_kv,
                       p.num_heads_q));
  if (p.num_heads_q % p.num_heads_kv != 0)
    refuse(fmt::format(
        "num_heads_q is {} and num_heads_kv is {}; num_heads_kv must divide num_heads_q",
        p.num_heads_q, p.num_heads_kv));
}

constexpr int kScaleBlockStep = 16;
constexpr int kMaxScaleBlock = 65536;

void check_scale_block(const char* name, int value) {
  if (value < 0 || value > kMaxScaleBlock || value % kScaleBlockStep != 0)
    refuse(fmt::format("{} is {}; must be a multiple of {} up to {}, or 0 for one factor a head",
                       name, value, kScaleBlockStep, kMaxScaleBlock));
}

void check_fp8_options(const Problem& p) {
  check_scale_block("scale_block_q", p.fp8.scale_block_q);
  check_scale_block("scale_block_kv", p.fp8.scale_block_kv);
  if (is_8_bit(p) && p.fp8.accuracy == Accuracy::kSplit)
    refuse("accuracy is split; with 8-bit operands it must be accurate or fast");
  Problem plain = p;
  plain.fp8 = {};
  if (p.dtype_q == Dtype::kFp32) plain.fp8.accuracy = p.fp8.accuracy;
  if (!is_8_bit(p) && p.fp8 != plain.fp8)
    refuse(
        fmt::format("options \"{}\" are for 8-bit operands, accuracy for fp32 too; dtype_q is {}",
                    difference_text(p, plain), dtype_name(p.dtype_q)));
}

void check_no_cache(const Problem& p, const std::string& op) {
  if (p.cache.page_size != 0)
    refuse(fmt::format("page_size is {}; op {} has no cache: must be 0", p.cache.page_size, op));
  if (p.cache.packed_q) refuse(fmt::format("packed_q is 1; op {} has no requests: must be 0", op));
  if (p.cache.packed_kv)
    refuse(fmt::format("packed_kv is 1; op {} has no requests: must be 0", op));
  if (p.num_pages != 0)
    refuse(fmt::format("num_pages is {}; op {} has no cache: must be 0", p.num_pages, op));
}

// Rows that hold their own factors are multiples of 16 bytes.
void check_latent_rows(const Problem& p) {
  constexpr int kColumns = 512;
  if (p.cache.v_in_k && p.dtype_kv == Dtype::kE4m3 && p.dtype_q == Dtype::kBf16 &&
      p.head_dim_v == kColumns)
    return;
  refuse(fmt::format(
      "kv_factors is latent, dtype_q {}, dtype_kv {}, v_in_k {:d} and head_dim_v {}; "
      "must be with bf16, e4m3, 1 and {}",
      dtype_name(p.dtype_q), dtype_name(p.dtype_kv), p.cache.v_in_k, p.head_dim_v, kColumns));
}

void check_has_cache(const Problem& p, const OpDescription& op) {
  if (!op.has_cache)
    refuse(fmt::format("dtype_kv is {}; op {} has no cache, and only a cache may be {}",
                       dtype_name(p.dtype_kv), op.name, dtype_name(p.dtype_kv)));
}

// Caches of 4 bits have factors for groups of columns, and rows of whole 16 bytes.
void check_nibble_rows(const Problem& p) {
  const auto name = dtype_name(p.dtype_kv);
  const int group = columns_of_factor(p.cache.kv_factors);
  if (!is_4_bit(p.dtype_kv))
    refuse(
        fmt::format("kv_factors is {} and dtype_kv is {}; must be heads, keys, made or latent: "
                    "only 4-bit caches have factors for columns",
                    kv_factors_name(p.cache.kv_factors), name));
  if (group == 0)
    refuse(fmt::format("dtype_kv is {} and kv_factors is {}; must be columns16 or columns32", name,
                       kv_factors_name(p.cache.kv_factors)));
  if (p.cache.v_in_k)
    refuse(
        fmt::format("dtype_kv is {} and v_in_k is 1; v_in_k must be 0: latent caches have 16 or "
                    "8 bits",
                    name));
  for (const auto& [field, value] :
       {std::pair{"head_dim_qk", p.head_dim_qk}, {"head_dim_v", p.head_dim_v}})
    if (value % kNibbleStep != 0)
      refuse(fmt::format("{} is {} and dtype_kv is {}; must be a multiple of {}", field, value,
                         name, kNibbleStep));
}

void check_kv_factors(const Problem& p, const OpDescription& op) {
  if (p.dtype_kv == Dtype::kInt8) check_has_cache(p, op);
  if (is_4_bit(p.dtype_kv) || columns_of_factor(p.cache.kv_factors) > 0)
    return check_nibble_rows(p);
  if (p.cache.kv_factors == KvFactors::kHeads) return;
  if (!op.has_cache || !is_8_bit(p.dtype_kv))
    refuse(
        fmt::format("kv_factors is {} and dtype_kv is {} in op {}; must be heads: only 8-bit "
                    "caches have other factors",
                    kv_factors_name(p.cache.kv_factors), dtype_name(p.dtype_kv), op.name));
  if (p.cache.kv_factors == KvFactors::kMade && !op.appends)
    refuse(fmt::format("kv_factors is made; op {} reads factors: must be heads or keys", op.name));
  if (p.cache.kv_factors == KvFactors::kLatent) check_latent_rows(p);
}

void check_key_indices(const Problem& p, const OpDescription& op) {
  const bool has_lists = p.cache.key_indices != KeyIndices::kNone;
  if (has_lists && !op.takes_lists)
    refuse(fmt::format("key_indices is {}; op {} does not take lists of keys: must be none",
                       key_indices_name(p.cache.key_indices), op.name));
  if (!has_lists && !op.makes_lists && p.listed_keys != 0)
    refuse(fmt::format("listed_keys is {} and key_indices is none; listed_keys must be 0",
                       p.listed_keys));
}

void check_no_rotary(const Problem& p, const std::string& op) {
  if (p.append.rotary != ScoreTensor::kNone)
    refuse(fmt::format("rotary is {}; op {} rotates nothing: must be none",
                       score_tensor_name(p.append.rotary), op));
  if (p.append.rotary_dim != 0 || p.append.rotary_interleaved || p.append.rotary_q)
    refuse(
        fmt::format("rotary_dim is {}, rotary_interleaved {:d} and rotary_q {:d}; op {} rotates "
                    "nothing: must be 0",
                    p.append.rotary_dim, p.append.rotary_interleaved, p.append.rotary_q, op));
}

}  // namespace

float Problem::scale() const {
  return softmax_scale ? *softmax_scale : 1.0F / std::sqrt(static_cast<float>(head_dim_qk));
}

void check_no_mask(const Problem& p, const char* op) {
  if (p.mask != Mask::kNone || p.window_left >= 0 || p.window_right >= 0)
    refuse(
        fmt::format("mask is {}, window_left {} and window_right {}; op {} has no mask and no "
                    "window: must be none, -1 and -1",
                    mask_name(p.mask), p.window_left, p.window_right, op));
}

void check_no_fp8_options(const Problem& p, const char* op) {
  Problem plain = p;
  plain.fp8 = {};
  if (p.fp8 != plain.fp8)
    refuse(fmt::format("\"{}\" is given; op {} has no 8-bit options and no accuracy",
                       difference_text(p, plain), op));
}

void validate(const Problem& p) {
  check_head_dims(p);
  check_heads(p);
  check_length("batch", p.batch);
  check_length("seqlen_q", p.seqlen_q);
  check_length("seqlen_kv", p.seqlen_kv);
  check_length("listed_keys", p.listed_keys);
  check_rows(p, "seqlen_q", p.seqlen_q, p.num_heads_q);
  check_rows(p, "seqlen_kv", p.seqlen_kv, p.num_heads_kv);
  const OpDescription& op = describe(p.op);
  if (is_4_bit(p.dtype_kv)) check_has_cache(p, op);
  op.validate(p);
  if (!op.has_gradients && p.backward.gradients != Gradients::kAll)
    refuse(fmt::format("gradients is {}; op {} has no gradients: must be qkv",
                       gradients_text(p.backward.gradients), op.name));
  if (!op.has_gradients && p.backward.score_gradient != ScoreGradient::kNone)
    refuse(fmt::format("score_gradient is {}; op {} has none: must be none",
                       score_gradient_name(p.backward.score_gradient), op.name));
  if (!op.has_gradients && p.backward.accumulate)
    refuse(fmt::format("accumulate is 1; op {} has no gradients: must be 0", op.name));
  if (!op.has_gradients && p.backward.deterministic)
    refuse(fmt::format(
        "deterministic is 1; op {} has no gradients, and always gives the same bits: must be 0",
        op.name));
  if (p.backward.score_gradient == ScoreGradient::kNone && p.backward.repeats != Repeats::kNone)
    refuse(fmt::format("repeats is {} and score_gradient is none; repeats must be none",
                       repeats_text(p.backward.repeats)));
  if (!is_of_load(p.backward.score_gradient) && p.backward.load != 0)
    refuse(fmt::format("load is {} and score_gradient is {}; load must be 0", p.backward.load,
                       score_gradient_name(p.backward.score_gradient)));
  if (!op.has_cache) check_no_cache(p, op.name);
  if (!op.appends) check_no_rotary(p, op.name);
  check_kv_factors(p, op);
  check_key_indices(p, op);
  if (p.cache.batch_invariant && (!op.has_cache || op.appends))
    refuse(fmt::format("batch_invariant is 1; op {} does not take it: must be 0", op.name));
  if (p.cache.v_in_k && !op.takes_lists)
    refuse(fmt::format("v_in_k is 1; op {} does not take it: must be 0", op.name));
  if (p.cache.v_in_k && p.head_dim_v > p.head_dim_qk)
    refuse(fmt::format("v_in_k is 1 and head_dim_v is {}; must be at most {}, the head_dim_qk",
                       p.head_dim_v, p.head_dim_qk));
  check_fp8_options(p);
  if (!(p.dropout >= 0 && p.dropout < 1))
    refuse(fmt::format("dropout is {}; must be at least 0, below 1", p.dropout));
  if (p.dropout > 0 && !op.has_dropout)
    refuse(fmt::format("dropout is {}; op {} has no dropout: must be 0", p.dropout, op.name));
  if (p.max_logits && !op.has_max_logits)
    refuse(fmt::format("max_logits is 1; op {} does not write them: must be 0", op.name));
  for (const ScoreFeature* feature : score_features())
    if (feature->validate != nullptr) feature->validate(p);
  if (p.window_left > kMaxLength)
    refuse(fmt::format("window_left is {}; must be 0 to {}, or negative for an open side",
                       p.window_left, kMaxLength));
  if (p.window_right > kMaxLength)
    refuse(fmt::format("window_right is {}; must be 0 to {}, or negative for an open side",
                       p.window_right, kMaxLength));
  if (p.softmax_scale && (!std::isfinite(*p.softmax_scale) || *p.softmax_scale <= 0))
    refuse(fmt::format("softmax_scale is {}; must be a finite number above 0", *p.softmax_scale));
}

namespace {
constexpr std::string_view kBlockMapUses[] = {"none", "skips", "hides"};
constexpr std::string_view kScoreTensors[] = {"none", "fp32", "bf16", "fp16"};
constexpr std::string_view kScoreGradients[] = {"none",  "bias", "relative_bias", "alibi",
                                                "sinks", "load", "load_diagonals"};
constexpr std::string_view kKvFactors[] = {"heads",  "keys",      "made",
                                           "latent", "columns16", "columns32"};
constexpr std::string_view kKeyIndices[] = {"none", "positions", "places"};
constexpr int kAllRepeats = 15;
}  // namespace

std::string_view score_tensor_name(ScoreTensor tensor) {
  return kScoreTensors[static_cast<size_t>(tensor)];
}

ScoreTensor parse_score_tensor(std::string_view text) {
  for (size_t i = 0; i < std::size(kScoreTensors); ++i)
    if (text == kScoreTensors[i]) return static_cast<ScoreTensor>(i);
  refuse(fmt::format("\"{}\" is not the type of a bias; must be none, fp32, bf16 or fp16", text));
}

std::string_view block_map_use_name(BlockMapUse use) {
  return kBlockMapUses[static_cast<size_t>(use)];
}

BlockMapUse parse_block_map_use(std::string_view text) {
  for (size_t i = 0; i < std::size(kBlockMapUses); ++i)
    if (text == kBlockMapUses[i]) return static_cast<BlockMapUse>(i);
  refuse(fmt::format("block_map is \"{}\"; must be none, skips or hides", text));
}

std::string_view kv_factors_name(KvFactors factors) {
  return kKvFactors[static_cast<size_t>(factors)];
}

int columns_of_factor(KvFactors factors) {
  return factors == KvFactors::kColumns16 ? 16 : factors == KvFactors::kColumns32 ? 32 : 0;
}

KvFactors parse_kv_factors(std::string_view text) {
  for (size_t i = 0; i < std::size(kKvFactors); ++i)
    if (text == kKvFactors[i]) return static_cast<KvFactors>(i);
  refuse(fmt::format(
      "kv_factors is \"{}\"; must be heads, keys, made, latent, columns16 or columns32", text));
}

std::string_view key_indices_name(KeyIndices indices) {
  return kKeyIndices[static_cast<size_t>(indices)];
}

KeyIndices parse_key_indices(std::string_view text) {
  for (size_t i = 0; i < std::size(kKeyIndices); ++i)
    if (text == kKeyIndices[i]) return static_cast<KeyIndices>(i);
  refuse(fmt::format("key_indices is \"{}\"; must be none, positions or places", text));
}

std::string gradients_text(Gradients asked) {
  std::string text;
  if (asks(asked, Gradients::kQ)) text += 'q';
  if (asks(asked, Gradients::kK)) text += 'k';
  if (asks(asked, Gradients::kV)) text += 'v';
  return text;
}

Gradients parse_gradients(std::string_view text) {
  for (int bits = 0; bits < 7; ++bits)
    if (text == gradients_text(static_cast<Gradients>(bits))) return static_cast<Gradients>(bits);
  refuse(fmt::format("gradients is \"{}\"; must be q, k, v, qk, qv, kv or qkv", text));
}

std::string_view score_gradient_name(ScoreGradient gradient) {
  return kScoreGradients[static_cast<size_t>(gradient)];
}

ScoreGradient parse_score_gradient(std::string_view text) {
  for (size_t i = 0; i < std::size(kScoreGradients); ++i)
    if (text == kScoreGradients[i]) return static_cast<ScoreGradient>(i);
  refuse(
      fmt::format("score_gradient is \"{}\"; must be none, bias, relative_bias, alibi, sinks, load "
                  "or load_diagonals",
                  text));
}

std::string repeats_text(Repeats all) {
  std::string text;
  if (repeats(all, Repeats::kBatch)) text += 'b';
  if (repeats(all, Repeats::kHeads)) text += 'h';
  if (repeats(all, Repeats::kRows)) text += 'q';
  if (repeats(all, Repeats::kKeys)) text += 'k';
  return text.empty() ? "none" : text;
}

Repeats parse_repeats(std::string_view text) {
  for (int bits = 0; bits <= kAllRepeats; ++bits)
    if (text == repeats_text(static_cast<Repeats>(bits))) return static_cast<Repeats>(bits);
  refuse(
      fmt::format("repeats is \"{}\"; must be none, or letters of bhqk in this order: "
                  "batch, heads, rows of q, keys",
                  text));
}

bool is_8_bit(const SpecFields& p) {
  return is_8_bit(p.dtype_q) || is_8_bit(p.dtype_kv) || is_8_bit(p.dtype_o);
}

bool is_narrow(const SpecFields& p) { return is_8_bit(p) || is_4_bit(p.dtype_kv); }

int64_t padded_row(Dtype dtype, int64_t head_dim) {
  // Rounds up with a mask of ones, since each launch calls this
  const int64_t behind_first = 16 / dtype_bytes(dtype) - 1;
  return (head_dim + behind_first) & ~behind_first;
}

}  // namespace attune
