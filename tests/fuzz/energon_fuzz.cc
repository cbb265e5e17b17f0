// The metadata of an Energon folder. An input that begins as a database is its
// index.sqlite; another is read as a tar, and as .info.json, split.yaml and
// dataset.yaml with lines of dashes between them.

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "server/data/energon/energon_content.h"
#include "server/data/energon/energon_folder.h"
#include "server/data/energon/energon_index.h"
#include "server/data/energon/energon_tar.h"
#include "server/data/energon/pickled_list.h"
#include "tests/fuzz/memory_file.h"

namespace ballast {
namespace {

void Must(bool held) {
  if (!held) std::abort();
}

void ReadFolder(const std::vector<std::string>& texts) {
  for (const bool crude : {false, true}) {
    const auto folder =
        ParseEnergonFolder({texts[0], texts[1], texts[2]}, "train", crude);
    if (!folder.ok()) continue;
    Must(!folder->shards.empty());
    for (const EnergonShard& shard : folder->shards) {
      Must(absl::EndsWith(shard.name, ".tar") && shard.name[0] != '/');
      Must(!folder->excluded.contains(shard.name));
    }
    Must(!folder->Key().empty());
  }
}

// SQLite opens files by their real paths, and those of MemoryFile have none.
std::string DiskFile(absl::string_view bytes) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = absl::StrCat(folder == nullptr ? "/tmp" : folder,
                                        "/energon_fuzz-", getpid(), ".sqlite");
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  Must(file.good());
  return path;
}

// Every sample and part that it names has places that fit a file.
void ReadIndex(absl::string_view bytes) {
  const std::string path = DiskFile(bytes);
  for (const uint64_t tar : {0, 1}) {
    auto index = EnergonIndex::Open(path, tar);
    if (!index.ok()) continue;
    // The bound on work is that on rows.
    for (uint64_t rows = 0;; ++rows) {
      Must(rows <= 1'000'000);
      const auto sample = (*index)->Next();
      if (!sample.ok() || !sample->has_value()) break;
      Must(!(*sample)->key.empty() && (*sample)->begin <= (*sample)->end);
      for (const EnergonPart& part : (*sample)->parts) {
        (*index)->GetSize((*sample)->key + "." + part.name).IgnoreError();
      }
    }
  }
}

void ReadTar(absl::string_view bytes, const EnergonFields& fields) {
  const auto file = File::Open(MemoryFile(bytes));
  Must(file.ok());
  EnergonTarReader tar(&*file, 0, bytes.size(), /*whole=*/true);
  while (true) {
    const auto sample = tar.Next();
    if (!sample.ok() || !sample->has_value()) return;
    Must((*sample)->begin < (*sample)->end && (*sample)->end <= bytes.size());
    // Found by its place alone, it is the same.
    const auto again =
        ReadEnergonSample(&*file, (*sample)->begin, (*sample)->end);
    Must(again.ok() && *again == **sample);
    const auto content = ReadEnergonContent(&*file, **sample, fields);
    if (!content.ok()) continue;
    for (const MediumParts<EnergonPart>& medium : content->media) {
      for (const EnergonPart& part : medium.parts) {
        Must(part.data + part.size <= bytes.size());
      }
    }
  }
}

// Objects are ranges of the file.
void ReadPickle(absl::string_view bytes) {
  const auto file = File::Open(MemoryFile(bytes));
  Must(file.ok());
  const auto list = ReadPickledList(&*file, {0, bytes.size()});
  if (!list.ok()) return;
  for (const std::vector<ByteRange>& item : list->items) {
    Must(list->has_lists || item.size() == 1);
    for (const ByteRange& range : item) {
      Must(ByteRange({0, bytes.size()}).Covers(range));
    }
  }
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (absl::StartsWith(bytes, "\x80")) {
    ballast::ReadPickle(bytes);
    return 0;
  }
  if (absl::StartsWith(bytes, "SQLite format 3")) {
    ballast::ReadIndex(bytes);
    return 0;
  }
  std::vector<std::string> texts = absl::StrSplit(bytes, "-----\n");
  texts.resize(3);
  ballast::ReadFolder(texts);
  auto fields = ballast::ParseDatasetYaml(texts[2], /*crude=*/false);
  ballast::ReadTar(bytes, fields.ok() ? *fields : ballast::EnergonFields());
  return 0;
}
