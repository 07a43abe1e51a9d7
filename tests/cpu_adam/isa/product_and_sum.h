#pragma once

namespace tandem {

/// a * b + c as the compiler makes it in a file that may use FMA: of floats, and of every float of a vector.
float product_and_sum(float a, float b, float c);
float product_and_sum_of_vectors(float a, float b, float c);

}  // namespace tandem
