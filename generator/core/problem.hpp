// SPDX-License-Identifier: Apache-2.0
// Problem: one attention call in the user's terms. It is validated here once, then split into KernelSpec (compiled in) and
// Shape (run time). Text form, used by the CLI and in messages:
//   dtype=bf16,head_dim=128,heads=32/8,batch=2,seqlen=2048,mask=causal_bottom_right,window=1024:0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "generator/core/dtype.hpp"
#include "generator/core/user_program.hpp"

namespace attune {

enum class Op : int {
  kPrefill = 0,   // o = softmax(scale q k^T + mask) v
  kQuantise = 1,  // o = q in 8 bits, with a factor for each block of rows; k and v are not used
  kBlockMap = 2,  // o = what the masks show of each granule of rows and keys
  kMerge =
      3,  // o, lse = what q with q_scale and k with k_scale, two pairs of o and lse, make together
  kAttentionBackward = 4,  // dq, dk, dv = gradients of prefill's q, k, v for those of its o and lse
  kAttentionKvCache =
      5,          // o = attention of requests whose keys stand in a cache, each of its own length
  kAppendKv = 6,  // rows of k and v of requests, written into their cache; q and k turned by angles
};
std::string_view op_name(Op op);     // "prefill"
Op parse_op(std::string_view text);  // quantize is quantise, too

// Choices that only 8-bit operands have, but for the accuracy, which fp32 has too; all at their defaults elsewhere.
struct Fp8Options {
  Accuracy accuracy = Accuracy::kAccurate;
  VLayout v_layout = VLayout::kRows;  // of v; for the quantise op: of o
  int scale_block_q = 0;   // rows of q that share a factor; 0: all rows of a head, or of the tensor
  int scale_block_kv = 0;  // likewise of k and of v
  Rotation rotation = Rotation::kNone;  // quantise op

  bool operator==(const Fp8Options&) const = default;
};

// A tensor of floats that a score feature reads, by its type.
enum class ScoreTensor : int { kNone = 0, kFp32 = 1, kBf16 = 2, kFp16 = 3 };
std::string_view score_tensor_name(ScoreTensor tensor);  // "none", "bf16"
ScoreTensor parse_score_tensor(std::string_view text);

// What a call's map of blocks (templates/shared/block_map.h) is to it.
enum class BlockMapUse : int {
  kNone = 0,   // there is none
  kSkips = 1,  // it tells what the problem's masks show, and so what need not be looked at
  kHides = 2,  // it is a mask by itself: keys of granules that are 0 are hidden
};
std::string_view block_map_use_name(BlockMapUse use);  // "none", "skips"
BlockMapUse parse_block_map_use(std::string_view text);

// Which gradients are asked of the op attention_backward: a sum of bits, or 0 for all three.
enum class Gradients : int { kAll = 0, kQ = 1, kK = 2, kV = 4 };
constexpr bool asks(Gradients asked, Gradients one) {
  return asked == Gradients::kAll || (static_cast<int>(asked) & static_cast<int>(one)) != 0;
}
std::string gradients_text(Gradients asked);  // "qkv", "kv"
Gradients parse_gradients(std::string_view text);

// What score features read of which the op attention_backward gives a gradient: a problem asks for that of one of them, and then for
// those of q, k and v not.
enum class ScoreGradient : int {
  kNone = 0,
  kBias = 1,
  kRelativeBias = 2,
  kAlibi = 3,
  kSinks = 4,
  // Of what score_mod reads of a tensor at one of its loads: at each row and key, or summed along diagonals.
  kLoad = 5,
  kLoadDiagonals = 6,
};
constexpr bool is_of_load(ScoreGradient gradient) {
  return gradient == ScoreGradient::kLoad || gradient == ScoreGradient::kLoadDiagonals;
}
// Whose axes the gradient has.
constexpr ScoreGradient layout_of(ScoreGradient gradient) {
  if (gradient == ScoreGradient::kLoad) return ScoreGradient::kBias;
  return gradient == ScoreGradient::kLoadDiagonals ? ScoreGradient::kRelativeBias : gradient;
}
std::string_view score_gradient_name(ScoreGradient gradient);  // "none", "relative_bias"
ScoreGradient parse_score_gradient(std::string_view text);

// Axes along which it repeats one value, so that its gradient is the sum over them: a sum of bits.
enum class Repeats : int { kNone = 0, kBatch = 1, kHeads = 2, kRows = 4, kKeys = 8 };
constexpr bool repeats(Repeats all, Repeats one) {
  return (static_cast<int>(all) & static_cast<int>(one)) != 0;
}
std::string repeats_text(Repeats all);  // "none", "bh"
Repeats parse_repeats(std::string_view text);

// How fine the factors of a cache of 8 bits are.
enum class KvFactors : int {
  kHeads = 0,  // one for all, or one for each head of K
  kKeys = 1,   // by page, key and head: whatever strides say
  kMade = 2,   // likewise, and op append_kv makes that of each key and head that it writes
};
std::string_view kv_factors_name(KvFactors factors);  // "heads", "keys"
KvFactors parse_kv_factors(std::string_view text);

// The fields of a Problem stand in three parts, so that KernelSpec and Shape have each field of
// theirs without naming it. A new field is a member here and a line in problem_fields.cpp.

// Compiled in.
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
  Fp8Options fp8;
  // Score features (score_feature.hpp), in the order in which they are applied.
  float softcap = 0;                               // c * tanh(score / c); 0: none
  ProgramDigest score_mod;                         // a caller's program that gives a score
  ProgramDigest mask_mod;                          // one that says whether a key is seen
  ScoreTensor bias = ScoreTensor::kNone;           // of each row and key
  ScoreTensor relative_bias = ScoreTensor::kNone;  // of each distance
  bool alibi = false;                              // less slope * distance from the diagonal
  bool mask_tensor = false;                        // of each row and key
  bool key_lengths = false;                        // of each batch entry
  bool documents = false;                          // ids of rows and keys
  bool prefix = false;                             // keys that all rows see
  // A logit of each head of q that stands in the denominator alone, beside those of the keys: neither scaled nor capped nor hidden.
  ScoreTensor sinks = ScoreTensor::kNone;
  int chunk = 0;  // keys of one chunk, which rows outside do not see; 0: all
  BlockMapUse block_map = BlockMapUse::kNone;
  Gradients gradients = Gradients::kAll;                // of the op attention_backward
  ScoreGradient score_gradient = ScoreGradient::kNone;  // of the same op
  int load = 0;  // of those of loads: which of score_mod's, in the order of its nodes
  Repeats repeats = Repeats::kNone;  // of what score_gradient names
  bool accumulate = false;           // of the same op: dq, dk and dv are fp32, and are added to
  bool deterministic = false;        // of the same op: the same bits in every run
  float dropout = 0;                 // the part of P that is dropped, to the nearest 1/256
  // Of the op attention_kvcache.
  int page_size = 0;  // keys of a page, which a table finds; 0: a request's keys follow each other
  bool packed_q =
      false;  // rows of all requests follow each other, and each may have another number
  bool packed_kv = false;        // so do their keys, in one slot of num_pages rows
  bool batch_invariant = false;  // a request's bits do not depend on the others
  bool v_in_k = false;           // V is the first head_dim_v columns of K: the same memory
  KvFactors kv_factors = KvFactors::kHeads;  // of append_kv too
  // Of the op append_kv.
  ScoreTensor rotary = ScoreTensor::kNone;  // of cosines and sines: k is turned by them
  int rotary_dim = 0;                       // leading columns that are turned; 0: all
  bool rotary_interleaved = false;          // neighbours make a pair; else one of each half
  bool rotary_q = false;                    // q is turned too, into o

