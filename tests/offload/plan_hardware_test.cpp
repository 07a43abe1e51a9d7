// Hardware profiles: what the program carries, and what a bad file is told.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "offload/hardware.h"
#include "tests/core/temporary_folder.h"

namespace tandem {
namespace {

TEST(PlanHardware, EveryProfileThatTheProgramCarriesLoads) {
  EXPECT_GE(built_in_profiles().size(), 10u);
  for (const BuiltInProfile& built_in : built_in_profiles()) {
    const HardwareProfile profile = load_hardware(std::string(built_in.name));
    EXPECT_FALSE(profile.name.empty());
    // No link outruns the memories at its ends.
    EXPECT_LE(profile.both_gb_s, 2 * profile.dram_gb_s) << built_in.name;
    EXPECT_LE(profile.d2h_gb_s, profile.device_gb_s) << built_in.name;
    EXPECT_GT(profile.matrix_16bit, profile.matrix_fp32) << built_in.name;
  }
}

TEST(PlanHardware, FiguresAreRead) {
  const HardwareProfile profile = load_hardware("rtx4090-desktop");
  EXPECT_EQ(profile.device_memory, 24.0 * (1 << 30));
  EXPECT_EQ(profile.dram_gb_s, 60);
  EXPECT_EQ(profile.d2h_gb_s, 25);
  EXPECT_EQ(profile.matrix(DType::f32), profile.matrix_fp32);
  EXPECT_EQ(profile.matrix(DType::bf16), profile.matrix_16bit);
}

std::string a_profile() { return std::string(built_in_profiles().front().text); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

void expect_refused(const std::string& text, const std::string& words) {
  try {
    (void)parse_hardware(text, "mine.json");
    ADD_FAILURE() << "not refused: " << words;
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::usage);
    EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("mine.json"), std::string::npos) << error.what();
  }
}

TEST(PlanHardware, BadFiguresAreRefusedWithTheirPlace) {
  const std::string good = a_profile();
  EXPECT_NO_THROW((void)parse_hardware(good, "mine.json"));
  expect_refused(replaced(good, "\"dram_gb_s\": ", "\"dram_gbs\": "), "dram_gbs");
  expect_refused(replaced(good, "\"dram_gb_s\": ", "\"dram_gb_s\": -"), "which no machine has");
  expect_refused(replaced(good, "\"dram_gb_s\": ", "\"dram_gb_s\": 9999"), "no machine has");
  expect_refused(replaced(good, "\"host.dram_gb_s\": \"", "\"host.dram_gb_s\": \"\", \"y\": \""),
                 "has no source");
  expect_refused(replaced(good, "\"both_gb_s\": ", "\"both_gb_s\": 9"), "can't be faster");
  expect_refused("{}", "sources");
  expect_refused("[1]", "");
  expect_refused("{", "mine.json");
}

TEST(PlanHardware, AnUnknownNameGetsTheNearest) {
  try {
    (void)load_hardware("rtx4090-desk");
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::usage);
    EXPECT_NE(std::string(error.what()).find("rtx4090-desktop"), std::string::npos) << error.what();
  }
  EXPECT_THROW((void)load_hardware("nowhere/none.json"), Error);
}

TEST(PlanHardware, AFileIsReadLikeABuiltInOne) {
  const TemporaryFolder folder;
  const std::string path =
      folder.write("mine.json", replaced(a_profile(), "\"name\": \"", "\"name\": \"mine: "));
  EXPECT_TRUE(load_hardware(path).name.starts_with("mine: "));
}

}  // namespace
}  // namespace tandem
