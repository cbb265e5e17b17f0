#ifndef BALLAST_SERVER_COMMAND_INIT_DATA_TREE_H_
#define BALLAST_SERVER_COMMAND_INIT_DATA_TREE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// The entries below a folder of a file system, or below a prefix of a store
// ("s3://bucket/prefix"): without hidden names, six folders deep, at most
// 200,000 entries. Of a store at most 1,000 folders are listed, each as a
// whole. Thread-compatible; blocks on the disk or the store.
class DataTree {
 public:
  // Whether a file of this name is compressed: docs.jsonl.zst, docs.tgz.
  static bool IsCompressed(absl::string_view name);

  // A file with an extension of data, or of compressed data (IsCompressed).
  struct File {
    std::string folder;
    std::string name;
    uint64_t bytes = 0;

    std::string path() const { return folder + "/" + name; }
  };

  // `root`: an absolute path, or a URL; without a slash at its end. Errors: as
  // FileError; as Storage::ListFolder; NOT_FOUND (a prefix without objects).
  static absl::StatusOr<DataTree> Look(std::string root);

  const std::string& root() const { return root_; }
  const std::vector<File>& files() const { return files_; }
  // The folders directly in the root, at most 64, sorted.
  const std::vector<std::string>& folders() const { return folders_; }
  // Folders that hold .nv-meta.
  const std::vector<std::string>& energon() const { return energon_; }
  // Whether a bound was reached: there is more.
  bool cut() const { return cut_; }

  // Whether a file exists at `path`, below the root. Of a store it makes at
  // most 64 requests in all, for what was not listed; nullopt: unknown.
  std::optional<bool> HasFile(const std::string& path);

 private:
  explicit DataTree(std::string root) : root_(std::move(root)) {}

  absl::Status LookInFolder();
  absl::Status LookInStore();
  // Notes a folder that may be looked into; whether it may, at that depth.
  bool AddFolder(const std::string& path, int depth);

  std::string root_;
  std::vector<File> files_;
  std::vector<std::string> folders_;
  std::vector<std::string> energon_;
  bool cut_ = false;
  // Of a store.
  absl::flat_hash_set<std::string> listed_;  // folders
  absl::flat_hash_set<std::string> objects_;
  int requests_left_ = 64;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_DATA_TREE_H_
