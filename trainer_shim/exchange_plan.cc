#include "trainer_shim/exchange_plan.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/aligned_buffer.h"
#include "common/status_macros.h"
#include "proto/schedule/module.h"
#include "proto/schedule/schedule_table.h"

namespace ballast {

namespace {

uint64_t RecordOffset(const BlockPlan& block, size_t row) {
  return block.header.sample_table + row * sizeof(SampleRecord);
}

// The rows [first, end) of `block` as one run of records and one of payload.
PeerSlice GetSlice(const BlockPlan& block, uint32_t peer, size_t first,
                   size_t end) {
  PeerSlice slice;
  slice.peer = peer;
  slice.records = {RecordOffset(block, first),
                   (end - first) * sizeof(SampleRecord)};
  slice.payload.offset = block.samples[first].record.payload;
  for (size_t row = first; row < end; ++row) {
    slice.payload.bytes += block.samples[row].record.payload_bytes;
  }
  return slice;
}

// The rows of `block` that go to `owner`, as [first, end).
std::pair<size_t, size_t> GetRows(const BlockPlan& block, uint32_t owner) {
  const auto first = std::lower_bound(
      block.samples.begin(), block.samples.end(), owner,
      [](const PlannedSample& s, uint32_t o) { return s.owner < o; });
  const auto end = std::upper_bound(
      first, block.samples.end(), owner,
      [](uint32_t o, const PlannedSample& s) { return o < s.owner; });
  return {first - block.samples.begin(), end - block.samples.begin()};
}

// An owned sample together with its images, until the final order is known.
struct Candidate {
  OwnedSample sample;
  const ImageRecord* images;
};

// Appends the rows [first, end) of `block`, which the rank owns. They begin at
// `records` and `payload` in the block or in the receive buffer.
void AppendOwned(const BlockPlan& block, size_t first, size_t end,
                 bool received, uint64_t records, uint64_t payload,
                 std::vector<Candidate>* owned) {
  for (size_t row = first; row < end; ++row) {
    const PlannedSample& planned = block.samples[row];
    OwnedSample sample;
    sample.index = planned.index;
    sample.received = received;
    sample.record = records;
    sample.payload = payload;
    sample.expected = planned.record;
    owned->push_back(
        {sample, block.images.data() + planned.record.first_image});
    records += sizeof(SampleRecord);
    payload += planned.record.payload_bytes;
  }
}

void PlanSends(uint32_t me, ExchangePlan* plan) {
  const std::vector<PlannedSample>& samples = plan->block.samples;
  for (size_t first = 0; first < samples.size();) {
    const uint32_t owner = samples[first].owner;
    const size_t end = GetRows(plan->block, owner).second;
    if (owner != me) {
      plan->sends.push_back(GetSlice(plan->block, owner, first, end));
    }
    first = end;
  }
}

// Places in the receive buffer the data that each of `peers` (their blocks,
// ascending) sends to `me`.
void PlanReceives(uint32_t me, const std::vector<BlockPlan>& peers,
                  ExchangePlan* plan, std::vector<Candidate>* owned) {
  uint64_t records = 0;
  for (const BlockPlan& block : peers) {
    const auto [first, end] = GetRows(block, me);
    PeerSlice slice = GetSlice(block, block.header.dp_rank, first, end);
    slice.records.offset = records;
    records += slice.records.bytes;
    plan->receives.push_back(slice);
  }
  uint64_t payload = AlignUp(records, kSampleAlignment);
  for (size_t i = 0; i < peers.size(); ++i) {
    PeerSlice& slice = plan->receives[i];
    slice.payload.offset = payload;
    payload += slice.payload.bytes;
    const auto [first, end] = GetRows(peers[i], me);
    AppendOwned(peers[i], first, end, /*received=*/true, slice.records.offset,
                slice.payload.offset, owned);
  }
  plan->receive_bytes = payload;
}

absl::Status CheckSlots(const v1::MicroBatchSchedule& columns,
                        uint32_t micro_batch) {
  for (int i = 0; i < columns.slot_size(); ++i) {
    if (columns.slot(i) == micro_batch) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("schedule: position ", columns.position(i),
                     " is listed in micro-batch ", micro_batch,
                     ", and its slot is micro-batch ", columns.slot(i),
                     "; micro-batches are listed as they are trained on"));
  }
  return absl::OkStatus();
}

absl::Status Unequal(absl::string_view what, uint64_t found, uint64_t wanted) {
  return absl::InternalError(absl::StrCat("exchange plan: ", what, " is ",
                                          found, ", wanted ", wanted));
}

bool Inside(uint64_t offset, uint64_t bytes, uint64_t limit) {
  return offset <= limit && bytes <= limit - offset;
}

}  // namespace

uint64_t ExchangePlan::bytes_sent() const {
  uint64_t sum = 0;
  for (const PeerSlice& s : sends) sum += s.records.bytes + s.payload.bytes;
  return sum;
}

uint64_t ExchangePlan::bytes_received() const {
  uint64_t sum = 0;
  for (const PeerSlice& s : receives) sum += s.records.bytes + s.payload.bytes;
  return sum;
}

