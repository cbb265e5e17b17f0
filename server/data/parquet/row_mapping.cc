#include "server/data/parquet/row_mapping.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include <arrow/type.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/jsonl/pair_json.h"
#include "server/data/jsonl/unread_keys.h"
#include "server/data/parquet/arrow_values.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

bool IsText(const arrow::DataType* type) {
  return type != nullptr && IsBytes(*type);
}

// A list of parts {type, text}.
bool IsParts(const arrow::DataType* type) {
  const arrow::DataType* item = type == nullptr ? nullptr : ItemType(*type);
  return item != nullptr && IsText(FieldType(*item, "type")) &&
         IsText(FieldType(*item, "text"));
}

bool FitsTurns(const arrow::DataType& type, TurnShape shape) {
  const arrow::DataType* item = ItemType(type);
  if (shape == TurnShape::kPlaces) return item != nullptr && IsTextType(*item);
  // The JSON of a list.
  if (item == nullptr) return shape != TurnShape::kTexts && IsTextType(type);
  const TurnFields fields = GetFields(shape);
  const arrow::DataType* second = FieldType(*item, fields.second);
  return IsText(FieldType(*item, fields.first)) &&
         (IsText(second) || (shape == TurnShape::kMessages && IsParts(second)));
}

bool IsImage(const arrow::DataType& type) {
  // Text would be a path or an address.
  const arrow::DataType* bytes = FieldType(type, "bytes");
  if (bytes != nullptr) return IsBytes(*bytes);
  switch (PlainType(type).id()) {
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::BINARY_VIEW:
      return true;
    default:
      return false;
  }
}

bool FitsImages(const arrow::DataType& type) {
  const arrow::DataType* item = ItemType(type);
  return IsImage(item == nullptr ? type : *item);
}

// Whether all values are null, or lists of nulls: so writers that go by the
// values store a column of images in a file that has none.
bool IsNothing(const arrow::DataType& type) {
  const arrow::DataType* item = ItemType(type);
  return (item == nullptr ? type : *item).id() == arrow::Type::NA;
}

// As images, but a text is a path.
bool FitsVideos(const arrow::DataType& type) {
  const arrow::DataType* item = ItemType(type);
  const arrow::DataType& video = item == nullptr ? type : *item;
  const arrow::DataType* path = FieldType(video, "path");
  return IsImage(video) || IsBytes(video) || IsText(path);
}

// Whether a part of a turn of `type` can hold an image, not only name one.
bool HasImagesInParts(const arrow::DataType& type) {
  const arrow::DataType* turn = ItemType(type);
  const arrow::DataType* content =
      turn == nullptr ? nullptr : FieldType(*turn, "content");
  const arrow::DataType* part =
      content == nullptr ? nullptr : ItemType(*content);
  if (part == nullptr) return false;
  const arrow::DataType* image = FieldType(*part, "image");
  return IsImage(*part) || (image != nullptr && IsImage(*image));
}

std::string WantedTurns(TurnShape shape) {
  if (shape == TurnShape::kPlaces) return "a list of texts and nulls";
  if (shape == TurnShape::kText) return "a text";
  const TurnFields fields = GetFields(shape);
  return absl::StrCat("a list of structs with the texts `", fields.first,
                      "` and `", fields.second, "`",
                      shape == TurnShape::kMessages
                          ? ", or `content` as parts {type, text}"
                          : "",
                      shape == TurnShape::kTexts ? "" : ", or its JSON");
}

constexpr char kWantedImages[] =
    "images in the file: a struct with `bytes`, or bytes, or a list of them "
    "(paths and addresses of images are not followed)";

constexpr char kWantedVideos[] =
    "videos: a struct with `bytes` or `path`, bytes, a text with a path below "
    "media_root, or a list of them";

constexpr char kWantedAudios[] =
    "audio: a struct with `bytes` or `path`, bytes, a text with a path below "
    "media_root, or a list of them";

absl::Status Mismatch(const std::string& column, const arrow::DataType& found,
                      absl::string_view wanted) {
  return absl::FailedPreconditionError(
      absl::StrCat("column ", Printable(column), ": found ",
                   Printable(found.ToString()), "; wanted ", wanted));
}

