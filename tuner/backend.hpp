// SPDX-License-Identifier: Apache-2.0
// Sampler: what takes samples of kernels that are loaded. MeasureBackend: where candidates are
// checked and timed. DeviceBackend does it on a Device in this process, IsolatedBackend forwards to
// a DeviceBackend in a child process, tests simulate one. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "generator/core/error.hpp"
#include "tuner/candidate.hpp"

namespace attune {

// A kernel to load: everything a process that has no compiler needs.
struct KernelRequest {
  std::string template_name;
  Config config;
  KernelImage image;
};

struct MeasureTask {
  Problem problem;
  uint64_t seed = 1;  // of the inputs
  std::optional<KernelRequest>
      reference;  // ReferenceKernels::of(problem); where an oracle needs one and this is nullopt,
                  // results are not checked
};

struct Prepared {
  std::optional<Fault> fault;
  double error_max = 0;  // relative to the allowed error
  double error_mean = 0;
  double estimate_us = 0;  // one launch, rough
  ImageInfo info;          // what the device says; fields of -1 are not known to it
};

struct Sample {
  int id = 0;
  double us = 0;  // per launch
  std::optional<Fault> fault;
};

struct Round {
  std::vector<Sample> samples;  // in the order asked; ends early at a fault
  int sm_clock_mhz = 0;         // 0 = not read
};

// The caller ended the wait for an answer (see set_patience): no kernel is at fault.
class WaitEnded : public Error {
 public:
  using Error::Error;
};

// A sample shorter than this is mostly the timer's.
constexpr double kShortSampleUs = 200;
// In a sample of this length kernels follow each other as they do under load: the end of one
// overlaps the start of the next, and the device hardly rests between two samples.
constexpr double kSustainedSampleUs = 2000;

class Sampler {
 public:
  virtual ~Sampler() = default;
  // Takes one sample of each kernel, in this order: as many launches in a row as fill `sample_us`.
  // A kernel that faults is forgotten; the others stay.
  virtual Round round(const std::vector<int>& order, double sample_us) = 0;
};

class MeasureBackend : public Sampler {
 public:
  // `seconds` says how long one request may still take; it is asked again and again while a request
  // is under way. At 0 open, prepare and round throw WaitEnded. Only a backend that can leave its
  // work behind heeds it.
  virtual void set_patience(const std::function<double()>& /*seconds*/) {}
  // Begins a problem: inputs and oracle. Kernels of a former problem are forgotten. Throws Error
  // when the device cannot.
  virtual void open(const MeasureTask& task) = 0;
  // Loads a kernel under `id` and holds its result against the oracle. A kernel that faults is
  // forgotten.
  virtual Prepared prepare(int id, const KernelRequest& request) = 0;
  // Loads a kernel that passed `prepare` of this problem before.
  virtual Prepared reload(int id, const KernelRequest& request) = 0;
  virtual void drop(int id) = 0;
  // A fresh process where there is one; kernels and problem are forgotten.
  virtual void restart() {}
};

}  // namespace attune
