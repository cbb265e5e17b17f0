#include "server/schedule/mixture_report.h"

#include <cstddef>
#include <vector>

#include "common/status_macros.h"
#include "proto/schedule/step_ranges.h"

namespace ballast {

absl::StatusOr<v1::GetMixtureResponse> ReportMixture(const SampleOrder& order,
                                                     const v1::Job& job,
                                                     uint64_t step) {
  BALLAST_ASSIGN_OR_RETURN(const uint64_t position, FirstPosition(job, step));
  const size_t sources = order.sources().size();
  std::vector<SampleOrder::Drawn> all(sources), trained(sources);
  order.AddDrawn(0, position, &all);
  for (const PositionRange& range : PositionsBefore(job, step)) {
    order.AddDrawn(range.first, range.end, &trained);
  }
  v1::GetMixtureResponse mixture;
  mixture.set_step(step);
  mixture.set_samples(SamplesBefore(job, step));
  const std::vector<double> shares = order.SharesAt(position);
  for (size_t s = 0; s < sources; ++s) {
    v1::GetMixtureResponse::Source* source = mixture.add_sources();
    source->set_name(order.sources()[s].name);
    source->set_size(order.sources()[s].size);
    source->set_samples(trained[s].samples);
    source->set_skipped(all[s].samples - trained[s].samples);
    source->set_weight(shares[s]);
    if (mixture.samples() > 0) {
      source->set_wanted_share(trained[s].wanted / mixture.samples());
    }
  }
  return mixture;
}

}  // namespace ballast
