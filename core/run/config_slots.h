#pragma once
// How the members of a Config are written and read through the table of fields; for config_fields.cpp only.
#include <algorithm>
#include <type_traits>

#include "core/run/config_fields.h"

namespace tandem::config_slots {

inline void store(bool& member, const json::Value& value, const Field&) { member = value.boolean().value(); }
inline void store(int64_t& member, const json::Value& value, const Field&) { member = value.i64().value(); }
inline void store(uint64_t& member, const json::Value& value, const Field&) { member = value.u64().value(); }
inline void store(double& member, const json::Value& value, const Field&) { member = value.number().value(); }
inline void store(json::Value& member, const json::Value& value, const Field&) { member = value; }
inline void store(std::string& member, const json::Value& value, const Field&) { member = *value.string(); }

inline void store(std::vector<std::string>& member, const json::Value& value, const Field&) {
  member.clear();
  if (value.is_null()) return;
  for (const json::Value& item : *value.array()) member.push_back(*item.string());
}

inline void store(std::array<double, 2>& member, const json::Value& value, const Field&) {
  for (size_t i = 0; i < 2; ++i) member[i] = value.array()->at(i).number().value();
}

template <class E>
requires std::is_enum_v<E>
void store(E& member, const json::Value& value, const Field& field) {
  const auto choice = std::find(field.choices.begin(), field.choices.end(), *value.string());
  member = static_cast<E>(choice - field.choices.begin());
}

template <class T>
void store(std::optional<T>& member, const json::Value& value, const Field& field) {
  if (value.is_null())
    member.reset();
  else
    store(member.emplace(), value, field);
}

template <class T>
json::Value shown(const T& member, const Field&) {
  return member;
}
template <class T>
requires std::is_enum_v<T> json::Value shown(const T& member, const Field& field) {
  return field.choices[static_cast<size_t>(member)];
}
inline json::Value shown(const std::string& member, const Field&) {
  return member.empty() ? json::Value() : json::Value(member);
}
inline json::Value shown(const std::vector<std::string>& member, const Field&) {
  return json::Array(member.begin(), member.end());
}
inline json::Value shown(const std::array<double, 2>& member, const Field&) {
  return json::Array(member.begin(), member.end());
}
template <class T>
inline json::Value shown(const std::optional<T>& member, const Field& field) {
  return member ? shown(*member, field) : json::Value();
}

template <class Access>
Slot slot(Access) {
  return {.set = [](Config& config, const json::Value& value,
                    const Field& field) { store(Access{}(config), value, field); },
          .get = [](const Config& config, const Field& field) { return shown(Access{}(config), field); }};
}

}  // namespace tandem::config_slots
