// SPDX-License-Identifier: Apache-2.0
// The text form of a Problem: parse_problem and to_text; see problem.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

#include "generator/core/error.hpp"
#include "generator/core/kernel_spec.hpp"
#include "generator/core/problem.hpp"
#include "generator/core/problem_keys.hpp"

namespace attune {
namespace {

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view accepted) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is \"{}\"; accepted is {}", key, value, accepted));
}

int64_t parse_integer(std::string_view key, std::string_view value) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size()) refuse(key, value, "an integer");
  return number;
}

int parse_int(std::string_view key, std::string_view value) {
  const int64_t number = parse_integer(key, value);
  if (number < INT32_MIN || number > INT32_MAX) refuse(key, value, "a 32-bit integer");
  return static_cast<int>(number);
}

float parse_scale(std::string_view value) {
  float number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size())
    refuse("scale", value, "a number");
  return number;
}

int64_t parse_window_side(std::string_view value) {
  if (value == "-") return -1;
  return parse_integer("window", value);
}

void set_window(Problem* problem, std::string_view value) {
  const size_t colon = value.find(':');
  if (colon == std::string_view::npos)
    refuse("window", value, "left:right, with - for an open side");
  problem->window_left = parse_window_side(value.substr(0, colon));
  problem->window_right = parse_window_side(value.substr(colon + 1));
}

void set_heads(Problem* problem, std::string_view value) {
  const size_t slash = value.find('/');
  problem->num_heads_q = parse_int("heads", value.substr(0, slash));
  problem->num_heads_kv = slash == std::string_view::npos
                              ? problem->num_heads_q
                              : parse_int("heads", value.substr(slash + 1));
}

// Operands of 8 bits give a result of 16.
void set_dtype(Problem* problem, std::string_view value) {
  problem->dtype_q = problem->dtype_kv = parse_dtype(value);
  problem->dtype_o = is_fp8(problem->dtype_q) ? Dtype::kBf16 : problem->dtype_q;
}

void set_scale_block(Problem* problem, std::string_view value) {
  problem->fp8.scale_block_q = problem->fp8.scale_block_kv = parse_int("scale_block", value);
}

using Setter = std::function<void(Problem*, std::string_view)>;

// A field of the 8-bit options, by the key that it has there too.
Setter fp8_option(std::string_view key) {
  return [key](Problem* p, std::string_view v) { set_fp8_option(key, v, &p->fp8); };
}

template <class Value>
std::string words(std::string_view (*name)(Value), std::initializer_list<Value> values) {
  std::string text;
  for (const Value value : values)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", name(value));
  return text;
}

struct KeyRow {
  ProblemKey key;
  Setter set;
};

