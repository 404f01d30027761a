// SPDX-License-Identifier: Apache-2.0
// The table of a Problem's fields; see problem_fields.hpp.
#include "generator/core/problem/problem_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "generator/core/problem/op.hpp"
#include "generator/core/problem/problem_values.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

using namespace problem_values;
constexpr Part kSpec = Part::kSpec, kShape = Part::kShape;

const Problem kDefaults;

// Makes a field with one value, which `at` finds in a Problem. `last` is the last enumerator, for
// enumerations.
template <class At, class Value>
ProblemField one_value(Part part, const std::string& name, const std::string& meaning, At at,
                       Value last) {
  return {.part = part,
          .name = name,
          .key = name,
          .c_names = {name},
          .accepted = accepted_of(last),
          .meaning = meaning,
          .print = [at](const Problem& p) { return text_of(at(p)); },
          .parse = [at](Text key, Text text, Problem* p) { read(key, text, &at(*p)); },
          .reset = [at](Problem* p) { at(*p) = at(std::as_const(kDefaults)); }};
}

#define ATTUNE_AT(member) \
  [](auto& p) -> auto& { return p.member; }

std::string with_key(const ProblemField& field, const Problem& p) {
  return fmt::format("{}={}", field.key, field.print(p));
}

// Makes a field that every text of its part has. A problem's text omits it if `is_left_out` returns
// true.
ProblemField always(ProblemField field, bool (*is_left_out)(const Problem&)) {
  field.always_written = true;
  field.default_is_off = false;
  field.brief = [plain = field, is_left_out](const Problem& p) {
    return is_left_out(p) ? std::string() : with_key(plain, p);
  };
  return field;
}

ProblemField feature(ProblemField field, const char* without) {
  field.without = without;
  return field;
}

// Makes the first of two fields, which writes one key=value for both if they are equal.
ProblemField first_of_two(ProblemField field, const char* common,
                          bool (*are_equal)(const Problem&)) {
  field.always_written = true;
  field.default_is_off = false;
  field.brief = [plain = field, common, are_equal](const Problem& p) {
    return are_equal(p) ? fmt::format("{}={}", common, plain.print(p)) : with_key(plain, p);
  };
  return field;
}

ProblemField op_field() {
  ProblemField field =
      one_value(Part::kSpec, "op", "quantise makes 8-bit tensors", ATTUNE_AT(op), Op{});
  field.accepted.clear();
  for (const OpDescription* op : all_ops())
    field.accepted += (field.accepted.empty() ? "" : ", ") + op->name;
  return always(field, [](const Problem& p) { return p.op == Problem{}.op; });
}

bool never(const Problem&) { return false; }
bool equal_head_dims(const Problem& p) { return p.head_dim_qk == p.head_dim_v; }
bool equal_lengths(const Problem& p) { return p.seqlen_q == p.seqlen_kv; }
// 8-bit operands have a 16-bit result by default.
Dtype usual_dtype_o(Dtype dtype_q) { return is_8_bit(dtype_q) ? Dtype::kBf16 : dtype_q; }

// dtype sets dtype_kv and dtype_o too, unless the text gives them.
ProblemField dtype_field() {
  ProblemField field =
      one_value(Part::kSpec, "dtype_q", "type of q, k, v and o; with 8-bit q, k, v o is bf16",
                ATTUNE_AT(dtype_q), Dtype::kE5m2);
  field.key = "dtype";
  field.c_names = {"dtype"};
  field.parse = [](Text, Text text, Problem* p) {
    p->dtype_q = p->dtype_kv = parse_dtype(text);
    p->dtype_o = usual_dtype_o(p->dtype_q);
  };
  return always(field, never);
}

std::string heads_text(const Problem& p) {
  return fmt::format("{}/{}", p.num_heads_q, p.num_heads_kv);
}

// The ratio of heads, in a spec's text. A problem's text has the numbers of heads in its place.
ProblemField ratio_field() {
  return {.part = Part::kSpec,
          .name = "gqa_ratio",
          .print = [](const Problem& p) { return text_of(p.num_heads_q / p.num_heads_kv); },
          .parse =
              [](Text key, Text text, Problem* p) {
                read(key, text, &p->num_heads_q);
                p->num_heads_kv = 1;
              },
          .always_written = true,
          .default_is_off = false,
          .brief = [](const Problem& p) { return "heads=" + heads_text(p); }};
}

