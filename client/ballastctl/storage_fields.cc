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

nlohmann::ordered_json StorageJson(
    const v1::GetStatusResponse::Storage& storage) {
  return {{"requests", storage.requests()},
          {"errors", storage.errors()},
          {"fetched_bytes", storage.fetched_bytes()},
          {"memory_hits", storage.memory_hits()},
          {"cache_hits", storage.cache_hits()},
          {"stalls", storage.stalls()},
          {"stall_seconds", storage.stall_seconds()},
          {"cache_bytes", storage.cache_bytes()},
          {"cache_size", storage.cache_size()},
          {"cache_evicted", storage.cache_evicted()},
          {"cache_damaged", storage.cache_damaged()},
          {"fetched_to_step", storage.fetched_to_step()}};
}

}  // namespace ballast
