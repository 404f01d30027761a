// SPDX-License-Identifier: Apache-2.0
// The text form of schedules, for the C interface; see schedule.hpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "generator/core/group/schedule.hpp"
#include "generator/core/problem/problem_values.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

using problem_values::parse_number;

struct Request {
  int world = 0, rank = 0;
  std::string_view layout = "auto", algorithm = "auto";
  bool training = false, world_invariant = false;
  std::vector<int64_t> documents;
};

[[noreturn]] void refuse(std::string_view key, std::string_view value, std::string_view accepted) {
  problem_values::refuse(key, value, accepted);
}

std::vector<int64_t> parse_documents(std::string_view value) {
  std::vector<int64_t> borders;
  for (bool more = true; more;) {
    const size_t colon = value.find(':');
    borders.push_back(
        parse_number<int64_t>("documents", value.substr(0, colon), "borders such as 0:100:256"));
    more = colon != std::string_view::npos;
    if (more) value = value.substr(colon + 1);
  }
  return borders;
}

Request parse_request(std::string_view text) {
  Request request;
  while (!text.empty()) {
    const size_t comma = text.find(','), equals = text.substr(0, comma).find('=');
    const std::string_view key = text.substr(0, std::min(equals, comma));
    const std::string_view value =
        equals == std::string_view::npos ? "" : text.substr(0, comma).substr(equals + 1);
    if (key == "world")
      request.world = parse_number<int>(key, value, "an integer");
    else if (key == "rank")
      request.rank = parse_number<int>(key, value, "an integer");
    else if (key == "layout")
      request.layout = value;
    else if (key == "algorithm")
      request.algorithm = value;
    else if (key == "training")
      request.training = parse_number<int>(key, value, "0 or 1") != 0;
    else if (key == "world_invariant")
      request.world_invariant = parse_number<int>(key, value, "0 or 1") != 0;
    else if (key == "documents")
      request.documents = parse_documents(value);
    else
      refuse("group key", key,
             "world, rank, layout, algorithm, training, world_invariant or documents");
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  if (request.world < 1 || request.world > kMostRanks)
    refuse("world", std::to_string(request.world), fmt::format("1 to {}", kMostRanks));
  if (request.rank < 0 || request.rank >= request.world)
    refuse("rank", std::to_string(request.rank), fmt::format("0 to {}", request.world - 1));
  return request;
}

Algorithm algorithm_of(const Request& request, const WholeProblem& whole, const Layout& layout) {
  if (request.algorithm == "auto" && whole.world_invariant) return Algorithm::kGather;
  if (request.algorithm == "auto") return choose_algorithm(whole, layout, request.training);
  for (const Algorithm one : {Algorithm::kGather, Algorithm::kExchange, Algorithm::kRing})
    if (algorithm_name(one) == request.algorithm) return one;
  refuse("algorithm", request.algorithm, "auto, gather, exchange or ring");
}

std::string line_of(const Step& s) {
  const std::string heads = fmt::format("{} {}", s.heads.first, s.heads.end);
  const std::string tokens = fmt::format("{} {}", s.tokens.first, s.tokens.end);
  if (s.kind == StepKind::kTransfer)
    return fmt::format("transfer {} {} {} {} {} {} {}\n", s.round, payload_name(s.payload), s.from,
                       s.to, tokens, heads, s.bytes);
  if (s.kind == StepKind::kJoin)
    return fmt::format("join {} {} {} {}\n", s.round, payload_name(s.payload), tokens, heads);
  return fmt::format("launch {} {} {} {} {} {} {}\n", s.round, tokens, s.keys.first, s.keys.end,
                     heads, s.left, s.right);
}

}  // namespace

std::string schedule_text(const Problem& problem, std::string_view text) {
  Request request = parse_request(text);
  const WholeProblem whole{problem, std::move(request.documents), request.world_invariant};
  validate(whole);
  const Layout layout = parse_layout(request.layout, whole, request.world);
  const Algorithm algorithm = algorithm_of(request, whole, layout);
  check_algorithm(whole, layout, algorithm);
  std::string lines =
      fmt::format("layout {}\nalgorithm {}\n", to_text(layout), algorithm_name(algorithm));
  if (whole.world_invariant)
    lines += fmt::format("blocks {}\n", fmt::join(block_borders(whole), " "));
  for (const Pass pass : {Pass::kForward, Pass::kBackward}) {
    lines += pass == Pass::kForward ? "forward" : "backward";
    Schedule mine;
    for (int rank = 0; rank < request.world; ++rank) {
      Schedule schedule = make_schedule(whole, layout, algorithm, pass, rank);
      lines += fmt::format(" {}", received_bytes(schedule, rank));
      if (rank == request.rank) mine = std::move(schedule);
    }
    lines += '\n';
    for (const Step& step : mine) lines += line_of(step);
  }
  return lines;
}

}  // namespace attune
