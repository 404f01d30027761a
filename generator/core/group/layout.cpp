// SPDX-License-Identifier: Apache-2.0
// Layouts of tokens and areas of visible keys; see layout.hpp.
#include "generator/core/group/layout.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "generator/core/problem/op.hpp"
#include "generator/core/problem/problem_values.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr int64_t kPiecesOfRank = 16;  // at most, in balanced layouts

[[noreturn]] void refuse(const std::string& sentence) {
  throw Error(ErrorCode::kInvalidArgument, sentence);
}

int64_t length_of(const WholeProblem& whole) { return whole.problem.seqlen_q; }

Range tokens_of_document(const WholeProblem& whole, size_t document) {
  if (whole.documents.empty()) return {0, length_of(whole)};
  return {whole.documents[document], whole.documents[document + 1]};
}

size_t number_of_documents(const WholeProblem& whole) {
  return whole.documents.empty() ? 1 : whole.documents.size() - 1;
}

// Returns the border before part `index` of `parts` equal parts of the grains.
int64_t border(const WholeProblem& whole, int64_t index, int64_t parts) {
  const int64_t grains = (length_of(whole) + kLayoutGrain - 1) / kLayoutGrain;
  return std::min(length_of(whole), (index * grains + parts / 2) / parts * kLayoutGrain);
}

void append(std::vector<Range>* ranges, Range range) {
  if (range.size() <= 0) return;
  if (!ranges->empty() && ranges->back().end == range.first)
    ranges->back().end = range.end;
  else
    ranges->push_back(range);
}

Layout balanced(const WholeProblem& whole, int world) {
  const int64_t grains = (length_of(whole) + kLayoutGrain - 1) / kLayoutGrain;
  const int64_t size = std::max<int64_t>(1, grains / (world * kPiecesOfRank)) * kLayoutGrain;
  const auto count = static_cast<size_t>((length_of(whole) + size - 1) / size);
  std::vector<int64_t> work(count, 0), load(static_cast<size_t>(world), 0);
  std::vector<size_t> order(count), held(static_cast<size_t>(world), 0), rank_of(count);
  const auto piece = [&](size_t index) {
    const int64_t first = static_cast<int64_t>(index) * size;
    return Range{first, std::min(first + size, length_of(whole))};
  };
  for (size_t i = 0; i < count; ++i)
    for (const Area& area : areas_of(whole, {piece(i)})) work[i] += visible_pairs(area);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return work[a] != work[b] ? work[a] > work[b] : a < b; });
  const size_t most = (count + load.size() - 1) / load.size();
  for (const size_t index : order) {
    size_t least = load.size();
    for (size_t rank = 0; rank < load.size(); ++rank)
      if (held[rank] < most && (least == load.size() || load[rank] < load[least])) least = rank;
    load[least] += work[index];
    ++held[least];
    rank_of[index] = least;
  }
  Layout layout(load.size());
  for (size_t i = 0; i < count; ++i) append(&layout[rank_of[i]], piece(i));
  return layout;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t end = text.find(separator); end != std::string_view::npos;
       end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text = text.substr(end + 1);
  }
  parts.push_back(text);
  return parts;
}

int64_t number(std::string_view text) {
  return problem_values::parse_number<int64_t>("layout", text, "an integer");
}

Layout parse_ranges(std::string_view text) {
  Layout layout;
  for (const std::string_view rank : split(text, '/')) {
    layout.emplace_back();
    if (rank.empty()) continue;
    for (const std::string_view range : split(rank, '+')) {
      const size_t dash = range.find('-');
      if (dash == std::string_view::npos)
        refuse(
            fmt::format("layout has \"{}\"; must be contiguous, zigzag, balanced, "
                        "interleaved:N, auto, or ranges such as 0-128+384-512/128-384",
                        range));
      layout.back().push_back({number(range.substr(0, dash)), number(range.substr(dash + 1))});
    }
  }
  return layout;
}

