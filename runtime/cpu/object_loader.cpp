// SPDX-License-Identifier: Apache-2.0
// One ORC session a kernel: it owns the code, which is unmapped when the session ends; see
// object_loader.hpp.
#include "runtime/cpu/object_loader.hpp"

#include <fmt/format.h>
#include <llvm/ExecutionEngine/Orc/Core.h>
#include <llvm/ExecutionEngine/Orc/ExecutorProcessControl.h>
#include <llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h>
#include <llvm/Object/ObjectFile.h>
#include <llvm/Support/Error.h>
#include <llvm/Support/MemoryBuffer.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/Triple.h>

#include <math.h>
#include <string.h>

#include "generator/core/error.hpp"

#if defined(__x86_64__)
// libgcc's conversions of fp16, which x86 CPUs before F16C need.
extern "C" float __extendhfsf2(_Float16);
extern "C" _Float16 __truncsfhf2(float);
#endif

namespace attune {
namespace {

[[noreturn]] void refuse(std::string_view entry, std::string_view why) {
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("object is not one of this machine with the entry \"{}\": {}", entry, why));
}
[[noreturn]] void refuse(std::string_view entry, llvm::Error error) {
  refuse(entry, llvm::toString(std::move(error)));
}

// Code of another CPU would link as well as ours: linking only moves bytes.
void check_machine(std::string_view object, std::string_view entry) {
  auto file = llvm::object::ObjectFile::createObjectFile(
      llvm::MemoryBufferRef(llvm::StringRef(object.data(), object.size()), "kernel.o"));
  if (!file) refuse(entry, file.takeError());
  const llvm::Triple here(llvm::sys::getProcessTriple());
  if ((*file)->getArch() != here.getArch() || !(*file)->isRelocatableObject())
    refuse(entry,
           fmt::format("it is {} code", llvm::Triple::getArchTypeName((*file)->getArch()).str()));
}

class OrcKernel final : public HostKernel {
 public:
  OrcKernel(std::string_view object, const std::vector<std::string>& entries) {
    auto process = llvm::orc::SelfExecutorProcessControl::Create();
    if (!process) refuse(entries.front(), process.takeError());
    session_ = std::make_unique<llvm::orc::ExecutionSession>(std::move(*process));
    session_->setErrorReporter(
        [this](llvm::Error error) { reported_ += llvm::toString(std::move(error)) + "; "; });
    layer_ = std::make_unique<llvm::orc::ObjectLinkingLayer>(
        *session_, session_->getExecutorProcessControl().getMemMgr());
    try {
      llvm::orc::JITDylib& library = add(object, entries.front());
      for (const std::string& entry : entries) functions_.push_back(find(library, entry));
    } catch (...) {
      end();
      throw;
    }
  }
  ~OrcKernel() override { end(); }
  OrcKernel(const OrcKernel&) = delete;
  OrcKernel& operator=(const OrcKernel&) = delete;

  Function function(size_t entry) const override { return functions_.at(entry); }

 private:
  llvm::orc::JITDylib& add(std::string_view object, std::string_view entry) {
    // Functions have a library of their own: entries are looked for among the object's symbols
    // alone.
    llvm::orc::JITDylib& functions = session_->createBareJITDylib("functions");
    if (auto error = functions.define(llvm::orc::absoluteSymbols(library_functions())))
      refuse(entry, std::move(error));
    llvm::orc::JITDylib& library = session_->createBareJITDylib("kernel");
    library.addToLinkOrder(functions);
    auto buffer = llvm::MemoryBuffer::getMemBufferCopy(
        llvm::StringRef(object.data(), object.size()), "kernel.o");
    if (auto error = layer_->add(library, std::move(buffer))) refuse(entry, std::move(error));
    return library;
  }

  Function find(llvm::orc::JITDylib& library, const std::string& entry) {
    auto symbol = session_->lookup({&library}, session_->intern(entry));
    if (!symbol) {
      std::string why = llvm::toString(symbol.takeError());
      refuse(entry, reported_ + why);
    }
    if (!symbol->getFlags().isCallable()) refuse(entry, "it names data, not a function");
    return symbol->getAddress().toPtr<Function>();
  }

  // What kernels may call: what a compiler calls without being asked to, and the two functions that
  // reference_cpu needs.
  llvm::orc::SymbolMap library_functions() {
    llvm::orc::SymbolMap map;
    const auto define = [&](const char* name, auto* address) {
      map[session_->intern(name)] = {llvm::orc::ExecutorAddr::fromPtr(address),
                                     llvm::JITSymbolFlags::Exported};
    };
    define("memcpy", &::memcpy);
    define("memmove", &::memmove);
    define("memset", &::memset);
    define("expf", static_cast<float (*)(float)>(&::expf));
    define("logf", static_cast<float (*)(float)>(&::logf));
#if defined(__x86_64__)
    define("__extendhfsf2", &__extendhfsf2);
    define("__truncsfhf2", &__truncsfhf2);
#endif
    return map;
  }

  void end() noexcept {
    if (auto error = session_->endSession()) llvm::consumeError(std::move(error));
  }

  std::string reported_;  // what the session said of its own accord
  std::unique_ptr<llvm::orc::ExecutionSession> session_;
  std::unique_ptr<llvm::orc::ObjectLinkingLayer> layer_;
  std::vector<Function> functions_;
};

}  // namespace

std::unique_ptr<HostKernel> load_object(std::string_view object,
                                        const std::vector<std::string>& entries) {
  check_machine(object, entries.at(0));
  return std::make_unique<OrcKernel>(object, entries);
}

}  // namespace attune
