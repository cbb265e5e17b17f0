#ifndef BALLAST_PROTO_SCHEDULE_MODULE_H_
#define BALLAST_PROTO_SCHEDULE_MODULE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "proto/schedule.pb.h"

namespace ballast {

// The modules of a model are a list: encoders, each for one kind of media, and
// the language model, which trains on the text of every sample. Messages and
// block headers hold a module's number (v1::Module); everything else about it
// follows from its row in kModuleKinds. Code asks for the kind of media that a
// module takes, or walks the list, and never compares names.

// The media of a sample that a module takes.
enum class Media {
  kNone,    // no module takes this: for a number without a row
  kText,    // tokens of every sample: the language model alone
  kImages,  // images and videos: an encoder
  kAudio,   // clips of audio: an encoder
};

// A module that a configuration may have.
struct ModuleKind {
  v1::Module module;
  // In YAML, JSON, metrics and messages. Its coefficients are the field of this
  // name in v1::Balance::Cost.
  absl::string_view name;
  Media media;
  // Plural of what its cost counts in a sample.
  absl::string_view unit;
};

// In the order of MicroBatchSchedule.modules and of every other list of
// modules: encoders before the language model.
inline constexpr ModuleKind kModuleKinds[] = {
    {v1::MODULE_VISION, "vision", Media::kImages, "patches"},
    {v1::MODULE_AUDIO, "audio", Media::kAudio, "frames"},
    {v1::MODULE_LANGUAGE, "language", Media::kText, "tokens"},
};

// The media that the module takes; kNone for a number without a row.
constexpr Media GetMedia(v1::Module module) {
  for (const ModuleKind& kind : kModuleKinds) {
    if (kind.module == module) return kind.media;
  }
  return Media::kNone;
}

// Whether the module is the language model, of which a job has at most one.
constexpr bool IsLanguage(v1::Module module) {
  return GetMedia(module) == Media::kText;
}

// Whether the module is an encoder: a job may have any number of them.
constexpr bool IsEncoder(v1::Module module) {
  return GetMedia(module) != Media::kNone && !IsLanguage(module);
}

// The name of a module; "unspecified" for a number without a row.
absl::string_view ModuleName(v1::Module module);

// The unit of its cost; "units" for a number without a row.
absl::string_view CostUnit(v1::Module module);

// The module of that name, or nullopt.
std::optional<v1::Module> ParseModule(absl::string_view name);

// The names in the order of kModuleKinds.
std::vector<std::string> ModuleNames();

// The module's columns in a micro-batch, or null if it is not configured.
const v1::ModuleSchedule* FindModule(const v1::MicroBatchSchedule& micro_batch,
                                     v1::Module module);

}  // namespace ballast

#endif  // BALLAST_PROTO_SCHEDULE_MODULE_H_
