#ifndef BALLAST_SERVER_DATA_COOKED_PARSER_H_
#define BALLAST_SERVER_DATA_COOKED_PARSER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "server/data/record_parser.h"
#include "server/recipe/recipe.h"

namespace ballast {

// A parser that makes samples of the records that another finds: their places
// are the same.
class RawBasedParser : public RecordParser {
 public:
  bool HoldsImages() const override { return raw_->HoldsImages(); }
  const MediaRoot* media() const override { return raw_->media(); }
  absl::StatusOr<std::vector<ByteRange>> Ranges(const IndexSampleRecord& entry,
                                                FileView file,
                                                bool images) const override {
    return raw_->Ranges(entry, file, images);
  }
  void Forget(const IndexSampleRecord& entry,
              const FileView& file) const override {
    raw_->Forget(entry, file);
  }

 protected:
  explicit RawBasedParser(std::unique_ptr<RawRecordParser> raw)
      : raw_(std::move(raw)) {}

  const RawRecordParser& records() const { return *raw_; }

 private:
  const std::unique_ptr<const RawRecordParser> raw_;
};

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
