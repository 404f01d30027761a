// SPDX-License-Identifier: Apache-2.0
// Runs a rendered kernel of decode_sm80 on the host (decode_host_test.py writes it) and
// compares O and LSE with float64. Exit status 0 if they agree.
#include "tests/templates/caches/decode_host.hpp"
// The kernel
#include DECODE_KERNEL
// Its test
#include <cstdio>
#include <random>

namespace attune {
namespace {

constexpr int kBatch = 3, kKvHeads = 2, kBlocks = 5, kPages = 64;
constexpr int kQHeads = kKvHeads * kGqaRatio;
constexpr int kCodes = kGroupFactors ? 2 : 1;  // of an element of memory
constexpr int kRowsOfPage = kHasPages ? kPageRows : DECODE_KEYS;

struct Case {
  std::mt19937 random{7};
  std::vector<int> lengths{DECODE_KEYS, 0, DECODE_KEYS / 3 + 1}, table, lists, counts;
  std::vector<Vector16> q, k, v, o;
  std::vector<unsigned char> k_groups, v_groups;  // of 4 bits: factors of groups of columns
  float heads[2] = {0.6F, 1.3F};                  // factors of heads
  std::vector<float> lse;
  double worst = 0;

  void draw(std::vector<Vector16>* tensor, int count) {
    std::normal_distribution<float> normal;
    tensor->assign(static_cast<size_t>(count / 8), {});
    for (int i = 0; i < count; ++i) store_element(kDtypeQ, tensor->data(), i, normal(random));
  }
#ifdef DECODE_NIBBLES
  // Draws codes of 4 bits, and factors of e4m3 with zeros among them.
  void draw_nibbles(std::vector<Vector16>* codes, std::vector<unsigned char>* groups, int columns) {
    const int rows = pages() * kRowsOfPage * kKvHeads;
    codes->assign(static_cast<size_t>(rows * nibble_bytes(columns) / 16), {});
    for (Vector16& some : *codes)
      for (unsigned& word : some.word) word = static_cast<unsigned>(random());
    std::uniform_real_distribution<float> factor(0.1F, 0.4F);
    for (int i = 0; i < rows * group_row_bytes(columns, kGroupColumns); ++i)
      groups->push_back(random() % 20 == 0 ? 0 : to_e4m3(factor(random)));
  }
#endif
  int pages() const { return kHasPages ? kPages : kBatch; }
  int table_width() const { return (DECODE_KEYS + kRowsOfPage - 1) / kRowsOfPage; }

  void make() {
    draw(&q, kBatch * DECODE_ROWS * kQHeads * kHeadDimQk);
#ifdef DECODE_NIBBLES
    draw_nibbles(&k, &k_groups, kHeadDimQk);
    draw_nibbles(&v, &v_groups, kHeadDimV);
#else
    draw(&k, pages() * kRowsOfPage * kKvHeads * kHeadDimQk);
    draw(&v, pages() * kRowsOfPage * kKvHeads * kHeadDimV);
#endif
    draw(&o, kBatch * DECODE_ROWS * kQHeads * kHeadDimV);
    lse.assign(kBatch * DECODE_ROWS * kQHeads, NAN);
    for (int i = 0; i < kBatch * table_width(); ++i)
      table.push_back(static_cast<int>(random() % kPages));
    for (int i = 0; i < kBatch * DECODE_ROWS; ++i) {
      counts.push_back(i == 1 ? 0 : static_cast<int>(random() % (DECODE_LIST + 1)));
      for (int j = 0; j < DECODE_LIST; ++j)
        lists.push_back(j % 7 == 3 ? -1 : static_cast<int>(random() % DECODE_KEYS));
    }
  }

  void run(int blocks) {
    const int of_k = kHeadDimQk / kCodes, of_v = kHeadDimV / kCodes;
    const int key = kKvHeads * of_k, value = kKvHeads * of_v;
    AttentionArgs args{};
    args.q = {q.data(), DECODE_ROWS * kQHeads * kHeadDimQk, kQHeads * kHeadDimQk, kHeadDimQk};
    args.k = {k.data(), int64_t{1} * kRowsOfPage * key, key, of_k};
    args.v = {v.data(), int64_t{1} * kRowsOfPage * value, value, of_v};
    if (kValuesInKeys) args.v = args.k;
    args.o = {o.data(), DECODE_ROWS * kQHeads * kHeadDimV, kQHeads * kHeadDimV, kHeadDimV};
    args.lse = lse.data(), args.lse_batch_stride = DECODE_ROWS * kQHeads;
    args.lse_head_stride = DECODE_ROWS;
    args.batch = kBatch, args.seqlen_q = DECODE_ROWS, args.seqlen_kv = DECODE_KEYS;
    args.num_heads_q = kQHeads, args.num_heads_kv = kKvHeads;
    args.softmax_scale = scale();
    args.softmax_scale_log2 = scale() * kLog2E;
    std::vector<float4> workspace(DECODE_WORKSPACE / 16 + 1);
    args.workspace = workspace.data();
    CacheArgs cache{};
    cache.kv_lengths = lengths.data(), cache.num_pages = pages();
    cache.page_table = table.data(), cache.page_table_stride = table_width();
#ifdef DECODE_NIBBLES
    ScaleArgs scales{};
    scales.k_scale = scales.v_scale = {heads, 0, 1, 0, 1};
    const int k_row = group_row_bytes(kHeadDimQk, kGroupColumns);
    const int v_row = group_row_bytes(kHeadDimV, kGroupColumns);
    const GroupFactorArgs groups{
        {k_groups.data(), int64_t{1} * kRowsOfPage * kKvHeads * k_row, k_row, kRowsOfPage * k_row},
        {v_groups.data(), int64_t{1} * kRowsOfPage * kKvHeads * v_row, v_row, kRowsOfPage * v_row}};
#endif
    gridDim.x = static_cast<unsigned>(blocks);
    for (int block = 0; block < blocks; ++block) {
      blockIdx.x = static_cast<unsigned>(block);
      shared_memory.assign(DECODE_SHARED, 0xff);  // NaN
      late_copies.clear();
      BlockOfFibers::run(32 * kWarps, [&] {
#ifdef DECODE_LISTS
        KeyListArgs of_rows{lists.data(), counts.data(), DECODE_LIST, 0, DECODE_LIST};
#endif
#if defined(DECODE_LISTS) && defined(DECODE_NIBBLES)
        attune_kernel(args, scales, cache, of_rows, groups);
#elif defined(DECODE_LISTS)
        attune_kernel(args, cache, of_rows);
#elif defined(DECODE_NIBBLES)
        attune_kernel(args, scales, cache, groups);
#else
        attune_kernel(args, cache);
#endif
      });
    }
  }

