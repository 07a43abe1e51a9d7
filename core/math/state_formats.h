#pragma once
// The formats that optimizer states are held in: a master format beside a moment format. Bytes, names and
// what can't be combined stand here alone; core/math/state_codecs.h says what the bytes mean.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/dtype.h"
#include "core/math/state_codecs.h"

namespace tandem {

enum class MasterFormat : uint8_t { fp32, split, ulp8 };
enum class MomentFormat : uint8_t { fp32, bf16, int8 };

struct StateFormat {
  MasterFormat master = MasterFormat::fp32;
  MomentFormat moments = MomentFormat::fp32;
  friend bool operator==(const StateFormat&, const StateFormat&) = default;
};

/// The planes that states may consist of. Scales are those of MomentFormat::int8.
enum class StatePlane : uint8_t { master, moment1, moment2, scale1, scale2 };
constexpr size_t kStatePlanes = 5;
constexpr std::array<std::string_view, kStatePlanes> kStatePlaneNames{"master", "moment1", "moment2",
                                                                      "scale1", "scale2"};

/// `bytes` for every `elements` elements that are begun. No bytes: the format has no such plane.
struct PlaneShape {
  size_t bytes = 0;
  int64_t elements = 1;
};

struct MasterRow {
  std::string_view name;  ///< the value of master_format
  PlaneShape plane;
  bool beside_weights;  ///< the rest of each master is its bf16 weight, which the pass must be given
  bool stochastic;
};
struct MomentRow {
  std::string_view name;  ///< the value of moment_format
  PlaneShape plane;       ///< of each moment
  PlaneShape scales;      ///< of each moment
  bool stochastic;
};

/// In the order of MasterFormat and MomentFormat.
constexpr std::array<MasterRow, 3> kMasterFormats{
    {{"fp32", {4, 1}, false, false}, {"split", {2, 1}, true, false}, {"ulp8", {1, 1}, true, true}}};
constexpr std::array<MomentRow, 3> kMomentFormats{
    {{"fp32", {4, 1}, {}, false}, {"bf16", {2, 1}, {}, true}, {"int8", {1, 1}, {2, kStateGroup}, true}}};

/// All nine, masters outermost.
constexpr std::array<StateFormat, kMasterFormats.size() * kMomentFormats.size()> all_state_formats() {
  std::array<StateFormat, kMasterFormats.size() * kMomentFormats.size()> all{};
  for (size_t i = 0; i < all.size(); ++i)
    all[i] = {static_cast<MasterFormat>(i / kMomentFormats.size()),
              static_cast<MomentFormat>(i % kMomentFormats.size())};
  return all;
}

constexpr const MasterRow& row_of(MasterFormat format) { return kMasterFormats[static_cast<size_t>(format)]; }
constexpr const MomentRow& row_of(MomentFormat format) { return kMomentFormats[static_cast<size_t>(format)]; }

constexpr PlaneShape shape_of(StateFormat format, StatePlane plane) {
  switch (plane) {
    case StatePlane::master:
      return row_of(format.master).plane;
    case StatePlane::moment1:
    case StatePlane::moment2:
      return row_of(format.moments).plane;
    case StatePlane::scale1:
    case StatePlane::scale2:
      return row_of(format.moments).scales;
  }
  return {};
}
/// The plane's bytes for n elements from a parameter's element 0.
constexpr size_t plane_bytes(StateFormat format, StatePlane plane, int64_t n) {
  const PlaneShape shape = shape_of(format, plane);
  return shape.bytes * static_cast<size_t>((n + shape.elements - 1) / shape.elements);
}
/// Bytes per parameter of the bf16 weights that hold the rest of the masters.
constexpr size_t bytes_beside(StateFormat format) {
  return row_of(format.master).beside_weights ? sizeof(bf16) : 0;
}
/// True if a pass draws random bits.
constexpr bool stochastic(StateFormat format) {
  return row_of(format.master).stochastic || row_of(format.moments).stochastic;
}

/// "fp32+fp32": MASTER+MOMENTS.
std::string name_of(StateFormat format);
/// Of "fp32", "split", "ulp8"; "fp32", "bf16", "int8". Nothing for another name.
std::optional<MasterFormat> master_format(std::string_view name);
std::optional<MomentFormat> moment_format(std::string_view name);

/// Bytes per parameter: of the planes; and what a pass loads and stores, its gradient and one plane of
/// weights included (a second one, of predicted weights or of the upper halves, is one more store).
double bytes_held(StateFormat format);
double bytes_read(StateFormat format, DType grad);
double bytes_written(StateFormat format, DType weight);

/// Why states of this format can't stand beside weights of this type, as the end of a sentence; empty if they
/// can.
std::string_view refusal(StateFormat format, DType weight);

}  // namespace tandem