ProblemField heads_field() {
  return {.part = Part::kShape,
          .name = "heads",
          .key = "heads",
          .c_names = {"num_heads_q", "num_heads_kv"},
          .accepted = "Q or Q/KV",
          .meaning = "heads of q; heads of k and v must divide them",
          .print = heads_text,
          .parse =
              [](Text key, Text text, Problem* p) {
                const size_t slash = text.find('/');
                read(key, text.substr(0, slash), &p->num_heads_q);
                p->num_heads_kv = p->num_heads_q;
                if (slash != Text::npos) read(key, text.substr(slash + 1), &p->num_heads_kv);
              },
          .always_written = true,
          .brief = [](const Problem&) { return std::string(); }};  // ratio_field writes it
}

ProblemField mask_field() {
  ProblemField field = always(one_value(Part::kSpec, "mask", "causal alone needs equal lengths",
                                        ATTUNE_AT(mask), Mask::kCausalBottomRight),
                              never);
  field.default_is_off = true;
  field.without = "no mask";
  return field;
}

int64_t window_side(Text key, Text text) {
  int64_t side = -1;
  if (text != "-") read(key, text, &side);
  return std::max<int64_t>(side, -1);
}

ProblemField window_field() {
  return {
      .part = Part::kSpec,
      .name = "window",
      .key = "window",
      .c_names = {"window_left", "window_right"},
      .accepted = "LEFT:RIGHT",
      .meaning = "keys visible beside the diagonal; - for an open side",
      .print = [](const Problem& p) { return fmt::format("{}:{}", p.window_left, p.window_right); },
      .parse =
          [](Text key, Text text, Problem* p) {
            const size_t colon = text.find(':');
            if (colon == Text::npos)
              refuse(key, text, "left:right, as in 127:0 for 128 causal keys");
            p->window_left = window_side(key, text.substr(0, colon));
            p->window_right = window_side(key, text.substr(colon + 1));
          },
      .always_written = true,
      .without = "no window",
      .brief =
          [](const Problem& p) {
            if (p.window_left < 0 && p.window_right < 0) return std::string();
            return fmt::format("window={}:{}", window_side_text(p.window_left),
                               window_side_text(p.window_right));
          }};
}

ProblemField scale_field() {
  return {
      .part = Part::kCall,
      .name = "softmax_scale",
      .key = "scale",
      .c_names = {"softmax_scale"},
      .accepted = "X",
      .meaning = "factor of the scores; default 1/sqrt(head_dim_qk)",
      .print =
          [](const Problem& p) {
            return p.softmax_scale ? fmt::format("{}", *p.softmax_scale) : std::string();
          },
      .parse = [](Text key, Text text,
                  Problem* p) { p->softmax_scale = parse_number<float>(key, text, "a number"); }};
}

ProblemField gradients_field() {
  ProblemField field = one_value(Part::kSpec, "gradients", "from op attention_backward",
                                 ATTUNE_AT(backward.gradients), Gradients::kAll);
  field.accepted = "q, k, v, qk, qv, kv, qkv";
  field.without = "all gradients together";
  return field;
}

ProblemField repeats_field() {
  ProblemField field =
      one_value(Part::kSpec, "repeats", "axes that the tensor of score_gradient repeats",
                ATTUNE_AT(backward.repeats), Repeats::kNone);
  field.accepted = "letters of bhqk";
  field.without = "tensors with all axes";
  return field;
}

// The fields of score features (score_feature.hpp).
std::vector<ProblemField> score_fields() {
  return {
      feature(one_value(kSpec, "softcap", "scores become N tanh(score / N)",
                        ATTUNE_AT(scores.softcap), 0),
              "no softcap"),
      feature(one_value(kSpec, "score_mod", "@FILE: a program", ATTUNE_AT(scores.score_mod), 0),
              "no score program"),
      feature(one_value(kSpec, "mask_mod", "@FILE: a program", ATTUNE_AT(scores.mask_mod), 0),
              "no mask program"),
      feature(one_value(kSpec, "bias", "type of a tensor added to scores", ATTUNE_AT(scores.bias),
                        ScoreTensor::kFp16),
              "no bias"),
      feature(one_value(kSpec, "relative_bias", "type of a table added by distance",
                        ATTUNE_AT(scores.relative_bias), ScoreTensor::kFp16),
              "no bias by distance"),
      feature(one_value(kSpec, "alibi", "1: subtracts slope times distance",
                        ATTUNE_AT(scores.alibi), 0),
              "no ALiBi"),
      feature(one_value(kSpec, "mask_tensor", "1: a tensor of bools hides keys",
                        ATTUNE_AT(scores.mask_tensor), 0),
              "no mask tensor"),
      feature(one_value(kSpec, "key_lengths", "1: keys of each batch entry",
                        ATTUNE_AT(scores.key_lengths), 0),
              "no key lengths"),
      feature(one_value(kSpec, "documents", "1: ids hide keys of other documents",
                        ATTUNE_AT(scores.documents), 0),
              "no documents"),
      feature(
          one_value(kSpec, "prefix", "1: all rows see the first keys", ATTUNE_AT(scores.prefix), 0),
          "no prefix"),
      feature(one_value(kSpec, "chunk", "rows see only keys of their chunk of N",
                        ATTUNE_AT(scores.chunk), 0),
              "no chunks"),
      feature(one_value(kSpec, "sinks", "type of a logit per head", ATTUNE_AT(scores.sinks),
                        ScoreTensor::kFp16),
              "no sinks"),
      feature(one_value(kSpec, "block_map", "use of a call's map of blocks",
                        ATTUNE_AT(scores.block_map), BlockMapUse::kHides),
              "no map of blocks"),
  };
}

