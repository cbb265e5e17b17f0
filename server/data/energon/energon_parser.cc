#include "server/data/record_parser.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "server/data/energon/energon_content.h"
#include "server/data/energon/energon_folder.h"
#include "server/data/energon/energon_index.h"
#include "server/data/energon/energon_tar.h"
#include "server/data/index/file_scan.h"
#include "server/data/index/probe_media.h"
#include "server/sample/data_fault.h"
#include "server/sample/index_format.h"

namespace ballast {
namespace {

constexpr char kPrepareAgain[] =
    "; the tar has changed since `energon prepare`: run it again";

// Scans one tar file of an Energon folder, for samples (FileScanner) or for the
// records of a recipe (RawRecordSink).
template <typename Scan>
class EnergonScan {
 public:
  EnergonScan(const File* file, const EnergonFolder* folder,
              const EnergonShard* shard, EnergonIndex* index, Scan* scanner)
      : file_(*file),
        folder_(*folder),
        shard_(*shard),
        index_(index),
        scanner_(*scanner) {}

  absl::Status Run() {
    // Without index.sqlite, the samples are found in the tar file itself.
    EnergonTarReader tar(&file_, 0, file_.stamp().size, /*whole=*/true);
    while (true) {
      const auto sample = index_ != nullptr ? index_->Next() : tar.Next();
      if (index_ == nullptr && absl::IsDataLoss(sample.status())) {
        return AddDamage(tar, sample.status());
      }
      BALLAST_RETURN_IF_ERROR(sample.status());
      if (!*sample) return CheckCount();
      ++found_;
      BALLAST_RETURN_IF_ERROR(Take(**sample));
      before_ = **sample;
    }
  }

 private:
  absl::Status Take(const EnergonTarSample& sample) {
    if (IsExcluded(sample)) {
      scanner_.AddFiltered();
      return absl::OkStatus();
    }
    BALLAST_RETURN_IF_ERROR(Add(sample));
    scanner_.Advance(sample.end);
    return absl::OkStatus();
  }

  // The last sample before damage is taken as complete if its parts have the
  // names of the previous sample's.
  absl::Status AddDamage(const EnergonTarReader& tar,
                         const absl::Status& damage) {
    const EnergonTarSample& last = tar.pending();
    const bool is_whole = std::equal(
        last.parts.begin(), last.parts.end(), before_.parts.begin(),
        before_.parts.end(), [](const EnergonPart& a, const EnergonPart& b) {
          return a.name == b.name;
        });
    if (is_whole && !last.key.empty()) BALLAST_RETURN_IF_ERROR(Take(last));
    return scanner_.AddDamage(tar.offset(), is_whole ? "" : Printable(last.key),
                              damage);
  }

  bool IsExcluded(const EnergonTarSample& sample) const {
    return !folder_.excluded.empty() && folder_.excluded.contains(absl::StrCat(
                                            shard_.name, "/", sample.key));
  }

  // Holds the number of samples against what the folder says.
  absl::Status CheckCount() const {
    if (found_ == shard_.count) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat(
        file_.path(), ": ", found_, " samples, .info of the folder has ",
        shard_.count, kPrepareAgain));
  }

  // Lists the sample as bad, or adds it to the scan.
  absl::Status Add(const EnergonTarSample& sample) {
    absl::StatusOr<EnergonTarSample> found = Find(sample);
    if constexpr (std::is_same_v<Scan, FileScanner>) {
      return scanner_.Listed(
          sample.begin, Printable(sample.key),
          found.ok() ? AddSample(*std::move(found)) : found.status());
    } else {
      absl::StatusOr<RawRecord> raw =
          found.ok()
              ? ReadRawMembers(&file_, *std::move(found), scanner_.name())
              : absl::StatusOr<RawRecord>(found.status());
      return raw.ok() ? scanner_.Add(*std::move(raw))
                      : scanner_.AddBad(sample.begin, Printable(sample.key),
                                        raw.status());
    }
  }

