// SPDX-License-Identifier: Apache-2.0
// A measuring worker whose kernels behave as their config says, so that tests can see the effect of
// a crash, a hang or a wrong answer:
// fate=0 well, 1 abort while checked, 2 hang while checked, 3 wrong result, 4 crash at the third
// sample, 5 hang at the third sample, 6 exit while checked, 7 print to standard output, 8 report
// a fatal device fault, 9 stop soon after the check was answered;   us=<true time>
// Opening a problem fails for some values of seqlen: 666 no memory, 667 killed, 668 killed the
// first time (then the file $ATTUNE_TEST_ONCE exists), 669 hang.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "generator/core/system/error.hpp"
#include "tuner/measure/measure_protocol.hpp"

namespace {

using namespace attune;

class MisbehavingBackend : public MeasureBackend {
 public:
  void open(const MeasureTask& task) override {
    if (task.problem.seqlen_q == 666)
      throw Error(ErrorCode::kOutOfMemory, "no memory for this problem");
    if (task.problem.seqlen_q == 667) std::raise(SIGKILL);
    if (task.problem.seqlen_q == 668 && is_first_time()) std::raise(SIGKILL);
    if (task.problem.seqlen_q == 669) ::pause();
    loaded_.clear();
  }

  Prepared prepare(int id, const KernelRequest& request) override {
    const int64_t fate = request.config.at("fate");
    if (fate == 1) std::abort();
    if (fate == 2) ::pause();
    if (fate == 6) ::_exit(3);
    if (fate == 7) std::puts("42 this is no protocol");
    std::fflush(stdout);
    if (fate == 9) stop_soon();
    Prepared prepared;
    if (fate == 3) prepared.fault = Fault{TrialStatus::kWrongResult, "row 3 is nan", false};
    if (fate == 8) prepared.fault = Fault{TrialStatus::kLaunchFailed, "device lost", true};
    return prepared.fault ? prepared : reload(id, request);
  }

  Prepared reload(int id, const KernelRequest& request) override {
    Prepared prepared;
    loaded_[id] = request.config;
    prepared.estimate_us = static_cast<double>(request.config.at("us"));
    prepared.info.registers = 96;
    return prepared;
  }

  Round round(const std::vector<int>& order, double) override {
    Round round;
    round.sm_clock_mhz = 1980;
    for (int id : order) {
      const Config& config = loaded_.at(id);
      const bool third = ++samples_[id] == 3;
      if (third && config.at("fate") == 4) std::raise(SIGSEGV);
      if (third && config.at("fate") == 5) ::pause();
      round.samples.push_back({id, static_cast<double>(config.at("us")), std::nullopt});
    }
    return round;
  }

  void drop(int id) override { loaded_.erase(id); }

 private:
  static bool is_first_time() {
    return ::close(::open(std::getenv("ATTUNE_TEST_ONCE"), O_CREAT | O_EXCL, 0600)) == 0;
  }
  static void stop_soon() {
    std::signal(SIGALRM, [](int) { std::raise(SIGSTOP); });
    ::ualarm(50'000, 0);
  }

  std::map<int, Config> loaded_;
  std::map<int, int> samples_;
};

}  // namespace

int main() {
  MisbehavingBackend backend;
  return attune::serve_measurements(backend);
}
