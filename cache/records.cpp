// SPDX-License-Identifier: Apache-2.0
// Names and texts of the store's records; see records.hpp.
#include "cache/records.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <map>

#include "generator/core/error.hpp"

namespace attune {
namespace {

[[noreturn]] void refuse(std::string_view noun, std::string_view text) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("\"{}\" is not the text of a {}", text, noun));
}

using Fields = std::map<std::string_view, std::string_view>;

Fields split_fields(std::string_view noun, std::string_view text) {
  Fields fields;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t comma = rest.find(',');
    const std::string_view field = rest.substr(0, comma);
    const size_t equals = field.find('=');
    if (equals == std::string_view::npos) refuse(noun, text);
    fields[field.substr(0, equals)] = field.substr(equals + 1);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return fields;
}

// Malformed numbers become 0: the caller compares the canonical text of the result with what it was
// given.
template <class Integer>
void read_integer(std::string_view text, Integer& value) {
  value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
}

template <class Integer>
void read_pair(std::string_view text, char separator, Integer& first, Integer& second) {
  const size_t middle = text.find(separator);
  read_integer(text.substr(0, middle), first);
  read_integer(middle == std::string_view::npos ? std::string_view() : text.substr(middle + 1),
               second);
}

}  // namespace

const char* trial_status_name(TrialStatus status) {
  switch (status) {
    case TrialStatus::kOk:
      return "ok";
    case TrialStatus::kCompileFailed:
      return "compile_failed";
    case TrialStatus::kOutOfResources:
      return "out_of_resources";
    case TrialStatus::kLaunchFailed:
      return "launch_failed";
    case TrialStatus::kWrongResult:
      return "wrong_result";
    case TrialStatus::kTimedOut:
      return "timed_out";
  }
  return "?";
}

const char* effort_name(Effort effort) {
  switch (effort) {
    case Effort::kQuick:
      return "quick";
    case Effort::kNormal:
      return "normal";
    case Effort::kExhaustive:
      return "exhaustive";
  }
  return "?";
}

std::string utc_now() {
  const auto now = std::chrono::system_clock::now();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(now - seconds).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)), millis);
}

KernelSpec parse_spec_text(std::string_view text) {
  Fields fields = split_fields("kernel spec", text);
  KernelSpec spec;
  spec.op = parse_op(fields["op"]);
  for (const auto& [key, value] : fields) set_fp8_option(key, value, &spec.fp8);
  spec.dtype_q = parse_dtype(fields["dtype_q"]);
  spec.dtype_kv = parse_dtype(fields["dtype_kv"]);
  spec.dtype_o = parse_dtype(fields["dtype_o"]);
  spec.mask = parse_mask(fields["mask"]);
  read_integer(fields["head_dim_qk"], spec.head_dim_qk);
  read_integer(fields["head_dim_v"], spec.head_dim_v);
  read_integer(fields["gqa_ratio"], spec.gqa_ratio);
  read_pair(fields["window"], ':', spec.window_left, spec.window_right);
  if (to_text(spec) != text) refuse("kernel spec", text);
  validate(spec);
  return spec;
}

Shape parse_shape_text(std::string_view text) {
  Fields fields = split_fields("shape", text);
  Shape shape;
  read_integer(fields["batch"], shape.batch);
  read_integer(fields["seqlen_q"], shape.seqlen_q);
  read_integer(fields["seqlen_kv"], shape.seqlen_kv);
  read_pair(fields["heads"], '/', shape.num_heads_q, shape.num_heads_kv);
  if (to_text(shape) != text) refuse("shape", text);
  validate(shape);
  return shape;
}

}  // namespace attune
