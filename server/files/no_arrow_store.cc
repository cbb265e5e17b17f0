// Takes the place of arrow_store.cc in builds without Arrow.
#include "absl/strings/str_cat.h"
#include "server/files/arrow_store.h"

namespace ballast {

void StopStores() {}

absl::StatusOr<std::unique_ptr<ObjectStore>> MakeArrowStore(
    const std::string& scheme, const v1::Storage& /*storage*/) {
  return absl::UnimplementedError(absl::StrCat(
      "this build cannot read ", scheme,
      "://, because it was made without Arrow; run deploy/setup.sh and build "
      "again without --config=noarrow, or use files on a disk"));
}

}  // namespace ballast
