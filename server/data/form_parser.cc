#include "server/data/form_parser.h"

#include <string>
#include <utility>
#include <vector>

#include "common/status_macros.h"
#include "server/data/cooked_parser.h"
#include "server/data/form/form.h"
#include "server/data/index/file_scan.h"
#include "server/data/index/probe_media.h"
#include "server/data/jsonl/media_root.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

// The media that a record has as text, and who owns its others.
struct Bytes {
  std::vector<std::string> media;
  std::shared_ptr<const void> others;
};

absl::StatusOr<Record> MakeRecord(const FormReader& form, RawRecord raw,
                                  const MediaRoot* root) {
  BALLAST_ASSIGN_OR_RETURN(FormSample made, form.Read(raw.given));
  if (!made.media.empty()) {
    const auto bytes = std::make_shared<Bytes>();
    bytes->media = std::move(made.media);
    bytes->others = std::move(raw.record.bytes);
    for (const std::string& medium : bytes->media) {
      raw.media.push_back({"a text in base64", absl::string_view(medium)});
    }
    raw.record.bytes = bytes;
  }
  return MakeCookedRecord(std::move(raw), std::move(made.sample), root);
}

class FormScan final : public RawRecordSink {
 public:
  FormScan(const FormReader* form, const File* file, const MediaRoot* root,
           FileScanner* scanner)
      : form_(*form), file_(*file), root_(root), scanner_(*scanner) {}

  const std::string& name() const override { return scanner_.name(); }
  absl::Status Add(RawRecord raw) override {
    const uint64_t offset = raw.record.entry.offset;
    const std::string key = raw.record.key;
    return scanner_.Listed(offset, key, AddRecord(std::move(raw)));
  }
  absl::Status AddBad(uint64_t offset, absl::string_view key,
                      const absl::Status& reason) override {
    return scanner_.AddBad(offset, key, reason);
  }
  absl::Status AddDamage(uint64_t offset, absl::string_view lost_key,
                         const absl::Status& reason) override {
    return scanner_.AddDamage(offset, lost_key, reason);
  }
  void AddFiltered() override { scanner_.AddFiltered(); }
  void Advance(uint64_t offset) override { scanner_.Advance(offset); }

 private:
  absl::Status AddRecord(RawRecord raw) {
    BALLAST_ASSIGN_OR_RETURN(Record record,
                             MakeRecord(form_, std::move(raw), root_));
    BALLAST_RETURN_IF_ERROR(CheckMarks(record));
    BALLAST_RETURN_IF_ERROR(NameClips(&record));
    return scanner_.AddRecord(std::move(record), file_, root_);
  }

  const FormReader& form_;
  const File& file_;
  const MediaRoot* const root_;
  FileScanner& scanner_;
};

class FormParser final : public RawBasedParser {
 public:
  FormParser(std::unique_ptr<RawRecordParser> raw, FormReader form)
      : RawBasedParser(std::move(raw)), form_(std::move(form)) {}

  absl::Status Scan(const File& file, FileScanner& scanner) const override {
    FormScan scan(&form_, &file, media(), &scanner);
    return records().Scan(file, scan);
  }

  absl::StatusOr<Record> Read(const IndexSampleRecord& entry, FileView file,
                              absl::string_view file_name,
                              const ReadParts& parts,
                              const IndexedKinds& /*kinds*/) const override {
    BALLAST_ASSIGN_OR_RETURN(RawRecord raw,
                             records().Read(entry, file, file_name));
    const std::string where = raw.record.where;
    if (parts.record) {
      raw.given.name = raw.record.name;
      raw.record.given = RecordJson(raw.given);
    }
    absl::StatusOr<Record> record = MakeRecord(form_, std::move(raw), media());
    if (!record.ok()) return Annotate(record.status(), where);
    // A hash of the record and one of the sample.
    if (record->entry.text_check != entry.text_check) {
      return Annotate(DataFaultError("the record is another"), where);
    }
    return record;
  }

  absl::StatusOr<std::vector<std::string>> StoredMedia(
      const IndexSampleRecord& entry, FileView file,
      absl::string_view file_name) const override {
    std::vector<std::string> paths;
    if (media() == nullptr || !media()->InStore() || entry.image_check == 0) {
      return paths;
    }
    BALLAST_ASSIGN_OR_RETURN(const std::vector<ByteRange> ranges,
                             records().Ranges(entry, file, /*images=*/false));
    BALLAST_RETURN_IF_ERROR(file.Load(ranges));
    auto raw = records().Read(entry, file, file_name);
    if (!raw.ok() && !IsDataFault(raw.status())) return raw.status();
    // Read says what is wrong with one that is not understood.
    if (!raw.ok()) return paths;
    const absl::StatusOr<FormSample> made = form_.Read(raw->given);
    if (!made.ok()) return paths;
    return PathsOf(made->sample);
  }

 private:
  const FormReader form_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<RecordParser>> MakeFormParser(
    std::unique_ptr<RawRecordParser> raw, const v1::Source& source) {
  std::vector<std::string> fields;
  for (const auto& [name, field] : source.fields()) fields.push_back(name);
  BALLAST_ASSIGN_OR_RETURN(FormReader form,
                           FormReader::Create(source.form(), fields));
  return std::make_unique<FormParser>(std::move(raw), std::move(form));
}

}  // namespace ballast
