#ifndef BALLAST_SERVER_AUDIO_AUDIO_FAMILIES_H_
#define BALLAST_SERVER_AUDIO_AUDIO_FAMILIES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/audio_family.pb.h"

namespace ballast {

// The audio of models, as files of models/audio/, which are compiled in.

// models/audio/NAME.textproto; nullptr if there is none. Never destroyed.
// Thread-safe.
const v1::AudioFamily* FindAudioFamily(absl::string_view name);

// In alphabetical order.
std::vector<std::string> AudioFamilyNames();

}  // namespace ballast

#endif  // BALLAST_SERVER_AUDIO_AUDIO_FAMILIES_H_
