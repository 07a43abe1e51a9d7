#include "gpu/cuda/algorithms.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include "core/io/atomic_file.h"
#include "core/io/json.h"

namespace tandem::gpu::cuda {

namespace {

constexpr std::string_view kFormat = "tandem-algorithms";
constexpr int64_t kVersion = 1;
constexpr Storage kStorages[] = {Storage::nt, Storage::nn, Storage::tn};
constexpr DType kActs[] = {DType::f32, DType::bf16, DType::f16};

/// The attributes of an entry, in the order of the file: name, member, least value.
template <class Visit>
void each_attribute(Algorithm& a, const Visit& visit) {
  visit("id", a.id, 0);
  visit("tile", a.tile, 0);
  visit("stages", a.stages, 0);
  visit("split_k", a.split_k, 1);
  visit("reduction", a.reduction, 0);
  visit("swizzle", a.swizzle, 0);
  visit("custom", a.custom, 0);
  visit("inner_shape", a.inner_shape, 0);
  visit("cluster_shape", a.cluster_shape, 0);
}

constexpr std::string_view kKeys[] = {
    "product", "m",      "n",       "k",         "act",     "out",    "adds",        "capability",   "id",
    "tile",    "stages", "split_k", "reduction", "swizzle", "custom", "inner_shape", "cluster_shape"};

json::Value entry_of(const ProductKey& key, Algorithm algorithm) {
  json::Value entry = json::Object{{"product", verb_of(key.storage)},
                                   {"m", key.m},
                                   {"n", key.n},
                                   {"k", key.k},
                                   {"act", name_of(key.act)},
                                   {"out", name_of(key.out)},
                                   {"adds", key.adds},
                                   {"capability", key.capability}};
  each_attribute(algorithm, [&](const char* name, auto value, int) { entry.set(name, value); });
  return entry;
}

void expect_keys(const json::Node& node, std::span<const std::string_view> known) {
  for (const auto& [key, value] : node.members())
    if (std::ranges::find(known, key) == known.end())
      value.fail(fmt::format("unknown key \"{}\"", printable(key)));
}

/// The one of the choices that is called like the member.
template <class Choices, class Name>
auto choice(const json::Node& node, const Choices& choices, const Name& name) {
  std::string names;
  for (const auto& c : choices) {
    if (node.as_string() == name(c)) return c;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name(c));
  }
  node.fail(fmt::format("\"{}\" is none of {}", printable(node.as_string()), names));
}

ProductKey key_of(const json::Node& entry) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  ProductKey key;
  key.storage = choice(entry.at("product"), kStorages, verb_of);
  key.m = entry.at("m").as_i64(1, most);
  key.n = entry.at("n").as_i64(1, most);
  key.k = entry.at("k").as_i64(1, most);
  key.act = choice(entry.at("act"), kActs, name_of);
  const std::array outs = {key.act, DType::f32};
  key.out = choice(entry.at("out"), outs, name_of);
  key.adds = entry.at("adds").as_bool();
  key.capability = static_cast<int>(entry.at("capability").as_i64(10, 9999));
  return key;
}

Algorithm algorithm_of(const json::Node& entry) {
  Algorithm algorithm;
  each_attribute(algorithm, [&]<class T>(const char* name, T& value, int least) {
    value = static_cast<T>(entry.at(name).as_i64(least, std::numeric_limits<T>::max()));
  });
  return algorithm;
}

}  // namespace

const char* verb_of(Storage storage) {
  if (storage == Storage::nt) return "linear_forward";
  return storage == Storage::nn ? "linear_backward_input" : "linear_backward_weight";
}

void write_algorithms(const std::string& path, const AlgorithmTable& table) {
  json::Array products;
  for (const auto& [key, entry] : table) products.push_back(entry_of(key, entry.algorithm));
  const json::Value root =
      json::Object{{"format", kFormat}, {"version", kVersion}, {"products", std::move(products)}};
  write_atomically(path, json::dump(root, 2) + "\n");
}

AlgorithmTable read_algorithms(const std::string& path) {
  const json::Document document = json::parse_file(path, {.status = Status::failed});
  const json::Node root(document);
  if (root.at("format").as_string() != kFormat)
    root.at("format").fail(
        fmt::format("not \"{}\" but \"{}\"", kFormat, printable(root.at("format").as_string())));
  if (const int64_t version = root.at("version").as_i64(); version != kVersion)
    root.at("version").fail(fmt::format("version {}, not {}", version, kVersion));
  constexpr std::string_view kTop[] = {"format", "version", "products"};
  expect_keys(root, kTop);
  AlgorithmTable table;
  for (const json::Node& entry : root.at("products").items()) {
    expect_keys(entry, kKeys);
    const auto [at, is_new] =
        table.emplace(key_of(entry), AlgorithmEntry{algorithm_of(entry), entry.where()});
    if (!is_new) entry.fail("this product has an algorithm at " + at->second.where);
  }
  return table;
}

}  // namespace tandem::gpu::cuda
