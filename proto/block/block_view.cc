#include "proto/block/block_view.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/loader_service.pb.h"

namespace ballast {

namespace {

absl::Status Wrong(absl::string_view field, uint64_t found,
                   absl::string_view wanted) {
  return absl::InvalidArgumentError(
      absl::StrCat("block: ", field, " is ", found, ", wanted ", wanted));
}

// Returns whether [offset, offset + count * size) is inside `limit` bytes.
bool Fits(uint64_t offset, uint64_t count, uint64_t size, uint64_t limit) {
  return offset <= limit && count <= (limit - offset) / size;
}

absl::Status CheckSample(const SampleRecord& sample, uint32_t number,
                         const BlockHeader& header) {
  const auto where = [&](absl::string_view field) {
    return absl::StrCat("sample ", number, " ", field);
  };
  if (sample.payload < header.payload ||
      sample.payload % kSampleAlignment != 0 ||
      !Fits(sample.payload, sample.payload_bytes, 1, header.total_bytes)) {
    return Wrong(
        where("payload"), sample.payload,
        absl::StrCat("a multiple of ", kSampleAlignment, " with its ",
                     sample.payload_bytes, " bytes inside the payload"));
  }
  if (sample.first_tokens != 0 && (header.version < kBlockVersionWithPairs ||
                                   sample.first_tokens >= sample.tokens)) {
    return Wrong(where("first_tokens"), sample.first_tokens,
                 absl::StrCat("0, or in version ", kBlockVersionWithPairs,
                              " fewer than its ", sample.tokens, " tokens"));
  }
  if (!Fits(sample.first_image, sample.num_images, 1, header.num_images)) {
    return Wrong(where("first_image"), sample.first_image,
                 absl::StrCat("at most ", header.num_images, " less its ",
                              sample.num_images, " images"));
  }
  return absl::OkStatus();
}

absl::Status CheckImage(const ImageRecord& image, uint32_t number,
                        const SampleRecord& sample) {
  const uint64_t bytes = ImageBytes(image);
  if (image.data % kImageAlignment != 0 ||
      !Fits(image.data, bytes, 1, sample.payload_bytes)) {
    return Wrong(
        absl::StrCat("image ", number, " data"), image.data,
        absl::StrFormat("a multiple of %d with its %d bytes (%dx%d pixels) "
                        "inside the sample's %d bytes",
                        kImageAlignment, bytes, image.width, image.height,
                        sample.payload_bytes));
  }
  return absl::OkStatus();
}

absl::Status Differs(absl::string_view what, uint64_t found, uint64_t wanted) {
  return absl::DataLossError(absl::StrCat(
      "block differs from its schedule: ", what, " is ", found, ", wanted ",
      wanted, "; the server runs another configuration or index"));
}

}  // namespace

absl::StatusOr<BlockHeader> ReadBlockHeader(absl::Span<const uint8_t> bytes) {
  BlockHeader header;
  if (bytes.size() < sizeof(header)) {
    return Wrong("length", bytes.size(),
                 absl::StrCat("at least ", sizeof(header)));
  }
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.magic != kBlockMagic) {
    return Wrong("magic", header.magic, absl::StrCat(kBlockMagic));
  }
  const bool has_fields =
      header.fields_per_token != 0 || header.fields_per_sample != 0;
  if (header.version < kBlockVersion ||
      header.version > kBlockVersionWithFloats) {
    return Wrong("version", header.version,
                 absl::StrCat(kBlockVersion, " to ", kBlockVersionWithFloats));
  }
  if (header.version < kBlockVersionWithPairs &&
      has_fields != (header.version == kBlockVersionWithFields)) {
    return Wrong("version", header.version,
                 has_fields ? absl::StrCat(kBlockVersionWithFields,
                                           ", since its samples have fields")
                            : absl::StrCat(kBlockVersion,
                                           ", since no sample has a field"));
  }
  if (header.total_bytes != bytes.size()) {
    return Wrong("total_bytes", header.total_bytes, absl::StrCat(bytes.size()));
  }
  return header;
}

absl::StatusOr<BlockView> BlockView::Parse(absl::Span<const uint8_t> bytes) {
  BALLAST_RETURN_IF_ERROR(ReadBlockHeader(bytes).status());
  BlockView view;
  view.bytes_ = bytes;
  view.header_ = reinterpret_cast<const BlockHeader*>(bytes.data());
  const BlockHeader& header = *view.header_;
  if (header.sample_table % alignof(SampleRecord) != 0 ||
      !Fits(header.sample_table, header.num_samples, sizeof(SampleRecord),
            bytes.size())) {
    return Wrong("sample_table", header.sample_table, "a table inside");
  }
  if (header.image_table % alignof(ImageRecord) != 0 ||
      !Fits(header.image_table, header.num_images, sizeof(ImageRecord),
            bytes.size())) {
    return Wrong("image_table", header.image_table, "a table inside");
  }
  if (header.payload > bytes.size()) {
    return Wrong("payload", header.payload, "an offset inside");
  }
  view.samples_ = absl::MakeConstSpan(
      reinterpret_cast<const SampleRecord*>(bytes.data() + header.sample_table),
      header.num_samples);
  view.images_ = absl::MakeConstSpan(
      reinterpret_cast<const ImageRecord*>(bytes.data() + header.image_table),
      header.num_images);
  for (uint32_t s = 0; s < header.num_samples; ++s) {
    const SampleRecord& sample = view.samples_[s];
    BALLAST_RETURN_IF_ERROR(CheckSample(sample, s, header));
    for (uint32_t i = 0; i < sample.num_images; ++i) {
      const uint32_t number = sample.first_image + i;
      BALLAST_RETURN_IF_ERROR(CheckImage(view.images_[number], number, sample));
    }
  }
  return view;
}