const std::vector<KeyRow>& key_rows() {
  static const std::string dtypes = words<Dtype>(
      dtype_name, {Dtype::kFp32, Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3, Dtype::kE5m2});
  static const std::vector<KeyRow> table{
      {{"dtype", dtypes, "of q, k, v and o; with 8-bit q, k, v o is bf16"}, set_dtype},
      {{"dtype_kv", dtypes, "of k and v"},
       [](Problem* p, std::string_view v) { p->dtype_kv = parse_dtype(v); }},
      {{"dtype_o", dtypes, "of o"},
       [](Problem* p, std::string_view v) { p->dtype_o = parse_dtype(v); }},
      {{"head_dim", "N", "elements of a head: multiples of 8, 16 to 256"},
       [](Problem* p, std::string_view v) {
         p->head_dim_qk = p->head_dim_v = parse_int("head_dim", v);
       }},
      {{"head_dim_qk", "N", "of q and k"},
       [](Problem* p, std::string_view v) { p->head_dim_qk = parse_int("head_dim_qk", v); }},
      {{"head_dim_v", "N", "of v and o"},
       [](Problem* p, std::string_view v) { p->head_dim_v = parse_int("head_dim_v", v); }},
      {{"heads", "Q or Q/KV", "heads of q, and of k and v, which divide them"}, set_heads},
      {{"batch", "N", "1 when left out"},
       [](Problem* p, std::string_view v) { p->batch = parse_integer("batch", v); }},
      {{"seqlen", "N", "rows of q and of k and v"},
       [](Problem* p, std::string_view v) {
         p->seqlen_q = p->seqlen_kv = parse_integer("seqlen", v);
       }},
      {{"seqlen_q", "N", "rows of q"},
       [](Problem* p, std::string_view v) { p->seqlen_q = parse_integer("seqlen_q", v); }},
      {{"seqlen_kv", "N", "rows of k and v"},
       [](Problem* p, std::string_view v) { p->seqlen_kv = parse_integer("seqlen_kv", v); }},
      {{"mask",
        words<Mask>(mask_name, {Mask::kNone, Mask::kCausalTopLeft, Mask::kCausalBottomRight}),
        "a causal mask names its alignment"},
       [](Problem* p, std::string_view v) { p->mask = parse_mask(v); }},
      {{"window", "LEFT:RIGHT", "keys seen beside the diagonal, - for an open side"}, set_window},
      {{"scale", "X", "of the scores; 1/sqrt(head_dim_qk) when left out"},
       [](Problem* p, std::string_view v) { p->softmax_scale = parse_scale(v); }},
      {{"accuracy", words<Accuracy>(accuracy_name, {Accuracy::kAccurate, Accuracy::kFast}),
        "of 8-bit operands"},
       fp8_option("accuracy")},
      {{"v_layout", words<VLayout>(v_layout_name, {VLayout::kRows, VLayout::kTransposed}),
        "of 8-bit v"},
       fp8_option("v_layout")},
      {{"scale_block", "N", "rows of q, and of k and v, that share a factor; 0: all"},
       set_scale_block},
      {{"scale_block_q", "N", "rows of q"}, fp8_option("scale_block_q")},
      {{"scale_block_kv", "N", "rows of k and v"}, fp8_option("scale_block_kv")},
      {{"op", words<Op>(op_name, {Op::kPrefill, Op::kQuantise}), "quantise makes 8-bit tensors"},
       [](Problem* p, std::string_view v) { p->op = parse_op(v); }},
      {{"rotation", words<Rotation>(rotation_name, {Rotation::kNone, Rotation::kHadamard}),
        "of the op quantise"},
       fp8_option("rotation")},
  };
  return table;
}

[[noreturn]] void refuse_key(std::string_view key) {
  std::string known;
  for (const ProblemKey& one : problem_keys())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", one.name);
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("problem key is \"{}\"; accepted are {}", key, known));
}

// What a key sets: itself, unless it stands for two.
std::vector<std::string_view> fields_of(std::string_view key) {
  if (key == "head_dim") return {"head_dim_qk", "head_dim_v"};
  if (key == "seqlen") return {"seqlen_q", "seqlen_kv"};
  if (key == "scale_block") return {"scale_block_q", "scale_block_kv"};
  return {key};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r\n";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

// Reads the pairs of one text and keeps which key set which field.
class TextReader {
 public:
  void apply(std::string_view key, std::string_view value) {
    const std::vector<KeyRow>& rows = key_rows();
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const KeyRow& r) { return r.key.name == key; });
    if (row == rows.end()) refuse_key(key);
    for (const std::string_view field : fields_of(key)) claim(field, key);
    row->set(&problem_, value);
  }

  // Throws unless each of the fields was set.
  void require(std::initializer_list<std::string_view> fields, std::string_view accepted) const {
    for (const std::string_view field : fields)
      if (set_by_.count(field) == 0)
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("the problem has no {}; accepted is {}", field, accepted));
  }

  const Problem& problem() const { return problem_; }

 private:
  void claim(std::string_view field, std::string_view key) {
    const auto [place, is_new] = set_by_.emplace(field, key);
    if (is_new) return;
    if (place->second == key)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("{} stands twice in the problem; accepted is once", key));
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{} and {} both set {}; accepted is one of them", place->second, key, field));
  }

  Problem problem_;
  std::map<std::string_view, std::string_view> set_by_;  // field -> key
};

using Pair = std::pair<std::string_view, std::string_view>;

// dtype first: the others say what differs from it.
std::vector<Pair> pairs_of(std::string_view text) {
  std::vector<Pair> pairs;
  while (!trimmed(text).empty()) {
    const size_t comma = text.find(',');
    const std::string_view pair = trimmed(text.substr(0, comma));  // people write "a=1, b=2"
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("problem part \"{}\" has no '='; accepted is key=value", pair));
    pairs.emplace_back(pair.substr(0, equals), pair.substr(equals + 1));
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  std::stable_partition(pairs.begin(), pairs.end(),
                        [](const Pair& pair) { return pair.first == "dtype"; });
  return pairs;
}

std::string window_side(int64_t side) { return side < 0 ? "-" : std::to_string(side); }

}  // namespace

