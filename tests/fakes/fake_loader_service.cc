#include "tests/fakes/fake_loader_service.h"

#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <xxhash.h>

#include "absl/strings/str_cat.h"
#include "common/grpc_status.h"
#include "common/mutex.h"
#include "proto/loader_service.grpc.pb.h"
#include "proto/metrics_service.grpc.pb.h"
#include "proto/schedule_service.grpc.pb.h"

namespace ballast {
namespace {

using PullServerStream =
    grpc::ServerReaderWriter<v1::PullResponse, v1::PullRequest>;

class StreamPull final : public FakePull {
 public:
  StreamPull(PullServerStream* stream, v1::PullRequest::Open open)
      : stream_(stream), open_(std::move(open)) {}

  const v1::PullRequest::Open& open() const override { return open_; }
  bool Send(const v1::PullResponse& message) override {
    return stream_->Write(message);
  }
  std::optional<v1::PullRequest> Receive() override {
    v1::PullRequest request;
    if (!stream_->Read(&request)) return std::nullopt;
    return request;
  }
  uint64_t AwaitCredit(uint64_t bytes) override {
    v1::PullRequest request;
    while (credit_ < bytes && stream_->Read(&request)) {
      credit_ += request.credit().bytes();
    }
    return credit_;
  }
  void AwaitGone() override { AwaitCredit(UINT64_MAX); }

