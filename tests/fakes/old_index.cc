#include "tests/fakes/old_index.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "server/corpus/index/index_format.h"
#include "server/corpus/index/index_pages.h"
#include "tests/fakes/seal_index.h"

namespace ballast {
namespace {

uint64_t Aligned(uint64_t bytes) {
  return (bytes + kIndexPageBytes - 1) / kIndexPageBytes * kIndexPageBytes;
}

uint64_t PagesOf(uint64_t bytes) { return Aligned(bytes) / kIndexPageBytes; }

}  // namespace

std::string OldIndexOf(const std::string& index, uint32_t version) {
  IndexHeader header;
  std::memcpy(&header, index.data(), sizeof(header));
  IndexMarksHeader marks;
  std::memcpy(&marks, index.data() + sizeof(header), sizeof(marks));
  const auto part = [&](uint64_t begin, uint64_t end) {
    return index.substr(begin, end - begin);
  };
  const std::string files = part(header.file_table, header.table_checksums);
  std::string names = part(header.names, header.sample_table);
  std::string records =
      part(header.sample_table,
           version == 4 ? marks.hash_table : header.page_checksums);
  records.resize(Aligned(records.size()));
  // SealIndex writes the checksums.
  const std::string pages(8 * PagesOf(records.size()), '\0');
  const std::string table(8 * PagesOf(pages.size()), '\0');

  const uint64_t images = header.image_table - header.sample_table;
  const uint64_t old_records = header.sample_table;
  header.version = version;
  header.file_table = sizeof(header) + (version == 4 ? 0 : sizeof(marks));
  header.table_checksums = header.file_table + files.size();
  header.names = header.table_checksums + table.size();
  header.sample_table = Aligned(header.names + names.size());
  names.resize(header.sample_table - header.names);
  header.image_table = header.sample_table + images;
  header.page_checksums = header.sample_table + records.size();
  header.total_bytes = header.page_checksums + pages.size();
  std::string old(reinterpret_cast<const char*>(&header), sizeof(header));
  if (version != 4) {
    marks.hash_table += header.sample_table - old_records;
    marks.mark_table += header.sample_table - old_records;
    old.append(reinterpret_cast<const char*>(&marks), sizeof(marks));
  }
  old += files + table + names + records + pages;
  SealIndex(&old);
  return old;
}

}  // namespace ballast
