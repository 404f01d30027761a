// SPDX-License-Identifier: Apache-2.0
// Of wheels alone: some distributions' clang archives name the entry of Polly, a plugin of LLVM's optimiser that they do not hold. This
// one adds nothing to the optimiser, which asks no plugin of a kernel compiled here anyway.
#include <llvm/Passes/PassPlugin.h>

llvm::PassPluginLibraryInfo getPollyPluginInfo();

llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "no Polly", LLVM_VERSION_STRING, [](llvm::PassBuilder&) {}};
}
