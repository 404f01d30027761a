// SPDX-License-Identifier: Apache-2.0
// Waits for a flock with a time limit, because any process that can open the file can hold its lock
// forever. Used by cache/store_file, runtime/bundles/bundle and tuner/measure/device_lock.
#pragma once

#include <chrono>
#include <functional>
#include <string>

namespace attune {

// The time limit for locks that other processes of the same user hold while they write a file.
inline constexpr std::chrono::seconds kWriteWait{60};

struct LockWait {
  std::chrono::milliseconds most{kWriteWait};
  std::function<bool()> stop{};  // polled; true ends the wait
  std::function<void(const std::string& who)>
      notice{};  // called once, when waiting begins: lock_holder
};

enum class LockResult { kHeld, kTimedOut, kStopped, kFailed };  // kFailed: errno says why

// Takes the exclusive flock of an open file, waiting for its holder at most `wait.most`.
LockResult lock_file(int file, const LockWait& wait);

// Returns the holder of an open file's flock, such as "pid 17 (attune tune ...) of user joe".
// Returns "another process" if the system does not name the holder, as for a process in another
// container.
std::string lock_holder(int file);

}  // namespace attune
