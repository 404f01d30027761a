// SPDX-License-Identifier: Apache-2.0
// Looking an image up, or rendering and compiling it; see image_source.hpp.
#include "runtime/engine/image_source.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "generator/render/renderer.hpp"
#include "runtime/engine/options.hpp"

namespace attune {
namespace {

std::string cache_key(const Choice& choice) {
  return fmt::format("{}|{}|{}|{}", choice.family.kernel_template->name(),
                     choice.family.arch.name(), to_text(choice.spec), choice.config.to_text());
}

// Returns a key without a compiler, which finds the image of this source by any compiler.
ImageKey image_key(const Choice& choice, const Source& source) {
  return {choice.spec,
          choice.family.arch.name(),
          {std::string(choice.family.kernel_template->name()), "", "", ""},
          choice.config,
          source_digest(source)};
}

LaunchStructure structure_of(const Choice& choice) {
  return choice.family.kernel_template->structure(choice.spec, choice.config);
}

// Returns the options that an image must have to run here; empty = any. A cubin runs on each device
// of its arch. Host code needs the CPU features that it was compiled for. The options list these
// features, because CPUs of one name may differ: virtual machines hide some. Reading the options
// does not open clang.
std::string needed_options(const Device& device, const Arch& arch) {
  return device.target() == Target::kCpu ? device.compiler().options(arch) : std::string();
}

std::string bundle_archs(const std::vector<Bundle>& bundles) {
  std::set<std::string> archs;
  for (const Bundle& bundle : bundles) archs.merge(bundle.archs());
  return fmt::format("{}", fmt::join(archs, ", "));
}

// Logs bundles without kernels for this device when they are opened. Later look-ups skip them
// silently.
void note_strangers(const std::vector<Bundle>& bundles, const Device& device) {
  for (const Bundle& bundle : bundles) {
    bool serves = false;
    std::string here;
    for (const Arch& arch : device.archs()) {
      serves = serves || bundle.serves(arch.name(), needed_options(device, arch));
      here += (here.empty() ? "" : " or ") + arch.name();
    }
    if (!serves)
      log(LogCode::kBundleForOtherArch,
          fmt::format(
              "bundle {} holds kernels for {}{}; this device runs those for {}",
              bundle.folder().string(), fmt::join(bundle.archs(), ", "),
              bundle.serves(device.archs().front().name(), "") ? " with other CPU features" : "",
              here));
  }
}

// Logs stores that are named explicitly and missing, except the user's store, which is created on
// the first write.
void note_missing_stores(const EngineOptions& options) {
  if (!options.use_store) return;
  std::error_code failed;
  for (const std::filesystem::path& store : options.more_stores)
    if (std::filesystem::status(store, failed).type() == std::filesystem::file_type::not_found)
      log(LogCode::kStoreLayerPassedOver,
          fmt::format(
              "a layer is passed over: ATTUNE_SITE_STORES or the program names the store {}, but "
              "there is none",
              store.string()));
}

}  // namespace

ImageSource::ImageSource(std::shared_ptr<const Device> device, const EngineOptions& options)
    : device_(std::move(device)),
      may_compile_(options.may_compile),
      keep_images_(options.keep_images && !user_store_of(options).empty()),
      stores_(store_layers(options)) {
  for (const std::string_view bytes : options.memory_bundles)
    bundles_.push_back(Bundle::open_memory(bytes));
  for (const std::filesystem::path& folder : options.bundles)
    bundles_.push_back(Bundle::open(folder));
  note_strangers(bundles_, *device_);
  note_missing_stores(options);
}

CachedKernel ImageSource::kernel(const Choice& choice) {
  return kernels_.get(cache_key(choice), [&] { return obtain(choice, Compile::kNow); });
}

CachedKernel ImageSource::foresee(const Choice& choice) const {
  return obtain(choice, Compile::kLater);
}

// Returns a kernel with warnings about damaged files. Without a kernel, the error has the warnings.
CachedKernel ImageSource::obtain(const Choice& choice, Compile compile) const {
  const WarningCollector warnings;
  try {
    CachedKernel made = make(choice, compile);
    made.warnings = warnings.texts();
    return made;
  } catch (const Error& error) {
    if (warnings.texts().empty()) throw;
    throw Error(error.code(),
                fmt::format("{}; {}", fmt::join(warnings.texts(), "; "), error.what()));
  }
}

CachedKernel ImageSource::make(const Choice& choice, Compile compile) const {
  const Source source =
      render(*choice.family.kernel_template, choice.spec, choice.family.arch, choice.config);
  ImageKey key = image_key(choice, source);
  key.toolchain.options = needed_options(*device_, choice.family.arch);
  if (CachedKernel found = stored(choice, key); found.kernel) return found;
  if (CachedKernel found = as_timed(choice, key); found.kernel) return found;
  if (!may_compile_)
    throw Error(
        ErrorCode::kWouldCompile,
        fmt::format("no image of {} for {} with {} in any bundle or store, and compiling "
                    "is not allowed (no_jit){}",
                    key.toolchain.template_name, key.arch, key.config.to_text(),
                    bundles_.empty() ? std::string()
                                     : "; the bundles hold kernels for " + bundle_archs(bundles_)));
  if (compile == Compile::kNow) return compiled(choice, source, key);
  const Compiler& compiler = device_->compiler();
  compiler.open();
  return {nullptr, "compiler " + compiler.version(), {}};
}

// Returns the kernel of a bundle or store, or none. An image that does not load is skipped, like a
// damaged one.
CachedKernel ImageSource::stored(const Choice& choice, const ImageKey& key) const {
  const auto load = [&](const std::optional<KernelImage>& image, const char* from) -> CachedKernel {
    if (image) try {
        return {device_->load(*image, key.spec, structure_of(choice)), from, {}};
      } catch (const Error& error) {
        log(LogCode::kImageRefused, fmt::format("an image of {} from a {} is not used: {}",
                                                key.toolchain.template_name, from, error.what()));
      }
    return {};
  };
  for (const Bundle& bundle : bundles_)
    if (CachedKernel found = load(bundle.image(key), "bundle"); found.kernel) return found;
  if (CachedKernel found = load(stores_.image(key), "store"); found.kernel) return found;
  return {};
}

// Returns the winner's image as it was timed, if it was compiled from another text of the same
// revision of the template; otherwise none.
CachedKernel ImageSource::as_timed(const Choice& choice, ImageKey key) const {
  if (!choice.winner) return {};  // the digest takes longer than a look-up
  const std::string& now = template_digest(*choice.family.kernel_template);
  const std::string& timed = choice.winner->toolchain.template_digest;
  if (timed == now || !same_revision(now, timed)) return {};
  key.source_digest.clear();
  key.toolchain.template_digest = timed;
  return stored(choice, key);
}

CachedKernel ImageSource::compiled(const Choice& choice, const Source& source, ImageKey key) const {
  const Compiler& compiler = device_->compiler();
  const Arch& arch = choice.family.arch;
  const KernelImage image = compiler.compile(source, arch);
  key.toolchain.compiler = compiler.version();
  key.toolchain.options = compiler.options(arch);
  CachedKernel made{device_->load(image, key.spec, structure_of(choice)),
                    "compiler " + key.toolchain.compiler,
                    {}};
  key.toolchain.template_digest = template_digest(*choice.family.kernel_template);
  if (keep_images_) keep(key, image);
  return made;
}

void ImageSource::keep(const ImageKey& key, const KernelImage& image) const {
  try {
    stores_.put_image(key, image);
  } catch (const std::exception& error) {
    log(LogCode::kImageNotKept, fmt::format("the compiled kernel is not kept: {}", error.what()));
  }
}

}  // namespace attune
