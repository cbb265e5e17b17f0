#include "server/data/parquet/mapped_rows.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <utility>

#include <arrow/array.h>
#include <arrow/table.h>
#include <arrow/type.h>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/document_json.h"
#include "server/data/jsonl/media_root.h"
#include "server/data/parquet/arrow_values.h"
#include "server/data/parquet/image_pages.h"
#include "server/recipe/turns_json.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// What parts of the turns of a row name.
struct NamedMedia {
  // One for each such part, "" without a name; nullopt: a mark in a text.
  std::vector<std::optional<std::string>> images;
  std::vector<std::string> videos;
};

// Whether a value is more than nothing: nulls, empty texts and lists, and
// structs of these. A text may be a list as JSON.
bool SaysSomething(const arrow::Array& array, int64_t i) {
  if (array.IsNull(i)) return false;
  if (IsBytes(*array.type())) {
    const absl::string_view text = BytesAt(array, i).value_or("");
    return !text.empty() && text != "[]";
  }
  if (const auto items = ListAt(array, i); items.has_value()) {
    return items->end > items->begin;
  }
  if (array.type_id() != arrow::Type::STRUCT) return true;
  for (const auto& field : array.type()->fields()) {
    const auto values = GetField(array, field->name());
    if (values != nullptr && SaysSomething(*values, i)) return true;
  }
  return false;
}

// The rows of a table.
class MappedRows final : public ParquetRows {
 public:
  MappedRows(std::shared_ptr<const void> owner,
             std::shared_ptr<const arrow::Table> table,
             std::optional<ImagePages> pages, RowMapping mapping,
             uint64_t first_row, uint64_t bytes)
      : owner_(std::move(owner)),
        table_(std::move(table)),
        mapping_(std::move(mapping)),
        first_row_(first_row),
        bytes_(bytes),
        images_(Column(mapping_.images), std::move(pages)),
        videos_(Column(mapping_.videos)),
        audios_(Column(mapping_.audios)),
        turns_(Column(mapping_.turns)),
        filters_(*table_, mapping_.filters) {
    for (const auto* names : {&mapping_.beside, &mapping_.fields}) {
      for (const std::string& name : *names) {
        beside_.push_back({name, Column(name)});
      }
    }
  }

  uint64_t bytes() const override { return bytes_; }
  bool ImagesInFile() const override { return images_.InFile(); }
  uint64_t size() const override { return table_->num_rows(); }
  uint64_t first_row() const override { return first_row_; }

  bool Passes(uint64_t row) const override { return filters_.Passes(row); }

  absl::StatusOr<ParquetRow> Row(uint64_t row) const override {
    ParquetRow sample;
    if (videos_ != nullptr) {
      BALLAST_RETURN_IF_ERROR(
          AddVideos(*videos_, "video", row, &sample.videos));
    }
    if (audios_ != nullptr) {
      BALLAST_RETURN_IF_ERROR(
          AddVideos(*audios_, "audio", row, &sample.audios));
    }
    if (mapping_.shape == TurnShape::kPlaces) {
      BALLAST_RETURN_IF_ERROR(AddPlaces(row, &sample));
      return sample;
    }
    BALLAST_RETURN_IF_ERROR(images_.Add(row, &sample.images));
    if (mapping_.is_pair) {
      BALLAST_ASSIGN_OR_RETURN(sample.text, PairText(row));
      BALLAST_RETURN_IF_ERROR(CheckPlaces(row, sample));
      return sample;
    }
    if (IsBytes(*turns_->type())) {
      BALLAST_ASSIGN_OR_RETURN(sample.text, WholeText(row));
      sample.is_document = mapping_.shape == TurnShape::kText;
      if (sample.is_document) {
        sample.fields = Fields(row);
        return sample;
      }
      BALLAST_RETURN_IF_ERROR(CheckPlaces(row, sample));
      return sample;
    }
    TurnsJson json;
    AddBeside(row, [&](const std::string& name, const std::string& value) {
      json.AddBeside(name, value);
    });
    NamedMedia named;
    BALLAST_RETURN_IF_ERROR(AddTurns(row, &json, &named));
    BALLAST_RETURN_IF_ERROR(CheckNamed(row, named.images, sample.images));
    BALLAST_RETURN_IF_ERROR(AddNamed(std::move(named.videos), &sample.videos));
    BALLAST_ASSIGN_OR_RETURN(
        sample.text,
        std::move(json).Finish(sample.images.size(), sample.videos.size(),
                               sample.audios.size()));
    return sample;
  }