// The columns and their types, for messages.
std::string Listed(const arrow::Schema& schema) {
  constexpr int kShown = 20;
  std::string list;
  for (int i = 0; i < std::min(schema.num_fields(), kShown); ++i) {
    absl::StrAppend(&list, i == 0 ? "" : ", ",
                    Printable(schema.field(i)->name()));
  }
  if (schema.num_fields() > kShown) {
    absl::StrAppend(&list, " and ", schema.num_fields() - kShown, " more");
  }
  return list;
}

absl::StatusOr<const arrow::DataType*> GetType(const arrow::Schema& schema,
                                               const std::string& column) {
  const std::vector<int> found = schema.GetAllFieldIndices(column);
  if (found.size() == 1) return schema.field(found[0])->type().get();
  return absl::FailedPreconditionError(
      absl::StrCat(found.empty() ? "no column " : "several columns ",
                   Printable(column), "; the file has ", Listed(schema)));
}

// The only column of `names` whose type fits, "" if none fits.
absl::StatusOr<std::string> Recognise(
    const arrow::Schema& schema, std::initializer_list<const char*> names,
    bool (*fits)(const std::string& name, const arrow::DataType& type)) {
  std::string found;
  for (const std::string name : names) {
    for (const int i : schema.GetAllFieldIndices(name)) {
      if (!fits(name, *schema.field(i)->type())) continue;
      if (!found.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("both ", found, " and ", name,
                         " may be meant; name the columns in `columns`"));
      }
      found = name;
    }
  }
  return found;
}

TurnShape ShapeNamed(const std::string& name, const arrow::DataType& type) {
  if (name == GetName(TurnShape::kTexts)) {
    return FitsTurns(type, TurnShape::kPlaces) ? TurnShape::kPlaces
                                               : TurnShape::kTexts;
  }
  if (name == GetName(TurnShape::kMessages)) return TurnShape::kMessages;
  return TurnShape::kConversations;
}

// The column of videos has one of two names, whatever names the others have:
// without its videos the text would be trained on all the same.
absl::Status FindVideos(const arrow::Schema& schema, RowMapping* mapping) {
  for (const std::string name : {"videos", "video"}) {
    const std::vector<int> found = schema.GetAllFieldIndices(name);
    if (found.empty() || name == mapping->images || name == mapping->turns) {
      continue;
    }
    if (found.size() > 1 || !mapping->videos.empty()) {
      return absl::FailedPreconditionError(
          "several columns `video` or `videos`; wanted one");
    }
    const arrow::DataType& type = *schema.field(found[0])->type();
    if (!FitsVideos(type) && !IsNothing(type)) {
      return Mismatch(name, type, kWantedVideos);
    }
    mapping->videos = name;
  }
  return absl::OkStatus();
}

// The column of audio by datasets' names. One of another shape is an error:
// without its audio the text would be trained on all the same.
absl::Status FindAudios(const arrow::Schema& schema, RowMapping* mapping) {
  BALLAST_ASSIGN_OR_RETURN(
      mapping->audios,
      Recognise(schema, {"audios", "audio"},
                [](const std::string&, const arrow::DataType& type) {
                  return FitsVideos(type);
                }));
  if (!mapping->audios.empty()) return absl::OkStatus();
  for (const std::string name : {"audios", "audio"}) {
    for (const int i : schema.GetAllFieldIndices(name)) {
      const arrow::DataType& type = *schema.field(i)->type();
      if (IsNothing(type)) continue;
      return Mismatch(name, type,
                      absl::StrCat(kWantedAudios,
                                   "; name the columns in `columns` if it may "
                                   "be left out"));
    }
  }
  return absl::OkStatus();
}

