#ifndef BALLAST_SERVER_MODEL_PROFILES_H_
#define BALLAST_SERVER_MODEL_PROFILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/model.pb.h"
#include "proto/model_profile.pb.h"
#include "server/media/image_plan/image_family.h"

namespace ballast {

// Models as files (v1::ModelProfile, docs/families.md): files of models/, which
// are compiled in, and the user's.

// models/NAME.textproto with what it takes from its base, or the user's file
// that AddProfile knows by this name; nullptr if there is none. By
// NAME+transformers the same with the sections of its `transformers`, if these
// make a difference. Never destroyed. Thread-safe.
const v1::ModelProfile* FindProfile(absl::string_view name);

// The name by which FindProfile knows the profile under these rules:
// NAME+transformers, or `name` where the rules make no difference.
std::string NameUnderRules(absl::string_view name, v1::Model::Rules rules);

// The name without +transformers.
absl::string_view WithoutRules(absl::string_view name);

// Whether the profile of this name follows its authors where transformers has
// another rule.
bool FollowsAuthors(absl::string_view name);

// Has `profile` and `chat_template` name the profiles under model.rules. They
// then say the rules, which nothing else asks for.
void ApplyRules(v1::Model* model);

// The names of models/, without the user's, in alphabetical order: all, or
// those for which `is_wanted` holds.
std::vector<std::string> ProfileNames(
    bool (*is_wanted)(const v1::ModelProfile&) = nullptr);

// The profile of a model, nullptr if it has none.
inline const v1::ModelProfile* GetProfile(const v1::Model& model) {
  return FindProfile(model.profile());
}

// The sections that differ under the rules of transformers, such as `images`.
std::vector<std::string> DifferentSections(const v1::ModelProfile& profile);

// Whether the profile has its own chat template, not `chatml` or `llama3`.
bool HasChat(const v1::ModelProfile& profile);

// The chat template of the profile of this name; nullptr if it has none.
// `chatml`, `llama3` and `custom` are no profiles.
const v1::Chat* FindChat(absl::string_view name);

// Whether the model takes images.
inline bool TakesImages(const v1::ModelProfile& profile) {
  return profile.has_images();
}

// What the model of this name makes of audio; nullptr if it takes none, or
// there is no such model.
const v1::AudioFamily* FindAudioFamily(absl::string_view name);
inline const v1::AudioFamily* GetAudioFamily(const v1::Model& model) {
  return FindAudioFamily(model.profile());
}
// The texts in place of its media that travel as rows: of audio, or of its
// section `medium`; nullptr if it takes neither.
const v1::AudioFamily::Marks* GetRowsMarks(const v1::Model& model);
// The names of models/ that take audio, in alphabetical order.
std::vector<std::string> AudioFamilyNames();

// Whether the model is an encoder, whose images are not part of a text.
bool IsEncoder(const v1::ModelProfile& profile);

// The rule of the model's videos; unspecified if it takes none: it has no such
// profile, or other images than the rule reads.
v1::Videos::Rule GetVideoRule(const v1::Model& model);

// Whether position ids are float32: videos have fractional positions
// (audio.in_video of RULE_MERGE, Qwen3-Omni).
bool HasFloatPositions(const v1::Model& model);

// Whether `profile` is the path of a user's file: it ends in `.textproto`.
bool IsProfilePath(absl::string_view profile);

// Reads a user's file, in protobuf's text format, and checks it. `file` is its
// name for messages. `transformers` of the result is a whole profile, too, or
// unset if it makes no difference. Errors: INVALID_ARGUMENT with a line for
// each fault: FILE:LINE: KEY: found …; wanted ….
absl::StatusOr<v1::ModelProfile> ParseProfile(absl::string_view text,
                                              absl::string_view file);

// Keeps a user's profile for the rest of the process, by the name that it
// returns and gives it: NAME@HASH, of what the file says. Servers whose files
// differ thus have different configurations. Thread-safe.
std::string AddProfile(v1::ModelProfile profile);

// The images of the model of this name, nullptr if there is none; of a model
// that takes none Qwen2-VL's numbers, without marks.
const ImageFamily* FindImageFamily(absl::string_view name);

// The images of a model: model.image_family; without it the profile's, with
// the model's numbers (patch, merge, temporal_patch and bounds of pixels);
// without a profile Qwen2.5-VL's, likewise.
ImageFamily GetImageFamily(const v1::Model& model);

}  // namespace ballast

#endif  // BALLAST_SERVER_MODEL_PROFILES_H_
