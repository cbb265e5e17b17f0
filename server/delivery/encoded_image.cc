#include "server/delivery/encoded_image.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/storage/span_checksum.h"

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
  return FindContentFault(SpanChecksum(bytes), *content_hash);
}

std::optional<DataFault> FindContentFault(uint64_t found, uint64_t indexed) {
  if (found == indexed) return std::nullopt;
  return DataFault(absl::StrFormat(
      "file of hash %016x, and it had %016x when `index` read it; restore it, "
      "or "
      "index the source again with --rebuild, and --check or --hash as before",
      found, indexed));
}

}  // namespace ballast
