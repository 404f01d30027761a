// SPDX-License-Identifier: Apache-2.0
// The C functions on contexts. The caller's options override the environment.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>

#include "generator/compile/nvrtc_locate.hpp"
#include "runtime/c_api/c_scores.hpp"
#include "runtime/c_api/c_support.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/options.hpp"

namespace attune::c_api {
namespace {

constexpr attune_context_options kDefaultOptions{sizeof(attune_context_options),
                                                 nullptr,
                                                 nullptr,
                                                 nullptr,
                                                 0,
                                                 nullptr,
                                                 0,
                                                 ATTUNE_POLICY_FROM_ENVIRONMENT,
                                                 0,
                                                 nullptr,
                                                 nullptr,
                                                 nullptr,
                                                 nullptr,
                                                 0,
                                                 nullptr,
                                                 nullptr,
                                                 0};

constexpr size_t kMostFiles = 4096;  // per list
constexpr size_t kMostProblems = size_t{1} << 20;

std::vector<std::filesystem::path> paths_of(const char* const* paths, size_t count,
                                            const char* argument) {
  if (count > 0 && !paths) refuse_null(argument);
  check_count(fmt::format("the count of {}", argument).c_str(), count, kMostFiles);
  std::vector<std::filesystem::path> all;
  for (size_t i = 0; i < count; ++i) {
    if (!paths[i]) refuse_null(fmt::format("{}[{}]", argument, i).c_str());
    all.emplace_back(paths[i]);
  }
  return all;
}

Policy policy_of(int32_t policy) {
  if (policy < ATTUNE_POLICY_DEFAULT || policy > ATTUNE_POLICY_STRICT)
    refuse(
        fmt::format("options->policy is {}; must be ATTUNE_POLICY_FROM_ENVIRONMENT, "
                    "ATTUNE_POLICY_DEFAULT, "
                    "ATTUNE_POLICY_NEAREST or ATTUNE_POLICY_STRICT",
                    policy));
  return static_cast<Policy>(policy);
}

void add_memory_bundles(const attune_context_options& c, EngineOptions* engine) {
  if (c.num_memory_bundles > 0) not_null(c.memory_bundles, "options->memory_bundles");
  check_count("options->num_memory_bundles", c.num_memory_bundles, kMostFiles);
  for (size_t i = 0; i < c.num_memory_bundles; ++i) {
    const attune_memory_bundle& bundle = c.memory_bundles[i];
    if (!bundle.data) refuse_null(fmt::format("options->memory_bundles[{}].data", i).c_str());
    engine->memory_bundles.emplace_back(static_cast<const char*>(bundle.data), bundle.bytes);
  }
}

EngineOptions engine_options(const attune_context_options& c, EngineOptions engine) {
  if (c.target) engine.target = c.target;
  if (c.store) {
    engine.use_store = *c.store != '\0';
    engine.user_store = c.store;
  }
  if (c.num_more_stores > 0)
    engine.more_stores = paths_of(c.more_stores, c.num_more_stores, "options->more_stores");
  add_memory_bundles(c, &engine);
  if (c.pin) engine.pin = c.pin;
  if (c.num_bundles > 0) engine.bundles = paths_of(c.bundles, c.num_bundles, "options->bundles");
  if (c.policy != ATTUNE_POLICY_FROM_ENVIRONMENT) engine.policy = policy_of(c.policy);
  if (c.no_jit) engine.may_compile = false;
  if (c.capture_file) engine.capture_file = c.capture_file;
  return engine;
}

void offer_folders(const attune_context_options& c) {
  std::vector<std::string> folders;
  for (const std::filesystem::path& folder :
       paths_of(c.nvrtc_folders, c.num_nvrtc_folders, "options->nvrtc_folders")) {
    if (!folder.is_absolute())
      refuse(fmt::format("options->nvrtc_folders has \"{}\"; folders must be absolute",
                         folder.string()));
    folders.push_back(folder.string());
  }
  offer_nvrtc_folders(folders);
}

// Returns the caller's log function, or one that writes to stderr if the environment asks for it.
LogSink log_of(const attune_context_options& c, std::optional<LogLevel> from_environment) {
  if (c.log)
    return [log = c.log, user = c.log_user](LogLevel level, std::string_view message) {
      log(user, static_cast<int>(level), std::string(message).c_str());
    };
  if (from_environment)
    return [lowest = *from_environment](LogLevel level, std::string_view message) {
      if (level >= lowest)
        std::fprintf(stderr, "attune: %.*s\n", static_cast<int>(message.size()), message.data());
    };
  return nullptr;
}

// Logs refused stores before the engine reads the stores, so that this message comes first.
void say_refused_stores(const attune_context& context) {
  say_refused(context.named_stores, context.log ? Listener::kLog : Listener::kNone);
}

std::string device_text(const DeviceIdentity& identity) {
  return identity.arch + " " + identity.title();
}

}  // namespace
}  // namespace attune::c_api

