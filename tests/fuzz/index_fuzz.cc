#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "server/data/index/index_file.h"
#include "server/sample/source_index.h"
#include "tests/fakes/old_index.h"
#include "tests/fuzz/memory_file.h"

namespace ballast {
namespace {

void Must(bool held) {
  if (!held) std::abort();
}

void Read(const std::string& bytes) {
  const auto index =
      IndexFile::Open(MemoryFile(bytes), EncodedRule::kUnchecked);
  if (!index.ok()) return;
  uint64_t sum = (*index)->digest().size();
  for (uint64_t i = 0; i < (*index)->num_files(); ++i) {
    for (const char c : (*index)->file_name(i)) sum += c;
    sum += (*index)->file_stamp(i).size;
  }
  std::vector<uint64_t> all((*index)->num_records());
  for (uint64_t i = 0; i < all.size(); ++i) all[i] = i;
  (*index)->Prefetch(all);
  for (uint64_t i = 0; i < (*index)->size(); ++i) {
    const auto sample = (*index)->sample(i);
    if (sample.ok()) {
      for (const IndexedMedium& medium : sample->media) {
        sum += sample->encoded_bytes(medium) + medium.times.size();
      }
    }
    const auto hashes = (*index)->media_hashes(i);
    if (!hashes.ok()) continue;
    for (const uint64_t hash : hashes->images) sum += hash;
    for (const uint64_t hash : hashes->streams) sum += hash;
  }
  bool any_bad = false;
  for (const uint64_t i : all) {
    if (!(*index)->Touch(i).ok()) {
      any_bad = true;
      continue;
    }
    const IndexSampleRecord& record = (*index)->record(i);
    Must(record.file < (*index)->num_files());
    const uint64_t file = (*index)->file_stamp(record.file).size;
    Must(record.offset <= file && record.length <= file - record.offset);
    for (const ImageSize& image : (*index)->images(i)) {
      sum += uint64_t{image.width} * image.height;
    }
  }
  Must(!any_bad || !(*index)->Verify(nullptr).ok());
  // Forces every byte to be read.
  static volatile uint64_t kept;
  kept = sum;
  static_cast<void>(kept);
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  ballast::Read(bytes);
  ballast::SealIndex(&bytes);
  ballast::Read(bytes);
  return 0;
}
