// SPDX-License-Identifier: Apache-2.0
// A parsed JSON tree whose destructor allocates nothing. nlohmann's own destructor does, so it ends
// a process that has run out of memory. libattune.so reads bundles and stores into this type; the
// program may use nlohmann's. Both work with the functions of json_text.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace attune {

class JsonValue {
 public:
  using Member = std::pair<std::string, JsonValue>;
  using Members = std::vector<Member>;  // in the order of the text; find() takes the last equal key
  using Items = std::vector<JsonValue>;

  JsonValue() = default;  // null
  template <class T>
  requires(!std::is_same_v<T, JsonValue>) explicit JsonValue(T value) : value_(std::move(value)) {}
  // Throws kInvalidArgument for text that is not JSON (with the line), that nests deeper than
  // kMaxJsonDepth, or that holds a number beyond a double.
  static JsonValue parse(std::string_view text);

  bool is_null() const { return holds<std::monostate>(); }
  bool is_object() const { return holds<Members>(); }
  bool is_array() const { return holds<Items>(); }
  bool is_string() const { return holds<std::string>(); }
  bool is_boolean() const { return holds<bool>(); }
  bool is_number_unsigned() const { return holds<uint64_t>(); }  // an integer >= 0
  bool is_number_integer() const { return holds<int64_t>() || is_number_unsigned(); }
  bool is_number() const { return holds<double>() || is_number_integer(); }

  // Returns the value. For a number, T is double, int64_t or uint64_t; an integer converts to each
  // of them.
  template <class T>
  T get() const {
    if constexpr (std::is_arithmetic_v<T> && !std::is_same_v<T, bool>) {
      if (holds<int64_t>()) return static_cast<T>(std::get<int64_t>(value_));
      if (holds<uint64_t>()) return static_cast<T>(std::get<uint64_t>(value_));
      return static_cast<T>(std::get<double>(value_));
    } else {
      return std::get<T>(value_);
    }
  }

  // Returns the value of a key in an object, or nullptr if the key is missing. begin() and end()
  // span the items of a list.
  const JsonValue* find(std::string_view key) const;
  bool contains(std::string_view key) const { return is_object() && find(key) != end(); }
  const JsonValue* begin() const { return is_array() ? items().data() : nullptr; }
  const JsonValue* end() const { return is_array() ? begin() + items().size() : nullptr; }
  // Returns the value as JSON text, for messages.
  std::string dump() const;

  // The parser fills these.
  Members& members() { return std::get<Members>(value_); }
  Items& items() { return std::get<Items>(value_); }
  const Items& items() const { return std::get<Items>(value_); }

 private:
  template <class T>
  bool holds() const {
    return std::holds_alternative<T>(value_);
  }
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Items, Members> value_;
};

}  // namespace attune
