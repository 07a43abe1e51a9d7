// tandem inspect: the object it prints, and that everything wrong is told in one pass.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "core/base/dtype.h"
#include "tests/cli/model_folders.h"
#include "tests/cli/train_runs.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

using Names = std::vector<std::string>;

constexpr const char* kTiny =
    R"({"model_type":"llama","hidden_size":8,"intermediate_size":12,"num_hidden_layers":1,"num_attention_heads":2,
"num_key_value_heads":1,"vocab_size":16,"tie_word_embeddings":true})";
// Embedding, q, k, v, o, gate, up, down, two norms and the last.
constexpr uint64_t kTinyParameters = 16 * 8 + 8 * 8 + 4 * 8 + 4 * 8 + 8 * 8 + 3 * 12 * 8 + 3 * 8;

/// The printed object; the status has to be 0 without problems and 1 with some.
json::Value inspect(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "inspect");
  arguments.emplace_back("--json");
  const Ran ran = run_tandem(arguments);
  EXPECT_EQ(ran.err, "");
  const json::Value out = json::parse(ran.out, "inspect").root;
  const bool sound = out.find("problems")->array()->empty();
  EXPECT_EQ(ran.status, sound ? 0 : 1);
  EXPECT_EQ(out.find("complete")->boolean(), sound);
  return out;
}

std::string text(const json::Value& out, const char* key) {
  const json::Value* value = out.find(key);
  return value == nullptr ? "absent" : value->string() != nullptr ? *value->string() : json::dump(*value);
}

uint64_t number(const json::Value& out, const char* key) { return out.find(key)->u64().value_or(UINT64_MAX); }

Names problems_of(const json::Value& out) {
  Names problems;
  for (const json::Value& problem : *out.find("problems")->array()) problems.push_back(*problem.string());
  return problems;
}

/// Exactly these problems, each with all of its parts, in this order; every one says what to do.
void expect_problems(const json::Value& out, const std::vector<Names>& expected) {
  const Names problems = problems_of(out);
  ASSERT_EQ(problems.size(), expected.size()) << json::dump(*out.find("problems"), 2);
  for (size_t i = 0; i < problems.size(); ++i) {
    for (const std::string& part : expected[i])
      EXPECT_NE(problems[i].find(part), std::string::npos) << part << "\n" << problems[i];
    EXPECT_NE(problems[i].find("; try: "), std::string::npos) << problems[i];
  }
}

const json::Value& tensor(const json::Value& out, const std::string& name) {
  for (const json::Value& tensor : *out.find("tensors")->array())
    if (*tensor.find("name")->string() == name) return tensor;
  throw std::runtime_error("no tensor " + name);
}

/// "in", a model folder.
struct Model {
  TemporaryFolder folder;
  explicit Model(const StoredTensors& tensors, const std::string& config = kTiny) {
    fs::create_directory(path());
    folder.write("in/config.json", config);
    write(tensors);
  }
  [[nodiscard]] std::string path() const { return folder.path("in"); }
  void write(const StoredTensors& tensors) const { write_tensors(path() + "/model.safetensors", tensors); }
};

StoredTensors zeros(const std::vector<std::string>& dtypes) {
  StoredTensors tensors = random_tensors(kTiny, dtypes);
  for (auto& [name, tensor] : tensors) tensor.data.assign(tensor.data.size(), '\0');
  return tensors;
}

class CheckpointInspect : public ::testing::Test {
 protected:
  CheckpointInspect() { EXPECT_EQ(runs_.train("run", {{"checkpoint.every", "5"}}, {"--quiet"}).status, 0); }
  [[nodiscard]] std::string step() const { return checkpoint_path(runs_.path("run"), 12); }
  const TinyRuns runs_;
};

TEST_F(CheckpointInspect, PrintsTheDocumentedObject) {
  const json::Value out = inspect({step()});
  Names keys;
  for (const json::Member& member : *out.object()) keys.push_back(member.key);
  EXPECT_EQ(keys, (Names{"kind", "path", "complete", "step", "parameters", "dtype", "model_type", "files",
                         "bytes", "updates", "skipped", "epoch", "lag", "trained_dtype", "hashes_match",
                         "tensor_count", "notes", "problems", "tensors"}));
  EXPECT_EQ(text(out, "kind"), "checkpoint");
  EXPECT_EQ(number(out, "step"), 12u);
  EXPECT_EQ(number(out, "updates"), 12u);
  EXPECT_EQ(text(out, "dtype"), "bfloat16");
  EXPECT_EQ(text(out, "hashes_match"), "true");
  // Two layers of hidden 32 and intermediate 64 with one of two heads for keys; vocab 256, tied.
  EXPECT_EQ(number(out, "parameters"),
            256u * 32 + 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 64 * 32 + 2 * 32) + 32);
  uint64_t bytes = 0;
  for (const auto& [name, content] : all_files(step())) bytes += content.size();
  EXPECT_EQ(number(out, "bytes"), bytes);
  EXPECT_TRUE(out.find("tensors")->array()->empty()) << "not asked for";
}

