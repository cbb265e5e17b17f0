#ifndef BALLAST_PROTO_BLOCK_BLOCK_LAYOUT_H_
#define BALLAST_PROTO_BLOCK_BLOCK_LAYOUT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace ballast {

// The arena as bytes: a file that the server maps to write and clients map to
// read. A header, then blocks at multiples of a page, each after its stamp.
// docs/block.md is its specification.
//
//   0        4096            ...   offset-256   offset
//   | header | ........ free ..... | stamp      | block .............. | free

inline constexpr uint64_t kArenaMagic = 0x414E524154534C42;  // "BLSTARNA"
inline constexpr uint32_t kArenaVersion = 1;

// Alignment of blocks in an arena; its size and header are multiples of it.
inline constexpr uint64_t kArenaPage = 4096;
// Distance from a stamp to its block.
inline constexpr uint64_t kArenaStampBytes = 256;

inline constexpr int kArenaIdDigits = 32;
inline constexpr int kArenaNonceBytes = 16;

struct ArenaHeader {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;  // zero
  uint64_t bytes;     // the file's size
  char id[kArenaIdDigits];
  // Random. Only processes that can read the file know it; they send it to the
  // server alone.
  uint8_t nonce[kArenaNonceBytes];
};
static_assert(sizeof(ArenaHeader) == 72);

// Precedes a block. The server sets it before it announces the block and clears
// it before it reuses the memory. A reader that still finds the same generation
// after reading has read that block and nothing else.
struct ArenaStamp {
  uint64_t generation;
};

#pragma GCC diagnostic push
// GCC warns that TSan does not follow fences. These fences order accesses
// through two mappings of one file, which TSan does not follow anyway.
#pragma GCC diagnostic ignored "-Wpragmas"
#pragma GCC diagnostic ignored "-Wtsan"

// Reader's side. Call after the block has been read.
inline bool StampHolds(const ArenaStamp* stamp, uint64_t generation) {
  // Reads before the fence must not move after it.
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return __atomic_load_n(&stamp->generation, __ATOMIC_RELAXED) == generation;
}

// Writer's side. Call before the memory is reused.
inline void SetStamp(ArenaStamp* stamp, uint64_t generation) {
  __atomic_store_n(&stamp->generation, generation, __ATOMIC_RELAXED);
  __atomic_thread_fence(__ATOMIC_RELEASE);
}

#pragma GCC diagnostic pop

// How many numbers of sources[].fields a language sample has.
struct FieldCounts {
  uint32_t per_token = 0;   // arrays with a number for each token
  uint32_t per_sample = 0;  // numbers of the whole sample

  uint32_t all() const { return per_token + per_sample; }
};
// The most fields of a job.
inline constexpr uint32_t kMaxFields = 16;
// The field whose numbers, one a turn, scale loss_mask.
inline constexpr char kWeightField[] = "weight";

// The model's parameters that the size of a block depends on.
struct BlockGeometry {
  uint32_t patch = 14;         // pixels
  uint32_t position_axes = 3;  // 1, 3 (MRoPE) or 4
  // Pixels of each side of a crop beyond its patches (Job.CropShape.margin).
  uint32_t margin = 0;
  FieldCounts fields = {};
  // Numbers of a row of a clip's features (Job.ClipShape.width).
  uint32_t clip_width = 0;
  // Job.float_positions; of the same size.
  bool float_positions = false;
};

// The block as bytes: header, sample table, image table, payload. docs/block.md
// is its specification. All numbers are little-endian; the structs below are
// written and read as they are in memory, so hosts must be little-endian too.

inline constexpr uint32_t kBlockMagic = 0x54534C42;  // "BLST"
inline constexpr uint16_t kBlockVersion = 4;
// Of blocks of language whose samples have fields.
inline constexpr uint16_t kBlockVersionWithFields = 5;
// Of blocks with a preference pair, with fields or without.
inline constexpr uint16_t kBlockVersionWithPairs = 6;
// Of blocks of language whose positions are float32, with fields and pairs or
// without.
inline constexpr uint16_t kBlockVersionWithFloats = 7;

// Each sample's payload begins at a multiple of this within the block, and its
// length is rounded up to it, so that slices of several samples keep the
// alignment when they are received one after the other.
inline constexpr uint64_t kSampleAlignment = 256;
// Alignment of each image within a sample's payload.
inline constexpr uint64_t kImageAlignment = 256;
// Alignment of every other array within a sample's payload.
inline constexpr uint64_t kArrayAlignment = 16;

struct BlockHeader {
  uint32_t magic;
  uint16_t version;
  uint16_t module;          // v1::Module
  uint64_t fingerprint[2];  // first and second 16 digits of Fingerprint.hash
  uint64_t step;
  uint32_t micro_batch;
  uint32_t dp_rank;
  uint32_t num_samples;
  uint32_t num_images;
  uint64_t sample_table;  // offsets from the block's first byte
  uint64_t image_table;
  uint64_t payload;
  uint64_t total_bytes;
  uint32_t micro_batches;  // count in the step; > micro_batch
  uint32_t split;          // v1::Split
  // FieldCounts; zero without fields.
  uint32_t fields_per_token;
  uint32_t fields_per_sample;
  uint32_t reserved[8];  // zero
};
static_assert(sizeof(BlockHeader) == 128);

