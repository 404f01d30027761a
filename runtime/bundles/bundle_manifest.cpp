// SPDX-License-Identifier: Apache-2.0
// Reading and writing manifest.json; see bundle_manifest.hpp.
#include "runtime/bundles/bundle_manifest.hpp"

#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "generator/core/system/error.hpp"
#include "generator/core/system/json_text.hpp"
#include "generator/core/system/json_value.hpp"
#include "generator/core/system/log.hpp"

namespace attune {
namespace {

using Json = nlohmann::ordered_json;  // for writing: keeps the order of keys

const char* format_name(ImageFormat format) {
  return format == ImageFormat::kCubin ? "cubin" : "host_object";
}

ImageFormat parse_format(const std::string& name) {
  for (const ImageFormat format : {ImageFormat::kCubin, ImageFormat::kHostObject})
    if (name == format_name(format)) return format;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("format is \"{}\"; must be cubin or host_object", name));
}

Json winner_json(const WinnerRecord& winner) {
  Json json{{"problem", to_text(problem_of(winner.spec, winner.shape))},
            {"median_us", winner.timing.median_us},
            {"lo_us", winner.timing.lo_us},
            {"hi_us", winner.timing.hi_us},
            {"default_us", winner.default_timing.median_us},
            {"default_config", winner.default_config.to_text()},
            {"default_is_winner", winner.default_is_winner},
            {"effort", static_cast<int>(winner.effort)},
            {"candidates", winner.candidates},
            {"why", winner.why},
            {"device", winner.device.name},
            {"driver", winner.conditions.driver},
            {"created", winner.created},
            {"pinned", winner.pinned}};
  if (winner.device.is_cpu()) json["threads"] = winner.device.sm_count;
  if (winner.conditions.power_limit_w > 0) json["power_limit_w"] = winner.conditions.power_limit_w;
  return json;
}

Effort effort_of(int number) {
  if (number < static_cast<int>(Effort::kQuick) || number > static_cast<int>(Effort::kExhaustive))
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("effort is {}; must be 1, 2 or 3", number));
  return static_cast<Effort>(number);
}

WinnerRecord parse_winner(const JsonValue& json, const ManifestEntry& entry) {
  const Problem problem = parse_problem(json_string(json, "problem"));
  WinnerRecord winner;
  winner.spec = entry.key.spec;
  winner.shape = shape_of(problem);
  winner.toolchain = entry.key.toolchain;
  winner.arch = entry.key.arch;
  winner.config = entry.key.config;
  winner.timing.median_us = json_number(json, "median_us");
  winner.timing.lo_us = json_number(json, "lo_us");
  winner.timing.hi_us = json_number(json, "hi_us");
  winner.default_timing.median_us = json_number(json, "default_us");
  winner.default_config = parse_config(json_string(json, "default_config"));
  winner.default_is_winner = json_flag(json, "default_is_winner");
  winner.effort = effort_of(json_integer(json, "effort"));
  winner.candidates = json_integer(json, "candidates");
  winner.why = json_string(json, "why");
  winner.device.name = json_string(json, "device");
  if (json.contains("threads")) {  // for a CPU; earlier bundles have none
    winner.device.arch = entry.key.arch;
    winner.device.sm_count = json_integer(json, "threads");
  }
  winner.conditions.driver = json_string(json, "driver");
  if (json.contains("power_limit_w"))  // not for a CPU, nor in earlier bundles
    winner.conditions.power_limit_w = json_integer(json, "power_limit_w", 0);
  winner.created = json_string(json, "created");
  winner.pinned = json_flag(json, "pinned");
  return winner;
}

Json entry_json(const ManifestEntry& entry) {
  Json winners = Json::array();
  for (const WinnerRecord& winner : entry.winners) winners.push_back(winner_json(winner));
  Json json = {
      {"sha256", entry.sha256},
      {"format", format_name(entry.image.format)},
      {"entry", entry.image.entry},
      {"arch", entry.key.arch},
      {"template", entry.key.toolchain.template_name},
      {"template_digest", entry.key.toolchain.template_digest},
      {"source_digest", entry.key.source_digest},
      {"compiler", entry.key.toolchain.compiler},
      {"options", entry.key.toolchain.options},
      {"problem", to_text(problem_of(entry.key.spec, Shape{1, 1, 1, entry.key.spec.gqa_ratio, 1}))},
      {"config", entry.key.config.to_text()},
      {"registers", entry.image.info.registers},
      {"static_shared_bytes", entry.image.info.static_shared_bytes},
      {"stack_bytes", entry.image.info.stack_bytes},
      {"winners", std::move(winners)}};
  if (entry.file.empty())
    json["offset"] = entry.offset, json["bytes"] = entry.bytes;
  else
    json["file"] = entry.file;
  if (entry.packed > 0) json["packed"] = entry.packed;
  return json;
}

