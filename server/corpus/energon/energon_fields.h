#ifndef BALLAST_SERVER_CORPUS_ENERGON_ENERGON_FIELDS_H_
#define BALLAST_SERVER_CORPUS_ENERGON_ENERGON_FIELDS_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ballast {

// How the parts of a sample of an Energon folder make a conversation.
enum class EnergonType {
  kCaptioning,  // image, caption: a turn of the image, answered by the caption
  kOcr,         // image, text: likewise
  kText,        // text: a document
  kVqa,         // image, context, answers: a question and its answer
  kCrude,       // parts as format webdataset names them
  kVidQa,       // video, context, answers: as kVqa
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

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_ENERGON_ENERGON_FIELDS_H_
