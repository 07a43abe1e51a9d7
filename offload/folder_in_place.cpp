#include "offload/folder_in_place.h"

#include <fcntl.h>

#include <cstdio>

#include "core/io/atomic_file.h"
#include "offload/run_folder.h"

namespace tandem {

namespace {

void put_in_place(const fs::path& partial, const fs::path& folder, Existing existing) {
  std::error_code error;
  fs::rename(partial, folder, error);
  if (!error) return;
  if (existing == Existing::kept) throw system_error(error.value(), "put the folder in place", folder);
  if (::renameat2(AT_FDCWD, partial.c_str(), AT_FDCWD, folder.c_str(), RENAME_EXCHANGE) != 0) {
    // A file system that can't exchange: for a moment there is none.
    fs::remove_all(folder, error);
    fs::rename(partial, folder, error);
    if (error) throw system_error(error.value(), "put the folder in place", folder);
  }
  fs::remove_all(partial, error);
}

}  // namespace

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw system_error(error.value(), "create the folder", folder);
}

void write_in_place(const fs::path& folder, Existing existing,
                    const std::function<void(const fs::path& partial)>& write) {
  const fs::path partial = partial_of(folder);
  std::error_code ignored;
  fs::remove_all(partial, ignored);
  try {
    make_folder(partial);
    write(partial);
    sync_folder(partial);
    put_in_place(partial, folder, existing);
    sync_folder(folder.parent_path());
  } catch (...) {
    fs::remove_all(partial, ignored);
    throw;
  }
}

}  // namespace tandem
