// SPDX-License-Identifier: Apache-2.0
// Measures how much slower a family's kernels are if knobs keep one value. Used by knob_regret.py,
// which draws the problems and sums up the results.
//   bench_knob_regret [--target cuda] [--count 32] [--best 4] [--jobs N] [--check 1] [--list ARCH]
//                     TEMPLATE RULE... < PROBLEMS
// A rule is a knob with the value that stays: "share_kv=0". With several values, the first legal
// value stays: "v_slots=2/1" decides for each config, "key_block_n=128,64" for each problem.
// Reads a problem a line, until each rule has COUNT problems with legal configs that break it.
// Prints facts of the device, then a JSON object for each problem. --check 0 compares no results
// with the oracle's. --list prints candidates, runs nothing and needs no device.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <future>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "runtime/engine/device.hpp"
#include "tuner/measure/device_lock.hpp"
#include "tuner/measure/isolated_backend.hpp"
#include "tuner/measure/measure.hpp"
#include "tuner/measure/measure_protocol.hpp"
#include "tuner/oracles/reference_kernels.hpp"
#include "tuner/search/compile_pool.hpp"
#include "tuner/search/search.hpp"

namespace attune {
namespace {

using Json = nlohmann::json;

constexpr int kFirstRounds = 7;     // of all candidates
constexpr int kFinalRounds = 5;     // of the best with and without a knob
constexpr int kConfirmRounds = 15;  // of the same, if the knob seems to gain
constexpr double kGain = 0.005;
constexpr double kHopeless = 2;     // times the best estimate: not in the first race
constexpr size_t kFinalists = 2;    // with the knob, and as many without it
constexpr int kCoresToMeasure = 4;  // not used for compiling

struct Rule {
  std::string text, knob;
  std::vector<int64_t> values;  // the first legal value stays
  bool by_problem = false;
};

Rule parse_rule(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos)
    throw Error(ErrorCode::kInvalidArgument, fmt::format("\"{}\" is not KNOB=VALUE", text));
  Rule rule{text, text.substr(0, equals), {}, text.find(',') != std::string::npos};
  std::string values = text.substr(equals + 1);
  std::replace(values.begin(), values.end(), rule.by_problem ? ',' : '/', ' ');
  std::istringstream words(values);
  for (int64_t value = 0; words >> value;) rule.values.push_back(value);
  return rule;
}

struct Options {
  std::string target = "cuda", list, template_name;
  size_t count = 32, best = 4;
  bool checks = true;
  int jobs = std::max(1, static_cast<int>(std::thread::hardware_concurrency()) - kCoresToMeasure);
  std::vector<Rule> rules;
};

Options parse_options(const std::vector<std::string>& words) {
  Options options;
  size_t i = 0;
  for (; i + 1 < words.size() && words[i].starts_with("--"); i += 2) {
    const std::string &name = words[i], &value = words[i + 1];
    if (name == "--target") options.target = value;
    if (name == "--list") options.list = value;
    if (name == "--count") options.count = std::stoul(value);
    if (name == "--best") options.best = std::stoul(value);
    if (name == "--jobs") options.jobs = std::stoi(value);
    if (name == "--check") options.checks = value != "0";
  }
  if (i + 1 >= words.size())
    throw Error(ErrorCode::kInvalidArgument, "usage: bench_knob_regret [OPTIONS] TEMPLATE RULE...");
  options.template_name = words[i];
  for (++i; i < words.size(); ++i) options.rules.push_back(parse_rule(words[i]));
  return options;
}

// The rules for the configs of one space.
class Rules {
 public:
  Rules(std::vector<Rule> rules, SearchSpace space, const std::vector<Config>& configs)
      : rules_(std::move(rules)), space_(std::move(space)) {
    for (Rule& rule : rules_)
      if (rule.by_problem) keep_one_value(configs, &rule);
  }
  size_t size() const { return rules_.size(); }
  const std::string& text(size_t rule) const { return rules_[rule].text; }
  const std::string& knob(size_t rule) const { return rules_[rule].knob; }

