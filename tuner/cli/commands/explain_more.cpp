// SPDX-License-Identifier: Apache-2.0
// Numbers that complete a plan; see explain_more.hpp.
#include "tuner/cli/commands/explain_more.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <sstream>

#include "cache/store.hpp"
#include "cache/winner_rule.hpp"
#include "generator/core/system/error.hpp"
#include "generator/render/renderer.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/ladder.hpp"
#include "tuner/cli/output/record_output.hpp"

namespace attune::cli {
namespace {

constexpr int kReservedSharedBytes = 1024;  // per block, from sm_80 on
constexpr int kWarp = 32, kRegisterUnit = 8;

int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

int threads_per_sm(const Arch& arch) {
  switch (arch.compute_capability) {
    case 75:
      return 1024;
    case 86:
    case 89:
    case 120:
    case 121:
      return 1536;
    default:
      return 2048;
  }
}

// Splits a problem's text into its key=value words. The text leaves out keys at their defaults.
std::map<std::string, std::string> words_of(const std::string& text) {
  std::map<std::string, std::string> words;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string word = text.substr(begin, end - begin);
    const size_t equals = std::min(word.find('='), word.size());
    words[word.substr(0, equals)] = word.substr(std::min(equals + 1, word.size()));
    begin = end + 1;
  }
  return words;
}

std::string value_in(const std::map<std::string, std::string>& words, const std::string& key) {
  const auto found = words.find(key);
  return found == words.end() ? "its default" : found->second;
}

std::vector<std::string> differences(const std::string& theirs, const std::string& ours) {
  const auto a = words_of(theirs), b = words_of(ours);
  auto keys = a;
  keys.insert(b.begin(), b.end());
  std::vector<std::string> found;
  for (const auto& [key, ignored] : keys) {
    const std::string there = value_in(a, key), here = value_in(b, key);
    if (there != here) found.push_back(fmt::format("{} is {}, here {}", key, there, here));
  }
  return found;
}

// Returns the field=value lines of a device's identity. The name is not among them.
std::map<std::string, std::string> facts_of(const DeviceIdentity& device) {
  std::map<std::string, std::string> facts;
  std::istringstream lines(device.text());
  for (std::string line; std::getline(lines, line);)
    if (const size_t equals = line.find('='); equals != std::string::npos)
      facts[line.substr(0, equals)] = line.substr(equals + 1);
  return facts;
}

// Returns "the device is NVIDIA H200 (...)". For a device of the same name, adds the facts that
// differ: it may be a partition (MIG) of the GPU, or have another memory clock.
std::string device_change(const DeviceIdentity& theirs, const DeviceIdentity& ours) {
  std::string text = fmt::format("the device is {}", theirs.facts_title());
  if (theirs.is_cpu() || theirs.name != ours.name) return text;
  auto here = facts_of(ours);
  const char* between = "; its ";
  for (const auto& [fact, there] : facts_of(theirs)) {
    if (there == here[fact]) continue;
    text += fmt::format("{}{} is {}, here {}", between, fact, there.empty() ? "none" : there,
                        here[fact].empty() ? "none" : here[fact]);
    between = ", ";
  }
  return text;
}

std::string template_change(const WinnerRecord& winner) {
  const std::string& name = winner.toolchain.template_name;
  switch (template_state(name, winner.toolchain.template_digest)) {
    case TemplateState::kSame:
      return "";
    case TemplateState::kReworded:
      return fmt::format("the text of template {} has changed since, but not its results", name);
    case TemplateState::kChanged:
      return fmt::format("template {} has changed since", name);
    default:
      return fmt::format("template {} is not known here", name);
  }
}

std::optional<TrialRecord> runner_up_of(const WinnerRecord& winner, const Store& store) {
  std::optional<TrialRecord> next;
  for (TrialRecord& trial :
       store.trials({winner.spec, winner.shape, winner.device, winner.policy})) {
    const bool is_winner = trial.config == winner.config && trial.arch == winner.arch &&
                           trial.toolchain.digest() == winner.toolchain.digest();
    if (trial.status != TrialStatus::kOk || trial.created != winner.created || is_winner) continue;
    if (!next || trial.timing.median_us < next->timing.median_us) next = std::move(trial);
  }
  return next;
}

// Describes the runner-up. Its time may be below the winner's: among candidates that tie, for
// example, the rule keeps the default.
std::string runner_up_text(const TrialRecord& trial, const WinnerRecord& winner) {
  const double distance = trial.timing.median_us / winner.timing.median_us - 1;
  std::string text = fmt::format(
      "runner-up  {:.1f} us (95 %: {:.1f} to {:.1f}{}), {:+.1f} %: {} {}", trial.timing.median_us,
      trial.timing.lo_us, trial.timing.hi_us, is_noisy(trial.timing) ? ", noisy" : "",
      100 * distance, trial.toolchain.template_name, trial.config.to_text());
  if (distance < 0)
    text += fmt::format("; its median is lower, but it does not win: {}", winner.why);
  return text + "\n";
}

ImageInfo info_of(const Plan& plan, const Store* store) {
  if (plan.kernel) return plan.kernel->info();
  if (store && plan.winner)
    if (const auto image = store->image_of(*plan.winner)) return image->image.info;
  return {};
}

}  // namespace

