// SPDX-License-Identifier: Apache-2.0
// StoreWriter: writes trials to the store on its own thread. Each is committed as soon as the disk
// allows, and the device never waits for the disk. If a write fails (a full disk, a store that
// another process holds), it stays first in the queue and is tried again. So rows arrive in order,
// and a temporary fault loses none. A store that cannot be written does not stop a tune.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "cache/store.hpp"

namespace attune {

class StoreWriter {
 public:
  explicit StoreWriter(Store* store);  // null: nothing is kept
  ~StoreWriter();                      // writes the queue, like stored_all
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  void write(std::function<void(Store&)> job);
  // Waits until all queued writes are done or fail, then calls `job` to read.
  void read(const std::function<void(const Store&)>& job);
  // Tries failed writes once more and waits like read(). Returns false if rows are still not
  // stored; the log has the reason.
  bool stored_all();

 private:
  enum class Outcome { kStored, kFailed, kRefused };  // kRefused: another attempt would not help
  void work();
  void attempt(std::unique_lock<std::mutex>* lock);
  Outcome run(const std::function<void(Store&)>& job);
  void drain(std::unique_lock<std::mutex>* lock);

  Store* store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void(Store&)>> queue_;
  int attempts_ = 0;      // attempts that have ended
  int wanted_ = 0;        // until that many have ended, a failure is retried at once
  bool failing_ = false;  // the last attempt failed; the first write of the queue must be retried
  bool busy_ = false, closing_ = false, refused_ = false;
  bool warned_ = false, drained_ = false;
  std::vector<std::thread> thread_;  // one; none if the system grants no thread
};

}  // namespace attune