std::vector<ProblemField> backward_fields() {
  return {
      gradients_field(),
      feature(one_value(kSpec, "score_gradient", "gradient of a score input",
                        ATTUNE_AT(backward.score_gradient), ScoreGradient::kLoadDiagonals),
              "gradients of q, k and v only"),
      feature(one_value(kSpec, "load", "load of score_mod, for score_gradient=load",
                        ATTUNE_AT(backward.load), 0),
              "a gradient of the first load"),
      repeats_field(),
      feature(one_value(kSpec, "accumulate", "1: adds to fp32 gradients",
                        ATTUNE_AT(backward.accumulate), 0),
              "gradients that are overwritten"),
      feature(one_value(kSpec, "deterministic", "1: equal bits in every run",
                        ATTUNE_AT(backward.deterministic), 0),
              "gradients whose bits may vary"),
  };
}

std::vector<ProblemField> cache_fields() {
  return {
      feature(one_value(kSpec, "page_size", "keys per page of the cache",
                        ATTUNE_AT(cache.page_size), 0),
              "no pages"),
      feature(one_value(kSpec, "packed_q", "1: rows of requests end to end",
                        ATTUNE_AT(cache.packed_q), 0),
              "no packed rows"),
      feature(one_value(kSpec, "packed_kv", "1: keys of requests end to end",
                        ATTUNE_AT(cache.packed_kv), 0),
              "no packed keys"),
      feature(one_value(kSpec, "batch_invariant", "1: bits of a request do not depend on others",
                        ATTUNE_AT(cache.batch_invariant), 0),
              "results that may depend on the batch"),
      feature(one_value(kSpec, "v_in_k", "1: v is k's first columns", ATTUNE_AT(cache.v_in_k), 0),
              "separate values"),
      feature(one_value(kSpec, "kv_factors", "factors of an 8-bit or 4-bit cache",
                        ATTUNE_AT(cache.kv_factors), KvFactors::kColumns32),
              "one factor per cache or head"),
      feature(one_value(kSpec, "key_indices", "numbers in each row's list of keys",
                        ATTUNE_AT(cache.key_indices), KeyIndices::kPlaces),
              "rows that see all keys of their request"),
      one_value(kShape, "listed_keys", "length of a row's list of keys; 0: seqlen_kv",
                ATTUNE_AT(listed_keys), 0),
      feature(one_value(kSpec, "rotary", "type of cos and sin of append_kv",
                        ATTUNE_AT(append.rotary), ScoreTensor::kFp16),
              "rows without rotation"),
      feature(one_value(kSpec, "rotary_dim", "columns that are rotated; 0: all",
                        ATTUNE_AT(append.rotary_dim), 0),
              "rotation of all columns"),
      feature(one_value(kSpec, "rotary_interleaved", "1: neighbours make a pair",
                        ATTUNE_AT(append.rotary_interleaved), 0),
              "pairs of one column of each half"),
      feature(one_value(kSpec, "rotary_q", "1: q is rotated too, into o",
                        ATTUNE_AT(append.rotary_q), 0),
              "rotation of k only"),
  };
}

