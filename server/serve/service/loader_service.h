#ifndef BALLAST_SERVER_SERVE_SERVICE_LOADER_SERVICE_H_
#define BALLAST_SERVER_SERVE_SERVICE_LOADER_SERVICE_H_

#include <string>
#include <utility>

#include "proto/loader_service.grpc.pb.h"
#include "proto/schedule.pb.h"
#include "server/delivery/delivery_instruments.h"
#include "server/delivery/loader.h"
#include "server/schedule/scheduler.h"
#include "server/serve/monitor/server_state.h"
#include "server/serve/monitor/timing_store.h"
#include "server/serve/pull/pull_call.h"
#include "server/serve/pull/pull_limits.h"
#include "server/serve/pull/pull_side.h"
#include "server/serve/service/rendezvous.h"

namespace ballast {

// Implements proto/loader_service.proto over a Loader. Thread-safe. Must
// outlive the gRPC server that it is registered with.
class LoaderServiceImpl final
    // Pull's messages are read and written as bytes, so that blocks are not
    // copied (pull_session.h).
    : public v1::LoaderService::WithRawCallbackMethod_Pull<
          v1::LoaderService::WithCallbackMethod_Attach<
              v1::LoaderService::WithCallbackMethod_Rendezvous<
                  v1::LoaderService::WithCallbackMethod_Report<
                      v1::LoaderService::WithCallbackMethod_GetTimings<
                          v1::LoaderService::Service>>>>> {
 public:
  // `name` is the server's name for itself. `calls` counts the open Pulls and
  // Rendezvous. `limits` bounds Pulls. `instruments` and `clients` record
  // Pulls; either may be null. `meeting` forwards Rendezvous to another server;
  // if null, groups meet here. Nothing is owned; all must outlive this.
  LoaderServiceImpl(std::string name, const Scheduler* scheduler,
                    Loader* loader, CallCount* calls,
                    const PullLimits::Settings& limits = {},
                    PullInstruments* instruments = nullptr,
                    ClientBoard* clients = nullptr,
                    RendezvousForwarder* meeting = nullptr);

  grpc::ServerUnaryReactor* Attach(grpc::CallbackServerContext* context,
                                   const v1::AttachRequest* request,
                                   v1::AttachResponse* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Pull(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Rendezvous(
      grpc::CallbackServerContext* context,
      const v1::RendezvousRequest* request,
      v1::RendezvousResponse* response) override;

  // If `why` is not OK, no rank is served until the next call: Attach and Pull
  // return `why`, and open Pulls end with it at their next message. Attach
  // without a rank still works, so that tools and other servers see the
  // difference. If `why` is OK, ranks are served.
  void Refuse(absl::Status why) { refusal_.Set(std::move(why)); }

  // If `why` is not OK, no rank may attach until the next call: Attach returns
  // `why`. Ranks that have attached, here or elsewhere, go on to pull.
  void RefuseToAttach(absl::Status why) { attaching_.Set(std::move(why)); }

  grpc::ServerUnaryReactor* Report(grpc::CallbackServerContext* context,
                                   const v1::ReportRequest* request,
                                   v1::ReportResponse* response) override;
  grpc::ServerUnaryReactor* GetTimings(
      grpc::CallbackServerContext* context,
      const v1::GetTimingsRequest* request,
      v1::GetTimingsResponse* response) override;

  // The timings that ranks have reported.
  const TimingStore& timings() const { return timings_; }

  // Ends all Rendezvous with UNAVAILABLE. (The loader's Drain ends the Pulls.)
  void Drain();

 private:
  // Why a rank may not attach.
  absl::Status refusal() const;

  const std::string name_;
  const Scheduler* const scheduler_;
  CallCount* const calls_;
  RendezvousForwarder* const meeting_;  // null: groups meet here
  Refusal refusal_;
  Refusal attaching_;
  ballast::Rendezvous rendezvous_;
  TimingStore timings_;
  PullContext pulls_;
};

}  // namespace ballast

#endif  // BALLAST_SERVER_SERVE_SERVICE_LOADER_SERVICE_H_
