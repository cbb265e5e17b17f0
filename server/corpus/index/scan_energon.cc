#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_path.h"
#include "server/corpus/energon/energon_content.h"
#include "server/corpus/energon/energon_index.h"
#include "server/corpus/energon/energon_tar.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/file_scan.h"
#include "server/corpus/index/probe_videos.h"
#include "server/corpus/limits.h"
#include "server/corpus/source_files.h"

namespace ballast {
namespace {

constexpr char kPrepareAgain[] =
    "; the tar has changed since `energon prepare`: run it again";

// Scans one tar file of an Energon folder.
class EnergonScan {
 public:
  EnergonScan(const File* file, const EnergonFolder* folder,
              const EnergonShard* shard, EnergonIndex* index,
              FileScanner* scanner)
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
    const absl::Status added = AddSample(sample);
    if (!added.ok()) {
      BALLAST_RETURN_IF_ERROR(
          scanner_.AddBad(sample.begin, Printable(sample.key), added));
    }
    scanner_.Advance(sample.end);
    return absl::OkStatus();
  }

  // The last sample before damage has all its parts, as far as one can tell, if
  // they are called as those of the sample before it.
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

  // Adds the sample to the scan, or returns why it is bad.
  absl::Status AddSample(EnergonTarSample sample) {
    if (sample.end - sample.begin > kMaxSampleSpan) {
      return absl::InvalidArgumentError(
          absl::StrCat("its members span ", sample.end - sample.begin,
                       " bytes, wanted at most ", kMaxSampleSpan));
    }
    if (index_ != nullptr) {
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
      sample = std::move(found);
    }
    BALLAST_ASSIGN_OR_RETURN(
        EnergonContent content,
        ReadEnergonContent(&file_, sample, folder_.fields,
                           scanner_.options().read_video != nullptr));
    ImagesHash image_hash;
    BALLAST_ASSIGN_OR_RETURN(
        ImageFacts images,
        ProbeImages(sample.key, content.images, &image_hash));
    BALLAST_ASSIGN_OR_RETURN(images.videos,
                             ProbeVideos(sample.key, content, &image_hash));
    RawSample raw;
    raw.name = WebDatasetSampleName(scanner_.name(), sample.key);
    raw.text_format = content.text_format;
    raw.video_facts = images.videos;
    IndexSampleRecord record = {};
    record.offset = sample.begin;
    record.length = static_cast<uint32_t>(sample.end - sample.begin);
    record.text_check = TextHash(sample.key, content.text);
    record.image_check = image_hash.value();
    raw.text = std::move(content.text);
    return scanner_.Add(record, Printable(sample.key), raw, images.view());
  }

  absl::StatusOr<ImageFacts> ProbeImages(const std::string& key,
                                         const std::vector<EnergonPart>& parts,
                                         ImagesHash* hash) {
    ImageFacts facts;
    for (const EnergonPart& part : parts) {
      const absl::StatusOr<ProbedImage> image = ProbeImage(
          file_, part.data, part.size, scanner_.options().read_image_size,
          scanner_.options().judge_image, hash);
      if (!image.ok()) {
        return Annotate(image.status(), Printable(part.name));
      }
      BALLAST_RETURN_IF_ERROR(CheckSize(key, part, image->size));
      facts.sizes.push_back(image->size);
      facts.marks.push_back(image->mark);
    }
    return facts;
  }

  absl::StatusOr<std::vector<IndexedVideo>> ProbeVideos(
      const std::string& key, const EnergonContent& content, ImagesHash* hash) {
    std::vector<size_t> pictures;
    for (const EnergonVideo& video : content.videos) {
      pictures.push_back(video.is_list ? video.parts.size() : 0);
    }
    BALLAST_ASSIGN_OR_RETURN(
        const std::vector<JsonVideo> clips,
        ReadClips(content.text_format, content.text, pictures));
    std::vector<IndexedVideo> facts;
    for (size_t i = 0; i < content.videos.size(); ++i) {
      const JsonVideo clip = clips.empty() ? JsonVideo() : clips[i];
      if (content.videos[i].is_list) {
        BALLAST_ASSIGN_OR_RETURN(
            const IndexedVideo list,
            ProbeList(key, content.videos[i].parts, clip, hash));
        facts.push_back(list);
        continue;
      }
      const EnergonPart& part = content.videos[i].parts[0];
      const absl::StatusOr<IndexedVideo> video = ProbeVideo(
          file_, part.data, part.size, clip, scanner_.options(), hash);
      if (!video.ok()) return Annotate(video.status(), Printable(part.name));
      facts.push_back(*video);
    }
    return facts;
  }

  absl::StatusOr<IndexedVideo> ProbeList(const std::string& key,
                                         const std::vector<EnergonPart>& parts,
                                         const JsonVideo& named,
                                         ImagesHash* hash) {
    BALLAST_RETURN_IF_ERROR(CheckTakesVideos(scanner_.options()));
    BALLAST_ASSIGN_OR_RETURN(const ImageFacts pictures,
                             ProbeImages(key, parts, hash));
    ListProbe list(named);
    for (size_t i = 0; i < parts.size(); ++i) {
      BALLAST_RETURN_IF_ERROR(
          list.Add(Printable(parts[i].name), pictures.sizes[i]));
    }
    return list.video();
  }

  // Holds the size in the image's header against the media metadata. A turned
  // image has its sides there as they are stored.
  absl::Status CheckSize(const std::string& key, const EnergonPart& part,
                         ImageSize size) {
    if (index_ == nullptr) return absl::OkStatus();
    const std::string name = folder_.fields.type == EnergonType::kCrude
                                 ? part.name
                                 : absl::StrCat(key, ".", part.name);
    BALLAST_ASSIGN_OR_RETURN(const std::optional<ImageSize> known,
                             index_->SizeOf(name));
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
  FileScanner& scanner_;
  uint64_t found_ = 0;
  EnergonTarSample before_;  // the last one read
};

}  // namespace

absl::Status ScanEnergon(const File& file, const EnergonFolder& folder,
                         const EnergonShard& shard, FileScanner& scanner) {
  std::unique_ptr<EnergonIndex> index;
  auto opened = EnergonIndex::Open(folder.IndexPath(), shard.id);
  if (opened.ok()) {
    index = *std::move(opened);
  } else if (!absl::IsNotFound(opened.status())) {
    return opened.status();
  }
  return EnergonScan(&file, &folder, &shard, index.get(), &scanner).Run();
}

}  // namespace ballast
