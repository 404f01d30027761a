// SPDX-License-Identifier: Apache-2.0
// Runs the rendered kernels of backward_lists_sm80 on the host (backward_lists_host_test.py writes
// them) and compares dQ, dK and dV with float64. With rounds it also compares bits: with those of
// rounds of other sizes, and with those of one batch entry alone. Exit status 0 if all agree.
#include <utility>

#include "tests/templates/caches/decode_host.hpp"

// PTX that decode_sm80 does not use
namespace attune {

struct int2 {
  int x, y;
};
inline int reread_thread_index() { return static_cast<int>(threadIdx.x); }
inline void ldmatrix_x2_trans(unsigned& r0, unsigned& r1, unsigned address) {
  unsigned r[4];
  load_matrices<true>(r, address);
  r0 = r[0], r1 = r[1];
}
inline void add_four(float* to, float a, float b, float c, float d) {
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0) std::abort();
  to[0] += a, to[1] += b, to[2] += c, to[3] += d;
}
inline void atomicAdd(float* to, float value) { *to += value; }
inline int atomicAdd(int* to, int value) { return std::exchange(*to, *to + value); }
template <Dtype kDtype>
void load_eight(const void* data, long long index, float* values) {
  for (int i = 0; i < 8; ++i) values[i] = load_element(kDtype, data, index + i);
}
template <Dtype kDtype>
void store_eight(void* data, long long index, const float* values) {
  for (int i = 0; i < 8; ++i) store_element(kDtype, data, index + i, values[i]);
}

}  // namespace attune
// The kernels
#include LISTS_KERNEL
// Their test
#include <cstdio>
#include <random>

namespace attune {
namespace {

constexpr int kBatch = 2, kKvHeads = 2, kRows = 3, kKeysOfEntry = LISTS_KEYS, kLength = LISTS_LIST;
constexpr int kQHeads = kKvHeads * kGqaRatio;

using Elements = std::vector<Vector16>;
double at(const Elements& tensor, int element) {
  return static_cast<double>(load_element(kDtypeQ, tensor.data(), element));
}

struct Gradient {
  std::vector<double> values;
  explicit Gradient(int count) : values(static_cast<size_t>(count)) {}
  double& operator[](int i) { return values[static_cast<size_t>(i)]; }
};

class ListsCase {
 public:
  explicit ListsCase(bool by_head) : by_head_(by_head) {
    draw(&q_, kBatch * kRows * kQHeads * kHeadDimQk);
    draw(&k_, kBatch * kKeysOfEntry * kKvHeads * kHeadDimQk);
    draw(&v_, kBatch * kKeysOfEntry * kKvHeads * kHeadDimV);
    draw(&o_, kBatch * kRows * kQHeads * kHeadDimV);  // need not be the forward's
    draw(&dout_, kBatch * kRows * kQHeads * kHeadDimV);
    std::normal_distribution<float> normal;
    for (int i = 0; i < kBatch * kRows * kQHeads; ++i) {
      lse_.push_back(i == 5 ? -INFINITY : std::log(static_cast<float>(kLength)) + normal(random_));
      dlse_.push_back(normal(random_));
    }
    const int heads = by_head ? kKvHeads : 1;
    for (int i = 0; i < kBatch * kRows; ++i) {
      counts_.push_back(i == 1 ? 0 : i == 2 ? kLength + 5 : i == 3 ? 1 : number(kLength + 1));
      for (int j = 0; j < kLength * heads; ++j)  // some twice, some that name no key
        lists_.push_back(j % 7 == 3    ? -1 - number(9)
                         : j % 11 == 4 ? kKeysOfEntry + number(99)
                                       : number(kKeysOfEntry));
    }
  }

