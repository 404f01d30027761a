// SPDX-License-Identifier: Apache-2.0
// Problem: one attention call in the user's terms. It is validated once, here, then split into
// KernelSpec (compiled in) and Shape (run time). Text form, used by the CLI and in messages:
//   dtype=bf16,head_dim=128,heads=32/8,batch=2,seqlen=2048,mask=causal_bottom_right,window=1024:0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "generator/core/problem/dtype.hpp"
#include "generator/score/language/user_program.hpp"

namespace attune {

enum class Op : int {
  kPrefill = 0,   // o = softmax(scale q k^T + mask) v
  kQuantise = 1,  // o = q in 8 bits, with a factor for each block of rows; k and v are unused
  kBlockMap = 2,  // o = for each block of rows and keys, whether the masks show it
  // o, lse = the merge of two pairs (o, lse): q with q_scale, and k with k_scale
  kMerge = 3,
  // dq, dk, dv = gradients of prefill's q, k and v, from the gradients of its o and lse
  kAttentionBackward = 4,
  // o = attention over a cache of keys and values, for requests of different lengths
  kAttentionKvCache = 5,
  kAppendKv = 6,  // writes new rows of k and v of requests into their cache; rotates q and k
  kTopK = 7,      // o = the indices of the listed_keys largest scores of each row of q
  // o = for each row and key, the sum over heads of weight * max(0, q k): an indexer's scores
  kIndexScores = 8,
};
std::string_view op_name(Op op);     // "prefill"
Op parse_op(std::string_view text);  // also reads "quantize"

// Choices for 8-bit operands; accuracy is for fp32 too. Other types must have the defaults.
struct Fp8Options {
  Accuracy accuracy = Accuracy::kAccurate;
  VLayout v_layout = VLayout::kRows;  // layout of v; for the quantise op: of o
  int scale_block_q = 0;   // rows of q that share a factor; 0: all rows of a head, or of the tensor
  int scale_block_kv = 0;  // likewise for k and for v

