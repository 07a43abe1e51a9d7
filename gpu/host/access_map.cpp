#include "gpu/host/access_map.h"

#include <algorithm>

namespace tandem::gpu {

namespace {

Access access_of(Tensor tensor, bool write) {
  const auto begin = reinterpret_cast<uintptr_t>(tensor.raw());
  return {begin, begin + tensor.bytes(), write};
}

bool knows(const Clock& clock, const Event& event) { return clock.at(event.actor) >= event.tick; }

[[noreturn]] void unordered(const Event& later, const Access& access, const Event& earlier,
                            bool earlier_writes, uintptr_t begin, uintptr_t end) {
  begin = std::max(begin, access.begin);
  end = std::min(end, access.end);
  throw OrderError(
      __FILE__, __LINE__,
      fmt::format("{} {} {} bytes at {:#x} (of its {:#x}..{:#x}), which are {} by {}: nothing orders "
                  "the first after the second",
                  *later.text, access.write ? "writes" : "reads", end - begin, begin, access.begin,
                  access.end, earlier_writes ? "written" : "read", *earlier.text));
}

}  // namespace

Access read_of(Tensor tensor) { return access_of(tensor, false); }
Access write_of(Tensor tensor) { return access_of(tensor, true); }

void AccessMap::check(const Event& event, const Clock& clock, std::span<const Access> accesses) const {
  for (const Access& access : accesses) check(event, clock, access);
}

void AccessMap::check(const Event& event, const Clock& clock, const Access& access) const {
  if (access.begin == access.end) return;
  auto piece = pieces_.upper_bound(access.begin);
  if (piece != pieces_.begin() && std::prev(piece)->second.end > access.begin) --piece;
  for (; piece != pieces_.end() && piece->first < access.end; ++piece) {
    const auto& [begin, last] = *piece;
    if (last.write && !knows(clock, *last.write))
      unordered(event, access, *last.write, true, begin, last.end);
    if (!access.write) continue;
    for (const Event& read : last.reads)
      if (!knows(clock, read)) unordered(event, access, read, false, begin, last.end);
  }
}

void AccessMap::note(const Event& event, const Clock& clock, std::span<const Access> accesses) {
  for (const Access& access : accesses) {
    if (access.begin == access.end) continue;
    if (access.write) {
      forget(access.begin, access.end);
      pieces_[access.begin] = Piece{access.end, event, {}};
      continue;
    }
    fill_gaps(access.begin, access.end);
    for (auto piece = pieces_.find(access.begin); piece != pieces_.end() && piece->first < access.end;
         ++piece) {
      // Whoever is ordered after this read is ordered after the reads that it knows of.
      std::erase_if(piece->second.reads, [&](const Event& read) { return knows(clock, read); });
      piece->second.reads.push_back(event);
    }
  }
}

void AccessMap::forget(uintptr_t begin, uintptr_t end) {
  split(begin);
  split(end);
  pieces_.erase(pieces_.lower_bound(begin), pieces_.lower_bound(end));
}

void AccessMap::split(uintptr_t at) {
  auto after = pieces_.upper_bound(at);
  if (after == pieces_.begin()) return;
  const auto piece = std::prev(after);
  if (piece->first == at || piece->second.end <= at) return;
  pieces_.emplace_hint(after, at, piece->second);
  piece->second.end = at;
}

void AccessMap::fill_gaps(uintptr_t begin, uintptr_t end) {
  split(begin);
  split(end);
  uintptr_t at = begin;
  for (auto piece = pieces_.lower_bound(begin); at < end; ++piece) {
    const uintptr_t next = piece == pieces_.end() ? end : std::min(piece->first, end);
    if (at < next) piece = pieces_.emplace_hint(piece, at, Piece{next, {}, {}});
    at = piece->second.end;
  }
}

}  // namespace tandem::gpu
