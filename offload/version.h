#pragma once

namespace tandem {
constexpr const char* kVersion = "0.1.0";
}