  bool operator==(const Fp8Options&) const = default;
};

// The element type of a score feature's float tensor.
enum class ScoreTensor : int { kNone = 0, kFp32 = 1, kBf16 = 2, kFp16 = 3 };
std::string_view score_tensor_name(ScoreTensor tensor);  // "none", "bf16"
ScoreTensor parse_score_tensor(std::string_view text);

// How a call uses its map of blocks (templates/shared/block_map.h).
enum class BlockMapUse : int {
  kNone = 0,  // no map
  // The map repeats what the problem's masks show, so that kernels can skip hidden blocks
  kSkips = 1,
  kHides = 2,  // the map is a mask itself: keys in blocks that are 0 are hidden
};
std::string_view block_map_use_name(BlockMapUse use);  // "none", "skips"
BlockMapUse parse_block_map_use(std::string_view text);

// The gradients that attention_backward computes, as a sum of bits; 0: all three.
enum class Gradients : int { kAll = 0, kQ = 1, kK = 2, kV = 4 };
constexpr bool asks(Gradients asked, Gradients one) {
  return asked == Gradients::kAll || (static_cast<int>(asked) & static_cast<int>(one)) != 0;
}
std::string gradients_text(Gradients asked);  // "qkv", "kv"
Gradients parse_gradients(std::string_view text);

// The score input whose gradient attention_backward computes. Such a problem computes no other
// gradient.
enum class ScoreGradient : int {
  kNone = 0,
  kBias = 1,
  kRelativeBias = 2,
  kAlibi = 3,
  kSinks = 4,
  // The tensor that score_mod reads at one load. The gradient is per row and key (kLoad), or summed
  // along diagonals.
  kLoad = 5,
  kLoadDiagonals = 6,
};
constexpr bool is_of_load(ScoreGradient gradient) {
  return gradient == ScoreGradient::kLoad || gradient == ScoreGradient::kLoadDiagonals;
}
// Returns the gradient kind whose tensor has the same axes.
constexpr ScoreGradient layout_of(ScoreGradient gradient) {
  if (gradient == ScoreGradient::kLoad) return ScoreGradient::kBias;
  return gradient == ScoreGradient::kLoadDiagonals ? ScoreGradient::kRelativeBias : gradient;
}
std::string_view score_gradient_name(ScoreGradient gradient);  // "none", "relative_bias"
ScoreGradient parse_score_gradient(std::string_view text);

// Axes along which a tensor repeats one value, as a sum of bits. Its gradient is summed over these
// axes.
enum class Repeats : int { kNone = 0, kBatch = 1, kHeads = 2, kRows = 4, kKeys = 8 };
constexpr bool repeats(Repeats all, Repeats one) {
  return (static_cast<int>(all) & static_cast<int>(one)) != 0;
}
std::string repeats_text(Repeats all);  // "none", "bh"
Repeats parse_repeats(std::string_view text);

// The granularity of the scale factors of an 8-bit or 4-bit cache.
enum class KvFactors : int {
  kHeads = 0,  // one for all, or one for each head of K
  kKeys = 1,   // by page, key and head, with any strides
  kMade = 2,   // as kKeys, and append_kv makes the factor of each key and head that it writes
  // Each row holds its factors: the 8-bit columns of V, a factor for every 128 of these, then the
  // other columns of K in the type of q (templates/shared/latent_rows.h)
  kLatent = 3,
  // For 4 bits: a factor of e4m3 for each 16 or 32 columns of each key, which append_kv makes,
  // times a factor as with kHeads (templates/shared/nibble_rows.h)
  kColumns16 = 4,
  kColumns32 = 5,
};
// Returns the columns that share a factor of their key; 0: all.
int columns_of_factor(KvFactors factors);
std::string_view kv_factors_name(KvFactors factors);  // "heads", "latent"
KvFactors parse_kv_factors(std::string_view text);

// The meaning of an entry in a call's lists of keys (templates/shared/key_list_args.h).
enum class KeyIndices : int {
  kNone = 0,       // no lists: rows see all keys of their request, as far as masks show them
  kPositions = 1,  // indices of keys in the row's request
  kPlaces = 2,     // places in the cache: page * page_size + index in the page
};
std::string_view key_indices_name(KeyIndices indices);  // "none", "positions"
KeyIndices parse_key_indices(std::string_view text);

// A Problem's fields are in three structs, so that KernelSpec and Shape can inherit theirs. Fields
// that only some ops have are in parts. The C struct attune_problem has the same parts. A new field
// is a member here and a line in problem_fields.cpp.

// Score features (score_feature.hpp), in the order in which they are applied. For the ops prefill,
// attention_backward, attention_kvcache and block_map.
struct ScoreFields {
  float softcap = 0;                               // c * tanh(score / c); 0: none
  ProgramDigest score_mod;                         // a caller's program that gives a score
  ProgramDigest mask_mod;                          // a caller's program that says if a key is seen
  ScoreTensor bias = ScoreTensor::kNone;           // for each row and key
  ScoreTensor relative_bias = ScoreTensor::kNone;  // for each distance
  bool alibi = false;                              // subtracts slope * distance from the diagonal
  bool mask_tensor = false;                        // for each row and key
  bool key_lengths = false;                        // for each batch entry
  bool documents = false;                          // ids of rows and keys
  bool prefix = false;                             // keys that all rows see
  // One logit per head of q, added to the softmax denominator only. Scale, softcap and masks do not
  // apply to it.
  ScoreTensor sinks = ScoreTensor::kNone;
  int chunk = 0;  // keys per chunk; a row sees only keys of its own chunk. 0: all keys
  BlockMapUse block_map = BlockMapUse::kNone;

  bool operator==(const ScoreFields&) const = default;
};

// For the op attention_backward.
struct BackwardFields {
  Gradients gradients = Gradients::kAll;
  ScoreGradient score_gradient = ScoreGradient::kNone;
  int load = 0;  // for gradients of loads: which load of score_mod, in the order of its nodes
  Repeats repeats = Repeats::kNone;  // axes that the score_gradient tensor repeats
  bool accumulate = false;           // dq, dk and dv are fp32, and the results are added to them
  bool deterministic = false;        // the same bits in every run

  bool operator==(const BackwardFields&) const = default;
};

// For the ops attention_kvcache and append_kv.
struct CacheFields {
  int page_size = 0;  // keys per page, found by a table; 0: a request's keys are contiguous
  // Rows of all requests are packed end to end; the number of rows may differ per request
  bool packed_q = false;
  // Keys of all requests are packed end to end as well, in one slot of num_pages rows
  bool packed_kv = false;
  bool batch_invariant = false;  // a request's bits do not depend on the others
  bool v_in_k = false;           // V is the first head_dim_v columns of K: the same memory
  KvFactors kv_factors = KvFactors::kHeads;
  KeyIndices key_indices = KeyIndices::kNone;  // each row sees only the keys that a list names

  bool operator==(const CacheFields&) const = default;
};

// For the op append_kv.
struct AppendFields {
  ScoreTensor rotary = ScoreTensor::kNone;  // type of the cosines and sines that rotate k
  int rotary_dim = 0;                       // leading columns that are rotated; 0: all
  bool rotary_interleaved = false;          // neighbours make a pair; else one column of each half
  bool rotary_q = false;                    // q is rotated too, into o

