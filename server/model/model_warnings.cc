#include "server/model/model_warnings.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include <google/protobuf/repeated_field.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/small_file.h"
#include "server/model/profiles.h"

namespace ballast {
namespace {

using Json = nlohmann::json;
using Values = google::protobuf::RepeatedField<double>;

// Real ones have a few KB.
constexpr size_t kMaxBytes = size_t{1} << 20;

// Three numbers, or one for all three channels.
std::optional<std::vector<double>> GetThree(const Json& json) {
  if (json.is_number()) return std::vector<double>(3, json.get<double>());
  if (!json.is_array() || json.size() != 3) return std::nullopt;
  std::vector<double> values;
  for (const Json& value : json) {
    if (!value.is_number()) return std::nullopt;
    values.push_back(value.get<double>());
  }
  return values;
}

std::string GetList(const std::vector<double>& values) {
  return absl::StrJoin(values, ", ", [](std::string* out, double value) {
    absl::StrAppendFormat(out, "%.9g", value);
  });
}

bool AreNear(const std::vector<double>& a, const Values& b) {
  if (b.size() != 3) return false;
  for (int i = 0; i < 3; ++i) {
    // Files print them with four digits or more.
    if (!(std::abs(a[i] - b[i]) <= 1e-4)) return false;
  }
  return true;
}

// Adds a warning if the file's `name` is not the model's `key`.
void Compare(const Json& processor, const char* name, double unnormalised,
             const char* key, const Values& own, absl::string_view file,
             std::vector<std::string>* warnings) {
  const bool normalises = processor.value("do_normalize", Json(true)) != false;
  const std::optional<std::vector<double>> stated =
      normalises ? GetThree(processor.value(name, Json()))
                 : std::vector<double>(3, unnormalised);
  if (!stated.has_value() || AreNear(*stated, own)) return;
  const std::string wanted = GetList(*stated);
  warnings->push_back(absl::StrCat(
      "model.", key, ": found [", GetList({own.begin(), own.end()}),
      "], where ", file, " has ",
      normalises ? absl::StrCat(name, " ") : "do_normalize: false, ", "[",
      wanted,
      "]: the checkpoint's own processor normalises images otherwise; write ",
      key, ": [", wanted, "] for it"));
}

// The directory of a path, with the slash.
std::string GetFolder(const std::string& path) {
  return path.substr(0, path.rfind('/') + 1);
}

void CompareMarks(const v1::Model& model, std::vector<std::string>* warnings) {
  const v1::ModelProfile* profile = GetProfile(model);
  if (profile == nullptr) return;
  const v1::ImageFamily::Marks& usual = profile->images().marks();
  const ImageMarks own = GetImageFamily(model).marks;
  if (own.placeholder != usual.placeholder() || !own.before.empty() ||
      !own.after.empty() || usual.before().empty()) {
    return;
  }
  warnings->push_back(absl::StrCat(
      "model.image_family.marks: found neither before nor after, where the "
      "family of profile ",
      model.profile(), " has \"", usual.before(), "\" and \"", usual.after(),
      "\": the model knows images between these; write them for it"));
}

// The JSON of a checkpoint's file; of processor_config.json, its `part`. Not an
// object if the text is not one.
Json ReadProcessor(absl::string_view json, const char* part) {
  Json processor =
      Json::parse(json, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!processor.is_object()) return processor;
  const auto found = processor.find(part);
  if (found == processor.end() || !found->is_object()) return processor;
  return Json(*found);
}

}  // namespace

std::vector<std::string> NormWarnings(absl::string_view json,
                                      absl::string_view file,
                                      const v1::Model& model) {
  std::vector<std::string> warnings;
  const Json processor = ReadProcessor(json, "image_processor");
  if (!processor.is_object()) return warnings;
  Compare(processor, "image_mean", 0, "mean", model.mean(), file, &warnings);
  Compare(processor, "image_std", 1, "std", model.std(), file, &warnings);
  return warnings;
}

std::vector<std::string> AudioDifferences(absl::string_view json,
                                          absl::string_view file,
                                          absl::string_view profile,
                                          const v1::AudioFamily& audio) {
  std::vector<std::string> differences;
  const Json processor = ReadProcessor(json, "feature_extractor");
  if (!processor.is_object()) return differences;
  const v1::AudioFamily::Features& features = audio.features();
  const uint64_t padded = audio.samples().pad_to() != 0
                              ? audio.samples().pad_to()
                              : audio.samples().multiple();
  const struct {
    const char* name;  // of the extractor
    double own;
  } numbers[] = {
      {"feature_size", static_cast<double>(features.mels())},
      {"n_mels", static_cast<double>(features.mels())},
      {"hop_length", static_cast<double>(audio.frames().hop())},
      {"n_fft", static_cast<double>(features.transform())},
      {"fft_length", static_cast<double>(features.transform())},
      {"win_length", static_cast<double>(features.window_length())},
      {"frame_length", static_cast<double>(features.window_length())},
      {"sampling_rate", 16000},
      {"preemphasis", features.preemphasis()},
      {"min_frequency", features.min_hertz()},
      {"max_frequency", features.max_hertz()},
      {"mel_floor", features.floor()},
      {"dither", 0},
      // Whisper's; an extractor that pads to the longest does not read it.
      {"n_samples", features.range() > 0 ? static_cast<double>(padded) : 0},
  };
  for (const auto& [name, own] : numbers) {
    const auto found = processor.find(name);
    if (found == processor.end() || !found->is_number() ||
        (absl::string_view(name) == "n_samples" && own == 0)) {
      continue;
    }
    const double stated = found->get<double>();
    if (std::abs(stated - own) <= 1e-6 * std::abs(own)) continue;
    differences.push_back(absl::StrCat(
        "model.profile: found ", profile, ", whose audio has ", name, " ", own,
        ", where ", file, " has ", stated,
        ": the checkpoint's own extractor makes other features of a clip; "
        "write a file of the model with base: \"",
        profile, "\" and a section audio for it (docs/audio.md)"));
  }
  return differences;
}

std::vector<std::string> ModelWarnings(const v1::Model& model) {
  std::vector<std::string> warnings;
  if (model.tokenizer() != "bytes") {
    for (const char* name :
         {"preprocessor_config.json", "processor_config.json"}) {
      const std::string file = absl::StrCat(GetFolder(model.tokenizer()), name);
      const auto text = ReadSmallFile(file, kMaxBytes);
      if (!text.ok()) continue;
      warnings = NormWarnings(*text, file, model);
      if (const v1::AudioFamily* audio = GetAudioFamily(model)) {
        for (std::string& difference :
             AudioDifferences(*text, file, model.profile(), *audio)) {
          warnings.push_back(std::move(difference));
        }
      }
      break;
    }
  }
  CompareMarks(model, &warnings);
  return warnings;
}

}  // namespace ballast
