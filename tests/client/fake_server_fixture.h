#ifndef BALLAST_TESTS_CLIENT_FAKE_SERVER_FIXTURE_H_
#define BALLAST_TESTS_CLIENT_FAKE_SERVER_FIXTURE_H_

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "client/loader_client.h"
#include "proto/schedule/fingerprint.h"
#include "tests/fakes/fake_loader_service.h"
#include "tests/fakes/synthetic_schedule.h"

namespace ballast {

inline v1::AttachResponse SomeJob(const std::string& micro = "16") {
  v1::AttachResponse response;
  *response.mutable_fingerprint() =
      MakeFingerprint({{"batch.global", "64"}, {"batch.micro", micro}});
  response.mutable_job()->set_global_batch(64);
  response.mutable_job()->set_micro_batch(16);
  return response;
}

inline v1::Role SomeRole() { return RoleOf(v1::MODULE_VISION, 2); }

// A client of a fake server.
class FakeServerFixture : public ::testing::Test {
 protected:
  void ExpectError(const absl::Status& status, absl::StatusCode code,
                   const std::string& text) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(
        std::string(status.message()),
        ::testing::AllOf(::testing::HasSubstr("server " + server_->address()),
                         ::testing::HasSubstr(text)));
  }

  const std::unique_ptr<FakeLoaderServer> server_ = FakeLoaderServer::Start();
  const std::unique_ptr<LoaderClient> client_ =
      LoaderClient::Create(server_->address());
};

}  // namespace ballast

#endif  // BALLAST_TESTS_CLIENT_FAKE_SERVER_FIXTURE_H_
