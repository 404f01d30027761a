// SPDX-License-Identifier: Apache-2.0
// The three algorithms as lists of steps; see schedule.hpp.
#include "generator/core/group/schedule.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "generator/core/problem/dtype.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr int kSumBytes = 4;  // sums of several ranks are fp32

// Makes the schedule of one rank. `pass` and `layout` are of the whole group.
class Maker {
 public:
  Maker(const WholeProblem& whole, const Layout& layout, Pass pass, int rank)
      : whole_(whole),
        layout_(layout),
        pass_(pass),
        rank_(rank),
        world_(static_cast<int>(layout.size())) {}

  Schedule gather() {
    for (int to = 0; to < world_; ++to)
      for (int from = 0; from < world_; ++from) transfer_needed(Payload::kKv, from, to, from, to);
    ++round_;
    const std::vector<Range>& mine = held(rank_);
    for (const Area& area :
         areas_of(whole_, whole_.world_invariant ? cut_at_blocks(whole_, mine) : mine))
      launch(area, all_heads());
    if (pass_ == Pass::kForward) return steps_;
    for (int to = 0; to < world_; ++to)
      for (int from = 0; from < world_; ++from) transfer_needed(Payload::kDkv, from, to, to, from);
    join_held(Payload::kDkv, kv_heads(all_heads()));
    return steps_;
  }

  Schedule exchange() {
    const bool backward = pass_ == Pass::kBackward;
    const Range heads = heads_of(rank_);
    for (int peer = 0; peer < world_; ++peer) {
      to_heads(backward ? Payload::kDout : Payload::kQ, peer, heads_of(peer));
      if (!backward) to_heads(Payload::kKv, peer, kv_heads(heads_of(peer)));
    }
    ++round_;
    for (const Area& area : areas_of(whole_, {{0, whole_.problem.seqlen_q}})) launch(area, heads);
    for (int peer = 0; peer < world_; ++peer) {
      to_tokens(backward ? Payload::kDq : Payload::kO, peer, heads_of(peer));
      if (backward) to_tokens(Payload::kDkv, peer, kv_heads(heads_of(peer)));
    }
    if (backward && repeats_kv()) join_held(Payload::kDkv, kv_heads(all_heads()));
    return steps_;
  }

  Schedule ring() {
    const int next = (rank_ + 1) % world_, before = (rank_ + world_ - 1) % world_;
    for (int turn = 0; turn < world_; ++turn) {
      const int owner = (rank_ + world_ - turn) % world_, coming = (owner + world_ - 1) % world_;
      if (turn + 1 < world_) {
        transfer_held(Payload::kKv, rank_, next, owner);
        transfer_held(Payload::kKv, before, rank_, coming);
        ++round_;
      }
      for (const Area& area : areas_of(whole_, held(rank_)))
        for (const Range keys : held(owner)) launch_part(part_of(area, keys));
      if (pass_ == Pass::kForward) continue;
      transfer_held(Payload::kDkv, rank_, next, owner);
      transfer_held(Payload::kDkv, before, rank_, coming);
      ++round_;
    }
    return steps_;
  }

 private:
  const std::vector<Range>& held(int rank) const { return layout_[static_cast<size_t>(rank)]; }
  Range all_heads() const { return {0, whole_.problem.num_heads_q}; }
  Range heads_of(int rank) const {
    const int64_t share = whole_.problem.num_heads_q / world_;
    return {rank * share, (rank + 1) * share};
  }
  Range kv_heads(Range heads) const {
    const int64_t ratio = whole_.problem.num_heads_q / whole_.problem.num_heads_kv;
    return {heads.first / ratio, (heads.end + ratio - 1) / ratio};
  }
  bool repeats_kv() const { return whole_.problem.num_heads_kv < world_; }

  int64_t bytes_of_token(Payload payload) const {
    const Problem& p = whole_.problem;
    const int64_t element = dtype_bytes(p.dtype_q), pair = p.head_dim_qk + p.head_dim_v;
    switch (payload) {
      case Payload::kQ:
      case Payload::kDq:
        return element * p.head_dim_qk;
      case Payload::kO:
      case Payload::kDout:
        return element * p.head_dim_v;
      case Payload::kKv:
        return element * pair;
      case Payload::kDkv:
        return (sums_ ? kSumBytes : element) * pair;
    }
    return 0;
  }

