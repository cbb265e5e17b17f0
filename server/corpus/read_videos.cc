#include "server/corpus/read_videos.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/limits.h"
#include "server/corpus/raw_video.h"

namespace ballast {

absl::Status ReadVideo(FileView file, uint64_t offset, uint64_t size,
                       ImagesHash* hash, RawSample* sample) {
  if (file.object() != nullptr) {
    uint64_t bytes = size;
    for (const RawVideo& other : sample->videos) bytes += other.size;
    if (bytes > kMaxSampleBytes) {
      return DataFaultError(absl::StrCat("its videos in a store have over ",
                                         kMaxSampleBytes, " bytes in all"));
    }
    // What the hash and the decoder read is of one version, and fetched once.
    BALLAST_RETURN_IF_ERROR(file.Load({{offset, size}}));
  }
  BALLAST_ASSIGN_OR_RETURN(RawVideo video, OpenVideo(file, offset, size));
  BALLAST_ASSIGN_OR_RETURN(
      const std::string head,
      file.ReadAt(offset, std::min<uint64_t>(size, ImagesHash::kHeadBytes)));
  hash->Add(size, head);
  sample->videos.push_back(std::move(video));
  return absl::OkStatus();
}

absl::Status ReadMembers(FileView file, absl::Span<const ByteRange> ranges,
                         bool is_list, ImagesHash* hash, RawSample* sample) {
  if (!is_list) {
    return ReadVideo(file, ranges[0].offset, ranges[0].size, hash, sample);
  }
  RawVideo video;
  for (const ByteRange& range : ranges) {
    BALLAST_ASSIGN_OR_RETURN(std::string bytes,
                             file.ReadAt(range.offset, range.size));
    hash->Add(range.size,
              absl::string_view(bytes).substr(0, ImagesHash::kHeadBytes));
    video.size += range.size;
    video.pictures.push_back(std::move(bytes));
  }
  sample->videos.push_back(std::move(video));
  return absl::OkStatus();
}

absl::Status ReadNamedVideo(const JsonVideo& named, const MediaRoot& media,
                            ReadFrom from, uint64_t owner, uint64_t* left,
                            ImagesHash* hash, RawSample* sample) {
  if (named.frames.empty()) {
    BALLAST_ASSIGN_OR_RETURN(const File file, media.Open(named.path, from));
    const FileView view(&file, from, owner);
    return ReadVideo(view, 0, view.size(), hash, sample);
  }
  RawVideo video;
  for (const std::string& path : named.frames) {
    BALLAST_ASSIGN_OR_RETURN(const File file, media.Open(path, from));
    FileView view(&file, from, owner);
    const uint64_t size = view.size();
    if (size > *left) {
      return AsDataFault(absl::DataLossError(
          absl::StrCat("over ", kMaxSampleBytes, " bytes in all")));
    }
    *left -= size;
    BALLAST_RETURN_IF_ERROR(view.Load({{0, size}}));
    BALLAST_ASSIGN_OR_RETURN(std::string bytes, view.ReadAt(0, size));
    BALLAST_RETURN_IF_ERROR(view.CheckUnchanged());
    hash->Add(size, absl::string_view(bytes).substr(0, ImagesHash::kHeadBytes));
    video.size += size;
    video.pictures.push_back(std::move(bytes));
  }
  sample->videos.push_back(std::move(video));
  return absl::OkStatus();
}

}  // namespace ballast
