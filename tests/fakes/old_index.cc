#include "tests/fakes/old_index.h"

#include <cstdint>
#include <cstring>

#include "server/corpus/index/index_file.h"
#include "server/corpus/index/index_format.h"
#include "tests/fakes/seal_index.h"

namespace ballast {
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
  header.file_table = kIndexHeaderBytes - sizeof(IndexHashesHeader);
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
