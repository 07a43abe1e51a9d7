#include <gtest/gtest.h>

#include <cmath>

#include "tests/core/hf_config_testing.h"

namespace tandem {
namespace {

constexpr const char* kLlama3 =
    R"("factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":32)";

TEST(Config, ReadsRotaryScalingInEveryForm) {
  const auto is_linear = [](const std::string& keys) {
    const Rope rope = arch_of(tiny(keys)).rope;
    EXPECT_EQ(rope.scaling, RopeScaling::linear) << keys;
    EXPECT_EQ(rope.factor, 2.5) << keys;
    EXPECT_EQ(rope.theta, 500000.0) << keys;
  };
  is_linear(R"("rope_theta":500000,"rope_scaling":{"type":"linear","factor":2.5})");
  is_linear(R"("rope_theta":500000.0,"rope_scaling":{"rope_type":"linear","factor":2.5})");
  is_linear(R"("rope_theta":500000,"rope_scaling":{"rope_type":"linear","type":"linear","factor":2.5})");
  is_linear(R"("rope_parameters":{"rope_theta":500000,"rope_type":"linear","factor":2.5})");
  is_linear(R"("rope_theta":500000,"rope_parameters":{"rope_type":"linear","factor":2.5})");
  is_linear(
      R"("rope_parameters":{"rope_theta":500000,"rope_type":"linear","factor":2.5},"rope_scaling":{"type":"linear","factor":2.5})");
  for (const std::string& form :
       {R"("rope_scaling":{"rope_type":"llama3",)" + std::string(kLlama3) + "}",
        R"("rope_parameters":{"rope_type":"llama3",)" + std::string(kLlama3) + "}"}) {
    const Rope rope = arch_of(tiny(form)).rope;
    EXPECT_EQ(rope.scaling, RopeScaling::llama3);
    EXPECT_EQ(rope.factor, 8.0);
    EXPECT_EQ(rope.low_freq_factor, 1.0);
    EXPECT_EQ(rope.high_freq_factor, 4.0);
    EXPECT_EQ(rope.original_max_position, 32);
    EXPECT_EQ(rope.theta, 10000.0);
  }
  for (const char* form :
       {R"("rope_scaling":{"rope_type":"default"})", R"("rope_parameters":{"rope_theta":10000.0})",
        R"("rope_parameters":{"rope_type":"default","rope_theta":10000})"})
    EXPECT_EQ(arch_of(tiny(form)).rope.scaling, RopeScaling::none) << form;
}

TEST(Config, ReadsYarnInEveryForm) {
  const std::string keys = R"("factor":4.0,"original_max_position_embeddings":32)";
  for (const std::string& form :
       {R"("rope_scaling":{"type":"yarn",)" + keys + "}",
        R"("rope_scaling":{"rope_type":"yarn",)" + keys + "}",
        R"("rope_parameters":{"rope_theta":10000,"rope_type":"yarn",)" + keys + "}"}) {
    const Rope rope = arch_of(tiny(form)).rope;
    EXPECT_EQ(rope.scaling, RopeScaling::yarn) << form;
    EXPECT_EQ(rope.factor, 4.0);
    EXPECT_EQ(rope.original_max_position, 32);
    EXPECT_EQ(rope.beta_fast, 32.0);
    EXPECT_EQ(rope.beta_slow, 1.0);
    EXPECT_NEAR(rope.attention_factor, 1.1386294361119891, 1e-15);  // 0.1 ln 4 + 1
  }
  const Rope set = arch_of(tiny(R"("max_position_embeddings":64,"rope_scaling":{"type":"yarn","factor":2,
    "beta_fast":16,"beta_slow":2,"attention_factor":1.5})"))
                       .rope;
  EXPECT_EQ(set.original_max_position, 64);
  EXPECT_EQ(set.beta_fast, 16.0);
  EXPECT_EQ(set.beta_slow, 2.0);
  EXPECT_EQ(set.attention_factor, 1.5);
  EXPECT_EQ(arch_of(tiny(R"("rope_scaling":{"type":"yarn","factor":0.5})")).rope.attention_factor, 1.0);
  refused(tiny(R"("rope_scaling":{"type":"yarn"})"), {"rope_type yarn needs \"factor\""});
  refused(tiny(R"("rope_scaling":{"type":"yarn","factor":2,"truncate":false})"), {"truncate false"});
}

TEST(Config, RotaryTypesThatAreNotBuiltAreRefusedByName) {
  for (const char* type : {"dynamic", "longrope", "su", "mrope"})
    for (const char* key : {"rope_type", "type"})
      refused(tiny(fmt::format(R"("rope_scaling":{{"{}":"{}","factor":2}})", key, type)),
              {type, "is not supported", "default, linear, llama3, yarn", "rope_scaling"});
  refused(tiny(R"("rope_parameters":{"rope_type":"dynamic","factor":2})"),
          {"\"dynamic\" is not supported", "rope_parameters.rope_type"});
  refused(tiny(R"("rope_scaling":{"factor":2})"), {"\"rope_type\" is missing", "rope_scaling"});
  refused(tiny(R"("partial_rotary_factor":0.5)"), {"partial_rotary_factor 0.5"});
  refused(
      tiny(
          R"("rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"linear","factor":4})"),
      {"rope_scaling and rope_parameters disagree"});
}

TEST(Config, MissingRotaryKeysAreNamed) {
  refused(tiny(R"("rope_scaling":{"type":"linear"})"),
          {"rope_type linear needs \"factor\"", "config.json:1:"});
  for (const char* key :
       {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
    std::string keys = kLlama3;
    keys.replace(keys.find(fmt::format("\"{}\"", key)), std::string(key).size() + 2, "\"gone\"");
    refused(tiny(R"("rope_scaling":{"rope_type":"llama3",)" + keys + "}"),
            {fmt::format("rope_type llama3 needs \"{}\"", key).c_str()});
  }
  refused(tiny(R"("rope_scaling":{"type":"linear","factor":0})"),
          {"rope_scaling.factor must be a number above 0, but is 0"});
  refused(
      tiny(
          R"("rope_scaling":{"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4,"original_max_position_embeddings":32})"),
      {"high_freq_factor 4 must be above low_freq_factor 4"});
}

/// DeepSeek's two keys: the factor is the quotient of what each makes; only both together count.
TEST(Config, ReadsYarnsScales) {
  const auto factor = [](const std::string& more) {
    return arch_of(tiny(R"("rope_scaling":{"type":"yarn","factor":4.0,)" + more + "}")).rope.attention_factor;
  };
  const double one = 0.1 * std::log(4.0) + 1;
  EXPECT_NEAR(factor(R"("mscale":1.0,"mscale_all_dim":0.5)"), one / (0.05 * std::log(4.0) + 1), 1e-15);
  EXPECT_NEAR(factor(R"("mscale":0.7,"mscale_all_dim":0.7)"), 1, 1e-15);
  EXPECT_NEAR(factor(R"("mscale":2.0)"), one, 1e-15);
  EXPECT_NEAR(factor(R"("mscale":2.0,"mscale_all_dim":0)"), one, 1e-15);
  EXPECT_EQ(factor(R"("mscale":2.0,"mscale_all_dim":1,"attention_factor":1.25)"), 1.25);
  for (const char* scale : {"-1", "NaN", "\"1\""})
    refused(tiny(fmt::format(R"("rope_scaling":{{"type":"yarn","factor":4,"mscale":{}}})", scale)),
            {"rope_scaling.mscale must be a number above 0"});
}

TEST(Config, ThetaMayStandAmongTheScaling) {
  for (
      const char* keys :
      {R"("rope_theta":10000,"rope_scaling":{"type":"linear","factor":2,"rope_theta":5e5})",
       R"("rope_theta":10000,"rope_parameters":{"type":"linear","factor":2,"rope_theta":500000})",
       R"("rope_scaling":{"type":"linear","factor":2,"rope_theta":500000.0},"rope_parameters":{"rope_type":"linear","factor":2,"rope_theta":5e5})"})
    EXPECT_EQ(arch_of(tiny(keys)).rope.theta, 500000.0) << keys;
  refused(
      tiny(
          R"("rope_scaling":{"type":"default","rope_theta":20000},"rope_parameters":{"rope_theta":10000,"rope_type":"default"})"),
      {"rope_scaling and rope_parameters disagree"});
  refused(tiny(R"("rope_theta":-1)"), {"rope_theta must be a number above 0, but is -1"});
  refused(tiny(R"("rope_theta":"1e4")"), {"rope_theta must be a number above 0, but is \"1e4\""});
  EXPECT_EQ(arch_of(tiny(R"("rope_theta":null,"rope_scaling":{})")).rope, Rope{});
}

TEST(Config, TheTwoNamesOfTheRotaryTypeMustAgree) {
  refused(tiny(R"("rope_scaling":{"type":"linear","rope_type":"yarn","factor":2})"),
          {"type \"linear\" and rope_type \"yarn\" disagree", "rope_scaling.type", "keep the one"});
  refused(tiny(R"("rope_parameters":{"type":"dynamic","rope_type":"default","factor":2})"),
          {"type \"dynamic\" and rope_type \"default\" disagree", "rope_parameters.type"});
  EXPECT_EQ(arch_of(tiny(R"("rope_scaling":{"type":null,"rope_type":"linear","factor":2})")).rope.scaling,
            RopeScaling::linear);
}

TEST(Config, RotaryKeysPerLayerTypeMustBeTheSame) {
  const auto nested = [](const std::string& full, const std::string& sliding) {
    return tiny(R"("rope_parameters":{"full_attention":)" + full + R"(,"sliding_attention":)" + sliding +
                "}");
  };
  const std::string linear = R"({"rope_type":"linear","factor":2,"rope_theta":500000})";
  const Rope both = arch_of(nested(linear, linear)).rope;
  EXPECT_EQ(both.scaling, RopeScaling::linear);
  EXPECT_EQ(both.factor, 2);
  EXPECT_EQ(both.theta, 500000.0);
  EXPECT_EQ(arch_of(nested(linear, "null")).rope, both);
  EXPECT_EQ(
      arch_of(nested(R"({"rope_theta":500000})", R"({"rope_type":"default","rope_theta":5e5})")).rope.theta,
      500000.0);
  refused(nested(linear, R"({"rope_type":"linear","factor":2,"rope_theta":10000})"),
          {"differ by layer type", "one set for all layers", "rope_parameters.sliding_attention"});
  refused(nested(R"({"rope_type":"default"})", R"({"rope_type":"longrope","factor":2})"),
          {"\"longrope\" is not supported", "rope_parameters.sliding_attention.rope_type"});
}

TEST(Config, TheLengthOfTheFirstTrainingMustBeOne) {
  const auto keys = [](const char* outer) {
    return tiny(
        fmt::format(R"("original_max_position_embeddings":{},"rope_scaling":{{"type":"yarn","factor":4,
"original_max_position_embeddings":32}})",
                    outer));
  };
  EXPECT_EQ(arch_of(keys("32")).rope.original_max_position, 32);
  EXPECT_EQ(arch_of(keys("null")).rope.original_max_position, 32);
  refused(keys("64"), {"original_max_position_embeddings is 64 here and 32 among the rotary keys"});
  const Rope beside =
      arch_of(tiny(R"("original_max_position_embeddings":64,"rope_scaling":{"type":"yarn","factor":4})"))
          .rope;
  EXPECT_EQ(beside.original_max_position, 64);
  EXPECT_EQ(arch_of(tiny(R"("original_max_position_embeddings":64)")).rope, Rope{});  // nothing is scaled
}

}  // namespace
}  // namespace tandem
