// SPDX-License-Identifier: Apache-2.0
// Checks the schedules of all ranks together, without a device: what is sent is held and is
// received, no ranks wait for each other, and each row sees each visible key once. Returns a
// sentence about the first mistake, "" if there is none.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "generator/core/group/schedule.hpp"
#include "generator/core/problem/visibility.hpp"

namespace attune {

// The keys that a row of the whole sees, by the rule of one problem per document.
inline Range keys_of_row(const WholeProblem& whole, int64_t row) {
  Problem p = whole.problem;
  int64_t first = 0, end = p.seqlen_q;
  for (size_t i = 0; i + 1 < whole.documents.size(); ++i)
    if (whole.documents[i] <= row && row < whole.documents[i + 1])
      first = whole.documents[i], end = whole.documents[i + 1];
  p.seqlen_q = p.seqlen_kv = end - first;
  const KeyInterval<int64_t> keys = visible_keys(p, row - first);
  return {first + keys.first, first + keys.last + 1};
}

// The keys that a row sees in a launch, as attention() would compute the slice.
inline Range keys_in_launch(const Step& launch, int64_t row) {
  Problem slice;
  slice.seqlen_q = launch.tokens.size();
  slice.seqlen_kv = launch.keys.size();
  slice.window_left = launch.left;
  slice.window_right = launch.right;
  const KeyInterval<int64_t> keys = visible_keys(slice, row - launch.tokens.first);
  return {launch.keys.first + keys.first, launch.keys.first + keys.last + 1};
}

class GroupCheck {
 public:
  GroupCheck(const WholeProblem& whole, const Layout& layout, Algorithm algorithm, Pass pass)
      : whole_(whole), layout_(layout), algorithm_(algorithm), pass_(pass) {
    for (int rank = 0; rank < world(); ++rank)
      schedules_.push_back(make_schedule(whole, layout, algorithm, pass, rank));
  }

  std::string mistake() {
    for (const auto check : {&GroupCheck::pairs, &GroupCheck::waits, &GroupCheck::operands,
                             &GroupCheck::rows, &GroupCheck::joins})
      if (std::string found = (this->*check)(); !found.empty()) return found;
    return "";
  }
  std::vector<Schedule>& schedules() { return schedules_; }

 private:
  int world() const { return static_cast<int>(layout_.size()); }
  const Schedule& of(int rank) const { return schedules_[static_cast<size_t>(rank)]; }

  static std::string text(const Step& s) {
    return fmt::format("round {} {} {}->{} tokens {}-{} heads {}-{} bytes {}", s.round,
                       payload_name(s.payload), s.from, s.to, s.tokens.first, s.tokens.end,
                       s.heads.first, s.heads.end, s.bytes);
  }

  // Both ends of a transfer have it, in the same order.
  std::string pairs() {
    std::map<std::pair<int, int>, std::vector<std::string>> sent, received;
    for (int rank = 0; rank < world(); ++rank)
      for (const Step& step : of(rank)) {
        if (step.kind != StepKind::kTransfer) continue;
        if (step.from == step.to) return "a rank sends to itself: " + text(step);
        if (step.from == rank) sent[{step.from, step.to}].push_back(text(step));
        if (step.to == rank) received[{step.from, step.to}].push_back(text(step));
        if (step.from != rank && step.to != rank) return "a foreign transfer: " + text(step);
      }
    return sent == received ? "" : "the ends of transfers differ";
  }

