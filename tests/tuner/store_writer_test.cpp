// SPDX-License-Identifier: Apache-2.0
// Rows that cannot be stored at first: they arrive, in order, once the fault has passed. If it does
// not pass, a message says that they are missing.
#include "tuner/search/store_writer.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <numeric>
#include <vector>

#include "cache/sqlite.hpp"
#include "generator/core/system/error.hpp"
#include "tests/cache/store_samples.hpp"
#include "tests/support/thread_limit.hpp"
#include "tests/support/wall_clock.hpp"

namespace attune {
namespace {

class StoreWriterTest : public StoreTest {
 protected:
  // Returns a write that fails while the disk is full, and otherwise records its number.
  std::function<void(Store&)> job(int number) {
    return [this, number](Store&) {
      ++attempts_;
      if (is_full_) throw Error(ErrorCode::kStore, "store: database or disk is full");
      const std::lock_guard lock(mutex_);
      stored_.push_back(number);
    };
  }
  std::vector<int> stored() {
    const std::lock_guard lock(mutex_);
    return stored_;
  }
  static std::vector<int> up_to(int count) {
    std::vector<int> numbers(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), 0);
    return numbers;
  }

  std::atomic<bool> is_full_{false};
  std::atomic<int> attempts_{0};

 private:
  std::mutex mutex_;
  std::vector<int> stored_;
};

TEST_F(StoreWriterTest, NothingIsLostToAFaultThatPasses) {
  Store store = writer();
  StoreWriter rows(&store);
  for (int i = 0; i < 3; ++i) rows.write(job(i));
  rows.read([](const Store&) {});
  is_full_ = true;
  for (int i = 3; i < 8; ++i) rows.write(job(i));
  rows.read([](const Store&) {});  // works in spite of the failed write
  EXPECT_EQ(stored(), up_to(3));
  EXPECT_FALSE(rows.stored_all());
  is_full_ = false;
  for (int i = 8; i < 10; ++i) rows.write(job(i));
  EXPECT_TRUE(rows.stored_all());
  EXPECT_EQ(stored(), up_to(10)) << "in order: a newer row never gives way to an older one";
  EXPECT_NE(logged().find("disk is full"), std::string::npos);
}

TEST_F(StoreWriterTest, AFaultThatStaysEndsInTimeAndIsSaid) {
  Store store = writer();
  const auto began = std::chrono::steady_clock::now();
  is_full_ = true;
  {
    StoreWriter rows(&store);
    for (int i = 0; i < 100; ++i) rows.write(job(i));
    EXPECT_FALSE(rows.stored_all());
  }
  ATTUNE_EXPECT_WITHIN(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
  EXPECT_LE(attempts_, 20) << "one row tells that the disk is full";
  EXPECT_EQ(stored(), std::vector<int>{});
}

TEST_F(StoreWriterTest, TheLastAttemptIsMadeWhenTheWriterGoes) {
  Store store = writer();
  is_full_ = true;
  {
    StoreWriter rows(&store);
    for (int i = 0; i < 5; ++i) rows.write(job(i));
    rows.read([](const Store&) {});
    is_full_ = false;
  }
  EXPECT_EQ(stored(), up_to(5));
}

TEST_F(StoreWriterTest, ARowThatNoAttemptCanStoreCostsItselfAlone) {
  Store store = writer();
  StoreWriter rows(&store);
  rows.write(job(0));
  rows.write([](Store&) { throw Error(ErrorCode::kInternal, "no such row"); });
  rows.write(job(1));
  EXPECT_FALSE(rows.stored_all());
  EXPECT_EQ(stored(), up_to(2));
}

TEST_F(StoreWriterTest, WritesByItselfWhereTheSystemGrantsNoThread) {
  Store store = writer();
  const testing::ThreadLimit limit(0);
  StoreWriter rows(&store);
  EXPECT_EQ(limit.refused(), 1);
  for (int i = 0; i < 4; ++i) rows.write(job(i));
  EXPECT_EQ(stored(), up_to(4));
  is_full_ = true;
  rows.write(job(4));
  EXPECT_FALSE(rows.stored_all());
  is_full_ = false;
  EXPECT_TRUE(rows.stored_all());
  EXPECT_EQ(stored(), up_to(5));
}

TEST_F(StoreWriterTest, WithoutAStoreNothingIsStored) {
  StoreWriter rows(nullptr);
  rows.write(job(0));
  EXPECT_TRUE(rows.stored_all());
  EXPECT_EQ(attempts_, 0);
}

// A real case: another process holds the store for longer than a write waits.
TEST_F(StoreWriterTest, RowsArriveAfterAnotherWriterLetsGo) {
  Store store = writer();
  Database holder = Database::open(file(), Database::Mode::kReadWrite);
  holder.execute("BEGIN IMMEDIATE");
  StoreWriter rows(&store);
  for (const int64_t number : {64, 128})
    rows.write([number](Store& s) { s.put_trial(sample_key(), sample_trial(number)); });
  rows.read([](const Store&) {});  // returns after the first write has given up
  EXPECT_NE(logged().find("busy"), std::string::npos);
  holder.execute("ROLLBACK");
  EXPECT_TRUE(rows.stored_all());
  EXPECT_EQ(store.trials(sample_key()).size(), 2U);
}

}  // namespace
}  // namespace attune