  // True if the config has the value that stays.
  bool keeps(size_t rule, const Config& config) const {
    Config other = config;
    for (const int64_t value : rules_[rule].values) {
      if (config.at(knob(rule)) == value) return true;
      other.set(knob(rule), value);
      if (!space_.broken(other)) return false;
    }
    return false;
  }
  bool keeps_all(const Config& config) const {
    for (size_t rule = 0; rule < size(); ++rule)
      if (!keeps(rule, config)) return false;
    return true;
  }
  // Returns the config with the value that stays; nullopt if that is illegal beside other knobs.
  std::optional<Config> without(size_t rule, Config config) const {
    for (const int64_t value : rules_[rule].values) {
      config.set(knob(rule), value);
      if (!space_.broken(config)) return config;
    }
    return std::nullopt;
  }
  std::optional<Config> without_all(Config config) const {
    for (size_t rule = 0; rule < size(); ++rule) config.set(knob(rule), rules_[rule].values[0]);
    for (size_t rule = 0; rule < size() && space_.broken(config); ++rule)
      config.set(knob(rule), rules_[rule].values.back());
    if (space_.broken(config) || !keeps_all(config)) return std::nullopt;
    return config;
  }
  std::vector<int64_t> values(size_t rule) const {
    for (const Knob& one : space_.knobs())
      if (one.name == knob(rule)) return one.values;
    throw Error(ErrorCode::kInvalidArgument, fmt::format("there is no knob {}", knob(rule)));
  }

 private:
  static void keep_one_value(const std::vector<Config>& configs, Rule* rule) {
    for (const int64_t value : rule->values)
      if (std::any_of(configs.begin(), configs.end(),
                      [&](const Config& c) { return c.at(rule->knob) == value; })) {
        rule->values = {value};
        return;
      }
  }

  std::vector<Rule> rules_;
  SearchSpace space_;
};

struct Entrant {
  Config config;
  std::vector<bool> kept;  // by rule, then by all rules together
  bool works = false;
  double us = 0;
};

struct Task {
  std::string text;  // of the problem, as read
  Problem problem;
  Family family;
  std::vector<std::string> rules;  // as in Entrant::kept; of one rule, no "together"
  std::vector<Entrant> entrants;   // the default first
  std::vector<bool> choices;       // by rule: some entrant breaks it
};

// Collects the candidates of a problem from its legal configs, which are sorted by predicted cost.
class Draw {
 public:
  Draw(const Rules& rules, const std::vector<Config>& sorted, size_t best)
      : rules_(rules), sorted_(sorted), best_(best) {}

  void fill(const Config& default_config, Task* task) {
    add(default_config);
    add_cheapest([&](const Config& c) { return rules_.keeps_all(c); }, best_);
    for (size_t rule = 0; rule < rules_.size(); ++rule) {
      task->rules.push_back(rules_.text(rule));
      task->choices.push_back(add_of_rule(rule));
    }
    if (rules_.size() > 1) task->rules.emplace_back("together");
    task->entrants = std::move(entrants_);
  }

 private:
  // Adds the cheapest with the value that stays, the cheapest of each other value, and those with
  // the value that stays in place of their own. Returns false if no config has another value.
  bool add_of_rule(size_t rule) {
    bool has_choice = false;
    add_cheapest([&](const Config& c) { return rules_.keeps(rule, c); }, best_);
    const std::vector<int64_t> values = rules_.values(rule);
    const size_t count = std::max<size_t>(2, best_ / std::max<size_t>(1, values.size() - 1));
    for (const int64_t value : values) {
      const auto goes = [&](const Config& c) {
        return c.at(rules_.knob(rule)) == value && !rules_.keeps(rule, c);
      };
      const std::vector<Config> added = add_cheapest(goes, count);
      has_choice = has_choice || !added.empty();
      for (const Config& config : added)
        if (const auto stays = rules_.without(rule, config)) add(*stays);
      if (!added.empty())
        if (const auto stays = rules_.without_all(added.front())) add(*stays);
    }
    return has_choice;
  }

