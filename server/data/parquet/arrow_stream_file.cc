#include "server/data/parquet/arrow_stream_file.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <arrow/buffer.h>
#include <arrow/io/memory.h>
#include <arrow/ipc/dictionary.h>
#include <arrow/ipc/message.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>
#include <arrow/record_batch.h>
#include <arrow/table.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/data/parquet/arrow_file.h"
#include "server/data/parquet/arrow_group.h"
#include "server/data/parquet/row_mapping.h"
#include "server/files/store_reader.h"
#include "server/sample/data_fault.h"

namespace ballast {
namespace {

constexpr absl::string_view kFileMagic = "ARROW1";
constexpr absl::string_view kContinuation = "\xff\xff\xff\xff";
constexpr uint64_t kMostMetadata = 64 << 20;

// A number of a flatbuffer, which is little-endian; 0 beyond the end.
template <typename T>
T NumberAt(absl::string_view bytes, uint64_t at) {
  T number = 0;
  if (at + sizeof(T) <= bytes.size()) {
    std::memcpy(&number, bytes.data() + at, sizeof(T));
  }
  return number;
}

// Where field `index` of the table at `table` stands; 0: it is not there.
uint64_t FieldAt(absl::string_view bytes, uint64_t table, int index) {
  const uint64_t fields = table - NumberAt<int32_t>(bytes, table);
  const uint64_t entry = 4 + 2 * static_cast<uint64_t>(index);
  if (entry >= NumberAt<uint16_t>(bytes, fields)) return 0;
  const uint16_t offset = NumberAt<uint16_t>(bytes, fields + entry);
  return offset == 0 ? 0 : table + offset;
}

// RecordBatch.length of a message that Message::Open has verified
// (Arrow's format/Message.fbs: `header` is Message's third field, `length`
// RecordBatch's first).
int64_t RowsOf(absl::string_view metadata) {
  const uint64_t message = NumberAt<uint32_t>(metadata, 0);
  const uint64_t header = FieldAt(metadata, message, 2);
  if (header == 0) return 0;
  const uint64_t batch = header + NumberAt<uint32_t>(metadata, header);
  const uint64_t length = FieldAt(metadata, batch, 0);
  return length == 0 ? 0 : NumberAt<int64_t>(metadata, length);
}

// A message's place.
struct Place {
  uint64_t offset = 0;    // of its first byte
  uint64_t metadata = 0;  // bytes, with the prefix
  uint64_t body = 0;
};

class ArrowStreamFile final : public ParquetFile {
 public:
  ArrowStreamFile(std::shared_ptr<arrow::Schema> schema, RowMapping mapping,
                  std::vector<ParquetGroup> groups, std::vector<Place> places)
      : schema_(std::move(schema)),
        mapping_(std::move(mapping)),
        groups_(std::move(groups)),
        places_(std::move(places)) {}

  uint64_t bytes() const override {
    return sizeof(*this) +
           groups_.size() * (sizeof(ParquetGroup) + sizeof(Place));
  }
  absl::Span<const ParquetGroup> groups() const override { return groups_; }
  std::vector<ByteRange> Ranges(size_t number) const override {
    const Place& place = places_[number];
    return {{place.offset, place.metadata + place.body}};
  }

  absl::StatusOr<std::shared_ptr<const ParquetRows>> Read(
      FileView file, size_t number) const override {
    const Place& place = places_[number];
    auto memory = std::make_shared<GroupMemory>();
    const auto in = std::make_shared<ArrowFile>(file, &memory->pool);
    std::shared_ptr<arrow::Table> table;
    BALLAST_RETURN_IF_ERROR(GuardArrow(in->error(), [&]() -> arrow::Status {
      ARROW_ASSIGN_OR_RAISE(
          const auto message,
          arrow::ipc::ReadMessage(static_cast<int64_t>(place.offset),
                                  static_cast<int32_t>(place.metadata),
                                  in.get()));
      arrow::ipc::DictionaryMemo memo;
      arrow::ipc::IpcReadOptions options =
          arrow::ipc::IpcReadOptions::Defaults();
      options.memory_pool = &memory->pool;
      options.use_threads = false;
      ARROW_ASSIGN_OR_RAISE(
          const auto batch,
          arrow::ipc::ReadRecordBatch(*message, schema_, &memo, options));
      // Its offsets come from the file.
      ARROW_RETURN_NOT_OK(batch->ValidateFull());
      return arrow::Table::FromRecordBatches(schema_, {batch}).Value(&table);
    }));
    return MapTable(table, std::nullopt, mapping_, groups_[number], memory);
  }

