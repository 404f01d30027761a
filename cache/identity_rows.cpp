// SPDX-License-Identifier: Apache-2.0
// Rows of the four identities, found by digest; see store_rows.hpp.
#include <fmt/format.h>

#include <functional>

#include "cache/store_rows.hpp"
#include "generator/core/system/digest.hpp"

namespace attune {
namespace {

std::optional<int64_t> find_id(Database& database, const char* table, const std::string& digest) {
  Statement statement(database, fmt::format("SELECT id FROM {} WHERE digest = ?", table));
  statement.bind(digest);
  if (!statement.step()) return std::nullopt;
  int64_t id = 0;
  statement.read(id);
  return id;
}

void check_digest(std::string_view noun, const std::string& digest, const std::string& text) {
  if (digest != xxh3_128_hex(text))
    throw Error(ErrorCode::kStore, fmt::format("a {} does not match its digest {}", noun, digest));
}

// Returns the value of `columns`. Makes and checks it only if the previous row had other columns.
template <class Last, class Columns, class Text, class Make>
const auto& remembered(Last& last, std::string_view noun, const std::string& digest,
                       const Columns& columns, Text&& text, Make&& make) {
  if (digest.empty() || last.digest != digest || last.columns != columns) {
    check_digest(noun, digest, text());
    last.value = make(columns);
    last.columns = columns;
    last.digest = digest;
  }
  return last.value;
}

std::string shape_digest(const Shape& shape) { return xxh3_128_hex(to_text(shape)); }

// Inserts the row of `digest`, or overwrites a damaged row. Does not write an equal row again.
template <class... Values>
int64_t upsert(Database& database, const char* table, std::string_view sql,
               const std::string& digest, const Values&... values) {
  Statement statement(database, sql);
  statement.bind(digest, values...).run();
  const auto id = find_id(database, table, digest);
  if (!id)
    throw Error(ErrorCode::kInternal,
                fmt::format("store: {} {} was written but is not found", table, digest));
  return *id;
}

int64_t ensure_shape(Database& database, const Shape& shape) {
  return upsert(
      database, "shape",
      "INSERT INTO shape (digest, text, bucket) VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE"
      " SET text = excluded.text, bucket = excluded.bucket WHERE (text, bucket) <> (excluded.text, "
      "excluded.bucket)",
      shape_digest(shape), to_text(shape), bucket_of(shape));
}

int64_t ensure_device(Database& database, const DeviceIdentity& d) {
  return upsert(
      database, "device",
      "INSERT INTO device (digest, arch, sm_count, shared_bytes_per_block, registers_per_sm, "
      "l2_bytes,"
      " memory_bus_bits, memory_clock_khz, slice, name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
      " ON CONFLICT (digest) DO UPDATE SET (arch, sm_count, shared_bytes_per_block, "
      "registers_per_sm, l2_bytes,"
      " memory_bus_bits, memory_clock_khz, slice, name) = (excluded.arch, excluded.sm_count,"
      " excluded.shared_bytes_per_block, excluded.registers_per_sm, excluded.l2_bytes, "
      "excluded.memory_bus_bits,"
      " excluded.memory_clock_khz, excluded.slice, excluded.name)"
      " WHERE (arch, sm_count, shared_bytes_per_block, registers_per_sm, l2_bytes, memory_bus_bits,"
      " memory_clock_khz, slice, name) <> (excluded.arch, excluded.sm_count, "
      "excluded.shared_bytes_per_block,"
      " excluded.registers_per_sm, excluded.l2_bytes, excluded.memory_bus_bits, "
      "excluded.memory_clock_khz,"
      " excluded.slice, excluded.name)",
      d.digest(), d.arch, d.sm_count, d.shared_bytes_per_block, d.registers_per_sm, d.l2_bytes,
      d.memory_bus_bits, d.memory_clock_khz, d.slice, d.name);
}

}  // namespace

const char* const kProblemColumns = "p.digest, p.text";
const char* const kShapeColumns = "s.digest, s.text";
const char* const kDeviceColumns =
    "d.digest, d.arch, d.sm_count, d.shared_bytes_per_block, d.registers_per_sm, d.l2_bytes, "
    "d.memory_bus_bits,"
    " d.memory_clock_khz, d.slice, d.name";
const char* const kToolchainColumns =
    "c.digest, c.template_name, c.template_digest, c.compiler, c.options";

std::string problem_digest(const KernelSpec& spec) { return xxh3_128_hex(to_text(spec)); }

std::optional<int64_t> find_problem(Database& database, const KernelSpec& spec) {
  return find_id(database, "problem", problem_digest(spec));
}

int64_t ensure_problem(Database& database, const KernelSpec& spec) {
  for (const StoredProgram& program : programs_of(spec)) ensure_program(database, program);
  return upsert(database, "problem",
                "INSERT INTO problem (digest, text) VALUES (?, ?) ON CONFLICT (digest) DO UPDATE "
                "SET text = excluded.text"
                " WHERE text <> excluded.text",
                problem_digest(spec), to_text(spec));
}

std::optional<int64_t> find_device(Database& database, const DeviceIdentity& device) {
  return find_id(database, "device", device.digest());
}

std::optional<int64_t> find_toolchain(Database& database, const ToolchainIdentity& toolchain) {
  return find_id(database, "toolchain", toolchain.digest());
}

int64_t ensure_toolchain(Database& database, const ToolchainIdentity& t) {
  return upsert(
      database, "toolchain",
      "INSERT INTO toolchain (digest, template_name, template_digest, compiler, options) VALUES "
      "(?, ?, ?, ?, ?)"
      " ON CONFLICT (digest) DO UPDATE SET (template_name, template_digest, compiler, options)"
      " = (excluded.template_name, excluded.template_digest, excluded.compiler, excluded.options)"
      " WHERE (template_name, template_digest, compiler, options)"
      " <> (excluded.template_name, excluded.template_digest, excluded.compiler, excluded.options)",
      t.digest(), t.template_name, t.template_digest, t.compiler, t.options);
}

std::optional<KeyIds> find_key(Database& database, const TuningKey& key) {
  const auto problem = find_problem(database, key.spec);
  const auto shape = find_id(database, "shape", shape_digest(key.shape));
  const auto device = find_device(database, key.device);
  if (!problem || !shape || !device) return std::nullopt;
  return KeyIds{*problem, *shape, *device};
}

KeyIds ensure_key(Database& database, const TuningKey& key) {
  return {ensure_problem(database, key.spec), ensure_shape(database, key.shape),
          ensure_device(database, key.device)};
}

const KernelSpec& IdentityReader::problem(Statement& row) {
  std::string digest, text;
  row.read(digest, text);
  return remembered(
      problem_, "problem", digest, text, [&] { return text; }, parse_spec_text);
}

const Shape& IdentityReader::shape(Statement& row) {
  std::string digest, text;
  row.read(digest, text);
  return remembered(
      shape_, "shape", digest, text, [&] { return text; }, parse_shape_text);
}

const DeviceIdentity& IdentityReader::device(Statement& row) {
  std::string digest;
  DeviceIdentity d;
  row.read(digest, d.arch, d.sm_count, d.shared_bytes_per_block, d.registers_per_sm, d.l2_bytes,
           d.memory_bus_bits, d.memory_clock_khz, d.slice, d.name);
  return remembered(
      device_, "device", digest, d, [&] { return d.text(); }, std::identity());
}

const ToolchainIdentity& IdentityReader::toolchain(Statement& row) {
  std::string digest;
  ToolchainIdentity t;
  row.read(digest, t.template_name, t.template_digest, t.compiler, t.options);
  return remembered(
      toolchain_, "toolchain", digest, t, [&] { return t.text(); }, std::identity());
}

Timing read_timing(Statement& row) {
  Timing t;
  row.read(t.median_us, t.lo_us, t.hi_us, t.min_us, t.samples, t.sm_clock_mhz);
  return t;
}

bool gives_way(Effort old_effort, const Conditions& former, Effort effort, const Conditions& now) {
  return old_effort <= effort || !difference(former, now, "{}{}").empty();
}

TrialStatus checked_status(int value) {
  if (value < 0 || value > static_cast<int>(TrialStatus::kTimedOut))
    throw Error(ErrorCode::kStore, fmt::format("status {} is not known", value));
  return static_cast<TrialStatus>(value);
}

Effort checked_effort(int value) {
  if (value < 1 || value > static_cast<int>(Effort::kExhaustive))
    throw Error(ErrorCode::kStore, fmt::format("effort {} is not known", value));
  return static_cast<Effort>(value);
}

ImageFormat checked_format(int value) {
  if (value < 0 || value > static_cast<int>(ImageFormat::kHostObject))
    throw Error(ErrorCode::kStore, fmt::format("image format {} is not known", value));
  return static_cast<ImageFormat>(value);
}

}  // namespace attune