TEST_F(CheckpointInspect, OfARunTheNewestCheckpointIsLookedAt) {
  const json::Value out = inspect({runs_.path("run")});
  EXPECT_EQ(text(out, "path"), step());
  EXPECT_NE(json::dump(*out.find("notes")).find("the newest checkpoint of the run folder"),
            std::string::npos);
  fs::remove_all(runs_.path("run/checkpoints"));
  const json::Value empty = inspect({runs_.path("run")});
  EXPECT_EQ(text(empty, "kind"), "checkpoint");
  EXPECT_EQ(text(empty, "step"), "null");
  expect_problems(empty, {{"the run has no checkpoint yet", runs_.path("run")}});
}

TEST_F(CheckpointInspect, EveryDamagedFileIsNamedInOnePass) {
  const auto in_step = [&](const char* name) { return step() + "/" + name; };
  fs::resize_file(in_step("optimizer/exp_avg.safetensors"), 77);
  fs::remove(in_step("optimizer/exp_avg_sq.safetensors"));
  const std::string master = "run/checkpoints/step-00000012/optimizer/master.safetensors";
  std::string bytes = runs_.folder().read(master);
  bytes.back() ^= 1;
  runs_.folder().write(master, bytes);
  const json::Value out = inspect({step()});
  expect_problems(out,
                  {{"the file has 77 bytes where the checkpoint wrote", "exp_avg.safetensors"},
                   {"this file of the checkpoint is missing", in_step("optimizer/exp_avg_sq.safetensors")},
                   {"content is not what the checkpoint wrote", in_step("optimizer/master.safetensors")}});
  EXPECT_EQ(number(out, "step"), 12u);
  EXPECT_EQ(text(out, "hashes_match"), "false");
  fs::remove(in_step("state.json"));
  expect_problems(inspect({step()}), {{"the checkpoint is incomplete: it has no state.json", step()}});
  runs_.folder().write("run/checkpoints/step-00000012/state.json", "{\"format_version\": 1, \"step\"");
  expect_problems(inspect({step()}), {{"state.json:1:"}});
}

TEST(CheckpointInspectModel, TensorsAreAddedUpAndCounted) {
  StoredTensors tensors = zeros({"F32", "BF16", "F16"});
  std::vector<float> values(16 * 8);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i)
    sum += values[i] = std::ldexp(1.0f, static_cast<int>(i % 40)) - 1;
  tensors["model.embed_tokens.weight"] = f32({16, 8}, values);
  const Model model(tensors);
  const json::Value out = inspect({model.path(), "--tensors"});
  EXPECT_EQ(text(out, "kind"), "model");
  EXPECT_EQ(text(out, "step"), "null");
  EXPECT_EQ(text(out, "dtype"), "mixed");
  EXPECT_EQ(text(out, "model_type"), "llama");
  EXPECT_EQ(number(out, "parameters"), kTinyParameters);
  EXPECT_EQ(out.find("tensors")->array()->size(), tensors.size());
  for (const auto& [name, stored] : tensors) {
    const json::Value& facts = tensor(out, name);
    Names keys;
    for (const json::Member& member : *facts.object()) keys.push_back(member.key);
    EXPECT_EQ(keys, (Names{"name", "dtype", "shape", "sum", "nonfinite"}));
    EXPECT_EQ(text(facts, "dtype"), stored.dtype);
    EXPECT_EQ(facts.find("shape")->array()->size(), stored.shape.size());
    EXPECT_EQ(number(facts, "nonfinite"), 0u);
  }
  EXPECT_DOUBLE_EQ(*tensor(out, "model.embed_tokens.weight").find("sum")->number(), sum);
}

