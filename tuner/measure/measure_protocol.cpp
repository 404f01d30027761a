// SPDX-License-Identifier: Apache-2.0
// JSON forms of the measuring protocol; see measure_protocol.hpp.
#include "tuner/measure/measure_protocol.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "generator/core/system/error.hpp"
#include "generator/core/system/json_text.hpp"
#include "generator/score/language/user_program.hpp"

namespace attune {
namespace {

using Json = nlohmann::json;

// Returns the texts of the callers' programs that a problem names, because the worker does not know
// them.
Json programs_of(const Problem& p) {
  Json programs = Json::array();
  if (p.scores.score_mod)
    programs.push_back(
        {{"text", user_program(p.scores.score_mod, score::Kind::kScore, "score_mod").text},
         {"mask", false}});
  if (p.scores.mask_mod)
    programs.push_back(
        {{"text", user_program(p.scores.mask_mod, score::Kind::kMask, "mask_mod").text},
         {"mask", true}});
  return programs;
}

constexpr double kLargest = std::numeric_limits<double>::max();

// Replaces infinity and NaN, which JSON lacks.
double finite(double value) {
  return std::isnan(value) ? kLargest : std::clamp(value, -kLargest, kLargest);
}

template <class Read>
auto parse(const Frame& frame, const Read& read) {
  try {
    return read(Json::parse(frame.line));
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kInternal, std::string("measuring protocol: ") + error.what());
  }
}

Json info_json(const ImageInfo& info) {
  return {{"registers", info.registers},
          {"static_shared_bytes", info.static_shared_bytes},
          {"stack_bytes", info.stack_bytes}};
}

ImageInfo info_of(const Json& json) {
  ImageInfo info;
  info.registers = json.at("registers");
  info.static_shared_bytes = json.at("static_shared_bytes");
  info.stack_bytes = json.at("stack_bytes");
  return info;
}

Json kernel_json(const KernelRequest& kernel) {
  return {{"template", kernel.template_name},
          {"config", kernel.config.to_text()},
          {"format", static_cast<int>(kernel.image.format)},
          {"entry", kernel.image.entry},
          {"info", info_json(kernel.image.info)}};
}

KernelRequest kernel_of(const Json& json, const std::string& bytes) {
  KernelRequest kernel;
  kernel.template_name = json.at("template");
  kernel.config = parse_config(json.at("config").get<std::string>());
  kernel.image.format = static_cast<ImageFormat>(json.at("format").get<int>());
  kernel.image.entry = json.at("entry");
  kernel.image.info = info_of(json.at("info"));
  kernel.image.bytes = bytes;
  return kernel;
}

Json fault_json(const std::optional<Fault>& fault) {
  if (!fault) return nullptr;
  return {{"status", static_cast<int>(fault->status)},
          {"reason", fault->reason},
          {"fatal", fault->fatal}};
}

std::optional<Fault> fault_of(const Json& json) {
  if (json.is_null()) return std::nullopt;
  return Fault{static_cast<TrialStatus>(json.at("status").get<int>()), json.at("reason"),
               json.at("fatal")};
}

Frame encode_request(const OpenRequest& request) {
  const MeasureTask& task = request.task;
  Json json{{"do", "open"},
            {"problem", to_text(task.problem)},
            {"programs", programs_of(task.problem)},
            {"seed", task.seed},
            {"reference", nullptr}};
  if (!task.reference) return {to_json_text(json), ""};
  json["reference"] = kernel_json(*task.reference);
  return {to_json_text(json), task.reference->image.bytes};
}

Frame kernel_request(const char* what, int id, const KernelRequest& kernel) {
  return {to_json_text(Json{{"do", what}, {"id", id}, {"kernel", kernel_json(kernel)}}),
          kernel.image.bytes};
}

Frame encode_request(const PrepareRequest& request) {
  return kernel_request("prepare", request.id, request.kernel);
}
Frame encode_request(const ReloadRequest& request) {
  return kernel_request("reload", request.id, request.kernel);
}
Frame encode_request(const RoundRequest& request) {
  return {to_json_text(
              Json{{"do", "round"}, {"order", request.order}, {"sample_us", request.sample_us}}),
          ""};
}
Frame encode_request(const DropRequest& request) {
  return {to_json_text(Json{{"do", "drop"}, {"id", request.id}}), ""};
}

Request request_of(const Json& json, const std::string& payload) {
  const std::string word = json.at("do");
  if (word == "open") {
    for (const Json& program : json.at("programs"))
      read_user_program(program.at("text").get<std::string>(),
                        program.at("mask").get<bool>() ? score::Kind::kMask : score::Kind::kScore,
                        "program");
    MeasureTask task{parse_problem(json.at("problem").get<std::string>()), json.at("seed"),
                     std::nullopt};
    if (!json.at("reference").is_null()) task.reference = kernel_of(json.at("reference"), payload);
    return OpenRequest{std::move(task)};
  }
  if (word == "prepare")
    return PrepareRequest{json.at("id"), kernel_of(json.at("kernel"), payload)};
  if (word == "reload") return ReloadRequest{json.at("id"), kernel_of(json.at("kernel"), payload)};
  if (word == "round") return RoundRequest{json.at("order"), json.at("sample_us")};
  if (word == "drop") return DropRequest{json.at("id")};
  throw Error(ErrorCode::kInternal, "measuring protocol: unknown request \"" + word + "\"");
}

}  // namespace

Frame encode(const Request& request) {
  return std::visit([](const auto& r) { return encode_request(r); }, request);
}

Request decode_request(const Frame& frame) {
  return parse(frame, [&](const Json& json) { return request_of(json, frame.payload); });
}

Frame encode(const OpenReply& reply) {
  return {
      to_json_text(Json{{"ok", reply.error.empty()}, {"error", reply.error}, {"code", reply.code}}),
      ""};
}

Frame encode(const Prepared& reply) {
  return {to_json_text(Json{{"fault", fault_json(reply.fault)},
                            {"error_max", finite(reply.error_max)},
                            {"error_mean", finite(reply.error_mean)},
                            {"estimate_us", finite(reply.estimate_us)},
                            {"info", info_json(reply.info)}}),
          ""};
}

Frame encode(const SampleReply& reply) {
  const Sample& sample = reply.sample;
  return {to_json_text(Json{{"id", sample.id},
                            {"us", finite(sample.us)},
                            {"fault", fault_json(sample.fault)},
                            {"clock", reply.sm_clock_mhz}}),
          ""};
}

OpenReply decode_open_reply(const Frame& frame) {
  return parse(frame, [](const Json& json) {
    return OpenReply{json.at("error"), json.at("code")};
  });
}

Prepared decode_prepared(const Frame& frame) {
  return parse(frame, [](const Json& json) {
    return Prepared{fault_of(json.at("fault")), json.at("error_max"), json.at("error_mean"),
                    json.at("estimate_us"), info_of(json.at("info"))};
  });
}

SampleReply decode_sample_reply(const Frame& frame) {
  return parse(frame, [](const Json& json) {
    return SampleReply{{json.at("id"), json.at("us"), fault_of(json.at("fault"))},
                       json.at("clock")};
  });
}

}  // namespace attune
