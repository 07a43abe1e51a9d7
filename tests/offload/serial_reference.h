#pragma once
// Training as one plain loop: no streams that overlap, no slots, no ring, no code of offload/. It holds every
// version that it ever published and re-derives lag, scale, clip and prediction from the rules. The engine
// must equal it bit for bit.
#include "tests/offload/engine_rig.h"

namespace tandem::testing {

/// Mistakes that an engine could make, planted in the loop so that a test can show that it would see them.
enum class SerialFault : uint8_t {
  none,
  reads_one_later,       ///< forward reads read(i) + 1 where there is one
  lease_ends_early,      ///< backward reads read(i) + 1 where there is one
  predicts_everything,   ///< every version is published with a prediction, for readers at lag 0, too
  predicts_skips,        ///< the version of a skipped step keeps the prediction of the one before it
  scales_fall_twice,     ///< every overflow lowers the loss scale, also late news of an older one
  warm_up_starts_late,   ///< lag 0 after an overflow begins one step too late
  norm_before_rounding,  ///< the norm is that of the fp32 sums
  decays_norms,          ///< weight decay on parameters of rank 1, too
};

/// The outcome of so many steps. options.order, keep, where, pool, threads and chaos are not looked at.
Outcome run_serial(const EngineOptions& options, int64_t steps, SerialFault fault = SerialFault::none);

}  // namespace tandem::testing
