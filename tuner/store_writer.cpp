// SPDX-License-Identifier: Apache-2.0
// Writing to the store behind the tune's back; see store_writer.hpp.
#include "tuner/store_writer.hpp"

#include <string>

#include "generator/core/log.hpp"

namespace attune {

StoreWriter::StoreWriter(Store* store) : store_(store) {
  if (store_ != nullptr) thread_ = std::thread([this] { work(); });
}

StoreWriter::~StoreWriter() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StoreWriter::write(std::function<void(Store&)> job) {
  if (store_ == nullptr) return;
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(job));
  changed_.notify_all();
}

void StoreWriter::read(const std::function<void(const Store&)>& job) {
  if (store_ == nullptr) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return queue_.empty() && !busy_; });
  job(*store_);
}

bool StoreWriter::stored_all() {
  read([](const Store&) {});
  const std::lock_guard lock(mutex_);
  return stored_all_;
}

void StoreWriter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const std::function<void(Store&)> job = std::move(queue_.front());
    queue_.pop_front();
    busy_ = true;
    lock.unlock();
    run(job);
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void StoreWriter::run(const std::function<void(Store&)>& job) {
  try {
    job(*store_);
  } catch (const std::exception& error) {
    const std::lock_guard lock(mutex_);
    if (stored_all_)
      log(LogLevel::kWarning, std::string("not stored, the tune goes on: ") + error.what());
    stored_all_ = false;
  }
}

}  // namespace attune
