// SPDX-License-Identifier: Apache-2.0
// ModelFields: one object of a model's config.json, whose fields are read by name. A name may have
// aliases (n_head for num_attention_heads) and dots (attn_config.alibi). Defaults replace fields
// that the config leaves out; null counts as left out. Errors name file, field, value and the
// allowed values. Used by the readers of attention (config_parts.hpp).
#pragma once

#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace attune {

using Names = std::initializer_list<const char*>;  // the first present name counts

class ModelFields {
 public:
  using Json = nlohmann::json;

  // `prefix` ("text_config.") is put before names in errors. `defaults` is a JSON object, or empty.
  ModelFields(std::string file, std::string prefix, Json config, std::string_view defaults);

  bool has(Names names) const;          // in the config or the defaults, and not null
  bool states(Names names) const;       // in the config itself, and not null
  std::string text(Names names) const;  // "" if left out
  bool flag(Names names, bool otherwise) const;
  int integer(Names names) const;  // above 0
  int integer(Names names, int otherwise) const;
  int count(Names names) const;              // at least 0; 0 if left out
  double number(Names names) const;          // above 0
  double number_or_zero(Names names) const;  // 0 if left out or negative
  // Never throws: 0 if left out, or not a number. For fields whose forms vary, and that have a
  // sensible meaning without one.
  double number_if_any(Names names) const;
  bool is_list(Names names) const;               // and not empty
  bool is_text(Names names) const;               // and not empty
  std::vector<int> integers(Names names) const;  // at least 0 each
  // Returns `count` integers above 0. If the field is a single integer, all are equal to it.
  std::vector<int> integers(Names names, size_t count) const;
  std::vector<std::string> texts(Names names) const;
  std::vector<std::string> texts_in(const char* name) const;  // of a list; skips other values

  bool is_object(const char* name) const;
  bool is_null(const char* name) const;  // stated as null
  // Returns the names of objects that state a model_type; those of text first.
  std::vector<std::string> object_names() const;
  ModelFields object(const char* name, std::string_view defaults) const;
  const Json& json(Names names) const;  // null if left out
  // Returns the same object with other defaults.
  ModelFields with_defaults(std::string_view defaults) const;
  // Returns the same object, in which these fields replace the config's.
  ModelFields with_changes(const Json& changes) const;

  void ignore(Names names) const { asked_->insert(names.begin(), names.end()); }
  void ignore(std::string name) const { asked_->insert(std::move(name)); }
  // Returns the config's fields that look like attention, have an effect, and were neither read nor
  // ignored. Includes the fields of an attention object (attn_config).
  std::vector<std::string> unread_attention_fields() const;

  // Returns the fields of unread_attention_fields(), and fields of layers that no Llama has.
  std::vector<std::string> fields_unlike_llama() const;

  [[noreturn]] void refuse(Names names, const std::string& accepted) const;
  [[noreturn]] void refuse(const std::string& what) const;  // "FILE: what"
  const std::string& file() const { return file_; }

 private:
  const Json* find(Names names, std::string* name = nullptr) const;
  const Json& need(Names names, const std::string& accepted) const;

  std::string file_, prefix_;
  Json config_, defaults_;
  // names that were read or ignored; shared with objects of with_changes
  std::shared_ptr<std::set<std::string, std::less<>>> asked_;
};

}  // namespace attune
