// SPDX-License-Identifier: Apache-2.0
// Writes nodes as C++ expressions for kernels. Used by source_printer.hpp.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/score/language/expression_writer.hpp"
#include "generator/score/language/program.hpp"

namespace attune::score {

std::string capture_type_text(CaptureType type);  // "CaptureType::kFp32"
std::string scalar_text(Type type, int place);    // "args.scalars[0].f32"

class KernelWriter : public ExpressionWriter {
 public:
  KernelWriter(const Program& program, Places places)
      : ExpressionWriter(program),
        program_(program),
        places_(std::move(places)),
        addresses_(program.nodes().size()) {}

  // Returns the address of the line that a load reads: all indices except the last are applied.
  std::string line_address(int load) const;
  void bind_address(int load, std::string text) {
    addresses_[static_cast<size_t>(load)] = std::move(text);
  }
  // Returns the address of a line's elements: the text from bind_address, else the capture's data
  // pointer.
  std::string address_of(int load) const;
  std::string type_of_capture(int load) const;  // "CaptureType::kFp32"
  std::string capture_of(int load) const;       // "args.captures[0]"

 protected:
  std::string leaf(const Node& n) const override;
  std::string load(const Node& n, const std::vector<std::string>& indices) const override;
  std::string infinity() const override { return "score_infinity()"; }
  std::string_view float_suffix() const override { return "f"; }
  NodeSpelling spelling(const Node& n, Type operands) const override;

 private:
  const Program& program_;
  const Places places_;
  std::vector<std::string> addresses_;  // per load: the address of its line, if known
};

}  // namespace attune::score
