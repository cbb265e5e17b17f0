#include "tests/fakes/formula_dataset.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/status_macros.h"
#include "server/data/tar/tar_reader.h"
#include "tests/fakes/made_jpegs.h"

namespace ballast {

FormulaGrid GridOfFormulaImage(uint32_t sample, uint32_t image) {
  return {4 + 2 * ((sample + image) % 4), 4 + 2 * ((sample / 3 + image) % 4)};
}

std::array<uint8_t, 3> FormulaColour(uint32_t sample, uint32_t image,
                                     uint32_t row, uint32_t column) {
  return {static_cast<uint8_t>(sample), static_cast<uint8_t>(60 * image + row),
          static_cast<uint8_t>(20 * column + 3)};
}

namespace {

std::string FormulaImage(uint32_t sample, uint32_t image) {
  const FormulaGrid grid = GridOfFormulaImage(sample, image);
  constexpr int kSide = kFormulaPatch;
  PlainPicture picture(grid.w * kSide, grid.h * kSide, {0, 0, 0});
  for (uint32_t row = 0; row < grid.h; ++row) {
    for (uint32_t column = 0; column < grid.w; ++column) {
      picture.FillBox(column * kSide, row * kSide, kSide, kSide,
                      FormulaColour(sample, image, row, column));
    }
  }
  return picture.Encode(FileFormat::kPng, 100);
}

std::string Conversation(uint32_t sample, uint32_t images) {
  std::string marks;
  for (uint32_t k = 0; k < images; ++k) marks += "<image>";
  // The lengths of the texts vary too.
  return absl::StrCat(R"({"conversations": [{"from": "human", "value": ")",
                      marks, "What is this?", std::string(sample % 7, '!'),
                      R"("}, {"from": "gpt", "value": "Sample )", sample,
                      R"(."}]})");
}

}  // namespace

absl::Status WriteFormulaDataset(
    const std::string& path, uint32_t samples,
    const std::function<uint32_t(uint32_t sample)>& images_of) {
  BALLAST_ASSIGN_OR_RETURN(const auto tar, TarWriter::Create(path));
  for (uint32_t i = 0; i < samples; ++i) {
    const uint32_t images = images_of(i);
    BALLAST_RETURN_IF_ERROR(
        tar->Add(absl::StrFormat("%06d.json", i), Conversation(i, images)));
    for (uint32_t k = 0; k < images; ++k) {
      BALLAST_RETURN_IF_ERROR(
          tar->Add(absl::StrFormat("%06d.%d.png", i, k), FormulaImage(i, k)));
    }
  }
  return tar->Finish();
}

namespace {

struct ImageFile {
  std::string extension;
  std::string bytes;
};

ImageFile MakeImage(uint32_t n) {
  const uint32_t width = 40 + n * 37 % 300;
  const uint32_t height = 40 + n * 53 % 260;
  if (n % 6 == 5) {
    PlainPicture picture(width, height, {static_cast<uint8_t>(n), 100, 50});
    picture.FillBox(7, 9, 20, 15, {200, static_cast<uint8_t>(3 * n), 0});
    return {"png", picture.Encode(FileFormat::kPng, 100)};
  }
  MadeJpeg made;
  made.width = width;
  made.height = height;
  made.sampling = static_cast<ChromaSampling>(n % 4);
  made.progressive = n % 6 == 4;
  made.seed = n;
  return {"jpg", MakeJpeg(made)};
}

}  // namespace

absl::Status WriteJpegDataset(const std::string& path,
                              const JpegDataset& dataset) {
  BALLAST_ASSIGN_OR_RETURN(const auto tar, TarWriter::Create(path));
  uint32_t n = 0;
  for (uint32_t i = 0; i < dataset.samples; ++i) {
    const uint32_t images = i % dataset.images_every == 0 ? 1 + i % 3 : 0;
    BALLAST_RETURN_IF_ERROR(
        tar->Add(absl::StrFormat("%06d.json", i), Conversation(i, images)));
    for (uint32_t k = 0; k < images; ++k, ++n) {
      ImageFile file = MakeImage(n);
      if (dataset.damaged_every != 0 && n % dataset.damaged_every == 0 &&
          file.extension == "jpg") {
        file.bytes = DamagedCopy(file.bytes,
                                 n / dataset.damaged_every % kDamageKinds, n);
      }
      BALLAST_RETURN_IF_ERROR(tar->Add(
          absl::StrFormat("%06d.%d.%s", i, k, file.extension), file.bytes));
    }
  }
  return tar->Finish();
}

}  // namespace ballast
