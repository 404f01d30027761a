// SPDX-License-Identifier: Apache-2.0
// Kernels of nothing but score programs: each one's result at many points, for tests of the printed text on every target.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>

#include "generator/core/error.hpp"
#include "generator/core/score/source_text.hpp"
#include "generator/source_bundle.hpp"

namespace attune::score {

struct TestPoint {
  float score;
  int batch, head, kv_head, q_idx, kv_idx;
};

// What the kernel is given.
struct ScoreJob {
  const ScoreArgs* args;  // one for each program
  const TestPoint* points;
  int num_points;
  float* out;  // [program][point]
};

// A file of templates/ with what it includes, as one text.
inline void inline_file(const std::string& path, std::set<std::string>* done, std::string* out) {
  if (!done->insert(path).second) return;
  const std::optional<std::string_view> text = bundled_text(path);
  if (!text) throw Error(ErrorCode::kInternal, path + " is not in the bundle");
  std::istringstream lines{std::string(*text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("#include \"", 0) == 0)
      inline_file(line.substr(10, line.find('"', 10) - 10), done, out);
    else if (line != "#pragma once")
      *out += line + "\n";
  }
}

// NVRTC's time grows with the square of the programs in one kernel, and more: minutes for 200.
constexpr size_t kProgramsInOneKernel = 25;

// On a GPU, block x computes program x. On a CPU, one call computes all, in loops that clang vectorises.
inline std::string score_job_source(bool is_cuda, std::span<const Program> programs) {
  std::string text = "namespace attune { constexpr int kArch = 90; }\n", calls;
  std::set<std::string> done;
  inline_file(is_cuda ? "cuda/attention/score_functions.cuh" : "cpu/score_functions.hpp", &done,
              &text);
  text +=
      "namespace attune {\n"
      "struct TestPoint { float score; int batch, head, kv_head, q_idx, kv_idx; };\n"
      "struct ScoreJob { const ScoreArgs* args; const TestPoint* points; int num_points; float* "
      "out; };\n";
  for (size_t i = 0; i < programs.size(); ++i) {
    const std::string number = std::to_string(i);
    text += "namespace program" + number + " {\n" + source_text(programs[i]) +
            R"(ATTUNE_SCORE_FUNCTION float all(const ScoreArgs& args, const TestPoint& at) {
  const ScoreHead on_head = score_head(args, at.batch, at.head, at.kv_head);
  const ScoreRow on_row = score_row(args, on_head, at.batch, at.head, at.kv_head, at.q_idx);
  const ScoreColumn on_column = score_column(args, on_head, at.batch, at.head, at.kv_head, at.kv_idx);
  return score_element(args, on_head, on_row, on_column, at.score, at.batch, at.head, at.kv_head, at.q_idx, at.kv_idx);
}
}
)";
    calls += (is_cuda ? "  if (blockIdx.x == " + number + ")\n" : "") +
             "  for (int i = first; i < job->num_points; i += step)\n    job->out[" + number +
             " * job->num_points + i] = attune::program" + number + "::all(job->args[" + number +
             "], job->points[i]);\n";
  }
  const char* head =
      is_cuda ? "extern \"C\" __global__ void attune_kernel(const attune::ScoreJob* job) {\n"
                "  const int first = threadIdx.x, step = blockDim.x;\n"
              : "extern \"C\" void attune_kernel(const attune::ScoreJob* job, int, int) {\n"
                "  constexpr int first = 0, step = 1;\n";
  return text + "}\n" + head + calls + "}\n";
}

}  // namespace attune::score
