#ifndef BALLAST_SERVER_CORPUS_SAMPLE_SOURCE_H_
#define BALLAST_SERVER_CORPUS_SAMPLE_SOURCE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/corpus/index/source_index.h"
#include "server/corpus/read_from.h"

namespace ballast {

// A sample as it lies on disk, nothing decoded.
struct RawSample {
  enum class TextFormat {
    kConversation,  // a JSON object with turns
    kPlain,         // a document
    kPackedBytes,   // token ids, as little-endian int32
    kPackedJson,    // token ids, as a JSON array or an object with `tokens`
  };
  // For messages: "docs-000003.tar: 000123" or "chat.jsonl:17".
  std::string name;
  TextFormat text_format = TextFormat::kConversation;
  std::string text;
  // Encoded image files, in the order in which the text refers to them.
  std::vector<std::string> images;
};

// Where a sample lies, for messages and lists.
struct SampleLocation {
  std::string file;     // as the index calls it
  uint64_t offset = 0;  // bytes from its start
};

// What to read of a sample, and whence.
struct ReadParts {
  bool text = true;
  bool images = true;
  ReadFrom from = ReadFrom::kDisk;
};

// Random access to the samples of one source, by their number in its index.
// Thread-safe: Read may be called from many threads at once.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual const SourceIndex& index() const = 0;

  // Reads sample `ordinal`; parts not asked for stay empty. Blocks on the disk.
  // Errors name the sample and the file: OUT_OF_RANGE (no such sample),
  // DATA_LOSS (the file no longer holds what the index says, or the index is
  // damaged, which index().sample() would have said first), NOT_FOUND,
  // UNAVAILABLE (the disk). From memory: does not block, and any error may mean
  // no more than that the sample must be read from the disk.
  virtual absl::StatusOr<RawSample> Read(uint64_t ordinal,
                                         ReadParts parts) const = 0;

  // Where sample `ordinal` lies; without a file where there is no such sample,
  // or the index has not been asked for it yet. Does not touch the disk.
  virtual SampleLocation Locate(uint64_t ordinal) const = 0;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_CORPUS_SAMPLE_SOURCE_H_
