#include "server/serve/service/order_service.h"

#include <chrono>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/fakes/job_config.h"
#include "tests/server/serve/service/loader_service_fixture.h"

namespace ballast {
namespace {

using ::testing::HasSubstr;

v1::Config Changing() {
  v1::Config config = JobConfig(2, 2, 16, 8);
  auto* change = config.mutable_batch()->add_changes();
  change->set_step(2);
  change->set_global(8200);  // more than one answer
  return config;
}

class OrderServiceTest : public LoaderServiceFixture {
 protected:
  OrderServiceTest() : LoaderServiceFixture(Changing()) {
    order_service_ = std::make_unique<OrderServiceImpl>(
        scheduler_.get(), loader_.get(),
        [](const v1::StepSchedule&, uint32_t source, uint64_t ordinal) {
          return SampleLocation{absl::StrCat("file ", source), ordinal * 512,
                                ordinal + 1};
        });
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port);
    builder.RegisterService(order_service_.get());
    order_server_ = builder.BuildAndStart();
    order_stub_ = v1::OrderService::NewStub(grpc::CreateChannel(
        absl::StrCat("127.0.0.1:", port), grpc::InsecureChannelCredentials()));
  }

  ~OrderServiceTest() override {
    order_server_->Shutdown(std::chrono::system_clock::now());
  }

  grpc::Status GetSamples(uint64_t step, uint32_t first,
                          v1::GetSamplesResponse* response,
                          v1::Split split = v1::SPLIT_TRAIN) {
    v1::GetSamplesRequest request;
    request.set_step(step);
    request.set_first(first);
    request.set_split(split);
    grpc::ClientContext context;
    return order_stub_->GetSamples(&context, request, response);
  }

  grpc::Status GetMixture(uint64_t step, v1::GetMixtureResponse* response,
                          v1::Split split = v1::SPLIT_TRAIN) {
    v1::GetMixtureRequest request;
    request.set_step(step);
    request.set_split(split);
    grpc::ClientContext context;
    return order_stub_->GetMixture(&context, request, response);
  }

  std::unique_ptr<OrderServiceImpl> order_service_;
  std::unique_ptr<grpc::Server> order_server_;
  std::unique_ptr<v1::OrderService::Stub> order_stub_;
};

TEST_F(OrderServiceTest, SamplesComeInPiecesInOrderOfPosition) {
  uint64_t position = 32;  // two steps of 16
  for (const auto& [first, size] : {std::pair<uint32_t, int>{0, 4096},
                                    {4096, 4096},
                                    {8192, 8},
                                    {8200, 0}}) {
    v1::GetSamplesResponse response;
    ASSERT_TRUE(GetSamples(2, first, &response).ok());
    EXPECT_EQ(response.step_samples(), 8200u);
    ASSERT_EQ(response.samples_size(), size);
    for (const auto& sample : response.samples()) {
      EXPECT_EQ(sample.position(), position++);
      EXPECT_EQ(sample.source(), "docs");
      EXPECT_LT(sample.ordinal(), index_.size());
      EXPECT_EQ(sample.file(), "file 0");
      EXPECT_EQ(sample.offset(), sample.ordinal() * 512);
      EXPECT_EQ(sample.number(), sample.ordinal() + 1);
    }
  }
}

TEST_F(OrderServiceTest, TheMixtureIsTheSchedulers) {
  v1::GetMixtureResponse response;
  ASSERT_TRUE(GetMixture(3, &response).ok());
  EXPECT_EQ(response.SerializeAsString(),
            scheduler_->MixtureBefore(3)->SerializeAsString());
  EXPECT_EQ(response.samples(), 32u + 8200u);
}

TEST_F(OrderServiceTest, RefusesStepsAndSplitsThatDoNotExist) {
  v1::GetSamplesResponse samples;
  v1::GetMixtureResponse mixture;
  for (const grpc::Status& status : {GetSamples(~uint64_t{0}, 0, &samples),
                                     GetMixture(~uint64_t{0}, &mixture)}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
    EXPECT_THAT(status.error_message(), HasSubstr("overflow uint64"));
  }
  for (const grpc::Status& status :
       {GetSamples(0, 0, &samples, v1::SPLIT_VALID),
        GetMixture(0, &mixture, v1::SPLIT_VALID)}) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(status.error_message(), HasSubstr("sources[].split"));
  }
}

}  // namespace
}  // namespace ballast
