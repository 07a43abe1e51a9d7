#include "core/io/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace tandem::json {
namespace {

constexpr Options kCommented{.comments = true};

/// What an error says, as "WHAT | WHERE | HINT", or "" if there is none.
template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.message() + " | " + error.where() + " | " + error.hint();
  }
  return "";
}

std::string refusal(std::string_view text, const Options& options = {}) {
  return error_of([&] { parse(text, "f.json", options); });
}

TEST(ConfigJson, KeepsKindsOrderAndPlaces) {
  const Document document =
      parse("{\n  \"b\": [1, -2, 2.5, true, null],\n  \"a\": {\"é\": \"x\", \"z\": {}}\n}", "f");
  const Object& top = *document.root.object();
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[0].key, "b");
  EXPECT_EQ(top[0].at.line, 2u);
  EXPECT_EQ(top[0].at.column, 3u);
  EXPECT_EQ(top[0].value.at.column, 8u);
  const Array& items = *top[0].value.array();
  const Kind kinds[] = {Kind::integer, Kind::integer, Kind::real, Kind::boolean, Kind::null};
  const uint32_t columns[] = {9, 12, 16, 21, 27};
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(items[i].kind(), kinds[i]);
    EXPECT_EQ(items[i].at.column, columns[i]);
  }
  EXPECT_EQ(document.where(top[1].value.object()->at(1).value.at, "a.z"), "f:3:24 (a.z)");  // é is one column
}

