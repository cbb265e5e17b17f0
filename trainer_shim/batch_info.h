#ifndef BALLAST_TRAINER_SHIM_BATCH_INFO_H_
#define BALLAST_TRAINER_SHIM_BATCH_INFO_H_

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "proto/block/block_plan.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/crop_layout.h"
#include "trainer_shim/embedding_plan.h"
#include "trainer_shim/patchify.h"
#include "trainer_shim/thd_layout.h"

namespace ballast {

// The place of a trainer's rank in its module's layout, in addition to its
// data-parallel rank (v1::Role). All ranks that share a data-parallel rank have
// the same block; their place decides which part of the batch each keeps
// (BatchFields).
struct TrainerPlace {
  uint32_t tp_rank = 0;  // tensor
  uint32_t pp_rank = 0;  // pipeline
  uint32_t cp_rank = 0;  // context
  // A language stage receives these at any pipeline stage. Multi-token
  // prediction (MTP) needs them. Ignored for vision.
  bool needs_input_ids = false;
  bool needs_labels = false;

  bool operator==(const TrainerPlace& other) const = default;
};

// Number of a module's ranks in each direction other than data; each at least
// 1.
struct ModuleLayout {
  uint32_t tp = 1;
  uint32_t pp = 1;
  uint32_t cp = 1;
};

// The tensors of a batch that a rank receives. The others are not computed, and
// a rank that receives none pulls no block. Every rank receives sample
// identities and totals. Plain values and pure functions.
struct BatchFields {
  bool input_ids = true;
  bool labels = true;  // and loss_mask
  // position_ids, cu_seqlens, cu_seqlens_padded and max_seqlen.
  bool positions = true;
  // pixel_values, image_grid_thw, vision_cu_seqlens and vision_max_seqlen, and
  // the tensors of videos.
  bool pixels = true;
  // input_features and the tensors of clips of audio.
  bool features = false;

  bool any() const {
    return input_ids || labels || positions || pixels || features;
  }
  bool operator==(const BatchFields& other) const = default;
};

// A pipeline stage, counted through all parts of the model. With virtual stages
// a rank holds several parts: part `part` of pipeline rank `pp_rank` of `pp` is
// stage part * pp + pp_rank of pp * parts, as in Megatron-Core.
struct PipelineStage {
  uint32_t number = 0;
  uint32_t count = 1;
};
PipelineStage GetStage(uint32_t pp_rank, uint32_t pp, uint32_t part = 0,
                       uint32_t parts = 1);

// The fields that one stage of `module` receives:
//
//   language, first stage   input_ids, positions
//   language, a middle one  positions
//   language, last stage    labels, positions
//   images, first stage     pixels
//   images, others          nothing
//   audio                   likewise, features
//
// "images" is an encoder of images, "audio" one of audio. A language stage also
// receives the tensors that `place` requests. Language stages never receive
// pixels: a process that is also an encoder's rank gets them from that shim.
// tp_rank and cp_rank make no difference: tensor peers receive the same
// tensors, context peers the same fields of other tokens.
BatchFields FieldsOfStage(v1::Module module, const PipelineStage& stage,
                          const TrainerPlace& place);

// The fields that a rank receives: the union over all its parts. The number of
// parts does not matter: the union is what the rank would receive as a single
// stage.
BatchFields GetFields(v1::Module module, const TrainerPlace& place,
                      const ModuleLayout& layout);

// INVALID_ARGUMENT naming the rank of `place` that `layout` lacks.
absl::Status CheckPlace(const TrainerPlace& place, const ModuleLayout& layout);

// The length to which the language module pads each sequence: a multiple of
// `align`, or, with packing.mode `padded`, the length of a row, which all
// sequences of a micro-batch share. A plain value.
struct SamplePadding {
  uint32_t align = 1;  // at least 1
  bool rows = false;   // packing.mode `padded`
  // packing.row_length, a multiple of `align`. 0: the longest sequence's.
  uint32_t row_length = 0;
};

// The length of each row of a micro-batch, S: `padding.row_length`, or the
// length of the longest sequence of all data-parallel ranks, rounded up to a
// multiple of `align`. It follows from the schedule, so all ranks and pipeline
// stages agree on it before any bytes arrive. 0 unless `padding.rows`. Pure.
uint64_t RowLength(const v1::MicroBatchSchedule& micro_batch,
                   const SamplePadding& padding);

// Exact sums over samples, for loss scaling and counting operations without a
// collective (docs/thd_format.md). Padded sums use each sequence's length as
// the language module pads it (JobShape::padding); the others use real lengths.
// Squares are of sequences. A sample counts whole even if a rank has only part
// of it.
struct PackedTotals {
  uint64_t samples = 0;
  uint64_t tokens = 0;
  uint64_t tokens_squared = 0;
  uint64_t padded_tokens = 0;
  uint64_t padded_tokens_squared = 0;
  uint64_t label_tokens = 0;
  uint64_t patches = 0;
  uint64_t images = 0;  // without videos
  uint64_t videos = 0;
  uint64_t clips = 0;   // of audio
  uint64_t frames = 0;  // of them that count

