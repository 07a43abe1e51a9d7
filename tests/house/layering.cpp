#include "tests/house/layering.h"

#include <algorithm>
#include <regex>
#include <set>

namespace tandem::house {

namespace {

/// A room, and the rooms that its files may include.
struct Room {
  std::string name;
  std::vector<std::string> sees;
};

/// The only allowed arrows. Nothing sees tests/ and bench/.
const std::vector<Room> kRooms = {
    {"core", {"core"}},
    {"cpu_adam", {"core", "cpu_adam"}},
    {"gpu", {"core", "gpu"}},
    {"offload", {"core", "cpu_adam", "gpu", "offload"}},
};

/// A library, by the beginnings of its headers' names, and the only folders that may include it.
struct Library {
  std::string name;
  std::vector<std::string> headers;
  std::vector<std::string> folders;
};

const std::vector<Library> kLibraries = {
    {"oneTBB", {"tbb/", "oneapi/"}, {"cpu_adam/"}},
    {"hwloc", {"hwloc"}, {"cpu_adam/"}},
    {"CUDA",
     {"cuda", "cublas", "cudnn", "cub/", "driver_types", "nvtx", "nvToolsExt", "mma."},
     {"gpu/cuda/"}},
    {"NCCL", {"nccl"}, {"gpu/cuda/"}},
    {"MPI", {"mpi"}, {"gpu/comm/"}},
    {"BLAS", {"cblas", "openblas"}, {"gpu/host/"}},
    {"CLI11", {"CLI/"}, {"offload/cli/"}},
    // Compute threads are the workers' alone; devices have one for each stream.
    {"threads", {"thread", "future", "execution", "pthread"}, {"cpu_adam/", "gpu/"}},
    {"GoogleTest", {"gtest/", "gmock/"}, {}},
};

/// JSON is slow to compile, so it is read and written in at most so many files, never in a header.
constexpr size_t kMostJsonFiles = 2;

/// Where the preprocessor may choose between compilers, devices or instruction sets.
const std::vector<std::string> kSwitchFolders = {"gpu/", "core/base/portable.h", "core/base/cpu_features.cpp",
                                                 "cpu_adam/isa/"};

bool begins_with_any(const std::string& text, const std::vector<std::string>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const std::string& beginning) { return text.starts_with(beginning); });
}

bool is_code(const std::string& path) {
  static const std::regex code(R"(.*\.(h|cpp|cu|cuh|inc))");
  return std::regex_match(path, code);
}

const Room* room_of(const std::string& path) {
  for (const Room& room : kRooms)
    if (path.starts_with(room.name + "/")) return &room;
  return nullptr;
}

/// Collects the faults of one tree.
class Inspection {
 public:
  explicit Inspection(const std::vector<SourceFile>& files) {
    for (const SourceFile& file : files) paths_.insert(file.path);
    for (const SourceFile& file : files) {
      room_ = room_of(file.path);
      if (room_ != nullptr && is_code(file.path)) inspect(file);
    }
    if (json_files_.size() > kMostJsonFiles) {
      std::string all;
      for (const std::string& path : json_files_) all += " " + path;
      faults_.push_back("nlohmann/json.hpp is in more than two files:" + all);
    }
  }
  [[nodiscard]] std::vector<std::string> faults() && { return std::move(faults_); }

 private:
  void inspect(const SourceFile& file) {
    static const std::regex include(R"(^\s*#\s*include\s*(.*)$)");
    static const std::regex condition(R"(^\s*#\s*(if|ifdef|ifndef|elif)\b.*)");
    path_ = file.path;
    line_ = 0;
    for (const std::string_view view : lines_of(file.text)) {
      ++line_;
      const std::string line(view);
      std::smatch match;
      if (std::regex_match(line, match, include)) inspect_include(match[1]);
      if (std::regex_match(line, condition) && !begins_with_any(path_, kSwitchFolders))
        fault("#if outside gpu/, core/base/portable.h and the ISA files");
    }
  }

  void inspect_include(const std::string& rest) {
    static const std::regex named(R"(^([<"])([^>"]+)[>"].*$)");
    std::smatch match;
    if (!std::regex_match(rest, match, named)) return fault("an include that the preprocessor computes");
    const std::string name = match[2];
    if (room_of(name) != nullptr || match[1] == "\"") return inspect_own(name);
    inspect_library(name);
  }

  void inspect_own(const std::string& name) {
    const Room* target = room_of(name);
    if (target == nullptr) return fault("\"" + name + "\" does not name a room");
    if (!paths_.contains(name)) return fault("\"" + name + "\" is no file of the tree");
    if (std::find(room_->sees.begin(), room_->sees.end(), target->name) == room_->sees.end())
      fault(room_->name + " must not include \"" + name + "\"");
  }

  void inspect_library(const std::string& name) {
    if (name.starts_with("nlohmann/")) {
      if (!path_.ends_with(".cpp")) fault("<" + name + "> in a header");
      json_files_.insert(path_);
    }
    for (const Library& library : kLibraries)
      if (begins_with_any(name, library.headers) && !begins_with_any(path_, library.folders))
        fault("<" + name + ">: " + library.name + " has no place here");
  }

  void fault(const std::string& what) {
    faults_.push_back(path_ + ":" + std::to_string(line_) + ": " + what);
  }

  std::set<std::string> paths_, json_files_;
  std::vector<std::string> faults_;
  const Room* room_ = nullptr;
  std::string path_;
  int line_ = 0;
};

}  // namespace

std::vector<std::string> layering_faults(const std::vector<SourceFile>& files) {
  return Inspection(files).faults();
}

}  // namespace tandem::house
