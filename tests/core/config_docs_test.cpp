#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/run/config_fields.h"

namespace tandem {
namespace {

TEST(ConfigDocs, ThePageIsWhatTheTableSays) {
  const std::string path = std::string(TANDEM_SOURCE_DIR) + "/docs/config.md";
  if (std::getenv("TANDEM_WRITE_DOCS") != nullptr) std::ofstream(path) << config_page();
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_TRUE(text.str() == config_page()) << "make docs/config.md again: TANDEM_WRITE_DOCS=1 "
                                              "build/release/test_core --gtest_filter='ConfigDocs.*'";
}

TEST(ConfigDocs, EveryKeyHasItsLine) {
  for (const Field& field : config_fields())
    EXPECT_NE(config_page().find("| `" + std::string(field.key) + "` |"), std::string::npos) << field.key;
}

}  // namespace
}  // namespace tandem
