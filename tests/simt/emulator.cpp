#include "tests/simt/emulator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <span>

#include "core/base/error.h"
#include "tests/simt/access_shadow.h"
#include "tests/simt/fiber.h"

namespace tandem::gpu::simt {

class SharedMemory {
 public:
  SharedMemory(const char* array_name, const void* array_key, size_t each, int64_t elements)
      : name(array_name),
        key(array_key),
        element_bytes(each),
        count(elements),
        bytes(each * static_cast<size_t>(elements)),
        shadow(static_cast<size_t>(elements)) {}
  const char* name;
  const void* key;
  size_t element_bytes;
  int64_t count;
  std::vector<std::byte> bytes;
  tandem::simt::AccessShadow shadow;
};

}  // namespace tandem::gpu::simt

namespace tandem::simt {

namespace {

using gpu::kWarp;
using gpu::simt::Access;
using gpu::simt::SharedMemory;
using gpu::simt::Site;

constexpr size_t kWord = 2;  // bytes of the smallest element in global memory
constexpr size_t kSharedBytes = 48 * 1024;

std::string text_of(const Site& site) {
  return fmt::format("{}:{}", std::filesystem::path(site.file_name()).filename().string(), site.line());
}

bool same(const Site& a, const Site& b) {
  return a.line() == b.line() && a.column() == b.column() && a.file_name() == b.file_name();
}

/// What a thread does when it isn't running.
enum class State { ready, at_barrier, at_shuffle, ended };

struct Thread {
  State state = State::ready;
  Site site;              // of the barrier or shuffle
  uint32_t lanes = 0;     // of the shuffle
  uint64_t value = 0;     // given to it
  int source = 0;         // asked of it
  uint64_t received = 0;  // from it
  uint32_t votes = 0;     // lanes that gave it something else than 0
};

/// One launch under way.
class Machine {
 public:
  Machine(const Launch& launch, const std::function<void()>& body,
          std::span<const std::unique_ptr<Fiber>> fibers)
      : launch_(launch),
        body_(body),
        fibers_(fibers),
        random_(launch.seed),
        threads_(static_cast<size_t>(launch.grid.threads)) {
    for (const GlobalMemory& memory : launch.memory)
      shadows_.emplace_back((memory.bytes + kWord - 1) / kWord);
  }

  void run() {
    check_grid();
    std::vector<int64_t> blocks(static_cast<size_t>(launch_.grid.blocks));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), random_);
    for (const int64_t block : blocks) run_block(block);
  }

  // ---- what the running thread asks for

  [[nodiscard]] gpu::simt::Place place() const {
    return {block_, launch_.grid.blocks, current_, launch_.grid.threads};
  }

  void barrier(const Site& site) {
    if (launch_.sites != nullptr) launch_.sites->barriers.insert(text_of(site));
    if (is_mutated(Mutant::Kind::barrier_left_out, site)) return;
    wait(State::at_barrier, site);
  }

  /// Meets the other lanes of the mask; afterwards each has what its source gave.
  uint64_t exchange(uint32_t lanes, uint64_t value, int source, const Site& site) {
    meet(lanes, value, source, site);
    return self().received;
  }

  uint32_t vote(uint32_t lanes, bool where, const Site& site) {
    meet(lanes, where ? 1u : 0u, current_ % kWarp, site);
    return self().votes;
  }

  void touch_global(const void* p, size_t bytes, Access access) {
    const auto at = reinterpret_cast<uintptr_t>(p);
    if (at % bytes != 0)
      fail(fmt::format("{} {} bytes at an address that is no multiple of them", verb(access), bytes));
    for (size_t i = 0; i < launch_.memory.size(); ++i) {
      const GlobalMemory& memory = launch_.memory[i];
      const auto begin = reinterpret_cast<uintptr_t>(memory.data);
      if (at < begin || at + bytes > begin + memory.bytes) continue;
      if (access == Access::write && !memory.writable) continue;  // it may be an output under another name
      return touch(shadows_[i], (at - begin) / kWord, (bytes + kWord - 1) / kWord, access, memory.name);
    }
    fail(fmt::format("{} {} bytes {}", verb(access), bytes, outside(at, access)));
  }

  SharedMemory& shared_memory(const char* name, const void* key, size_t element_bytes, int64_t count) {
    for (const auto& array : arrays_)
      if (array->key == key) return *array;
    arrays_.push_back(std::make_unique<SharedMemory>(name, key, element_bytes, count));
    size_t bytes = 0;
    for (const auto& array : arrays_) bytes += array->bytes.size();
    if (bytes > kSharedBytes)
      fail(fmt::format("has {} bytes of shared memory, above {}", bytes, kSharedBytes));
    return *arrays_.back();
  }

  void* touch_shared(SharedMemory& array, int64_t index, Access access) {
    if (index < 0 || index >= array.count)
      fail(fmt::format("{} {}[{}], an array of {}", verb(access), array.name, index, array.count));
    const auto word = static_cast<size_t>(index);
    if (access == Access::read && !array.shadow.written(word))
      fail(fmt::format("reads {}[{}], which was never written", array.name, index));
    touch(array.shadow, word, 1, access, array.name);
    return array.bytes.data() + word * array.element_bytes;
  }

