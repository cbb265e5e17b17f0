#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include "server/data/tar/webdataset_reader.h"
#include "tests/fuzz/memory_file.h"

namespace ballast {
namespace {

constexpr size_t kBlock = 512;
constexpr size_t kChecksum = 148;  // offset in a header; 8 bytes long

// Corrects the checksum of every block that is not all zeros; without it
// nothing else of a header is read.
void MendChecksums(std::string* tar) {
  for (size_t at = 0; at + kBlock <= tar->size(); at += kBlock) {
    char* const block = tar->data() + at;
    if (std::memcmp(block + 257, "ustar", 5) != 0) continue;
    std::memset(block + kChecksum, ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < kBlock; ++i) sum += static_cast<uint8_t>(block[i]);
    std::snprintf(block + kChecksum, 8, "%06o", sum);
  }
}

void Must(bool held) {
  if (!held) std::abort();
}

void Read(const std::string& tar) {
  const auto file = File::Open(MemoryFile(tar));
  Must(file.ok());
  WebDatasetReader reader(&*file, 0, tar.size(), /*whole=*/true);
  while (true) {
    const auto sample = reader.Next();
    if (!sample.ok() || !sample->has_value()) return;
    const WebDatasetSample& found = **sample;
    Must(found.begin < found.end && found.end <= tar.size());
    if (!found.fault.ok()) continue;
    // Ranges reported as inside the file must be readable.
    Must(file->ReadAt(found.text.data, found.text.size).ok());
    for (const MediumParts<TarMember>& medium : found.media) {
      Must(!medium.parts.empty());
      for (const TarMember& member : medium.parts) {
        Must(file->ReadAt(member.data, member.size).ok());
        Must(ParseMemberName(member.name).key == found.key);
      }
    }
    // Reads the sample again as serving does.
    WebDatasetReader again(&*file, found.begin, found.end, /*whole=*/false);
    const auto same = again.Next();
    Must(same.ok() && same->has_value() && (*same)->key == found.key &&
         (*same)->end == found.end);
  }
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string tar(reinterpret_cast<const char*>(data), size);
  ballast::Read(tar);
  ballast::MendChecksums(&tar);
  ballast::Read(tar);
  return 0;
}
