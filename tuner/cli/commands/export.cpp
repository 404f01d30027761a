// SPDX-License-Identifier: Apache-2.0
// `attune export`: writes the tuned kernels of a store as a folder of cubins (or host objects) with
// manifest.json, as one file, or as an object to link. The runtime loads them without compiler and
// store (runtime/bundles/bundle.hpp). Images that the store lacks are compiled, if a compiler is
// present.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>

#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/render/renderer.hpp"
#include "runtime/bundles/bundle.hpp"
#include "tuner/cli/command.hpp"
#include "tuner/cli/commands/db_commands.hpp"
#include "tuner/cli/kernel_choice.hpp"
#include "tuner/cli/output/bundle_output.hpp"
#include "tuner/cli/output/output.hpp"
#include "tuner/cli/workload_options.hpp"

namespace attune::cli {
namespace {

struct Options : DbOptions {
  std::string folder;
  std::string archs;
  std::vector<std::string> only;  // problems and models
  std::vector<std::string> captured;
  bool zstd = false;
};

// Winners that share a kernel.
using Sharers = std::vector<WinnerRecord>;

// The kinds of problem that one --only or --captured names. Lengths do not matter.
struct Wanted {
  std::string option;  // "--only problem", as given
  std::vector<KernelSpec> kinds;
  bool found = false;
};

Wanted wanted_by(const std::string& option, WorkloadOptions workload) {
  Wanted wanted{option, {}};
  workload.tells_notes = false;  // for each target; they are about times
  for (const Target target : {Target::kCuda, Target::kCpu})
    for (const Problem& problem : workload_of(workload, target).problems)
      wanted.kinds.push_back(spec_of(problem));
  return wanted;
}

std::vector<Wanted> all_wanted(const Options& options) {
  std::vector<Wanted> all;
  for (const std::string& one : options.only) {
    WorkloadOptions workload;
    if (one.find('=') == std::string::npos)
      workload.model = one;
    else
      workload.problems = {one};
    all.push_back(wanted_by("--only " + one, workload));
  }
  if (options.captured.empty()) return all;
  WorkloadOptions workload;
  workload.captured = options.captured;
  all.push_back(wanted_by(fmt::format("--captured {}", fmt::join(options.captured, " --captured ")),
                          workload));
  return all;
}

// True if the winner's problem is of one of these kinds. Kinds are compared at the winner's own
// lengths, where a window that is wider than the keys makes no difference.
bool is_of(const std::vector<KernelSpec>& kinds, const WinnerRecord& winner) {
  const auto at_its_lengths = [&](const KernelSpec& spec) {
    return spec_of(canonical(problem_of(spec, winner.shape)));
  };
  const KernelSpec own = at_its_lengths(winner.spec);
  return std::any_of(kinds.begin(), kinds.end(), [&](const KernelSpec& kind) {
    return kind.gqa_ratio == own.gqa_ratio && at_its_lengths(kind) == own;
  });
}

// True if any entry of `all` names the winner. Marks each of these entries as found.
bool is_wanted(const WinnerRecord& winner, std::vector<Wanted>* all) {
  bool wanted = false;
  for (Wanted& one : *all) {
    if (!is_of(one.kinds, winner)) continue;
    wanted = one.found = true;
  }
  return wanted;
}

// Returns the selected kernels in the order of the store.
std::vector<Sharers> kernels_of(const Store& store, const Options& options) {
  const std::vector<std::string> archs =
      options.archs.empty() ? std::vector<std::string>{} : split_list(options.archs, "--arch");
  const auto is_chosen = [&](const std::string& arch) {
    return archs.empty() || std::any_of(archs.begin(), archs.end(), [&](const std::string& one) {
             return arch_meant(one) == arch || one == arch ||
                    (one == "cpu" && arch.starts_with("cpu:"));
           });
  };
  std::vector<Wanted> wanted = all_wanted(options);
  std::vector<Sharers> kernels;
  std::map<std::string, size_t> seen;
  for (const WinnerRecord& winner : store.all_winners()) {
    if (winner.device.digest().rfind(options.device, 0) != 0) continue;
    if (!options.template_name.empty() && options.template_name != winner.toolchain.template_name)
      continue;
    if (!is_chosen(winner.arch)) continue;
    if (!wanted.empty() && !is_wanted(winner, &wanted)) continue;
    const std::string text = fmt::format("{} {} {} {}", to_text(winner.spec), winner.arch,
                                         winner.toolchain.digest(), winner.config.to_text());
    const auto [at, is_new] = seen.emplace(text, kernels.size());
    if (is_new) kernels.emplace_back();
    kernels[at->second].push_back(winner);
  }
  for (const Wanted& one : wanted)
    if (!one.found)
      throw Error(ErrorCode::kNotTuned,
                  fmt::format("{} has no tuned kernel for {} with these options; run `attune tune` "
                              "first, or see `attune db ls`",
                              options.path().string(), one.option));
  return kernels;
}

// Compiles the winner's kernel. Throws if the template has changed since the winner was measured,
// because its kernel can no longer be made.
StoredImage make_image(const WinnerRecord& winner) {
  const KernelTemplate& one = template_by_name(winner.toolchain.template_name);
  if (!same_revision(template_digest(one), winner.toolchain.template_digest))
    throw Error(ErrorCode::kNotTuned,
                fmt::format("template {} has changed since {} was tuned, and the store has no "
                            "image of the tuned kernel; tune again",
                            one.name(), to_text(winner.spec)));
  const Arch arch =
      winner.arch.rfind("cpu:", 0) == 0 ? arch_by_name("cpu").arch : parse_arch(winner.arch);
  if (arch.name() != winner.arch)
    throw Error(ErrorCode::kCompile,
                fmt::format("the store has no image for {}, and this machine ({}) cannot make one",
                            winner.arch, arch.name()));
  const Source source = render(one, winner.spec, arch, winner.config);
  return {{winner.spec, winner.arch, winner.toolchain, winner.config, source_digest(source)},
          compiler_for(arch).compile(source, arch),
          {}};
}

int export_kernels(const Options& options) {
  const Store store = open_db(options);
  std::vector<BundledKernel> bundled;
  size_t compiled = 0;
  for (Sharers& sharers : kernels_of(store, options)) {
    auto image = store.image_of(sharers.front());
    if (!image) {
      image = make_image(sharers.front());
      ++compiled;
    }
    bundled.push_back({std::move(image->key), std::move(image->image), std::move(sharers)});
  }
  if (bundled.empty())
    throw Error(ErrorCode::kNotTuned, fmt::format("{} has no tuned kernel for these options; run "
                                                  "`attune tune` first, or see `attune db ls`",
                                                  options.path().string()));
  const BundleChange change =
      write_kernels(options.folder, bundled, options.zstd ? Packing::kZstd : Packing::kNone);
  size_t bytes = 0;
  size_t shapes = 0;
  for (const BundledKernel& kernel : bundled) {
    bytes += kernel.image.bytes.size();
    shapes += kernel.winners.size();
  }
  if (options.json)
    print_json("export", {{"folder", options.folder},
                          {"kernels", bundled.size()},
                          {"tuned_shapes", shapes},
                          {"image_bytes", bytes},
                          {"compiled", compiled},
                          {"kept", change.kept},
                          {"unnamed_files", change.unnamed}});
  else
    print(fmt::format("wrote {} kernels for {} tuned shapes ({}) to {}{}\n{}", bundled.size(),
                      shapes, format_bytes(static_cast<double>(bytes)),
                      std::filesystem::is_directory(options.folder) ? "the folder " : "",
                      options.folder, bundle_change_text(change)));
  return kOk;
}

}  // namespace

void add_export(Command program, int* exit_code) {
  const auto options = std::make_shared<Options>();
  Command command = add_command(
      program, "export",
      "Write tuned kernels as a folder, a file or an object; they run without compiler and store",
      "attune export kernels/ --arch sm_90a   # then run with ATTUNE_BUNDLE=kernels/",
      &options->json);
  command.add_option("OUTPUT", options->folder, kOutputHelp).required();
  command.add_flag("--zstd", options->zstd, kZstdHelp);
  command.add_option("--only", options->only,
                     "Only kernels for a model (its config.json) or for a problem (key=value,...), "
                     "at every tuned length. May be given several times");
  command
      .add_option("--captured", options->captured,
                  "Only kernels for the problems that a program captured with "
                  "ATTUNE_CAPTURE=FILE; combines with --only. May be given several times")
      .repeated();
  command.add_option("--arch", options->archs,
                     "Only these archs, a comma-separated list (default: all in the store)");
  command.add_option(
      "--store", options->store,
      "Store to export from (default: $ATTUNE_STORE, else ~/.cache/attune/store.db)");
  add_db_filter(command, options.get());
  command.callback([options, exit_code] { *exit_code = export_kernels(*options); });
}

}  // namespace attune::cli