 private:
  // Null if `name` is empty, or there is no such column.
  std::shared_ptr<arrow::Array> Column(const std::string& name) const {
    const auto values = name.empty() ? nullptr : table_->GetColumnByName(name);
    return values == nullptr || values->num_chunks() == 0 ? nullptr
                                                          : values->chunk(0);
  }

  // Gives the values of columns next to the turns, as JSON.
  void AddBeside(
      uint64_t row,
      absl::FunctionRef<void(const std::string& name, const std::string& value)>
          add) const {
    for (const Beside& beside : beside_) {
      if (beside.values == nullptr || !SaysSomething(*beside.values, row)) {
        continue;
      }
      std::string value;
      AppendJson(*beside.values, row, &value);
      add(beside.name, value);
    }
  }

  // The text of a document, or the conversation whose turns are a text.
  absl::StatusOr<std::string> WholeText(uint64_t row) const {
    const auto text = BytesAt(*turns_, row);
    if (!text.has_value()) {
      return DataFaultError(
          absl::StrCat("column ", Printable(mapping_.turns), " is null"));
    }
    std::string whole(*text);
    if (mapping_.shape != TurnShape::kText) {
      whole = absl::StrCat("{\"messages\":", *text);
      AddBeside(row, [&](const std::string& name, const std::string& value) {
        absl::StrAppend(&whole, ",\"", name, "\":", value);
      });
      whole += '}';
    }
    if (whole.size() <= kMaxTextBytes) return whole;
    return DataFaultError(
        absl::StrCat("its text has over ", kMaxTextBytes, " bytes"));
  }

  // A preference pair as JSON, which is read like a line's (SplitPair).
  absl::StatusOr<std::string> PairText(uint64_t row) const {
    std::string text = "{";
    AddBeside(row, [&](const std::string& name, const std::string& value) {
      absl::StrAppend(&text, text.size() == 1 ? "\"" : ",\"", name,
                      "\":", value);
    });
    text += '}';
    if (text.size() <= kMaxTextBytes) return text;
    return DataFaultError(
        absl::StrCat("its text has over ", kMaxTextBytes, " bytes"));
  }

  // The fields of a document; "" without any.
  std::string Fields(uint64_t row) const {
    if (mapping_.fields.empty()) return "";
    std::string fields;
    AddBeside(row, [&](const std::string& name, const std::string& value) {
      absl::StrAppend(&fields, fields.empty() ? "{" : ",", "\"", name,
                      "\":", value);
    });
    return absl::StrCat(fields.empty() ? "{" : fields, "}");
  }

  // Adds the text and the images of a document of parallel lists.
  absl::Status AddPlaces(uint64_t row, ParquetRow* sample) const {
    sample->is_document = true;
    sample->fields = Fields(row);
    std::vector<bool> places;
    BALLAST_RETURN_IF_ERROR(images_.Add(row, &sample->images, &places));
    const auto texts = ListAt(*turns_, row);
    const size_t count = texts.has_value() ? texts->end - texts->begin : 0;
    if (!mapping_.images.empty() && places.size() != count) {
      return DataFaultError(absl::StrCat(
          "column ", Printable(mapping_.turns), " has ", count, " places, ",
          mapping_.images, " has ", places.size(),
          "; wanted parallel lists, with null in one of them at each place"));
    }
    places.resize(count);
    for (size_t i = 0; i < count; ++i) {
      BALLAST_RETURN_IF_ERROR(
          Annotate(AddPlace(BytesAt(*texts->values, texts->begin + i),
                            places[i], &sample->text),
                   absl::StrCat("place ", i + 1)));
    }
    if (sample->text.size() <= kMaxTextBytes) return absl::OkStatus();
    return DataFaultError(
        absl::StrCat("its text has over ", kMaxTextBytes, " bytes"));
  }