 private:
  PullServerStream* const stream_;
  const v1::PullRequest::Open open_;
  uint64_t credit_ = 0;
};

class GrpcFakeServer final : public FakeLoaderServer,
                             private v1::LoaderService::Service,
                             private v1::ScheduleService::Service,
                             private v1::MetricsService::Service {
 public:
  GrpcFakeServer() {
    grpc::EnableDefaultHealthCheckService(true);
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(static_cast<v1::LoaderService::Service*>(this));
    builder.RegisterService(static_cast<v1::ScheduleService::Service*>(this));
    builder.RegisterService(static_cast<v1::MetricsService::Service*>(this));
    server_ = builder.BuildAndStart();
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~GrpcFakeServer() override {
    {
      MutexLock lock(&mutex_);
      stopping_ = true;
      changed_.NotifyAll();
    }
    server_->Shutdown(std::chrono::system_clock::now());
  }

  const std::string& address() const override { return address_; }

  void AddPull(PullScript script) override {
    MutexLock lock(&mutex_);
    pulls_.push_back(std::move(script));
  }
  void SetAttach(absl::StatusOr<v1::AttachResponse> answer) override {
    MutexLock lock(&mutex_);
    attach_ = std::move(answer);
  }
  void SetSchedule(ScheduleScript script) override {
    MutexLock lock(&mutex_);
    schedule_ = std::move(script);
  }
  void SetRendezvous(const std::string& id) override {
    MutexLock lock(&mutex_);
    rendezvous_ = id;
  }
  void SetWaiting(v1::RendezvousResponse waiting) override {
    MutexLock lock(&mutex_);
    waiting_ = std::move(waiting);
  }
  void SetTimings(v1::GetTimingsResponse timings) override {
    MutexLock lock(&mutex_);
    timings_ = std::move(timings);
  }
  void SetReport(absl::Status answer) override {
    MutexLock lock(&mutex_);
    report_ = std::move(answer);
  }
  std::vector<v1::ReportRequest> report_requests() const override {
    MutexLock lock(&mutex_);
    return report_requests_;
  }
  std::vector<v1::GetTimingsRequest> timings_requests() const override {
    MutexLock lock(&mutex_);
    return timings_requests_;
  }
  void SetStatus(v1::GetStatusResponse status) override {
    MutexLock lock(&mutex_);
    status_ = std::move(status);
  }
  void SetStats(v1::GetStatsResponse stats) override {
    MutexLock lock(&mutex_);
    stats_ = std::move(stats);
  }
  void SetBalance(v1::GetBalanceResponse balance) override {
    MutexLock lock(&mutex_);
    balance_ = std::move(balance);
  }
  void SetServing(bool serving) override {
    server_->GetHealthCheckService()->SetServingStatus(serving);
  }
  std::vector<v1::AttachRequest> attach_requests() const override {
    MutexLock lock(&mutex_);
    return attach_requests_;
  }
  void FailRendezvous(std::vector<absl::Status> errors) override {
    MutexLock lock(&mutex_);
    rendezvous_errors_ = std::move(errors);
  }

  std::vector<v1::RendezvousRequest> rendezvous_requests() const override {
    MutexLock lock(&mutex_);
    return rendezvous_requests_;
  }

 private:
  grpc::Status Attach(grpc::ServerContext*, const v1::AttachRequest* request,
                      v1::AttachResponse* response) override {
    MutexLock lock(&mutex_);
    attach_requests_.push_back(*request);
    if (attach_.ok()) *response = *attach_;
    return ToGrpcStatus(attach_.status());
  }

  grpc::Status GetStatus(grpc::ServerContext*, const v1::GetStatusRequest*,
                         v1::GetStatusResponse* response) override {
    MutexLock lock(&mutex_);
    if (!status_.has_value()) {
      return ToGrpcStatus(absl::UnimplementedError("GetStatus"));
    }
    *response = *status_;
    return grpc::Status::OK;
  }

  grpc::Status GetStats(grpc::ServerContext*, const v1::GetStatsRequest*,
                        v1::GetStatsResponse* response) override {
    MutexLock lock(&mutex_);
    if (!stats_.has_value()) {
      return ToGrpcStatus(absl::UnimplementedError("GetStats"));
    }
    *response = *stats_;
    return grpc::Status::OK;
  }

  grpc::Status GetBalance(grpc::ServerContext*, const v1::GetBalanceRequest*,
                          v1::GetBalanceResponse* response) override {
    MutexLock lock(&mutex_);
    if (!balance_.has_value()) {
      return ToGrpcStatus(absl::UnimplementedError("GetBalance"));
    }
    *response = *balance_;
    return grpc::Status::OK;
  }

  grpc::Status GetSchedule(grpc::ServerContext*,
                           const v1::GetScheduleRequest* request,
                           v1::GetScheduleResponse* response) override {
    MutexLock lock(&mutex_);
    const absl::StatusOr<v1::StepSchedule> schedule =
        schedule_(request->step());
    if (schedule.ok()) *response->mutable_schedule() = *schedule;
    return ToGrpcStatus(schedule.status());
  }

  // Plays the same script for each step until it fails.
  grpc::Status WatchSchedule(
      grpc::ServerContext*, const v1::WatchScheduleRequest* request,
      grpc::ServerWriter<v1::WatchScheduleResponse>* writer) override {
    ScheduleScript script;
    {
      MutexLock lock(&mutex_);
      script = schedule_;
    }
    v1::WatchScheduleResponse response;
    for (uint64_t i = 0; request->steps() == 0 || i < request->steps(); ++i) {
      absl::StatusOr<v1::StepSchedule> schedule =
          script(request->from_step() + i);
      if (!schedule.ok()) return ToGrpcStatus(schedule.status());
      *response.mutable_schedule() = *std::move(schedule);
      if (!writer->Write(response)) break;
    }
    return grpc::Status::OK;
  }

  grpc::Status Rendezvous(grpc::ServerContext*,
                          const v1::RendezvousRequest* request,
                          v1::RendezvousResponse* response) override {
    MutexLock lock(&mutex_);
    if (request->asks()) {
      *response = waiting_;
      return grpc::Status::OK;
    }
    rendezvous_requests_.push_back(*request);
    if (!rendezvous_errors_.empty()) {
      const absl::Status error = rendezvous_errors_.front();
      rendezvous_errors_.erase(rendezvous_errors_.begin());
      return ToGrpcStatus(error);
    }
    while (rendezvous_.empty() && !stopping_) changed_.Wait(&mutex_);
    response->set_id(rendezvous_);
    return grpc::Status::OK;
  }

  grpc::Status Report(grpc::ServerContext*, const v1::ReportRequest* request,
                      v1::ReportResponse*) override {
    MutexLock lock(&mutex_);
    report_requests_.push_back(*request);
    return ToGrpcStatus(report_);
  }

  grpc::Status GetTimings(grpc::ServerContext*,
                          const v1::GetTimingsRequest* request,
                          v1::GetTimingsResponse* response) override {
    MutexLock lock(&mutex_);
    timings_requests_.push_back(*request);
    *response = timings_;
    return grpc::Status::OK;
  }

  grpc::Status Pull(grpc::ServerContext*, PullServerStream* stream) override {
    v1::PullRequest request;
    if (!stream->Read(&request) || !request.has_open()) {
      // As a server that does not know the Pull of a lane.
      if (request.has_join()) return {grpc::StatusCode::NOT_FOUND, "no Pull"};
      return {grpc::StatusCode::INVALID_ARGUMENT, "no Open"};
    }
    PullScript script;
    {
      MutexLock lock(&mutex_);
      if (pulls_.empty()) return {grpc::StatusCode::INTERNAL, "no script"};
      script = std::move(pulls_.front());
      pulls_.pop_front();
    }
    StreamPull pull(stream, request.open());
    return ToGrpcStatus(script(&pull));
  }

  std::string address_;
  std::unique_ptr<grpc::Server> server_;
  mutable Mutex mutex_;
  CondVar changed_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::deque<PullScript> pulls_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::GetStatusResponse> status_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::GetStatsResponse> stats_ ABSL_GUARDED_BY(mutex_);
  std::optional<v1::GetBalanceResponse> balance_ ABSL_GUARDED_BY(mutex_);
  absl::StatusOr<v1::AttachResponse> attach_ ABSL_GUARDED_BY(mutex_) =
      absl::UnimplementedError("no answer was set");
  ScheduleScript schedule_ ABSL_GUARDED_BY(mutex_) = [](uint64_t) {
    return absl::UnimplementedError("no answer was set");
  };
  std::string rendezvous_ ABSL_GUARDED_BY(mutex_);
  v1::RendezvousResponse waiting_ ABSL_GUARDED_BY(mutex_);
  std::vector<absl::Status> rendezvous_errors_ ABSL_GUARDED_BY(mutex_);
  v1::GetTimingsResponse timings_ ABSL_GUARDED_BY(mutex_);
  absl::Status report_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::ReportRequest> report_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::GetTimingsRequest> timings_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::AttachRequest> attach_requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<v1::RendezvousRequest> rendezvous_requests_
      ABSL_GUARDED_BY(mutex_);
};

}  // namespace

bool FakePull::SendBegin(uint64_t step, uint32_t micro_batch, uint64_t bytes,
                         uint64_t checksum) {
  v1::PullResponse message;
  v1::PullResponse::Begin& begin = *message.mutable_begin();
  begin.set_step(step);
  begin.set_micro_batch(micro_batch);
  begin.set_bytes(bytes);
  begin.set_checksum(checksum);
  return Send(message);
}

bool FakePull::SendChunk(absl::Span<const uint8_t> data) {
  v1::PullResponse message;
  message.mutable_chunk()->set_data(data.data(), data.size());
  return Send(message);
}

bool FakePull::SendBlock(uint64_t step, uint32_t micro_batch,
                         absl::Span<const uint8_t> bytes, size_t chunk_bytes) {
  bool sent = SendBegin(step, micro_batch, bytes.size(),
                        XXH3_64bits(bytes.data(), bytes.size()));
  for (size_t at = 0; sent && at < bytes.size(); at += chunk_bytes) {
    sent = SendChunk(bytes.subspan(at, chunk_bytes));
  }
  return sent;
}

std::unique_ptr<FakeLoaderServer> FakeLoaderServer::Start() {
  return std::make_unique<GrpcFakeServer>();
}

}  // namespace ballast
