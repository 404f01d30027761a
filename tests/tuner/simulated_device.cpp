// SPDX-License-Identifier: Apache-2.0
// The simulated device; see simulated_device.hpp.
#include "tests/tuner/simulated_device.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "generator/core/system/error.hpp"

namespace attune::testing {
namespace {

// Returns a number in [0, 1) that depends only on the text and the seed.
double chance(const std::string& text, uint64_t seed) {
  uint64_t hash = 1469598103934665603ULL ^ (seed * 0x9e3779b97f4a7c15ULL);
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  hash ^= hash >> 29;
  hash *= 0xbf58476d1ce4e5b9ULL;
  hash ^= hash >> 32;
  return static_cast<double>(hash >> 11) * 0x1.0p-53;
}

// Returns a bowl over log2 of a knob, with its bottom at a place that the seed decides.
double bowl(const Config& config, const char* knob, double low, double high, double depth,
            const std::string& where, uint64_t seed) {
  const double bottom = low + (high - low) * chance(where + knob, seed);
  const double distance = std::log2(static_cast<double>(config.at(knob))) - bottom;
  return 1 + depth * distance * distance;
}

}  // namespace

double World::true_us(const Config& config, const Shape& shape) const {
  const uint64_t seed = options_.seed;
  const std::string kind =
      shape.seqlen_q >= 4096 ? "long" : "short";  // tiles that suit one do not suit the other
  double us = options_.base_us * static_cast<double>(shape.batch) *
              std::max(0.05, static_cast<double>(shape.seqlen_q) / 2048);
  us *= bowl(config, "block_m", 5, 7, 0.12, kind, seed);
  us *= bowl(config, "block_n", 5, 7, 0.08, kind, seed);
  us *= bowl(config, "stages", 0, 2, 0.05, "", seed);
  us *= bowl(config, "warps", 1, 3, 0.1, "", seed);
  const auto slower = factors_.find(config.to_text());
  if (slower != factors_.end()) us *= slower->second;
  return us * (1 + 0.08 * chance(config.to_text(), seed));
}

double World::suffering(const Config& config) const {
  const auto found = sufferings_.find(config.to_text());
  return found == sufferings_.end() ? 0 : found->second;
}

double World::lone_us(const Config& config) const {
  const auto found = lone_us_.find(config.to_text());
  return found == lone_us_.end() ? 0 : found->second;
}

Fate World::fate(const Config& config) const {
  const std::string text = config.to_text();
  if (const auto set = fates_.find(text); set != fates_.end()) return set->second;
  if (text == "block_m=64,block_n=64,stages=2,warps=4" || text.empty()) return Fate::kGood;
  if (chance(text + "bad", options_.seed) >= options_.bad_share) return Fate::kGood;
  return static_cast<Fate>(1 + static_cast<int>(6 * chance(text + "how", options_.seed)));
}

double World::best_us(const KernelSpec& spec, const Shape& shape) const {
  const SimulatedTemplate all(*this);
  double best = std::numeric_limits<double>::infinity();
  for (const Config& config : all.space(spec, Arch()).enumerate())
    if (fate(config) == Fate::kGood) best = std::min(best, true_us(config, shape));
  return best;
}

SearchSpace SimulatedTemplate::space(const KernelSpec&, const Arch&) const {
  return SearchSpace(
      {{"block_m", {32, 64, 96, 128}, ""},
       {"block_n", {32, 64, 96, 128}, ""},
       {"stages", {1, 2, 3, 4}, ""},
       {"warps", {2, 4, 8}, ""}},
      {{"shared memory", {"block_n", "stages"}, [](const Config& c) -> std::optional<std::string> {
          if (c.at("block_n") * c.at("stages") <= 384) return std::nullopt;
          return "too much shared memory";
        }}});
}

Config SimulatedTemplate::default_config(const KernelSpec&, const Arch&, const Shape&,
                                         const DeviceFacts&) const {
  return parse_config("block_m=64,block_n=64,stages=2,warps=4");
}

Resources SimulatedTemplate::resources(const KernelSpec&, const Arch&, const Config& config) const {
  return {.threads = static_cast<int>(32 * config.at("warps")),
          .shared_bytes = static_cast<int>(256 * config.at("block_n") * config.at("stages"))};
}

// Returns a cost with the right trend and errors of 15 %, like real cost models.
double SimulatedTemplate::predicted_cost(const KernelSpec&, const Arch&, const Config& config,
                                         const Shape& shape, const DeviceFacts&) const {
  return world_.true_us(config, shape) *
         (0.85 + 0.3 * chance(config.to_text() + "model", world_.options().seed));
}

SimulatedTarget::SimulatedTarget(const World& world)
    : world_(world), template_(world), family_{&template_, parse_arch("sm_90")} {
  identity_.arch = "sm_90";
  identity_.sm_count = 132;
  identity_.name = "Simulated";
  identity_.conditions.driver = "1.0";
}

KernelImage SimulatedTarget::make(const KernelSpec&, const TuneCandidate& candidate) const {
  ++num_made;
  const Fate fate = world_.fate(candidate.config);
  if (fate == Fate::kCompileError)
    throw Error(ErrorCode::kCompile, "error: identifier \"x\" is undefined");
  KernelImage image;
  image.bytes = candidate.config.to_text();
  image.info.registers =
      candidate.config.has("warps") ? static_cast<int>(64 + 8 * candidate.config.at("warps")) : 32;
  image.info.static_shared_bytes = 0;
  image.info.spill_store_bytes = image.info.spill_load_bytes = fate == Fate::kSpills ? 24 : 0;
  return image;
}

// Hangs until the caller's patience ends.
void SimulatedBackend::hang_if_due() {
  if (hangs_after < 0 || num_samples < hangs_after) return;
  if (patience_) clock_.now_s += patience_();
  throw WaitEnded(ErrorCode::kDriver, "no answer");
}

void SimulatedBackend::open(const MeasureTask& task) {
  hang_if_due();
  rest(clock_.open_s);
  problem_ = task.problem;
  loaded_.clear();
}

void SimulatedBackend::rest(double seconds) {
  clock_.now_s += seconds;
  load_ *= std::exp(-seconds / world_.options().load_s);
}

void SimulatedBackend::work(double seconds) {
  clock_.now_s += seconds;
  load_ = 1 - (1 - load_) * std::exp(-seconds / world_.options().load_s);
}

Prepared SimulatedBackend::prepare(int id, const KernelRequest& request) {
  hang_if_due();
  ++num_prepared[request.config.to_text()];
  rest(clock_.prepare_s);
  Prepared prepared;
  switch (world_.fate(request.config)) {
    case Fate::kCrash:
      prepared.fault = Fault{TrialStatus::kLaunchFailed, "illegal address", true};
      return prepared;
    case Fate::kWrong:
      prepared.fault = Fault{TrialStatus::kWrongResult, "row 3 is nan", false};
      return prepared;
    case Fate::kHang:
      clock_.now_s += clock_.hang_s;
      prepared.fault = Fault{TrialStatus::kTimedOut, "no answer", true};
      return prepared;
    default:
      break;
  }
  prepared.estimate_us = std::min(measured_us(request.config, 1, kShortSampleUs),
                                  measured_us(request.config, 1, kShortSampleUs));
  loaded_[id] = request.config;
  return prepared;
}

Prepared SimulatedBackend::reload(int id, const KernelRequest& request) {
  hang_if_due();
  rest(clock_.reload_s);
  loaded_[id] = request.config;
  return {};
}

double SimulatedBackend::measured_us(const Config& config, double clock_ratio, double sample_us) {
  const WorldOptions& o = world_.options();
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform;
  double us = world_.true_us(config, shape_of(problem_)) * (1 + o.noise * normal(random_));
  us *= 1 + o.drift * std::sin(phase_ + clock_.now_s / 3);
  if (uniform(random_) < o.outliers) us *= 1 + 2 * uniform(random_);
  us *= (1 + load_ * world_.suffering(config)) / (clock_ratio * (1 - load_ * o.load_drop));
  const double launches = std::max(1.0, std::ceil(sample_us / us));
  us += world_.lone_us(config) / launches;
  rest(clock_.talk_s);
  work(launches * us * 1e-6);
  return us;
}

Round SimulatedBackend::round(const std::vector<int>& order, double sample_us) {
  Round round;
  const double ratio =
      std::uniform_real_distribution<double>()(random_) < world_.options().clock_drops ? 0.7 : 1;
  round.sm_clock_mhz = static_cast<int>(1980 * ratio * (1 - load_ * world_.options().load_drop));
  for (int id : order) {
    hang_if_due();
    const Config& config = loaded_.at(id);
    ++num_samples;
    if (world_.fate(config) == Fate::kCrashLater) {
      round.samples.push_back({id, 0, Fault{TrialStatus::kLaunchFailed, "illegal address", true}});
      loaded_.erase(id);
      break;
    }
    round.samples.push_back({id, measured_us(config, ratio, sample_us), std::nullopt});
  }
  return round;
}

Problem llama_problem(int64_t seqlen, int64_t batch) {
  Problem problem =
      parse_problem("dtype=bf16,head_dim=128,heads=32/8,seqlen=0,mask=causal_bottom_right");
  problem.batch = batch;
  problem.seqlen_q = problem.seqlen_kv = seqlen;
  return problem;
}

std::vector<Problem> llama_problems() {
  return {llama_problem(512),     llama_problem(1024),   llama_problem(2048),
          llama_problem(4096),    llama_problem(8192),   llama_problem(16384),
          llama_problem(2048, 4), llama_problem(1024, 8)};
}

}  // namespace attune::testing
