#ifndef BALLAST_SERVER_DATA_RECORD_PARSER_H_
#define BALLAST_SERVER_DATA_RECORD_PARSER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/config.pb.h"
#include "server/data/jsonl/conversation_json.h"
#include "server/data/jsonl/media_root.h"
#include "server/files/file.h"
#include "server/files/object_store.h"
#include "server/files/store_reader.h"
#include "server/recipe/recipe.h"
#include "server/sample/index_format.h"
#include "server/sample/sample_source.h"

namespace ballast {

class FileScanner;

// Kinds of members of a tar that the index has of a record. Others are not
// read: the index was built for a model that does not take them.
struct IndexedKinds {
  bool lists = true;  // of pictures, which are videos
  bool audio = true;
};

// A medium in pieces of the data file, which follow each other, and of
// `others`.
struct MediumPieces {
  uint64_t size = 0;
  absl::Span<const FilePiece> pieces;
  absl::string_view others;
};

// The path of a medium below media_root.
struct MediumPath {
  std::string path;
};

// The file of an image, of a video or of a picture of one: a range of the data
// file, bytes in memory, pieces, or a separate file.
struct Medium {
  std::string name;  // for messages: its member or number; of a path, empty
  std::variant<ByteRange, absl::string_view, MediumPieces, MediumPath> place;
};

// A medium of a record: its kind and its file, or the pictures of a list, which
// are a video.
struct RecordMedium {
  MediumKind kind = MediumKind::kImage;
  std::vector<Medium> parts;  // at least one
  bool is_list = false;
  bool is_in_video = false;  // the audio of a video
  // Its clip and rate; only where an index is built.
  NamedMedium named = {};
};

// A sample as a data file has it: its text, and where its media are.
struct Record {
  // For messages: RawSample::name, and the place in the file: "key a", "row 5".
  std::string name;
  std::string where;
  // For lists of bad samples: the key, or the number.
  std::string key;
  RawSample::TextFormat text_format = RawSample::TextFormat::kConversation;
  std::string text;
  std::string fields;         // RawSample::fields
  uint64_t known_tokens = 0;  // RawSample::known_tokens
  std::string given;          // RawSample::record
  // `offset`, `length`, `line` and `text_check`, as the index stores them.
  IndexSampleRecord entry = {};
  // Kind by kind, each in the order in which the text refers to them.
  std::vector<RecordMedium> media;
  // Owner of the bytes in memory.
  std::shared_ptr<const void> bytes;

  size_t count(MediumKind kind) const {
    size_t count = 0;
    for (const RecordMedium& medium : media) count += medium.kind == kind;
    return count;
  }
  // Adds a medium of one file.
  void Add(MediumKind kind, Medium file) {
    media.push_back({kind, {std::move(file)}});
  }
};

// Places of the records of a data file: the base of both kinds of parsers.
class RecordPlaces {
 public:
  virtual ~RecordPlaces() = default;

  // Whether images are in the data file itself.
  virtual bool HoldsImages() const { return true; }
  // The folder of media that records name; null: they name none.
  virtual const MediaRoot* media() const { return nullptr; }

  // The ranges of an object of a store that Read and the reading of its media
  // need; `images`: also of images. Errors: as Read.
  virtual absl::StatusOr<std::vector<ByteRange>> Ranges(
      const IndexSampleRecord& entry, FileView file, bool /*images*/) const {
    return std::vector<ByteRange>{
        RangeToKeep({entry.offset, entry.length}, file.size())};
  }
  // Drops what Read keeps of the record in memory: the file may have been
  // another one.
  virtual void Forget(const IndexSampleRecord& /*entry*/,
                      const FileView& /*file*/) const {}
};

// The parser of one format, for building an index and for serving alike: both
// make the same Record of the same bytes. Thread-safe; blocks on the disk.
class RecordParser : public RecordPlaces {
 public:
  // Finds the records of a whole data file and passes them to the scanner, in
  // the order of the index. Errors, which end the build: as File; of the
  // scanner; FAILED_PRECONDITION and UNIMPLEMENTED (the file is not what the
  // configuration says).
  virtual absl::Status Scan(const File& file, FileScanner& scanner) const = 0;

  // Reads the record whose place is `entry`. `file_name` is for its name.
  // Errors: a data fault (no such record there); as FileView; ABORTED
  // (`parts.from` is memory, and not all is there).
  virtual absl::StatusOr<Record> Read(const IndexSampleRecord& entry,
                                      FileView file,
                                      absl::string_view file_name,
                                      const ReadParts& parts,
                                      const IndexedKinds& kinds) const = 0;

