// SPDX-License-Identifier: Apache-2.0
// ModelFields: one object of a model's config.json, read by names. A name may have aliases (n_head
// for num_attention_heads) and dots (attn_config.alibi); what the config leaves out comes from
// defaults, and what it sets to null is left out. Every error names file, field, value and what is
// accepted. Used by the readers of attention (model_towers.hpp, diffusion_config.hpp).
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

using Names = std::initializer_list<const char*>;  // the first that is there counts

class ModelFields {
 public:
  using Json = nlohmann::json;

  // `prefix` stands before names in errors: "text_config.". `defaults`: a JSON object, or empty.
  ModelFields(std::string file, std::string prefix, Json config, std::string_view defaults);

  bool has(Names names) const;          // in the config or the defaults, and not null
  bool states(Names names) const;       // in the config itself, and not null
  std::string text(Names names) const;  // "" when left out
  bool flag(Names names, bool otherwise) const;
  int integer(Names names) const;  // above 0
  int integer(Names names, int otherwise) const;
  int count(Names names) const;                  // 0 or more; 0 when left out
  double number(Names names) const;              // above 0
  double number_or_zero(Names names) const;      // 0 when left out or below
  bool is_list(Names names) const;               // and not empty
  bool is_text(Names names) const;               // and not empty
  std::vector<int> integers(Names names) const;  // a list of 0 and more
  // A list of `count` integers above 0, or one that stands for all.
  std::vector<int> integers(Names names, size_t count) const;
  std::vector<std::string> texts(Names names) const;
  std::vector<std::string> texts_in(const char* name) const;  // of a list; others stay out

  bool is_object(const char* name) const;
  ModelFields object(const char* name, std::string_view defaults) const;
  // The same object with other defaults.
  ModelFields with_defaults(std::string_view defaults) const;

  void ignore(Names names) const { asked_.insert(names.begin(), names.end()); }
  // Fields of the config that look like attention, say something, and were never asked for or
  // ignored; those of an object of attention (attn_config), too.
  std::vector<std::string> unread_attention_fields() const;

  [[noreturn]] void refuse(Names names, const std::string& accepted) const;
  [[noreturn]] void refuse(const std::string& what) const;  // "FILE: what"
  const std::string& file() const { return file_; }

 private:
  const Json* find(Names names, std::string* name = nullptr) const;
  const Json& need(Names names, const std::string& accepted) const;

  std::string file_, prefix_;
  Json config_, defaults_;
  mutable std::set<std::string, std::less<>> asked_;
};

}  // namespace attune
