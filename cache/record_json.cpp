// SPDX-License-Identifier: Apache-2.0
// Records as JSON; see record_json.hpp and FORMAT.md.
#include "cache/record_json.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "cache/schema.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/json_text.hpp"
#include "generator/core/system/json_value.hpp"

namespace attune {
namespace {

using Json = nlohmann::json;

Json parse_object(std::string_view text) {
  Json json = parse_json<Json>(text);
  if (!json.is_object()) throw Error(ErrorCode::kInvalidArgument, "is not a JSON object");
  return json;
}

// Calls `read`, and turns the library's exceptions (missing key, wrong type) into ours.
template <class Read>
auto reading(Read&& read) {
  try {
    return read();
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, error.what());
  }
}

// JSON has no NaN and no infinity: they are written and read as null.
double number(const Json& json, const char* key) {
  const Json& value = json.at(key);
  return value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>();
}

template <class Enum>
Enum named(const Json& json, const char* key, std::initializer_list<Enum> values,
           const char* (*name)(Enum)) {
  const std::string text = json.at(key).get<std::string>();
  for (const Enum value : values)
    if (text == name(value)) return value;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("{} is \"{}\", which is not known", key, text));
}

Effort read_effort(const Json& json) {
  return named(json, "effort", {Effort::kQuick, Effort::kNormal, Effort::kExhaustive}, effort_name);
}

// Returns the JSON text of an image's info. libattune.so calls this to store an image. The text is
// written by hand, because a list of nlohmann allocates in its destructor.
std::string text_of(const ImageInfo& info) {
  std::string warnings;
  for (const std::string& warning : info.warnings)
    warnings += (warnings.empty() ? "" : ",") +
                Json(warning).dump(-1, ' ', false, Json::error_handler_t::replace);
  return fmt::format(
      R"({{"registers":{},"spill_load_bytes":{},"spill_store_bytes":{},"stack_bytes":{},)"
      R"("static_shared_bytes":{},"warnings":[{}]}})",
      info.registers, info.spill_load_bytes, info.spill_store_bytes, info.stack_bytes,
      info.static_shared_bytes, warnings);
}

Json to_json(const ImageInfo& info) {
  return {{"registers", info.registers},
          {"static_shared_bytes", info.static_shared_bytes},
          {"stack_bytes", info.stack_bytes},
          {"spill_store_bytes", info.spill_store_bytes},
          {"spill_load_bytes", info.spill_load_bytes},
          {"warnings", info.warnings}};
}

// Reads an image's info. `AnyJson` is nlohmann's type or JsonValue.
template <class AnyJson>
ImageInfo read_info(const AnyJson& json) {
  ImageInfo info;
  info.registers = json_integer(json, "registers");
  info.static_shared_bytes = json_integer(json, "static_shared_bytes");
  info.stack_bytes = json_integer(json, "stack_bytes");
  info.spill_store_bytes = json_integer(json, "spill_store_bytes");
  info.spill_load_bytes = json_integer(json, "spill_load_bytes");
  for (const AnyJson& warning : json_list(json, "warnings")) {
    if (!warning.is_string()) refuse_json("warnings", warning.dump(), "lists of texts");
    info.warnings.push_back(warning.template get<std::string>());
  }
  return info;
}

Json to_json(const Timing& t) {
  return {{"median_us", t.median_us}, {"lo_us", t.lo_us},     {"hi_us", t.hi_us},
          {"min_us", t.min_us},       {"samples", t.samples}, {"sm_clock_mhz", t.sm_clock_mhz}};
}

Timing read_timing(const Json& json) {
  return {number(json, "median_us"),
          number(json, "lo_us"),
          number(json, "hi_us"),
          number(json, "min_us"),
          json_integer(json, "samples", 0),
          json_integer(json, "sm_clock_mhz", 0)};
}

// Returns conditions as JSON, without a power limit that is not known.
Json to_json(const Conditions& c) {
  Json json{{"driver", c.driver}};
  if (c.power_limit_w > 0) json["power_limit_w"] = c.power_limit_w;
  return json;
}

Conditions read_conditions(const Json& json) {
  Conditions c{json.at("driver").get<std::string>()};
  if (json.contains("power_limit_w")) c.power_limit_w = json_integer(json, "power_limit_w", 0);
  return c;
}

