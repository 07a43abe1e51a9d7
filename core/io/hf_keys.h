#pragma once
// How the keys of a Hugging Face config.json are read: null is like absent, whole reals are integers.
#include <optional>
#include <string_view>

#include "core/io/json.h"

namespace tandem::hf {

// Bounds that no real model comes near; below them no count of parameters or bytes overflows 64 bits.
inline constexpr int64_t kMostVocab = 1 << 28, kMostHidden = 1 << 20, kMostIntermediate = 1 << 24,
                         kMostLayers = 1 << 12, kMostHeads = 1 << 12, kMostHeadDim = 1 << 12,
                         kMostPositions = int64_t{1} << 31;

/// What an error about a value tells the user to do.
inline constexpr const char* kComparePublisher = "compare with the config.json of the model's publisher";

/// The member, unless it is absent or null.
std::optional<json::Node> given(const json::Node& object, std::string_view key);

// Of the member, or the fallback where it is not given. Error where it is not an integer from 1 to `most`, or
// not a finite number above 0.
int64_t integer(const json::Node& node, int64_t most);
int64_t integer_or(const json::Node& object, std::string_view key, int64_t fallback, int64_t most);
double positive(const json::Node& node);
double positive_or(const json::Node& object, std::string_view key, double fallback);

}  // namespace tandem::hf