  void transfer(Payload payload, int from, int to, Range tokens, Range heads) {
    if (tokens.size() == 0 || from == to || (from != rank_ && to != rank_)) return;
    Step step;
    step.kind = StepKind::kTransfer;
    step.round = round_;
    step.payload = payload;
    step.from = from;
    step.to = to;
    step.tokens = tokens;
    step.heads = heads;
    step.bytes = tokens.size() * heads.size() * bytes_of_token(payload) * whole_.problem.batch;
    steps_.push_back(step);
  }

  // Transfers the keys of `owner` that rows of `reader` see.
  void transfer_needed(Payload payload, int from, int to, int owner, int reader) {
    if (from == to || (from != rank_ && to != rank_)) return;
    for (const Range tokens : held(owner))
      for (const Range seen : needed(reader))
        transfer(payload, from, to, common(tokens, seen), kv_heads(all_heads()));
  }

  // Returns the keys that rows of the rank see, rising.
  std::vector<Range> needed(int rank) const {
    std::vector<Range> all, joined;
    for (const Area& area : areas_of(whole_, held(rank))) all.push_back(area.keys);
    std::sort(all.begin(), all.end(), [](Range a, Range b) { return a.first < b.first; });
    for (const Range range : all)
      if (!joined.empty() && range.first <= joined.back().end)
        joined.back().end = std::max(joined.back().end, range.end);
      else
        joined.push_back(range);
    return joined;
  }

  void transfer_held(Payload payload, int from, int to, int owner) {
    for (const Range tokens : held(owner))
      transfer(payload, from, to, tokens, kv_heads(all_heads()));
  }

  // Between this rank and a peer: tokens go to the rank that computes the heads, and back.
  void to_heads(Payload payload, int peer, Range heads_of_peer) {
    const Range mine = payload == Payload::kKv ? kv_heads(heads_of(rank_)) : heads_of(rank_);
    for (const Range tokens : held(rank_)) transfer(payload, rank_, peer, tokens, heads_of_peer);
    for (const Range tokens : held(peer)) transfer(payload, peer, rank_, tokens, mine);
  }
  void to_tokens(Payload payload, int peer, Range heads_of_peer) {
    sums_ = repeats_kv();
    const Range mine = payload == Payload::kDkv ? kv_heads(heads_of(rank_)) : heads_of(rank_);
    for (const Range tokens : held(peer)) transfer(payload, rank_, peer, tokens, mine);
    for (const Range tokens : held(rank_)) transfer(payload, peer, rank_, tokens, heads_of_peer);
  }

  void launch(const Area& area, Range heads) {
    Step step;
    step.kind = StepKind::kLaunch;
    step.round = round_;
    step.tokens = area.rows;
    step.keys = area.keys;
    step.heads = heads;
    // The diagonal of the slice ends at its last key, the diagonal of the whole at its last row.
    const int64_t beyond = area.keys.end - area.rows.end;
    if (area.left >= 0 && area.left + beyond < area.keys.size() - 1) step.left = area.left + beyond;
    if (area.right >= 0 && area.right - beyond < area.rows.size() - 1)
      step.right = area.right - beyond;
    steps_.push_back(step);
  }

  void launch_part(const Area& part) {
    if (part.rows.size() == 0) return;
    launch(part, all_heads());
    if (pass_ == Pass::kBackward) return;  // launches add
    const bool again = std::any_of(steps_.begin(), steps_.end() - 1, [&](const Step& step) {
      return step.kind == StepKind::kLaunch && common(step.tokens, part.rows).size() > 0;
    });
    if (again) join(Payload::kO, part.rows, all_heads());
  }

  void join(Payload payload, Range tokens, Range heads) {
    Step step;
    step.kind = StepKind::kJoin;
    step.round = round_;
    step.payload = payload;
    step.tokens = tokens;
    step.heads = heads;
    steps_.push_back(step);
  }
  void join_held(Payload payload, Range heads) {
    ++round_;
    for (const Range tokens : held(rank_)) join(payload, tokens, heads);
  }

