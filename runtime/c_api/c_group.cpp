// SPDX-License-Identifier: Apache-2.0
// The C function on schedules of groups; see attune_group.h.
#include <attune/attune_group.h>

#include "generator/core/group/schedule.hpp"
#include "runtime/c_api/c_support.hpp"

using namespace attune;
using namespace attune::c_api;

extern "C" attune_status attune_group_schedule(const attune_problem* whole, const char* request,
                                               char* text, size_t capacity, size_t* bytes) {
  return guarded([&] {
    if (request == nullptr) refuse_null("request");
    if (text == nullptr && capacity > 0) refuse_null("text");
    const std::string lines = schedule_text(problem_of(whole), request);
    if (bytes != nullptr) *bytes = lines.size() + 1;
    if (lines.size() < capacity) std::memcpy(text, lines.c_str(), lines.size() + 1);
  });
}
