// SPDX-License-Identifier: Apache-2.0
// Writes to the store while the tune goes on; see store_writer.hpp.
#include "tuner/search/store_writer.hpp"

#include <chrono>
#include <string>
#include <utility>

#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "generator/core/system/threads.hpp"

namespace attune {
namespace {

constexpr auto kRetryAfter = std::chrono::seconds(2);

}  // namespace

StoreWriter::StoreWriter(Store* store) : store_(store) {
  if (store_ != nullptr) thread_ = start_threads(1, [this](int) { work(); });
}

StoreWriter::~StoreWriter() {
  {
    std::unique_lock lock(mutex_);
    if (!drained_) drain(&lock);
    closing_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : thread_) thread.join();
}

void StoreWriter::write(std::function<void(Store&)> job) {
  if (store_ == nullptr) return;
  std::unique_lock lock(mutex_);
  queue_.push_back(std::move(job));
  drained_ = false;
  changed_.notify_all();
  if (thread_.empty() && !failing_) attempt(&lock);
}

void StoreWriter::read(const std::function<void(const Store&)>& job) {
  if (store_ == nullptr) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return (queue_.empty() || failing_) && !busy_; });
  job(*store_);
}

bool StoreWriter::stored_all() {
  if (store_ == nullptr) return true;
  std::unique_lock lock(mutex_);
  drain(&lock);
  return queue_.empty() && !refused_;
}

// Waits until the queue is empty, or until an attempt that began after this call has failed.
void StoreWriter::drain(std::unique_lock<std::mutex>* lock) {
  wanted_ = attempts_ + (busy_ ? 2 : 1);
  changed_.notify_all();
  const auto is_over = [&] { return queue_.empty() || (failing_ && attempts_ >= wanted_); };
  if (thread_.empty())
    while (!is_over()) attempt(lock);
  else
    changed_.wait(*lock, [&] { return is_over() && !busy_; });
  drained_ = true;
}

void StoreWriter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto has_work = [&] {
      return closing_ || (!queue_.empty() && (!failing_ || attempts_ < wanted_));
    };
    if (failing_)
      changed_.wait_for(lock, kRetryAfter, has_work);
    else
      changed_.wait(lock, has_work);
    if (closing_) return;
    if (!queue_.empty()) attempt(&lock);
  }
}

// Runs the first write of the queue, and releases the lock during the write.
void StoreWriter::attempt(std::unique_lock<std::mutex>* lock) {
  const std::function<void(Store&)>& job = queue_.front();  // other threads only append
  busy_ = true;
  lock->unlock();
  const Outcome outcome = run(job);
  lock->lock();
  busy_ = false;
  ++attempts_;
  failing_ = outcome == Outcome::kFailed;
  refused_ = refused_ || outcome == Outcome::kRefused;
  if (!failing_) queue_.pop_front();
  changed_.notify_all();
}

StoreWriter::Outcome StoreWriter::run(const std::function<void(Store&)>& job) {
  std::string why;
  Outcome outcome = Outcome::kRefused;
  try {
    job(*store_);
    return Outcome::kStored;
  } catch (const Error& error) {
    why = error.what();
    if (error.code() == ErrorCode::kStore) outcome = Outcome::kFailed;
  } catch (const std::exception& error) {
    why = error.what();
  }
  if (!std::exchange(warned_, true))
    log(LogCode::kTuneNotStoredYet, "not stored yet, the tune goes on: " + why);
  return outcome;
}

}  // namespace attune
