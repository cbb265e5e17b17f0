#include "server/data/record_parser.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/index/file_scan.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/element_reader.h"
#include "server/files/path_pattern.h"
#include "server/files/store_reader.h"
#include "server/sample/data_fault.h"
#include "server/sample/index_format.h"

namespace ballast {
namespace {

// The record of a line or array element. `has_fields`: the source has some.
// Errors: as ReadJsonSample.
absl::StatusOr<Record> GetRecord(std::string text, uint64_t offset,
                                 uint64_t number, absl::string_view file_name,
                                 bool has_fields) {
  Record record;
  record.entry.length = static_cast<uint32_t>(text.size());
  record.entry.text_check = Checksum(text);
  BALLAST_ASSIGN_OR_RETURN(JsonSample found, ReadJsonSample(&text));
  record.key = absl::StrCat(number);
  record.name = absl::StrCat(file_name, ":", number);
  record.where = absl::StrCat("line ", number);
  record.text_format = found.text_format;
  record.entry.offset = offset;
  record.entry.line = static_cast<uint32_t>(number);
  if (found.text_format != RawSample::TextFormat::kPlain) {
    record.text = std::move(text);
  } else {
    record.text = std::move(found.document);
    if (has_fields) record.fields = std::move(text);
  }
  for (const MediumKind kind : MediumKinds()) {
    for (NamedMedium& named : found.media[kind]) {
      RecordMedium& medium = record.media.emplace_back();
      medium.kind = kind;
      medium.is_list = !named.frames.empty();
      for (const std::string& path : named.frames) {
        medium.parts.push_back({"", MediumPath{path}});
      }
      if (!medium.is_list) medium.parts.push_back({"", MediumPath{named.path}});
      medium.named = std::move(named);
    }
  }
  return record;
}

// Reads lines, or the elements of an array.
class ObjectReader {
 public:
  ObjectReader(const File* file, bool is_array) {
    if (is_array) {
      elements_.emplace(file, kMaxTextBytes);
    } else {
      lines_.emplace(file, kMaxTextBytes);
    }
  }
  absl::StatusOr<std::optional<Line>> Next() {
    return elements_ ? elements_->Next() : lines_->Next();
  }
  // Where an array is damaged.
  uint64_t offset() const { return elements_ ? elements_->offset() : 0; }

