// SPDX-License-Identifier: Apache-2.0
// A device that exists only as numbers: a table of true times over a small search space. Measuring
// adds noise, outliers, drift, drops of the clock, and the effect of sustained load. Some configs
// do not compile, crash, hang or give wrong results. Time is simulated, so that hundreds of tunes
// run in a second.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <string>

#include "generator/families/served.hpp"
#include "tuner/search/tune_loop.hpp"

namespace attune::testing {

enum class Fate { kGood, kCompileError, kSpills, kCrash, kCrashLater, kHang, kWrong };

struct WorldOptions {
  uint64_t seed = 1;
  double noise = 0.01;        // relative standard deviation of a sample
  double outliers = 0.03;     // share of samples that take up to 3 times as long
  double drift = 0.05;        // slow relative swing of all times
  double clock_drops = 0.05;  // share of rounds at 0.7 of the clock
  double bad_share = 0.15;    // share of configs that fail
  double base_us = 300;
  double load_drop = 0;  // share of the clock that is lost under sustained load
  double load_s = 0.04;  // time in which load, or rest, takes two thirds of its effect
};

// The true values.
class World {
 public:
  explicit World(WorldOptions options) : options_(options) {}
  const WorldOptions& options() const { return options_; }
  double true_us(const Config& config, const Shape& shape) const;
  Fate fate(const Config& config) const;  // the default config is always good
  double best_us(const KernelSpec& spec, const Shape& shape) const;
  void set_fate(const Config& config, Fate fate) { fates_[config.to_text()] = fate; }
  void make_slower(const Config& config, double factor) { factors_[config.to_text()] = factor; }
  // Sets the share that sustained load adds to a config's time, besides the clock.
  void make_suffer(const Config& config, double share) { sufferings_[config.to_text()] = share; }
  double suffering(const Config& config) const;
  // Sets the time that a sample takes beyond its launches: a start and an end that no other launch
  // hides.
  void make_lonely(const Config& config, double us) { lone_us_[config.to_text()] = us; }
  double lone_us(const Config& config) const;
  // Returns the time of launches that follow each other without rest. The tuner should decide by
  // it.
  double loaded_us(const Config& config, const Shape& shape) const {
    return true_us(config, shape) * (1 + suffering(config)) / (1 - options_.load_drop);
  }

 private:
  WorldOptions options_;
  std::map<std::string, double> factors_, sufferings_, lone_us_;
  std::map<std::string, Fate> fates_;
};

// Knobs block_m, block_n, stages, warps; 100-odd legal configs. `world` must outlive it.
class SimulatedTemplate : public KernelTemplate {
 public:
  explicit SimulatedTemplate(const World& world, std::string name = "simulated")
      : world_(world), name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  std::string_view source_path() const override { return "none"; }
  std::string_view knobs_path() const override { return "none"; }
  const Served& serves() const override { return serves_masks_and_8_bits(); }
  SearchSpace space(const KernelSpec&, const Arch&) const override;
  Config default_config(const KernelSpec&, const Arch&, const Shape&,
                        const DeviceFacts&) const override;
  Resources resources(const KernelSpec&, const Arch&, const Config& config) const override;
  LaunchStructure structure(const KernelSpec&, const Config&) const override { return {}; }
  LaunchSizes sizes(const KernelSpec&, const Config&, const Shape&,
                    const DeviceFacts&) const override {
    return {};
  }
  double predicted_cost(const KernelSpec&, const Arch&, const Config& config, const Shape& shape,
                        const DeviceFacts&) const override;

 private:
  std::optional<std::string> refusal(const KernelSpec&, const Arch&) const override {
    return std::nullopt;
  }

  const World& world_;
  std::string name_;
};

class SimulatedTarget : public TuneTarget {
 public:
  explicit SimulatedTarget(const World& world);
  Target kind() const override { return kind_; }
  const DeviceIdentity& identity() const override { return identity_; }
  const DeviceFacts& facts() const override { return facts_; }
  std::vector<Family> families(const KernelSpec&) const override { return {family_}; }
  ToolchainIdentity toolchain(const Family&) const override {
    return {"simulated", template_digest, "fake 1.0", "-O3"};
  }
  std::string source_digest(const KernelSpec&, const TuneCandidate& candidate) const override {
    return "source of " + candidate.config.to_text();
  }
  KernelImage make(const KernelSpec&, const TuneCandidate& candidate) const override;
  std::optional<TuneCandidate> reference(const KernelSpec&) const override {
    return TuneCandidate{family_, Config(), false};
  }

  std::string template_digest = "digest-1";
  Target kind_ = Target::kCuda;
  DeviceIdentity identity_;
  mutable std::atomic<int> num_made = 0;

 private:
  const World& world_;
  SimulatedTemplate template_;
  Family family_;
  DeviceFacts facts_;
};

// Seconds that actions take. The backend advances it.
struct SimulatedClock {
  double now_s = 0;
  double open_s = 0.15, prepare_s = 0.015, reload_s = 0.008, talk_s = 1e-4, hang_s = 1.5;
};

class SimulatedBackend : public MeasureBackend {
 public:
  SimulatedBackend(const World& world, SimulatedClock& clock, uint64_t noise_seed)
      : world_(world),
        clock_(clock),
        random_(noise_seed),
        phase_(static_cast<double>(noise_seed % 97)) {}
  void open(const MeasureTask& task) override;
  Prepared prepare(int id, const KernelRequest& request) override;
  Prepared reload(int id, const KernelRequest& request) override;
  Round round(const std::vector<int>& order, double sample_us) override;
  void drop(int id) override { loaded_.erase(id); }
  void set_patience(const std::function<double()>& seconds) override { patience_ = seconds; }

  std::map<std::string, int> num_prepared;  // by config text
  int hangs_after = -1;                     // number of samples, after which the worker is silent
  int num_samples = 0;

 private:
  double measured_us(const Config& config, double clock_ratio, double sample_us);
  void rest(double seconds);
  void work(double seconds);
  void hang_if_due();

  std::function<double()> patience_;
  const World& world_;
  SimulatedClock& clock_;
  std::mt19937_64 random_;
  double phase_;
  double load_ = 0;  // load of the board; 1: sustained
  Problem problem_;
  std::map<int, Config> loaded_;
};

Problem llama_problem(int64_t seqlen, int64_t batch = 1);
std::vector<Problem> llama_problems();  // eight shapes of one spec

}  // namespace attune::testing
