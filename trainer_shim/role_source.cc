#include "trainer_shim/role_source.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/attach_all.h"
#include "client/spread_stream.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "proto/block/block_layout.h"
#include "proto/job.pb.h"
#include "proto/schedule/fingerprint.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"
#include "proto/schedule/spread.h"

namespace ballast {
namespace {

// The steps of one pass over a split, from `step` on.
absl::StatusOr<uint64_t> StepsOfPass(const v1::Job& job, uint64_t step) {
  if (!job.has_one_pass()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "steps: one pass over split ", SplitName(job.split()),
        " was asked for, whose length the servers do not say: they do for "
        "valid and test, unless they are of an older version; ask for a number "
        "of steps"));
  }
  const uint64_t end = job.one_pass().end_step();
  if (step >= end) {
    return absl::InvalidArgumentError(
        absl::StrCat("start_step: found ", step, "; one pass over split ",
                     SplitName(job.split()), " ends before step ", end,
                     ": begin before, or ask for a number of steps"));
  }
  return end - step;
}

}  // namespace

void MicroBatchCounts::Note(const v1::StepSchedule& schedule) {
  MutexLock lock(&mutex_);
  counts_[schedule.step()] = schedule.micro_batches_size();
  if (counts_.size() > kKnownSteps) counts_.erase(counts_.begin());
}

uint32_t MicroBatchCounts::Known(uint64_t step) const {
  MutexLock lock(&mutex_);
  const auto known = counts_.find(step);
  return known == counts_.end() ? 0 : known->second;
}

absl::StatusOr<uint32_t> MicroBatchCounts::Get(uint64_t step,
                                               LoaderClient::Use use) {
  if (const uint32_t known = Known(step); known != 0) return known;
  MutexLock lock(&asking_);
  uint32_t micro_batches = 0;
  if (use == LoaderClient::Use::kLooks) {
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule schedule,
                             schedules_.Look(step));
    micro_batches = schedule.micro_batches_size();
  } else {
    BALLAST_ASSIGN_OR_RETURN(const v1::StepSchedule* const schedule,
                             schedules_.Get(step));
    micro_batches = schedule->micro_batches_size();
  }
  if (micro_batches > 0) return micro_batches;
  return absl::DataLossError(
      absl::StrCat("the schedule of step ", step, " has no micro-batch"));
}