 private:
  static const char* verb(Access access) { return access == Access::read ? "reads" : "writes"; }
  [[nodiscard]] Thread& self() { return threads_[static_cast<size_t>(current_)]; }
  [[nodiscard]] size_t warp_begin() const { return static_cast<size_t>(current_ / kWarp * kWarp); }
  [[nodiscard]] bool is_mutated(Mutant::Kind kind, const Site& site) const {
    return launch_.mutant && launch_.mutant->kind == kind && launch_.mutant->site == text_of(site);
  }

  [[noreturn]] void fail(const std::string& what) const {
    throw Fault(fmt::format("{}, block {}, thread {}: {}", launch_.kernel, block_, current_, what));
  }

  void check_grid() const {
    const gpu::Grid grid = launch_.grid;
    if (grid.blocks < 1 || grid.threads < 1 || grid.threads > gpu::kBlockThreads || grid.threads % kWarp != 0)
      throw Fault(fmt::format("{}: {} blocks of {} threads", launch_.kernel, grid.blocks, grid.threads));
  }

  // ---- scheduling

  void run_block(int64_t block) {
    block_ = block;
    epoch_ = 0;
    arrays_.clear();
    waiting_.assign(threads_.size() / kWarp, 0);
    std::vector<int> order(threads_.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (const int t : order) start(t);
    while (run_ready(order) || settle()) continue;
  }

  void start(int t) {
    threads_[static_cast<size_t>(t)] = Thread{};
    fibers_[static_cast<size_t>(t)]->start([this, t] {
      try {
        body_();
      } catch (...) {
        failure_ = std::current_exception();
      }
      threads_[static_cast<size_t>(t)].state = State::ended;
    });
  }

  /// Each thread that is ready, until it waits or ends. False if there was none.
  bool run_ready(const std::vector<int>& order) {
    bool ran = false;
    for (const int t : order) {
      if (threads_[static_cast<size_t>(t)].state != State::ready) continue;
      ran = true;
      current_ = t;
      fibers_[static_cast<size_t>(t)]->resume();
      if (failure_) std::rethrow_exception(failure_);
    }
    return ran;
  }

  void wait(State state, const Site& site) {
    self().state = state;
    self().site = site;
    fibers_[static_cast<size_t>(current_)]->leave();
  }

  /// No thread is ready. Opens the barrier at which all wait; false if all have ended.
  bool settle() {
    const auto is = [](State state) { return [=](const Thread& t) { return t.state == state; }; };
    if (std::ranges::all_of(threads_, is(State::ended))) return false;
    for (size_t t = 0; t < threads_.size(); ++t)
      if (threads_[t].state == State::at_shuffle) fail_shuffle(static_cast<int>(t));
    const auto first = std::ranges::find_if(threads_, is(State::at_barrier));
    for (size_t t = 0; t < threads_.size(); ++t)
      if (threads_[t].state == State::ended || !same(threads_[t].site, first->site)) {
        current_ = static_cast<int>(first - threads_.begin());
        fail(fmt::format("waits at the barrier {}, thread {} {}", text_of(first->site), t,
                         doing(threads_[t])));
      }
    ++epoch_;
    for (Thread& t : threads_) t.state = State::ready;
    return true;
  }

  static std::string doing(const Thread& t) {
    if (t.state == State::ended) return "has ended";
    if (t.state == State::at_barrier) return "is at the barrier " + text_of(t.site);
    return t.state == State::at_shuffle ? "is at the shuffle " + text_of(t.site) : "runs";
  }

  // ---- shuffles

  void meet(uint32_t lanes, uint64_t value, int source, const Site& site) {
    if (launch_.sites != nullptr) launch_.sites->shuffles.insert(text_of(site));
    if (is_mutated(Mutant::Kind::mask_without_upper_lanes, site)) lanes &= 0xFFFFu;
    const int lane = current_ % kWarp;
    if ((lanes >> lane & 1u) == 0)
      fail(fmt::format("isn't in its own mask {:#010x} at {}", lanes, text_of(site)));
    if (source < 0 || source >= kWarp || (lanes >> source & 1u) == 0)
      fail(fmt::format("asks for the value of lane {}, not in the mask {:#010x}, at {}", source, lanes,
                       text_of(site)));
    self().lanes = lanes;
    self().value = value;
    self().source = source;
    waiting_[warp_begin() / kWarp] |= 1u << lane;
    if ((waiting_[warp_begin() / kWarp] & lanes) == lanes) {
      self().site = site;
      deliver();
    } else {
      wait(State::at_shuffle, site);
    }
  }

  void deliver() {
    const uint32_t lanes = self().lanes;
    waiting_[warp_begin() / kWarp] &= ~lanes;
    const std::span<Thread> all(&threads_[warp_begin()], kWarp);
    uint32_t votes = 0;
    for (size_t lane = 0; lane < kWarp; ++lane)
      if ((lanes >> lane & 1u) != 0) check_agreement(static_cast<int>(lane), all[lane]);
    for (size_t lane = 0; lane < kWarp; ++lane)
      if ((lanes >> lane & 1u) != 0 && all[lane].value != 0) votes |= 1u << lane;
    for (size_t lane = 0; lane < kWarp; ++lane) {
      if ((lanes >> lane & 1u) == 0) continue;
      all[lane].received = all[static_cast<size_t>(all[lane].source)].value;
      all[lane].votes = votes;
      all[lane].state = State::ready;
    }
  }

  /// The running thread and a lane of its mask must shuffle at one place with one mask.
  void check_agreement(int lane, const Thread& other) {
    if (other.lanes == self().lanes && same(other.site, self().site)) return;
    fail(fmt::format("shuffles at {} with the mask {:#010x}, lane {} at {} with {:#010x}",
                     text_of(self().site), self().lanes, lane, text_of(other.site), other.lanes));
  }

  /// Names a lane that the thread waits for in vain.
  [[noreturn]] void fail_shuffle(int thread) {
    current_ = thread;
    for (int lane = 0; lane < kWarp; ++lane) {
      const Thread& other = threads_[warp_begin() + static_cast<size_t>(lane)];
      if ((self().lanes >> lane & 1u) == 0) continue;
      if (other.state != State::at_shuffle)
        fail(fmt::format("shuffles at {} with lane {}, which {}", text_of(self().site), lane, doing(other)));
      check_agreement(lane, other);
    }
    fail(fmt::format("waits in the shuffle {} for ever", text_of(self().site)));
  }

  // ---- memory

  void touch(AccessShadow& shadow, size_t word, size_t count, Access access, std::string_view name) {
    const Moment now{block_, current_, epoch_};
    for (size_t i = 0; i < count; ++i) {
      const std::optional<Race> race = shadow.touch(word + i, now, access == Access::write);
      if (race)
        fail(fmt::format("{} {} (word {}), which block {}, thread {} {}, with no barrier between",
                         verb(access), name, word + i, race->other.block, race->other.thread,
                         race->other_writes ? "wrote" : "read"));
    }
  }

  /// Where an address lies that no memory of the launch holds.
  [[nodiscard]] std::string outside(uintptr_t at, Access access) const {
    std::string nearest = "far from every tensor of the launch";
    uintptr_t least = 4096;
    for (const GlobalMemory& memory : launch_.memory) {
      const auto begin = reinterpret_cast<uintptr_t>(memory.data), end = begin + memory.bytes;
      if (at >= begin && at < end && access == Access::write && !memory.writable)
        return "of " + memory.name + ", which is an input";
      const uintptr_t distance = at >= begin ? at - std::min(at, end) : begin - at;
      if (distance >= least) continue;
      least = distance;
      nearest = at < begin ? fmt::format("{} bytes before {}", distance, memory.name)
                           : fmt::format("at byte {} of the {} of {}", at - begin, memory.bytes, memory.name);
    }
    return nearest;
  }

  const Launch& launch_;
  const std::function<void()>& body_;
  std::span<const std::unique_ptr<Fiber>> fibers_;
  std::mt19937_64 random_;
  std::vector<Thread> threads_;
  std::vector<AccessShadow> shadows_;                  // beside launch_.memory
  std::vector<uint32_t> waiting_;                      // of each warp, the lanes at a shuffle
  std::vector<std::unique_ptr<SharedMemory>> arrays_;  // of the running block
  int64_t block_ = 0, epoch_ = 0;
  int current_ = 0;
  std::exception_ptr failure_;
};

/// A kernel reads the index of its thread from nowhere, as on a GPU; so the machine that runs it is found
/// here.
Machine* running = nullptr;

}  // namespace

