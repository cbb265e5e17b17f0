#ifndef BALLAST_SERVER_DATA_PARQUET_PARQUET_FILE_H_
#define BALLAST_SERVER_DATA_PARQUET_PARQUET_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/load_once_cache.h"
#include "proto/config.pb.h"
#include "server/data/parquet/page_body.h"
#include "server/files/file.h"
#include "server/settings/source_fields.h"

namespace ballast {

// OK if this build reads and writes Parquet; otherwise UNIMPLEMENTED, with the
// way to build one that does (bazel/arrow_configure.bzl).
absl::Status CheckParquetIsBuiltIn();

// The shape of a column of text. Turns may also be the JSON of a list of them.
enum class TurnShape {
  kConversations,  // a list of {from, value}
  kMessages,       // a list of {role, content}
  kTexts,          // a list of {user, assistant}
  kPlaces,         // a document: a list of texts and nulls, with images
  kText,           // a document
};

// "conversations", "messages", "texts" or "text": the usual name of such a
// column.
const char* GetName(TurnShape shape);

// The columns of Parquet files that make a sample.
struct ParquetColumns {
  // For a recipe or a form: all columns, and nothing of the rest but the
  // filters.
  bool whole_rows = false;
  // Both columns follow from the file's schema; the next three are unused.
  bool recognise = false;
  // The user names the columns one by one.
  bool named = false;
  // Rows are preference pairs; `recognise` is true.
  bool pairs = false;
  std::string images;  // empty: samples without images
  std::string audios;  // likewise
  std::string turns;
  TurnShape shape = TurnShape::kConversations;
  // Names of sources[].fields, which are columns, or keys of turns where
  // `turn_fields` has them; of `may_lack` neither need be there.
  std::vector<std::string> fields;
  std::vector<std::string> turn_fields;
  std::vector<std::string> may_lack;
  // A row that fails one of them is no sample.
  std::vector<RowFilter> filters;
};

// The columns that `source`, a loaded one, names by `columns` or `preset`.
ParquetColumns GetParquetColumns(const v1::Source& source);

// Everything in `source` that decides which sample a row is: two sources with
// the same text read the same samples from the same files.
std::string ParquetColumnsKey(const v1::Source& source);

// A video, or a clip of audio, of a row.
struct ParquetVideo {
  // Its file in the row, which lives as long as the ParquetRows; or, if `path`
  // is not empty, its path below media_root, which passes CheckMediaPath.
  absl::string_view bytes;
  std::string path;
  absl::string_view name = {};  // its path in the row, also next to its bytes
};

// A sample of a Parquet file.
struct ParquetRow {
  // A conversation: {"messages": [...]} with the turns of the row, and an
  // `<image>` mark for each image in the first user turn if the row has images
  // but its turns do not give their places; likewise for videos and audio.
  // In addition to "messages" the row's columns of kBeside, and its turns if
  // they are a text.
  // Of a document: its text, with an `<image>` mark at the place of each image
  // that has one.
  std::string text;
  bool is_document = false;
  std::string fields;  // of a document: RawSample::fields
  // Encoded image files. They live as long as the ParquetRows.
  std::vector<ParquetImage> images;
  std::vector<ParquetVideo> videos;
  std::vector<ParquetVideo> audios;
  // With ParquetColumns::whole_rows, `text` is an object with the values of all
  // columns: texts, numbers, lists and structs as JSON has them, others as
  // texts, and in place of bytes {"$ballast.media": N} for images[N]. Then the
  // columns of the images; else empty.
  std::vector<std::string> columns;
};

// A part of a Parquet file in memory. Immutable; thread-safe.
class ParquetPart {
 public:
  virtual ~ParquetPart() = default;
  // The memory that it takes, roughly.
  virtual uint64_t bytes() const = 0;
};

// Names a part of a file of a source.
struct ParquetPartKey {
  const void* source = nullptr;
  uint32_t file = 0;
  uint64_t offset = 0;  // ParquetGroup::offset, or 0 for the footer
  // FileStamp::mtime_ns of the file that it is decoded from.
  int64_t version = 0;

