// SPDX-License-Identifier: Apache-2.0
// Serves measurements over a socket; see measure_protocol.hpp.
#include "tuner/measure/measure_protocol.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <new>

#include "generator/core/system/error.hpp"
#include "runtime/engine/device.hpp"
#include "tuner/measure/device_backend.hpp"

namespace attune {
namespace {

// Makes the kernel kill this process when its parent ends, even if it hangs. Prevents core files.
void bind_to_parent() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  ::signal(SIGINT, SIG_IGN);
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
}

int take_socket() {
  const int socket = ::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (null >= 0) ::dup2(null, STDIN_FILENO);
  return socket;
}

class Server {
 public:
  Server(MeasureBackend& backend, FrameSocket socket)
      : backend_(backend), socket_(std::move(socket)) {}

  int run() {
    Frame frame;
    while (!done_ && socket_.receive(&frame) == FrameSocket::Status::kOk)
      std::visit([this](const auto& request) { answer(request); }, decode_request(frame));
    return 0;
  }

 private:
  void say(const Frame& frame) {
    if (socket_.send(frame) != FrameSocket::Status::kOk) done_ = true;
  }

  void answer(const OpenRequest& request) {
    OpenReply reply;
    try {
      backend_.open(request.task);
    } catch (const Error& error) {
      reply = {error.what(), static_cast<int>(error.code())};
    } catch (const std::bad_alloc&) {
      reply = {"out of host memory", static_cast<int>(ErrorCode::kOutOfMemory)};
    }
    say(encode(reply));
  }

  void answer(const PrepareRequest& request) {
    answer(backend_.prepare(request.id, request.kernel));
  }
  void answer(const ReloadRequest& request) { answer(backend_.reload(request.id, request.kernel)); }

  void answer(const Prepared& prepared) {
    say(encode(prepared));
    if (prepared.fault && prepared.fault->fatal) done_ = true;
  }

  // Takes one sample at a time. If this process dies, the parent then knows which kernel was
  // running.
  void answer(const RoundRequest& request) {
    for (int id : request.order) {
      const Round round = backend_.round({id}, request.sample_us);
      const Sample& sample = round.samples.at(0);
      say(encode(SampleReply{sample, round.sm_clock_mhz}));
      if (sample.fault && sample.fault->fatal) done_ = true;
      if (sample.fault || done_) return;
    }
  }

  void answer(const DropRequest& request) { backend_.drop(request.id); }

  MeasureBackend& backend_;
  FrameSocket socket_;
  bool done_ = false;
};

}  // namespace

int serve_measurements(MeasureBackend& backend) {
  bind_to_parent();
  return Server(backend, FrameSocket(take_socket())).run();
}

// The first request opens the device, so that a failure is reported as an answer instead of a dead
// process.
int measure_worker_main(const std::string& device_name) {
  class LateBackend : public MeasureBackend {
   public:
    explicit LateBackend(std::string name) : name_(std::move(name)) {}
    void open(const MeasureTask& task) override {
      if (!backend_) backend_ = std::make_unique<DeviceBackend>(open_whole_device());
      backend_->open(task);
    }
    Prepared prepare(int id, const KernelRequest& request) override {
      return backend_->prepare(id, request);
    }
    Prepared reload(int id, const KernelRequest& request) override {
      return backend_->reload(id, request);
    }
    Round round(const std::vector<int>& order, double sample_us) override {
      return backend_->round(order, sample_us);
    }
    void drop(int id) override { backend_->drop(id); }

   private:
    // Refuses a device with fewer threads than requested: its timings would be stored as if taken
    // with all.
    std::shared_ptr<const Device> open_whole_device() const {
      std::shared_ptr<const Device> device = open_device(name_);
      const int granted = device->identity().sm_count;
      if (name_.starts_with("cpu:") && name_ != fmt::format("cpu:{}", granted))
        throw Error(ErrorCode::kDriver,
                    fmt::format("the system grants the measuring process only {} threads for {} "
                                "(see ulimit -u and the container's pids limit)",
                                granted, name_));
      return device;
    }

    const std::string name_;
    std::unique_ptr<DeviceBackend> backend_;
  };
  LateBackend backend(device_name);
  const int status = serve_measurements(backend);
  // Skips destructors: after a device fault they would only report more errors.
  ::_exit(status);
}

}  // namespace attune
