#include "tests/simt/access_shadow.h"

namespace tandem::simt {

namespace {

bool same_thread(const Moment& a, const Moment& b) { return a.block == b.block && a.thread == b.thread; }

bool unordered(const Moment& then, const Moment& now) {
  if (then.block < 0 || same_thread(then, now)) return false;
  return then.block != now.block || then.epoch == now.epoch;
}

}  // namespace

std::optional<Race> AccessShadow::touch(size_t word, const Moment& now, bool writes) {
  std::vector<Word>& page = pages_[word / kPage];
  if (page.empty()) page.resize(kPage);
  Word& w = page[word % kPage];
  std::optional<Race> race;
  if (unordered(w.write, now)) race = Race{w.write, true};
  if (!writes) {
    if (!same_thread(w.read, now)) w.earlier_read = w.read;
    w.read = now;
    return race;
  }
  for (const Moment& read : {w.read, w.earlier_read})
    if (!race && unordered(read, now)) race = Race{read, false};
  w.write = now;
  return race;
}

}  // namespace tandem::simt
