#pragma once
#include "cpu_adam/adam.h"

namespace tandem {

/// The number of elements of a pass. An InternalError for what adam() refuses, but for kernels that there
/// aren't.
int64_t check_adam(const AdamSpans& spans, float prediction, const AdamPlace& place);

}  // namespace tandem
