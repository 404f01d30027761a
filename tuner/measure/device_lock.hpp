// SPDX-License-Identifier: Apache-2.0
// DeviceLock: held while a device is measured, so that two tunes never disturb each other's
// timings. It is a flock on a file, one file per device. The kernel releases the lock when its
// holder ends, even if the holder crashes. tune, bench and LiveTuner use it.
//
// The file is in /tmp (or $ATTUNE_LOCKS), not in the user's cache: users share the device, and
// machines may share a home folder. The file is empty; nobody reads or writes it. It is opened
// read-only, never through a link, and other users may only lock it. That gives them nothing new:
// whoever may run programs here can delay or disturb a measurement anyway.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "generator/core/system/files.hpp"

namespace attune {

// Returns the folder of this machine's locks: $ATTUNE_LOCKS, else /tmp.
std::filesystem::path lock_folder();

class DeviceLock {
 public:
  static constexpr std::chrono::minutes kMost{10};  // the longest wait by default
  struct Waiting {
    std::function<bool()> stop{};  // called often; true: goes on without the lock
    std::function<void(const std::string&)>
        notice{};  // "waiting for pid 17 (attune tune ...) of user joe, ...", once
    std::chrono::milliseconds most{kMost};
  };
  // `hardware`: Device::hardware(). Waits while another process has the device, but no longer than
  // `most`, because any user can hold this lock. After that time, or if the folder cannot hold the
  // lock, it logs a warning (kTuneNotLocked) and continues without the lock.
  DeviceLock(const std::string& hardware, const std::filesystem::path& folder,
             const Waiting& waiting);
  bool held() const { return static_cast<bool>(file_); }
  bool stopped_waiting() const { return stopped_waiting_; }

 private:
  FileDescriptor file_;
  bool stopped_waiting_ = false;
};

}  // namespace attune