TEST(CheckpointInspectModel, InfinitiesAndNanAreFoundWhereDataAreRead) {
  StoredTensors tensors = zeros({"F32"});
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  tensors["model.norm.weight"] = f32({8}, {1, kInfinity, -kInfinity, std::nanf(""), 5, 6, 7, 8});
  const Model model(tensors);
  EXPECT_TRUE(problems_of(inspect({model.path()})).empty()) << "nothing was read";
  const json::Value out = inspect({model.path(), "--tensors"});
  expect_problems(out,
                  {{"3 of 8 values are infinite or NaN", "\"model.norm.weight\"", "earlier checkpoint"}});
  EXPECT_EQ(number(tensor(out, "model.norm.weight"), "nonfinite"), 3u);
  EXPECT_EQ(text(tensor(out, "model.norm.weight"), "sum"), "null");
  EXPECT_EQ(text(tensor(out, "model.embed_tokens.weight"), "sum"), "0.0");
}

TEST(CheckpointInspectModel, EveryTensorThatDoesNotFitTheConfigIsNamed) {
  StoredTensors tensors = zeros({"BF16"});
  tensors.erase("model.norm.weight");
  tensors["model.layers.0.input_layernorm.weight"] = {"BF16", {4}, std::string(8, '\0')};
  tensors["model.layers.0.mlp.up_proj.weight"].dtype = "I16";
  const Model model(tensors);
  const json::Value out = inspect({model.path()});
  expect_problems(
      out, {{"the shape is [4], but config.json makes it [8]", "\"model.layers.0.input_layernorm.weight\""},
            {"weights of dtype I16 can't be trained", "\"model.layers.0.mlp.up_proj.weight\""},
            {"this weight is missing", "\"model.norm.weight\""}});
  EXPECT_EQ(number(out, "parameters"), kTinyParameters - 8 - 4) << "of what is there";
}

TEST(CheckpointInspectModel, AModelThatTandemDoesNotKnowStillListsItsTensors) {
  const Model model(zeros({"F16"}), R"({"model_type":"mamba"})");
  const json::Value out = inspect({model.path(), "--tensors"});
  expect_problems(out, {{"mamba", "config.json"}});
  EXPECT_EQ(text(out, "model_type"), "null");
  EXPECT_EQ(text(out, "dtype"), "float16");
  EXPECT_EQ(number(out, "parameters"), kTinyParameters);
  EXPECT_EQ(out.find("tensors")->array()->size(), zeros({"F16"}).size());
}

TEST(CheckpointInspectModel, OfBrokenShardsTheOthersAreListed) {
  const Model model({});
  fs::remove(model.path() + "/model.safetensors");
  write_tensors(model.path() + "/a.safetensors", {{"x", f32({2}, {1, 2})}});
  model.folder.write("in/b.safetensors", "<!DOCTYPE html>");
  model.folder.write("in/model.safetensors.index.json",
                     R"({"weight_map":{"x":"a.safetensors","y":"b.safetensors","z":"c.safetensors"}})");
  const json::Value out = inspect({model.path(), "--tensors"});
  expect_problems(out, {{"1 shard(s) that the index names are not there: \"c.safetensors\""},
                        {"HTML page", "b.safetensors"}});
  EXPECT_EQ(text(tensor(out, "x"), "sum"), "3.0");
  fs::remove(model.path() + "/config.json");
  expect_problems(inspect({model.path()}),
                  {{"no config.json", model.path()}, {"c.safetensors"}, {"HTML page"}});
  const TemporaryFolder empty;
  expect_problems(inspect({empty.path()}), {{"no config.json"}, {"no weights"}});
}

TEST(CheckpointInspectModel, AStoredHeadThatDiffersFromItsTiedEmbedding) {
  StoredTensors tensors = zeros({"F32"});
  tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"];
  const Model model(tensors);
  EXPECT_EQ(number(inspect({model.path()}), "parameters"), kTinyParameters) << "one tensor, stored twice";
  tensors["lm_head.weight"].data[3] = '\x40';
  model.write(tensors);
  expect_problems(inspect({model.path()}), {{"the stored head differs", "\"lm_head.weight\""}});
}

