// SPDX-License-Identifier: Apache-2.0
// Rows on their way between stores: JSON lines for review in git, a SQLite slice with images, and
// the rule by which a store takes them in. FORMAT.md has the forms.
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
  std::vector<StoredProgram> programs;  // that the rows' problems name
};

// Empty fields select everything.
struct ExportFilter {
  std::string device_digest;
  std::string template_name;
  bool images = true;
};
StoreContents read_contents(const Store& store, const ExportFilter& filter = {});

// One header line, then trials, winners and programs, sorted, so that equal contents give equal files. Images
// are left out.
void export_lines(const StoreContents& contents, std::ostream& out);
// Reads the whole file before anything is stored. Throws kInvalidArgument, naming the line, or when
// the number of rows is not what the header says.
StoreContents import_lines(std::istream& in);
// A store of its own at `path`, written beside it and renamed when complete. Throws kIo when `path`
// exists.
void export_slice(const StoreContents& contents, const std::filesystem::path& path);

// The rule, for two rows of one identity: higher effort, then a search that came to its end, then
// more samples, then newer, then the text of the row, so that any order of merges ends with the same
// rows. Equal rows change nothing. Of two pins of a key the newer one stays. A sound image or
// program stays; a missing or damaged one is taken.
enum class MergeAction { kAdd, kReplace, kKeep };
const char* merge_action_name(MergeAction action);  // "add", "replace", "keep"

struct MergeStep {
  MergeAction action = MergeAction::kAdd;
  std::string row;   // "trial", "winner", "pin", "image" or "program"
  std::string what;  // which: problem, shape, config
  std::string why;   // "new", "higher effort", "more samples", "newer", "the same", ...
};

struct MergePlan {
  std::vector<MergeStep> steps;
  std::vector<std::string> spread;  // devices of one class that differ (class_spread.hpp)
  int64_t count(MergeAction action) const;
};

}  // namespace attune
