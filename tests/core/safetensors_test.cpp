#include "core/io/safetensors.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "tests/core/expect_error.h"
#include "tests/core/safetensors_bytes.h"
#include "tests/core/temporary_folder.h"

namespace tandem {
namespace {

struct Files {
  TemporaryFolder folder;
  SafetensorsFile open(const std::string& bytes) const {
    return SafetensorsFile(folder.write("m.safetensors", bytes));
  }
  SafetensorsFile open(const std::string& json, const std::string& data) const {
    return open(safetensors_bytes(json, data));
  }
  void refused(const std::string& json, const std::string& data,
               std::initializer_list<const char*> parts) const {
    expect_error(Status::failed, parts, [&] { open(json, data); });
  }
  void refused(const std::string& bytes, std::initializer_list<const char*> parts) const {
    expect_error(Status::failed, parts, [&] { open(bytes); });
  }
};

std::vector<float> values(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsEntry* entry = file.find(name);
  uint64_t count = 1;
  for (const uint64_t dim : entry->shape) count *= dim;
  std::vector<float> out(count);
  file.read(*entry, 0, out);
  return out;
}

TEST(Checkpoint, ReadsEveryFloatTypeAtOddOffsets) {
  const Files files;
  // The header has an odd length and "b" begins at byte 1 of the data: nothing may be assumed about
  // alignment.
  std::string json =
      R"({"b":{"dtype":"BF16","shape":[2],"data_offsets":[1,5]},"u":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
      R"("f":{"dtype":"F32","shape":[1,2],"data_offsets":[5,13]},"h":{"dtype":"F16","shape":[2],"data_offsets":[13,17]},)"
      R"("d":{"dtype":"F64","shape":[1],"data_offsets":[17,25]}})";
  if (json.size() % 2 == 0) json += ' ';
  const SafetensorsFile file = files.open(
      json, "x" + bytes_of(uint16_t{0x3FC0}) + bytes_of(uint16_t{0xC000}) + bytes_of(0.1f) + bytes_of(-7.0f) +
                bytes_of(uint16_t{0x3C00}) + bytes_of(uint16_t{1}) + bytes_of(0.1));
  EXPECT_EQ(values(file, "b"), (std::vector<float>{1.5f, -2.0f}));
  EXPECT_EQ(values(file, "f"), (std::vector<float>{0.1f, -7.0f}));
  EXPECT_EQ(values(file, "h"), (std::vector<float>{1.0f, std::ldexp(1.0f, -24)}));
  EXPECT_EQ(values(file, "d"), (std::vector<float>{0.1f}));
  EXPECT_EQ(file.find("u")->dtype, "U8");
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_FALSE(converts_to_float(*file.find("u")));
  EXPECT_TRUE(converts_to_float(*file.find("d")));
}

TEST(Checkpoint, ReadsAWindowLargerThanTheScratch) {
  const Files files;
  const size_t count = 5'000'000;
  std::string data;
  for (size_t i = 0; i < count; ++i) data += bytes_of(to_bf16(static_cast<float>(i % 251)).bits);
  const SafetensorsFile file = files.open(
      fmt::format(R"({{"x":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{}]}}}})", count, count * 2),
      data);
  std::vector<float> out(count - 7);
  file.read(*file.find("x"), 7, out);
  for (size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], static_cast<float>((i + 7) % 251)) << i;
}

TEST(Checkpoint, AcceptsWhatTheFormatAllows) {
  const Files files;
  EXPECT_TRUE(files.open("{}", "").entries().empty());
  EXPECT_TRUE(files.open(R"({"__metadata__":{}})", "").metadata().empty());
  EXPECT_TRUE(files.open(R"({"__metadata__":null}   )", "").metadata().empty());
  EXPECT_EQ(files.open(R"({"__metadata__":{"format":"pt","a\"b":"é"}})", "").metadata().at("a\"b"), "é");
  const SafetensorsFile scalar =
      files.open(R"({"s":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})", bytes_of(3.0f));
  EXPECT_EQ(values(scalar, "s"), (std::vector<float>{3.0f}));
  const SafetensorsFile empty = files.open(R"({"a":{"dtype":"F32","shape":[0,9],"data_offsets":[0,0]},)"
                                           R"("b":{"dtype":"F64","shape":[0],"data_offsets":[0,0]},)"
                                           R"("c":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                                           R"("d":{"dtype":"F16","shape":[0],"data_offsets":[1,1]}})",
                                           "x");
  EXPECT_EQ(empty.entries().size(), 4u);
  const SafetensorsFile extra = files.open(
      R"({"a":{"extra":{"x":[1,-2.5,{"y":null}],"dtype":7},"dtype":"I8","more":"z","shape":[1],"data_offsets":[0,1]}})",
      "x");
  EXPECT_EQ(extra.find("a")->dtype, "I8");
  const SafetensorsFile names = files.open(
      "{\"\":{\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]},"
      "\"a/\\u0000\\n\\\"\":{\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[1,2]}}",
      "xy");
  EXPECT_NE(names.find(""), nullptr);
  EXPECT_NE(names.find(std::string("a/\0\n\"", 5)), nullptr);
}