  // Adds the `count` cheapest configs that `wanted` accepts, and returns them. Half of them differ
  // in their tiles, so that variants in minor knobs do not displace other tiles.
  template <class Wanted>
  std::vector<Config> add_cheapest(const Wanted& wanted, size_t count) {
    std::vector<Config> found, others;
    std::set<std::vector<int64_t>> tiles;
    for (const Config& config : sorted_) {
      const bool is_enough = found.size() >= count / 2 && found.size() + others.size() >= count;
      if (is_enough) break;
      if (!wanted(config)) continue;
      const bool is_new = found.size() < count / 2 && tiles.insert(tile_of(config)).second;
      (is_new ? found : others).push_back(config);
    }
    for (size_t i = 0; i < others.size() && found.size() < count; ++i) found.push_back(others[i]);
    for (const Config& config : found) add(config);
    return found;
  }

  static std::vector<int64_t> tile_of(const Config& config) {
    std::vector<int64_t> tile;
    for (const char* knob : {"block_m", "block_n", "key_block_m", "key_block_n", "warps", "team"})
      tile.push_back(config.get(knob, 0));
    return tile;
  }

  void add(const Config& config) {
    if (!seen_.insert(config.to_text()).second) return;
    Entrant entrant{config, {}};
    for (size_t rule = 0; rule < rules_.size(); ++rule)
      entrant.kept.push_back(rules_.keeps(rule, config));
    entrant.kept.push_back(rules_.keeps_all(config));
    entrants_.push_back(std::move(entrant));
  }

  const Rules& rules_;
  const std::vector<Config>& sorted_;
  const size_t best_;
  std::set<std::string> seen_;
  std::vector<Entrant> entrants_;
};

// Returns the legal configs that suit the shape, best predicted cost first.
std::vector<Config> sorted_configs(const Family& family, const KernelSpec& spec, const Shape& shape,
                                   const DeviceFacts& facts) {
  const SearchTask task{std::make_shared<SearchSpaces>(spec, std::vector{family}), shape, facts};
  std::vector<Config> sorted;
  for (TuneCandidate& candidate : whole_space(task, {family}))
    sorted.push_back(std::move(candidate.config));
  return sorted;
}

// Returns nullopt if the family does not serve the problem.
std::optional<Task> task_of(const std::string& text, const Options& options,
                            const std::vector<Arch>& archs, const DeviceFacts& facts) {
  const Problem problem = parse_problem(text);
  const KernelSpec spec = spec_of(problem);
  const Shape shape = shape_of(problem);
  const Serving served = serving(spec, archs);
  const Family* family = served.find(options.template_name);
  if (family == nullptr || family->kernel_template->fit(spec, shape) == Fit::kNever)
    return std::nullopt;
  const std::vector<Config> sorted = sorted_configs(*family, spec, shape, facts);
  const Rules rules(options.rules, family->kernel_template->space(spec, family->arch), sorted);
  Task task{text, problem, *family, {}, {}, {}};
  Draw(rules, sorted, options.best)
      .fill(family->kernel_template->default_config(spec, family->arch, shape, facts), &task);
  return task;
}

// Races the candidates of one problem after another.
class Runner {
 public:
  Runner(const TuneTarget& target, MeasureBackend& backend, CompilePool& pool, bool checks)
      : backend_(backend), pool_(pool), references_(target), checks_(checks) {}