  bool operator==(const AppendFields&) const = default;
};

// For the op quantise.
struct QuantiseFields {
  Rotation rotation = Rotation::kNone;

  bool operator==(const QuantiseFields&) const = default;
};

// Fields that are compiled into the kernel.
struct SpecFields {
  Op op{};  // prefill
  Dtype dtype_q = Dtype::kBf16;
  Dtype dtype_kv = Dtype::kBf16;
  Dtype dtype_o = Dtype::kBf16;
  int head_dim_qk = 128;
  int head_dim_v = 128;
  Mask mask = Mask::kNone;
  int64_t window_left = -1;   // keys visible left of the diagonal; negative = open
  int64_t window_right = -1;  // keys visible right of the diagonal; negative = open
  float dropout = 0;          // the dropped fraction of P, to the nearest 1/256
  bool max_logits = false;    // op prefill writes the largest logit of each head
  Fp8Options fp8;
  ScoreFields scores;
  BackwardFields backward;
  CacheFields cache;
  AppendFields append;
  QuantiseFields quantise;

  bool operator==(const SpecFields&) const = default;
};

// The limit for rows, for keys, and for the position after the last. Leaves room for rounding up to
// tiles in an int.
inline constexpr int64_t kMaxLength = std::numeric_limits<int32_t>::max() - 65536;

// Fields that are known at run time. A tuned config belongs to one Shape. The ratio of heads is
// compiled in as well.
struct Shape {
  int64_t batch = 1;
  int64_t seqlen_q = 0;
  int64_t seqlen_kv = 0;
  int num_heads_q = 1;
  int num_heads_kv = 1;
  // The length of a row's list of keys, for problems with key_indices. 0: seqlen_kv.
  int64_t listed_keys = 0;

  bool operator==(const Shape&) const = default;
};

// Arguments of the kernel that choose neither code nor config.
struct CallFields {
  std::optional<float> softmax_scale;  // default 1/sqrt(head_dim_qk)
  // For attention_kvcache: the number of pages (or slots) in k and v. 0: as many as `batch`
  // requests of seqlen_kv keys need.
  int64_t num_pages = 0;

  bool operator==(const CallFields&) const = default;
};

struct Problem : SpecFields, Shape, CallFields {
  float scale() const;

  bool operator==(const Problem&) const = default;
};

constexpr int kMaxHeadDimQk = 576;  // for 16- and 32-bit operands
constexpr int kMaxHeadDimV = 512;
constexpr int kMaxHeadDimOf8Bits = 256;  // for both head dims, except in caches

// Throws kInvalidArgument or kUnsupported, with the argument, its value and the valid values.
void validate(const Problem& problem);
// Throw kInvalidArgument if the problem has a mask or window, or options for 8-bit operands or an
// accuracy, for ops without them.
void check_no_mask(const Problem& problem, const char* op);
void check_no_fp8_options(const Problem& problem, const char* op);

// kOptional: lengths that the text lacks are 0, and the caller fills them in.
enum class TextLengths { kRequired, kOptional };
// kRead: score_mod=@FILE and mask_mod=@FILE read the program from FILE. Only for command lines,
// whose user may read the file. Other texts come from clients, bundles, pin files or captures, and
// an error message would quote FILE to their authors.
enum class TextFiles { kRefused, kRead };

// Parses key=value,... in any order, with or without spaces around commas; problem_keys() in
// problem_fields.hpp lists the keys. heads, the head dims and the lengths are required; the rest
// has the defaults above. With an 8-bit dtype o is bf16 unless dtype_o is given. Unknown or
// malformed keys, and two keys that set one field, throw kInvalidArgument. The result is validated.
Problem parse_problem(std::string_view text, TextLengths lengths = TextLengths::kRequired,
                      TextFiles files = TextFiles::kRefused);
// Parses like parse_problem, without validation, for callers that add missing fields first.
Problem read_problem(std::string_view text, TextLengths lengths = TextLengths::kRequired,
                     TextFiles files = TextFiles::kRefused);
std::string to_text(const Problem& problem);

// True if q, k and v, or o are 8-bit.
bool is_8_bit(const SpecFields& fields);
// True if an operand has 8 or 4 bits: its kernels take scale factors.
bool is_narrow(const SpecFields& fields);
// Returns the stride in elements between rows of `head_dim` elements in the default layout. Each
// row begins at a multiple of 16 bytes.
int64_t padded_row(Dtype dtype, int64_t head_dim);

}  // namespace attune
