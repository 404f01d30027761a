// SPDX-License-Identifier: Apache-2.0
// Reads a store as the data of a report; see report_data.hpp. report/page.js explains the keys of
// the JSON.
#include "tuner/cli/report/report_data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "generator/core/problem/visibility.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "tuner/cli/output/record_output.hpp"
#include "tuner/measure/roofline.hpp"

namespace attune::cli {
namespace {

// Rounds to six digits, more than any timing has.
Json number(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0;
  const double scale = std::pow(10, 5 - std::floor(std::log10(std::abs(value))));
  return scale > 0 && std::isfinite(scale) ? std::round(value * scale) / scale : value;
}

Json times(const Timing& timing) {
  return {number(timing.median_us), number(timing.lo_us), number(timing.hi_us)};
}

// A list that holds each text once; rows refer to a text by its index.
class Names {
 public:
  size_t place(const std::string& text) {
    const auto [found, is_new] = places_.try_emplace(text, places_.size());
    if (is_new) list_.push_back(text);
    return found->second;
  }
  const Json& list() const { return list_; }

 private:
  std::map<std::string, size_t> places_;
  Json list_ = Json::array();
};

using KeyText = std::tuple<std::string, std::string, std::string, std::string>;
KeyText key_text(const KernelSpec& spec, const Shape& shape, const DeviceIdentity& device,
                 const MeasurePolicy& policy) {
  return {to_text(spec), to_text(shape), device.text(), policy.text};
}

class Reader {
 public:
  Reader(const Store& store, const PeerTimes& peers)
      : winners_(store.all_winners()), trials_(store.all_trials()), peers_(peers) {
    for (const WinnerRecord& winner : winners_) note_conditions(winner.device, winner);
    for (const StoredTrial& stored : trials_) note_conditions(stored.key.device, stored.trial);
  }

  Json read() {
    Json winners = Json::array();
    for (const WinnerRecord& winner : winners_) winners.push_back(winner_row(winner));
    Json trials = Json::array();
    for (const StoredTrial& stored : trials_) trials.push_back(trial_row(stored));
    for (size_t i = 0; i < winners_.size(); ++i) add_runner_up(i, &winners[i]);
    Json data{{"winners", std::move(winners)}, {"trials", std::move(trials)},
              {"failures", failures()},        {"knobs", knobs()},
              {"devices", devices_.list()},    {"templates", templates_.list()},
              {"drivers", drivers_.list()},    {"compilers", compilers_.list()}};
    for (const auto& [name, names] : knob_names_) data["knob_names"][std::to_string(name)] = names;
    return data;
  }

 private:
  template <class Row>
  void note_conditions(const DeviceIdentity& device, const Row& row) {
    auto& [created, conditions] = newest_conditions_[device.text()];
    if (row.conditions != Conditions{} && row.created >= created)
      std::tie(created, conditions) = std::tie(row.created, row.conditions);
  }

  size_t key_of(const KernelSpec& spec, const Shape& shape, const DeviceIdentity& device,
                const MeasurePolicy& policy) {
    return keys_.try_emplace(key_text(spec, shape, device, policy), keys_.size()).first->second;
  }

  // Returns why a program would not use the winner, or why its times may be wrong; "" if neither is
  // the case.
  std::string why_old(const WinnerRecord& winner) const {
    const ToolchainIdentity& of = winner.toolchain;
    const TemplateState state = template_state(of.template_name, of.template_digest);
    if (state == TemplateState::kGone) return "template gone";
    if (state == TemplateState::kChanged) return "template changed";
    if (state == TemplateState::kReworded) return "template text changed";
    const Conditions& newest = newest_conditions_.at(winner.device.text()).second;
    const std::string changed = difference(winner.conditions, newest, "{}, now {}");
    if (changed.empty()) return "";
    return changed.starts_with("driver") ? "driver changed" : "power limit changed";
  }

  Json winner_row(const WinnerRecord& w) {
    const Problem problem = problem_of(w.spec, w.shape);
    const Roofline roofline = roofline_of(problem, w.device, w.timing.sm_clock_mhz);
    Problem family = problem;
    family.batch = family.seqlen_q = family.seqlen_kv = 1;
    return {{"key", key_of(w.spec, w.shape, w.device, w.policy)},
            {"p", to_text(problem)},
            {"name", short_text(problem)},
            {"family", families_.place(to_text(w.spec) + std::to_string(w.shape.num_heads_q))},
            {"series", short_text(family)},
            {"n", w.shape.seqlen_kv},
            {"dev", devices_.place(w.device.facts_title())},
            {"tpl", templates_.place(w.toolchain.template_name)},
            {"cfg", w.config.to_text()},
            {"dcfg", w.default_config.to_text()},
            {"t", times(w.timing)},
            {"d", times(w.default_timing)},
            {"effort", effort_name(w.effort)},
            {"tried", w.candidates},
            {"done", w.complete},
            {"pin", w.pinned},
            {"why", w.why},
            {"drv", drivers_.place(to_text(w.conditions))},
            {"comp", compilers_.place(w.toolchain.compiler)},
            {"made", w.created},
            {"old", why_old(w)},
            {"flops", number(roofline.flops)},
            {"bytes", number(roofline.bytes)},
            {"roof", {number(roofline.flops_per_s), number(roofline.bytes_per_s)}},
            {"peers", peer_times(problem, w.device)},
            {"share", number(roofline.share(w.timing.median_us))}};
  }

