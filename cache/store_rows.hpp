// SPDX-License-Identifier: Apache-2.0
// Functions on rows of the store, grouped by table. Each runs inside its caller's transaction. For
// store*.cpp and merge.cpp. A row that cannot be decoded never makes reading throw: it is logged
// and left out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/records.hpp"
#include "cache/sqlite.hpp"
#include "generator/core/system/json_text.hpp"
#include "generator/core/system/log.hpp"

namespace attune {

// Identities (identity_rows.cpp). find_* return nullopt for a missing row, ensure_* insert it.
struct KeyIds {
  int64_t problem = 0;
  int64_t shape = 0;
  int64_t device = 0;
};
std::optional<KeyIds> find_key(Database& database, const TuningKey& key);
KeyIds ensure_key(Database& database, const TuningKey& key);
std::optional<int64_t> find_problem(Database& database, const KernelSpec& spec);
int64_t ensure_problem(Database& database, const KernelSpec& spec);
std::optional<int64_t> find_device(Database& database, const DeviceIdentity& device);
std::optional<int64_t> find_toolchain(Database& database, const ToolchainIdentity& toolchain);
int64_t ensure_toolchain(Database& database, const ToolchainIdentity& toolchain);
std::string problem_digest(const KernelSpec& spec);

// The columns of problem p, shape s, device d and toolchain c, for select statements.
extern const char* const kProblemColumns;
extern const char* const kShapeColumns;
extern const char* const kDeviceColumns;
extern const char* const kToolchainColumns;

// Reads the columns of kProblemColumns and so on, in this order. Throws kStore if a text does not
// match its digest. A value that equals that of the previous row is not parsed or hashed again.
class IdentityReader {
 public:
  const KernelSpec& problem(Statement& row);
  const Shape& shape(Statement& row);
  const DeviceIdentity& device(Statement& row);
  const ToolchainIdentity& toolchain(Statement& row);

 private:
  template <class Columns, class Value>
  struct Last {
    std::string digest;  // empty: no row yet
    Columns columns{};
    Value value{};
  };
  Last<std::string, KernelSpec> problem_;
  Last<std::string, Shape> shape_;
  Last<DeviceIdentity, DeviceIdentity> device_;
  Last<ToolchainIdentity, ToolchainIdentity> toolchain_;
};
Timing read_timing(Statement& row);

// Calls decode(statement) for each row. Logs and skips a row that cannot be decoded.
template <class Decode>
void for_each_row(Statement& statement, std::string_view table, Decode&& decode) {
  while (statement.step()) {
    try {
      decode(statement);
    } catch (const Error& error) {
      log(LogCode::kStoreRowPassedOver, "store: a damaged row of " + std::string(table) +
                                            " is left out: " + json_excerpt(error.what()));
    }
  }
}

// Trials (store_trials.cpp)
std::optional<TrialRecord> find_trial(Database& database, const TuningKey& key,
                                      const TrialRecord& like);
void replace_trial(Database& database, const TuningKey& key, const TrialRecord& trial);
std::vector<StoredTrial> read_all_trials(Database& database);

// Winners (store_winners.cpp). One key may have a pinned row and a tuned row.
std::optional<WinnerRecord> find_winner(Database& database, const TuningKey& key,
                                        const WinnerRecord& like);
void replace_winner(Database& database, const TuningKey& key, const WinnerRecord& winner);
void delete_pins(Database& database, const TuningKey& key);
std::optional<WinnerRecord> find_pin(Database& database, const TuningKey& key);
std::vector<WinnerRecord> read_all_winners(Database& database);

// Images (store_images.cpp)
void replace_image(Database& database, const StoredImage& image);
std::optional<KernelImage> find_image(Database& database, const ImageKey& key);
std::vector<StoredImage> read_all_images(Database& database);
// Returns one sentence for each image whose bytes or identity do not match its SHA-256.
std::vector<std::string> image_faults(Database& database);

// Programs (store_programs.cpp)
void ensure_program(Database& database, const StoredProgram& program);
bool has_program(Database& database, const ProgramDigest& digest);
std::vector<StoredProgram> read_all_programs(Database& database);

// True if a new row replaces the stored row of the same key. A row of lower effort does only if its
// conditions differ.
bool gives_way(Effort old_effort, const Conditions& former, Effort effort, const Conditions& now);
// Throws kStore for a number that is not an enumerator.
TrialStatus checked_status(int value);
Effort checked_effort(int value);
ImageFormat checked_format(int value);

}  // namespace attune