// Refuses columns that may be images under another name or of another shape:
// the text would be trained on without them all the same.
absl::Status CheckNoOtherImages(const arrow::Schema& schema,
                                const RowMapping& mapping) {
  const auto images = schema.GetFieldByName(mapping.images);
  const bool has_images = images != nullptr && FitsImages(*images->type());
  for (const std::string name : {"images", "image"}) {
    if (has_images || name == mapping.images) continue;
    for (const int i : schema.GetAllFieldIndices(name)) {
      return Mismatch(name, *schema.field(i)->type(), kWantedImages);
    }
  }
  const auto is_filtered = [&](const std::string& name) {
    return std::any_of(
        mapping.filters.begin(), mapping.filters.end(),
        [&](const RowFilter& filter) { return filter.column == name; });
  };
  for (const auto& field : schema.fields()) {
    const std::string& name = field->name();
    if (name == mapping.images || name == mapping.audios || name == "video" ||
        name == "videos") {
      continue;
    }
    const arrow::DataType* item = ItemType(*field->type());
    const bool is_file =
        FieldType(item == nullptr ? *field->type() : *item, "bytes") != nullptr;
    // With images, bytes alone are more often something else.
    const bool may_be_file =
        !has_images && FitsImages(*field->type()) && !is_filtered(name);
    if (!is_file && !may_be_file) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "column ", Printable(name), " has ", is_file ? "files" : "bytes",
        ", and is not read: name the columns in `columns`",
        has_images ? " if it may be left out"
                   : ", with it as `images` if it has images, or the column of "
                     "text alone"));
  }
  return absl::OkStatus();
}

// Texts, lists and structs: what may hold media, their names or addresses.
bool MayHoldMedia(const arrow::DataType& type) {
  return IsTextType(type) || ItemType(type) != nullptr ||
         type.id() == arrow::Type::STRUCT;
}

// Refuses columns of names, addresses and arrays of media in a file without
// others: the text would be trained on without them all the same.
absl::Status CheckNoNamedMedia(const arrow::Schema& schema,
                               const RowMapping& mapping) {
  const auto has_media = [&](const std::string& name) {
    const auto field = schema.GetFieldByName(name);
    return field != nullptr && !IsNothing(*field->type());
  };
  if (has_media(mapping.images) || has_media(mapping.audios) ||
      has_media("video") || has_media("videos")) {
    return absl::OkStatus();
  }
  const auto& fields = schema.fields();
  const bool describes_pictures = std::any_of(
      fields.begin(), fields.end(),
      [](const auto& field) { return DescribesPicture(field->name()); });
  for (const auto& field : fields) {
    const std::string& name = field->name();
    if (name == mapping.turns || name == mapping.images ||
        IsNothing(*field->type()) || !MayHoldMedia(*field->type())) {
      continue;
    }
    const bool has_addresses = IsAddressKey(name) && describes_pictures;
    if (!has_addresses && !IsMediaKey(name)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "column ", Printable(name),
        has_addresses ? " has addresses of pictures"
                      : " seems to hold media, their names or addresses",
        ", and is not read: the samples would be text alone. Download "
        "addresses, as by `img2dataset --url_list FILE --input_format parquet "
        "--url_col ",
        Printable(name),
        " --caption_col text --output_format webdataset --output_folder "
        "FOLDER`, and read FOLDER; write other files into a column `images`, "
        "or take a recipe (docs/recipes.md); name the columns in `columns` if "
        "it may be "
        "left out"));
  }
  return absl::OkStatus();
}

// The columns next to the turns that would change the text.
absl::Status FindBeside(const arrow::Schema& schema, RowMapping* mapping) {
  for (const std::string name : kBeside) {
    const std::vector<int> found = schema.GetAllFieldIndices(name);
    if (found.empty() || name == mapping->images || name == mapping->turns) {
      continue;
    }
    if (found.size() > 1) {
      return absl::FailedPreconditionError(
          absl::StrCat("several columns `", name, "`; wanted one"));
    }
    const arrow::DataType& type = *schema.field(found[0])->type();
    if (IsBytes(type) || ItemType(type) != nullptr ||
        type.id() == arrow::Type::STRUCT) {
      mapping->beside.push_back(name);
    }
  }
  return absl::OkStatus();
}

