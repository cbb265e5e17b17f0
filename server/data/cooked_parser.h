#ifndef BALLAST_SERVER_DATA_COOKED_PARSER_H_
#define BALLAST_SERVER_DATA_COOKED_PARSER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/data/record_parser.h"
#include "server/recipe/recipe.h"

namespace ballast {

// The record that `cooked` describes: its text, and its media where `raw` has
// them, or below `root`. `text_check` is RecipeRecord::hash in the upper half,
// and CookedSample::hash in the lower. Pure. Errors: a data fault (a medium
// that is not there; a path without a `root`, or that CheckMediaPath refuses;
// over the bounds of data_fault.h).
absl::StatusOr<Record> MakeCookedRecord(RawRecord raw, CookedSample cooked,
                                        const MediaRoot* root);

// The paths of media that `sample` names, of those that may be followed.
std::vector<std::string> PathsOf(const CookedSample& sample);

// The parser of source `source`, whose records `raw` finds and `recipe` makes
// to samples. Scan cooks many records at a time; Read blocks while
// Python runs, and is ABORTED from memory. Errors of Read, in addition to
// RecordParser's: a data fault of kind kByRecipe (Recipe::Cook; the recipe gave
// another answer than when the record was indexed).
std::unique_ptr<RecordParser> MakeCookedParser(
    std::unique_ptr<RawRecordParser> raw, std::shared_ptr<const Recipe> recipe,
    std::string source);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_COOKED_PARSER_H_
