#include "server/corpus/parquet/parquet_image.h"

#include "absl/strings/str_cat.h"
#include "server/corpus/data_fault.h"
#include "server/corpus/limits.h"

namespace ballast {

absl::Status AppendImage(const ParquetImage& image,
                         std::vector<ParquetImage>* images) {
  if (images->size() == kMaxImages) {
    return DataFaultError(absl::StrCat("over ", kMaxImages, " images"));
  }
  uint64_t all = image.size;
  for (const ParquetImage& other : *images) all += other.size;
  if (all > kMaxSampleBytes) {
    return DataFaultError(
        absl::StrCat("over ", kMaxSampleBytes, " bytes in all"));
  }
  images->push_back(image);
  return absl::OkStatus();
}

}  // namespace ballast
