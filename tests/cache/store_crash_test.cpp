// SPDX-License-Identifier: Apache-2.0
// Many writers at once, some killed at random moments: the file stays sound and no committed trial
// is lost. Each writer thread notes a trial in a separate file after put_trial returned. Every
// noted trial must be in the store.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <random>
#include <set>
#include <thread>

#include "cache/sqlite.hpp"
#include "tests/cache/store_samples.hpp"
#include "tests/support/wall_clock.hpp"

namespace attune {
namespace {

namespace fs = std::filesystem;

constexpr int kProcesses = 8;
constexpr int kThreads = 4;
constexpr auto kDuration = std::chrono::seconds(6);

class StoreCrashTest : public StoreTest {
 protected:
  fs::path notes() const { return folder_ / "notes"; }

  std::set<int64_t> noted() const {
    std::set<int64_t> all;
    for (const auto& entry : fs::directory_iterator(notes())) {
      std::istringstream lines(read_bytes(entry.path()));
      for (std::string text; std::getline(lines, text) && !lines.eof();)
        all.insert(std::stoll(text));  // a line without end was not finished
    }
    return all;
  }
};

// Puts trials numbered first, first + 1, ... until killed. Two threads share a connection, two have
// their own.
void write_until_killed(const fs::path& store_path, Store* shared, const fs::path& note_path,
                        int64_t first) {
  const int note = open(note_path.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  std::optional<Store> own;
  if (shared == nullptr) own = Store::open(store_path, StoreMode::kReadWrite);
  Store& store = own ? *own : *shared;
  for (int64_t number = first;; ++number) {
    try {
      store.put_trial(sample_key(), sample_trial(number));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::kStore) _exit(3);
      continue;  // busy for too long: a caller goes on without storing
    }
    const std::string line = std::to_string(number) + "\n";
    if (write(note, line.data(), line.size()) != static_cast<ssize_t>(line.size())) _exit(4);
  }
}

[[noreturn]] void run_writer(const fs::path& store_path, const fs::path& notes,
                             int64_t generation) {
  set_log_sink(nullptr);
  Store shared = Store::open(store_path, StoreMode::kReadWrite);
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < kThreads; ++t) {
    const int64_t number = generation * kThreads + t;
    threads.emplace_back([&, t, number] {
      write_until_killed(store_path, t < 2 ? &shared : nullptr, notes / std::to_string(number),
                         1 + number * 1'000'000);
    });
  }
  for (std::thread& thread : threads) thread.join();
  _exit(0);
}

pid_t start_writer(const fs::path& store_path, const fs::path& notes, int64_t generation) {
  const pid_t child = fork();
  if (child == 0) {
    try {
      run_writer(store_path, notes, generation);
    } catch (...) {
      _exit(2);
    }
  }
  return child;
}

TEST_F(StoreCrashTest, NoCommittedTrialIsLostWhenWritersAreKilled) {
  fs::create_directory(notes());
  std::mt19937 random(7);
  int64_t generation = 0;
  std::vector<pid_t> writers;
  for (int i = 0; i < kProcesses; ++i)
    writers.push_back(start_writer(file(), notes(), generation++));
  int kills = 0;
  const auto end = std::chrono::steady_clock::now() + kDuration;
  const auto kill_and_check = [&](pid_t& writer) {
    kill(writer, SIGKILL);
    int status = 0;
    waitpid(writer, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status))
        << "a writer ended by itself with status " << WEXITSTATUS(status);
    ++kills;
  };
  // Longer on a busy machine, since a kill tests nothing before a trial was noted.
  while (std::chrono::steady_clock::now() < end || noted().empty()) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    pid_t& victim = writers[random() % writers.size()];
    kill_and_check(victim);
    victim = start_writer(file(), notes(), generation++);
  }
  for (pid_t& writer : writers) kill_and_check(writer);

  // A reader opens it first. It must handle the incomplete transaction of the last killed writer.
  const size_t seen_by_reader = reader().trials(sample_key()).size();
  Store store = writer();
  EXPECT_TRUE(store.verify().empty());
  std::set<int64_t> stored;
  for (const TrialRecord& trial : store.trials(sample_key()))
    stored.insert(trial.config.at("block_m"));
  EXPECT_EQ(seen_by_reader, stored.size());
  const std::set<int64_t> committed = noted();
  EXPECT_TRUE(std::includes(stored.begin(), stored.end(), committed.begin(), committed.end()));
  // Per thread, at most one put is committed but not yet noted.
  EXPECT_LE(stored.size(), committed.size() + static_cast<size_t>(generation * kThreads));
  EXPECT_GT(kills, 2 * kProcesses);
  EXPECT_GT(committed.size(), 0U);
  if (time_limits_hold()) {
    EXPECT_GT(committed.size(), 50U);
  }
  for (const auto& entry : fs::directory_iterator(folder_))
    EXPECT_EQ(entry.path().string().find(".corrupt-"), std::string::npos)
        << "no kill may look like damage";
  std::cout << kills << " writers killed, " << committed.size() << " trials noted, "
            << stored.size() << " stored\n";
}

TEST_F(StoreCrashTest, ReaderRollsBackAKilledWritersTransaction) {
  writer().put_trial(sample_key(), sample_trial(64));
  const pid_t child = fork();
  if (child == 0) {
    Database database = Database::open(file(), Database::Mode::kReadWrite);
    database.execute("PRAGMA cache_size = 1");  // pages go to the file before the commit
    database.execute("PRAGMA cache_spill = 1");
    database.execute("BEGIN IMMEDIATE");
    database.execute("DELETE FROM trial");
    database.execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000)"
        " INSERT INTO problem (digest, text) SELECT i, hex(randomblob(200)) FROM n");
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  ASSERT_TRUE(fs::exists(file().string() + "-journal"))
      << "the child was killed too early for this test to mean anything";
  const Store store = reader();
  EXPECT_EQ(store.trials(sample_key()).size(), 1U);
  EXPECT_EQ(store.stats().problems, 1);
  EXPECT_TRUE(store.verify().empty());
}

TEST_F(StoreCrashTest, BusyStoreIsAnErrorInTimeAndTheStoreGoesOn) {
  Store store = writer();
  Database holder = Database::open(file(), Database::Mode::kReadWrite);
  holder.execute("BEGIN IMMEDIATE");
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(error_of(ErrorCode::kStore, [&] { store.put_trial(sample_key(), sample_trial()); }),
              testing::HasSubstr("busy"));
  const auto waited = std::chrono::steady_clock::now() - start;
  EXPECT_GE(waited, std::chrono::seconds(9));
  ATTUNE_EXPECT_WITHIN(waited, std::chrono::seconds(15));
  EXPECT_EQ(store.trials(sample_key()).size(), 0U) << "reading goes on beside a writer";
  holder.execute("ROLLBACK");
  store.put_trial(sample_key(), sample_trial());
  EXPECT_EQ(store.trials(sample_key()).size(), 1U);
}

}  // namespace
}  // namespace attune
