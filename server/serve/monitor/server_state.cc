#include "server/serve/monitor/server_state.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/build_info.h"
#include "proto/schedule/split.h"

namespace ballast {

ClientBoard::Entry::Entry(ClientBoard* board, Client client) : board_(board) {
  MutexLock lock(&board_->mutex_);
  place_ = board_->places_.emplace(board_->places_.end());
  MutexLock own(&place_->mutex);
  place_->client = std::move(client);
}

ClientBoard::Entry::~Entry() {
  MutexLock lock(&board_->mutex_);
  board_->places_.erase(place_);
}

void ClientBoard::Entry::Set(const Client& client) {
  MutexLock lock(&place_->mutex);
  place_->client = client;
}

std::vector<ClientBoard::Client> ClientBoard::List() const {
  MutexLock lock(&mutex_);
  std::vector<Client> clients;
  clients.reserve(places_.size());
  for (const Place& place : places_) {
    MutexLock own(&place.mutex);
    clients.push_back(place.client);
  }
  return clients;
}

std::vector<v1::GetStatusResponse::Client> ByLag(
    const std::vector<ClientBoard::Client>& clients,
    std::chrono::steady_clock::time_point now, size_t most) {
  std::vector<const ClientBoard::Client*> order;
  std::map<v1::Split, uint64_t> furthest;
  for (const ClientBoard::Client& client : clients) {
    order.push_back(&client);
    uint64_t& step = furthest[client.role.split()];
    step = std::max(step, client.step);
  }
  const auto lag = [&furthest](const ClientBoard::Client& client) {
    return furthest[client.role.split()] - client.step;
  };
  // The largest lag first.
  const auto key = [&lag](const ClientBoard::Client& client) {
    return std::make_tuple(~lag(client), client.since, client.role.split(),
                           client.role.module(), client.role.dp_rank());
  };
  std::sort(order.begin(), order.end(),
            [&key](const auto* a, const auto* b) { return key(*a) < key(*b); });
  if (order.size() > most) order.resize(most);
  std::vector<v1::GetStatusResponse::Client> list;
  for (const ClientBoard::Client* client : order) {
    v1::GetStatusResponse::Client& entry = list.emplace_back();
    *entry.mutable_role() = client->role;
    entry.set_peer(client->peer);
    entry.set_step(client->step);
    entry.set_micro_batch(client->micro_batch);
    entry.set_lag(lag(*client));
    entry.set_state(client->state);
    entry.set_seconds(std::max(
        std::chrono::duration<double>(now - client->since).count(), 0.0));
    entry.set_held_bytes(client->held_bytes);
    entry.set_shared_memory(client->shared_memory);
    entry.set_blocks(client->blocks);
  }
  return list;
}

void FamilyList::Begin(absl::string_view name, v1::MetricFamily::Type type,
                       absl::string_view help) {
  v1::MetricFamily& family = families_.emplace_back();
  family.set_name(std::string(name));
  family.set_type(type);
  family.set_help(std::string(help));
}

void FamilyList::Add(double number, const Labels& labels) {
  AddMetric(labels)->set_number(number);
}

void FamilyList::Add(const DurationHistogram::Snapshot& histogram,
                     const Labels& labels) {
  v1::MetricFamily::Histogram* added = AddMetric(labels)->mutable_histogram();
  const absl::Span<const double> bounds = DurationHistogram::Bounds();
  added->mutable_bounds()->Add(bounds.begin(), bounds.end());
  added->mutable_counts()->Add(histogram.counts.begin(),
                               histogram.counts.end());
  added->set_sum(histogram.sum);
}

v1::MetricFamily::Metric* FamilyList::AddMetric(const Labels& labels) {
  v1::MetricFamily::Metric* metric = families_.back().add_metrics();
  for (const auto& [name, value] : labels) {
    v1::MetricFamily::Label* label = metric->add_labels();
    label->set_name(std::string(name));
    label->set_value(value);
  }
  return metric;
}

std::vector<v1::MetricFamily> FamilyList::Take() && {
  families_.erase(std::remove_if(families_.begin(), families_.end(),
                                 [](const v1::MetricFamily& family) {
                                   return family.metrics().empty();
                                 }),
                  families_.end());
  return std::move(families_);
}

namespace {

Problems Sorted(Problems problems) {
  SortProblems(ServerState::kMostProblems, &problems);
  return problems;
}

}  // namespace

ServerState::ServerState(Sources sources)
    : sources_(std::move(sources)),
      start_(std::chrono::steady_clock::now()),
      start_seconds_(absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch())) {}