// Refuses the columns of preference pairs: one answer alone would be learnt.
absl::Status CheckNoPair(const arrow::Schema& schema) {
  for (const std::string name :
       {"chosen", "rejected", "rejected_response", "rejected_messages"}) {
    for (const int i : schema.GetAllFieldIndices(name)) {
      const arrow::DataType& type = *schema.field(i)->type();
      if (!IsBytes(type) && ItemType(type) == nullptr &&
          type.id() != arrow::Type::STRUCT) {
        continue;
      }
      return absl::FailedPreconditionError(
          absl::StrCat(PairFault("column", name).message(),
                       ", or name the columns of one answer in `columns`"));
    }
  }
  return absl::OkStatus();
}

// Refuses a column that marks answers as undesired: they would be learnt like
// the others.
absl::Status CheckNoVerdict(const arrow::Schema& schema,
                            const std::vector<RowFilter>& filters) {
  for (const auto& field : schema.fields()) {
    const std::string& name = field->name();
    if (!IsVerdict(name) || field->type()->id() != arrow::Type::BOOL ||
        std::any_of(
            filters.begin(), filters.end(),
            [&](const RowFilter& filter) { return filter.column == name; })) {
      continue;
    }
    return absl::FailedPreconditionError(absl::StrCat(
        "column `", name,
        "` marks answers as desired or not, and every label "
        "is learnt; leave the rows with false out, take a recipe "
        "(docs/recipes.md), or name the columns in `columns` if all answers "
        "are to be learnt"));
  }
  return absl::OkStatus();
}

// Finds the columns of preference pairs.
absl::Status FindPair(const arrow::Schema& schema, RowMapping* mapping) {
  bool has_rejected = false;
  for (const std::string name : kPairColumns) {
    if (schema.GetAllFieldIndices(name).empty()) continue;
    BALLAST_ASSIGN_OR_RETURN(const arrow::DataType* type,
                             GetType(schema, name));
    if (!IsBytes(*type) && ItemType(*type) == nullptr &&
        type->id() != arrow::Type::STRUCT) {
      continue;
    }
    if (HasImagesInParts(*type)) {
      return Mismatch(name, *type,
                      "parts without images: those are read from a column "
                      "`images`, in the order of the parts");
    }
    has_rejected |= absl::StartsWith(name, "rejected");
    mapping->beside.push_back(name);
  }
  if (!has_rejected) {
    return absl::FailedPreconditionError(absl::StrCat(
        NoPairFault().message(), ". The file has ", Listed(schema)));
  }
  mapping->is_pair = true;
  mapping->shape = TurnShape::kMessages;
  mapping->turns = mapping->beside.front();
  return absl::OkStatus();
}

// Numbers or nulls, or a list of them.
bool FitsField(const arrow::DataType& type) {
  const arrow::DataType* item = ItemType(type);
  const arrow::DataType& value = item == nullptr ? type : *item;
  return IsNumber(value) || value.id() == arrow::Type::NA;
}

