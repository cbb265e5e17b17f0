#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/config/path_pattern.h"
#include "server/corpus/cooked_parser.h"
#include "server/corpus/record_parser.h"

namespace ballast {
namespace {

// All formats with files. A new one adds a line here.
constexpr const RecordFormat* kFormats[] = {
    &kWebDatasetFormat, &kJsonlFormat,    &kParquetFormat,
    &kEnergonFormat,    &kMegatronFormat,
};

absl::StatusOr<std::shared_ptr<const Recipe>> GetRecipe(
    const v1::Source& source, absl::string_view directory) {
  auto recipe =
      Recipes::OfProcess().Get(ResolvePath(directory, source.recipe()));
  if (recipe.ok()) return recipe;
  return Annotate(recipe.status(), "sources[].recipe");
}

}  // namespace

absl::StatusOr<const RecordFormat*> FindFormat(const v1::Source& source) {
  for (const RecordFormat* format : kFormats) {
    if (format->format != source.format()) continue;
    if (format->check != nullptr) {
      BALLAST_RETURN_IF_ERROR(
          Annotate(format->check(), absl::StrCat("source ", source.name())));
    }
    return format;
  }
  return absl::UnimplementedError(absl::StrCat(
      "source ", source.name(),
      ": only webdataset, jsonl, parquet, energon and megatron sources have "
      "files to read"));
}

absl::StatusOr<std::unique_ptr<RecordParser>> MakeParser(
    const v1::Source& source, absl::string_view directory) {
  BALLAST_ASSIGN_OR_RETURN(const RecordFormat* format, FindFormat(source));
  if (source.recipe().empty()) return format->make(source, directory);
  BALLAST_ASSIGN_OR_RETURN(std::shared_ptr<const Recipe> recipe,
                           GetRecipe(source, directory));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<RawRecordParser> raw,
                           format->make_raw(source, directory));
  return MakeCookedParser(std::move(raw), std::move(recipe), source.name());
}

absl::StatusOr<std::string> GetRecipeName(const v1::Source& source,
                                          absl::string_view directory) {
  if (source.recipe().empty()) return std::string();
  BALLAST_ASSIGN_OR_RETURN(const std::shared_ptr<const Recipe> recipe,
                           GetRecipe(source, directory));
  return recipe->name();
}

}  // namespace ballast
