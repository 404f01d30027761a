// SPDX-License-Identifier: Apache-2.0
// Export and import of rows; see exchange.hpp. Merging is in merge.cpp.
#include "cache/exchange.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <istream>
#include <optional>
#include <ostream>

#include "cache/record_json.hpp"
#include "cache/store_impl.hpp"
#include "cache/store_rows.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"

namespace attune {
namespace {

bool selected(const ExportFilter& filter, const DeviceIdentity& device,
              const ToolchainIdentity& toolchain) {
  return (filter.device_digest.empty() || filter.device_digest == device.digest()) &&
         (filter.template_name.empty() || filter.template_name == toolchain.template_name);
}

// True if a winner uses the image. Images have no device, so a device filter selects the images of
// the selected winners.
bool used_by(const StoredImage& image, const std::vector<WinnerRecord>& winners) {
  return std::any_of(winners.begin(), winners.end(), [&](const WinnerRecord& w) {
    return to_text(w.spec) == to_text(image.key.spec) && w.arch == image.key.arch &&
           w.toolchain.digest() == image.key.toolchain.digest() &&
           (w.config == image.key.config || w.default_config == image.key.config);
  });
}

bool names(const SpecFields& spec, const ProgramDigest& program) {
  return spec.scores.score_mod == program || spec.scores.mask_mod == program;
}

// True if the problem of a row names the program.
bool is_named(const ProgramDigest& program, const StoreContents& contents) {
  const auto any = [&](const auto& rows, const auto& spec_of_row) {
    return std::any_of(rows.begin(), rows.end(),
                       [&](const auto& row) { return names(spec_of_row(row), program); });
  };
  return any(contents.trials, [](const StoredTrial& row) { return row.key.spec; }) ||
         any(contents.winners, [](const WinnerRecord& row) { return row.spec; }) ||
         any(contents.images, [](const StoredImage& row) { return row.key.spec; });
}

}  // namespace

StoreContents Store::contents(bool with_images) const {
  return impl_->read([&](Database& database) {
    StoreContents all;
    all.trials = read_all_trials(database);
    all.winners = read_all_winners(database);
    if (with_images) all.images = read_all_images(database);
    all.programs = read_all_programs(database);
    return all;
  });
}

StoreContents read_contents(const Store& store, const ExportFilter& filter) {
  StoreContents contents = store.contents(filter.images);
  std::erase_if(contents.trials, [&](const StoredTrial& row) {
    return !selected(filter, row.key.device, row.trial.toolchain);
  });
  std::erase_if(contents.winners, [&](const WinnerRecord& row) {
    return !selected(filter, row.device, row.toolchain);
  });
  std::erase_if(contents.images, [&](const StoredImage& row) {
    const bool of_template =
        filter.template_name.empty() || filter.template_name == row.key.toolchain.template_name;
    return !of_template || (!filter.device_digest.empty() && !used_by(row, contents.winners));
  });
  std::erase_if(contents.programs,
                [&](const StoredProgram& program) { return !is_named(program.digest, contents); });
  return contents;
}

void export_lines(const StoreContents& contents, std::ostream& out) {
  std::vector<std::string> lines;
  for (const WinnerRecord& row : contents.winners) lines.push_back(winner_line(row));
  for (const StoredTrial& row : contents.trials) lines.push_back(trial_line(row));
  for (const StoredProgram& row : contents.programs) lines.push_back(program_line(row));
  std::sort(lines.begin(), lines.end());
  out << header_line(lines.size()) << '\n';
  for (const std::string& line : lines) out << line << '\n';
  if (!out.flush()) throw Error(ErrorCode::kIo, "the exported rows cannot be written");
}

StoreContents import_lines(std::istream& in) {
  StoreContents contents;
  std::optional<size_t> rows;
  std::string line;
  int number = 1;
  for (; std::getline(in, line); ++number) {
    try {
      const LineKind kind = kind_of_line(line);
      if ((number == 1) != (kind == LineKind::kHeader))
        throw Error(ErrorCode::kInvalidArgument,
                    "the first line, and only that, has kind attune_store");
      if (kind == LineKind::kHeader) rows = rows_of_header(line);
      if (kind == LineKind::kTrial) contents.trials.push_back(parse_trial_line(line));
      if (kind == LineKind::kWinner) contents.winners.push_back(parse_winner_line(line));
      if (kind == LineKind::kProgram) contents.programs.push_back(parse_program_line(line));
    } catch (const Error& error) {
      throw Error(ErrorCode::kInvalidArgument, fmt::format("line {}: {}", number, error.what()));
    }
  }
  if (number == 1)
    throw Error(ErrorCode::kInvalidArgument,
                "it is empty; the first line must have kind attune_store");
  const size_t found = contents.trials.size() + contents.winners.size() + contents.programs.size();
  if (rows && *rows != found)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("its first line says {} rows, and {} follow: the file was cut off or "
                            "edited",
                            *rows, found));
  return contents;
}

namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_slice(const fs::path& path, int reason) {
  throw Error(ErrorCode::kIo,
              reason == EEXIST
                  ? fmt::format("{} exists; must be the name of a new file", path.string())
                  : fmt::format("cannot write {}: {}", path.string(), std::strerror(reason)));
}

// Makes an empty file with a unique name in the folder of `path`, and returns its name.
std::string name_beside(const fs::path& path) {
  std::string name = path.string() + ".partial-XXXXXX";
  const FileDescriptor made(::mkostemp(name.data(), O_CLOEXEC));
  if (!made) refuse_slice(path, errno);
  return name;
}

// Renames a file. Fails if `to` exists, even if another process has just written it.
bool rename_to_new(const fs::path& from, const fs::path& to) {
  if (::link(from.c_str(), to.c_str()) == 0) {
    ::unlink(from.c_str());
    return true;
  }
  if (errno != EPERM && errno != ENOTSUP) return false;
  if (struct stat found{}; ::lstat(to.c_str(), &found) == 0) {  // the file system has no hard links
    errno = EEXIST;
    return false;
  }
  return ::rename(from.c_str(), to.c_str()) == 0;
}

}  // namespace

void export_slice(const StoreContents& contents, const fs::path& path) {
  if (struct stat found{}; ::lstat(path.c_str(), &found) == 0) refuse_slice(path, EEXIST);
  const std::string partial = name_beside(path);
  try {
    Store::open(partial, StoreMode::kReadWrite).merge(contents);
    if (!rename_to_new(partial, path)) refuse_slice(path, errno);
  } catch (...) {
    ::unlink(partial.c_str());
    ::unlink((partial + "-journal").c_str());
    throw;
  }
}

const char* merge_action_name(MergeAction action) {
  switch (action) {
    case MergeAction::kAdd:
      return "add";
    case MergeAction::kReplace:
      return "replace";
    case MergeAction::kKeep:
      return "keep";
  }
  return "?";
}

int64_t MergePlan::count(MergeAction action) const {
  return std::count_if(steps.begin(), steps.end(),
                       [&](const MergeStep& step) { return step.action == action; });
}

}  // namespace attune