TEST(Checkpoint, HeaderLengthsAreCheckedAgainstLimitAndFile) {
  const Files files;
  files.refused(bytes_of(uint64_t{1} << 63) + "{}",
                {"header would have 9223372036854775808 bytes (at most 100000000)"});
  files.refused(bytes_of(uint64_t{100'000'001}) + "{}", {"100000001 bytes (at most 100000000)"});
  files.refused(bytes_of(uint64_t{100'000'000}) + "{}",
                {"header has 100000000 bytes, but only 2 follow", "cut off"});
  files.refused(bytes_of(uint64_t{3}) + "{}", {"header has 3 bytes, but only 2 follow", "m.safetensors"});
  files.refused("1234567", {"7 bytes are too few", "cut off"});
}

TEST(Checkpoint, HeaderTextThatIsNoHeaderIsRefused) {
  const Files files;
  files.refused("", "", {"does not begin with {"});
  files.refused(" {}", "", {"does not begin with {"});
  files.refused("\xEF\xBB\xBF{}", "", {"does not begin with {"});
  files.refused("[]", "", {"does not begin with {"});
  files.refused(std::string("{}\0\0", 4), "", {"NUL byte"});
  files.refused("{} {}", "", {"no valid JSON at byte 11"});
  files.refused("{", "", {"no valid JSON"});
  files.refused("{\"a\xff\":1}", "", {"no valid JSON"});
  files.refused("{// comment\n}", "", {"no valid JSON"});
  files.refused(R"({"a":)" + std::string(1'000'000, '['), "", {"a list where none belongs", "\"a\""});
  files.refused(R"({"a":{"x":)" + std::string(1'000'000, '['), "", {"nests deeper than 128 levels"});
  files.refused(R"({"a":1})", "", {"1 where a tensor's description belongs"});
  files.refused(R"({"a":{"dtype":5}})", "", {"5 where the name of a dtype belongs"});
  files.refused(R"({"a":{"dtype":"F32","shape":7}})", "", {"7 where a list belongs"});
  files.refused(R"({"__metadata__":{"a":1}})", "", {"1 where a string of metadata belongs"});
  files.refused(R"({"__metadata__":{"a":{}}})", "", {"has an object for \"a\""});
  files.refused(R"({"__metadata__":[]})", "", {"a list where none belongs"});
  files.refused(R"({"__metadata__":{"a":"1","a":"2"}})", "", {"metadata key \"a\" comes twice"});
  files.refused(R"({"__metadata__":{},"__metadata__":{}})", "", {"\"__metadata__\" comes twice"});
}

TEST(Checkpoint, NumbersAreUnsignedIntegersOnly) {
  const Files files;
  for (const char* number :
       {"8e0", "8.0", "-1", "-0", "18446744073709551616", "\"8\"", "null", "true", "[8]", "{}"}) {
    files.refused(fmt::format(R"({{"t":{{"dtype":"I8","shape":[{}],"data_offsets":[0,8]}}}})", number),
                  "12345678", {"m.safetensors \"t\""});
    files.refused(fmt::format(R"({{"t":{{"dtype":"I8","shape":[8],"data_offsets":[0,{}]}}}})", number),
                  "12345678", {"m.safetensors \"t\""});
  }
  EXPECT_EQ(
      files.open(R"({"t":{"dtype":"I8","shape":[8],"data_offsets":[0,8]}})", "12345678").entries().size(),
      1u);
}

