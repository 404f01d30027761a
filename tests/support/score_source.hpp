// SPDX-License-Identifier: Apache-2.0
// Kernels that contain only score programs: each program's result at many points. Used to test the
// printed text on every target.
#pragma once

#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>

#include "generator/core/system/error.hpp"
#include "generator/render/inliner.hpp"
#include "generator/score/print/source_text.hpp"

namespace attune::score {

struct TestPoint {
  float score;
  int batch, head, kv_head, q_idx, kv_idx;
};

// The kernel's argument.
struct ScoreJob {
  const ScoreArgs* args;  // one per program
  const TestPoint* points;
  int num_points;
  float* out;           // [program][point]
  unsigned char* near;  // [program][point]: 1 if the near form was used; not written for kWhole
};

// kWhole tests source_text. kSteps tests step_text: each point is one column of a step, in the near
// form where that is allowed.
enum class JobForm { kWhole, kSteps };
inline constexpr float kJobUnit = 0.125F;  // unit of scores in kSteps

// Replaces a kernel's read from shared memory.
inline constexpr const char* kStagedWord = R"(namespace attune {
ATTUNE_SCORE_FUNCTION unsigned staged_word(const void* line, int offset, bool is_near) {
  return line != nullptr && is_near ? static_cast<const unsigned*>(line)[offset / 2] : 0u;
}
}
)";

// On a CPU no kernel takes steps, so pairs are read one by one.
inline constexpr const char* kCpuPairs = R"(namespace attune {
template <CaptureType kType, bool kIsPair, class T>
ATTUNE_SCORE_FUNCTION void load_pair(const void* at, int offset, T* first, T* second) {
  *first = load_element<kType>(at, offset);
  *second = load_element<kType>(at, offset + 1);
}
template <CaptureType kType, class T>
ATTUNE_SCORE_FUNCTION void unpack_pair(unsigned word, T* first, T* second) {
  load_pair<kType, true>(&word, 0, first, second);
}
template <CaptureType kType>
ATTUNE_SCORE_FUNCTION void prefetch_in_line(const void*, const ScoreCapture&, int, int, int, int,
                                            int) {}
}
)";

inline constexpr const char* kWholeElement =
    R"(ATTUNE_SCORE_FUNCTION float all(const ScoreArgs& args, const TestPoint& at, unsigned char*) {
  const ScoreHead on_head = score_head(args, at.batch, at.head, at.kv_head);
  const ScoreRow on_row = score_row(args, on_head, at.batch, at.head, at.kv_head, at.q_idx);
  const ScoreColumn on_column =
      score_column(args, on_head, at.batch, at.head, at.kv_head, at.kv_idx);
  return score_element(args, on_head, on_row, on_column, at.score, at.batch, at.head, at.kv_head,
                       at.q_idx, at.kv_idx);
}
}
)";

