// SPDX-License-Identifier: Apache-2.0
// Compares attune::Cascade with attention over whole requests: the same pages, in one table and in
// the tables of one to three levels.
#include <attune/attune.hpp>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

constexpr int kRequests = 4, kHeads = 6, kKvHeads = 2, kDim = 40, kPage = 4, kPages = 24;
constexpr int kShared = 5, kHalf = 2;  // pages of all requests, and of each pair of them
constexpr int kWidth = kShared + kHalf + 2;

int failures = 0;
#define CHECK(condition) \
  if (!(condition)) ++failures, std::fprintf(stderr, "line %d: failed: %s\n", __LINE__, #condition)

struct Memory {
  explicit Memory(std::size_t bytes)
      : data(static_cast<float*>(std::aligned_alloc(256, (bytes / 256 + 1) * 256))) {
    std::memset(data, 255, (bytes / 256 + 1) * 256);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() { std::free(data); }
  float* const data;
};

struct Level {
  attune::Problem problem;
  std::vector<int32_t> table, lengths, begins;
  attune_cache_operands cache{};
  attune_operands operands{};

  Level(int groups, int rows, int pages, const std::string& more = "")
      : problem(
            "op=attention_kvcache,dtype=fp32,head_dim=40,heads=6/2,packed_q=1,page_size=4,batch=" +
            std::to_string(groups) + ",seqlen_q=" + std::to_string(rows) +
            ",seqlen_kv=" + std::to_string(pages * kPage) + more) {
    problem.cache.num_pages = kPages;
  }
  void bind(float* q, float* k, float* v, float* o, float* lse) {
    cache.size = sizeof cache;
    cache.kv_lengths = lengths.data();
    cache.q_begins = begins.data();
    cache.page_table = table.data();
    cache.page_table_stride = static_cast<int64_t>(table.size() / lengths.size());
    operands = problem.contiguous(q, k, v, o, lse);
    operands.cache = &cache;
  }
};

int page_of(int request, int place) {
  if (place < kShared) return 23 - 2 * place;
  if (place < kShared + kHalf) return 2 * (place - kShared) + (request < 2 ? 0 : 8);
  return 1 + 4 * request + 2 * (place - kShared - kHalf) - (request > 0 ? 1 : 0);
}

int length_of(int request) { return (kShared + kHalf) * kPage + 2 * request; }
int rows_of(int request) { return request == 2 ? 3 : 1; }

// Returns the level with pages [first, last) of each group of `of_group` requests.
Level level_of(int of_group, int first, int last, const std::string& more = "") {
  Level level(kRequests / of_group, 2 * of_group + 1, last - first, more);
  level.begins.push_back(0);
  for (int request = 0; request < kRequests; ++request) {
    if (request % of_group == 0) level.begins.push_back(level.begins.back());
    level.begins.back() += rows_of(request);
    if (request % of_group != 0) continue;
    level.lengths.push_back(last == kWidth ? length_of(request) - first * kPage
                                           : (last - first) * kPage);
    for (int place = first; place < last; ++place) level.table.push_back(page_of(request, place));
  }
  return level;
}

// Operands of calls of up to `rows` rows, with wanted and computed results.
struct Tensors {
  explicit Tensors(int rows)
      : q(sizeof(float) * std::size_t(rows * kHeads * kDim)),
        k(sizeof(float) * kOfCache),
        v(sizeof(float) * kOfCache),
        want(sizeof(float) * std::size_t(rows * kHeads * kDim)),
        got(sizeof(float) * std::size_t(rows * kHeads * kDim)),
        want_lse(sizeof(float) * std::size_t(rows * kHeads)),
        got_lse(sizeof(float) * std::size_t(rows * kHeads)) {
    for (int i = 0; i < rows * kHeads * kDim; ++i) q.data[i] = std::sin(0.7f * float(i));
    for (std::size_t i = 0; i < kOfCache; ++i)
      k.data[i] = std::cos(0.3f * float(i)), v.data[i] = std::sin(0.11f * float(i * i % 997));
  }
  void bind(Level* level) const { level->bind(q.data, k.data, v.data, got.data, got_lse.data); }
  // Computes the wanted result by one call.
  void compute(const attune::Context& context, Level* level) const {
    level->bind(q.data, k.data, v.data, want.data, want_lse.data);
    const attune::Plan plan = context.plan(level->problem);
    const Memory workspace(plan.workspace_bytes());
    plan.run(level->operands, workspace.data, plan.workspace_bytes());
  }
  static constexpr std::size_t kOfCache = std::size_t{kPages} * kPage * kKvHeads * kDim;
  const Memory q, k, v, want, got, want_lse, got_lse;
};

void compare(const attune::Context& context, std::vector<Level> levels, Level whole) {
  const int rows = whole.begins.back(), most = int(whole.problem.batch * whole.problem.seqlen_q);
  const Tensors at(most);
  at.compute(context, &whole);

  std::vector<attune_problem> problems;
  std::vector<const attune_operands*> operands;
  for (Level& level : levels) {
    at.bind(&level);
    problems.push_back(level.problem);
    operands.push_back(&level.operands);
  }
  const attune::Cascade cascade(context, problems);
  const Memory workspace(cascade.workspace_bytes());
  cascade.init_workspace(workspace.data, cascade.workspace_bytes());
  cascade.run(operands, workspace.data, cascade.workspace_bytes());
  for (int i = 0; i < rows * kHeads * kDim; ++i)
    CHECK(std::fabs(at.got.data[i] - at.want.data[i]) < 1e-5f);
  for (int head = 0; head < kHeads; ++head)
    for (int row = 0; row < rows; ++row)
      CHECK(std::fabs(at.got_lse.data[head * most + row] - at.want_lse.data[head * most + row]) <
            1e-5f);
}

// Checks that rows missing in the first level see only the keys of the last one, whatever the
// workspace held.
void leaves_out(const attune::Context& context) {
  Level shared = level_of(4, 0, kShared),
        own = level_of(1, kShared, kWidth, ",mask=causal_bottom_right");
  const int rows = own.begins.back(), held = rows - rows_of(kRequests - 1);
  const Tensors at(kRequests * 3);
  at.compute(context, &own);

  at.bind(&own);
  at.bind(&shared);
  const attune::Cascade cascade(context, {shared.problem, own.problem});
  const Memory workspace(cascade.workspace_bytes());
  cascade.init_workspace(workspace.data, cascade.workspace_bytes());
  for (const int last : {rows, held}) {  // the first run leaves its states of all rows there
    shared.begins.back() = last;
    cascade.run({&shared.operands, &own.operands}, workspace.data, cascade.workspace_bytes());
  }
  for (int row = held; row < rows; ++row) {
    for (int i = row * kHeads * kDim; i < (row + 1) * kHeads * kDim; ++i)
      CHECK(std::fabs(at.got.data[i] - at.want.data[i]) < 1e-5f);
    for (int head = 0; head < kHeads; ++head) {
      const int place = head * kRequests * 3 + row;
      CHECK(std::fabs(at.got_lse.data[place] - at.want_lse.data[place]) < 1e-5f);
    }
  }
}

// Rows before the first request once had no room in the memory of the levels' results.
void looks_where_rows_begin(const attune::Context& context) {
  Level shared = level_of(4, 0, kShared), own = level_of(1, kShared, kWidth);
  const Tensors at(kRequests * 3 + 9);
  at.bind(&own);
  at.bind(&shared);
  const attune::Cascade cascade(context, {shared.problem, own.problem});
  const Memory workspace(cascade.workspace_bytes());
  cascade.init_workspace(workspace.data, cascade.workspace_bytes());
  for (Level* level : {&shared, &own})
    for (int32_t& begin : level->begins) begin += 9;
  try {
    cascade.run({&shared.operands, &own.operands}, workspace.data, cascade.workspace_bytes());
    CHECK(!"an exception");
  } catch (const attune::Error& error) {
    CHECK(std::strstr(error.what(), "levels[0]: cache.q_begins ends at 15; must be at most 12"));
  }
}

void refuses(const attune::Context& context, const std::vector<attune_problem>& levels,
             const char* what) {
  try {
    const attune::Cascade cascade(context, levels);
    CHECK(!"an exception");
  } catch (const attune::Error& error) {
    if (std::strstr(error.what(), what) == nullptr)
      ++failures, std::fprintf(stderr, "\"%s\" is not in: %s\n", what, error.what());
  }
}

void counts_levels(const attune::Cascade& cascade) {
  const attune_operands operands{};
  for (const std::size_t count : {0, 1, 3}) try {
      cascade.run(std::vector<const attune_operands*>(count, &operands), nullptr, 0);
      CHECK(!"an exception");
    } catch (const attune::Error& error) {
      CHECK(error.status() == ATTUNE_INVALID_ARGUMENT);
      CHECK(error.what() ==
            "levels has " + std::to_string(count) + " operands; must be 2, one per level");
    }
}

}  // namespace

int main() try {
  attune::ContextOptions options;
  options.target = "cpu:3";
  options.store = "";
  const attune::Context context(options);
  const std::string causal = ",mask=causal_bottom_right";
  const Level whole = level_of(1, 0, kWidth, causal);
  const Level own = level_of(1, kShared + kHalf, kWidth, causal), all = level_of(4, 0, kShared);
  compare(context, {whole}, whole);
  compare(context, {level_of(4, 0, kShared), level_of(1, kShared, kWidth, causal)}, whole);
  compare(context, {all, level_of(2, kShared, kShared + kHalf), own}, whole);
  leaves_out(context);
  looks_where_rows_begin(context);
  counts_levels(attune::Cascade(context, {all.problem, own.problem}));
  refuses(context, {}, "num_levels is 0");
  refuses(context, std::vector<attune_problem>(65, own.problem),
          "num_levels is 65; must be at most 64");
  refuses(context, {own.problem, all.problem},
          "levels[0] has mask causal_bottom_right and sinks none");
  refuses(context, {level_of(4, 0, kShared, ",window=3:0").problem, own.problem},
          "levels[0] has window_left 3 and window_right 0");
  refuses(context, {level_of(4, 0, kShared, ",scale=0.5").problem, own.problem},
          "levels[0] has softmax_scale 0.5; must be");
  refuses(context, {level_of(4, 0, kShared, ",softcap=30").problem, own.problem},
          "levels[0] has softcap 30; must be 0, like the last level");
  std::vector<attune_problem> torn{all.problem, own.problem};
  torn[0].size = size_t{1} << 40;
  refuses(context, torn, "size is 1099511627776");
  refuses(context, {attune::Problem("dtype=fp32,head_dim=40,heads=6/2,seqlen=4"), own.problem},
          "levels[0] is of op prefill");
  return failures == 0 ? 0 : 1;
} catch (const attune::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.status() == ATTUNE_COMPILE_ERROR ? 77 : 1;
}