v1::GetStatusResponse ServerState::Status() const {
  v1::GetStatusResponse status;
  AddBadData(&status);
  const LoaderStats loader = sources_.loader->stats();
  status.set_memory_in_use(loader.memory_in_use);
  status.set_memory(sources_.memory);
  status.set_open_streams(loader.streams);
  if (loader.current_step.has_value()) {
    status.set_current_step(*loader.current_step);
  }
  if (sources_.scheduler != nullptr) {
    for (const v1::Revision& revision : sources_.scheduler->revisions()) {
      status.add_change_steps(revision.first_step());
    }
  }
  const auto now = std::chrono::steady_clock::now();
  const std::vector<ClientBoard::Client> clients = sources_.clients->List();
  status.set_clients_total(clients.size());
  for (v1::GetStatusResponse::Problem& problem : FindProblems(clients)) {
    *status.add_problems() = std::move(problem);
  }
  for (v1::GetStatusResponse::Client& client : ByLag(clients, now, kListed)) {
    *status.add_clients() = std::move(client);
  }
  for (const v1::StepTiming& timing : sources_.timings->Latest()) {
    v1::GetStatusResponse::RankTimes* times = status.add_rank_times();
    *times->mutable_role() = timing.role();
    times->set_step(timing.step());
    times->set_micro_batch(timing.micro_batch());
    times->set_milliseconds(timing.milliseconds());
    if (timing.has_wait_milliseconds()) {
      times->set_wait_milliseconds(timing.wait_milliseconds());
    }
    if (timing.has_copy_milliseconds()) {
      times->set_copy_milliseconds(timing.copy_milliseconds());
    }
    if (timing.has_exchange_milliseconds()) {
      times->set_exchange_milliseconds(timing.exchange_milliseconds());
    }
    if (timing.has_pack_milliseconds()) {
      times->set_pack_milliseconds(timing.pack_milliseconds());
    }
    if (timing.has_decode_milliseconds()) {
      times->set_decode_milliseconds(timing.decode_milliseconds());
    }
  }
  status.mutable_encoded_images()->Add(sources_.encoded_images.begin(),
                                       sources_.encoded_images.end());
  AddStorage(&status);
  AddVideos(&status);
  status.set_server(sources_.name);
  status.set_version(ShortVersion());
  status.set_uptime_seconds(
      std::chrono::duration<double>(now - start_).count());
  return status;
}

void ServerState::AddStorage(v1::GetStatusResponse* status) const {
  if (sources_.storage == nullptr) return;
  v1::GetStatusResponse::Storage* storage = status->mutable_storage();
  const StorageCounters& counters = sources_.storage->counters();
  storage->set_requests(counters.requests.value());
  storage->set_fetched_bytes(counters.fetched_bytes.value());
  storage->set_memory_hits(counters.memory_hits.value());
  storage->set_cache_hits(counters.cache_hits.value());
  const DurationHistogram::Snapshot stalls = counters.stalls.Read();
  storage->set_stalls(stalls.count());
  storage->set_stall_seconds(stalls.sum);
  storage->set_errors(counters.errors.value());
  storage->set_cache_damaged(counters.cache_damaged.value());
  storage->set_cache_evicted(counters.cache_evicted.value());
  if (const auto cache = sources_.storage->cache()) {
    storage->set_cache_bytes(cache->bytes());
    storage->set_cache_size(cache->size());
  }
  storage->set_fetched_to_step(sources_.ahead_fetcher->fetched_to_step());
}

void ServerState::AddVideos(v1::GetStatusResponse* status) const {
  const BuildInstruments& build = *sources_.build;
  const uint64_t starts = build.video_decoders.starts.value();
  if (starts == 0) return;
  v1::GetStatusResponse::Videos* videos = status->mutable_videos();
  videos->set_videos(build.vision.media[MediumKind::kVideo].value());
  videos->set_frames(build.vision.frames.value());
  videos->set_videos_checked(build.check.media[MediumKind::kVideo].value());
  videos->set_frames_checked(build.check.frames.value());
  videos->set_decode_seconds(build.decode_video.Read().sum);
  videos->set_decoder_starts(starts);
  for (size_t i = 0; i < kHelperEnds; ++i) {
    const uint64_t count = build.video_decoders.ends[i].value();
    if (count == 0) continue;
    v1::GetStatusResponse::Videos::End* end = videos->add_decoder_ends();
    end->set_reason(kHelperEndNames[i]);
    end->set_count(count);
  }
}

