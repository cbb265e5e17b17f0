#include "trainer_shim/ballast_rank/batch_lines.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "proto/schedule/module.h"

namespace ballast {

std::string BatchLine(const PackedBatch& batch, absl::Duration next) {
  using Json = nlohmann::ordered_json;
  Json samples = Json::array();
  int placeholders = 0;
  for (const PackedSample& sample : batch.samples) {
    samples.push_back(sample.name);
    placeholders += sample.placeholder;
  }
  Json line = {{"step", batch.step},
               {"micro_batch", batch.micro_batch},
               {"module", std::string(ModuleName(batch.role.module()))},
               {"dp_rank", batch.role.dp_rank()},
               {"samples", std::move(samples)},
               {"placeholders", placeholders},
               {"tokens", batch.totals.tokens},
               {"padded_tokens", batch.totals.padded_tokens},
               {"images", batch.totals.images},
               {"patches", batch.totals.patches},
               {"digest", DigestOf(batch)},
               {"bytes_read", batch.bytes_read},
               {"bytes_moved", batch.bytes_moved},
               {"next_ms", absl::ToDoubleMilliseconds(next)}};
  if (batch.place != TrainerPlace()) {
    line["tp_rank"] = batch.place.tp_rank;
    line["pp_rank"] = batch.place.pp_rank;
    line["cp_rank"] = batch.place.cp_rank;
  }
  if (batch.dummy_image) line["dummy_image"] = true;
  if (batch.totals.videos != 0) line["videos"] = batch.totals.videos;
  return line.dump(-1, ' ', false, Json::error_handler_t::replace);
}

InterleavedLines::InterleavedLines(uint32_t ranks, std::ostream* out)
    : out_(out), waiting_(ranks) {}

void InterleavedLines::Add(uint32_t rank, std::string line) {
  MutexLock lock(&mutex_);
  waiting_[rank].push_back(std::move(line));
  while (!waiting_[next_].empty()) {
    *out_ << waiting_[next_].front() << "\n";
    waiting_[next_].pop_front();
    next_ = (next_ + 1) % waiting_.size();
  }
  out_->flush();
}

}  // namespace ballast
