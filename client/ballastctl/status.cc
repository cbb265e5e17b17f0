#include "client/ballastctl/status.h"

#include <iostream>

#include <nlohmann/json.hpp>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/loader_service.pb.h"
#include "proto/metrics_service.pb.h"
#include "proto/module.h"

namespace ballast {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kExamples[] =
    "  ballastctl --server 127.0.0.1:7070 status\n"
    "  ballastctl --server unix:/run/ballast/a.sock status --json\n"
    "\n"
    "JSON keys: server (the name it was configured with), address (where it "
    "was\n"
    "asked), health (\"serving\" or \"not serving\"), refusal (only where the\n"
    "server serves no rank: why), fingerprint, data_fingerprint (what a\n"
    "checkpoint must match), end_step (only where the data end: the first "
    "step\n"
    "without), delivery,\n"
    "modules {vision|language: {dp, align (tokens)}}, batch {global, micro\n"
    "(samples)}, model {profile, tokenizer, patch, merge, temporal_patch,\n"
    "position_axes, min_pixels, max_pixels}, memory {in_use, bound (bytes)},\n"
    "open_streams, max_bad_samples, bad_samples [{sample, file, offset, "
    "reason,\n"
    "count (how often a block needed it)}], stalls [{stage, sample, file, "
    "offset,\n"
    "module, position, seconds}].";

// "exchange", as the configuration writes it.
std::string DeliveryName(v1::Delivery delivery) {
  const std::string name = v1::Delivery_Name(delivery);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "DELIVERY_"));
}

void AddState(const v1::GetStatusResponse& state, Json* json) {
  (*json)["memory"] = {{"in_use", state.memory_in_use()},
                       {"bound", state.memory()}};
  (*json)["open_streams"] = state.open_streams();
  (*json)["max_bad_samples"] = state.max_bad_samples();
  Json& bad_samples = (*json)["bad_samples"] = Json::array();
  for (const auto& bad : state.bad_samples()) {
    bad_samples.push_back({{"sample", bad.sample()},
                           {"file", bad.file()},
                           {"offset", bad.offset()},
                           {"reason", bad.reason()},
                           {"count", bad.count()}});
  }
  Json& stalls = (*json)["stalls"] = Json::array();
  for (const auto& stall : state.stalls()) {
    stalls.push_back({{"stage", stall.stage()},
                      {"sample", stall.sample()},
                      {"file", stall.file()},
                      {"offset", stall.offset()},
                      {"module", std::string(ModuleName(stall.module()))},
                      {"position", stall.position()},
                      {"seconds", stall.seconds()}});
  }
}

std::string StateTable(const v1::GetStatusResponse& state) {
  std::string text = absl::StrFormat(
      "%-12s %d of %d MiB in blocks, %d streams\n", "memory",
      state.memory_in_use() >> 20, state.memory() >> 20, state.open_streams());
  absl::StrAppendFormat(&text, "%-12s %d of at most %d\n", "bad samples",
                        state.bad_samples_size(), state.max_bad_samples());
  for (const auto& bad : state.bad_samples()) {
    absl::StrAppendFormat(&text, "  %s, %s at byte %d, %d times: %s\n",
                          bad.sample(), bad.file(), bad.offset(), bad.count(),
                          bad.reason());
  }
  absl::StrAppendFormat(&text, "%-12s %d\n", "stalls", state.stalls_size());
  for (const auto& stall : state.stalls()) {
    absl::StrAppendFormat(
        &text, "  %s for %.0f s: %s, %s at byte %d, for %s position %d\n",
        stall.stage(), stall.seconds(), stall.sample(), stall.file(),
        stall.offset(), std::string(ModuleName(stall.module())),
        stall.position());
  }
  return text;
}

