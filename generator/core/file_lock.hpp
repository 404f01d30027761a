// SPDX-License-Identifier: Apache-2.0
// Waiting for a flock, with a bound: whoever may open a file, or a directory, may hold its lock for
// ever. Used by cache/store_file, runtime/bundle and tuner/device_lock.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace attune {

// Waits for other processes of the same user, which hold a lock for as long as they write a file.
inline constexpr std::chrono::seconds kWriteWait{60};

struct LockWait {
  std::chrono::milliseconds most{kWriteWait};
  std::function<bool()> stop{};  // asked often; true: waits no longer
  std::function<void(const std::string& who)>
      notice{};  // once, when it begins to wait: lock_holder
};

enum class LockResult { kHeld, kTimedOut, kStopped, kFailed };  // kFailed: errno says why

// Takes the exclusive flock of an open file, and waits for its holder at most as long as that.
LockResult lock_file(int file, const LockWait& wait);

// Returns who holds the flock of an open file, "pid 17 (attune tune ...) of user joe"; "another
// process" where the system does not say: it may run in another container.
std::string lock_holder(int file);

}  // namespace attune
