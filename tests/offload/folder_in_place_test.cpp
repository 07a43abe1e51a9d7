// A folder that is written in place is there whole, or what was there before is.
#include "offload/folder_in_place.h"

#include <gtest/gtest.h>

#include "tests/core/expect_error.h"
#include "tests/core/temporary_folder.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

void write(const fs::path& folder, const std::string& text) { std::ofstream(folder / "file") << text; }

TEST(CheckpointInPlace, IsNotThereUntilItIsComplete) {
  const TemporaryFolder root;
  const fs::path folder = root.path("a/b");
  write_in_place(folder, Existing::kept, [&](const fs::path& partial) {
    write(partial, "new");
    EXPECT_FALSE(fs::exists(folder));
    EXPECT_EQ(partial.parent_path(), folder.parent_path());
  });
  EXPECT_EQ(root.read("a/b/file"), "new");
  EXPECT_EQ(std::distance(fs::directory_iterator(root.path("a")), {}), 1);
}

TEST(CheckpointInPlace, AnOlderOneGoesOnlyWhereThatWasAskedFor) {
  const TemporaryFolder root;
  const fs::path folder = root.path("f");
  fs::create_directory(folder);
  write_in_place(folder, Existing::kept, [](const fs::path& partial) { write(partial, "first"); });
  EXPECT_EQ(root.read("f/file"), "first") << "an empty folder is no older one";
  expect_error(Status::failed, {"cannot put the folder in place", folder.c_str()}, [&] {
    write_in_place(folder, Existing::kept, [](const fs::path& partial) { write(partial, "second"); });
  });
  EXPECT_EQ(root.read("f/file"), "first");
  write_in_place(folder, Existing::replaced, [&](const fs::path& partial) {
    write(partial, "third");
    EXPECT_EQ(root.read("f/file"), "first");
  });
  EXPECT_EQ(root.read("f/file"), "third");
  EXPECT_EQ(root.entries(), 1u);
}

TEST(CheckpointInPlace, WhatFailsLeavesNothing) {
  const TemporaryFolder root;
  const fs::path folder = root.path("f");
  for (const Existing existing : {Existing::kept, Existing::replaced}) {
    expect_error(Status::failed, {"the disk is full"}, [&] {
      write_in_place(folder, existing, [](const fs::path& partial) {
        write(partial, "half");
        throw Error(Status::failed, "the disk is full", "f", "make room");
      });
    });
    EXPECT_EQ(root.entries(), 0u);
  }
}

}  // namespace
}  // namespace tandem
