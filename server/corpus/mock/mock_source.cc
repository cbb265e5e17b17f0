#include "server/corpus/mock/mock_source.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/command/draw/encode.h"
#include "server/command/draw/random.h"

namespace ballast {
namespace {

// Side of a patch of one colour, in pixels.
constexpr uint32_t kSquare = 64;

// The special ids below `vocabulary`, ascending.
std::vector<uint32_t> SpecialIds(const v1::TokenIds& ids, uint32_t vocabulary) {
  std::vector<uint32_t> special;
  for (const int32_t id :
       {ids.image(), ids.video(), ids.vision_start(), ids.vision_end(),
        ids.im_start(), ids.im_end(), ids.end_of_text(), ids.pad()}) {
    if (id >= 1 && static_cast<uint32_t>(id) < vocabulary) {
      special.push_back(id);
    }
  }
  std::sort(special.begin(), special.end());
  special.erase(std::unique(special.begin(), special.end()), special.end());
  return special;
}

void Append(int32_t id, std::string* bytes) {
  for (int shift = 0; shift < 32; shift += 8) {
    bytes->push_back(static_cast<char>(static_cast<uint32_t>(id) >> shift));
  }
}

std::array<uint8_t, 3> DrawColor(Random* random) {
  const uint64_t bits = random->Next();
  return {static_cast<uint8_t>(bits), static_cast<uint8_t>(bits >> 8),
          static_cast<uint8_t>(bits >> 16)};
}

absl::StatusOr<std::string> DrawImage(const ImageSize& size, Random* random) {
  std::vector<uint8_t> pixels;
  pixels.reserve(size_t{3} * size.width * size.height);
  for (uint32_t top = 0; top < size.height; top += kSquare) {
    const size_t row = pixels.size();
    for (uint32_t x = 0; x < size.width; x += kSquare) {
      const auto color = DrawColor(random);
      for (uint32_t i = x; i < std::min(x + kSquare, size.width); ++i) {
        pixels.insert(pixels.end(), color.begin(), color.end());
      }
    }
    const size_t row_bytes = pixels.size() - row;
    for (uint32_t y = top + 1; y < std::min(top + kSquare, size.height); ++y) {
      pixels.resize(pixels.size() + row_bytes);
      std::copy_n(pixels.begin() + row, row_bytes, pixels.end() - row_bytes);
    }
  }
  return EncodePng(pixels, size.width, size.height);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MockSource>> MockSource::Create(
    const v1::Source& source, const v1::Model& model, const v1::Batch& batch) {
  std::vector<uint32_t> special =
      SpecialIds(model.token_ids(), source.vocabulary());
  if (source.vocabulary() <= special.size() + 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "source ", source.name(), ": vocabulary is ", source.vocabulary(),
        "; wanted one with an id from 1 on that is not special"));
  }
  BALLAST_ASSIGN_OR_RETURN(const std::vector<uint32_t> lengths,
                           MockLengthsOf(source));
  BALLAST_ASSIGN_OR_RETURN(std::unique_ptr<const MockIndex> index,
                           MockIndex::Draw(source, model, batch, lengths));
  BALLAST_ASSIGN_OR_RETURN(ModelImages images, ModelImages::Create(model));
  return std::unique_ptr<MockSource>(new MockSource(
      source, model, std::move(images), std::move(special), std::move(index)));
}

absl::StatusOr<FaultOr<RawSample>> MockSource::Read(uint64_t ordinal,
                                                    ReadParts parts) const {
  if (ordinal >= index_->size()) {
    return absl::OutOfRangeError(absl::StrCat(source_.name(), ": no sample ",
                                              ordinal, " of ", index_->size()));
  }
  RawSample sample;
  sample.name = absl::StrCat(source_.name(), " draw ", index_->draw(ordinal));
  sample.text_format = RawSample::TextFormat::kPackedBytes;
  if (parts.text) {
    BALLAST_ASSIGN_OR_RETURN(sample.text, DrawText(ordinal));
  }
  if (!parts.images) return sample;
  // Even streams draw sizes, so pixels use an odd one. Each image continues
  // where the previous one stopped, so that they differ.
  Random random(~MockSeed(source_), 2 * index_->draw(ordinal) + 1);
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           index_->sample(ordinal));
  for (const ImageSize& size : indexed.images) {
    BALLAST_ASSIGN_OR_RETURN(std::string file, DrawImage(size, &random));
    sample.images.push_back(std::move(file));
  }
  return sample;
}

absl::StatusOr<std::string> MockSource::DrawText(uint64_t ordinal) const {
  BALLAST_ASSIGN_OR_RETURN(const IndexedSample indexed,
                           index_->sample(ordinal));
  const v1::TokenIds& ids = model_.token_ids();
  const bool is_plain = images_.is_plain();
  std::string bytes;
  for (const ImageSize& size : indexed.images) {
    BALLAST_ASSIGN_OR_RETURN(
        const uint32_t placeholders,
        images_.Placeholders(size.height, size.width,
                             static_cast<uint32_t>(indexed.images.size())));
    if (is_plain) Append(ids.vision_start(), &bytes);
    for (uint32_t i = 0; i < placeholders; ++i) Append(ids.image(), &bytes);
    if (is_plain) Append(ids.vision_end(), &bytes);
  }
  Random random(MockSeed(source_), 2 * index_->draw(ordinal) + 1);
  const uint32_t choices = source_.vocabulary() - 1 - special_.size();
  const uint64_t text =
      indexed.text_tokens - (is_plain ? 2 * indexed.images.size() : 0);
  for (uint64_t i = 0; i + 1 < text; ++i) {
    // The k-th id that is not special.
    uint32_t id = 1 + random.Below(choices);
    for (const uint32_t special : special_) id += special <= id;
    Append(id, &bytes);
  }
  Append(ids.end_of_text(), &bytes);
  return bytes;
}

SampleLocation MockSource::Locate(uint64_t ordinal) const {
  if (ordinal >= index_->size()) return {};
  return {source_.name(), index_->draw(ordinal)};
}

}  // namespace ballast
