// SPDX-License-Identifier: Apache-2.0
// A name by which the loader (generator/compile/cpu/object_loader.cpp) knows a kernel with tiles.
// It then asks the system for them: Linux lets no process use tiles that did not ask.
#pragma once

extern "C" void attune_needs_tiles() {}
