// SPDX-License-Identifier: Apache-2.0
// IsolatedBackend: measures in a child process with time limits. A kernel that crashes, hangs or
// breaks the device affects no other kernel: a new child replaces the old one and loads the other
// kernels again. A child that dies while it opens a problem is replaced once.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/device.hpp"
#include "tuner/measure/backend.hpp"
#include "tuner/measure/child_process.hpp"
#include "tuner/measure/measure_protocol.hpp"

namespace attune {

// Upper limits. Once kernels have run, a limit is 20 times the slowest request so far, but at least
// `least_s`.
struct MeasureLimits {
  double open_s = 180;
  double prepare_s = 60;
  double sample_s = 30;
  double least_s = 1.5;
};

class IsolatedBackend : public MeasureBackend {
 public:
  // `command`: the worker program and its arguments, for example {"/usr/bin/attune", "worker",
  // "cuda:0"}.
  explicit IsolatedBackend(std::vector<std::string> command, MeasureLimits limits = {});

  void set_patience(const std::function<double()>& seconds) override { patience_ = seconds; }
  void open(const MeasureTask& task) override;
  Prepared prepare(int id, const KernelRequest& request) override;
  Prepared reload(int id, const KernelRequest& request) override;
  Round round(const std::vector<int>& order, double sample_us) override;
  void drop(int id) override;
  void restart() override;
  int num_children() const { return num_children_; }  // started so far

 private:
  using Status = FrameSocket::Status;

  void ensure_child();
  void open_in_child();
  // Returns the limit of the next request: the smaller of `limit_s` and the caller's patience.
  WaitLimit within(double limit_s) const;
  Status ask(const Frame& request, Frame* reply, const WaitLimit& limit);
  // Sends `request`, which is a prepare or a reload, and returns the reply.
  Prepared ask_prepared(const Frame& request);
  Prepared enter(int id, const KernelRequest& kernel, const Frame& request);
  // Ends a child that is silent or dead, and returns the fault. Throws WaitEnded if the caller's
  // patience is over.
  Fault lost(Status status, const WaitLimit& limit, double limit_s);
  double prepare_limit() const;
  double sample_limit() const;

  const std::vector<std::string> command_;
  const MeasureLimits limits_;
  std::function<double()> patience_;
  std::unique_ptr<ChildProcess> child_;
  std::optional<MeasureTask> task_;
  std::map<int, KernelRequest> loaded_;  // kernels of the child; a replacement must load them
  std::map<int, Fault> pending_;         // kernels that a replacement could not load
  double slowest_prepare_s_ = 0, slowest_sample_s_ = 0;
  int num_children_ = 0;
};

// Returns the command that starts the running program as a worker for this target, which is open
// here as `device`. A worker on the CPU uses as many threads as `device` has, or refuses to
// measure.
std::vector<std::string> own_worker_command(const std::string& target, const Device& device);

}  // namespace attune