TEST(CheckpointInspectFile, EveryDtypeIsListedAndFloatsAreAddedUp) {
  const TemporaryFolder folder;
  const double wide[] = {1e300, -3.0};
  const StoredTensors tensors = {
      {"bf",
       {"BF16", {3}, bytes_of(uint16_t{0x3FC0}) + bytes_of(uint16_t{0xC000}) + bytes_of(uint16_t{0x7F80})}},
      {"wide", {"F64", {2}, bytes_of(wide[0]) + bytes_of(wide[1])}},
      {"empty", {"F32", {0, 4}, ""}},
      {"scalar", f32({}, {2.5f})},
      {"ids", {"I64", {1}, std::string(8, '\1')}},
      {"quantised", {"F8_E4M3", {2, 2}, std::string(4, '\x7f')}},
      {"mask", {"BOOL", {1}, std::string(1, '\1')}}};
  write_tensors(folder.path("m.safetensors"), tensors);
  const json::Value out = inspect({folder.path("m.safetensors"), "--tensors"});
  EXPECT_EQ(text(out, "kind"), "safetensors");
  EXPECT_EQ(text(out, "dtype"), "mixed");
  EXPECT_EQ(text(out, "model_type"), "null");
  EXPECT_EQ(number(out, "parameters"), 3u + 2 + 0 + 1 + 1 + 4 + 1);
  EXPECT_EQ(out.find("tensors")->array()->size(), tensors.size());
  for (const char* name : {"ids", "quantised", "mask"}) {
    EXPECT_EQ(text(tensor(out, name), "sum"), "null") << name;
    EXPECT_EQ(text(tensor(out, name), "nonfinite"), "null") << name;
  }
  EXPECT_EQ(number(tensor(out, "bf"), "nonfinite"), 1u);
  EXPECT_EQ(*tensor(out, "wide").find("sum")->number(), 1e300) << "not rounded to fp32";
  EXPECT_EQ(number(tensor(out, "wide"), "nonfinite"), 0u);
  EXPECT_EQ(text(tensor(out, "empty"), "sum"), "0.0");
  EXPECT_EQ(text(tensor(out, "scalar"), "sum"), "2.5");
  expect_problems(out, {{"1 of 3 values are infinite or NaN", "\"bf\""}});
  // A blob of a cache has no suffix.
  fs::rename(folder.path("m.safetensors"), folder.path("1a2b3c"));
  EXPECT_EQ(text(inspect({folder.path("1a2b3c")}), "kind"), "safetensors");
}

TEST(CheckpointInspectFile, BrokenOnesAreProblemsNotCrashes) {
  const TemporaryFolder folder;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "empty"},
      {"1234567", "7 bytes are too few"},
      {"version https://git-lfs.github.com/spec/v1\n", "git-lfs"},
      {bytes_of(uint64_t{1} << 63) + "{}", "the header would have 9223372036854775808 bytes"},
      {bytes_of(uint64_t{2}) + "[]", "does not begin with {"},
      {bytes_of(uint64_t{500}) + "{}", "the header has 500 bytes, but only 2 follow"}};
  for (const auto& [bytes, part] : cases) {
    const json::Value out = inspect({folder.write("m.safetensors", bytes), "--tensors"});
    EXPECT_EQ(text(out, "kind"), "safetensors");
    EXPECT_EQ(text(out, "parameters"), "null");
    expect_problems(out, {{part, folder.path("m.safetensors")}});
  }
}

TEST(MemoryInspect, ASparseFileOf3GiBCostsNothingToList) {
  if (kAddressSanitizer) GTEST_SKIP();
  const TemporaryFolder folder;
  const uint64_t count = uint64_t{3} << 28;
  const std::string path = folder.path("large.safetensors"), small = folder.path("small.safetensors");
  write_tensors(small, {{"x", f32({1}, {1})}});
  const std::string json =
      fmt::format(R"({{"x":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", count, 4 * count);
  folder.write("large.safetensors", bytes_of(uint64_t{json.size()}) + json);
  fs::resize_file(path, 8 + json.size() + 4 * count);
  const Ran listed = run_tandem({"inspect", path, "--json"}),
            least = run_tandem({"inspect", small, "--json"});
  ASSERT_EQ(listed.status, 0) << listed.err;
  EXPECT_EQ(number(json::parse(listed.out, "out").root, "parameters"), count);
  EXPECT_LT(listed.peak_bytes, least.peak_bytes + (2u << 20));
}

TEST(MemoryInspect, ReadsInPieces) {
  if (kAddressSanitizer) GTEST_SKIP();
  const TemporaryFolder folder;
  write_tensors(folder.path("small.safetensors"), {{"x", f32({1}, {1})}});
  write_tensors(folder.path("large.safetensors"),
                {{"x", {"BF16", {32u << 20}, std::string(64u << 20, '\0')}}});
  const Ran least = run_tandem({"inspect", folder.path("small.safetensors"), "--tensors"}),
            large = run_tandem({"inspect", folder.path("large.safetensors"), "--tensors"});
  ASSERT_EQ(large.status, 0) << large.err;
  EXPECT_LT(large.peak_bytes, least.peak_bytes + (12u << 20));
}

std::string llmc(int32_t magic, int32_t version, int32_t count, const std::string& tokens) {
  std::string header = bytes_of(magic) + bytes_of(version) + bytes_of(count);
  header.resize(1024, '\0');
  return header + tokens;
}

