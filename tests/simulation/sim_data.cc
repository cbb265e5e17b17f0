#include "tests/simulation/sim_data.h"

#include <cstdlib>
#include <map>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "common/aligned_buffer.h"
#include "proto/block/block_plan.h"
#include "proto/block/block_view.h"
#include "proto/schedule/fingerprint.h"
#include "tests/simulation/sim_threads.h"
#include "trainer_shim/batch_layout.h"
#include "trainer_shim/host/host_batch_maker.h"

namespace ballast {
namespace {

class SimScheduler final : public Scheduler {
 public:
  SimScheduler(const SyntheticJob& job, int version)
      : synthetic_(job),
        job_(SyntheticJobMessage(job)),
        fingerprint_(MakeFingerprint(
            {{"sources.docs.index", absl::StrCat("version ", version)},
             {"batch.micro", absl::StrCat(MicroBatchOf(job))}})) {}

  absl::StatusOr<v1::StepSchedule> Schedule(uint64_t step) const override {
    v1::StepSchedule schedule = SyntheticSchedule(synthetic_, step);
    schedule.set_fingerprint(fingerprint_.hash());
    return schedule;
  }
  const v1::Fingerprint& fingerprint() const override { return fingerprint_; }
  const v1::Job& job() const override { return job_; }

 private:
  const SyntheticJob synthetic_;
  const v1::Job job_;
  const v1::Fingerprint fingerprint_;
};

class SimBuilder final : public SampleBuilder {
 public:
  SimBuilder(const SimBuilderOptions& options, const SimDisk* disk)
      : options_(options), disk_(*disk) {}

  absl::StatusOr<SampleOutcome> Build(
      const SampleRequest& request) const override {
    SimThreads& threads = *SimThreads::Current();
    threads.SleepUntil(
        threads.Now() +
        threads.random().Between(absl::ZeroDuration(), disk_.most_read_time));
    threads.SleepUntil(disk_.stalled_until);
    const uint64_t position = request.record.position;
    FillPayload(options_.version, request.module, position, request.payload);
    if (threads.random().Chance(disk_.error_chance)) {
      if (options_.errors_become_placeholders) {
        return SampleOutcome::kPlaceholder;
      }
      return absl::UnavailableError("Input/output error");
    }
    return HasDataFault(position) ? SampleOutcome::kPlaceholder
                                  : SampleOutcome::kBuilt;
  }

 private:
  const SimBuilderOptions options_;
  const SimDisk& disk_;
};

ExpectedBatch Assemble(const SyntheticJob& job, const v1::Role& role,
                       uint64_t step, uint32_t micro_batch, int version) {
  v1::Job message = SyntheticJobMessage(job);
  message.set_delivery(v1::DELIVERY_DIRECT);
  const JobShape shape = GetShape(message, role).value();
  const auto scheduler = MakeSimScheduler(job, 0);
  const v1::StepSchedule schedule = scheduler->Schedule(step).value();
  const BlockPlan plan =
      PlanBlock(schedule, micro_batch, role, shape.delivery, shape.block)
          .value();
  AlignedBuffer block = AlignedBuffer::Create(plan.bytes()).value();
  WriteBlockTables(plan, block.bytes());
  for (size_t i = 0; i < plan.samples.size(); ++i) {
    const SampleRecord& record = plan.samples[i].record;
    FillPayload(version, role.module(), record.position,
                block.bytes().subspan(record.payload, record.payload_bytes));
    if (HasDataFault(record.position)) MarkPlaceholder(plan, i, block.bytes());
  }
  BatchAssembler assembler(role, shape, PixelType::kFloat32,
                           Normalisation::kTorchvision, nullptr);
  PackedBatch batch;
  const absl::Status status = assembler.Assemble(
      GetStepInfo(schedule, shape.padding), micro_batch, block.bytes(), &batch);
  if (!status.ok()) std::abort();
  ExpectedBatch expected;
  for (const PackedSample& sample : batch.samples) {
    expected.positions.push_back(sample.position);
    expected.placeholders.push_back(HasDataFault(sample.position));
  }
  expected.digest = ComputeDigest(batch);
  return expected;
}

}  // namespace

bool HasDataFault(uint64_t position) { return position % 11 == 7; }

void FillPayload(int version, v1::Module module, uint64_t position,
                 absl::Span<uint8_t> payload) {
  for (size_t i = 0; i < payload.size(); ++i) {
    payload[i] = position * 31 + i * 7 + module + version * 101;
  }
}

std::unique_ptr<Scheduler> MakeSimScheduler(const SyntheticJob& job,
                                            int fingerprint_version) {
  return std::make_unique<SimScheduler>(job, fingerprint_version);
}

std::unique_ptr<SampleBuilder> MakeSimBuilder(const SimBuilderOptions& options,
                                              const SimDisk* disk) {
  return std::make_unique<SimBuilder>(options, disk);
}

const ExpectedBatch& ExpectedBatchOf(const SyntheticJob& job,
                                     const v1::Role& role, uint64_t step,
                                     uint32_t micro_batch, int version) {
  using Key = std::tuple<uint32_t, uint32_t, uint32_t, int, uint32_t, uint64_t,
                         uint32_t, int>;
  static auto* const known = new std::map<Key, ExpectedBatch>;
  const Key key{job.vision_dp, job.language_dp, job.micro_batches,
                role.module(), role.dp_rank(),  step,
                micro_batch,   version};
  const auto found = known->find(key);
  if (found != known->end()) return found->second;
  return known->emplace(key, Assemble(job, role, step, micro_batch, version))
      .first->second;
}

}  // namespace ballast
