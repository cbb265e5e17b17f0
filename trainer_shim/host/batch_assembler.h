#ifndef BALLAST_TRAINER_SHIM_HOST_BATCH_ASSEMBLER_H_
#define BALLAST_TRAINER_SHIM_HOST_BATCH_ASSEMBLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/aligned_buffer.h"
#include "proto/block/block_view.h"
#include "proto/job.pb.h"
#include "trainer_shim/batch_info.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/encoded_piece.h"
#include "trainer_shim/exchange_plan.h"
#include "trainer_shim/exchange_slices.h"
#include "trainer_shim/host/encoded_unpacker.h"
#include "trainer_shim/host/pack_cpu.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/job_shape.h"
#include "trainer_shim/jpeg_engine.h"

namespace ballast {

// Makes a rank's packed batches from its blocks in host memory: plan, verify,
// exchange, decode what travelled encoded, pack. A vision rank that the
// schedule lists in dummy_rank packs a dummy image after its own images.
// Internal buffers grow to the largest micro-batch seen and are reused.
// Thread-compatible.
class BatchAssembler {
 public:
  // `shape` gives the fields that the rank receives at its place.
  // `communicator` connects the module's dp ranks and is not owned; it may be
  // null if `shape` exchanges nothing.
  BatchAssembler(const v1::Role& role, const JobShape& shape,
                 PixelType pixel_type, Normalisation normalisation,
                 Communicator* communicator);

  // Fills `batch` with the packed batch of micro-batch number `micro_batch` of
  // `step`, whose schedule must have passed CheckColumns. `block` begins at a
  // multiple of 256 and may be released afterwards. Reuses the memory of
  // `batch`. Blocks until all ranks of the module have exchanged.
  //
  // Errors: as PlanExchange and Communicator::AllToAllV; INVALID_ARGUMENT (a
  // schedule that cannot be packed; bytes that are not a block), DATA_LOSS (a
  // block, or a sample from a peer, that does not match the schedule; an image
  // that travelled encoded and cannot be decoded), RESOURCE_EXHAUSTED (no
  // memory for the received bytes or for decoding). The contents of `batch` are
  // then undefined.
  absl::Status Assemble(const StepInfo& step, uint32_t micro_batch,
                        absl::Span<const uint8_t> block, PackedBatch* batch);

  // Fills in everything that follows from the schedule alone, which is all that
  // a rank without tensors gets. Tensors that the rank receives from a tensor
  // peer (tensor_broadcast.h) get their sizes, not their contents. Leaves
  // PackedSample::placeholder false. Errors: INVALID_ARGUMENT, as Assemble.
  absl::Status Describe(const StepInfo& step, uint32_t micro_batch,
                        PackedBatch* batch) const;

  JpegEngineCounts decoded() const { return unpacker_.counts(); }

 private:
  struct Plan {
    ExchangePlan exchange;
    BatchLayout layout;  // empty if the rank receives no tensor
  };
  absl::StatusOr<Plan> PlanOf(const StepInfo& step, uint32_t micro_batch) const;
  absl::Status Exchange(const ExchangePlan& plan,
                        absl::Span<const uint8_t> block);
  // Compares the records that the readers wrote with the plan's, and notes
  // which are placeholders.
  absl::Status CheckRecords(const ExchangePlan& plan,
                            absl::Span<const uint8_t> block,
                            PackedBatch* batch);
  void PackLanguage(const Plan& plan, absl::Span<const uint8_t> block,
                    PackedBatch* batch);
  // Decodes the images that travelled encoded first.
  absl::Status PackImages(const Plan& plan, absl::Span<const uint8_t> block,
                          PackedBatch* batch);
  // The buffer that the offsets of `sample` refer to.
  const uint8_t* BufferOf(const OwnedSample& sample,
                          absl::Span<const uint8_t> block) const {
    return sample.received ? received_.bytes().data() : block.data();
  }

  const v1::Role role_;
  const JobShape shape_;
  const PixelType pixel_type_;
  const NormaliseTable table_;
  Communicator* const communicator_;

  AlignedBuffer received_;
  ExchangeSlices slices_;
  std::vector<TextPiece> texts_;
  std::vector<ImagePiece> images_;
  std::vector<const uint8_t*> frames_;  // of videos
  std::vector<EncodedPiece> encoded_;
  EncodedUnpacker unpacker_;
  // Pixels of a dummy image; empty until one is needed.
  std::vector<uint8_t> grey_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_BATCH_ASSEMBLER_H_
