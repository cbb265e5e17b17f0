// Writes Parquet files of one image a row, quickly:
//
//   write_rows PREFIX FILES GROUPS ROWS IMAGE_BYTES
//
// FILES files PREFIX-0000.parquet, … of GROUPS row groups of ROWS rows. Images
// are pictures of 32 x 32 with bytes that no codec shrinks behind their end,
// IMAGE_BYTES long or as short as they can be. Pages have checksums: servers
// read row groups as a whole.

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/data/parquet/parquet_tables.h"
#include "tests/fakes/made_jpegs.h"

namespace ballast {
namespace {

struct Shape {
  uint64_t files = 0;
  uint64_t groups = 0;
  uint64_t rows = 0;
  uint64_t image_bytes = 0;
};

// The picture, and behind its end bytes of an image of their own.
std::string Image(const std::string& picture, uint64_t bytes, uint64_t number) {
  std::string image = picture;
  uint64_t state = number;
  do {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t mixed = state ^ (state >> 29);
    image.append(reinterpret_cast<const char*>(&mixed), sizeof(mixed));
  } while (image.size() < bytes);
  return image;
}

absl::Status WriteFiles(const std::string& prefix, const Shape& shape) {
  const std::string picture =
      MakeJpeg({.width = 32, .height = 32, .quality = 30});
  uint64_t number = 0;
  for (uint64_t file = 0; file < shape.files; ++file) {
    BALLAST_ASSIGN_OR_RETURN(
        const auto writer,
        ParquetWriter::Create(absl::StrFormat("%s-%04d.parquet", prefix, file),
                              /*checksums=*/true));
    for (uint64_t group = 0; group < shape.groups; ++group) {
      std::vector<std::string> images(shape.rows);
      std::vector<ParquetWriter::Row> rows(shape.rows);
      for (uint64_t i = 0; i < shape.rows; ++i, ++number) {
        images[i] = Image(picture, shape.image_bytes, number);
        rows[i].images = {{absl::StrCat(number, ".jpg"), images[i]}};
        rows[i].turns = {
            {"human", absl::StrCat("<image>\nWhat is number ", number, "?")},
            {"gpt", absl::StrCat("A picture of 32 pixels, number ", number)}};
      }
      BALLAST_RETURN_IF_ERROR(writer->WriteGroup(rows));
    }
    BALLAST_RETURN_IF_ERROR(writer->Finish());
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace ballast

int main(int argc, char** argv) {
  ballast::Shape shape;
  if (argc != 6 || !absl::SimpleAtoi(argv[2], &shape.files) ||
      !absl::SimpleAtoi(argv[3], &shape.groups) ||
      !absl::SimpleAtoi(argv[4], &shape.rows) ||
      !absl::SimpleAtoi(argv[5], &shape.image_bytes)) {
    std::cerr << "usage: write_rows PREFIX FILES GROUPS ROWS IMAGE_BYTES\n";
    return 2;
  }
  const absl::Status written = ballast::WriteFiles(argv[1], shape);
  if (!written.ok()) std::cerr << written << "\n";
  return written.ok() ? 0 : 1;
}