// A step of 8 keys. Its row is `q_idx % 4` below another one, as a thread's second row is.
inline constexpr const char* kStepElement =
    R"(ATTUNE_SCORE_FUNCTION float all(const ScoreArgs& args, const TestPoint& at,
                                unsigned char* near) {
  constexpr float kUnit = 0.125f;
  const int offset = at.kv_idx & 6, column = at.kv_idx & 1, key = at.kv_idx - offset - column;
  const int down = at.q_idx & 3;
  const float score = at.score / kUnit;
  const ScoreHead on_head = score_head(args, kUnit, at.batch, at.head, at.kv_head);
  const ScoreRow above_row =
      score_row(args, on_head, at.batch, at.head, at.kv_head, at.q_idx - down);
  const ScoreRow on_row = score_row(args, on_head, at.batch, at.head, at.kv_head, at.q_idx);
  const ScoreStep above = score_step(args, on_head, above_row, at.batch, at.head, at.kv_head,
                                     at.q_idx - down, key, 8);
  ScoreStep on_step =
      score_step(args, on_head, on_row, at.batch, at.head, at.kv_head, at.q_idx, key, 8);
  score_share(above, down, &on_step);
  bool is_near = above.is_near & on_step.is_near;
  is_near &= score_is_near(args, on_head, on_row, at.q_idx, -score_abs(score), score_abs(score));
  float result;
  if (is_near) {
    ScoreLoaded loaded[2];
    score_loads(on_step, offset, staged_word(score_staged_line(on_step), offset, is_near), loaded);
    const ScoreColumn on_column =
        score_near_column(args, on_head, on_step, loaded[column], at.batch, at.head, at.kv_head,
                          at.kv_idx, offset + column);
    if (kScoreIsLinear && on_step.is_linear && (at.q_idx & 4) != 0) {
      const ScoreLinear linear = score_linear(args, on_head, on_row, on_step, at.batch, at.head,
                                              at.kv_head, at.q_idx);
      result = score_linear_element(args, on_head, on_row, on_column, on_step, loaded[column],
                                    score, at.batch, at.head, at.kv_head, at.q_idx, at.kv_idx,
                                    offset + column);
      result += linear.base + linear.slope * float(offset + column);
    } else {
      result = score_near_element(args, on_head, on_row, on_column, on_step, loaded[column], score,
                                  at.batch, at.head, at.kv_head, at.q_idx, at.kv_idx,
                                  offset + column);
    }
  } else {
    const ScoreColumn on_column =
        score_column(args, on_head, at.batch, at.head, at.kv_head, at.kv_idx);
    result = score_element(args, on_head, on_row, on_column, score, at.batch, at.head, at.kv_head,
                           at.q_idx, at.kv_idx);
  }
  *near = is_near ? 1 : 0;
  return kScoreKeepsUnits ? result * kUnit : result;
}
}
)";

// Appends a file of templates/ with its includes, as one text.
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

// NVRTC's time grows faster than the square of the programs in one kernel: 200 programs take
// minutes.
constexpr size_t kProgramsInOneKernel = 25;

// Returns the source. On a GPU, block x computes program x. On a CPU, one call computes all, in
// loops that clang vectorises.
inline std::string score_job_source(bool is_cuda, std::span<const Program> programs,
                                    JobForm form = JobForm::kWhole) {
  std::string text = "namespace attune { constexpr int kArch = 90; }\n", calls;
  std::set<std::string> done;
  inline_file(is_cuda ? "cuda/parts/score_functions.cuh" : "cpu/parts/score_functions.hpp", &done,
              &text);
  if (form == JobForm::kSteps) {
    inline_file(is_cuda ? "cuda/sm90/score_loads.cuh" : "shared/score_steps.h", &done, &text);
    if (!is_cuda) text += kCpuPairs;
    text += kStagedWord;
  }
  text +=
      "namespace attune {\n"
      "struct TestPoint { float score; int batch, head, kv_head, q_idx, kv_idx; };\n"
      "struct ScoreJob { const ScoreArgs* args; const TestPoint* points; int num_points; float* "
      "out; unsigned char* near; };\n";
  for (size_t i = 0; i < programs.size(); ++i) {
    const std::string number = std::to_string(i);
    text += "namespace program" + number + " {\n" +
            (form == JobForm::kWhole ? source_text(programs[i]) + kWholeElement
                                     : step_text(programs[i]) + kStepElement);
    calls += (is_cuda ? "  if (blockIdx.x == " + number + ")\n" : "") +
             "  for (int i = first; i < job->num_points; i += step)\n    job->out[" + number +
             " * job->num_points + i] = attune::program" + number + "::all(job->args[" + number +
             "], job->points[i], job->near + " + number + " * job->num_points + i);\n";
  }
  const char* head =
      is_cuda ? "extern \"C\" __global__ void attune_kernel(const attune::ScoreJob* job) {\n"
                "  const int first = threadIdx.x, step = blockDim.x;\n"
              : "extern \"C\" void attune_kernel(const attune::ScoreJob* job, int, int) {\n"
                "  constexpr int first = 0, step = 1;\n";
  return text + "}\n" + head + calls + "}\n";
}

}  // namespace attune::score
