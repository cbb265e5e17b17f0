#ifndef BALLAST_SERVER_MODEL_MODEL_WARNINGS_H_
#define BALLAST_SERVER_MODEL_MODEL_WARNINGS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/audio_family.pb.h"
#include "proto/model.pb.h"

namespace ballast {

// Warnings of settings under which a model would see other images or audio than
// its checkpoint was trained on. Each is a sentence with the key, the value
// found and the value to write.
//
// - The checkpoint states another mean or std than the model: by
//   preprocessor_config.json, or processor_config.json, next to the tokenizer.
// - The checkpoint's audio extractor has other numbers than the model's file
//   (AudioDifferences).
// - A family of one's own has no marks before and after an image, and the
//   profile's has.
//
// `model` is a loaded one. A missing file, or a file of another kind, gives no
// warning. Blocks on the disk.
std::vector<std::string> ModelWarnings(const v1::Model& model);

// The first of these for the text of one file, called `file` in messages. Pure.
std::vector<std::string> NormWarnings(absl::string_view json,
                                      absl::string_view file,
                                      const v1::Model& model);

// The second: the features for which that text and profile `profile` have
// different numbers, so that clips become other features or other tokens.
// Pure.
std::vector<std::string> AudioDifferences(absl::string_view json,
                                          absl::string_view file,
                                          absl::string_view profile,
                                          const v1::AudioFamily& audio);

}  // namespace ballast

#endif  // BALLAST_SERVER_MODEL_MODEL_WARNINGS_H_
