#include "client/ballastctl/commands.h"

#include <algorithm>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "client/ballastctl/quantities.h"
#include "common/message_fields.h"
#include "common/status_macros.h"
#include "common/table.h"
#include "proto/metrics_service.pb.h"
#include "proto/schedule/module.h"
#include "proto/schedule/split.h"

namespace ballast {

namespace {

constexpr char kStatusExamples[] =
    "  ballastctl --server 127.0.0.1:7070 status\n"
    "  ballastctl --server unix:/run/ballast/a.sock status --json\n"
    "\n"
    "JSON keys: server (the name it was configured with), address (where it "
    "was\n"
    "asked), health (\"serving\" or \"not serving\"), refusal (only where the\n"
    "server serves no rank: why), fingerprint, data_fingerprint (what a\n"
    "checkpoint must match), changes (only of a job that was changed)\n"
    "[{first_step, fingerprint}], waits_from (only while servers agree on a\n"
    "change: its first step), end_step (only where the data end: the first "
    "step\n"
    "without), delivery,\n"
    "modules {vision|language: {dp, align (tokens)}}, batch {global, micro\n"
    "(samples), changes (only with steps of other sizes) [{step, position,\n"
    "global (null: each step its own)}]}, model {profile, tokenizer, patch,\n"
    "merge, temporal_patch,\n"
    "position_axes, min_pixels, max_pixels}, version, uptime_seconds, step "
    "(the\n"
    "furthest that a rank has got a block of; absent before the first), "
    "spread\n"
    "(of that step: heaviest rank over mean, as read and as trained)\n"
    "{vision|language|audio, and all where ranks have all modules: {before,\n"
    "after}}, rates (a second; absent with --interval 0) {images, read_bytes,\n"
    "sent_bytes, tokens},\n"
    "workers {all, busy}, queue {samples_waiting, blocks_in_work,\n"
    "blocks_ready}, memory {in_use, idle, bound (bytes)}, cache "
    "{blocks_reused,\n"
    "schedules_found, schedules_computed}, open_streams, clients_total, "
    "clients\n"
    "[{module, rank, split, peer, step, micro_batch, lag (steps), state, "
    "seconds,\n"
    "held_bytes, shared_memory, blocks}], encoded_images (with decode: "
    "device)\n"
    "[{source, images, clean, unsound, changed, unchecked, refusals {reason:\n"
    "images}}], costs (their origin), left_out (records that the index leaves\n"
    "out as bad) [{source, samples, bad, causes [{cause, records, "
    "example}]}],\n"
    "problems (what needs a person) [{kind, subject, text, seconds, count}],\n"
    "max_bad_samples, bad_samples [{sample,\n"
    "file, offset, reason, count (how often a block needed it)}], stalls\n"
    "[{stage, sample, file, offset, module, position, seconds}].";

}  // namespace

absl::Status PrintStatus(LoaderClient* client, QueryClient* metrics,
                         const StatusOptions& options, Clock* clock,
                         std::ostream* out) {
  ServerReport report;
  report.address = client->address();
  BALLAST_ASSIGN_OR_RETURN(report.attach,
                           client->Attach(v1::Role(), v1::Fingerprint()));
  absl::StatusOr<Snapshot> snapshot = TakeSnapshot(metrics, clock, false);
  if (snapshot.ok() && options.interval > absl::ZeroDuration()) {
    report.before = *std::move(snapshot);
    clock->NewSleeper()->Sleep(options.interval);
    snapshot = TakeSnapshot(metrics, clock, false);
  }
  if (snapshot.ok()) {
    report.now = *std::move(snapshot);
  } else if (!absl::IsUnimplemented(snapshot.status())) {
    return snapshot.status();
  }
  auto revisions = metrics->GetRevisions(std::numeric_limits<uint64_t>::max());
  if (revisions.ok()) report.revisions = *std::move(revisions);
  report.serving = client->CheckHealth().ok();
  *out << (options.json ? StatusJson(report) : StatusText(report));
  return Flush(*out);
}

void AddStatus(CommandLine* line, std::shared_ptr<const ServerOption> server) {
  struct Given {
    double interval = 1;
    bool json = false;
  };
  auto given = std::make_shared<Given>();
  Command* command = line->AddCommand(
      line->program(), "status",
      "Shows a server's health, version and job (fingerprint, delivery, batch\n"
      "sizes, model), the step that training is at and how even it is, what "
      "the\n"
      "server reads, builds and sends a second, its queue, memory and caches,\n"
      "what is wrong (files that cannot be read, bad samples, and stages of\n"
      "samples that last too long),\n"
      "and the clients with where they are.",
      kStatusExamples, [server, given]() -> absl::Status {
        BALLAST_ASSIGN_OR_RETURN(const auto client, GetClient(*server));
        BALLAST_ASSIGN_OR_RETURN(const auto metrics, GetQueryClient(*server));
        StatusOptions options;
        options.interval = absl::Seconds(given->interval);
        options.json = given->json;
        return PrintStatus(client.get(), metrics.get(), options, Clock::Real(),
                           &std::cout);
      });
  command
      ->AddReal("--interval", &given->interval,
                "seconds that rates are taken over, up to 3600; 0: no rates")
      .Between(0.0, 3600.0)
      .TypeName("SECONDS")
      .ShowDefault();
  command->AddFlag("--json", &given->json, "one JSON object");
}

namespace {

// The sizes of a job's modules as a table, with the balance of training's
// current step if `now` has it. `now` may be null. Pure.
std::string ModuleTable(const v1::Job& job, const Snapshot* now) {
  const bool even = now != nullptr && now->balance.has_value();
  std::vector<Table::Column> columns = {
      {"module", Table::kLeft}, {"dp"}, {"align"}};
  if (even) {
    columns.insert(columns.end(),
                   {{"heaviest/mean read"}, {"trained"}, {"moved"}});
  }
  Table table(std::move(columns));
  for (const v1::Job::ModuleSize& module : job.modules()) {
    std::vector<std::string> row = {std::string(ModuleName(module.module())),
                                    absl::StrCat(module.dp()),
                                    absl::StrCat(module.align())};
    if (even) {
      for (const v1::ModuleBalance& balance : now->balance->modules()) {
        if (balance.module() != module.module()) continue;
        row.insert(row.end(), {RatioText(balance.spread_before()),
                               RatioText(balance.spread_after()),
                               BytesText(balance.within_servers().bytes() +
                                         balance.between_servers().bytes())});
      }
    }
    table.AddRow(std::move(row));
  }
  if (even && now->balance->spread_after() > 0) {
    table.AddRow({"all modules", "", "",
                  RatioText(now->balance->spread_before()),
                  RatioText(now->balance->spread_after()), ""});
  }
  return table.ToString();
}

// Labels and texts for what was read of object stores;
// an empty label continues the field before. Pure.
std::vector<std::pair<std::string, std::string>> StorageFields(
    const v1::GetStatusResponse::Storage& storage) {
  std::vector<std::pair<std::string, std::string>> fields = {
      {"store",
       absl::StrCat(BytesText(storage.fetched_bytes()), " in ",
                    CountText(storage.requests()), " requests, ",
                    storage.errors(), " failed; fetched ahead up to step ",
                    storage.fetched_to_step())},
      {"", absl::StrCat(CountText(storage.memory_hits()), " reads in memory, ",
                        CountText(storage.cache_hits()), " in the cache, ",
                        CountText(storage.stalls()), " stalls of ",
                        absl::StrFormat("%.1f s", storage.stall_seconds()))}};
  if (storage.cache_size() > 0) {
    fields.emplace_back(
        "cache", absl::StrCat(BytesText(storage.cache_bytes()), " of ",
                              BytesText(storage.cache_size()), ", ",
                              storage.cache_evicted(), " entries evicted, ",
                              storage.cache_damaged(), " damaged"));
  }
  return fields;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> VideoFields(
    const v1::GetStatusResponse::Videos& videos) {
  const uint64_t frames = videos.frames() + videos.frames_checked();
  std::vector<std::pair<std::string, std::string>> fields = {
      {"videos",
       absl::StrCat(CountText(videos.videos()), " decoded, ",
                    CountText(videos.frames()), " frames",
                    frames == 0
                        ? ""
                        : absl::StrCat(", ",
                                       SecondsText(videos.decode_seconds() /
                                                   static_cast<double>(frames)),
                                       " each"))}};
  if (videos.videos_checked() > 0) {
    fields.emplace_back(
        "", absl::StrCat(CountText(videos.videos_checked()), " checked, ",
                         CountText(videos.frames_checked()),
                         " frames: language had to know"));
  }
  fields.emplace_back(
      "", absl::StrCat(videos.decoder_starts(), " decoder processes started"));
  for (const auto& end : videos.decoder_ends()) {
    fields.emplace_back(
        "",
        absl::StrCat(end.count(), " of them ended: ",
                     absl::StrReplaceAll(OneLine(end.reason()), {{"_", " "}})));
  }
  return fields;
}

nlohmann::ordered_json VideosJson(const v1::GetStatusResponse::Videos& videos) {
  nlohmann::ordered_json json = ToJson(videos);
  nlohmann::ordered_json& ends = json["decoder_ends"];
  ends = nlohmann::ordered_json::object();
  for (const auto& end : videos.decoder_ends()) {
    ends[end.reason()] = end.count();
  }
  return json;
}

namespace {

using Json = nlohmann::ordered_json;

// Limit of lines of each list; --json has all.
constexpr int kMaxClients = 8;
constexpr int kMaxProblems = 10;

// "exchange", as the configuration writes it.
std::string DeliveryName(v1::Delivery delivery) {
  const std::string name = v1::Delivery_Name(delivery);
  return absl::AsciiStrToLower(absl::StripPrefix(name, "DELIVERY_"));
}

const char* HealthText(const ServerReport& report) {
  return report.serving ? "serving" : "not serving";
}

std::vector<std::string> SplitNames(const v1::Job& job) {
  std::vector<std::string> names;
  for (const int split : job.splits()) {
    names.emplace_back(SplitName(static_cast<v1::Split>(split)));
  }
  return names;
}

const Snapshot* GetBefore(const ServerReport& report) {
  return report.before.has_value() ? &*report.before : nullptr;
}

Json ClientsJson(const v1::GetStatusResponse& status) {
  Json clients = Json::array();
  for (const v1::GetStatusResponse::Client& client : status.clients()) {
    Json& json = clients.emplace_back(ToJson(client));
    json.erase("role");
    json["module"] = std::string(ModuleName(client.role().module()));
    json["rank"] = client.role().dp_rank();
    json["split"] = std::string(SplitName(client.role().split()));
  }
  return clients;
}

void AddEncodedImages(const v1::GetStatusResponse& status, Json* json) {
  Json& sources = (*json)["encoded_images"] = Json::array();
  for (const auto& source : status.encoded_images()) {
    Json& refusals = sources.emplace_back(ToJson(source))["refusals"] =
        Json::object();
    for (const auto& refusal : source.refusals()) {
      refusals[refusal.reason()] = refusal.images();
    }
  }
}

void AddProblems(const v1::GetStatusResponse& status, Json* json) {
  Json& left_out = (*json)["left_out"] = Json::array();
  for (const v1::LeftOut& source : status.left_out()) {
    left_out.push_back(ToJson(source));
  }
  Json& problems = (*json)["problems"] = Json::array();
  for (const auto& problem : status.problems()) {
    problems.push_back(ToJson(problem));
  }
  (*json)["max_bad_samples"] = status.max_bad_samples();
  Json& bad_samples = (*json)["bad_samples"] = Json::array();
  for (const auto& bad : status.bad_samples()) {
    bad_samples.push_back(ToJson(bad));
  }
  Json& stalls = (*json)["stalls"] = Json::array();
  for (const auto& stall : status.stalls()) stalls.push_back(ToJson(stall));
}

void AddState(const Snapshot& now, const Figures& figures, Json* json) {
  const v1::GetStatusResponse& status = now.status;
  if (!status.version().empty()) (*json)["version"] = status.version();
  if (!status.costs().empty()) (*json)["costs"] = status.costs();
  (*json)["uptime_seconds"] = status.uptime_seconds();
  if (status.has_current_step()) (*json)["step"] = status.current_step();
  if (now.balance.has_value()) {
    Json& spread = (*json)["spread"] = Json::object();
    for (const v1::ModuleBalance& module : now.balance->modules()) {
      spread[std::string(ModuleName(module.module()))] = {
          {"before", module.spread_before()}, {"after", module.spread_after()}};
    }
    if (now.balance->spread_after() > 0) {
      spread["all"] = {{"before", now.balance->spread_before()},
                       {"after", now.balance->spread_after()}};
    }
  }
  if (figures.rates.has_value()) {
    (*json)["rates"] = {{"images", figures.rates->images},
                        {"images_encoded", figures.rates->images_encoded},
                        {"read_bytes", figures.rates->read_bytes},
                        {"sent_bytes", figures.rates->sent_bytes},
                        {"tokens", figures.rates->tokens}};
  }
  (*json)["workers"] = {{"all", figures.workers},
                        {"busy", figures.workers_busy}};
  (*json)["queue"] = {{"samples_waiting", figures.samples_waiting},
                      {"blocks_in_work", figures.blocks_in_work},
                      {"blocks_ready", figures.blocks_ready}};
  (*json)["memory"] = {{"in_use", status.memory_in_use()},
                       {"idle", figures.memory_idle},
                       {"bound", status.memory()}};
  (*json)["cache"] = {{"blocks_reused", figures.blocks_reused},
                      {"schedules_found", figures.schedules_found},
                      {"schedules_computed", figures.schedules_computed}};
  (*json)["open_streams"] = status.open_streams();
  (*json)["clients_total"] = status.clients_total();
  (*json)["clients"] = ClientsJson(status);
  if (status.encoded_images_size() > 0) AddEncodedImages(status, json);
  if (status.has_videos()) (*json)["videos"] = VideosJson(status.videos());
  if (status.has_storage()) (*json)["storage"] = ToJson(status.storage());
  AddProblems(status, json);
}

void AddWork(const v1::GetStatusResponse& status, const Figures& figures,
             View* view) {
  view->AddField("step", status.has_current_step()
                             ? absl::StrCat(status.current_step())
                             : "none yet: no rank has got a block");
  if (figures.rates.has_value()) {
    const double encoded = figures.rates->images_encoded;
    view->AddField(
        "rates",
        absl::StrCat(CountText(figures.rates->images), " images/s",
                     encoded > 0
                         ? absl::StrCat(" (", CountText(encoded), " encoded)")
                         : "",
                     ", ", CountText(figures.rates->tokens), " tokens/s"));
    view->AddField(
        "", absl::StrCat(BytesText(figures.rates->read_bytes),
                         "/s of images read, ",
                         BytesText(figures.rates->sent_bytes), "/s sent"));
  }
  view->AddField("queue",
                 absl::StrCat(CountText(figures.samples_waiting),
                              " samples wait, ", figures.workers_busy, " of ",
                              figures.workers, " workers busy"));
  view->AddField("", absl::StrCat(figures.blocks_in_work, " blocks in work, ",
                                  figures.blocks_ready, " ready"));
  std::string memory = absl::StrCat(BytesText(status.memory_in_use()), " of ",
                                    BytesText(status.memory()), " in blocks; ",
                                    BytesText(figures.memory_idle), " idle");
  if (figures.streams_short_of_memory > 0) {
    absl::StrAppend(&memory, "; ", figures.streams_short_of_memory,
                    " streams wait for a place");
  }
  view->AddField("memory", memory);
  view->AddField(
      "cache",
      absl::StrCat(CountText(figures.blocks_reused),
                   " blocks used again; of schedules ",
                   CountText(figures.schedules_found), " found, ",
                   CountText(figures.schedules_computed), " computed"));
}

// Adds a line for each source: how many images are clean, and what the others
// are.
void AddEncodedImages(const v1::GetStatusResponse& status, View* view) {
  for (const auto& source : status.encoded_images()) {
    std::vector<std::string> rest;
    const auto add = [&rest](uint64_t count, absl::string_view what) {
      if (count > 0) rest.push_back(absl::StrCat(count, " ", what));
    };
    add(source.unchecked(), "not checked");
    add(source.unsound(), "unsound");
    add(source.changed(), "changed since they were indexed");
    for (const auto& refusal : source.refusals()) {
      add(refusal.images(), refusal.reason());
    }
    view->AddField(
        "encoded",
        absl::StrCat(source.source(), ": ", source.clean(), " of ",
                     source.images(), " images clean", rest.empty() ? "" : "; ",
                     absl::StrJoin(rest, ", ")));
  }
}

// Adds a line with the number of `all` that are not shown.
void AddRest(int all, View* view) {
  if (all <= kMaxProblems) return;
  view->Add(absl::StrFormat("  and %d more: see --json", all - kMaxProblems));
}

void AddLeftOut(const v1::GetStatusResponse& status, View* view) {
  for (const v1::LeftOut& left_out : status.left_out()) {
    view->AddField(
        "left out",
        absl::StrCat(left_out.source(), ": ", left_out.bad(), " of ",
                     left_out.samples() + left_out.bad(), " records, as bad"));
    for (const v1::LeftOut::Cause& cause : left_out.causes()) {
      view->AddWrapped(
          4, absl::StrCat("  ", cause.records(), " ", cause.cause(), ", as ",
                          cause.example()));
    }
  }
}

void AddProblems(const v1::GetStatusResponse& status, View* view) {
  AddLeftOut(status, view);
  view->AddField("bad samples",
                 absl::StrCat(status.bad_samples_size(), " of at most ",
                              status.max_bad_samples()));
  const int bad_samples = std::min(status.bad_samples_size(), kMaxProblems);
  for (int i = 0; i < bad_samples; ++i) {
    const auto& bad = status.bad_samples(i);
    view->AddWrapped(4, absl::StrFormat("  %s, %s at byte %d, %d times: %s",
                                        bad.sample(), bad.file(), bad.offset(),
                                        bad.count(), bad.reason()));
  }
  AddRest(status.bad_samples_size(), view);
  view->AddField("stalls", absl::StrCat(status.stalls_size()));
  const int stalls = std::min(status.stalls_size(), kMaxProblems);
  for (int i = 0; i < stalls; ++i) {
    const auto& stall = status.stalls(i);
    if (stall.file().empty()) {
      view->AddWrapped(
          4, absl::StrFormat("  %s for %s: %s", stall.stage(),
                             SecondsText(stall.seconds()), stall.sample()));
      continue;
    }
    view->AddWrapped(
        4, absl::StrFormat("  %s for %s: %s, %s at byte %d, for %s position %d",
                           stall.stage(), SecondsText(stall.seconds()),
                           stall.sample(), stall.file(), stall.offset(),
                           ModuleName(stall.module()), stall.position()));
  }
  AddRest(status.stalls_size(), view);
}

// Above all else: why nothing goes on.
void AddConditions(const v1::GetStatusResponse& status, View* view) {
  const int shown = std::min(status.problems_size(), kMaxProblems);
  for (int i = 0; i < shown; ++i) {
    view->AddField("problem", ProblemText(status.problems(i)));
  }
  AddRest(status.problems_size(), view);
}

// "64"; with ranges of several sizes "32 in step 7, 16 to 64"; with a size for
// each step "up to 64, each step its own number of".
std::string SamplesText(const ServerReport& report) {
  const v1::Job& job = report.attach.job();
  if (job.step_ranges().empty()) return absl::StrCat(job.global_batch());
  if (job.step_ranges(job.step_ranges_size() - 1).samples() == 0) {
    return absl::StrCat("up to ", MostSamplesOfAStep(job),
                        ", each step its own number of");
  }
  std::string text;
  if (report.now.has_value() && report.now->status.has_current_step()) {
    const uint64_t step = report.now->status.current_step();
    text = absl::StrCat(SamplesOfStep(job, step), " in step ", step, ", ");
  }
  uint32_t least = MostSamplesOfAStep(job);
  for (const v1::StepRange& range : job.step_ranges()) {
    least = std::min(least, range.samples());
  }
  return absl::StrCat(text, least, " to ", MostSamplesOfAStep(job));
}

void AddJob(const ServerReport& report, View* view) {
  const v1::Job& job = report.attach.job();
  const v1::Model& model = job.model();
  view->AddField("fingerprint", report.attach.fingerprint().hash());
  view->AddField("data", absl::StrCat(report.attach.fingerprint().data_hash(),
                                      " (what a checkpoint must match)"));
  if (report.now.has_value() && !report.now->status.change_steps().empty()) {
    view->AddField("changes", ChangesText(report.now->status));
  }
  if (report.revisions.has_value() && report.revisions->has_prepared()) {
    const v1::ConfigRevision& prepared = report.revisions->prepared();
    view->AddField(
        "waits",
        absl::StrCat("steps from ", prepared.first_step(), " on, until server ",
                     report.revisions->decider(), " says whether change ",
                     prepared.number(), " holds"));
  }
  if (job.end_step() != 0) {
    view->AddField("end",
                   absl::StrCat("the data end before step ", job.end_step()));
  }
  if (job.splits_size() > 1) {
    view->AddField("splits", absl::StrJoin(SplitNames(job), ", "));
  }
  view->AddField("delivery", DeliveryName(job.delivery()));
  if (report.now.has_value() && !report.now->status.costs().empty()) {
    view->AddField("costs", report.now->status.costs());
  }
  view->AddField("batch", absl::StrCat(SamplesText(report), " samples a step, ",
                                       job.micro_batch(), " a micro-batch"));
  view->AddField(
      "model",
      absl::StrCat(model.profile().empty() ? "custom" : model.profile(),
                   ", patch ", model.patch(), ", merge ", model.merge(), ", ",
                   model.min_pixels(), " to ", model.max_pixels(), " pixels"));
}

}  // namespace

namespace {

Json ChangesJson(const ServerReport& report) {
  Json changes = Json::array();
  for (const v1::Revision& revision : report.attach.revisions()) {
    changes.push_back({{"first_step", revision.first_step()},
                       {"fingerprint", revision.fingerprint().hash()}});
  }
  return changes;
}

}  // namespace

std::string StatusJson(const ServerReport& report) {
  const v1::Job& job = report.attach.job();
  Json modules = Json::object();
  for (const v1::Job::ModuleSize& module : job.modules()) {
    modules[std::string(ModuleName(module.module()))] = {
        {"dp", module.dp()}, {"align", module.align()}};
  }
  const v1::Model& model = job.model();
  Json json = {
      {"server", report.attach.server()},
      {"address", report.address},
      {"health", HealthText(report)},
      {"fingerprint", report.attach.fingerprint().hash()},
      {"data_fingerprint", report.attach.fingerprint().data_hash()},
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
  if (!report.attach.revisions().empty()) json["changes"] = ChangesJson(report);
  if (report.revisions.has_value() && report.revisions->has_prepared()) {
    json["waits_from"] = report.revisions->prepared().first_step();
  }
  for (const v1::StepRange& range : job.step_ranges()) {
    json["batch"]["changes"].push_back(
        {{"step", range.first_step()},
         {"position", range.first_position()},
         {"global",
          range.samples() == 0 ? Json(nullptr) : Json(range.samples())}});
  }
  if (job.end_step() != 0) json["end_step"] = job.end_step();
  if (job.splits_size() > 1) json["splits"] = SplitNames(job);
  const std::string& refusal = report.attach.refusal();
  if (!refusal.empty()) json["refusal"] = refusal;
  if (report.now.has_value()) {
    AddState(*report.now, GetFigures(*report.now, GetBefore(report)), &json);
  }
  // A server's strings may hold any bytes; bytes that are not UTF-8 are
  // replaced.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string StatusText(const ServerReport& report) {
  View view;
  view.AddField("server",
                absl::StrCat(report.attach.server(), " at ", report.address));
  if (report.now.has_value()) {
    const v1::GetStatusResponse& status = report.now->status;
    view.AddField(
        "version",
        absl::StrCat(status.version().empty() ? "unknown" : status.version(),
                     ", up ", SecondsText(status.uptime_seconds())));
  }
  view.AddField("health", HealthText(report));
  if (!report.attach.refusal().empty()) {
    view.AddField("refuses", report.attach.refusal());
  }
  if (report.now.has_value()) AddConditions(report.now->status, &view);
  AddJob(report, &view);
  if (report.now.has_value()) {
    const v1::GetStatusResponse& status = report.now->status;
    view.Add("");
    AddWork(status, GetFigures(*report.now, GetBefore(report)), &view);
    AddEncodedImages(status, &view);
    if (status.has_videos()) {
      for (const auto& [label, text] : VideoFields(status.videos())) {
        view.AddField(label, text);
      }
    }
    if (status.has_storage()) {
      for (const auto& [label, text] : StorageFields(status.storage())) {
        view.AddField(label, text);
      }
    }
    AddProblems(status, &view);
    std::string clients = absl::StrCat(status.clients_total());
    if (!status.clients().empty()) {
      absl::StrAppend(&clients, ", the last ", status.clients(0).lag(),
                      " steps behind the first");
    }
    view.AddField("clients", clients);
    if (!status.clients().empty()) view.Add("");
    AddClients(status, kMaxClients, &view);
  }
  return absl::StrCat(
      std::move(view).Take(), "\n",
      ModuleTable(report.attach.job(),
                  report.now.has_value() ? &*report.now : nullptr));
}

}  // namespace ballast
