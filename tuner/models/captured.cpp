// SPDX-License-Identifier: Apache-2.0
// Reads and merges captured problems; see workload.hpp.
#include "tuner/models/workload.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <tuple>

#include "generator/core/problem/kernel_spec.hpp"
#include "generator/core/problem/op.hpp"
#include "generator/core/problem/visibility.hpp"
#include "generator/core/system/error.hpp"
#include "generator/core/system/files.hpp"
#include "generator/core/system/json_text.hpp"
#include "runtime/engine/engine_options.hpp"

namespace attune {
namespace {

struct Captured {
  Problem problem;
  int64_t calls = 0, recorded = 0;
  std::optional<Rung> rung = {};  // none in files of older versions
};

int64_t count_in(const nlohmann::json& json, const char* field) {
  constexpr int64_t kMost = 1'000'000'000'000'000;
  if (!json.contains(field)) return 0;
  const nlohmann::json& value = json.at(field);
  if (!value.is_number_integer() || value < 0 || value > kMost)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" is {}; must be an integer from 0 to 10^15", field,
                            to_json_text(value)));
  return value.get<int64_t>();
}

// Returns the rung that chose the kernel of a line's calls.
std::optional<Rung> rung_in(const nlohmann::json& json) {
  if (!json.contains("rung")) return std::nullopt;
  std::vector<std::string> names;
  for (const Rung rung : {Rung::kPinned, Rung::kExact, Rung::kBucket, Rung::kNearest,
                          Rung::kDefaultConfig, Rung::kReference}) {
    if (json.at("rung") == rung_name(rung)) return rung;
    names.emplace_back(rung_name(rung));
  }
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("\"rung\" is {}; must be one of {}", to_json_text(json.at("rung")),
                          fmt::join(names, ", ")));
}

std::string program_text(const nlohmann::json& json, const char* field) {
  if (!json.at(field).is_string())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is not a string; must be a program in the score language", field));
  return json.at(field).get<std::string>();
}

// Parses a line of captures, which may have been cut in the middle.
nlohmann::json captured_json(const std::string& line) {
  try {
    return parse_json<nlohmann::json>(line);
  } catch (const Error& error) {
    throw Error(
        error.code(),
        fmt::format(
            "{}; each line must be a whole object such as {{\"problem\": \"dtype=bf16,...\"}}",
            error.what()));
  }
}

// Parses a captured problem. Errors begin with "captured.jsonl, line 3: ...".
Captured captured_problem(const std::string& line, const std::string& where) {
  try {
    const nlohmann::json json = captured_json(line);
    if (!json.is_object() || !json.contains("problem") || !json.at("problem").is_string())
      throw Error(ErrorCode::kInvalidArgument,
                  "the line has no \"problem\" text; must be a JSON object such as {\"problem\": "
                  "\"dtype=bf16,...\"}");
    for (const auto& [field, kind] :
         {std::pair{"score_mod", score::Kind::kScore}, {"mask_mod", score::Kind::kMask}})
      if (json.contains(field)) read_user_program(program_text(json, field), kind, field);
    Captured captured{parse_problem(json.at("problem").get<std::string>()), count_in(json, "calls"),
                      count_in(json, "recorded"), rung_in(json)};
    validate(captured.problem);
    return captured;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: {}", where, error.what()));
  }
}

// Returns a rough time of one call, in seconds. It only orders problems.
double rough_seconds(const Problem& problem, Target target) {
  const bool cpu = target == Target::kCpu;
  const double flops_per_s = cpu ? 1e11 : 5e14, bytes_per_s = cpu ? 5e10 : 3e12;
  const double launch_s = cpu ? 1e-6 : 3e-6;
  return launch_s +
         std::max(useful_flops(problem) / flops_per_s, operand_bytes(problem) / bytes_per_s);
}

// All captured problems of one bucket.
struct Bucket {
  std::map<std::string, Captured> problems;  // by text of the canonical form
  int64_t calls = 0, recorded = 0;
  double all_s = 0;      // of all calls
  double longest_s = 0;  // of one call
};

class Buckets {
 public:
  explicit Buckets(Target target) : target_(target) {}

  void add(const Captured& captured) {
    const Problem problem = canonical(captured.problem);
    Bucket& bucket = buckets_[to_text(spec_of(problem)) + " " + bucket_of(shape_of(problem))];
    bucket.calls = std::min(bucket.calls + captured.calls, kMostCalls);
    bucket.recorded = std::min(bucket.recorded + captured.recorded, kMostCalls);
    const double seconds = rough_seconds(problem, target_);
    bucket.all_s += static_cast<double>(captured.calls + captured.recorded) * seconds;
    bucket.longest_s = std::max(bucket.longest_s, seconds);
    Captured& same = bucket.problems.try_emplace(to_text(problem), captured.problem).first->second;
    same.calls = std::min(same.calls + captured.calls, kMostCalls);
    same.recorded = std::min(same.recorded + captured.recorded, kMostCalls);
    if (!captured.rung) return;
    int64_t& of_rung = calls_of_rung_[*captured.rung];
    of_rung = std::min(of_rung + captured.calls + captured.recorded, kMostCalls);
  }

  // The calls whose kernels each rung chose; calls into CUDA graphs count once.
  const std::map<Rung, int64_t>& calls_of_rung() const { return calls_of_rung_; }

