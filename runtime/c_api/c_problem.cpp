// SPDX-License-Identifier: Apache-2.0
// The C functions on problems and on schedules of groups, and the names of statuses.
#include <attune/attune_group.h>
#include <fmt/format.h>

#include "generator/core/group/schedule.hpp"
#include "runtime/c_api/c_problem_fields.hpp"
#include "runtime/c_api/c_support.hpp"

#define ATTUNE_STRINGIFY(x) #x
#define ATTUNE_VERSION_TEXT(x) ATTUNE_STRINGIFY(x)

namespace attune {

static_assert(ATTUNE_INVALID_ARGUMENT == static_cast<int>(ErrorCode::kInvalidArgument));
static_assert(ATTUNE_INTERNAL_ERROR == static_cast<int>(ErrorCode::kInternal));
static_assert(ATTUNE_WOULD_COMPILE == static_cast<int>(ErrorCode::kWouldCompile));
static_assert(ATTUNE_POLICY_STRICT == static_cast<int>(Policy::kStrict));
static_assert(ATTUNE_RUNG_REFERENCE == static_cast<int>(Rung::kReference));
static_assert(ATTUNE_FP16 == static_cast<int>(Dtype::kFp16) &&
              ATTUNE_BF16 == static_cast<int>(Dtype::kBf16));
static_assert(ATTUNE_E5M2 == static_cast<int>(Dtype::kE5m2));
static_assert(ATTUNE_INT8 == static_cast<int>(Dtype::kInt8));
static_assert(ATTUNE_E2M1 == static_cast<int>(Dtype::kE2m1));
static_assert(ATTUNE_KV_FACTORS_COLUMNS32 == static_cast<int>(KvFactors::kColumns32));
static_assert(ATTUNE_FAST == static_cast<int>(Accuracy::kFast));
static_assert(ATTUNE_SPLIT == static_cast<int>(Accuracy::kSplit));
static_assert(ATTUNE_V_TRANSPOSED == static_cast<int>(VLayout::kTransposed));
static_assert(ATTUNE_ROTATION_HADAMARD == static_cast<int>(Rotation::kHadamard));
static_assert(ATTUNE_SCORE_TENSOR_FP16 == static_cast<int>(ScoreTensor::kFp16));
static_assert(ATTUNE_CAUSAL_BOTTOM_RIGHT == static_cast<int>(Mask::kCausalBottomRight));

namespace c_api {
namespace {

// Sizes of the first versions of the structs, up to the end of the last field at that time.
constexpr size_t kProblemSize =
    offsetof(attune_problem, quantise) + sizeof(attune_problem_quantise);

// Returns the struct of a problem that sets nothing. Types follow dtype.
const attune_problem& default_problem() {
  static const attune_problem problem = [] {
    attune_problem c = c_problem(Problem{});
    c.dtype_kv = c.dtype_o = ATTUNE_DTYPE_DEFAULT;
    return c;
  }();
  return problem;
}

// Refuses sizes that no version has. Programs built for ABI 1 had problems of 80 to 256 bytes.
void check_problem_size(size_t size, const char* init) {
  if (size >= 80 && size <= 256)
    refuse(
        fmt::format("problem->size is {}, as in programs built against attune 0.2; must be {}. "
                    "Compile the program with the headers of attune {}",
                    size, sizeof(attune_problem), attune_version()));
  if (size < kProblemSize || size > kLargestStruct)
    refuse_size("problem", size, kProblemSize, init);
}

// Refuses values in space that a later version may use: this version would ignore them.
template <size_t kCount>
void check_reserved(const char* part, const int32_t (&reserved)[kCount]) {
  if (!all_zero(reserved, sizeof(reserved)))
    refuse(
        fmt::format("problem->{}reserved is set; must be 0 in attune {}", part, attune_version()));
}

}  // namespace

attune_problem c_problem(const Problem& p) {
  attune_problem c{};
  c.size = sizeof(c);
  std::apply([&](const auto&... field) { (field.write(p, &c), ...); }, kProblemFields);
  return c;
}

Problem problem_of(const attune_problem* given) {
  check_problem_size(not_null(given, "problem").size, "attune_problem_init");
  const attune_problem c =
      read_struct(given, "problem", default_problem(), kProblemSize, "attune_problem_init");
  check_reserved("", c.reserved);
  check_reserved("scores.", c.scores.reserved);
  check_reserved("backward.", c.backward.reserved);
  check_reserved("cache.", c.cache.reserved);
  check_reserved("append.", c.append.reserved);
  check_reserved("quantise.", c.quantise.reserved);
  Problem p;
  std::apply([&](const auto&... field) { (field.read(c, &p), ...); }, kProblemFields);
  return p;
}

}  // namespace c_api
}  // namespace attune

using namespace attune;
using namespace attune::c_api;

extern "C" {

const char* attune_version(void) { return ATTUNE_VERSION_TEXT(ATTUNE_PROJECT_VERSION); }
int32_t attune_abi_version(void) { return ATTUNE_ABI_VERSION; }

const char* attune_status_name(attune_status status) {
  if (status == ATTUNE_OK) return "ok";
  if (status < ATTUNE_OK || status > ATTUNE_INTERNAL_ERROR) return "unknown";
  return error_code_name(static_cast<ErrorCode>(status));
}

void attune_problem_init_sized(attune_problem* problem, size_t size) {
  if (problem) write_struct(default_problem(), problem, size);
}

attune_status attune_problem_parse_sized(const char* text, attune_problem* problem, size_t size) {
  return guarded([&] {
    const Problem parsed = parse_problem(&not_null(text, "text"));
    check_problem_size(size, "attune_problem_parse");
    write_struct(c_problem(parsed), &not_null(problem, "problem"), size);
  });
}

attune_status attune_group_schedule(const attune_problem* whole, const char* request, char* text,
                                    size_t capacity, size_t* bytes) {
  return guarded([&] {
    if (request == nullptr) refuse_null("request");
    if (text == nullptr && capacity > 0) refuse_null("text");
    const std::string lines = schedule_text(problem_of(whole), request);
    if (bytes != nullptr) *bytes = lines.size() + 1;
    if (lines.size() < capacity) std::memcpy(text, lines.c_str(), lines.size() + 1);
  });
}

}  // extern "C"