  // Adds the videos or the audio of a column. `medium` names them in messages.
  static absl::Status AddVideos(const arrow::Array& column,
                                absl::string_view medium, uint64_t row,
                                std::vector<ParquetVideo>* videos) {
    if (ItemType(*column.type()) == nullptr) {
      return AddVideo(column, medium, row, 1, /*may_lack=*/true, videos);
    }
    const auto items = ListAt(column, row);
    if (!items.has_value()) return absl::OkStatus();
    for (int64_t i = items->begin; i < items->end; ++i) {
      BALLAST_RETURN_IF_ERROR(AddVideo(*items->values, medium, i,
                                       i - items->begin + 1,
                                       /*may_lack=*/false, videos));
    }
    return absl::OkStatus();
  }

  // A struct's `bytes` count before its `path`.
  static absl::Status AddVideo(const arrow::Array& array,
                               absl::string_view medium, int64_t i,
                               int64_t number, bool may_lack,
                               std::vector<ParquetVideo>* videos) {
    std::optional<absl::string_view> bytes;
    std::optional<absl::string_view> path;
    if (array.type_id() != arrow::Type::STRUCT) {
      (IsTextType(*array.type()) ? path : bytes) = BytesAt(array, i);
    } else if (!array.IsNull(i)) {
      const auto read = [&](const char* field) {
        const auto values = GetField(array, field);
        return values != nullptr && IsBytes(*values->type())
                   ? BytesAt(*values, i)
                   : std::nullopt;
      };
      bytes = read("bytes");
      path = read("path");
    }
    ParquetVideo video;
    video.name = path.value_or("");
    if (bytes.has_value()) {
      video.bytes = *bytes;
    } else if (path.has_value()) {
      BALLAST_RETURN_IF_ERROR(CheckMediaPath(medium, *path));
      video.path = std::string(*path);
    } else if (may_lack) {
      return absl::OkStatus();
    } else {
      return DataFaultError(absl::StrCat(medium, " ", number, " is null"));
    }
    return Append(std::move(video), videos);
  }

  // Compares what parts name with the images that the row has in their places,
  // among which marks in texts have no name. How many there are is compared
  // with the text later.
  absl::Status CheckNamed(uint64_t row,
                          const std::vector<std::optional<std::string>>& named,
                          const std::vector<ParquetImage>& images) const {
    const bool has_part =
        std::any_of(named.begin(), named.end(),
                    [](const auto& place) { return place.has_value(); });
    if (has_part && images.empty() && mapping_.parts_hold_images) {
      return DataFaultError(
          "a part of type image, and the row has no images: those inside parts "
          "are not read; write them into a column `images`, in the order of "
          "the parts");
    }
    std::vector<absl::string_view> paths(named.size());
    Names names(images.size());
    for (size_t i = 0; i < named.size(); ++i) {
      if (!named[i].has_value() || named[i]->empty()) continue;
      if (images.empty()) {
        return DataFaultError(absl::StrCat(
            "a part of type image names ", Printable(*named[i]),
            ", and the row has no images; images outside of the file are not "
            "read"));
      }
      if (named.size() != images.size()) break;
      paths[i] = *named[i];
      names[i] = IfKnown(images_.PathAt(row, i).value_or(""));
    }
    return CheckNames("image", paths, names, Of(mapping_.images));
  }

  using Names = std::vector<std::optional<absl::string_view>>;

  static std::optional<absl::string_view> IfKnown(absl::string_view name) {
    return name.empty() ? std::nullopt : std::make_optional(name);
  }

  static std::string Of(const std::string& column) {
    return absl::StrCat(" of column ", Printable(column));
  }

