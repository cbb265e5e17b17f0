#include "proto/schedule/schedule_json.h"

#include <cstdint>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "proto/schedule/image_columns.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

Json TotalsJson(const v1::Totals& totals) {
  Json json = {{"tokens", totals.tokens()},
               {"tokens_squared", totals.tokens_squared()},
               {"label_tokens", totals.label_tokens()},
               {"patches", totals.patches()},
               {"images", totals.images()}};
  if (totals.videos() != 0) json["videos"] = totals.videos();
  if (totals.has_embeddings_moved()) {
    const v1::EmbeddingsMoved& moved = totals.embeddings_moved();
    json["embeddings_moved"] = {
        {"tokens_within_servers", moved.tokens_within_servers()},
        {"tokens_between_servers", moved.tokens_between_servers()}};
  }
  return json;
}

// One entry a module: {"vision": f(vision), "language": f(language)}.
template <typename F>
Json PerModule(const v1::MicroBatchSchedule& micro_batch, F f) {
  Json entries = Json::object();
  for (const v1::ModuleSchedule& module : micro_batch.modules()) {
    entries[std::string(ModuleName(module.module()))] = f(module);
  }
  return entries;
}

Json MicroBatchJson(const v1::StepSchedule& schedule,
                    const v1::MicroBatchSchedule& micro_batch) {
  Json samples = Json::array();
  const std::vector<uint64_t> patches = SamplePatches(micro_batch);
  for (int i = 0; i < micro_batch.tokens_size(); ++i) {
    samples.push_back(
        {{"position", micro_batch.position(i)},
         {"sample", absl::StrCat(schedule.sources(micro_batch.source(i)), ":",
                                 micro_batch.ordinal(i))},
         {"images", micro_batch.images(i)},
         {"patches", patches[i]},
         {"tokens", micro_batch.tokens(i)},
         {"label_tokens", micro_batch.label_tokens(i)},
         {"cost",
          PerModule(micro_batch, [i](const auto& m) { return m.cost(i); })},
         {"reader",
          PerModule(micro_batch, [i](const auto& m) { return m.reader(i); })},
         {"owner",
          PerModule(micro_batch, [i](const auto& m) { return m.owner(i); })},
         {"slot", micro_batch.slot(i)},
         {"place", micro_batch.place(i)}});
  }
  Json json = {
      {"samples", std::move(samples)},
      {"load", PerModule(micro_batch, [](const auto& m) -> Json {
         return {{"before", m.load_before()}, {"after", m.load_after()}};
       })}};
  for (const v1::ModuleSchedule& module : micro_batch.modules()) {
    if (module.dummy_rank().empty()) continue;
    json["dummies"][std::string(ModuleName(module.module()))] =
        module.dummy_rank();
  }
  return json;
}

}  // namespace

std::string ScheduleToJson(const v1::StepSchedule& schedule) {
  Json micro_batches = Json::array();
  for (const v1::MicroBatchSchedule& micro_batch : schedule.micro_batches()) {
    micro_batches.push_back(MicroBatchJson(schedule, micro_batch));
  }
  Json json = {{"step", schedule.step()},
               {"fingerprint", schedule.fingerprint()},
               {"micro_batches", std::move(micro_batches)},
               {"totals", TotalsJson(schedule.totals())}};
  if (schedule.split() != v1::SPLIT_TRAIN) {
    json["split"] = std::string(SplitName(schedule.split()));
  }
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace ballast
