#include "server/delivery/encoded_image.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/status_macros.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/source_index.h"

namespace ballast {

std::optional<DataFault> FindEncodedImageFault(
    absl::string_view bytes, uint32_t encoded_bytes,
    std::optional<uint64_t> content_hash) {
  if (bytes.size() != encoded_bytes) {
    return DataFault(absl::StrCat("file of ", bytes.size(),
                                  " bytes, the index has ", encoded_bytes,
                                  "; has it changed? index the source again"));
  }
  if (!content_hash.has_value()) return std::nullopt;
  const uint64_t found = Checksum(bytes);
  if (found == *content_hash) return std::nullopt;
  return DataFault(absl::StrFormat(
      "file of hash %016x, and it had %016x when `index --check` read it; "
      "restore it, or index the source again with --rebuild --check",
      found, *content_hash));
}

absl::StatusOr<FaultOr<RawSample>> ReadEncodedImages(const SampleSource& source,
                                                     uint64_t ordinal) {
  BALLAST_ASSIGN_OR_RETURN(
      FaultOr<RawSample> raw,
      source.Read(ordinal, {.text = false, .images = true}));
  if (!raw.ok()) return raw;
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           source.index().sample(ordinal));
  BALLAST_ASSIGN_OR_RETURN(const absl::Span<const uint64_t> hashes,
                           source.index().content_hashes(ordinal));
  if (raw->images.size() != indexed.images.size()) {
    return FaultOr<RawSample>(DataFault(absl::StrCat(
        raw->name, ": has ", raw->images.size(), " images, and had ",
        indexed.images.size(),
        " when it was indexed; has the file changed? index the source again")));
  }
  for (size_t i = 0; i < raw->images.size(); ++i) {
    const uint32_t bytes = indexed.encoded_bytes(i);
    if (bytes == 0) continue;
    std::optional<uint64_t> hash;
    if (indexed.marks[i].check() == ImageCheckResult::kClean &&
        i < hashes.size()) {
      hash = hashes[i];
    }
    const auto fault = FindEncodedImageFault(raw->images[i], bytes, hash);
    if (!fault.has_value()) continue;
    return FaultOr<RawSample>(
        fault->In(absl::StrCat(raw->name, ": image ", i)));
  }
  return raw;
}

}  // namespace ballast
