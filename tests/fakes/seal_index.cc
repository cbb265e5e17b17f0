#include "tests/fakes/seal_index.h"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "server/corpus/index/index_format.h"

namespace ballast {
namespace {

constexpr uint64_t kPage = 4096;

// Writes the checksums of the pages of [begin, end) from `at` on, up to
// `limit`.
void SealPages(std::string* bytes, uint64_t begin, uint64_t end, uint64_t at,
               uint64_t limit) {
  limit = std::min<uint64_t>(limit, bytes->size());
  for (; begin < end && at < limit && limit - at >= 8;
       begin += kPage, at += 8) {
    const uint64_t checksum = XXH3_64bits(
        bytes->data() + begin, std::min<uint64_t>(kPage, end - begin));
    std::memcpy(bytes->data() + at, &checksum, sizeof(checksum));
  }
}

}  // namespace

void SealIndex(std::string* bytes) {
  IndexHeader header;
  if (bytes->size() < sizeof(header)) return;
  std::memcpy(&header, bytes->data(), sizeof(header));
  const uint64_t records = header.sample_table;
  const uint64_t table = header.page_checksums;
  if (sizeof(header) <= records && records <= table && table <= bytes->size()) {
    SealPages(bytes, records, table, table, bytes->size());
    if (header.table_checksums >= sizeof(header)) {
      SealPages(bytes, table, bytes->size(), header.table_checksums, records);
    }
    header.head_checksum =
        XXH3_64bits(bytes->data() + sizeof(header), records - sizeof(header));
  }
  header.header_checksum =
      XXH3_64bits(&header, offsetof(IndexHeader, header_checksum));
  std::memcpy(bytes->data(), &header, sizeof(header));
}

}  // namespace ballast
