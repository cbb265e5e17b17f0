#ifndef BALLAST_SERVER_COMMAND_INIT_DATA_TREE_H_
#define BALLAST_SERVER_COMMAND_INIT_DATA_TREE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"
#include "server/sample/medium_kind.h"

namespace ballast {

// Facts from which `ballast-server init` decides. Values; paths are as the
// configuration shall name them.

// The media of the samples that were read, by kind.
struct SeenMedia {
  MediaCounts with;  // samples with such media
  MediaCounts most;  // in one sample

  void Add(const MediaCounts& of_sample) {
    for (const MediumKind kind : MediumKinds()) {
      with[kind] += of_sample[kind] > 0 ? 1 : 0;
      most[kind] = std::max(most[kind], of_sample[kind]);
    }
  }
  // Of several files.
  void Join(const SeenMedia& other) {
    for (const MediumKind kind : MediumKinds()) {
      with[kind] += other.with[kind];
      most[kind] = std::max(most[kind], other.most[kind]);
    }
  }
};

// Files of one folder that form a source.
struct SeenFiles {
  enum class Format {
    kWebDataset,
    kJsonl,
    kParquet,
    kEnergon,
    kMegatron,
    kCsv,
  };
  Format format = Format::kWebDataset;
  // Pattern of the files, for sources[].path; energon: the folder.
  std::string path;
  // Number of files, and their bytes.
  uint64_t files = 0;
  uint64_t bytes = 0;
  // What MissingShards says of them.
  std::string missing;
  // Samples of all files; counted in the first ones and estimated from their
  // bytes if `estimated`.
  uint64_t samples = 0;
  bool estimated = false;
  // Samples that were read, how many of them are bad, and why the first is.
  uint64_t looked_at = 0;
  uint64_t bad = 0;
  std::string first_fault;
  // Samples of an unknown form; and the first record, for a recipe to be
  // written (ShowRecord): "" if the source needs none.
  uint64_t unknown = 0;
  std::string record;
  // Samples among those read that only the checkpoint's own template writes,
  // and why the first does; they are not bad.
  uint64_t for_own_template = 0;
  std::string first_for_own_template;
  // Preference pairs among those read, and the keys of the first.
  uint64_t pairs = 0;
  std::string pair_form;
  // The form of the records, if they are not of the format's own, how many of
  // those read it explains, what it makes of the first, and a form that fits
  // equally ("": none).
  std::optional<v1::Source::Form> form;
  uint64_t explained = 0;
  std::string example;
  std::string other_form;
  // The keys that have to be settled before the form fits any record, and the
  // others that it does not read.
  std::vector<std::string> to_settle;
  std::vector<std::string> unread;
  // Lines of JSON to be written, of which the source consists: of images with a
  // text each.
  std::string lines;
  // Of the samples read, and the most bytes of text in one of them.
  SeenMedia media;
  uint64_t most_text = 0;
  // jsonl, parquet: the folders below which every medium was found that records
  // name by a path, in the order of media_root; and those of
  // them that are outside of the folder that was looked at.
  std::vector<std::string> media_roots;
  std::vector<std::string> roots_outside;
  // energon: the split that its description says, and whether its samples are
  // to be read as tars are.
  std::string split;
  bool crude = false;
};

// Something in the folder that no source can be made of.
struct SeenOther {
  std::string path;
  std::string reason;  // and what to do
};

// The model's files.
struct SeenModel {
  // "" if there is no model.
  std::string folder;
  bool has_tokenizer = false;  // tokenizer.json
  // Texts of the files, "" if missing.
  std::string config;        // config.json
  std::string preprocessor;  // processor_file
  std::string processor_file = "preprocessor_config.json";
  // chat_template.jinja, chat_template.json, tokenizer_config.json, together.
  std::string chat_template;
  // The template in them (server/text/chat_writer.h).
  std::string own_template;
};

// Settings of a store, as of `storage`; "": the default.
struct SeenStore {
  // "s3", "gcs" or "azure": its section, and what its options begin with.
  std::string section = "s3";
  std::string account = "";  // azure
  std::string endpoint = "";
  std::string region = "";  // s3
  std::string credentials = "";
  std::string ca = "";  // s3
};

struct Seen {
  // The folder or the prefix of a store, as the user named it.
  std::string folder;
  bool in_store = false;
  SeenStore store;
  std::vector<SeenFiles> files;
  std::vector<SeenOther> others;
  // Entries beyond the bound were not looked at.
  bool cut = false;
  SeenModel model;
  uint64_t gpus = 0;
  uint64_t memory_bytes = 0;  // the machine's; 0: unknown
};

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

  // Files of one ending in one folder that are no data: ".zip", ".jpg"; folders
  // of Lance, ".lance".
  struct Others {
    uint64_t count = 0;
    std::string first;  // by name
  };
  using OthersByPlace =
      std::map<std::pair<std::string, std::string>, Others>;  // folder, ending

  // `root`: an absolute path, or a URL; without a slash at its end. Errors: as
  // FileError; as Storage::ListFolder; NOT_FOUND (a prefix without objects).
  static absl::StatusOr<DataTree> Look(std::string root);

  const std::string& root() const { return root_; }
  const std::vector<File>& files() const { return files_; }
  // The folders directly in the root, at most 64, sorted.
  const std::vector<std::string>& folders() const { return folders_; }
  const OthersByPlace& others() const { return others_; }
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
  void AddOther(const std::string& folder, const std::string& name);
  // Notes a folder that may be looked into; whether it may, at that depth.
  bool AddFolder(const std::string& path, int depth);

  std::string root_;
  std::vector<File> files_;
  std::vector<std::string> folders_;
  OthersByPlace others_;
  std::vector<std::string> energon_;
  bool cut_ = false;
  // Of a store.
  absl::flat_hash_set<std::string> listed_;  // folders
  absl::flat_hash_set<std::string> objects_;
  int requests_left_ = 64;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_COMMAND_INIT_DATA_TREE_H_