  // A rank passes a round of transfers when all ranks that it meets there have reached this round.
  std::string waits() {
    std::vector<size_t> at(schedules_.size(), 0);
    const auto is_in = [&](int rank, int round) {
      const size_t step = at[static_cast<size_t>(rank)];
      return step < of(rank).size() && of(rank)[step].kind == StepKind::kTransfer &&
             of(rank)[step].round == round;
    };
    const auto past = [&](int rank, int round) {
      const size_t step = at[static_cast<size_t>(rank)];
      return step == of(rank).size() || of(rank)[step].round > round ||
             (of(rank)[step].round == round && step > 0 &&
              of(rank)[step].kind != StepKind::kTransfer &&
              of(rank)[step - 1].kind == StepKind::kTransfer);
    };
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < world(); ++rank) {
        size_t& step = at[static_cast<size_t>(rank)];
        while (step < of(rank).size()) {
          const Step& next = of(rank)[step];
          if (next.kind != StepKind::kTransfer) {
            ++step, moved = true;
            continue;
          }
          size_t end = step;
          bool ready = true;
          for (; end < of(rank).size() && of(rank)[end].kind == StepKind::kTransfer &&
                 of(rank)[end].round == next.round;
               ++end) {
            const int peer = of(rank)[end].from == rank ? of(rank)[end].to : of(rank)[end].from;
            ready = ready && (is_in(peer, next.round) || past(peer, next.round));
          }
          if (!ready) break;
          step = end, moved = true;
        }
      }
    }
    for (int rank = 0; rank < world(); ++rank)
      if (at[static_cast<size_t>(rank)] < of(rank).size())
        return fmt::format("rank {} waits for ever at step {}", rank,
                           at[static_cast<size_t>(rank)]);
    return "";
  }

  // Ranks hold what they send and what their launches read. Plays the steps by rounds: transfers
  // of a round come before its launches if the schedule lists them before.
  std::string operands() {
    using Cells = std::set<std::pair<int64_t, int64_t>>;  // block of tokens, head
    const bool kept = algorithm_ == Algorithm::kExchange && pass_ == Pass::kBackward;
    const auto cells = [&](Range tokens, Range heads) {
      Cells found;
      for (int64_t token = tokens.first; token < tokens.end; ++token)
        for (int64_t head = heads.first; head < heads.end; ++head) found.insert({token, head});
      return found;
    };
    std::vector<Cells> keys(layout_.size()), rows(layout_.size());
    for (size_t rank = 0; rank < layout_.size(); ++rank)
      for (const Range tokens : layout_[rank]) {
        keys[rank].merge(cells(tokens, {0, whole_.problem.num_heads_kv}));
        rows[rank].merge(cells(tokens, {0, whole_.problem.num_heads_q}));
      }
    const auto holds = [](const Cells& held, const Cells& asked) {
      return std::includes(held.begin(), held.end(), asked.begin(), asked.end());
    };
    std::vector<size_t> at(layout_.size(), 0);
    for (int round = 0;; ++round) {
      bool more = false;
      std::vector<std::pair<int, const Step*>> launches;
      std::vector<const Step*> coming;
      for (size_t rank = 0; rank < layout_.size(); ++rank)
        for (; at[rank] < schedules_[rank].size() && schedules_[rank][at[rank]].round == round;
             ++at[rank]) {
          const Step& step = schedules_[rank][at[rank]];
          more = true;
          const bool is_input = step.payload == Payload::kKv || step.payload == Payload::kQ ||
                                step.payload == Payload::kDout;
          if (step.kind == StepKind::kLaunch) {
            launches.emplace_back(static_cast<int>(rank), &step);
          } else if (step.kind == StepKind::kTransfer && is_input) {
            const auto& held = step.payload == Payload::kKv ? keys : rows;
            if (step.from == static_cast<int>(rank) &&
                !holds(held[rank], cells(step.tokens, step.heads)))
              return "a rank sends what it does not hold: " + text(step);
            if (step.to == static_cast<int>(rank)) coming.push_back(&step);
          }
        }
      const int64_t ratio = whole_.problem.num_heads_q / whole_.problem.num_heads_kv;
      for (const auto& [rank, step] : launches) {
        const Range heads = {step->heads.first / ratio, (step->heads.end + ratio - 1) / ratio};
        const auto index = static_cast<size_t>(rank);
        if (!holds(rows[index], cells(step->tokens, step->heads)))
          return fmt::format("rank {} lacks rows of its launch", rank);
        if (!kept && !holds(keys[index], cells(step->keys, heads)))
          return fmt::format("rank {} lacks keys {}-{}", rank, step->keys.first, step->keys.end);
      }
      for (const Step* step : coming)
        (step->payload == Payload::kKv ? keys : rows)[static_cast<size_t>(step->to)].merge(
            cells(step->tokens, step->heads));
      if (!more && round > 0) return "";
    }
  }

  // Each row sees each visible key once, for each head.
  std::string rows() {
    for (int64_t head = 0; head < whole_.problem.num_heads_q; ++head) {
      std::vector<std::vector<Range>> seen(static_cast<size_t>(whole_.problem.seqlen_q));
      for (const Schedule& schedule : schedules_)
        for (const Step& step : schedule) {
          if (step.kind != StepKind::kLaunch || head < step.heads.first || head >= step.heads.end)
            continue;
          for (int64_t row = step.tokens.first; row < step.tokens.end; ++row)
            seen[static_cast<size_t>(row)].push_back(keys_in_launch(step, row));
        }
      for (size_t row = 0; row < seen.size(); ++row) {
        std::sort(seen[row].begin(), seen[row].end(),
                  [](Range a, Range b) { return a.first < b.first; });
        const Range visible = keys_of_row(whole_, static_cast<int64_t>(row));
        int64_t next = visible.first;
        for (const Range part : seen[row]) {
          if (part.first != next && part.size() > 0)
            return fmt::format("row {} sees keys {}-{} after key {}", row, part.first, part.end,
                               next);
          next = std::max(next, part.end);
        }
        if (next != visible.end)
          return fmt::format("row {} sees keys to {}, not to {}", row, next, visible.end);
      }
    }
    return "";
  }

  // Partial results of rows are joined; gradients of foreign keys reach their rank.
  std::string joins() {
    for (int rank = 0; rank < world(); ++rank) {
      std::set<int64_t> done;
      for (size_t i = 0; i < of(rank).size(); ++i) {
        const Step& step = of(rank)[i];
        if (step.kind != StepKind::kLaunch || pass_ == Pass::kBackward) continue;
        bool again = false;
        for (int64_t row = step.tokens.first; row < step.tokens.end; ++row)
          again = !done.insert(row).second || again;
        const bool joined = i + 1 < of(rank).size() && of(rank)[i + 1].kind == StepKind::kJoin &&
                            of(rank)[i + 1].tokens == step.tokens;
        if (again != joined)
          return fmt::format("rank {} {} the rows {}-{}", rank, joined ? "joins" : "does not join",
                             step.tokens.first, step.tokens.end);
      }
    }
    return pass_ == Pass::kBackward && algorithm_ == Algorithm::kGather ? contributions() : "";
  }

  std::string contributions() {
    std::map<std::pair<int, int>, std::set<int64_t>> made, sent;
    for (int rank = 0; rank < world(); ++rank)
      for (const Step& step : of(rank)) {
        if (step.kind == StepKind::kTransfer && step.payload == Payload::kDkv && step.from == rank)
          for (int64_t key = step.tokens.first; key < step.tokens.end; ++key)
            sent[{rank, step.to}].insert(key);
        if (step.kind != StepKind::kLaunch) continue;
        for (int owner = 0; owner < world(); ++owner)
          for (const Range held : layout_[static_cast<size_t>(owner)])
            for (int64_t key = common(held, step.keys).first; key < common(held, step.keys).end;
                 ++key)
              if (owner != rank) made[{rank, owner}].insert(key);
      }
    return made == sent ? "" : "gradients of keys and their transfers differ";
  }

  const WholeProblem& whole_;
  const Layout& layout_;
  const Algorithm algorithm_;
  const Pass pass_;
  std::vector<Schedule> schedules_;
};

}  // namespace attune