  Json run(Task* task) {
    backend_.open({task->problem, 1,
                   checks_ ? references_.of(task->problem) : std::optional<KernelRequest>()});
    failed_ = Json::object();
    for (size_t id = 0; id < task->entrants.size(); ++id) load(static_cast<int>(id), task);
    const std::vector<int> all = hopeful(*task);
    Race race(backend_, {});
    race.warm_up(all);
    race.run(all, kFirstRounds);
    for (const int id : all) {
      Entrant& entrant = task->entrants[static_cast<size_t>(id)];
      entrant.works = race.faults().count(id) == 0 && race.num_samples(id) > 0;
      entrant.us = race.timing(id).median_us;
    }
    Json rules = Json::object();
    for (size_t rule = 0; rule < task->rules.size(); ++rule)
      if (is_broken(*task, rule)) rules[task->rules[rule]] = compare(*task, rule);
    return {{"problem", task->text},
            {"candidates", task->entrants.size()},
            {"failed", failed_},
            {"default_us", task->entrants[0].us},
            {"rules", rules}};
  }

 private:
  void load(int id, Task* task) {
    Entrant& entrant = task->entrants[static_cast<size_t>(id)];
    const auto compiled = pool_.wait(spec_of(task->problem), {task->family, entrant.config}, 600);
    std::optional<Fault> fault = compiled->fault;
    if (!fault) {
      const std::string name(task->family.kernel_template->name());
      const Prepared prepared = backend_.prepare(id, {name, entrant.config, *compiled->image});
      fault = prepared.fault;
      entrant.us = prepared.estimate_us;
    }
    entrant.works = !fault;
    if (fault) failed_[entrant.config.to_text()] = fault->reason.substr(0, 200);
  }

  // Returns the entrants whose estimates are not far above the best.
  static std::vector<int> hopeful(const Task& task) {
    double best_us = INFINITY;
    for (const Entrant& entrant : task.entrants)
      if (entrant.works) best_us = std::min(best_us, entrant.us);
    std::vector<int> ids;
    for (size_t id = 0; id < task.entrants.size(); ++id)
      if (task.entrants[id].works && task.entrants[id].us < kHopeless * best_us)
        ids.push_back(static_cast<int>(id));
    return ids;
  }

  // True if some entrant, working or not, breaks the rule.
  static bool is_broken(const Task& task, size_t rule) {
    return std::any_of(task.entrants.begin(), task.entrants.end(),
                       [&](const Entrant& entrant) { return !entrant.kept[rule]; });
  }

  // Returns the fastest entrants that keep, or break, the rule.
  static std::vector<int> fastest(const Task& task, size_t rule, bool kept) {
    std::vector<int> ids;
    for (size_t id = 0; id < task.entrants.size(); ++id)
      if (task.entrants[id].works && task.entrants[id].kept[rule] == kept)
        ids.push_back(static_cast<int>(id));
    std::stable_sort(ids.begin(), ids.end(), [&](int a, int b) {
      return task.entrants[static_cast<size_t>(a)].us < task.entrants[static_cast<size_t>(b)].us;
    });
    ids.resize(std::min(ids.size(), kFinalists));
    return ids;
  }

  // Races the best with the value that stays against the best others. Repeats with more rounds if
  // another value seems to gain, so that noise does not choose the worst problem. The regret is
  // null if nothing with the value that stays works.
  Json compare(const Task& task, size_t rule) {
    const std::vector<int> kept = fastest(task, rule, true), others = fastest(task, rule, false);
    if (kept.empty() || others.empty())
      return {{"regret", others.empty() ? Json(0) : Json(nullptr)}};
    Json result = race(task, kept, others, kFinalRounds);
    if (result["regret"] > kGain) result = race(task, kept, others, kConfirmRounds);
    return result;
  }

