#include "tests/fakes/formula_block.h"

#include "proto/block/block_view.h"
#include "proto/schedule.pb.h"

namespace ballast {
namespace {

void FillText(const SampleRecord& sample, uint32_t axes, uint8_t* payload) {
  const LanguagePayload at = LayOutLanguage(sample.tokens, axes);
  const auto put = [&](uint64_t offset, uint32_t index, int32_t value) {
    std::memcpy(payload + offset + index * sizeof(value), &value,
                sizeof(value));
  };
  for (uint32_t t = 0; t < sample.tokens; ++t) {
    put(at.ids, t, FormulaId(sample.position, t));
    put(at.labels, t, FormulaLabel(sample.position, t));
    for (uint32_t axis = 0; axis < axes; ++axis) {
      put(at.positions, axis * sample.tokens + t,
          FormulaPositionId(sample.position, axis, t));
    }
  }
}

void FillImage(uint64_t position, uint32_t number, const ImageRecord& image,
               uint32_t patch, uint8_t* payload) {
  uint8_t* pixel = payload + image.data;
  for (uint32_t y = 0; y < image.height; ++y) {
    for (uint32_t x = 0; x < image.width; ++x) {
      for (uint32_t c = 0; c < 3; ++c) {
        *pixel++ = FormulaPixel(position, number, image.grid_w, patch, y, x, c);
      }
    }
  }
}

void FillClip(uint64_t position, uint32_t number, const ImageRecord& clip,
              uint8_t* payload) {
  uint8_t* to = payload + clip.data;
  for (uint32_t row = 0; row < clip.grid_h; ++row) {
    for (uint32_t bin = 0; bin < clip.grid_w; ++bin, to += sizeof(float)) {
      const float value = FormulaFeature(position, number, row, bin);
      std::memcpy(to, &value, sizeof(value));
    }
  }
}

}  // namespace

int32_t FormulaId(uint64_t position, uint32_t token) {
  return position * 1000 + token;
}

int32_t FormulaLabel(uint64_t position, uint32_t token) {
  return token % 3 == 0 ? -100 : FormulaId(position, token + 1);
}

int32_t FormulaPositionId(uint64_t position, uint32_t axis, uint32_t token) {
  return (axis + 1) * 1000000 + FormulaId(position, token);
}

uint8_t FormulaPixel(uint64_t position, uint32_t image, uint32_t grid_w,
                     uint32_t patch, uint32_t y, uint32_t x, uint32_t c) {
  if (c == 0) return position;
  if (c == 1) return image;
  return y / patch * grid_w + x / patch;
}

float FormulaFeature(uint64_t position, uint32_t clip, uint32_t row,
                     uint32_t bin) {
  return ((position * 4 + clip) * 256 + row) * 64 + bin;
}

AlignedBuffer FormulaBlock(const BlockPlan& plan,
                           const BlockGeometry& geometry) {
  // A test may crash if memory runs out.
  AlignedBuffer block = AlignedBuffer::Create(plan.bytes()).value();
  std::memset(block.bytes().data(), 0, block.size());
  WriteBlockTables(plan, block.bytes());
  for (const PlannedSample& sample : plan.samples) {
    const SampleRecord& record = sample.record;
    uint8_t* payload = block.bytes().data() + record.payload;
    if (plan.header.module == v1::MODULE_LANGUAGE) {
      FillText(record, geometry.position_axes, payload);
    }
    for (uint32_t k = 0; k < record.num_images; ++k) {
      const ImageRecord& image = plan.images[record.first_image + k];
      if (plan.header.module == v1::MODULE_AUDIO) {
        FillClip(record.position, k, image, payload);
        continue;
      }
      if (image.encoded_bytes != 0) continue;
      FillImage(record.position, k, image, geometry.patch, payload);
    }
  }
  return block;
}

}  // namespace ballast