struct SampleRecord {
  uint64_t position;
  uint64_t ordinal;      // number in the source's index
  uint32_t source;       // index into the configuration's sources
  uint32_t flags;        // kSampleIsPlaceholder
  uint32_t first_image;  // in the image table
  uint32_t num_images;   // entries of it: crops of all images
  uint32_t tokens;
  uint32_t label_tokens;
  uint64_t payload;        // offset from the block's first byte
  uint64_t payload_bytes;  // a multiple of kSampleAlignment
  // MicroBatchSchedule.first_tokens.
  uint32_t first_tokens;
  uint32_t reserved;  // zero
};
static_assert(sizeof(SampleRecord) == 64);

// Set if the sample could not be read: only its size is right. Its images are
// grey: pixels in the block are grey already; an image that passes through
// encoded is made grey by its owner.
inline constexpr uint32_t kSampleIsPlaceholder = 1;

// A crop of an image; an image of Qwen's families is one crop. Or a frame of a
// video. In blocks of an audio encoder a clip: its data are encoded_bytes of
// float32, grid_h rows of features, of which the first grid_t count, of grid_w
// numbers each; all other numbers but `image` are 0.
struct ImageRecord {
  uint64_t data;    // offset from the sample's payload; ImageBytes long
  uint32_t grid_t;  // 1; of a frame: temporal patches of its video
  uint32_t grid_h;  // in patches
  uint32_t grid_w;
  uint32_t height;  // in pixels
  uint32_t width;
  // The image passes through encoded: the data are a JPEG file of this length,
  // not pixels. 0: the data are pixels, H*W*3 bytes of RGB.
  uint32_t encoded_bytes;
  // Number of the image in its sample. Videos follow the images; with models
  // that take both in the order of the text (InternVL), videos are among the
  // images.
  uint32_t image;
  // Sides of that image before resizing, in pixels, where the schedule has them
  // (MicroBatchSchedule.image_height); else 0.
  uint32_t image_height;
  uint32_t image_width;
  // Seconds between two temporal patches of a video, above 0; 0: the crop is of
  // an image, or of a video whose frames the model takes as an image's crops
  // (InternVL).
  float seconds_per_patch;
};
static_assert(sizeof(ImageRecord) == 48);

// Whether the record is a frame of a video. Frame k of a video, counted from 0,
// is in temporal patch k / model.temporal_patch.
inline bool IsFrame(const ImageRecord& image) {
  return image.seconds_per_patch > 0;
}

// Every byte of a grey image: of a placeholder, and of a dummy image.
inline constexpr uint8_t kGreyPixel = 128;

// Length of a crop's 8-bit RGB.
inline uint64_t PixelBytes(const ImageRecord& image) {
  return uint64_t{3} * image.height * image.width;
}

// Length of a crop in a block: its file's or its pixels'.
inline uint64_t ImageBytes(const ImageRecord& image) {
  return image.encoded_bytes != 0 ? image.encoded_bytes : PixelBytes(image);
}

// Calls f(tokens) for each sequence of a sample of `tokens`: for the one that
// it is or, of a preference pair, for the two, of which the first has
// `first_tokens`, above 0.
template <typename F>
void ForEachSequence(uint32_t tokens, uint32_t first_tokens, F f) {
  if (first_tokens != 0) f(first_tokens);
  f(tokens - first_tokens);
}

// Offsets of a sequence's arrays from the first byte of its payload. A language
// sample's payload consists of one sequence payload, or of two in a row.
//   ids        int32 [tokens]
//   labels     int32 [tokens], already shifted; -100 where unsupervised
//   positions  int32 [axes, tokens]; version 7: float32
//   values     int32 or float32 [per_sample]
//   rows       int32 or float32 [per_token, tokens]
struct LanguagePayload {
  uint64_t ids;
  uint64_t labels;
  uint64_t positions;
  uint64_t values;
  uint64_t rows;
  uint64_t bytes;  // rounded up to kSampleAlignment
};
LanguagePayload LayOutLanguage(uint64_t tokens, uint32_t position_axes,
                               FieldCounts fields = {});

// How many of the `steps` steps (0: no end) from step number `step` on have
// data. Returns 0, no end, only if neither `steps` nor the data end. All ranks
// of a job know where the data end, so they all stop before the same step
// without communication. Errors: OUT_OF_RANGE (no step has data: DataEnd's
// status).
absl::StatusOr<uint64_t> StepsWithData(const v1::Job& job, uint64_t step,
                                       uint64_t steps);

// The status after the last step of a job whose data end: OUT_OF_RANGE naming
// the step.
absl::Status DataEnd(const v1::Job& job);

}  // namespace ballast

#endif  // BALLAST_PROTO_BLOCK_BLOCK_LAYOUT_H_