TEST(Checkpoint, EntriesThatMissOrRepeatKeysAreNamed) {
  const Files files;
  files.refused(R"({"t":{"shape":[1],"data_offsets":[0,1]}})", "x", {"\"dtype\" is missing", "\"t\""});
  files.refused(R"({"t":{"dtype":"I8","data_offsets":[0,1]}})", "x", {"\"shape\" is missing"});
  files.refused(R"({"t":{"dtype":"I8","shape":[1]}})", "x", {"\"data_offsets\" is missing"});
  files.refused(R"({"t":{"dtype":"I8","shape":[1],"shape":[1],"data_offsets":[0,1]}})", "x",
                {"\"shape\" comes twice"});
  files.refused(R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1,1]}})", "x", {"3 numbers, not 2"});
  files.refused(
      R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
      "xy", {"names this tensor twice", "m.safetensors \"t\""});
  files.refused(R"({"t":{"dtype":"bf16","shape":[1],"data_offsets":[0,2]}})", "xy",
                {"unknown dtype \"bf16\""});
  files.refused(R"({"t":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}})", "x", {"3 values of F4"});
}

std::string two(const char* first, const char* second) {
  return fmt::format(
      R"({{"a":{{"dtype":"I8","shape":[2],"data_offsets":[{}]}},"b":{{"dtype":"I8","shape":[2],"data_offsets":[{}]}}}})",
      first, second);
}

TEST(Checkpoint, DataAreBackToBackAndFillTheFile) {
  const Files files;
  EXPECT_EQ(files.open(two("0,2", "2,4"), "abcd").entries()[1].name, "b");
  EXPECT_EQ(files.open(two("2,4", "0,2"), "abcd").entries()[1].name, "a");  // any order in the header
  files.refused(two("0,2", "1,3"), "abc", {"begin at 1, but those of \"a\" end at 2: they overlap", "\"b\""});
  files.refused(two("0,2", "0,2"), "ab", {"they overlap"});  // aliased
  files.refused(two("0,2", "3,5"), "abcde", {"begin at 3, but those of \"a\" end at 2: there is a hole"});
  files.refused(two("1,3", "3,5"), "abcde",
                {"begin at 1, but those of \"the header\" end at 0: there is a hole"});
  files.refused(two("0,2", "4,2"), "abcd", {"[4, 2] end before they begin"});
  files.refused(two("0,3", "3,5"), "abcde", {"3 bytes of data, but I8 of shape [2] needs 2", "\"a\""});
  files.refused(two("0,2", "2,4"), "abc", {"describes 4 bytes of data, but the file holds 3", "cut off"});
  files.refused(two("0,2", "2,4"), "abcde", {"describes 4 bytes of data, but the file holds 5"});
  files.refused("{}", "x", {"describes 0 bytes of data, but the file holds 1"});
}

TEST(Checkpoint, SizesThatOverflowAreRefused) {
  const Files files;
  files.refused(R"({"t":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", "",
                {"[4294967296, 4294967296] is too large", "\"t\""});
  files.refused(R"({"t":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", "",
                {"too large"});
  files.refused(R"({"t":{"dtype":"F32","shape":[18446744073709551615,0],"data_offsets":[0,0]}})", "",
                {"too large"});
  files.refused(R"({"t":{"dtype":"I8","shape":[1],"data_offsets":[0,18446744073709551615]}})", "x",
                {"18446744073709551615 bytes of data"});
}

TEST(Checkpoint, FilesOfOtherKindsAreCalledByTheirName) {
  const Files files;
  files.refused("version https://git-lfs.github.com/spec/v1\noid sha256:ab\n",
                {"git-lfs pointer", "git lfs pull", "download the file again"});
  files.refused("<!DOCTYPE html>\n<html>not found", {"HTML page", "download the file again"});
  files.refused(std::string("PK\3\4\0\0\0\0\0\0", 10),
                {"a zip archive, as torch.save writes it", "save_pretrained"});
  files.refused("", {"the file is empty", "download the file again"});
  files.refused("\x80\x02}q", {"a Python pickle", "save_pretrained"});
  files.refused("GGUF\3\0\0\0        ", {"GGUF"});
  expect_error(Status::failed, {"a folder where a file is needed"},
               [&] { SafetensorsFile(files.folder.path()); });
  std::filesystem::create_symlink("../../blobs/abc", files.folder.path("link"));
  expect_error(Status::failed, {"a link to \"../../blobs/abc\", which does not exist"},
               [&] { SafetensorsFile(files.folder.path("link")); });
}