  // Returns {name: us}, or null if no times were given.
  Json peer_times(const Problem& problem, const DeviceIdentity& device) const {
    const auto found = peers_.of.find(to_text(canonical(problem)));
    const bool other = !peers_.device.empty() && peers_.device != device.name;
    return found == peers_.of.end() || other ? Json() : Json(found->second);
  }

  // [key, template, status, time in us, registers, is default, values of the template's knobs]
  Json trial_row(const StoredTrial& stored) {
    const TrialRecord& trial = stored.trial;
    const size_t key =
        key_of(stored.key.spec, stored.key.shape, stored.key.device, stored.key.policy);
    const size_t name = templates_.place(trial.toolchain.template_name);
    std::vector<std::string>& knobs = knob_names_[name];
    std::vector<Json> values(knobs.size(), nullptr);
    for (const auto& [knob, value] : trial.config.knobs()) {
      const auto place =
          static_cast<size_t>(std::find(knobs.begin(), knobs.end(), knob) - knobs.begin());
      if (place == knobs.size()) knobs.push_back(knob), values.emplace_back();
      values[place] = value;
    }
    const bool timed = trial.status == TrialStatus::kOk && trial.timing.median_us > 0;
    if (timed) {
      timed_[name].push_back({key, &trial.config, trial.timing.median_us});
      by_key_[key].push_back(&trial);
    } else if (trial.status != TrialStatus::kOk) {
      add_failure(stored);
    }
    return {key,
            name,
            static_cast<int>(trial.status),
            timed ? number(trial.timing.median_us) : Json(),
            trial.info.registers,
            trial.is_default ? 1 : 0,
            values};
  }

  void add_failure(const StoredTrial& stored) {
    const TrialRecord& trial = stored.trial;
    const std::string first_line = trial.reason.substr(0, trial.reason.find('\n')).substr(0, 300);
    Json& group =
        failures_[{trial.toolchain.template_name, trial_status_name(trial.status), first_line}];
    if (group.is_null())
      group = {{"tpl", trial.toolchain.template_name},
               {"status", trial_status_name(trial.status)},
               {"reason", first_line},
               {"n", 0},
               {"cfg", trial.config.to_text()},
               {"p", to_text(problem_of(stored.key.spec, stored.key.shape))}};
    group["n"] = group["n"].get<int>() + 1;
  }

  // Adds the fastest other trial of the winner's final race.
  void add_runner_up(size_t place, Json* row) const {
    const WinnerRecord& winner = winners_[place];
    const auto trials = by_key_.find(row->at("key").get<size_t>());
    if (trials == by_key_.end() || winner.pinned) return;
    const TrialRecord* next = nullptr;
    for (const TrialRecord* trial : trials->second) {
      const bool is_winner = trial->config == winner.config &&
                             trial->toolchain.template_name == winner.toolchain.template_name;
      if (trial->created != winner.created || is_winner) continue;
      if (!next || trial->timing.median_us < next->timing.median_us) next = trial;
    }
    if (next) (*row)["next"] = {{"cfg", next->config.to_text()}, {"t", times(next->timing)}};
  }

  Json failures() const {
    Json list = Json::array();
    for (const auto& [ignored, group] : failures_) list.push_back(group);
    std::stable_sort(list.begin(), list.end(), [](const Json& a, const Json& b) {
      return a.at("n").get<int>() > b.at("n").get<int>();
    });
    return list;
  }

  Json knobs() const {
    Json list = Json::array();
    for (const auto& [name, trials] : timed_)
      for (const KnobEffect& effect : knob_effects(trials)) {
        if (effect.values.size() < 2) continue;
        Json values = Json::array();
        for (const KnobValue& value : effect.values)
          values.push_back({value.value, value.trials, number(value.slower), number(value.best)});
        list.push_back({{"tpl", name},
                        {"knob", effect.knob},
                        {"share", number(effect.explained)},
                        {"values", values}});
      }
    return list;
  }

  const std::vector<WinnerRecord> winners_;
  const std::vector<StoredTrial> trials_;
  const PeerTimes& peers_;
  std::map<std::string, std::pair<std::string, Conditions>> newest_conditions_;  // with their time
  std::map<KeyText, size_t> keys_;
  Names devices_, templates_, drivers_, compilers_, families_;
  std::map<size_t, std::vector<std::string>> knob_names_;
  std::map<size_t, std::vector<TimedConfig>> timed_;
  std::map<size_t, std::vector<const TrialRecord*>> by_key_;
  std::map<std::tuple<std::string, std::string, std::string>, Json> failures_;
};

}  // namespace

Json report_data(const Store& store, const PeerTimes& peers) { return Reader(store, peers).read(); }

}  // namespace attune::cli
