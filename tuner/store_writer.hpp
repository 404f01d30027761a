// SPDX-License-Identifier: Apache-2.0
// StoreWriter: writes trials to the store on a thread of its own. Each is committed as soon as the
// disk allows, and the device never waits for the disk. A write that fails (a full disk, a store
// that another process holds) stays first in the queue and is tried again, so that rows arrive in
// order and none is lost to a fault that passes. A store that cannot be written does not stop a
// tune.
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
  ~StoreWriter();                      // writes what is queued, as stored_all does
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  void write(std::function<void(Store&)> job);
  // Waits until all queued writes are done, or fail, then reads.
  void read(const std::function<void(const Store&)>& job);
  // Tries once more what failed, then waits likewise. False when rows are still not stored; the log
  // says why.
  bool stored_all();

 private:
  enum class Outcome { kStored, kFailed, kRefused };  // kRefused: no second attempt would help
  void work();
  void attempt(std::unique_lock<std::mutex>* lock);
  Outcome run(const std::function<void(Store&)>& job);
  void drain(std::unique_lock<std::mutex>* lock);

  Store* store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void(Store&)>> queue_;
  int attempts_ = 0;      // ended so far
  int wanted_ = 0;        // until so many have, a failure is followed by an attempt at once
  bool failing_ = false;  // the last one failed; the first of the queue is to be tried again
  bool busy_ = false, closing_ = false, refused_ = false;
  bool warned_ = false, drained_ = false;
  std::vector<std::thread> thread_;  // one, or none where the system grants no thread
};

}  // namespace attune
