// SPDX-License-Identifier: Apache-2.0
// Exchange of rows between stores: JSON lines for review in git, a SQLite slice with images, and
// the rule by which merging chooses between two rows. FORMAT.md has the formats.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

#include "cache/store.hpp"

namespace attune {

struct StoreContents {
  std::vector<StoredTrial> trials;
  std::vector<WinnerRecord> winners;  // with device and policy
  std::vector<StoredImage> images;
  std::vector<StoredProgram> programs;  // named by the rows' problems
};

// Empty fields select everything.
struct ExportFilter {
  std::string device_digest;
  std::string template_name;
  bool images = true;
};
StoreContents read_contents(const Store& store, const ExportFilter& filter = {});

// Writes one header line, then trials, winners and programs, sorted, so that equal contents give
// equal files. Images are left out.
void export_lines(const StoreContents& contents, std::ostream& out);
// Reads the whole file before anything is stored. Throws kInvalidArgument with the faulty line, or
// if the number of rows differs from the header.
StoreContents import_lines(std::istream& in);
// Writes a separate store at `path`: first under another name in the same folder, then renamed.
// Throws kIo if `path` exists.
void export_slice(const StoreContents& contents, const std::filesystem::path& path);

// The rule for two rows of one identity. The row with the higher effort wins, then the row whose
// search ended, then more samples, then the newer row, then the greater text. So any order of
// merges ends with the same rows. Equal rows change nothing. The newer of two pins of a key wins. A
// sound image or program stays; a missing or damaged one is replaced.
enum class MergeAction { kAdd, kReplace, kKeep };
const char* merge_action_name(MergeAction action);  // "add", "replace", "keep"

struct MergeStep {
  MergeAction action = MergeAction::kAdd;
  std::string row;   // "trial", "winner", "pin", "image" or "program"
  std::string what;  // problem, shape, config
  std::string why;   // "new", "higher effort", "more samples", "newer", "the same", ...
};

struct MergePlan {
  std::vector<MergeStep> steps;
  std::vector<std::string> spread;  // about devices of one class that differ (class_spread.hpp)
  int64_t count(MergeAction action) const;
};

}  // namespace attune
