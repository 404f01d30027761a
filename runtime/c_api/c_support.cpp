// SPDX-License-Identifier: Apache-2.0
// Errors of C functions, and checks of callers' structs; see c_support.hpp.
#include "runtime/c_api/c_support.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "generator/core/system/foreign_text.hpp"

namespace {

// The calling thread's message; see attune_last_error. It is a plain array because memory may be
// exhausted when an error is reported: a thread's first std::string would register a destructor,
// which allocates.
thread_local constinit char last_error[4096] = {};

// Stores the message as the last error, with unprintable bytes replaced. A long message is cut
// between two UTF-8 characters.
void keep_as_last_error(const char* message) noexcept {
  constexpr size_t kRoom = sizeof last_error - 1;
  size_t length = strnlen(message, kRoom + 1);
  if (length > kRoom) {
    length = kRoom;
    while (length > 0 && (message[length] & 0xc0) == 0x80) --length;
  }
  std::memmove(last_error, message, length);  // `message` may be last_error
  last_error[length] = '\0';
  attune::make_printable(last_error, length);
}

}  // namespace

const attune_plan::Texts& attune_plan::texts() const {
  return texts_.get([this]() -> Texts {
    std::string explanation = plan->explain(asked);
    attune::make_printable(explanation.data(), explanation.size());
    return {std::string(plan->kernel_template->name()), plan->arch.name(), plan->config.to_text(),
            std::move(explanation),
            std::string(plan->kernel_template->name()) + " " + to_text(asked)};
  });
}

extern "C" const char* attune_last_error(void) { return last_error; }

namespace attune::c_api {

attune_status fail(ErrorCode code, const char* message) noexcept {
  keep_as_last_error(message);
  return static_cast<attune_status>(code);
}

attune_status fail_with_current_exception() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return fail(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::kOutOfMemory, "host memory is exhausted");
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInternal, error.what());
  } catch (...) {
    return fail(ErrorCode::kInternal, "an unknown exception");
  }
}

void refuse(const std::string& sentence) { throw Error(ErrorCode::kInvalidArgument, sentence); }

void refuse_null(const char* argument) { refuse(std::string(argument) + " is a null pointer"); }

void check_count(const char* argument, size_t count, size_t most) {
  if (count > most)
    refuse(std::string(argument) + " is " + std::to_string(count) + "; must be at most " +
           std::to_string(most));
}

void refuse_size(const char* argument, size_t size, size_t smallest, const char* init) {
  refuse(std::string(argument) + "->size is " + std::to_string(size) + "; must be " +
         std::to_string(smallest) + " to " + std::to_string(kLargestStruct) + ", as " + init +
         " sets it");
}

bool all_zero(const void* bytes, size_t count) {
  const char* at = static_cast<const char*>(bytes);
  return std::all_of(at, at + count, [](char byte) { return byte == 0; });
}

}  // namespace attune::c_api
