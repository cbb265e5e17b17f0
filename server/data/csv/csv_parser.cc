#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "server/data/csv/csv_rows.h"
#include "server/data/record_parser.h"
#include "server/recipe/turns_json.h"
#include "server/sample/data_fault.h"
#include "server/sample/index_format.h"

namespace ballast {
namespace {

constexpr uint64_t kChunk = 1 << 20;
// The line of names.
constexpr uint64_t kMostNames = 1 << 20;

struct Names {
  std::vector<std::string> columns;
  char separator = ',';
  uint64_t length = 0;  // bytes of the line, with a byte order mark
};

absl::StatusOr<Names> ParseNames(absl::string_view head, bool is_all) {
  Names names;
  names.length = RowLength(head, is_all);
  if (names.length == 0) {
    return DataFaultError("no line of column names at the beginning");
  }
  absl::string_view line = head.substr(0, names.length);
  absl::ConsumePrefix(&line, "\xEF\xBB\xBF");
  names.separator = FindSeparator(line);
  BALLAST_ASSIGN_OR_RETURN(names.columns, ParseRow(line, names.separator));
  std::set<absl::string_view> seen;
  for (const std::string& column : names.columns) {
    if (seen.insert(column).second) continue;
    return DataFaultError(
        absl::StrCat("two columns named \"", Printable(column), "\""));
  }
  return names;
}

absl::StatusOr<Names> ReadNames(const FileView& file) {
  const uint64_t size = file.size();
  for (uint64_t bytes = 4096;; bytes *= 16) {
    const uint64_t most = std::min({bytes, size, kMostNames});
    BALLAST_ASSIGN_OR_RETURN(const std::string head, file.ReadAt(0, most));
    auto names = ParseNames(head, most == size);
    if (names.ok() || most == size || most == kMostNames) return names;
  }
}

RawRecord PlaceRow(uint64_t offset, uint64_t length, uint64_t number,
                   absl::string_view file_name) {
  RawRecord raw;
  raw.record.key = absl::StrCat(number);
  raw.record.where = absl::StrCat("row ", number);
  raw.record.name = absl::StrCat(file_name, ": ", raw.record.where);
  raw.record.entry.offset = offset;
  raw.record.entry.length = static_cast<uint32_t>(length);
  raw.record.entry.line = static_cast<uint32_t>(number);
  return raw;
}

// The row as an object of JSON. Errors: a data fault.
absl::StatusOr<std::string> RowJson(absl::string_view row, const Names& names) {
  BALLAST_ASSIGN_OR_RETURN(const std::vector<std::string> values,
                           ParseRow(row, names.separator));
  if (values.size() != names.columns.size()) {
    return DataFaultError(absl::StrCat(values.size(), " values, and ",
                                       names.columns.size(), " columns"));
  }
  std::string json = "{";
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) json += ',';
    AppendJsonText(names.columns[i], &json);
    json += ':';
    AppendJsonText(values[i], &json);
  }
  return json + "}";
}

class RawCsvParser final : public RawRecordParser {
 public:
  explicit RawCsvParser(MediaRoot media) : media_(std::move(media)) {}

  absl::Status Scan(const File& file, RawRecordSink& sink) const override {
    const FileView view(&file);
    const absl::StatusOr<Names> names = ReadNames(view);
    if (IsDataFault(names.status())) return sink.AddBad(0, "", names.status());
    BALLAST_RETURN_IF_ERROR(names.status());
    std::string held;  // bytes from `begin` on
    uint64_t begin = names->length;
    uint64_t end = begin;
    size_t at = 0;  // of the next row in `held`
    for (uint64_t number = 1;;) {
      const absl::string_view left = absl::string_view(held).substr(at);
      const bool is_all = end == file.stamp().size;
      const size_t length = RowLength(left, is_all);
      if (length == 0 && !is_all && left.size() <= kMaxTextBytes) {
        held.erase(0, at);
        begin += at;
        at = 0;
        const uint64_t bytes = std::min<uint64_t>(
            std::max<uint64_t>(kChunk, held.size()), file.stamp().size - end);
        BALLAST_ASSIGN_OR_RETURN(const std::string more,
                                 file.ReadAt(end, bytes));
        held += more;
        end += bytes;
        continue;
      }
      if (length == 0 && is_all) return absl::OkStatus();
      const uint64_t offset = begin + at;
      if (length == 0 || number > kMaxLineNumber) {
        return sink.AddDamage(
            offset, "",
            absl::DataLossError(absl::StrCat(
                "row ", number, " has over ", kMaxTextBytes,
                " bytes, or is past the last that an index can hold; does a "
                "quote not close?")));
      }
      const absl::string_view row = left.substr(0, length);
      if (row != "\n" && row != "\r\n") {
        absl::StatusOr<std::string> json = RowJson(row, *names);
        if (json.ok()) {
          RawRecord raw = PlaceRow(offset, length, number, sink.name());
          raw.given.text = *std::move(json);
          BALLAST_RETURN_IF_ERROR(sink.Add(std::move(raw)));
        } else {
          BALLAST_RETURN_IF_ERROR(
              sink.AddBad(offset, absl::StrCat(number), json.status()));
        }
        ++number;
      }
      at += length;
      sink.Advance(begin + at);
    }
  }

  absl::StatusOr<RawRecord> Read(const IndexSampleRecord& entry, FileView file,
                                 absl::string_view file_name) const override {
    BALLAST_ASSIGN_OR_RETURN(const Names names, ReadNames(file));
    if (entry.length > kMaxTextBytes) {
      return DataFaultError(absl::StrCat("row of ", entry.length, " bytes"));
    }
    BALLAST_ASSIGN_OR_RETURN(const std::string row,
                             file.ReadAt(entry.offset, entry.length));
    RawRecord raw = PlaceRow(entry.offset, entry.length, entry.line, file_name);
    auto json = RowJson(row, names);
    if (!json.ok()) return Annotate(json.status(), raw.record.where);
    raw.given.text = *std::move(json);
    return raw;
  }

  bool HoldsImages() const override { return false; }
  const MediaRoot* media() const override { return &media_; }
  absl::StatusOr<std::vector<ByteRange>> Ranges(
      const IndexSampleRecord& entry, FileView file,
      bool /*images*/) const override {
    return std::vector<ByteRange>{
        RangeToKeep({0, std::min(kMostNames, file.size())}, file.size()),
        RangeToKeep({entry.offset, entry.length}, file.size())};
  }

 private:
  const MediaRoot media_;
};

}  // namespace

const RecordFormat kCsvFormat = {
    v1::Source::FORMAT_CSV,
    /*check=*/nullptr,
    /*list_files=*/nullptr,
    /*key=*/nullptr,
    /*names_media=*/true,
    /*in_groups=*/false,
    [](const v1::Source& source,
       absl::string_view) -> absl::StatusOr<std::unique_ptr<RecordParser>> {
      return absl::InvalidArgumentError(absl::StrCat(
          "source ", source.name(), ": a csv source needs form or recipe"));
    },
    [](const v1::Source& source, absl::string_view directory)
        -> absl::StatusOr<std::unique_ptr<RawRecordParser>> {
      BALLAST_ASSIGN_OR_RETURN(MediaRoot media,
                               MediaRoot::Create(source, directory));
      return std::make_unique<RawCsvParser>(std::move(media));
    }};

}  // namespace ballast