// Finds the columns of sources[].fields, and the keys of turns.
absl::Status FindFields(const arrow::Schema& schema,
                        const ParquetColumns& columns, RowMapping* mapping) {
  const auto is_among = [](const std::vector<std::string>& names,
                           const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const auto turns = schema.GetFieldByName(mapping->turns);
  const arrow::DataType* turn =
      turns == nullptr ? nullptr : ItemType(*turns->type());
  for (const std::string& name : columns.fields) {
    if (!schema.GetAllFieldIndices(name).empty()) {
      BALLAST_ASSIGN_OR_RETURN(const arrow::DataType* type,
                               GetType(schema, name));
      if (!FitsField(*type)) {
        return Mismatch(name, *type,
                        "a number or a list of numbers, as sources[].fields "
                        "names it");
      }
      mapping->fields.push_back(name);
      continue;
    }
    const bool in_turns = is_among(columns.turn_fields, name);
    if (in_turns && turn != nullptr && FieldType(*turn, name) != nullptr) {
      mapping->turn_fields.push_back(name);
    } else if (!is_among(columns.may_lack, name) &&
               !(in_turns && IsText(turns->type().get()))) {
      return absl::FailedPreconditionError(absl::StrCat(
          "no column ", name, ", which sources[].fields names; the file has ",
          Listed(schema), "; give the field a default if some files lack it"));
    }
  }
  return absl::OkStatus();
}

// The columns of images and audio.
absl::Status RecogniseMedia(const arrow::Schema& schema, RowMapping* mapping) {
  BALLAST_ASSIGN_OR_RETURN(
      mapping->images,
      Recognise(schema, {"images", "image"},
                [](const std::string&, const arrow::DataType& type) {
                  return FitsImages(type);
                }));
  if (mapping->images.empty()) {
    BALLAST_ASSIGN_OR_RETURN(
        mapping->images,
        Recognise(schema, {"images", "image"},
                  [](const std::string&, const arrow::DataType& type) {
                    return IsNothing(type);
                  }));
  }
  if (mapping->shape == TurnShape::kPlaces && !mapping->images.empty()) {
    const arrow::DataType& images =
        *schema.GetFieldByName(mapping->images)->type();
    if (ItemType(images) == nullptr && !IsNothing(images)) {
      return Mismatch(mapping->images, images,
                      "a list as long as `texts`, with nulls where these have "
                      "texts");
    }
  }
  BALLAST_RETURN_IF_ERROR(FindAudios(schema, mapping));
  BALLAST_RETURN_IF_ERROR(CheckNoOtherImages(schema, *mapping));
  return CheckNoNamedMedia(schema, *mapping);
}

absl::Status RecogniseColumns(const arrow::Schema& schema,
                              RowMapping* mapping) {
  BALLAST_ASSIGN_OR_RETURN(
      mapping->turns,
      Recognise(schema, {"conversations", "messages", "texts"},
                [](const std::string& name, const arrow::DataType& type) {
                  return FitsTurns(type, ShapeNamed(name, type));
                }));
  if (!mapping->turns.empty()) {
    mapping->shape = ShapeNamed(mapping->turns,
                                *schema.GetFieldByName(mapping->turns)->type());
  } else if (const auto text = schema.GetFieldByName("text");
             text != nullptr && IsTextType(*text->type())) {
    mapping->turns = "text";
    mapping->shape = TurnShape::kText;
  } else {
    return absl::FailedPreconditionError(
        absl::StrCat("no column conversations, messages or texts with turns, "
                     "and none of text; "
                     "name the columns in `columns`. The file has ",
                     Listed(schema)));
  }
  return RecogniseMedia(schema, mapping);
}

absl::Status CheckFilters(const arrow::Schema& schema,
                          const std::vector<RowFilter>& filters) {
  for (const RowFilter& filter : filters) {
    BALLAST_ASSIGN_OR_RETURN(const arrow::DataType* type,
                             GetType(schema, filter.column));
    if (filter.is_text ? IsBytes(*type) : IsNumber(*type)) continue;
    return Mismatch(filter.column, *type,
                    filter.is_text
                        ? "a text, as its filter compares with one"
                        : "a number, as its filter compares with one");
  }
  return absl::OkStatus();
}

}  // namespace

TurnFields GetFields(TurnShape shape) {
  switch (shape) {
    case TurnShape::kConversations:
      return {"from", "value"};
    case TurnShape::kMessages:
      return {"role", "content"};
    case TurnShape::kTexts:
      return {"user", "assistant"};
    case TurnShape::kPlaces:
    case TurnShape::kText:
      break;
  }
  return {"", ""};
}