std::optional<Occupancy> occupancy_of(const LaunchStep& step, const Arch& arch,
                                      const ImageInfo& info) {
  if (arch.target != Target::kCuda || info.registers <= 0 || step.threads == 0) return std::nullopt;
  const int threads = round_up(static_cast<int>(step.threads), kWarp);
  const int shared = static_cast<int>(step.shared_bytes) + std::max(info.static_shared_bytes, 0) +
                     (arch.compute_capability >= 80 ? kReservedSharedBytes : 0);
  const std::pair<int, const char*> limits[] = {
      {arch.registers_per_sm / (round_up(info.registers, kRegisterUnit) * threads), "registers"},
      {shared > 0 && arch.shared_bytes_per_sm > 0 ? arch.shared_bytes_per_sm / shared
                                                  : std::numeric_limits<int>::max(),
       "shared memory"},
      {threads_per_sm(arch) / threads, "threads"}};
  const auto& least = *std::min_element(std::begin(limits), std::end(limits));
  return Occupancy{least.first, least.first * static_cast<int>(step.threads), least.second};
}

std::optional<NearestKey> nearest_key(const Problem& problem, const DeviceIdentity& device,
                                      const std::vector<WinnerRecord>& winners) {
  std::optional<NearestKey> nearest;
  double least = std::numeric_limits<double>::max();
  const std::string asked = to_text(problem);
  for (const WinnerRecord& winner : winners) {
    if (winner.spec.op != problem.op) continue;
    std::vector<std::string> differs =
        differences(to_text(problem_of(winner.spec, winner.shape)), asked);
    if (winner.device.digest() != device.digest())
      differs.push_back(device_change(winner.device, device));
    if (std::string change = template_change(winner); !change.empty())
      differs.push_back(std::move(change));
    const double distance = 100.0 * static_cast<double>(differs.size()) +
                            std::min(shape_distance(winner.shape, shape_of(problem)), 99.0);
    if (distance < least) {
      least = distance;
      nearest = NearestKey{winner, std::move(differs)};
    }
  }
  return nearest;
}