std::string StatusJson(const v1::AttachResponse& answer,
                       const std::string& address, const char* health,
                       const absl::StatusOr<v1::GetStatusResponse>& state) {
  const v1::Job& job = answer.job();
  Json modules = Json::object();
  for (const v1::Job::ModuleSize& module : job.modules()) {
    modules[std::string(ModuleName(module.module()))] = {
        {"dp", module.dp()}, {"align", module.align()}};
  }
  const v1::Model& model = job.model();
  Json json = {
      {"server", answer.server()},
      {"address", address},
      {"health", health},
      {"fingerprint", answer.fingerprint().hash()},
      {"data_fingerprint", answer.fingerprint().data_hash()},
      {"delivery", DeliveryName(job.delivery())},
      {"modules", std::move(modules)},
      {"batch", {{"global", job.global_batch()}, {"micro", job.micro_batch()}}},
      {"model",
       {{"profile", model.profile()},
        {"tokenizer", model.tokenizer()},
        {"patch", model.patch()},
        {"merge", model.merge()},
        {"temporal_patch", model.temporal_patch()},
        {"position_axes", model.position_axes()},
        {"min_pixels", model.min_pixels()},
        {"max_pixels", model.max_pixels()}}}};
  if (job.end_step() != 0) json["end_step"] = job.end_step();
  if (!answer.refusal().empty()) json["refusal"] = answer.refusal();
  if (state.ok()) AddState(*state, &json);
  // A server's strings may be anything; what is not UTF-8 is replaced.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string StatusTable(const v1::AttachResponse& answer,
                        const std::string& address, const char* health,
                        const absl::StatusOr<v1::GetStatusResponse>& state) {
  const v1::Job& job = answer.job();
  const v1::Model& model = job.model();
  Table modules({{"module", Table::kLeft}, {"dp"}, {"align"}});
  for (const v1::Job::ModuleSize& module : job.modules()) {
    modules.AddRow({std::string(ModuleName(module.module())),
                    absl::StrCat(module.dp()), absl::StrCat(module.align())});
  }
  std::string text;
  const auto add = [&text](absl::string_view key, absl::string_view value) {
    absl::StrAppendFormat(&text, "%-12s %s\n", key, value);
  };
  add("server", absl::StrCat(answer.server(), " at ", address));
  add("health", health);
  if (!answer.refusal().empty()) add("refuses", answer.refusal());
  add("fingerprint", answer.fingerprint().hash());
  add("data", absl::StrCat(answer.fingerprint().data_hash(),
                           " (what a checkpoint must match)"));
  if (job.end_step() != 0) {
    add("end", absl::StrCat("the data end before step ", job.end_step()));
  }
  add("delivery", DeliveryName(job.delivery()));
  add("batch", absl::StrCat(job.global_batch(), " samples a step, ",
                            job.micro_batch(), " a micro-batch"));
  add("model",
      absl::StrCat(model.profile().empty() ? "custom" : model.profile(),
                   ", patch ", model.patch(), ", merge ", model.merge(), ", ",
                   model.min_pixels(), " to ", model.max_pixels(), " pixels"));
  if (state.ok()) absl::StrAppend(&text, StateTable(*state));
  return absl::StrCat(text, "\n", modules.ToString());
}

}  // namespace

absl::Status PrintStatus(LoaderClient* client, bool json, std::ostream* out) {
  BALLAST_ASSIGN_OR_RETURN(const v1::AttachResponse answer,
                           client->Attach(v1::Role(), v1::Fingerprint()));
  const char* const health =
      client->CheckHealth().ok() ? "serving" : "not serving";
  const absl::StatusOr<v1::GetStatusResponse> state = client->GetStatus();
  // A server of another version may not know it.
  if (!state.ok() && !absl::IsUnimplemented(state.status())) {
    return state.status();
  }
  *out << (json ? StatusJson(answer, client->address(), health, state)
                : StatusTable(answer, client->address(), health, state));
  out->flush();
  if (!*out) return absl::UnavailableError("cannot write standard output");
  return absl::OkStatus();
}

void AddStatus(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = line->AddCommand(
      line->app(), "status",
      "Shows a server's health, the fingerprint that it serves, its job\n"
      "(delivery, modules, batch sizes, model), its memory, and what is "
      "wrong:\n"
      "bad samples, and stages of samples that last too long.",
      kExamples, [server, json]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto client, ClientOf(*server));
        return PrintStatus(client.get(), *json, &std::cout);
      });
  command->add_flag("--json", *json, "one JSON object");
}

}  // namespace ballast