const std::vector<ProblemKey>& problem_keys() {
  static const std::vector<ProblemKey> keys = [] {
    std::vector<ProblemKey> all;
    for (const KeyRow& row : key_rows()) all.push_back(row.key);
    return all;
  }();
  return keys;
}

std::string_view op_name(Op op) { return op == Op::kQuantise ? "quantise" : "prefill"; }

Op parse_op(std::string_view text) {
  for (const Op op : {Op::kPrefill, Op::kQuantise})
    if (op_name(op) == text) return op;
  refuse("op", text, "prefill or quantise");
}

bool set_fp8_option(std::string_view key, std::string_view value, Fp8Options* options) {
  if (key == "accuracy") return options->accuracy = parse_accuracy(value), true;
  if (key == "v_layout") return options->v_layout = parse_v_layout(value), true;
  if (key == "scale_block_q") return options->scale_block_q = parse_int(key, value), true;
  if (key == "scale_block_kv") return options->scale_block_kv = parse_int(key, value), true;
  if (key == "rotation") return options->rotation = parse_rotation(value), true;
  return false;
}

std::string to_text(const Fp8Options& options) {
  const Fp8Options plain;
  std::string text;
  if (options.accuracy != plain.accuracy)
    text += fmt::format(",accuracy={}", accuracy_name(options.accuracy));
  if (options.v_layout != plain.v_layout)
    text += fmt::format(",v_layout={}", v_layout_name(options.v_layout));
  if (options.scale_block_q != 0) text += fmt::format(",scale_block_q={}", options.scale_block_q);
  if (options.scale_block_kv != 0)
    text += fmt::format(",scale_block_kv={}", options.scale_block_kv);
  if (options.rotation != plain.rotation)
    text += fmt::format(",rotation={}", rotation_name(options.rotation));
  return text;
}

Problem parse_problem(std::string_view text, TextLengths lengths) {
  TextReader reader;
  for (const auto& [key, value] : pairs_of(text)) reader.apply(key, value);
  reader.require({"heads"}, "heads=Q or heads=Q/KV");
  reader.require({"head_dim_qk", "head_dim_v"}, "head_dim=D, or head_dim_qk=D,head_dim_v=D");
  if (lengths == TextLengths::kRequired)
    reader.require({"seqlen_q", "seqlen_kv"}, "seqlen=N, or seqlen_q=N,seqlen_kv=N");
  validate(reader.problem());
  return reader.problem();
}

namespace {

// op, types and head dims.
std::string elements_text(const Problem& p) {
  std::string text = p.op == Op::kPrefill ? "" : fmt::format("op={},", op_name(p.op));
  text += fmt::format("dtype={}", dtype_name(p.dtype_q));
  if (p.dtype_kv != p.dtype_q) text += fmt::format(",dtype_kv={}", dtype_name(p.dtype_kv));
  if (p.dtype_o != (is_fp8(p.dtype_q) ? Dtype::kBf16 : p.dtype_q))
    text += fmt::format(",dtype_o={}", dtype_name(p.dtype_o));
  return text + (p.head_dim_qk == p.head_dim_v
                     ? fmt::format(",head_dim={}", p.head_dim_qk)
                     : fmt::format(",head_dim_qk={},head_dim_v={}", p.head_dim_qk, p.head_dim_v));
}

// mask, window and what 8-bit operands have beyond it.
std::string rules_text(const Problem& p) {
  std::string text = fmt::format(",mask={}", mask_name(p.mask));
  if (p.window_left >= 0 || p.window_right >= 0)
    text += fmt::format(",window={}:{}", window_side(p.window_left), window_side(p.window_right));
  return text + to_text(p.fp8);
}

}  // namespace

std::string to_text(const Problem& p) {
  std::string text = elements_text(p) +
                     fmt::format(",heads={}/{},batch={}", p.num_heads_q, p.num_heads_kv, p.batch);
  text += p.seqlen_q == p.seqlen_kv
              ? fmt::format(",seqlen={}", p.seqlen_q)
              : fmt::format(",seqlen_q={},seqlen_kv={}", p.seqlen_q, p.seqlen_kv);
  text += rules_text(p);
  if (p.softmax_scale) text += fmt::format(",scale={}", *p.softmax_scale);
  return text;
}

std::string to_problem_text(const KernelSpec& spec) {
  const Problem p = problem_of(spec, Shape{1, 0, 0, spec.gqa_ratio, 1});
  return elements_text(p) + fmt::format(",heads={}/1", spec.gqa_ratio) + rules_text(p);
}

}  // namespace attune
