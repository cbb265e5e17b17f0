#include <xxhash.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "server/corpus/index_file.h"
#include "tests/fuzz/memory_file.h"

namespace ballast {
namespace {

void Must(bool held) {
  if (!held) std::abort();
}

// Makes the checksums right, without which nothing else is looked at.
void MendChecksums(std::string* bytes) {
  if (bytes->size() < sizeof(IndexHeader)) return;
  IndexHeader header;
  std::memcpy(&header, bytes->data(), sizeof(header));
  header.body_checksum = XXH3_64bits(bytes->data() + sizeof(header),
                                     bytes->size() - sizeof(header));
  header.header_checksum =
      XXH3_64bits(&header, offsetof(IndexHeader, header_checksum));
  std::memcpy(bytes->data(), &header, sizeof(header));
}

void Read(const std::string& bytes) {
  const auto index = IndexFile::Open(MemoryFile(bytes));
  if (!index.ok()) return;
  uint64_t sum = (*index)->digest().size();
  for (uint64_t i = 0; i < (*index)->num_files(); ++i) {
    for (const char c : (*index)->file_name(i)) sum += c;
    sum += (*index)->file_stamp(i).size;
  }
  for (uint64_t i = 0; i < (*index)->num_records(); ++i) {
    const IndexSampleRecord& record = (*index)->record(i);
    Must(record.file < (*index)->num_files());
    const uint64_t file = (*index)->file_stamp(record.file).size;
    Must(record.offset <= file && record.length <= file - record.offset);
    for (const ImageSize& image : (*index)->images(i)) {
      sum += uint64_t{image.width} * image.height;
    }
  }
  // So that every byte is read.
  static volatile uint64_t kept;
  kept = sum;
  static_cast<void>(kept);
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  ballast::Read(bytes);
  ballast::MendChecksums(&bytes);
  ballast::Read(bytes);
  return 0;
}