  // Computes the gradients of the first batch entries, in rounds of some rows.
  void run(int batch, int of_round) {
    dq_.assign(q_.size(), kNaN), dk_.assign(k_.size(), kNaN), dv_.assign(v_.size(), kNaN);
    AttentionArgs args{};
    args.q = view(&q_, kRows, kQHeads, kHeadDimQk);
    args.k = view(&k_, kKeysOfEntry, kKvHeads, kHeadDimQk);
    args.v = kValuesInKeys ? args.k : view(&v_, kKeysOfEntry, kKvHeads, kHeadDimV);
    args.o = view(&o_, kRows, kQHeads, kHeadDimV);
    args.lse = lse_.data();
    args.lse_batch_stride = kRows * kQHeads, args.lse_head_stride = kRows;
    args.batch = batch, args.seqlen_q = kRows, args.seqlen_kv = kKeysOfEntry;
    args.num_heads_q = kQHeads, args.num_heads_kv = kKvHeads;
    args.softmax_scale = scale();
    args.softmax_scale_log2 = scale() * 1.44269504F;
    std::vector<Vector16> workspace(LISTS_WORKSPACE / 16 + 1, kNaN);
    args.workspace = workspace.data();
    GradientArgs gradients{};
    gradients.dout = view(&dout_, kRows, kQHeads, kHeadDimV);
    gradients.dq = view(&dq_, kRows, kQHeads, kHeadDimQk);
    gradients.dk = view(&dk_, kKeysOfEntry, kKvHeads, kHeadDimQk);
    if (!kValuesInKeys) gradients.dv = view(&dv_, kKeysOfEntry, kKvHeads, kHeadDimV);
    gradients.dlse = dlse_.data();
    gradients.dlse_batch_stride = args.lse_batch_stride;
    gradients.dlse_head_stride = args.lse_head_stride;
    const int heads = by_head_ ? kKvHeads : 1;
    const KeyListArgs lists{lists_.data(), counts_.data(), kLength * heads, by_head_ ? kLength : 0,
                            kLength};
    const auto sums = static_cast<int>(num_key_sums(args));
    launch(batch * kRows * kQHeads / kPrepareWarps + 1, 32 * kPrepareWarps,
           [&] { attune_prepare(args, gradients); });
    launch(sums / (4 * kThreadsOfSums) + 1, kThreadsOfSums, [&] { attune_clear(args); });
#ifdef LISTS_ROUND
    const int of_join = (of_round + kRows - 2) / kRows + 1, columns = sums / batch;
    for (int first = 0; first < batch * kRows; first += of_round) {
      const RoundArgs round{first, std::min(of_round, batch * kRows - first), of_round};
      launch(of_round * kKvHeads * kHeadTiles, kThreads,
             [&] { attune_kernel(args, gradients, round, lists); });
      launch(of_join * kKvHeads * ((kKeysOfEntry + kOrderKeys - 1) / kOrderKeys), kOrderThreads,
             [&] { attune_order(args, round, lists); });
      launch(of_join * columns / (4 * kJoinThreads) + 1, kJoinThreads,
             [&] { attune_join(args, round, lists); });
    }
    if (of_round >= batch * kRows) check_sums(args);
#else
    launch(batch * kRows * kKvHeads * kHeadTiles, kThreads,
           [&] { attune_kernel(args, gradients, lists); });
#endif
    launch(sums / (8 * kThreadsOfSums) + 1, kThreadsOfSums, [&] { attune_keys(args, gradients); });
  }

  // Fails unless the bits of dK and dV are those of another run, of its first batch entries.
  void check_bits(const ListsCase& other, int batch) const {
    for (const auto& [own, others] : {std::pair{&dk_, &other.dk_}, std::pair{&dv_, &other.dv_}}) {
      if (std::memcmp(own->data(), others->data(), own->size() * 16 * batch / kBatch) == 0)
        continue;
      std::printf("%s of another run has other bits\n", own == &dk_ ? "dk" : "dv");
      std::exit(1);
    }
  }

  void check() {
    Gradient dq(kBatch * kRows * kQHeads * kHeadDimQk);
    Gradient dk(kBatch * kKeysOfEntry * kKvHeads * kHeadDimQk);
    Gradient dv(kBatch * kKeysOfEntry * kKvHeads * kHeadDimV);
    for (int row = 0; row < kBatch * kRows; ++row)
      for (int head = 0; head < kQHeads; ++head) expect(row, head, &dq, &dk, &dv);
    if (kValuesInKeys)
      for (int key = 0; key < kBatch * kKeysOfEntry * kKvHeads; ++key)
        for (int d = 0; d < kHeadDimV; ++d) dk[key * kHeadDimQk + d] += dv[key * kHeadDimV + d];
    compare("dq", kHeadDimQk, dq_, dq), compare("dk", kHeadDimQk, dk_, dk);
    if (!kValuesInKeys) compare("dv", kHeadDimV, dv_, dv);
  }

 private:
  static constexpr Vector16 kNaN{{~0u, ~0u, ~0u, ~0u}};

  static float scale() { return 1 / std::sqrt(static_cast<float>(kHeadDimQk)); }
  int number(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }
  void draw(Elements* tensor, int count) {
    std::normal_distribution<float> normal;
    tensor->assign(static_cast<size_t>(count / 8), {});
    for (int i = 0; i < count; ++i) store_element(kDtypeQ, tensor->data(), i, normal(random_));
  }
  static OperandView view(Elements* tensor, int rows, int heads, int columns) {
    return {tensor->data(), int64_t{1} * rows * heads * columns, heads * columns, columns};
  }
  template <class Kernel>
  static void launch(int blocks, int threads, const Kernel& kernel) {
    gridDim.x = static_cast<unsigned>(blocks);
    for (int block = 0; block < blocks; ++block) {
      blockIdx.x = static_cast<unsigned>(block);
      shared_memory.assign(LISTS_SHARED, 0xff);  // NaN
      late_copies.clear();
      BlockOfFibers::run(static_cast<unsigned>(threads), kernel);
    }
  }

#ifdef LISTS_ROUND
  // Adds the parts of all rows in the order of rows, entries and tiles of heads. Fails unless the
  // bits are those of the kernels' sums.
  void check_sums(const AttentionArgs& args) const {
    std::vector<float> expected(static_cast<size_t>(num_key_sums(args)));
    const float* part = key_parts(args);
    for (int line = 0; line < args.batch * kRows * kKvHeads; ++line) {
      const int row = line / kKvHeads, head = line % kKvHeads, heads = by_head_ ? kKvHeads : 1;
      for (int i = 0; i < kLength; ++i, part += kHeadTiles * kSumColumns) {
        const int key =
            lists_[static_cast<size_t>((row * heads + (by_head_ ? head : 0)) * kLength + i)];
        if (i >= counts_[static_cast<size_t>(row)] || key < 0 || key >= kKeysOfEntry) continue;
        float* const to = &expected[static_cast<size_t>(
            ((row / kRows * kKeysOfEntry + key) * kKvHeads + head) * kSumColumns)];
        for (int j = 0; j < kHeadTiles * kSumColumns; ++j) to[j % kSumColumns] += part[j];
      }
    }
    if (std::memcmp(expected.data(), key_sums(args), expected.size() * sizeof(float)) == 0) return;
    std::printf("the sums of dK and dV are in another order\n");
    std::exit(1);
  }
#endif

