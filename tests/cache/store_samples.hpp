// SPDX-License-Identifier: Apache-2.0
// Shared by the store's tests: a private folder, sample records, and the log as it
// was written.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <vector>

#include "cache/store.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"

namespace attune {

inline TuningKey sample_key(int64_t seqlen = 2048) {
  TuningKey key;
  key.spec.head_dim_qk = 128;
  key.spec.head_dim_v = 96;
  key.spec.gqa_ratio = 4;
  key.spec.mask = Mask::kCausalBottomRight;
  key.spec.window_left = 4096;
  key.shape = {2, seqlen, seqlen, 32, 8};
  key.device = {"sm_90", 132,     232448, 65536,         50 << 20,
                6144,    3201000, "",     "NVIDIA H200", {"580.1", 700}};
  key.policy.text = "v1 cold-l2 interleaved";
  return key;
}

inline ToolchainIdentity sample_toolchain(const std::string& template_digest = "t1",
                                          const std::string& compiler = "nvrtc 13.0") {
  return {"prefill_sm80", template_digest, compiler, "-O3"};
}

inline TrialRecord sample_trial(int64_t block_m = 128) {
  TrialRecord trial;
  trial.toolchain = sample_toolchain();
  trial.arch = "sm_90a";
  trial.config = Config({{"block_m", block_m}, {"block_n", 64}, {"kv_slots", 2}});
  trial.is_default = block_m == 128;
  trial.timing = {100.5, 99.25, 101.75, 98.5, 30, 1980};
  trial.error_max = 0.5;
  trial.error_mean = 0.25;
  trial.info.registers = 168;
  trial.info.static_shared_bytes = 0;
  trial.info.stack_bytes = 16;
  trial.info.spill_store_bytes = 0;
  trial.info.spill_load_bytes = 4;
  trial.info.warnings = {"C7510"};
  trial.shared_bytes = 98304;
  trial.created = "2026-05-01T12:00:00.000Z";
  return trial;
}

inline WinnerRecord sample_winner(const TuningKey& key, int64_t block_m = 64) {
  WinnerRecord winner;
  winner.spec = key.spec;
  winner.shape = key.shape;
  winner.toolchain = sample_toolchain();
  winner.arch = "sm_90a";
  winner.config = sample_trial(block_m).config;
  winner.timing = {90, 89, 91, 88, 40, 1970};
  winner.default_timing = {100, 99, 101, 98, 41, 1960};
  winner.default_config = sample_trial(128).config;
  winner.candidates = 24;
  winner.why = "fastest by 10.0 %";
  winner.created = "2026-05-01T12:00:00.000Z";
  return winner;
}

inline ImageKey sample_image_key(int64_t block_m = 64) {
  return {sample_key().spec, "sm_90a", sample_toolchain(), sample_trial(block_m).config, "source"};
}

inline KernelImage sample_image(const std::string& bytes = std::string("\x7f"
                                                                       "ELF\0kernel\xff",
                                                                       12)) {
  KernelImage image;
  image.bytes = bytes;
  image.info = sample_trial().info;
  image.log = "ptxas info : 168 registers";
  image.compile_ms = 321.5;
  return image;
}

// Returns a folder in memory if possible, since each commit waits for the disk and the tests make
// thousands. A killed process loses nothing in either place; only a power cut makes a difference.
inline std::filesystem::path scratch_folder() {
  return access("/dev/shm", W_OK | X_OK) == 0 ? std::filesystem::path("/dev/shm")
                                              : std::filesystem::temp_directory_path();
}

// Makes a folder that only this user can reach, and removes it at the end. Records the log.
class StoreTest : public ::testing::Test {
 protected:
  StoreTest() {
    std::string pattern = (scratch_folder() / "attune-store-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    former_ = set_log_sink([this](LogLevel, std::string_view text) {
      const std::lock_guard<std::mutex> lock(mutex_);
      logged_ += std::string(text) + "\n";
    });
  }
  ~StoreTest() override {
    set_log_sink(former_);
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::filesystem::path file(const std::string& name = "store.db") const { return folder_ / name; }
  Store writer() const { return Store::open(file(), StoreMode::kReadWrite); }
  Store reader() const { return Store::open(file(), StoreMode::kReadOnly); }
  std::string logged() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return logged_;
  }

  std::filesystem::path folder_;

 private:
  LogSink former_;
  std::mutex mutex_;
  std::string logged_;
};

inline std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

inline void write_bytes(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  std::filesystem::permissions(
      path, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
}

// Returns the message of the Error that `work` throws. Fails if it throws none, or one with another
// code.
inline std::string error_of(ErrorCode code, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace attune
