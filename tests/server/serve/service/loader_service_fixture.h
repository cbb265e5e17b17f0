#ifndef BALLAST_TESTS_SERVER_SERVE_SERVICE_LOADER_SERVICE_FIXTURE_H_
#define BALLAST_TESTS_SERVER_SERVE_SERVICE_LOADER_SERVICE_FIXTURE_H_

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "proto/block/block_view.h"
#include "server/schedule/scheduler.h"
#include "server/serve/pull/pull_limits.h"
#include "server/serve/service/loader_service.h"
#include "server/serve/service/schedule_service.h"
#include "tests/fakes/fake_sample_builder.h"
#include "tests/fakes/fake_source_index.h"
#include "tests/fakes/job_config.h"

namespace ballast {

// LoaderService and ScheduleService over gRPC, with a loader whose samples are
// generated: two vision ranks and two language ranks.
class LoaderServiceFixture : public ::testing::Test {
 protected:
  static constexpr uint32_t kGlobal = 16;
  static constexpr uint32_t kMicro = 8;
  static constexpr uint64_t kPlenty = uint64_t{1} << 40;

  // Every source of `config` has the same index.
  explicit LoaderServiceFixture(const v1::Config& config = JobConfig(2, 2,
                                                                     kGlobal,
                                                                     kMicro))
      : config_(config) {
    auto builder = std::make_unique<FakeSampleBuilder>();
    builder_ = builder.get();
    loader_ = *Loader::Create(config_, 4, scheduler_.get(), std::move(builder));
    service_ = std::make_unique<LoaderServiceImpl>("me", scheduler_.get(),
                                                   loader_.get(), &calls_);
    schedule_service_ =
        std::make_unique<ScheduleServiceImpl>(loader_.get(), &calls_);
    grpc::ServerBuilder server;
    int port = 0;
    server.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                            &port);
    server.RegisterService(service_.get());
    server.RegisterService(schedule_service_.get());
    server_ = server.BuildAndStart();
    const auto channel =
        grpc::CreateChannel("127.0.0.1:" + std::to_string(port),
                            grpc::InsecureChannelCredentials());
    stub_ = v1::LoaderService::NewStub(channel);
    schedule_stub_ = v1::ScheduleService::NewStub(channel);
  }

  ~LoaderServiceFixture() override {
    server_->Shutdown(std::chrono::system_clock::now());
  }

  const std::string& fingerprint() const {
    return scheduler_->fingerprint().hash();
  }

  // Checks that `block` is the one that the role's plan specifies.
  void Check(const std::vector<uint64_t>& block, v1::Module module,
             uint32_t rank, uint64_t step, uint32_t micro_batch) {
    v1::Role role;
    role.set_module(module);
    role.set_dp_rank(rank);
    const auto view = BlockView::Parse(
        {reinterpret_cast<const uint8_t*>(block.data()), block.size() * 8});
    ASSERT_TRUE(view.ok()) << view.status();
    const absl::Status matches = view->Matches(
        *PlanBlock(*scheduler_->Schedule(step), micro_batch, role,
                   config_.balance().delivery(), {config_.model().patch(), 3}));
    EXPECT_TRUE(matches.ok()) << matches;
  }

  grpc::Status Attach(const v1::AttachRequest& request,
                      v1::AttachResponse* response) {
    grpc::ClientContext context;
    return stub_->Attach(&context, request, response);
  }

  const FakeSourceIndex index_{FormulaSamples(97)};
  const v1::Config config_;
  const std::unique_ptr<Scheduler> scheduler_ = *Scheduler::Create(
      config_,
      std::vector<const SourceIndex*>(config_.sources_size(), &index_));
  FakeSampleBuilder* builder_ = nullptr;
  std::shared_ptr<Loader> loader_;
  CallCount calls_;
  std::unique_ptr<LoaderServiceImpl> service_;
  std::unique_ptr<ScheduleServiceImpl> schedule_service_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<v1::LoaderService::Stub> stub_;
  std::unique_ptr<v1::ScheduleService::Stub> schedule_stub_;
};

}  // namespace ballast

#endif  // BALLAST_TESTS_SERVER_SERVE_SERVICE_LOADER_SERVICE_FIXTURE_H_
