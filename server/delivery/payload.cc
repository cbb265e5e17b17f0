#include "server/delivery/payload.h"

#include <cstring>

namespace ballast {

namespace {

// Zeroes payload[from, to).
void Clear(absl::Span<uint8_t> payload, uint64_t from, uint64_t to) {
  if (from < to) std::memset(payload.data() + from, 0, to - from);
}

}  // namespace

absl::Span<uint8_t> ImageData(const ImageRecord& image,
                              absl::Span<uint8_t> payload) {
  return payload.subspan(image.data, ImageBytes(image));
}

void ClearVisionPadding(const SampleRequest& request) {
  uint64_t end = 0;
  for (const ImageRecord& image : request.images) {
    Clear(request.payload, end, image.data);
    end = image.data + ImageBytes(image);
  }
  Clear(request.payload, end, request.payload.size());
}

std::vector<LanguageArrays> OpenLanguagePayload(const SampleRequest& request,
                                                uint32_t position_axes,
                                                FieldCounts fields) {
  std::vector<LanguageArrays> all;
  absl::Span<uint8_t> payload = request.payload;
  const SampleRecord& record = request.record;
  ForEachSequence(record.tokens, record.first_tokens, [&](uint32_t tokens) {
    const LanguagePayload layout =
        LayOutLanguage(tokens, position_axes, fields);
    const uint64_t column = tokens * sizeof(int32_t);
    Clear(payload, layout.ids + column, layout.labels);
    Clear(payload, layout.labels + column, layout.positions);
    Clear(payload, layout.positions + column * position_axes, layout.values);
    const uint64_t values = fields.per_sample * sizeof(uint32_t);
    Clear(payload, layout.values + values, layout.rows);
    Clear(payload, layout.rows + column * fields.per_token, layout.bytes);
    const auto array = [&](uint64_t offset, uint64_t length) {
      return absl::MakeSpan(reinterpret_cast<int32_t*>(payload.data() + offset),
                            length);
    };
    const auto numbers = [&](uint64_t offset, uint64_t length) {
      return absl::MakeSpan(
          reinterpret_cast<uint32_t*>(payload.data() + offset), length);
    };
    all.push_back({array(layout.ids, tokens), array(layout.labels, tokens),
                   array(layout.positions, uint64_t{tokens} * position_axes),
                   numbers(layout.values, fields.per_sample),
                   numbers(layout.rows, uint64_t{tokens} * fields.per_token)});
    payload.remove_prefix(layout.bytes);
  });
  return all;
}

FieldCounts CountFields(absl::Span<const FieldSpec> specs) {
  FieldCounts counts;
  for (const FieldSpec& spec : specs) {
    ++(spec.per == v1::Source::Field::PER_SAMPLE ? counts.per_sample
                                                 : counts.per_token);
  }
  return counts;
}

}  // namespace ballast