  // The same for all media of a row whose turns are JSON.
  absl::Status CheckPlaces(uint64_t row, const ParquetRow& sample) const {
    const auto places = ReadMediaPlaces(sample.text);
    // The reader of the text reports its faults.
    if (!places.ok()) return absl::OkStatus();
    std::vector<std::optional<std::string>> images;
    for (const absl::string_view path : GetPaths("image", *places)) {
      images.emplace_back(path);
    }
    BALLAST_RETURN_IF_ERROR(CheckNamed(row, images, sample.images));
    const auto check = [&](absl::string_view medium, const std::string& column,
                           const std::vector<ParquetVideo>& media,
                           bool or_images) {
      Names names;
      for (const ParquetVideo& one : media) names.push_back(IfKnown(one.name));
      return CheckNames(medium, GetPaths(medium, *places, or_images), names,
                        Of(column));
    };
    BALLAST_RETURN_IF_ERROR(check("video", mapping_.videos, sample.videos,
                                  /*or_images=*/sample.images.empty()));
    return check("audio", mapping_.audios, sample.audios, /*or_images=*/false);
  }

  // Adds the videos that parts of the turns name.
  static absl::Status AddNamed(std::vector<std::string> paths,
                               std::vector<ParquetVideo>* videos) {
    if (!paths.empty() && !videos->empty()) {
      return DataFaultError(
          "a part of type video names a path, and the row has videos in a "
          "column, too; wanted one of the two");
    }
    for (std::string& path : paths) {
      BALLAST_RETURN_IF_ERROR(CheckMediaPath("video", path));
      BALLAST_RETURN_IF_ERROR(Append({{}, std::move(path)}, videos));
    }
    return absl::OkStatus();
  }

  static absl::Status Append(ParquetVideo video,
                             std::vector<ParquetVideo>* videos) {
    if (videos->size() == kMaxVideos) {
      return DataFaultError(absl::StrCat("over ", kMaxVideos, " videos"));
    }
    videos->push_back(std::move(video));
    return absl::OkStatus();
  }

  absl::Status AddTurns(uint64_t row, TurnsJson* json,
                        NamedMedia* named) const {
    const auto turns = ListAt(*turns_, row);
    if (!turns.has_value()) {
      return DataFaultError(
          absl::StrCat("column ", Printable(mapping_.turns), " is null"));
    }
    const TurnFields fields = GetFields(mapping_.shape);
    const auto first = GetField(*turns->values, fields.first);
    const auto second = GetField(*turns->values, fields.second);
    for (int64_t i = turns->begin; i < turns->end; ++i) {
      const std::string turn = absl::StrCat("turn ", i - turns->begin + 1);
      const auto text =
          [&](const std::shared_ptr<arrow::Array>& values,
              const char* name) -> absl::StatusOr<absl::string_view> {
        const auto found =
            turns->values->IsNull(i) ? std::nullopt : BytesAt(*values, i);
        if (found.has_value()) return *found;
        return DataFaultError(absl::StrCat(turn, ": `", name, "` is null"));
      };
      BALLAST_ASSIGN_OR_RETURN(const absl::string_view one,
                               text(first, fields.first));
      if (mapping_.shape == TurnShape::kTexts) {
        BALLAST_ASSIGN_OR_RETURN(const absl::string_view other,
                                 text(second, fields.second));
        json->AddTurn("user", one);
        json->AddTurn("assistant", other);
      } else if (!turns->values->IsNull(i) && second->IsNull(i) &&
                 HasKeys(*turns->values, i)) {
        json->AddBareTurn(one);
      } else if (IsBytes(*second->type())) {
        BALLAST_ASSIGN_OR_RETURN(const absl::string_view said,
                                 text(second, fields.second));
        json->AddTurn(one, said);
      } else {
        json->BeginTurn(one);
        BALLAST_RETURN_IF_ERROR(
            Annotate(AddParts(*second, i, json, named), turn));
      }
      if (mapping_.shape != TurnShape::kTexts) {
        BALLAST_RETURN_IF_ERROR(
            Annotate(AddCount(*turns->values, i, json), turn));
      }
      if (json->TooLong()) break;  // Finish says so
    }
    return absl::OkStatus();
  }