  // The sample as the tar file has it, or why it is bad.
  absl::StatusOr<EnergonTarSample> Find(const EnergonTarSample& sample) const {
    if (sample.end - sample.begin > kMaxSampleSpan) {
      return absl::InvalidArgumentError(
          absl::StrCat("its members span ", sample.end - sample.begin,
                       " bytes, wanted at most ", kMaxSampleSpan));
    }
    if (index_ == nullptr) return sample;
    // The offsets of the database lead there; the tar must agree with them.
    BALLAST_ASSIGN_OR_RETURN(
        EnergonTarSample found,
        ReadEnergonSample(&file_, sample.begin, sample.end));
    if (found.key != sample.key ||
        (index_->has_parts() && found.parts != sample.parts)) {
      return absl::DataLossError(absl::StrCat(
          "index.sqlite has other parts at this place than the tar, which "
          "has sample ",
          Printable(found.key), " of ", found.parts.size(), " parts",
          kPrepareAgain));
    }
    return found;
  }

  absl::Status AddSample(EnergonTarSample sample) {
    BALLAST_ASSIGN_OR_RETURN(
        EnergonContent content,
        ReadEnergonContent(
            &file_, sample, folder_.fields,
            scanner_.options().read[MediumKind::kVideo] != nullptr,
            scanner_.options().read[MediumKind::kAudio] != nullptr));
    Record record =
        GetTarRecord(sample, content, std::move(content.text), scanner_.name());
    BALLAST_RETURN_IF_ERROR(CheckPlaces(record));
    BALLAST_RETURN_IF_ERROR(NameClips(&record));
    return scanner_.AddRecord(std::move(record), file_, /*media=*/nullptr,
                              [&](const Medium& image, const ImageSize& size) {
                                return CheckSize(sample.key, image.name, size);
                              });
  }

  // Holds the size in the image's header against the media metadata. A turned
  // image has its sides there as they are stored.
  absl::Status CheckSize(const std::string& key, const std::string& part,
                         ImageSize size) {
    if (index_ == nullptr) return absl::OkStatus();
    const std::string name = folder_.fields.type == EnergonType::kCrude
                                 ? part
                                 : absl::StrCat(key, ".", part);
    BALLAST_ASSIGN_OR_RETURN(const std::optional<ImageSize> known,
                             index_->GetSize(name));
    if (!known ||
        (known->width == size.width && known->height == size.height) ||
        (known->width == size.height && known->height == size.width)) {
      return absl::OkStatus();
    }
    return absl::DataLossError(
        absl::StrCat(Printable(name), ": an image of ", size.width, " x ",
                     size.height, ", the media metadata have ", known->width,
                     " x ", known->height, kPrepareAgain));
  }

  const File& file_;
  const EnergonFolder& folder_;
  const EnergonShard& shard_;
  EnergonIndex* const index_;  // null: an older folder
  Scan& scanner_;
  uint64_t found_ = 0;
  EnergonTarSample before_;  // the last one read
};

// The tar files of a folder.
class EnergonTars {
 public:
  explicit EnergonTars(EnergonFolder folder) : folder_(std::move(folder)) {
    for (const EnergonShard& shard : folder_.shards) {
      shards_.emplace(folder_.ShardPath(shard), shard);
    }
  }

  template <typename Scan>
  absl::Status ScanTar(const File& file, Scan& scan) const {
    const auto shard = shards_.find(file.path());
    if (shard == shards_.end()) {
      return absl::AbortedError(
          absl::StrCat(file.path(),
                       ": the folder's split changed while it was indexed; "
                       "index it again"));
    }
    std::unique_ptr<EnergonIndex> index;
    auto opened = EnergonIndex::Open(folder_.IndexPath(), shard->second.id);
    if (opened.ok()) {
      index = *std::move(opened);
    } else if (!absl::IsNotFound(opened.status())) {
      return opened.status();
    }
    return EnergonScan(&file, &folder_, &shard->second, index.get(), &scan)
        .Run();
  }