Json to_json(const DeviceIdentity& d) {
  return {{"arch", d.arch},
          {"sm_count", d.sm_count},
          {"shared_bytes_per_block", d.shared_bytes_per_block},
          {"registers_per_sm", d.registers_per_sm},
          {"l2_bytes", d.l2_bytes},
          {"memory_bus_bits", d.memory_bus_bits},
          {"memory_clock_khz", d.memory_clock_khz},
          {"slice", d.slice},
          {"name", d.name}};
}

DeviceIdentity read_device(const Json& json) {
  DeviceIdentity d;
  d.arch = json.at("arch").get<std::string>();
  d.sm_count = json_integer(json, "sm_count", 0);
  d.shared_bytes_per_block = json_integer(json, "shared_bytes_per_block", 0);
  d.registers_per_sm = json_integer(json, "registers_per_sm", 0);
  d.l2_bytes = json_integer<int64_t>(json, "l2_bytes", 0);
  d.memory_bus_bits = json_integer(json, "memory_bus_bits", 0);
  d.memory_clock_khz = json_integer(json, "memory_clock_khz", 0);
  d.slice = json.at("slice").get<std::string>();
  d.name = json.at("name").get<std::string>();
  return d;
}

Json to_json(const ToolchainIdentity& t) {
  return {{"template", t.template_name},
          {"template_digest", t.template_digest},
          {"compiler", t.compiler},
          {"options", t.options}};
}

ToolchainIdentity read_toolchain(const Json& json) {
  return {json.at("template").get<std::string>(), json.at("template_digest").get<std::string>(),
          json.at("compiler").get<std::string>(), json.at("options").get<std::string>()};
}

// Returns the key, which each row has.
Json key_json(const KernelSpec& spec, const Shape& shape, const DeviceIdentity& device,
              const MeasurePolicy& policy) {
  return {{"problem", to_text(spec)},
          {"shape", to_text(shape)},
          {"device", to_json(device)},
          {"policy", policy.text}};
}

TuningKey read_key(const Json& json) {
  return {parse_spec_text(json.at("problem").get<std::string>()),
          parse_shape_text(json.at("shape").get<std::string>()),
          read_device(json.at("device")),
          {json.at("policy").get<std::string>()}};
}

}  // namespace

std::string info_text(const ImageInfo& info) { return text_of(info); }

ImageInfo parse_info_text(std::string_view text) { return read_info(JsonValue::parse(text)); }

std::string header_line(size_t rows) {
  return to_json_text(Json{{"kind", "attune_store"}, {"rows", rows}, {"schema", kSchemaVersion}});
}

std::optional<size_t> rows_of_header(std::string_view line) {
  return reading([&]() -> std::optional<size_t> {
    const Json json = parse_object(line);
    if (!json.contains("rows")) return std::nullopt;
    return json_integer<size_t>(json, "rows", 0);
  });
}

std::string trial_line(const StoredTrial& row) {
  const TrialRecord& t = row.trial;
  Json json = key_json(row.key.spec, row.key.shape, row.key.device, row.key.policy);
  json.update({{"kind", "trial"},
               {"toolchain", to_json(t.toolchain)},
               {"arch", t.arch},
               {"config", t.config.to_text()},
               {"is_default", t.is_default},
               {"status", trial_status_name(t.status)},
               {"reason", t.reason},
               {"timing", to_json(t.timing)},
               {"error_max", t.error_max},
               {"error_mean", t.error_mean},
               {"info", to_json(t.info)},
               {"shared_bytes", t.shared_bytes},
               {"effort", effort_name(t.effort)},
               {"created", t.created}});
  json.update(to_json(t.conditions));
  return to_json_text(json);
}

std::string winner_line(const WinnerRecord& w) {
  Json json = key_json(w.spec, w.shape, w.device, w.policy);
  json.update({{"kind", "winner"},
               {"toolchain", to_json(w.toolchain)},
               {"arch", w.arch},
               {"config", w.config.to_text()},
               {"timing", to_json(w.timing)},
               {"default_config", w.default_config.to_text()},
               {"default_timing", to_json(w.default_timing)},
               {"default_is_winner", w.default_is_winner},
               {"effort", effort_name(w.effort)},
               {"candidates", w.candidates},
               {"complete", w.complete},
               {"why", w.why},
               {"created", w.created},
               {"pinned", w.pinned}});
  json.update(to_json(w.conditions));
  return to_json_text(json);
}