Emulator::Emulator() {
  for (int t = 0; t < gpu::kBlockThreads; ++t) fibers_.push_back(std::make_unique<Fiber>());
}
Emulator::~Emulator() = default;

void Emulator::run(const Launch& launch, const std::function<void()>& body) {
  Machine machine(launch, body, fibers_);
  ASSERT(running == nullptr, "{} is launched from within a kernel", launch.kernel);
  running = &machine;
  try {
    machine.run();
  } catch (...) {
    running = nullptr;
    throw;
  }
  running = nullptr;
}

}  // namespace tandem::simt

namespace tandem::gpu::simt {

using tandem::simt::running;

Place place() { return running->place(); }
void barrier(const Site& site) { running->barrier(site); }
uint64_t exchange(uint32_t lanes, uint64_t value, int source, const Site& site) {
  return running->exchange(lanes, value, source, site);
}
uint32_t vote(uint32_t lanes, bool where, const Site& site) { return running->vote(lanes, where, site); }
void touch_global(const void* p, size_t bytes, Access access) { running->touch_global(p, bytes, access); }
SharedMemory& shared_memory(const char* name, const void* key, size_t element_bytes, int64_t count) {
  return running->shared_memory(name, key, element_bytes, count);
}
void* touch_shared(SharedMemory& memory, int64_t index, Access access) {
  return running->touch_shared(memory, index, access);
}

}  // namespace tandem::gpu::simt