More more_of(const Plan& plan, const std::vector<std::filesystem::path>& stores) {
  More more;
  std::vector<WinnerRecord> winners;
  ImageInfo info = info_of(plan, nullptr);
  for (const std::filesystem::path& path : stores) {
    try {
      const auto store = Store::open_existing(path);
      if (!store) continue;
      if (plan.winner && !more.runner_up) more.runner_up = runner_up_of(*plan.winner, *store);
      if (info.registers < 0) info = info_of(plan, &*store);
      for (WinnerRecord& winner : store->all_winners()) winners.push_back(std::move(winner));
    } catch (const Error&) {
      continue;  // the plan's warnings name it
    }
  }
  if (plan.rung != Rung::kPinned && plan.rung != Rung::kExact)
    more.nearest = nearest_key(plan.problem, plan.device->identity(), winners);
  more.occupancy = occupancy_of(plan.launch.main(), plan.arch, info);
  if (plan.expected_us > 0) {
    more.roofline = roofline_of(plan.problem, plan.device->identity(),
                                plan.winner ? plan.winner->timing.sm_clock_mhz : 0);
    more.share = more.roofline->share(plan.expected_us);
  }
  return more;
}

std::string more_text(const More& more, const Plan& plan) {
  std::string text;
  if (more.roofline) {
    text += fmt::format("speed      {:.4g} GFLOP/s, {:.4g} GB/s",
                        more.roofline->flops / plan.expected_us * 1e-3,
                        more.roofline->bytes / plan.expected_us * 1e-3);
    text += more.share > 0
                ? fmt::format("; {:.0f} % of the roofline, bound by {}\n", 100 * more.share,
                              more.roofline->bound_by_flops() ? "arithmetic" : "memory")
                : "; the peak of this device at that clock is not known\n";
  }
  if (more.occupancy)
    text +=
        fmt::format("occupancy  {} block{} per multiprocessor, {} of {} threads, limited by {}\n",
                    more.occupancy->blocks, more.occupancy->blocks == 1 ? "" : "s",
                    more.occupancy->threads, threads_per_sm(plan.arch), more.occupancy->limited_by);
  if (more.runner_up && plan.winner) text += runner_up_text(*more.runner_up, *plan.winner);
  if (more.nearest) {
    text += fmt::format("nearest    {}\n",
                        to_text(problem_of(more.nearest->winner.spec, more.nearest->winner.shape)));
    for (const std::string& sentence : more.nearest->differs)
      text += fmt::format("differs    {}\n", sentence);
  }
  return text;
}

Json more_json(const More& more, const Plan& plan) {
  Json json = {{"roofline", nullptr},
               {"occupancy", nullptr},
               {"runner_up", nullptr},
               {"nearest_key", nullptr}};
  if (const auto& roofline = more.roofline)
    json["roofline"] = {{"flops", roofline->flops},
                        {"bytes", roofline->bytes},
                        {"bound_s", more.share > 0 ? Json(roofline->bound_us() * 1e-6) : Json()},
                        {"bound_by", more.share <= 0              ? Json()
                                     : roofline->bound_by_flops() ? Json("products")
                                                                  : Json("memory")},
                        {"share", more.share > 0 ? Json(more.share) : Json()}};
  if (more.occupancy)
    json["occupancy"] = {{"blocks", more.occupancy->blocks},
                         {"threads", more.occupancy->threads},
                         {"limited_by", more.occupancy->limited_by}};
  if (more.runner_up && plan.winner)
    json["runner_up"] = {
        {"template", more.runner_up->toolchain.template_name},
        {"config", more.runner_up->config.to_text()},
        {"time_s", more.runner_up->timing.median_us * 1e-6},
        {"timing", timing_json(more.runner_up->timing)},
        {"why_not", more.runner_up->timing.median_us < plan.winner->timing.median_us
                        ? Json(plan.winner->why)
                        : Json(nullptr)},
        {"distance", more.runner_up->timing.median_us / plan.winner->timing.median_us - 1}};
  if (more.nearest)
    json["nearest_key"] = {
        {"problem", to_text(problem_of(more.nearest->winner.spec, more.nearest->winner.shape))},
        {"device", more.nearest->winner.device.name},
        {"differs", more.nearest->differs}};
  return json;
}

}  // namespace attune::cli
