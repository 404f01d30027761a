// SPDX-License-Identifier: Apache-2.0
// Measures in a replaceable child; see isolated_backend.hpp.
#include "tuner/measure/isolated_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"

namespace attune {
namespace {

constexpr double kPatience = 20;  // times the slowest request so far

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

double limit(double seen, double least, double most) {
  return seen <= 0 ? most : std::clamp(kPatience * seen, least, most);
}

}  // namespace

IsolatedBackend::IsolatedBackend(std::vector<std::string> command, MeasureLimits limits)
    : command_(std::move(command)), limits_(limits) {}

double IsolatedBackend::prepare_limit() const {
  return limit(slowest_prepare_s_, limits_.least_s, limits_.prepare_s);
}
double IsolatedBackend::sample_limit() const {
  return limit(slowest_sample_s_, limits_.least_s, limits_.sample_s);
}

void IsolatedBackend::restart() {
  child_.reset();
  task_.reset();
  loaded_.clear();
  pending_.clear();
}

void IsolatedBackend::open(const MeasureTask& task) {
  loaded_.clear();
  pending_.clear();
  slowest_prepare_s_ = slowest_sample_s_ = 0;
  task_ = task;
  open_in_child();
}

WaitLimit IsolatedBackend::within(double limit_s) const {
  if (!patience_) return {limit_s, {}};
  return {std::min(limit_s, patience_()), [this] { return patience_() <= 0; }};
}

FrameSocket::Status IsolatedBackend::ask(const Frame& request, Frame* reply,
                                         const WaitLimit& limit) {
  const Status sent = child_->socket().send(request, limit);
  return sent == Status::kOk ? child_->socket().receive(reply, limit) : sent;
}

// Opens the problem in the child; starts a child first if there is none. A child that dies (out of
// memory, killed by hand) is replaced once. A child that cannot open the problem is ended, so that
// no later request reaches it.
void IsolatedBackend::open_in_child() {
  Frame frame;
  for (bool again = false;; again = true) {
    if (!child_) {
      child_ = std::make_unique<ChildProcess>(command_);
      ++num_children_;
    }
    const WaitLimit limit = within(limits_.open_s);
    const Status status = ask(encode(OpenRequest{*task_}), &frame, limit);
    if (status == Status::kOk) break;
    const Fault fault = lost(status, limit, limits_.open_s);
    if (again || fault.status == TrialStatus::kTimedOut)
      throw Error(ErrorCode::kDriver, "opening the problem: " + fault.reason);
    log(LogCode::kTuneStartedAgain,
        "opening the problem: " + fault.reason + "; it is started again");
  }
  const OpenReply reply = decode_open_reply(frame);
  if (reply.error.empty()) return;
  child_.reset();
  throw Error(static_cast<ErrorCode>(reply.code), reply.error);
}

// Makes a new child if there is none. It gets the problem and each kernel that the former child had
// loaded.
void IsolatedBackend::ensure_child() {
  if (child_) return;
  if (!task_) throw Error(ErrorCode::kInternal, "measuring before a problem was opened");
  open_in_child();
  for (auto kernel = loaded_.begin(); kernel != loaded_.end();) {
    const Prepared prepared = ask_prepared(encode(ReloadRequest{kernel->first, kernel->second}));
    if (!prepared.fault) {
      ++kernel;
      continue;
    }
    pending_[kernel->first] = *prepared.fault;
    kernel = loaded_.erase(kernel);
    if (!child_) return ensure_child();
  }
}

Fault IsolatedBackend::lost(Status status, const WaitLimit& limit, double limit_s) {
  const std::string how = child_->end();
  child_.reset();
  if (status == Status::kStopped || (status == Status::kTimeout && limit.timeout_s < limit_s))
    throw WaitEnded(ErrorCode::kDriver,
                    "the measuring process had not answered when the budget or the tune ended");
  if (status == Status::kTimeout)
    return {TrialStatus::kTimedOut, fmt::format("no answer within {:.1f} s", limit_s), true};
  return {TrialStatus::kLaunchFailed, "the measuring process was " + how, true};
}

Prepared IsolatedBackend::ask_prepared(const Frame& request) {
  const Stopwatch watch;
  const double limit_s = prepare_limit();
  const WaitLimit limit = within(limit_s);
  Frame frame;
  const Status status = ask(request, &frame, limit);
  Prepared prepared;
  if (status != Status::kOk) {
    prepared.fault = lost(status, limit, limit_s);
    return prepared;
  }
  prepared = decode_prepared(frame);
  if (!prepared.fault)
    slowest_prepare_s_ = std::max(slowest_prepare_s_, watch.seconds());
  else if (prepared.fault->fatal)
    child_.reset();
  return prepared;
}

Prepared IsolatedBackend::enter(int id, const KernelRequest& kernel, const Frame& request) {
  ensure_child();
  Prepared prepared = ask_prepared(request);
  if (!prepared.fault) loaded_[id] = kernel;
  return prepared;
}

Prepared IsolatedBackend::prepare(int id, const KernelRequest& request) {
  return enter(id, request, encode(PrepareRequest{id, request}));
}

Prepared IsolatedBackend::reload(int id, const KernelRequest& request) {
  return enter(id, request, encode(ReloadRequest{id, request}));
}

Round IsolatedBackend::round(const std::vector<int>& order, double sample_us) {
  ensure_child();
  Round round;
  std::vector<int> asked;
  for (int id : order) {
    const auto gone = pending_.find(id);
    if (gone == pending_.end())
      asked.push_back(id);
    else
      round.samples.push_back({id, 0, gone->second});
  }
  child_->socket().send(encode(RoundRequest{asked, sample_us}), within(sample_limit()));
  for (int id : asked) {
    const Stopwatch watch;
    const double limit_s = sample_limit();
    const WaitLimit limit = within(limit_s);
    Frame frame;
    const Status status = child_->socket().receive(&frame, limit);
    SampleReply reply{{id, 0, std::nullopt}, 0};
    if (status == Status::kOk)
      reply = decode_sample_reply(frame);
    else
      reply.sample.fault = lost(status, limit, limit_s);
    round.samples.push_back(reply.sample);
    if (reply.sample.fault) {
      loaded_.erase(id);
      if (reply.sample.fault->fatal) child_.reset();
      break;
    }
    slowest_sample_s_ = std::max(slowest_sample_s_, watch.seconds());
    if (reply.sm_clock_mhz > 0)
      round.sm_clock_mhz = round.sm_clock_mhz == 0
                               ? reply.sm_clock_mhz
                               : std::min(round.sm_clock_mhz, reply.sm_clock_mhz);
  }
  return round;
}

void IsolatedBackend::drop(int id) {
  loaded_.erase(id);
  pending_.erase(id);
  if (child_) child_->socket().send(encode(DropRequest{id}), within(limits_.least_s));
}

std::vector<std::string> own_worker_command(const std::string& target, const Device& device) {
  const std::string own =
      device.target() == Target::kCpu ? fmt::format("cpu:{}", device.identity().sm_count) : target;
  return {std::filesystem::read_symlink("/proc/self/exe").string(), "worker", own};
}

}  // namespace attune
