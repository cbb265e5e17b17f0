#include "server/data/parquet/parquet_file.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace ballast {

const char* GetName(TurnShape shape) {
  switch (shape) {
    case TurnShape::kConversations:
      return "conversations";
    case TurnShape::kMessages:
      return "messages";
    case TurnShape::kTexts:
    case TurnShape::kPlaces:
      return "texts";
    case TurnShape::kText:
      return "text";
  }
  return "";
}

std::shared_ptr<RowGroupCache> RowGroupCache::OfProcess() {
  static const auto& cache = *new std::shared_ptr<RowGroupCache>(
      std::make_shared<RowGroupCache>(uint64_t{2} << 30));
  return cache;
}

ParquetColumns GetParquetColumns(const v1::Source& source) {
  ParquetColumns columns;
  for (const std::string& text : source.filters()) {
    // The configuration was refused if one cannot be parsed.
    auto filter = ParseRowFilter(text);
    if (filter.ok()) columns.filters.push_back(*std::move(filter));
  }
  columns.whole_rows = !source.recipe().empty() || source.has_form();
  if (columns.whole_rows) return columns;
  for (const FieldSpec& spec : GetFieldSpecs(source)) {
    columns.fields.push_back(spec.name);
    if (spec.per == v1::Source::Field::PER_TURN) {
      columns.turn_fields.push_back(spec.name);
    }
    if (spec.missing.has_value()) columns.may_lack.push_back(spec.name);
  }
  columns.pairs = source.pairs();
  const auto set = [&](const std::string& images, TurnShape shape,
                       const std::string& turns) {
    columns.images = images;
    columns.shape = shape;
    columns.turns = turns;
  };
  if (source.has_columns()) {
    const v1::Source::Columns& named = source.columns();
    columns.named = true;
    columns.audios = named.audios().empty() ? named.audio() : named.audios();
    const std::string& images =
        named.images().empty() ? named.image() : named.images();
    if (!named.texts().empty()) {
      set(images, TurnShape::kTexts, named.texts());
    } else if (!named.messages().empty()) {
      set(images, TurnShape::kMessages, named.messages());
    } else {
      set(images, TurnShape::kConversations, named.conversations());
    }
    return columns;
  }
  switch (source.preset()) {
    case v1::Source::PRESET_FINEVISION:
    case v1::Source::PRESET_CAULDRON:
      set("images", TurnShape::kTexts, "texts");
      break;
    case v1::Source::PRESET_LLAVA:
      set("image", TurnShape::kConversations, "conversations");
      break;
    case v1::Source::PRESET_OPENAI:
      set("images", TurnShape::kMessages, "messages");
      break;
    default:
      columns.recognise = true;
  }
  return columns;
}

std::string ParquetColumnsKey(const v1::Source& source) {
  const ParquetColumns columns = GetParquetColumns(source);
  // Raised when the same columns become other samples.
  //   5: tools, documents, and keys of turns that only some templates write
  //   6: preference pairs of a source that does not say so are refused
  //   7: a column of audio of another shape is refused, and
  //      media of pairs and of turns that are text are compared with parts;
  //      videos and audio of documents of parallel lists, and audio of presets
  //   8: `num_frames` of a part, and `weight` or `train` that are text
  constexpr int kRowRules = 8;
  std::string key =
      absl::StrCat(columns.recognise ? "recognised" : "", "\n", kRowRules);
  const auto add = [&key](const std::string& text) {
    absl::StrAppend(&key, "\n", text.size(), " ", text);
  };
  if (columns.whole_rows) add("whole rows");
  add(columns.images);
  add(columns.turns);
  add(GetName(columns.shape));
  if (!columns.audios.empty()) add(absl::StrCat("audio ", columns.audios));
  for (const std::string& filter : source.filters()) add(filter);
  return key;
}

}  // namespace ballast