  PackedTotals& operator+=(const PackedTotals& other);
  bool operator==(const PackedTotals& other) const = default;
};

// Sums over all samples of a micro-batch or, with `owner`, over the samples
// that it trains on. Pure; O(samples). `micro_batch` must have passed
// CheckColumns. An owner whose module is not configured owns nothing.
PackedTotals SumTotals(const v1::MicroBatchSchedule& micro_batch,
                       const SamplePadding& padding,
                       const std::optional<v1::Role>& owner = std::nullopt);

struct BatchInfo;

// The numbers of ballast_dtype (c_api_base.h).
enum class ElementType {
  kPixels = 0,  // only in rows: float32 or bfloat16, as the rank requests
  kInt32 = 2,
  kInt64 = 3,
  kFloat32 = 4,
  kBfloat16 = 5,
  kBool = 6,
};
uint64_t ElementBytes(ElementType type);  // 0 for kPixels
// Such as "int64"; "float32 or bfloat16" for kPixels.
absl::string_view ElementName(ElementType type);

// How the samples of a batch form a tensor.
enum class Join {
  // Tokens end to end along the last dimension, each sample padded to a
  // multiple of the alignment; in a padded batch a row of equal length for each
  // sample. A context rank has its part of every sample.
  kTokens,
  // Running sums over samples or items, which begin with 0.
  kSums,
  // Entries of the samples' items (images, crops, videos, patches) one after
  // the other, in the order of the samples.
  kItems,
  // Likewise, each item padded to the largest of the batch or of the model.
  kPaddedItems,
  // An entry for each data-parallel rank, or numbers of ranks.
  kRanks,
  // An entry for each sequence: of each sample, and two of a preference pair.
  kSequences,
};
absl::string_view JoinName(Join join);  // such as "tokens"

// The writer of a tensor, and its place.
enum class Memory {
  // The backend, from the samples' payload, in the batch's memory: by kernels
  // if that is a GPU's memory. Tensor peers may receive it from tensor rank 0.
  kPacked,
  // The host, from the schedule alone: in the batch's memory, with a copy in
  // host memory under the name NAME_host.
  kListed,
  kListedOnce,  // the same without the copy
  kHost,        // the host, in host memory alone
};
absl::string_view MemoryName(Memory memory);  // such as "packed"

// Up to 4 dimensions.
struct TensorShape {
  TensorShape() = default;
  TensorShape(std::initializer_list<int64_t> sides);

  int64_t elements() const;

  uint32_t rank = 0;                  // number of dimensions
  std::array<int64_t, 4> sides = {};  // the first `rank`, then 0
};

// A tensor of one batch, as its row describes it: the shape and, unless the row
// is kPacked, the values in host memory. Valid as long as the BatchInfo.
struct TensorValue {
  TensorShape shape;
  const void* data = nullptr;
};

// A member of BatchFields.
using BatchField = bool BatchFields::*;

struct TensorRow {
  std::string name;
  ElementType type = ElementType::kInt64;
  std::string shape;  // for readers, such as "[C, 2]"
  // The field with which a rank receives the tensor.
  BatchField field = nullptr;
  Join join = Join::kItems;
  Memory memory = Memory::kPacked;
  std::string contents;  // for readers
  // The tensor of a batch whose layouts are known; nullopt if this batch has
  // none. Pure.
  std::function<std::optional<TensorValue>(const BatchInfo&)> value;
  // NAME_host of a kListed row. Filled in by MakeTensorTable.
  std::string host_name = {};
};

// In the order in which batches list their tensors.
using TensorTable = std::vector<TensorRow>;

// The ranks that receive tensors of a field, such as "language, first stage".
absl::string_view GetReceivers(BatchField field);

// A tensor that a batch has.
struct BatchTensor {
  const TensorRow* row = nullptr;          // of BatchInfo::table
  ElementType type = ElementType::kInt64;  // never kPixels
  TensorShape shape;
  // Place, at a multiple of 256: for a kPacked tensor in the batch's packed
  // memory, for a kListed or kListedOnce one among the batch's lists, which the
  // host backend leaves in the layouts.
  uint64_t offset = 0;

