#include "server/command/init/choose_form.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <tuple>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "server/data/form/form.h"
#include "server/data/form/form_record.h"
#include "server/data/form/forms.h"
#include "server/data/form/unread.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/document_json.h"
#include "server/data/jsonl/media_root.h"
#include "server/data/jsonl/unread_keys.h"
#include "server/sample/data_fault.h"
#include "server/text/conversation.h"

namespace ballast {
namespace {

using Form = v1::Source::Form;
using Json = nlohmann::json;

std::string Shortened(const std::string& text) {
  constexpr size_t kMost = 100;
  size_t end = kMost;
  if (text.size() <= end) return text;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return absl::StrCat(text.substr(0, end), "...");
}

// "user: <image>What? | learnt: Red."
std::string Example(const CookedSample& sample) {
  if (sample.is_document) {
    return OneLine(absl::StrCat("learnt: ", Shortened(sample.text)));
  }
  const Json json = Json::parse(sample.text, nullptr, false);
  if (json.is_discarded()) return "";
  std::vector<std::string> turns;
  // A form passes on what the format reads by itself.
  Json list = Json::array();
  for (const char* key : {"messages", "conversations", "conversation"}) {
    if (json.contains(key)) list = json[key];
  }
  for (const Json& turn : list) {
    std::string role = turn.value(turn.contains("from") ? "from" : "role", "");
    if (role == "human") role = "user";
    if (role == "gpt") role = "assistant";
    const auto content = turn.find(turn.contains("from") ? "value" : "content");
    std::string text;
    if (content != turn.end() && content->is_string()) {
      text = content->get<std::string>();
    } else if (content != turn.end()) {
      for (const Json& part : *content) {
        const std::string type = part.value("type", "");
        text += type == "text" ? part.value("text", "") : "<" + type + ">";
      }
    }
    turns.push_back(absl::StrCat(role == "assistant" ? "learnt" : role, ": ",
                                 Shortened(text)));
  }
  return OneLine(absl::StrJoin(turns, " | "));
}

uint64_t CountOf(absl::string_view medium,
                 const std::vector<absl::string_view>& marks) {
  return std::count(marks.begin(), marks.end(), medium);
}

// What reading the sample would find wrong with it, without its media.
absl::Status Check(const CookedSample& sample) {
  for (const auto& image : sample.images) {
    if (const auto* path = std::get_if<std::string>(&image)) {
      BALLAST_RETURN_IF_ERROR(CheckMediaPath("image", *path));
    }
  }
  for (const CookedSample::Video& video : sample.videos) {
    for (const auto& part : video.parts) {
      if (const auto* path = std::get_if<std::string>(&part)) {
        BALLAST_RETURN_IF_ERROR(CheckMediaPath("video", *path));
      }
    }
  }
  std::vector<absl::string_view> media;
  if (sample.is_document) {
    media = FindMarks(sample.text);
  } else {
    BALLAST_ASSIGN_OR_RETURN(const std::vector<MediaPlace> places,
                             ReadMediaPlaces(sample.text));
    for (const MediaPlace& place : places) media.push_back(place.medium);
  }
  const uint64_t images = CountOf("image", media);
  if (images != sample.images.size() && sample.videos.empty()) {
    return DataFaultError(absl::StrCat(images, " marks of images, and ",
                                       sample.images.size(), " images"));
  }
  if (sample.is_document) return absl::OkStatus();
  return ParseConversation(sample.text).status();
}

// Alternatives that records use, of each entry of a key of the form.
using Used = std::map<std::string, std::map<size_t, std::vector<std::string>>>;

// The form with the keys that are used.
Form Narrowed(const Form& form, const Used& used) {
  Form made = form;
  for (const auto& [key, entries] : used) {
    const auto* field = Form::descriptor()->FindFieldByName(key);
    const auto* reflection = made.GetReflection();
    reflection->ClearField(&made, field);
    for (const auto& [entry, paths] : entries) {
      const std::string all = absl::StrJoin(paths, "|");
      if (field->is_repeated()) {
        reflection->AddString(&made, field, all);
      } else {
        reflection->SetString(&made, field, all);
      }
    }
  }
  return made;
}

// The keys of a record that no path of `uses` begins with, or leads into.
std::vector<std::string> UnreadKeys(const RecipeRecord& record,
                                    const std::vector<FormSample::Use>& uses) {
  std::vector<std::string> unread;
  const bool is_members = record.kind == RecipeRecord::Kind::kMembers;
  const Json json = Json::parse(is_members ? MembersJson(record) : record.text,
                                nullptr, false);
  const auto add = [&](const std::string& prefix, const Json& from) {
    for (const auto& entry : from.items()) {
      const std::string path = prefix + entry.key();
      const bool is_read =
          std::any_of(uses.begin(), uses.end(), [&path](const auto& use) {
            return absl::StartsWith(use.path, path) &&
                   (use.path.size() == path.size() ||
                    use.path[path.size()] == '.' ||
                    use.path[path.size()] == '[');
          });
      if (!is_read && !entry.value().is_null()) {
        unread.push_back(Printable(path));
      }
    }
  };
  if (json.is_object()) add("", json);
  if (is_members && json.is_object() && json.contains("json") &&
      json["json"].is_object()) {
    std::erase(unread, "json");
    add("json.", json["json"]);
  }
  constexpr size_t kMost = 12;
  if (unread.size() > kMost) {
    unread.resize(kMost);
    unread.push_back("…");
  }
  return unread;
}

// The command that downloads the pictures whose addresses rows have.
std::string WayOutOfAddresses(const RecipeRecord& record) {
  const Json json = Json::parse(record.text, nullptr, false);
  if (!json.is_object()) return "";
  std::string address, caption;
  for (const auto& entry : json.items()) {
    if (!entry.value().is_string()) continue;
    const std::string& key = entry.key();
    const std::string text = entry.value().get<std::string>();
    const std::string lower = absl::AsciiStrToLower(key);
    if ((IsMediaKey(key) || IsAddressKey(key)) &&
        absl::StartsWith(text, "http")) {
      address = key;
    } else if (lower == "text" || lower == "caption" || lower == "alt") {
      caption = key;
    }
  }
  if (address.empty()) return "";
  return absl::StrCat(
      "; rows of addresses: download the pictures, as by `img2dataset "
      "--url_list FILE --input_format ",
      record.kind == RecipeRecord::Kind::kRow ? "parquet" : "jsonl",
      " --url_col ", Printable(address), " --caption_col ",
      caption.empty() ? "CAPTION" : Printable(caption),
      " --output_format webdataset --output_folder FOLDER`, and run init on "
      "FOLDER");
}

struct Tried {
  FormTrial trial;
  uint64_t keys = 0;  // that it reads, of all records
  std::vector<std::string> texts;
};

// The key that a fault of kind kFormKeyUnread asks to settle; "".
std::string KeyToSettle(absl::string_view fault) {
  constexpr absl::string_view kLine = "`form.ignore: ";
  const size_t at = fault.find(kLine);
  if (at == fault.npos) return "";
  fault.remove_prefix(at + kLine.size());
  return std::string(fault.substr(0, fault.find('`')));
}

Tried Try(const Form& form, absl::Span<const RawRecord> records) {
  Tried tried;
  FormTrial& trial = tried.trial;
  trial.form = form;
  const auto reader = FormReader::Create(form, {});
  if (!reader.ok()) {
    trial.first_fault = std::string(reader.status().message());
    return tried;
  }
  Used used;
  for (const RawRecord& record : records) {
    const absl::StatusOr<FormSample> made = reader->Read(record.given);
    absl::Status fault = made.status();
    if (fault.ok()) fault = Check(made->sample);
    if (GetBadKind(fault) == kForOwnTemplate) {
      if (++trial.for_own_template == 1) {
        trial.first_for_own_template =
            absl::StrCat(record.record.name, ": ", fault.message());
      }
    } else if (!fault.ok()) {
      const bool is_unsettled = GetBadKind(fault) == kFormKeyUnread;
      // What a line would settle is said before other faults.
      if (trial.first_fault.empty() || (is_unsettled && trial.unsettled == 0)) {
        trial.first_fault =
            absl::StrCat(record.record.name, ": ", fault.message());
      }
      if (is_unsettled && trial.unsettled++ == 0) {
        trial.to_settle = {KeyToSettle(fault.message())};
      }
      continue;
    }
    const CookedSample& sample = made->sample;
    if (trial.good++ == 0) {
      trial.example = Example(sample);
      trial.unread = UnreadKeys(record.given, made->used);
    }
    tried.keys += made->used.size();
    tried.texts.push_back(sample.text);
    for (const FormSample::Use& use : made->used) {
      std::vector<std::string>& paths = used[use.key][use.entry];
      if (std::count(paths.begin(), paths.end(), use.path) == 0) {
        paths.push_back(use.path);
      }
    }
    MediaCounts media;
    media[MediumKind::kImage] = sample.images.size();
    for (const CookedSample::Video& video : sample.videos) {
      ++media[video.is_audio ? MediumKind::kAudio : MediumKind::kVideo];
      for (const auto& part : video.parts) {
        if (const auto* path = std::get_if<std::string>(&part)) {
          trial.paths.push_back(*path);
        }
      }
    }
    for (const auto& image : sample.images) {
      if (const auto* path = std::get_if<std::string>(&image)) {
        trial.paths.push_back(*path);
      }
    }
    trial.media.Add(media);
    trial.most_text = std::max<uint64_t>(trial.most_text, sample.text.size());
  }
  if (trial.good > 0) {
    trial.form = Narrowed(form, used);
  } else if (!records.empty()) {
    trial.unread = UnreadKeys(records.front().given, {});
  }
  return tried;
}

// What a form makes of `records` once its keys to settle are ignored; without
// them in the form.
FormTrial Settled(FormTrial unsettled, const Form& form,
                  absl::Span<const RawRecord> records) {
  constexpr size_t kMost = 8;
  std::vector<std::string> keys = unsettled.to_settle;
  while (keys.size() <= kMost && !keys.back().empty()) {
    Form with = form;
    for (const std::string& key : keys) with.add_ignore(key);
    FormTrial trial = Try(with, records).trial;
    if (trial.good == 0 && trial.unsettled > 0) {
      keys.push_back(trial.to_settle.front());
      continue;
    }
    if (trial.good == 0) break;
    *trial.form.mutable_ignore() = form.ignore();
    std::erase_if(trial.unread, [&keys](const std::string& key) {
      return std::count(keys.begin(), keys.end(), key) > 0;
    });
    trial.first_fault = unsettled.first_fault;
    trial.unsettled = trial.good;
    trial.good = 0;
    trial.to_settle = keys;
    return trial;
  }
  return unsettled;
}

}  // namespace

FormTrial ChooseForm(absl::Span<const RawRecord> records,
                     absl::Span<const Form> given) {
  std::vector<Form> forms(given.begin(), given.end());
  if (forms.empty()) {
    for (const std::string& name : FormNames()) {
      forms.emplace_back().set_name(name);
    }
  }
  std::optional<Tried> best;
  const Form* of_best = nullptr;
  for (const Form& form : forms) {
    Tried tried = Try(form, records);
    const auto rank = [](const Tried& one) {
      return std::tuple(one.trial.good, one.trial.unsettled, one.keys);
    };
    if (best.has_value() && rank(tried) == rank(*best) &&
        tried.trial.good > 0 && tried.texts != best->texts) {
      best->trial.also = FormYaml(tried.trial.form);
    }
    if (!best.has_value() || rank(tried) > rank(*best)) {
      best = std::move(tried);
      of_best = &form;
    }
  }
  if (!best.has_value()) return FormTrial();
  if (best->trial.good > 0) return best->trial;
  if (!records.empty()) {
    best->trial.way_out = WayOutOfAddresses(records.front().given);
  }
  if (best->trial.unsettled == 0) return best->trial;
  absl::StrAppend(&best->trial.first_fault, best->trial.way_out);
  return Settled(std::move(best->trial), *of_best, records);
}

std::vector<DescribedForm> ReadDatasetInfo(const std::string& json) {
  std::vector<DescribedForm> forms;
  const Json info = Json::parse(json, nullptr, false);
  if (!info.is_object()) return forms;
  for (const auto& entry : info.items()) {
    const Json& set = entry.value();
    if (!set.is_object() || !set.contains("file_name") ||
        !set["file_name"].is_string()) {
      continue;
    }
    const auto section = [&set](const char* key) {
      const auto found = set.find(key);
      return found != set.end() && found->is_object() ? *found : Json::object();
    };
    const Json columns = section("columns");
    const Json tags = section("tags");
    const auto text = [](const Json& from, const char* key,
                         const char* otherwise) {
      const auto found = from.find(key);
      return found != from.end() && found->is_string()
                 ? found->get<std::string>()
                 : std::string(otherwise);
    };
    // Pairs have a key of their own.
    if (set.value("ranking", Json(false)) == Json(true)) continue;
    DescribedForm described;
    described.file_name = set["file_name"].get<std::string>();
    Form& form = described.form;
    form.set_name("media");
    const std::string images = text(columns, "images", "");
    const std::string videos = text(columns, "videos", "");
    const std::string audios = text(columns, "audios", "");
    if (!images.empty()) form.add_images(images);
    if (!videos.empty()) form.add_videos(videos);
    if (!audios.empty()) form.add_audios(audios);
    form.set_system(text(columns, "system", "system"));
    if (text(set, "formatting", "alpaca") == "sharegpt") {
      form.add_messages(text(columns, "messages", "conversations"));
      form.set_role_key(text(tags, "role_tag", "from"));
      form.set_content_key(text(tags, "content_tag", "value"));
      form.mutable_roles()->add_user(text(tags, "user_tag", "human"));
      form.mutable_roles()->add_assistant(text(tags, "assistant_tag", "gpt"));
      form.mutable_roles()->add_system(text(tags, "system_tag", "system"));
      form.mutable_roles()->add_tool(
          text(tags, "observation_tag", "observation"));
    } else {
      form.add_user(text(columns, "prompt", "instruction"));
      form.add_user(text(columns, "query", "input"));
      form.add_assistant(text(columns, "response", "output"));
      form.set_history(text(columns, "history", "history"));
    }
    forms.push_back(std::move(described));
  }
  return forms;
}

}  // namespace ballast