  Json race(const Task& task, const std::vector<int>& kept, const std::vector<int>& others,
            int rounds) {
    std::vector<int> all = kept;
    all.insert(all.end(), others.begin(), others.end());
    Race race(backend_, {.seed = 2, .sample_us = kSustainedSampleUs});
    race.warm_up(all);
    race.run(all, rounds);
    const auto us = [&](int id) {  // of a kernel that has failed meanwhile: infinite
      return race.faults().count(id) > 0 ? INFINITY : race.timing(id).median_us;
    };
    const auto least = [&](const std::vector<int>& ids) {
      return *std::min_element(ids.begin(), ids.end(), [&](int a, int b) { return us(a) < us(b); });
    };
    const int stays = least(kept), goes = least(others);
    const double stays_us = us(stays), goes_us = us(goes);
    const auto config = [&](int id) {
      return task.entrants[static_cast<size_t>(id)].config.to_text();
    };
    return {{"regret", std::max(0.0, stays_us / goes_us - 1)},
            {"rounds", rounds},
            {"kept_us", stays_us},
            {"other_us", goes_us},
            {"kept", config(stays)},
            {"other", config(goes)}};
  }

  MeasureBackend& backend_;
  CompilePool& pool_;
  ReferenceKernels references_;
  const bool checks_;
  Json failed_;
};

void print(const Json& line) { std::cout << line.dump() << std::endl; }

void show(const Task& task) {
  for (const Entrant& entrant : task.entrants)
    print({{"problem", task.text}, {"kept", entrant.kept}, {"config", entrant.config.to_text()}});
}

// Reads problems and passes them to `take`, until each rule has enough. Several threads enumerate
// configs, which takes seconds in large spaces.
void read_tasks(const Options& options, const std::vector<Arch>& archs, const DeviceFacts& facts,
                const std::function<void(Task)>& take) {
  std::vector<size_t> taken(options.rules.size());
  const auto is_wanted = [&](const Task& task) {
    bool wanted = false;
    for (size_t rule = 0; rule < taken.size(); ++rule)
      wanted = wanted || (task.choices[rule] && taken[rule] < options.count);
    return wanted;
  };
  while (*std::min_element(taken.begin(), taken.end()) < options.count && std::cin) {
    std::vector<std::future<std::optional<Task>>> read;
    std::string line;
    for (int i = 0; i < options.jobs && std::getline(std::cin, line); ++i)
      read.push_back(std::async(std::launch::async,
                                [&, line] { return task_of(line, options, archs, facts); }));
    for (auto& one : read) {
      std::optional<Task> task = one.get();
      if (!task || !is_wanted(*task)) continue;
      for (size_t rule = 0; rule < taken.size(); ++rule) taken[rule] += task->choices[rule];
      take(std::move(*task));
    }
  }
}

int list(const Options& options) {
  const Arch arch = parse_arch(options.list);
  read_tasks(options, {arch}, typical_device(arch).facts, show);
  return 0;
}

int measure(const Options& options) {
  const auto device = open_device(options.target);
  const DeviceLock lock(device->hardware(), lock_folder(), {});
  const DeviceTarget target(device);
  IsolatedBackend backend(own_worker_command(options.target, *device));
  CompilePool pool(target, options.jobs);
  print({{"device", device->identity().name},
         {"driver", device->conditions().driver},
         {"compiler", device->compiler().version()}});
  std::vector<Task> tasks;
  read_tasks(options, device->archs(), device->facts(), [&](Task task) {
    for (const Entrant& entrant : task.entrants)
      pool.submit(spec_of(task.problem), {task.family, entrant.config});
    tasks.push_back(std::move(task));
  });
  Runner runner(target, backend, pool, options.checks);
  for (Task& task : tasks) try {
      print(runner.run(&task));
    } catch (const Error& error) {
      print({{"problem", task.text}, {"error", error.what()}});
    }
  return 0;
}

}  // namespace
}  // namespace attune

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 2 && words[0] == "worker") return attune::measure_worker_main(words[1]);
    const attune::Options options = attune::parse_options(words);
    return options.list.empty() ? attune::measure(options) : attune::list(options);
  } catch (const std::exception& error) {
    std::cerr << "bench_knob_regret: " << error.what() << "\n";
    return 1;
  }
}
