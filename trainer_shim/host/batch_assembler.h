#ifndef BALLAST_TRAINER_SHIM_HOST_BATCH_ASSEMBLER_H_
#define BALLAST_TRAINER_SHIM_HOST_BATCH_ASSEMBLER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/aligned_buffer.h"
#include "proto/block/block_view.h"
#include "proto/job.pb.h"
#include "proto/schedule.pb.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/communicator.h"
#include "trainer_shim/exchange_plan.h"
#include "trainer_shim/host/pack_cpu.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/host/patchify.h"
#include "trainer_shim/job_shape.h"

namespace ballast {

// Makes a rank's packed batch of one micro-batch out of its block: plan,
// verify, exchange, pack. A vision rank that the schedule names among
// dummy_rank packs a dummy image behind its own. Host memory. Buffers grow to
// the largest micro-batch seen and are kept. Thread-compatible.
class BatchAssembler {
 public:
  // `shape` says what the rank receives at its place. `communicator` has the
  // module's dp ranks and is not owned; it may be null where `shape` exchanges
  // nothing.
  BatchAssembler(const v1::Role& role, const JobShape& shape,
                 PixelType pixel_type, Normalisation normalisation,
                 Communicator* communicator);

  // The packed batch of micro-batch number `micro_batch` of `schedule`, which
  // must have passed CheckColumns. `block` begins at a multiple of 256 and may
  // be released afterwards. The batch is valid until the next call. Blocks
  // until all ranks of the module have exchanged.
  //
  // Errors: INVALID_ARGUMENT (a schedule that cannot be packed; bytes that are
  // no block), DATA_LOSS (a block, or a sample from a peer, that is not what
  // the schedule says), RESOURCE_EXHAUSTED (no memory for what arrives), as
  // PlanExchange and Communicator::AllToAllV.
  absl::StatusOr<const PackedBatch*> Assemble(const v1::StepSchedule& schedule,
                                              uint32_t micro_batch,
                                              absl::Span<const uint8_t> block);

  // All of the batch that the schedule says, without a block: what a rank that
  // receives no tensor gets, and, with its tensors' sizes but not their
  // contents, what one that has it from a tensor peer fills
  // (tensor_broadcast.h). No sample says that it is a placeholder. Valid until
  // the next call. Errors: INVALID_ARGUMENT, as Assemble.
  absl::StatusOr<PackedBatch*> Describe(const v1::StepSchedule& schedule,
                                        uint32_t micro_batch);

 private:
  absl::StatusOr<ExchangePlan> Plan(const v1::StepSchedule& schedule,
                                    uint32_t micro_batch);
  // What is said of a batch beside its tensors.
  void Identify(const v1::StepSchedule& schedule, const ExchangePlan& plan);
  absl::Status Exchange(const ExchangePlan& plan,
                        absl::Span<const uint8_t> block);
  // Compares the records, as their readers wrote them, with the plan's, and
  // takes over which stand for samples that could not be read.
  absl::Status CheckRecords(const ExchangePlan& plan,
                            absl::Span<const uint8_t> block);
  void PackLanguage(const ExchangePlan& plan, const BatchLayout& layout,
                    absl::Span<const uint8_t> block);
  void PackImages(const ExchangePlan& plan, const BatchLayout& layout,
                  absl::Span<const uint8_t> block);
  // Where `sample`'s record and payload count from.
  const uint8_t* BufferOf(const OwnedSample& sample,
                          absl::Span<const uint8_t> block) const {
    return sample.received ? received_.bytes().data() : block.data();
  }

  const v1::Role role_;
  const JobShape shape_;
  const NormaliseTable table_;
  Communicator* const communicator_;

  AlignedBuffer received_;
  std::vector<SendSlice> sends_;
  std::vector<ReceiveSlice> receives_;
  std::vector<TextPiece> texts_;
  std::vector<ImagePiece> images_;
  // Pixels of a dummy image; empty before the first.
  std::vector<uint8_t> grey_;
  std::optional<uint64_t> summed_step_;  // whose batch_.step_totals are
  PackedBatch batch_;
};

}  // namespace ballast

#endif  // BALLAST_TRAINER_SHIM_HOST_BATCH_ASSEMBLER_H_
