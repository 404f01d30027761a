// SPDX-License-Identifier: Apache-2.0
// Draws random specs, lengths and configs; see draw.hpp.
#include "tuner/fuzz/draw.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "generator/core/problem/op.hpp"
#include "generator/core/system/error.hpp"
#include "generator/score/features/score_feature.hpp"
#include "tuner/fuzz/device_run.hpp"
#include "tuner/fuzz/random_program.hpp"

namespace attune::testing {
namespace {

template <class T>
T pick(std::mt19937_64& random, std::initializer_list<T> values) {
  return *(values.begin() + static_cast<long>(random() % values.size()));
}

// Draws 8-bit operands with any options.
void draw_narrow(std::mt19937_64& random, Problem* p) {
  p->dtype_kv = pick(random, {Dtype::kE4m3, Dtype::kE4m3, Dtype::kE5m2});
  p->dtype_o = pick(random, {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32});
  p->fp8.accuracy = pick(random, {Accuracy::kAccurate, Accuracy::kFast});
  p->fp8.v_layout = pick(random, {VLayout::kRows, VLayout::kRows, VLayout::kTransposed});
  p->fp8.scale_block_q = pick(random, {0, 0, 16, 64, 128, 208});
  p->fp8.scale_block_kv = pick(random, {0, 0, 16, 64, 128, 176});
}

// Draws head dimensions above 256: round ones, the one of a latent head (576), and others.
void draw_wide_heads(std::mt19937_64& random, Problem* p) {
  p->head_dim_qk = pick(random, {320, 384, 512, 576, 264 + 8 * static_cast<int>(random() % 40)});
  p->head_dim_v = std::min(p->head_dim_qk, 512);
  if (random() % 3 == 0) p->head_dim_v = 8 * static_cast<int>(2 + random() % 63);
}

// Changes a program so that it adds a value that does not depend on the score. Then the program
// does not multiply the score's error, which is large for products with few bits.
std::string added_to_score(std::string text) {
  const std::string score = "score", result = "return ";
  for (size_t at = 0; (at = text.find(score, at)) != std::string::npos;)
    text.replace(at, score.size(), "0.25");
  for (size_t at = 0; (at = text.find(result, at)) != std::string::npos; at += result.size()) {
    text.insert(text.find(";\n", at), ")");
    text.insert(at + result.size(), "score + 2.0 * tanh(");
  }
  return text;
}

ProgramDigest draw_program(std::mt19937_64& random, score::Kind kind, const Problem& problem) {
  const int depth = static_cast<int>(1 + random() % 6);
  score::RandomProgram drawn =
      score::random_program(random(), kind, depth, score::Calculus::kSteady);
  const bool is_short = is_8_bit(problem) || problem.fp8.accuracy == Accuracy::kFast;
  if (is_short && kind == score::Kind::kScore) drawn.text = added_to_score(drawn.text);
  return add_user_program(drawn.text, kind, drawn.declarations, "a random program").digest;
}

// Returns a program that means the same as a built-in step, and may be replaced by it.
std::string recognised_text(std::mt19937_64& random, score::Kind kind) {
  if (kind == score::Kind::kMask)
    return pick<std::string>(random, {"return kv_idx <= q_idx + (seqlen_kv - seqlen_q);",
                                      "return q_idx - kv_idx < 70 && kv_idx - q_idx < 30;",
                                      "return kv_idx <= q_idx && (kv_idx + 2 * q_idx) % 3 != 0;"});
  return pick<std::string>(
      random, {"return 20.0 * tanh(score / 20.0);", "return score;",
               "return select(kv_idx <= q_idx, score, -INFINITY);",
               "return select(kv_idx % 5 == 0, -INFINITY, 30.0 * tanh(score / 30.0));"});
}

void set_mask(Mask mask, Problem* p) {
  p->mask = mask;
  p->scores.prefix = false;
}

void draw_user_program(std::mt19937_64& random, score::Kind kind, Problem* p) {
  const bool is_recognised = random() % 3 == 0;
  (kind == score::Kind::kScore ? p->scores.score_mod : p->scores.mask_mod) =
      is_recognised
          ? add_user_program(recognised_text(random, kind), kind, {}, "a known program").digest
          : draw_program(random, kind, *p);
}

using Add = std::function<void(std::mt19937_64&, Problem*)>;

// Returns functions that each add one feature: masks, windows, sinks and all score features.
const std::vector<Add>& feature_draws() {
  static const std::vector<Add> draws = [] {
    std::vector<Add> all{
        [](std::mt19937_64& r, Problem* p) { p->scores.sinks = draw_score_tensor(r); },
        [](std::mt19937_64& r, Problem* p) { p->window_left = static_cast<int64_t>(r() % 100); },
        [](std::mt19937_64& r, Problem* p) { p->window_right = static_cast<int64_t>(r() % 60); },
        [](std::mt19937_64&, Problem* p) { set_mask(Mask::kCausalTopLeft, p); },
        [](std::mt19937_64&, Problem* p) { set_mask(Mask::kCausalBottomRight, p); }};
    for (const ScoreFeature* feature : score_features()) {
      if (feature->draw != nullptr)
        all.emplace_back(feature->draw);
      else
        all.emplace_back(
            [kind = feature->step == ScoreStep::kMask ? score::Kind::kMask : score::Kind::kScore](
                std::mt19937_64& r, Problem* p) { draw_user_program(r, kind, p); });
    }
    return all;
  }();
  return draws;
}

// Draws score features of any kind, one or several, with programs of a caller beside them.
void draw_scores(std::mt19937_64& random, Problem* p) {
  const Mask mask = p->mask;
  for (const Add& add : feature_draws())
    if (random() % 4 == 0) add(random, p);
  p->mask = p->scores.prefix ? Mask::kNone : mask;
  if (has_mask_program(*p) && random() % 5 == 0) p->scores.block_map = BlockMapUse::kSkips;
}

// Returns a pair of features. Consecutive seeds, as many as there are pairs, give each pair once. A
// few seeds spread over all pairs, because the stride has no factor in common with the number of
// pairs.
std::pair<size_t, size_t> feature_pair(uint64_t seed) {
  const auto count = static_cast<uint64_t>(num_feature_pairs());
  uint64_t stride = 53;
  while (std::gcd(stride, count) != 1) ++stride;
  uint64_t number = seed % count * stride % count, first = 0;
  for (uint64_t more = feature_draws().size() - 1; number >= more; --more) {
    number -= more;
    ++first;
  }
  return {first, first + 1 + number};
}

// True if the problem is valid and the template serves it on the device.
bool is_served(const Problem& p, const Device& device, const KernelTemplate& kernel_template) {
  if (!is_valid(p)) return false;
  const std::vector<Arch> archs = device.archs();
  return std::any_of(archs.begin(), archs.end(),
                     [&](const Arch& arch) { return !kernel_template.refuses(spec_of(p), arch); });
}

}  // namespace

int num_feature_pairs() {
  const auto count = static_cast<int>(feature_draws().size());
  return count * (count - 1) / 2;
}

bool is_valid(const Problem& problem) {
  try {
    validate(problem);
    score_captures(problem);
    return true;
  } catch (const Error&) {
    return false;
  }
}

void draw_feature(std::mt19937_64& random, Problem* problem) {
  const std::vector<Add>& draws = feature_draws();
  draws[random() % draws.size()](random, problem);
}

Config random_config(std::mt19937_64& random, const SearchSpace& space, Config config) {
  constexpr int kSteps = 60;
  const std::vector<Knob>& knobs = space.knobs();
  for (int step = 0; step < kSteps && !knobs.empty(); ++step) {
    Config changed = config;
    for (uint64_t left = 1 + random() % 3; left > 0; --left) {
      const Knob& knob = knobs[random() % knobs.size()];
      changed.set(knob.name, knob.values[random() % knob.values.size()]);
    }
    if (!space.broken(changed)) config = std::move(changed);
  }
  return config;
}

DrawnKernel draw_kernel(uint64_t seed, const Device& device,
                        const std::vector<const KernelTemplate*>& templates) {
  constexpr int kTries = 100;
  std::mt19937_64 random(seed);
  const auto [first, second] = feature_pair(seed);
  DrawnKernel drawn;
  for (int i = 0; i < kTries; ++i) {
    drawn.kernel_template = templates[random() % templates.size()];
    drawn.problem = random_problem(random, device, *drawn.kernel_template);
    Problem with_pair = drawn.problem;
    feature_draws()[first](random, &with_pair);
    feature_draws()[second](random, &with_pair);
    if (!is_served(with_pair, device, *drawn.kernel_template)) continue;
    drawn.problem = with_pair;
    break;
  }
  const KernelSpec spec = spec_of(drawn.problem);
  const Arch arch = arch_for(device, *drawn.kernel_template, spec);
  const Shape shape{1, 300, 300, drawn.problem.num_heads_q, drawn.problem.num_heads_kv};
  drawn.config = drawn.kernel_template->default_config(spec, arch, shape, device.facts());
  drawn.is_default = random() % 3 == 0;
  if (!drawn.is_default)
    drawn.config = random_config(random, drawn.kernel_template->space(spec, arch), drawn.config);
  return drawn;
}

// True if op prefill can write the largest logits: nothing changes scores.
bool takes_max_logits(const Problem& p) {
  return !is_8_bit(p) && !has_score_stage(p) && describe(p.op).has_max_logits;
}

Problem random_problem(std::mt19937_64& random, const Device& device,
                       const KernelTemplate& kernel_template) {
  for (;;) {
    Problem p;
    p.dtype_q = p.dtype_kv = p.dtype_o =
        pick(random, {Dtype::kBf16, Dtype::kFp16, Dtype::kFp32, Dtype::kE4m3, Dtype::kE4m3});
    if (is_8_bit(p.dtype_q)) draw_narrow(random, &p);
    if (p.dtype_q == Dtype::kFp32)
      p.fp8.accuracy = pick(random, {Accuracy::kAccurate, Accuracy::kFast, Accuracy::kSplit});
    p.head_dim_qk = 8 * static_cast<int>(2 + random() % 31);
    p.head_dim_v = random() % 3 == 0 ? 8 * static_cast<int>(2 + random() % 31) : p.head_dim_qk;
    if (random() % 2 == 0) p.head_dim_qk = p.head_dim_v = pick<int>(random, {64, 128, 256, 96, 80});
    if (!is_8_bit(p) && random() % 4 == 0) draw_wide_heads(random, &p);
    p.num_heads_kv = static_cast<int>(1 + random() % 3);
    p.num_heads_q = p.num_heads_kv * pick(random, {1, 1, 2, 4, 7, 16});
    if (p.num_heads_q > 16) p.num_heads_kv = 1, p.num_heads_q = 16;
    p.mask = pick(random, {Mask::kNone, Mask::kCausalTopLeft, Mask::kCausalBottomRight});
    if (random() % 3 == 0) p.window_left = static_cast<int64_t>(random() % 100);
    if (random() % 5 == 0) p.window_right = static_cast<int64_t>(random() % 60);
    if (random() % 4 == 0) p.softmax_scale = 0.05F + 0.01F * static_cast<float>(random() % 20);
    if (random() % 3 == 0) draw_scores(random, &p);
    if (takes_max_logits(p)) p.max_logits = random() % 4 == 0;
    for (const Arch& arch : device.archs())
      if (!kernel_template.refuses(spec_of(p), arch)) return p;
  }
}

void draw_lengths(std::mt19937_64& random, const Config& config, Problem* p) {
  const auto length = [&](int64_t tile) {
    switch (random() % 8) {
      case 0:
        return pick<int64_t>(random, {0, 1, 2, 7});
      case 1:
        return tile - 1;
      case 2:
        return tile;
      case 3:
        return tile + 1;
      case 4:
        return 2 * tile + 1;
      default:
        return static_cast<int64_t>(random() % static_cast<uint64_t>(3 * tile)) + 1;
    }
  };
  p->batch = 1 + static_cast<int64_t>(random() % 2);
  const int64_t rows = config.get("block_m", 16) / config.get("pack_heads", 1);
  p->seqlen_q = std::min<int64_t>(length(std::max<int64_t>(rows, 16)), 400);
  p->seqlen_kv =
      random() % 3 == 0
          ? p->seqlen_q
          : std::min<int64_t>(length(std::max<int64_t>(config.get("block_n", 32), 16)), 500);
}

}  // namespace attune::testing