absl::Status BlockView::Matches(const BlockPlan& plan) const {
  const BlockHeader& mine = *header_;
  const BlockHeader& theirs = plan.header;
  if (std::memcmp(mine.fingerprint, theirs.fingerprint,
                  sizeof(mine.fingerprint)) != 0) {
    return absl::DataLossError(absl::StrFormat(
        "block has fingerprint %016x%016x, wanted %016x%016x; the server runs "
        "another configuration or index",
        mine.fingerprint[0], mine.fingerprint[1], theirs.fingerprint[0],
        theirs.fingerprint[1]));
  }
  if (mine.version != theirs.version) {
    return Differs("version", mine.version, theirs.version);
  }
  if (mine.step != theirs.step) return Differs("step", mine.step, theirs.step);
  if (mine.micro_batch != theirs.micro_batch) {
    return Differs("micro_batch", mine.micro_batch, theirs.micro_batch);
  }
  if (mine.micro_batches != theirs.micro_batches) {
    return Differs("micro_batches", mine.micro_batches, theirs.micro_batches);
  }
  if (mine.module != theirs.module) {
    return Differs("module", mine.module, theirs.module);
  }
  if (mine.split != theirs.split) {
    return Differs("split", mine.split, theirs.split);
  }
  if (mine.fields_per_token != theirs.fields_per_token) {
    return Differs("fields_per_token", mine.fields_per_token,
                   theirs.fields_per_token);
  }
  if (mine.fields_per_sample != theirs.fields_per_sample) {
    return Differs("fields_per_sample", mine.fields_per_sample,
                   theirs.fields_per_sample);
  }
  if (mine.dp_rank != theirs.dp_rank) {
    return Differs("dp_rank", mine.dp_rank, theirs.dp_rank);
  }
  if (mine.total_bytes != theirs.total_bytes) {
    return Differs("total_bytes", mine.total_bytes, theirs.total_bytes);
  }
  if (mine.num_samples != theirs.num_samples) {
    return Differs("num_samples", mine.num_samples, theirs.num_samples);
  }
  if (mine.num_images != theirs.num_images) {
    return Differs("num_images", mine.num_images, theirs.num_images);
  }
  for (size_t i = 0; i < samples_.size(); ++i) {
    SampleRecord found = samples_[i];
    found.flags &= ~kSampleIsPlaceholder;
    if (std::memcmp(&found, &plan.samples[i].record, sizeof(found)) != 0) {
      return Differs(absl::StrCat("position of sample ", i, " (or its size)"),
                     found.position, plan.samples[i].record.position);
    }
  }
  for (size_t i = 0; i < images_.size(); ++i) {
    if (std::memcmp(&images_[i], &plan.images[i], sizeof(ImageRecord)) != 0) {
      return Differs(absl::StrCat("grid_h of image ", i, " (or its place)"),
                     images_[i].grid_h, plan.images[i].grid_h);
    }
  }
  return absl::OkStatus();
}

void WriteBlockTables(const BlockPlan& plan, absl::Span<uint8_t> block) {
  std::memset(block.data(), 0, plan.header.payload);
  std::memcpy(block.data(), &plan.header, sizeof(BlockHeader));
  uint8_t* table = block.data() + plan.header.sample_table;
  for (const PlannedSample& sample : plan.samples) {
    std::memcpy(table, &sample.record, sizeof(SampleRecord));
    table += sizeof(SampleRecord);
  }
  if (!plan.images.empty()) {
    std::memcpy(block.data() + plan.header.image_table, plan.images.data(),
                plan.images.size() * sizeof(ImageRecord));
  }
}

void MarkPlaceholder(const BlockPlan& plan, uint32_t index,
                     absl::Span<uint8_t> block) {
  SampleRecord record;
  uint8_t* place = block.data() + plan.header.sample_table +
                   uint64_t{index} * sizeof(SampleRecord);
  std::memcpy(&record, place, sizeof(record));
  record.flags |= kSampleIsPlaceholder;
  std::memcpy(place, &record, sizeof(record));
}

namespace {

constexpr uint8_t kLengthDelimited = 2;  // protobuf's wire type

constexpr uint8_t Tag(int field) { return field << 3 | kLengthDelimited; }

constexpr uint8_t kChunkTag = Tag(v1::PullResponse::kChunkFieldNumber);
constexpr uint8_t kDataTag = Tag(v1::PullResponse::Chunk::kDataFieldNumber);

void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) {
    out->push_back(static_cast<char>(value | 0x80));
  }
  out->push_back(static_cast<char>(value));
}

}  // namespace

std::string ChunkPrefix(uint64_t length) {
  std::string data(1, kDataTag);
  AppendVarint(length, &data);
  std::string prefix(1, kChunkTag);
  AppendVarint(data.size() + length, &prefix);
  return prefix + data;
}

std::optional<size_t> ReadChunkPrefix(absl::Span<const uint8_t> first,
                                      uint64_t message_bytes) {
  // ChunkPrefix always writes the shortest framing whose lengths fit, so a
  // comparison with it is enough.
  for (size_t size = 4; size <= first.size() && size <= message_bytes; ++size) {
    const std::string prefix = ChunkPrefix(message_bytes - size);
    if (prefix.size() != size) continue;
    for (size_t i = 0; i < size; ++i) {
      if (first[i] != static_cast<uint8_t>(prefix[i])) return std::nullopt;
    }
    return size;
  }
  return std::nullopt;
}

}  // namespace ballast
