#include "cpu_adam/make_workers.h"

#include "core/base/error.h"
#include "cpu_adam/plain_pool.h"
#include "cpu_adam/pool_tbb.h"

namespace tandem {

namespace {

constexpr bool kTbbBuilt = TANDEM_TBB_BUILT != 0;  // the build's choice; TSan can't see into the library

}  // namespace

PoolKind usual_pool() { return kTbbBuilt ? PoolKind::tbb : PoolKind::plain; }

std::unique_ptr<Workers> make_workers(PoolKind kind, int threads, const Topology& topology) {
  ASSERT(threads >= 0, "{} threads", threads);
  const int count = threads == 0 ? topology.threads : threads;
  std::string reason = topology.reason;
  if (count > topology.threads) reason = fmt::format("asked for, {} allowed; {}", topology.threads, reason);
  if (count < topology.threads) reason = fmt::format("asked for; {}", reason);
  if (kind == PoolKind::plain) return make_plain_pool(count, reason);
  if constexpr (kTbbBuilt)
    return make_tbb_pool(count, topology, reason);
  else
    throw Error(Status::usage, "this build has no oneTBB pool", {},
                "configure with -DTANDEM_TBB=ON, or take the plain pool");
}

}  // namespace tandem