std::deque<ProblemField> make_fields() {
  std::deque<ProblemField> fields{
      op_field(),
      dtype_field(),
      always(one_value(kSpec, "dtype_kv", "type of k and v", ATTUNE_AT(dtype_kv), Dtype::kE2m1),
             [](const Problem& p) { return p.dtype_kv == p.dtype_q; }),
      always(one_value(kSpec, "dtype_o", "type of o", ATTUNE_AT(dtype_o), Dtype::kE5m2),
             [](const Problem& p) { return p.dtype_o == usual_dtype_o(p.dtype_q); }),
      first_of_two(one_value(kSpec, "head_dim_qk", "elements per head of q and k",
                             ATTUNE_AT(head_dim_qk), 0),
                   "head_dim", equal_head_dims),
      always(
          one_value(kSpec, "head_dim_v", "elements per head of v and o", ATTUNE_AT(head_dim_v), 0),
          equal_head_dims),
      ratio_field(),
      always(one_value(kShape, "batch", "default 1", ATTUNE_AT(batch), 0), never),
      first_of_two(one_value(kShape, "seqlen_q", "rows of q", ATTUNE_AT(seqlen_q), 0), "seqlen",
                   equal_lengths),
      always(one_value(kShape, "seqlen_kv", "rows of k and v", ATTUNE_AT(seqlen_kv), 0),
             equal_lengths),
      heads_field(),
      mask_field(),
      window_field(),
      one_value(kSpec, "accuracy", "for 8-bit and fp32 operands", ATTUNE_AT(fp8.accuracy),
                Accuracy::kSplit),
      one_value(kSpec, "v_layout", "for 8-bit v", ATTUNE_AT(fp8.v_layout), VLayout::kTransposed),
      feature(one_value(kSpec, "scale_block_q", "rows of q that share a factor",
                        ATTUNE_AT(fp8.scale_block_q), 0),
              "no factor per block of rows"),
      feature(one_value(kSpec, "scale_block_kv", "rows of k and v that share a factor",
                        ATTUNE_AT(fp8.scale_block_kv), 0),
              "no factor per block of rows"),
      feature(one_value(kSpec, "rotation", "for the op quantise", ATTUNE_AT(quantise.rotation),
                        Rotation::kHadamard),
              "no rotation"),
  };
  for (ProblemField& field : score_fields()) fields.push_back(std::move(field));
  for (ProblemField& field : backward_fields()) fields.push_back(std::move(field));
  fields.push_back(
      feature(one_value(kSpec, "dropout", "dropped fraction of P, below 1", ATTUNE_AT(dropout), 0),
              "no dropout"));
  fields.push_back(feature(
      one_value(kSpec, "max_logits", "1: the largest logit of each head", ATTUNE_AT(max_logits), 0),
      "no largest logits"));
  for (ProblemField& field : cache_fields()) fields.push_back(std::move(field));
  fields.push_back(scale_field());
  fields.push_back(one_value(Part::kCall, "num_pages",
                             "pages of the cache, or rows of packed keys; 0: as many as needed",
                             ATTUNE_AT(num_pages), 0));
  return fields;
}

#undef ATTUNE_AT

std::deque<ProblemField>& mutable_fields() {
  static std::deque<ProblemField> fields = make_fields();
  return fields;
}

// A key that sets two fields to one value. The help lists it before these two.
struct Shorthand {
  const char* name;
  const char* meaning;
  std::vector<std::string_view> fields;
};

const std::vector<Shorthand>& shorthands() {
  static const std::vector<Shorthand> all{
      {"head_dim", "elements per head: multiples of 8, 16 to 512", {"head_dim_qk", "head_dim_v"}},
      {"seqlen", "rows of q and of k and v", {"seqlen_q", "seqlen_kv"}},
      {"scale_block",
       "rows of q, and of k and v, that share a factor; 0: all",
       {"scale_block_q", "scale_block_kv"}}};
  return all;
}

std::vector<ProblemKey> make_keys() {
  std::vector<ProblemKey> keys;
  for (const ProblemField& field : problem_fields()) {
    if (field.key.empty()) continue;
    for (const Shorthand& shorthand : shorthands())
      if (shorthand.fields.front() == field.name)
        keys.push_back({shorthand.name, field.accepted, shorthand.meaning, {}});
    keys.push_back({field.key, field.accepted, field.meaning, {&field}});
  }
  for (ProblemKey& key : keys)
    for (const Shorthand& shorthand : shorthands())
      for (const ProblemField& field : problem_fields())
        if (key.name == shorthand.name &&
            std::count(shorthand.fields.begin(), shorthand.fields.end(), field.name) > 0)
          key.fields.push_back(&field);
  return keys;
}

}  // namespace

std::string window_side_text(int64_t side) { return side < 0 ? "-" : std::to_string(side); }

const std::deque<ProblemField>& problem_fields() { return mutable_fields(); }

void add_problem_field(ProblemField field) { mutable_fields().push_back(std::move(field)); }

Features features_of(const KernelSpec& spec) {
  const Problem problem = problem_of(spec);
  Features features;
  for (const ProblemField& field : problem_fields())
    if (field.part == Part::kSpec && field.default_is_off && !field.is_default(problem))
      features.push_back(&field);
  return features;
}

const std::vector<ProblemKey>& problem_keys() {
  static const std::vector<ProblemKey> keys = make_keys();
  return keys;
}

std::string difference_text(const Problem& problem, const Problem& than) {
  std::string text;
  for (const ProblemField& field : problem_fields())
    if (field.print(problem) != field.print(than))
      text += fmt::format("{}{}={}", text.empty() ? "" : ",", field.name, field.print(problem));
  return text;
}

}  // namespace attune