  // Adds what a row and head of Q contribute, key by key as its list names them.
  void expect(int row, int head, Gradient* dq, Gradient* dk, Gradient* dv) {
    const int batch = row / kRows, kv_head = head / kGqaRatio, of_q = row * kQHeads + head;
    const auto of_lse = static_cast<size_t>((batch * kQHeads + head) * kRows + row % kRows);
    double delta = -static_cast<double>(dlse_[of_lse]);
    for (int d = 0; d < kHeadDimV; ++d)
      delta += at(o_, of_q * kHeadDimV + d) * at(dout_, of_q * kHeadDimV + d);
    const int heads = by_head_ ? kKvHeads : 1;
    const int list = (row * heads + (by_head_ ? kv_head : 0)) * kLength;
    for (int i = 0; i < std::min(counts_[static_cast<size_t>(row)], kLength); ++i) {
      const int key = lists_[static_cast<size_t>(list + i)];
      if (key < 0 || key >= kKeysOfEntry) continue;
      const int of_k = (batch * kKeysOfEntry + key) * kKvHeads + kv_head;
      const auto value = [&](int d) {
        return kValuesInKeys ? at(k_, of_k * kHeadDimQk + d) : at(v_, of_k * kHeadDimV + d);
      };
      double s = 0, dp = 0;
      for (int d = 0; d < kHeadDimQk; ++d)
        s += at(q_, of_q * kHeadDimQk + d) * at(k_, of_k * kHeadDimQk + d);
      for (int d = 0; d < kHeadDimV; ++d) dp += at(dout_, of_q * kHeadDimV + d) * value(d);
      const auto lse = static_cast<double>(lse_[of_lse]), factor = static_cast<double>(scale());
      const double p = std::isinf(lse) ? 0 : std::exp(factor * s - lse);
      const double ds = factor * p * (dp - delta);
      for (int d = 0; d < kHeadDimQk; ++d) {
        (*dq)[of_q * kHeadDimQk + d] += ds * at(k_, of_k * kHeadDimQk + d);
        (*dk)[of_k * kHeadDimQk + d] += ds * at(q_, of_q * kHeadDimQk + d);
      }
      for (int d = 0; d < kHeadDimV; ++d)
        (*dv)[of_k * kHeadDimV + d] += p * at(dout_, of_q * kHeadDimV + d);
    }
  }

  // Allows for an error of 2 % of the size of a row of `columns` elements, and of each element.
  static void compare(const char* name, int columns, const Elements& got, Gradient& expected) {
    double worst = 0;
    for (int first = 0; first < static_cast<int>(expected.values.size()); first += columns) {
      double square = 0;
      for (int i = first; i < first + columns; ++i) square += expected[i] * expected[i];
      const double rms = std::sqrt(square / columns);
      for (int i = first; i < first + columns; ++i) {
        const double error = std::fabs(at(got, i) - expected[i]);
        worst = std::max(worst, rms > 0 ? error / rms : error);
        if (error <= 0.02 * (rms + std::fabs(expected[i]))) continue;
        std::printf("%s[%d][%d] is %g, must be %g\n", name, first / columns, i - first, at(got, i),
                    expected[i]);
        std::exit(1);
      }
    }
    std::printf("%s: largest error %g of a row's RMS\n", name, worst);
  }

  const bool by_head_;
  std::mt19937 random_{7};
  Elements q_, k_, v_, o_, dout_, dq_, dk_, dv_;
  std::vector<float> lse_, dlse_;
  std::vector<int> lists_, counts_;
};

}  // namespace
}  // namespace attune

int main() {
  using attune::kBatch, attune::kRows;
  for (const bool by_head : {false, true}) {
    attune::ListsCase all(by_head);
#ifdef LISTS_ROUND
    all.run(kBatch, LISTS_ROUND);
    all.check();
    attune::ListsCase one_round(by_head), one_entry(by_head);
    one_round.run(kBatch, kBatch * kRows);
    all.check_bits(one_round, kBatch);
    one_entry.run(1, 1);
    all.check_bits(one_entry, 1);
#else
    all.run(kBatch, 0);
    all.check();
#endif
  }
}
