// SPDX-License-Identifier: Apache-2.0
// Lines about many kernels, computed on all cores. Used by kernel_digests.cpp and
// drawn_digests.cpp.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <iostream>
#include <thread>

#include "generator/core/system/error.hpp"
#include "tests/generator/kernel_matrix.hpp"

namespace attune::testing {

// Prints each kernel's key, a tab and `line_of` it, in order.
template <class LineOf>
void print_lines(const std::vector<MatrixKernel>& kernels, const LineOf& line_of) {
  std::vector<std::string> lines(kernels.size());
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < std::max(1U, std::thread::hardware_concurrency()); ++i)
    threads.emplace_back([&] {
      for (size_t k; (k = next++) < kernels.size();) {
        lines[k] = kernels[k].key() + "\t" + line_of(kernels[k]);
        if (k % 100 == 99) std::cerr << fmt::format("{} of {} kernels\n", k + 1, kernels.size());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::string& line : lines) std::cout << line << "\n";
}

// The line of a kernel that the compiler refuses.
inline std::string refused_line(const Error& error) {
  const std::string message = error.what();
  return "does not compile: " + message.substr(0, message.find('\n'));
}

inline Source source_of(const MatrixKernel& kernel) {
  return render(*kernel.kernel_template, kernel.spec, kernel.arch, kernel.config);
}

}  // namespace attune::testing