  bool operator==(const SpecFields&) const = default;
};

// Of rows and keys, and the position behind the last of them: tiles round up within int.
inline constexpr int64_t kMaxLength = std::numeric_limits<int32_t>::max() - 65536;

// Known at run time; a tuned config belongs to it. The ratio of heads is compiled in, too.
struct Shape {
  int64_t batch = 1;
  int64_t seqlen_q = 0;
  int64_t seqlen_kv = 0;
  int num_heads_q = 1;
  int num_heads_kv = 1;

  bool operator==(const Shape&) const = default;
};

// An argument of the kernel that decides nothing else.
struct CallFields {
  std::optional<float> softmax_scale;  // default 1/sqrt(head_dim_qk)
  // Of the op attention_kvcache: pages that k and v have, or without pages their slots; 0: as many as `batch` requests of seqlen_kv keys
  // need.
  int64_t num_pages = 0;

  bool operator==(const CallFields&) const = default;
};

struct Problem : SpecFields, Shape, CallFields {
  float scale() const;

  bool operator==(const Problem&) const = default;
};

constexpr int kMaxHeadDimQk = 576;  // of 16- and 32-bit operands
constexpr int kMaxHeadDimV = 512;
constexpr int kMaxHeadDimOf8Bits = 256;  // of both

// Throws kInvalidArgument or kUnsupported with a sentence naming the argument, its value and what is accepted.
void validate(const Problem& problem);

// kOptional: seqlen_q and seqlen_kv are 0 where the text has none; the caller gives them.
enum class TextLengths { kRequired, kOptional };
// kRead: score_mod=@FILE and mask_mod=@FILE read the program that FILE holds. Only a command line asks
// for it, whose user may read the file. Any other text may come from a client, a bundle, a pin file
// or a capture, and an error would quote the file.
enum class TextFiles { kRefused, kRead };

// key=value,... in any order, spaces around commas are fine; problem_keys() in problem_fields.hpp
// has the keys. heads, the head dims and the lengths must stand there, the rest has the defaults
// above. An 8-bit dtype makes o bf16 unless dtype_o is given. Unknown or malformed keys, and two
// that set the same field, throw kInvalidArgument. The result is validated.
Problem parse_problem(std::string_view text, TextLengths lengths = TextLengths::kRequired,
                      TextFiles files = TextFiles::kRefused);
// The same before it is validated: of a caller that adds what the text leaves out, and validates that.
Problem read_problem(std::string_view text, TextLengths lengths = TextLengths::kRequired,
                     TextFiles files = TextFiles::kRefused);
std::string to_text(const Problem& problem);

// Whether an operand has 8-bit numbers.
bool is_8_bit(const SpecFields& fields);
// Elements between rows of `head_dim` elements in the default layout: rows begin at 16 bytes.
int64_t padded_row(Dtype dtype, int64_t head_dim);

}  // namespace attune
