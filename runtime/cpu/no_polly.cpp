// SPDX-License-Identifier: Apache-2.0
// For wheels only. Some distributions' clang archives refer to the entry point of Polly, a plugin
// of LLVM's optimiser, but do not contain it. This definition adds nothing to the optimiser, which
// uses no plugin for kernels anyway.
#include <llvm/Passes/PassPlugin.h>

llvm::PassPluginLibraryInfo getPollyPluginInfo();

llvm::PassPluginLibraryInfo getPollyPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "no Polly", LLVM_VERSION_STRING, [](llvm::PassBuilder&) {}};
}
