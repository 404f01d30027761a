// SPDX-License-Identifier: Apache-2.0
// Trials: every Config tried on every TuningKey, one row each.
#include <fmt/format.h>

#include "cache/record_json.hpp"
#include "cache/store_impl.hpp"
#include "cache/store_rows.hpp"

namespace attune {
namespace {

std::string select_trials(std::string_view where) {
  return fmt::format(
      "SELECT {}, {}, {}, {}, t.policy, t.arch, t.config, t.is_default, t.status, t.reason,"
      " t.median_us, t.lo_us, t.hi_us, t.min_us, t.samples, t.sm_clock_mhz,"
      " t.error_max, t.error_mean, t.info, t.shared_bytes, t.effort, t.driver,"
      " t.power_limit_w, t.created"
      " FROM trial t JOIN problem p ON p.id = t.problem_id JOIN shape s ON s.id = t.shape_id"
      " JOIN device d ON d.id = t.device_id JOIN toolchain c ON c.id = t.toolchain_id {} ORDER BY "
      "t.created, t.id",
      kProblemColumns, kShapeColumns, kDeviceColumns, kToolchainColumns, where);
}

StoredTrial read_trial(Statement& row, IdentityReader& identities) {
  StoredTrial stored;
  TrialRecord& t = stored.trial;
  stored.key.spec = identities.problem(row);
  stored.key.shape = identities.shape(row);
  stored.key.device = identities.device(row);
  t.toolchain = identities.toolchain(row);
  std::string config, info;
  int status = 0, effort = 0;
  row.read(stored.key.policy.text, t.arch, config, t.is_default, status, t.reason);
  t.timing = read_timing(row);
  row.read(t.error_max, t.error_mean, info, t.shared_bytes, effort, t.conditions.driver,
           t.conditions.power_limit_w, t.created);
  t.config = parse_config(config);
  t.status = checked_status(status);
  t.effort = checked_effort(effort);
  t.info = parse_info_text(info);
  stored.key.device.conditions = t.conditions;
  return stored;
}

}  // namespace

std::optional<TrialRecord> find_trial(Database& database, const TuningKey& key,
                                      const TrialRecord& like) {
  const auto ids = find_key(database, key);
  const auto toolchain = find_toolchain(database, like.toolchain);
  if (!ids || !toolchain) return std::nullopt;
  Statement select(
      database,
      select_trials("WHERE t.problem_id = ? AND t.shape_id = ? AND t.device_id = ? AND t.policy = ?"
                    " AND t.toolchain_id = ? AND t.arch = ? AND t.config = ?"));
  select.bind(ids->problem, ids->shape, ids->device, key.policy.text, *toolchain, like.arch,
              like.config.to_text());
  std::optional<TrialRecord> found;
  IdentityReader identities;
  for_each_row(select, "trial", [&](Statement& row) { found = read_trial(row, identities).trial; });
  return found;
}

void replace_trial(Database& database, const TuningKey& key, const TrialRecord& t) {
  const KeyIds ids = ensure_key(database, key);
  const int64_t toolchain = ensure_toolchain(database, t.toolchain);
  Statement insert(database,
                   "INSERT OR REPLACE INTO trial (problem_id, shape_id, device_id, policy, "
                   "toolchain_id, arch, config,"
                   " is_default, status, reason, median_us, lo_us, hi_us, min_us, samples, "
                   "sm_clock_mhz, error_max,"
                   " error_mean, info, shared_bytes, effort, driver, power_limit_w, created)"
                   " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
                   "?, ?)");
  insert.bind(ids.problem, ids.shape, ids.device, key.policy.text, toolchain, t.arch,
              t.config.to_text(), t.is_default, t.status, t.reason, t.timing.median_us,
              t.timing.lo_us, t.timing.hi_us, t.timing.min_us, t.timing.samples,
              t.timing.sm_clock_mhz, t.error_max, t.error_mean, info_text(t.info), t.shared_bytes,
              t.effort, t.conditions.driver, t.conditions.power_limit_w, t.created);
  insert.run();
}

std::vector<StoredTrial> read_all_trials(Database& database) {
  std::vector<StoredTrial> rows;
  Statement select(database, select_trials(""));
  IdentityReader identities;
  for_each_row(select, "trial",
               [&](Statement& row) { rows.push_back(read_trial(row, identities)); });
  return rows;
}

void Store::put_trial(const TuningKey& key, const TrialRecord& trial) {
  TrialRecord complete = trial;
  complete.conditions = key.device.conditions;
  if (complete.created.empty()) complete.created = utc_now();
  impl_->write([&](Database& database) {
    const auto former = find_trial(database, key, complete);
    if (former &&
        !gives_way(former->effort, former->conditions, complete.effort, complete.conditions))
      return;
    replace_trial(database, key, complete);
  });
}

std::vector<TrialRecord> Store::trials(const TuningKey& key) const {
  return impl_->read([&](Database& database) {
    std::vector<TrialRecord> trials;
    const auto ids = find_key(database, key);
    if (!ids) return trials;
    Statement select(
        database,
        select_trials(
            "WHERE t.problem_id = ? AND t.shape_id = ? AND t.device_id = ? AND t.policy = ?"));
    select.bind(ids->problem, ids->shape, ids->device, key.policy.text);
    IdentityReader identities;
    for_each_row(select, "trial",
                 [&](Statement& row) { trials.push_back(read_trial(row, identities).trial); });
    return trials;
  });
}

std::vector<StoredTrial> Store::all_trials() const { return impl_->read(read_all_trials); }

}  // namespace attune
