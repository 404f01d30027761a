// SPDX-License-Identifier: Apache-2.0
// The only file that uses clang; see clang_compiler.hpp.
#include "generator/compile/clang_compiler.hpp"

#include <clang/Basic/Diagnostic.h>
#include <clang/CodeGen/CodeGenAction.h>
#include <clang/Frontend/CompilerInstance.h>
#include <clang/Frontend/CompilerInvocation.h>
#include <clang/Frontend/TextDiagnosticPrinter.h>
#include <clang/Lex/PreprocessorOptions.h>
#include <fmt/format.h>
#include <llvm/Config/llvm-config.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <mutex>

#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr const char* kVersion = "clang " LLVM_VERSION_STRING;

// Runs clang -cc1 on a source that exists only in memory. Returns false if clang refuses it; `log`
// gets the diagnostics.
bool run_clang(const Source& source, const std::vector<std::string>& arguments,
               llvm::SmallVectorImpl<char>* object, std::string* log) {
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  pointers.insert(pointers.end(), {"-emit-obj", "-main-file-name", source.file_name.c_str(),
                                   source.file_name.c_str()});

  llvm::raw_string_ostream log_stream(*log);
  llvm::IntrusiveRefCntPtr<clang::DiagnosticOptions> options(new clang::DiagnosticOptions());
  clang::TextDiagnosticPrinter printer(log_stream, options.get());
  // Smart pointers are avoided: if LLVM fails midway, their destructors would see partly
  // constructed objects.
  auto* const instance = new clang::CompilerInstance;
  auto* const action = new clang::EmitObjAction;
  instance->createDiagnostics(&printer, /*ShouldOwnClient=*/false);
  instance->setVerboseOutputStream(log_stream);
  bool compiled = false;
  if (clang::CompilerInvocation::CreateFromArgs(instance->getInvocation(), pointers,
                                                instance->getDiagnostics())) {
    // The diagnostics object was made before the arguments were parsed.
    clang::ProcessWarningOptions(instance->getDiagnostics(), instance->getDiagnosticOpts());
    instance->getPreprocessorOpts().addRemappedFile(
        source.file_name,
        llvm::MemoryBuffer::getMemBuffer(source.text, source.file_name).release());
    instance->setOutputStream(std::make_unique<llvm::raw_svector_ostream>(*object));
    compiled = instance->ExecuteAction(*action);
  }
  delete action;
  delete instance;
  return compiled;
}

bool initialised() {
  static const bool has_target =
      !llvm::InitializeNativeTarget() && !llvm::InitializeNativeTargetAsmPrinter();
  if (!has_target)
    throw Error(ErrorCode::kCompile, "this LLVM has no code generator for this machine");
  return has_target;
}

void compile(const Source& source, const Arch& arch, KernelImage* image) {
  if (arch.target != Target::kCpu)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("arch is {}; clang compiles for cpu:<name> only", arch.name()));
  // clang and LLVM have process-wide state (options, target registry), so only one source compiles
  // at a time.
  static std::timed_mutex mutex;
  static std::atomic<int> process = 0;  // id of the process that holds the lock
  static const char* failure = nullptr;
  std::unique_lock lock(mutex, std::defer_lock);
  while (!lock.try_lock_for(std::chrono::milliseconds(100)))
    if (process != 0 && process != getpid())  // after a fork the thread with the lock is missing
      throw Error(ErrorCode::kCompile,
                  fmt::format("{} was compiling in another thread of the process that this one was "
                              "forked from; this process cannot use it",
                              kVersion));
  process = getpid();
  const auto start = std::chrono::steady_clock::now();
  llvm::SmallVector<char, 0> object;
  bool compiled = false;
  if (!failure) try {
      run_on_clang_thread([&] {
        compiled = initialised() && run_clang(source, clang_arguments(arch), &object, &image->log);
      });
    } catch (const LlvmFailure& met) {
      failure = met.reason;
    }
  if (failure)
    throw Error(ErrorCode::kCompile,
                fmt::format("{} failed in this process: {}; restart the process to compile again",
                            kVersion, failure));
  if (!compiled || object.empty())
    throw Error(ErrorCode::kCompile,
                fmt::format("{} refused {} for {}: {}", kVersion, source.file_name, arch.name(),
                            first_errors(image->log)));
  image->format = ImageFormat::kHostObject;
  image->bytes.assign(object.data(), object.size());
  image->compile_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace
}  // namespace attune

extern "C" __attribute__((visibility("default"))) const attune::ClangPlugin*
attune_clang_plugin_2() {
  static constexpr attune::ClangPlugin plugin{attune::kVersion, &attune::compile};
  return &plugin;
}