 private:
  std::optional<LineReader> lines_;
  std::optional<ElementReader> elements_;
};

// Passes each object of a file that is not blank to `add`, whose error ends the
// scan. `scan` is a FileScanner or a RawRecordSink.
template <typename Scan, typename Add>
absl::Status ScanObjects(const File& file, Scan& scan, Add add) {
  BALLAST_RETURN_IF_ERROR(CheckNotCompressed(file, scan.name()));
  BALLAST_ASSIGN_OR_RETURN(const bool is_array, IsJsonArray(file));
  ObjectReader objects(&file, is_array);
  while (true) {
    const absl::StatusOr<std::optional<Line>> line = objects.Next();
    if (is_array && absl::IsDataLoss(line.status())) {
      return scan.AddDamage(objects.offset(), "", line.status());
    }
    BALLAST_RETURN_IF_ERROR(line.status());
    if (!line->has_value()) return absl::OkStatus();
    const bool blank = (*line)->length <= kMaxTextBytes &&
                       absl::StripLeadingAsciiWhitespace((*line)->text).empty();
    if (blank) continue;
    BALLAST_RETURN_IF_ERROR(add(**line));
    scan.Advance((*line)->offset + (*line)->length);
  }
}

absl::Status CheckLine(const Line& line) {
  if (line.length > kMaxTextBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "object of ", line.length, " bytes, wanted at most ", kMaxTextBytes));
  }
  if (line.number > kMaxLineNumber) {
    return absl::InvalidArgumentError(
        absl::StrCat("object ", line.number, ", wanted at most ",
                     kMaxLineNumber, " in a file; split the file"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadLine(const IndexSampleRecord& entry,
                                     const FileView& file) {
  if (entry.length > kMaxTextBytes) {
    return DataFaultError(absl::StrCat("line of ", entry.length, " bytes"));
  }
  return file.ReadAt(entry.offset, entry.length);
}

class JsonlParser final : public RecordParser {
 public:
  JsonlParser(MediaRoot media, bool has_fields)
      : media_(std::move(media)), has_fields_(has_fields) {}

  absl::Status Scan(const File& file, FileScanner& scanner) const override {
    return ScanObjects(file, scanner, [&](const Line& line) {
      return scanner.Listed(line.offset, absl::StrCat(line.number),
                            Add(line, file, scanner));
    });
  }

  absl::StatusOr<Record> Read(const IndexSampleRecord& entry, FileView file,
                              absl::string_view file_name,
                              const ReadParts& /*parts*/,
                              const IndexedKinds& /*kinds*/) const override {
    BALLAST_ASSIGN_OR_RETURN(std::string line, ReadLine(entry, file));
    if (Checksum(line) != entry.text_check) {
      return DataFaultError(absl::StrCat("line ", entry.line, " is another"));
    }
    auto record = GetRecord(std::move(line), entry.offset, entry.line,
                            file_name, has_fields_);
    if (record.ok()) return record;
    return Annotate(record.status(), absl::StrCat("line ", entry.line));
  }

  bool HoldsImages() const override { return false; }
  const MediaRoot* media() const override { return &media_; }

  absl::StatusOr<std::vector<std::string>> StoredMedia(
      const IndexSampleRecord& entry, FileView file,
      absl::string_view /*file_name*/) const override {
    std::vector<std::string> paths;
    if (!media_.InStore() || entry.image_check == 0 ||
        entry.length > kMaxTextBytes) {
      return paths;
    }
    BALLAST_RETURN_IF_ERROR(
        file.Load({RangeToKeep({entry.offset, entry.length}, file.size())}));
    BALLAST_ASSIGN_OR_RETURN(std::string line,
                             file.ReadAt(entry.offset, entry.length));
    // Read says what is wrong with one that is not understood.
    const absl::StatusOr<JsonSample> found = ReadJsonSample(&line);
    if (!found.ok()) return paths;
    paths = found->paths();
    return paths;
  }

 private:
  // Adds the object to the scan, or returns why it is bad.
  absl::Status Add(const Line& line, const File& file,
                   FileScanner& scanner) const {
    BALLAST_RETURN_IF_ERROR(CheckLine(line));
    BALLAST_ASSIGN_OR_RETURN(
        Record record, GetRecord(std::string(line.text), line.offset,
                                 line.number, scanner.name(), has_fields_));
    return scanner.AddRecord(std::move(record), file, &media_);
  }

  const MediaRoot media_;
  const bool has_fields_;
};

RawRecord GetRawRecord(std::string text, uint64_t offset, uint64_t number,
                       absl::string_view file_name) {
  RawRecord raw;
  raw.record.key = absl::StrCat(number);
  raw.record.name = absl::StrCat(file_name, ":", number);
  raw.record.where = absl::StrCat("line ", number);
  raw.record.entry.offset = offset;
  raw.record.entry.length = static_cast<uint32_t>(text.size());
  raw.record.entry.line = static_cast<uint32_t>(number);
  raw.given.text = std::move(text);
  return raw;
}

// Lines for a recipe, whatever they hold.
class RawJsonlParser final : public RawRecordParser {
 public:
  explicit RawJsonlParser(MediaRoot media) : media_(std::move(media)) {}

  absl::Status Scan(const File& file, RawRecordSink& sink) const override {
    return ScanObjects(file, sink, [&](const Line& line) {
      const absl::Status checked = CheckLine(line);
      if (!checked.ok()) {
        return sink.AddBad(line.offset, absl::StrCat(line.number), checked);
      }
      return sink.Add(GetRawRecord(std::string(line.text), line.offset,
                                   line.number, sink.name()));
    });
  }

  absl::StatusOr<RawRecord> Read(const IndexSampleRecord& entry, FileView file,
                                 absl::string_view file_name) const override {
    BALLAST_ASSIGN_OR_RETURN(std::string line, ReadLine(entry, file));
    return GetRawRecord(std::move(line), entry.offset, entry.line, file_name);
  }

  bool HoldsImages() const override { return false; }
  const MediaRoot* media() const override { return &media_; }

 private:
  const MediaRoot media_;
};

}  // namespace

const RecordFormat kJsonlFormat = {
    v1::Source::FORMAT_JSONL,
    /*check=*/nullptr,
    /*list_files=*/nullptr,
    /*key=*/nullptr,
    /*names_media=*/true,
    /*in_groups=*/false,
    [](const v1::Source& source, absl::string_view directory)
        -> absl::StatusOr<std::unique_ptr<RecordParser>> {
      BALLAST_ASSIGN_OR_RETURN(MediaRoot media,
                               MediaRoot::Create(source, directory));
      return std::make_unique<JsonlParser>(std::move(media),
                                           !source.fields().empty());
    },
    [](const v1::Source& source, absl::string_view directory)
        -> absl::StatusOr<std::unique_ptr<RawRecordParser>> {
      BALLAST_ASSIGN_OR_RETURN(MediaRoot media,
                               MediaRoot::Create(source, directory));
      return std::make_unique<RawJsonlParser>(std::move(media));
    }};

}  // namespace ballast