  const WholeProblem& whole_;
  const Layout& layout_;
  const Pass pass_;
  const int rank_, world_;
  int round_ = 0;
  bool sums_ = true;  // gradients of k and v are sent as fp32
  Schedule steps_;
};

int64_t bytes_of_all(const WholeProblem& whole, const Layout& layout, Algorithm algorithm,
                     bool training) {
  int64_t bytes = 0;
  for (int rank = 0; rank < static_cast<int>(layout.size()); ++rank)
    for (const Pass pass : {Pass::kForward, Pass::kBackward})
      if (pass == Pass::kForward || training)
        bytes += received_bytes(make_schedule(whole, layout, algorithm, pass, rank), rank);
  return bytes;
}

void check_world_invariant(const WholeProblem& whole, const Layout& layout, Algorithm algorithm) {
  if (algorithm != Algorithm::kGather)
    throw Error(ErrorCode::kUnsupported,
                fmt::format("world_invariant is asked with algorithm {}, whose launches depend on "
                            "the number of ranks; must be gather",
                            algorithm_name(algorithm)));
  const std::vector<int64_t> borders = block_borders(whole);
  for (const std::vector<Range>& ranges : layout)
    for (const Range range : ranges)
      for (const int64_t token : {range.first, range.end})
        if (!std::binary_search(borders.begin(), borders.end(), token))
          throw Error(ErrorCode::kUnsupported,
                      fmt::format("world_invariant is asked and layout has a border at token {}; "
                                  "must be at borders of {} equal blocks: contiguous on 1, 2, 4, 8 "
                                  "or 16 ranks, or zigzag on 1, 2, 4 or 8",
                                  token, kRowBlocks));
}

bool can_exchange(const Problem& p, int world) {
  return p.num_heads_q % world == 0 && (p.num_heads_kv % world == 0 || world % p.num_heads_kv == 0);
}

}  // namespace

std::string_view algorithm_name(Algorithm algorithm) {
  if (algorithm == Algorithm::kGather) return "gather";
  return algorithm == Algorithm::kExchange ? "exchange" : "ring";
}

std::string_view payload_name(Payload payload) {
  constexpr std::string_view kNames[] = {"q", "kv", "o", "dout", "dq", "dkv"};
  return kNames[static_cast<int>(payload)];
}

void check_algorithm(const WholeProblem& whole, const Layout& layout, Algorithm algorithm) {
  const Problem& p = whole.problem;
  const int world = static_cast<int>(layout.size());
  if (whole.world_invariant) check_world_invariant(whole, layout, algorithm);
  if (algorithm != Algorithm::kExchange || can_exchange(p, world)) return;
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("algorithm is exchange with {}/{} heads on {} ranks; num_heads_q must be a "
                  "multiple of the ranks, and num_heads_kv a multiple or a divisor; use "
                  "gather",
                  p.num_heads_q, p.num_heads_kv, world));
}

Schedule make_schedule(const WholeProblem& whole, const Layout& layout, Algorithm algorithm,
                       Pass pass, int rank) {
  Maker maker(whole, layout, pass, rank);
  if (algorithm == Algorithm::kGather) return maker.gather();
  return algorithm == Algorithm::kExchange ? maker.exchange() : maker.ring();
}

int64_t received_bytes(const Schedule& schedule, int rank) {
  int64_t bytes = 0;
  for (const Step& step : schedule)
    if (step.kind == StepKind::kTransfer && step.to == rank) bytes += step.bytes;
  return bytes;
}

Algorithm choose_algorithm(const WholeProblem& whole, const Layout& layout, bool training) {
  if (!can_exchange(whole.problem, static_cast<int>(layout.size()))) return Algorithm::kGather;
  const int64_t gather = bytes_of_all(whole, layout, Algorithm::kGather, training);
  const int64_t exchange = bytes_of_all(whole, layout, Algorithm::kExchange, training);
  return exchange < gather ? Algorithm::kExchange : Algorithm::kGather;
}

}  // namespace attune
