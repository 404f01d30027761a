// SPDX-License-Identifier: Apache-2.0
// Dropout in prefill_cpu, on registers of any width: the kept elements are those of
// shared/dropout.h, O equals the reference's, LSE equals that of a call without dropout.
#include <gtest/gtest.h>

#include <cmath>

#include "generator/families/families.hpp"
#include "templates/shared/dropout.h"
#include "tests/support/host_run.hpp"

namespace attune::testing {
namespace {

struct Registers {
  int bytes;
  std::vector<std::string> features;
};

class DropoutCpu : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    toolchain_ = compiling_toolchain(&why);
    if (toolchain_ == nullptr) GTEST_SKIP() << why;
  }

  // This machine's register width, and on x86 narrower widths.
  std::vector<Arch> archs() const {
    std::vector<Arch> all{toolchain_->host_arch()};
#if defined(__x86_64__)
    for (const Registers& narrow :
         {Registers{32, {"+avx", "+avx2", "+f16c", "+fma", "+sse4.2"}}, Registers{16, {"+sse2"}}}) {
      all.push_back(all.front());
      all.back().vector_bytes = narrow.bytes;
      all.back().features = narrow.features;
    }
#endif
    return all;
  }

  HostConfig host(const KernelTemplate& t, const Problem& p, const Arch& arch) const {
    return HostConfig(*toolchain_, arch, t, spec_of(p),
                      t.default_config(spec_of(p), arch, shape_of(p), typical_device(arch).facts));
  }

  const CpuToolchain* toolchain_ = nullptr;
};

// The numbers are far from 0. The launch is a part of a larger problem.
DropoutArgs dropout(unsigned threshold) {
  DropoutArgs args{};
  args.seed = 0xFEDCBA9876543210ULL, args.offset = 0xFFFFFFFEULL;
  args.head0 = 11, args.row0 = 48;
  args.keep(threshold);
  return args;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = a[i] == b[i] ? largest : std::max(largest, std::abs(a[i] - b[i]));
  return largest;
}

// Lengths that no cell of 16 keys divides, blocks that begin within one, heads of one group in the
// lanes of a panel.
TEST_F(DropoutCpu, PrefillGivesTheOutputOfTheReference) {
  for (const Arch& arch : archs())
    for (const char* text :
         {"dtype=fp32,head_dim=64,heads=2,batch=2,seqlen=150,mask=causal_bottom_right,dropout=0.25",
          "dtype=fp32,head_dim=32,heads=6/2,batch=2,seqlen_q=45,seqlen_kv=301,window=80:20,"
          "dropout=0.25",
          "dtype=e4m3,dtype_o=fp32,head_dim=40,heads=7/1,seqlen_q=3,seqlen_kv=77,dropout=0.25"}) {
      const Problem p = parse_problem(text);
      const AttentionCase one(p, Layout::kPadded, Inputs::kNormal, 7);
      const DropoutArgs given = dropout(192);
      const HostOutcome found = host(prefill_cpu(), p, arch).run(one, 2, Against::kEnd, given);
      const HostOutcome wanted = host(reference_cpu(), p, arch).run(one, 2, Against::kEnd, given);
      EXPECT_LT(largest_difference(found.result.o, wanted.result.o), 2e-5) << text << arch.name();
      EXPECT_LT(largest_difference(found.result.lse, wanted.result.lse), 2e-5) << text;
      EXPECT_TRUE(found.gaps_intact && found.counters_clear) << text;
      Problem plain = p;
      plain.dropout = 0;
      const HostOutcome whole = host(prefill_cpu(), plain, arch).run(one, 2);
      EXPECT_EQ(found.result.lse, whole.result.lse) << text;
      EXPECT_GT(largest_difference(found.result.o, whole.result.o), 0.05) << text;
    }
}

// With scores of 0 and an identity matrix as V, O is P: 0 or scale / keys. The host computes which
// elements are kept.
TEST_F(DropoutCpu, KeepsTheElementsOfTheHostsMaskAndWritesItsSeed) {
  constexpr int kKeys = 64;
  const Problem p = parse_problem(
      "dtype=fp32,head_dim=64,heads=4/2,batch=2,seqlen_q=37,seqlen_kv=64,dropout=0.5");
  AttentionCase one(p, Layout::kContiguous, Inputs::kNormal, 7);
  std::fill(one.q.bytes.begin(), one.q.bytes.end(), decltype(one.q.bytes)::value_type{});
  auto* const v = reinterpret_cast<float*>(one.v.bytes.data());
  for (int64_t batch = 0; batch < p.batch; ++batch)
    for (int64_t head = 0; head < p.num_heads_kv; ++head)
      for (int64_t key = 0; key < kKeys; ++key)
        for (int64_t column = 0; column < kKeys; ++column)
          v[batch * one.v.batch_stride + head * one.v.head_stride + key * one.v.row_stride +
            column] = column == key ? 1.0F : 0.0F;
  for (const unsigned threshold : {1U, 128U, 230U, 256U})
    for (const Arch& arch : archs()) {
      unsigned long long added[2] = {17, 5}, state[2] = {0, 0};
      DropoutArgs given = dropout(threshold);
      given.seed_address = added, given.offset_address = added + 1, given.state = state;
      const std::vector<double> o =
          host(prefill_cpu(), p, arch).run(one, 2, Against::kEnd, given).result.o;
      EXPECT_EQ(state[0], given.seed + 17);
      EXPECT_EQ(state[1], given.offset + 5);
      int64_t i = 0, wrong = 0;
      for (int64_t batch = 0; batch < p.batch; ++batch)
        for (int row = 0; row < p.seqlen_q; ++row)
          for (int head = 0; head < p.num_heads_q; ++head)
            for (int key = 0; key < kKeys; ++key, ++i) {
              const auto of_all = static_cast<unsigned>(batch * p.num_heads_q + head);
              const double wanted = dropout_factor(given, of_all, row, key) / kKeys;
              wrong += std::abs(o[static_cast<size_t>(i)] - wanted) > 1e-5 * wanted ? 1 : 0;
            }
      EXPECT_EQ(wrong, 0) << threshold << " " << arch.name() << " " << arch.vector_bytes;
    }
}

}  // namespace
}  // namespace attune::testing
