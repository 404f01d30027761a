// SPDX-License-Identifier: Apache-2.0
// Sampler: times loaded kernels. MeasureBackend: checks and times candidates. DeviceBackend
// implements it on a Device in this process. IsolatedBackend forwards to a DeviceBackend in a child
// process. Tests simulate a backend. Each object is used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/system/error.hpp"
#include "tuner/search/candidate.hpp"

namespace attune {

// A kernel to load, with everything that a process without a compiler needs.
struct KernelRequest {
  std::string template_name;
  Config config;
  KernelImage image;
};

struct MeasureTask {
  Problem problem;
  uint64_t seed = 1;  // seed of the inputs
  // The result of ReferenceKernels::of(problem). Results are not checked if this is nullopt but the
  // oracle needs a reference.
  std::optional<KernelRequest> reference;
  bool is_timed = true;  // false: kernels are only checked, for which one set of inputs suffices
};

struct Prepared {
  std::optional<Fault> fault;
  double error_max = 0;  // relative to the allowed error
  double error_mean = 0;
  double estimate_us = 0;  // of one launch, rough
  ImageInfo info;          // as the device reports it; fields of -1 are unknown to it
};

struct Sample {
  int id = 0;
  double us = 0;  // per launch
  std::optional<Fault> fault;
};

struct Round {
  std::vector<Sample> samples;  // in the order of the request; ends early at a fault
  int sm_clock_mhz = 0;         // 0: not read
};

// The caller ended the wait for an answer (see set_patience); no kernel is at fault.
class WaitEnded : public Error {
 public:
  using Error::Error;
};

// In a sample shorter than this, most of the time is the timer's overhead.
constexpr double kShortSampleUs = 200;
// In a sample of this length, kernels follow each other as under load: the end of one overlaps the
// start of the next, and the device hardly rests between two samples.
constexpr double kSustainedSampleUs = 2000;

class Sampler {
 public:
  virtual ~Sampler() = default;
  // Takes one sample of each kernel, in this order. A sample is a row of launches that fills
  // `sample_us`. A kernel that faults is forgotten; the others stay.
  virtual Round round(const std::vector<int>& order, double sample_us) = 0;
};

class MeasureBackend : public Sampler {
 public:
  // Sets a time limit for requests. `seconds` returns how long the current request may still take,
  // and is called repeatedly during the request. At 0, open, prepare and round throw WaitEnded.
  // Only a backend that can abandon its work obeys the limit.
  virtual void set_patience(const std::function<double()>& /*seconds*/) {}
  // Opens a problem: makes inputs and oracle, and forgets the kernels of the previous problem.
  // Throws Error if the device cannot.
  virtual void open(const MeasureTask& task) = 0;
  // Loads a kernel under `id` and compares its result with the oracle's. A kernel that faults is
  // forgotten.
  virtual Prepared prepare(int id, const KernelRequest& request) = 0;
  // Loads a kernel that has passed `prepare` for this problem.
  virtual Prepared reload(int id, const KernelRequest& request) = 0;
  virtual void drop(int id) = 0;
  // Starts a fresh process, if the backend uses one; forgets kernels and problem.
  virtual void restart() {}
};

}  // namespace attune
