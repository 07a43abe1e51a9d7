#include "core/math/state_formats.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

struct Layout {
  const char* name;
  double held, read, written;
};

TEST(MemoryStateFormats, HoldAndMoveTheBytesOfTheirLayouts) {
  // Per parameter, with a 16-bit gradient and 16-bit weights; a scale of 2 bytes for 32 codes is 1/16.
  const Layout layouts[] = {{"fp32+fp32", 12, 14, 14},          {"split+fp32", 10, 14, 12},
                            {"fp32+bf16", 8, 10, 10},           {"split+bf16", 6, 10, 8},
                            {"fp32+int8", 6.125, 8.125, 8.125}, {"ulp8+int8", 3.125, 7.125, 5.125}};
  for (const Layout& layout : layouts) {
    int found = 0;
    for (const StateFormat format : all_state_formats()) {
      if (name_of(format) != layout.name) continue;
      ++found;
      EXPECT_EQ(bytes_held(format), layout.held) << layout.name;
      EXPECT_EQ(bytes_read(format, DType::bf16), layout.read) << layout.name;
      EXPECT_EQ(bytes_written(format, DType::bf16), layout.written) << layout.name;
    }
    EXPECT_EQ(found, 1) << layout.name;
  }
}

TEST(MemoryStateFormats, PlanesRoundUpToWholeGroups) {
  const StateFormat format{MasterFormat::ulp8, MomentFormat::int8};
  for (const auto& [n, scales] :
       {std::pair<int64_t, size_t>{0, 0}, {1, 2}, {31, 2}, {32, 2}, {33, 4}, {64, 4}}) {
    EXPECT_EQ(plane_bytes(format, StatePlane::scale1, n), scales);
    EXPECT_EQ(plane_bytes(format, StatePlane::moment1, n), static_cast<size_t>(n));
  }
  const int64_t huge = (int64_t{1} << 33) + 1;
  EXPECT_EQ(plane_bytes({}, StatePlane::master, huge), size_t{4} * ((size_t{1} << 33) + 1));
  EXPECT_EQ(plane_bytes({}, StatePlane::scale1, huge), 0u);
}

TEST(ConfigStateFormats, NamesAreReadBack) {
  for (const StateFormat format : all_state_formats()) {
    const std::string name = name_of(format);
    const size_t plus = name.find('+');
    EXPECT_EQ(master_format(name.substr(0, plus)), format.master);
    EXPECT_EQ(moment_format(name.substr(plus + 1)), format.moments);
  }
  EXPECT_EQ(master_format("int8"), std::nullopt);
  EXPECT_EQ(moment_format("split"), std::nullopt);
}

TEST(ConfigStateFormats, MastersBesideTheirWeightsNeedBf16) {
  for (const StateFormat format : all_state_formats())
    for (const DType weight : {DType::f32, DType::bf16, DType::f16})
      EXPECT_EQ(refusal(format, weight).empty(), format.master == MasterFormat::fp32 || weight == DType::bf16)
          << name_of(format) << " beside " << name_of(weight);
}

}  // namespace
}  // namespace tandem
