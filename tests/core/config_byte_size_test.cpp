#include "core/run/byte_size.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(ConfigByteSize, ReadsBothKindsOfUnits) {
  EXPECT_EQ(parse_byte_size("24GiB"), 25769803776u);
  EXPECT_EQ(parse_byte_size("24GB"), 24000000000u);
  EXPECT_EQ(parse_byte_size("512MiB"), 536870912u);
  EXPECT_EQ(parse_byte_size("1 KiB"), 1024u);
  EXPECT_EQ(parse_byte_size("3TB"), 3000000000000u);
  EXPECT_EQ(parse_byte_size("2TiB"), 2199023255552u);
  EXPECT_EQ(parse_byte_size("7"), 7u);
  EXPECT_EQ(parse_byte_size("7B"), 7u);
  EXPECT_EQ(parse_byte_size("0GiB"), 0u);
  EXPECT_EQ(parse_byte_size("1.5GiB"), 1610612736u);
  EXPECT_EQ(parse_byte_size("0.5KB"), 500u);
}

TEST(ConfigByteSize, RefusesEverythingElse) {
  for (const char* text :
       {"", "GiB", "24G", "24gib", "24 GiB ", "24  GiB", "-1GiB", "+1", "1.GiB", ".5GiB", "1e9", "0.3KiB",
        "1.0000001KB", "9223372036854775808", "8388608TiB", "99999999999999999999"})
    EXPECT_EQ(parse_byte_size(text), std::nullopt) << text;
  EXPECT_EQ(parse_byte_size("9223372036854775807"), 9223372036854775807u);
}

}  // namespace
}  // namespace tandem
