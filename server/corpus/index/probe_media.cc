#include "server/corpus/index/probe_media.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/status_macros.h"
#include "server/corpus/bad_kind.h"
#include "server/corpus/index/image_probe.h"
#include "server/corpus/index/probe_videos.h"
#include "server/corpus/limits.h"

namespace ballast {
namespace {

// Why an image or a video (`medium`) cannot be opened, with its kind. Looks for
// an archive in place of one of its folders: "coco/train2017.zip" for
// "coco/train2017/1.jpg".
absl::Status Unopened(absl::string_view medium, const absl::Status& status,
                      absl::string_view path, const MediaRoot& media) {
  if (!absl::IsNotFound(status)) return status;
  for (size_t end = path.rfind('/'); end != path.npos && end > 0;
       end = path.rfind('/', end - 1)) {
    const std::string archive = absl::StrCat(path.substr(0, end), ".zip");
    if (!media.Open(archive).ok()) continue;
    return OfKind(absl::NotFoundError(absl::StrCat(
                      status.message(), "; ", archive, " is there, unpack it")),
                  MediaKind(medium, kInZip));
  }
  return OfKind(
      absl::NotFoundError(absl::StrCat(status.message(), "; the path of a",
                                       medium == "image" ? "n " : " ", medium,
                                       " starts at the source's media_root")),
      MediaKind(medium, kMissing));
}

// Opens an image or a video.
absl::StatusOr<File> Open(absl::string_view medium, absl::string_view path,
                          const MediaRoot& media) {
  absl::StatusOr<File> file = media.Open(path);
  if (!file.ok()) return Unopened(medium, file.status(), path, media);
  return file;
}

// Reads the header of the image in a file.
absl::StatusOr<ProbedImage> Probe(const File& file, const IndexOptions& options,
                                  uint64_t* left, ImagesHash* hash) {
  const uint64_t size = file.stamp().size;
  if (size > *left) {
    return absl::InvalidArgumentError(
        absl::StrCat("over ", kMaxSampleBytes, " bytes in all"));
  }
  *left -= size;
  auto image = ProbeImage(file, 0, size, options.read_image_size,
                          options.judge_image, hash);
  if (!image.ok()) return Annotate(image.status(), file.path());
  return image;
}

absl::StatusOr<IndexedVideo> ProbeList(const JsonVideo& named,
                                       const MediaRoot& media,
                                       const IndexOptions& options,
                                       uint64_t* left, ImagesHash* hash) {
  ListProbe video(named);
  for (const std::string& path : named.frames) {
    BALLAST_ASSIGN_OR_RETURN(const File file, Open("video", path, media));
    BALLAST_ASSIGN_OR_RETURN(const ProbedImage image,
                             Probe(file, options, left, hash));
    BALLAST_RETURN_IF_ERROR(video.Add(file.path(), image.size));
  }
  return video.video();
}

}  // namespace

absl::Status ProbeNamedImages(absl::Span<const std::string> paths,
                              const MediaRoot& media,
                              const IndexOptions& options, uint64_t* left,
                              ImagesHash* hash, ImageFacts* facts) {
  for (const std::string& path : paths) {
    BALLAST_ASSIGN_OR_RETURN(const File file, Open("image", path, media));
    BALLAST_ASSIGN_OR_RETURN(const ProbedImage image,
                             Probe(file, options, left, hash));
    facts->sizes.push_back(image.size);
    facts->marks.push_back(image.mark);
  }
  return absl::OkStatus();
}

absl::StatusOr<IndexedVideo> ProbeNamedVideo(const JsonVideo& named,
                                             const MediaRoot& media,
                                             const IndexOptions& options,
                                             uint64_t* left, ImagesHash* hash) {
  if (!named.frames.empty()) {
    BALLAST_RETURN_IF_ERROR(CheckTakesVideos(options));
    return ProbeList(named, media, options, left, hash);
  }
  BALLAST_ASSIGN_OR_RETURN(const File file, Open("video", named.path, media));
  auto video = ProbeVideo(file, 0, file.stamp().size, named, options, hash);
  if (!video.ok()) return Annotate(video.status(), file.path());
  return video;
}

}  // namespace ballast