  // Paths of media in a store that the record names, as far as it can be read;
  // from memory also none, if a recipe has to name them. `file_name` as for
  // Read. Errors: as FileView.
  virtual absl::StatusOr<std::vector<std::string>> StoredMedia(
      const IndexSampleRecord& /*entry*/, FileView /*file*/,
      absl::string_view /*file_name*/) const {
    return std::vector<std::string>();
  }
};

// A record of a source with a recipe, before the recipe makes a sample of it.
struct RawRecord {
  // Without text, media and `text_check`.
  Record record;
  RecipeRecord given;  // without `source` and `name`
  // The places of given.parts, one for each.
  std::vector<Medium> media;
};

// Takes the records of a data file. Each error ends the scan.
class RawRecordSink {
 public:
  virtual ~RawRecordSink() = default;
  // The name of the file, for Record::name.
  virtual const std::string& name() const = 0;
  virtual absl::Status Add(RawRecord record) = 0;
  // As FileScanner.
  virtual absl::Status AddBad(uint64_t offset, absl::string_view key,
                              const absl::Status& reason) = 0;
  virtual absl::Status AddDamage(uint64_t offset, absl::string_view lost_key,
                                 const absl::Status& reason) = 0;
  virtual void AddFiltered() = 0;
  virtual void Advance(uint64_t offset) = 0;
};

// As RecordParser, for the records that a recipe is given. Thread-safe.
class RawRecordParser : public RecordPlaces {
 public:
  virtual absl::Status Scan(const File& file, RawRecordSink& sink) const = 0;
  virtual absl::StatusOr<RawRecord> Read(const IndexSampleRecord& entry,
                                         FileView file,
                                         absl::string_view file_name) const = 0;
};

// A format of sources, as its folder describes it. `directory` is the
// configuration's. Functions may be null where the comment says what then
// holds.
struct RecordFormat {
  v1::Source::Format format;
  // OK if this build reads it. Null: it does.
  absl::Status (*check)();
  // The data files, in order. Null: those that source.path names.
  absl::StatusOr<std::vector<std::string>> (*list_files)(
      const v1::Source& source, absl::string_view directory);
  // What decides besides the files which samples they have. Null: nothing.
  std::string (*key)(const v1::Source& source, absl::string_view directory);
  // Records name media below source.media_root.
  bool names_media;
  // Samples at one offset are a group that is read together.
  bool in_groups;
  // Errors: as MediaRoot::Create; of the format.
  absl::StatusOr<std::unique_ptr<RecordParser>> (*make)(
      const v1::Source& source, absl::string_view directory);
  // Of a source with a recipe. Errors: likewise.
  absl::StatusOr<std::unique_ptr<RawRecordParser>> (*make_raw)(
      const v1::Source& source, absl::string_view directory);
};

// Tar files whose members are samples (webdataset_reader.h).
extern const RecordFormat kWebDatasetFormat;
// Samples in JSON lines, or in one JSON array a file.
extern const RecordFormat kJsonlFormat;
// Samples in rows of Parquet files.
extern const RecordFormat kParquetFormat;
// Samples in the tar files of an Energon folder.
extern const RecordFormat kEnergonFormat;
// Pairs NAME.bin and NAME.idx of token ids (docs/data.md), a document a sample.
// The .idx has the lengths: indexing does not read the .bin. A record's
// `text_check` is its number of tokens and their type; servers need no .idx.
extern const RecordFormat kMegatronFormat;
// Samples in the rows of tables with commas or tabs, whose first line names the
// columns; by a form or a recipe alone.
extern const RecordFormat kCsvFormat;

// The format of `source`. UNIMPLEMENTED, naming the source, if it has no files
// or this build does not read it.
absl::StatusOr<const RecordFormat*> FindFormat(const v1::Source& source);

// The parser of `source`, with its recipe if it has one. Errors: as FindFormat,
// RecordFormat::make and Recipes::Get.
absl::StatusOr<std::unique_ptr<RecordParser>> MakeParser(
    const v1::Source& source, absl::string_view directory);

// The name of the recipe of `source` (Recipe::name); "" without one. Errors: as
// Recipes::Get.
absl::StatusOr<std::string> GetRecipeName(const v1::Source& source,
                                          absl::string_view directory);

}  // namespace ballast

#endif  // BALLAST_SERVER_DATA_RECORD_PARSER_H_