absl::Status ExchangePlan::Validate() const {
  uint64_t moved = 0;
  for (const PeerSlice& slice : sends) moved += slice.payload.bytes;
  uint64_t kept = 0;
  uint64_t arrived = 0;
  uint32_t first_image = 0;
  for (const OwnedSample& sample : owned) {
    (sample.received ? arrived : kept) += sample.expected.payload_bytes;
    const uint64_t limit = sample.received ? receive_bytes : block.bytes();
    if (!Inside(sample.payload, sample.expected.payload_bytes, limit) ||
        !Inside(sample.record, sizeof(SampleRecord), limit)) {
      return Unequal(
          absl::StrCat("payload of position ", sample.expected.position),
          sample.payload, limit);
    }
    if (sample.first_image != first_image) {
      return Unequal("first_image", sample.first_image, first_image);
    }
    first_image += sample.expected.num_images;
  }
  if (first_image != images.size()) {
    return Unequal("number of images", images.size(), first_image);
  }
  const uint64_t payload = block.bytes() - block.header.payload;
  if (moved + kept != payload) {
    return Unequal("payload sent and kept", moved + kept, payload);
  }
  uint64_t records = 0;
  uint64_t received = 0;
  for (const PeerSlice& slice : receives) {
    records += slice.records.bytes;
    received += slice.payload.bytes;
  }
  if (arrived != received) {
    return Unequal("payload of received samples", arrived, received);
  }
  if (AlignUp(records, kSampleAlignment) + received != receive_bytes) {
    return Unequal("receive buffer", receive_bytes,
                   AlignUp(records, kSampleAlignment) + received);
  }
  return absl::OkStatus();
}

absl::StatusOr<ExchangePlan> PlanExchange(const v1::StepSchedule& schedule,
                                          uint32_t micro_batch,
                                          const v1::Role& role,
                                          const DeliveryRule& delivery,
                                          const BlockGeometry& geometry) {
  const uint32_t me = role.dp_rank();
  ExchangePlan plan;
  BALLAST_ASSIGN_OR_RETURN(
      plan.block, PlanBlock(schedule, micro_batch, role, delivery, geometry));
  const v1::MicroBatchSchedule& columns = schedule.micro_batches(micro_batch);
  const v1::ModuleSchedule& module = *FindModule(columns, role.module());
  BALLAST_RETURN_IF_ERROR(CheckSlots(columns, micro_batch));

  // Blocks of the peers that pull a sample which this rank owns.
  std::vector<BlockPlan> peers;
  if (delivery.moves()) {
    std::set<uint32_t> pullers;
    for (int i = 0; i < module.owner_size(); ++i) {
      if (!TrainsOn(module, i, me)) continue;
      const uint32_t puller = delivery.GetPuller(module.reader(i), me);
      if (puller != me) pullers.insert(puller);
    }
    for (const uint32_t puller : pullers) {
      v1::Role peer = role;
      peer.set_dp_rank(puller);
      BALLAST_ASSIGN_OR_RETURN(
          peers.emplace_back(),
          PlanBlock(schedule, micro_batch, peer, delivery, geometry));
    }
  } else {
    for (const PlannedSample& sample : plan.block.samples) {
      if (sample.owner == me) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "schedule: position ", sample.record.position, " is read by ",
          ModuleName(role.module()), " rank ", me, " and owned by rank ",
          sample.owner, ", but delivery `off` moves nothing"));
    }
  }

  std::vector<Candidate> owned;
  const auto [first, end] = GetRows(plan.block, me);
  if (first < end) {
    AppendOwned(plan.block, first, end, /*received=*/false,
                RecordOffset(plan.block, first),
                plan.block.samples[first].record.payload, &owned);
  }
  PlanSends(me, &plan);
  PlanReceives(me, peers, &plan, &owned);

  const auto place = [&](const Candidate& c) {
    return columns.place(c.sample.index);
  };
  std::sort(owned.begin(), owned.end(),
            [&](const Candidate& a, const Candidate& b) {
              return place(a) < place(b);
            });
  for (size_t i = 0; i < owned.size(); ++i) {
    if (i > 0 && place(owned[i]) == place(owned[i - 1])) {
      return absl::InvalidArgumentError(absl::StrCat(
          "schedule: positions ", owned[i - 1].sample.expected.position,
          " and ", owned[i].sample.expected.position, " share place ",
          place(owned[i])));
    }
    OwnedSample& sample = owned[i].sample;
    sample.first_image = plan.images.size();
    plan.images.insert(plan.images.end(), owned[i].images,
                       owned[i].images + sample.expected.num_images);
    plan.owned.push_back(sample);
  }
  BALLAST_RETURN_IF_ERROR(plan.Validate());
  return plan;
}

void SliceExchange(const ExchangePlan& plan, const uint8_t* block,
                   uint8_t* received, ExchangeSlices* slices) {
  slices->sends.clear();
  for (const PeerSlice& slice : plan.sends) {
    for (const ByteRun& range : {slice.records, slice.payload}) {
      slices->sends.push_back(
          {slice.peer, {block + range.offset, range.bytes}});
    }
  }
  slices->receives.clear();
  for (const PeerSlice& slice : plan.receives) {
    for (const ByteRun& range : {slice.records, slice.payload}) {
      slices->receives.push_back(
          {slice.peer, {received + range.offset, range.bytes}});
    }
  }
}

}  // namespace ballast
