#include "server/command/init/data_tree.h"

#include <algorithm>
#include <deque>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/files/file.h"
#include "server/files/path_pattern.h"
#include "server/files/storage.h"

namespace ballast {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxFolders = 6;
constexpr uint64_t kMaxEntries = 200000;
constexpr size_t kMaxListings = 1000;
constexpr size_t kMaxRoots = 64;
constexpr const char* kExtensions[] = {".tar",  ".jsonl", ".ndjson", ".parquet",
                                       ".json", ".idx",   ".csv",    ".tsv",
                                       ".txt",  ".arrow", ".caption"};
constexpr const char* kCompressions[] = {".zst", ".gz", ".xz", ".bz2", ".lz4"};
constexpr char kTgz[] = ".tgz";
constexpr char kLance[] = ".lance";
constexpr char kEnergonMeta[] = ".nv-meta";

bool IsData(absl::string_view name) {
  if (absl::EndsWith(name, kTgz)) return true;
  for (const char* compression : kCompressions) {
    if (absl::ConsumeSuffix(&name, compression)) break;
  }
  return std::any_of(std::begin(kExtensions), std::end(kExtensions),
                     [name](const char* extension) {
                       return absl::EndsWith(name, extension);
                     });
}

// "a/b/c" as "a/b" and "c".
std::pair<std::string, std::string> AtLastSlash(const std::string& path) {
  const size_t slash = path.rfind('/');
  return {path.substr(0, slash), path.substr(slash + 1)};
}

}  // namespace

bool DataTree::IsCompressed(absl::string_view name) {
  return absl::EndsWith(name, kTgz) ||
         std::any_of(std::begin(kCompressions), std::end(kCompressions),
                     [name](const char* compression) {
                       return absl::EndsWith(name, compression);
                     });
}

absl::StatusOr<DataTree> DataTree::Look(std::string root) {
  DataTree tree(std::move(root));
  BALLAST_RETURN_IF_ERROR(IsStoreUrl(tree.root_) ? tree.LookInStore()
                                                 : tree.LookInFolder());
  std::sort(tree.folders_.begin(), tree.folders_.end());
  return tree;
}

bool DataTree::AddFolder(const std::string& path, int depth) {
  if (depth == 0 && folders_.size() < kMaxRoots) folders_.push_back(path);
  if (depth + 1 < kMaxFolders) return true;
  cut_ = true;
  return false;
}

void DataTree::AddOther(const std::string& folder, const std::string& name) {
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return;
  Others& others = others_[{folder, absl::AsciiStrToLower(name.substr(dot))}];
  if (others.count++ == 0 || name < others.first) others.first = name;
}

absl::Status DataTree::LookInFolder() {
  std::error_code error;
  fs::recursive_directory_iterator entry(root_, error);
  if (error) return FileError(error.value(), "list", root_);
  uint64_t entries = 0;
  for (; !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    if (++entries > kMaxEntries) {
      cut_ = true;
      break;
    }
    const fs::path& path = entry->path();
    const std::string name = path.filename().string();
    std::error_code ignored;
    if (absl::StartsWith(name, ".")) {
      entry.disable_recursion_pending();
      if (name == kEnergonMeta) energon_.push_back(path.parent_path().string());
    } else if (entry->is_directory(ignored)) {
      if (absl::EndsWith(name, kLance)) {
        AddOther(path.parent_path().string(), name);
        entry.disable_recursion_pending();
      } else if (!AddFolder(path.string(), entry.depth())) {
        entry.disable_recursion_pending();
      }
    } else if (IsData(name) && entry->is_regular_file(ignored)) {
      const uint64_t bytes = entry->file_size(ignored);
      files_.push_back(
          {path.parent_path().string(), name, ignored ? 0 : bytes});
    } else if (entry->is_regular_file(ignored)) {
      AddOther(path.parent_path().string(), name);
    }
  }
  if (error) return FileError(error.value(), "list", root_);
  return absl::OkStatus();
}

absl::Status DataTree::LookInStore() {
  // By depth, so that the deepest entries are cut off.
  std::deque<std::pair<std::string, int>> waiting = {{root_, 0}};
  uint64_t entries = 0;
  while (!waiting.empty()) {
    if (listed_.size() == kMaxListings || entries >= kMaxEntries) {
      cut_ = true;
      break;
    }
    const auto [folder, depth] = std::move(waiting.front());
    waiting.pop_front();
    BALLAST_ASSIGN_OR_RETURN(const std::vector<StoreEntry> found,
                             Storage::OfProcess().ListFolder(folder));
    listed_.insert(folder);
    entries += found.size();
    for (const StoreEntry& entry : found) {
      const std::string name = AtLastSlash(entry.path).second;
      if (absl::StartsWith(name, ".")) {
        if (name == kEnergonMeta && entry.is_folder) energon_.push_back(folder);
      } else if (entry.is_folder) {
        if (absl::EndsWith(name, kLance)) {
          AddOther(folder, name);
        } else if (AddFolder(entry.path, depth)) {
          waiting.push_back({entry.path, depth + 1});
        }
      } else {
        objects_.insert(entry.path);
        if (IsData(name)) {
          files_.push_back({folder, name, entry.size});
        } else {
          AddOther(folder, name);
        }
      }
    }
  }
  if (entries > 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(
      root_,
      ": found no object below it; wanted the prefix of a dataset. Are "
      "bucket and prefix right? Of an object, name the prefix that holds it"));
}

std::optional<bool> DataTree::HasFile(const std::string& path) {
  if (!IsStoreUrl(path)) {
    std::error_code error;
    return fs::is_regular_file(path, error);
  }
  if (absl::StrContains(path, "/../")) {
    const size_t names = path.find("://") + 3;
    return HasFile(path.substr(0, names) +
                   fs::path(path.substr(names)).lexically_normal().string());
  }
  if (objects_.contains(path)) return true;
  if (listed_.contains(AtLastSlash(path).first)) return false;
  if (requests_left_ == 0) return std::nullopt;
  --requests_left_;
  const absl::Status status = Storage::OfProcess().Stamp(path).status();
  if (status.ok()) return true;
  if (absl::IsNotFound(status) || absl::IsInvalidArgument(status)) return false;
  return std::nullopt;
}

}  // namespace ballast