  // Whether a turn says something in another field than its content.
  static bool HasKeys(const arrow::Array& turns, int64_t i) {
    return std::any_of(std::begin(kTurnKeys), std::end(kTurnKeys),
                       [&](absl::string_view key) {
                         if (key == "name" || key == "tool_call_id") {
                           return false;
                         }
                         const auto values = GetField(turns, std::string(key));
                         return values != nullptr && SaysSomething(*values, i);
                       });
  }

  static bool IsSetting(absl::string_view key) {
    return std::find(std::begin(kTurnSettings), std::end(kTurnSettings), key) !=
           std::end(kTurnSettings);
  }

  // Adds the other fields of the last turn.
  absl::Status AddCount(const arrow::Array& turns, int64_t i,
                        TurnsJson* json) const {
    BALLAST_ASSIGN_OR_RETURN(const auto settings,
                             SettingsAt(turns, i, kTurnSettings,
                                        /*numbers_alone=*/true));
    json->AddSettings(settings);
    const auto add = [&](const char* key) {
      const auto values = GetField(turns, key);
      if (values == nullptr || !SaysSomething(*values, i)) return;
      std::string value;
      AppendJson(*values, i, &value);
      json->AddKey(key, value);
    };
    for (const char* key : kTurnSettings) {
      const auto values = GetField(turns, key);
      if (values != nullptr && !IsNumber(*values->type())) add(key);
    }
    for (const char* key : kTurnKeys) add(key);
    for (const std::string& key : mapping_.turn_fields) {
      const auto values = GetField(turns, key);
      if (values == nullptr || values->IsNull(i) || IsSetting(key)) continue;
      std::string value;
      AppendJson(*values, i, &value);
      json->AddKey(key, value);
    }
    return absl::OkStatus();
  }

  // The numbers of struct `i` of those names; nulls say nothing. Other values
  // are errors, or passed over with `numbers_alone`.
  static absl::StatusOr<std::vector<TurnsJson::Setting>> SettingsAt(
      const arrow::Array& structs, int64_t i,
      absl::Span<const char* const> names, bool numbers_alone) {
    std::vector<TurnsJson::Setting> settings;
    for (const char* key : names) {
      const auto values = GetField(structs, key);
      if (values == nullptr || values->IsNull(i)) continue;
      const std::optional<double> value =
          IsNumber(*values->type()) ? NumberAt(*values, i) : std::nullopt;
      // Writers of columns put NaN for what is missing.
      if (value.has_value() && std::isnan(*value)) continue;
      if (!value.has_value() || !std::isfinite(*value)) {
        if (numbers_alone) continue;
        return DataFaultError(absl::StrCat("`", key, "` is no number"));
      }
      settings.push_back({key, *value});
    }
    return settings;
  }

  // What part `k` names in field `field`, or else in `path`.
  static std::optional<std::string> NameAt(const arrow::Array& parts,
                                           const char* field, int64_t k) {
    for (const char* name : {field, "path"}) {
      const auto values = GetField(parts, name);
      if (values == nullptr || !IsBytes(*values->type())) continue;
      const auto path = BytesAt(*values, k);
      if (path.has_value()) return std::string(*path);
    }
    return std::nullopt;
  }

