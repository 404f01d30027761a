// SPDX-License-Identifier: Apache-2.0
// The only file that uses NVRTC's entry points (declared here, as in nvrtc.h); see
// nvrtc_compiler.hpp.
#include "generator/compile/nvrtc_compiler.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "generator/compile/nvrtc_locate.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"
#include "generator/core/system/log.hpp"

namespace attune {
namespace {

using Program = void*;  // nvrtcProgram
using Result = int;     // nvrtcResult, 0 = success

// X(member, symbol, result, parameters)
#define ATTUNE_NVRTC_FUNCTIONS(X)                                                      \
  X(version, nvrtcVersion, Result, (int*, int*))                                       \
  X(error_string, nvrtcGetErrorString, const char*, (Result))                          \
  X(num_archs, nvrtcGetNumSupportedArchs, Result, (int*))                              \
  X(archs, nvrtcGetSupportedArchs, Result, (int*))                                     \
  X(create, nvrtcCreateProgram, Result,                                                \
    (Program*, const char*, const char*, int, const char* const*, const char* const*)) \
  X(destroy, nvrtcDestroyProgram, Result, (Program*))                                  \
  X(compile, nvrtcCompileProgram, Result, (Program, int, const char* const*))          \
  X(log_size, nvrtcGetProgramLogSize, Result, (Program, size_t*))                      \
  X(log, nvrtcGetProgramLog, Result, (Program, char*))                                 \
  X(cubin_size, nvrtcGetCUBINSize, Result, (Program, size_t*))                         \
  X(cubin, nvrtcGetCUBIN, Result, (Program, char*))                                    \
  X(ptx_size, nvrtcGetPTXSize, Result, (Program, size_t*))                             \
  X(ptx, nvrtcGetPTX, Result, (Program, char*))

struct Nvrtc {
#define ATTUNE_DECLARE(member, symbol, result, parameters) result(*member) parameters = nullptr;
  ATTUNE_NVRTC_FUNCTIONS(ATTUNE_DECLARE)
#undef ATTUNE_DECLARE
  int major = 0;
  int minor = 0;
  std::vector<int> known_archs;

