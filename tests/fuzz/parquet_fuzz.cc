// Parquet files: footers, the columns that make samples, rows. Without Arrow it
// has nothing to do.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/data/jsonl/conversation_json.h"
#include "server/data/parquet/parquet_file.h"
#include "server/files/file.h"
#include "server/sample/data_fault.h"
#include "tests/fuzz/memory_file.h"

namespace ballast {
namespace {

void Must(bool held) {
  if (!held) std::abort();
}

void ReadRows(const ParquetRows& rows) {
  for (uint64_t row = 0; row < rows.size(); ++row) {
    rows.Passes(row);
    const auto sample = rows.Row(row);
    if (!sample.ok()) {
      Must(sample.status().code() == absl::StatusCode::kInvalidArgument);
      continue;
    }
    Must(sample->text.size() <= kMaxTextBytes);
    Must(sample->images.size() <= kMaxImages);
    // It is JSON, whatever the texts are. A video is refused.
    const absl::Status status = CheckConversation(sample->text);
    Must(status.ok() ||
         status.message().substr(0, 22) == "video is not supported");
    uint64_t bytes = 0;
    for (const ParquetImage& image : sample->images) {
      for (const char c : image.bytes)
        bytes += static_cast<unsigned char>(c) != 0;
    }
    Must(bytes <= kMaxSampleBytes);
  }
}

std::vector<std::string> ImagesOf(FileView file, const ParquetRow& row) {
  std::vector<std::string> images;
  for (const ParquetImage& image : row.images) {
    std::string bytes(image.bytes);
    if (!image.pieces.empty()) {
      bytes.resize(image.size);
      Must(ReadPieces(file, image.pieces, image.others, bytes.data()).ok());
    }
    images.push_back(std::move(bytes));
  }
  return images;
}

// The rows whose images stay where they are.
void ReadByPlaces(
    const File& file, const ParquetFile& opened, size_t number,
    const absl::StatusOr<std::shared_ptr<const ParquetRows>>& all) {
  const auto rows = opened.ReadPlaces(&file, number);
  if (!rows.ok()) {
    Must(rows.status().code() == absl::StatusCode::kDataLoss);
    Must(!all.ok());
    return;
  }
  Must(all.ok() && (*rows)->size() == (*all)->size());
  for (uint64_t row = 0; row < (*rows)->size(); ++row) {
    const auto mine = (*rows)->Row(row);
    const auto other = (*all)->Row(row);
    Must(mine.status() == other.status());
    if (!mine.ok()) continue;
    Must(mine->text == other->text);
    Must(ImagesOf(&file, *mine) == ImagesOf(&file, *other));
  }
}

// The rows that the heads of images give, if the heads are the whole images.
void ReadByHeads(
    const File& file, const ParquetFile& opened, size_t number,
    const absl::StatusOr<std::shared_ptr<const ParquetRows>>& all) {
  const auto rows =
      opened.ReadHeads(file, number, [](uint64_t size, auto read) {
        std::string image(size, '\0');
        (void)read(0, size, image.data());
      });
  if (!rows.ok()) {
    Must(rows.status().code() == absl::StatusCode::kDataLoss);
    // What decodes as a whole decodes by its heads.
    Must(!all.ok());
    return;
  }
  if (!all.ok()) return ReadRows(**rows);  // checksums are not compared
  Must((*rows)->size() == (*all)->size());
  for (uint64_t row = 0; row < (*rows)->size(); ++row) {
    const auto mine = (*rows)->Row(row);
    const auto other = (*all)->Row(row);
    Must(mine.status() == other.status());
    if (mine.ok()) {
      Must(mine->text == other->text);
      Must(ImagesOf(&file, *mine) == ImagesOf(&file, *other));
    }
  }
}

void ReadFile(const File& file, const ParquetColumns& columns) {
  const auto opened = OpenParquetFile(&file, columns);
  if (!opened.ok()) {
    Must(opened.status().code() == absl::StatusCode::kDataLoss ||
         opened.status().code() == absl::StatusCode::kFailedPrecondition);
    return;
  }
  for (size_t i = 0; i < (*opened)->groups().size(); ++i) {
    const auto rows = (*opened)->Read(&file, i);
    ReadByHeads(file, **opened, i, rows);
    ReadByPlaces(file, **opened, i, rows);
    if (!rows.ok()) {
      Must(rows.status().code() == absl::StatusCode::kDataLoss);
      continue;
    }
    Must((*rows)->size() == (*opened)->groups()[i].num_rows);
    ReadRows(**rows);
  }
}

}  // namespace
}  // namespace ballast

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using ballast::ParquetColumns;
  if (!ballast::CheckParquetIsBuiltIn().ok()) return 0;
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto file = ballast::File::Open(ballast::MemoryFile(bytes));
  ballast::Must(file.ok());
  ParquetColumns columns;
  columns.recognise = true;
  ballast::ReadFile(*file, columns);
  columns.recognise = false;
  columns.turns = "texts";
  columns.images = "images";
  columns.shape = ballast::TurnShape::kTexts;
  columns.filters.push_back(*ballast::ParseRowFilter("source == \"set 1\""));
  columns.filters.push_back(
      *ballast::ParseRowFilter("image_correspondence_min >= 1"));
  ballast::ReadFile(*file, columns);
  return 0;
}
