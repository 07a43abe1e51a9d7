#include "core/base/glob.h"

#include <gtest/gtest.h>

namespace tandem {
namespace {

TEST(Config, GlobsMatchWholeNames) {
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("model.*.weight", "model.layers.3.mlp.weight"));
  EXPECT_TRUE(glob_matches("*norm*", "model.norm.weight"));
  EXPECT_TRUE(glob_matches("a?c", "abc"));
  EXPECT_FALSE(glob_matches("a?c", "ac"));
  EXPECT_FALSE(glob_matches("norm", "model.norm.weight"));
  EXPECT_FALSE(glob_matches("*.bias", "model.norm.weight"));
  EXPECT_TRUE(glob_matches("*a*b*", "xxaxxbxx"));
}

}  // namespace
}  // namespace tandem
