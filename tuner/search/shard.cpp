// SPDX-License-Identifier: Apache-2.0
// Turns texts and schedulers' variables into shards; see shard.hpp.
#include "tuner/search/shard.hpp"

#include <fmt/format.h>

#include <charconv>
#include <map>

#include "generator/core/system/digest.hpp"
#include "generator/core/system/error.hpp"

namespace attune {
namespace {

constexpr int kMostShards = 1'000'000;

std::optional<int> whole_number(const std::string& text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

[[noreturn]] void refuse(const std::string& text, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("--shard is \"{}\"; {}must be I/N with I from 0 to N-1, env or env/N",
                          text, why));
}

Shard checked(const std::string& text, std::optional<int> index, std::optional<int> count) {
  if (!index || !count || *count < 1 || *count > kMostShards || *index >= *count) refuse(text, "");
  return {*index, *count};
}

int number_in(const Lookup& variable, const char* name) {
  const std::string text = variable(name).value_or("");
  const std::optional<int> value = whole_number(text);
  if (!value)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("environment variable {} is \"{}\"; must be a whole number, at least 0",
                            name, text));
  return *value;
}

// The variables in which a scheduler gives a process its index and the number of processes. `first`
// and `step` are for indices that do not count 0, 1, 2; nullptr if they do.
struct Scheduler {
  const char* index;
  const char* count;  // nullptr: it does not give the number
  const char* first = nullptr;
  const char* step = nullptr;
};
constexpr Scheduler kSchedulers[] = {
    {"RANK", "WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"PMI_RANK", "PMI_SIZE"},
    {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN",
     "SLURM_ARRAY_TASK_STEP"},
    {"SLURM_PROCID", "SLURM_NTASKS"},
    {"JOB_COMPLETION_INDEX", nullptr},
};

struct Said {
  std::string by;
  Shard shard;
};

std::optional<Said> said_by(const Scheduler& scheduler, const std::string& text,
                            std::optional<int> given_count, const Lookup& variable) {
  if (!variable(scheduler.index)) return std::nullopt;
  int index = number_in(variable, scheduler.index);
  if (scheduler.first && variable(scheduler.first)) index -= number_in(variable, scheduler.first);
  if (scheduler.step && variable(scheduler.step))
    index /= std::max(1, number_in(variable, scheduler.step));
  std::optional<int> count = given_count;
  if (!count && scheduler.count && variable(scheduler.count))
    count = number_in(variable, scheduler.count);
  if (!count)
    refuse(text, fmt::format("{} is {}, but no variable gives the number of shards; ",
                             scheduler.index, index));
  if (index < 0 || index >= *count || *count > kMostShards)
    refuse(text, fmt::format("{} makes this shard {} of {}; ", scheduler.index, index, *count));
  return Said{scheduler.index, {index, *count}};
}

// Returns the shard that the schedulers' variables give. A job of one process is ignored if another
// scheduler has more processes: each task of a Slurm array, for example, is a job of one process.
Shard from_schedulers(const std::string& text, std::optional<int> count, const Lookup& variable) {
  std::optional<Said> found;
  for (const Scheduler& scheduler : kSchedulers) {
    const std::optional<Said> said = said_by(scheduler, text, count, variable);
    if (!said || (found && said->shard.count == 1)) continue;
    if (found && found->shard.count > 1 && found->shard != said->shard)
      refuse(text, fmt::format("{} says {}/{} and {} says {}/{}; ", found->by, found->shard.index,
                               found->shard.count, said->by, said->shard.index, said->shard.count));
    if (!found || found->shard.count == 1) found = said;
  }
  if (!found) {
    std::string names;
    for (const Scheduler& scheduler : kSchedulers)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", scheduler.index);
    refuse(text, fmt::format("none of {} is set; ", names));
  }
  return found->shard;
}

}  // namespace

Shard parse_shard(const std::string& text, const Lookup& variable) {
  const size_t slash = text.find('/');
  const std::string index = text.substr(0, slash);
  const bool has_count = slash != std::string::npos;
  const std::optional<int> count = has_count ? whole_number(text.substr(slash + 1)) : std::nullopt;
  if (index != "env") return checked(text, whole_number(index), count);
  if (has_count) checked(text, 0, count);
  return from_schedulers(text, count, variable);
}

std::vector<Problem> problems_of_shard(const std::vector<Problem>& problems, const Shard& shard,
                                       int replicate) {
  if (replicate < 1 || replicate > shard.count)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("--replicate is {}; must be 1 to the number of shards, {}", replicate,
                            shard.count));
  std::map<std::string, int> place;  // by digest
  for (const Problem& problem : problems) place[sha256_hex(to_text(problem))] = 0;
  int next = 0;
  for (auto& [digest, number] : place) number = next++ % shard.count;
  std::vector<Problem> mine;
  for (const Problem& problem : problems) {
    const auto found = place.find(sha256_hex(to_text(problem)));
    if (found == place.end()) continue;  // taken already
    const int steps = (shard.index - found->second + shard.count) % shard.count;
    if (steps < replicate) mine.push_back(problem);
    place.erase(found);
  }
  return mine;
}

}  // namespace attune
