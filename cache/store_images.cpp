// SPDX-License-Identifier: Apache-2.0
// Images: compiled bytes with a SHA-256 over them and their identity, which is checked at each
// read.
#include <fmt/format.h>

#include <tuple>

#include "cache/record_json.hpp"
#include "cache/store_impl.hpp"
#include "cache/store_rows.hpp"
#include "generator/core/system/digest.hpp"

namespace attune {
namespace {

struct ImageRow {
  StoredImage image;
  std::string sha256;  // as stored
  int64_t id = 0;

  bool newer_than(const ImageRow& other) const {
    return std::tie(image.created, id) > std::tie(other.image.created, other.id);
  }
};

// Returns the SHA-256 of an image and its key. Bytes that damage has moved to another key are
// therefore refused. FORMAT.md has the layout. Rows of schema 3 have no source digest and the first
// layout.
std::string image_sha256(const ImageKey& key, const KernelImage& image) {
  const std::string head =
      fmt::format("attune image v{}\n{}\n{}\n{}\n{}\n{}\n{}\n", key.source_digest.empty() ? 1 : 2,
                  problem_digest(key.spec), key.toolchain.digest(), key.arch, key.config.to_text(),
                  static_cast<int>(image.format), image.entry);
  const std::string source =
      key.source_digest.empty() ? std::string() : fmt::format("{}\n", key.source_digest);
  return sha256_hex(head + source, image.bytes);
}

std::string select_images(std::string_view where) {
  return fmt::format(
      "SELECT {}, {}, i.arch, i.config, i.format, i.entry, i.sha256, i.info, i.log, i.compile_ms, "
      "i.created, i.bytes, i.id, i.source_digest"
      " FROM image i JOIN problem p ON p.id = i.problem_id JOIN toolchain c ON c.id = "
      "i.toolchain_id {}",
      kProblemColumns, kToolchainColumns, where);
}

ImageRow read_image(Statement& row) {
  ImageRow read;
  ImageKey& key = read.image.key;
  KernelImage& image = read.image.image;
  IdentityReader identities;
  key.spec = identities.problem(row);
  key.toolchain = identities.toolchain(row);
  std::string config, info;
  int format = 0;
  row.read(key.arch, config, format, image.entry, read.sha256, info, image.log, image.compile_ms,
           read.image.created);
  row.read_bytes(image.bytes);
  row.read(read.id, key.source_digest);
  key.config = parse_config(config);
  image.format = checked_format(format);
  image.info = parse_info_text(info);
  if (image_sha256(key, image) != read.sha256)
    throw Error(ErrorCode::kStore,
                fmt::format("image of {} ({}, {}) does not match its SHA-256 and is not used",
                            to_text(key.spec), key.arch, key.config.to_text()));
  return read;
}

// Returns the newest image. It does not use ORDER BY, with which SQLite's sorter would copy the
// bytes of each image, although there is mostly only one.
std::optional<StoredImage> newest_image(Statement& select) {
  std::optional<ImageRow> newest;
  for_each_row(select, "image", [&](Statement& row) {
    ImageRow read = read_image(row);
    if (!newest || read.newer_than(*newest)) newest = std::move(read);
  });
  if (!newest) return std::nullopt;
  return std::move(newest->image);
}

std::optional<StoredImage> find_image_of(Database& database, const WinnerRecord& winner) {
  Statement select(
      database,
      select_images("WHERE p.digest = ? AND i.arch = ? AND i.config = ? AND c.digest = ?"));
  select.bind(problem_digest(winner.spec), winner.arch, winner.config.to_text(),
              winner.toolchain.digest());
  return newest_image(select);
}

}  // namespace

void replace_image(Database& database, const StoredImage& stored) {
  const ImageKey& key = stored.key;
  const KernelImage& image = stored.image;
  const int64_t problem = ensure_problem(database, key.spec);
  const int64_t toolchain = ensure_toolchain(database, key.toolchain);
  Statement insert(database,
                   "INSERT OR REPLACE INTO image (problem_id, toolchain_id, arch, config, format, "
                   "entry, sha256, info, log,"
                   " compile_ms, created, bytes, source_digest)"
                   " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");
  insert.bind(problem, toolchain, key.arch, key.config.to_text(), image.format, image.entry,
              image_sha256(key, image), info_text(image.info), image.log, image.compile_ms,
              stored.created, Blob{image.bytes}, key.source_digest);
  insert.run();
}

std::optional<KernelImage> find_image(Database& database, const ImageKey& key) {
  const ToolchainIdentity& t = key.toolchain;
  Statement select(
      database,
      select_images("WHERE p.digest = ?1 AND i.arch = ?2 AND i.config = ?3 AND c.template_name = ?4"
                    " AND (i.source_digest = ?5 OR (?5 = '' AND c.template_digest = ?8))"
                    " AND (c.compiler = ?6 OR ?6 = '')"
                    " AND (c.options = ?7 OR (?6 = '' AND ?7 = ''))"));
  select.bind(problem_digest(key.spec), key.arch, key.config.to_text(), t.template_name,
              key.source_digest, t.compiler, t.options, t.template_digest);
  std::optional<StoredImage> newest = newest_image(select);
  if (!newest) return std::nullopt;
  return std::move(newest->image);
}

std::vector<StoredImage> read_all_images(Database& database) {
  std::vector<StoredImage> images;
  Statement select(database, select_images("ORDER BY i.id"));
  for_each_row(select, "image", [&](Statement& row) { images.push_back(read_image(row).image); });
  return images;
}

std::vector<std::string> image_faults(Database& database) {
  std::vector<std::string> faults;
  Statement select(database, select_images("ORDER BY i.id"));
  while (select.step()) {
    try {
      read_image(select);
    } catch (const Error& error) {
      faults.emplace_back(error.what());
    }
  }
  return faults;
}

void Store::put_image(const ImageKey& key, const KernelImage& image) {
  if (key.toolchain.compiler.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "put_image: toolchain.compiler is empty; an image is stored under the compiler "
                "that made it");
  if (key.source_digest.empty())
    throw Error(ErrorCode::kInvalidArgument,
                "put_image: source_digest is empty; an image is stored under the digest of its "
                "source");
  impl_->write([&](Database& database) { replace_image(database, {key, image, utc_now()}); });
}

std::optional<KernelImage> Store::image(const ImageKey& key) const {
  return impl_->read([&](Database& database) { return find_image(database, key); });
}

std::optional<StoredImage> Store::image_of(const WinnerRecord& winner) const {
  return impl_->read([&](Database& database) { return find_image_of(database, winner); });
}

}  // namespace attune
