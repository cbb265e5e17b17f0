#include "server/storage/small_object.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/corpus/file.h"

namespace ballast {

absl::StatusOr<std::string> ReadSmallObject(Storage* storage,
                                            const std::string& url,
                                            size_t most) {
  BALLAST_ASSIGN_OR_RETURN(const File file, storage->Open(url));
  const uint64_t size = file.stamp().size;
  if (size > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(url, ": ", size, " bytes; wanted at most ", most));
  }
  BALLAST_ASSIGN_OR_RETURN(std::string text, file.ReadAt(0, size));
  BALLAST_RETURN_IF_ERROR(FileView(&file).CheckUnchanged());
  return text;
}

}  // namespace ballast