using namespace attune;
using namespace attune::c_api;

extern "C" {

void attune_context_options_init_sized(attune_context_options* options, size_t size) {
  if (options) write_struct(kDefaultOptions, options, size);
}

attune_status attune_context_create(const attune_context_options* options,
                                    attune_context** context) {
  return guarded([&] {
    not_null(context, "context") = nullptr;
    const attune_context_options c =
        read_struct(options ? options : &kDefaultOptions, "options", kDefaultOptions,
                    offsetof(attune_context_options, nvrtc_folders), "attune_context_options_init");
    const Options environment = options_from_environment();
    offer_folders(c);
    auto made = std::make_unique<attune_context>();
    const EngineOptions engine = engine_options(c, environment.engine);
    made->log = log_of(c, environment.log_level);
    const ThreadLog log(&made->log);
    std::shared_ptr<const Device> device = open_device(c.target ? c.target : "auto");
    made->device = device_text(device->identity());
    made->named_stores = named_stores(engine);
    say_refused_stores(*made);
    made->engine = std::make_unique<Engine>(std::move(device), engine);
    *context = made.release();
  });
}

void attune_context_destroy(attune_context* context) {
  if (!context) return;
  // A child after fork must not wait: threads that were inside a call exist only in the parent.
  if (context->owner == getpid()) {
    const std::unique_lock calls_have_ended(context->in_use);
  }
  {
    const ThreadLog log(&context->log);
    context->engine.reset();
  }
  delete context;
}

attune_status attune_context_reload(attune_context* context) {
  return guarded([&] {
    const ContextCall engine(context);
    say_refused_stores(*context);
    engine->reload();
  });
}

const char* attune_context_device(const attune_context* context) {
  return context ? context->device.c_str() : "";
}

attune_status attune_context_pin_digest(attune_context* context, uint8_t digest[32]) {
  return guarded([&] {
    uint8_t* const to = &not_null(digest, "digest");
    const std::array<uint8_t, 32> found = ContextCall(context)->pin_digest();
    std::copy(found.begin(), found.end(), to);
  });
}

attune_status attune_problem_check(attune_context* context, const attune_problem* problem,
                                   char* reasons, size_t capacity) {
  return guarded([&] {
    if (reasons && capacity > 0) *reasons = '\0';
    const Problem p = problem_of(problem);
    const ContextCall engine(context);
    std::string text;
    bool served = false;
    for (const auto& [name, reason] : engine->check(p)) {
      text += fmt::format("{}: {}\n", name, reason.value_or("serves this problem"));
      served = served || !reason;
    }
    if (reasons && capacity > 0) std::snprintf(reasons, capacity, "%s", text.c_str());
    if (!served)
      throw Error(ErrorCode::kUnsupported,
                  "no template serves this problem on this device:\n" + text);
  });
}

attune_status attune_plan_get(attune_context* context, const attune_problem* problem,
                              const attune_operands* layout, attune_plan** plan) {
  return guarded([&] {
    not_null(plan, "plan") = nullptr;
    const ContextCall engine(context);
    const Problem p = problem_of(problem);
    std::shared_ptr<const Plan> made;
    if (layout) {
      const Operands operands = operands_of(layout);
      made = engine->plan(p, &operands);
    } else {
      made = engine->plan(p);
    }
    check_names_of_plan(*made);
    *plan = new attune_plan(std::move(made), p);
  });
}

attune_status attune_prewarm(attune_context* context, const attune_problem* problems,
                             size_t num_problems) {
  return guarded([&] {
    const ContextCall engine(context);
    if (num_problems > 0) not_null(problems, "problems");
    check_count("num_problems", num_problems, kMostProblems);
    // The stride of the array is the size of its elements, also for a caller with an older header.
    const char* at = reinterpret_cast<const char*>(problems);
    for (size_t i = 0; i < num_problems; ++i, at += problems->size)
      engine->plan(problem_of(reinterpret_cast<const attune_problem*>(at)));
  });
}

}  // extern "C"