  static absl::Status AddParts(const arrow::Array& contents, int64_t i,
                               TurnsJson* json, NamedMedia* named) {
    const auto parts = ListAt(contents, i);
    if (!parts.has_value()) {
      return DataFaultError("`content` is null");
    }
    const auto types = GetField(*parts->values, "type");
    const auto texts = GetField(*parts->values, "text");
    for (int64_t k = parts->begin; k < parts->end && !json->TooLong(); ++k) {
      const int64_t number = k - parts->begin + 1;
      const auto type =
          parts->values->IsNull(k) ? std::nullopt : BytesAt(*types, k);
      if (!type.has_value()) {
        return DataFaultError(
            absl::StrCat("content part ", number, ": `type` is null"));
      }
      const bool is_image = *type == "image" || *type == "image_url";
      const bool is_video = *type == "video" || *type == "video_url";
      if (is_image) {
        const auto indexes = GetField(*parts->values, "index");
        const auto index = indexes != nullptr && IsNumber(*indexes->type())
                               ? NumberAt(*indexes, k)
                               : std::nullopt;
        if (index.has_value()) {
          BALLAST_RETURN_IF_ERROR(
              Annotate(CheckImageIndex(*index, named->images.size()),
                       absl::StrCat("content part ", number)));
        }
        named->images.emplace_back(
            NameAt(*parts->values, "image", k).value_or(""));
      }
      if (is_video) {
        std::optional<std::string> path = NameAt(*parts->values, "video", k);
        if (path.has_value()) named->videos.push_back(*std::move(path));
      }
      const char* const* const text_part =
          std::find(std::begin(kTextParts), std::end(kTextParts), *type);
      if (text_part != std::end(kTextParts)) {
        const auto values = GetField(*parts->values, *text_part);
        const auto text = values != nullptr && IsBytes(*values->type())
                              ? BytesAt(*values, k)
                              : std::nullopt;
        if (!text.has_value()) {
          return DataFaultError(absl::StrCat("content part ", number, ": `",
                                             *type, "` is no text"));
        }
        json->AddTextPart(*text_part, *text);
        continue;
      }
      if (*type != "text" && !is_image && !is_video) {
        return DataFaultError(absl::StrCat(
            "content part ", number, ": type ", Printable(*type),
            ", of which nothing is read; wanted text, image, image_url, video, "
            "video_url, thinking, reasoning or refusal"));
      }
      if (*type != "text") {
        const auto settings = SettingsAt(*parts->values, k, kPartSettings,
                                         /*numbers_alone=*/false);
        if (!settings.ok()) {
          return Annotate(settings.status(),
                          absl::StrCat("content part ", number));
        }
        json->AddPart(*type, *settings);
        continue;
      }
      const auto text = BytesAt(*texts, k);
      if (!text.has_value()) {
        return DataFaultError(
            absl::StrCat("content part ", number, ": `text` is null"));
      }
      json->AddText(*text);
      for (const absl::string_view medium : FindMarks(*text)) {
        if (medium == "image") named->images.emplace_back();
      }
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<const void> owner_;  // outlives the table
  const std::shared_ptr<const arrow::Table> table_;
  const RowMapping mapping_;
  const uint64_t first_row_;
  const uint64_t bytes_;
  const RowImages images_;
  const std::shared_ptr<arrow::Array> videos_;  // null: none
  const std::shared_ptr<arrow::Array> audios_;  // likewise
  const std::shared_ptr<arrow::Array> turns_;
  const TableFilters filters_;
  // Columns whose values go next to the turns.
  struct Beside {
    std::string name;
    std::shared_ptr<arrow::Array> values;  // null: no such column
  };
  std::vector<Beside> beside_;
};

}  // namespace

TableFilters::TableFilters(const arrow::Table& table,
                           std::vector<RowFilter> filters)
    : filters_(std::move(filters)) {
  for (const RowFilter& filter : filters_) {
    columns_.push_back(table.GetColumnByName(filter.column)->chunk(0));
  }
}

bool TableFilters::Passes(int64_t row) const {
  for (size_t i = 0; i < filters_.size(); ++i) {
    const RowFilter& filter = filters_[i];
    if (filter.is_text) {
      const auto value = BytesAt(*columns_[i], row);
      if (!value.has_value() || !filter.Passes(*value)) return false;
    } else {
      const auto value = NumberAt(*columns_[i], row);
      if (!value.has_value() || !filter.Passes(*value)) return false;
    }
  }
  return true;
}

std::shared_ptr<const ParquetRows> MapRows(
    std::shared_ptr<const arrow::Table> table, std::optional<ImagePages> images,
    RowMapping mapping, uint64_t first_row, uint64_t bytes,
    std::shared_ptr<const void> owner) {
  return std::make_shared<const MappedRows>(
      std::move(owner), std::move(table), std::move(images), std::move(mapping),
      first_row, bytes);
}

}  // namespace ballast
