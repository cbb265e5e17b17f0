#include "server/data/record_parser.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "server/data/energon/energon_tar.h"
#include "server/data/index/file_scan.h"
#include "server/data/index/probe_media.h"
#include "server/data/tar/webdataset_reader.h"
#include "server/sample/data_fault.h"
#include "server/sample/index_format.h"

namespace ballast {
namespace {

constexpr char kDuplicateKey[] =
    "duplicate key; its members do not stand together";

// The record of a sample whose fault is OK. Errors: as FileView::ReadAt.
absl::StatusOr<Record> GetRecord(const FileView& file, WebDatasetSample sample,
                                 absl::string_view file_name) {
  BALLAST_ASSIGN_OR_RETURN(std::string text,
                           file.ReadAt(sample.text.data, sample.text.size));
  return GetTarRecord(sample, sample, std::move(text), file_name);
}

// Whether the last sample before damage seems to have all its members: as many
// as the sample before it. Measuring its text compares its media with their
// marks.
bool IsWhole(const WebDatasetSample& last,
             const std::optional<WebDatasetSample>& before) {
  return before.has_value() && last.fault.ok() && before->fault.ok() &&
         last.text_format == before->text_format &&
         CountKinds(last.media) == CountKinds(before->media);
}

// Adds the sample to the scan, or returns why it is bad.
absl::Status AddSample(const File& file, const WebDatasetSample& sample,
                       FileScanner& scanner) {
  BALLAST_RETURN_IF_ERROR(sample.fault);
  if (sample.unknown.has_value()) {
    constexpr uint64_t kHead = 16;
    BALLAST_ASSIGN_OR_RETURN(
        const std::string head,
        file.ReadAt(sample.unknown->data,
                    std::min(sample.unknown->size, kHead)));
    if (IsMediaContent(head)) {
      return UnreadMedia(sample.unknown->name, "is media by its first bytes");
    }
  }
  BALLAST_ASSIGN_OR_RETURN(Record record,
                           GetRecord(&file, sample, scanner.name()));
  BALLAST_RETURN_IF_ERROR(Annotate(CheckMarks(record), sample.text.name));
  BALLAST_RETURN_IF_ERROR(Annotate(CheckPlaces(record), sample.text.name));
  const uint64_t span = sample.end - sample.begin;
  if (span > kMaxSampleSpan) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its members span ", span, " bytes, wanted at most ", kMaxSampleSpan));
  }
  BALLAST_RETURN_IF_ERROR(NameClips(&record));
  return scanner.AddRecord(std::move(record), file, /*media=*/nullptr);
}

class WebDatasetParser final : public RecordParser {
 public:
  absl::Status Scan(const File& file, FileScanner& scanner) const override {
    BALLAST_RETURN_IF_ERROR(CheckNotCompressed(file, scanner.name()));
    // Read only where a model takes videos, since servers read them only where
    // the index has one.
    const bool lists = scanner.options().read[MediumKind::kVideo] != nullptr;
    const bool audios = scanner.options().read[MediumKind::kAudio] != nullptr;
    WebDatasetReader reader(&file, 0, file.stamp().size, /*whole=*/true, lists,
                            audios);
    const absl::Status status = ScanSamples(file, reader, scanner);
    for (const auto& [extension, count] : reader.ignored()) {
      scanner.AddIgnored(Printable(extension), count);
    }
    return status;
  }

  absl::StatusOr<Record> Read(const IndexSampleRecord& entry, FileView file,
                              absl::string_view file_name,
                              const ReadParts& /*parts*/,
                              const IndexedKinds& kinds) const override {
    const uint64_t end = entry.offset + entry.length;
    WebDatasetReader reader(file, entry.offset, end, /*whole=*/false,
                            kinds.lists, kinds.audio);
    BALLAST_ASSIGN_OR_RETURN(std::optional<WebDatasetSample> found,
                             reader.Next());
    if (!found || found->begin != entry.offset || found->end != end) {
      return DataFaultError(
          absl::StrCat("no sample of ", entry.length, " bytes"));
    }
    if (!found->fault.ok()) {
      return Annotate(found->fault,
                      absl::StrCat("key ", Printable(found->key)));
    }
    return GetRecord(file, *std::move(found), file_name);
  }

