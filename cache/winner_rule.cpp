// SPDX-License-Identifier: Apache-2.0
// The winner rule; see winner_rule.hpp.
#include "cache/winner_rule.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace attune {
namespace {

bool can_win(const TrialRecord& trial) {
  return trial.status == TrialStatus::kOk && std::isfinite(trial.timing.median_us) &&
         trial.timing.median_us > 0;
}

// Returns to - from. A bound that is missing or on the wrong side of the median counts as the
// median.
double half_width(double from, double to) {
  return std::isfinite(to - from) ? std::max(to - from, 0.0) : 0.0;
}

int64_t known(int64_t value) { return value < 0 ? std::numeric_limits<int64_t>::max() : value; }

struct TieKey {
  bool not_default;
  int64_t registers, shared_bytes, tile;
  std::string text;
  double median_us;  // decides only if one kernel is given twice

  auto tuple() const {
    return std::tie(not_default, registers, shared_bytes, tile, text, median_us);
  }
  bool operator<(const TieKey& other) const { return tuple() < other.tuple(); }
};

TieKey tie_key(const TrialRecord& t) {
  const int64_t tile = t.config.get("block_m", -1) < 0 || t.config.get("block_n", -1) < 0
                           ? -1
                           : t.config.at("block_m") * t.config.at("block_n");
  return {!t.is_default,
          known(t.info.registers),
          known(t.shared_bytes),
          known(tile),
          fmt::format("{} {} {} {}", t.toolchain.template_name, t.arch, t.config.to_text(),
                      t.toolchain.text()),
          t.timing.median_us};
}

std::string against(int64_t won, int64_t lost) {
  return fmt::format(
      "({} against {})", won,
      lost == std::numeric_limits<int64_t>::max() ? std::string("unknown") : std::to_string(lost));
}

// Returns the reason why `won` came before `lost`, the next in tie order.
std::string tie_reason(const TieKey& won, const TieKey& lost) {
  if (!won.not_default) return "default kept";
  if (won.registers != lost.registers)
    return "fewer registers " + against(won.registers, lost.registers);
  if (won.shared_bytes != lost.shared_bytes)
    return "less shared memory " + against(won.shared_bytes, lost.shared_bytes);
  if (won.tile != lost.tile) return "smaller tile " + against(won.tile, lost.tile);
  return "first by name";
}

// Returns trials sorted by time. Equal medians are in tie order, so that the order of the input
// does not matter.
std::vector<size_t> by_time(const std::vector<TrialRecord>& trials) {
  std::vector<size_t> order;
  for (size_t i = 0; i < trials.size(); ++i)
    if (can_win(trials[i])) order.push_back(i);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const double time_a = trials[a].timing.median_us, time_b = trials[b].timing.median_us;
    return time_a != time_b ? time_a < time_b : tie_key(trials[a]) < tie_key(trials[b]);
  });
  return order;
}

}  // namespace

bool is_noisy(const Timing& timing) {
  return half_width(timing.lo_us, timing.hi_us) > kNoisyWidth * timing.median_us;
}

bool is_noisy(const WinnerRecord& winner) {
  return is_noisy(winner.timing) || is_noisy(winner.default_timing);
}

bool ties_with(const TrialRecord& fastest, const TrialRecord& trial) {
  const Timing& f = fastest.timing;
  const Timing& t = trial.timing;
  const double combined =
      std::hypot(half_width(f.median_us, f.hi_us), half_width(t.lo_us, t.median_us));
  return t.median_us - f.median_us <= combined + kTieBand * f.median_us;
}

std::optional<WinnerChoice> choose_winner(const std::vector<TrialRecord>& trials) {
  const std::vector<size_t> order = by_time(trials);
  if (order.empty()) return std::nullopt;
  const TrialRecord& fastest = trials[order.front()];
  std::vector<size_t> tied;
  const size_t* runner_up = nullptr;  // the fastest trial that does not tie
  for (const size_t& i : order) {
    if (ties_with(fastest, trials[i]))
      tied.push_back(i);
    else if (runner_up == nullptr)
      runner_up = &i;
  }
  std::sort(tied.begin(), tied.end(),
            [&](size_t a, size_t b) { return tie_key(trials[a]) < tie_key(trials[b]); });

  WinnerChoice choice{tied.front(), static_cast<int>(order.size()), static_cast<int>(tied.size()),
                      ""};
  if (choice.tied > 1)
    choice.why = fmt::format("tie of {}, {}", choice.tied,
                             tie_reason(tie_key(trials[tied[0]]), tie_key(trials[tied[1]])));
  else if (runner_up == nullptr)
    choice.why = "the only candidate that ran";
  else
    choice.why =
        fmt::format("fastest by {:.1f} %",
                    100 * (trials[*runner_up].timing.median_us / fastest.timing.median_us - 1));
  return choice;
}

}  // namespace attune
