#ifndef BALLAST_TRAINER_SHIM_HOST_HOST_BATCH_MAKER_H_
#define BALLAST_TRAINER_SHIM_HOST_HOST_BATCH_MAKER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/batch_fetcher.h"
#include "common/aligned_buffer.h"
#include "proto/block/block_view.h"
#include "proto/job.pb.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/batch_pool.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/exchange_plan.h"
#include "trainer_shim/host/host_image_decoder.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/jpeg_engine.h"
#include "trainer_shim/patchify.h"

namespace ballast {

// Passes a batch from tensor rank 0 to its tensor peers. Every rank of `peers`,
// the group of one data-parallel, pipeline and context rank, makes one call;
// their batches have the same sizes. Data that follow from the schedule are not
// sent: every rank lays its batch out first (BatchAssembler::Describe). Only
// the tensors that the batch's fields name and the placeholder flags move. Rank
// 0 only reads `batch`, the others fill it. Blocks until this rank's part is
// done. Errors: as Communicator::Broadcast; INVALID_ARGUMENT (a peer's sizes
// differ), DATA_LOSS (rank 0's batch is of another step or micro-batch).
absl::Status BroadcastBatch(Communicator* peers, PackedBatch* batch);

// Makes a rank's packed batches from its blocks in host memory: plan, verify,
// exchange, decode the images that passed through encoded, pack. A vision rank
// that the schedule lists in dummy_rank packs a dummy image after its own
// images. Internal buffers grow to the largest micro-batch seen and are reused.
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
  // that passed through encoded and cannot be decoded), RESOURCE_EXHAUSTED (no
  // memory for the received bytes or for decoding). The contents of `batch` are
  // then undefined.
  absl::Status Assemble(const StepInfo& step, uint32_t micro_batch,
                        absl::Span<const uint8_t> block, PackedBatch* batch);

  // Fills in everything that follows from the schedule alone; a rank without
  // tensors gets nothing else. Tensors that the rank receives from a tensor
  // peer (BroadcastBatch) get their sizes, not their contents. Leaves
  // PackedSample::placeholder false. Errors: INVALID_ARGUMENT, as Assemble.
  absl::Status Describe(const StepInfo& step, uint32_t micro_batch,
                        PackedBatch* batch) const;

  JpegEngineCounts decoded() const { return unpacker_.counts(); }

 private:
  struct Plan {
    ExchangePlan exchange;
    BatchLayout layout;  // empty if the rank receives no tensor
  };
  absl::StatusOr<Plan> GetPlan(const StepInfo& step,
                               uint32_t micro_batch) const;
  absl::Status Exchange(const ExchangePlan& plan,
                        absl::Span<const uint8_t> block);
  // Compares the records that the readers wrote with the plan's, and notes
  // which samples are placeholders.
  absl::Status CheckRecords(const ExchangePlan& plan,
                            absl::Span<const uint8_t> block,
                            PackedBatch* batch);
  void PackLanguage(const Plan& plan, absl::Span<const uint8_t> block,
                    PackedBatch* batch);
  void PackAudio(const Plan& plan, absl::Span<const uint8_t> block,
                 PackedBatch* batch);
  // Also decodes the images that passed through encoded, first.
  absl::Status PackImages(const Plan& plan, absl::Span<const uint8_t> block,
                          PackedBatch* batch);
  // The buffer that the offsets of `sample` refer to.
  const uint8_t* GetBuffer(const OwnedSample& sample,
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

// Makes PackedBatches in host memory, within the call that requests them.
class HostBatchMaker : public BatchMaker {
 public:
  HostBatchMaker(PixelType pixel_type, Normalisation normalisation)
      : pixel_type_(pixel_type), normalisation_(normalisation) {}

  bool on_device() const override { return false; }
  absl::StatusOr<std::unique_ptr<BatchEntry>> MakeEntry() override;
  absl::Status Open(const Setup& setup) override;
  absl::StatusOr<BatchEntry*> Next(StreamHandle) override;
  absl::Status Broadcast(BatchEntry* entry, StreamHandle) override;
  absl::Status Move(const BatchInfo& batch, const EmbeddingMoves& moves,
                    StreamHandle) override;
  JpegEngineCounts decoded() const override {
    return assembler_ ? assembler_->decoded() : JpegEngineCounts();
  }
  // Does nothing: the only waits are in the source and the communicators.
  void Abort(const absl::Status&) override {}

 private:
  absl::Status Assemble(const RoleSource::Block& next, PackedBatch* batch);
  // Copies a block that may be overwritten, for an exchange: peers cannot
  // detect that the bytes which they receive are no longer the block. Errors:
  // as CheckIntact; RESOURCE_EXHAUSTED (no memory for the copy).
  absl::StatusOr<absl::Span<const uint8_t>> CheckedCopy(
      const FetchedBlock& block);

  const PixelType pixel_type_;
  const Normalisation normalisation_;
  Setup setup_;
  std::optional<BatchAssembler> assembler_;
  AlignedBuffer copy_;  // grows to the largest block that was copied
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_HOST_BATCH_MAKER_H_
