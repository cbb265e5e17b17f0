#ifndef BALLAST_SERVER_SERVICE_REVISION_SERVICE_H_
#define BALLAST_SERVER_SERVICE_REVISION_SERVICE_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/revision_service.grpc.pb.h"
#include "server/service/revision_keeper.h"

namespace ballast {

// Implements proto/revision_service.proto. `keeper` is null in a server without
// serve.revisions. Must outlive the gRPC server.
class RevisionServiceImpl final : public v1::RevisionService::CallbackService {
 public:
  RevisionServiceImpl(std::string name, std::string decider,
                      RevisionKeeper* keeper)
      : name_(std::move(name)), decider_(std::move(decider)), keeper_(keeper) {}

  grpc::ServerUnaryReactor* GetRevisions(
      grpc::CallbackServerContext* context,
      const v1::GetRevisionsRequest* request,
      v1::GetRevisionsResponse* response) override;
  grpc::ServerUnaryReactor* Change(grpc::CallbackServerContext* context,
                                   const v1::ChangeRequest* request,
                                   v1::ChangeResponse* response) override;
  grpc::ServerUnaryReactor* Agree(grpc::CallbackServerContext* context,
                                  const v1::AgreeRequest* request,
                                  v1::AgreeResponse* response) override;

 private:
  absl::Status CheckKeeps() const;

  const std::string name_;
  const std::string decider_;
  RevisionKeeper* const keeper_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVICE_REVISION_SERVICE_H_