 private:
  static absl::Status ScanSamples(const File& file, WebDatasetReader& reader,
                                  FileScanner& scanner) {
    // Digests of the keys so far. They have 128 bits, since a collision would
    // lose a sample.
    absl::flat_hash_set<Digest> seen;
    const auto add = [&](const WebDatasetSample& sample) {
      const absl::Status added =
          seen.insert(ComputeDigest(sample.key)).second
              ? AddSample(file, sample, scanner)
              : absl::InvalidArgumentError(kDuplicateKey);
      return scanner.Listed(sample.begin, Printable(sample.key), added);
    };
    std::optional<WebDatasetSample> before;
    while (true) {
      auto sample = reader.Next();
      if (absl::IsDataLoss(sample.status())) {
        std::string lost;
        if (const auto last = reader.TakePending()) {
          if (IsWhole(*last, before)) {
            BALLAST_RETURN_IF_ERROR(add(*last));
          } else {
            lost = Printable(last->key);
          }
        }
        return scanner.AddDamage(reader.offset(), lost, sample.status());
      }
      BALLAST_RETURN_IF_ERROR(sample.status());
      if (!*sample) return absl::OkStatus();
      BALLAST_RETURN_IF_ERROR(add(**sample));
      scanner.Advance((*sample)->end);
      before = *std::move(sample);
    }
  }
};

// All members of each sample for a recipe, grouped as in WebDataset.
class RawTarParser final : public RawRecordParser {
 public:
  absl::Status Scan(const File& file, RawRecordSink& sink) const override {
    BALLAST_RETURN_IF_ERROR(CheckNotCompressed(file, sink.name()));
    EnergonTarReader reader(&file, 0, file.stamp().size, /*whole=*/true);
    absl::flat_hash_set<Digest> seen;
    while (true) {
      auto sample = reader.Next();
      if (absl::IsDataLoss(sample.status())) {
        return sink.AddDamage(reader.offset(), Printable(reader.pending().key),
                              sample.status());
      }
      BALLAST_RETURN_IF_ERROR(sample.status());
      if (!*sample) return absl::OkStatus();
      const std::string key = Printable((*sample)->key);
      const uint64_t begin = (*sample)->begin;
      const uint64_t end = (*sample)->end;
      absl::StatusOr<RawRecord> raw =
          seen.insert(ComputeDigest((*sample)->key)).second
              ? ReadRawMembers(&file, **std::move(sample), sink.name())
              : absl::InvalidArgumentError(kDuplicateKey);
      BALLAST_RETURN_IF_ERROR(raw.ok() ? sink.Add(*std::move(raw))
                                       : sink.AddBad(begin, key, raw.status()));
      sink.Advance(end);
    }
  }

  absl::StatusOr<RawRecord> Read(const IndexSampleRecord& entry, FileView file,
                                 absl::string_view file_name) const override {
    BALLAST_ASSIGN_OR_RETURN(
        EnergonTarSample found,
        ReadEnergonSample(file, entry.offset, entry.offset + entry.length));
    return ReadRawMembers(file, std::move(found), file_name);
  }
};

}  // namespace

const RecordFormat kWebDatasetFormat = {
    v1::Source::FORMAT_WEBDATASET,
    /*check=*/nullptr,
    /*list_files=*/nullptr,
    /*key=*/nullptr,
    /*names_media=*/false,
    /*in_groups=*/false,
    [](const v1::Source&,
       absl::string_view) -> absl::StatusOr<std::unique_ptr<RecordParser>> {
      return std::make_unique<WebDatasetParser>();
    },
    [](const v1::Source&,
       absl::string_view) -> absl::StatusOr<std::unique_ptr<RawRecordParser>> {
      return std::make_unique<RawTarParser>();
    }};

}  // namespace ballast
