// SPDX-License-Identifier: Apache-2.0
// Builds the tree from the events of nlohmann's parser; see json_value.hpp.
#include "generator/core/system/json_value.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "generator/core/system/json_text.hpp"

namespace attune {
namespace {

// Handles parser events. `path_` holds the open objects and lists, outermost first.
class TreeBuilder {
 public:
  explicit TreeBuilder(JsonValue* root) : root_(root) {}

  bool null() { return put(JsonValue()); }
  bool boolean(bool value) { return put(JsonValue(value)); }
  bool number_integer(int64_t value) { return put(JsonValue(value)); }
  bool number_unsigned(uint64_t value) { return put(JsonValue(value)); }
  bool number_float(double value, const std::string&) { return put(JsonValue(value)); }
  bool string(std::string& value) { return put(JsonValue(std::move(value))); }
  bool binary(std::vector<uint8_t>&) { return false; }
  bool start_object(size_t) { return open(JsonValue(JsonValue::Members())); }
  bool start_array(size_t) { return open(JsonValue(JsonValue::Items())); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool key(std::string& key) {
    key_ = std::move(key);
    return true;
  }
  [[noreturn]] bool parse_error(size_t, const std::string&, const std::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, json_fault(error.what()));
  }

 private:
  // Returns the value's new address. A parent's list does not grow while one of its values is open.
  JsonValue* place(JsonValue value) {
    if (path_.empty()) {
      *root_ = std::move(value);
      return root_;
    }
    JsonValue& parent = *path_.back();
    if (parent.is_array()) return &parent.items().emplace_back(std::move(value));
    return &parent.members().emplace_back(std::move(key_), std::move(value)).second;
  }
  bool put(JsonValue value) {
    place(std::move(value));
    return true;
  }
  bool open(JsonValue value) {
    if (path_.size() > static_cast<size_t>(kMaxJsonDepth)) refuse_json_depth();
    path_.push_back(place(std::move(value)));
    return true;
  }
  bool close() {
    path_.pop_back();
    return true;
  }

  JsonValue* const root_;
  std::vector<JsonValue*> path_;
  std::string key_;
};

}  // namespace

JsonValue JsonValue::parse(std::string_view text) {
  JsonValue root;
  TreeBuilder builder(&root);
  nlohmann::json::sax_parse(text.begin(), text.end(), &builder);
  return root;
}

const JsonValue* JsonValue::find(std::string_view key) const {
  const Members& all = std::get<Members>(value_);
  const auto found = std::find_if(all.rbegin(), all.rend(),
                                  [&](const Member& member) { return member.first == key; });
  return found == all.rend() ? nullptr : &found->second;
}

std::string JsonValue::dump() const {
  const auto joined = [](const auto& all, const auto& text_of) {
    std::string text;
    for (const auto& one : all) text += (text.empty() ? "" : ",") + text_of(one);
    return text;
  };
  const auto quoted = [](const std::string& text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  };
  if (is_string()) return quoted(get<std::string>());
  if (is_boolean()) return get<bool>() ? "true" : "false";
  if (is_number_unsigned()) return std::to_string(get<uint64_t>());
  if (is_number_integer()) return std::to_string(get<int64_t>());
  if (is_number()) return nlohmann::json(get<double>()).dump();
  if (is_array()) return "[" + joined(items(), [](const auto& item) { return item.dump(); }) + "]";
  if (is_object())
    return "{" +
           joined(std::get<Members>(value_),
                  [&](const Member& member) {
                    return quoted(member.first) + ":" + member.second.dump();
                  }) +
           "}";
  return "null";
}

}  // namespace attune
