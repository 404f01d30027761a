// SPDX-License-Identifier: Apache-2.0
// Chooses a folder, a file or an object by name, and describes a changed bundle; see
// bundle_output.hpp.
#include "tuner/cli/output/bundle_output.hpp"

#include <fmt/format.h>

#include <cctype>
#include <filesystem>
#include <set>

#include "generator/core/system/error.hpp"
#include "runtime/bundles/bundle_file.hpp"
#include "tuner/cli/output/output.hpp"

namespace attune::cli {
namespace {

// Returns one line of a C comment per kernel. No kernel's text contains a star, so none ends the
// comment.
std::string kernel_lines(const std::vector<BundledKernel>& kernels) {
  std::set<std::string> lines;
  for (const BundledKernel& kernel : kernels)
    lines.insert(fmt::format(" * {}: {} {}\n", kernel.key.arch, kernel.key.toolchain.template_name,
                             to_problem_text(kernel.key.spec)));
  std::string text;
  for (const std::string& line : lines) text += line;
  return text;
}

// Throws if `place` is a new folder with a file ending: whoever types such a name probably wants a
// file.
void check_folder_name(const std::filesystem::path& place) {
  const std::string ending = place.extension().string();
  std::error_code failed;
  if (ending.size() < 2 || std::isalpha(static_cast<unsigned char>(ending[1])) == 0 ||
      std::filesystem::is_directory(place, failed))
    return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("the output is {0}; must be NAME.attune, NAME.o or a folder; for a new "
                          "folder of this name give {0}/",
                          place.string()));
}

}  // namespace

const char* const kOutputHelp =
    "Output: a folder of compiled kernels with manifest.json (kernels already in it stay); or "
    "NAME.attune, a single file; or NAME.o, an object to link into a program, with a header NAME.h";

const char* const kZstdHelp =
    "Compress the kernels of NAME.attune or NAME.o with Zstandard. A kernel is unpacked at its "
    "first use, with libzstd.so.1 of the machine that runs it";

BundleChange write_kernels(const std::string& place, const std::vector<BundledKernel>& kernels,
                           Packing packing) {
  const std::string ending = std::filesystem::path(place).extension().string();
  if (ending == ".attune") {
    write_bundle_file(place, kernels, packing);
    return {};
  }
  if (ending != ".o" && packing != Packing::kNone)
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("--zstd is given for the folder {}; must be NAME.attune or NAME.o", place));
  if (ending != ".o") {
    check_folder_name(place);
    return write_bundle(place, kernels);
  }
  const std::string name = symbol_name(place);
  write_file(place, object_of(bundle_bytes(kernels, packing), name));
  write_file(std::filesystem::path(place).replace_extension(".h"),
             header_of(name, kernel_lines(kernels)));
  return {};
}

std::string bundle_change_text(const BundleChange& change) {
  std::string text;
  if (change.kept > 0)
    text += fmt::format("{} other kernels of that bundle are kept\n", change.kept);
  if (change.unnamed > 0)
    text += fmt::format(
        "{} image files belong to kernels that the bundle no longer lists; delete them once no "
        "running program uses the former bundle\n",
        change.unnamed);
  return text;
}

}  // namespace attune::cli
