#include "tests/fakes/old_index.h"

#include <xxhash.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "server/data/index/index_file.h"
#include "server/sample/index_format.h"

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

namespace {

uint64_t Aligned(uint64_t bytes) {
  return (bytes + kIndexPageBytes - 1) / kIndexPageBytes * kIndexPageBytes;
}

}  // namespace

std::string OldIndexOf(const std::string& index) {
  IndexHeader header;
  std::memcpy(&header, index.data(), sizeof(header));
  IndexMarksHeader marks;
  std::memcpy(&marks, index.data() + sizeof(header), sizeof(marks));
  IndexVideosHeader videos;
  std::memcpy(&videos, index.data() + sizeof(header) + sizeof(marks),
              sizeof(videos));
  const auto part = [&](uint64_t begin, uint64_t end) {
    return index.substr(begin, end - begin);
  };
  const uint64_t file_bytes = header.num_files * sizeof(IndexFileRecord);
  const std::string files =
      part(header.file_table, header.file_table + file_bytes);
  // SealIndex writes the checksums.
  const std::string tables = part(header.table_checksums, header.names);
  std::string names = part(header.names, header.sample_table);
  const std::string rest = index.substr(header.sample_table);

  const uint64_t before = header.sample_table;
  header.version = 6;
  header.file_table = IndexHeaderBytes(header.version);
  header.table_checksums = header.file_table + file_bytes;
  header.names = header.table_checksums + tables.size();
  header.sample_table = Aligned(header.names + names.size());
  names.resize(header.sample_table - header.names);
  const uint64_t moved = header.sample_table - before;
  for (uint64_t* const at :
       {&header.image_table, &header.page_checksums, &header.total_bytes,
        &marks.hash_table, &marks.mark_table, &videos.start_table,
        &videos.video_table}) {
    *at += moved;
  }
  std::string old(reinterpret_cast<const char*>(&header), sizeof(header));
  old.append(reinterpret_cast<const char*>(&marks), sizeof(marks));
  old.append(reinterpret_cast<const char*>(&videos), sizeof(videos));
  old += files + tables + names + rest;
  SealIndex(&old);
  return old;
}

}  // namespace ballast
