// SPDX-License-Identifier: Apache-2.0
// StoreWriter: writes trials to the store on a thread of its own. Each is committed as soon as the
// disk allows, and the device never waits for the disk. A store that cannot be written does not
// stop a tune.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "cache/store.hpp"

namespace attune {

class StoreWriter {
 public:
  explicit StoreWriter(Store* store);  // null: nothing is kept
  ~StoreWriter();                      // writes what is queued
  StoreWriter(const StoreWriter&) = delete;
  StoreWriter& operator=(const StoreWriter&) = delete;

  void write(std::function<void(Store&)> job);
  // Waits until all queued writes are done, then reads.
  void read(const std::function<void(const Store&)>& job);
  bool stored_all();  // waits likewise; false when a write failed (the log says why)

 private:
  void work();
  void run(const std::function<void(Store&)>& job);

  Store* store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void(Store&)>> queue_;
  bool busy_ = false, closing_ = false, stored_all_ = true;
  std::thread thread_;
};

}  // namespace attune
