#ifndef BALLAST_SERVER_SAMPLE_SAMPLE_SOURCE_H_
#define BALLAST_SERVER_SAMPLE_SAMPLE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "server/files/object_store.h"
#include "server/sample/data_fault.h"
#include "server/sample/medium.h"
#include "server/sample/source_index.h"

namespace ballast {

// A sample as stored on disk, nothing decoded.
struct RawSample {
  enum class TextFormat {
    kConversation,  // a JSON object with turns
    kPlain,         // a document
    kPackedBytes,   // token ids, as little-endian int32
    kPackedJson,    // token ids, as a JSON array or an object with `tokens`
    // A preference pair: the turns of both conversations, and the other keys
    // (jsonl/pair_json.h).
    kPair,
  };
  // For messages: "docs-000003.tar: 000123" or "chat.jsonl:17".
  std::string name;
  TextFormat text_format = TextFormat::kConversation;
  std::string text;
  // The JSON object that has the fields of sources[].fields, if there are any
  // and `text` is not that object.
  std::string fields;
  // Of token ids, only while an index is built: their number, if the source's
  // own index says it; then `text` is empty. 0: count `text`.
  uint64_t known_tokens = 0;
  // In the order of its index (MediaList); while an index is built, none.
  std::vector<RawMedium> media;
  // When the last of its named media was modified, if that was after all that
  // the index knows.
  absl::Time media_modified = absl::InfinitePast();
  // With ReadParts::record: RecordJson of the record that a recipe has made the
  // sample of; "" without a recipe.
  std::string record;
  // The facts of its media, only while an index is built (SampleMeasure).
  MediaList facts;

  std::vector<const RawMedium*> of(MediumKind kind) const {
    std::vector<const RawMedium*> found;
    for (const RawMedium& medium : media) {
      if (medium.kind == kind) found.push_back(&medium);
    }
    return found;
  }
};

// The place that the reader of a sample has for the file of image `image` of
// `images`: `size` bytes of its memory, or nullptr. Called while the sample is
// read, by the thread that reads it, at most once for each image and attempt.
using ImagePlaces =
    absl::FunctionRef<char*(size_t image, size_t images, uint64_t size)>;

// The place of a sample, for messages and lists.
struct SampleLocation {
  std::string file;     // as the index calls it
  uint64_t offset = 0;  // bytes from its start; of a row, of its row group
  // Of its line, array element or row, from 1; 0: no such place.
  uint64_t number = 0;
};

// The parts of a sample to read, and from where.
struct ReadParts {
  bool text = true;
  bool images = true;  // and all other media
  // False: of images in files only the head, which shows that they are the
  // indexed ones; these are then empty.
  bool whole_images = true;
  ReadFrom from = ReadFrom::kDisk;
  // Files for which it has a place are read straight there; what it has there
  // after a failure is undefined. Used only while the call lasts. Null: all
  // files are strings.
  const ImagePlaces* places = nullptr;
  // Also what a recipe is given of the sample's record, for readers.
  bool record = false;
};

// Random access to the samples of one source, by their number in its index.
// Thread-safe: Read may be called from many threads at once.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual const SourceIndex& index() const = 0;

  // Reads sample `ordinal`; parts not requested stay empty. Blocks on the disk.
  // Both kinds of failure name the file and the sample:
  //   a data fault     the bytes are bad, or are not those that were indexed
  //   a status         a transient fault: UNAVAILABLE (I/O error, no
  //                    descriptor), NOT_FOUND and PERMISSION_DENIED (a media
  //                    file), DATA_LOSS (the index is damaged, which
  //                    index().sample() would have reported first);
  //                    OUT_OF_RANGE (no such sample)
  // From memory: does not block; any failure may only mean that the sample must
  // be read from the disk.
  virtual absl::StatusOr<FaultOr<RawSample>> Read(uint64_t ordinal,
                                                  ReadParts parts) const = 0;

  // The place of sample `ordinal`; without a file if there is no such sample or
  // its index entry has not been read yet. Does not touch the disk.
  virtual SampleLocation Locate(uint64_t ordinal) const = 0;

  // Makes a later Read of the sample find its bytes in the cache of
  // server/files, or in memory without one. Returns the bytes that came from
  // a store: 0 if all were there, or the source is not in a store.
  // `make_room` as in StoredObject::FetchAhead. Blocks on the store. Errors: as
  // Read's status; NOT_FOUND (an object is gone); RESOURCE_EXHAUSTED (no room).
  virtual absl::StatusOr<uint64_t> FetchAhead(
      uint64_t /*ordinal*/, const MakeRoom& /*make_room*/) const {
    return 0;
  }
  // Whether FetchAhead would find all of the sample's bytes there. False also
  // where it takes a store, or a file that is not open yet, to know.
  virtual bool IsHere(uint64_t /*ordinal*/) const { return false; }
  // Adds the owners of the sample's bytes in that cache: numbers that name it,
  // or its row group or block of lines, on every server alike. Adds nothing if
  // the source is not in a store.
  virtual void AddOwners(uint64_t /*ordinal*/,
                         std::vector<uint64_t>* /*owners*/) const {}
  // Whether it has bytes in a store.
  virtual bool InStore() const { return false; }
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SAMPLE_SAMPLE_SOURCE_H_