  friend bool operator==(const ParquetPartKey&,
                         const ParquetPartKey&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const ParquetPartKey& k) {
    return H::combine(std::move(h), k.source, k.file, k.offset, k.version);
  }
};

// Decoded row groups and footers, shared by all sources of a process.
class RowGroupCache
    : public LoadOnceCache<ParquetPartKey, ParquetPart, &ParquetPart::bytes> {
 public:
  using LoadOnceCache::LoadOnceCache;

  // The cache of the process, at first of 2 GiB.
  static std::shared_ptr<RowGroupCache> OfProcess();
  // Forgets all parts of `source`.
  void DropSource(const void* source) {
    DropIf([source](const ParquetPartKey& k) { return k.source == source; });
  }
};

// The rows of one row group, with the columns that make samples. `row` counts
// from 0 within the group and is below size().
class ParquetRows : public ParquetPart {
 public:
  virtual uint64_t size() const = 0;
  // Number of the group's first row in the file, from 0.
  virtual uint64_t first_row() const = 0;
  // Whether the row passes the filters.
  virtual bool Passes(uint64_t row) const = 0;
  // Errors: INVALID_ARGUMENT (a null, an image without bytes, over a bound of
  // data_fault.h), naming turn or image, counted from 1.
  virtual absl::StatusOr<ParquetRow> Row(uint64_t row) const = 0;
  // Whether images are in the file, in pieces, instead of in memory.
  virtual bool ImagesInFile() const = 0;
};

// A row group's place.
struct ParquetGroup {
  uint64_t first_row = 0;  // in the file, from 0
  uint64_t num_rows = 0;   // not 0
  uint64_t offset = 0;     // of the first byte of the columns of samples
};

// Reads of an image of `size` bytes all that the caller will look at: `read`
// copies [from, from + bytes) of it to `to`.
using ReadHead = absl::FunctionRef<void(
    uint64_t size,
    absl::FunctionRef<absl::Status(uint64_t from, uint64_t bytes, char* to)>
        read)>;

// The footer of a Parquet file: its schema and its row groups.
class ParquetFile : public ParquetPart {
 public:
  // Ordered by row, and strictly by offset. Without empty row groups.
  virtual absl::Span<const ParquetGroup> groups() const = 0;
  // The ranges that Read reads of groups()[number], those near each other as
  // one.
  virtual std::vector<ByteRange> Ranges(size_t number) const = 0;
  // Reads and decodes groups()[number] of `file`, the file that was opened:
  // only the columns of samples. Blocks on the disk. Errors: DATA_LOSS
  // (damaged; its columns take more than kMaxRowGroupBytes); RESOURCE_EXHAUSTED
  // (no memory); as File::ReadAt.
  virtual absl::StatusOr<std::shared_ptr<const ParquetRows>> Read(
      FileView file, size_t number) const = 0;
  // As Read, for a file on a disk, or ranges in the cache, whose rows are read
  // one by one: images that the file holds as they are stay there, in pieces.
  // All else is read, and so are images of less than 4 KiB on average, and of
  // pages with checksums.
  virtual absl::StatusOr<std::shared_ptr<const ParquetRows>> ReadPlaces(
      FileView file, size_t number) const = 0;
  // As Read, for an object of a store whose images are to be indexed: of them
  // it reads only what `read_head` reads, where the file allows it. What
  // `read_head` did not read is 0 in the rows' images, and checksums of images'
  // pages are not compared. Compressed images, and pages of other encodings
  // than PLAIN, are read as a whole. Takes the memory of Read.
  virtual absl::StatusOr<std::shared_ptr<const ParquetRows>> ReadHeads(
      const File& file, size_t number, ReadHead read_head) const = 0;
};

// Reads the footer of `file`. Errors: DATA_LOSS (not Parquet, damaged);
// FAILED_PRECONDITION (a column of `columns` is missing or has another type, or
// the schema does not show which columns make a sample: the message lists the
// columns); UNIMPLEMENTED (this build has no Parquet); as File::ReadAt.
absl::StatusOr<std::shared_ptr<const ParquetFile>> OpenParquetFile(
    FileView file, const ParquetColumns& columns);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_PARQUET_PARQUET_FILE_H_
