#include "client/ballastctl/storage_fields.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/ballastctl/quantities.h"

namespace ballast {

std::vector<std::pair<std::string, std::string>> StorageFields(
    const v1::GetStatusResponse::Storage& storage) {
  std::vector<std::pair<std::string, std::string>> fields = {
      {"store",
       absl::StrCat(BytesText(storage.fetched_bytes()), " in ",
                    CountText(storage.requests()), " requests, ",
                    storage.errors(), " failed; fetched ahead up to step ",
                    storage.fetched_to_step())},
      {"", absl::StrCat(CountText(storage.memory_hits()), " reads in memory, ",
                        CountText(storage.cache_hits()), " in the cache, ",
                        CountText(storage.stalls()), " stalls of ",
                        absl::StrFormat("%.1f s", storage.stall_seconds()))}};
  if (storage.cache_size() > 0) {
    fields.emplace_back(
        "cache", absl::StrCat(BytesText(storage.cache_bytes()), " of ",
                              BytesText(storage.cache_size()), ", ",
                              storage.cache_evicted(), " entries evicted, ",
                              storage.cache_damaged(), " damaged"));
  }
  return fields;
}

}  // namespace ballast
