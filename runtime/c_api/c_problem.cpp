// SPDX-License-Identifier: Apache-2.0
// The C functions on problems, and the names of statuses.
#include <fmt/format.h>

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
static_assert(ATTUNE_KV_FACTORS_MADE == static_cast<int>(KvFactors::kMade));
static_assert(ATTUNE_FAST == static_cast<int>(Accuracy::kFast));
static_assert(ATTUNE_SPLIT == static_cast<int>(Accuracy::kSplit));
static_assert(ATTUNE_V_TRANSPOSED == static_cast<int>(VLayout::kTransposed));
static_assert(ATTUNE_ROTATION_HADAMARD == static_cast<int>(Rotation::kHadamard));
static_assert(ATTUNE_SCORE_TENSOR_FP16 == static_cast<int>(ScoreTensor::kFp16));
static_assert(ATTUNE_CAUSAL_BOTTOM_RIGHT == static_cast<int>(Mask::kCausalBottomRight));

namespace c_api {
namespace {

// Sizes of the first versions of the structs, up to the end of the last field at that time.
constexpr size_t kProblemSize = offsetof(attune_problem, softmax_scale) + sizeof(float);

// Returns the struct of a problem that sets nothing. Types follow dtype.
const attune_problem& default_problem() {
  static const attune_problem problem = [] {
    attune_problem c = c_problem(Problem{});
    c.dtype_kv = c.dtype_o = ATTUNE_DTYPE_DEFAULT;
    return c;
  }();
  return problem;
}

}  // namespace

attune_problem c_problem(const Problem& p) {
  attune_problem c{};
  c.size = sizeof(c);
  std::apply([&](const auto&... field) { (field.write(p, &c), ...); }, kProblemFields);
  return c;
}

Problem problem_of(const attune_problem* given) {
  const attune_problem c =
      read_struct(given, "problem", default_problem(), kProblemSize, "attune_problem_init");
  Problem p;
  std::apply([&](const auto&... field) { (field.read(c, &p), ...); }, kProblemFields);
  return p;
}

// Refuses a parsed problem that a struct of an older header cannot hold: fields that came later
// must have their defaults.
void refuse_if_cut(const attune_problem& whole, size_t size, const Problem& parsed) {
  attune_problem cut = default_problem();
  std::memcpy(&cut, &whole, size);
  cut.size = sizeof(cut);
  bool same = false;
  try {
    same = to_text(problem_of(&cut)) == to_text(parsed);
  } catch (const Error&) {  // without the later fields the problem may be invalid
  }
  if (!same)
    refuse(
        fmt::format("text sets fields that a problem of {} bytes does not have; compile the "
                    "program with the headers of attune {}",
                    size, attune_version()));
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
    if (size < kProblemSize || size > kLargestStruct)
      refuse_size("problem", size, kProblemSize, "attune_problem_parse");
    const attune_problem whole = c_problem(parsed);
    if (size < sizeof(whole)) refuse_if_cut(whole, size, parsed);
    write_struct(whole, &not_null(problem, "problem"), size);
  });
}

}  // extern "C"