TEST(TokensInspect, EveryFormatIsCountedAndItsLargestIdFound) {
  const TemporaryFolder folder;
  const std::string narrow = bytes_of(uint16_t{7}) + bytes_of(uint16_t{65535}) + bytes_of(uint16_t{1}),
                    wide = bytes_of(uint32_t{128009}) + bytes_of(uint32_t{5});
  struct Case {
    std::string file;
    Names options;
    uint64_t tokens;
    std::string largest;
  };
  for (const Case& c : {Case{folder.write("gpt2.bin", llmc(20240520, 1, 3, narrow)), {}, 3, "65535"},
                        {folder.write("llama.bin", llmc(20240801, 7, 2, wide)), {}, 2, "128009"},
                        {folder.write("bare.bin", narrow), {"--format", "nanogpt"}, 3, "65535"},
                        {folder.write("text", "az"), {"--format", "bytes"}, 2, "122"}}) {
    Names arguments = {c.file};
    arguments.insert(arguments.end(), c.options.begin(), c.options.end());
    const json::Value header = inspect(arguments);
    EXPECT_EQ(text(header, "kind"), "tokens");
    EXPECT_EQ(number(header, "tokens"), c.tokens) << c.file;
    EXPECT_EQ(text(header, "largest_id"), "null") << "only the header was read";
    EXPECT_EQ(text(header, "parameters"), "null");
    EXPECT_EQ(text(header, "dtype"), "null");
    EXPECT_EQ(text(header, "format"), c.options.empty() ? "auto" : c.options[1]);
    arguments.emplace_back("--tensors");
    EXPECT_EQ(text(inspect(arguments), "largest_id"), c.largest) << c.file;
  }
}

TEST(TokensInspect, WhatIsWrongIsAProblem) {
  const TemporaryFolder folder;
  const auto problem = [&](const std::string& bytes, const Names& options, const Names& parts) {
    Names arguments = {folder.write("f.bin", bytes)};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const json::Value out = inspect(arguments);
    EXPECT_EQ(text(out, "kind"), "tokens");
    expect_problems(out, {parts});
  };
  problem("some text that is no tokens", {}, {"no known magic number", folder.path("f.bin"), "--format"});
  problem("", {}, {"the file is empty"});
  problem("abc", {"--format", "nanogpt"}, {"3 bytes are no whole number of uint16 tokens"});
  problem(llmc(20240520, 1, 5, "ab"), {}, {"the header counts 5 tokens", "cut off"});
  problem(llmc(20240801, 7, 1, bytes_of(uint32_t{1} << 31)), {"--tensors"},
          {"token 2147483648 at byte 1024"});
}

void expect_usage(const Ran& ran, const Names& parts) {
  EXPECT_EQ(ran.status, 2) << ran.err;
  EXPECT_EQ(ran.out, "");
  for (const std::string& part : parts)
    EXPECT_NE(ran.err.find(part), std::string::npos) << part << "\n" << ran.err;
}

TEST(ConfigInspect, CommandLinesThatCantBeAreRefused) {
  const TemporaryFolder folder;
  fs::create_symlink("nowhere", folder.path("link"));
  expect_usage(run_tandem({"inspect", folder.path("absent"), "--json"}),
               {"no such file or folder", folder.path("absent"), "check the path"});
  expect_usage(run_tandem({"inspect", folder.path("link")}), {"a link to something that does not exist"});
  expect_usage(run_tandem({"inspect", folder.path(), "--format", "bytes"}),
               {"--format goes with a token file", "name the file itself"});
  expect_usage(run_tandem({"inspect", folder.write("f", "x"), "--format", "csv"}), {"\"csv\" is unknown"});
  expect_usage(run_tandem({"inspect"}), {"PATH"});
}

TEST(CheckpointInspectModel, ThePageForPeopleIsShort) {
  const Model model(zeros({"BF16"}));
  const Ran ran = run_tandem({"inspect", model.path()});
  EXPECT_EQ(ran.status, 0);
  EXPECT_EQ(ran.out,
            "model       " + model.path() +
                fmt::format("\nweights     llama, {} parameters, bfloat16, 11 tensors\n"
                            "files       1, {:.2f} KiB\ncomplete    no problems found\n",
                            kTinyParameters,
                            static_cast<double>(fs::file_size(model.path() + "/model.safetensors")) / 1024));
  const Ran table = run_tandem({"inspect", model.path(), "--tensors"});
  EXPECT_NE(table.out.find("model.embed_tokens.weight                       BF16   [16, 8]"),
            std::string::npos)
      << table.out;
}

}  // namespace
}  // namespace tandem
