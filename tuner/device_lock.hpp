// SPDX-License-Identifier: Apache-2.0
// DeviceLock: held while a device is measured, so that two tunes never time each other. It is a
// flock on a file of the machine, one file per device; the kernel releases it when its holder ends,
// however it ends. tune, bench and LiveTuner take it.
//
// The file lies in /tmp (or $ATTUNE_LOCKS), not in the user's cache: two users share the device as
// well, and a home folder may be shared by machines. It is empty; nobody
// reads or writes it. It is opened read-only, never through a link, and other users may only lock
// it. That gives them nothing new: whoever may run here can delay or disturb a measurement.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "generator/core/file_descriptor.hpp"

namespace attune {

// Where the locks of this machine are: $ATTUNE_LOCKS, else /tmp.
std::filesystem::path lock_folder();

class DeviceLock {
 public:
  static constexpr std::chrono::minutes kMost{10};  // of a wait that nobody chose
  struct Waiting {
    std::function<bool()> stop{};  // asked often; true: goes on without the lock
    std::function<void(const std::string&)>
        notice{};  // "waiting for pid 17 (attune tune ...) of user joe ...", once
    std::chrono::milliseconds most{kMost};
  };
  // `hardware`: Device::hardware(). Waits while another process has the device, but not for
  // ever: anybody may hold this lock. After that time, or where the folder cannot hold the lock, it
  // logs a warning (kTuneNotLocked) and measuring goes on.
  DeviceLock(const std::string& hardware, const std::filesystem::path& folder,
             const Waiting& waiting);
  bool held() const { return static_cast<bool>(file_); }
  bool stopped_waiting() const { return stopped_waiting_; }

 private:
  FileDescriptor file_;
  bool stopped_waiting_ = false;
};

}  // namespace attune