Problems ServerState::FindProblems(
    const std::vector<ClientBoard::Client>& clients) const {
  Problems problems;
  if (sources_.problems != nullptr) problems = sources_.problems->List();
  const auto add = [&problems](absl::string_view kind, std::string subject,
                               std::string text) {
    v1::GetStatusResponse::Problem& problem = problems.emplace_back();
    problem.set_kind(std::string(kind));
    problem.set_subject(std::move(subject));
    problem.set_text(std::move(text));
    return &problem;
  };
  for (FailingFiles::File& file : sources_.build->failing_files.List()) {
    auto* const problem =
        add("reads_fail", std::move(file.name),
            absl::StrCat(file.reason,
                         "; ranks that need it wait. Bring the file or its "
                         "disk back; nothing need be restarted"));
    problem->set_seconds(absl::ToDoubleSeconds(file.lasts));
    problem->set_count(file.failures);
  }
  if (sources_.connections != nullptr) {
    const std::string why =
        sources_.connections->RefusedSince(absl::Now() - kRefusedLately);
    if (!why.empty()) {
      add("connections", "serve.listen",
          absl::StrCat("connections are refused: ", why))
          ->set_count(sources_.connections->refused.value());
    }
  }
  if (sources_.certificate != nullptr) {
    const auto [ends, file] = sources_.certificate();
    const absl::Duration left = ends - absl::Now();
    if (left < kRenewBefore) {
      add("certificate", file,
          absl::StrCat(left > absl::ZeroDuration() ? "ends at " : "ended at ",
                       absl::FormatTime(ends, absl::UTCTimeZone()),
                       "; new connections fail then. Replace the certificate "
                       "and its key; the server reads them within 5 s"))
          ->set_seconds(std::max(absl::ToDoubleSeconds(-left), 0.0));
    }
  }
  if (!sources_.wants_shared_memory) return Sorted(std::move(problems));
  if (sources_.loader->arena() == nullptr) {
    add("shared_memory", "serve.arena",
        "there is none, so all blocks go over streams; the log of the "
        "server's start says why (docs/operations.md, \"Shared memory\")")
        ->set_seconds(absl::ToDoubleSeconds(
            absl::FromChrono(std::chrono::steady_clock::now() - start_)));
    return Sorted(std::move(problems));
  }
  const auto streams = std::count_if(
      clients.begin(), clients.end(), [](const ClientBoard::Client& client) {
        return client.blocks > 0 && !client.shared_memory &&
               absl::StartsWith(client.peer, "unix:");
      });
  if (streams > 0) {
    add("shared_memory", "",
        absl::StrCat("clients of this machine get their blocks over streams; "
                     "their logs say why (docs/operations.md, \"Shared "
                     "memory\")"))
        ->set_count(streams);
  }
  return Sorted(std::move(problems));
}

void ServerState::AddBadData(v1::GetStatusResponse* status) const {
  for (const BadSamples::Sample& entry :
       sources_.builder->bad_samples().List()) {
    v1::GetStatusResponse::BadSample* bad = status->add_bad_samples();
    bad->set_sample(entry.name);
    bad->set_file(entry.file);
    bad->set_offset(entry.offset);
    bad->set_reason(entry.reason);
    bad->set_count(entry.count);
  }
  status->set_max_bad_samples(sources_.builder->bad_samples().most());
  *status->mutable_left_out() = {sources_.left_out.begin(),
                                 sources_.left_out.end()};
  status->set_costs(sources_.costs);
  const std::vector<ActiveSample> stalls = sources_.stalls->Stalls();
  // After the time that they were compared with: none is below the limit.
  const absl::Time now = sources_.clock->Now();
  for (const ActiveSample& work : stalls) {
    v1::GetStatusResponse::Stall* stall = status->add_stalls();
    stall->set_stage(work.stage);
    stall->set_seconds(absl::ToDoubleSeconds(now - work.since));
    if (work.step.has_value()) {
      stall->set_sample(
          absl::StrCat(SplitWord(work.split), "step ", *work.step));
      continue;
    }
    const SampleLocation at =
        sources_.builder->Locate(work.source, work.ordinal);
    stall->set_sample(sources_.builder->GetName(work.source, work.ordinal));
    stall->set_file(at.file);
    stall->set_offset(at.offset);
    stall->set_module(work.module);
    stall->set_position(work.position);
  }
}

}  // namespace ballast