  uint64_t bytes() const { return shape.elements() * ElementBytes(type); }
};

// The fields of a job (sources[].fields), as samples and batches have them.
struct FieldTable {
  struct Field {
    std::string tensor;  // "fields.NAME"
    ElementType type = ElementType::kFloat32;
    FieldPlace place;
    bool per_turn = false;
  };
  std::vector<Field> fields;
  FieldCounts counts;
  // The row whose numbers scale loss_mask (kWeightField); -1: none.
  int weight_row = -1;
};

// The rows of the batch's clips of audio, or of its media of another kind that
// travels as rows. A plain value.
struct ClipLayout {
  bool listed = false;  // the rank's module takes them
  // The tensor of the rows: `input_features`; of MODULE_OTHER the module's
  // name, which the names of its other tensors begin with.
  std::string tensor = "input_features";
  uint32_t width = 0;  // numbers of a row
  // Of each clip, the rows that count.
  std::vector<int64_t> frames;
  // [clips+1]: the row at which each begins; ends with the number of rows.
  std::vector<int32_t> cu_rows;
};

// The sample at one place of a batch.
struct PackedSample {
  uint64_t position = 0;
  uint32_t source = 0;   // number of the source in the configuration
  uint64_t ordinal = 0;  // number in the source's index
  std::string name;      // "SOURCE:ORDINAL"
  // The sample could not be read: grey images and unsupervised tokens replace
  // it. Not set for batches in device memory: see DeviceBatch::placeholders.
  bool placeholder = false;
};

// A packed batch without the memory of its tensors, the same for host and
// device memory. n sequences: one for each sample, two for a preference pair.
struct BatchInfo {
  uint64_t step = 0;
  uint32_t micro_batch = 0;        // number within the step
  uint32_t num_micro_batches = 0;  // of the step, the same on every rank
  v1::Role role;
  // The rank's place in its module, the tensors that it receives there, and
  // its part of every sample's tokens.
  TrainerPlace place;
  BatchFields fields;
  ContextSlice context;
  // With packing.dynamic_cp: the ranks that share the pack, and this rank's
  // number among them; else empty.
  std::vector<int64_t> pack_share;
  // In a job with an encoder, too: batches have ids and positions of the whole
  // pack. A placeholder's number among all of its sample's follows from them.
  bool whole_pack = false;
  // In packing order, which is the same on the paired ranks of the other
  // module. With placement `split` the two modules hold different samples.
  std::vector<PackedSample> samples;

  // Language.
  uint32_t position_axes = 0;  // 3 (MRoPE), 4 (HunyuanVL) or 1
  bool float_positions = false;
  int32_t max_seqlen = 0;  // longest padded length of a whole sample
  // Of whole samples, by sequences; empty if no text is received.
  TextLayout text;
  // For each sequence of `text`: 0 the chosen answer of a preference pair, 1
  // the rejected one, which follows it, -1 a sample of one sequence. Empty if
  // no sample of the micro-batch, on any rank, is a pair.
  std::vector<int32_t> pair;
  // Null: samples have no fields.
  std::shared_ptr<const FieldTable> field_table;
  // Each sequence is a separate row of max_seqlen tokens, and there are no
  // bounds (packing.mode `padded`).
  bool padded = false;

  // Vision.
  PixelType pixel_type = PixelType::kFloat32;
  // Empty if no images are received; the crops and videos of the batch.
  VisionLayout vision;
  CropLayout crops;
  VideoLayout videos;
  // Longest attention segment of images and videos, in patches.
  int32_t vision_max_seqlen = 0;
  // The last image, a small mid-grey crop, belongs to no sample; for an encoder
  // of audio the last clip, all zeros. It lets a rank without media take part
  // in the tower's collectives (ModuleSchedule.dummy_rank). No token refers to
  // it: multiply the tower's output for it by zero instead of dropping it, so
  // that gradients flow on every rank. No totals count it.
  bool dummy_image = false;

  // Audio.
  ClipLayout clips;

  // For either module, with placement `split`: the same in both batches of a
  // process. With modules on separate ranks, each batch has its module's side.
  EmbeddingPlans embeddings;

  // The number of sequences of `text`, n.
  int64_t sequences() const {
    return text.cu_seqlens.empty() ? 0 : text.cu_seqlens.size() - 1;
  }

  // The tensors that the rank receives, in the order of the table, and the
  // sizes of their memory (LayOutTensors).
  std::shared_ptr<const TensorTable> table;
  std::vector<BatchTensor> tensors;
  uint64_t packed_bytes = 0;
  uint64_t list_bytes = 0;

  // Sums over this rank's samples (whole samples, for either module), over the
  // samples of all data-parallel ranks in this micro-batch, and over the whole
  // step.
  PackedTotals totals;
  PackedTotals micro_batch_totals;
  PackedTotals step_totals;

  // Bytes of the pulled block, and bytes sent to other ranks. Both follow from
  // the schedule. 0 if no block is pulled.
  uint64_t bytes_read = 0;
  uint64_t bytes_moved = 0;

  // The schedule of the batch's step. May outlive the batch.
  std::shared_ptr<const v1::StepSchedule> schedule;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_BATCH_INFO_H_