TEST(Checkpoint, OddNamesAreEscapedInMessages) {
  const Files files;
  files.refused("{\"a\\n\\\"b\":{\"dtype\":\"X\",\"shape\":[],\"data_offsets\":[0,0]}}", "",
                {"m.safetensors \"a\\x0a\\\"b\""});
  files.refused(
      "{\"" + std::string(10'000'000, 'n') + "\":{\"dtype\":\"X\",\"shape\":[],\"data_offsets\":[0,0]}}", "",
      {"nnn...\""});
}

/// Every field of the written bytes, by arithmetic: no reader involved.
TEST(Checkpoint, WriterLaysOutWidestFirstAlignedAndPadded) {
  const TemporaryFolder folder;
  SafetensorsHeader header;
  header.metadata = {{"note", "k\"ept"}};
  header.entries = {{"z", "BF16", {3}}, {"b", "F32", {1, 2}}, {"a", "F32", {}}, {"none", "BF16", {0, 4}}};
  std::vector<std::string> fetched;
  const FileSum sum = write_safetensors(folder.path("m"), header,
                                        [&](const SafetensorsEntry& entry, uint64_t offset, auto out) {
                                          fetched.push_back(entry.name);
                                          EXPECT_EQ(offset, 0u);
                                          std::memset(out.data(), entry.name[0], out.size());
                                        });
  const std::string bytes = folder.read("m");
  const std::string json =
      R"({"__metadata__":{"format":"pt","note":"k\"ept"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("b":{"dtype":"F32","shape":[1, 2],"data_offsets":[4,12]},"none":{"dtype":"BF16","shape":[0, 4],"data_offsets":[12,12]},)"
      R"("z":{"dtype":"BF16","shape":[3],"data_offsets":[12,18]}})";
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  EXPECT_EQ(length % 8, 0u);
  EXPECT_LT(length - json.size(), 8u);
  EXPECT_EQ(bytes.substr(8, json.size()), json);
  EXPECT_EQ(bytes.substr(8 + json.size(), length - json.size()), std::string(length - json.size(), ' '));
  EXPECT_EQ(bytes.substr(8 + length), "aaaabbbbbbbbzzzzzz");
  EXPECT_EQ(fetched, (std::vector<std::string>{"a", "b", "z"}));
  EXPECT_EQ(sum, sum_of(File(folder.path("m"))));
}

TEST(Checkpoint, WriterFetchesLargeTensorsInPieces) {
  const TemporaryFolder folder;
  SafetensorsHeader header;
  header.entries = {{"x", "F32", {3'000'001}}};
  size_t largest = 0;
  write_safetensors(folder.path("m"), header,
                    [&](const SafetensorsEntry&, uint64_t offset, std::span<std::byte> out) {
                      largest = std::max(largest, out.size());
                      EXPECT_EQ(offset % 4, 0u);
                      EXPECT_EQ(out.size() % 4, 0u);
                      for (size_t i = 0; i < out.size() / 4; ++i) {
                        const auto value = static_cast<float>(offset / 4 + i);
                        std::memcpy(&out[i * 4], &value, 4);
                      }
                    });
  EXPECT_LE(largest, size_t{4} << 20);
  const std::vector<float> back = values(SafetensorsFile(folder.path("m")), "x");
  for (size_t i = 0; i < back.size(); ++i) ASSERT_EQ(back[i], static_cast<float>(i));
}

TEST(Checkpoint, WriterWhoseFetchFailsLeavesTheOldFile) {
  const TemporaryFolder folder;
  folder.write("m", "old");
  SafetensorsHeader header;
  header.entries = {{"x", "F32", {10}}};
  EXPECT_THROW(write_safetensors(folder.path("m"), header,
                                 [](const SafetensorsEntry&, uint64_t, std::span<std::byte>) {
                                   throw Error(Status::failed, "device lost");
                                 }),
               Error);
  EXPECT_EQ(folder.read("m"), "old");
  EXPECT_EQ(folder.entries(), 1u);
}

}  // namespace
}  // namespace tandem
