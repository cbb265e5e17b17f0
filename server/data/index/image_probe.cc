#include "server/data/index/image_probe.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"

namespace ballast {
namespace {

// The size that `reader` finds in `bytes`; nullopt if it needs more.
absl::StatusOr<std::optional<ImageSize>> FindSize(
    absl::string_view bytes, bool is_whole, const ImageSizeReader& reader) {
  const absl::StatusOr<ImageSize> found = reader(bytes);
  if (found.ok()) {
    if (found->width != 0 && found->height != 0) return *found;
    return absl::InvalidArgumentError(absl::StrCat(
        "an image of ", found->width, "x", found->height, " pixels"));
  }
  if (found.status().code() != absl::StatusCode::kOutOfRange) {
    return found.status();
  }
  if (!is_whole) return std::nullopt;
  return absl::InvalidArgumentError(
      absl::StrCat("cut inside its header: ", found.status().message()));
}

// The mark of an image of `size` bytes that its header does not rule out.
// `head` holds its first bytes.
absl::StatusOr<ImageMark> MarkByEnd(ReadImageBytes read, uint64_t size,
                                    absl::string_view head) {
  if (size > ImageMark::kMaxBytes) {
    return ImageMark::Refused(EngineRefusal::kLength);
  }
  char tail[2];
  if (head.size() < size) {
    BALLAST_RETURN_IF_ERROR(read(size - sizeof(tail), sizeof(tail), tail));
    head = absl::string_view(tail, sizeof(tail));
  }
  return HasJpegEnd(head) ? ImageMark::Marked(static_cast<uint32_t>(size))
                          : ImageMark::Refused(EngineRefusal::kEnd);
}

}  // namespace

absl::StatusOr<EngineRefusal> JudgeHeader(absl::string_view bytes) {
  BALLAST_ASSIGN_OR_RETURN(const EngineJudgement judgement,
                           JudgeForEngines(bytes));
  return judgement.refusal;
}

absl::StatusOr<ProbedImage> ProbeImage(ReadImageBytes read, uint64_t size,
                                       const ImageSizeReader& reader,
                                       const ImageJudge& judge,
                                       ImagesHash* hash) {
  // On the stack, and large enough for most images.
  char first[ImagesHash::kHeadBytes];
  std::string more;
  uint64_t have = 0;
  uint64_t wanted = std::min<uint64_t>(size, sizeof(first));
  std::optional<ImageSize> found;
  while (true) {
    char* bytes = first;
    if (wanted > sizeof(first)) {
      // Reads four times as much as before.
      more.resize(wanted);
      bytes = more.data();
      if (have == sizeof(first)) std::copy_n(first, have, bytes);
    }
    BALLAST_RETURN_IF_ERROR(read(have, wanted - have, bytes + have));
    if (have == 0 && hash != nullptr) hash->Add(size, {bytes, wanted});
    have = wanted;
    const absl::string_view head(bytes, have);
    const bool is_whole = have == size;
    if (!found.has_value()) {
      BALLAST_ASSIGN_OR_RETURN(found, FindSize(head, is_whole, reader));
    }
    if (found.has_value()) {
      const absl::StatusOr<EngineRefusal> refusal = judge(head);
      if (!refusal.ok() &&
          (is_whole || !absl::IsOutOfRange(refusal.status()))) {
        return ProbedImage{*found, ImageMark::Refused(EngineRefusal::kEnd)};
      }
      if (refusal.ok() && *refusal != EngineRefusal::kNone) {
        return ProbedImage{*found, ImageMark::Refused(*refusal)};
      }
      if (refusal.ok()) {
        BALLAST_ASSIGN_OR_RETURN(const ImageMark mark,
                                 MarkByEnd(read, size, head));
        return ProbedImage{*found, mark};
      }
    }
    wanted = std::min(size, wanted * 4);
  }
}

absl::StatusOr<ProbedImage> ProbeImage(const File& file, uint64_t offset,
                                       uint64_t size,
                                       const ImageSizeReader& reader,
                                       const ImageJudge& judge,
                                       ImagesHash* hash) {
  return ProbeImage(
      [&](uint64_t from, uint64_t bytes, char* to) {
        return file.ReadAt(offset + from, bytes, to);
      },
      size, reader, judge, hash);
}

absl::StatusOr<ProbedImage> ProbeImage(absl::string_view image,
                                       const ImageSizeReader& reader,
                                       const ImageJudge& judge,
                                       ImagesHash* hash) {
  return ProbeImage(
      [&](uint64_t from, uint64_t bytes, char* to) {
        std::copy_n(image.data() + from, bytes, to);
        return absl::OkStatus();
      },
      image.size(), reader, judge, hash);
}

}  // namespace ballast
