#pragma once
// Folders that appear under their name complete or not at all.
#include <filesystem>
#include <functional>

namespace tandem {

/// What becomes of a folder that has the name already.
enum class Existing : uint8_t {
  replaced,  ///< it changes places with the new one, so that there is a complete one at every moment
  kept,      ///< Error(failed), unless it is empty
};

/// Calls `write` with a new folder, hidden beside `folder` (partial_of), then syncs it and gives it its name.
/// Folders above are made as needed. Error(failed), or what write throws: then the hidden one goes and
/// what was there before is untouched.
void write_in_place(const std::filesystem::path& folder, Existing existing,
                    const std::function<void(const std::filesystem::path& partial)>& write);

/// Error(failed) if it can't be made; folders above are made as needed.
void make_folder(const std::filesystem::path& folder);

}  // namespace tandem
