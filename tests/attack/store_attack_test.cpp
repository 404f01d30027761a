// SPDX-License-Identifier: Apache-2.0
// Uses a store as a bad disk leaves it: an engine plans, the kernel runs, the file is written
// again. Damage may cause a miss, but never a crash, another exception or a wrong result. The
// kernels are real; each is compiled once.
// ATTUNE_ATTACK_TIMES=N   makes N times as many files
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "generator/families/families.hpp"
#include "generator/template_registry.hpp"
#include "runtime/engine/device.hpp"
#include "runtime/engine/engine.hpp"
#include "tests/attack/mutate.hpp"
#include "tests/cache/store_samples.hpp"
#include "tests/support/device_with_compiler.hpp"
#include "tuner/fuzz/attention_case.hpp"

namespace attune {
namespace {

using testing::AttentionCase;

// Compiles each source once, even if a damaged store loses the image again and again.
class RememberingCompiler final : public Compiler {
 public:
  explicit RememberingCompiler(const Compiler& real) : real_(real) {}
  std::string version() const override { return real_.version(); }
  std::string options(const Arch& arch) const override { return real_.options(arch); }
  KernelImage compile(const Source& source, const Arch& arch) const override {
    const auto [at, is_new] = images_.try_emplace(source.text + arch.name());
    if (is_new) at->second = real_.compile(source, arch);
    return at->second;
  }

 private:
  const Compiler& real_;
  mutable std::map<std::string, KernelImage> images_;
};

using RememberingDevice = testing::DeviceWithCompiler<RememberingCompiler>;

class StoreAttack : public StoreTest {
 protected:
  void SetUp() override {
    try {
      const std::shared_ptr<const Device> real = open_device("cpu:1");
      device_ = std::make_shared<RememberingDevice>(real, real->compiler());
    } catch (const Error& error) {
      GTEST_SKIP() << error.what();
    }
    fill();
  }

  // Stores a winner that is not the default config, trials, and the winner's image.
  void fill() {
    const KernelSpec spec = spec_of(problem_);
    const Arch arch = device_->archs().front();
    const KernelTemplate& best = prefill_cpu();
    key_ = {spec, shape_of(problem_), device_->identity(), {"v1"}};
    winner_ = sample_winner(key_);
    winner_.toolchain = {std::string(best.name()), template_digest(best),
                         device_->compiler().version(), device_->compiler().options(arch)};
    winner_.arch = arch.name();
    winner_.default_config =
        best.default_config(spec, arch, winner_.shape, typical_device(arch).facts);
    winner_.config = best.space(spec, arch).neighbours(winner_.default_config).front();
    {
      Store store = writer();
      for (int64_t block_m = 16; block_m <= 256; block_m += 16)
        store.put_trial(key_, sample_trial(block_m));
      store.put_winner(key_, winner_);
    }
    const auto plan = engine().plan(problem_);
    ASSERT_EQ(plan->rung, Rung::kExact) << plan->explain();
    ASSERT_TRUE(right(*plan));
    ASSERT_EQ(engine().plan(problem_)->image_from, "store");
  }

  Engine engine() const {
    EngineOptions options;
    options.user_store = file();
    return Engine(device_, options);
  }

  bool right(const Plan& plan) const {
    std::vector<std::byte> o = case_.o.bytes, q = case_.q.bytes, k = case_.k.bytes,
                           v = case_.v.bytes;
    Operands operands;
    operands.q = case_.q.view(q.data());
    operands.k = case_.k.view(k.data());
    operands.v = case_.v.view(v.data());
    operands.o = case_.o.view(o.data());
    void* const workspace = device_->allocate(plan.workspace_bytes());
    init_workspace(plan, workspace, plan.workspace_bytes(), nullptr);
    run(plan, operands, workspace, plan.workspace_bytes(), nullptr);
    device_->release(workspace);
    bool intact = false;
    const std::vector<double> got = case_.read_o(o, &intact);
    for (size_t i = 0; i < got.size(); ++i)
      if (!(std::abs(got[i] - want_.o[i]) < 1e-4)) return false;
    return intact;
  }

  // Uses the store as programs do, whatever it contains.
  void use(bool also_run) {
    const auto plan = engine().plan(problem_);
    ++(plan->rung == Rung::kExact ? kept_ : missed_);
    if (also_run) {
      EXPECT_TRUE(right(*plan)) << plan->explain();
    }
    try {
      Store store = writer();
      store.verify();
      store.put_trial(key_, sample_trial());
      store.put_winner(key_, winner_);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kStore) << error.what();
    }
    engine().choose(problem_);
  }

  void clear_folder() const {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      std::filesystem::remove_all(entry.path(), ignored);
  }

  const Problem problem_ = parse_problem("dtype=fp32,head_dim=16,heads=2/1,seqlen=24");
  const AttentionCase case_{problem_, testing::Layout::kContiguous, testing::Inputs::kNormal, 1};
  const testing::AttentionResult want_ = case_.oracle();
  std::shared_ptr<const Device> device_;
  TuningKey key_;
  WinnerRecord winner_;
  int kept_ = 0, missed_ = 0;  // files whose winner could still be read, and others
};

constexpr size_t kPage = 4096;

void flip_bits(std::mt19937_64& random, size_t below, std::string* bytes) {
  for (uint64_t flips = 1 + random() % 8; flips > 0; --flips) {
    const size_t at = random() % below;
    (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << random() % 8));
  }
}

void damage(std::mt19937_64& random, std::string* bytes) {
  const size_t pages = bytes->size() / kPage;
  const size_t one = random() % pages * kPage, other = random() % pages * kPage;
  switch (random() % 8) {
    case 0:
      return flip_bits(random, bytes->size(), bytes);
    case 1:  // the file header and the start of the first page
      return flip_bits(random, 112, bytes);
    case 2:
      for (uint64_t left = 1 + random() % 40; left > 0; --left)
        (*bytes)[random() % 100] = static_cast<char>(random());
      return;
    case 3:
      return bytes->resize(random() % bytes->size());
    case 4:
      std::swap_ranges(bytes->begin() + static_cast<long>(one),
                       bytes->begin() + static_cast<long>(one + kPage),
                       bytes->begin() + static_cast<long>(other));
      return;
    case 5:  // the start of a page: kind, number of cells, their places
      for (size_t i = one; i < one + 16; ++i) (*bytes)[i] = static_cast<char>(random());
      return;
    case 6: {
      const size_t at = random() % bytes->size();
      const size_t count = std::min<size_t>(random() % 3000, bytes->size() - at);
      const char filling = random() % 2 == 0 ? '\0' : '\xff';
      std::fill_n(bytes->begin() + static_cast<long>(at), count, filling);
      return;
    }
    default:
      for (uint64_t left = 1 + random() % 64; left > 0; --left)
        (*bytes)[random() % bytes->size()] = static_cast<char>(random());
  }
}

TEST_F(StoreAttack, DamagedFilesCostAMissAtMost) {
  const std::string whole = read_bytes(file());
  ASSERT_EQ(whole.size() % kPage, 0U);
  for (int i = 0; i < testing::attack_count(2030) && !HasFailure(); ++i) {
    std::mt19937_64 random(static_cast<uint64_t>(i));
    std::string bytes = whole;
    damage(random, &bytes);
    clear_folder();
    write_bytes(file(), bytes);
    SCOPED_TRACE(i);
    try {
      use(i % 3 == 0);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "file " << i << ": " << typeid(error).name() << ": " << error.what();
    }
  }
  EXPECT_GT(kept_, 200);
  EXPECT_GT(missed_, 200);
}

}  // namespace
}  // namespace attune
