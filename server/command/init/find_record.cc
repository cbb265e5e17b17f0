#include "server/command/init/find_record.h"

#include <iostream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/corpus/source_files.h"
#include "server/storage/storage.h"

namespace ballast {
namespace {

// Keeps record `wanted` of those that come.
class RecordFinder final : public RawRecordSink {
 public:
  RecordFinder(uint64_t wanted, bool reports)
      : left_(wanted), reports_(reports) {}

  void BeginFile(std::string name) { name_ = std::move(name); }
  std::optional<RawRecord>& found() { return found_; }

  const std::string& name() const override { return name_; }
  absl::Status Add(RawRecord record) override {
    if (left_-- > 0) return absl::OkStatus();
    found_ = std::move(record);
    return absl::CancelledError("found");
  }
  absl::Status AddBad(uint64_t offset, absl::string_view key,
                      const absl::Status& reason) override {
    if (!reports_) return absl::OkStatus();
    std::cerr << name_ << " at byte " << offset << ", sample " << key << ": "
              << reason.message() << "\n";
    return absl::OkStatus();
  }
  absl::Status AddDamage(uint64_t offset, absl::string_view lost_key,
                         const absl::Status& reason) override {
    return AddBad(offset, lost_key, reason);
  }
  void AddFiltered() override {}
  void Advance(uint64_t /*offset*/) override {}

 private:
  std::string name_;
  uint64_t left_;
  const bool reports_;
  std::optional<RawRecord> found_;
};

}  // namespace

absl::StatusOr<RawRecord> FindRecord(const v1::Source& source,
                                     const std::string& directory,
                                     uint64_t number, bool reports) {
  BALLAST_ASSIGN_OR_RETURN(const RecordFormat* format, FindFormat(source));
  BALLAST_ASSIGN_OR_RETURN(const std::vector<SourceFile> files,
                           ListSourceFiles(source, directory));
  BALLAST_ASSIGN_OR_RETURN(const std::unique_ptr<RawRecordParser> parser,
                           format->make_raw(source, directory));
  RecordFinder finder(number, reports);
  for (const SourceFile& each : files) {
    BALLAST_ASSIGN_OR_RETURN(const File file,
                             Storage::OfProcess().Open(each.path));
    finder.BeginFile(each.name);
    const absl::Status scanned = parser->Scan(file, finder);
    if (finder.found().has_value()) {
      RawRecord found = *std::move(finder.found());
      found.given.source = source.name();
      found.given.name = found.record.name;
      return found;
    }
    BALLAST_RETURN_IF_ERROR(scanned);
  }
  return absl::NotFoundError(absl::StrCat(
      "source ", source.name(), " has no record ", number, ", counted from 0"));
}

}  // namespace ballast
