// SPDX-License-Identifier: Apache-2.0
// Winners: the Config chosen for each TuningKey and toolchain. A pin is a second row of the key, in
// addition to the tuned row.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cache/store_impl.hpp"
#include "cache/store_rows.hpp"

namespace attune {
namespace {

constexpr const char* kOfKey = "problem_id = ? AND shape_id = ? AND device_id = ? AND policy = ?";

std::string select_winners(std::string_view where) {
  return fmt::format(
      "SELECT {}, {}, {}, {}, w.policy, w.pinned, w.arch, w.config,"
      " w.median_us, w.lo_us, w.hi_us, w.min_us, w.samples, w.sm_clock_mhz, w.default_config,"
      " w.default_median_us, w.default_lo_us, w.default_hi_us, w.default_min_us, "
      "w.default_samples, w.default_sm_clock_mhz,"
      " w.default_is_winner, w.effort, w.candidates, w.why, w.driver, w.power_limit_w,"
      " w.created, w.complete"
      " FROM winner w JOIN problem p ON p.id = w.problem_id JOIN shape s ON s.id = w.shape_id"
      " JOIN device d ON d.id = w.device_id JOIN toolchain c ON c.id = w.toolchain_id {}"
      " ORDER BY w.pinned DESC, w.effort DESC, w.created DESC, w.config, w.id DESC",
      kProblemColumns, kShapeColumns, kDeviceColumns, kToolchainColumns, where);
}

WinnerRecord read_winner(Statement& row, IdentityReader& identities) {
  WinnerRecord w;
  w.spec = identities.problem(row);
  w.shape = identities.shape(row);
  w.device = identities.device(row);
  w.toolchain = identities.toolchain(row);
  std::string config, default_config;
  int effort = 0;
  row.read(w.policy.text, w.pinned, w.arch, config);
  w.timing = read_timing(row);
  row.read(default_config);
  w.default_timing = read_timing(row);
  row.read(w.default_is_winner, effort, w.candidates, w.why, w.conditions.driver,
           w.conditions.power_limit_w, w.created, w.complete);
  w.config = parse_config(config);
  w.default_config = parse_config(default_config);
  w.effort = checked_effort(effort);
  w.device.conditions = w.conditions;
  return w;
}

std::vector<WinnerRecord> read_winners(Statement& select) {
  std::vector<WinnerRecord> winners;
  IdentityReader identities;
  for_each_row(select, "winner",
               [&](Statement& row) { winners.push_back(read_winner(row, identities)); });
  return winners;
}

WinnerRecord completed(const TuningKey& key, const WinnerRecord& winner) {
  WinnerRecord complete = winner;
  complete.conditions = key.device.conditions;
  if (complete.created.empty()) complete.created = utc_now();
  return complete;
}

}  // namespace

std::optional<WinnerRecord> find_winner(Database& database, const TuningKey& key,
                                        const WinnerRecord& like) {
  const auto ids = find_key(database, key);
  const auto toolchain = find_toolchain(database, like.toolchain);
  if (!ids || !toolchain) return std::nullopt;
  Statement select(database, select_winners(fmt::format(
                                 "WHERE {} AND toolchain_id = ? AND pinned = ?", kOfKey)));
  select.bind(ids->problem, ids->shape, ids->device, key.policy.text, *toolchain, like.pinned);
  const std::vector<WinnerRecord> found = read_winners(select);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

void replace_winner(Database& database, const TuningKey& key, const WinnerRecord& w) {
  const KeyIds ids = ensure_key(database, key);
  const int64_t toolchain = ensure_toolchain(database, w.toolchain);
  Statement insert(
      database,
      "INSERT OR REPLACE INTO winner (problem_id, shape_id, device_id, policy, toolchain_id, "
      "pinned, arch, config,"
      " median_us, lo_us, hi_us, min_us, samples, sm_clock_mhz, default_config, default_median_us, "
      "default_lo_us,"
      " default_hi_us, default_min_us, default_samples, default_sm_clock_mhz, default_is_winner, "
      "effort, candidates,"
      " why, driver, power_limit_w, created, complete)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
      "?, ?)");
  const Timing& t = w.timing;
  const Timing& d = w.default_timing;
  insert.bind(ids.problem, ids.shape, ids.device, key.policy.text, toolchain, w.pinned, w.arch,
              w.config.to_text(), t.median_us, t.lo_us, t.hi_us, t.min_us, t.samples,
              t.sm_clock_mhz, w.default_config.to_text(), d.median_us, d.lo_us, d.hi_us, d.min_us,
              d.samples, d.sm_clock_mhz, w.default_is_winner, w.effort, w.candidates, w.why,
              w.conditions.driver, w.conditions.power_limit_w, w.created, w.complete);
  insert.run();
}

void delete_pins(Database& database, const TuningKey& key) {
  const auto ids = find_key(database, key);
  if (!ids) return;
  Statement remove(database, fmt::format("DELETE FROM winner WHERE {} AND pinned <> 0", kOfKey));
  remove.bind(ids->problem, ids->shape, ids->device, key.policy.text).run();
}

std::optional<WinnerRecord> find_pin(Database& database, const TuningKey& key) {
  const auto ids = find_key(database, key);
  if (!ids) return std::nullopt;
  Statement select(database, select_winners(fmt::format("WHERE {} AND pinned <> 0", kOfKey)));
  select.bind(ids->problem, ids->shape, ids->device, key.policy.text);
  const std::vector<WinnerRecord> found = read_winners(select);
  return found.empty() ? std::nullopt : std::optional(found.front());
}

namespace {

// Reads winners, and the programs that their problems name and this process does not know.
std::vector<WinnerRecord> read_winners_with_programs(Database& database, Statement& select) {
  std::vector<WinnerRecord> winners = read_winners(select);
  const auto is_missing = [](const ProgramDigest& digest) {
    return digest && find_user_program(digest) == nullptr;
  };
  if (std::any_of(winners.begin(), winners.end(), [&](const WinnerRecord& winner) {
        return is_missing(winner.spec.scores.score_mod) || is_missing(winner.spec.scores.mask_mod);
      }))
    read_all_programs(database);
  return winners;
}

std::vector<int64_t> wanted_problems(Database& database, const ProblemFilter& wanted) {
  std::vector<int64_t> ids;
  Statement select(database, "SELECT id, text FROM problem ORDER BY id");
  while (select.step()) {
    int64_t id = 0;
    std::string text;
    select.read(id, text);
    if (wanted(text)) ids.push_back(id);
  }
  return ids;
}

// Returns the winners that match `where`, of the wanted problems; without a filter of all problems.
// A statement may have at most a megabyte, so each statement names at most kMostProblems problems.
template <class... Values>
std::vector<WinnerRecord> read_wanted(Database& database, const ProblemFilter& wanted,
                                      std::string_view where, const Values&... values) {
  constexpr size_t kMostProblems = 10'000;
  const auto read = [&](const std::string& condition) {
    Statement select(database, select_winners(fmt::format("WHERE {}{}", where, condition)));
    select.bind(values...);
    return read_winners_with_programs(database, select);
  };
  if (!wanted) return read("");
  std::vector<WinnerRecord> winners;
  const std::vector<int64_t> ids = wanted_problems(database, wanted);
  for (size_t begin = 0; begin < ids.size(); begin += kMostProblems) {
    const auto first = ids.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto count = std::min(kMostProblems, ids.size() - begin);
    for (WinnerRecord& winner :
         read(fmt::format(" AND w.problem_id IN ({})",
                          fmt::join(first, first + static_cast<std::ptrdiff_t>(count), ", "))))
      winners.push_back(std::move(winner));
  }
  return winners;
}

}  // namespace

std::vector<WinnerRecord> read_all_winners(Database& database) {
  Statement select(database, select_winners(""));
  return read_winners_with_programs(database, select);
}

void Store::put_winner(const TuningKey& key, const WinnerRecord& winner) {
  WinnerRecord complete = completed(key, winner);
  complete.pinned = false;
  impl_->write([&](Database& database) {
    const auto former = find_winner(database, key, complete);
    if (former &&
        !gives_way(former->effort, former->conditions, complete.effort, complete.conditions))
      return;
    replace_winner(database, key, complete);
  });
}

void Store::set_pinned(const TuningKey& key, const WinnerRecord& winner) {
  const WinnerRecord complete = completed(key, winner);
  impl_->write([&](Database& database) {
    delete_pins(database, key);
    if (complete.pinned) replace_winner(database, key, complete);
  });
}

std::vector<WinnerRecord> Store::load_winners(const DeviceIdentity& device,
                                              const ProblemFilter& wanted) const {
  return impl_->read([&](Database& database) {
    const auto id = find_device(database, device);
    if (!id) return std::vector<WinnerRecord>();
    return read_wanted(database, wanted, "w.device_id = ?", *id);
  });
}

std::vector<WinnerRecord> Store::load_winners_of_other_threads(const DeviceIdentity& device,
                                                               const ProblemFilter& wanted) const {
  if (!device.is_cpu()) return {};
  std::vector<WinnerRecord> winners = impl_->read([&](Database& database) {
    return read_wanted(database, wanted, "d.arch = ? AND d.sm_count <> ?", device.arch,
                       device.sm_count);
  });
  std::erase_if(winners, [&](const WinnerRecord& winner) {
    return !differ_in_threads_alone(winner.device, device);
  });
  return winners;
}

std::vector<WinnerRecord> Store::all_winners() const { return impl_->read(read_all_winners); }

}  // namespace attune
