#include "server/recipe/turns_json.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

constexpr absl::string_view kImageMark = "<image>";
constexpr absl::string_view kVideoMark = "<video>";
constexpr absl::string_view kAudioMark = "<audio>";

std::string Marks(absl::string_view mark, size_t count) {
  std::string marks;
  marks.reserve(count * mark.size());
  for (size_t i = 0; i < count; ++i) absl::StrAppend(&marks, mark);
  return marks;
}

bool IsAnswer(absl::string_view role) {
  return role == "assistant" || role == "gpt";
}

std::string Written(absl::Span<const TurnsJson::Setting> settings) {
  std::string json;
  for (const TurnsJson::Setting& setting : settings) {
    // Reads back as the same number.
    absl::StrAppendFormat(&json, ",\"%s\":%.17g", setting.key, setting.value);
  }
  return json;
}

// Whether one of eight bytes is below 0x20, a quote or a
// backslash.
bool HasEscape(uint64_t bytes) {
  constexpr uint64_t kOnes = 0x0101010101010101;
  const auto has_zero = [](uint64_t word) {
    return (word - kOnes) & ~word & (kOnes << 7);
  };
  return ((bytes - kOnes * 0x20) & ~bytes & (kOnes << 7)) != 0 ||
         has_zero(bytes ^ kOnes * '"') != 0 ||
         has_zero(bytes ^ kOnes * '\\') != 0;
}

}  // namespace

void AppendJsonText(absl::string_view text, std::string* json) {
  *json += '"';
  size_t done = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    // Most texts are long, and need few escapes.
    uint64_t next = 0;
    while (text.size() - i >= sizeof(next)) {
      std::memcpy(&next, text.data() + i, sizeof(next));
      if (HasEscape(next)) break;
      i += sizeof(next);
    }
    if (i == text.size()) break;
    const unsigned char c = text[i];
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    absl::StrAppend(json, text.substr(done, i - done));
    done = i + 1;
    if (c == '"' || c == '\\') {
      *json += '\\';
      *json += static_cast<char>(c);
    } else {
      absl::StrAppendFormat(json, "\\u%04x", c);
    }
  }
  absl::StrAppend(json, text.substr(done));
  *json += '"';
}

void TurnsJson::AddKey(absl::string_view key, absl::string_view json) {
  turns_.back().settings += ',';
  AppendJsonText(key, &turns_.back().settings);
  absl::StrAppend(&turns_.back().settings, ":", json);
  bytes_ += key.size() + json.size() + 4;
}

void TurnsJson::AddBeside(absl::string_view key, absl::string_view json) {
  beside_ += ',';
  AppendJsonText(key, &beside_);
  absl::StrAppend(&beside_, ":", json);
  bytes_ += key.size() + json.size() + 4;
}

void TurnsJson::AddTextPart(absl::string_view type, absl::string_view text) {
  Part part = {type, "", absl::StrCat(",\"", type, "\":")};
  AppendJsonText(text, &part.settings);
  bytes_ += type.size() + 16 + part.settings.size();
  turns_.back().parts.push_back(std::move(part));
}

void TurnsJson::AddTurn(absl::string_view role, absl::string_view text) {
  turns_.push_back({.role = role});
  bytes_ += role.size();
  AddText(text);
}

void TurnsJson::BeginTurn(absl::string_view role) {
  turns_.push_back({.role = role, .is_parts = true});
  bytes_ += role.size();
}

void TurnsJson::AddBareTurn(absl::string_view role) {
  BeginTurn(role);
  turns_.back().is_bare = true;
}

void TurnsJson::AddText(absl::string_view text) {
  turns_.back().parts.push_back({"", text});
  // Counts the braces around it, so that empty parts have a bound, too.
  bytes_ += text.size() + 16;
  Mentioned& where = IsAnswer(turns_.back().role) ? spelt_out_ : mentioned_;
  where.image = where.image || absl::StrContains(text, kImageMark);
  where.video = where.video || absl::StrContains(text, kVideoMark);
  where.audio = where.audio || absl::StrContains(text, kAudioMark);
}

void TurnsJson::AddSettings(absl::Span<const Setting> settings) {
  turns_.back().settings += Written(settings);
  bytes_ += turns_.back().settings.size();
}

void TurnsJson::AddPart(absl::string_view type,
                        absl::Span<const Setting> settings) {
  // An empty type would be a text.
  Part part = {type.empty() ? "none" : type, "", Written(settings)};
  bytes_ += type.size() + 16 + part.settings.size();
  turns_.back().parts.push_back(std::move(part));
  mentioned_.image = mentioned_.image || type == "image" || type == "image_url";
  mentioned_.video = mentioned_.video || type == "video" || type == "video_url";
  mentioned_.audio = mentioned_.audio || type == "audio";
}

bool TurnsJson::TooLong() const { return bytes_ > kMaxTextBytes; }

absl::StatusOr<std::string> TurnsJson::Finish(size_t images, size_t videos,
                                              size_t audios) && {
  if (turns_.empty()) return DataFaultError("no turns");
  const auto too_long = [] {
    return DataFaultError(
        absl::StrCat("its text has over ", kMaxTextBytes, " bytes"));
  };
  if (TooLong()) return too_long();
  const auto first = std::find_if(
      turns_.begin(), turns_.end(),
      [](const Turn& t) { return t.role == "user" || t.role == "human"; });
  const bool is_asked = first != turns_.end();
  const bool has_marks = mentioned_.image || (!is_asked && spelt_out_.image);
  const bool has_video_marks =
      mentioned_.video || (!is_asked && spelt_out_.video);
  std::string marks = has_marks ? "" : Marks(kImageMark, images);
  const bool marks_videos = has_video_marks || (has_marks && images == 0);
  if (!marks_videos) absl::StrAppend(&marks, Marks(kVideoMark, videos));
  if (!mentioned_.audio && (is_asked || !spelt_out_.audio)) {
    absl::StrAppend(&marks, Marks(kAudioMark, audios));
  }
  std::string marked;
  if (!marks.empty()) {
    Turn& turn = is_asked ? *first : turns_.front();
    if (turn.is_parts) {
      turn.parts.insert(turn.parts.begin(), Part{"", marks});
    } else {
      marked = absl::StrCat(marks, turn.parts[0].text);
      turn.parts[0].text = marked;
    }
  }
  std::string json = "{\"messages\":[";
  json.reserve(bytes_ + marks.size() + 48 * turns_.size());
  for (const Turn& turn : turns_) {
    absl::StrAppend(&json, json.back() == '[' ? "" : ",", "{\"role\":");
    AppendJsonText(turn.role, &json);
    if (turn.is_bare && turn.parts.empty()) {
      absl::StrAppend(&json, turn.settings, "}");
      continue;
    }
    absl::StrAppend(&json, ",\"content\":", turn.is_parts ? "[" : "");
    for (const Part& part : turn.parts) {
      if (!turn.is_parts) {
        AppendJsonText(part.text, &json);
        continue;
      }
      absl::StrAppend(&json, json.back() == '[' ? "" : ",", "{\"type\":");
      AppendJsonText(part.type.empty() ? "text" : part.type, &json);
      if (part.type.empty()) {
        absl::StrAppend(&json, ",\"text\":");
        AppendJsonText(part.text, &json);
      }
      absl::StrAppend(&json, part.settings, "}");
    }
    absl::StrAppend(&json, turn.is_parts ? "]" : "", turn.settings, "}");
  }
  absl::StrAppend(&json, "]", beside_, "}");
  if (json.size() > kMaxTextBytes) return too_long();
  return json;
}

}  // namespace ballast
