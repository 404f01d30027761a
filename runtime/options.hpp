// SPDX-License-Identifier: Apache-2.0
// What the environment says, read once where a program enters the library (attune_context_create,
// the command line).
//
// | variable        | meaning                                                     | default |
// |-----------------|-------------------------------------------------------------|-------------------------------|
// | ATTUNE_STORE    | the user's store file; empty string = use none              |
// ~/.cache/attune/store.db      | | ATTUNE_BUNDLE   | folders written by `attune export`, separated
// by ':'        |                               | | ATTUNE_POLICY   | default, nearest, strict or
// tune_on_miss                    | default                       | | ATTUNE_NO_JIT   | 1 = never
// compile                                           | 0                             | |
// ATTUNE_CAPTURE  | file to which problems are written, one JSON line each      | off | |
// ATTUNE_LOG      | debug, info, warning or error: what is written to stderr    | nothing | |
// ATTUNE_NVRTC    | path of libnvrtc (read by the NVRTC compiler)               | searched |
#pragma once

#include <optional>
#include <string>

#include "generator/core/log.hpp"
#include "runtime/engine.hpp"

namespace attune {

struct Options {
  EngineOptions engine;
  std::optional<LogLevel> log_level;
};

// Throws kInvalidArgument naming the variable, its value and what is accepted.
Options options_from_environment();

// `given`, else default_store_path(). Throws kStore when there is neither.
std::filesystem::path store_path_or_default(const std::filesystem::path& given);

}  // namespace attune