  absl::StatusOr<std::shared_ptr<const ParquetRows>> ReadPlaces(
      FileView file, size_t number) const override {
    return Read(file, number);
  }
  absl::StatusOr<std::shared_ptr<const ParquetRows>> ReadHeads(
      const File& file, size_t number, ReadHead /*read_head*/) const override {
    FileView view(&file);
    BALLAST_RETURN_IF_ERROR(view.Load(Ranges(number)));
    return Read(view, number);
  }

 private:
  const std::shared_ptr<arrow::Schema> schema_;
  const RowMapping mapping_;
  const std::vector<ParquetGroup> groups_;
  const std::vector<Place> places_;
};

}  // namespace

absl::StatusOr<bool> IsArrowFile(FileView file) {
  if (file.size() < 8) return false;
  BALLAST_RETURN_IF_ERROR(file.Load({{0, 8}}));
  BALLAST_ASSIGN_OR_RETURN(const std::string head, file.ReadAt(0, 8));
  return absl::StartsWith(head, kContinuation) ||
         absl::StartsWith(head, kFileMagic);
}

absl::StatusOr<std::shared_ptr<const ParquetFile>> OpenArrowFile(
    FileView file, const ParquetColumns& columns) {
  BALLAST_ASSIGN_OR_RETURN(const std::string head, file.ReadAt(0, 8));
  uint64_t at = absl::StartsWith(head, kFileMagic) ? 8 : 0;
  std::shared_ptr<arrow::Schema> schema;
  std::vector<ParquetGroup> groups;
  std::vector<Place> places;
  uint64_t row = 0;
  bool is_ended = false;
  while (file.size() - at >= 8) {
    BALLAST_RETURN_IF_ERROR(file.Load({{at, 8}}));
    BALLAST_ASSIGN_OR_RETURN(const std::string prefix, file.ReadAt(at, 8));
    if (!absl::StartsWith(prefix, kContinuation)) {
      return DamagedTable(absl::StrCat("no message of Arrow at byte ", at));
    }
    const uint64_t size = NumberAt<uint32_t>(prefix, 4);
    if (size == 0) {  // the end of the stream
      is_ended = true;
      break;
    }
    if (size > kMostMetadata || size > file.size() - at - 8) {
      return DamagedTable(
          absl::StrCat("a message of Arrow at byte ", at, " is cut off"));
    }
    BALLAST_RETURN_IF_ERROR(file.Load({{at, 8 + size}}));
    BALLAST_ASSIGN_OR_RETURN(const std::string metadata,
                             file.ReadAt(at + 8, size));
    Place place = {at, 8 + size, 0};
    auto type = arrow::ipc::MessageType::NONE;
    int64_t body = 0;
    BALLAST_RETURN_IF_ERROR(
        GuardArrow(absl::OkStatus(), [&]() -> arrow::Status {
          ARROW_ASSIGN_OR_RAISE(
              const auto message,
              arrow::ipc::Message::Open(arrow::Buffer::FromString(metadata),
                                        nullptr));
          type = message->type();
          body = message->body_length();
          if (type != arrow::ipc::MessageType::SCHEMA) {
            return arrow::Status::OK();
          }
          arrow::ipc::DictionaryMemo memo;
          return arrow::ipc::ReadSchema(*message, &memo).Value(&schema);
        }));
    if (body < 0 || static_cast<uint64_t>(body) > file.size() - at - 8 - size) {
      return DamagedTable(
          absl::StrCat("the record batch at byte ", at, " is cut off"));
    }
    place.body = static_cast<uint64_t>(body);
    if (type == arrow::ipc::MessageType::DICTIONARY_BATCH) {
      return absl::UnimplementedError(
          "Arrow's dictionaries are not read; write the set as Parquet "
          "(dataset.to_parquet)");
    }
    if (type == arrow::ipc::MessageType::RECORD_BATCH) {
      const int64_t rows = RowsOf(metadata);
      if (rows < 0 || static_cast<uint64_t>(rows) > kMaxLineNumber - row) {
        return DamagedTable(absl::StrCat("a record batch of ", rows, " rows"));
      }
      if (rows > 0) {
        groups.push_back({row, static_cast<uint64_t>(rows), at});
        places.push_back(place);
      }
      row += static_cast<uint64_t>(rows);
    }
    at += place.metadata + place.body;
  }
  if (schema == nullptr) return DamagedTable("no schema");
  // Cut between two batches it would look whole.
  if (!is_ended) {
    return DamagedTable(absl::StrCat("Arrow's messages have no end at byte ",
                                     at, "; was the file cut?"));
  }
  auto mapping = MapColumns(*schema, columns);
  if (!mapping.ok() && groups.empty()) mapping = RowMapping();
  BALLAST_RETURN_IF_ERROR(mapping.status());
  return std::make_shared<ArrowStreamFile>(
      std::move(schema), *std::move(mapping), std::move(groups),
      std::move(places));
}

}  // namespace ballast