void check_layout(const Layout& layout, const WholeProblem& whole, int world) {
  if (layout.size() != static_cast<size_t>(world))
    refuse(fmt::format("layout has {} ranks; must have {}, the group's", layout.size(), world));
  std::vector<Range> all;
  for (const std::vector<Range>& rank : layout) {
    for (size_t i = 0; i < rank.size(); ++i)
      if (rank[i].size() <= 0 || (i > 0 && rank[i].first < rank[i - 1].end))
        refuse(fmt::format("layout has the range {}-{}; ranges of a rank must rise and hold tokens",
                           rank[i].first, rank[i].end));
    all.insert(all.end(), rank.begin(), rank.end());
  }
  std::sort(all.begin(), all.end(), [](Range a, Range b) { return a.first < b.first; });
  int64_t next = 0;
  for (const Range range : all) {
    if (range.first != next)
      refuse(fmt::format("layout has {} at token {}; each token must have one rank",
                         range.first < next ? "two ranks" : "no rank",
                         std::min(range.first, next)));
    next = range.end;
  }
  if (next != length_of(whole))
    refuse(
        fmt::format("layout ends at token {}; must end at {}, the length", next, length_of(whole)));
}

}  // namespace

Range common(Range one, Range other) {
  const int64_t first = std::max(one.first, other.first);
  return {first, std::max(first, std::min(one.end, other.end))};
}

void validate(const WholeProblem& whole) {
  validate(whole.problem);
  const Problem& p = whole.problem;
  const OpDescription& op = describe(p.op);
  if (!op.has_dropout || op.has_gradients || op.has_cache)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("a group computes the op attention, not {}", op_name(p.op)));
  if (p.seqlen_q != p.seqlen_kv)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("seqlen_q is {} and seqlen_kv is {}; must be equal in a group, whose "
                            "layout holds rows and keys of the same tokens",
                            p.seqlen_q, p.seqlen_kv));
  const std::vector<int64_t>& borders = whole.documents;
  if (borders.empty()) return;
  if (borders.size() < 2 || borders.front() != 0 || borders.back() != p.seqlen_q ||
      !std::is_sorted(borders.begin(), borders.end()))
    refuse(fmt::format("documents has {} borders from {} to {}; must rise from 0 to {}, the length",
                       borders.size(), borders.front(), borders.back(), p.seqlen_q));
}

std::vector<Area> areas_of(const WholeProblem& whole, const std::vector<Range>& rows) {
  std::vector<Area> areas;
  Problem p = whole.problem;
  for (const Range range : rows) {
    size_t document = 0;
    if (!whole.documents.empty())
      document = static_cast<size_t>(
          std::upper_bound(whole.documents.begin(), whole.documents.end(), range.first) -
          whole.documents.begin() - 1);
    for (; document < number_of_documents(whole); ++document) {
      const Range tokens = tokens_of_document(whole, document), mine = common(range, tokens);
      if (tokens.first >= range.end) break;
      if (mine.size() == 0) continue;
      p.seqlen_q = p.seqlen_kv = tokens.size();
      const KeyInterval<int64_t> keys =
          keys_of_rows(p, p, mine.first - tokens.first, mine.end - 1 - tokens.first);
      areas.push_back({mine,
                       {tokens.first + keys.first, tokens.first + keys.last + 1},
                       p.window_left < 0 ? -1 : p.window_left,
                       p.mask != Mask::kNone ? 0 : std::max<int64_t>(-1, p.window_right)});
    }
  }
  return areas;
}

Area part_of(const Area& area, Range keys) {
  Area part = area;
  part.keys = common(area.keys, keys);
  if (part.keys.size() == 0) return {};
  if (area.right >= 0) part.rows.first = std::max(part.rows.first, part.keys.first - area.right);
  if (area.left >= 0) part.rows.end = std::min(part.rows.end, part.keys.end + area.left);
  if (part.rows.size() <= 0) return {};
  // Keys that no row sees, at either end.
  if (area.left >= 0) part.keys.first = std::max(part.keys.first, part.rows.first - area.left);
  if (area.right >= 0) part.keys.end = std::min(part.keys.end, part.rows.end + area.right);
  return part;
}

