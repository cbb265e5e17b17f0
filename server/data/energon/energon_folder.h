#ifndef BALLAST_SERVER_DATA_ENERGON_ENERGON_FOLDER_H_
#define BALLAST_SERVER_DATA_ENERGON_ENERGON_FOLDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/config.pb.h"

namespace ballast {
// How the parts of a sample of an Energon folder make a conversation.
enum class EnergonType {
  kCaptioning,  // image, caption: a turn of the image, answered by the caption
  kOcr,         // image, text: likewise
  kText,        // text: a document
  kVqa,         // image, context, answers: a question and its answer
  kCrude,       // parts as format webdataset names them
  kVidQa,       // video, context, answers: as kVqa
  kChatMl,      // conversation, and perhaps imgs and videos: JSON of turns
};

// One way to a field's value: a part of the sample, and for JSON the keys and
// indices that lead into it: "json[0][value]".
struct EnergonAccess {
  std::string part;
  std::vector<std::string> keys;

  friend bool operator==(const EnergonAccess&, const EnergonAccess&) = default;
};

// What a folder's dataset.yaml says of its samples.
struct EnergonFields {
  EnergonType type = EnergonType::kCrude;
  // Of each field the ways to its value: the first whose part and keys are
  // there counts. Empty for kCrude.
  std::map<std::string, std::vector<EnergonAccess>> fields;
};

// The ways that an entry of a field_map names, "jpg,png" or "json[0][value]".
// An entry that is none of these is the name of a part. Pure.
std::vector<EnergonAccess> ParseEnergonAccess(absl::string_view entry);

// Reads dataset.yaml. `crude`: the samples of a CrudeWebdataset are read as
// kCrude, and refused otherwise; others are not concerned. Pure. Errors:
// INVALID_ARGUMENT (not YAML, a field that is missing or not the type's);
// UNIMPLEMENTED (what needs Python, by name, with what would do: a
// sample_loader, a cooker, a sample type of the user's own or one that is no
// conversation).
absl::StatusOr<EnergonFields> ParseDatasetYaml(const std::string& yaml,
                                               bool crude);

// Everything in `fields` that decides what a sample is.
std::string EnergonFieldsKey(const EnergonFields& fields);

// A tar file of an Energon folder.
struct EnergonShard {
  std::string name;    // below the folder
  uint64_t id = 0;     // of the tar file in index.sqlite
  uint64_t count = 0;  // samples, as `energon prepare` counted them
};

// The part of an Energon folder that a source reads, from its .nv-meta.
struct EnergonFolder {
  std::string folder;
  // The split's shards, in its order, without excluded ones.
  std::vector<EnergonShard> shards;
  // Samples to leave out: "SHARD/KEY".
  absl::flat_hash_set<std::string> excluded;
  EnergonFields fields;

  std::string ShardPath(const EnergonShard& shard) const;
  // index.sqlite; older folders have none.
  std::string IndexPath() const;
  // Everything that decides which samples the files have, apart from the files.
  std::string Key() const;
};

// Reads .nv-meta of `source`, whose path is a folder and starts at `directory`.
// Blocks on the disk. Errors, naming the file: NOT_FOUND (no .nv-meta, with
// what makes one; a split that is not there or has no shards); INVALID_ARGUMENT
// (a file that is not as Energon writes it, a shard that is listed twice or has
// no count, a compressed one); UNIMPLEMENTED (ParseDatasetYaml).
absl::StatusOr<EnergonFolder> OpenEnergonFolder(const v1::Source& source,
                                                absl::string_view directory);

// Its parts, for files in memory. Pure; as above.
struct EnergonTexts {
  std::string info;     // .info.json or .info.yaml
  std::string split;    // split.yaml
  std::string dataset;  // dataset.yaml
};
absl::StatusOr<EnergonFolder> ParseEnergonFolder(const EnergonTexts& texts,
                                                 absl::string_view split_part,
                                                 bool crude);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_ENERGON_ENERGON_FOLDER_H_
