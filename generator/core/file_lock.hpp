// SPDX-License-Identifier: Apache-2.0
// Waits for a flock, with a time limit: whoever may open a file or a directory may hold its lock
// for ever. Used by cache/store_file, runtime/bundle and tuner/device_lock.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace attune {

// The limit for waiting on other processes of the same user, which hold a lock while they write a
// file.
inline constexpr std::chrono::seconds kWriteWait{60};

struct LockWait {
  std::chrono::milliseconds most{kWriteWait};
  std::function<bool()> stop{};  // called often; true: waits no longer
  std::function<void(const std::string& who)>
      notice{};  // called once, when waiting begins: lock_holder
};

enum class LockResult { kHeld, kTimedOut, kStopped, kFailed };  // kFailed: errno says why

// Takes the exclusive flock of an open file, waiting for its holder at most `wait.most`.
LockResult lock_file(int file, const LockWait& wait);

// Returns who holds the flock of an open file, "pid 17 (attune tune ...) of user joe", or "another
// process" if the system does not say, as for a process in another container.
std::string lock_holder(int file);

}  // namespace attune
