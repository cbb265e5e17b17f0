#include "trainer_shim/host/host_batch_maker.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "client/batch_fetcher.h"
#include "common/status_macros.h"
#include "trainer_shim/batch_times.h"
#include "trainer_shim/host/packed_batch.h"
#include "trainer_shim/host/tensor_broadcast.h"

namespace ballast {
namespace {

struct HostEntry : public BatchEntry {
  const BatchInfo& info() const override { return batch; }
  bool placeholder(size_t index) const override {
    return batch.samples[index].placeholder;
  }
  absl::Duration pack_time() const override { return batch.pack_time; }
  absl::StatusOr<std::string> Digest(StreamHandle) const override {
    return DigestOf(batch);
  }
  absl::Status RecordStream(StreamHandle) override { return absl::OkStatus(); }
  void List(std::vector<TensorView>* tensors) const override {
    ListTensors(batch, {kHostMemory, batch.packed.data()}, tensors);
  }
  void OnRelease() override {}

  PackedBatch batch;
};

PackedBatch* BatchOf(BatchEntry* entry) {
  return &static_cast<HostEntry*>(entry)->batch;
}

}  // namespace

absl::StatusOr<std::unique_ptr<BatchEntry>> HostBatchMaker::MakeEntry() {
  return std::make_unique<HostEntry>();
}

absl::Status HostBatchMaker::Open(const Setup& setup) {
  setup_ = setup;
  assembler_.emplace(setup.source->role(), setup.source->shape(), pixel_type_,
                     normalisation_, setup.communicator);
  return absl::OkStatus();
}

absl::StatusOr<BatchEntry*> HostBatchMaker::Next(StreamHandle) {
  while (true) {
    BALLAST_ASSIGN_OR_RETURN(RoleSource::Block next, setup_.source->Next());
    BALLAST_ASSIGN_OR_RETURN(BatchEntry * entry, setup_.pool->Take());
    const absl::Status status =
        next.block == nullptr
            ? assembler_->Describe(*next.step, next.micro_batch, BatchOf(entry))
            : Assemble(next, BatchOf(entry));
    if (status.ok()) return entry;
    setup_.pool->PutBack(entry);
    // A block that was overwritten while it was read is pulled again, unless
    // peers have been sent parts of it.
    if (absl::IsCancelled(status) || next.block == nullptr ||
        next.block->intact() || setup_.source->shape().exchanges()) {
      return status;
    }
    BALLAST_RETURN_IF_ERROR(setup_.source->FetchAgain(std::move(next.block)));
  }
}

absl::Status HostBatchMaker::Assemble(const RoleSource::Block& next,
                                      PackedBatch* batch) {
  const bool sends =
      setup_.source->shape().exchanges() && next.block->may_be_overwritten();
  absl::Span<const uint8_t> block = next.block->bytes();
  if (sends) {
    BALLAST_ASSIGN_OR_RETURN(block, CheckedCopy(*next.block));
  }
  const absl::Status assembled =
      assembler_->Assemble(*next.step, next.micro_batch, block, batch);
  // First, since an overwritten block may look damaged in any way.
  if (!sends && !absl::IsCancelled(assembled)) {
    BALLAST_RETURN_IF_ERROR(CheckIntact(*next.block));
  }
  BALLAST_RETURN_IF_ERROR(assembled);
  BatchTimes times;
  times.step = batch->step;
  times.micro_batch = batch->micro_batch;
  if (setup_.source->shape().exchanges()) times.exchange = batch->exchange_time;
  if (batch->decode_time > absl::ZeroDuration()) {
    times.decode = batch->decode_time;
  }
  times.pack = batch->pack_time;
  setup_.source->NoteTimes(times);
  return absl::OkStatus();
}

absl::StatusOr<absl::Span<const uint8_t>> HostBatchMaker::CheckedCopy(
    const FetchedBlock& block) {
  if (copy_.size() < block.bytes().size()) {
    BALLAST_ASSIGN_OR_RETURN(copy_,
                             AlignedBuffer::Create(block.bytes().size()));
  }
  std::copy(block.bytes().begin(), block.bytes().end(), copy_.bytes().begin());
  BALLAST_RETURN_IF_ERROR(CheckIntact(block));
  return copy_.bytes().first(block.bytes().size());
}

absl::Status HostBatchMaker::Broadcast(BatchEntry* entry, StreamHandle) {
  return BroadcastBatch(setup_.tensor_communicator, BatchOf(entry));
}

absl::Status HostBatchMaker::Move(const BatchInfo&, const EmbeddingMoves& moves,
                                  StreamHandle) {
  for (const EmbeddingMoves::Copy& copy : moves.copies) {
    std::memcpy(copy.to.data(), copy.from, copy.to.size());
  }
  std::fill(moves.zero.begin(), moves.zero.end(), 0);
  if (setup_.communicator == nullptr) return absl::OkStatus();
  return setup_.communicator->AllToAllV(moves.sends, moves.receives, nullptr);
}

}  // namespace ballast
