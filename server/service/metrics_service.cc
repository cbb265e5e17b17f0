#include "server/service/metrics_service.h"

namespace ballast {

grpc::ServerUnaryReactor* MetricsServiceImpl::GetStatus(
    grpc::CallbackServerContext* context,
    const v1::GetStatusRequest* /*request*/, v1::GetStatusResponse* response) {
  for (const BadSamples::Entry& entry :
       sources_.builder->bad_samples().List()) {
    v1::GetStatusResponse::BadSample* bad = response->add_bad_samples();
    bad->set_sample(entry.name);
    bad->set_file(entry.file);
    bad->set_offset(entry.offset);
    bad->set_reason(entry.reason);
    bad->set_count(entry.count);
  }
  response->set_max_bad_samples(sources_.builder->bad_samples().most());
  const absl::Time now = sources_.clock->Now();
  for (const WorkInHand& work : sources_.stalls->Stalls()) {
    v1::GetStatusResponse::Stall* stall = response->add_stalls();
    const SampleLocation at =
        sources_.builder->Locate(work.source, work.ordinal);
    stall->set_sample(sources_.builder->NameOf(work.source, work.ordinal));
    stall->set_file(at.file);
    stall->set_offset(at.offset);
    stall->set_stage(work.stage);
    stall->set_module(work.module);
    stall->set_position(work.position);
    stall->set_seconds(absl::ToDoubleSeconds(now - work.since));
  }
  response->set_memory_in_use(sources_.loader->memory_in_use());
  response->set_memory(sources_.memory);
  response->set_open_streams(sources_.loader->open_streams());
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace ballast