  static float scale() { return 1 / std::sqrt(static_cast<float>(kHeadDimQk)); }
  int place(int batch, int key) const {
    if (!kHasPages) return batch * kRowsOfPage + key;
    return table[static_cast<size_t>(batch * table_width() + key / kRowsOfPage)] * kRowsOfPage +
           key % kRowsOfPage;
  }
  std::vector<int> keys_of(int batch, int row) const {
    const int length = lengths[static_cast<size_t>(batch)];
    std::vector<int> keys;
#ifdef DECODE_LISTS
    const int list = batch * DECODE_ROWS + row;
    for (int i = 0; i < counts[static_cast<size_t>(list)]; ++i) {
      const int key = lists[static_cast<size_t>(list * DECODE_LIST + i)];
      if (key >= 0 && key < length) keys.push_back(key);
    }
#else
    const int position = length - DECODE_ROWS + row;
    for (int key = 0; key < length; ++key) {
      if (kMask == Mask::kCausalBottomRight && key > position) continue;
      if (kWindowLeft >= 0 && key < position - kWindowLeft) continue;
      if (kWindowRight >= 0 && key > position + kWindowRight) continue;
      keys.push_back(key);
    }
#endif
    return keys;
  }

  // Returns a column of the row of K or V at a place.
  double cached(const std::vector<Vector16>& tensor, const std::vector<unsigned char>& groups,
                int columns, int place, int kv_head, int column) const {
    const int row = place * kKvHeads + kv_head;
#ifdef DECODE_NIBBLES
    const int line = group_row_bytes(columns, kGroupColumns);
    const int page = place / kRowsOfPage, key = place % kRowsOfPage;
    const int at = ((page * kKvHeads + kv_head) * kRowsOfPage + key) * line;
    return static_cast<double>(load_element(kDtypeKv, tensor.data(), row * columns + column)) *
           from_e4m3(groups[static_cast<size_t>(at + column / kGroupColumns)]) * heads[kv_head];
#else
    return static_cast<double>(load_element(kDtypeQ, tensor.data(), row * columns + column));
#endif
  }

  void check_row(int batch, int row, int head) {
    const auto at = [](const std::vector<Vector16>& tensor, int element) {
      return static_cast<double>(load_element(kDtypeQ, tensor.data(), element));
    };
    const int of_q = (batch * DECODE_ROWS + row) * kQHeads + head;
    double sum = 0;
    std::vector<double> expected(kHeadDimV);
    for (const int key : keys_of(batch, row)) {
      const int at_k = place(batch, key), kv_head = head / kGqaRatio;
      double score = 0;
      for (int d = 0; d < kHeadDimQk; ++d)
        score += at(q, of_q * kHeadDimQk + d) * cached(k, k_groups, kHeadDimQk, at_k, kv_head, d);
      const double weight = std::exp(score * static_cast<double>(scale()));
      sum += weight;
      for (int d = 0; d < kHeadDimV; ++d)
        expected[static_cast<size_t>(d)] +=
            weight * (kValuesInKeys ? cached(k, k_groups, kHeadDimQk, at_k, kv_head, d)
                                    : cached(v, v_groups, kHeadDimV, at_k, kv_head, d));
    }
    const double got =
        static_cast<double>(lse[static_cast<size_t>((batch * kQHeads + head) * DECODE_ROWS + row)]);
    if (sum == 0 ? got != -INFINITY : !(std::fabs(got - std::log(sum)) < 1e-3))
      fail(batch, row, head, -1, got, std::log(sum));
    for (int d = 0; d < kHeadDimV; ++d) {
      const double right = sum == 0 ? 0 : expected[static_cast<size_t>(d)] / sum;
      const double error = std::fabs(at(o, of_q * kHeadDimV + d) - right);
      if (!(error < 0.02 * (1 + std::fabs(right))))
        fail(batch, row, head, d, at(o, of_q * kHeadDimV + d), right);
      worst = std::max(worst, error);
    }
  }
  static void fail(int batch, int row, int head, int column, double got, double right) {
    std::printf("request %d, row %d, head %d, column %d: %g, must be %g\n", batch, row, head,
                column, got, right);
    std::exit(1);
  }
};

int run() {
  for (const int blocks : {1, kBlocks}) {
    Case all;
    all.make();
    all.run(blocks);
    for (int batch = 0; batch < kBatch; ++batch)
      for (int row = 0; row < DECODE_ROWS; ++row)
        for (int head = 0; head < kQHeads; ++head) all.check_row(batch, row, head);
    std::printf("%d blocks: largest error %g\n", blocks, all.worst);
  }
  return 0;
}

}  // namespace
}  // namespace attune

int main() { return attune::run(); }
