#include "offload/checkpoint_state.h"

#include <charconv>

namespace tandem {

namespace {

constexpr int64_t kFormatVersion = 1;
constexpr const char* kOwnHash = "xxh3";

FileSum parse_sum(const json::Node& node) {
  const std::string& digits = node.at("xxh3").as_string();
  FileSum sum{node.at("bytes").as_u64(), 0};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), sum.xxh3, 16);
  if (error != std::errc{} || end != digits.data() + digits.size() || digits.size() != 16)
    node.at("xxh3").fail("is no hash of 16 hexadecimal digits");
  return sum;
}

json::Value render_sum(const FileSum& sum) {
  return json::Object{{"bytes", sum.bytes}, {"xxh3", hex(sum.xxh3)}};
}

/// A loss may be infinite or NaN, which JSON can't say: then it is null.
json::Value render_loss(double loss) { return std::isfinite(loss) ? json::Value(loss) : json::Value(); }

json::Value render_pending(const std::vector<StepFacts>& pending) {
  json::Array facts;
  for (const StepFacts& f : pending)
    facts.push_back(json::Object{
        {"step", f.step + 1}, {"nonfinite", f.nonfinite}, {"loss", render_loss(f.loss)}, {"scale", f.scale}});
  return facts;
}

json::Value render_staleness(const StalenessState& staleness) {
  if (staleness.losses.empty()) return json::Object{};
  json::Array losses;
  for (const double loss : staleness.losses) losses.push_back(loss);
  return json::Object{{"losses", std::move(losses)},
                      {"lowest", staleness.lowest ? json::Value(*staleness.lowest) : json::Value()}};
}

/// What an empty object says, too.
StalenessState parse_staleness(const json::Node& node) {
  StalenessState staleness;
  if (node.members().empty()) return staleness;
  for (const json::Node& loss : node.at("losses").items()) staleness.losses.push_back(loss.as_double());
  if (staleness.losses.size() > kStalenessWindow)
    node.at("losses").fail(
        fmt::format("has {} losses; {} are kept at most", staleness.losses.size(), kStalenessWindow));
  if (!node.at("lowest").value().is_null()) staleness.lowest = node.at("lowest").as_double();
  return staleness;
}

DType parse_dtype(const json::Node& node) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    if (node.as_string() == name_of(dtype)) return dtype;
  node.fail("is no dtype of a checkpoint", "float32, bfloat16 or float16");
}

/// Of all members but kOwnHash itself.
std::string hash_of(json::Value state) {
  std::erase_if(*state.object(), [](const json::Member& member) { return member.key == kOwnHash; });
  const std::string text = json::dump(state);
  Xxh3 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hex(hash.digest());
}

void parse_policy(const json::Node& root, RunState& state) {
  PolicyState& policy = state.train.policy;
  policy.step = state.step;
  const json::Node lag = root.at("lag"), scaler = root.at("loss_scaler");
  policy.lag = static_cast<int>(lag.at("current").as_i64(0, 1));
  policy.since_step = lag.at("since_step").as_i64(0);
  policy.zero_until_step = lag.at("zero_until_step").as_i64(0);
  policy.scaler.scale = scaler.at("scale").as_double();
  policy.scaler.good_steps = scaler.at("good_steps").as_i64(0);
  policy.scaler.hysteresis_left = scaler.at("hysteresis_left").as_i64();
  policy.staleness = parse_staleness(root.at("staleness"));
  for (const json::Node& facts : root.at("pending").items())
    policy.pending.push_back({facts.at("step").as_i64(1) - 1, facts.at("nonfinite").as_bool(),
                              facts.double_or("loss", std::numeric_limits<double>::quiet_NaN()),
                              facts.at("scale").as_double()});
}

}  // namespace

json::Value render_state(const RunState& state, const FileSums& files) {
  const PolicyState& policy = state.train.policy;
  json::Array data;
  for (const DataFile& file : state.data) {
    json::Value entry = render_sum(file.sum);
    entry.set("path", file.path);
    data.push_back(std::move(entry));
  }
  json::Value sums = json::Object{};
  for (const auto& [name, sum] : files) sums.set(name, render_sum(sum));
  json::Value root = json::Object{
      {"format_version", kFormatVersion},
      {"step", state.step},
      {"updates", state.train.progress.updates},
      {"skipped", state.train.progress.skipped},
      {"skipped_in_a_row", state.train.progress.skipped_in_a_row},
      {"sample", state.sample},
      {"epoch", state.epoch},
      {"seed", state.seed},
      {"lag", json::Object{{"current", policy.lag},
                           {"since_step", policy.since_step},
                           {"zero_until_step", policy.zero_until_step}}},
      {"pending", render_pending(policy.pending)},
      {"staleness", render_staleness(policy.staleness)},
      {"loss_scaler", json::Object{{"scale", policy.scaler.scale},
                                   {"good_steps", policy.scaler.good_steps},
                                   {"hysteresis_left", policy.scaler.hysteresis_left}}},
      {"master_format", row_of(state.format.master).name},
      {"moment_format", row_of(state.format.moments).name},
      {"dtype", name_of(state.dtype)},
      {"states", state.states},
      {"data", json::Object{{"files", std::move(data)}}},
      {"config_hash", state.config_hash},
      {"files", std::move(sums)},
  };
  root.set(kOwnHash, hash_of(root));
  return root;
}

ParsedState parse_state(const json::Node& root) {
  const int64_t version = root.at("format_version").as_i64();
  if (version != kFormatVersion)
    root.at("format_version")
        .fail(fmt::format("is {}; this program reads {}", version, kFormatVersion),
              "the version of tandem that wrote it");
  if (root.at(kOwnHash).as_string() != hash_of(root.value()))
    root.at(kOwnHash).fail("is not the hash of this state", "the file is damaged; another checkpoint");
  ParsedState parsed;
  RunState& state = parsed.state;
  state.step = root.at("step").as_i64(0);
  state.train.progress.updates = root.at("updates").as_i64(0);
  state.train.progress.skipped = root.at("skipped").as_i64(0);
  state.train.progress.skipped_in_a_row = root.at("skipped_in_a_row").as_i64(0);
  state.sample = root.at("sample").as_u64();
  state.epoch = root.at("epoch").as_double();
  state.seed = root.at("seed").as_u64();
  state.dtype = parse_dtype(root.at("dtype"));
  state.states = root.bool_or("states", true);
  state.config_hash = root.at("config_hash").as_string();
  const auto masters = master_format(root.at("master_format").as_string());
  if (!masters) root.at("master_format").fail("is no format of masters", "fp32, split or ulp8");
  const auto moments = moment_format(root.at("moment_format").as_string());
  if (!moments) root.at("moment_format").fail("is no format of moments", "fp32, bf16 or int8");
  state.format = {*masters, *moments};
  parse_policy(root, state);
  for (const json::Node& file : root.at("data").at("files").items())
    state.data.push_back({file.at("path").as_string(), parse_sum(file)});
  for (const auto& [name, sum] : root.at("files").members()) parsed.files[std::string(name)] = parse_sum(sum);
  return parsed;
}

}  // namespace tandem
