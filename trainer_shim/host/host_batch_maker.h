#ifndef BALLAST_TRAINER_SHIM_HOST_HOST_BATCH_MAKER_H_
#define BALLAST_TRAINER_SHIM_HOST_HOST_BATCH_MAKER_H_

#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/batch_fetcher.h"
#include "common/aligned_buffer.h"
#include "trainer_shim/batch_maker.h"
#include "trainer_shim/host/batch_assembler.h"
#include "trainer_shim/host/patchify.h"

namespace ballast {

// Makes PackedBatches in host memory, within the call that asks for them.
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
  // Nothing to do: all waiting is for the source or a communicator.
  void Abort(const absl::Status&) override {}

 private:
  absl::Status Assemble(const RoleSource::Block& next, PackedBatch* batch);
  // Copies a block that may be overwritten, for an exchange: peers cannot tell
  // that what they receive is no longer the block. Errors: as CheckIntact;
  // RESOURCE_EXHAUSTED (no memory for the copy).
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