absl::StatusOr<RowMapping> MapColumns(const arrow::Schema& schema,
                                      const ParquetColumns& columns) {
  RowMapping mapping;
  mapping.filters = columns.filters;
  if (columns.whole_rows) {
    mapping.whole = schema.field_names();
    for (const std::string& name : mapping.whole) {
      BALLAST_RETURN_IF_ERROR(GetType(schema, name).status());
    }
    BALLAST_RETURN_IF_ERROR(CheckFilters(schema, mapping.filters));
    return mapping;
  }
  if (!columns.named && !columns.pairs) {
    BALLAST_RETURN_IF_ERROR(CheckNoPair(schema));
    BALLAST_RETURN_IF_ERROR(CheckNoVerdict(schema, columns.filters));
  }
  if (columns.pairs) {
    BALLAST_RETURN_IF_ERROR(FindPair(schema, &mapping));
    BALLAST_RETURN_IF_ERROR(RecogniseMedia(schema, &mapping));
  } else if (columns.recognise) {
    BALLAST_RETURN_IF_ERROR(RecogniseColumns(schema, &mapping));
  } else {
    mapping.images = columns.images;
    mapping.audios = columns.audios;
    // A preset says nothing of audio.
    if (!columns.named) BALLAST_RETURN_IF_ERROR(FindAudios(schema, &mapping));
    if (!mapping.audios.empty()) {
      BALLAST_ASSIGN_OR_RETURN(const arrow::DataType* audios,
                               GetType(schema, mapping.audios));
      if (!FitsVideos(*audios) && !IsNothing(*audios)) {
        return Mismatch(mapping.audios, *audios, kWantedAudios);
      }
    }
    mapping.turns = columns.turns;
    mapping.shape = columns.shape;
    BALLAST_ASSIGN_OR_RETURN(const arrow::DataType* turns,
                             GetType(schema, mapping.turns));
    if (!FitsTurns(*turns, mapping.shape)) {
      return Mismatch(mapping.turns, *turns, WantedTurns(mapping.shape));
    }
    if (!mapping.images.empty()) {
      BALLAST_ASSIGN_OR_RETURN(const arrow::DataType* images,
                               GetType(schema, mapping.images));
      if (!FitsImages(*images) && !IsNothing(*images)) {
        return Mismatch(mapping.images, *images, kWantedImages);
      }
    }
  }
  if (mapping.shape == TurnShape::kMessages && !mapping.is_pair) {
    BALLAST_ASSIGN_OR_RETURN(const arrow::DataType* turns,
                             GetType(schema, mapping.turns));
    mapping.parts_hold_images = HasImagesInParts(*turns);
  }
  BALLAST_RETURN_IF_ERROR(FindVideos(schema, &mapping));
  BALLAST_RETURN_IF_ERROR(FindBeside(schema, &mapping));
  BALLAST_RETURN_IF_ERROR(FindFields(schema, columns, &mapping));
  BALLAST_RETURN_IF_ERROR(CheckFilters(schema, mapping.filters));
  return mapping;
}

std::vector<std::string> ColumnsToRead(const RowMapping& mapping) {
  if (!mapping.whole.empty()) return mapping.whole;
  std::vector<std::string> names = {mapping.turns};
  const auto add = [&names](const std::string& name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  };
  if (!mapping.images.empty()) add(mapping.images);
  if (!mapping.videos.empty()) add(mapping.videos);
  if (!mapping.audios.empty()) add(mapping.audios);
  for (const std::string& name : mapping.beside) add(name);
  for (const std::string& name : mapping.fields) add(name);
  for (const RowFilter& filter : mapping.filters) add(filter.column);
  return names;
}

bool IsRead(const RowMapping& mapping, const std::string& column,
            const std::string& field) {
  if (column == mapping.images || column == mapping.videos ||
      column == mapping.audios) {
    return field == "bytes" || field == "path";
  }
  const TurnFields fields = GetFields(mapping.shape);
  const auto is_among = [&field](const auto& names) {
    return std::find(std::begin(names), std::end(names), field) !=
           std::end(names);
  };
  if (field == fields.first || field == fields.second) return true;
  if (mapping.shape == TurnShape::kTexts) return false;
  if (is_among(kTurnSettings) || is_among(kTurnKeys) ||
      is_among(mapping.turn_fields)) {
    return true;
  }
  return mapping.shape == TurnShape::kMessages &&
         (field == "type" || field == "text" || field == "path" ||
          field == "image" || field == "video" || field == "index" ||
          is_among(kPartSettings) || is_among(kTextParts));
}

}  // namespace ballast