std::string program_line(const StoredProgram& program) {
  const bool is_mask = program.kind == score::Kind::kMask;
  return to_json_text(Json{{"kind", "program"},
                           {"digest", to_text(program.digest)},
                           {"gives", is_mask ? "mask" : "score"},
                           {"text", program.text}});
}

LineKind kind_of_line(std::string_view line) {
  return reading([&] {
    const Json json = parse_object(line);
    const std::string kind = json.at("kind").get<std::string>();
    if (kind == "trial") return LineKind::kTrial;
    if (kind == "winner") return LineKind::kWinner;
    if (kind == "program") return LineKind::kProgram;
    if (kind != "attune_store")
      throw Error(
          ErrorCode::kInvalidArgument,
          fmt::format("kind is \"{}\"; must be attune_store, trial, winner or program", kind));
    const int schema = json_integer(json, "schema");
    if (schema > kSchemaVersion)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("schema is {}; must be at most {} (a newer attune wrote this)",
                              schema, kSchemaVersion));
    return LineKind::kHeader;
  });
}

StoredTrial parse_trial_line(std::string_view line) {
  return reading([&] {
    const Json json = parse_object(line);
    TrialRecord t;
    t.toolchain = read_toolchain(json.at("toolchain"));
    t.arch = json.at("arch").get<std::string>();
    t.config = parse_config(json.at("config").get<std::string>());
    t.is_default = json.at("is_default").get<bool>();
    t.status =
        named(json, "status",
              {TrialStatus::kOk, TrialStatus::kCompileFailed, TrialStatus::kOutOfResources,
               TrialStatus::kLaunchFailed, TrialStatus::kWrongResult, TrialStatus::kTimedOut},
              trial_status_name);
    t.reason = json.at("reason").get<std::string>();
    t.timing = read_timing(json.at("timing"));
    t.error_max = number(json, "error_max");
    t.error_mean = number(json, "error_mean");
    t.info = read_info(json.at("info"));
    t.shared_bytes = json_integer(json, "shared_bytes");
    t.effort = read_effort(json);
    t.conditions = read_conditions(json);
    t.created = json.at("created").get<std::string>();
    StoredTrial row{read_key(json), t};
    row.key.device.conditions = t.conditions;
    return row;
  });
}

WinnerRecord parse_winner_line(std::string_view line) {
  return reading([&] {
    const Json json = parse_object(line);
    const TuningKey key = read_key(json);
    WinnerRecord w;
    w.spec = key.spec;
    w.shape = key.shape;
    w.device = key.device;
    w.policy = key.policy;
    w.toolchain = read_toolchain(json.at("toolchain"));
    w.arch = json.at("arch").get<std::string>();
    w.config = parse_config(json.at("config").get<std::string>());
    w.timing = read_timing(json.at("timing"));
    w.default_config = parse_config(json.at("default_config").get<std::string>());
    w.default_timing = read_timing(json.at("default_timing"));
    w.default_is_winner = json.at("default_is_winner").get<bool>();
    w.effort = read_effort(json);
    w.candidates = json_integer(json, "candidates", 0);
    w.complete = json.value("complete", true);  // files of schema 2 lack it
    w.why = json.at("why").get<std::string>();
    w.conditions = read_conditions(json);
    w.created = json.at("created").get<std::string>();
    w.pinned = json.at("pinned").get<bool>();
    w.device.conditions = w.conditions;
    return w;
  });
}

StoredProgram parse_program_line(std::string_view line) {
  return reading([&] {
    const Json json = parse_object(line);
    const std::string gives = json.at("gives").get<std::string>();
    if (gives != "mask" && gives != "score")
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("gives is \"{}\"; must be score or mask", gives));
    StoredProgram program{parse_program_digest(json.at("digest").get<std::string>()),
                          gives == "mask" ? score::Kind::kMask : score::Kind::kScore,
                          json.at("text").get<std::string>()};
    adopt(program);
    return program;
  });
}

}  // namespace attune
