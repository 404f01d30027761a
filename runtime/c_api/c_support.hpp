// SPDX-License-Identifier: Apache-2.0
// Used by the C functions (c_*.cpp only): handles, the translation of exceptions to statuses, and
// reading of structs that were compiled with an older or newer header.
#pragma once

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <vector>

#include "attune/attune.h"
#include "generator/core/system/error.hpp"
#include "generator/core/system/log.hpp"
#include "generator/core/system/threads.hpp"
#include "runtime/engine/engine.hpp"

struct attune_context {
  std::unique_ptr<attune::Engine> engine;
  std::string device;
  attune::LogSink log;  // for calls on this context
  std::vector<std::filesystem::path> named_stores;
  std::shared_mutex in_use;
  const pid_t owner = getpid();
};

struct attune_plan {
  explicit attune_plan(const std::shared_ptr<const attune::Plan>& the_plan)
      : attune_plan(the_plan, the_plan->problem) {}
  attune_plan(std::shared_ptr<const attune::Plan> the_plan, const attune::Problem& as_asked)
      : plan(std::move(the_plan)), asked(as_asked) {}
  const std::shared_ptr<const attune::Plan> plan;
  const attune::Problem asked;  // what the caller wrote; the plan has the canonical form

  struct Texts {
    std::string kernel_template, arch, config, explanation;
    std::string label;  // "prefill_sm90 op=attention,.."
  };
  const Texts& texts() const;  // computed at the first call

 private:
  attune::MadeOnce<Texts> texts_;
};

namespace attune::c_api {

attune_status fail(ErrorCode code, const char* message) noexcept;
attune_status fail_with_current_exception() noexcept;

// Runs `body`. An exception becomes the status and this thread's last error.
template <class Body>
attune_status guarded(Body&& body) noexcept {
  try {
    body();
    return ATTUNE_OK;
  } catch (...) {
    return fail_with_current_exception();
  }
}

[[noreturn]] void refuse(const std::string& sentence);
[[noreturn]] void refuse_null(const char* argument);
// Refuses a count above `most`: it is probably uninitialised, and its list must not be read.
void check_count(const char* argument, size_t count, size_t most);
[[noreturn]] void refuse_size(const char* argument, size_t size, size_t smallest, const char* init);

template <class T>
T& not_null(T* pointer, const char* argument) {
  if (!pointer) [[unlikely]]
    refuse_null(argument);
  return *pointer;
}

// One call on a context. Messages during the call go to the context's log function, and
// attune_context_destroy waits until the call ends.
class ContextCall {
 public:
  explicit ContextCall(attune_context* context)
      : context_(not_null(context, "context")), lock_(context_.in_use), log_(&context_.log) {}
  attune::Engine* operator->() const { return context_.engine.get(); }

 private:
  attune_context& context_;
  const std::shared_lock<std::shared_mutex> lock_;
  const attune::ThreadLog log_;
};

bool all_zero(const void* bytes, size_t count);

// No struct of this interface will be larger, so a larger size is an uninitialised one.
inline constexpr size_t kLargestStruct = 65536;

// Returns a caller's struct as this library knows it. Fields that an older header lacks come from
// `defaults`; fields that only a newer header has must be zero. `smallest` is the size of the first
// version of the struct.
template <class T>
T read_struct(const T* given, const char* argument, const T& defaults, size_t smallest,
              const char* init) {
  const size_t size = not_null(given, argument).size;
  if (size == sizeof(T)) [[likely]]
    return *given;
  if (size < smallest || size > kLargestStruct) refuse_size(argument, size, smallest, init);
  if (size > sizeof(T) &&
      !all_zero(reinterpret_cast<const char*>(given) + sizeof(T), size - sizeof(T)))
    refuse(std::string(argument) + " sets fields that this version of attune (" + attune_version() +
           ") does not know");
  T known = defaults;
  std::memcpy(&known, given, size < sizeof(T) ? size : sizeof(T));
  return known;
}

// Writes a struct to a caller's memory of `size` bytes, as much as fits. Fields that only a newer
// header has become zero. Writes nothing if `size` is too small for the field `size`, or larger
// than kLargestStruct.
template <class T>
void write_struct(const T& value, T* to, size_t size) {
  if (size < sizeof(size_t) || size > kLargestStruct) return;
  std::memset(to, 0, size);
  std::memcpy(to, &value, size < sizeof(T) ? size : sizeof(T));
  to->size = size;
}

// Zeroes a caller's struct before it is filled. Throws if it is null or no version has this size.
template <class T>
void clear_struct(T* to, const char* argument, size_t size, size_t smallest, const char* init) {
  if (size < smallest || size > kLargestStruct) refuse_size(argument, size, smallest, init);
  write_struct(T{}, &not_null(to, argument), size);
}

Problem problem_of(const attune_problem* problem);
attune_problem c_problem(const Problem& problem);  // the inverse
Operands operands_of(const attune_operands* operands);
inline OperandView view_of(const attune_tensor& x) {
  return {x.data, x.batch_stride, x.row_stride, x.head_stride};
}
inline attune_tensor tensor_of_view(const OperandView& x) {
  return {x.data, x.batch_stride, x.row_stride, x.head_stride};
}
// Returns the struct of op append_kv after a check of its size.
attune_append_operands read_append_operands(const attune_append_operands* append);
attune_cache_operands read_cache_operands(const attune_cache_operands* cache);

}  // namespace attune::c_api