TEST(ConfigJson, IntegersNeverPassThroughDouble) {
  const Document document = parse(
      "[18446744073709551615, -9223372036854775808, 9007199254740993, 5e8, 5.0e8, 0.5, 1e30, "
      "18446744073709551616]",
      "f");
  const Array& v = *document.root.array();
  EXPECT_EQ(v[0].u64(), 18446744073709551615u);
  EXPECT_EQ(v[0].i64(), std::nullopt);
  EXPECT_EQ(v[1].i64(), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(v[1].u64(), std::nullopt);
  EXPECT_EQ(v[2].i64(), 9007199254740993);
  EXPECT_EQ(v[3].i64(), std::nullopt);
  EXPECT_EQ(v[3].whole_i64(), 500000000);
  EXPECT_EQ(v[4].whole_u64(), 500000000u);
  for (size_t i = 5; i < 8; ++i) EXPECT_EQ(v[i].whole_i64(), std::nullopt) << i;
  EXPECT_EQ(v[1].whole_u64(), std::nullopt);
}

TEST(ConfigJson, AcceptsCommentsOnlyWhenAsked) {
  const char* text = "// first\n{\"url\": \"http://x\", // not the string\n \"a\": 1 // end\n}// last";
  const Document document = parse(text, "f", kCommented);
  EXPECT_EQ(*document.root.find("url")->string(), "http://x");
  EXPECT_EQ(document.root.find("a")->at.line, 3u);
  EXPECT_NE(refusal(text), "");
  EXPECT_NE(refusal("{/* no */}", kCommented), "");
}

TEST(ConfigJson, AcceptsNonFiniteOnlyWhenAsked) {
  const char* text = "{\"NaN\": NaN, \"i\": [Infinity, -Infinity], \"zero\": 0}";
  const Document document = parse(text, "f", {.non_finite = true});
  EXPECT_TRUE(std::isnan(*document.root.find("NaN")->number()));
  EXPECT_EQ(document.root.find("i")->array()->at(0).number(), INFINITY);
  EXPECT_EQ(document.root.find("i")->array()->at(1).number(), -INFINITY);
  EXPECT_EQ(document.root.find("zero")->u64(), 0u);
  EXPECT_EQ(refusal(text), "NaN is not a JSON number | f.json:1:9 | ");
  EXPECT_EQ(refusal("[1, -Infinity]"), "-Infinity is not a JSON number | f.json:1:5 | ");
}

TEST(ConfigJson, RefusesBrokenTextsWithTheirPlace) {
  struct Case {
    std::string text, what, where;
  };
  const Case cases[] = {
      {"", "the file is empty", "f.json"},
      {" \n ", "the file is empty", "f.json"},
      {"{\"a\": 1,\n}", "a comma stands before '}'", "f.json:2:1"},
      {"[1,]", "a comma stands before ']'", "f.json:1:4"},
      {"{\"a\": 1\n \"b\": 2}", "not valid JSON", "f.json:2:2"},
      {"{\"a\": tru}", "not valid JSON", "f.json:1:7"},
      {"{\"a\": 01}", "not valid JSON", "f.json:1:8"},
      {"{\"a\": 1} x", "not valid JSON", "f.json:1:10"},
      {"{\"a\": \"no end}\n", "not valid JSON", "f.json:1:7"},
      {"{\"a\": \"\xFF\"}", "not valid JSON", "f.json:1:7"},
      {"{'a': 1}", "not valid JSON", "f.json:1:2"},
      {"{\"a\": 1e999}", "not valid JSON: number overflow", "f.json:1:7"},
      {"{\"a\": {", "not valid JSON", "f.json:1:8"},
      {"\xEF\xBB\xBF{}", "the file begins with a byte-order mark (BOM)", "f.json:1:1"},
      {"{\"a\": {\"b\": 1,\n \"b\": 2}}", "the key \"b\" is there twice (first at 1:8)", "f.json:2:2 (a.b)"},
      {"[{\"b\": 1, \"b\": 2}]", "the key \"b\" is there twice (first at 1:3)", "f.json:1:11 ([0].b)"},
  };
  for (const Case& c : cases) {
    const std::string error = refusal(c.text);
    EXPECT_TRUE(error.starts_with(c.what)) << c.text << " -> " << error;
    EXPECT_NE(error.find(" | " + c.where + " | "), error.npos) << c.text << " -> " << error;
  }
  EXPECT_EQ(refusal("\xEF\xBB\xBF{}", {.bom = true}), "");
}

TEST(ConfigJson, BoundsDepthAndSize) {
  const auto nested = [](int n) {
    return std::string(static_cast<size_t>(n), '[') + std::string(static_cast<size_t>(n), ']');
  };
  EXPECT_EQ(refusal(nested(64)), "");
  EXPECT_EQ(refusal(nested(65)), "arrays and objects are nested deeper than 64 levels | f.json:1:65 | ");
  EXPECT_NE(refusal(std::string(1 << 20, '[')), "");
  EXPECT_EQ(refusal("[1, 2]", {.max_bytes = 6}), "");
  EXPECT_EQ(refusal("[1, 2]", {.max_bytes = 5}), "6 bytes of JSON are more than the limit of 5 | f.json | ");
}

TEST(ConfigJson, CollectsRepeatedKeysWhenAsked) {
  std::vector<Error> found;
  const Document document = parse("{\"a\": 1, \"a\": {\"x\": 5}, \"b\": 2, \"b\": 3}", "f",
                                  {.status = Status::failed, .duplicates = &found});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].where(), "f:1:10 (a)");
  EXPECT_EQ(found[1].status(), Status::failed);
  EXPECT_EQ(document.root, Value(Object{{"a", 1}, {"b", 2}}));
}

