#include "tests/fakes/old_index.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "absl/strings/string_view.h"
#include "server/corpus/index/digest.h"
#include "server/corpus/index/index_format.h"
#include "server/corpus/index/index_pages.h"

namespace ballast {
namespace {

uint64_t Aligned(uint64_t bytes) {
  return (bytes + kIndexPageBytes - 1) / kIndexPageBytes * kIndexPageBytes;
}

std::string BytesOf(const std::vector<uint64_t>& numbers) {
  return std::string(reinterpret_cast<const char*>(numbers.data()),
                     8 * numbers.size());
}

template <typename Header>
absl::string_view BytesOf(const Header& header) {
  return absl::string_view(reinterpret_cast<const char*>(&header),
                           sizeof(header));
}

}  // namespace

std::string OldIndexOf(const std::string& index) {
  IndexHeader header;
  std::memcpy(&header, index.data(), sizeof(header));
  IndexMarksHeader marks;
  std::memcpy(&marks, index.data() + sizeof(header), sizeof(marks));
  const auto part = [&](uint64_t begin, uint64_t end) {
    return index.substr(begin, end - begin);
  };
  const std::string files = part(header.file_table, header.table_checksums);
  std::string names = part(header.names, header.sample_table);
  std::string records = part(header.sample_table, marks.hash_table);
  records.resize(Aligned(records.size()));
  const std::string pages = BytesOf(PageChecksums({records}));
  const std::string tables = BytesOf(PageChecksums({pages}));

  IndexHeaderV4 old = {};
  old.magic = header.magic;
  old.version = 4;
  old.format = header.format;
  old.num_files = header.num_files;
  old.num_samples = header.num_samples;
  old.num_left_out = header.num_left_out;
  old.num_images = header.num_images;
  old.file_table = sizeof(old);
  old.table_checksums = old.file_table + files.size();
  old.names = old.table_checksums + tables.size();
  old.sample_table = Aligned(old.names + names.size());
  names.resize(old.sample_table - old.names);
  old.image_table = old.sample_table + header.image_table - header.sample_table;
  old.page_checksums = old.sample_table + records.size();
  old.total_bytes = old.page_checksums + pages.size();
  std::memcpy(old.sizes_digest, header.sizes_digest, sizeof(Digest));
  std::memcpy(old.lengths_digest, header.lengths_digest, sizeof(Digest));
  std::memcpy(old.limits_digest, header.limits_digest, sizeof(Digest));
  std::memcpy(old.data_digest, header.data_digest, sizeof(Digest));
  const std::string head = files + tables + names;
  old.head_checksum = Checksum(head);
  old.header_checksum = Checksum(
      BytesOf(old).substr(0, offsetof(IndexHeaderV4, header_checksum)));
  return std::string(BytesOf(old)) + head + records + pages;
}

}  // namespace ballast