  const EnergonFields& fields() const { return folder_.fields; }

 private:
  const EnergonFolder folder_;
  absl::flat_hash_map<std::string, EnergonShard> shards_;  // by path
};

// Reads the headers of a sample's parts, its text, and images if requested;
// index.sqlite is read by the index alone. Takes from it the places of samples
// and parts, and holds the tar file against it, and the images' sizes against
// its media metadata.
class EnergonParser final : public RecordParser {
 public:
  explicit EnergonParser(EnergonFolder folder) : tars_(std::move(folder)) {}

  absl::Status Scan(const File& file, FileScanner& scanner) const override {
    return tars_.ScanTar(file, scanner);
  }

  absl::StatusOr<Record> Read(const IndexSampleRecord& entry, FileView file,
                              absl::string_view file_name,
                              const ReadParts& /*parts*/,
                              const IndexedKinds& kinds) const override {
    BALLAST_ASSIGN_OR_RETURN(
        const EnergonTarSample found,
        ReadEnergonSample(file, entry.offset, entry.offset + entry.length));
    absl::StatusOr<EnergonContent> content = ReadEnergonContent(
        file, found, tars_.fields(), kinds.lists, kinds.audio);
    if (!content.ok()) {
      return Annotate(content.status(),
                      absl::StrCat("key ", Printable(found.key)));
    }
    return GetTarRecord(found, *content, std::move(content->text), file_name);
  }

 private:
  const EnergonTars tars_;
};

class RawEnergonParser final : public RawRecordParser {
 public:
  explicit RawEnergonParser(EnergonFolder folder) : tars_(std::move(folder)) {}

  absl::Status Scan(const File& file, RawRecordSink& sink) const override {
    return tars_.ScanTar(file, sink);
  }

  absl::StatusOr<RawRecord> Read(const IndexSampleRecord& entry, FileView file,
                                 absl::string_view file_name) const override {
    BALLAST_ASSIGN_OR_RETURN(
        EnergonTarSample found,
        ReadEnergonSample(file, entry.offset, entry.offset + entry.length));
    return ReadRawMembers(file, std::move(found), file_name);
  }

 private:
  const EnergonTars tars_;
};

}  // namespace

const RecordFormat kEnergonFormat = {
    v1::Source::FORMAT_ENERGON,
    /*check=*/nullptr,
    [](const v1::Source& source, absl::string_view directory)
        -> absl::StatusOr<std::vector<std::string>> {
      BALLAST_ASSIGN_OR_RETURN(const EnergonFolder folder,
                               OpenEnergonFolder(source, directory));
      std::vector<std::string> paths;
      for (const EnergonShard& shard : folder.shards) {
        paths.push_back(folder.ShardPath(shard));
      }
      return paths;
    },
    [](const v1::Source& source, absl::string_view directory) {
      // Of a folder that cannot be read, which listing its files reports, a
      // text that fits no index.
      const auto folder = OpenEnergonFolder(source, directory);
      return folder.ok() ? folder->Key() + "\n" : std::string("unreadable");
    },
    /*names_media=*/false,
    /*in_groups=*/false,
    [](const v1::Source& source, absl::string_view directory)
        -> absl::StatusOr<std::unique_ptr<RecordParser>> {
      BALLAST_ASSIGN_OR_RETURN(EnergonFolder folder,
                               OpenEnergonFolder(source, directory));
      return std::make_unique<EnergonParser>(std::move(folder));
    },
    [](const v1::Source& source, absl::string_view directory)
        -> absl::StatusOr<std::unique_ptr<RawRecordParser>> {
      BALLAST_ASSIGN_OR_RETURN(EnergonFolder folder,
                               OpenEnergonFolder(source, directory));
      return std::make_unique<RawEnergonParser>(std::move(folder));
    }};

}  // namespace ballast