std::string plain_name(const std::string& name) {
  if (name.empty() || name.front() == '.' || name.find('/') != std::string::npos)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("file is \"{}\"; must be a plain name inside the bundle", name));
  return name;
}

ManifestEntry parse_entry(const JsonValue& json) {
  ManifestEntry entry;
  if (json.contains("offset")) {
    entry.offset = json_integer<uint64_t>(json, "offset", 0);
    entry.bytes = json_integer<uint64_t>(json, "bytes", 0);
    if (json.contains("packed")) entry.packed = json_integer<uint64_t>(json, "packed", 1);
  } else {
    entry.file = plain_name(json_string(json, "file"));
  }
  entry.sha256 = json_string(json, "sha256");
  entry.image.format = parse_format(json_string(json, "format"));
  entry.image.entry = json_string(json, "entry");
  entry.image.info.registers = json_integer(json, "registers");
  entry.image.info.static_shared_bytes = json_integer(json, "static_shared_bytes");
  entry.image.info.stack_bytes = json_integer(json, "stack_bytes");
  entry.key.arch = json_string(json, "arch");
  entry.key.toolchain = {json_string(json, "template"), json_string(json, "template_digest"),
                         json_string(json, "compiler"), json_string(json, "options")};
  entry.key.spec = spec_of(parse_problem(json_string(json, "problem")));
  entry.key.config = parse_config(json_string(json, "config"));
  if (json.contains("source_digest"))  // earlier bundles have none, and are no longer found
    entry.key.source_digest = json_string(json, "source_digest");
  for (const JsonValue& winner : json_list(json, "winners"))
    entry.winners.push_back(parse_winner(winner, entry));
  return entry;
}

// Returns the texts of the programs that the kernels' problems name, each once.
Json programs_json(const std::vector<ManifestEntry>& entries) {
  std::map<std::string, Json> programs;
  for (const ManifestEntry& entry : entries)
    for (const StoredProgram& program : programs_of(entry.key.spec))
      programs[to_text(program.digest)] = {
          {"digest", to_text(program.digest)},
          {"gives", program.kind == score::Kind::kMask ? "mask" : "score"},
          {"text", program.text}};
  Json list = Json::array();
  for (auto& [digest, json] : programs) list.push_back(std::move(json));
  return list;
}

// Registers the programs of a manifest, if it has any. A program that does not match its digest is
// only logged, because images run without it.
void adopt_programs(const JsonValue& manifest, const std::string& path) {
  if (!manifest.contains("programs")) return;
  for (const JsonValue& json : json_list(manifest, "programs")) try {
      adopt({parse_program_digest(json_string(json, "digest")),
             json_string(json, "gives") == "mask" ? score::Kind::kMask : score::Kind::kScore,
             json_string(json, "text")});
    } catch (const Error& error) {
      log(LogCode::kBundleProgramRefused, fmt::format("{}: {}", path, error.what()));
    }
}

}  // namespace

std::string manifest_text(const std::vector<ManifestEntry>& entries, ManifestTime time) {
  Json kernels = Json::array();
  for (const ManifestEntry& entry : entries) kernels.push_back(entry_json(entry));
  Json manifest = {{"attune_bundle", kBundleVersion}};
  if (time == ManifestTime::kNow) manifest["created"] = utc_now();
  manifest["kernels"] = std::move(kernels);
  if (Json programs = programs_json(entries); !programs.empty())
    manifest["programs"] = std::move(programs);
  return to_json_text(manifest, 1) + "\n";
}

std::vector<ManifestEntry> parse_manifest(const std::string& text, const std::string& path) {
  try {
    const JsonValue manifest = JsonValue::parse(text);
    const int version = json_integer(manifest, "attune_bundle");
    if (version != kBundleVersion)
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("attune_bundle is {}; this library reads version {}", version,
                              kBundleVersion));
    adopt_programs(manifest, path);
    std::vector<ManifestEntry> entries;
    for (const JsonValue& kernel : json_list(manifest, "kernels")) try {
        entries.push_back(parse_entry(kernel));
      } catch (const Error& error) {
        throw Error(error.code(), fmt::format("kernels[{}]: {}", entries.size(), error.what()));
      }
    return entries;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace attune
