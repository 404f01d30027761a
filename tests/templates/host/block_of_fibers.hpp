// SPDX-License-Identifier: Apache-2.0
// Runs the threads of a CUDA block on the host: each is a fiber, and barriers and shuffles switch
// to the next one. Included before a kernel's text; a kernel's shared variables are then variables
// of the thread.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ thread_local  // all fibers have one thread
#define __align__(bytes)

namespace attune {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};
inline Index threadIdx, blockIdx, gridDim;

class BlockOfFibers {
 public:
  // Runs `thread` once for each thread of a block. Returns when all have ended.
  static void run(unsigned threads, const std::function<void()>& thread) {
    BlockOfFibers block(threads, thread);
    current_ = &block;
    bool is_reversed = false;  // threads run in either order, so that a missing barrier shows
    for (unsigned ended = 0; ended < threads; is_reversed = !is_reversed) {
      bool ran = false;
      for (unsigned turn = 0; turn < threads; ++turn) {
        const unsigned i = is_reversed ? threads - 1 - turn : turn;
        Fiber& fiber = block.fibers_[i];
        if (fiber.ended || fiber.waits()) continue;
        ran = true;
        block.at_ = i;
        threadIdx.x = i;
        block.enter(&fiber);
        ended += fiber.ended;
      }
      if (ran) continue;
      std::fputs("all threads of a block wait at barriers\n", stderr);
      std::exit(1);
    }
    current_ = nullptr;
  }
  // Waits until all threads of a group have called it; a group is the block, or one of its warps.
  static void meet_block() { current_->meet(&current_->block_, current_->fibers_.size()); }
  static void meet_warp() { current_->meet(&current_->warps_[threadIdx.x / 32], 32); }
  // Waits at one of 16 barriers until `threads` threads have called it.
  static void meet_at(int barrier, unsigned threads) {
    current_->meet(&current_->named_.at(static_cast<size_t>(barrier)), threads);
  }
  // Words that a thread gives to the others of its warp.
  struct Words {
    unsigned word[6] = {};
  };
  // Calls read(words of all lanes) when all threads of the warp have given theirs.
  template <class Read>
  static auto exchange(const Words& own, const Read& read) {
    current_->words_[threadIdx.x] = own;
    meet_warp();
    const auto found = read(&current_->words_[threadIdx.x / 32 * 32]);
    meet_warp();
    return found;
  }

 private:
  struct Group {
    size_t arrived = 0, round = 0;
  };
  struct Fiber {
    ucontext_t context{};
    jmp_buf place;  // where it left its stack
    bool started = false, ended = false;
    const Group* group = nullptr;  // it waits until this group's round is over
    size_t round = 0;
    bool waits() const { return group != nullptr && group->round == round; }
  };
  BlockOfFibers(unsigned threads, const std::function<void()>& thread)
      : thread_(thread), fibers_(threads), warps_(threads / 32), words_(threads) {
    constexpr size_t kStackBytes = 256 << 10;
    static std::vector<std::unique_ptr<char[]>> stacks;  // of all blocks, one after the other
    for (Fiber& fiber : fibers_) {
      const auto i = static_cast<size_t>(&fiber - fibers_.data());
      if (i == stacks.size()) stacks.push_back(std::make_unique_for_overwrite<char[]>(kStackBytes));
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = stacks[i].get();
      fiber.context.uc_stack.ss_size = kStackBytes;
      makecontext(&fiber.context, &BlockOfFibers::begin, 0);
    }
  }
  // Runs a fiber until it waits or ends. _setjmp and _longjmp switch stacks without system calls,
  // unlike swapcontext, which begins each fiber.
  void enter(Fiber* fiber) {
    if (_setjmp(home_) != 0) return;
    if (fiber->started) _longjmp(fiber->place, 1);
    fiber->started = true;
    setcontext(&fiber->context);
  }
  static void begin() {
    current_->thread_();
    current_->fibers_[current_->at_].ended = true;
    _longjmp(current_->home_, 1);
  }
  void meet(Group* group, size_t size) {
    Fiber& fiber = fibers_[threadIdx.x];
    fiber.group = group;
    fiber.round = group->round;
    if (++group->arrived == size) {
      group->arrived = 0;
      ++group->round;
    } else if (_setjmp(fiber.place) == 0) {
      _longjmp(home_, 1);
    }
  }

  inline static BlockOfFibers* current_ = nullptr;
  const std::function<void()>& thread_;
  std::vector<Fiber> fibers_;
  std::vector<Group> warps_;
  std::vector<Words> words_;
  std::vector<Group> named_{16};
  Group block_;
  jmp_buf home_;
  unsigned at_ = 0;
};

inline void __syncthreads() { BlockOfFibers::meet_block(); }
inline void __syncwarp(unsigned = ~0u) { BlockOfFibers::meet_warp(); }
template <class Word>
Word __shfl_sync(unsigned, Word word, int lane) {
  return BlockOfFibers::exchange({{std::bit_cast<unsigned>(word)}},
                                 [lane](const BlockOfFibers::Words* lanes) {
                                   return std::bit_cast<Word>(lanes[lane % 32].word[0]);
                                 });
}
template <class Word>
Word __shfl_xor_sync(unsigned mask, Word word, int lanes) {
  return __shfl_sync(mask, word, static_cast<int>(threadIdx.x % 32) ^ lanes);
}
template <class Word>
Word __shfl_up_sync(unsigned mask, Word word, int lanes) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  return __shfl_sync(mask, word, lane < lanes ? lane : lane - lanes);
}
inline unsigned atomicAdd(unsigned* word, unsigned number) {
  const unsigned before = *word;
  *word += number;
  return before;
}
inline unsigned atomicOr(unsigned* word, unsigned bits) {
  const unsigned before = *word;
  *word |= bits;
  return before;
}
inline int __popc(unsigned word) { return std::popcount(word); }
inline int __ffs(int word) {
  return word == 0 ? 0 : std::countr_zero(static_cast<unsigned>(word)) + 1;
}
inline int __clz(unsigned word) { return std::countl_zero(word); }
using std::max;
using std::min;

}  // namespace attune
