// SPDX-License-Identifier: Apache-2.0
// FixedTemplate: base of the families without knobs, which have one config, the empty one. The
// references are such families, and ops whose kernels have no choices.
#pragma once

#include <string_view>

#include "generator/kernel_template.hpp"

namespace attune {

class FixedTemplate : public KernelTemplate {
 public:
  std::string_view name() const final { return name_; }
  std::string_view source_path() const final { return source_path_; }
  std::string_view knobs_path() const final { return knobs_path_; }
  SearchSpace space(const KernelSpec&, const Arch&) const final { return SearchSpace({}, {}); }
  Config default_config(const KernelSpec&, const Arch&, const Shape&,
                        const DeviceFacts&) const final {
    return {};
  }
  Resources resources(const KernelSpec&, const Arch&, const Config&) const final {
    return {.threads = threads_};
  }

 protected:
  // `threads`: of each block; 1 on CPUs.
  FixedTemplate(std::string_view name, std::string_view source_path, std::string_view knobs_path,
                int threads)
      : name_(name), source_path_(source_path), knobs_path_(knobs_path), threads_(threads) {}

 private:
  const std::string_view name_, source_path_, knobs_path_;
  const int threads_;
};

}  // namespace attune