namespace {

// A role that spreads asks first whom it prefers: roles are even over a long
// list, and each talks to a few.
std::vector<std::unique_ptr<LoaderClient>> InOrderOfPreference(
    const v1::Role& role, std::vector<std::unique_ptr<LoaderClient>> clients) {
  std::vector<LoaderClient*> servers;
  for (const auto& client : clients) servers.push_back(client.get());
  std::vector<std::unique_ptr<LoaderClient>> ordered;
  for (const size_t i : PreferServers(role, ServerNames(servers))) {
    ordered.push_back(std::move(clients[i]));
  }
  return ordered;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RoleSource>> RoleSource::Create(
    std::vector<std::unique_ptr<LoaderClient>> clients, Options options) {
  if (options.spread > 0) {
    clients = InOrderOfPreference(options.role, std::move(clients));
  }
  std::unique_ptr<RoleSource> source(
      new RoleSource(std::move(clients), options));
  BALLAST_RETURN_IF_ERROR(source->Open(options));
  return source;
}

namespace {

// Rank 0 of the last module says what the indexes leave out.
void WarnOfLeftOut(const v1::Job& job, const v1::Role& role) {
  if (role.dp_rank() != 0 || job.modules().empty() ||
      job.modules(job.modules_size() - 1).module() != role.module()) {
    return;
  }
  for (const v1::LeftOut& left_out : job.left_out()) {
    const std::string cause =
        left_out.causes().empty()
            ? ""
            : absl::StrCat("; ", left_out.causes(0).records(), " ",
                           left_out.causes(0).cause(), ", as ",
                           left_out.causes(0).example());
    LogWarning("source ", left_out.source(), ": its index leaves out ",
               left_out.bad(), " of ", left_out.samples() + left_out.bad(),
               " records as bad", cause);
  }
}

}  // namespace

absl::Status RoleSource::Open(const Options& options) {
  std::vector<LoaderClient*> servers;
  for (const auto& client : clients_) servers.push_back(client.get());
  timings_ = std::make_unique<TimingReporter>(servers, options.clock);
  BALLAST_ASSIGN_OR_RETURN(attached_, Attach(options, servers));
  BALLAST_RETURN_IF_ERROR(
      CheckSameData(options.checkpoint, options.checkpoint_revisions, attached_,
                    "the servers", role_.split(), options.start_step));
  chain_ = std::make_shared<RevisionChain>(
      attached_.fingerprint().hash(),
      std::vector<v1::Revision>(attached_.revisions().begin(),
                                attached_.revisions().end()));
  if (attached_.job().split() != role_.split()) {
    return absl::FailedPreconditionError(
        absl::StrCat("split ", SplitName(role_.split()),
                     " was asked for, and the servers answer with split ",
                     SplitName(attached_.job().split()),
                     "; they are of a version without splits"));
  }
  WarnOfLeftOut(attached_.job(), role_);
  BALLAST_ASSIGN_OR_RETURN(shape_,
                           GetShape(attached_.job(), role_, options.place));

  FailoverOptions failover = options.failover;
  failover.seed += static_cast<uint64_t>(role_.split()) << 40 |
                   static_cast<uint64_t>(role_.module()) << 32 |
                   role_.dp_rank();

  ScheduleSource::Options schedules;
  schedules.failover = failover;
  schedules.fingerprint = attached_.fingerprint().hash();
  schedules.chain = chain_;
  schedules.split = role_.split();
  schedules.clock = options.clock;
  schedules_ = std::make_unique<ScheduleSource>(servers, schedules);
  counts_ = std::make_unique<MicroBatchCounts>(servers, schedules);
  due_step_ = options.start_step;
  uint64_t asked = options.steps;
  if (asked == kOnePass) {
    BALLAST_ASSIGN_OR_RETURN(asked,
                             StepsOfPass(attached_.job(), options.start_step));
  }
  if (asked > 0 && asked < end_step_ - options.start_step) {
    end_step_ = options.start_step + asked;
    end_of_steps_ = absl::OutOfRangeError(
        absl::StrCat("the schedules ended before step ", end_step_,
                     ", after the ", asked, " steps that were asked for"));
  }

  const absl::StatusOr<uint64_t> steps =
      StepsWithData(attached_.job(), options.start_step, asked);
  if (!steps.ok() || *steps != asked) {
    data_end_ = DataEnd(attached_.job());
  }
  without_blocks_ = options.without_blocks || !shape_.fields.any();
  if (!steps.ok()) {
    steps_left_ = 0;
    return absl::OkStatus();
  }
  if (without_blocks_) {
    next_step_ = options.start_step;
    if (*steps > 0) steps_left_ = *steps;
    return absl::OkStatus();
  }

  BatchStream::Options stream;
  stream.request.role = role_;
  stream.request.step = options.start_step;
  stream.request.steps = *steps;
  stream.request.fingerprint = attached_.fingerprint().hash();
  stream.request.max_bytes = options.max_bytes;
  stream.clock = options.clock;
  stream.failover = failover;
  BALLAST_ASSIGN_OR_RETURN(stream_, OpenStream(options, stream));
  return absl::OkStatus();
}

absl::StatusOr<v1::AttachResponse> RoleSource::Attach(
    const Options& options, absl::Span<LoaderClient* const> servers) {
  // A role that spreads has no primary: of those that it prefers, any that has
  // the expected fingerprint will do.
  for (size_t i = 0; options.spread > 0 && i < servers.size(); ++i) {
    absl::StatusOr<v1::AttachResponse> few = AttachAll(
        servers.subspan(i, options.spread), role_, options.fingerprint);
    if (few.ok()) return few;
    if (options.fingerprint.hash().empty() ||
        !absl::IsFailedPrecondition(few.status())) {
      break;
    }
  }
  return AttachAll(servers, role_, options.fingerprint,
                   options.failover.start_patience, options.clock);
}

absl::StatusOr<std::unique_ptr<BatchStream>> RoleSource::OpenStream(
    const Options& options, const BatchStream::Options& stream) {
  std::vector<LoaderClient*> servers;
  for (const auto& client : clients_) servers.push_back(client.get());
  if (options.spread == 0) {
    BatchStream::Options from_one = stream;
    from_one.servers = ServerNames(servers);
    const auto connect = [servers](size_t server, const FetchRequest& request) {
      return servers[server]->OpenPull(request);
    };
    return BatchStream::Create(connect, from_one);
  }
  finder_ = std::make_unique<ServerFinder>(servers, options.resolve);
  SpreadOptions spread;
  spread.stream = stream;
  spread.stream.servers = finder_->names();
  spread.most_servers = options.spread;
  const v1::Job& job = attached_.job();
  spread.stride = job.global_batch() / job.micro_batch();
  spread.ask = [this](size_t server) -> absl::StatusOr<uint32_t> {
    BALLAST_ASSIGN_OR_RETURN(
        const v1::AttachResponse answer,
        finder_->client(server)->Attach(role_, attached_.fingerprint()));
    return answer.workers();
  };
  spread.list = [this] {
    finder_->Look();
    return finder_->names();
  };
  const auto connect = [this](size_t server, const FetchRequest& request) {
    return finder_->client(server)->OpenPull(request);
  };
  return CreateSpreadStream(connect, std::move(spread));
}

absl::StatusOr<RoleSource::Block> RoleSource::NextWithoutBlock() {
  if (steps_left_ == uint64_t{0}) {
    return data_end_.ok() ? end_of_steps_ : data_end_;
  }
  if (cancelled_) return absl::CancelledError("cancelled");
  Block next;
  absl::StatusOr<const v1::StepSchedule*> schedule =
      schedules_->Get(next_step_);
  if (absl::IsOutOfRange(schedule.status())) {
    return absl::InternalError(schedule.status().message());
  }
  BALLAST_RETURN_IF_ERROR(schedule.status());
  const int micro_batches = (*schedule)->micro_batches_size();
  if (micro_batches == 0) {
    return absl::DataLossError(absl::StrCat("the schedule of step ", next_step_,
                                            " has no micro-batch"));
  }
  next.step = GetStep(**schedule);
  next.micro_batch = next_micro_batch_++;
  if (next_micro_batch_ == static_cast<uint32_t>(micro_batches)) {
    next_micro_batch_ = 0;
    ++next_step_;
    if (steps_left_) --*steps_left_;
  }
  return next;
}

absl::StatusOr<RoleSource::Block> RoleSource::Next() {
  if (without_blocks_) return NextWithoutBlock();
  if (stream_ == nullptr) return data_end_;
  const absl::Time start = clock_->Now();
  absl::StatusOr<std::unique_ptr<FetchedBlock>> block = stream_->Next();
  if (absl::IsOutOfRange(block.status()) && !data_end_.ok()) return data_end_;
  Block next;
  BALLAST_ASSIGN_OR_RETURN(next.block, std::move(block));
  absl::StatusOr<const v1::StepSchedule*> schedule =
      schedules_->Get(next.block->step());
  // Only the stream reports the end of the steps.
  if (absl::IsOutOfRange(schedule.status())) {
    return absl::InternalError(schedule.status().message());
  }
  BALLAST_RETURN_IF_ERROR(schedule.status());
  next.step = GetStep(**schedule);
  next.micro_batch = next.block->micro_batch();
  MutexLock lock(&mutex_);
  times_[{next.block->step(), next.micro_batch}].wait = clock_->Now() - start;
  if (times_.size() > kKnownTimes) times_.erase(times_.begin());
  return next;
}

const StepInfo* RoleSource::GetStep(const v1::StepSchedule& schedule) {
  due_step_ = schedule.step() + 1;
  if (step_.schedule == nullptr || step_.schedule->step() != schedule.step()) {
    step_ = GetStepInfo(schedule, shape_.padding);
    counts_->Note(schedule);
  }
  return &step_;
}

absl::StatusOr<uint32_t> RoleSource::NumMicroBatches(uint64_t step) {
  if (cancelled_) return absl::CancelledError("cancelled");
  if (!end_of_steps_.ok() && step >= end_step_) return end_of_steps_;
  const uint64_t data_end = attached_.job().end_step();
  if (data_end != 0 && step >= data_end) return DataEnd(attached_.job());
  return counts_->Get(step, step > due_step_ ? LoaderClient::Use::kLooks
                                             : LoaderClient::Use::kTrains);
}

void RoleSource::NoteTimes(const BatchTimes& times) {
  MutexLock lock(&mutex_);
  const auto known = times_.find({times.step, times.micro_batch});
  if (known != times_.end()) known->second.making = times;
}

void RoleSource::Cancel() {
  cancelled_ = true;
  schedules_->Cancel();
  counts_->Cancel();
  if (stream_ != nullptr) stream_->Cancel();
}

absl::Status RoleSource::ReportTiming(uint64_t step, uint32_t micro_batch,
                                      double milliseconds) {
  if (role_.split() != v1::SPLIT_TRAIN) {
    return absl::InvalidArgumentError(absl::StrCat(
        "times of split ", SplitName(role_.split()),
        " are not reported: costs are fitted to forward and backward passes, "
        "and only train has both"));
  }
  v1::StepTiming timing;
  *timing.mutable_role() = role_;
  timing.set_step(step);
  timing.set_micro_batch(micro_batch);
  timing.set_milliseconds(milliseconds);
  {
    MutexLock lock(&mutex_);
    const auto known = times_.find({step, micro_batch});
    if (known != times_.end()) {
      const auto& [wait, making] = known->second;
      timing.set_wait_milliseconds(absl::ToDoubleMilliseconds(wait));
      if (making.copy.has_value()) {
        timing.set_copy_milliseconds(absl::ToDoubleMilliseconds(*making.copy));
      }
      if (making.exchange.has_value()) {
        timing.set_exchange_milliseconds(
            absl::ToDoubleMilliseconds(*making.exchange));
      }
      if (making.decode.has_value()) {
        timing.set_decode_milliseconds(
            absl::ToDoubleMilliseconds(*making.decode));
      }
      if (making.pack.has_value()) {
        timing.set_pack_milliseconds(absl::ToDoubleMilliseconds(*making.pack));
      }
    }
  }
  return timings_->Report(timing, attached_.fingerprint().hash());
}

absl::StatusOr<std::vector<std::unique_ptr<LoaderClient>>> GetClients(
    const ServerOptions& servers) {
  BALLAST_ASSIGN_OR_RETURN(const ChannelSecurity security,
                           LoadChannelSecurity(servers.security));
  std::vector<std::unique_ptr<LoaderClient>> clients;
  for (const std::string& address : servers.addresses) {
    clients.push_back(
        LoaderClient::CreateSecure(address, security, servers.streams));
  }
  return clients;
}

absl::Status CheckCommunicator(const JobShape& shape, const v1::Role& role,
                               const Communicator* communicator) {
  if (!shape.exchanges()) return absl::OkStatus();
  if (communicator == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "exchanging samples over ", shape.dp,
        " ranks needs a communicator; none was given. Give each rank "
        "one, or set balance.delivery: direct"));
  }
  if (communicator->rank() != role.dp_rank() ||
      communicator->size() != shape.dp) {
    return absl::InvalidArgumentError(
        absl::StrCat("the communicator is rank ", communicator->rank(), " of ",
                     communicator->size(), ", wanted rank ", role.dp_rank(),
                     " of ", shape.dp));
  }
  return absl::OkStatus();
}

absl::Status CheckTensorCommunicator(const JobShape& shape,
                                     const Communicator* communicator) {
  if (communicator == nullptr || (communicator->rank() == shape.place.tp_rank &&
                                  communicator->size() == shape.layout.tp)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "the communicator of tensor peers is rank ", communicator->rank(), " of ",
      communicator->size(), ", wanted rank ", shape.place.tp_rank, " of ",
      shape.layout.tp));
}

absl::Status ForeignBatch(const BatchPlace& sent, const BatchPlace& wanted) {
  return absl::DataLossError(absl::StrCat(
      "tensor rank 0 sent step ", sent.step, " micro-batch ", sent.micro_batch,
      ", wanted step ", wanted.step, " micro-batch ", wanted.micro_batch,
      "; all tensor ranks start at one step of the same job, and rank 0 sends "
      "each batch that Next returns"));
}

absl::Status NameRole(const absl::Status& status, const v1::Role& role) {
  const absl::StatusCode code =
      absl::IsOutOfRange(status) ? absl::StatusCode::kInternal : status.code();
  return absl::Status(
      code, absl::StrCat(SplitWord(role.split()), ModuleName(role.module()),
                         " rank ", role.dp_rank(), ": ", status.message()));
}

}  // namespace ballast
