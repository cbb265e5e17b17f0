#include "server/corpus/energon/raw_members.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/data_path.h"
#include "server/corpus/limits.h"

namespace ballast {
namespace {

constexpr absl::string_view kMediaExtensions[] = {
    "jpg",  "jpeg", "png", "webp", "gif",  "bmp", "tif", "tiff", "mp4", "avi",
    "webm", "mov",  "mkv", "wav",  "flac", "mp3", "ogg", "opus", "m4a"};

bool IsMedium(absl::string_view name) {
  const std::string extension =
      absl::AsciiStrToLower(name.substr(name.rfind('.') + 1));
  return std::find(std::begin(kMediaExtensions), std::end(kMediaExtensions),
                   extension) != std::end(kMediaExtensions);
}

}  // namespace

absl::StatusOr<RawRecord> ReadRawMembers(FileView file, EnergonTarSample sample,
                                         absl::string_view file_name) {
  if (sample.end - sample.begin > kMaxSampleSpan) {
    return DataFaultError(
        absl::StrCat("its members span ", sample.end - sample.begin,
                     " bytes, wanted at most ", kMaxSampleSpan));
  }
  RawRecord raw;
  raw.record.key = Printable(sample.key);
  raw.record.name = absl::StrCat(file_name, ": ", raw.record.key);
  raw.record.where = absl::StrCat("key ", raw.record.key);
  raw.record.entry.offset = sample.begin;
  raw.record.entry.length = static_cast<uint32_t>(sample.end - sample.begin);
  raw.given.kind = RecipeRecord::Kind::kMembers;
  // A key is a part of what the recipe is given, as its name.
  raw.given.text = std::move(sample.key);
  absl::flat_hash_set<absl::string_view> names;
  uint64_t left = kMaxTextBytes;
  for (const EnergonPart& part : sample.parts) {
    if (!names.insert(part.name).second) {
      return DataFaultError(
          absl::StrCat("two members .", Printable(part.name)));
    }
    RecipeRecord::Part& given = raw.given.parts.emplace_back();
    given.name = part.name;
    given.size = part.size;
    raw.media.push_back({part.name, ByteRange{part.data, part.size}});
    if (IsMedium(part.name)) continue;
    if (part.size > left) {
      return DataFaultError(absl::StrCat(
          "its members that are no image, video or audio have over ",
          kMaxTextBytes, " bytes"));
    }
    left -= part.size;
    BALLAST_ASSIGN_OR_RETURN(given.bytes, file.ReadAt(part.data, part.size));
  }
  return raw;
}

}  // namespace ballast
