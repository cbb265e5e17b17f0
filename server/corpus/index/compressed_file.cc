#include "server/corpus/index/compressed_file.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/data_path.h"

namespace ballast {
namespace {

using Bytes = absl::string_view;

struct Compression {
  const char* name;
  Bytes first;  // bytes of a file
};

constexpr Compression kCompressions[] = {
    {"gzip", Bytes("\x1f\x8b\x08", 3)}, {"zstd", Bytes("\x28\xb5\x2f\xfd", 4)},
    {"xz", Bytes("\xfd\x37zXZ\0", 6)},  {"lz4", Bytes("\x04\x22\x4d\x18", 4)},
    {"zip", Bytes("PK\x03\x04", 4)},
};

// "BZh", the size of a block, and the mark of a block or of the end.
bool IsBzip2(Bytes head) {
  return head.size() == 10 && absl::StartsWith(head, "BZh") &&
         (absl::EndsWith(head, "\x31\x41\x59\x26\x53\x59") ||
          absl::EndsWith(head, "\x17\x72\x45\x38\x50\x90"));
}

}  // namespace

absl::Status CheckNotCompressed(const File& file, absl::string_view name) {
  constexpr uint64_t kHead = 10;
  BALLAST_ASSIGN_OR_RETURN(
      const std::string head,
      file.ReadAt(0, std::min<uint64_t>(kHead, file.stamp().size)));
  const char* found = IsBzip2(head) ? "bzip2" : nullptr;
  for (const Compression& each : kCompressions) {
    if (absl::StartsWith(head, each.first)) found = each.name;
  }
  if (found == nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      Printable(name), ": compressed by ", found,
      "; there are no offsets to read samples at: unpack it, and name the "
      "unpacked file in `path`"));
}

}  // namespace ballast