  // Returns the problem that stands for its bucket: the one with the longest time of all calls, and
  // without counts the longest.
  const Problem& heaviest(const Bucket& bucket) const {
    const auto weight = [&](const auto& entry) {
      const Captured& one = entry.second;
      const double seconds = rough_seconds(canonical(one.problem), target_);
      return std::pair(static_cast<double>(one.calls + one.recorded) * seconds, seconds);
    };
    return std::max_element(bucket.problems.begin(), bucket.problems.end(),
                            [&](const auto& a, const auto& b) { return weight(a) < weight(b); })
        ->second.problem;
  }

  std::vector<const Bucket*> sorted() const {
    std::vector<const Bucket*> all;
    for (const auto& [unused, bucket] : buckets_) all.push_back(&bucket);
    std::stable_sort(all.begin(), all.end(), [](const Bucket* a, const Bucket* b) {
      return std::tuple(a->recorded > 0, a->all_s, a->longest_s) >
             std::tuple(b->recorded > 0, b->all_s, b->longest_s);
    });
    return all;
  }

 private:
  static constexpr int64_t kMostCalls = 1'000'000'000'000'000'000;
  const Target target_;
  std::map<std::string, Bucket> buckets_;
  std::map<Rung, int64_t> calls_of_rung_;
};

std::string remark_of(const Bucket& bucket, double all_s) {
  std::vector<std::string> parts;
  if (bucket.problems.size() > 1) parts.push_back(fmt::format("{} shapes", bucket.problems.size()));
  if (bucket.calls > 0) parts.push_back(fmt::format("{} calls", bucket.calls));
  if (bucket.recorded > 0) parts.push_back(fmt::format("{} in CUDA graphs", bucket.recorded));
  if (all_s > 0) parts.push_back(fmt::format("{:.1f} % of the time", 100 * bucket.all_s / all_s));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Says how many calls ran tuned kernels; "" if no line names a rung.
std::string tuned_calls_note(const std::map<Rung, int64_t>& calls_of_rung) {
  double all = 0, tuned = 0;
  std::vector<std::string> parts;
  for (const auto& [rung, calls] : calls_of_rung) {
    all += static_cast<double>(calls);
    if (rung < Rung::kDefaultConfig) tuned += static_cast<double>(calls);
    parts.push_back(fmt::format("{} {}", rung_name(rung), calls));
  }
  if (all == 0) return "";
  return fmt::format("{:.1f} % of the calls ran a tuned kernel ({})", 100 * tuned / all,
                     fmt::join(parts, ", "));
}

std::string paths_text(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::string> texts;
  for (const std::filesystem::path& path : paths) texts.push_back(path.string());
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Replaces each folder by its *.jsonl.
std::vector<std::filesystem::path> files_of(const std::vector<std::filesystem::path>& paths) {
  std::vector<std::filesystem::path> files;
  for (const std::filesystem::path& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    const size_t first = files.size();
    for (std::filesystem::directory_iterator at(path, error), end; !error && at != end;
         at.increment(error))
      if (at->path().extension() == ".jsonl") files.push_back(at->path());
    if (error || files.size() == first)
      throw Error(ErrorCode::kIo,
                  fmt::format("{}: {}", path.string(),
                              error ? error.message() : "the folder has no file *.jsonl"));
    std::sort(files.begin() + static_cast<std::ptrdiff_t>(first), files.end());
  }
  return files;
}

void add_file(const std::filesystem::path& path, Buckets* buckets) {
  constexpr size_t kMostBytes = size_t{1} << 30;
  std::istringstream file(
      read_file("the captured problems", path, kMostBytes, FileKinds::kStreamsToo));
  std::string line;
  for (int number = 1; std::getline(file, line); ++number)
    if (line.find_first_not_of(" \t\r") != std::string::npos)
      buckets->add(captured_problem(line, fmt::format("{}, line {}", path.string(), number)));
}

}  // namespace

Workload workload_from_captures(const std::vector<std::filesystem::path>& paths, Target target,
                                int top) {
  Buckets buckets(target);
  std::vector<std::string> names;
  for (const std::filesystem::path& path : files_of(paths)) {
    add_file(path, &buckets);
    names.push_back(path.stem().string());
  }
  const std::vector<const Bucket*> sorted = buckets.sorted();
  if (sorted.empty())
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: no captured problem is there", paths_text(paths)));
  double all_s = 0, kept_s = 0;
  for (const Bucket* bucket : sorted) all_s += bucket->all_s;
  Workload workload{.name = names.size() == 1 ? names.front()
                                              : fmt::format("{} captures", names.size())};
  for (const Bucket* bucket : sorted) {
    if (top > 0 && workload.problems.size() == static_cast<size_t>(top)) break;
    kept_s += bucket->all_s;
    workload.problems.push_back(buckets.heaviest(*bucket));
    if (std::string remark = remark_of(*bucket, all_s); !remark.empty())
      workload.remarks[to_text(workload.problems.back())] = std::move(remark);
  }
  if (std::string note = tuned_calls_note(buckets.calls_of_rung()); !note.empty())
    workload.notes.push_back(std::move(note));
  if (workload.problems.size() < sorted.size())
    workload.notes.push_back(fmt::format(
        "--top {}: {} of {} buckets are kept{}", top, workload.problems.size(), sorted.size(),
        all_s > 0 ? fmt::format(", with {:.1f} % of the time", 100 * kept_s / all_s) : ""));
  return workload;
}

}  // namespace attune