int64_t visible_pairs(const Area& area) {
  int64_t pairs = 0;
  for (int64_t row = area.rows.first; row < area.rows.end; ++row) {
    const int64_t first = area.left < 0 ? area.keys.first : row - area.left;
    const int64_t end = area.right < 0 ? area.keys.end : row + area.right + 1;
    pairs += common(area.keys, {first, end}).size();
  }
  return pairs;
}

std::vector<int64_t> block_borders(const WholeProblem& whole) {
  std::vector<int64_t> borders;
  for (int64_t i = 0; i <= kRowBlocks; ++i) borders.push_back(border(whole, i, kRowBlocks));
  return borders;
}

std::vector<Range> cut_at_blocks(const WholeProblem& whole, const std::vector<Range>& rows) {
  std::vector<Range> cut;
  const std::vector<int64_t> borders = block_borders(whole);
  for (const Range range : rows)
    for (size_t i = 0; i + 1 < borders.size(); ++i) {
      const Range part = common(range, {borders[i], borders[i + 1]});
      if (part.size() > 0) cut.push_back(part);
    }
  return cut;
}

Layout make_layout(LayoutKind kind, const WholeProblem& whole, int world, int64_t block) {
  if (kind == LayoutKind::kBalanced) return balanced(whole, world);
  Layout layout(static_cast<size_t>(world));
  if (kind == LayoutKind::kInterleaved) {
    int64_t turn = 0;
    for (int64_t first = 0; first < length_of(whole); first += block, ++turn)
      append(&layout[static_cast<size_t>(turn % world)],
             {first, std::min(first + block, length_of(whole))});
    return layout;
  }
  const int64_t parts = kind == LayoutKind::kZigzag ? 2 * int64_t{world} : world;
  for (int64_t part = 0; part < parts; ++part)
    append(&layout[static_cast<size_t>(std::min(part, 2 * world - 1 - part))],
           {border(whole, part, parts), border(whole, part + 1, parts)});
  return layout;
}

LayoutKind usual_layout(const WholeProblem& whole) {
  if (number_of_documents(whole) > 1) return LayoutKind::kBalanced;
  const Problem& p = whole.problem;
  const bool causal = p.mask != Mask::kNone || p.window_right == 0;
  return causal && p.window_left < 0 ? LayoutKind::kZigzag : LayoutKind::kContiguous;
}

std::string to_text(const Layout& layout) {
  std::string text;
  for (size_t rank = 0; rank < layout.size(); ++rank) {
    if (rank > 0) text += '/';
    for (size_t i = 0; i < layout[rank].size(); ++i)
      text += fmt::format("{}{}-{}", i > 0 ? "+" : "", layout[rank][i].first, layout[rank][i].end);
  }
  return text;
}

Layout parse_layout(std::string_view text, const WholeProblem& whole, int world) {
  constexpr std::string_view kInterleaved = "interleaved:";
  if (text == "auto") return make_layout(usual_layout(whole), whole, world, 0);
  if (text == "contiguous") return make_layout(LayoutKind::kContiguous, whole, world, 0);
  if (text == "zigzag") return make_layout(LayoutKind::kZigzag, whole, world, 0);
  if (text == "balanced") return make_layout(LayoutKind::kBalanced, whole, world, 0);
  if (text.starts_with(kInterleaved)) {
    const int64_t block = number(text.substr(kInterleaved.size()));
    if (block < 1) refuse(fmt::format("layout is {}; blocks must hold at least 1 token", text));
    return make_layout(LayoutKind::kInterleaved, whole, world, block);
  }
  Layout layout = parse_ranges(text);
  check_layout(layout, whole, world);
  return layout;
}

}  // namespace attune
