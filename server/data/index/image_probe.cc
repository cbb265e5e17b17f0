#include "server/data/index/image_probe.h"

#include <algorithm>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/sample/image_header.h"

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

// Tries the image with `decode` where its end does not show that it is whole.
// `head` are its first bytes.
absl::Status CheckEnd(ReadImageBytes read, uint64_t size,
                      absl::string_view head, const ImageDecode& decode,
                      bool* has_end) {
  char end[kImageEndBytes];
  absl::string_view tail = head;
  if (head.size() < size) {
    tail = absl::string_view(end, std::min(size, kImageEndBytes));
    BALLAST_RETURN_IF_ERROR(read(size - tail.size(), tail.size(), end));
  }
  *has_end = HasImageEnd(head, tail, size);
  if (*has_end || !decode) return absl::OkStatus();
  if (head.size() == size) return decode(head);
  std::string image(size, '\0');
  BALLAST_RETURN_IF_ERROR(read(0, size, image.data()));
  return decode(image);
}

// The mark of an image of `size` bytes. `head` are its first bytes.
absl::StatusOr<ImageMark> GetMark(const absl::StatusOr<EngineRefusal>& refusal,
                                  ReadImageBytes read, uint64_t size,
                                  absl::string_view head,
                                  const ImageDecode& decode) {
  bool has_end = false;
  BALLAST_RETURN_IF_ERROR(CheckEnd(read, size, head, decode, &has_end));
  if (!refusal.ok()) return ImageMark::Refused(EngineRefusal::kEnd);
  if (*refusal != EngineRefusal::kNone) return ImageMark::Refused(*refusal);
  if (size > ImageMark::kMaxBytes) {
    return ImageMark::Refused(EngineRefusal::kLength);
  }
  return has_end ? ImageMark::Marked(static_cast<uint32_t>(size))
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
                                       const ImageDecode& decode,
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
      if (refusal.ok() || is_whole || !absl::IsOutOfRange(refusal.status())) {
        BALLAST_ASSIGN_OR_RETURN(const ImageMark mark,
                                 GetMark(refusal, read, size, head, decode));
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
                                       const ImageDecode& decode,
                                       ImagesHash* hash) {
  return ProbeImage(
      [&](uint64_t from, uint64_t bytes, char* to) {
        return file.ReadAt(offset + from, bytes, to);
      },
      size, reader, judge, decode, hash);
}

absl::StatusOr<ProbedImage> ProbeImage(absl::string_view image,
                                       const ImageSizeReader& reader,
                                       const ImageJudge& judge,
                                       const ImageDecode& decode,
                                       ImagesHash* hash) {
  return ProbeImage(
      [&](uint64_t from, uint64_t bytes, char* to) {
        std::copy_n(image.data() + from, bytes, to);
        return absl::OkStatus();
      },
      image.size(), reader, judge, decode, hash);
}

}  // namespace ballast
