#include "server/serve/service/order_service.h"

#include <algorithm>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "server/serve/pull/stream_reactor.h"

namespace ballast {

namespace {

absl::StatusOr<v1::GetMixtureResponse> ReadMixture(
    const Scheduler& train, const v1::GetMixtureRequest& request) {
  BALLAST_ASSIGN_OR_RETURN(const Scheduler* const scheduler,
                           train.OfSplit(request.split()));
  return scheduler->MixtureBefore(request.step());
}

}  // namespace

v1::GetSamplesResponse MakeSamplesResponse(const v1::StepSchedule& schedule,
                                           uint32_t first, uint32_t most,
                                           const SampleLocator& locate) {
  // Position, source, ordinal. A step's positions may be spread over its
  // micro-batches.
  std::vector<std::tuple<uint64_t, uint32_t, uint64_t>> samples;
  for (const v1::MicroBatchSchedule& columns : schedule.micro_batches()) {
    for (int i = 0; i < columns.position_size(); ++i) {
      samples.emplace_back(columns.position(i), columns.source(i),
                           columns.ordinal(i));
    }
  }
  std::sort(samples.begin(), samples.end());
  v1::GetSamplesResponse response;
  response.set_step_samples(samples.size());
  const size_t end = std::min<size_t>(samples.size(), uint64_t{first} + most);
  for (size_t i = first; i < end; ++i) {
    const auto& [position, source, ordinal] = samples[i];
    v1::GetSamplesResponse::Sample* sample = response.add_samples();
    sample->set_position(position);
    sample->set_source(schedule.sources(source));
    sample->set_ordinal(ordinal);
    const SampleLocation at = locate(schedule, source, ordinal);
    sample->set_file(at.file);
    sample->set_offset(at.offset);
    sample->set_number(at.number);
  }
  return response;
}

grpc::ServerUnaryReactor* OrderServiceImpl::GetMixture(
    grpc::CallbackServerContext* context, const v1::GetMixtureRequest* request,
    v1::GetMixtureResponse* response) {
  absl::StatusOr<v1::GetMixtureResponse> mixture =
      ReadMixture(*scheduler_, *request);
  if (mixture.ok()) *response = *std::move(mixture);
  return Finished(context, mixture.status());
}

grpc::ServerUnaryReactor* OrderServiceImpl::GetSamples(
    grpc::CallbackServerContext* context, const v1::GetSamplesRequest* request,
    v1::GetSamplesResponse* response) {
  auto* const reactor = new RoomyReactor;
  if (waiting_.fetch_add(1) >= kMaxWaiting) {
    --waiting_;
    reactor->EndWith(absl::ResourceExhaustedError(absl::StrCat(
        kMaxWaiting, " queries of samples are waiting; try again")));
    return reactor;
  }
  // All of them live until the reactor has finished.
  loader_->PeekSchedule(
      request->step(),
      [this, context, reactor, request, response](auto schedule) {
        absl::StatusOr<std::shared_ptr<void>> room = nullptr;
        if (!schedule.ok()) {
          room = schedule.status();
        } else {
          *response = MakeSamplesResponse(**schedule, request->first(),
                                          kMaxSamples, locate_);
          room = answers_.Take(UnreadAnswers::ClientOf(*context),
                               response->ByteSizeLong());
        }
        --waiting_;
        reactor->EndWith(std::move(room));
      },
      request->split());
  return reactor;
}

}  // namespace ballast
