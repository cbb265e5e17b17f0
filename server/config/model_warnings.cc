#include "server/config/model_warnings.h"

#include <cmath>
#include <cstddef>
#include <optional>

#include <google/protobuf/repeated_field.h>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/small_file.h"
#include "server/config/profiles.h"

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

}  // namespace

std::vector<std::string> NormWarnings(absl::string_view json,
                                      absl::string_view file,
                                      const v1::Model& model) {
  std::vector<std::string> warnings;
  Json processor =
      Json::parse(json, /*cb=*/nullptr, /*allow_exceptions=*/false);
  if (!processor.is_object()) return warnings;
  // processor_config.json has the image processor as a part.
  const auto part = processor.find("image_processor");
  if (part != processor.end() && part->is_object()) {
    processor = Json(*part);
  }
  Compare(processor, "image_mean", 0, "mean", model.mean(), file, &warnings);
  Compare(processor, "image_std", 1, "std", model.std(), file, &warnings);
  return warnings;
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
      break;
    }
  }
  CompareMarks(model, &warnings);
  return warnings;
}

}  // namespace ballast