TEST(ConfigJson, WritesWhatItReads) {
  Value value =
      Object{{"text", "q\"\\\n\x01 é"}, {"list", Array{1, -1, 0.1, 1e-8, 3.0, 1e300, true, nullptr}}};
  value.set("empty", Array{}).at = {};
  value.set("none", Object{});
  value.set("big", 18446744073709551615u);
  EXPECT_EQ(dump(value),
            "{\"text\":\"q\\\"\\\\\\n\\u0001 "
            "é\",\"list\":[1,-1,0.1,1e-08,3.0,1e+300,true,null],\"empty\":[],\"none\":{},"
            "\"big\":18446744073709551615}");
  EXPECT_EQ(dump(Object{{"a", Array{1, 2}}, {"b", Object{}}}, 2),
            "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
  for (const int indent : {-1, 0, 2}) EXPECT_EQ(parse(dump(value, indent), "f").root, value);
  for (const double x : {0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, -0.0, 123456789012345678.0}) {
    const double back = *parse(dump(Array{x}), "f").root.array()->at(0).number();
    EXPECT_EQ(std::signbit(back), std::signbit(x));
    EXPECT_EQ(back, x);
  }
  EXPECT_THROW(dump(Value(INFINITY)), InternalError);
}

TEST(ConfigJson, EqualityIgnoresOrderAndPlaces) {
  EXPECT_EQ(parse("{\"a\": 1, \"b\": [2]}", "f").root, parse("\n{\"b\": [2],\n\"a\": 1}", "g").root);
  EXPECT_FALSE(parse("{\"a\": 1}", "f").root == parse("{\"a\": 1.0}", "f").root);
  EXPECT_FALSE(parse("{\"a\": 1}", "f").root == parse("{\"a\": 1, \"b\": 1}", "f").root);
  EXPECT_FALSE(parse("[1, 2]", "f").root == parse("[2, 1]", "f").root);
}

TEST(ConfigJson, NodesSayWhereTheyAre) {
  const Document document =
      parse("{\"n\": 5, \"r\": 8.0, \"s\": \"x\", \"l\": [{\"q\": null}],\n \"big\": 3000000000}", "c.json",
            {.status = Status::failed});
  const Node root(document);
  EXPECT_EQ(root.at("n").as_i64(), 5);
  EXPECT_EQ(root.at("r").as_double(), 8.0);
  EXPECT_EQ(root.at("l").items()[0].at("q").path(), "l[0].q");
  EXPECT_EQ(root.members().size(), 5u);
  EXPECT_EQ(root.at("l").items()[0].i64_or("q", 3), 3);
  EXPECT_EQ(root.string_or("absent", "d"), "d");
  EXPECT_FALSE(root.find("absent").has_value());
  EXPECT_EQ(error_of([&] { (void)root.at("r").as_i64(); }),
            "r must be an integer, but is 8.0 | c.json:1:15 (r) | ");
  EXPECT_EQ(error_of([&] { (void)root.at("big").as_i64(0, 100); }),
            "big must be at most 100, but is 3000000000 | c.json:2:9 (big) | ");
  EXPECT_EQ(error_of([&] { (void)root.at("l").items()[0].at("z"); }),
            "l[0] has no \"z\" | c.json:1:36 (l[0]) | ");
  EXPECT_EQ(error_of([&] { (void)root.at("s").as_double(); }),
            "s must be a number, but is \"x\" | c.json:1:25 (s) | ");
  EXPECT_EQ(error_of([&] { (void)root.items(); }),
            "the top level must be an array, but is an object | c.json:1:1 | ");
  EXPECT_EQ(error_of([&] { (void)root.i64_or("s", 1); }),
            "s must be an integer, but is \"x\" | c.json:1:25 (s) | ");
}

TEST(ConfigJson, FilesThatAreNone) {
  const auto folder = std::filesystem::temp_directory_path() / "tandem_json_test";
  std::filesystem::create_directories(folder);
  EXPECT_NE(error_of([&] { parse_file(folder / "absent.json"); }).find("does not exist"), std::string::npos);
  EXPECT_NE(error_of([&] { parse_file(folder); }).find("a folder"), std::string::npos);
  std::ofstream(folder / "a.json") << "{\"a\": 1}";
  EXPECT_EQ(parse_file(folder / "a.json").root.find("a")->i64(), 1);
  EXPECT_NE(error_of([&] { parse_file(folder / "a.json", {.max_bytes = 7}); }).find("limit of 7"),
            std::string::npos);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tandem::json