  // Returns false if a symbol is missing. The library stays open for the life of the process.
  bool bind(void* library) {
#define ATTUNE_BIND(member, symbol, result, parameters)                       \
  member = reinterpret_cast<result(*) parameters>(::dlsym(library, #symbol)); \
  if (member == nullptr) return false;
    ATTUNE_NVRTC_FUNCTIONS(ATTUNE_BIND)
#undef ATTUNE_BIND
    int count = 0;
    if (version(&major, &minor) != 0 || num_archs(&count) != 0) return false;
    known_archs.resize(static_cast<size_t>(count));
    return archs(known_archs.data()) == 0;
  }
};

// Owns one nvrtcProgram.
class ProgramHandle {
 public:
  ProgramHandle(const Nvrtc& nvrtc, const Source& source) : nvrtc_(nvrtc) {
    const Result result =
        nvrtc.create(&program_, source.text.c_str(), source.file_name.c_str(), 0, nullptr, nullptr);
    if (result != 0)
      throw Error(ErrorCode::kCompile,
                  fmt::format("nvrtcCreateProgram: {}", nvrtc.error_string(result)));
  }
  ~ProgramHandle() { nvrtc_.destroy(&program_); }
  ProgramHandle(const ProgramHandle&) = delete;
  ProgramHandle& operator=(const ProgramHandle&) = delete;

  Program get() const { return program_; }

  std::string log() const {
    size_t size = 0;
    if (nvrtc_.log_size(program_, &size) != 0 || size <= 1) return {};
    std::string text(size, '\0');
    if (nvrtc_.log(program_, text.data()) != 0) return {};
    text.erase(std::find(text.begin(), text.end(), '\0'),
               text.end());  // one line or, with the compiler's timing, two
    return text;
  }

  std::string cubin() const { return output(nvrtc_.cubin_size, nvrtc_.cubin, "nvrtcGetCUBIN"); }
  std::string ptx() const {
    std::string text = output(nvrtc_.ptx_size, nvrtc_.ptx, "nvrtcGetPTX");
    text.pop_back();  // the terminating zero
    return text;
  }

 private:
  std::string output(Result (*size_of)(Program, size_t*), Result (*read)(Program, char*),
                     const char* call) const {
    size_t size = 0;
    Result result = size_of(program_, &size);
    std::string bytes(size, '\0');
    if (result == 0) result = read(program_, bytes.data());
    if (result != 0 || size == 0)
      throw Error(ErrorCode::kCompile, fmt::format("{}: {}", call, nvrtc_.error_string(result)));
    return bytes;
  }

  const Nvrtc& nvrtc_;
  Program program_ = nullptr;
};

class NvrtcCompiler final : public Compiler {
 public:
  explicit NvrtcCompiler(const Nvrtc& nvrtc) : nvrtc_(nvrtc) {}

  std::string version() const override {
    return fmt::format("nvrtc {}.{}", nvrtc_.major, nvrtc_.minor);
  }
  std::string options(const Arch& arch) const override {
    return fmt::format("{}", fmt::join(option_list(arch), " "));
  }

  KernelImage compile(const Source& source, const Arch& arch) const override {
    const auto start = std::chrono::steady_clock::now();
    const ProgramHandle program(nvrtc_, source);
    KernelImage image;
    image.entry = source.entry;
    image.log = build(program, source, arch, option_list(arch));
    image.bytes = program.cubin();
    image.compile_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    add_log_info(image.log, &image.info);
    return image;
  }

  std::string ptx(const Source& source, const Arch& arch) const {
    const ProgramHandle program(nvrtc_, source);
    std::vector<std::string> options = option_list(arch);
    options[0].replace(options[0].find("sm_"), 3, "compute_");  // the same PTX, and no machine code
    build(program, source, arch, options);
    return program.ptx();
  }

 private:
  // Runs the compiler and returns its log.
  std::string build(const ProgramHandle& program, const Source& source, const Arch& arch,
                    const std::vector<std::string>& options) const {
    check_arch(arch);
    std::vector<const char*> pointers;
    for (const std::string& option : options) pointers.push_back(option.c_str());
    const Result result =
        nvrtc_.compile(program.get(), static_cast<int>(pointers.size()), pointers.data());
    std::string log = program.log();
    if (result != 0)
      throw Error(ErrorCode::kCompile,
                  fmt::format("{} refused {} for {}: {}", version(), source.file_name, arch.name(),
                              first_errors(log)));
    return log;
  }

  std::vector<std::string> option_list(const Arch& arch) const {
    std::vector<std::string> options{
        "-arch=" + arch.name(), "-default-device", "-std=c++17", "-use_fast_math", "-w",
        "--ptxas-options=-v"};
    if (nvrtc_.major > 12) options.emplace_back("--no-cache");
    return options;
  }

  void check_arch(const Arch& arch) const {
    if (arch.target != Target::kCuda)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("arch is {}; NVRTC compiles for CUDA archs only", arch.name()));
    const std::vector<int>& known = nvrtc_.known_archs;
    if (std::find(known.begin(), known.end(), arch.compute_capability) == known.end())
      throw Error(ErrorCode::kCompile, fmt::format("{} does not know {}; it knows sm_{}", version(),
                                                   arch.name(), fmt::join(known, ", sm_")));
  }

  const Nvrtc& nvrtc_;
};

struct OpenedNvrtc {
  Nvrtc nvrtc;
  NvrtcLocation location;
  std::unique_ptr<NvrtcCompiler> compiler;
};

std::string path_of(const void* symbol) {
  Dl_info info{};
  return ::dladdr(symbol, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

// Opens a candidate, or sets `error` to the reason for the failure. An opened library is never
// closed.
bool open_candidate(const NvrtcCandidate& candidate, Nvrtc* nvrtc, std::string* error) {
  *error = library_fault(candidate.file);
  if (!error->empty()) return false;
  const int only_loaded = candidate.only_if_loaded ? RTLD_NOLOAD : 0;
  void* library = ::dlopen(candidate.file.c_str(), RTLD_NOW | RTLD_LOCAL | only_loaded);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    *error = reason != nullptr ? reason : "no reason given";
    return false;
  }
  if (nvrtc->bind(library)) return true;
  ::dlclose(library);
  *error = "it is not NVRTC";
  return false;
}

OpenedNvrtc open_first() {
  OpenedNvrtc opened;
  const std::string chosen = chosen_nvrtc();
  for (const NvrtcCandidate& candidate : nvrtc_candidates()) {
    std::string error;
    opened.location.tried.push_back(candidate.file);
    if (!open_candidate(candidate, &opened.nvrtc, &error)) {
      if (candidate.file == chosen)
        opened.location.passed_over =
            fmt::format("ATTUNE_NVRTC is {}, which cannot be used: {}", chosen, error);
      continue;
    }
    opened.location.path = path_of(reinterpret_cast<const void*>(opened.nvrtc.version));
    opened.location.version = fmt::format("{}.{}", opened.nvrtc.major, opened.nvrtc.minor);
    opened.location.origin = candidate.origin;
    for (const std::string& builtins : nvrtc_builtins_beside(opened.location.path))
      ::dlopen(builtins.c_str(), RTLD_NOW | RTLD_GLOBAL);
    break;
  }
  if (!opened.location.passed_over.empty())
    opened.location.passed_over += opened.location.path.empty()
                                       ? "; no other was found"
                                       : fmt::format("; {} is used instead", opened.location.path);
  return opened;
}

const NvrtcCompiler* opened_compiler(NvrtcLocation* location) {
  static OpenedNvrtc opened = [] { return open_first(); }();
  static const bool ready = [] {
    if (!opened.location.path.empty())
      opened.compiler = std::make_unique<NvrtcCompiler>(opened.nvrtc);
    return true;
  }();
  static_cast<void>(ready);
  if (location != nullptr) *location = opened.location;
  if (!opened.location.passed_over.empty())
    log(LogCode::kNvrtcPassedOver, opened.location.passed_over);
  return opened.compiler.get();
}

}  // namespace

const Compiler* open_nvrtc_compiler(NvrtcLocation* location) { return opened_compiler(location); }

std::string nvrtc_ptx(const Source& source, const Arch& arch) {
  const NvrtcCompiler* compiler = opened_compiler(nullptr);
  if (compiler == nullptr) throw Error(ErrorCode::kCompile, nvrtc_advice());
  return compiler->ptx(source, arch);
}

std::string nvrtc_advice() {
  return "NVRTC (libnvrtc.so.12 or .13) was not found, so no CUDA kernel can be compiled here; "
         "install a CUDA toolkit or "
         "`pip install nvidia-cuda-nvrtc`, or set ATTUNE_NVRTC to the library's path";
}

}  // namespace attune
